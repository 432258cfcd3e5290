"""Declare scalar columns as fields of Protocol Buffers, or well-known messages, and write them.

Tests: unit/converters/test_protobuf_converter.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import fixed_width
from extentflow.arrays.encodings import checked_text, is_binary, is_text, uuid
from extentflow.arrays.interleave import (
    Constant,
    Piece,
    Words,
    big_endian,
    fixed_words,
    masked,
    unsigned_varints,
    varint,
    with_lengths,
)
from extentflow.arrays.numbers import TICKS, date_days, decimal_shape, numbers, signed_words
from extentflow.arrays.scalars import SECONDS_PER_DAY
from extentflow.converters.row_writers import (
    Rows,
    Writer,
    checked_binary,
    reject,
    summed_lengths,
    write_booleans,
    write_doubles,
    write_singles,
)

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field, and how it is written. A `message` has presence of its own."""

    name: str
    wire: int
    write: Writer
    message: bool = False


def sized(values: pa.BinaryArray) -> list[Piece]:
    """Return values with their length in front."""
    return with_lengths(values, lambda lengths: unsigned_varints(lengths.view(np.uint64)))


def tag_bytes(number: int, wire: int) -> bytes:
    """Return what precedes a field's value."""
    return varint(number << 3 | wire)


# A type, and the file that declares it, where it is not one of the language's.
_Built: TypeAlias = tuple[Kind, str]


def _scalar(name: str, wire: int, write: Writer) -> _Built:
    return Kind(name, wire, write), ""


def _integers(data_type: pa.DataType, _: int) -> _Built:
    sign = "u" if types.is_unsigned_integer(data_type) else ""
    name = f"{sign}int{max(32, data_type.bit_width)}"
    # A negative number is one of 64 bits, in two's complement.
    return _scalar(name, VARINT, lambda array, _: unsigned_varints(numbers(array).view(np.uint64)))


def _booleans(_: pa.DataType, __: int) -> _Built:
    return _scalar("bool", VARINT, write_booleans)


def _floats(data_type: pa.DataType, _: int) -> _Built:
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    if types.is_float64(data_type):
        return _scalar("double", FIXED64, lambda array, _: write_doubles(fixed_width(array, dtype)))
    return _scalar(
        "float",
        FIXED32,
        lambda array, _: write_singles(fixed_width(array, dtype).astype(np.float32, copy=False)),
    )


def _texts(_: pa.DataType, limit_bytes: int) -> _Built:
    return _scalar("string", SIZED, partial(_write_text, limit_bytes))


def _write_text(limit_bytes: int, array: pa.Array, _: Rows) -> list[Piece]:
    return sized(checked_text(array, limit_bytes).cast(pa.binary()))


def _json_texts(_: pa.DataType, limit_bytes: int) -> _Built:
    return _scalar(
        "string", SIZED, lambda array, rows: _write_text(limit_bytes, array.storage, rows)
    )


def _uuids(_: pa.DataType, __: int) -> _Built:
    return _scalar(
        "string",
        SIZED,
        lambda array, _: sized(uuid(array.storage).cast(pa.binary())),
    )


def _binaries(_: pa.DataType, limit_bytes: int) -> _Built:
    return _scalar("bytes", SIZED, lambda array, _: sized(checked_binary(array, limit_bytes)))


_NANOS = 10**9
# Of google.protobuf.Timestamp and Duration, in seconds.
_FIRST_SECOND, _END_SECOND = -62_135_596_800, 253_402_300_800
_LONGEST_SECONDS = 315_576_000_000
_FIRST_YEAR, _LAST_YEAR = 1, 9999
Parts: TypeAlias = Sequence[NDArray[np.int64]]


def _well_known(name: str, imported: str, parts_of: Callable[[pa.Array, Rows], Parts]) -> _Built:
    """Return a message of integers, numbered from 1; zeros are left out, as they are defaults."""

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        pieces: list[Piece] = []
        for number, part in enumerate(parts_of(array, rows), 1):
            tag = Constant(tag_bytes(number, VARINT))
            pieces += masked([tag, *unsigned_varints(part.view(np.uint64))], part != 0)
        return [_length(pieces), *pieces]

    return Kind(name, SIZED, write, message=True), imported


def _length(pieces: Sequence[Piece]) -> Words:
    """Return the length of pieces that have fewer than 128 bytes."""
    # Constants are none of them: `masked` turned these into words.
    return fixed_words(summed_lengths(pieces), 1)


