"""The converter `avro`: fastavro reads every record back as the values of the columns."""

import datetime as dt
import json
import math
import re
import uuid
from collections.abc import Iterator
from decimal import Context, Decimal

import fastavro
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.support.golden import Golden
from tests.support.registry import RegistryDouble, decoded, registry_double, without_logical_types
from tests.unit.converters.arrow_cases import SCALARS, Case, any_case

from extentflow.arrays.buffers import MAX_TEXT_BYTES, OffsetOverflowError
from extentflow.arrays.interleave import join_rows
from extentflow.config.registry import AvroOptions
from extentflow.converters import Destination
from extentflow.converters.avro_converter import avro_converter
from extentflow.converters.avro_encoding import record_writer
from extentflow.converters.avro_scalars import Target
from extentflow.converters.avro_schema import Json, parse_schema, record_schema
from extentflow.converters.names import Names
from extentflow.converters.row_writers import EVERY_ROW
from extentflow.errors import CorruptRecord, IncompatibleSchema, UnsupportedType

NAMES = Names(scrub=True)
TOPIC = Destination("orders")


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


def encoded(batch: pa.RecordBatch, schema: Json = None, limit: int = MAX_TEXT_BYTES) -> list[bytes]:
    """Return the records of a batch, by the schema of its columns where there is no other."""
    fields = list(batch.schema)
    text = json.dumps(schema or record_schema(fields, "com.acme.Row", NAMES))
    write = record_writer(fields, parse_schema(text), "", Target(NAMES, limit))
    rows: list[bytes] = join_rows(
        write(batch.columns, EVERY_ROW), batch.num_rows, limit
    ).to_pylist()
    return rows


def read_back(batch: pa.RecordBatch) -> list[Json]:
    """Return what fastavro reads, with the stored values in place of logical ones."""
    schema = record_schema(list(batch.schema), "com.acme.Row", NAMES)
    fastavro.parse_schema(schema)
    plain = fastavro.parse_schema(without_logical_types(schema))
    return [decoded(row, plain) for row in encoded(batch)]


# -- what is stored for each type ------------------------------------------------------------------

CONTEXT = Context(prec=200)


def stored(kind: pa.DataType, value: Json) -> Json:  # noqa: PLR0911 - a case per kind of type
    """Return what an Avro file without logical types holds for the value of an Arrow type."""
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return int(value.scaleb(max(0, kind.scale), CONTEXT))
    if pa.types.is_date64(kind):
        return value // 86_400_000
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return value * {"s": 1000}.get(kind.unit, 1) // (1000 if is_nanoseconds(kind) else 1)
    if isinstance(kind, pa.UuidType):
        return str(uuid.UUID(bytes=value))
    if pa.types.is_map(kind):
        pairs = [(stored(kind.key_type, k), stored(kind.item_type, v)) for k, v in value]
        text = pa.types.is_string(kind.key_type)
        return dict(pairs) if text else [{"key": k, "value": v} for k, v in pairs]
    if pa.types.is_struct(kind):
        names = NAMES.fields([field.name for field in kind], "")
        return {
            name: stored(field.type, value[field.name])
            for name, field in zip(names, kind, strict=True)
        }
    if hasattr(kind, "value_field"):
        return [stored(kind.value_type, item) for item in value]
    return value


def is_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind)) and kind.unit == "ns"


