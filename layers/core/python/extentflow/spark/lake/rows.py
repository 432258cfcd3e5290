"""Decode the records of topics to rows, in the Python workers of executors.

Kafka record ──header extentflow.columnar──> columns in Arrow ──┐
             ──none, and a declared schema──> JSON, exact ──────┴──> rows with the table's columns
                                                                └──> SchemaGrown: to the driver
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from extentflow.columnar import ENCODING, BatchFacts
from extentflow.columnar.values import decode
from extentflow.config.columns import Schema
from extentflow.engines.spark import noted_errors
from extentflow.errors import AccessDenied, CorruptRecord, Retryable, UnsupportedFormat
from extentflow.formats.json_columns import ColumnReader, MemberColumns
from extentflow.formats.lines import LineBlock
from extentflow.spark.lake.columns import fitted, in_parquet, in_spark, merged

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PLACE: Final = ("topic", "partition", "offset")
# What a query selects of Kafka's columns.
KAFKA_COLUMNS: Final = (*PLACE, "value", "headers")
_GROWN_NOTE: Final = "extentflow-columns: "
_REGISTRY_MAGIC: Final = 0


class SchemaGrown(Retryable):
    """Rows have columns that the table lacks, or wider ones; `columns` are those of both."""

    def __init__(self, where: str, columns: pa.Schema) -> None:
        super().__init__(f"{where}: rows have columns that the table lacks; it gets them")
        self.columns = columns
        text = base64.b64encode(columns.serialize().to_pybytes()).decode()
        self.add_note(f"{_GROWN_NOTE}{text}")


def grown_columns(report: str) -> pa.Schema | None:
    """Return the columns that a task's SchemaGrown has in Spark's report of its failure."""
    found = re.findall(rf"^\s*{_GROWN_NOTE}(\S+)", report, re.MULTILINE)
    if not found:
        return None
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(found[-1])))


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows of consecutive records of one partition, from offset `first` to `last`."""

    topic: str
    partition: int
    first: int
    last: int
    rows: pa.RecordBatch

    @property
    def where(self) -> str:
        """Where the rows are, for messages."""
        span = "" if self.first == self.last else f"-{self.last}"
        return f"topic {self.topic}[{self.partition}] offset {self.first}{span}"


