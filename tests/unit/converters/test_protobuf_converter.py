"""The converter `protobuf`: another reader finds the values of the columns in every message."""

import datetime as dt
import itertools
import math
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.protobuf import protobuf_to_decimal
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from tests.support.golden import Golden
from tests.support.protobuf import decode, message_class
from tests.support.protobuf import plain as fields_of
from tests.support.protobuf_values import CONTEXT, DAY, LISTS, Json, member, plain, seen, split
from tests.support.registry import RegistryDouble, registry_double
from tests.unit.converters.arrow_cases import any_case

from extentflow.arrays.interleave import join_rows
from extentflow.config.registry import ProtobufOptions
from extentflow.converters import Converter, Destination, open_converter
from extentflow.converters.protobuf_converter import message_file, protobuf_converter
from extentflow.converters.protobuf_encoding import MOST_MESSAGES
from extentflow.converters.protobuf_numbers import History, UnreadableSchemaError
from extentflow.converters.row_writers import EVERY_ROW
from extentflow.errors import CorruptRecord, IncompatibleSchema, UnsupportedType

OPTIONS = ProtobufOptions(record_name="com.acme.Order")


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double(first_id=70_000) as double:
        yield double


def opened(registry: RegistryDouble, schema: pa.Schema, **changes: Any) -> Converter:  # noqa: ANN401 - any value
    options = ProtobufOptions(urls=(registry.url,), **changes)
    return open_converter("protobuf", schema, options=options, destination=Destination("orders"))


def text_of(*fields: pa.Field) -> str:
    return message_file(fields, OPTIONS, History(), 1 << 30)[0]


def read_back(batch: pa.RecordBatch) -> list[Json]:
    text, write = message_file(list(batch.schema), OPTIONS, History(), 1 << 30)
    rows = join_rows(write(batch.columns, True), batch.num_rows, 1 << 30)  # noqa: FBT003 - all rows
    kind = message_class(text)
    return [decode(kind, row) for row in rows.to_pylist()]


def beyond(kind: pa.DataType, value: Json) -> bool:  # noqa: PLR0911 - a case per kind of type
    """Whether a value has no form: years that Protocol Buffers' types do not have, equal keys."""
    first, last = dt.date(1, 1, 1).toordinal(), dt.date(9999, 12, 31).toordinal()
    epoch = dt.date(1970, 1, 1).toordinal()
    if value is None:
        return False
    if pa.types.is_date(kind):
        days = value // (DAY * 1000) if pa.types.is_date64(kind) else value
        return not first <= days + epoch <= last
    if pa.types.is_timestamp(kind):
        return not first <= split(kind, value)[0] // DAY + epoch <= last
    if pa.types.is_duration(kind):
        return bool(abs(plain(kind, value)["seconds"]) > 315_576_000_000)
    if pa.types.is_map(kind):
        keys = [key for key, _ in value]
        equal = pa.types.is_string(kind.key_type) and len(set(keys)) < len(keys)
        return equal or any(beyond(kind.item_type, item) for _, item in value)
    if pa.types.is_struct(kind):
        return any(beyond(one.type, value[one.name]) for one in kind)
    if isinstance(kind, LISTS):
        return any(beyond(kind.value_type, item) for item in value)
    return False


def has_form(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return False
    if pa.types.is_struct(kind):
        return all(one.name in "ab" and has_form(one.type) for one in kind)
    if pa.types.is_map(kind):
        return has_form(kind.item_type)
    return has_form(kind.value_type) if isinstance(kind, LISTS) else True


@given(data=st.data())
@settings(max_examples=50)
def test_every_value_reads_back_as_it_is(data: st.DataObject) -> None:
    case = data.draw(any_case().filter(lambda one: has_form(one.type)))
    nullable = data.draw(st.booleans())
    values = st.none() | case.values if nullable else case.values
    rows = data.draw(st.lists(values, min_size=1, max_size=8))
    bad = [row for row, value in enumerate(rows) if beyond(case.type, value)]
    field = pa.field("v", case.type, nullable=nullable)
    batch = pa.record_batch([pa.array(rows, case.type)], pa.schema([field]))

    if bad:
        with pytest.raises(CorruptRecord) as caught:
            read_back(batch)
        assert sorted(caught.value.rows) == bad
        return
    found = [seen(one["v"]) for one in read_back(batch)]

    assert found == [member(case.type, value, nullable=nullable) for value in rows]


def test_values_that_arrow_cannot_nest_read_back() -> None:
    ids = [uuid.UUID(int=n).bytes for n in (1, 2)]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None]))
    batch = pa.record_batch(
        {
            "id": pa.array([ids[0], None, ids[1]], pa.uuid()),
            "runs": runs,
            "flag": pa.array([1, None, 0], pa.int8()).cast(pa.bool8()),
            "kind": pa.DictionaryArray.from_arrays(
                pa.array([1, 0, None], pa.int8()), pa.array([None, "x"])
            ),
        }
    )

    assert read_back(batch) == [
        {"id": str(uuid.UUID(int=1)), "runs": "a", "flag": True, "kind": "x"},
        {"id": None, "runs": None, "flag": None, "kind": None},
        {"id": str(uuid.UUID(int=2)), "runs": None, "flag": False, "kind": None},
    ]


