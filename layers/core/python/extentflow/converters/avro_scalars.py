"""Write the values of scalar columns in Avro's binary encoding, as their schema says.

Tests: unit/converters/test_avro_converter.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import fixed_width
from extentflow.arrays.encodings import checked_text, is_binary, is_text, uuid
from extentflow.arrays.interleave import (
    WORD_BYTES,
    Blobs,
    Piece,
    big_endian,
    fixed_words,
    varints,
    with_lengths,
)
from extentflow.arrays.numbers import TICKS, date_days, decimal_shape, numbers, signed_words
from extentflow.arrays.scalars import SECONDS_PER_DAY
from extentflow.converters.avro_schema import UUID_BYTES, Schema
from extentflow.converters.names import Names
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

_INT, _LONG = 32, 64
_MOST_FLOAT_BITS, _MOST_DOUBLE_BITS = 24, 53


@dataclass(frozen=True, slots=True)
class Target:
    """How columns become fields: the names, and the most bytes of one array."""

    names: Names
    limit_bytes: int


class ColumnMismatch(Exception):  # noqa: N818 - becomes IncompatibleSchema with the column's name
    """A column cannot be written as the schema says."""


def _integers(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    bits = data_type.bit_width
    # An unsigned one needs a sign bit more.
    needed = bits + 1 if types.is_unsigned_integer(data_type) else bits
    if schema.kind in {"int", "long"} and not schema.logical:
        if needed <= (_INT if schema.kind == "int" else _LONG):
            return lambda array, _rows: varints(numbers(array))
    elif schema.kind == "double" and bits <= _MOST_DOUBLE_BITS:
        return lambda array, _rows: write_doubles(numbers(array).astype(np.float64))
    elif schema.kind == "float" and bits <= _MOST_FLOAT_BITS:
        return lambda array, _rows: write_singles(numbers(array).astype(np.float32))
    raise ColumnMismatch


def _floats(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    if schema.kind == "double":
        return lambda array, _rows: write_doubles(
            fixed_width(array, dtype).astype(np.float64, copy=False)
        )
    if schema.kind == "float" and dtype.itemsize <= np.dtype(np.float32).itemsize:
        return lambda array, _rows: write_singles(fixed_width(array, dtype).astype(np.float32))
    raise ColumnMismatch


def _booleans(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "boolean":
        raise ColumnMismatch
    return write_booleans


def _nulls(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "null":
        raise ColumnMismatch
    return lambda _array, _rows: []


_LOGICAL_TICKS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def _dates(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if (schema.kind, schema.logical) != ("int", "date"):
        raise ColumnMismatch

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        days, odd = date_days(array)
        reject(array, rows, odd, "a date64 with a time of day")
        return varints(days)

    return write


def _times(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    if (schema.kind, schema.logical) not in {("int", "time-millis"), ("long", "time-micros")}:
        raise ColumnMismatch
    least, most = TICKS[data_type.unit], _LOGICAL_TICKS[schema.logical.removeprefix("time-")]
    if most < least and data_type.unit != "ns":
        raise ColumnMismatch
    per_day = SECONDS_PER_DAY * least

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        ticks = numbers(array)
        odd = (ticks < 0) | (ticks >= per_day)
        reject(array, rows, odd, f"not a time of day, counted in {data_type.unit}")
        if most >= least:
            return varints(ticks * (most // least))
        ticks, rest = np.divmod(ticks, least // most)
        reject(array, rows, rest != 0, "nanoseconds, and Avro has times in microseconds")
        return varints(ticks)

    return write


def _timestamps(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    local = "local-" if data_type.tz is None else ""
    start = f"{local}timestamp-"
    if not schema.logical.startswith(start):
        raise ColumnMismatch
    least, most = TICKS[data_type.unit], _LOGICAL_TICKS[schema.logical.removeprefix(start)]
    if most < least:
        raise ColumnMismatch
    factor = most // least

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        ticks = numbers(array)
        if factor > 1:
            bound = (2**63 - 1) // factor
            odd = (ticks > bound) | (ticks < -bound)
            reject(array, rows, odd, f"an instant beyond {schema.logical}")
        return varints(ticks * factor)

    return write


def _durations(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "long" or schema.logical:
        raise ColumnMismatch
    return lambda array, _rows: varints(numbers(array))


def _decimals(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    precision, scale = decimal_shape(data_type)
    fits = schema.logical == "decimal" and schema.scale == scale
    if not fits or schema.precision < precision:
        raise ColumnMismatch
    fixed = schema.size if schema.kind == "fixed" else 0

    def write(array: pa.Array, _rows: Rows) -> list[Piece]:
        words, sign = signed_words(array)
        if fixed:
            return _sign_extended(words, sign, fixed)
        pieces = big_endian(words, sign)
        return [fixed_words(2 * summed_lengths(pieces), 1), *pieces]

    return write


def _sign_extended(
    words: list[NDArray[np.uint64]], sign: NDArray[np.bool_], size: int
) -> list[Piece]:
    """Return two's complement numbers of `size` bytes, most significant byte first."""
    fill = np.where(sign, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))
    count, rest = divmod(size, WORD_BYTES)
    while len(words) < count + bool(rest):
        words = [fill, *words]
    words = words[len(words) - count - bool(rest) :]
    made: list[Piece] = []
    if rest:
        unused = np.uint64(8 * (WORD_BYTES - rest))
        made.append(fixed_words(words[0].byteswap() >> unused, rest))
    return [*made, *(fixed_words(word.byteswap(), WORD_BYTES) for word in words[bool(rest) :])]


