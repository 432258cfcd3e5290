"""Doubles of every port, shipped for users who test their own formats, converters and engines.

`stores` (MemoryStore, FaultyStore), `ledger` (MemoryLedger), `broker` (MemoryBroker),
`queues` (MemoryQueue), `publishers` (MemoryJobEvents), `runs` (MemoryRuns). They keep
the contracts of the ports and nothing else: no network, no files, no threads of their own.
"""
