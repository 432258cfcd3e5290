"""Nested columns: nulls at every level, slices, hidden values, names that cannot be."""

import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.golden import Golden

from extentflow.arrays.nested import map_entries, require_unique_keys
from extentflow.converters.json_encoding import json_converter
from extentflow.errors import CorruptRecord, UnsupportedType


def texts(array: pa.Array) -> list[str]:
    """The JSON of each value."""
    batch = pa.record_batch({"v": array})
    payloads = json_converter(batch.schema)(batch).to_pylist()
    return [payload.decode().removeprefix('{"v":').removesuffix("}") for payload in payloads]


def test_a_null_struct_is_not_a_struct_of_nulls() -> None:
    kind = pa.struct({"a": pa.int64(), "b": pa.string()})
    values = [{"a": 9, "b": "x"}, None, {"a": None, "b": None}, {"a": 1, "b": '"'}]

    rows = texts(pa.array(values, kind).slice(1))

    assert rows == ["null", '{"a":null,"b":null}', '{"a":1,"b":"\\""}']


def test_structs_in_structs_are_written_in_place() -> None:
    kind = pa.struct({"a": pa.struct({"b": pa.struct({"c": pa.int8()})}), "d": pa.int8()})

    rows = texts(pa.array([{"a": {"b": {"c": 1}}, "d": 2}], kind))

    assert rows == ['{"a":{"b":{"c":1}},"d":2}']


def test_a_struct_without_members_is_an_empty_object() -> None:
    assert texts(pa.array([{}, None, {}], pa.struct([]))) == ["{}", "null", "{}"]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_a_null_list_is_not_an_empty_list(kind: object) -> None:
    assert callable(kind)
    values = [["skipped"], None, [], [None], ["a", None, '"']]

    rows = texts(pa.array(values, kind(pa.string())).slice(1))

    assert rows == ["null", "[]", "[null]", '["a",null,"\\""]']


def test_a_null_fixed_size_list_hides_its_values() -> None:
    hidden = pa.array([1, 2, 3, 4], pa.int8())
    lists = pa.FixedSizeListArray.from_arrays(hidden, 2, mask=pa.array([True, False]))

    assert texts(lists) == ["null", "[3,4]"]


def test_a_null_list_hides_its_values() -> None:
    offsets = pa.array([0, 2, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3]), mask=pa.array([True, False]))

    assert texts(lists) == ["null", "[3]"]


def test_list_views_may_overlap_and_run_backwards() -> None:
    offsets, sizes = pa.array([1, 0, 2], pa.int32()), pa.array([2, 3, 0], pa.int32())
    views = pa.ListViewArray.from_arrays(offsets, sizes, pa.array([1, 2, 3]))

    assert texts(views) == ["[2,3]", "[1,2,3]", "[]"]


def test_values_under_a_null_struct_are_not_checked() -> None:
    binary = pa.array([b"\xff", b"ok"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, binary.buffers())
    hidden = pa.StructArray.from_arrays([text], ["s"], mask=pa.array([True, False]))

    assert texts(hidden) == ["null", '{"s":"ok"}']


def test_maps_with_text_keys_are_objects() -> None:
    values = [[("x", 0)], [('a"', 1), ("b", None)], None, []]

    rows = texts(pa.array(values, pa.map_(pa.string(), pa.int64())).slice(1))

    assert rows == ['{"a\\"":1,"b":null}', "null", "{}"]


@pytest.mark.parametrize("key", [pa.large_string(), pa.string_view()])
def test_every_kind_of_text_names_members(key: pa.DataType) -> None:
    keys = pa.array(["a", "b"], key)
    maps = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2]))

    assert texts(maps) == ['{"a":1,"b":2}']


def test_dictionary_encoded_keys_name_members() -> None:
    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), keys, pa.array([1, 2, 3]))

    assert texts(maps) == ['{"a":1,"b":2}', '{"a":3}']


def test_maps_with_other_keys_are_lists_of_entries() -> None:
    values = [[(1, "a"), (2, None)], None, []]

    rows = texts(pa.array(values, pa.map_(pa.int32(), pa.string())))

    assert rows == ['[{"key":1,"value":"a"},{"key":2,"value":null}]', "null", "[]"]


