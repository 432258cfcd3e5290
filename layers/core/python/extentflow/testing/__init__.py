"""Doubles of every port, shipped for users who test their own formats, converters and engines.

`stores` (MemoryStore, FaultyStore, MemorySource), `ledger` (MemoryLedger), `broker` (MemoryBroker),
`services` (MemoryQueue, MemoryJobRuns, MemoryJobEvents). They fulfil the contracts of the ports, in
which their methods are documented, without network, files and threads.
"""
