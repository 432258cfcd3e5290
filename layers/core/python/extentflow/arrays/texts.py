"""Parse texts as typed values: nothing is rounded, trimmed or guessed.

Arrow's parser accepts some texts and reads them as another value than they state.

Tests: unit/arrays/test_casts.py, unit/formats/csv/test_csv_format.py
"""

from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_SHOWN_CHARACTERS = 40
# What a number that was inferred would lose: leading zeros, signs, words such as nan, and of floats
# the last zeros. Without an exponent, 2.0 is how a float is written.
_LOST_BY_INTEGERS = r"^(\+|-?0[0-9]|-0$)"
_LOST_BY_DECIMALS = r"^(\+|-?0[0-9]|-0(\.0*)?$)|[nNfF]"
_LOST_BY_FLOATS = r"^(\+|-?0[0-9])|[nNfF]|\.[0-9]+0$"
_NOT_ZERO = r"^[^eE]*[1-9]"
# Every decimal of so many significant digits, and not below the normal range, survives a float64.
_FLOAT_DIGITS = 15
_LEAST_NORMAL_FLOAT = 2.3e-308


def cast_texts(
    texts: pa.StringArray, wanted: pa.DataType, *, inferred: bool = False
) -> tuple[pa.Array, dict[int, str]]:
    """Return the texts as `wanted`, and the reason for each row that is not a value of it.

    Nothing is rounded, trimmed or guessed. Nulls and rows with a reason are null in the array.
    `inferred`: leading zeros may have a meaning, so that such texts are no numbers.
    """
    if wanted == pa.string():
        return texts, {}
    reasons: dict[int, str] = {}
    for row in _unparseable_rows(texts, wanted, 0, inferred=inferred):
        text = texts[row].as_py()
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
        reasons[row] = f"{shown!r} is not a valid {wanted}"
    if reasons:
        refused = np.isin(np.arange(len(texts)), list(reasons))
        texts = pc.if_else(pa.array(refused), pa.scalar(None, pa.string()), texts)
    return texts.cast(wanted), reasons


def is_lossless(texts: pa.StringArray, wanted: pa.DataType) -> bool:
    """Whether every text is a value of `wanted`, as `cast_texts` of an inferred type decides."""
    return next(_unparseable_rows(texts, wanted, 0, inferred=True), None) is None


def _unparseable_rows(
    texts: pa.StringArray, wanted: pa.DataType, first: int, *, inferred: bool
) -> Iterator[int]:
    # By bisection, as Arrow names only the first text that it cannot cast.
    try:
        values = texts.cast(wanted)
        suspicious = misread_rows(texts, values)
        if inferred:
            suspicious = sorted({*suspicious, *_lossy_rows(texts, values)})
    except pa.ArrowInvalid:
        half = len(texts) // 2
        if not half:
            yield first
            return
        yield from _unparseable_rows(texts[:half], wanted, first, inferred=inferred)
        yield from _unparseable_rows(texts[half:], wanted, first + half, inferred=inferred)
    else:
        yield from (first + row for row in suspicious)


def _lossy_rows(texts: pa.StringArray, values: pa.Array) -> list[int]:
    wanted = values.type
    if pa.types.is_boolean(wanted):
        return mask_rows(pc.match_substring_regex(texts, "^[01]$"))
    if pa.types.is_integer(wanted):
        return mask_rows(pc.match_substring_regex(texts, _LOST_BY_INTEGERS))
    if pa.types.is_decimal(wanted):
        return mask_rows(pc.match_substring_regex(texts, _LOST_BY_DECIMALS))
    if not pa.types.is_floating(wanted):
        return []
    lost = mask_rows(pc.match_substring_regex(texts, _LOST_BY_FLOATS))
    tiny = pc.and_(
        pc.less(pc.abs(values), _LEAST_NORMAL_FLOAT), pc.match_substring_regex(texts, _NOT_ZERO)
    )
    doubtful = pc.or_(pc.greater(pc.binary_length(texts), _FLOAT_DIGITS), tiny)
    doubtful = mask_rows(pc.and_(doubtful, pc.not_equal(values.cast(pa.string()), texts)))
    return lost + [row for row in doubtful if _is_rounded(texts[row].as_py())]


def _is_rounded(number: str) -> bool:
    return Decimal(number) != Decimal(repr(float(number)))


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
