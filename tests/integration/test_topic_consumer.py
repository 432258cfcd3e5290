"""Rows of topics through a consumer group: each one once, however its members come and go."""

import json
import random
import threading
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.conftest import MakeTopic
from tests.support.columnar_topics import Reading, Topics, Value, columnar, rows_of
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.consumer import TopicConsumer
from extentflow.errors import CorruptRecord, Fenced, PositionGone
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.stack import Stack

PARTITIONS = 3
ROWS = 600


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    return Topics(bootstrap_servers)


def batches_of(source: random.Random, encoding: str = "arrow") -> list[Value]:
    """Return ROWS rows in batches of different sizes, in random partitions."""
    found, at = [], 0
    while at < ROWS:
        end = min(ROWS, at + source.randrange(1, 60))
        rows = rows_of(at, end)
        found.append(columnar(rows, source.randrange(PARTITIONS), encoding=encoding))
        at = end
    return found


@pytest.fixture
def read(topics: Topics, make_topic: MakeTopic, unique: str) -> Reading:
    """A topic of columnar values."""
    topic = make_topic("columnar", partitions=PARTITIONS)
    topics.write({topic: batches_of(random.Random(1))})
    return Reading(topics, unique, topic)


@pytest.fixture
def grouped(topics: Topics, make_topic: MakeTopic, unique: str) -> Reading:
    """Topics of two column groups, whose batches stand in different orders."""
    names = [make_topic(label, partitions=PARTITIONS) for label in ("first", "second")]
    source = random.Random(2)
    whole = [rows_of(at, at + 20) for at in range(0, ROWS, 20)]
    place = {rows.column("id")[0].as_py(): source.randrange(PARTITIONS) for rows in whole}
    values: dict[str, list[Value]] = {}
    for name, columns in zip(names, (["id"], ["text", "copy"]), strict=True):
        order = sorted(range(len(whole)), key=lambda one: one + source.uniform(0, 5))
        values[name] = []
        for number in order:
            rows = whole[number].append_column("copy", whole[number].column("id"))
            own = rows.select(columns)
            first = number * 20
            values[name].append(columnar(own, place[first], batch=f"batch-{first}"))
    topics.write(values)
    return Reading(topics, unique, *names)


def check_joined(rows: list[dict[str, Any]]) -> None:
    assert all(row["text"] == f"row {row['id']}" and row["copy"] == row["id"] for row in rows)