def test_a_repeated_map_key_makes_a_bad_row() -> None:
    values = [[("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("a", 3)], [("a", 1)]]

    with pytest.raises(CorruptRecord) as caught:
        texts(pa.array(values, pa.map_(pa.string(), pa.int64())))

    assert caught.value.rows == {1: "v: a key is there twice"}


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", None, "a", "a", "b", "c"]),
        pa.array(["a", None, "a", "a", "b", "c"], pa.string_view()),
        pa.array(["a", None, "a", "a", "b", "c"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([0, 3, 0, 0, 1, 2], ["a", "b", "c", None]),
    ],
)
def test_a_null_key_hides_no_repeated_key(keys: pa.Array) -> None:
    entries = pa.StructArray.from_arrays(
        [keys, pa.array(range(6))],
        fields=[pa.field("key", keys.type), pa.field("value", pa.int64())],
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 5, 6], pa.int32()), entries)

    with pytest.raises(CorruptRecord) as caught:
        require_unique_keys(lists, 1 << 30)

    assert caught.value.rows == {0: "a key is null", 1: "a key is there twice"}


def test_a_key_without_a_value_hides_no_repeated_key() -> None:
    values = [[(float("nan"), 1), (1.0, 2)], [(2.0, 1), (2.0, 2)], [(2.0, 1)], [(1.0, 2)]]
    lists = map_entries(pa.array(values, pa.map_(pa.float64(), pa.int64())))

    with pytest.raises(CorruptRecord) as caught:
        require_unique_keys(
            lists,
            1 << 30,
            lambda keys: pc.if_else(pc.is_nan(keys), "null", keys.cast(pa.string())),
        )

    assert caught.value.rows == {0: "a key is null", 1: "a key is there twice"}


def test_a_dictionary_with_a_full_index_type_still_has_room_for_null() -> None:
    entries = pa.array([f"v{number}" for number in range(128)])
    indices = pa.array([127, None, 0], pa.int8())

    assert texts(pa.DictionaryArray.from_arrays(indices, entries)) == ['"v127"', "null", '"v0"']


def test_dictionaries_of_views_and_null_entries_are_read() -> None:
    entries = pa.array(["a", None], pa.string_view())
    indices = pa.array([0, 1, None, 0], pa.uint16())

    rows = texts(pa.DictionaryArray.from_arrays(indices, entries).slice(1))

    assert rows == ["null", "null", '"a"']


def test_runs_of_nested_values_are_read_from_the_middle() -> None:
    values = pa.array([[1], None, [2, 3]], pa.list_(pa.int8()))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int32()), values)

    assert texts(runs.slice(1, 4)) == ["[1]", "null", "[2,3]", "[2,3]"]


def test_extension_types_are_read_inside_other_types() -> None:
    ids = pa.array([uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes], pa.uuid())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), ids)

    assert texts(lists.slice(1)) == [f'[null,"{uuid.UUID(int=2)}"]']


def test_json_extension_columns_are_text() -> None:
    assert texts(pa.array(['{"a":1}', None], pa.json_())) == ['"{\\"a\\":1}"', "null"]


def test_few_distinct_values_read_as_many_do() -> None:
    # Few: looked up. Many: rendered. The same days, prices, numbers either way.
    days = np.arange(-3, 400, dtype=np.int32) % 7
    few = pa.array(days, mask=days == 5)
    many = pa.concat_arrays([few, pa.array([100_000], pa.int32())])
    kinds = (pa.date32(), pa.int32(), pa.decimal128(12, 2))

    for kind in kinds:
        assert texts(few.cast(kind)) == texts(many.cast(kind))[:-1]


@pytest.mark.parametrize("precision", [18, 19, 38])
def test_long_decimals_that_end_alike_stay_apart(precision: int) -> None:
    long = 10 ** (precision - 1)
    values = [Decimal(long + 1), Decimal(long + 2**64 % long + 1), Decimal(1)] * 8

    assert texts(pa.array(values, pa.decimal128(precision, 0))) == [str(value) for value in values]
    assert texts(pa.array(values[:1] * 8, pa.decimal128(precision, 0))) == [str(long + 1)] * 8


def test_an_empty_batch_gives_an_empty_array() -> None:
    nested = pa.struct({"m": pa.map_(pa.string(), pa.list_(pa.binary())), "d": pa.decimal64(3, 1)})
    kinds = [nested, pa.dictionary(pa.int8(), pa.string()), pa.timestamp("us", "UTC"), pa.uuid()]
    kinds += [pa.float16(), pa.string_view(), pa.time32("s"), pa.list_(pa.int8(), 2), pa.binary(3)]
    arrays = [pa.array([], kind) for kind in kinds]
    batch = pa.record_batch(arrays, names=[str(kind) for kind in kinds])

    payloads = json_converter(batch.schema)(batch)

    assert payloads.to_pylist() == []


