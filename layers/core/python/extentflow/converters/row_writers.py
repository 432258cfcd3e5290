"""What the encodings of rows share: which rows count, and the pieces of numbers and lists.

Tests: unit/converters/test_avro_converter.py, unit/converters/test_json_encoding.py
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    RowErrors,
    corrupt_rows,
    require_limit,
    text_bytes,
    validity,
    value_offsets,
)
from extentflow.arrays.interleave import WORD_BYTES, Piece, Words, fixed_words, join_rows, taken
from extentflow.arrays.nested import distinct_values, flattened, list_bounds, rows_of
from extentflow.arrays.numbers import numbers
from extentflow.errors import CorruptRecord

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


def write_items(
    array: pa.Array, write: Callable[[pa.Array], list[Piece]], limit_bytes: int
) -> tuple[pa.BinaryArray, NDArray[np.int64]]:
    """Return the bytes of all items of each list, and how many items it has.

    `write` returns the pieces of items, of which every one counts.
    """
    bounds = list_bounds(array)
    values = flattened(array, bounds)
    require_limit(len(values) * WORD_BYTES, limit_bytes)
    with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
        items = join_rows(write(values), len(values), limit_bytes)
    offsets, data = value_offsets(items)[bounds].astype(np.int32), items.buffers()[2]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]
    counts = np.diff(bounds)
    return pa.Array.from_buffers(pa.binary(), len(counts), buffers), counts


def encoded_writer(write_values: Writer, counted: Callable[[pa.Array], Rows]) -> Writer:
    """Return the writer of dictionary and run-end-encoded arrays: each distinct value once.

    `counted` returns which distinct values count; a null is a value, too.
    """

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        values, indices = distinct_values(array)
        if indices.null_count or len(values) == 0:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
            indices = pc.fill_null(indices.cast(pa.int64()), len(values) - 1)
        try:
            return taken(write_values(values, counted(values)), indices.to_numpy())
        except CorruptRecord:
            # A dictionary may hold entries that no row uses.
            return write_values(values.take(indices), rows)

    return write


def members_writer(parts: Sequence[tuple[int, str, Writer]]) -> Members:
    """Return the writer of columns, by their ordinals, one behind the other.

    Errors name the columns by the labels.
    """

    def write(arrays: Sequence[pa.Array], rows: Rows) -> list[Piece]:
        pieces: list[Piece] = []
        with RowErrors() as errors:
            for ordinal, label, write_member in parts:
                with errors.collect(label):
                    pieces += write_member(arrays[ordinal], rows)
        return pieces

    return write


def entry_writer(key: Writer, value: Writer) -> Writer:
    """Return the writer of the entries of maps."""
    write = members_writer([(0, "", key), (1, "", value)])
    return lambda array, rows: write(array.flatten(), rows)


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
