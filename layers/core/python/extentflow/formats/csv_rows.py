"""Lines of CSV as rows of known columns.

Owns: which lines go the fast way, field counts, the places of rows. Refuses to know: headers, the
grammar of one line (csv_grammar), types (csv_types).

    line ── empty, or before the first record ────────────> no record
         ── not UTF-8 ────────────────────────────────────> bad
         ── a CR inside, an escape, a quote that is not
            at a field's edge, a byte order mark ─────────> csv_grammar, one by one
         ── any other: Arrow and the grammar agree ───────> Arrow's reader, all at once
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from extentflow.errors import CorruptObject
from extentflow.formats import Chunk
from extentflow.formats.csv_grammar import Dialect, Grammar, Malformed, Unbalanced
from extentflow.formats.csv_types import typed
from extentflow.formats.lines import BOM, Indexes, LineBlock
from extentflow.formats.linewise import chunk
from extentflow.formats.text import not_utf8

__all__ = ["MULTILINE", "Rows"]

MULTILINE = (
    "records that span lines are not supported yet; write such data as Parquet or JSON lines, or,"
    " where quotes are plain text, set csv.quote.char to a character that the object does not hold"
)
_LF, _CR = 10, 13

_Table = tuple[Indexes, pa.RecordBatch]
"""The lines that became rows, ascending, and these rows, every value a string."""


class Rows:
    """The LineReader of one object version. `begin`: the first byte behind the header."""

    def __init__(self, uri: str, dialect: Dialect, schema: pa.Schema, begin: int) -> None:
        self._uri = uri
        self._dialect = dialect
        self._grammar = Grammar(dialect)
        self._schema = schema
        self._texts = pa.schema([(name, pa.string()) for name in schema.names])
        self._begin = begin

    def __call__(self, block: LineBlock) -> Chunk:
        """Return the block's rows.

        Raises:
            CorruptObject: a record seems to span lines.
        """
        records = (block.ends > block.starts) & (block.starts + block.offset >= self._begin)
        bad = {line: why for line, why in not_utf8(block).items() if records[line]}
        records[list(bad)] = False
        odd = records & _odd(block, self._dialect)
        exact = self._one_by_one(block, np.flatnonzero(odd), bad)
        fast = self._at_once(block, np.flatnonzero(records & ~odd), bad)
        lines, batch = self._typed(_merged(fast, exact), bad)
        return chunk(block, batch, lines, bad)

    def _at_once(self, block: LineBlock, lines: Indexes, bad: dict[int, str]) -> _Table:
        if not len(lines):
            return lines, _batch(self._texts, [])
        wrong: dict[int, int] = {}

        def skip(row: arrow_csv.InvalidRow) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        text = block.text(lines)
        columns = _parsed(text, self._dialect, len(self._texts), skip)
        rows = np.delete(lines, list(wrong))
        if any(len(column) != len(rows) for column in columns):
            raise CorruptObject(
                f"{self._uri}: Arrow read another number of records than the {len(lines)} lines"
                f" that begin at byte {block.place(int(lines[0]))}; please report this object"
            )
        bad.update((int(lines[row]), self._wrong_count(count)) for row, count in wrong.items())
        return rows, _batch(self._texts, columns)

    def _one_by_one(self, block: LineBlock, lines: Indexes, bad: dict[int, str]) -> _Table:
        rows: dict[int, list[str | None]] = {}
        for line in lines.tolist():
            try:
                fields = self._grammar.split(block.raw(line).decode())
            except Malformed as exc:
                bad[line] = str(exc)
            except Unbalanced as exc:
                where = f"{self._uri}: the line at byte {block.place(line)}"
                raise CorruptObject(f"{where} is no whole record: {exc}; {MULTILINE}") from exc
            else:
                if len(fields) == len(self._texts):
                    rows[line] = fields
                else:
                    bad[line] = self._wrong_count(len(fields))
        columns = [pa.array(column, pa.string()) for column in zip(*rows.values(), strict=True)]
        return np.fromiter(rows, np.int64), _batch(self._texts, columns)

    def _wrong_count(self, count: int) -> str:
        return f"expected {len(self._texts)} fields, got {count}"

    def _typed(self, table: _Table, bad: dict[int, str]) -> _Table:
        lines, texts = table
        columns: list[pa.Array] = []
        refused: dict[int, str] = {}
        for column, wanted in zip(texts.columns, self._schema, strict=True):
            values, reasons = typed(column, wanted.type)
            columns.append(values)
            for row, reason in reasons.items():
                refused.setdefault(row, f"column {wanted.name!r}: {reason}")
        batch = _batch(self._schema, columns)
        if not refused:
            return lines, batch
        bad.update((int(lines[row]), reason) for row, reason in refused.items())
        rows = np.delete(np.arange(len(lines)), list(refused))
        return lines[rows], batch.take(pa.array(rows))


def _batch(schema: pa.Schema, columns: list[pa.Array]) -> pa.RecordBatch:
    empty = (pa.array([], field.type) for field in schema)
    return pa.record_batch(columns or list(empty), schema=schema)


def _merged(one: _Table, other: _Table) -> _Table:
    """Return both tables' rows in the order of their lines."""
    if not len(one[0]) or not len(other[0]):
        return one if len(one[0]) else other
    lines = np.concatenate((one[0], other[0]))
    order = np.argsort(lines)
    pairs = zip(one[1].columns, other[1].columns, strict=True)
    columns = [pa.concat_arrays(pair).take(pa.array(order)) for pair in pairs]
    return lines[order], pa.record_batch(columns, schema=one[1].schema)


