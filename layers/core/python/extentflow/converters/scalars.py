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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import (
    fixed_width,
    reinterpreted,
    text_array,
    validity,
    value_bytes,
    value_offsets,
)
from extentflow.converters.encodings import UUID_CHARACTERS, uuid
from extentflow.converters.row_errors import corrupt_rows

# Arrow writes an exponent where a value has more than six zeros behind its point.
LAST_PLAIN_SCALE = 6
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def format_integer(array: pa.Array) -> pa.StringArray:
    """Return any integer or boolean array as text."""
    return array.cast(pa.string())


def format_float(array: pa.Array) -> pa.StringArray:
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


def format_decimal(array: pa.Array) -> pa.StringArray:
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


DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
SECONDS_PER_DAY = 86_400
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01, 9999-12-31
LAST_PLAIN_YEAR = 9_999
DATE_CHARACTERS = 10
# Every int64 has at most 19 digits.
INT64_DECIMAL = pa.decimal128(19, 0)


def format_date(array: pa.Array) -> pa.StringArray:
    """Return a date32 or date64 array as `YYYY-MM-DD`.

    Raises:
        CorruptRecord: date64 values that are not whole days.
    """
    if pa.types.is_date64(array.type):
        return _dates_of_days(_whole_days(reinterpreted(array, pa.int64())))
    return _dates_of_days(reinterpreted(array, pa.int32()))


def _dates_of_days(days: pa.Array) -> pa.StringArray:
    """Return days since 1970-01-01, of any integer type, as dates."""
    odd = _out_of_range(days, FIRST_DAY, LAST_DAY)
    if odd is None:
        return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    plain = pc.if_else(odd, None, days).cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    return pc.replace_with_mask(plain, odd, _dates_beyond_year_range(days.filter(odd).to_numpy()))


def format_timestamp(array: pa.Array) -> pa.StringArray:
    """Return a timestamp array as `YYYY-MM-DDThh:mm:ss[.fraction]`, in UTC, without its `Z`."""
    unit = array.type.unit
    ticks = reinterpreted(array, pa.int64())
    per_day = SECONDS_PER_DAY * 10 ** DIGITS[unit]
    first, last = FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1
    odd = _out_of_range(ticks, first, last)
    if odd is None:
        return _with_separator(reinterpreted(ticks, pa.timestamp(unit)).cast(pa.string()))
    plain = reinterpreted(pc.if_else(odd, None, ticks), pa.timestamp(unit)).cast(pa.string())
    far = _timestamps_beyond_year_range(ticks.filter(odd).to_numpy(), per_day, unit)
    return pc.replace_with_mask(_with_separator(plain), odd, far)


def format_time(array: pa.Array) -> pa.StringArray:
    """Return a time32 or time64 array as `hh:mm:ss[.fraction]`.

    Raises:
        CorruptRecord: values that are no time of day.
    """
    unit = array.type.unit
    ticks = reinterpreted(array, pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    odd = _out_of_range(ticks, 0, SECONDS_PER_DAY * 10 ** DIGITS[unit] - 1)
    if odd is not None:
        raise corrupt_rows(np.flatnonzero(odd), f"not a time of day, counted in {unit}")
    return array.cast(pa.string())


def format_seconds(array: pa.Array) -> pa.StringArray:
    """Return a duration array as decimal seconds: what stands between `PT` and `S`."""
    ticks = reinterpreted(array, pa.int64()).cast(INT64_DECIMAL)
    return format_decimal(reinterpreted(ticks, pa.decimal128(19, DIGITS[array.type.unit])))


def _out_of_range(values: pa.Array, first: int, last: int) -> pa.BooleanArray | None:
    """Return the mask of values outside `[first, last]`, None where there is none."""
    extremes = pc.min_max(values).as_py()
    if extremes["min"] is None or (first <= extremes["min"] and extremes["max"] <= last):
        return None
    # Bounds may lie outside the type's own range; then nothing passes them.
    low = pc.less(values, first) if extremes["min"] < first else False
    high = pc.greater(values, last) if extremes["max"] > last else False
    return pc.fill_null(pc.or_(low, high), fill_value=False)


def _whole_days(milliseconds: pa.Int64Array) -> pa.Int64Array:
    days, rest = np.divmod(pc.fill_null(milliseconds, 0).to_numpy(), SECONDS_PER_DAY * 1_000)
    if rest.any():
        raise corrupt_rows(np.flatnonzero(rest), "a date64 with a time of day")
    nulls = None if milliseconds.null_count == 0 else ~validity(milliseconds)
    return pa.array(days, mask=nulls)


def _with_separator(text: pa.StringArray) -> pa.StringArray:
    """Replace the blank between date and time, at the same place in every value."""
    data = value_bytes(text).copy()
    offsets = value_offsets(text) - value_offsets(text)[0]
    written = offsets[:-1] if text.null_count == 0 else offsets[:-1][validity(text)]
    data[written + DATE_CHARACTERS] = ord("T")
    return text_array(offsets, data, text)


def _timestamps_beyond_year_range(
    ticks: NDArray[np.int64], per_day: int, unit: str
) -> pa.StringArray:
    days, rest = np.divmod(ticks, per_day)
    clock = pa.array(rest).cast(pa.int64())
    moments = pc.cast(reinterpreted(clock, pa.timestamp(unit)), pa.string())
    return pc.binary_join_element_wise(
        _dates_beyond_year_range(days),
        "T",
        pc.utf8_slice_codeunits(moments, DATE_CHARACTERS + 1),
        "",
    )


def _dates_beyond_year_range(days: NDArray[np.integer[Any]]) -> pa.StringArray:
    """Return dates whose year can lie outside 0000 to 9999."""
    whole = days.astype(np.int64).astype("datetime64[D]")
    months = whole.astype("datetime64[M]")
    day = (whole - months.astype("datetime64[D]")).astype(np.int64) + 1
    year, month = np.divmod(months.astype(np.int64), 12)
    return pc.binary_join_element_wise(
        _year(year + 1970), _two_digits(month + 1), _two_digits(day), "-"
    )


def _year(years: NDArray[np.int64]) -> pa.StringArray:
    digits = pc.utf8_lpad(pa.array(np.abs(years)).cast(pa.string()), width=4, padding="0")
    sign = np.select([years < 0, years > LAST_PLAIN_YEAR], ["-", "+"], "")
    return pc.binary_join_element_wise(pa.array(sign), digits, "")


def _two_digits(values: NDArray[np.int64]) -> pa.StringArray:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width=2, padding="0")


