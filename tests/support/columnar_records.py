"""Records with columnar values, for tests of consumers."""

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.columnar import BatchFacts
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import encoder
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.kafka.reading import ConsumedRecord


def facts(rows: int, schema: pa.Schema, encoding: str = "parquet") -> BatchFacts:
    return BatchFacts(
        encoding=encoding,
        rows=rows,
        schema=identity(schema),
        batch="b",
        object="s3://shop/in/a.parquet",
        version="v",
        extent="0-100",
        first=0,
        last=rows - 1,
        unit="row",
    )


def as_parquet(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - of Arrow's writer
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def as_arrow(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - of Arrow's writer
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as made:
        made.write_table(table)
    return sink.getvalue()


def columnar(
    offset: int,
    value: bytes | None,
    rows: int,
    *,
    partition: int = 0,
    encoding: str = "parquet",
) -> ConsumedRecord:
    """Return a record whose headers state that its value has `rows` rows."""
    stated = facts(rows, pa.schema([("n", pa.int64())]), encoding).headers()
    return ConsumedRecord(partition, offset, None, value, stated)


def numbers(offset: int, *, partition: int = 0, rows: int = 3, **options: Any) -> ConsumedRecord:  # noqa: ANN401 - of Arrow's writer
    """Return a record with rows that are different in each record."""
    first = (partition * 1000 + offset) * 1000
    table = pa.table({"n": pa.array(range(first, first + rows), pa.int64())})
    return columnar(offset, as_parquet(table, **options), rows, partition=partition)


def encrypted(
    offset: int, rows: pa.RecordBatch, columns: Sequence[str], service: KeyService, key: str
) -> ConsumedRecord:
    """Return a record with rows, of which `columns` are encrypted; `key` wraps their keys."""
    hidden = ColumnEncryption(tuple(columns), key, service)
    value = encoder("parquet", "zstd", rows.schema, hidden)(rows).to_pybytes()
    stated = replace(facts(rows.num_rows, rows.schema), encrypted=tuple(columns))
    return ConsumedRecord(0, offset, None, value, stated.headers())
