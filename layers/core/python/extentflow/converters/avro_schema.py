"""Avro schemas: those of Arrow's types, and those that a registry holds.

docs/registry.md has the table of types. Records, fixed types and enums of nested columns are named
by their path, with _ behind it where another type has that name. So a name is unique, and the same
in every run.

Tests: unit/converters/test_avro_converter.py
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

from extentflow.arrays.encodings import is_binary, is_text, no_exact_form, plain_type
from extentflow.arrays.nested import LISTS
from extentflow.arrays.numbers import decimal_shape, require_digits
from extentflow.converters.names import Names
from extentflow.errors import IncompatibleSchema

# What JSON can say: a name, a union, or an object with a type.
Json: TypeAlias = Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
UUID_BYTES = 16

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# -- from Arrow -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Naming:
    """How columns are named, and the names of types that a schema has so far."""

    names: Names
    taken: set[str]

    def of_type(self, path: str) -> str:
        """Return the name of the type at a path, which no other one has."""
        name = path
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def record_schema(fields: Sequence[pa.Field], name: str, names: Names) -> Json:
    """Return the schema of a record of the columns, called `name`; UnsupportedType by column."""
    namespace, _, short = name.rpartition(".")
    record = {"type": "record", "name": short}
    if namespace:
        record["namespace"] = namespace
    return {**record, "fields": _fields(fields, "", short, _Naming(names, {short}))}


def _fields(fields: Sequence[pa.Field], path: str, name: str, naming: _Naming) -> list[Json]:
    made = []
    written_as = naming.names.fields([f.name for f in fields], path)
    for one, written in zip(fields, written_as, strict=True):
        inner = f"{path}.{one.name}" if path else one.name
        schema = _nullable(one, inner, f"{name}_{written}", naming)
        # A default lets consumers' schemas lose the field again.
        default = {"default": None} if isinstance(schema, list) else {}
        made.append({"name": written, "type": schema, **default})
    return made


def _nullable(one: pa.Field, path: str, name: str, naming: _Naming) -> Json:
    schema = _schema(one.type, path, name, naming)
    return ["null", schema] if one.nullable and schema != "null" else schema


def _schema(data_type: pa.DataType, path: str, name: str, naming: _Naming) -> Json:
    """Return the schema of a type; `name` is that of a record or a fixed type, if it is free."""
    require_digits(data_type, path)
    for recognises, build in _SCALARS:
        if recognises(data_type):
            found = build(data_type)
            if isinstance(found, dict) and "size" in found:
                return {**found, "name": naming.of_type(name)}
            return found
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return _schema(data_type.value_type, path, name, naming)
    if types.is_nested(data_type) and not types.is_union(data_type):
        return _nested(data_type, path, name, naming)
    raise no_exact_form(path, data_type, "form in Avro")


def _nested(data_type: pa.DataType, path: str, name: str, naming: _Naming) -> Json:
    if isinstance(data_type, LISTS):
        items = _nullable(data_type.value_field, f"{path}[]", f"{name}_item", naming)
        return {"type": "array", "items": items}
    if types.is_struct(data_type):
        fields = [data_type.field(index) for index in range(data_type.num_fields)]
        own = naming.of_type(name)
        return {"type": "record", "name": own, "fields": _fields(fields, path, own, naming)}
    value = _nullable(data_type.item_field, f"{path}.value", f"{name}_value", naming)
    if is_text(plain_type(data_type.key_type)):
        return {"type": "map", "values": value}
    key = _schema(data_type.key_type, f"{path}.key", f"{name}_key", naming)
    fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
    entry = {"type": "record", "name": naming.of_type(f"{name}_entry"), "fields": fields}
    return {"type": "array", "items": entry}


def _logical(kind: str, logical: str) -> Callable[[pa.DataType], Json]:
    return lambda _: {"type": kind, "logicalType": logical}


def _decimal(data_type: pa.DataType) -> Json:
    precision, scale = decimal_shape(data_type)
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def _timestamp(data_type: pa.DataType) -> Json:
    local = "local-" if data_type.tz is None else ""
    return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[data_type.unit]}"}


def _is_int(data_type: pa.DataType) -> bool:
    return bool(types.is_integer(data_type) and data_type.bit_width < 64) and not (  # noqa: PLR2004
        types.is_uint32(data_type)
    )


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Json]], ...] = (
    (types.is_null, lambda _: "null"),
    (types.is_boolean, lambda _: "boolean"),
    (_is_int, lambda _: "int"),
    (types.is_uint64, _decimal),
    (types.is_integer, lambda _: "long"),
    (types.is_float64, lambda _: "double"),
    (types.is_floating, lambda _: "float"),
    (types.is_decimal, _decimal),
    (types.is_date, _logical("int", "date")),
    (types.is_time32, _logical("int", "time-millis")),
    (types.is_time64, _logical("long", "time-micros")),
    (types.is_timestamp, _timestamp),
    # Avro's own duration counts months and days.
    (types.is_duration, lambda _: "long"),
    (is_text, lambda _: "string"),
    (types.is_fixed_size_binary, lambda kind: {"type": "fixed", "size": kind.byte_width}),
    (is_binary, lambda _: "bytes"),
    (lambda kind: isinstance(kind, pa.UuidType), _logical("string", "uuid")),
    (lambda kind: isinstance(kind, pa.Bool8Type), lambda _: "boolean"),
    (lambda kind: isinstance(kind, pa.JsonType), lambda _: "string"),
)


# -- from a registry ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record; `default` only where `has_default`."""

    name: str
    type: "Schema"
    has_default: bool = False
    default: Json = None


