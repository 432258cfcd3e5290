"""Decode JSON documents to columns of declared types.

document  -- Arrow's parser might read it in another way -------> `json_values`, one by one
          -- any other: a block of them by Arrow's parser, at once
                 which refuses one of them ---------------------> again, in parts

Arrow's parser only gets documents on which it agrees with `json_values`. Arrow takes what follows a
document for the next one, NaN and Infinity for numbers, and strings for decimals. It wraps decimals
with more digits than it can hold.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from numpy.typing import NDArray

from extentflow.arrays.batch_rows import Table, merge_tables, no_rows
from extentflow.arrays.spans import Indexes, Spans, slices
from extentflow.config.column_lists import JSON_SCHEMA, Schema, json_type
from extentflow.decoders.json_arrays import delivered_type, leaves, stored_type, typed
from extentflow.decoders.json_numbers import Numbers
from extentflow.decoders.json_values import (
    MOST_LEVELS,
    Members,
    UnfitValue,
    is_too_deep,
    members_reader,
    parse,
    reader_of,
)
from extentflow.errors import UnsupportedFormat
from extentflow.wording import again_command

# Whitespace in JSON is space, tab, LF and CR only (RFC 8259, section 2).
_MAY_BE_BLANK = np.isin(np.arange(256), [ord(each) for each in " \t\r\n"])
_MARK = secrets.token_hex(16)
_MARKED = pa.scalar(f'{{"{_MARK}":0,'.encode(), pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())
# Fewer documents than these cost less one by one: a call of Arrow's costs as much as a hundred.
_FEW, _PARTS = 200, 16
_MOST_TEXT_BYTES = 256 << 20
_OBJECT = ord("{")
_NO_NUMBER = re.compile(rb"NaN|Inf")


class UnfitDocument(Exception):  # noqa: N818 - an outcome
    """A document without a row: `row` is its ordinal, the message says why."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def blank_texts(texts: Spans) -> set[int]:
    """Return the texts of whitespace, and the empty ones."""
    if not len(texts.data):
        return {*range(len(texts))}
    firsts = texts.data[np.minimum(texts.starts, len(texts.data) - 1)]
    suspects = np.flatnonzero(_MAY_BE_BLANK[firsts] | (texts.starts == texts.ends)).tolist()
    return {row for row in suspects if not texts.raw(row).strip(b" \t\r\n")}


@dataclass(frozen=True, slots=True)
class MemberColumns:
    """What documents are decoded to. `format` names the keys that messages refer to.

    `inferred`: samples showed the types, so that a number that its type rounds is refused.
    `ignores`: members without a column are ignored.
    """

    format: str
    schema: Schema
    inferred: bool
    ignores: bool

    @classmethod
    def of(cls, name: str, schema: Schema | None, facts: str, *, ignores: bool) -> MemberColumns:
        """Return the columns that a schema says; None: those in the facts of a job."""
        known = schema if schema is not None else JSON_SCHEMA.read(facts) if facts else ()
        return cls(name, known, schema is None, ignores)


