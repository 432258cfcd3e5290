"""The schemas of a registry, with which values are decoded that begin with a schema's id.

value    0 | id, 4 bytes | Avro, or JSON

Tests: unit/export/lake/test_lake_rows.py
"""

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from extentflow.arrays.spans import Spans
from extentflow.columnar.schemas import plain
from extentflow.config.column_lists import Schema, json_type
from extentflow.converters.confluent_registry import ConfluentRegistry
from extentflow.converters.schema_registry import AVRO, JSON
from extentflow.decoders.avro_columns import decode_values
from extentflow.decoders.avro_nodes import Record
from extentflow.decoders.avro_writer_schema import parse_schema
from extentflow.decoders.json_arrays import delivered_type
from extentflow.decoders.json_columns import ColumnReader, MemberColumns
from extentflow.decoders.json_schema_columns import described_columns
from extentflow.errors import AccessDenied, CorruptObject, UnsupportedFormat, UnsupportedType

MAGIC = 0
PREFIX_BYTES = 5
_MOST_SUBJECTS = 3


def named_schema(value: bytes) -> int | None:
    """Return the id of the schema that a value names; None: it names none."""
    if value[:1] != bytes([MAGIC]) or len(value) < PREFIX_BYTES:
        return None
    return int.from_bytes(value[1:PREFIX_BYTES], "big")


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry; `label` names its id, subjects and versions, for messages.

    `columns` are those of rows. `reader` decodes values behind their prefix: a Record those of
    Avro, a ColumnReader those of JSON.
    """

    label: str
    columns: pa.Schema
    reader: Record | ColumnReader


def avro_rows(record: Record, columns: pa.Schema, texts: Spans) -> pa.RecordBatch:
    """Return a row of `columns` per value of Avro. DamagedBlock: one is of another schema."""
    (rows,) = pa.Table.from_batches([decode_values(record, texts)]).cast(columns).to_batches()
    return rows


class OpenRegistry(Protocol):
    """Opens the client of a registry."""

    def __call__(self, *, refresh: bool = False) -> ConfluentRegistry:
        """Return a client; `refresh` bypasses the cache of secrets."""
        ...


@dataclass(slots=True)
class RegisteredSchemas:
    """What one process looked up in a registry: each schema once, because ids never change.

    `open` returns a client, with `refresh` one with secrets that are read again. `declared` takes
    the place of the schemas of JSON values; None: these describe the columns.
    """

    open: OpenRegistry
    declared: Schema | None
    _known: dict[int, RegisteredSchema] = field(default_factory=dict)
    _opened: ConfluentRegistry | None = None

    def find(self, number: int) -> RegisteredSchema:
        """Return the schema with an id.

        Raises UnsupportedType for columns that have no type here, UnsupportedFormat for Protocol
        Buffers, IncompatibleSchema for an id that the registry does not have, RegistryUnavailable,
        AccessDenied, Misconfigured.
        """
        if number not in self._known:
            try:
                self._known[number] = self._read(number)
            except AccessDenied:
                # The password may have been rotated since it was read.
                self._opened = self.open(refresh=True)
                self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> RegisteredSchema:
        if self._opened is None:
            self._opened = self.open()
        kind, text = self._opened.by_id(number)
        versions = self._opened.versions_of(number)[:_MOST_SUBJECTS]
        named = ", ".join(f"{subject} version {version}" for subject, version in versions)
        label = f"schema {number} ({named})" if named else f"schema {number}"
        if kind == AVRO:
            return _of_avro(label, text)
        if kind == JSON:
            return _of_json(label, text, self.declared)
        raise UnsupportedFormat(
            f"{label} is of the type {kind}; values of Avro and JSON are read. Fill the topic with"
            " one of these, or with columnar.encoding=parquet"
        )


def _of_avro(label: str, text: str) -> RegisteredSchema:
    try:
        record = parse_schema(text.encode(), label)
    except CorruptObject as exc:
        raise UnsupportedType(str(exc)) from exc
    return RegisteredSchema(label, plain(pa.schema(list(record.arrow))), record)


def _of_json(label: str, text: str, declared: Schema | None) -> RegisteredSchema:
    try:
        columns = described_columns(text) if declared is None else declared
    except UnsupportedType as exc:
        raise UnsupportedType(f"{label}: {exc}; declare the columns by --schema") from exc
    found = pa.schema([(name, delivered_type(json_type(kind))) for name, kind in columns])
    members = MemberColumns("json", columns, inferred=False, ignores=False)
    return RegisteredSchema(label, found, ColumnReader(members))