@dataclass(slots=True)
class Schema:
    """One type of a schema. A named type that contains itself is the same object inside."""

    kind: str
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    branches: tuple["Schema", ...] = ()
    inner: "Schema | None" = None

    def __str__(self) -> str:
        """Return the type as messages name it."""
        if self.kind == "union":
            return " or ".join(str(branch) for branch in self.branches)
        shape = f"({self.precision}, {self.scale})" if self.logical == "decimal" else ""
        logical = f" {self.logical}{shape}" if self.logical else ""
        return f"{self.kind}{logical}" + (f" {self.name}" if self.name else "")


def parse_schema(text: str) -> Schema:
    """Return the schema that `text` is; IncompatibleSchema where it is none."""
    try:
        return _Parser().parse(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise IncompatibleSchema(
            f"its schema is no Avro schema that can be read ({type(exc).__name__}: {exc}); correct"
            " it in the registry"
        ) from exc


# What holds the type of the items.
_INNER: Mapping[str, str] = {"array": "items", "map": "values"}


@dataclass(slots=True)
class _Parser:
    named: dict[str, Schema] = field(default_factory=dict)

    def parse(self, schema: Json, namespace: str) -> Schema:
        if isinstance(schema, list):
            return Schema("union", branches=tuple(self.parse(one, namespace) for one in schema))
        if isinstance(schema, dict):
            return self._object(schema, namespace)
        if schema in PRIMITIVES:
            return Schema(schema)
        full = f"{namespace}.{schema}"
        return self.named[full if full in self.named else schema]

    def _object(self, schema: Mapping[str, Json], namespace: str) -> Schema:
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self.named:
            return self.parse(kind, namespace)
        if kind in PRIMITIVES:
            return _with_logical(Schema(kind), schema)
        if kind in _INNER:
            return Schema(kind, inner=self.parse(schema[_INNER[kind]], namespace))
        return self._named(schema, namespace)

    def _named(self, schema: Mapping[str, Json], namespace: str) -> Schema:
        name = _text(schema["name"])
        if "." in name:
            namespace = name.rpartition(".")[0]
        else:
            namespace = _text(schema.get("namespace", namespace))
            name = f"{namespace}.{name}" if namespace else name
        kind = "record" if schema["type"] == "error" else schema["type"]
        made = self.named[name] = Schema(kind, name)
        made.symbols = tuple(map(_text, schema["symbols"])) if kind == "enum" else ()
        made.size = int(schema["size"]) if kind == "fixed" else 0
        if kind == "record":
            made.fields = tuple(
                Field(
                    _text(one["name"]),
                    self.parse(one["type"], namespace),
                    "default" in one,
                    one.get("default"),
                )
                for one in schema["fields"]
            )
        return _with_logical(made, schema)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _with_logical(made: Schema, schema: Mapping[str, Json]) -> Schema:
    # An unknown one counts for nothing, as the specification says.
    if schema.get("logicalType") in _LOGICAL.get(made.kind, frozenset()):
        made.logical = schema["logicalType"]
        if made.logical == "decimal":
            made.precision, made.scale = int(schema["precision"]), int(schema.get("scale", 0))
    return made


_LOGICAL: Mapping[str, frozenset[str]] = {
    "int": frozenset({"date", "time-millis"}),
    "long": frozenset({"time-micros"})
    | {
        f"{local}timestamp-{unit}"
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
    "bytes": frozenset({"decimal"}),
    "fixed": frozenset({"decimal", "uuid", "duration"}),
    "string": frozenset({"uuid"}),
}
