"""The columns that a JSON Schema describes."""

import json
from typing import Any

import pyarrow as pa
import pytest

from extentflow.config.column_lists import JSON_SCHEMA, json_type
from extentflow.converters.json_schema_converter import object_schema
from extentflow.decoders.json_schema_columns import described_columns
from extentflow.errors import UnsupportedType


def described(**members: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps({"type": "object", "properties": members})


def test_what_our_converter_registers_is_read_as_the_types_that_it_writes() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int16()),
            ("unsigned", pa.uint8()),
            ("huge", pa.uint64()),
            ("price", pa.decimal128(15, 2)),
            ("ratio", pa.float64()),
            ("narrow", pa.float32()),
            ("flag", pa.bool_()),
            ("name", pa.string()),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms", "UTC")),
            ("local", pa.timestamp("us")),
            ("clock", pa.time64("us")),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("place", pa.struct([("a, b", pa.float64()), ("in", pa.struct([("x", pa.int8())]))])),
        ]
    )

    found = described_columns(json.dumps(object_schema(list(schema), "", is_open=False)))

    wanted = (
        "id:int64, small:int16, unsigned:int16, huge:decimal(20,0), price:decimal(15,2),"
        " ratio:float64, narrow:float32, flag:bool, name:string, raw:binary, day:date,"
        " at:timestamp(us,UTC), local:timestamp(us), clock:string, tags:list<string>,"
        " counts:map<string,int64>,"
        ' place:struct<"a, b":float64,in:struct<x:int8>>'
    )
    assert [(name, json_type(kind)) for name, kind in found] == [
        (name, json_type(kind)) for name, kind in JSON_SCHEMA.read(wanted)
    ]


@pytest.mark.parametrize(
    ("member", "kind"),
    [
        ({"type": ["null", "string"]}, "string"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "int64"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,float64>"),
        ({"type": "string", "format": "email"}, "string"),
    ],
)
def test_types_of_other_writers(member: object, kind: str) -> None:
    assert described_columns(described(a=member)) == (("a", kind),)


@pytest.mark.parametrize(
    "member",
    [
        True,
        {},
        {"$ref": "#/definitions/x"},
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object"},
        {"type": "array"},
        {"type": "null"},
        {"enum": ["a"]},
        {"type": "number", "title": "org.apache.kafka.connect.data.Decimal"},
    ],
)
def test_a_column_without_a_single_type_is_named(member: object) -> None:
    text = described(good={"type": "string"}, bad={"type": "array", "items": member}, worse=member)

    with pytest.raises(UnsupportedType, match=r"^column bad: .*; column worse: [^;]*$"):
        described_columns(text)


@pytest.mark.parametrize("text", ["", "7", "{}", '{"type": "string"}', '{"properties": {}}'])
def test_a_schema_without_columns_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedType):
        described_columns(text)


def test_deep_types_are_refused() -> None:
    member: Any = {"type": "string"}
    for _ in range(40):
        member = {"type": "array", "items": member}

    with pytest.raises(UnsupportedType, match="column a: more than 32 levels"):
        described_columns(described(a=member))