def _parsed(
    text: NDArray[np.uint8],
    dialect: Dialect,
    columns: int,
    skip: Callable[[arrow_csv.InvalidRow], str],
) -> list[pa.StringArray]:
    """Return the columns of `text` as strings. `skip` is called for rows of another width.

    The text is checked to be UTF-8 before, and to hold neither escapes nor quoted newlines.
    """
    names = [str(column) for column in range(columns)]
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(text)),
        read_options=arrow_csv.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=names
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote,
            double_quote=True,
            escape_char=False,
            newlines_in_values=False,
            ignore_empty_lines=True,
            invalid_row_handler=skip,
        ),
        convert_options=arrow_csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[] if dialect.null is None else [dialect.null],
            strings_can_be_null=dialect.null is not None,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def _odd(block: LineBlock, dialect: Dialect) -> NDArray[np.bool_]:
    """Return which lines only the grammar can judge."""
    data = block.data
    odd = _marked(block)
    is_return = data == _CR
    if is_return.any():
        returns = np.flatnonzero(is_return)
        inside = returns[data[np.minimum(returns + 1, len(data) - 1)] != _LF]
        odd[_lines_of(block, inside)] = True
    if dialect.escape is not None:
        odd[_lines_of(block, np.flatnonzero(data == ord(dialect.escape)))] = True
    quotes = np.flatnonzero(data == ord(dialect.quote))
    if len(quotes):
        counts = np.diff(np.searchsorted(quotes, block.starts), append=len(quotes))
        odd |= counts % 2 == 1
        quotes = quotes[np.repeat(~odd, counts)]
        odd[_lines_of(block, _misplaced(block, quotes, dialect))] = True
    return odd


def _marked(block: LineBlock) -> NDArray[np.bool_]:
    """Return which lines begin with a byte order mark, which Arrow would drop from a text."""
    odd = np.zeros(len(block), bool)
    for line in np.flatnonzero(block.data[block.starts] == BOM[0]).tolist():
        odd[line] = block.raw(line).startswith(BOM)
    return odd


def _misplaced(block: LineBlock, quotes: Indexes, dialect: Dialect) -> Indexes:
    """Return the quotes that do not stand where a quoted field begins or ends, or in a pair.

    Every line holds an even number of `quotes`, so they open and close in turn.
    """
    opening, closing = quotes[0::2], quotes[1::2]
    before = _is_edge(block.data[opening - 1], dialect) | (opening == block.starts[0])
    last = len(block.data) - 1
    behind = _is_edge(block.data[np.minimum(closing + 1, last)], dialect)
    return np.concatenate((opening[~before], closing[~behind & (closing < last)]))


def _is_edge(neighbours: NDArray[np.uint8], dialect: Dialect) -> NDArray[np.bool_]:
    edges = np.zeros(256, bool)
    edges[[_LF, _CR, ord(dialect.separator), ord(dialect.quote)]] = True
    return edges[neighbours]


def _lines_of(block: LineBlock, positions: Indexes) -> Indexes:
    return np.searchsorted(block.starts, positions, side="right") - 1
