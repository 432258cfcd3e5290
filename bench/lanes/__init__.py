"""Competitors, each a program of its own: `python -m bench.lanes.NAME`, asked over a `Lane`."""
