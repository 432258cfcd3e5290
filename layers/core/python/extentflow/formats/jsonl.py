r"""JSON lines: one RFC 8259 value per line.

Owns: which lines are records, the columns that message keys need. Refuses to know: where lines
begin and end, what the values mean.

A line of nothing but whitespace is no record. The column `value` holds a line's bytes, unchanged.
Refused although the RFC's grammar allows them, because readers disagree about them: lone
surrogates (`"\ud800"`), numbers beyond a double's range (1e999), nesting below 1,024 levels.
"""

from __future__ import annotations

import operator
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from extentflow.errors import Misconfigured
from extentflow.formats import Chunk, FormatOptions
from extentflow.formats.lines import Indexes, LineBlock
from extentflow.formats.linewise import LineFormat, LineReader, Opening, chunk, without

__all__ = ["invalid_json", "open_jsonl"]

_VALUE = "value"
_MAY_BE_BLANK = np.isin(np.arange(256), [ord(each) for each in " \t\r\n"])
_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def open_jsonl(options: FormatOptions) -> LineFormat:
    """Return the format `jsonl`: `value` (binary), then one string column per `options.columns`.

    `jsonl_validate` makes an invalid line a bad record; so do `columns`, which need it parsed.
    A member that is null is null; text is itself; anything else is its JSON text as it stands in
    the line, without whitespace (1.10 stays 1.10). A line without one of the members is bad.

    Raises:
        Misconfigured: a member called `value` is asked for.
    """
    if _VALUE in options.columns:
        raise Misconfigured("a JSON member called 'value' cannot be a key: the line is called so")
    return LineFormat("jsonl", options, _JsonLines(options))


class _JsonLines:
    def __init__(self, options: FormatOptions) -> None:
        self._members = options.columns
        self._validate = options.jsonl_validate
        members = ((name, pa.string()) for name in options.columns)
        self._schema = pa.schema([(_VALUE, pa.binary()), *members])

    def reader(self, _opening: Opening) -> LineReader:
        return self._read

    def _read(self, block: LineBlock) -> Chunk:
        blank = _blank(block)
        lines = without(block, blank)
        values = block.values(lines)
        columns, bad = self._parsed(values)
        reasons = {_line(row, lines): reason for row, reason in bad.items()}
        if reasons:
            lines = without(block, blank | reasons.keys())
            values = block.values(lines)
        batch = pa.record_batch([values, *columns], schema=self._schema)
        return chunk(block, batch, lines, reasons)

    def _parsed(self, values: pa.BinaryArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """Return the wanted members of the valid rows, and why the other rows are not valid."""
        if self._members:
            return _members(values, self._members)
        return [], invalid_json(values) if self._validate else {}


def _blank(block: LineBlock) -> set[int]:
    first = block.data[block.starts]
    suspects = np.flatnonzero(_MAY_BE_BLANK[first]).tolist()
    return {line for line in suspects if not block.raw(line).strip(b" \t\r")}


def _line(row: int, lines: Indexes | None) -> int:
    return row if lines is None else int(lines[row])


def invalid_json(values: pa.BinaryArray) -> dict[int, str]:
    """Return the rows that are not exactly one JSON value, each with its reason."""
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
            reasons[row] = _lacking([name for name in names if name not in members])
    return [pa.array(column, pa.string()) for column in columns], reasons


def _text(value: Any, line: bytes, name: str) -> str | None:  # noqa: ANN401
    if value is None or isinstance(value, str):
        return value
    if type(value) is int and value:  # not -0, which is read as 0
        return str(value)
    return _source_text(line.decode(), name)


def _lacking(names: Sequence[str]) -> str:
    """Say what to do about a line without members that its key is made of.

    It is no null key: a name that is spelled wrong would scatter every record over the partitions.
    """
    listed = ", ".join(map(repr, names))
    found = f"is no member {listed}" if len(names) == 1 else f"are no members {listed}"
    nulls = ", ".join(f"{orjson.dumps(name).decode()}:null" for name in names)
    return (
        f"there {found}, which message.key names; correct message.key, or write {nulls} where a"
        " record has no key"
    )


def _source_text(document: str, name: str) -> str:
    """Return the text of a valid JSON object's member, its last where there are several."""
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
