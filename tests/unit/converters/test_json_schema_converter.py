"""The converter `json-schema`: every record conforms to the schema of the columns."""

import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator
from tests.support.golden import Golden
from tests.support.registry import RegistryDouble, registry_double
from tests.unit.converters.arrow_cases import any_case

from extentflow.arrays.layouts import ConvertedColumns
from extentflow.config.registry import JsonSchemaOptions
from extentflow.converters import Converter, Destination, open_converter
from extentflow.converters.connect_schema import connect_form
from extentflow.converters.json_encoding import Dialect, json_rows
from extentflow.converters.json_schema_converter import (
    DIALECT,
    json_schema_converter,
    object_schema,
)
from extentflow.errors import CorruptRecord, IncompatibleSchema, UnsupportedType

NULL = {"type": "null"}
DECIMAL = {
    "type": "number",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.version": 1,
    "connect.type": "bytes",
}


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double(first_id=70_000) as double:
        yield double


def opened(registry: RegistryDouble, schema: pa.Schema, **changes: Any) -> Converter:  # noqa: ANN401 - any value
    options = JsonSchemaOptions(urls=(registry.url,), **changes)
    return open_converter("json-schema", schema, options=options, destination=Destination("orders"))


def schema_of(kind: pa.DataType) -> Any:  # noqa: ANN401 - JSON
    made = object_schema([pa.field("v", kind, nullable=kind == pa.null())], "", is_open=True)
    return made["properties"]["v"]


def integer(name: str, **more: int) -> dict[str, Any]:
    return {"type": "integer", "connect.type": name, **more}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (pa.bool_(), {"type": "boolean"}),
        (pa.int8(), integer("int8")),
        (pa.int64(), integer("int64")),
        (pa.uint8(), integer("int16", minimum=0, maximum=255)),
        (pa.uint32(), integer("int64", minimum=0, maximum=4294967295)),
        (
            pa.uint64(),
            DECIMAL | {"connect.parameters": {"scale": "0", "connect.decimal.precision": "20"}},
        ),
        (
            pa.decimal128(15, 2),
            DECIMAL | {"connect.parameters": {"scale": "2", "connect.decimal.precision": "15"}},
        ),
        (pa.float64(), {"oneOf": [NULL, {"type": "number", "connect.type": "float64"}]}),
        (pa.string_view(), {"type": "string"}),
        (pa.date64(), {"type": "string", "format": "date"}),
        (pa.time32("s"), {"type": "string", "format": "time-local"}),
        (pa.timestamp("ns", "UTC"), {"type": "string", "format": "date-time"}),
        (pa.timestamp("ns"), {"type": "string", "format": "date-time-local"}),
        (pa.uuid(), {"type": "string", "format": "uuid"}),
        (
            pa.binary(4),
            {
                "type": "string",
                "contentEncoding": "base64",
                "connect.type": "bytes",
                "minLength": 8,
                "maxLength": 8,
            },
        ),
        (
            pa.list_(pa.int8()),
            {"type": "array", "items": {"oneOf": [NULL, integer("int8")]}},
        ),
        (pa.dictionary(pa.int8(), pa.string()), {"type": "string"}),
        (
            pa.map_(pa.string(), pa.bool_()),
            {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": {"oneOf": [NULL, {"type": "boolean"}]},
            },
        ),
        (pa.null(), NULL),
    ],
)  # fmt: skip
def test_each_type_has_its_schema(kind: pa.DataType, schema: Any) -> None:  # noqa: ANN401 - JSON
    assert schema_of(kind) == schema


def test_members_that_are_never_null_are_required() -> None:
    inner = pa.struct([pa.field("a", pa.string(), nullable=False), ("b", pa.string())])
    fields = [pa.field("s", inner, nullable=False), pa.field("n", pa.null())]

    assert object_schema(fields, "com.acme.Order", is_open=False) == {
        "$schema": DIALECT,
        "title": "com.acme.Order",
        "type": "object",
        "properties": {
            "s": {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "b": {"oneOf": [NULL, {"type": "string"}]},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
            "n": NULL,
        },
        "required": ["s"],
        "additionalProperties": False,
    }


@given(data=st.data())
@settings(max_examples=50)
def test_every_record_conforms_to_its_schema(data: st.DataObject) -> None:
    case = data.draw(any_case())
    nullable = data.draw(st.booleans())
    values = st.none() | case.values if nullable else case.values
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    field = pa.field("v", case.type, nullable=nullable or case.type == pa.null())
    batch = pa.record_batch([pa.array(rows, case.type)], pa.schema([field]))
    schema = object_schema([field], "", is_open=False)

    dialect = Dialect(1 << 30, connect_form)
    payloads = json_rows(ConvertedColumns.select(batch.schema, None), dialect)(batch)

    Draft7Validator.check_schema(schema)
    for payload in payloads.to_pylist():
        Draft7Validator(schema).validate(json.loads(payload))


def test_records_have_confluents_wire_format(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"id": [1, 2], "name": ["é", None]})

    payloads = opened(registry, batch.schema)(batch).to_pylist()

    assert payloads == [
        b'\0\0\1\x11\x70{"id":1,"name":"\xc3\xa9"}',
        b'\0\0\1\x11\x70{"id":2,"name":null}',
    ]
    (text,) = registry.subjects["orders-value"]
    assert registry.kinds[text] == "JSON"
    assert json.loads(text)["properties"].keys() == {"id", "name"}


