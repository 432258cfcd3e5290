"""Decode the records of topics to rows, in the Python workers of executors.

Kafka record ──header extentflow.columnar──> columns in Arrow ──┐
             ──0, and a schema's id──> Avro or JSON, exact ─────┤
             ──none, and a declared schema──> JSON, exact ──────┴──> rows with the table's columns
                                                                └──> SchemaGrown: to the driver
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, pairwise
from typing import Final, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from extentflow.arrays.spans import Spans
from extentflow.columnar import ENCODING, BatchFacts
from extentflow.columnar.values import decode
from extentflow.decoders.avro_content import DamagedBlock
from extentflow.decoders.avro_nodes import Record
from extentflow.decoders.json_columns import ColumnReader, MemberColumns, UnfitDocument
from extentflow.engines.spark import noted_errors
from extentflow.errors import CorruptRecord, Retryable, UnsupportedFormat, located
from extentflow.export.lake.lake_columns import fitted, in_parquet, in_spark, merged
from extentflow.export.lake.lake_options import ValueOptions
from extentflow.export.lake.registered_schemas import (
    MAGIC,
    PREFIX_BYTES,
    RegisteredSchema,
    RegisteredSchemas,
    avro_rows,
)
from extentflow.formats.parquet.column_keys import KeyService

# Rows that a task holds until it writes them, as Arrow has them.
BUFFERED_BYTES: Final = 128 << 20
FILES: Final = pa.schema([("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

PLACE: Final = ("topic", "partition", "offset")
# What a query selects of Kafka's columns.
KAFKA_COLUMNS: Final = (*PLACE, "value", "headers")
# No number of a registered schema.
UNREGISTERED: Final = -1
# Behind reasons that name settings of connectors.
SCHEMA_REMARK: Final = "here, --schema is json.schema, and each member needs a column"
_GROWN_NOTE: Final = "extentflow-columns: "


class SchemaGrown(Retryable):
    """Rows have columns that the table lacks, or wider ones; `columns` are those of both.

    Its note is for `grown_columns`, which the same `nonce` distinguishes from text of users.
    """

    def __init__(self, where: str, columns: pa.Schema, nonce: str) -> None:
        super().__init__(f"{where}: rows have columns that the table lacks; it gets them")
        self.columns = columns
        text = base64.b64encode(columns.serialize().to_pybytes()).decode()
        self.add_note(f"{_GROWN_NOTE}{nonce} {text}")


def grown_columns(report: str, nonce: str) -> pa.Schema | None:
    """Return the columns that a task's SchemaGrown has in Spark's report of its failure."""
    found = re.findall(rf"^\s*{_GROWN_NOTE}{nonce} (\S+)", report, re.MULTILINE)
    if not found:
        return None
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(found[-1])))


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Rows of consecutive records of one partition, from offset `first` to `last`.

    `schema` names the registered one that they have; empty: none.
    """

    topic: str
    partition: int
    first: int
    last: int
    rows: pa.RecordBatch
    schema: str = ""

    @property
    def where(self) -> str:
        """Where the rows are, for messages."""
        span = "" if self.first == self.last else f"-{self.last}"
        place = f"topic {self.topic}[{self.partition}] offset {self.first}{span}"
        return f"{place}, {self.schema}" if self.schema else place


