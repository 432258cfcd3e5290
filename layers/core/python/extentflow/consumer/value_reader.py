"""Decodes the values of records to rows: columnar values, JSON, Avro with a schema registry.

header extentflow.columnar         columnar value: a batch of its own
byte 0, then the id of a schema    Avro or JSON of a registry      }  consecutive ones
any other                          JSON                            }  become one batch
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa

from extentflow.arrays.spans import Spans
from extentflow.columnar import ENCODING, BatchFacts, is_columnar
from extentflow.columnar.values import decode, no_column
from extentflow.config.column_lists import Schema
from extentflow.consumer.row_batches import ConsumedBatch, place
from extentflow.decoders.avro_columns import decode_values
from extentflow.decoders.avro_content import DamagedBlock
from extentflow.decoders.avro_nodes import Record
from extentflow.decoders.avro_writer_schema import parse_schema
from extentflow.decoders.json_columns import ColumnReader, MemberColumns, UnfitDocument
from extentflow.decoders.json_inference import inferred_columns
from extentflow.errors import AccessDenied, CorruptObject, CorruptRecord, Misconfigured
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.kafka.reading import ConsumedRecord

REGISTRY_BYTES = 5
# Returns kind (AVRO, JSON, PROTOBUF) and text of the schema with an id.
FindSchema: TypeAlias = Callable[[int], tuple[str, str]]


@dataclass(slots=True)
class ValueReader:
    """Decodes records of topics.

    `columns`: only these, in this order; None: all. `lenient`: of these, those that a value has.
    `schema` declares the members of JSON values, as `json.schema` does; None: the values of a batch
    show them. Later batches keep the types as long as these hold their values exactly.
    `find_schema` reads schemas of a registry; None: there is none. `keys` decrypt columns of
    columnar values; None: only the others can be read.
    """

    columns: Sequence[str] | None = None
    lenient: bool = False
    schema: Schema | None = None
    find_schema: FindSchema | None = None
    keys: KeyService | None = None
    _avro: dict[int, Record] = field(default_factory=dict)
    _kinds: dict[int, tuple[str, str]] = field(default_factory=dict)
    _inferred: MemberColumns | None = None

    def read(self, topic: str, records: Sequence[ConsumedRecord]) -> Iterator[ConsumedBatch]:
        """Yield the rows of consecutive records of one partition, in order.

        Records without a value (tombstones) have no rows. Raises CorruptRecord, whose message names
        topic, partition and offset, and AccessDenied, with the same place, for encrypted columns
        without their keys. Raises Misconfigured for a column that a value lacks, and for values
        that need a registry.
        """
        for run in self.runs(records):
            kind = self._kind(run[0])
            if kind is None:
                yield self._columnar(topic, run[0])
            elif present := [record for record in run if record.value is not None]:
                yield self._rows(topic, kind, present)

    def runs(self, records: Sequence[ConsumedRecord]) -> Iterator[list[ConsumedRecord]]:
        """Yield consecutive records of one partition that become one batch."""
        for kind, part in groupby(records, self._kind):
            if kind is None:
                yield from ([record] for record in part)
            else:
                yield list(part)

    def _kind(self, record: ConsumedRecord) -> int | None:
        """Return None for a columnar value, the id of a schema, or -1 for JSON."""
        if is_columnar(record.headers):
            return None
        value = record.value
        if value is None or value[:1] != b"\0" or len(value) < REGISTRY_BYTES:
            return -1
        return int.from_bytes(value[1:REGISTRY_BYTES], "big")

    def _columnar(self, topic: str, record: ConsumedRecord) -> ConsumedBatch:
        try:
            facts = _facts(record)
            rows = decode(
                record.value or b"", facts, self.columns, lenient=self.lenient, keys=self.keys
            )
        except (CorruptRecord, AccessDenied, Misconfigured) as exc:
            raise type(exc)(f"{place(topic, record.partition, record.offset)}: {exc}") from exc
        return ConsumedBatch(
            topic, record.partition, rows, record.offset, facts=facts, timestamp=record.timestamp
        )

    def _rows(self, topic: str, kind: int, records: Sequence[ConsumedRecord]) -> ConsumedBatch:
        first = records[0]
        values = [record.value or b"" for record in records]
        try:
            rows = self._json(values) if kind < 0 else self._registered(kind, values)
            if self.columns is not None:
                rows = _selected(rows, self.columns, lenient=self.lenient)
        except (CorruptRecord, CorruptObject, Misconfigured) as exc:
            where = f"{place(topic, first.partition, first.offset)} to offset {records[-1].offset}"
            raise type(exc)(f"{where}: {exc}") from exc
        offsets = [record.offset for record in records]
        return ConsumedBatch(
            topic, first.partition, rows, first.offset, offsets=offsets, timestamp=first.timestamp
        )

    def _registered(self, number: int, values: Sequence[bytes]) -> pa.RecordBatch:
        if self.find_schema is None:
            raise Misconfigured(
                f"the values have the schema {number} of a registry; state its address"
            )
        if number not in self._kinds:
            self._kinds[number] = self.find_schema(number)
        kind, text = self._kinds[number]
        bodies = [value[REGISTRY_BYTES:] for value in values]
        if kind == "JSON":
            return self._json(bodies)
        if kind != "AVRO":
            raise Misconfigured(f"schema {number} is {kind}; Avro and JSON values are read")
        if number not in self._avro:
            self._avro[number] = parse_schema(text.encode(), f"schema {number} of the registry")
        try:
            return decode_values(self._avro[number], Spans.of(bodies))
        except DamagedBlock as exc:
            raise CorruptRecord(f"not of the Avro schema {number}: {exc}") from exc

    def _json(self, values: Sequence[bytes]) -> pa.RecordBatch:
        if self.schema is not None:
            return _documents(values, MemberColumns.of("json", self.schema, "", ignores=True))
        if self._inferred is not None:
            # One that no longer fits is replaced; types of other batches stay as they were.
            with suppress(CorruptRecord):
                return _documents(values, self._inferred)
        # The columns that hold all members of the values, exactly.
        found = inferred_columns(values)
        self._inferred = MemberColumns.of("json", None, found, ignores=False)
        return _documents(values, self._inferred)


def _documents(values: Sequence[bytes], columns: MemberColumns) -> pa.RecordBatch:
    try:
        return ColumnReader(columns).read_all(Spans.of(values))
    except UnfitDocument as exc:
        raise CorruptRecord(str(exc)) from exc


def _facts(record: ConsumedRecord) -> BatchFacts:
    found = BatchFacts.of(record.headers)
    if found is None:
        raise CorruptRecord(f"the header {ENCODING} is null")
    return found


def _selected(rows: pa.RecordBatch, columns: Sequence[str], *, lenient: bool) -> pa.RecordBatch:
    lacking = [name for name in columns if name not in rows.schema.names]
    if lacking and not lenient:
        raise Misconfigured(no_column(lacking, rows.schema.names))
    return rows.select([name for name in columns if name not in lacking])
