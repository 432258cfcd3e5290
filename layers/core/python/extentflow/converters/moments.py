"""Dates, times, timestamps and durations as ISO 8601 text.

Owns: the calendar at both ends of Arrow's ranges. Refuses to know: time zone rules; zone-aware
timestamps are instants and are written in UTC.

Years are those of java.time (ISO_LOCAL_DATE): four digits within 0000 to 9999, outside more where
needed and always signed: `-0044-03-15`, `+10000-01-01`; year 0000 is 1 BC, the calendar proleptic
Gregorian. Fractions have the digits of their unit: none, 3, 6 or 9.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import contents, ends, reinterpreted, text_array, validity
from extentflow.converters.digits import decimal
from extentflow.converters.faults import corrupt_alike

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
SECONDS_PER_DAY = 86_400
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01, 9999-12-31
LAST_PLAIN_YEAR = 9_999
DATE_CHARACTERS = 10
# Every int64 has at most 19 digits.
INT64_DECIMAL = pa.decimal128(19, 0)


def date(array: pa.Array) -> pa.StringArray:
    """Return a date32 or date64 array as `YYYY-MM-DD`.

    Raises:
        CorruptRecord: date64 values that are not whole days.
    """
    if pa.types.is_date64(array.type):
        return _of_days(_whole_days(reinterpreted(array, pa.int64())))
    return _of_days(reinterpreted(array, pa.int32()))


def _of_days(days: pa.Array) -> pa.StringArray:
    """Return days since 1970-01-01, of any integer type, as dates."""
    odd = _outside(days, FIRST_DAY, LAST_DAY)
    if odd is None:
        return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    plain = pc.if_else(odd, None, days).cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    return pc.replace_with_mask(plain, odd, _far_dates(days.filter(odd).to_numpy()))


def timestamp(array: pa.Array) -> pa.StringArray:
    """Return a timestamp array as `YYYY-MM-DDThh:mm:ss[.fraction]`, in UTC, without its `Z`."""
    unit = array.type.unit
    ticks = reinterpreted(array, pa.int64())
    per_day = SECONDS_PER_DAY * 10 ** DIGITS[unit]
    first, last = FIRST_DAY * per_day, (LAST_DAY + 1) * per_day - 1
    odd = _outside(ticks, first, last)
    if odd is None:
        return _with_t(reinterpreted(ticks, pa.timestamp(unit)).cast(pa.string()))
    plain = reinterpreted(pc.if_else(odd, None, ticks), pa.timestamp(unit)).cast(pa.string())
    far = _far_timestamps(ticks.filter(odd).to_numpy(), per_day, unit)
    return pc.replace_with_mask(_with_t(plain), odd, far)


def time(array: pa.Array) -> pa.StringArray:
    """Return a time32 or time64 array as `hh:mm:ss[.fraction]`.

    Raises:
        CorruptRecord: values that are no time of day.
    """
    unit = array.type.unit
    ticks = reinterpreted(array, pa.int32() if pa.types.is_time32(array.type) else pa.int64())
    odd = _outside(ticks, 0, SECONDS_PER_DAY * 10 ** DIGITS[unit] - 1)
    if odd is not None:
        raise corrupt_alike(np.flatnonzero(odd), f"not a time of day, counted in {unit}")
    return array.cast(pa.string())


def seconds(array: pa.Array) -> pa.StringArray:
    """Return a duration array as decimal seconds: what stands between `PT` and `S`."""
    ticks = reinterpreted(array, pa.int64()).cast(INT64_DECIMAL)
    return decimal(reinterpreted(ticks, pa.decimal128(19, DIGITS[array.type.unit])))


def _outside(values: pa.Array, first: int, last: int) -> pa.BooleanArray | None:
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
        raise corrupt_alike(np.flatnonzero(rest), "a date64 with a time of day")
    nulls = None if milliseconds.null_count == 0 else ~validity(milliseconds)
    return pa.array(days, mask=nulls)


def _with_t(text: pa.StringArray) -> pa.StringArray:
    """Replace the blank between date and time, at the same place in every value."""
    data = contents(text).copy()
    offsets = ends(text) - ends(text)[0]
    written = offsets[:-1] if text.null_count == 0 else offsets[:-1][validity(text)]
    data[written + DATE_CHARACTERS] = ord("T")
    return text_array(offsets, data, text)


def _far_timestamps(ticks: NDArray[np.int64], per_day: int, unit: str) -> pa.StringArray:
    days, rest = np.divmod(ticks, per_day)
    clock = pa.array(rest).cast(pa.int64())
    moments = pc.cast(reinterpreted(clock, pa.timestamp(unit)), pa.string())
    return pc.binary_join_element_wise(
        _far_dates(days), "T", pc.utf8_slice_codeunits(moments, DATE_CHARACTERS + 1), ""
    )


def _far_dates(days: NDArray[np.integer[Any]]) -> pa.StringArray:
    """Return dates whose year may lie outside 0000 to 9999."""
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