def test_bytes_are_those_of_googles_library() -> None:
    """Where every column may hold nulls, nothing is left to choose: packed, in numbers' order."""
    strict = pa.field("item", pa.int64(), nullable=False)
    batch = pa.record_batch(
        {
            "flag": [True, False, None],
            "small": pa.array([-1, 0, 127], pa.int8()),
            "wide": [-(2**63), 2**63 - 1, None],
            "unsigned": pa.array([2**64 - 1, 0, 128], pa.uint64()),
            "ratio": [-0.0, math.inf, None],
            "single": pa.array([1.5, -math.inf, 0.0], pa.float32()),
            "text": ["x" * 127, "é" * 5_000, ""],
            "data": [b"", b"\0" * 128, None],
            "packed": pa.array([[1, -1, 300], [], None], pa.list_(strict)),
            "texts": pa.array([["a"], [None, "b" * 200], None], pa.list_(pa.string())),
            "at": pa.array([0, -1, 253_402_300_799], pa.timestamp("s", "UTC")),
            "local": pa.array([0, -1, None], pa.timestamp("ns")),
            "day": pa.array([0, -719_162, 2_932_896], pa.date32()),
            "time": pa.array([0, 86_399_999, None], pa.time32("ms")),
            "span": pa.array([-1, 1_500, None], pa.duration("ms")),
            "inner": [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
            "kind": pa.array(["a", None, "b"]).dictionary_encode(),
        }
    )
    text, write = message_file(list(batch.schema), OPTIONS, History(), 1 << 30)
    kind = message_class(text)

    rows = join_rows(write(batch.columns, EVERY_ROW), 3, 1 << 30).to_pylist()

    assert [kind.FromString(row).SerializeToString(deterministic=True) for row in rows] == rows


@pytest.mark.parametrize("digits", [0, 1, -1, 127, 128, -128, -129, 10**37, -(10**37), 10**38 - 1])
@pytest.mark.parametrize(
    "kind", [pa.decimal128(38, 4), pa.decimal256(76, 0), pa.decimal256(40, -3)]
)
def test_decimals_are_those_of_confluents_client(digits: int, kind: pa.DataType) -> None:
    value = Decimal(digits).scaleb(-kind.scale, CONTEXT)
    batch = pa.record_batch({"v": pa.array([value], kind)})
    text, write = message_file(list(batch.schema), OPTIONS, History(), 1 << 30)
    (row,) = join_rows(write(batch.columns, EVERY_ROW), 1, 1 << 30).to_pylist()

    found = protobuf_to_decimal(message_class(text).FromString(row).v)

    assert (found, found.as_tuple().exponent) == (value, -max(0, kind.scale))


@pytest.mark.parametrize("levels", [1, 45, 98])
def test_nested_values_are_read_to_the_depth_that_is_allowed(levels: int) -> None:
    kind = pa.struct([("at", pa.timestamp("s", "UTC"))])
    value: Json = {"at": 1}
    for _ in range(levels - 1):
        kind, value = pa.struct([("v", kind)]), {"v": value}
    batch = pa.record_batch([pa.array([value], kind)], ["v"])

    assert str(read_back(batch)).count("{") == levels + 2


def test_deeper_values_are_refused_by_name() -> None:
    kind = pa.struct([("at", pa.timestamp("s", "UTC"))])
    for _ in range(MOST_MESSAGES):
        kind = pa.struct([("v", kind)])

    with pytest.raises(UnsupportedType, match=r"column 'v\.v.*flatten it"):
        text_of(pa.field("v", kind))


# -- the declaration ------------------------------------------------------------------------------


def test_columns_are_fields_in_their_order(golden: Golden) -> None:
    strict = pa.field("item", pa.int32(), nullable=False)
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("numbers", pa.list_(strict), nullable=False),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
                 nullable=False),
        pa.field("address", pa.struct([("street", pa.string())])),
    ]  # fmt: skip

    golden(text_of(*fields))


