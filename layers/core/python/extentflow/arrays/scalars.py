"""Format scalar values as text: numbers, dates, times, durations and UUIDs.

Integers and decimals are exact, without exponent (decimal128(15, 2) 1.5 is `1.50`). Floats are the
shortest text that reads back as the same value of the same width; exponents are written `1e+20`;
other values are `NaN`, `Infinity`, `-Infinity`, as in Java. Dates and times are ISO 8601 as in
java.time (ISO_LOCAL_DATE): four-digit years from 0000 to 9999, signed years outside (`-0044-03-15`,
`+10000-01-01`), year 0000 is 1 BC, proleptic Gregorian calendar. Timestamps with a time zone are
written in UTC. Fractions have the digits of their unit: none, 3, 6 or 9.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    corrupt_rows,
    fixed_width,
    null_mask,
    reinterpreted,
    text_array,
    validity,
    value_bytes,
    value_offsets,
)
from extentflow.arrays.encodings import UUID_CHARACTERS, uuid

# Arrow writes an exponent where a value has more than six zeros behind its point.
LAST_PLAIN_SCALE = 6
# The converter `string` writes them by name, as a null payload is a tombstone.
JAVA_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
SECONDS_PER_DAY = 86_400
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01, 9999-12-31
LAST_PLAIN_YEAR = 9_999
DATE_CHARACTERS = 10
# Every int64 has at most 19 digits.
INT64_DECIMAL = pa.decimal128(19, 0)
# Decimals of so few digits are 64-bit integers in disguise.
INT64_DIGITS = 18


def _format_float(array: pa.Array) -> pa.StringArray:
    text = _format_half(array) if types.is_float16(array.type) else array.cast(pa.string())
    if all_finite(array):
        return text
    # Only the odd values are rewritten; a null is not one of them.
    finite = pc.fill_null(pc.is_finite(array), fill_value=True)
    named = text.filter(pc.invert(finite))
    for arrow_name, java_name in JAVA_NAMES.items():
        named = pc.if_else(pc.equal(named, arrow_name), java_name, named)
    return pc.replace_with_mask(text, pc.invert(finite), named)


def all_finite(array: pa.Array) -> bool:
    """Return whether no value is NaN or infinite."""
    return bool(pc.all(pc.is_finite(array), min_count=0).as_py())


def _format_half(array: pa.Array) -> pa.StringArray:
    # Arrow widens before it writes: 0.1 would read 0.0999755859375. At most 65,536 texts exist.
    values, rows = np.unique(fixed_width(array, np.dtype(np.uint16)), return_inverse=True)
    texts = [
        np.format_float_positional(value, unique=True, trim="-")
        for value in values.view(np.float16)
    ]
    return pa.array(texts, pa.string()).take(pa.array(rows, mask=null_mask(array)))


def _format_decimal(array: pa.Array) -> pa.StringArray:
    # All digits of the scale stand behind the point.
    scale = array.type.scale
    if array.type.bit_width < pa.decimal128(1).bit_width:
        # `_unscaled` reads words of 128 and 256 bits only.
        array = array.cast(pa.decimal128(array.type.precision, scale))
    if scale < 0:
        # Arrow writes an exponent, 1.2E+4. Zero gets no zeros: JSON numbers have no leading ones.
        digits = _unscaled(array)
        return pc.if_else(pc.equal(digits, "0"), "0", _joined(digits, "0" * -scale))
    text = array.cast(pa.string())
    if scale <= LAST_PLAIN_SCALE:
        return text
    short = pc.fill_null(pc.match_substring(text, "E"), fill_value=False)
    if not pc.any(short, min_count=0).as_py():
        return text
    # Values with an exponent are so small that all their digits are fraction.
    digits = _unscaled(array.filter(short))
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    fraction = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), width=scale, padding="0")
    return pc.replace_with_mask(text, short, _joined(sign, "0.", fraction))


def _unscaled(array: pa.Array) -> pa.StringArray:
    of_precision = pa.decimal128 if types.is_decimal128(array.type) else pa.decimal256
    return reinterpreted(array, of_precision(array.type.precision, 0)).cast(pa.string())


def _joined(*parts: pa.Array | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _format_date(array: pa.Array) -> pa.StringArray:
    if types.is_date32(array.type):
        days = reinterpreted(array, pa.int32())
    else:
        # Arrow's format asks for whole days in a date64; nothing makes an array hold to it.
        ticks = pc.fill_null(reinterpreted(array, pa.int64()), 0).to_numpy()
        whole, rest = np.divmod(ticks, SECONDS_PER_DAY * 1_000)
        if rest.any():
            raise corrupt_rows(np.flatnonzero(rest), "a date64 with a time of day")
        days = pa.array(whole, mask=null_mask(array))
    # Outside four-digit years, Arrow's cast leaves out the sign that ISO 8601 asks for.
    odd = _out_of_range(days, FIRST_DAY, LAST_DAY)
    if odd is None:
        return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    plain = pc.if_else(odd, None, days).cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    return pc.replace_with_mask(plain, odd, _signed_dates(days.filter(odd).to_numpy()))


def _format_timestamp(array: pa.Array) -> pa.StringArray:
    unit = array.type.unit
    # Arrow counts in UTC whatever the zone is; without the zone, its cast writes UTC.
    ticks = reinterpreted(array, pa.int64())
    per_day = SECONDS_PER_DAY * 10 ** DIGITS[unit]
    odd = _out_of_range(ticks, FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1)
    if odd is None:
        return _with_separator(reinterpreted(ticks, pa.timestamp(unit)).cast(pa.string()))
    plain = reinterpreted(pc.if_else(odd, None, ticks), pa.timestamp(unit)).cast(pa.string())
    days, clock = np.divmod(ticks.filter(odd).to_numpy(), per_day)
    # The time of day as Arrow writes it on 1970-01-01.
    first_day = pc.cast(reinterpreted(pa.array(clock), pa.timestamp(unit)), pa.string())
    times = pc.utf8_slice_codeunits(first_day, DATE_CHARACTERS + 1)
    signed = _joined(_signed_dates(days), "T", times)
    return pc.replace_with_mask(_with_separator(plain), odd, signed)


def _with_separator(text: pa.StringArray) -> pa.StringArray:
    # Replaces the blank between date and time, at the same place in every value.
    data = value_bytes(text).copy()
    offsets = value_offsets(text) - value_offsets(text)[0]
    written = offsets[:-1] if text.null_count == 0 else offsets[:-1][validity(text)]
    data[written + DATE_CHARACTERS] = ord("T")
    return text_array(offsets, data, text)


def _signed_dates(days: NDArray[np.integer[Any]]) -> pa.StringArray:
    """Return dates whose year can lie outside 0000 to 9999."""
    whole = days.astype(np.int64).astype("datetime64[D]")
    months = whole.astype("datetime64[M]")
    day = (whole - months.astype("datetime64[D]")).astype(np.int64) + 1
    since_1970, month = np.divmod(months.astype(np.int64), 12)
    year = since_1970 + 1970
    sign = np.select([year < 0, year > LAST_PLAIN_YEAR], ["-", "+"], "")
    year_text = _joined(pa.array(sign), _padded(np.abs(year), 4))
    return pc.binary_join_element_wise(year_text, _padded(month + 1, 2), _padded(day, 2), "-")


def _padded(values: NDArray[np.int64], width: int) -> pa.StringArray:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width=width, padding="0")


def _format_time(array: pa.Array) -> pa.StringArray:
    unit = array.type.unit
    ticks = reinterpreted(array, pa.int32() if types.is_time32(array.type) else pa.int64())
    odd = _out_of_range(ticks, 0, SECONDS_PER_DAY * 10 ** DIGITS[unit] - 1)
    if odd is not None:
        raise corrupt_rows(np.flatnonzero(odd), f"not a time of day, counted in {unit}")
    return array.cast(pa.string())


def _format_seconds(array: pa.Array) -> pa.StringArray:
    # A count of ticks is a decimal whose scale is the number of the unit's digits.
    ticks = reinterpreted(array, pa.int64()).cast(INT64_DECIMAL)
    return _format_decimal(reinterpreted(ticks, pa.decimal128(19, DIGITS[array.type.unit])))


def _out_of_range(values: pa.Array, first: int, last: int) -> pa.BooleanArray | None:
    """Return the mask of values outside `[first, last]`; None if there is none."""
    extremes = pc.min_max(values).as_py()
    if extremes["min"] is None or (first <= extremes["min"] and extremes["max"] <= last):
        return None
    # Bounds may lie outside the type's own range; then nothing passes them.
    low = pc.less(values, first) if extremes["min"] < first else False
    high = pc.greater(values, last) if extremes["max"] > last else False
    return pc.fill_null(pc.or_(low, high), fill_value=False)


@dataclass(frozen=True, slots=True)
class Ordinals:
    """Maps values of a type to integers so that adjacent values have adjacent integers.

    `of` maps an array to integers, None if a value has no integer. `values` maps int64 back to an
    array of the type.
    """

    of: Callable[[pa.Array], pa.Array | None]
    values: Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class TextForm:
    """The text form of one type: `prefix`, the result of `render`, `suffix`.

    `render` keeps nulls. `width` is the maximum number of bytes of one rendered value. `number` is
    True if JSON writes the text without quotes. `ordinals` is set if values can be taken from a
    table, which costs less than rendering if there are few distinct values.
    """

    render: Callable[[pa.Array], pa.StringArray]
    width: int
    number: bool = False
    prefix: str = ""
    suffix: str = ""
    ordinals: Ordinals | None = None


# Returns the form of a type, as `text_form`.
Forms: TypeAlias = Callable[[pa.DataType], TextForm | None]


def text_form(data_type: pa.DataType) -> TextForm | None:
    """Return the form of a type; None for strings, bytes, nested types and types without text."""
    return next((form(data_type) for recognises, form in _FORMS if recognises(data_type)), None)


def complete_text(form: TextForm, array: pa.Array) -> pa.StringArray:
    """Return whole texts, including prefix and suffix; nulls stay."""
    text = form.render(array)
    if not form.prefix and not form.suffix:
        return text
    return _joined(form.prefix, text, form.suffix)


_as_string = methodcaller("cast", pa.string())


def _integer(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if not types.is_uint64(data_type):  # beyond int64
        ordinals = Ordinals(lambda array: array, lambda numbers: numbers.cast(data_type))
    return TextForm(_as_string, width=20, number=True, ordinals=ordinals)


def _decimal(data_type: pa.DataType) -> TextForm:
    # The sign, the point and a zero in front of it come on top of the digits.
    width = data_type.precision + abs(data_type.scale) + 3
    ordinals = None
    if types.is_decimal128(data_type) and data_type.precision <= INT64_DIGITS:
        ordinals = Ordinals(
            _low_words, lambda words: reinterpreted(words.cast(INT64_DECIMAL), data_type)
        )
    return TextForm(_format_decimal, width, number=True, ordinals=ordinals)


def _low_words(array: pa.Decimal128Array) -> pa.Int64Array | None:
    """Return the values as 64-bit words; None if one does not fit, whatever its type states."""
    words = fixed_width(array, np.dtype((np.int64, 2)))
    low, high = np.ascontiguousarray(words[:, 0]), words[:, 1]
    # In two's complement, the high word of a 64-bit value repeats its sign bit.
    if ((high != low >> 63) & validity(array)).any():
        return None
    return pa.array(low, mask=null_mask(array))


def _date(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if types.is_date32(data_type):
        ordinals = Ordinals(
            lambda array: reinterpreted(array, pa.int32()),
            lambda days: days.cast(pa.int32()).cast(pa.date32()),
        )
    return TextForm(_format_date, width=20, ordinals=ordinals)


def _timestamp(data_type: pa.DataType) -> TextForm:
    return TextForm(_format_timestamp, width=40, suffix="" if data_type.tz is None else "Z")


# Widths are upper bounds: a batch that may exceed 32-bit offsets is halved before it is rendered.
_FORMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], TextForm]], ...] = (
    (types.is_null, lambda _: TextForm(lambda array: pa.nulls(len(array), pa.string()), width=0)),
    (types.is_boolean, lambda _: TextForm(_as_string, width=5, number=True)),
    (types.is_integer, _integer),
    (types.is_floating, lambda _: TextForm(_format_float, width=32, number=True)),
    (types.is_decimal, _decimal),
    (types.is_date, _date),
    (types.is_timestamp, _timestamp),
    (types.is_time, lambda _: TextForm(_format_time, width=18)),
    (types.is_duration, lambda _: TextForm(_format_seconds, width=24, prefix="PT", suffix="S")),
    (
        lambda data_type: isinstance(data_type, pa.UuidType),
        lambda _: TextForm(lambda array: uuid(array.storage), width=UUID_CHARACTERS),
    ),
    (
        lambda data_type: isinstance(data_type, pa.Bool8Type),
        lambda _: TextForm(lambda array: _as_string(array.cast(pa.bool_())), width=5, number=True),
    ),
)
