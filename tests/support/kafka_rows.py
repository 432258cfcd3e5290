"""Records as Spark's Kafka source passes them to tasks."""

from collections.abc import Sequence

import pyarrow as pa

from extentflow.export.lake.lake_rows import KAFKA_COLUMNS
from extentflow.kafka.reading import ConsumedRecord

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.list_(_HEADER))
KAFKA_SCHEMA = pa.schema(list(zip(KAFKA_COLUMNS, _TYPES, strict=True)))


def kafka_rows(topic: str, records: Sequence[ConsumedRecord]) -> pa.RecordBatch:
    """Return records as a batch of the source's columns; without headers, they are null."""
    rows = [
        {
            "topic": topic,
            "partition": one.partition,
            "offset": one.offset,
            "value": one.value,
            "headers": [{"key": name, "value": value} for name, value in one.headers] or None,
        }
        for one in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KAFKA_SCHEMA)
