"""Joined topics on a real broker: what waits is bounded, and incomplete batches are found."""

import random
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.conftest import MakeTopic
from tests.support.columnar_topics import Reading, Topics, Value, columnar, rows_of
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.consumer import TopicConsumer
from extentflow.errors import CorruptRecord, Fenced, Misconfigured

ROWS = 5
COUNT = 60
BATCH_BYTES = 12_000


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    return Topics(bootstrap_servers)


def part(number: int, columns: list[str], partition: int = 0, *, filler: int = 0) -> Value:
    """Return the batch with a number, of `ROWS` rows, and some of its columns."""
    rows = rows_of(number * ROWS, number * ROWS + ROWS)
    rows = rows.append_column("filler", pa.array(["x" * filler] * ROWS))
    uri = f"s3://b/{number}"
    return columnar(rows.select(columns), partition, batch=f"batch-{number}", uri=uri)


def firsts(numbers: Any, **options: int) -> list[Value]:  # noqa: ANN401
    return [part(one, ["id"], **options) for one in numbers]


def seconds(numbers: Any, **options: int) -> list[Value]:  # noqa: ANN401
    return [part(one, ["text", "filler"], **options) for one in numbers]


@pytest.fixture
def names(make_topic: MakeTopic) -> list[str]:
    return [make_topic(label, partitions=1) for label in ("first", "second")]


def take(consumer: TopicConsumer) -> list[int]:
    """Return the numbers of all batches up to the end."""
    return [
        batch.rows.column("id")[0].as_py() // ROWS for batch in consumer.batches(until_end=True)
    ]


def delete_before(topics: Topics, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": topics.servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result(60)


def held_bytes(consumer: TopicConsumer) -> int:
    assert consumer._join is not None
    return consumer._join.held_bytes


def hold_share(consumer: TopicConsumer) -> None:
    """Read until a partition holds its share, and on."""

    def is_full() -> bool:
        assert list(consumer.batches(idle_seconds=0.2)) == []
        return held_bytes(consumer) >= 50_000

    eventually("a share is full", is_full)
    assert list(consumer.batches(idle_seconds=1)) == []
    assert held_bytes(consumer) <= 50_000 + BATCH_BYTES


variant = partial(pytest.param, marks=pytest.mark.variant)
soak = partial(pytest.param, marks=pytest.mark.soak)


# -- what waits is bounded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("displaced", "ahead"), [variant(8, 1), soak(8, 0), soak(0, 0), soak(0, 1)]
)
def test_a_topic_that_is_far_ahead_is_read_within_the_bound(
    topics: Topics, names: list[str], unique: str, ahead: int, displaced: int
) -> None:
    source = random.Random(ahead)
    order = sorted(range(COUNT), key=lambda one: one + source.uniform(0, displaced))
    values = {
        names[0]: [part(one, ["id", "filler"], filler=2_000) for one in range(COUNT)],
        names[1]: seconds(order, filler=2_000),
    }
    topics.write({names[ahead]: values[names[ahead]]})
    reading = Reading(topics, unique, *names, join_bytes=100_000)
    for _ in range(2):  # a member that leaves while a partition is paused, and the next one
        with reading.member() as consumer:
            hold_share(consumer)
    with reading.member() as consumer:
        hold_share(consumer)
        topics.write({names[1 - ahead]: values[names[1 - ahead]]})
        held, found = 0, []
        for batch in consumer.batches(until_end=True):
            found.append(batch.rows.column("id")[0].as_py() // ROWS)
            held = max(held, held_bytes(consumer))
        consumer.commit()

    assert found == [*range(COUNT)]
    assert held <= 100_000 + 2 * BATCH_BYTES  # an equal share of each topic, and one batch
    assert reading.ids() == []


# -- incomplete batches ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lacking",
    [0, pytest.param(1, marks=pytest.mark.variant)],
    ids=["leader", "follower"],
)
def test_a_batch_of_which_retention_deleted_a_part_is_an_error_or_left_out(
    topics: Topics, names: list[str], unique: str, lacking: int
) -> None:
    topics.write({names[0]: firsts(range(20)), names[1]: seconds(range(20))})
    deleted, other = names[lacking], names[1 - lacking]
    delete_before(topics, deleted, 3)
    reading = Reading(topics, unique, *names)
    lost = rf"topic {other}\[0\] offset 0: batch batch-0 has no part in topic {deleted}, .* 3 to"

    with reading.member() as consumer, pytest.raises(CorruptRecord, match=lost):
        take(consumer)
    with reading.member(skip_incomplete=True) as consumer:
        assert take(consumer) == [*range(3, 20)]
        consumer.commit()
    assert reading.ids() == []


def test_behind_an_aborted_transaction_the_end_is_found(
    topics: Topics, names: list[str], unique: str
) -> None:
    topics.write({names[0]: firsts([1, 2]), names[1]: seconds([1])})
    topics.write({names[1]: seconds([2])}, abort=True)

    with (
        Reading(topics, unique, *names).member() as consumer,
        pytest.raises(CorruptRecord, match="batch batch-2 has no part"),
    ):
        take(consumer)


class OpenTransaction:
    """A transaction that is open for a while."""

    def __init__(self, topics: Topics, unique: str) -> None:
        settings = {"bootstrap.servers": topics.servers, "transactional.id": f"open-{unique}"}
        self._producer = Producer(settings)
        self._producer.init_transactions(30)
        self._producer.begin_transaction()

    def write(self, topic: str, *values: Value) -> None:
        for one in values:
            self._producer.produce(
                topic, one.value, partition=one.partition, headers=[*one.headers]
            )
        self._producer.flush(30)

    def commit(self) -> None:
        self._producer.commit_transaction(30)