def seen(kind: pa.DataType, value: Json) -> Json:  # noqa: PLR0911 - a case per kind of value
    """Return what fastavro read, with decimals as numbers and NaN as a text."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bytes) and (pa.types.is_decimal(kind) or pa.types.is_uint64(kind)):
        return int.from_bytes(value, "big", signed=True)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        return {n: seen(f.type, v) for (n, v), f in zip(value.items(), kind, strict=True)}
    if isinstance(value, dict) and pa.types.is_map(kind):
        return {key: seen(kind.item_type, item) for key, item in value.items()}
    if isinstance(value, list) and pa.types.is_map(kind):
        return [
            {n: seen(t, one[n]) for n, t in (("key", kind.key_type), ("value", kind.item_type))}
            for one in value
        ]
    if isinstance(value, list):
        return [seen(kind.value_type, item) for item in value]
    return value


def beyond(kind: pa.DataType, value: Json) -> bool:  # noqa: PLR0911 - a case per kind of type
    """Whether a value has no form: seconds beyond milliseconds, parts of a microsecond."""
    if value is None:
        return False
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "s" and not -(2**63) // 1000 < value < 2**63 // 1000)
    if is_nanoseconds(kind):
        return bool(value % 1000)
    if pa.types.is_map(kind):
        text = pa.types.is_string(kind.key_type)
        keys = [key for key, _ in value]
        return (text and len(set(keys)) < len(keys)) or any(
            beyond(kind.item_type, item) for _, item in value
        )
    if pa.types.is_struct(kind):
        return any(beyond(field.type, value[field.name]) for field in kind)
    if hasattr(kind, "value_field"):
        return any(beyond(kind.value_type, item) for item in value)
    return False


def check(kind: pa.DataType, values: list[Json]) -> None:
    batch = pa.record_batch({"v": pa.array(values, kind)})
    bad = [row for row, value in enumerate(values) if beyond(kind, value)]
    if bad:
        with pytest.raises(CorruptRecord) as caught:
            encoded(batch)
        assert list(caught.value.rows) == bad
        values = [value for row, value in enumerate(values) if row not in bad]
        batch = pa.record_batch({"v": pa.array(values, kind)})

    rows = [seen(kind, row["v"]) for row in read_back(batch)]

    assert rows == [seen(kind, stored(kind, value)) for value in values]


@pytest.mark.parametrize("case", SCALARS, ids=lambda case: str(case.type))
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_scalar_reads_back_as_its_value(case: Case, data: st.DataObject) -> None:
    check(case.type, data.draw(st.lists(st.none() | case.values, max_size=30)))


@given(case=any_case(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_nested_values_read_back_as_they_are(case: Case, data: st.DataObject) -> None:
    check(case.type, data.draw(st.lists(st.none() | case.values, max_size=8)))


@given(case=any_case(), data=st.data(), start=st.integers(0, 4), length=st.integers(0, 6))
@settings(max_examples=50, deadline=None)
def test_a_slice_is_written_as_its_rows_alone(
    case: Case, data: st.DataObject, start: int, length: int
) -> None:
    values = data.draw(st.lists(st.none() | case.values, min_size=4, max_size=10))
    values = [value for value in values if not beyond(case.type, value)]
    batch = pa.record_batch({"v": pa.array(values, case.type)})

    rows = encoded(batch.slice(start, length))

    assert rows == encoded(batch)[start : start + length]


# -- the table of docs/registry.md -----------------------------------------------------------------

NOON = dt.datetime(2026, 3, 1, 12, 30, 15, 123456)  # noqa: DTZ001 - a local time
INSTANT = NOON.replace(tzinfo=dt.UTC)
MILLIS = INSTANT.replace(microsecond=123000)
TABLE: list[tuple[pa.Array, Json, Json]] = [
    (pa.array([True]), "boolean", True),
    (pa.array([-7], pa.int8()), "int", -7),
    (pa.array([65535], pa.uint16()), "int", 65535),
    (pa.array([2**32 - 1], pa.uint32()), "long", 2**32 - 1),
    (
        pa.array([2**64 - 1], pa.uint64()),
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
        Decimal(2**64 - 1),
    ),
    (pa.array([0.5], pa.float16()), "float", 0.5),
    (pa.array([0.1]), "double", 0.1),
    (
        pa.array([Decimal("-12.30")], pa.decimal128(15, 2)),
        {"type": "bytes", "logicalType": "decimal", "precision": 15, "scale": 2},
        Decimal("-12.30"),
    ),
    (
        pa.array([Decimal(12000)], pa.decimal128(5, -3)),
        {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 0},
        Decimal(12000),
    ),
    (pa.array([NOON.date()]), {"type": "int", "logicalType": "date"}, NOON.date()),
    (
        pa.array([3_600], pa.time32("s")),
        {"type": "int", "logicalType": "time-millis"},
        dt.time(1),
    ),
    (
        pa.array([1_500_000], pa.time64("us")),
        {"type": "long", "logicalType": "time-micros"},
        dt.time(0, 0, 1, 500_000),
    ),
    (
        pa.array([NOON], pa.timestamp("us")),
        {"type": "long", "logicalType": "local-timestamp-micros"},
        NOON,
    ),
    (
        pa.array([INSTANT], pa.timestamp("us", "Asia/Kolkata")),
        {"type": "long", "logicalType": "timestamp-micros"},
        INSTANT,
    ),
    (
        pa.array([MILLIS], pa.timestamp("ms", "UTC")),
        {"type": "long", "logicalType": "timestamp-millis"},
        MILLIS,
    ),
    (
        pa.array([5], pa.timestamp("ns", "UTC")),
        {"type": "long", "logicalType": "timestamp-nanos"},
        5,
    ),
    (pa.array([9], pa.duration("ms")), "long", 9),
    (pa.array(["né"], pa.large_string()), "string", "né"),
    (pa.array([b"\xff"], pa.binary_view()), "bytes", b"\xff"),
    (pa.array([b"abc"], pa.binary(3)), {"type": "fixed", "size": 3, "name": "Row_v"}, b"abc"),
    (
        pa.array([bytes(range(16))], pa.uuid()),
        {"type": "string", "logicalType": "uuid"},
        uuid.UUID(bytes=bytes(range(16))),
    ),
    (pa.array(["a"]).dictionary_encode(), "string", "a"),
    (pa.RunEndEncodedArray.from_arrays([1], ["a"]), "string", "a"),
]


@pytest.mark.parametrize(("array", "schema", "value"), TABLE, ids=lambda one: str(one)[:40])
def test_a_type_has_one_schema_and_its_value(array: pa.Array, schema: Json, value: Json) -> None:
    nullable = pa.schema([pa.field("v", array.type)])
    required = pa.schema([pa.field("v", array.type, nullable=False)])

    for fields, wanted in ((nullable, ["null", schema]), (required, schema)):
        batch = pa.record_batch([array], schema=fields)
        record = record_schema(list(fields), "com.acme.Row", NAMES)

        assert record["fields"][0]["type"] == wanted
        assert decoded(encoded(batch)[0], record) == {"v": value}


def test_nested_records_have_names_of_their_own() -> None:
    inner = pa.struct([("x", pa.binary(2))])
    fields = [pa.field("a", inner), pa.field("b", pa.list_(inner)), pa.field("c", inner)]

    schema = record_schema(fields, "com.acme.Row", NAMES)

    fastavro.parse_schema(schema)
    assert schema["namespace"] == "com.acme"
    assert schema["fields"][0]["type"][1]["name"] == "Row_a"
    assert schema["fields"][1]["type"][1]["items"][1]["name"] == "Row_b_item"


INNER = pa.struct([("x", pa.int8())])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": pa.struct([("b", INNER)]), "a_b": INNER}, {"Row_a", "Row_a_b", "Row_a_b_"}),
        ({"a": pa.list_(INNER), "a_item": INNER}, {"Row_a_item", "Row_a_item_"}),
        ({"m": pa.map_(pa.string(), INNER), "m_value": INNER}, {"Row_m_value", "Row_m_value_"}),
        ({"m": pa.map_(pa.int8(), pa.int8()), "m_entry": INNER}, {"Row_m_entry", "Row_m_entry_"}),
        (
            {"a": pa.struct([("b", pa.binary(2))]), "a_b": pa.binary(3)},
            {"Row_a", "Row_a_b", "Row_a_b_"},
        ),
    ],
)
def test_paths_that_are_written_alike_make_types_of_different_names(
    columns: dict[str, pa.DataType], expected: set[str]
) -> None:
    """Trap: the schema defined a name twice, which a registry or a consumer refuses."""
    schema = record_schema([pa.field(*one) for one in columns.items()], "Row", NAMES)

    fastavro.parse_schema(schema)
    assert set(re.findall('"name": "(Row_[a-z_]+)"', json.dumps(schema))) == expected


@pytest.mark.parametrize(
    "kind", [pa.dense_union([pa.field("a", pa.int8())]), pa.month_day_nano_interval()]
)
def test_a_type_without_a_form_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match=r"column 's\.x' has type .*; write"):
        record_schema([pa.field("s", pa.struct([("x", kind)]))], "Row", NAMES)


def test_names_that_avro_does_not_allow_are_refused_or_scrubbed_as_connect_does(
    golden: Golden,
) -> None:
    fields = [pa.field("order id", pa.int8()), pa.field("2nd", pa.int8())]

    with golden.raises(UnsupportedType, match=r"'order id'.*scrub\.invalid\.names=true"):
        record_schema(fields, "Row", Names())
    scrubbed = record_schema(fields, "Row", Names(scrub=True))
    assert [field["name"] for field in scrubbed["fields"]] == ["order_id", "x2nd"]

    with pytest.raises(UnsupportedType, match="would be the field 'a_b'"):
        record_schema(
            [pa.field("a b", pa.int8()), pa.field("a_b", pa.int8())], "Row", Names(scrub=True)
        )


# -- many columns and sizes ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_columns_of_all_lengths_do_not_run_into_each_other(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows = 3_000
    mask = chance.random(rows) < 0.2
    widths = [2**7, 2**20, 2**40, 2**62]
    columns: dict[str, pa.Array] = {}
    for at, width in enumerate(chance.permutation(widths)):
        numbers = chance.integers(-int(width), int(width), rows) >> chance.integers(0, 62, rows)
        columns[f"n{at}"] = pa.array(numbers, mask=mask if at % 2 else None)
        texts = ["x" * int(size) for size in chance.integers(0, [3, 9, 17, 300][at], rows)]
        columns[f"t{at}"] = pa.array(texts, mask=chance.random(rows) < 0.1)
        columns[f"f{at}"] = pa.array(chance.random(rows))
        columns[f"b{at}"] = pa.array(chance.random(rows) < 0.5)
    batch = pa.record_batch(columns)

    assert read_back(batch) == batch.to_pylist()


def test_rows_beyond_the_limit_are_converted_in_halves(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"v": ["x" * 100] * 64, "n": range(64)})
    options = AvroOptions(urls=(registry.url,))

    convert = avro_converter(batch.schema, None, options, TOPIC, limit_bytes=1_000)

    payloads = convert(batch)
    assert payloads.type == pa.large_binary()
    assert [registry.decode(one) for one in payloads.to_pylist()] == batch.to_pylist()
    with pytest.raises(OffsetOverflowError):
        encoded(batch, limit=1_000)


def test_every_bad_row_of_every_column_is_named() -> None:
    text = pa.array([b"ok", b"\xff", b"ok"], pa.binary()).view(pa.string())
    lists = pa.array([[1], [], [-1]], pa.list_(pa.time32("s")))

    with pytest.raises(CorruptRecord) as caught:
        encoded(pa.record_batch({"text": text, "lists": lists}))

    assert list(caught.value.rows) == [1, 2]
    assert caught.value.rows[1].startswith("text: ")
    assert caught.value.rows[2].startswith("lists: item: not a time of day")


# -- schemas that the registry holds ---------------------------------------------------------------


def record(*fields: Json) -> Json:
    return {"type": "record", "name": "Held", "fields": list(fields)}


def one(kind: Json, **more: Json) -> Json:
    return record({"name": "v", "type": kind, **more})


ENUM = {"type": "enum", "name": "Size", "symbols": ["S", "M"]}
DECIMAL = {"logicalType": "decimal", "precision": 20, "scale": 2}
FITS: list[tuple[pa.Array, Json, list[Json]]] = [
    (pa.array([1, 2], pa.int32()), "long", [1, 2]),
    (pa.array([1, -2], pa.int32()), "double", [1.0, -2.0]),
    (pa.array([1, 2], pa.int16()), "float", [1.0, 2.0]),
    (pa.array([0.5, 0.25], pa.float32()), "double", [0.5, 0.25]),
    (pa.array([1, None], pa.int64()), ["long", "null"], [1, None]),
    (pa.array([1, None], pa.int64()), ["null", "string", "long"], [1, None]),
    (pa.array([1, 2], pa.int64()), "long", [1, 2]),
    (pa.array(["a", "b"]), "bytes", [b"a", b"b"]),
    (pa.array(["S", "M"]), ENUM, ["S", "M"]),
    (pa.array(["M", None]).dictionary_encode(), ["null", ENUM], ["M", None]),
    (
        pa.array([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)),
        {"type": "fixed", "name": "D", "size": 11, **DECIMAL},
        [Decimal("-1.50"), Decimal("2.25")],
    ),
    (
        pa.array([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)),
        {"type": "bytes", **DECIMAL},
        [Decimal("-1.50"), Decimal("2.25")],
    ),
    (
        pa.array([MILLIS], pa.timestamp("ms", "UTC")),
        {"type": "long", "logicalType": "timestamp-micros"},
        [MILLIS],
    ),
    (pa.array([b"ab"], pa.binary(2)), "bytes", [b"ab"]),
    (
        pa.array([bytes(16)], pa.uuid()),
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
        [bytes(16)],  # fastavro does not decode this one
    ),
]


@pytest.mark.parametrize(("array", "kind", "values"), FITS, ids=lambda one: str(one)[:40])
def test_what_loses_nothing_is_written_as_the_schema_says(
    array: pa.Array, kind: Json, values: list[Json]
) -> None:
    schema = one(kind)

    rows = encoded(pa.record_batch({"v": array}), schema)

    assert [decoded(row, schema)["v"] for row in rows] == values


UNFIT: list[tuple[pa.DataType, Json]] = [
    (pa.int64(), "int"),
    (pa.int64(), "double"),
    (pa.float64(), "float"),
    (pa.string(), ["null", "long"]),
    (pa.timestamp("us", "UTC"), {"type": "long", "logicalType": "timestamp-millis"}),
    (pa.timestamp("us"), {"type": "long", "logicalType": "timestamp-micros"}),
    (pa.timestamp("us", "UTC"), "long"),
    (pa.int64(), {"type": "long", "logicalType": "timestamp-micros"}),
    (pa.decimal128(20, 3), {"type": "bytes", **DECIMAL}),
    (pa.decimal128(30, 2), {"type": "bytes", **DECIMAL}),
    (pa.binary(3), {"type": "fixed", "name": "F", "size": 2}),
    (pa.list_(pa.int64()), {"type": "array", "items": "int"}),
    (pa.struct([("x", pa.int8())]), {"type": "map", "values": "int"}),
    (pa.map_(pa.int8(), pa.int8()), {"type": "map", "values": "int"}),
]


@pytest.mark.parametrize(("kind", "schema"), UNFIT, ids=str)
def test_what_would_lose_something_is_refused_by_name(kind: pa.DataType, schema: Json) -> None:
    with pytest.raises(IncompatibleSchema, match=r"column 'v(\[\])?' has type "):
        record_writer([pa.field("v", kind)], parse_schema(json.dumps(one(schema))), "", LIMITS)


LIMITS = Target(NAMES, MAX_TEXT_BYTES)


def test_fields_come_in_the_schemas_order_with_its_defaults() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "k", "type": "int"}]}
    schema = record(
        {"name": "b", "type": "string"},
        {"name": "new", "type": ["null", "string"], "default": None},
        {"name": "n", "type": "double", "default": 1.5},
        {"name": "in", "type": inner, "default": {"k": -70}},
        {"name": "e", "type": ENUM, "default": "M"},
        {"name": "l", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "a", "type": "long"},
    )

    rows = encoded(pa.record_batch({"a": [7], "b": ["x"]}), schema)

    assert decoded(rows[0], schema) == {
        "b": "x", "new": None, "n": 1.5, "in": {"k": -70}, "e": "M", "l": [], "a": 7
    }  # fmt: skip


FIXED = {"type": "fixed", "name": "F", "size": 2}
POINT = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 5}],
}


@pytest.mark.parametrize(
    ("schema", "default", "expected"),
    [
        (FIXED, "\u00ffb", b"\xffb"),
        (["null", "long", "double"], 1.5, 1.5),
        (["int", "string"], "5", "5"),
        (["long", "int"], 1 << 40, 1 << 40),
        ("long", -(1 << 63), -(1 << 63)),
        ("int", (1 << 31) - 1, (1 << 31) - 1),
        ("double", 3, 3.0),
        ("boolean", True, True),
        ({"type": "array", "items": "int"}, [1, -2], [1, -2]),
        (
            {"type": "map", "values": ["null", "string"]},
            {"a": "b", "c": None},
            {"a": "b", "c": None},
        ),
        (POINT, {"x": 1}, {"x": 1, "y": 5}),
    ],
)
def test_a_default_is_written_as_what_it_is(schema: Json, default: Json, expected: Json) -> None:
    given = record(
        {"name": "d", "type": schema, "default": default}, {"name": "id", "type": "long"}
    )

    rows = encoded(pa.record_batch({"id": [7]}), given)

    assert decoded(rows[0], given) == {"d": expected, "id": 7}


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        *((FIXED, text) for text in ("abc", "a", 5)),
        *(("long", one) for one in (1.5, 1 << 63, True, "1")),
        *(("int", one) for one in (1 << 31, -(1 << 31) - 1, True)),
        *(("boolean", one) for one in ("no", 1)),
        ("float", 1e39),
        ("double", 10**400),
        ("string", 1),
        ("bytes", "\u0100"),
        (["null", "int"], "x"),
        (ENUM, "unknown"),
        ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "map", "values": "int"}, []),
        (POINT, {}),
        (POINT, []),
    ],
)
def test_a_default_of_another_type_is_refused(schema: Json, default: Json) -> None:
    """Trap: they were coerced, and every field behind a fixed of another size was wrong."""
    held = parse_schema(json.dumps(record({"name": "d", "type": schema, "default": default})))

    with pytest.raises(IncompatibleSchema, match=r"the default .* of its field 'd' is no "):
        record_writer([], held, "", LIMITS)


@pytest.mark.parametrize("name", [["d"], {}, 5, None])
def test_a_name_that_is_no_text_is_refused(name: Json, golden: Golden) -> None:
    with golden.raises(IncompatibleSchema):
        parse_schema(json.dumps(record({"name": name, "type": "int"})))


def test_a_column_without_a_field_and_a_field_without_a_column_are_refused(golden: Golden) -> None:
    held = parse_schema(json.dumps(record({"name": "a", "type": "int"})))

    with golden.raises(IncompatibleSchema, match="'b'.*ReplaceField"):
        record_writer([pa.field("a", pa.int8()), pa.field("b", pa.int8())], held, "", LIMITS)
    with golden.raises(IncompatibleSchema, match="'a'"):
        record_writer([], held, "", LIMITS)


def test_a_null_that_the_schema_does_not_have_is_a_bad_record() -> None:
    with pytest.raises(CorruptRecord) as caught:
        encoded(pa.record_batch({"v": pa.array([1, None, 3], pa.int64())}), one("long"))

    assert caught.value.rows == {1: "v: null, and its schema has no null"}


def test_a_null_inside_a_null_struct_is_no_bad_record() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    array = pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))

    rows = encoded(pa.record_batch({"v": array}), one(["null", inner]))

    assert [decoded(row, one(["null", inner]))["v"] for row in rows] == [{"x": 1}, None]


def test_a_text_that_is_no_symbol_is_a_bad_record() -> None:
    with pytest.raises(CorruptRecord) as caught:
        encoded(pa.record_batch({"v": ["S", "XL"]}), one(ENUM))

    assert caught.value.rows == {1: "v: none of the symbols of Size"}


def test_names_of_a_schema_are_found_within_their_namespace() -> None:
    schema = {
        "type": "record", "name": "com.acme.Row", "fields": [
            {"name": "a", "type": {"type": "enum", "name": "Size", "symbols": ["S"]}},
            {"name": "b", "type": {"type": "array", "items": "Size"}},
            {"name": "c", "type": "com.acme.Size"},
        ],
    }  # fmt: skip

    rows = encoded(pa.record_batch({"a": ["S"], "b": [["S", "S"]], "c": ["S"]}), schema)

    assert decoded(rows[0], schema) == {"a": "S", "b": ["S", "S"], "c": "S"}


@pytest.mark.parametrize("text", ["", "[", '{"type": "record"}', '"Unknown"', "{}", "7"])
def test_a_text_that_is_no_schema_is_refused(text: str, golden: Golden) -> None:
    with golden.raises(IncompatibleSchema):
        parse_schema(text)
