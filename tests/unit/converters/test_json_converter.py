"""The converter `json` with `schemas.enable`: what Connect's JsonConverter reads is the value."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.support.connect_json import DATA, Unfit, connect_value, read_envelope
from tests.support.golden import Golden
from tests.unit.converters.arrow_cases import any_case

from extentflow.config.envelope import JsonOptions
from extentflow.converters import Converter, open_converter
from extentflow.converters.json_converter import envelope_converter
from extentflow.errors import CorruptRecord, UnsupportedType


def opened(schema: pa.Schema, **options: Any) -> Converter:  # noqa: ANN401 - any value
    return open_converter("json", schema, options=JsonOptions(schemas=True, **options))


def one_column(array: pa.Array, *, nullable: bool = True) -> pa.RecordBatch:
    field = pa.field("v", array.type, nullable=nullable)
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))


def payloads(array: pa.Array, **options: Any) -> list[str]:  # noqa: ANN401 - any value
    """Return the text of the payload's only member, per row."""
    batch = one_column(array)
    found = opened(batch.schema, **options)(batch).to_pylist()
    return [each.decode().rpartition('"payload":{"v":')[2].removesuffix("}}") for each in found]


def schema_of(kind: pa.DataType) -> dict[str, Any]:
    row = one_column(pa.nulls(1, kind))
    schema, _ = read_envelope(opened(row.schema)(row)[0].as_py())
    (field,) = schema["fields"]
    assert (field.pop("field"), field.pop("optional")) == ("v", True)
    return dict(field)


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    more = {"parameters": parameters} if parameters else {}
    return {"type": kind, "name": f"{DATA}{name}", "version": 1, **more}


def decimal(precision: str, scale: str) -> dict[str, Any]:
    named = {"scale": scale, "connect.decimal.precision": precision}
    return logical("bytes", "Decimal", **named)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (pa.bool_(), {"type": "boolean"}),
        (pa.int8(), {"type": "int8"}),
        (pa.uint8(), {"type": "int16"}),
        (pa.uint16(), {"type": "int32"}),
        (pa.uint32(), {"type": "int64"}),
        (pa.int64(), {"type": "int64"}),
        (pa.uint64(), decimal("20", "0")),
        (pa.float16(), {"type": "float"}),
        (pa.float32(), {"type": "float"}),
        (pa.float64(), {"type": "double"}),
        (pa.decimal64(15, 2), decimal("15", "2")),
        (pa.decimal128(10, -3), decimal("13", "0")),
        (pa.string_view(), {"type": "string"}),
        (pa.null(), {"type": "string"}),
        (pa.uuid(), {"type": "string"}),
        (pa.binary(4), {"type": "bytes"}),
        (pa.date32(), logical("int32", "Date")),
        (pa.date64(), logical("int32", "Date")),
        (pa.time32("s"), logical("int32", "Time")),
        (pa.time64("ns"), logical("int32", "Time")),
        (pa.timestamp("us"), logical("int64", "Timestamp")),
        (pa.timestamp("s", "Asia/Kolkata"), logical("int64", "Timestamp")),
        (pa.duration("us"), {"type": "int64"}),
        (pa.list_(pa.int8()), {"type": "array", "items": {"type": "int8", "optional": True}}),
        (
            pa.map_(pa.int32(), pa.field("value", pa.bool_(), nullable=False)),
            {
                "type": "map",
                "keys": {"type": "int32", "optional": False},
                "values": {"type": "boolean", "optional": False},
            },
        ),
        (
            pa.struct([pa.field("a", pa.int8(), nullable=False), ("b", pa.date32())]),
            {
                "type": "struct",
                "fields": [
                    {"type": "int8", "optional": False, "field": "a"},
                    {**logical("int32", "Date"), "optional": True, "field": "b"},
                ],
            },
        ),
        (pa.dictionary(pa.int8(), pa.string()), {"type": "string"}),
        (pa.run_end_encoded(pa.int32(), pa.float32()), {"type": "float"}),
    ],
)
def test_each_type_has_connects_schema(kind: pa.DataType, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


def test_an_envelope_is_the_one_that_connect_writes() -> None:
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("é", pa.decimal128(9, 2)),
        pa.field("f", pa.float32(), nullable=False),
    ]
    rows = [{"id": 7, "é": Decimal("-1.29"), "f": 0.5}]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))

    (text,) = opened(batch.schema)(batch).to_pylist()

    assert text.decode() == (
        '{"schema":{"type":"struct","fields":['
        '{"type":"int64","optional":false,"field":"id"},'
        '{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal",'
        '"version":1,"parameters":{"scale":"2","connect.decimal.precision":"9"},"field":"é"},'
        '{"type":"float","optional":true,"field":"f"}],"optional":false},'
        '"payload":{"id":7,"é":"/38=","f":0.5}}'
    )


