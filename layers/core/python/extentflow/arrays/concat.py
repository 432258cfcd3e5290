"""Concatenate columns of text and constants into one column of JSON text.

A row is written in one pass: the constant text between two values (`,"name":"`) is part of the
adjacent pieces, and one join copies everything.

Text that exceeds `limit_bytes` raises OffsetOverflowError before it is created.

The texts of few distinct values are created once and taken per row. Dictionary and run-end-encoded
arrays have that shape; date and price columns often do. A batch of 65,536 ship dates has 2,500
distinct days, and taking a text costs a quarter of formatting it.

Tests: unit/converters/test_json_laws.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from extentflow.arrays.buffers import require_limit, text_bytes, value_offsets
from extentflow.arrays.scalars import Ordinals

NULL = "null"
ROWS_PER_ENTRY = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """One column of text between constants: row i is `lead + text[i] + tail`.

    A null in `text` is written as `null`. Constants that belong to a value (quotes, brackets) must
    therefore not surround text with nulls: see `enclose`.
    """

    lead: str
    text: pa.StringArray
    tail: str = ""


def enclose(lead: str, opening: str, text: pa.StringArray, closing: str) -> Piece:
    """Return text with `opening` and `closing` around every value that is not null."""
    if text.null_count == 0:
        return Piece(lead + opening, text, closing)
    return Piece(lead, pc.binary_join_element_wise(opening, text, closing, ""))


def concat_pieces(pieces: Sequence[Piece], limit_bytes: int) -> pa.StringArray:
    """Return the concatenation of the pieces per row, without nulls; at most `limit_bytes`."""
    arguments: list[pa.Array | str] = []
    constants = ""
    for piece in pieces:
        # The tail of one piece and the lead of the next are one argument of the join.
        constants += piece.lead
        arguments += [constants, piece.text] if constants else [piece.text]
        constants = piece.tail
    arguments += [constants] if constants else []
    if len(arguments) == 1 and pieces[0].text.null_count == 0:
        return pieces[0].text
    rows = len(pieces[0].text)
    require_limit(sum(_joined_bytes(argument, rows) for argument in arguments), limit_bytes)
    return pc.binary_join_element_wise(
        *arguments, "", null_handling="replace", null_replacement=NULL
    )


def _joined_bytes(argument: pa.Array | str, rows: int) -> int:
    if isinstance(argument, str):
        return rows * len(argument.encode())
    return text_bytes(argument) + len(NULL) * int(argument.null_count)


@dataclass(frozen=True, slots=True)
class _Table:
    """The texts of all values from `first` to `last`, each after `lead`."""

    lead: str
    first: int
    last: int
    texts: pa.StringArray


class TextCache:
    """Texts of a column whose values lie close together, kept from batch to batch.

    Threads that share it create tables of their own at worst.
    """

    def __init__(self, ordinals: Ordinals, limit_bytes: int) -> None:
        self._ordinals = ordinals
        self._limit_bytes = limit_bytes
        self._table: _Table | None = None

    def piece(self, array: pa.Array, lead: str, write: Callable[[pa.Array], Piece]) -> Piece | None:
        """Return the text of the column from a table; None if its values are too many.

        `write` creates the text of values, with `lead` in front.
        """
        numbers = self._ordinals.of(array)
        if numbers is None:
            return None
        extremes = pc.min_max(numbers).as_py()
        first, last = extremes["min"], extremes["max"]
        if first is None:  # every row is null
            return None
        # One reference for the whole call: another thread may replace the table meanwhile.
        table = self._table
        if table is None or lead != table.lead or not (table.first <= first and last <= table.last):
            if not _are_few(first, last, len(array)):
                return None
            self._table = table = self._new_table(lead, first, last, len(array), write)
        indices = pc.subtract(numbers.cast(pa.int64()), table.first)
        return Piece("", take_texts(table.texts, lead, indices, self._limit_bytes))

    def _new_table(
        self, lead: str, first: int, last: int, rows: int, write: Callable[[pa.Array], Piece]
    ) -> _Table:
        known = self._table
        if known is not None and known.lead == lead:
            # Covers the previous table, too: batches that alternate between ranges share one.
            least, most = min(first, known.first), max(last, known.last)
            if _are_few(least, most, rows):
                first, last = least, most
        entries = pa.array(np.arange(first, last + 1, dtype=np.int64))
        # With the lead in front of every text, the join has one argument less per column.
        texts = concat_pieces([write(self._ordinals.values(entries))], self._limit_bytes)
        return _Table(lead, first, last, texts)


def _are_few(first: int, last: int, rows: int) -> bool:
    return (last - first) * ROWS_PER_ENTRY < rows


def take_texts(
    texts: pa.StringArray, lead: str, indices: pa.Array, limit_bytes: int
) -> pa.StringArray:
    """Return the text per index; `lead` and `null` for a null index. `texts` include the lead."""
    if indices.null_count:
        # A null index takes an entry of its own, as the lead must stand before `null`, too.
        missing = len(texts)
        texts = pa.concat_arrays([texts, pa.array([lead + NULL], pa.string())])
        # int64, as a dictionary's index type may be too narrow for one more entry.
        indices = pc.fill_null(indices.cast(pa.int64()), missing)
    lengths = np.diff(value_offsets(texts)).astype(np.int64)
    # The exact sum costs a pass over the rows; mostly the longest text rules an overflow out.
    if len(texts) and int(lengths.max()) * len(indices) > limit_bytes:
        require_limit(int(lengths[indices.to_numpy()].sum()), limit_bytes)
    return texts.take(indices)