@dataclass(frozen=True)
class RowReader:
    """Decodes Kafka records into rows with the table's `columns`; None: it has none yet.

    `spark`: rows pass through Spark, which does not hold all types. `nonce` is in the notes of
    errors: the driver finds these in a report that also has names and texts of users, any of which
    may look like a note. Sent to executors: it is plain values.
    """

    columns: pa.Schema | None
    options: ValueOptions
    spark: bool
    nonce: str = field(default_factory=lambda: uuid4().hex)

    @cached_property
    def _json(self) -> ColumnReader:
        declared = self.options.schema or ()
        return ColumnReader(MemberColumns("json", declared, inferred=False, ignores=False))

    @cached_property
    def _keys(self) -> KeyService | None:
        return self.options.open_keys()

    @cached_property
    def _registry(self) -> RegisteredSchemas | None:
        return self.options.open_registry()

    def held(self, schema: pa.Schema) -> pa.Schema:
        """Return how the table holds columns of values. Raises UnsupportedType."""
        return in_spark(schema) if self.spark else in_parquet(schema)

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[DecodedRows]:
        """Yield the rows of batches of KAFKA_COLUMNS, with the table's columns.

        Raises SchemaGrown where the table lacks a column, UnsupportedFormat for a value that is
        neither columnar nor declared or registered, AccessDenied for encrypted columns without
        their keys. Raises also IncompatibleSchema, UnsupportedType, CorruptRecord, and as
        `RegisteredSchemas.find`.
        """
        for batch in batches:
            for decoded in self._decoded(batch):
                yield self._fitted(decoded)

    def _fitted(self, decoded: DecodedRows) -> DecodedRows:
        with located(decoded.where):
            found = self.held(decoded.rows.schema)
        known = pa.schema([]) if self.columns is None else self.columns
        columns = known if found == known else merged(known, found, decoded.where)
        if columns != known:
            raise SchemaGrown(decoded.where, columns, self.nonce)
        return DecodedRows(
            decoded.topic,
            decoded.partition,
            decoded.first,
            decoded.last,
            fitted(decoded.rows, columns),
            decoded.schema,
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
            with located(f"topic {topic}[{partition}] offset {offset}"):
                facts = BatchFacts.of([(each["key"], each["value"]) for each in headers or ()])
                if facts is not None:
                    value = record.column("value")[0].as_buffer()
                    rows = decode(
                        b"" if value is None else value,
                        facts,
                        self.options.columns,
                        # As in a table: rows of a value that lacks a column have nulls.
                        lenient=True,
                        keys=self._keys,
                    )
                    yield DecodedRows(topic, partition, offset, offset, rows)
            if facts is None:
                yield from self._documents(record)

    def _documents(self, batch: pa.RecordBatch) -> Iterator[DecodedRows]:
        """Yield the rows of values that are one row."""
        topics, partitions = (batch.column(name).to_pylist() for name in PLACE[:2])
        places = list(zip(topics, partitions, strict=True))
        start = 0
        for place, run in groupby(places):
            count = len(list(run))
            yield from self._documents_of(_Values.of(place, batch.slice(start, count)))
            start += count

    def _documents_of(self, values: _Values) -> Iterator[DecodedRows]:
        """Yield the rows of values of one partition; those of one schema are one batch."""
        numbers = values.schemas()
        bounds = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1)).tolist()
        for start, end in pairwise([*bounds, len(numbers)]):
            yield self._of_one_schema(values.part(start, end), int(numbers[start]))

    def _of_one_schema(self, values: _Values, number: int) -> DecodedRows:
        if number == UNREGISTERED:
            if self.options.schema is None:
                raise UnsupportedFormat(
                    f"{values.where(0)}: no columnar value, because the record lacks the header"
                    f" {ENCODING}; give --schema where values are JSON"
                )
            return self._decoded_json(values, self._json, SCHEMA_REMARK)
        if self._registry is None:
            raise UnsupportedFormat(
                f"{values.where(0)}: a value with the schema {number} of a registry; give its"
                " address by --registry"
            )
        with located(values.where(0)):
            schema = self._registry.find(number)
        values = values.behind(PREFIX_BYTES)
        if isinstance(schema.reader, ColumnReader):
            return self._decoded_json(values, schema.reader, schema.label, schema.label)
        return self._decoded_avro(values, schema, schema.reader)

    def _decoded_json(
        self, values: _Values, reader: ColumnReader, remark: str, schema: str = ""
    ) -> DecodedRows:
        """Return the rows of JSON values; `remark` ends the message of an error."""
        try:
            rows = reader.read_all(values.texts)
        except UnfitDocument as exc:
            raise CorruptRecord(f"{values.where(exc.row)}: {exc}; {remark}") from exc
        return values.decoded(chosen(rows, self.options.columns), schema)

    def _decoded_avro(
        self, values: _Values, schema: RegisteredSchema, record: Record
    ) -> DecodedRows:
        try:
            rows = avro_rows(record, schema.columns, values.texts)
        except DamagedBlock:
            for row in range(len(values.texts)):
                with _damage_at(f"{values.where(row)}: not of the Avro {schema.label}"):
                    avro_rows(record, schema.columns, values.part(row, row + 1).texts)
            raise
        return values.decoded(chosen(rows, self.options.columns), schema.label)