def test_messages_get_names_that_no_field_has() -> None:
    text = text_of(pa.field("Tags", pa.struct([("x", pa.int8())])), pa.field("n", pa.int8()))

    assert "message Tags_ {" in text
    assert "Tags_ Tags = 1;" in text


def test_messages_of_maps_get_names_that_no_other_has() -> None:
    counts = pa.field("tags", pa.map_(pa.string(), pa.int8()), nullable=False)
    other = pa.field("tags_entry", pa.struct([("x", pa.int8())]))
    batch = pa.record_batch(
        [pa.array([{"x": 1}], other.type), pa.array([[("k", 2)]], counts.type)],
        pa.schema([other, counts]),
    )

    assert read_back(batch) == [{"tags_entry": {"x": 1}, "tags": {"k": {"value": 2}}}]


def test_no_message_is_called_like_one_around_it() -> None:
    inner = pa.struct([("order", pa.struct([("x", pa.int8())]))])

    text = text_of(pa.field("order", inner), pa.field("l", pa.list_(pa.list_(pa.int8()))))

    assert "message Order_ {\n    message Order__ {" in text
    assert text.count("message Items {") == 1


@pytest.mark.parametrize("name", ["google.Order", "io.confluent.acme.Order", "google", "Order"])
def test_types_of_other_files_are_found_from_any_package(name: str) -> None:
    fields = [pa.field("v", pa.decimal128(5)), pa.field("d", pa.date32())]

    text, _ = message_file(fields, ProtobufOptions(record_name=name), History(), 1 << 30)

    assert message_class(text).DESCRIPTOR.fields_by_name["d"].message_type.full_name == (
        "google.type.Date"
    )


def test_names_are_scrubbed_as_by_connect(golden: Golden) -> None:
    options = ProtobufOptions(scrub=True)
    fields = [pa.field(name, pa.int8()) for name in ("_id", "a b", "1", "total %")]

    text, _ = message_file(fields, options, History(), 1 << 30)

    for at, name in enumerate(("x_id", "a_b", "x1", "total__25"), 1):
        assert f"optional int32 {name} = {at};" in text
    with golden.raises(UnsupportedType, match="'a_b'"):
        message_file([pa.field(one, pa.int8()) for one in ("a b", "a_b")], options, History(), 9)


def test_decimals_without_an_exact_form_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedType, match=r"column 'v'.*more than 76 digits"):
        text_of(pa.field("v", pa.decimal256(76, -1)))


@pytest.mark.parametrize("name", ["", "1a", "a-b", "é", "_a", "a b"])
def test_names_that_fields_cannot_have_are_refused(name: str, golden: Golden) -> None:
    with golden.raises(UnsupportedType):
        text_of(pa.field(name, pa.int8()))


@pytest.mark.parametrize("other", ["orderId", "order__id", "ORDER_ID"])
def test_fields_with_one_name_in_json_are_refused(other: str, golden: Golden) -> None:
    with golden.raises(UnsupportedType):
        text_of(pa.field("order_id", pa.int8()), pa.field(other, pa.int8()))


@pytest.mark.parametrize("kind", [pa.null(), pa.month_day_nano_interval()])
def test_types_without_a_form_are_refused_by_name(kind: pa.DataType, golden: Golden) -> None:
    with golden.raises(UnsupportedType, match=r"'s\.v'"):
        text_of(pa.field("s", pa.struct([("v", kind)])))


# -- numbers stay ---------------------------------------------------------------------------------


def numbered(names: str, *earlier: str) -> dict[str, int]:
    """Return the number of each column after schemas with those names, the newest first."""
    return dict(zip(names, History.read(earlier).numbers(list(names)), strict=True))


def of(names: str, *earlier: str) -> str:
    """Return the file of columns called like letters."""
    fields = [pa.field(name, pa.int8()) for name in names]
    return message_file(fields, OPTIONS, History.read(earlier), 1 << 30)[0]


