"""Create the texts of few distinct values once and take them per row.

Dictionary and run-end-encoded arrays have that shape; date and price columns often do. A batch of
65,536 ship dates has 2,500 distinct days, and taking a text costs a quarter of formatting it. The
table includes the constant text before the value, which halves the arguments of the join, and is
kept for the next batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import require_limit, value_offsets
from extentflow.converters.concat import NULL, Piece, concat_pieces
from extentflow.converters.scalars import Ordinals

ROWS_PER_ENTRY = 4


@dataclass(frozen=True, slots=True)
class _Table:
    """The texts of all values from `first` to `last`, each after `lead`."""

    lead: str
    first: int
    last: int
    texts: pa.StringArray

    def covers(self, lead: str, first: int, last: int) -> bool:
        return lead == self.lead and self.first <= first and last <= self.last


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

        Raises:
            OffsetOverflowError: the rows exceed the limit.
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
        return Piece("", _take(table.texts, lead, indices, self._limit_bytes))

    def _widened(self, lead: str, first: int, last: int, array: pa.Array) -> tuple[int, int]:
        """Return the bounds of a new table; includes the previous table if that stays small."""
        table = self._table
        if table is None or table.lead != lead:
            return first, last
        least, most = min(first, table.first), max(last, table.last)
        return (least, most) if _are_few(least, most, len(array)) else (first, last)

    def _made(self, lead: str, first: int, last: int, write: Callable[[pa.Array], Piece]) -> _Table:
        entries = pa.array(np.arange(first, last + 1, dtype=np.int64))
        texts = concat_pieces([write(self._ordinals.values(entries))], self._limit_bytes)
        return _Table(lead, first, last, texts)


def _are_few(first: int, last: int, rows: int) -> bool:
    return (last - first) * ROWS_PER_ENTRY < rows


def take_texts(entries: Sequence[Piece], lead: str, indices: pa.Array, limit_bytes: int) -> Piece:
    """Return the text of the entries per row; `lead` and `null` where the index is null.

    `entries` already include the lead.

    Raises:
        OffsetOverflowError: the rows exceed `limit_bytes`.
    """
    return Piece("", _take(concat_pieces(entries, limit_bytes), lead, indices, limit_bytes))


def _take(texts: pa.StringArray, lead: str, indices: pa.Array, limit_bytes: int) -> pa.StringArray:
    if indices.null_count:
        missing = len(texts)
        texts = pa.concat_arrays([texts, pa.array([lead + NULL], pa.string())])
        indices = pc.fill_null(indices.cast(pa.int64()), missing)
    _require(texts, indices, limit_bytes)
    return texts.take(indices)


def _require(texts: pa.StringArray, indices: pa.Array, limit_bytes: int) -> None:
    lengths = np.diff(value_offsets(texts)).astype(np.int64)
    if len(texts) and int(lengths.max()) * len(indices) > limit_bytes:
        require_limit(int(lengths[indices.to_numpy()].sum()), limit_bytes)


def run_indices(array: pa.Array) -> NDArray[Any]:
    """Return the index of its run's value for each row of a run-end-encoded array."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