@contextmanager
def _damage_at(what: str) -> Iterator[None]:
    try:
        yield
    except DamagedBlock as exc:
        raise CorruptRecord(f"{what}: {exc}") from exc


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of consecutive records of one partition."""

    topic: str
    partition: int
    offsets: NDArray[np.int64]
    texts: Spans

    @classmethod
    def of(cls, place: tuple[str, int], part: pa.RecordBatch) -> Self:
        """Return the values of records. Raises CorruptRecord for one without a value."""
        values = part.column("value").cast(pa.large_binary())
        _, bounds_buffer, data = values.buffers()
        bounds = np.frombuffer(bounds_buffer, np.int64)[values.offset :][: len(values) + 1]
        content = np.frombuffer(data or b"", np.uint8)
        offsets = part.column("offset").to_numpy()
        found = cls(*place, offsets, Spans(content, bounds[:-1], bounds[1:]))
        if len(empty := np.flatnonzero(np.diff(bounds) == 0)):
            raise CorruptRecord(
                f"{found.where(int(empty[0]))}: the record has no value, thus no row; `extentflow"
                " lake` writes topics whose records all have values"
            )
        return found

    def where(self, row: int) -> str:
        """Return where a value is, for messages."""
        return f"topic {self.topic}[{self.partition}] offset {self.offsets[row]}"

    def schemas(self) -> NDArray[np.int64]:
        """Return the number of the schema that each value names; UNREGISTERED: none.

        Raises CorruptRecord for one that ends within the number.
        """
        content, starts, ends = self.texts.data, self.texts.starts, self.texts.ends
        named = np.flatnonzero(content[starts] == MAGIC)
        begins = starts[named]
        if len(short := named[ends[named] - begins < PREFIX_BYTES]):
            raise CorruptRecord(
                f"{self.where(int(short[0]))}: the value begins as one with the schema of a"
                " registry, and ends before the schema's id does"
            )
        numbers = np.full(len(starts), UNREGISTERED, np.int64)
        digits = content[begins[:, None] + np.arange(1, PREFIX_BYTES)]
        numbers[named] = digits.astype(np.int64) @ (256 ** np.arange(PREFIX_BYTES - 2, -1, -1))
        return numbers

    def part(self, start: int, end: int) -> Self:
        """Return the values `[start, end)`."""
        rows = slice(start, end)
        texts = Spans(self.texts.data, self.texts.starts[rows], self.texts.ends[rows])
        return replace(self, offsets=self.offsets[rows], texts=texts)

    def behind(self, count: int) -> Self:
        """Return the values without their first bytes."""
        return replace(self, texts=replace(self.texts, starts=self.texts.starts + count))

    def decoded(self, rows: pa.RecordBatch, schema: str) -> DecodedRows:
        """Return rows as those of these records."""
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return DecodedRows(self.topic, self.partition, first, last, rows, schema)


def chosen(rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return only those of `columns` that rows have; None: all."""
    if columns is None:
        return rows
    return rows.select([name for name in columns if name in rows.schema.names])


# -- as tasks of Spark -----------------------------------------------------------------------------


def buffered(decoded: Iterable[DecodedRows]) -> Iterator[list[DecodedRows]]:
    """Yield runs of consecutive rows of one topic's partition, of about BUFFERED_BYTES."""
    run: list[DecodedRows] = []
    size = 0
    for one in decoded:
        same = not run or (run[0].topic, run[0].partition) == (one.topic, one.partition)
        if run and (size >= BUFFERED_BYTES or not same):
            yield run
            run, size = [], 0
        run.append(one)
        size += one.rows.nbytes
    if run:
        yield run


def listed(files: Sequence[tuple[str, int, int]]) -> pa.RecordBatch:
    """Return what a task tells the driver of files: path, rows and bytes of each."""
    paths, rows, sizes = ([file[at] for file in files] for at in range(len(FILES)))
    arrays = [pa.array(paths, pa.string()), pa.array(rows, pa.int64()), pa.array(sizes, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=FILES)


def map_in_arrow(records: DataFrame, task: Task, kind: StructType) -> DataFrame:
    """Return `records.mapInArrow(task, kind)`, without pandas, which Arrow's path does not use.

    Spark 4.0 has no public call without it: mapInArrow makes a pandas_udf, which requires pandas on
    the driver (pyspark/sql/pandas/functions.py). The task needs PyArrow alone.
    """
    udf = UserDefinedFunction(task, kind, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[records[name] for name in records.columns])
    mapped = records._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001, FBT003 - Spark's own
    return DataFrame(mapped, records.sparkSession)


def rows_in_arrow(reader: RowReader) -> Task:
    """Return the task that decodes records to rows with the reader's columns."""
    return partial(_rows, reader)


def _rows(reader: RowReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with noted_errors(reader.nonce):
        for decoded in reader.rows(batches):
            yield decoded.rows
