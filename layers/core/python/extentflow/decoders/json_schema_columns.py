"""The columns that a JSON Schema describes, as `json.schema` declares them.

Types follow Kafka Connect's annotations where there are any, which docs/registry.md lists.
"""

import json
from typing import Any, Final, TypeAlias

from extentflow.config.column_lists import JSON_SCHEMA, Schema
from extentflow.converters.connect_schema import DECIMAL
from extentflow.errors import UnsupportedType

Json: TypeAlias = Any

_MOST_DIGITS: Final = 38
_MOST_LEVELS: Final = 32
_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64"})
_STRINGS: Final = {
    "date": "date",
    "date-time": "timestamp(us,UTC)",
    "date-time-local": "timestamp(us)",
}


class _UndescribedError(Exception):
    """A schema of which no type follows; the message says why."""


def described_columns(text: str) -> Schema:
    """Return the columns of the documents that the JSON Schema `text` describes.

    Raises UnsupportedType, which names every column of which no single type follows.
    """
    try:
        root = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise UnsupportedType(f"no JSON Schema: {exc}") from exc
    members = root.get("properties") if isinstance(root, dict) else None
    if not isinstance(members, dict) or not members:
        raise UnsupportedType("a JSON Schema without properties, which are the columns")
    columns, problems = [], []
    for name, member in members.items():
        try:
            columns.append((name, _type(member, 1)))
        except _UndescribedError as exc:
            problems.append(f"column {name}: {exc}")
    if problems:
        raise UnsupportedType("; ".join(problems))
    return tuple(columns)


def _type(schema: Json, level: int) -> str:
    if level > _MOST_LEVELS:
        raise _UndescribedError(f"more than {_MOST_LEVELS} levels")
    if not isinstance(schema, dict) or "$ref" in schema:
        raise _UndescribedError("a reference ($ref), or any value")
    for union in ("oneOf", "anyOf"):
        if union in schema:
            branches = [one for one in schema[union] if one != {"type": "null"}]
            if len(branches) != 1:
                raise _UndescribedError(f"{union} of {len(branches)} types")
            return _type(branches[0], level)
    stated = schema.get("type")
    kinds = [one for one in (stated if isinstance(stated, list) else [stated]) if one != "null"]
    if len(kinds) != 1:
        raise _UndescribedError(f"the type {json.dumps(stated)}")
    if kinds[0] == "object":
        return _object(schema, level)
    if kinds[0] == "array":
        return f"list<{_type(schema.get('items'), level + 1)}>"
    return _scalar(kinds[0], schema)


def _object(schema: Json, level: int) -> str:
    if members := schema.get("properties"):
        fields = tuple((name, _type(member, level + 1)) for name, member in members.items())
        return f"struct<{JSON_SCHEMA.write(fields)}>"
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        raise _UndescribedError("an object without properties")
    return f"map<string,{_type(values, level + 1)}>"


def _scalar(kind: object, schema: Json) -> str:
    annotated = schema.get("connect.type")
    if kind == "boolean":
        return "bool"
    if kind == "integer":
        return annotated if annotated in _INTEGERS else "int64"
    if kind == "number":
        if schema.get("title") == DECIMAL:
            return _decimal(schema.get("connect.parameters"))
        return "float32" if annotated == "float32" else "float64"
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return "binary"
        return _STRINGS.get(schema.get("format", ""), "string")
    raise _UndescribedError(f"the type {json.dumps(kind)}")


def _decimal(parameters: Json) -> str:
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision", _MOST_DIGITS))
    except (TypeError, KeyError, ValueError, AttributeError) as exc:
        raise _UndescribedError("a decimal without its scale") from exc
    if not 0 <= scale <= precision <= _MOST_DIGITS:
        raise _UndescribedError(f"a decimal of {precision} digits, {scale} behind the point")
    return f"decimal({precision},{scale})"