@pytest.mark.parametrize(
    ("half", "written"),
    [
        (pa.array([0.1, 65504.0, None, float("nan")], pa.float16()),
         ["0.099975586", "65504", "null", "null"]),
        (pa.array([[0.1]], pa.list_(pa.float16())), ["[0.099975586]"]),
        (pa.array([0.1], pa.float16()).dictionary_encode(), ["0.099975586"]),
    ],
)  # fmt: skip
def test_trap_t26_a_half_float_is_the_float_that_its_schema_states(
    registry: RegistryDouble, half: pa.Array, written: list[str]
) -> None:
    batch = pa.record_batch({"v": half})

    payloads = [row[5:].decode() for row in opened(registry, batch.schema)(batch).to_pylist()]

    assert payloads == [f'{{"v":{text}}}' for text in written]
    (text,) = registry.subjects["orders-value"]
    assert '"connect.type": "float32"' in text


def test_the_record_name_is_title_and_subject(registry: RegistryDouble) -> None:
    schema = pa.schema([("id", pa.int64())])

    opened(registry, schema, strategy="RecordNameStrategy", record_name="com.acme.Order")

    (text,) = registry.subjects["com.acme.Order"]
    assert json.loads(text)["title"] == "com.acme.Order"


def test_a_batch_beyond_32_bit_offsets_is_converted_in_halves(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"v": ["x" * 40] * 64})
    options = JsonSchemaOptions(urls=(registry.url,))

    small = json_schema_converter(
        batch.schema, None, options, Destination("orders"), limit_bytes=1_000
    )

    assert small(batch).to_pylist() == opened(registry, batch.schema)(batch).to_pylist()
    assert pa.types.is_large_binary(small(batch).type)


def test_a_null_where_none_may_be_is_a_bad_record_at_any_depth(registry: RegistryDouble) -> None:
    strict = pa.field("x", pa.int8(), nullable=False)
    schema = pa.schema(
        [
            pa.field("id", pa.int8(), nullable=False),
            pa.field("s", pa.struct([strict])),
            pa.field("l", pa.list_(pa.field("item", pa.struct([strict])))),
        ]
    )
    rows: list[dict[str, Any]] = [
        {"id": 0, "s": {"x": 1}, "l": [{"x": 1}]},
        {"id": None, "s": None, "l": []},
        {"id": 2, "s": None, "l": None},
        {"id": 3, "s": {"x": None}, "l": []},
        {"id": 4, "s": None, "l": [None, {"x": 1}, {"x": None}]},
    ]
    arrays = [pa.array([row[name] for row in rows], schema.field(name).type) for name in "sl"]
    ids = pa.array([row["id"] for row in rows], pa.int8())
    batch = pa.RecordBatch.from_arrays([ids, *arrays], schema=schema)

    with pytest.raises(CorruptRecord) as caught:
        opened(registry, schema)(batch)

    reason = "null, and its column has no null"
    assert caught.value.rows == {
        1: f"id: {reason}", 3: f"s: x: {reason}", 4: f"l: item: x: {reason}",
    }  # fmt: skip


def test_types_without_a_form_are_refused_before_the_registry_is_asked(
    registry: RegistryDouble,
) -> None:
    with pytest.raises(UnsupportedType, match="column 'v'"):
        opened(registry, pa.schema([("v", pa.month_day_nano_interval())]))

    assert registry.requests == []


def test_an_incompatible_schema_is_refused(registry: RegistryDouble, golden: Golden) -> None:
    registry.fail.extend([(404, {"error_code": 40403}), (200, {"is_compatible": False})])

    with golden.raises(IncompatibleSchema):
        opened(registry, pa.schema([("v", pa.int8())]))
    assert registry.subjects == {}
