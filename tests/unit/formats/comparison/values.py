"""Values as plain Python, the same whatever library held them, and the JSON that they must become.

instants, times      nanoseconds since the epoch or midnight
dates                days since the epoch
floats               their shortest text, so that NaN equals NaN and zeros keep their sign
UUIDs                text
maps                 lists of pairs; structs are dicts
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyarrow import types
from tests.unit.converters.arrow_cases import (
    UNITS,
    FloatWriter,
    clock,
    day,
    duration,
    encoded,
    instant,
    number,
)

Plain: TypeAlias = Any
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the others are made naive
EXACT = Context(prec=80)
FLOATS: Mapping[pa.DataType, Callable[[str], Any]] = {
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def _is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _has_ticks(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) or types.is_time(kind) or types.is_duration(kind))


def _nanoseconds(kind: pa.DataType) -> int:
    """Return what a tick of the type lasts."""
    return int(10 ** (9 - UNITS[kind.unit]))


# -- from Arrow ------------------------------------------------------------------------------------


def of_array(array: pa.Array | pa.ChunkedArray) -> list[Plain]:
    """Return the values of an Arrow array."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in of_array(chunk)]
    read = next((read for is_kind, read in _ARRAYS if is_kind(array.type)), pa.Array.to_pylist)
    return list(read(array))


def _of_extension(array: pa.ExtensionArray) -> list[Plain]:
    stored = of_array(array.storage)
    if not isinstance(array.type, pa.UuidType):
        return stored
    return [value if value is None else str(UUID(bytes=value)) for value in stored]


def _of_struct(array: pa.StructArray) -> list[Plain]:
    columns = dict(zip(array.type.names, map(of_array, array.flatten()), strict=True))
    rows = rows_of(columns, len(array))
    return [row if one else None for row, one in zip(rows, array.is_valid(), strict=True)]


def _of_map(array: pa.MapArray) -> list[Plain]:
    def pairs(entries: pa.StructArray) -> list[Plain]:
        return list(zip(*(of_array(entries.field(place)) for place in (0, 1)), strict=True))

    return [pairs(one.values) if one.is_valid else None for one in array]


def _of_list(array: pa.Array) -> list[Plain]:
    return [of_array(one.values) if one.is_valid else None for one in array]


def _of_ticks(array: pa.Array) -> list[Plain]:
    ticks = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
    lasts = _nanoseconds(array.type)
    return [tick if tick is None else tick * lasts for tick in ticks.to_pylist()]


_ARRAYS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], Sequence[Plain]]]] = (
    (_is_extension, _of_extension),
    (types.is_dictionary, lambda array: of_array(array.dictionary_decode())),
    (types.is_struct, _of_struct),
    (types.is_map, _of_map),
    (types.is_nested, _of_list),
    (_has_ticks, _of_ticks),
    (types.is_date, lambda array: array.cast(pa.date32()).cast(pa.int32()).to_pylist()),
    (
        types.is_floating,
        lambda array: [one if one is None else repr(float(one)) for one in array.to_pylist()],
    ),
)


# -- from other libraries --------------------------------------------------------------------------


def of_object(value: object, kind: pa.DataType) -> Plain:
    """Return a value of a Python library as `of_array` returns one of type `kind`."""
    if isinstance(value, dict) and types.is_struct(kind):
        return {field.name: of_object(value[field.name], field.type) for field in kind}
    if isinstance(value, dict):
        return [
            (of_object(key, kind.key_type), of_object(item, kind.item_type))
            for key, item in value.items()
        ]
    if isinstance(value, list):
        return [of_object(item, kind.value_type) for item in value]
    if isinstance(value, Decimal):
        return value.quantize(Decimal((0, (1,), -kind.scale)), context=EXACT)
    return _OBJECTS.get(type(value), lambda same: same)(value)


def _since_epoch(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is None else moment.astimezone(dt.UTC)
    return (aware.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1) * 1_000


_OBJECTS: Mapping[type, Callable[[Any], Plain]] = {
    dt.datetime: _since_epoch,
    dt.date: lambda date: date.toordinal() - EPOCH.toordinal(),
    dt.time: lambda time: _since_epoch(dt.datetime.combine(EPOCH, time)),
    UUID: str,
    float: repr,
}


# -- to JSON ---------------------------------------------------------------------------------------


def as_json(value: Plain, kind: pa.DataType) -> object:
    """Return what a strict parser must read for a value, as docs/json.md has it."""
    if value is None:
        return None
    write = next((write for is_kind, write in _JSON if is_kind(kind)), lambda same, _: same)
    return write(value, kind)


def _extension_as_json(value: Plain, kind: pa.DataType) -> object:
    is_text = isinstance(kind, pa.UuidType | pa.JsonType)
    return value if is_text else as_json(value, kind.storage_type)


def _map_as_json(value: Plain, kind: pa.DataType) -> object:
    pairs = [(as_json(key, kind.key_type), as_json(item, kind.item_type)) for key, item in value]
    if isinstance(pairs[0][0], str) if pairs else _is_text(kind.key_type):
        return dict(pairs)
    return [{"key": key, "value": item} for key, item in pairs]


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    several = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return types.is_fixed_size_binary(kind) or any(one(kind) for one in several)


_JSON: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Plain, Any], object]]] = (
    (_is_extension, _extension_as_json),
    (types.is_dictionary, lambda value, kind: as_json(value, kind.value_type)),
    (
        types.is_struct,
        lambda value, kind: {one.name: as_json(value[one.name], one.type) for one in kind},
    ),
    (types.is_map, _map_as_json),
    (types.is_nested, lambda value, kind: [as_json(one, kind.value_type) for one in value]),
    (
        types.is_timestamp,
        lambda value, kind: instant(kind.unit, "Z" if kind.tz else "", value // _nanoseconds(kind)),
    ),
    (types.is_time, lambda value, kind: clock(kind.unit, value // _nanoseconds(kind))),
    (types.is_duration, lambda value, kind: duration(kind.unit, value // _nanoseconds(kind))),
    (types.is_date, lambda value, _: day(value)),
    (types.is_floating, lambda value, kind: FloatWriter(FLOATS[kind](value))),
    (types.is_decimal, lambda value, _: number(value)),
    (_is_bytes, lambda value, _: encoded(value)),
)


def rows_of(columns: Mapping[str, Sequence[Plain]], count: int) -> list[dict[str, Plain]]:
    """Return columns as rows."""
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]