def test_columns_keep_numbers_wherever_they_are() -> None:
    assert numbered("cab", of("abc")) == {"a": 1, "b": 2, "c": 3}
    assert of("cab", of("abc")) == of("abc")


def test_a_new_column_has_a_number_that_none_had_before() -> None:
    first = of("abc")
    second = of("ac", first)

    assert numbered("xac", second, first) == {"x": 4, "a": 1, "c": 3}


def test_a_column_that_comes_back_has_its_number() -> None:
    versions = [of("abc")]
    versions.insert(0, of("ax", *versions))

    assert numbered("ba", *versions) == {"b": 2, "a": 1}


def test_what_is_gone_is_reserved(golden: Golden) -> None:
    first = of("abcd")
    second = of("ax", first)
    third = of("bxy", second, first)

    golden(second)
    assert '"b"' in second
    golden(third)
    assert '"a"' in third
    for text in (first, second, third):
        assert message_class(text)
    assert numbered("z", third) == {"z": 7}


@given(
    spans=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9))),
    numbers=st.sets(st.integers(1, 50)),
)
def test_reserved_numbers_are_those_that_no_field_has(
    spans: list[tuple[int, int]], numbers: set[int]
) -> None:
    ranges = [(first, first + length) for first, length in spans]
    text = "".join(f"reserved {first} to {end};" for first, end in ranges)

    made = History.read([f"message A {{ {text} }}"]).reserved(numbers)

    found = [number for part in made.split(", ") if part for number in span(part)]
    assert found == sorted({*itertools.chain(*(range(a, b + 1) for a, b in ranges))} - numbers)


def span(part: str) -> range:
    first, _, end = part.partition(" to ")
    return range(int(first), int(end or first) + 1)


def test_of_two_names_of_one_number_the_newer_keeps_it() -> None:
    assert numbered("ab", of("b"), of("a")) == {"a": 2, "b": 1}


def test_members_keep_numbers_at_any_depth() -> None:
    def order(*names: str) -> pa.Field:
        inner = pa.struct([(name, pa.int8()) for name in names])
        return pa.field("lines", pa.list_(pa.map_(pa.string(), inner)))

    first = text_of(order("a", "b"))
    second = message_file([order("c", "b")], OPTIONS, History.read([first]), 1 << 30)[0]

    assert "optional int32 b = 2;" in second
    assert "optional int32 c = 3;" in second


FOREIGN = """
// message Other { int32 a = 1; }
syntax = 'proto3'; package com.acme; import "x}.proto";
option java_package = "com.acme{";  /* } */
message Order {
  reserved 9 to 11, 13; reserved "old", "a,1";
  extensions 15 to 18;
  option (acme.opt) = { a: 1; b: [2] };
  enum Kind { NONE = 0; a = 7; }
  oneof one { string b = 2 [(x) = {c: 3}, json_name = "];"]; int32 c = 0x3; }
  .com.acme.Order.Line line = 8;
  map<string, Order.Line> by_name = 4;
  message Line { repeated int32 q = 5 [packed=true]; }
  optional group Part = 6 { optional int32 w = 2; }
}
message Other { int32 c = 1; int32 z = 99; }
"""


def test_schemas_of_others_are_read() -> None:
    history = History.read([FOREIGN])

    assert numbered("bcd", FOREIGN) == {"b": 2, "c": 3, "d": 12}
    assert numbered("abcdefg", FOREIGN)["e"] == 19
    for column, known in (("line", {"q": 5}), ("by_name", {"q": 5}), ("part", {"w": 2})):
        assert dict(zip("qw", history.member(column).numbers(["q", "w"]), strict=True)).items() >= (
            known.items()
        )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "CgtvcmRlci5wcm90bw==",
        '{"type": "record"}',
        "message A { int32 a = 1;",
        "message A { int32 a = 1 }",
        "message A { int32 a = 1; } }",
        "message A { int32 a = 0; }",
        "message A { int32 a = 536870912; }",
        "message A { int32 a = x; }",
        "message A { int32 a = 1 [x; }",
        "message A {" * 300,
        "/*" * 1_000_000,
        '"' * 1_000_000,
        "message A { " + "a.b." * 500_000 + " x = 1; }}",
        "\0\ud7ff\u2028",
    ],
)
def test_what_is_no_schema_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(UnreadableSchemaError):
        History.read([text])


