"""What Kafka Connect reads: the values of columns, and those of an envelope of its JsonConverter.

Computed from Python values alone. A struct is a dict, a map is a dict by the texts of its keys, a
date, time or timestamp is its milliseconds since 1970; numbers have the width of their schema.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

MS_PER_DAY = 86_400_000
TICKS_PER_MS = {"us": 1_000, "ns": 1_000_000}
DATA = "org.apache.kafka.connect.data."
INTEGERS = {f"int{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)}
FLOATS = {"float": np.float32, "double": np.float64}


class Unfit(Exception):  # noqa: N818 - not an error of the test
    """Connect has no such value, so that the row is a bad record."""


@dataclass(frozen=True)
class Milliseconds:
    """A date, a time or a timestamp of Connect."""

    value: int


def connect_value(kind: pa.DataType, value: Any) -> Any:  # noqa: ANN401, PLR0911 - a case per type
    """Return what Connect reads for a value of an Arrow type; Unfit if it has no such value."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return connect_value(kind.value_type, value)
    if value is None:
        return None
    if pa.types.is_floating(kind):
        wide = np.float64 if pa.types.is_float64(kind) else np.float32
        return wide(value) if np.isfinite(value) else None
    if pa.types.is_uint64(kind):
        return Decimal(value)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return _instant(kind, value)
    if pa.types.is_struct(kind):
        return {one.name: connect_value(one.type, value[one.name]) for one in kind}
    if pa.types.is_map(kind):
        found = {
            str(connect_value(kind.key_type, key)): connect_value(kind.item_type, item)
            for key, item in value
        }
        if len(found) < len(value):
            raise Unfit
        return found
    if isinstance(value, list):
        return [connect_value(kind.value_type, item) for item in value]
    return value


def _instant(kind: pa.DataType, ticks: int) -> Milliseconds:
    if pa.types.is_date(kind):
        days, rest = (ticks, 0) if pa.types.is_date32(kind) else divmod(ticks, MS_PER_DAY)
        if rest or days not in INTEGERS["int32"]:
            raise Unfit
        return Milliseconds(days * MS_PER_DAY)
    found, rest = divmod(ticks * (1_000 if kind.unit == "s" else 1), TICKS_PER_MS.get(kind.unit, 1))
    if rest or found not in INTEGERS["int64"]:
        raise Unfit
    return Milliseconds(found)


def read_envelope(data: bytes) -> tuple[Any, Any]:
    """Return schema and value of an envelope as JsonConverter reads them; it has nothing else."""
    whole = json.loads(data, parse_float=Decimal, parse_constant=_no_constant)
    assert whole.keys() == {"schema", "payload"}
    return whole["schema"], _value(whole["schema"], whole["payload"])


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


def _value(schema: Mapping[str, Any], value: Any) -> Any:  # noqa: ANN401, PLR0911 - JSON
    if value is None:
        assert schema["optional"], schema
        return None
    kind, name = schema["type"], schema.get("name", "").removeprefix(DATA)
    match kind:
        case "struct":
            assert list(value) == [field["field"] for field in schema["fields"]]
            return {f["field"]: _value(f, value[f["field"]]) for f in schema["fields"]}
        case "array":
            return [_value(schema["items"], item) for item in value]
        case "map":
            return _map(schema, value)
        case "float" | "double":
            assert isinstance(value, int | Decimal)
            return FLOATS[kind](str(value))
        case "bytes":
            return _bytes(schema, name, value)
        case "string" | "boolean":
            assert isinstance(value, str if kind == "string" else bool)
            return value
    assert value in INTEGERS[kind]
    return Milliseconds(value * (MS_PER_DAY if name == "Date" else 1)) if name else value


def _map(schema: Mapping[str, Any], value: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    # The form depends on the schema of the keys.
    as_object = schema["keys"]["type"] == "string"
    entries = list(value.items() if as_object else value)
    made = {str(_value(schema["keys"], k)): _value(schema["values"], v) for k, v in entries}
    assert len(made) == len(entries)
    return made


def _bytes(schema: Mapping[str, Any], name: str, value: Any) -> Any:  # noqa: ANN401 - JSON
    if name == "Decimal" and not isinstance(value, str):
        return Decimal(value)
    data = base64.b64decode(value, validate=True)
    if name != "Decimal":
        return data
    unscaled = int.from_bytes(data, "big", signed=True)
    # As short as Java's BigInteger makes it.
    assert len(data) == (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((sign, digits, -int(schema["parameters"]["scale"])))
