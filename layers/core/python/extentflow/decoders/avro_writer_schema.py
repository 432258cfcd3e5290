"""Parse the schema of an Avro writer to the nodes that read its values.

Tests: unit/formats/avro/test_avro_format.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from extentflow.decoders.avro_nodes import (
    DURATION,
    Bytes,
    Enum,
    FixedValues,
    Items,
    Node,
    Null,
    Number,
    Record,
    Union,
)
from extentflow.errors import CorruptObject, UnsupportedType

DEEPEST = 64
MOST_TYPES = 10_000
# Arrow's decimal256.
_MOST_DIGITS = 76
_DECIMAL128_DIGITS = 38


class _InvalidSchemaError(Exception):
    pass


class _UnsupportedSchemaError(Exception):
    pass


_PRIMITIVES: Mapping[str, Node] = {
    "null": Null(),
    "boolean": FixedValues(pa.bool_(), 1),
    "int": Number(pa.int32(), 32),
    "long": Number(pa.int64(), 64),
    "float": FixedValues(pa.float32(), 4),
    "double": FixedValues(pa.float64(), 8),
    "bytes": Bytes(pa.binary()),
    "string": Bytes(pa.string()),
}
_LOGICAL: Mapping[tuple[str, str], Node] = {
    ("int", "date"): Number(pa.date32(), 32),
    ("int", "time-millis"): Number(pa.time32("ms"), 32),
    ("long", "time-micros"): Number(pa.time64("us"), 64),
    **{
        ("long", f"{prefix}timestamp-{name}"): Number(pa.timestamp(unit, zone), 64)
        for prefix, zone in (("", "UTC"), ("local-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_NAMED = frozenset({"record", "error", "enum", "fixed"})


class _Schema:
    """Builds the node of a writer's schema; names refer to types that were defined before."""

    def __init__(self) -> None:
        self._types: dict[str, Node | None] = {}

    def node(self, schema: object, path: str, namespace: str = "", depth: int = 0) -> Node:
        """Return the node; `path` is the column, for messages."""
        if depth > DEEPEST:
            raise _UnsupportedSchemaError(f"column '{path}' is nested deeper than {DEEPEST} types")
        if isinstance(schema, str):
            return self._named(schema, path, namespace)
        if isinstance(schema, list):
            node = self._union(schema, path, namespace, depth)
        elif isinstance(schema, dict):
            node = self._complex(schema, path, namespace, depth)
        else:
            raise _InvalidSchemaError(f"column '{path}' has no type but {schema!r}")
        if node.weight > MOST_TYPES:
            raise _UnsupportedSchemaError(f"column '{path}' has more than {MOST_TYPES} types")
        return node

    def _named(self, name: str, path: str, namespace: str) -> Node:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._types:
            raise _InvalidSchemaError(f"column '{path}' has the unknown type {name!r}")
        node = self._types[full]
        if node is None:
            raise _UnsupportedSchemaError(
                f"column '{path}' has the type {name!r}, which contains itself; Arrow has no"
                " recursive types"
            )
        return node

    def _complex(self, schema: Mapping[str, Any], path: str, namespace: str, depth: int) -> Node:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.node(kind, path, namespace, depth + 1)
        if kind in ("array", "map"):
            return self._items(schema, kind, path, namespace, depth)
        if kind in _NAMED:
            name = _full_name(schema, path, namespace)
            if name in self._types:
                raise _InvalidSchemaError(f"the type {name!r} is defined twice")
            self._types[name] = None
            inner = name.rpartition(".")[0]
            if kind == "enum":
                node: Node = Enum(_symbols(schema, path))
            elif kind == "fixed":
                node = _fixed(schema, path)
            else:
                node = self._record(schema, path, inner, depth)
            self._types[name] = node
            return node
        if kind not in _PRIMITIVES:
            return self._named(kind, path, namespace)
        logical = str(schema.get("logicalType"))
        decimal = _decimal(schema, path) if kind == "bytes" and logical == "decimal" else None
        if decimal is not None:
            return Bytes(decimal)
        # Readers ignore a logical type that they do not know (Avro 1.12, "Logical Types").
        return _LOGICAL.get((kind, logical), _PRIMITIVES[kind])

    def _record(self, schema: Mapping[str, Any], path: str, namespace: str, depth: int) -> Record:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise _InvalidSchemaError(f"the record at column '{path}' has no fields")
        columns: dict[str, Node] = {}
        for each in fields:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name in columns or "type" not in each:
                raise _InvalidSchemaError(f"the field {name!r} of '{path}' is not valid")
            inside = f"{path}.{name}" if path else name
            columns[name] = self.node(each["type"], inside, namespace, depth + 1)
        return Record.of([_field(*column) for column in columns.items()], [*columns.values()])

    def _union(self, schema: Sequence[object], path: str, namespace: str, depth: int) -> Node:
        branches = [self.node(branch, path, namespace, depth + 1) for branch in schema]
        names = [_branch_name(branch, namespace) for branch in schema]
        if not branches or len(set(names)) < len(names):
            raise _InvalidSchemaError(
                f"the union at column '{path}' is empty or has equal branches"
            )
        fields = [
            pa.field(name, branch.arrow)
            for name, branch in zip(names, branches, strict=True)
            if name != "null"
        ]
        weight = 1 + sum(branch.weight for branch in branches)
        if len(fields) > 1:
            return Union(tuple(branches), pa.struct(fields), as_struct=True, weight=weight)
        arrow = fields[0].type if fields else pa.null()
        return Union(tuple(branches), arrow, as_struct=False, weight=weight)

    def _items(
        self, schema: Mapping[str, Any], kind: str, path: str, namespace: str, depth: int
    ) -> Items:
        inside = schema.get("items" if kind == "array" else "values")
        item = self.node(inside, f"{path}[]", namespace, depth + 1)
        if kind == "map":
            fields = [pa.field("key", pa.string(), nullable=False), _field("value", item)]
            entry = Record.of(fields, [_PRIMITIVES["string"], item])
            return Items(pa.map_(fields[0], fields[1]), entry, entry.weight)
        if item.least == 0:
            raise _UnsupportedSchemaError(
                f"column '{path}' is an array of items that take no bytes"
            )
        return Items(pa.list_(_field("item", item)), item, 1 + item.weight)


