"""Decode JSON lines: one RFC 8259 value per line, kept as bytes in the column `value`.

A line of whitespace is not a record. Refused although RFC 8259 allows them, because readers differ:
lone surrogates, numbers beyond the range of a double (1e999), nesting deeper than 1,024 levels.
"""

from __future__ import annotations

import operator
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from extentflow.config.specs import FormatCheck
from extentflow.config.table import Rule, key
from extentflow.config.types import BOOLEAN
from extentflow.errors import Misconfigured
from extentflow.formats import Chunk, FormatOptions, FormatSpec
from extentflow.formats.line_format import (
    LineFormat,
    LineReader,
    ObjectHead,
    lines_except,
    make_chunk,
)
from extentflow.formats.lines import Indexes, LineBlock

__all__ = ["JSONL", "JsonlOptions", "invalid_json", "open_jsonl"]

_VALUE = "value"
_MAY_BE_BLANK = np.isin(np.arange(256), [ord(each) for each in " \t\r\n"])
_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlOptions:
    """The keys `jsonl.*`."""

    validate: bool = key(
        BOOLEAN,
        "true: an invalid line is a bad record. false: lines pass through unread.",
        default=True,
    )


JSONL_DEFAULTS = JsonlOptions()


def open_jsonl(options: FormatOptions, own: JsonlOptions = JSONL_DEFAULTS) -> LineFormat:
    """Return the format `jsonl`: `value` (binary), then one string column per `options.columns`.

    `own.validate` makes an invalid line a bad record; so do `columns`, which require parsing. A
    null member is null, a string is its text, any other value is its JSON text as written, without
    whitespace (1.10 stays 1.10). A line without one of the members is a bad record.

    Raises:
        Misconfigured: a member called `value` is requested.
    """
    if _VALUE in options.columns:
        raise Misconfigured(
            "the JSON member 'value' cannot be a key: the column of the whole line has that name"
        )
    return LineFormat("jsonl", options, _JsonLinesDecoder(options.columns, validate=own.validate))


def _read_members(check: FormatCheck) -> str | None:
    if check.options.validate or not check.key_columns:
        return None
    return (
        "jsonl.validate=false: lines pass through unread, and message.key needs their members;"
        " remove one of the two"
    )


JSONL = FormatSpec(
    open=open_jsonl,
    options=JsonlOptions,
    extensions=("jsonl", "ndjson"),
    converters=("json", "string", "bytes"),
    raw=True,
    rules=(Rule(("jsonl.validate", "message.key"), _read_members),),
)


class _JsonLinesDecoder:
    def __init__(self, columns: tuple[str, ...], *, validate: bool) -> None:
        self._members = columns
        self._validate = validate
        members = ((name, pa.string()) for name in columns)
        self._schema = pa.schema([(_VALUE, pa.binary()), *members])

    def reader(self, _head: ObjectHead) -> LineReader:
        return self._read

    def _read(self, block: LineBlock) -> Chunk:
        blank = _blank(block)
        lines = lines_except(block, blank)
        values = block.values(lines)
        columns, bad = self._parsed(values)
        reasons = {_line_of_row(row, lines): reason for row, reason in bad.items()}
        if reasons:
            lines = lines_except(block, blank | reasons.keys())
            values = block.values(lines)
        batch = pa.record_batch([values, *columns], schema=self._schema)
        return make_chunk(block, batch, lines, reasons)

    def _parsed(self, values: pa.BinaryArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """Return the requested members of valid rows, and the reasons of invalid rows."""
        if self._members:
            return _members(values, self._members)
        return [], invalid_json(values) if self._validate else {}


def _blank(block: LineBlock) -> set[int]:
    first = block.data[block.starts]
    suspects = np.flatnonzero(_MAY_BE_BLANK[first]).tolist()
    return {line for line in suspects if not block.raw(line).strip(b" \t\r")}


def _line_of_row(row: int, lines: Indexes | None) -> int:
    return row if lines is None else int(lines[row])


def invalid_json(values: pa.BinaryArray) -> dict[int, str]:
    """Return the rows that are not exactly one JSON value, with reasons."""
    texts = values.to_pylist()
    rest = iter(texts)
    reasons: dict[int, str] = {}
    while True:
        try:
            deque(map(orjson.loads, rest), maxlen=0)
        except orjson.JSONDecodeError as exc:
            row = len(texts) - operator.length_hint(rest) - 1
            reasons[row] = f"not one JSON value: {exc}"
        else:
            return reasons


def _members(
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
                column.append(_text(members[name], text, name))
        else:
            reasons[row] = _missing_members_reason([name for name in names if name not in members])
    return [pa.array(column, pa.string()) for column in columns], reasons


def _text(value: Any, line: bytes, name: str) -> str | None:  # noqa: ANN401
    if value is None or isinstance(value, str):
        return value
    if type(value) is int and value:  # not -0, which is read as 0
        return str(value)
    return _source_text(line.decode(), name)


def _missing_members_reason(names: Sequence[str]) -> str:
    """Return the reason for a line without members that its key needs.

    Such a line has no null key: a misspelled name would scatter all records over the partitions.
    """
    listed = ", ".join(map(repr, names))
    found = f"is no member {listed}" if len(names) == 1 else f"are no members {listed}"
    nulls = ", ".join(f"{orjson.dumps(name).decode()}:null" for name in names)
    return (
        f"there {found}, which message.key names; correct message.key, or write {nulls} where a"
        " record has no key"
    )


def _source_text(document: str, name: str) -> str:
    """Return the text of a member of a valid JSON object; the last one if repeated."""
    found = ""
    depth = 0
    words: list[str] = []
    for word in _WORD.findall(document):
        depth += (word in ("{", "[")) - (word in ("}", "]"))
        if depth == 0 or (depth == 1 and word == ","):
            if words and orjson.loads(words[0]) == name:
                found = "".join(words[2:])
            words = []
        elif depth > 1 or word != "{":
            words.append(word)
    return found
