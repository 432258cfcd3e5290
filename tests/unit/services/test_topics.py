"""Rows of topics compared by their contents: what is missing, doubled and unexpected."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.contracts.sink import AT_LEAST_ONCE, lines

from extentflow.columnar import ENCODING, ROWS
from extentflow.errors import CorruptRecord, PositionGone
from extentflow.kafka.reading import ConsumedRecord
from extentflow.services.topics import Digests, Topics, _as_json, _key_types, comparable, rows_of
from extentflow.services.verifications import Verification, _difference
from extentflow.testing.broker import MemoryBroker


def digests(values: Sequence[bytes | None], parts: int = 3) -> Digests:
    found = Digests()
    for at in range(0, len(values), parts):
        found.add(pa.array(values[at : at + parts], pa.binary()))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_differences_are_those_of_multisets(seed: int) -> None:
    source = random.Random(seed)
    expected, found = (
        [source.choice([b"a", b"b", b"c", b"", b"d" * 100]) for _ in range(source.randrange(12))]
        for _ in range(2)
    )

    missing = (Counter(expected) - Counter(found)).total()
    unexpected = (Counter(found) - Counter(expected)).total()

    assert _difference(digests(expected), digests(found)) == (missing, unexpected)
    assert _difference(digests(expected), digests(expected[::-1])) == (0, 0)


def test_digests_are_counted_also_in_part_and_where_there_are_none() -> None:
    some = digests([b"a", b"b", b"a"])

    assert sorted(some.counted()[1].tolist()) == [1, 2]
    some.add(pa.array([b"a"], pa.binary()))
    assert sorted(some.counted()[1].tolist()) == [1, 3]
    assert len(some) == 4
    assert [len(each) for each in Digests().counted()] == [0, 0]


NAN, INF = float("nan"), float("inf")
PAIRS = pa.map_(pa.string(), pa.float32())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NAN, INF, -INF, None, 0.0, -0.0, 0.1, 1e300]),
        pa.array([NAN, INF, -INF, None, 0.5], pa.float16()),
        pa.array([[NAN], [INF], [None], [], None, [NAN, NAN]]),
        pa.array([[NAN, 1], [1, NAN], None], pa.list_(pa.float64(), 2)),
        pa.array([{"x": NAN}, {"x": None}, None, {"x": 1.0}]),
        pa.array([[("k", 1), ("k", 2)], [("k", 2), ("k", 1)], [("k", 1)], [], None], PAIRS),
        pa.array([[[(1, "a")]], [[(1, "b")]]], pa.list_(pa.map_(pa.int32(), pa.string()))),
    ],
    ids=lambda column: str(column.type),
)
def test_other_values_are_compared_as_others(column: pa.Array) -> None:
    found = comparable(pa.record_batch({"c": column})).to_pylist()

    assert len(set(found)) == len(column)


@pytest.mark.parametrize(
    ("missing", "unexpected", "equal"), [(0, 0, True), (1, 0, False), (0, 1, False)]
)
def test_rows_are_equal_where_none_is_missing_and_none_is_there_beside_them(
    missing: int, unexpected: int, *, equal: bool
) -> None:
    assert Verification("t", 1, 9, 9, missing, unexpected, 5).equal is equal


def test_rows_of_a_record_are_those_that_its_headers_state() -> None:
    def record(value: bytes | None, **headers: bytes) -> ConsumedRecord:
        return ConsumedRecord(2, 7, None, value, list(headers.items()))

    damaged = record(b"x", **{ENCODING: b"arrow", ROWS: b"many"})

    assert rows_of("t", record(b"{}")) == (1, "")
    assert rows_of("t", record(None)) == (0, "")
    with pytest.raises(CorruptRecord, match=r"topic t\[2\] offset 7"):
        rows_of("t", damaged)


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        (pa.int8(), pa.int64(), [1, -3, None]),
        (pa.int64(), pa.uint64(), [1, 2**62]),
        (pa.string(), pa.large_string(), ["a", "\u00e9", None]),
        (pa.decimal128(5, 2), pa.decimal256(60, 2), [Decimal("1.50"), Decimal("-0.01")]),
    ],
)
def test_keys_of_types_of_one_kind_are_compared_and_have_the_same_text(
    one: pa.DataType, other: pa.DataType, values: list[object]
) -> None:
    batches = [pa.record_batch({"key": pa.array(values, type_)}) for type_ in (one, other)]

    kinds = [dict(_key_types(batch.schema)) for batch in batches]

    assert kinds[0] == kinds[1] != {}
    assert _as_json(batches[0]).to_pylist() == _as_json(batches[1]).to_pylist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(5, 1)),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.int64(), pa.string()),
    ],
)
def test_keys_of_types_of_other_kinds_are_not_compared(
    one: pa.DataType, other: pa.DataType
) -> None:
    kinds = [dict(_key_types(pa.schema([("key", type_)]))) for type_ in (one, other)]

    assert kinds[0] != kinds[1]


def test_a_column_of_nulls_is_of_any_kind() -> None:
    assert dict(_key_types(pa.schema([("key", pa.null())]))) == {}


def ten_records() -> MemoryBroker:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", AT_LEAST_ONCE).open()
    sink.send(lines("topic", *(b"%d" % number for number in range(10))))
    return broker


def test_the_records_that_retention_left_are_shown_and_counted() -> None:
    broker = ten_records()
    broker.delete_records("topic", 0, 8)
    topics = Topics(broker, lambda: "group")

    assert [one.value for one in topics.tail("topic", rows=5)] == [b"8", b"9"]
    assert [one.value for one in topics.head("topic", rows=1, columns=None)] == [b"8"]
    assert topics.count("topic").records == 2


@pytest.mark.parametrize("read", ["count", "head", "tail"])
def test_records_that_are_deleted_while_they_are_read_are_an_error(read: str) -> None:
    broker = ten_records()
    calls: dict[str, Callable[[Topics], object]] = {
        "count": lambda topics: topics.count("topic"),
        "head": lambda topics: list(topics.head("topic", rows=9, columns=None)),
        "tail": lambda topics: list(topics.tail("topic", rows=9)),
    }

    class Expiring(MemoryBroker):
        def read_committed(self, topic: str) -> list[ConsumedRecord]:
            found = super().read_committed(topic)
            self.delete_records(topic, 0, 7)
            return found

    expiring = Expiring()
    expiring._log = broker._log

    with pytest.raises(PositionGone, match=r"topic\[0\]: the offsets \d to 6 were deleted"):
        calls[read](Topics(expiring, lambda: "group"))
