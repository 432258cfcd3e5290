"""Delivery: the only package in which records move.

It claims an extent, decodes and converts it, sends the records, and commits records and position in
one Kafka transaction. It reaches stores, formats, converters, the sink and the ledger through their
ports; which adapters these are is decided by the composition root (`extentflow.wiring`).
"""
