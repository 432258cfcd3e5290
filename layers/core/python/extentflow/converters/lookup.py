"""Texts that are made once and read many times.

Owns: when a column's values are few enough, and taking them. Refuses to know: how texts are made.

Dictionary and run-end-encoded arrays come that way. A date or a price column often is that way: a
batch of 65,536 ship dates has 2,500 different days, and taking a text is four times cheaper than
making one. The table carries the constant text in front of the value, which saves the join half of
its arguments; it is kept from batch to batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import ends
from extentflow.converters.pieces import NULL, Piece, joined
from extentflow.converters.sizes import require
from extentflow.converters.text import Ordinals

ROWS_PER_ENTRY = 4


@dataclass(frozen=True, slots=True)
class _Table:
    """The texts of all values from `first` to `last`, each behind `lead`."""

    lead: str
    first: int
    last: int
    texts: pa.StringArray

    def covers(self, lead: str, first: int, last: int) -> bool:
        return lead == self.lead and self.first <= first and last <= self.last


class Dense:
    """A column whose values may lie close together, batch after batch.

    Its table is kept for the next batch, which mostly has the same values. Threads that share it
    make tables of their own at worst.
    """

    def __init__(self, ordinals: Ordinals, limit_bytes: int) -> None:
        self._ordinals = ordinals
        self._limit_bytes = limit_bytes
        self._table: _Table | None = None

    def piece(self, array: pa.Array, lead: str, write: Callable[[pa.Array], Piece]) -> Piece | None:
        """Return the column's text by way of a table, if its values are few enough for one.

        `write` makes the text of values, with `lead` in front.

        Raises:
            OffsetOverflowError: the rows would take more than the limit.
        """
        numbers = self._ordinals.of(array)
        if numbers is None:
            return None
        extremes = pc.min_max(numbers).as_py()
        first, last = extremes["min"], extremes["max"]
        if first is None:
            return None
        table = self._table
        if table is None or not table.covers(lead, first, last):
            if not _are_few(first, last, len(array)):
                return None
            self._table = table = self._made(lead, *self._widened(lead, first, last, array), write)
        indices = pc.subtract(numbers.cast(pa.int64()), table.first)
        return Piece("", _taken(table.texts, lead, indices, self._limit_bytes))

    def _widened(self, lead: str, first: int, last: int, array: pa.Array) -> tuple[int, int]:
        """Return the bounds of a new table: those of the one before as well, if these are few."""
        table = self._table
        if table is None or table.lead != lead:
            return first, last
        least, most = min(first, table.first), max(last, table.last)
        return (least, most) if _are_few(least, most, len(array)) else (first, last)

    def _made(self, lead: str, first: int, last: int, write: Callable[[pa.Array], Piece]) -> _Table:
        entries = pa.array(np.arange(first, last + 1, dtype=np.int64))
        texts = joined([write(self._ordinals.values(entries))], self._limit_bytes)
        return _Table(lead, first, last, texts)


def _are_few(first: int, last: int, rows: int) -> bool:
    return (last - first) * ROWS_PER_ENTRY < rows


def taken(entries: Sequence[Piece], lead: str, indices: pa.Array, limit_bytes: int) -> Piece:
    """Return the entries' text, row by row, `lead` and `null` where the index is null.

    `entries` carry the same lead already.

    Raises:
        OffsetOverflowError: the rows would take more than `limit_bytes`.
    """
    return Piece("", _taken(joined(entries, limit_bytes), lead, indices, limit_bytes))


def _taken(texts: pa.StringArray, lead: str, indices: pa.Array, limit_bytes: int) -> pa.StringArray:
    if indices.null_count:
        missing = len(texts)
        texts = pa.concat_arrays([texts, pa.array([lead + NULL], pa.string())])
        indices = pc.fill_null(indices.cast(pa.int64()), missing)
    _require(texts, indices, limit_bytes)
    return texts.take(indices)


def _require(texts: pa.StringArray, indices: pa.Array, limit_bytes: int) -> None:
    lengths = np.diff(ends(texts)).astype(np.int64)
    if len(texts) and int(lengths.max()) * len(indices) > limit_bytes:
        require(int(lengths[indices.to_numpy()].sum()), limit_bytes)


def run_indices(array: pa.Array) -> NDArray[Any]:
    """Return, for each row of a run-end-encoded array, the index of its run's value."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
