"""Numbers as text: integers, floats, decimals.

Owns: digits that every JSON parser takes as a number of exactly this value. Refuses to know: dates.

Integers and decimals are exact, without exponent, whatever their precision (decimal128(15, 2) 1.5
is `1.50`). Floats are the shortest text that reads back as the same value of the same width; an
exponent is written `1e+20`. What is no number reads `NaN`, `Infinity`, `-Infinity`, as Java does.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import fixed_width, reinterpreted, validity

# Arrow writes an exponent where a value has more than six zeros behind its point.
LAST_PLAIN_SCALE = 6
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def integer(array: pa.Array) -> pa.StringArray:
    """Return any integer or boolean array as text."""
    return array.cast(pa.string())


def floating(array: pa.Array) -> pa.StringArray:
    """Return any float array as text."""
    half = pa.types.is_float16(array.type)
    text = _half(array) if half else array.cast(pa.string())
    if all_finite(array):
        return text
    finite = pc.fill_null(pc.is_finite(array), fill_value=True)
    named = text.filter(pc.invert(finite))
    for arrows, javas in NOT_FINITE.items():
        named = pc.if_else(pc.equal(named, arrows), javas, named)
    return pc.replace_with_mask(text, pc.invert(finite), named)


def all_finite(array: pa.Array) -> bool:
    """Whether no value is NaN or infinite."""
    return bool(pc.all(pc.is_finite(array), min_count=0).as_py())


def _half(array: pa.Array) -> pa.StringArray:
    # Arrow widens before it writes: 0.1 would read 0.0999755859375. At most 65,536 texts exist.
    values, rows = np.unique(fixed_width(array, np.dtype(np.uint16)), return_inverse=True)
    texts = pa.array([_half_text(value) for value in values.view(np.float16)], pa.string())
    return texts.take(pa.array(rows, mask=_nulls(array)))


def _half_text(value: np.float16) -> str:
    text = np.format_float_positional(value, unique=True, trim="-")
    return str(text)


def _nulls(array: pa.Array) -> NDArray[np.bool_] | None:
    return None if array.null_count == 0 else ~validity(array)


def decimal(array: pa.Array) -> pa.StringArray:
    """Return a decimal array of any width as text, all digits of its scale behind the point."""
    wide = _wide(array)
    scale = wide.type.scale
    if scale < 0:
        return _times_ten(_unscaled(wide), -scale)
    text = wide.cast(pa.string())
    if scale <= LAST_PLAIN_SCALE:
        return text
    short = pc.fill_null(pc.match_substring(text, "E"), fill_value=False)
    if not pc.any(short, min_count=0).as_py():
        return text
    return pc.replace_with_mask(text, short, _fraction(_unscaled(wide.filter(short)), scale))


def _wide(array: pa.Array) -> pa.Array:
    """Return decimal32 and decimal64 as decimal128."""
    if array.type.bit_width >= pa.decimal128(1).bit_width:
        return array
    return array.cast(pa.decimal128(array.type.precision, array.type.scale))


def _unscaled(array: pa.Array) -> pa.StringArray:
    made = pa.decimal128 if pa.types.is_decimal128(array.type) else pa.decimal256
    return reinterpreted(array, made(array.type.precision, 0)).cast(pa.string())


def _times_ten(digits: pa.StringArray, power: int) -> pa.StringArray:
    return pc.if_else(pc.equal(digits, "0"), "0", _joined(digits, "0" * power))


def _fraction(digits: pa.StringArray, scale: int) -> pa.StringArray:
    """Put a point in front of the last `scale` digits of small values: all are fraction."""
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    zeros = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), width=scale, padding="0")
    return _joined(sign, "0.", zeros)


def _joined(*parts: pa.Array | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")
