"""Consumers of joined topics in a modelled cluster: each row once, whatever happens to them."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.group_reading import Client, Cluster, Joining, Reader, batch_in

from extentflow.consumer import joins
from extentflow.errors import CorruptRecord, Misconfigured, SinkUnavailable

BATCH_BYTES = 60  # at most
ORIGIN_BYTES = 64  # of the metadata of an offset, at most
PROBABILITIES = st.sampled_from([0.0, 0.02, 0.1])
BOUNDS = st.sampled_from([0, 200, 1_000, 1 << 20])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of logs are asked for at once: as often as it can be."""
    monkeypatch.setattr(joins, "JOIN_SECONDS", 0.0)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters with ended and open transactions, of which some are still to begin."""
    source = random.Random(draw(st.integers(0, 2**32)))
    topics = ["a", "b", "c"][: draw(st.integers(2, 3))]
    made = Cluster(source, topics, draw(st.integers(1, 3)))
    made.write(draw(st.sampled_from([0, 20, 60])))
    made.planned = draw(st.sampled_from([0, 20, 60]))
    for _ in range(draw(st.integers(0, 40))):
        made.step()
    return made


def read(cluster: Cluster, reader: Reader) -> None:
    """Read while transactions go on, and again at their end."""
    reader.read()
    cluster.write()
    reader.steps = 0.0
    reader.read()


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    cluster=clusters(),
    crash=PROBABILITIES,
    rebalance=PROBABILITIES,
    steps=st.sampled_from([0.0, 0.5, 0.9]),
    bound=BOUNDS,
    metadata_bytes=st.sampled_from([0, 20, 4096]),
)
def test_each_row_is_read_once_and_what_waits_is_bounded(
    *,
    cluster: Cluster,
    crash: float,
    rebalance: float,
    steps: float,
    bound: int,
    metadata_bytes: int,
) -> None:
    options = {"join_bytes": bound, "metadata_bytes": metadata_bytes}
    reader = Reader(cluster, crash, rebalance=rebalance, steps=steps, options=options)

    read(cluster, reader)

    reader.expect(cluster.truth)
    assert reader.most_held <= bound + len(cluster.places) * BATCH_BYTES
    # The leader's is the smallest one that states where to continue.
    assert cluster.longest_metadata <= max(metadata_bytes, 40) + ORIGIN_BYTES


@settings(max_examples=20, deadline=None)
@given(cluster=clusters(), crash=PROBABILITIES, deletes=PROBABILITIES, bound=BOUNDS)
def test_what_retention_left_whole_is_read_where_the_rest_is_left_out(
    *, cluster: Cluster, crash: float, deletes: float, bound: int
) -> None:
    for place in cluster.places[::2]:
        cluster.delete(place, cluster.random.randrange(cluster.high[place] + 1))
    options = {"join_bytes": bound, "skip_incomplete": True}
    reader = Reader(cluster, crash, steps=0.5, deletes=deletes, options=options)

    read(cluster, reader)

    reader.expect(cluster.truth.keys() - cluster.deleted)


@settings(max_examples=20, deadline=None)
@given(cluster=clusters(), crash=PROBABILITIES, bound=BOUNDS)
def test_from_the_latest_records_on_all_batches_are_read_that_are_behind_the_start_of_each_topic(
    *, cluster: Cluster, crash: float, bound: int
) -> None:
    options = {"start": "latest", "join_bytes": bound}
    reader = Reader(cluster, crash, steps=0.5, options=options)

    read(cluster, reader)

    reader.expect(cluster.whole())


@settings(max_examples=40, deadline=None)
@given(
    count=st.sampled_from([1, 20, 60]),
    topics=st.integers(2, 3),
    partitions=st.integers(1, 2),
    crash=PROBABILITIES,
    deletes=st.booleans(),
    bound=BOUNDS,
    metadata_bytes=st.sampled_from([0, 4096]),
    seed=st.integers(0, 2**32),
)
def test_reading_continues_at_an_object_in_the_order_of_the_leader(
    *,
    count: int,
    topics: int,
    partitions: int,
    crash: float,
    deletes: bool,
    bound: int,
    metadata_bytes: int,
    seed: int,
) -> None:
    cluster = Cluster(random.Random(seed), ["a", "b", "c"][:topics], partitions)
    cluster.write(count)
    assume(cluster.truth)
    place, at, batch = cluster.random.choice(
        [
            (place, at, batch_in(one))
            for place, log in cluster.logs.items()
            if place[0] == "a"
            for at, one in log.items()
        ]
    )
    if deletes:  # in some topics more than in others
        cluster.delete(place, cluster.random.randrange(at + 1))
        cluster.delete(("b", place[1]), cluster.random.randrange(2 * at + 1))
    options = {"join_bytes": bound, "metadata_bytes": metadata_bytes, "skip_incomplete": True}
    reader = Reader(cluster, crash, seek=batch, options=options)

    reader.read()

    order = cluster.order[place[1]]
    cluster.order = {place[1]: order[order.index(batch) :]}
    reader.expect(cluster.truth.keys() - cluster.deleted)
    assert {one for one, rows in reader.rows.items() if rows} <= {place[1]}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(random.Random(1), ["a", "b"], 1)


def test_a_batch_that_a_topic_does_not_have_is_an_error_behind_those_before_it(
    cluster: Cluster,
) -> None:
    cluster.write(5)
    cluster.write_batch("lonely", topics=["a"])
    at = cluster.high["a", 0] - 2
    cluster.write(5)
    reader = Reader(cluster)

    for _ in range(2):  # also for the next member
        with pytest.raises(CorruptRecord, match=rf"a\[0\] offset {at}: batch lonely .* topic b,"):
            reader.read()


def test_a_batch_that_the_leader_does_not_have_is_an_error(cluster: Cluster) -> None:
    cluster.write(5)
    cluster.write_batch("lonely", topics=["b"])
    at = cluster.high["b", 0] - 2

    with pytest.raises(CorruptRecord, match=rf"b\[0\] offset {at}: batch lonely .* topic a,"):
        Reader(cluster).read()


@pytest.mark.parametrize("topic", ["a", "b"])
def test_incomplete_batches_are_left_out_where_that_is_asked_for(
    cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(5)
    cluster.write_batch("lonely", topics=[topic])
    at = max(cluster.logs[topic, 0])
    reader = Reader(cluster, options={"skip_incomplete": True})

    reader.read()

    reader.expect(cluster.truth.keys() - {"lonely"})
    assert f"topic {topic}[0] offset {at}: batch lonely has no part" in caplog.text
    assert cluster.committed[topic, 0].offset > at


def test_a_batch_whose_transaction_is_open_in_the_other_topic_is_waited_for() -> None:
    """As between the ends of a transaction in two partitions: the part is there, and hidden."""
    for seed in range(100):
        cluster = Cluster(random.Random(seed), ["a", "b"], 1)
        cluster.planned = 1
        while cluster.stable(("a", 0)) < 1:
            cluster.step()
        if cluster.truth and not cluster.stable(("b", 0)):
            break
    reader = Reader(cluster)

    reader.read()

    assert cluster.stable(("b", 0))
    reader.expect(cluster.truth)


@pytest.mark.parametrize("topic", ["a", pytest.param("b", marks=pytest.mark.variant)])
def test_a_topic_that_is_far_ahead_is_paused(cluster: Cluster, topic: str) -> None:
    cluster.write(3_000)
    client, rows, held = Client(cluster, most=500), 0, []
    client.delayed = {(topic, 0): 30}
    with Joining(cluster, client, join_bytes=2_000) as member:
        client.before_poll = lambda: held.append(member.held_bytes)
        for batch in member.batches(until_end=True):
            rows += batch.rows.num_rows

    assert rows == sum(map(len, cluster.truth.values()))
    assert 1_000 <= held[20] <= 1_000 + BATCH_BYTES
    assert max(held) <= 2_000 + 2 * BATCH_BYTES


def test_groups_in_the_same_order_are_read_once_each(cluster: Cluster) -> None:
    cluster.write(500, together=True)
    reader = Reader(cluster, commit=0.0, options={"join_bytes": 500})

    reader.read()

    reader.expect(cluster.truth)
    assert reader.fetched <= 4 * len(cluster.truth)


def test_a_member_without_the_same_partition_of_each_topic_is_an_error(cluster: Cluster) -> None:
    cluster.write(5)
    client = Client(cluster)
    with Joining(cluster, client) as member:
        member.leave(("b", 0))

        with pytest.raises(Misconfigured, match="no partition 0 of topic b"):
            list(member.batches(idle_seconds=5))


class WithoutEnds(Joining):
    """A member whose broker does not answer when it is asked for ends of logs."""

    def _ends_of(self, _places: object) -> dict[tuple[str, int], int]:
        raise SinkUnavailable("no answer")


def test_a_member_that_cannot_find_where_to_begin_reads_nothing(cluster: Cluster) -> None:
    cluster.write(5)
    client = Client(cluster)
    with WithoutEnds(cluster, client, start="latest") as member:
        cluster.write(5)

        for _ in range(2):
            with pytest.raises(SinkUnavailable, match="no answer"):
                next(member.batches())
    assert client.next == {}
