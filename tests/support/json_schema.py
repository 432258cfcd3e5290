"""A validator for the part of JSON Schema (draft 7) that converters write."""

from collections.abc import Callable, Mapping
from typing import Any

TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def misfits(schema: Any, value: Any, path: str = "$") -> list[str]:  # noqa: ANN401 - JSON
    """Return where a value does not conform; [] if it does."""
    if "oneOf" in schema:
        fitting = [one for one in schema["oneOf"] if not misfits(one, value, path)]
        return [] if len(fitting) == 1 else [f"{path}: {len(fitting)} of {schema['oneOf']}"]
    if not TYPES[schema["type"]](value):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if isinstance(value, dict):
        return _members(schema, value, path)
    if isinstance(value, list):
        items = schema["items"]
        return [why for item in value for why in misfits(items, item, f"{path}[]")]
    size = len(value) if isinstance(value, str) else value
    low = schema.get("minimum", schema.get("minLength"))
    high = schema.get("maximum", schema.get("maxLength"))
    outside = (low is not None and size < low) or (high is not None and size > high)
    return [f"{path}: {value!r} is not from {low} to {high}"] if outside else []


def _members(schema: Any, value: dict[str, Any], path: str) -> list[str]:  # noqa: ANN401 - JSON
    named, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{path}: no {name}" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        inner = f"{path}.{name}"
        if name in named:
            found += misfits(named[name], item, inner)
        elif isinstance(more, dict):
            found += misfits(more, item, inner)
        elif not more:
            found.append(f"{inner}: not in the schema")
    return found