def _texts(_: pa.DataType, schema: Schema, target: Target) -> Writer:
    limit = target.limit_bytes
    if schema.kind == "enum":
        return _enum_writer(schema, limit)
    if schema.kind == "string" and not schema.logical:
        return lambda array, _rows: _with_lengths(checked_text(array, limit).cast(pa.binary()))
    if schema.kind == "bytes" and not schema.logical:
        return lambda array, _rows: _with_lengths(checked_binary(array, limit))
    raise ColumnMismatch


def _bytes(_: pa.DataType, schema: Schema, target: Target) -> Writer:
    if schema.kind != "bytes" or schema.logical:
        raise ColumnMismatch
    return lambda array, _rows: _with_lengths(checked_binary(array, target.limit_bytes))


def _fixed(data_type: pa.DataType, schema: Schema, target: Target) -> Writer:
    size, limit = data_type.byte_width, target.limit_bytes
    if schema.kind == "fixed" and schema.size == size and not schema.logical:
        return lambda array, _rows: [Blobs(checked_binary(array, limit))]
    if schema.kind == "bytes" and not schema.logical:
        return lambda array, _rows: _with_lengths(checked_binary(array, limit))
    raise ColumnMismatch


def _uuids(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind == "string":
        return lambda array, _rows: _with_lengths(uuid(array.storage).cast(pa.binary()))
    if schema.kind == "fixed" and schema.size == UUID_BYTES and schema.logical != "decimal":
        return lambda array, _rows: [Blobs(array.storage.cast(pa.binary()))]
    raise ColumnMismatch


def _enum_writer(schema: Schema, limit_bytes: int) -> Writer:
    symbols = pa.array(schema.symbols, pa.string())

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        found = pc.index_in(checked_text(array, limit_bytes), symbols)
        unknown = pc.is_null(found).to_numpy(zero_copy_only=False)
        reject(array, rows, unknown, f"none of the symbols of {schema.name}")
        return varints(pc.fill_null(found, 0).to_numpy().astype(np.int64))

    return write


def _with_lengths(values: pa.BinaryArray) -> list[Piece]:
    return with_lengths(values, varints)


_Build: TypeAlias = Callable[[pa.DataType, Schema, Target], Writer]
_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (types.is_null, _nulls),
    (types.is_boolean, _booleans),
    (types.is_uint64, _decimals),
    (types.is_integer, _integers),
    (types.is_floating, _floats),
    (types.is_decimal, _decimals),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, _durations),
    (is_text, _texts),
    (types.is_fixed_size_binary, _fixed),
    (is_binary, _bytes),
    (lambda kind: isinstance(kind, pa.UuidType), _uuids),
    (lambda kind: isinstance(kind, pa.Bool8Type), _booleans),
    (
        lambda kind: isinstance(kind, pa.JsonType),
        lambda kind, schema, target: _storage(_texts(kind.storage_type, schema, target)),
    ),
)


def _storage(write: Writer) -> Writer:
    return lambda array, rows: write(array.storage, rows)


def scalar_writer(data_type: pa.DataType, schema: Schema, target: Target) -> Writer | None:
    """Return the writer of a scalar type; None: it is nested. ColumnMismatch: it does not fit."""
    for recognises, build in _SCALARS:
        if recognises(data_type):
            return build(data_type, schema, target)
    return None
