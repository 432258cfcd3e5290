"""Types that a lake table can hold, and how its columns grow."""

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.errors import IncompatibleSchema, UnsupportedType
from extentflow.export.lake.lake_columns import fitted, in_parquet, in_spark, merged


@pytest.mark.parametrize(
    ("found", "held"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint32(), pa.int64()),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.large_list(pa.uint16()), pa.list_(pa.field("element", pa.int32()))),
        (pa.struct([pa.field("x", pa.int8(), nullable=False)]), pa.struct([("x", pa.int8())])),
        (pa.map_(pa.string(), pa.timestamp("ms")), pa.map_(pa.string(), pa.timestamp("us"))),
        (pa.decimal64(7, 2), pa.decimal128(7, 2)),
        (pa.binary(4), pa.binary()),
    ],
)
def test_spark_holds_the_same_values(found: pa.DataType, held: pa.DataType) -> None:
    assert in_spark(pa.schema([("a", found)])).field("a").type == held


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.float16(),
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal256(50, 2),
        pa.null(),
        pa.timestamp("ns"),
        pa.list_(pa.timestamp("ns", "UTC")),
    ],
)
def test_what_spark_cannot_hold_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match="column b: Spark cannot hold"):
        in_spark(pa.schema([("a", pa.int64()), ("b", kind)]))


def test_names_that_differ_in_case_only_are_refused_by_spark_alone() -> None:
    schema = pa.schema([("Id", pa.int64()), ("id", pa.int64())])

    assert in_parquet(schema) == schema
    with pytest.raises(UnsupportedType, match="columns id"):
        in_spark(schema)


def test_names_of_columns_that_iceberg_has_itself_are_refused_by_spark_alone(
    golden: Golden,
) -> None:
    schema = pa.schema([("_file", pa.string()), ("id", pa.int64())])

    assert in_parquet(schema) == schema
    with golden.raises(UnsupportedType, match="_file"):
        in_spark(schema)


@pytest.mark.parametrize(
    ("known", "found", "wider"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int8(), pa.int64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
    ],
)
def test_a_type_that_holds_all_values_of_the_other_stays(
    known: pa.DataType, found: pa.DataType, wider: pa.DataType
) -> None:
    merge = merged(pa.schema([("a", known)]), pa.schema([("b", found), ("a", found)]), "here")

    assert merge == pa.schema([("a", wider), ("b", found)])


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int8()), ("y", pa.int8())])),
    ],
)
def test_another_type_is_refused_with_both(
    known: pa.DataType, found: pa.DataType, golden: Golden
) -> None:
    with golden.raises(IncompatibleSchema, match="column a"):
        merged(pa.schema([("a", known)]), pa.schema([("a", found)]), "here")


def test_rows_get_nulls_and_wider_types() -> None:
    rows = pa.record_batch({"a": pa.array([1, None], pa.int8())})
    columns = pa.schema([("b", pa.string()), ("a", pa.int64())])

    assert fitted(rows, columns).to_pylist() == [{"b": None, "a": 1}, {"b": None, "a": None}]


def test_types_that_parquet_lacks_are_refused_with_their_columns(golden: Golden) -> None:
    union = pa.dense_union([pa.field("a", pa.int64())])
    columns = [("id", pa.int64()), ("span", pa.month_day_nano_interval()), ("any", pa.list_(union))]

    with golden.raises(UnsupportedType, match="column span.*column any"):
        in_parquet(pa.schema(columns))