class ColumnReader:
    """Reads JSON objects: a column for each member that has one."""

    def __init__(self, columns: MemberColumns) -> None:
        self._columns = columns
        types = {name: json_type(written) for name, written in columns.schema}
        exact, named = columns.inferred, columns.format
        unknown = None if columns.ignores else _unknown(named)
        readers = {
            name: reader_of(wanted, unknown=unknown, exact=exact) for name, wanted in types.items()
        }
        self._read_members = members_reader(readers, unknown=unknown)
        self._types = types
        self._schema = pa.schema([(name, delivered_type(of)) for name, of in types.items()])
        stored = [(name, stored_type(of)) for name, of in types.items()]
        self._stored = pa.schema(stored)
        kinds = [leaf for of in types.values() for leaf in leaves(of)]
        self._parsable = bool(types) and not any(map(_is_unparsable, kinds))
        self._has_decimals = any(map(pa.types.is_decimal, kinds))
        self._has_exact_floats = exact and any(map(pa.types.is_float64, kinds))
        self._parse_options = arrow_json.ParseOptions(
            explicit_schema=pa.schema([(_MARK, pa.int8()), *stored]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore" if columns.ignores else "error",
        )

    def read(self, documents: Spans, without: Collection[int] = ()) -> tuple[Table, dict[int, str]]:
        """Return the documents that became rows, these rows, and why others did not.

        `without` are documents that are blank or no UTF-8, which are not read.
        """
        bad: dict[int, str] = {}
        found: list[Table] = [(np.empty(0, np.int64), no_rows(self._schema))]
        if len(documents) > len(without):
            wanted = np.ones(len(documents), bool)
            wanted[[*without]] = False
            irregular = self._irregular(documents)
            found += self._by_arrow(documents, np.flatnonzero(wanted & ~irregular), bad)
            found += self._one_by_one(documents, np.flatnonzero(wanted & irregular), bad)
        return merge_tables(found), bad

    def read_all(self, documents: Spans) -> pa.RecordBatch:
        """Return one row per document. Raises UnfitDocument for the first one without a row."""
        unread = dict.fromkeys(documents.not_utf8(), "not UTF-8")
        unread |= dict.fromkeys(blank_texts(documents), "no JSON value, only whitespace")
        (_, batch), bad = self.read(documents, unread)
        if unread or bad:
            row = min((*unread, *bad))
            raise UnfitDocument(row, unread.get(row) or bad[row])
        return batch

    def _by_arrow(self, documents: Spans, rows: Indexes, bad: dict[int, str]) -> Iterator[Table]:
        if len(rows) <= _FEW:
            yield from self._one_by_one(documents, rows, bad)
            return
        if (documents.ends[rows] - documents.starts[rows]).sum() <= _MOST_TEXT_BYTES:
            try:
                yield rows, self._parsed(documents, rows)
            except (pa.ArrowInvalid, UnfitValue):
                pass
            else:
                return
        for part in np.array_split(rows, _PARTS):
            yield from self._by_arrow(documents, part, bad)

    def _parsed(self, documents: Spans, rows: Indexes) -> pa.RecordBatch:
        """Return the rows of documents, each of which begins an object.

        ArrowInvalid or UnfitValue if one of them is none, or may have another value.
        """
        # Arrow ends a document anywhere. Each one begins here with a member that no object can
        # have: if there are as many rows as texts, and all have it, each text is one document.
        members = slices(documents.data, documents.starts[rows] + 1, documents.ends[rows])
        text = pc.binary_join_element_wise(_MARKED, members, _NOTHING).buffers()[2]
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=self._parse_options,
        )
        mark, *columns = table.columns
        if len(mark) != len(rows) or mark.null_count:
            raise UnfitValue("not one JSON value")
        exact = self._columns.inferred
        return self._typed([column.combine_chunks() for column in columns], exact=exact)

    def _typed(self, columns: Sequence[pa.Array], *, exact: bool = False) -> pa.RecordBatch:
        found = []
        for column, (name, wanted) in zip(columns, self._types.items(), strict=True):
            try:
                found.append(typed(column, wanted, exact=exact))
            except UnfitValue as exc:
                exc.path.append(f".{name}")
                raise
        return pa.record_batch(found, schema=self._schema)

    def _one_by_one(
        self, documents: Spans, ordinals: Indexes, bad: dict[int, str]
    ) -> Iterator[Table]:
        kept: list[int] = []
        rows = []
        for ordinal in ordinals.tolist():
            try:
                document = parse(documents.raw(ordinal))
            except ValueError as exc:
                bad[ordinal] = f"not one JSON value: {exc}"
                continue
            try:
                rows.append(self._row(document))
                kept.append(ordinal)
            except UnfitValue as exc:
                bad[ordinal] = self._reason(exc)
        yield from self._table(np.array(kept, np.int64), rows, bad)

    def _row(self, document: object) -> dict[str, object]:
        if isinstance(document, Members) and not self._types:
            raise UnsupportedFormat(
                f"{self._columns.format}.schema=infer: the job holds no types for the object's"
                f" members, because planning could not read them; deliver it with {again_command()}"
            )
        return self._read_members(document)

    def _table(
        self, ordinals: Indexes, rows: list[dict[str, object]], bad: dict[int, str]
    ) -> Iterator[Table]:
        if not rows:
            return
        columns = [
            pa.array([row[field.name] for row in rows], field.type) for field in self._stored
        ]
        try:
            yield ordinals, self._typed(columns)
        except UnfitValue as exc:
            if len(rows) == 1:
                bad[int(ordinals[0])] = self._reason(exc)
                return
            half = len(rows) // 2
            yield from self._table(ordinals[:half], rows[:half], bad)
            yield from self._table(ordinals[half:], rows[half:], bad)

    def _reason(self, exc: UnfitValue) -> str:
        if not self._columns.inferred:
            return str(exc)
        named = self._columns.format
        return (
            f"{exc}; {named}.schema=infer found the types in samples of the object. Set"
            f" {named}.schema to the facts that `extentflow plan -c NAME --json` shows, or `run"
            " ADDRESS --topic` with --dry-run --json, with another type or member; then deliver the"
            " object again"
        )

    def _irregular(self, documents: Spans) -> NDArray[np.bool_]:
        """Return the mask of documents that Arrow's parser might not read as `json_values` does."""
        if not self._parsable:
            return np.ones(len(documents), bool)
        data, text = documents.data, documents.data.tobytes()
        irregular: NDArray[np.bool_] = data[np.minimum(documents.starts, len(data) - 1)] != _OBJECT
        # In a column, it is no integer, and found among floats.
        if self._columns.ignores and (b"NaN" in text or b"Inf" in text):
            found = [match.start() for match in _NO_NUMBER.finditer(text)]
            _mark(irregular, documents, np.array(found, np.int64))
        # A document that is nested so deep has a bracket, and another one, for each level.
        sizes = documents.ends - documents.starts
        for row in np.flatnonzero(sizes > 2 * MOST_LEVELS).tolist():
            irregular[row] |= is_too_deep(documents.raw(row))
        if self._has_decimals or self._has_exact_floats:
            numbers = Numbers(data, text)
            if self._has_decimals:
                _mark(irregular, documents, numbers.unsafe_decimals())
            if self._has_exact_floats:
                _mark(irregular, documents, numbers.unsafe_floats())
        return irregular


def _mark(irregular: NDArray[np.bool_], documents: Spans, places: Indexes) -> None:
    rows = documents.at(places)
    irregular[rows[rows >= 0]] = True


def _unknown(name: str) -> str:
    return f"no column has this name; add it to {name}.schema, or set {name}.unknown.members=ignore"


def _is_unparsable(of: pa.DataType) -> bool:
    return pa.types.is_map(of) or isinstance(of, pa.JsonType)