@given(data=st.data())
@settings(max_examples=50)
def test_connect_reads_every_value_or_the_row_is_bad(data: st.DataObject) -> None:
    case = data.draw(any_case())
    nullable = data.draw(st.booleans())
    values = st.none() | case.values if nullable else case.values
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    decimals = data.draw(st.sampled_from([None, "NUMERIC"]))
    expected: dict[int, Any] = {}
    for row, value in enumerate(rows):
        try:
            expected[row] = connect_value(case.type, value)
        except Unfit:
            continue
    may_be_null = nullable or case.type == pa.null()
    batch = one_column(pa.array(rows, case.type), nullable=may_be_null)
    kept = one_column(pa.array([rows[i] for i in expected], case.type), nullable=may_be_null)
    convert = envelope_converter(batch.schema, decimals=decimals)

    if len(expected) < len(rows):
        with pytest.raises(CorruptRecord) as caught:
            convert(batch)
        assert caught.value.rows.keys() == set(range(len(rows))) - expected.keys()
    found = convert(kept).to_pylist()

    assert [read_envelope(each)[1]["v"] for each in found] == list(expected.values())


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([Decimal("1.50"), Decimal(0), None], pa.decimal128(9, 2)), ['"AJY="', '"AA=="']),
        (pa.array([2**64 - 1, 127, None], pa.uint64()), ['"AP//////////"', '"fw=="']),
        (pa.array([128], pa.uint8()), ["128"]),
        (pa.array([Decimal(-(10**75))], pa.decimal256(76, 0)), None),
        (pa.array([dt.date(1969, 12, 31), None]), ["-1"]),
        (pa.array([86_399_999_000_000], pa.time64("ns")), ["86399999"]),
        (pa.array([-1_000], pa.timestamp("us", "UTC")), ["-1"]),
        (pa.array([-5], pa.timestamp("s")), ["-5000"]),
        (pa.array([7], pa.duration("ns")), ["7"]),
        (pa.array([0.1], pa.float16()), ["0.099975586"]),
        (pa.array([float("nan"), float("-inf")]), ["null", "null"]),
        (pa.array([[(1, "a"), (2, None)], []], pa.map_(pa.int8(), pa.string())), None),
    ],
)  # fmt: skip
def test_values_have_connects_form(array: pa.Array, texts: list[str] | None) -> None:
    found = payloads(array)

    if texts is not None:
        nulls = ["null"] * (len(array) - len(texts))
        assert found == [*texts, *nulls]
    elif pa.types.is_map(array.type):
        assert found == ['[[1,"a"],[2,null]]', "[]"]
    else:
        batch = one_column(array)
        _, row = read_envelope(opened(batch.schema)(batch)[0].as_py())
        assert row == {"v": array[0].as_py()}


def test_decimals_are_numbers_where_the_format_is_numeric() -> None:
    array = pa.array([Decimal("1.50"), Decimal("0E-2"), None], pa.decimal128(9, 2))

    assert payloads(array, decimals="NUMERIC") == ["1.50", "0.00", "null"]


TIMES = pa.array([-1, 86_400], pa.int32()).view(pa.time32("s"))
DATES = pa.array([1, 86_400_000 * 2**31], pa.int64()).view(pa.date64())


@pytest.mark.parametrize(
    ("array", "rows"),
    [
        (pa.array([1_000, 1_001, None], pa.timestamp("us")), {1: "a fraction of a millisecond"}),
        (pa.array([1, -1_000_000], pa.timestamp("ns", "UTC")), {0: "a fraction of a millisecond"}),
        (pa.array([2**60, 1], pa.timestamp("s")), {0: "an instant beyond Connect's Timestamp"}),
        (pa.array([1_000, 999], pa.time64("us")), {1: "a fraction of a millisecond"}),
        (TIMES, {0: "not a time of day", 1: "not a time of day"}),
        (DATES, {0: "a date64 with a time of day", 1: "a date beyond Connect's Date"}),
        (pa.array([[(1, 1), (1, 2)]], pa.map_(pa.int8(), pa.int8())), {0: "a key is there twice"}),
        (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.utf8(), pa.int8())), {0: "a key is there"}),
        (
            pa.array([[(1.0, 1)], [(float("nan"), 2)]], pa.map_(pa.float64(), pa.int8())),
            {1: "a key is null"},
        ),
    ],
)  # fmt: skip
def test_trap_t26_what_connect_cannot_hold_is_a_bad_record(
    array: pa.Array, rows: dict[int, str]
) -> None:
    batch = one_column(array)

    with pytest.raises(CorruptRecord) as caught:
        opened(batch.schema)(batch)

    assert caught.value.rows.keys() == rows.keys()
    assert all(rows[row] in reason for row, reason in caught.value.rows.items())


def test_all_bad_rows_of_a_batch_are_found_at_once() -> None:
    fields = [pa.field("id", pa.int8(), nullable=False), pa.field("at", pa.timestamp("us"))]
    ids, instants = pa.array([1, None, 3], pa.int8()), pa.array([0, 0, 1], pa.timestamp("us"))
    batch = pa.RecordBatch.from_arrays([ids, instants], schema=pa.schema(fields))

    with pytest.raises(CorruptRecord) as caught:
        opened(batch.schema)(batch)

    assert caught.value.rows.keys() == {1, 2}


def test_keys_that_connect_reads_as_text_make_objects() -> None:
    keys = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(15) + b"\7"], pa.binary(16)))
    maps = pa.MapArray.from_arrays(pa.array([0, 1]), keys, pa.array([1]))

    assert payloads(maps) == ['{"00000000-0000-0000-0000-000000000007":1}']


def test_a_batch_beyond_32_bit_offsets_is_converted_in_halves() -> None:
    batch = pa.record_batch({"v": ["x" * 40] * 64})

    small = envelope_converter(batch.schema, limit_bytes=2_000)

    assert small(batch).to_pylist() == opened(batch.schema)(batch).to_pylist()
    assert pa.types.is_large_binary(small(batch).type)


def test_types_without_a_form_are_refused_before_the_first_record(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="'v'.*month_day_nano_interval"):
        opened(pa.schema([("v", pa.month_day_nano_interval())]))


def test_without_the_option_json_has_no_envelope() -> None:
    batch = pa.record_batch({"v": [1]})

    assert json.loads(open_converter("json", batch.schema)(batch)[0].as_py()) == {"v": 1}
