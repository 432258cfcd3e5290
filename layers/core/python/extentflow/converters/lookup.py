"""Texts that are made once and read many times.

Owns: when a column's values are few enough, and taking them. Refuses to know: how texts are made.

Dictionary and run-end-encoded arrays come that way. A date or a price column often is that way: a
batch of 65,536 ship dates has 2,500 different days, and taking a text is four times cheaper than
making one. The table carries the constant text in front of the value, which saves the join half of
its arguments.
"""

from collections.abc import Sequence
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
class Table:
    """Values to be written once, and for each row the index of its value (or null)."""

    values: pa.Array
    indices: pa.Array


def dense(array: pa.Array, ordinals: Ordinals | None) -> Table | None:
    """Return a table of all values between the least and the greatest, if they are few."""
    if ordinals is None:
        return None
    numbers = ordinals.of(array)
    extremes = pc.min_max(numbers).as_py()
    first, last = extremes["min"], extremes["max"]
    if first is None or (last - first) * ROWS_PER_ENTRY >= len(array):
        return None
    entries = pa.array(np.arange(first, last + 1, dtype=np.int64))
    return Table(ordinals.values(entries), pc.subtract(numbers.cast(pa.int64()), first))


def taken(entries: Sequence[Piece], lead: str, indices: pa.Array, limit_bytes: int) -> Piece:
    """Return the entries' text, row by row, `lead` and `null` where the index is null.

    `entries` carry the same lead already.

    Raises:
        OffsetOverflowError: the rows would take more than `limit_bytes`.
    """
    texts = joined(entries, limit_bytes)
    if indices.null_count:
        missing = len(texts)
        texts = pa.concat_arrays([texts, pa.array([lead + NULL], pa.string())])
        indices = pc.fill_null(indices.cast(pa.int64()), missing)
    _require(texts, indices, limit_bytes)
    return Piece("", texts.take(indices))


def _require(texts: pa.StringArray, indices: pa.Array, limit_bytes: int) -> None:
    lengths = np.diff(ends(texts)).astype(np.int64)
    if len(texts) and int(lengths.max()) * len(indices) > limit_bytes:
        require(int(lengths[indices.to_numpy()].sum()), limit_bytes)


def run_indices(array: pa.Array) -> NDArray[Any]:
    """Return, for each row of a run-end-encoded array, the index of its run's value."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
