"""The delivery of extents; the only package in which records move.

It claims an extent, decodes and converts it, sends the records, and commits records and position in
one Kafka transaction. It uses stores, formats, converters, the sink and the ledger through their
ports; the composition root (`extentflow.wiring`) chooses the adapters, and `engines` decide which
extent runs where.
"""
