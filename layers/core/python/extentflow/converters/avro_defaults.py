"""Write the defaults of fields that have no column in Avro's binary encoding.

Tests: unit/converters/test_avro_converter.py
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import cast

from extentflow.arrays.interleave import varint
from extentflow.converters.avro_schema import Field, Json, Schema
from extentflow.errors import IncompatibleSchema


def default_bytes(one: Field, before: str) -> bytes:
    """Return a field's default as it is written in every record."""
    name = f"{before}{one.name}"
    if not one.has_default:
        raise IncompatibleSchema(
            f"its field '{name}' has no column and no default; add the column, or a default"
        )
    try:
        return _encoded(one.type, one.default)
    except (ValueError, KeyError, RecursionError, struct.error, OverflowError) as exc:
        raise IncompatibleSchema(
            f"the default {json.dumps(one.default)} of its field '{name}' is no {one.type};"
            " correct it"
        ) from exc


def _encoded(schema: Schema, value: Json) -> bytes:
    """Return a value as JSON defaults have it, in Avro's encoding; ValueError where it has none."""
    if schema.kind == "union":
        # The default is that of the first branch, or since Avro 1.12 of any.
        for index, branch in enumerate(schema.branches):
            with suppress(ValueError, struct.error, OverflowError):
                return _number(index) + _encoded(branch, value)
        raise ValueError("no branch has this value")
    of_type, write = _DEFAULTS[schema.kind]
    if type(value) not in of_type:
        raise ValueError("JSON of another type")
    return write(schema, value)


def _default_record(schema: Schema, value: Mapping[str, Json]) -> bytes:
    made = []
    for one in schema.fields:
        if one.name not in value and not one.has_default:
            raise ValueError(f"its member '{one.name}' is missing")
        made.append(_encoded(one.type, value.get(one.name, one.default)))
    return b"".join(made)


def _default_block(items: Sequence[bytes]) -> bytes:
    """Return an array or a map: a block of all items, and the empty one that ends it."""
    return (_number(len(items)) + b"".join(items) if items else b"") + b"\0"


def _default_items(schema: Schema, value: Sequence[Json]) -> bytes:
    inner = cast("Schema", schema.inner)
    return _default_block([_encoded(inner, one) for one in value])


def _default_entries(schema: Schema, value: Mapping[str, Json]) -> bytes:
    inner = cast("Schema", schema.inner)
    entries = (_with_length(name.encode()) + _encoded(inner, one) for name, one in value.items())
    return _default_block([*entries])


def _default_fixed(schema: Schema, value: str) -> bytes:
    data = value.encode("latin-1")
    if len(data) != schema.size:
        raise ValueError(f"{len(data)} bytes")
    return data


def _default_integer(bits: int, value: int) -> bytes:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"more than {bits} bits")
    return _number(value)


# By kind: the types of JSON that a default has, and how it is written.
_DEFAULTS: Mapping[str, tuple[tuple[type, ...], Callable[[Schema, Json], bytes]]] = {
    "null": ((type(None),), lambda _, __: b""),
    "boolean": ((bool,), lambda _, value: bytes([value])),
    "int": ((int,), lambda _, value: _default_integer(32, value)),
    "long": ((int,), lambda _, value: _default_integer(64, value)),
    "float": ((int, float), lambda _, value: struct.pack("<f", value)),
    "double": ((int, float), lambda _, value: struct.pack("<d", value)),
    "string": ((str,), lambda _, value: _with_length(value.encode())),
    "bytes": ((str,), lambda _, value: _with_length(value.encode("latin-1"))),
    "fixed": ((str,), _default_fixed),
    "enum": ((str,), lambda schema, value: _number(schema.symbols.index(value))),
    "array": ((list,), _default_items),
    "map": ((dict,), _default_entries),
    "record": ((dict,), _default_record),
}


def _number(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def _with_length(data: bytes) -> bytes:
    return _number(len(data)) + data
