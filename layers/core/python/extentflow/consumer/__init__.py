"""Reads rows from topics: columnar values, JSON, and Avro with a schema registry.

    from extentflow.consumer import TopicConsumer

    with TopicConsumer({"bootstrap.servers": "..."}, ["orders"], group="billing") as consumer:
        for batch in consumer.batches():
            handle(batch.rows)          # a pyarrow.RecordBatch
            consumer.commit()

    Kafka ──records──> ValueReader ──ConsumedBatch──> GroupJoin (topics of column groups)──> caller

Positions are exact within a batch: `commit` stores the offset of a record, and in the offset's
metadata the row at which reading continues. docs/columnar.md specifies both.
"""

from extentflow.consumer.row_batches import ConsumedBatch, Position
from extentflow.consumer.topic_consumer import TopicConsumer

__all__ = ["ConsumedBatch", "Position", "TopicConsumer"]