def _seconds_and_nanos(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    tick = TICKS[array.type.unit]
    seconds, rest = np.divmod(numbers(array), tick)
    return seconds, rest * (_NANOS // tick)


def _calendar(days: NDArray[np.int64]) -> Parts:
    """Return years, months and days of the month of days since 1970."""
    dates = days.astype("M8[D]")
    years, months = dates.astype("M8[Y]"), dates.astype("M8[M]")
    return (
        years.astype(np.int64) + 1970,
        (months - years).astype(np.int64) + 1,
        (dates - months).astype(np.int64) + 1,
    )


def _clock(seconds: NDArray[np.int64]) -> Parts:
    minutes, second = np.divmod(seconds, 60)
    hours, minute = np.divmod(minutes, 60)
    return hours, minute, second


def _date_parts(array: pa.Array, rows: Rows) -> Parts:
    days, odd = date_days(array)
    reject(array, rows, odd, "a date64 with a time of day")
    return _checked_calendar(days, rows, array)


def _checked_calendar(days: NDArray[np.int64], rows: Rows, array: pa.Array) -> Parts:
    first, end = _FIRST_SECOND // SECONDS_PER_DAY, _END_SECOND // SECONDS_PER_DAY
    outside = (days < first) | (days >= end)
    reject(array, rows, outside, f"a year outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return _calendar(np.where(outside, 0, days))


def _time_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    outside = (seconds < 0) | (seconds >= SECONDS_PER_DAY)
    reject(array, rows, outside, f"not a time of day, counted in {array.type.unit}")
    return *_clock(seconds), nanos


def _instant_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    outside = (seconds < _FIRST_SECOND) | (seconds >= _END_SECOND)
    reject(array, rows, outside, f"a year outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return seconds, nanos


def _local_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    days, second = np.divmod(seconds, SECONDS_PER_DAY)
    return *_checked_calendar(days, rows, array), *_clock(second), nanos


def _duration_parts(array: pa.Array, rows: Rows) -> Parts:
    seconds, nanos = _seconds_and_nanos(array)
    # Both have the sign of the duration.
    mixed = (seconds < 0) & (nanos > 0)
    seconds, nanos = seconds + mixed, nanos - mixed * _NANOS
    outside = (seconds < -_LONGEST_SECONDS) | (seconds > _LONGEST_SECONDS)
    reject(array, rows, outside, "a duration beyond 10,000 years")
    return seconds, nanos


def _dates(_: pa.DataType, __: int) -> _Built:
    return _well_known("google.type.Date", "google/type/date.proto", _date_parts)


def _times(_: pa.DataType, __: int) -> _Built:
    return _well_known("google.type.TimeOfDay", "google/type/timeofday.proto", _time_parts)


def _timestamps(data_type: pa.DataType, __: int) -> _Built:
    if data_type.tz is None:
        return _well_known("google.type.DateTime", "google/type/datetime.proto", _local_parts)
    return _well_known(
        "google.protobuf.Timestamp", "google/protobuf/timestamp.proto", _instant_parts
    )


def _durations(_: pa.DataType, __: int) -> _Built:
    return _well_known(
        "google.protobuf.Duration", "google/protobuf/duration.proto", _duration_parts
    )


def _decimals(data_type: pa.DataType, _: int) -> _Built:
    precision, scale = decimal_shape(data_type)
    shape = tag_bytes(2, VARINT) + varint(precision)
    if scale:
        shape += tag_bytes(3, VARINT) + varint(scale)

    def write(array: pa.Array, _: Rows) -> list[Piece]:
        digits = big_endian(*signed_words(array))
        size = _length(digits)
        head = fixed_words(size.words + np.uint64(2 + len(shape)), 1)
        return [head, Constant(tag_bytes(1, SIZED)), size, *digits, Constant(shape)]

    kind = Kind("confluent.type.Decimal", SIZED, write, message=True)
    return kind, "confluent/type/decimal.proto"


_Build: TypeAlias = Callable[[pa.DataType, int], _Built]
_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (types.is_boolean, _booleans),
    (types.is_integer, _integers),
    (types.is_floating, _floats),
    (types.is_decimal, _decimals),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, _durations),
    (is_text, _texts),
    (is_binary, _binaries),
    (lambda kind: isinstance(kind, pa.UuidType), _uuids),
    (lambda kind: isinstance(kind, pa.Bool8Type), _booleans),
    (lambda kind: isinstance(kind, pa.JsonType), _json_texts),
)


def scalar_kind(data_type: pa.DataType, limit_bytes: int) -> tuple[Kind, str] | None:
    """Return the type of a field, and the file that declares it, if any; None: there is none."""
    for recognises, build in _SCALARS:
        if recognises(data_type):
            return build(data_type, limit_bytes)
    return None
