"""Decode JSON lines: one RFC 8259 value per line, as bytes in the column `value` or as columns.

A line of whitespace is not a record. Refused although RFC 8259 allows them, because readers differ:
lone surrogates, numbers beyond the range of a double (1e999), nesting deeper than 1,024 levels.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from extentflow.config.specs import FormatCheck
from extentflow.config.table import key
from extentflow.config.types import BOOLEAN
from extentflow.decoders.json_columns import blank_texts
from extentflow.errors import Misconfigured
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.json.json_options import (
    DocumentDecoder,
    DocumentOptions,
    inspected,
    schema_problems,
    to_sample,
    with_columns,
)
from extentflow.formats.json.member_texts import follow, member_path, source_text
from extentflow.formats.json.nested_arrays import array_within
from extentflow.formats.lines import LineBlock, invalid_utf8_lines
from extentflow.formats.text.line_format import LineFormat, LineReader, lines_except, make_chunk
from extentflow.formats.text.object_head import ObjectHead
from extentflow.storage import RangeSource

_VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlOptions(DocumentOptions):
    """The keys `jsonl.*`."""

    validate: bool = key(
        BOOLEAN,
        "true: an invalid line is a bad record. false: lines pass through unread.",
        default=True,
    )


def open_jsonl(options: FormatOptions, own: JsonlOptions = JsonlOptions()) -> JsonLines:
    """Return the format `jsonl`: `value` (binary), then one string column per `options.columns`.

    With `own.schema`, columns of these names and types instead; None: those in `options.facts`.

    `own.validate` makes an invalid line a bad record; so do `columns`, which require parsing. A
    null member is null, a string is its text, any other value is its JSON text as written, without
    whitespace (1.10 stays 1.10). A line without one of the members is a bad record.

    With `options.select`, there are columns of these members only, without the whole line.

    Misconfigured if a member called `value` is requested beside the whole line.
    """
    if own.schema is None:
        return InferringLines(options, own)
    if own.schema:
        return JsonLines("jsonl", options, DocumentDecoder("jsonl", options, own))
    return JsonLines("jsonl", options, json_reader(options, own))


def json_reader(options: FormatOptions, own: JsonlOptions) -> JsonReader:
    """Return the reader of documents, or of the members that are needed. Raises Misconfigured."""
    if options.select:
        return JsonReader(tuple(dict.fromkeys(options.select)), own, whole=False)
    if _VALUE in options.columns:
        raise Misconfigured(
            "the JSON member 'value' cannot be a key: the column of the whole line has that name;"
            " with select=, the value is one member instead of the whole line"
        )
    return JsonReader(options.columns, own)


class JsonLines(LineFormat):
    """The format `jsonl`."""

    def how_to_divide(self, record: bytes) -> str:
        """Return the path to an array within a line; see `formats.DividingFormat`."""
        path = array_within(record)
        if not path:
            return ""
        return f"set input.format=json and json.records.path={path}: each element becomes a record"


class InferringLines(JsonLines):
    """The format `jsonl` with columns that `inspect` finds at planning."""

    def __init__(self, options: FormatOptions, own: JsonlOptions) -> None:
        super().__init__("jsonl", options, DocumentDecoder("jsonl", options, own))

    def inspect(self, source: RangeSource) -> str:
        """Return the columns in samples; of an object that is not cut, in its first content."""
        lines = open_jsonl(to_sample(self._options), JsonlOptions(validate=False))
        return inspected("jsonl", lines, source)


def _problems(check: FormatCheck) -> Iterator[str]:
    yield from schema_problems("jsonl", check)
    if not check.options.validate and check.options.schema != ():
        yield (
            "jsonl.validate=false: lines pass through unread, and jsonl.schema makes columns of"
            " them; remove one of the two"
        )
        return
    unread = check.sound("jsonl.validate", "message.key", "select") and not check.options.validate
    if unread and check.key_columns:
        yield (
            "jsonl.validate=false: lines pass through unread, and message.key, headers,"
            " message.timestamp, message.partition and select need their members; remove one of the"
            " two"
        )


JSONL = FormatSpec(
    open=open_jsonl,
    splits_compressed=True,
    options=JsonlOptions,
    extensions=("jsonl", "ndjson"),
    converters=("json", "string", "bytes"),
    raw=True,
    problems=_problems,
    under=with_columns,
    remedy="; for columns, set input.format=jsonl and jsonl.schema=infer, or name them",
)


class JsonReader:
    """A LineDecoder of one JSON document per line; not `whole`: of its members only."""

    def __init__(self, columns: tuple[str, ...], own: JsonlOptions, *, whole: bool = True) -> None:
        self._members = columns
        self._validate = own.validate
        self._whole = whole
        members = [(name, pa.string()) for name in columns]
        self._schema = pa.schema([(_VALUE, pa.binary()), *members] if whole else members)

    def reader(self, _head: ObjectHead) -> LineReader:
        """Return the reader; the start of an object says nothing."""
        return self.read

    def read(self, block: LineBlock) -> Chunk:
        """Return the records of `block`, whose lines are documents."""
        blank = blank_texts(block.spans)
        lines = lines_except(block, blank)
        values = block.values(lines)
        columns: list[pa.StringArray] = []
        bad: dict[int, str] = {}
        if self._members:
            columns, bad = _read_members(values, self._members)
        elif self._validate:
            bad = invalid_json(values)
        reasons = {row if lines is None else int(lines[row]): why for row, why in bad.items()}
        if reasons or block.original is not None:
            # Bytes that are no text in the object's character set have no UTF-8 to pass through,
            # and the parser's reason does not say how to set another one.
            invalid = invalid_utf8_lines(block)
            reasons |= {line: why for line, why in invalid.items() if line not in blank}
        if reasons:
            lines = lines_except(block, blank | reasons.keys())
            values = block.values(lines)
        shown = [values, *columns] if self._whole else columns
        batch = pa.record_batch(shown, schema=self._schema)
        return make_chunk(block, batch, lines, reasons)


def invalid_json(values: pa.BinaryArray) -> dict[int, str]:
    """Return the rows that are not exactly one JSON value, with reasons."""
    texts = values.to_pylist()
    rest = iter(texts)
    reasons: dict[int, str] = {}
    # `map` consumes the iterator up to the next invalid value, without a Python loop per line.
    while True:
        try:
            deque(map(orjson.loads, rest), maxlen=0)
        except orjson.JSONDecodeError as exc:
            row = len(texts) - operator.length_hint(rest) - 1
            reasons[row] = f"not one JSON value: {exc}"
        else:
            return reasons


def _read_members(
    values: pa.BinaryArray, names: Sequence[str]
) -> tuple[list[pa.StringArray], dict[int, str]]:
    columns: list[list[str | None]] = [[] for _ in names]
    reasons: dict[int, str] = {}
    wanted = frozenset(names)
    for row, text in enumerate(values.to_pylist()):
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as exc:
            reasons[row] = f"not one JSON value: {exc}"
            continue
        members = document if isinstance(document, dict) else {}
        if members.keys() >= wanted:
            for name, column in zip(names, columns, strict=True):
                column.append(_text(members[name], text, [name]))
            continue
        paths = [member_path(members, name) for name in names]
        if missing := [name for name, path in zip(names, paths, strict=True) if not path]:
            reasons[row] = _missing_members_reason(missing)
            continue
        for path, column in zip(paths, columns, strict=True):
            column.append(_text(follow(members, path), text, path))
    return [pa.array(column, pa.string()) for column in columns], reasons


def _text(value: Any, line: bytes, path: Sequence[str]) -> str | None:  # noqa: ANN401
    if value is None or isinstance(value, str):
        return value
    if type(value) is int and value:  # not -0, which is read as 0
        return str(value)
    # As written: a float may have lost digits, and 1.10 would become 1.1.
    return source_text(line.decode(), path)


def _missing_members_reason(names: Sequence[str]) -> str:
    # Not a null key, as a misspelled name would scatter all records over the partitions.
    listed = ", ".join(map(repr, names))
    found = f"is no member {listed}" if len(names) == 1 else f"are no members {listed}"
    nulls = ", ".join(f"{orjson.dumps(name).decode()}:null" for name in names)
    return (
        f"there {found}, which select, message.key, headers, message.timestamp or"
        f" message.partition names; correct it, or write {nulls} where a record has none"
    )
