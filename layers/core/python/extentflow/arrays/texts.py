"""Find texts that Arrow's parser accepts and reads as another value than they state."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def misread_rows(texts: pa.StringArray, values: pa.Array) -> list[int]:
    """Return the rows whose text means something else than its value, or exceeds the type.

    `values` are the texts, cast by Arrow. Of integers, it accepts hexadecimal digits: `0x1F` is 31,
    and `0xff` is -1 as int8. Of floats, a number beyond the range becomes infinity. Of decimals,
    one that has too many digits wraps around where its unscaled value exceeds the width.
    """
    if types.is_integer(values.type):
        return mask_rows(pc.match_substring(texts, "x", ignore_case=True))
    if types.is_floating(values.type):
        named = pc.match_substring(texts, "inf", ignore_case=True)
        return mask_rows(pc.and_not(pc.is_inf(values), named))
    if types.is_decimal(values.type):
        return _wrapped_rows(texts, values)
    return []


def _wrapped_rows(texts: pa.StringArray, values: pa.Array) -> list[int]:
    # Without exponents, texts that are this short have too few digits to exceed the width.
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    digits = len(str(2 ** (values.type.bit_width - 1))) - 1
    has_exponent = pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()
    if longest + max(0, values.type.scale) <= digits and not has_exponent:
        return []
    # A value that wrapped around is off by three quarters at least.
    stated = pc.replace_substring_regex(texts, r"^\s*\+", "").cast(pa.float64())
    off = pc.abs(pc.subtract(values.cast(pa.float64()), stated))
    return mask_rows(pc.greater(off, pc.multiply(pc.abs(stated), 0.5)))


def mask_rows(mask: pa.BooleanArray) -> list[int]:
    """Return the rows in which a mask is true."""
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()
    return rows
