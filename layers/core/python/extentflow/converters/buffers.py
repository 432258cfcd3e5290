"""Arrow's string buffers as numpy arrays, and back.

Owns: slices (an array's offset), missing buffers, validity. Refuses to know: what the bytes mean.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

VIEW_WORDS = 4


def ends(array: pa.Array) -> NDArray[np.integer[Any]]:
    """Return the `len(array) + 1` offsets of a string or binary array, zero copy."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    if len(array) == 0:
        return np.zeros(1, dtype)
    return _window(array, dtype, len(array) + 1)


def contents(array: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes from the first value's start to the last value's end, zero copy."""
    offsets, data = ends(array), array.buffers()[2]
    if data is None or offsets[-1] == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _window(array: pa.Array, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    # Counted, as a buffer may be padded to a length that is no multiple of the item's.
    return np.frombuffer(array.buffers()[1], dtype, array.offset + count)[array.offset :]


def size_bytes(array: pa.Array) -> int:
    """Return how many bytes of text a string, binary or view array holds."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return _view_bytes(array)
    offsets = ends(array)
    return int(offsets[-1]) - int(offsets[0])


def _view_bytes(array: pa.Array) -> int:
    lengths = fixed_width(array, np.dtype((np.int32, VIEW_WORDS)))[:, 0]
    return int(lengths.sum(dtype=np.int64, where=validity(array)))


def validity(array: pa.Array) -> Any:  # noqa: ANN401 - numpy's `where` takes True or a mask
    """Return True where nothing is null, else the mask of valid rows."""
    if array.null_count == 0:
        return True
    return pc.is_valid(array).to_numpy(zero_copy_only=False)


def bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array, as a fresh one starts: at bit 0."""
    if array.null_count == 0:
        return None
    return pa.py_buffer(np.packbits(validity(array), bitorder="little"))


def fixed_width(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a fixed-width array as `dtype`, zero copy; null slots hold anything."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return _window(array, dtype, len(array))


def reinterpreted(array: pa.Array, as_type: pa.DataType) -> pa.Array:
    """Return the same fixed-width values under another type, zero copy."""
    return pa.Array.from_buffers(as_type, len(array), array.buffers()[:2], offset=array.offset)


def text_array(
    offsets: NDArray[np.integer[Any]], data: NDArray[np.uint8], like: pa.Array
) -> pa.StringArray:
    """Return text over fresh buffers, null where `like` is null. Offsets start at 0."""
    buffers = [bitmap(like), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(like), buffers)


def starts(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the offsets of values that follow each other, one more than there are values."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
