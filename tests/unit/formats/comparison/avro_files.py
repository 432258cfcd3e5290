"""Avro by fastavro, read by fastavro."""

import datetime as dt
import io
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from tests.laws.avro_cases import written
from tests.unit.formats.comparison.nasty import Nasty
from tests.unit.formats.comparison.parquet_files import TEXTS, YEARS
from tests.unit.formats.comparison.values import Plain, of_object

FLOATS = [0.0, -0.0, 0.5, float("nan"), float("inf"), float("-inf")]
MOMENTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC),
]
LOCAL = [moment.replace(tzinfo=None) for moment in MOMENTS]
NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "com.acme",
    "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}},
    ],
}


def logical(stored: str, kind: str, /, **more: object) -> dict[str, Any]:
    """Return a logical type."""
    return {"type": stored, "logicalType": kind, **more}


FIELDS: list[tuple[Any, list[Any]]] = [
    ("boolean", [True, False]),
    ("int", [0, -(2**31), 2**31 - 1, -1, 63, -64, 64]),
    ("long", [0, -(2**63), 2**63 - 1, 2**31, 2**56]),
    ("float", FLOATS),
    ("double", [*FLOATS, 5e-324, 1.7976931348623157e308, 0.1]),
    ("bytes", [b"", b"\xff\x00", b"x" * 300]),
    ("string", [text for text in TEXTS if text is not None]),
    (["null", "string"], TEXTS),
    (["string", "null"], TEXTS),
    ("null", [None]),
    ({"type": "fixed", "name": "F3", "size": 3}, [b"abc", b"\0\xff\0"]),
    ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, ["A", "C", "B"]),
    (logical("int", "date"), [day for day in YEARS if day]),
    (["null", logical("int", "date")], YEARS),
    (logical("int", "time-millis"), [dt.time(), dt.time(23, 59, 59, 999_000)]),
    (logical("long", "time-micros"), [dt.time(), dt.time(23, 59, 59, 999_999)]),
    (logical("long", "timestamp-millis"), MOMENTS),
    (logical("long", "timestamp-micros"), MOMENTS),
    (logical("long", "local-timestamp-millis"), LOCAL),
    (logical("long", "local-timestamp-micros"), LOCAL),
    (logical("string", "uuid"), [uuid.UUID(int=5), uuid.UUID(int=2**128 - 1)]),
    (
        logical("bytes", "decimal", precision=38, scale=10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-0.0000000001"), Decimal(0)],
    ),
    (
        logical("fixed", "decimal", name="D", size=16, precision=38, scale=0),
        [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)],
    ),
    ({"type": "array", "items": "long"}, [[], [1, -1], [2**63 - 1] * 20]),
    (
        {"type": "array", "items": {"type": "array", "items": ["null", "int"]}},
        [[], [[], [None, 1]]],
    ),
    ({"type": "map", "values": "double"}, [{}, {"a": 0.5, "": float("nan")}]),
    ({"type": "map", "values": {"type": "array", "items": "string"}}, [{"é": ["x", ""]}, {}]),
    (NODE, [{"a": None, "l": []}, {"a": 2**62, "l": [None, "x"]}]),
    (["null", "com.acme.Node"], [None, {"a": 1, "l": ["y"]}]),
    ({"type": "array", "items": "com.acme.Node"}, [[], [{"a": 1, "l": [None]}] * 3]),
]
SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": f"f{number}", "type": kind} for number, (kind, _) in enumerate(FIELDS)],
}


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows of all fields."""
    return [
        {f"f{number}": values[row % len(values)] for number, (_, values) in enumerate(FIELDS)}
        for row in range(count)
    ]


def in_fastavro(body: bytes, _folder: Path, schema: pa.Schema) -> Mapping[str, Sequence[Plain]]:
    """Return what fastavro reads."""
    found: list[Any] = list(fastavro.reader(io.BytesIO(body)))
    if schema.names == ["value"]:
        found = [{"value": row} for row in found]
    return {one.name: [of_object(row[one.name], one.type) for row in found] for one in schema}


def nasty(name: str, schema: Any, found: list[Any], **options: Any) -> Nasty:  # noqa: ANN401
    """Return a file."""
    return Nasty(f"avro-{name}", "avro", partial(written, schema, found, **options), in_fastavro)


FILES = [
    *(
        nasty(f"{codec}-{size}", SCHEMA, rows(count), codec=codec, block_bytes=size)
        for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
        for size, count in ((1, 25), (20_000, 150))
    ),
    nasty("one-block", SCHEMA, rows(400), block_bytes=1 << 30),
    nasty("no-rows", SCHEMA, []),
    nasty("no-record", {"type": "array", "items": "string"}, [["a"], [], ["", "é"]] * 20),
    nasty("text", "string", [text for text in TEXTS if text] * 20, block_bytes=64),
]