# -- all rows, once -------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["arrow", "parquet"])
def test_until_the_end_each_row_is_yielded_once(
    topics: Topics, make_topic: MakeTopic, unique: str, encoding: str
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    values = batches_of(random.Random(3), encoding)
    topics.write({topic: values})

    found = Reading(topics, unique, topic).batches()

    assert sorted(n for one in found for n in one.rows.column("id").to_pylist()) == [*range(ROWS)]
    assert all(one.rows.schema.equals(rows_of(0, 1).schema) for one in found)
    for partition in range(PARTITIONS):
        own = [one for one in found if one.partition == partition]
        assert [one.offset for one in own] == sorted(one.offset for one in own)
        assert len(own) == sum(value.partition == partition for value in values)


def test_an_empty_topic_ends_immediately(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    assert Reading(topics, unique, make_topic()).ids() == []


def test_aborted_transactions_are_invisible(read: Reading) -> None:
    (topic,) = read.names
    read.topics.write({topic: [columnar(rows_of(9000, 9010), 0)]}, abort=True)
    read.topics.write({topic: [columnar(rows_of(ROWS, ROWS + 3), 0)]})

    assert sorted(read.ids()) == [*range(ROWS + 3)]


def test_only_columns_that_are_asked_for_are_yielded(read: Reading, grouped: Reading) -> None:
    with read.member(columns=["text"]) as consumer:
        assert next(consumer.rows()).keys() == {"text"}
    with grouped.member(columns=["copy", "id"]) as consumer:
        rows = list(consumer.rows(until_end=True))
    assert [*rows[0]] == ["copy", "id"]
    assert sorted(row["copy"] for row in rows) == [*range(ROWS)]


# Types: unit/consumer/test_data_frames.py, which says why pandas is not installed.
@pytest.mark.parametrize("package", ["polars", "pandas"])
def test_frames_have_the_rows(read: Reading, package: str) -> None:
    pytest.importorskip(package)
    with read.member() as consumer:
        frames = list(getattr(consumer, package)(until_end=True))

    assert sorted(n for frame in frames for n in frame["id"]) == [*range(ROWS)]


# -- positions ------------------------------------------------------------------------------------


def test_the_next_member_continues_in_the_middle_of_a_batch(read: Reading) -> None:
    with read.member() as consumer:
        first = [row["id"] for row in islice(consumer.rows(), 65)]
        consumer.commit()
    metadata = read.topics.committed(read.group, read.names[0], PARTITIONS).values()

    assert any('"row"' in text for _, text in metadata)
    assert sorted(first + read.ids()) == [*range(ROWS)]


def test_what_a_caller_states_to_have_handled_is_committed(read: Reading) -> None:
    with read.member() as consumer:
        batch = next(one for one in consumer.batches() if one.rows.num_rows > 5)
        consumer.handled(batch, 5)
        consumer.commit()
    place = read.topics.committed(read.group, read.names[0], PARTITIONS)[batch.partition]

    assert place[0] == batch.offset
    assert json.loads(place[1]) == {"row": 5, "topic": read.topics.id_of(read.names[0])}


def test_the_next_member_continues_in_the_middle_of_a_joined_batch(grouped: Reading) -> None:
    with grouped.member() as consumer:
        rows = list(islice(consumer.rows(), 47))
        consumer.commit()
    with grouped.member() as consumer:
        rows += consumer.rows(until_end=True)

    assert sorted(row["id"] for row in rows) == [*range(ROWS)]
    check_joined(rows)


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("joined", 6),
        *(pytest.param(kind, 6, marks=pytest.mark.variant) for kind in ("columnar", "json")),
        pytest.param("joined", 30, marks=pytest.mark.long),
        *(pytest.param(kind, 30, marks=pytest.mark.soak) for kind in ("columnar", "json")),
    ],
)
def test_each_row_is_read_once_by_members_that_come_and_go(
    request: pytest.FixtureRequest, kind: str, members: int
) -> None:
    name = {"columnar": "read", "joined": "grouped", "json": "json_values"}[kind]
    reading: Reading = request.getfixturevalue(name)
    source, taken = random.Random(members), list[dict[str, Any]]()

    for _ in range(members):
        pending: list[dict[str, Any]] = []
        with reading.member() as consumer:
            for row in islice(consumer.rows(until_end=True), source.randrange(800 // members)):
                pending.append(row)
                if source.random() < 0.05:
                    consumer.commit()
                    taken += pending
                    pending = []
            if source.random() < 0.7:  # otherwise it crashes: what was not committed is read again
                consumer.commit()
                taken += pending
    with reading.member() as consumer:
        taken += consumer.rows(until_end=True)
        consumer.commit()

    assert Counter(row["id"] for row in taken) == Counter(range(ROWS))
    if kind == "joined":
        check_joined(taken)
    assert reading.ids() == []


def test_leaving_a_loop_and_entering_another_one_loses_no_row(read: Reading) -> None:
    found: list[int] = []
    with read.member() as consumer:
        for _ in range(5):
            for batch in islice(consumer.batches(until_end=True), 1):
                found += batch.rows.column("id").to_pylist()
            consumer.commit()
        found += [row["id"] for row in islice(consumer.rows(until_end=True), 50)]
        consumer.commit()
        for batch in consumer.batches(until_end=True):
            found += batch.rows.column("id").to_pylist()
        consumer.commit()

    assert sorted(found + read.ids()) == [*range(ROWS)]


def test_records_that_retention_deleted_are_an_error_and_the_gap_can_be_accepted(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    topic = make_topic(partitions=2)
    values = [columnar(rows_of(10 * at, 10 * at + 10), at // 10) for at in range(20)]
    topics.write({topic: values[:10]})
    reading = Reading(topics, unique, topic)
    with reading.member() as consumer:
        found = [row["id"] for row in islice(consumer.rows(), 35)]
        consumer.commit()
    topics.write({topic: values[10:]})
    topics.delete(topic, 0, 8)

    with reading.member(start="latest") as consumer:
        for _ in range(2):
            with pytest.raises(PositionGone, match=rf"topic {topic}\[0\]") as caught:
                found += (row["id"] for row in consumer.rows(until_end=True))
        consumer.accept_gap(caught.value)
        found += (row["id"] for row in consumer.rows(until_end=True))
        consumer.commit()

    assert Counter(found) == Counter([*range(35), *range(80, 200)])
    assert reading.ids() == []


def test_markers_behind_the_last_row_are_no_gap_when_they_are_deleted(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    topic = make_topic(partitions=1)
    reading = Reading(topics, unique, topic)
    topics.write({topic: [columnar(rows_of(0, 5))]})
    topics.write({topic: [columnar(rows_of(5, 10))]}, abort=True)
    with reading.member() as consumer:
        first = list[int]()
        for batch in consumer.batches(until_end=True):
            consumer.commit()
            first += batch.rows.column("id").to_pylist()
    topics.delete(topic, 0, -1)
    topics.write({topic: [columnar(rows_of(10, 15))]})

    assert first == [*range(5)]
    assert reading.ids() == [*range(10, 15)]


@pytest.mark.long
def test_from_the_latest_records_on_nothing_is_skipped(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    topic = make_topic(partitions=1)
    topics.write({topic: [columnar(rows_of(0, 5))]})
    reading = Reading(topics, unique, topic, start="latest")
    with reading.member() as consumer:
        assert list(consumer.rows(until_end=True)) == []
        topics.write({topic: [columnar(rows_of(5, 10))]})
        assert not consumer.seek("s3://shop/nothing")
        found = [row["id"] for row in consumer.rows(until_end=True)]
    topics.write({topic: [columnar(rows_of(10, 20))]})
    topics.add_partition(topic, 1)
    topics.write({topic: [columnar(rows_of(20, 30), 1)]})
    with reading.member() as consumer:
        found += (row["id"] for row in consumer.rows(until_end=True))
        topics.create_again(topic)
        with pytest.raises(PositionGone, match="was created again: its id was"):
            list(consumer.rows(idle_seconds=AWAITED_SECONDS))

    # No row was committed: the ones of the first member are read again.
    assert Counter(found) == Counter([*range(5, 10), *range(5, 30)])


class Members:
    """Members of a group on threads of their own, which commit each batch."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.taken = reading, list[list[int]]()
        self.errors: list[BaseException] = []
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def rows(self) -> list[int]:
        return [row for each in self.taken for row in each]

    def start(self) -> None:
        self.taken.append([])
        thread = threading.Thread(target=self._run, args=[self.taken[-1]])
        self._threads.append(thread)
        thread.start()

    def _run(self, taken: list[int]) -> None:
        try:
            with self.reading.member() as consumer:
                while not self._done.is_set():
                    for batch in consumer.batches(idle_seconds=0.1):
                        try:
                            consumer.commit()
                        except Fenced:
                            continue
                        taken += batch.rows.column("id").to_pylist()
        except BaseException as exc:  # noqa: BLE001 - of a thread
            self.errors.append(exc)

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(AWAITED_SECONDS)


@pytest.mark.long
def test_members_that_share_partitions_while_reading_lose_no_row(read: Reading) -> None:
    members, count = Members(read), ROWS
    members.start()
    try:
        eventually("the first one reads", lambda: members.rows or members.errors)
        members.start()
        while not (members.taken[1] or members.errors):
            values = [columnar(rows_of(count + 5 * at, count + 5 * at + 5), at) for at in range(3)]
            read.topics.write({read.names[0]: values})
            count += 15
            assert count < 100 * ROWS
        ended = lambda: len(members.rows) >= count or members.errors  # noqa: E731
        eventually("all is read", ended, seconds=30, details=lambda: f"{members.taken}")
    finally:
        members.stop()

    assert members.errors == []
    assert Counter(members.rows + read.ids()) == Counter(range(count))


@pytest.mark.parametrize(
    "metadata",
    [
        "x",
        '{"row":99999999}',
        *(pytest.param(one, marks=pytest.mark.variant) for one in ('{"row":-1}', "[" * 3000)),
    ],
)
def test_metadata_of_other_clients_is_ignored(read: Reading, metadata: str) -> None:
    (topic,) = read.names
    read.topics.commit(read.group, topic, 0, metadata)

    assert sorted(read.ids()) == [*range(ROWS)]


# -- JSON, and what is corrupt --------------------------------------------------------------------


@pytest.fixture
def json_values(topics: Topics, make_topic: MakeTopic, unique: str) -> Reading:
    topic = make_topic("json", partitions=PARTITIONS)
    lines = [b'{"id":%d,"text":"2020-01-%02d"}' % (n, n % 28 + 1) for n in range(ROWS)]
    topics.write({topic: [Value(n % PARTITIONS, line) for n, line in enumerate(lines)]})
    return Reading(topics, unique, topic)


def test_json_values_are_rows_of_inferred_or_declared_columns(json_values: Reading) -> None:
    inferred = json_values.batches()
    with json_values.member(schema="text:string,id:int32") as consumer:
        declared = list(consumer.batches(until_end=True))

    for batches in (inferred, declared):
        numbers = [n for one in batches for n in one.rows.column("id").to_pylist()]
        assert sorted(numbers) == [*range(ROWS)]
    assert {one.rows.schema for one in declared} == {
        pa.schema([("text", pa.string()), ("id", pa.int32())])
    }


def corrupt(kind: str) -> Value:
    if kind == "json":
        return Value(0, b'{"id":')
    whole = columnar(rows_of(7000, 7010))
    return Value(0, whole.value[: len(whole.value) // 2], whole.headers)


def take_all(consumer: TopicConsumer, found: list[int]) -> None:
    """Add the ids up to the end; commit each batch."""
    for batch in consumer.batches(until_end=True):
        found += batch.rows.column("id").to_pylist()
        consumer.commit()


@pytest.mark.parametrize("kind", ["json", "columnar"])
def test_a_corrupt_value_is_an_error_and_is_not_skipped(
    topics: Topics, make_topic: MakeTopic, unique: str, kind: str
) -> None:
    topic = make_topic(partitions=1)
    topics.write({topic: [columnar(rows_of(0, 5)), corrupt(kind), columnar(rows_of(5, 9))]})
    reading = Reading(topics, unique, topic)
    where = rf"topic {topic}\[0\] offset 1\b"

    for _ in range(2):
        with reading.member() as consumer:
            found: list[int] = []
            # Also where the caller continues with the same consumer.
            for _ in range(2):
                with pytest.raises(CorruptRecord, match=where):
                    take_all(consumer, found)
            assert set(found) <= set(range(5))
    at = topics.committed(reading.group, topic, 1)[0]

    assert at[0] <= 1


@pytest.mark.long
def test_a_topic_created_again_is_read_after_a_restart_of_its_brokers(
    tmp_path: Path,
) -> None:
    """The epochs of its leaders are then lower than those that the client knows."""
    with Stack(tmp_path, services=[Kafka(quick=True)], free_ports=True) as stack:
        stack.up()
        servers = stack.endpoint("kafka")
        topics = Topics(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 1)])["t"].result(AWAITED_SECONDS)
        topics.write({"t": [Value(0, b'{"id":%d}' % one) for one in range(20)]})
        stack.down(["kafka"])
        stack.up(["kafka"])
        with TopicConsumer({"bootstrap.servers": servers}, "t", group="g") as member:
            first = [row["id"] for row in member.rows(until_end=True)]
            member.commit()
            topics.create_again("t")
            topics.write({"t": [Value(0, b'{"id":%d}' % one) for one in range(20, 50)]})
            found: list[int] = []
            gaps = 0
            while len(found) < 30:
                try:
                    found += [row["id"] for row in member.rows(idle_seconds=20.0)]
                except PositionGone as gap:
                    gaps += 1
                    member.accept_gap(gap)
            member.commit()

    assert first == [*range(20)]
    assert gaps == 1
    assert found == [*range(20, 50)]
