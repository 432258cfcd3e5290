"""Access columns of a batch as numpy buffers, within 32-bit offsets.

Converters use 32-bit offsets. Each step that creates text computes its size before it allocates; if
the size exceeds the limit, the batch is converted in halves, which are returned as one array with
64-bit offsets.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.row_errors import RowErrors, attribute_to_rows, corrupt_record
from extentflow.errors import UnsupportedType

VIEW_WORDS = 4


def value_offsets(array: pa.Array) -> NDArray[np.integer[Any]]:
    """Return the `len(array) + 1` offsets of a string or binary array, zero copy."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    if len(array) == 0:
        return np.zeros(1, dtype)
    return _window(array, dtype, len(array) + 1)


def value_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes from the first value's start to the last value's end, zero copy."""
    offsets, data = value_offsets(array), array.buffers()[2]
    if data is None or offsets[-1] == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _window(array: pa.Array, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    # Counted, as a buffer may be padded to a length that is not a multiple of the item's.
    return np.frombuffer(array.buffers()[1], dtype, array.offset + count)[array.offset :]


def text_bytes(array: pa.Array) -> int:
    """Return how many bytes of text a string, binary or view array holds."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return _view_bytes(array)
    offsets = value_offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def _view_bytes(array: pa.Array) -> int:
    lengths = fixed_width(array, np.dtype((np.int32, VIEW_WORDS)))[:, 0]
    return int(lengths.sum(dtype=np.int64, where=validity(array)))


def validity(array: pa.Array) -> Any:  # noqa: ANN401 - numpy's `where` takes True or a mask
    """Return True if nothing is null, else the mask of valid rows."""
    if array.null_count == 0:
        return True
    return pc.is_valid(array).to_numpy(zero_copy_only=False)


def validity_bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array, re-aligned to bit 0."""
    if array.null_count == 0:
        return None
    return pa.py_buffer(np.packbits(validity(array), bitorder="little"))


def fixed_width(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a fixed-width array as `dtype`, zero copy; null slots are undefined."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return _window(array, dtype, len(array))


def reinterpreted(array: pa.Array, as_type: pa.DataType) -> pa.Array:
    """Return the same fixed-width values under another type, zero copy."""
    return pa.Array.from_buffers(as_type, len(array), array.buffers()[:2], offset=array.offset)


def text_array(
    offsets: NDArray[np.integer[Any]], data: NDArray[np.uint8], like: pa.Array
) -> pa.StringArray:
    """Return text over new buffers, null where `like` is null. Offsets start at 0."""
    buffers = [validity_bitmap(like), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(like), buffers)


def offsets_from_lengths(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the offsets of consecutive values: one more than there are values."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


OFFSET_LIMIT_BYTES = 2**31 - 1


class OffsetOverflowError(Exception):
    """Text exceeds 32-bit offsets; never leaves a converter."""


def require_limit(text_bytes: int, limit_bytes: int) -> None:
    """Raise OffsetOverflowError if text of `text_bytes` exceeds the limit."""
    if text_bytes > limit_bytes:
        raise OffsetOverflowError


def convert_in_halves(
    convert: Callable[[pa.RecordBatch], pa.BinaryArray], batch: pa.RecordBatch
) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Convert a batch, in halves (recursively) if its text exceeds the limit.

    Raises:
        CorruptRecord: as `convert`, over all halves; also for a single row that exceeds the limit.
    """
    try:
        return convert(batch)
    except OffsetOverflowError as exc:
        if batch.num_rows == 1:
            reason = "its text is longer than 2 GiB; no Kafka record can be"
            raise corrupt_record({0: reason}) from exc
    return _halved(convert, batch)


def _halved(
    convert: Callable[[pa.RecordBatch], pa.BinaryArray], batch: pa.RecordBatch
) -> pa.LargeBinaryArray:
    middle = batch.num_rows // 2
    halves: list[pa.LargeBinaryArray] = []
    errors = RowErrors()
    for start, half in ((0, batch.slice(0, middle)), (middle, batch.slice(middle))):
        with errors.collect(), attribute_to_rows(partial(np.add, start)):
            halves.append(convert_in_halves(convert, half).cast(pa.large_binary()))
    errors.raise_collected()
    return pa.concat_arrays(halves)


@dataclass(frozen=True, slots=True)
class Columns:
    """Selected fields of a schema with their indices."""

    fields: tuple[pa.Field, ...]
    indices: tuple[int, ...]

    @classmethod
    def select(cls, schema: pa.Schema, names: Sequence[str] | None) -> Self:
        """Return the columns called `names` in that order; all columns if None.

        Raises:
            UnsupportedType: a column does not exist, or a name is not unique.
        """
        wanted = schema.names if names is None else list(names)
        require_unique(wanted, "columns")
        indices = tuple(_index_of(schema, name) for name in wanted)
        return cls(tuple(schema.field(place) for place in indices), indices)

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the arrays of the batch.

        Raises:
            UnsupportedType: the batch has another schema than the converter.
        """
        arrays = [batch.column(place) for place in self.indices]
        for field, array in zip(self.fields, arrays, strict=True):
            if array.type != field.type:
                raise UnsupportedType(
                    f"column '{field.name}' changed from type {field.type} to {array.type} within "
                    "an object; write such data to objects of their own"
                )
        return arrays


def require_unique(names: Sequence[str], kind: str) -> None:
    """Raise UnsupportedType if a name occurs more than once."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UnsupportedType(
            f"several {kind} are called '{twice[0]}'; names must be unique: rename all but one"
        )


def _index_of(schema: pa.Schema, name: str) -> int:
    indices: list[int] = schema.get_all_field_indices(name)
    if not indices:
        known = ", ".join(f"'{known}'" for known in schema.names)
        raise UnsupportedType(f"there is no column '{name}'; name one of {known or '(none)'}")
    require_unique([name] * len(indices), "columns")
    return indices[0]