@pytest.fixture
def opened(topics: Topics, unique: str) -> OpenTransaction:
    return OpenTransaction(topics, unique)


@pytest.mark.variant
def test_behind_an_open_transaction_a_part_is_waited_for(
    topics: Topics, names: list[str], unique: str, opened: OpenTransaction
) -> None:
    """Until it ends, the part of a batch that is visible may be behind it."""
    opened.write(names[1], *seconds([0]))
    topics.write({names[0]: firsts([1]), names[1]: seconds([1])})
    with Reading(topics, unique, *names).member() as consumer:
        assert list(consumer.batches(idle_seconds=8)) == []
        opened.write(names[0], *firsts([0]))
        opened.commit()

        assert take(consumer) == [1, 0]


@pytest.mark.long
def test_from_the_latest_records_on_a_transaction_that_is_open_is_read_whole(
    topics: Topics, names: list[str], unique: str, opened: OpenTransaction
) -> None:
    topics.write({names[0]: firsts([0]), names[1]: seconds([0])})
    opened.write(names[1], *seconds([1]))
    with Reading(topics, unique, *names, start="latest").member() as consumer:
        assert list(consumer.batches(idle_seconds=5)) == []
        opened.write(names[0], *firsts([1]))
        opened.commit()
        topics.write({names[0]: firsts([2]), names[1]: seconds([2])})

        assert take(consumer) == [1, 2]


def test_topics_of_different_partition_counts_are_an_error(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    names = [make_topic("first", partitions=2), make_topic("second", partitions=1)]
    topics.write({names[0]: firsts([1], partition=1)})

    with (
        Reading(topics, unique, *names).member() as consumer,
        pytest.raises(Misconfigured, match=rf"no partition 1 of topic {names[1]}"),
    ):
        take(consumer)


# -- places of objects ----------------------------------------------------------------------------


@pytest.mark.variant
def test_joined_topics_continue_at_an_object_in_the_order_of_the_leader(
    topics: Topics, names: list[str], unique: str
) -> None:
    source = random.Random(3)
    order = sorted(range(30), key=lambda one: one + source.uniform(0, 6))
    topics.write({names[0]: firsts(range(30)), names[1]: seconds(order)})
    delete_before(topics, names[1], 2)
    lost = {*order[:2]}
    reading = Reading(topics, unique, *names)

    with reading.member(skip_incomplete=True) as consumer:
        assert not consumer.seek("s3://b/absent")
        assert take(consumer) == [one for one in range(30) if one not in lost]
    with reading.member() as consumer:
        assert consumer.seek("s3://b/12")
        consumer.commit()
    with reading.member() as consumer:
        found = take(consumer)
        consumer.commit()

    assert lost.isdisjoint(found)
    assert found == [*range(12, 30)]
    assert reading.ids() == []


# -- members that share partitions ----------------------------------------------------------------


@pytest.mark.long
def test_members_that_share_partitions_while_reading_join_each_batch_once(
    topics: Topics, make_topic: MakeTopic, unique: str
) -> None:
    """Each commit is fenced or counts; small shares pause and evict all the time."""
    names = [make_topic(label, partitions=3) for label in ("first", "second")]
    reading = Reading(topics, unique, *names, join_bytes=3_000)
    taken, errors, done = [list[int](), list[int]()], list[BaseException](), threading.Event()

    def read(into: list[int]) -> None:
        try:
            with reading.member() as consumer:
                while not done.is_set():
                    for batch in consumer.batches(idle_seconds=0.1):
                        with suppress(Fenced):
                            consumer.commit()
                            into.append(batch.rows.column("id")[0].as_py() // ROWS)
        except BaseException as exc:  # noqa: BLE001 - of a thread
            errors.append(exc)

    threads = [threading.Thread(target=read, args=[into]) for into in taken]
    source, count = random.Random(1), 0
    try:
        while count < 300 or not taken[1]:
            numbers = [*range(count, count + 20)]
            order = sorted(numbers, key=lambda one: one + source.uniform(0, 6))
            topics.write(
                {
                    names[0]: [part(one, ["id"], one % 3) for one in numbers],
                    names[1]: [part(one, ["text", "filler"], one % 3) for one in order],
                }
            )
            count += 20
            for thread in threads[: 1 if count < 100 else 2]:
                if thread.ident is None:
                    thread.start()
            assert count < 5_000
        ended = lambda: len(taken[0]) + len(taken[1]) >= count or errors  # noqa: E731
        eventually("all is read", ended, seconds=60, details=lambda: f"{count} {taken}")
    finally:
        done.set()
        for thread in threads:
            thread.join(AWAITED_SECONDS)

    assert errors == []
    assert sorted(taken[0] + taken[1]) == [*range(count)]
    assert reading.ids() == []


# -- metadata of offsets --------------------------------------------------------------------------


@pytest.mark.long
def test_positions_that_no_metadata_holds_lose_and_repeat_nothing(
    topics: Topics, names: list[str], unique: str
) -> None:
    """Every second batch of the second topic waits: more ranges than the broker takes."""
    count = 5_000
    order = [*range(1, count, 2), *range(0, count, 2)]
    topics.write({names[0]: firsts(order), names[1]: seconds(range(count))})
    reading, found = Reading(topics, unique, *names), list[int]()

    for _ in range(3):
        with reading.member() as consumer:
            for number, batch in enumerate(consumer.batches(until_end=True)):
                found.append(batch.rows.column("id")[0].as_py() // ROWS)
                if number % 500 == 0:
                    consumer.commit()
                if number == 2_000:
                    break
            consumer.commit()
    (offset, metadata), *_ = reading.topics.committed(reading.group, names[1], 1).values()

    assert found == order
    assert (offset, metadata) != (0, "")
    assert reading.ids() == []