def test_no_columns_are_an_empty_object() -> None:
    batch = pa.record_batch({"v": pa.array([1, 2])})

    assert json_converter(batch.schema, [])(batch).to_pylist() == [b"{}", b"{}"]


def test_chosen_columns_keep_the_requested_order() -> None:
    batch = pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"]), "c": pa.array([None])})

    payloads = json_converter(batch.schema, ["c", "a"])(batch)

    assert payloads.to_pylist() == [b'{"c":null,"a":1}']


UNSUPPORTED = {
    "union": pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    "interval": pa.month_day_nano_interval(),
    "extension": pa.fixed_shape_tensor(pa.int8(), [2, 2]),
    "opaque": pa.opaque(pa.binary(), "geometry", "some database"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
@pytest.mark.parametrize("depth", ["column", "list", "map", "dictionary", "struct"])
def test_types_without_exact_json_are_rejected_before_any_batch(kind: str, depth: str) -> None:
    inner = UNSUPPORTED[kind]
    column, path = {
        "column": (inner, "'c'"),
        "list": (pa.list_(inner), "'c[]'"),
        "map": (pa.map_(pa.string(), inner), "'c.value'"),
        "dictionary": (pa.dictionary(pa.int8(), inner), "'c'"),
        "struct": (pa.struct({"m": inner}), "'c.m'"),
    }[depth]

    with pytest.raises(UnsupportedType) as caught:
        json_converter(pa.schema({"fine": pa.int8(), "c": column}))

    assert path in str(caught.value)
    assert getattr(inner, "extension_name", str(inner)) in str(caught.value)
    assert "instead" in str(caught.value)


def test_an_unsupported_column_that_is_not_chosen_does_not_matter() -> None:
    interval = pa.nulls(1, pa.month_day_nano_interval())
    batch = pa.record_batch({"fine": pa.array([7], pa.int8()), "c": interval})

    assert json_converter(batch.schema, ["fine"])(batch).to_pylist() == [b'{"fine":7}']


def test_repeated_names_are_rejected(golden: Golden) -> None:
    columns = pa.schema([pa.field("a", pa.int8()), pa.field("a", pa.string())])
    members = pa.schema({"s": pa.struct([pa.field("m", pa.int8()), pa.field("m", pa.int8())])})

    with pytest.raises(UnsupportedType, match=r"columns are called 'a'.*rename"):
        json_converter(columns)
    with pytest.raises(UnsupportedType, match=r"columns are called 'a'.*rename"):
        json_converter(columns, ["a"])
    with golden.raises(UnsupportedType, match="'s'.*'m'"):
        json_converter(members)


def test_a_missing_column_is_rejected_with_the_existing_ones(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="'id'.*'key'.*'value'"):
        json_converter(pa.schema({"key": pa.int8(), "value": pa.int8()}), ["id"])


def test_a_batch_of_another_schema_is_rejected(golden: Golden) -> None:
    convert = json_converter(pa.schema({"a": pa.int64()}))

    with golden.raises(UnsupportedType, match="'a'.*int64"):
        convert(pa.record_batch({"a": pa.array(["1"])}))


def test_nested_columns_are_compared_by_value_not_by_layout() -> None:
    plain = pa.array([[{"k": "a"}], None, []], pa.list_(pa.struct({"k": pa.string()})))
    views = plain.cast(pa.large_list(pa.struct({"k": pa.large_string()})))

    assert texts(views) == texts(plain)
    assert texts(pc.list_slice(plain, 0, 1)) == texts(plain)


OF_UUIDS = pa.struct([("b", pa.uuid())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.uuid()),
        pa.list_(OF_UUIDS),
        pa.large_list(OF_UUIDS),
        pa.list_view(OF_UUIDS),
        pa.list_(OF_UUIDS, 1),
    ],
    ids=str,
)
def test_lists_that_are_all_null_are_written_whatever_they_would_hold(kind: pa.DataType) -> None:
    """Arrow cannot flatten them: it creates no empty array of such values."""
    batch = pa.record_batch([pa.nulls(2, kind)], names=["a"])

    values = json_converter(batch.schema)(batch)

    assert values.to_pylist() == [b'{"a":null}'] * 2