# Decimals of so few digits are 64-bit integers in disguise.
INT64_DIGITS = 18


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


def text_form(data_type: pa.DataType) -> TextForm | None:
    """Return the form of a type; None for strings, bytes, nested types and types without text."""
    for recognises, form in _FORMS:
        if recognises(data_type):
            return form(data_type)
    return None


def complete(form: TextForm, array: pa.Array) -> pa.StringArray:
    """Return whole texts, including prefix and suffix; nulls stay."""
    text = form.render(array)
    if not form.prefix and not form.suffix:
        return text
    return pc.binary_join_element_wise(form.prefix, text, form.suffix, "")


def _truth(_: pa.DataType) -> TextForm:
    return TextForm(format_integer, width=5, number=True)


def _integer(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if not pa.types.is_uint64(data_type):
        ordinals = Ordinals(lambda array: array, lambda numbers: numbers.cast(data_type))
    return TextForm(format_integer, width=20, number=True, ordinals=ordinals)


def _floating(_: pa.DataType) -> TextForm:
    return TextForm(format_float, width=32, number=True)


def _decimal(data_type: pa.DataType) -> TextForm:
    width = data_type.precision + abs(data_type.scale) + 3
    ordinals = None
    if pa.types.is_decimal128(data_type) and data_type.precision <= INT64_DIGITS:
        ordinals = Ordinals(_low_words, lambda words: _from_words(words, data_type))
    return TextForm(format_decimal, width, number=True, ordinals=ordinals)


def _low_words(array: pa.Decimal128Array) -> pa.Int64Array | None:
    """Return the values as 64-bit words; None where one does not fit, whatever its type says."""
    words = fixed_width(array, np.dtype((np.int64, 2)))
    low, high = np.ascontiguousarray(words[:, 0]), words[:, 1]
    nulls = None if array.null_count == 0 else ~validity(array)
    wide = high != low >> 63
    if (wide if nulls is None else wide & ~nulls).any():
        return None
    return pa.array(low, mask=nulls)


def _from_words(words: pa.Int64Array, data_type: pa.DataType) -> pa.Decimal128Array:
    return reinterpreted(words.cast(INT64_DECIMAL), data_type)


def _date(data_type: pa.DataType) -> TextForm:
    ordinals = None
    if pa.types.is_date32(data_type):
        ordinals = Ordinals(
            lambda array: reinterpreted(array, pa.int32()),
            lambda days: days.cast(pa.int32()).cast(pa.date32()),
        )
    return TextForm(format_date, width=20, ordinals=ordinals)


def _timestamp(data_type: pa.DataType) -> TextForm:
    return TextForm(format_timestamp, width=40, suffix="" if data_type.tz is None else "Z")


def _time(_: pa.DataType) -> TextForm:
    return TextForm(format_time, width=18)


def _duration(_: pa.DataType) -> TextForm:
    return TextForm(format_seconds, width=24, prefix="PT", suffix="S")


def _null(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: pa.nulls(len(array), pa.string()), width=0)


def _uuid(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: uuid(array.storage), width=UUID_CHARACTERS)


def _bool8(_: pa.DataType) -> TextForm:
    return TextForm(lambda array: format_integer(array.cast(pa.bool_())), width=5, number=True)


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], TextForm]], ...] = (
    (pa.types.is_null, _null),
    (pa.types.is_boolean, _truth),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_duration, _duration),
    (lambda data_type: isinstance(data_type, pa.UuidType), _uuid),
    (lambda data_type: isinstance(data_type, pa.Bool8Type), _bool8),
)
