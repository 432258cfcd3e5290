"""Topics as tables: a streaming query that writes Parquet folders or Iceberg tables, exactly once.

    service     the query: micro-batches, their ranges, what happens before and after one
    target      the port: a table that states the offsets up to which it holds topics
    iceberg     its adapter for Iceberg tables
    history     which offsets of an Iceberg table's snapshots count
    parquet     its adapter for folders of Parquet files
    rows        Kafka records to rows, on executors
    options     how values are decoded: columns, keys, registry
    registered  the schemas of a registry
    columns     types, and how columns grow
    session     the jars that a session of Spark needs

docs/lake.md describes guarantees and limits. The decoding of values is that of
`extentflow.columnar` and `extentflow.formats`.
"""
