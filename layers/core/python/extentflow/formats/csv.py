"""CSV: one record per line, RFC 4180.

Owns: headers, column names, options. Refuses to know: where lines begin and end, how they become
rows (csv_rows), the grammar of one line (csv_grammar).

A record that spans lines is not supported yet. The extent that holds its first line fails, loudly
and with its offset: that line's quotes cannot balance. An extent that begins in the middle of such
a record cannot know that it does; its lines are taken as they look, and the job fails all the same
because of the other extent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from extentflow.errors import CorruptObject, Misconfigured, UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.csv_grammar import Dialect, Grammar, Malformed, Unbalanced
from extentflow.formats.csv_rows import MULTILINE, Rows
from extentflow.formats.lines import LineBlock
from extentflow.formats.linewise import LineFormat, LineReader, Opening

__all__ = ["open_csv"]

_CASTS = (
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
)


def open_csv(options: FormatOptions) -> LineFormat:
    """Return the format `csv`: one column per field; an empty line is no record.

    Names come from the header, from `csv_schema` (which a header must agree with), or are c0, c1,
    ... as many as the object's first record has. Values are strings, or what `csv_schema` says;
    nothing is inferred. `csv_null`: the unquoted field that is null (None: no field is). A record
    with another number of fields, a value that its type cannot hold exactly, a misplaced quote or
    carriage return, or invalid UTF-8 makes a bad record.

    Raises:
        Misconfigured: the dialect or a type cannot work.
    """
    problems = [*_dialect_problems(options), *_schema_problems(options.csv_schema or {})]
    if problems:
        raise Misconfigured(problems)
    return LineFormat("csv", options, _Csv(options))


def _dialect_problems(options: FormatOptions) -> list[str]:
    characters = {
        "csv.separator.char": options.csv_separator,
        "csv.quote.char": options.csv_quote,
        "csv.escape.char": options.csv_escape,
    }
    chosen = {key: char for key, char in characters.items() if char is not None}
    problems = [
        f"{key}={char!r}: one ASCII character that ends no line is needed"
        for key, char in chosen.items()
        if len(char) != 1 or not char.isascii() or char in "\r\n"
    ]
    if len(set(chosen.values())) < len(chosen):
        problems.append(f"{', '.join(chosen)} have to differ from each other")
    return problems


def _schema_problems(schema: Mapping[str, Any]) -> list[str]:
    return [
        f"csv.schema: column {name!r}: {wanted} cannot be read from text"
        for name, wanted in schema.items()
        if not any(known(wanted) for known in _CASTS)
    ]


class _Csv:
    def __init__(self, options: FormatOptions) -> None:
        self._schema = dict(options.csv_schema or {})
        self._header = options.csv_header
        self._dialect = Dialect(
            options.csv_separator, options.csv_quote, options.csv_escape, options.csv_null
        )

    def reader(self, opening: Opening) -> LineReader:
        """Return the reader for one version, having read its first record where that has names."""
        uri = opening.version.uri
        names, begin = list(self._schema), 0
        if self._header or not names:
            first, behind = self._first_record(opening)
            if self._header:
                names, begin = self._named(uri, first), behind
            else:
                names = [f"c{ordinal}" for ordinal in range(len(first))]
        schema = pa.schema([(name, self._schema.get(name, pa.string())) for name in names])
        return Rows(uri, self._dialect, schema, begin)

    def _first_record(self, opening: Opening) -> tuple[list[str], int]:
        """Return the first record's fields, and where the next line begins; none if it has none."""
        for block in opening.lines():
            lines = np.flatnonzero(block.ends > block.starts)
            if len(lines):
                line = int(lines[0])
                return self._fields(opening, block, line), block.offset + int(block.stops[line])
            if block.bad:
                raise CorruptObject(f"{opening.version.uri}: {block.bad[0].reason}")
        return [], 0

    def _fields(self, opening: Opening, block: LineBlock, line: int) -> list[str]:
        grammar = Grammar(replace(self._dialect, null=None))
        try:
            return [field or "" for field in grammar.split(block.raw(line).decode())]
        except UnicodeDecodeError as exc:
            problem = f"not UTF-8: {exc.reason}"
        except Malformed as exc:
            problem = str(exc)
        except Unbalanced as exc:
            problem = f"{exc}; {MULTILINE}"
        where = f"{opening.version.uri}: the first record, at byte {block.place(line)}"
        raise CorruptObject(f"{where}, cannot be read: {problem}")

    def _named(self, uri: str, header: list[str]) -> list[str]:
        if not header:
            return list(self._schema)
        expected = list(self._schema)
        if expected and header != expected:
            raise UnsupportedFormat(
                f"{uri}: the header names {_shown(header)}, csv.schema {_shown(expected)}; make"
                " them agree, or set csv.header=false where the first line is a record"
            )
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise UnsupportedFormat(
                f"{uri}: the header names {_shown(twice)} more than once; change the object's"
                " header, or set csv.header=false where the first line is a record"
            )
        return header


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
