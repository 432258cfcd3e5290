"""Kafka Connect's schemas of Arrow's types, in the JSON form of its JsonConverter.

docs/json.md has the table of types. The order of the members is that of JsonConverter.

Tests: unit/converters/test_json_schema_converter.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

from extentflow.arrays.encodings import is_binary, is_text, no_exact_form
from extentflow.arrays.nested import LISTS
from extentflow.arrays.numbers import decimal_shape
from extentflow.arrays.scalars import TextForm, text_form

Json: TypeAlias = Any

_PACKAGE = "org.apache.kafka.connect.data."
DECIMAL = f"{_PACKAGE}Decimal"
# Connect has no unsigned types: theirs is the next wider one.
INTEGERS: Mapping[str, str] = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
}


def connect_schema(fields: Sequence[pa.Field]) -> Json:
    """Return the schema of a struct of the columns, which no row lacks.

    UnsupportedType names a column without a form, its type and what to do.
    """
    return {**_struct(fields, ""), "optional": False}


def decimal_parameters(data_type: pa.DataType) -> dict[str, str]:
    """Return the parameters of Connect's Decimal for a decimal or uint64."""
    precision, scale = decimal_shape(data_type)
    return {"scale": str(scale), "connect.decimal.precision": str(precision)}


def connect_form(data_type: pa.DataType) -> TextForm | None:
    """Return `text_form`, but half floats as the floats of 32 bits that are equal to them.

    Connect reads a float of 32 bits, and the shortest digits of 16 bits may mean another one.
    """
    form = text_form(data_type)
    if form is None or not types.is_float16(data_type):
        return form
    return replace(form, render=lambda array: form.render(array.cast(pa.float32())))


def has_nulls(one: pa.Field) -> bool:
    """Return whether JSON may have a null for values of a field.

    JSON has no NaN and no infinities (RFC 8259, section 6), which are null.
    """
    return bool(one.nullable or types.is_floating(value_type(one.type)))


def value_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary or of runs, else the type itself."""
    while types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        data_type = data_type.value_type
    return data_type


def is_connect_string(data_type: pa.DataType) -> bool:
    """Return whether Connect's type is `string`: keys of these make a map an object."""
    return _is_string(value_type(data_type))


def _is_string(data_type: pa.DataType) -> bool:
    # Connect has no type of nulls only.
    others = types.is_null(data_type) or isinstance(data_type, pa.UuidType | pa.JsonType)
    return is_text(data_type) or bool(others)


def _schema(one: pa.Field, path: str) -> Json:
    found = _of(value_type(one.type), path)
    structure = {name: found.pop(name) for name in _STRUCTURE if name in found}
    optional = has_nulls(one) or types.is_null(one.type)
    return {**structure, "optional": optional, **found}


_STRUCTURE = ("type", "items", "keys", "values", "fields")


def _of(data_type: pa.DataType, path: str) -> dict[str, Json]:
    for recognises, build in _SCALARS:
        if recognises(data_type):
            return build(data_type)
    if types.is_struct(data_type):
        return _struct(tuple(data_type), f"{path}.")
    if isinstance(data_type, LISTS):
        return {"type": "array", "items": _schema(data_type.value_field, f"{path}[]")}
    if types.is_map(data_type):
        keys = {**_schema(data_type.key_field, f"{path}.key"), "optional": False}
        return {
            "type": "map",
            "keys": keys,
            "values": _schema(data_type.item_field, f"{path}.value"),
        }
    raise no_exact_form(path, data_type, "form in Kafka Connect")


def _struct(fields: Sequence[pa.Field], before: str) -> dict[str, Json]:
    named = [{**_schema(one, before + one.name), "field": one.name} for one in fields]
    return {"type": "struct", "fields": named}


_Build: TypeAlias = Callable[[pa.DataType], dict[str, Json]]


def _plain(name: str) -> _Build:
    return lambda _: {"type": name}


def _logical(kind: str, name: str) -> _Build:
    return lambda _: {"type": kind, "name": f"{_PACKAGE}{name}", "version": 1}


def _decimal(data_type: pa.DataType) -> dict[str, Json]:
    named = {"type": "bytes", "name": DECIMAL, "version": 1}
    return {**named, "parameters": decimal_parameters(data_type)}


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (
        lambda kind: types.is_boolean(kind) or isinstance(kind, pa.Bool8Type),
        _plain("boolean"),
    ),
    (lambda kind: types.is_uint64(kind) or types.is_decimal(kind), _decimal),
    (types.is_integer, lambda kind: {"type": INTEGERS[str(kind)]}),
    (types.is_float64, _plain("double")),
    (types.is_floating, _plain("float")),
    (types.is_date, _logical("int32", "Date")),
    (types.is_time, _logical("int32", "Time")),
    (types.is_timestamp, _logical("int64", "Timestamp")),
    (types.is_duration, _plain("int64")),
    (_is_string, _plain("string")),
    (is_binary, _plain("bytes")),
)
