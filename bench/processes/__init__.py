"""Competitors as programs: `python -m bench.processes.NAME`, controlled by a `WarmProcess`."""
