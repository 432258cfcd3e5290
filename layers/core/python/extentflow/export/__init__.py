"""Export: the only package in which records move out of Kafka, exactly once.

`topic_export` writes columnar values to files, unread. `lake` writes rows to Parquet folders and
Iceberg tables.
"""
