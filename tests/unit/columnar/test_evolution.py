"""Which schemas of columnar values may follow which, and how a log of them is read."""

import pyarrow as pa
import pytest

from extentflow.columnar.evolution import TopicSchema, conflict

ALIKE = [
    (pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint64()),
    (pa.uint16(), pa.int32()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(15, 2), pa.decimal128(20, 4)),
    (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    (pa.string(), pa.large_string()),
    (pa.null(), pa.string()),
    (pa.list_(pa.int32()), pa.large_list(pa.int64())),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
    (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])),
]
UNLIKE = [
    (pa.int64(), pa.string()),
    (pa.int64(), pa.float64()),
    (pa.uint64(), pa.int64()),
    (pa.uint32(), pa.int32()),
    (pa.decimal128(15, 2), pa.decimal128(15, 4)),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.date32(), pa.timestamp("ms")),
    (pa.string(), pa.binary()),
    (pa.list_(pa.int32()), pa.list_(pa.string())),
    (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.string())])),
    (pa.list_(pa.int32()), pa.struct([("a", pa.int32())])),
]


def columns(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=str)
def test_types_of_which_one_holds_the_other_may_follow_in_either_order(
    one: pa.DataType, other: pa.DataType
) -> None:
    assert conflict([columns(a=one)], columns(a=other)) == ""
    assert conflict([columns(a=other)], columns(a=one)) == ""


@pytest.mark.parametrize(("one", "other"), UNLIKE, ids=str)
def test_other_types_are_refused_in_either_order(one: pa.DataType, other: pa.DataType) -> None:
    assert conflict([columns(a=one)], columns(a=other)) == f"column a was {one} and is {other} now"
    assert conflict([columns(a=other)], columns(a=one)) == f"column a was {other} and is {one} now"


def test_columns_come_and_go() -> None:
    assert conflict([columns(a=pa.int64())], columns(b=pa.string())) == ""


def test_each_schema_before_counts() -> None:
    """A column that was left out for a while keeps its type."""
    before = [columns(a=pa.int64()), columns(b=pa.string())]

    assert "column a" in conflict(before, columns(a=pa.string()))


def test_a_record_states_topic_and_schema() -> None:
    found = TopicSchema("orders", columns(id=pa.int64(), at=pa.timestamp("us", "UTC")))
    key, value = found.record()

    read = TopicSchema.of(value)

    assert read == found
    assert key == f"orders:{found.identity}".encode()


@pytest.mark.parametrize(
    "value",
    [None, b"", b"[]", b"{}", b'{"topic":"t","arrow":"!"}', b'{"topic":"t","arrow":"AAAA"}'],
    ids=repr,
)
def test_other_records_are_no_schemas(value: bytes | None) -> None:
    assert TopicSchema.of(value) is None
