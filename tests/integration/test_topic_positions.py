"""Where consumers begin: at objects and extents; and joins that cannot be made."""

from itertools import islice

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.conftest import MakeTopic
from tests.support.columnar_topics import Reading, Topics, columnar, rows_of

from extentflow.consumer import joins
from extentflow.errors import CorruptRecord, Misconfigured, SinkUnavailable

PARTITIONS = 3


@pytest.fixture
def topics(bootstrap_servers: str) -> Topics:
    return Topics(bootstrap_servers)


# -- places of objects, and joins that cannot be made ---------------------------------------------


@pytest.fixture
def objects(topics: Topics, make_topic: MakeTopic, unique: str) -> Reading:
    """Rows of three objects, the second one in two extents, each in each partition."""
    topic = make_topic(partitions=PARTITIONS)
    values = []
    for first, (uri, extent) in enumerate(
        [("s3://b/1", "0-9"), ("s3://b/2", "0-9"), ("s3://b/2", "9-20"), ("s3://b/3", "0-9")]
    ):
        for part in range(PARTITIONS):
            at = first * 100 + part * 10
            values.append(columnar(rows_of(at, at + 10), part, uri=uri, extent=extent))
    topics.write({topic: values})
    return Reading(topics, unique, topic)


@pytest.mark.parametrize(
    ("uri", "extent", "first"),
    [
        ("s3://b/2", None, 100),
        ("s3://b/2", "9-20", 200),
        pytest.param("s3://b/1", "0-9", 0, marks=pytest.mark.variant),
    ],
)
def test_reading_continues_at_an_object_or_an_extent(
    objects: Reading, uri: str, extent: str | None, first: int
) -> None:
    with objects.member() as consumer:
        assert consumer.seek(uri, extent)
        consumer.commit()
        found = [row["id"] for row in consumer.rows(until_end=True)]

    assert sorted(found) == [n for n in range(330 + 1) if n % 100 < 30 and n >= first]
    assert sorted(objects.ids()) == sorted(found)


@pytest.mark.parametrize(
    "handled", [7, *(pytest.param(one, marks=pytest.mark.variant) for one in (0, 45))]
)
def test_where_an_object_is_not_there_reading_continues_where_it_was(
    objects: Reading, handled: int
) -> None:
    with objects.member() as consumer:
        first = [row["id"] for row in islice(consumer.rows(until_end=True), handled)]
        assert not consumer.seek("s3://b/2", "1-2")
        consumer.commit()
    rest = objects.ids()

    assert len(first) == handled
    assert sorted(first + rest) == [n for n in range(330 + 1) if n % 100 < 30]


def test_a_member_that_found_nothing_reads_on(objects: Reading) -> None:
    with objects.member() as consumer:
        first = [row["id"] for row in islice(consumer.rows(until_end=True), 12)]
        assert not consumer.seek("s3://b/absent")
        rest = [row["id"] for row in consumer.rows(until_end=True)]

    assert sorted(first + rest) == [n for n in range(330 + 1) if n % 100 < 30]


def test_within_a_loop_reading_continues_at_an_object_at_once(objects: Reading) -> None:
    found: list[int] = []
    with objects.member() as consumer:
        for batch in consumer.batches(until_end=True):
            if not found:
                consumer.seek("s3://b/3")
                found.append(-1)
                continue
            found += batch.rows.column("id").to_pylist()

    assert sorted(found) == [-1, *range(300, 330)]


def test_an_object_is_found_where_retention_removed_what_was_before_it(
    objects: Reading, bootstrap_servers: str
) -> None:
    (topic,) = objects.names
    before = [TopicPartition(topic, one, 1) for one in range(PARTITIONS)]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for removed in admin.delete_records(before).values():
        removed.result(60)

    with objects.member(start="latest") as consumer:
        assert consumer.seek("s3://b/2")
        found = [row["id"] for row in consumer.rows(until_end=True)]

    assert min(found) == 100
    assert len(found) == 90


def test_a_batch_without_its_other_columns_is_an_error_after_the_bound(
    topics: Topics, make_topic: MakeTopic, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (make_topic(label, partitions=PARTITIONS) for label in ("first", "second"))
    grouped, rows = Reading(topics, unique, first, second), rows_of(0, 9)
    topics.write({first: [columnar(rows, 1)], second: [columnar(rows, 1)]})
    topics.write({first: [columnar(rows_of(9000, 9001), 1, batch="lonely")]})
    monkeypatch.setattr(joins, "JOIN_SECONDS", 0.3)

    with (
        grouped.member() as consumer,
        pytest.raises(CorruptRecord, match=rf"topic {first}\[1\] offset \d+: .*{second}"),
    ):
        list(consumer.rows(until_end=True))


def test_a_topic_that_does_not_exist_is_an_error(topics: Topics, unique: str) -> None:
    with (
        Reading(topics, unique, f"absent-{unique}").member() as consumer,
        pytest.raises((Misconfigured, SinkUnavailable), match=f"absent-{unique}"),
    ):
        list(consumer.batches(idle_seconds=20))
