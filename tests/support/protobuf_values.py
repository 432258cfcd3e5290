"""What a reader finds in messages of `protobuf`, computed from Python values alone.

Values are as PyArrow takes them, instants also as the numbers that their columns store.
"""

import datetime as dt
import math
import uuid
from decimal import Context
from typing import Any

import pyarrow as pa
from tests.unit.converters.arrow_cases import UNITS

CONTEXT = Context(prec=200)
DAY = 86_400
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
Json = Any


def is_repeated(kind: pa.DataType) -> bool:
    return isinstance(kind, LISTS) or bool(pa.types.is_map(kind))


def member(kind: pa.DataType, value: Json, *, nullable: bool) -> Json:
    if not is_repeated(kind):
        return None if value is None else plain(kind, value)
    if not nullable:
        return repeated(kind, value)
    name = "entries" if pa.types.is_map(kind) else "items"
    return None if value is None else {name: repeated(kind, value)}


def repeated(kind: pa.DataType, value: Json) -> Json:
    if not pa.types.is_map(kind):
        return [element(kind.value_field, item) for item in value]
    pairs = value.items() if isinstance(value, dict) else value
    if pa.types.is_string(kind.key_type):
        return {key: element(kind.item_field, item) for key, item in pairs}
    return [
        {"key": key, "value": member(kind.item_type, item, nullable=True)} for key, item in pairs
    ]


def element(field: pa.Field, value: Json) -> Json:
    if field.nullable or is_repeated(field.type):
        return {"value": member(field.type, value, nullable=field.nullable)}
    return plain(field.type, value)


def plain(kind: pa.DataType, value: Json) -> Json:  # noqa: C901, PLR0911 - a case per kind of type
    if isinstance(value, dt.date | dt.time):
        value = pa.scalar(value, kind).value
    if pa.types.is_struct(kind):
        return {one.name: member(one.type, value[one.name], nullable=True) for one in kind}
    if pa.types.is_floating(kind):
        made = float(value)
        return "NaN" if math.isnan(made) else made
    if pa.types.is_decimal(kind):
        scale = max(0, kind.scale)
        precision = max(kind.precision - min(0, kind.scale), scale)
        digits = int(value.scaleb(scale, CONTEXT))
        return {"value": digits, "precision": precision, "scale": scale}
    if pa.types.is_date(kind):
        return date(value // (DAY * 1000) if pa.types.is_date64(kind) else value)
    if isinstance(kind, pa.UuidType):
        return str(uuid.UUID(bytes=value))
    if pa.types.is_duration(kind):
        tick = 10 ** UNITS[kind.unit]
        seconds, rest = divmod(abs(value), tick)
        sign = -1 if value < 0 else 1
        return {"seconds": sign * seconds, "nanos": sign * rest * 10**9 // tick}
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        seconds, nanos = split(kind, value)
        if pa.types.is_time(kind):
            return clock(seconds, nanos)
        if kind.tz:
            return {"seconds": seconds, "nanos": nanos}
        zone = {"utc_offset": None, "time_zone": None}
        return date(seconds // DAY) | clock(seconds % DAY, nanos) | zone
    return value


def split(kind: pa.DataType, ticks: int) -> tuple[int, int]:
    tick = 10 ** UNITS[kind.unit]
    seconds, rest = divmod(ticks, tick)
    return seconds, rest * 10**9 // tick


def date(days: int) -> dict[str, int]:
    made = dt.date.fromordinal(days + dt.date(1970, 1, 1).toordinal())
    return {"year": made.year, "month": made.month, "day": made.day}


def clock(seconds: int, nanos: int) -> dict[str, int]:
    return {
        "hours": seconds // 3600,
        "minutes": seconds // 60 % 60,
        "seconds": seconds % 60,
        "nanos": nanos,
    }


def seen(value: Json) -> Json:
    """Return what was read, with decimals as numbers and NaN as a text."""
    if isinstance(value, dict) and value.keys() == {"value", "precision", "scale"}:
        return value | {"value": int.from_bytes(value["value"], "big", signed=True)}
    if isinstance(value, dict):
        return {key: seen(item) for key, item in value.items()}
    if isinstance(value, list):
        return [seen(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
