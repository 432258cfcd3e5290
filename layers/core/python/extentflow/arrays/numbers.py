"""Read the numbers of columns as those of numpy: integers, ticks of times, decimals as words.

Tests: unit/converters/test_json_encoding.py, unit/converters/test_avro_converter.py
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import fixed_width
from extentflow.arrays.scalars import SECONDS_PER_DAY
from extentflow.errors import UnsupportedType

# Arrow's decimals have at most so many digits.
MOST_DIGITS = 76
UINT64_DIGITS = 20
# Of a second.
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WORD_BITS = 64


def numbers(array: pa.Array) -> NDArray[np.int64]:
    """Return the integers that a fixed-width array holds; null slots are undefined."""
    data_type = array.type
    width = data_type.bit_width // 8
    signed = not types.is_unsigned_integer(data_type)
    values = fixed_width(array, np.dtype(f"{'i' if signed else 'u'}{width}"))
    return values.astype(np.int64, copy=False)


def date_days(array: pa.Array) -> tuple[NDArray[np.int64], Any]:
    """Return dates as days, and which have a time of day; False: none has."""
    days = numbers(array)
    if types.is_date32(array.type):
        return days, False
    # Arrow's format asks for whole days in a date64; nothing makes an array hold to it.
    days, rest = np.divmod(days, SECONDS_PER_DAY * 1_000)
    return days, rest != 0


def decimal_shape(data_type: pa.DataType) -> tuple[int, int]:
    """Return precision and scale of a decimal (or of uint64) without exponents."""
    if types.is_uint64(data_type):
        return UINT64_DIGITS, 0
    # Neither negative scales, nor scales above the precision.
    if data_type.scale < 0:
        return data_type.precision - data_type.scale, 0
    return max(data_type.precision, data_type.scale), data_type.scale


def require_digits(data_type: pa.DataType, path: str) -> None:
    """Raise UnsupportedType for a decimal with more digits than Arrow's have with scale 0."""
    if types.is_decimal(data_type) and decimal_shape(data_type)[0] > MOST_DIGITS:
        raise UnsupportedType(
            f"column '{path}' has type {data_type}, of more than {MOST_DIGITS} digits without an"
            " exponent; cast it to a decimal with fewer digits"
        )


def signed_words(array: pa.Array) -> tuple[list[NDArray[np.uint64]], NDArray[np.bool_]]:
    """Return the words of unscaled values, most significant one first, and which are negative."""
    if types.is_uint64(array.type):
        # Above half of their range, they need a byte more than a word has.
        nothing = np.zeros(len(array), np.uint64)
        return [nothing, fixed_width(array, np.dtype(np.uint64))], np.zeros(len(array), np.bool_)
    words = _decimal_words(array)
    return words, (words[0] >> np.uint64(63)).astype(np.bool_)


def _decimal_words(array: pa.Array) -> list[NDArray[np.uint64]]:
    data_type = array.type
    if data_type.scale < 0:
        array = array.cast(pa.decimal256(*decimal_shape(data_type)))
    elif data_type.bit_width < _WORD_BITS:
        return [fixed_width(array, np.dtype(np.int32)).astype(np.int64).view(np.uint64)]
    count = array.type.bit_width // _WORD_BITS
    if count == 1:
        return [fixed_width(array, np.dtype(np.uint64))]
    words = fixed_width(array, np.dtype((np.uint64, count)))
    return [np.ascontiguousarray(words[:, place]) for place in reversed(range(count))]
