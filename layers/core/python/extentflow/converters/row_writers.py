"""What the encodings of rows share: which rows count, and the pieces of numbers and lists."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    corrupt_rows,
    require_limit,
    text_bytes,
    validity,
    value_offsets,
)
from extentflow.arrays.interleave import Piece, Words, fixed_words
from extentflow.arrays.numbers import numbers

# True, or the rows whose values count: others lie in a parent that is null.
Rows: TypeAlias = Any
EVERY_ROW: Rows = True
# Returns the pieces of a column. Raises CorruptRecord for rows without such a value, by their
# ordinals in the array, and OffsetOverflowError. Rows that do not count may have any bytes.
Writer: TypeAlias = Callable[[pa.Array, Rows], list[Piece]]
# The same of several columns, as one value.
Members: TypeAlias = Callable[[Sequence[pa.Array], Rows], list[Piece]]


def reject(array: pa.Array, rows: Rows, odd: Any, reason: str) -> None:  # noqa: ANN401 - a mask
    """Raise CorruptRecord for `odd` values that are not null, in rows that count."""
    counted = odd & rows & validity(array)
    if np.any(counted):
        raise corrupt_rows(np.flatnonzero(counted), reason)


def write_booleans(array: pa.Array, _: Rows = EVERY_ROW) -> list[Piece]:
    """Return booleans as a byte each."""
    return [fixed_words(numbers(array.cast(pa.bool_()).cast(pa.uint8())).view(np.uint64), 1)]


def write_doubles(values: NDArray[np.float64]) -> list[Piece]:
    """Return numbers as eight bytes each."""
    return [fixed_words(values.view(np.uint64), 8)]


def write_singles(values: NDArray[np.float32]) -> list[Piece]:
    """Return numbers as four bytes each."""
    return [fixed_words(values.view(np.uint32).astype(np.uint64), 4)]


def joined_items(items: pa.BinaryArray, bounds: NDArray[np.int64]) -> pa.BinaryArray:
    """Return the bytes of neighbouring items as one value per list."""
    offsets, data = value_offsets(items)[bounds].astype(np.int32), items.buffers()[2]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


def checked_binary(array: pa.Array, limit_bytes: int) -> pa.BinaryArray:
    """Return values as binary ones; OffsetOverflowError beyond the limit."""
    is_fixed = types.is_fixed_size_binary(array.type)
    size = array.type.byte_width * len(array) if is_fixed else text_bytes(array)
    require_limit(size, limit_bytes)
    return array.cast(pa.binary())


def summed_lengths(pieces: Sequence[Piece]) -> NDArray[np.uint64]:
    """Return the bytes per row of pieces that are words, which few bytes are."""
    total = np.sum([piece.lengths for piece in pieces if isinstance(piece, Words)], axis=0)
    return np.asarray(total, np.uint64)
