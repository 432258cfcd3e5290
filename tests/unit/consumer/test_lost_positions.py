"""Positions of a consumer that are gone: errors with a way on, and no record is skipped."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.golden import Golden
from tests.support.group_reading import Client, Cluster, Joining, Message

from extentflow.consumer import TopicConsumer, topic_watch
from extentflow.consumer.group_starts import TopicOrigin
from extentflow.errors import Misconfigured, PositionGone

A0, A1 = ("a", 0), ("a", 1)


class LateEnds(Client):
    """The end of a partition arrives after its last record, as from brokers."""

    def consume(self, count: int, seconds: float) -> list[Message]:
        found = super().consume(count, seconds)
        if any(not one.is_end for one in found):
            for one in found:
                self.ended.pop(one.place, None)
            return [one for one in found if not one.is_end]
        return found


def one_topic(batches: int = 0, partitions: int = 1) -> Cluster:
    made = Cluster(random.Random(1), ["a"], partitions)
    write(made, *range(batches))
    return made


def write(cluster: Cluster, *batches: int, partition: int = 0) -> None:
    """Write batches of two rows, each in a transaction: at every second offset."""
    for batch in batches:
        cluster.write_batch(str(batch), topics=["a"], partition=partition)


def member(
    cluster: Cluster, *, places: Sequence[tuple[str, int]] = (), start: str = "earliest"
) -> Joining:
    return Joining(cluster, Client(cluster, most=100), places=places, start=start)


def read(consumer: TopicConsumer, *, most: int = 100) -> list[int]:
    """Return the numbers of the batches up to the end."""
    found: list[int] = []
    for batch in consumer.batches(until_end=True):
        found.append(int(batch.rows.column("a")[0].as_py().partition("/")[0]))
        if len(found) == most:
            break
    return found


def read_as_member(cluster: Cluster, *, most: int = 100, start: str = "earliest") -> list[int]:
    with member(cluster, start=start) as consumer:
        found = read(consumer, most=most)
        consumer.commit()
    return found


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_committed_offset_behind_retention_is_an_error_until_the_gap_is_accepted(
    start: str, golden: Golden
) -> None:
    cluster = one_topic(50)
    assert read_as_member(cluster, most=5) == [*range(5)]
    cluster.delete(A0, 40)

    for _ in range(2):
        with member(cluster, start=start) as consumer:
            for _ in range(2):
                with pytest.raises(PositionGone, match=r"offsets 9 to 39 were deleted") as caught:
                    read(consumer)
    golden(caught.value)
    gone = caught.value
    assert (gone.topic, gone.partition, gone.position, gone.first) == ("a", 0, 9, 40)
    with member(cluster, start=start) as consumer:
        with pytest.raises(PositionGone) as caught:
            read(consumer)
        consumer.accept_gap(caught.value)
        consumer.commit()
    assert read_as_member(cluster, start=start) == [*range(20, 50)]


def test_gaps_of_several_partitions_are_accepted_once_each_and_nothing_is_read_twice() -> None:
    """Each acceptance assigns all partitions again, of which others are still behind retention."""
    cluster = one_topic(partitions=3)
    for partition in range(3):
        write(cluster, *range(10), partition=partition)
    with member(cluster) as consumer:
        assert len(read(consumer)) == 30
        consumer.commit()
    for partition in range(3):
        write(cluster, *range(10, 20), partition=partition)
        cluster.delete(("a", partition), 30)
    found, gaps = list[tuple[int, int]](), list[int]()
    with member(cluster) as consumer:
        for _ in range(4):
            try:
                for batch in consumer.batches(until_end=True):
                    found.append((batch.partition, batch.offset))
                    consumer.commit()
                break
            except PositionGone as gap:
                gaps.append(gap.partition)
                consumer.accept_gap(gap)
                consumer.commit()

    assert sorted(gaps) == [0, 1, 2]
    assert sorted(found) == [(one, at) for one in range(3) for at in range(30, 40, 2)]


@pytest.mark.parametrize("commits", ["each batch", "at the end", "by the next member"])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_markers_and_aborted_records_that_were_read_and_deleted_are_no_gap(
    names: list[str], commits: str
) -> None:
    cluster = Cluster(random.Random(1), names, 1)

    def write_all(*batches: int) -> None:
        for batch in batches:
            cluster.write_batch(str(batch), topics=names)

    write_all(*range(5))
    found = list[int]()
    with Joining(cluster, LateEnds(cluster, most=100)) as consumer:
        for batch in consumer.batches(until_end=True):
            found.append(batch.offset)
            if commits == "each batch" or len(found) == 5:
                consumer.commit()
            if commits == "by the next member" and len(found) == 5:
                break
        if commits == "at the end":
            consumer.commit()
    for place in cluster.places:
        cluster.high[place] += 3  # aborted records, and their marker
    if commits != "each batch":
        assert read_as_member(cluster) == []
    for place in cluster.places:
        cluster.delete(place, cluster.high[place] - (3 if commits == "each batch" else 0))

    assert read_as_member(cluster) == []
    write_all(5)
    assert read_as_member(cluster) == [5]
    assert found == [0, 2, 4, 6, 8]


def test_rows_that_the_caller_does_not_have_are_never_behind_a_committed_position() -> None:
    cluster = one_topic(3)
    with member(cluster) as consumer:
        for batch in consumer.batches(until_end=True):
            if batch.offset == 4:
                consumer.handled(batch, 1)
                consumer.commit()
                at = cluster.committed[A0]
                assert (at.offset, '"row":1' in (at.metadata or "")) == (4, True)
        consumer.handled(batch, 2)
        consumer.commit()
    assert cluster.committed[A0].offset == 6


def test_the_end_of_a_busy_topic_is_not_committed_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, commits = one_topic(), list[int]()
    client = LateEnds(cluster, most=100)
    original = client.commit

    def commit(**options: Any) -> None:  # noqa: ANN401 - of Kafka's client
        commits.append(options["offsets"][0].offset)
        original(**options)

    monkeypatch.setattr(client, "commit", commit)
    with Joining(cluster, client) as consumer:
        for number in range(4):
            write(cluster, number)
            for _ in consumer.batches(idle_seconds=0.05):
                consumer.commit()

    assert commits == [1, 2, 3, 5, 7]


def test_records_that_are_deleted_while_a_member_is_behind_are_an_error() -> None:
    cluster = one_topic(5)
    with member(cluster) as consumer:
        assert read(consumer) == [*range(5)]
        write(cluster, *range(5, 20))
        cluster.delete(A0, 20)

        with pytest.raises(PositionGone, match="offsets 10 to 19 were deleted") as caught:
            read(consumer)
        consumer.accept_gap(caught.value)

        assert read(consumer) == [*range(10, 20)]


def test_other_partitions_keep_what_they_have_read_when_a_gap_is_accepted() -> None:
    cluster = one_topic(partitions=2)
    write(cluster, *range(10))
    write(cluster, *range(100, 110), partition=1)
    found = list[int]()

    with Joining(cluster, Client(cluster, most=3)) as consumer:
        gaps = 0
        for _ in range(5):
            try:
                for batch in consumer.batches(until_end=True):
                    found.append(int(batch.rows.column("a")[0].as_py().partition("/")[0]))
                    if len(found) == 5:
                        cluster.delete(A0, 20)
                write(cluster, 10)
                cluster.delete(A0, 22)
            except PositionGone as gone:
                gaps += 1
                consumer.accept_gap(gone)

    assert gaps
    assert [one for one in found if one >= 100] == [*range(100, 110)]


def test_a_seek_that_finds_nothing_continues_where_it_was_also_from_the_latest_records() -> None:
    cluster = one_topic(5)
    with member(cluster, start="latest") as consumer:
        assert read(consumer) == []
        write(cluster, *range(5, 25))

        assert not consumer.seek("s3://b/nothing")

        assert read(consumer) == [*range(5, 25)]


def test_a_seek_does_not_hide_a_position_that_is_gone() -> None:
    cluster = one_topic(5)
    read_as_member(cluster, most=1)
    cluster.delete(A0, 6)

    with member(cluster) as consumer:
        assert not consumer.seek("s3://b/nothing")
        with pytest.raises(PositionGone, match="offsets 1 to 5 were deleted"):
            read(consumer)
        with pytest.raises(PositionGone, match="offsets 1 to 5 were deleted"):
            consumer.seek("s3://b/4")


def test_what_arrives_behind_the_latest_records_is_read_by_the_next_member_without_a_commit() -> (
    None
):
    cluster = one_topic(5)
    with member(cluster, start="latest"):
        write(cluster, 5, 6)
    write(cluster, 7)

    assert read_as_member(cluster, start="latest") == [5, 6, 7]


def test_a_partition_that_is_added_is_read_from_its_beginning() -> None:
    cluster = one_topic(5)
    with member(cluster, start="latest") as consumer:
        write(cluster, 5)
        cluster.add_partition()
        write(cluster, 100, 101, partition=1)
        consumer.rebalance()

        assert sorted(read(consumer)) == [5, 100, 101]


def test_members_that_begin_at_the_same_moment_begin_at_the_latest_records() -> None:
    cluster = one_topic(partitions=2)
    write(cluster, 0)
    write(cluster, 100, partition=1)

    with (
        member(cluster, places=[A0], start="latest") as one,
        member(cluster, places=[A1], start="latest") as other,
    ):
        write(cluster, 1)
        write(cluster, 101, partition=1)

        assert (read(one), read(other)) == ([1], [101])


def test_a_topic_that_is_created_again_is_an_error_that_names_both_ids(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    cluster = one_topic(5)
    with member(cluster) as consumer:
        assert read(consumer) == [*range(5)]
        cluster.create_again("a")
        write(cluster, *range(100, 120))
        monkeypatch.setattr(topic_watch, "FETCHED_SECONDS", 0.0)

        with golden.raises(PositionGone, match="its id was id of a, and is .*again now") as caught:
            read(consumer)
        consumer.commit()
        assert cluster.committed == {}
        consumer.accept_gap(caught.value)

        assert read(consumer) == [*range(100, 120)]


def test_a_commit_never_covers_rows_of_a_topic_that_was_created_again() -> None:
    """They may be yielded as those of the topic before, until it is asked for."""
    cluster = one_topic(5)
    with member(cluster) as consumer:
        assert read(consumer) == [*range(5)]
        cluster.create_again("a")
        write(cluster, *range(100, 120))
        yielded = read(consumer)
        consumer.commit()

        assert cluster.committed == {}
        with pytest.raises(PositionGone, match="was created again") as caught:
            read(consumer)
        consumer.accept_gap(caught.value)
        assert read(consumer) == [*range(100, 120)]
    assert yielded == [*range(105, 120)]


def test_an_offset_that_was_committed_in_a_topic_before_is_an_error() -> None:
    cluster = one_topic(5)
    with member(cluster) as consumer:
        assert read(consumer) == [*range(5)]
        consumer.commit()
        cluster.create_again("a")
        write(cluster, *range(100, 120))
        consumer.commit()  # nothing was fetched since the last one

    with (
        member(cluster) as consumer,
        pytest.raises(PositionGone, match=r"was created again.*up to offset 10"),
    ):
        read(consumer)


def test_joined_topics_with_a_gap_are_an_error_until_it_is_accepted() -> None:
    cluster = Cluster(random.Random(3), ["a", "b"], 1)
    for batch in range(10):
        cluster.write_batch(str(batch), topics=["a", "b"])
    with member(cluster) as consumer:
        assert read(consumer, most=2) == [0, 1]
        consumer.commit()
    for topic in ("a", "b"):
        cluster.delete((topic, 0), 8)

    found: list[int] = []
    with member(cluster) as consumer:
        for _ in range(2):
            with pytest.raises(PositionGone, match="to 7 were deleted") as caught:
                read(consumer)
            consumer.accept_gap(caught.value)
        found = read(consumer)

    assert found == [*range(4, 10)]


@pytest.mark.parametrize(
    "settings",
    [
        {"partition.assignment.strategy": "range,cooperative-sticky"},
        {"group.protocol": "consumer"},
    ],
)
def test_members_that_keep_partitions_during_a_rebalance_are_refused(
    settings: dict[str, str], golden: Golden
) -> None:
    with golden.raises(Misconfigured, match=next(iter(settings))):
        TopicConsumer({"bootstrap.servers": "127.0.0.1:1", **settings}, "t", group="g")


def test_another_start_is_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="start=newest"):
        TopicConsumer({"bootstrap.servers": "127.0.0.1:1"}, "t", group="g", start="newest")


@pytest.mark.parametrize(
    "metadata",
    ["x", "null", "[1]", '{"topic":7}', '{"topic":"a","partitions":true}', '{"partitions":-1}'],
)
def test_metadata_of_other_clients_states_no_origin(metadata: str) -> None:
    assert TopicOrigin.of(metadata) == TopicOrigin.of(None) == TopicOrigin()


def test_an_origin_is_read_as_it_was_written() -> None:
    origin = TopicOrigin("JYYiD99JRVKFBhkGKJFu5A", 6)

    assert TopicOrigin.of(origin.added_to('{"row":5}')) == origin
    assert TopicOrigin().added_to('{"row":5}') == '{"row":5}'
    assert TopicOrigin().added_to("") == ""
    assert len(TopicOrigin("J" * 22, 99_999).added_to("")) <= 64