@dataclass(frozen=True)
class RowReader:
    """Decodes Kafka records into rows with the table's `columns`; None: it has none yet.

    `declared` is the schema of JSON values (None: only columnar values are read). `spark`: rows
    pass through Spark, which does not hold all types. Sent to executors: it is plain values.
    """

    columns: pa.Schema | None
    declared: Schema | None
    spark: bool

    @cached_property
    def _json(self) -> ColumnReader:
        declared = self.declared or ()
        return ColumnReader(MemberColumns("json", declared, inferred=False, ignores=False))

    def held(self, schema: pa.Schema) -> pa.Schema:
        """Return how the table holds columns of values. Raises UnsupportedType."""
        return in_spark(schema) if self.spark else in_parquet(schema)

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[DecodedRows]:
        """Yield the rows of batches of KAFKA_COLUMNS, with the table's columns.

        Raises SchemaGrown where the table lacks a column, IncompatibleSchema, UnsupportedType,
        UnsupportedFormat for a value that is neither columnar nor declared, AccessDenied for
        encrypted columns, and CorruptRecord.
        """
        for batch in batches:
            for decoded in self._decoded(batch):
                yield self._fitted(decoded)

    def _fitted(self, decoded: DecodedRows) -> DecodedRows:
        found = self.held(decoded.rows.schema)
        known = pa.schema([]) if self.columns is None else self.columns
        columns = known if found == known else merged(known, found, decoded.where)
        if columns != known:
            raise SchemaGrown(decoded.where, columns)
        return DecodedRows(
            decoded.topic,
            decoded.partition,
            decoded.first,
            decoded.last,
            fitted(decoded.rows, columns),
        )

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[DecodedRows]:
        keys = batch.column("headers").flatten().field("key")
        if not pc.any(pc.equal(keys, ENCODING)).as_py():
            yield from self._documents(batch)
            return
        for index in range(batch.num_rows):
            record = batch.slice(index, 1)
            topic, partition, offset = (record.column(name)[0].as_py() for name in PLACE)
            headers = record.column("headers")[0].as_py()
            rows = columnar_rows(
                f"topic {topic}[{partition}] offset {offset}",
                record.column("value")[0].as_buffer(),
                [(each["key"], each["value"]) for each in headers or ()],
            )
            if rows is None:
                yield from self._documents(record)
            else:
                yield DecodedRows(topic, partition, offset, offset, rows)

    def _documents(self, batch: pa.RecordBatch) -> Iterator[DecodedRows]:
        """Yield the rows of JSON values."""
        topics, partitions = (batch.column(name).to_pylist() for name in PLACE[:2])
        places = list(zip(topics, partitions, strict=True))
        start = 0
        for place, run in groupby(places):
            count = len(list(run))
            yield self._documents_of(place, batch.slice(start, count))
            start += count

    def _documents_of(self, place: tuple[str, int], part: pa.RecordBatch) -> DecodedRows:
        """Return the rows of JSON values of one partition."""
        offsets, values = part.column("offset"), part.column("value").cast(pa.large_binary())
        where = f"topic {place[0]}[{place[1]}] offset "
        _, bounds_buffer, data = values.buffers()
        bounds = np.frombuffer(bounds_buffer, np.int64)[values.offset :][: len(values) + 1]
        starts, ends = bounds[:-1], bounds[1:]
        content = np.frombuffer(data or b"", np.uint8)
        if len(empty := np.flatnonzero(starts == ends)):
            raise CorruptRecord(
                f"{where}{offsets[empty[0]]}: the record has no value, thus no row; `extentflow"
                " lake` writes topics whose records all have values"
            )
        if len(framed := np.flatnonzero(content[starts] == _REGISTRY_MAGIC)):
            raise UnsupportedFormat(
                f"{where}{offsets[framed[0]]}: a value with the framing of a schema registry,"
                " which `extentflow lake` does not read; fill the topic with"
                " columnar.encoding=parquet, or with JSON and give --schema"
            )
        if self.declared is None:
            raise UnsupportedFormat(
                f"{where}{offsets[0]}: no columnar value, because the record lacks the header"
                f" {ENCODING}; give --schema where values are JSON"
            )
        block = LineBlock(0, content, starts, ends, ends, int(bounds[-1]))
        chunk = self._json.read(block)
        if chunk.batch.num_rows != len(values):
            read = set(chunk.locations)
            first = next(row for row, start in enumerate(starts.tolist()) if start not in read)
            why = chunk.bad[0].reason if chunk.bad else "no JSON value, only whitespace"
            raise CorruptRecord(f"{where}{offsets[first]}: {why}; --schema is json.schema here")
        return DecodedRows(*place, offsets[0].as_py(), offsets[-1].as_py(), chunk.batch)


def columnar_rows(
    where: str, value: bytes | pa.Buffer | None, headers: Sequence[tuple[str, bytes | None]]
) -> pa.RecordBatch | None:
    """Return the rows of a columnar value; None where a record has another value.

    Raises CorruptRecord, and AccessDenied for encrypted columns; both name `where` the record is.
    """
    try:
        facts = BatchFacts.of(headers)
        if facts is None:
            return None
        if not facts.encrypted:
            return decode(b"" if value is None else value, facts)
    except (CorruptRecord, AccessDenied) as exc:
        raise type(exc)(f"{where}: {exc}") from exc
    raise AccessDenied(
        f"{where}: columns {', '.join(facts.encrypted)} are encrypted, and `extentflow lake` has no"
        " keys; read them by a consumer with keys"
    )


# -- as tasks of Spark -----------------------------------------------------------------------------


def map_in_arrow(records: DataFrame, task: Task, kind: StructType) -> DataFrame:
    """Return `records.mapInArrow(task, kind)`, without pandas, which Arrow's path does not use.

    Spark 4.0 requires pandas for the call itself (pyspark/sql/pandas/map_ops.py), not for the task.
    """
    udf = UserDefinedFunction(task, kind, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[records[name] for name in records.columns])
    mapped = records._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001, FBT003 - Spark's own
    return DataFrame(mapped, records.sparkSession)


def rows_in_arrow(reader: RowReader) -> Task:
    """Return the task that decodes records to rows with the reader's columns."""
    return partial(_rows, reader)


def _rows(reader: RowReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with noted_errors():
        for decoded in reader.rows(batches):
            yield decoded.rows
