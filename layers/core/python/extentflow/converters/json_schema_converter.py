"""The converter `json-schema`: records as JSON, with their JSON Schema in a registry.

Values are those of the converter `json`, except half floats: `connect_form`. docs/registry.md has
the table of types.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

from extentflow.arrays.buffers import MAX_TEXT_BYTES
from extentflow.arrays.encodings import is_binary, is_text, plain_type
from extentflow.arrays.interleave import Blobs, Piece
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.arrays.nested import LISTS, require_values
from extentflow.config.registry import JsonSchemaOptions, problems
from extentflow.config.specs import ConverterSpec
from extentflow.converters import Converter, Destination
from extentflow.converters.connect_schema import (
    DECIMAL,
    INTEGERS,
    connect_form,
    decimal_parameters,
    has_nulls,
)
from extentflow.converters.json_encoding import Dialect, json_rows
from extentflow.converters.schema_registry import JSON as KIND
from extentflow.converters.subjects import open_subject, payload_converter

Json: TypeAlias = Any

DIALECT = "http://json-schema.org/draft-07/schema#"


def json_schema_converter(
    schema: pa.Schema,
    columns: Sequence[str] | None,
    options: JsonSchemaOptions,
    destination: Destination,
    *,
    limit_bytes: int = MAX_TEXT_BYTES,
) -> Converter:
    """Return the converter of `columns` (None: all) to one JSON object per row, never null.

    Registers the schema, or looks it up. UnsupportedType names a column without a form in JSON.
    """
    chosen = ConvertedColumns.select(schema, columns)
    write_rows = json_rows(chosen, Dialect(limit_bytes, connect_form))
    text = json.dumps(
        object_schema(chosen.fields, options.record_name, is_open=options.open_objects)
    )
    settled = open_subject(options, destination, KIND).settle(text)

    def write(batch: pa.RecordBatch) -> list[Piece]:
        require_values(chosen.fields, chosen.of(batch))
        return [Blobs(write_rows(batch))]

    return payload_converter(settled, write, limit_bytes)


def object_schema(fields: Sequence[pa.Field], title: str, *, is_open: bool) -> Json:
    """Return the JSON Schema of an object of the columns; `title` "" is none."""
    named = {"title": title} if title else {}
    return {"$schema": DIALECT, **named, **_object(fields, is_open=is_open)}


def _object(fields: Sequence[pa.Field], *, is_open: bool) -> Json:
    # Without nullable members, so that they may come and go.
    required = [one.name for one in fields if not has_nulls(one)]
    return {
        "type": "object",
        "properties": {one.name: _nullable(one, is_open=is_open) for one in fields},
        **({"required": required} if required else {}),
        **({} if is_open else {"additionalProperties": False}),
    }


def _nullable(one: pa.Field, *, is_open: bool) -> Json:
    schema = _schema(one.type, is_open=is_open)
    if not has_nulls(one) or schema == _NULL:
        return schema
    return {"oneOf": [_NULL, schema]}


def _schema(data_type: pa.DataType, *, is_open: bool) -> Json:
    for recognises, build in _SCALARS:
        if recognises(data_type):
            return build(data_type)
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return _schema(data_type.value_type, is_open=is_open)
    nullable = partial(_nullable, is_open=is_open)
    if isinstance(data_type, LISTS):
        return {"type": "array", "items": nullable(data_type.value_field)}
    if types.is_struct(data_type):
        return _object(tuple(data_type), is_open=is_open)
    # All other types were refused where the writer was made.
    value = data_type.item_field
    if is_text(plain_type(data_type.key_type)):
        named = {"type": "object", "connect.type": "map"}
        return {**named, "additionalProperties": nullable(value)}
    entry = (data_type.key_field.with_name("key"), value.with_name("value"))
    return {"type": "array", "connect.type": "map", "items": _object(entry, is_open=is_open)}


_NULL: Json = {"type": "null"}


def _integer(data_type: pa.DataType) -> Json:
    bits = data_type.bit_width
    unsigned = types.is_unsigned_integer(data_type)
    bounds = {"minimum": 0, "maximum": (1 << bits) - 1} if unsigned else {}
    return {"type": "integer", "connect.type": INTEGERS[str(data_type)], **bounds}


def _decimal(data_type: pa.DataType) -> Json:
    named = {"title": DECIMAL, "connect.version": 1, "connect.type": "bytes"}
    return {"type": "number", **named, "connect.parameters": decimal_parameters(data_type)}


def _string(**more: Json) -> Callable[[pa.DataType], Json]:
    return lambda _: {"type": "string", **more}


def _fixed(data_type: pa.DataType) -> Json:
    characters = (data_type.byte_width + 2) // 3 * 4
    return {**_BYTES, "minLength": characters, "maxLength": characters}


_BYTES = {"type": "string", "contentEncoding": "base64", "connect.type": "bytes"}
_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Json]], ...] = (
    (types.is_null, lambda _: _NULL),
    (
        lambda kind: types.is_boolean(kind) or isinstance(kind, pa.Bool8Type),
        lambda _: {"type": "boolean"},
    ),
    (types.is_uint64, _decimal),
    (types.is_integer, _integer),
    (types.is_float64, lambda _: {"type": "number", "connect.type": "float64"}),
    (types.is_floating, lambda _: {"type": "number", "connect.type": "float32"}),
    (types.is_decimal, _decimal),
    (types.is_date, _string(format="date")),
    (types.is_time, _string(format="time-local")),
    (
        types.is_timestamp,
        lambda kind: _string(format="date-time" if kind.tz else "date-time-local")(kind),
    ),
    (types.is_duration, _string()),
    (lambda kind: isinstance(kind, pa.UuidType), _string(format="uuid")),
    (lambda kind: is_text(kind) or isinstance(kind, pa.JsonType), _string()),
    (types.is_fixed_size_binary, _fixed),
    (is_binary, lambda _: _BYTES),
)


JSON_SCHEMA = ConverterSpec(
    open=json_schema_converter, options=JsonSchemaOptions, problems=problems
)