def _field(name: str, node: Node) -> pa.Field:
    nullable = isinstance(node, Null) or (
        isinstance(node, Union) and any(isinstance(branch, Null) for branch in node.branches)
    )
    return pa.field(name, node.arrow, nullable=nullable)


def _full_name(schema: Mapping[str, Any], path: str, namespace: str) -> str:
    name, own = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str) or not name:
        raise _InvalidSchemaError(f"a type at column '{path}' has no name")
    if "." in name:
        return name
    space = own if isinstance(own, str) else namespace
    return f"{space}.{name}" if space else name


def _branch_name(branch: object, namespace: str) -> str:
    """Return the name of a branch, as Avro's JSON encoding writes it."""
    if isinstance(branch, dict):
        kind = str(branch.get("type"))
        return _full_name(branch, "", namespace) if kind in _NAMED else kind
    name = str(branch)
    return name if name in _PRIMITIVES or "." in name or not namespace else f"{namespace}.{name}"


def _symbols(schema: Mapping[str, Any], path: str) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise _InvalidSchemaError(f"the enum at column '{path}' has no symbols")
    if len(set(symbols)) < len(symbols):
        raise _InvalidSchemaError(f"the enum at column '{path}' has a symbol twice")
    return tuple(symbols)


def _fixed(schema: Mapping[str, Any], path: str) -> Node:
    size, logical = schema.get("size"), schema.get("logicalType")
    if not isinstance(size, int) or not 0 <= size < 1 << 31:
        raise _InvalidSchemaError(f"the fixed at column '{path}' has the size {size!r}")
    if logical == "decimal" and (decimal := _decimal(schema, path)) is not None:
        return FixedValues(decimal, size)
    if (logical, size) == ("uuid", 16):
        return FixedValues(pa.uuid(), size)
    if (logical, size) == ("duration", 12):
        return FixedValues(DURATION, size)
    return FixedValues(pa.binary(size), size)


def _decimal(schema: Mapping[str, Any], path: str) -> pa.DataType | None:
    """Return Arrow's type of a decimal; None for one that the specification calls invalid."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 <= scale <= precision or precision < 1:
        return None
    if precision > _MOST_DIGITS:
        raise _UnsupportedSchemaError(
            f"column '{path}' is a decimal of {precision} digits, Arrow has {_MOST_DIGITS}"
        )
    make = pa.decimal128 if precision <= _DECIMAL128_DIGITS else pa.decimal256
    return make(precision, scale)


def parse_schema(text: bytes, uri: str) -> Record:
    """Return the columns of a writer's schema; one column, `value`, if it is no record.

    Raises CorruptObject, or UnsupportedType for types without an Arrow type; messages begin with
    `uri`.
    """
    try:
        node = _Schema().node(orjson.loads(text), "")
    except (_InvalidSchemaError, orjson.JSONDecodeError) as exc:
        raise CorruptObject(f"{uri} has an invalid Avro schema: {exc}; write it again") from exc
    except _UnsupportedSchemaError as exc:
        raise UnsupportedType(f"{uri}: {exc}; write the object with another schema") from exc
    record = node if isinstance(node, Record) else Record.of([_field("value", node)], [node])
    if not record.least:
        raise UnsupportedType(
            f"{uri}: its Avro records take no bytes, so that nothing can be delivered; write the"
            " object with a column that is not null"
        )
    return record