@given(text=st.text(st.sampled_from("{};[]=\"/*\\\n 'm1<>,.") | st.characters(), max_size=60))
def test_hostile_texts_are_read_or_refused(text: str) -> None:
    for one in (text, f"message A {{ {text} }}", f"message A {{ int32 a = 1; }} {text}"):
        try:
            assert len(set(History.read([one]).numbers(["a", "b"]))) == 2
        except UnreadableSchemaError:
            continue


def test_a_schema_that_leaves_no_number_is_refused() -> None:
    with pytest.raises(UnreadableSchemaError, match="no number"):
        numbered("b", "message A { int32 a = 536870911; }")
    with pytest.raises(UnreadableSchemaError, match="no number"):
        numbered("b", "message A { int32 a = 1; reserved 2 to max; }")
    assert numbered("b", "message A { int32 a = 18999; }") == {"b": 20_000}


def test_the_converter_keeps_numbers(registry: RegistryDouble) -> None:
    first = pa.record_batch({"a": [1], "b": [2]})
    second = pa.record_batch({"c": [3], "b": [2]})
    opened(registry, first.schema)(first)

    (payload,) = opened(registry, second.schema)(second).to_pylist()

    assert payload[6:] == b"\x10\2\x18\3"
    newest = registry.subjects["orders-value"][-1]
    assert decode(message_class(newest), payload[6:]) == {"b": 2, "c": 3}
    assert opened(registry, first.schema)(first).to_pylist()[0][6:] == b"\x08\1\x10\2"
    third = pa.record_batch({"d": [4], "b": [2]})
    assert opened(registry, third.schema)(third).to_pylist()[0][6:] == b"\x10\2\x20\4"
    assert opened(registry, second.schema)(second).to_pylist() == [payload]
    assert len(registry.subjects["orders-value"]) == 3


def test_a_subject_whose_schemas_cannot_be_read_is_refused(
    registry: RegistryDouble, golden: Golden
) -> None:
    registry.add("orders-value", "message Order {", "PROTOBUF")

    with golden.raises(IncompatibleSchema, match="subject orders-value"):
        opened(registry, pa.schema([("a", pa.int8())]))


# -- records --------------------------------------------------------------------------------------


def test_records_have_confluents_wire_format(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"id": [1, -2], "name": ["é", None]})

    payloads = opened(registry, batch.schema)(batch).to_pylist()

    (text,) = registry.subjects["orders-value"]
    assert registry.kinds[text] == "PROTOBUF"
    assert payloads[0] == b"\0\0\1\x11\x70\0\x08\1\x12\2\xc3\xa9"
    assert decode(message_class(text), payloads[1][6:]) == {"id": -2, "name": None}


def test_confluents_deserializer_reads_the_records(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"id": [1, -2], "name": ["é", None], "l": [[1, None], None]})

    payloads = opened(registry, batch.schema)(batch).to_pylist()

    (text,) = registry.subjects["orders-value"]
    read = ProtobufDeserializer(message_class(text), {"use.deprecated.format": False})
    context = SerializationContext("orders", MessageField.VALUE)
    assert [fields_of(read(payload, context)) for payload in payloads] == [
        {"id": 1, "name": "é", "l": {"items": [{"value": 1}, {"value": None}]}},
        {"id": -2, "name": None, "l": None},
    ]


def test_a_null_where_none_may_be_is_a_bad_record(registry: RegistryDouble) -> None:
    schema = pa.schema([pa.field("id", pa.int8(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int8())], schema=schema)

    with pytest.raises(CorruptRecord) as caught:
        opened(registry, schema)(batch)
    assert caught.value.rows == {1: "id: null, and its column has no null"}


def test_a_batch_beyond_32_bit_offsets_is_converted_in_halves(registry: RegistryDouble) -> None:
    batch = pa.record_batch({"v": ["x" * 40] * 64, "l": [["y" * 9]] * 64})
    options = ProtobufOptions(urls=(registry.url,))

    small = protobuf_converter(
        batch.schema, None, options, Destination("orders"), limit_bytes=2_000
    )

    assert small(batch).to_pylist() == opened(registry, batch.schema)(batch).to_pylist()
    assert pa.types.is_large_binary(small(batch).type)
