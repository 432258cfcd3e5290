"""Records of many rows: their rows, topics, partitions and headers, and parts of their chunks."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.columnar import BatchFacts
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import decode
from extentflow.config.columnar import GROUPS
from extentflow.delivery.columnvalues import ColumnValues, RowBatch
from extentflow.delivery.converted import ConvertedChunk
from extentflow.errors import CorruptRecord, Misconfigured, UnsupportedType
from extentflow.model import Extent, ObjectVersion
from extentflow.testing.broker import java_partition

VERSION = ObjectVersion("shop", "in/ä.csv", "v7", "etag", 10_000)
EXTENT = Extent("job", 3, "c", VERSION, 100, 9_000, "csv")
SETTINGS = ColumnValues(
    encoding="arrow",
    compression="none",
    batch_bytes=2048,
    groups=(),
    limit_bytes=8192,
    partitions=lambda _topic: 4,
)
IN_GROUPS = replace(SETTINGS, groups=GROUPS.read("ids: id; all: text, id"))


@dataclass(frozen=True)
class Sent:
    """One record of a batch, read as a consumer does."""

    topic: str
    partition: int
    facts: BatchFacts
    rows: list[dict[str, Any]]
    headers: dict[str, bytes | None]

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows]


def rows_of(count: int, **more: Any) -> RowBatch:  # noqa: ANN401 - fields of RowBatch
    """Return rows whose ids are their ordinals, and whose locations have gaps."""
    columns = pa.record_batch(
        {
            "id": pa.array(range(count)),
            "text": pa.array([f"text {row}" * 5 for row in range(count)]),
        }
    )
    locations = [1000 + 10 * row + row // 7 for row in range(count)]
    return RowBatch(columns=columns, locations=locations, topic="t", **more)


def chunk_of(rows: RowBatch, settings: ColumnValues = SETTINGS) -> ConvertedChunk:
    bound = settings.bind(rows.columns.schema, EXTENT, "offset", "t")
    records, topics, cuts = bound(rows)
    return ConvertedChunk(records, rows.locations, (), 9_000, topics=topics, cuts=cuts)


def sent_in(chunk: ConvertedChunk) -> list[Sent]:
    """Return the records of a chunk in the order in which they are sent."""
    records, found = chunk.records, []
    assert records.headers is not None
    assert records.partitions is not None
    for at, value in enumerate(records.values.to_pylist()):
        headers = records.headers[at]
        facts = BatchFacts.of(headers)
        assert facts is not None
        topic = records.topic if chunk.topics is None else chunk.topics[at].as_py()
        place = records.partitions[at].as_py()
        rows = decode(value, facts)
        assert facts.schema == identity(rows.schema)
        found.append(Sent(topic, place, facts, rows.to_pylist(), dict(headers)))
    return found


def sent(rows: RowBatch, settings: ColumnValues = SETTINGS) -> list[Sent]:
    return sent_in(chunk_of(rows, settings))


def ids_by_place(records: Sequence[Sent]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in records:
        found[one.topic, one.partition] += one.ids
    return dict(found)


def random_keys(count: int, seed: int = 0) -> list[bytes | None]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.randrange(9)) if rng.random() > 0.1 else None for _ in range(count)]


# -- which rows are in which record ----------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_rows_without_keys_are_in_consecutive_batches_with_their_ends(encoding: str) -> None:
    rows = rows_of(500)

    chunk = chunk_of(rows, replace(SETTINGS, encoding=encoding))

    found = sent_in(chunk)
    assert len(found) > 3
    assert [row for one in found for row in one.rows] == rows.columns.to_pylist()
    ends = [0]
    for one in found:
        ends.append(ends[-1] + len(one.rows))
    assert chunk.cuts == list(enumerate(ends))[1:]
    assert chunk.topics is None


@pytest.mark.parametrize("partition", [-1, 3])
def test_records_have_the_partition_of_their_rows(partition: int) -> None:
    found = sent(rows_of(100, partition=partition))

    assert {one.partition for one in found} == {partition}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_every_row_is_in_the_partition_of_its_key_in_order(kind: pa.DataType) -> None:
    keys = random_keys(400)

    found = sent(rows_of(400, keys=pa.array(keys, kind)))

    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        expected["t", -1 if key is None else java_partition(key, 4)].append(row)
    assert ids_by_place(found) == expected


def test_rows_without_a_key_are_in_the_partition_of_the_object_where_it_has_one() -> None:
    keys = pa.array([b"a", None, b"b", None], pa.binary())

    found = ids_by_place(sent(rows_of(4, keys=keys, partition=2)))

    keyed = {("t", java_partition(key, 4)) for key in (b"a", b"b")}
    assert set(found) == {("t", 2), *keyed}
    assert {1, 3} <= set(found["t", 2])


def test_partitions_of_rows_come_before_their_keys() -> None:
    places = pa.array([3, -1, 0, -1], pa.int32())
    keys = pa.array([b"x", b"x", b"x", None], pa.binary())

    found = ids_by_place(sent(rows_of(4, keys=keys, partitions=places)))

    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, place in enumerate([3, java_partition(b"x", 4), 0, -1]):
        expected["t", place].append(row)
    assert found == expected


def test_rows_go_to_their_own_topics_and_else_to_that_of_the_object() -> None:
    chunk = chunk_of(rows_of(6, topics=pa.array(["u", None, "v", "u", "t", None])))

    assert ids_by_place(sent_in(chunk)) == {("u", -1): [0, 3], ("t", -1): [1, 4, 5], ("v", -1): [2]}
    by_topic = {records.topic: places for records, places in chunk.by_topic()}
    assert {topic: len(places) for topic, places in by_topic.items()} == {"u": 1, "t": 1, "v": 1}


def test_keys_choose_among_the_partitions_of_the_row_s_topic() -> None:
    keys, topics = random_keys(300), random.Random(1).choices(["u", "v", "t"], k=300)
    counts = {"t": 1, "u": 3, "v": 50}
    settings = replace(SETTINGS, partitions=counts.__getitem__)

    found = sent(rows_of(300, keys=pa.array(keys), topics=pa.array(topics)), settings)

    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, (key, topic) in enumerate(zip(keys, topics, strict=True)):
        place = -1 if key is None else java_partition(key, counts[topic])
        expected[topic, place].append(row)
    assert ids_by_place(found) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"keys": pa.array(random_keys(300))},
        {"topics": pa.array(["u", "t", None] * 100)},
        {"partitions": pa.array([0, 1, -1] * 100, pa.int32())},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_chunk_whose_rows_are_divided_ends_only_as_a_whole(more: dict[str, pa.Array]) -> None:
    chunk = chunk_of(rows_of(300, **more))

    assert len(chunk.records.values) > 3
    assert chunk.cuts == [(len(chunk.records.values), 300)]
    assert list(chunk.split(1)) == [chunk]


@pytest.mark.parametrize("more", [{}, {"keys": pa.array([], pa.binary())}], ids=["", "keys"])
def test_no_rows_make_no_records(more: dict[str, pa.Array]) -> None:
    chunk = chunk_of(rows_of(0, timestamp=5, **more))

    assert sent_in(chunk) == []
    assert chunk.cuts == []


# -- groups of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"partition": 2},
        {"keys": pa.array(random_keys(300))},
        {"topics": pa.array(["u", "t", None] * 100)},
        {"partitions": pa.array([0, 1, -1] * 100, pa.int32())},
    ],
    ids=lambda more: next(iter(more), ""),
)
def test_each_group_has_every_batch_in_the_same_partition(more: dict[str, Any]) -> None:
    found = sent(rows_of(300, **more), IN_GROUPS)

    ids, whole = ([one for one in found if one.facts.group == name] for name in ("ids", "all"))
    assert len(ids) + len(whole) == len(found) > 6
    assert sorted(row for one in ids for row in one.ids) == list(range(300))
    for one, other in zip(ids, whole, strict=True):
        assert one.partition == other.partition >= 0
        assert one.ids == other.ids
        assert replace(one.facts, group="", schema="") == replace(other.facts, group="", schema="")
        assert one.topic.removesuffix(".ids") == other.topic.removesuffix(".all")
        assert [list(each) for each in (one.rows[0], other.rows[0])] == [["id"], ["text", "id"]]
    assert len({one.facts.batch for one in ids}) == len(ids)


def test_batches_of_groups_are_spread_over_the_partitions() -> None:
    places = {one.partition for one in sent(rows_of(3_000), IN_GROUPS)}

    assert places == {0, 1, 2, 3}


def test_the_same_rows_have_the_same_batches_again() -> None:
    first, again = (chunk_of(rows_of(300), IN_GROUPS) for _ in range(2))

    assert sent_in(first) == sent_in(again)


@pytest.mark.parametrize("more", [{}, {"keys": pa.array([b"a", b"b"])}], ids=["", "keys"])
def test_topics_of_groups_need_the_same_number_of_partitions(
    more: dict[str, pa.Array], golden: Golden
) -> None:
    settings = replace(IN_GROUPS, partitions={"t.ids": 4, "t.all": 5}.__getitem__)

    with golden.raises(Misconfigured, match=r"t\.ids.*t\.all"):
        sent(rows_of(2, **more), settings)


def test_columns_of_no_group_are_reported_before_the_first_row() -> None:
    with pytest.raises(UnsupportedType, match="no group has text"):
        replace(SETTINGS, groups=GROUPS.read("ids: id")).bind(
            rows_of(1).columns.schema, EXTENT, "offset", "t"
        )


# -- headers, timestamps, facts --------------------------------------------------------------------


def test_every_record_has_the_headers_and_the_timestamp_of_the_object() -> None:
    shared = (("file", b"in/a.csv"), ("none", None))

    chunk = chunk_of(rows_of(300, headers=shared, timestamp=1_700_000_000_000), IN_GROUPS)

    found = sent_in(chunk)
    assert {(one.headers["file"], one.headers["none"]) for one in found} == {(b"in/a.csv", None)}
    assert chunk.records.timestamps is not None
    assert chunk.records.timestamps.to_pylist() == [1_700_000_000_000] * len(found)


def test_records_without_a_timestamp_leave_it_to_the_client() -> None:
    assert chunk_of(rows_of(10)).records.timestamps is None


@pytest.mark.parametrize("more", [{}, {"keys": pa.array(random_keys(300))}], ids=["", "keys"])
def test_facts_state_where_the_rows_come_from(more: dict[str, pa.Array]) -> None:
    rows = rows_of(300, **more)

    for one in sent(rows):
        first, last = (int(rows.locations[one.ids[at]]) for at in (0, -1))
        assert one.facts == BatchFacts(
            encoding="arrow",
            rows=len(one.rows),
            schema=one.facts.schema,
            batch=f"job-3-{first}",
            object="s3://shop/in/ä.csv",
            version="v7",
            extent="100-9000",
            first=first,
            last=last,
            unit="offset",
        )


def test_an_object_without_a_version_is_identified_by_its_etag() -> None:
    extent = replace(EXTENT, version=replace(VERSION, version_id=None))
    rows = rows_of(3)

    records, _, _ = SETTINGS.bind(rows.columns.schema, extent, "row", "t")(rows)

    assert records.headers is not None
    facts = BatchFacts.of(records.headers[0])
    assert facts is not None
    assert (facts.object, facts.version, facts.unit) == ("s3://shop/in/ä.csv", "etag", "row")


# -- rows that fit into no value -------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"keys": pa.array(random_keys(60))},
        {"topics": pa.array(["u", "t", None] * 20)},
        {"partitions": pa.array([2, 1, -1] * 20, pa.int32())},
    ],
    ids=lambda more: next(iter(more), ""),
)
def test_rows_above_the_limit_are_reported_by_their_ordinals(more: dict[str, pa.Array]) -> None:
    rows = rows_of(60, **more)
    texts = ["x" * 20_000 if row in {4, 31, 59} else "" for row in range(60)]
    columns = pa.record_batch({"id": rows.columns.column("id"), "text": pa.array(texts)})

    with pytest.raises(CorruptRecord, match="value is above the") as caught:
        sent(replace(rows, columns=columns))

    assert sorted(caught.value.rows) == [4, 31, 59]


def test_values_leave_room_for_headers_within_the_limit_of_the_topic() -> None:
    shared = (("file", b"f" * 3000),)

    chunk = chunk_of(rows_of(500, headers=shared), replace(SETTINGS, batch_bytes=1 << 20))

    assert chunk.records.headers is not None
    for value, headers in zip(chunk.records.values.to_pylist(), chunk.records.headers, strict=True):
        size = len(value) + sum(len(name) + len(text or b"") for name, text in headers)
        assert 4000 < size < 8192
