"""What every Broker, Fence and Sink must do; run over MemoryBroker and over a real Kafka.

A suite subclasses `SinkContract` and provides the fixture `cluster`.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pytest

from extentflow.errors import Fenced, Misconfigured, RecordsRejected, SinkUnavailable
from extentflow.kafka import (
    Broker,
    Fence,
    ProducerSettings,
    Records,
    Sink,
    SlotProgress,
)
from extentflow.kafka.reading import ConsumedRecord
from extentflow.kafka.record_headers import HeaderColumns, HeaderLists, Headers

EXACTLY_ONCE = ProducerSettings()
AT_LEAST_ONCE = ProducerSettings(exactly_once=False)
PROGRESS = SlotProgress(epoch=7, job="j" * 20, extent=3, position=4_711, records=42, bad=1)

# Keys and their murmur2, from Kafka's own UtilsTest.testMurmur2.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


class ClusterUnderTest(Protocol):
    """A broker and what a test needs around it."""

    broker: Broker

    def topic(
        self, partitions: int = 1, *, max_message_bytes: int | None = None, compacted: bool = False
    ) -> str:
        """Create a fresh topic and return its name."""
        ...

    def identity(self) -> str:
        """Return a new identity."""
        ...

    def read_committed(self, topic: str) -> list[ConsumedRecord]:
        """Return what consumers see."""
        ...

    def forget_group(self, identity: str) -> None:
        """Lose what the identity's group says."""
        ...


def lines(topic: str, *values: bytes | None, **columns: object) -> Records:
    return Records(topic, pa.array(values, pa.binary()), **columns)  # type: ignore[arg-type]


def values_of(delivered: Sequence[ConsumedRecord]) -> list[bytes | None]:
    return [record.value for record in delivered]


class SinkContract:
    @pytest.fixture
    def cluster(self) -> ClusterUnderTest:
        raise NotImplementedError

    @contextmanager
    def fenced(
        self, cluster: ClusterUnderTest, identity: str, client: ProducerSettings = EXACTLY_ONCE
    ) -> Iterator[Fence]:
        fence = cluster.broker.fence(identity, client)
        try:
            yield fence
        finally:
            fence.close()

    @contextmanager
    def opened(
        self, cluster: ClusterUnderTest, identity: str, client: ProducerSettings = EXACTLY_ONCE
    ) -> Iterator[Sink]:
        sink = cluster.broker.fence(identity, client).open()
        try:
            yield sink
        finally:
            sink.close()

    # -- offsets --------------------------------------------------------------------------------

    def test_a_reader_stops_where_the_topic_ended(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(2)
        identity = cluster.identity()

        with self.opened(cluster, identity, AT_LEAST_ONCE) as sink:
            empty = cluster.broker.end_offsets(topic)
            sink.send(lines(topic, b"a", b"b", partition=1))
            sink.commit(PROGRESS)
            end = cluster.broker.end_offsets(topic)
            sink.send(lines(topic, b"c", partition=1))
            sink.send(lines(topic, b"d", partition=0))
            sink.commit(PROGRESS)
        begin = {0: 0, 1: 1}
        batches = cluster.broker.read_from(topic, begin, end=end, group=identity)  # type: ignore[attr-defined]
        found = [record.value for batch in batches for record in batch]

        assert empty == {0: 0, 1: 0}
        assert end == {0: 0, 1: 2}
        assert found == [b"b"]

    # -- progress -------------------------------------------------------------------------------

    def test_a_group_that_never_committed_reads_as_none(self, cluster: ClusterUnderTest) -> None:
        with self.fenced(cluster, cluster.identity()) as fence:
            found = fence.read()

        assert found is None

    def test_a_mark_is_read_back_by_the_next_owner(self, cluster: ClusterUnderTest) -> None:
        identity = cluster.identity()

        with self.fenced(cluster, identity) as fence:
            fence.mark(SlotProgress(epoch=5))
        with self.fenced(cluster, identity) as fence:
            found = fence.read()

        assert found == SlotProgress(epoch=5)

    def test_committed_progress_is_read_back_exactly(self, cluster: ClusterUnderTest) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as sink:
            sink.send(lines(topic, b"a"))
            sink.commit(PROGRESS)
        with self.fenced(cluster, identity) as fence:
            found = fence.read()

        assert found == PROGRESS

    def test_progress_may_go_to_another_extent_and_a_smaller_position(
        self, cluster: ClusterUnderTest
    ) -> None:
        identity, smaller = cluster.identity(), SlotProgress(epoch=7, job="other", position=1)

        with self.opened(cluster, identity) as sink:
            sink.commit(PROGRESS)
            sink.commit(smaller)
        with self.fenced(cluster, identity) as fence:
            found = fence.read()

        assert found == smaller

    def test_a_position_beyond_4_gib_is_kept(self, cluster: ClusterUnderTest) -> None:
        identity, far = cluster.identity(), SlotProgress(epoch=1, job="far", position=(1 << 62) + 1)

        with self.opened(cluster, identity) as sink:
            sink.commit(far)
        with self.fenced(cluster, identity) as fence:
            found = fence.read()

        assert found == far

    def test_a_forgotten_group_reads_as_none(self, cluster: ClusterUnderTest) -> None:
        identity = cluster.identity()
        with self.opened(cluster, identity) as sink:
            sink.commit(PROGRESS)

        cluster.forget_group(identity)

        with self.fenced(cluster, identity) as fence:
            assert fence.read() is None

    def test_identities_do_not_see_each_other(self, cluster: ClusterUnderTest) -> None:
        first, second = cluster.identity(), cluster.identity()
        with self.opened(cluster, first) as sink:
            sink.commit(PROGRESS)

        with self.fenced(cluster, second) as fence:
            found = fence.read()

        assert found is None

    # -- visibility -----------------------------------------------------------------------------

    def test_records_become_visible_with_the_commit_and_in_order(
        self, cluster: ClusterUnderTest
    ) -> None:
        topic = cluster.topic()
        values = [b"%d" % number for number in range(1_000)]

        with self.opened(cluster, cluster.identity()) as sink:
            refused = [
                *sink.send(lines(topic, *values[:600])),
                *sink.send(lines(topic, *values[600:])),
            ]
            sink.commit(PROGRESS)

        assert refused == []
        assert values_of(cluster.read_committed(topic)) == values

    def test_aborted_records_stay_invisible_and_delivery_continues(
        self, cluster: ClusterUnderTest
    ) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as sink:
            sink.send(lines(topic, b"discarded"))
            sink.abort()
            sink.send(lines(topic, b"kept"))
            sink.commit(PROGRESS)

        assert values_of(cluster.read_committed(topic)) == [b"kept"]

    def test_an_abort_with_nothing_sent_is_harmless(self, cluster: ClusterUnderTest) -> None:
        identity = cluster.identity()

        with self.opened(cluster, identity) as sink:
            sink.abort()
            sink.commit(PROGRESS)
        with self.fenced(cluster, identity) as fence:
            found = fence.read()

        assert found == PROGRESS

    def test_one_transaction_spans_topics(self, cluster: ClusterUnderTest) -> None:
        topic, letters = cluster.topic(), cluster.topic()

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(lines(topic, b"good"))
            sink.send(lines(letters, b"bad"))
            sink.commit(PROGRESS)

        assert values_of(cluster.read_committed(topic)) == [b"good"]
        assert values_of(cluster.read_committed(letters)) == [b"bad"]

    def test_closing_commits_nothing(self, cluster: ClusterUnderTest) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as sink:
            sink.send(lines(topic, b"never committed"))
        cluster.broker.fence(identity, EXACTLY_ONCE).close()

        assert cluster.read_committed(topic) == []

    def test_closing_twice_is_harmless(self, cluster: ClusterUnderTest) -> None:
        sink = cluster.broker.fence(cluster.identity(), EXACTLY_ONCE).open()

        sink.close()

        sink.close()

    def test_a_fence_may_be_closed_once_its_sink_is_open(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic()
        fence = cluster.broker.fence(cluster.identity(), EXACTLY_ONCE)
        sink = fence.open()

        fence.close()
        sink.send(lines(topic, b"a"))
        sink.commit(PROGRESS)
        sink.close()

        assert values_of(cluster.read_committed(topic)) == [b"a"]

    def test_a_closed_sink_takes_nothing(self, cluster: ClusterUnderTest) -> None:
        sink = cluster.broker.fence(cluster.identity(), EXACTLY_ONCE).open()

        sink.close()

        with pytest.raises(SinkUnavailable):
            sink.commit(PROGRESS)

    # -- fencing --------------------------------------------------------------------------------

    def test_a_zombies_commit_is_fenced_and_its_records_stay_invisible(
        self, cluster: ClusterUnderTest
    ) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as zombie:
            zombie.send(lines(topic, b"zombie"))
            with self.opened(cluster, identity) as owner:
                with pytest.raises(Fenced):
                    zombie.commit(SlotProgress(epoch=1, job="zombie", position=1))
                owner.send(lines(topic, b"owner"))
                owner.commit(PROGRESS)

        assert values_of(cluster.read_committed(topic)) == [b"owner"]

    def test_a_zombies_empty_commit_is_fenced(self, cluster: ClusterUnderTest) -> None:
        identity = cluster.identity()

        with self.opened(cluster, identity) as zombie, self.fenced(cluster, identity) as fence:
            fence.mark(PROGRESS)
            with pytest.raises(Fenced):
                zombie.commit(SlotProgress(epoch=1, job="zombie", position=9))
            found = fence.read()

        assert found == PROGRESS

    def test_a_zombies_mark_is_fenced(self, cluster: ClusterUnderTest) -> None:
        identity = cluster.identity()

        with self.fenced(cluster, identity) as zombie, self.fenced(cluster, identity) as fence:
            with pytest.raises(Fenced):
                zombie.mark(SlotProgress(epoch=1))
            fence.mark(SlotProgress(epoch=2))
            found = fence.read()

        assert found == SlotProgress(epoch=2)

    def test_a_zombie_stays_fenced(self, cluster: ClusterUnderTest) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as zombie, self.opened(cluster, identity):
            for _ in range(3):
                with suppress(Fenced):  # it may notice here, or not
                    zombie.send(lines(topic, b"zombie"))
                with pytest.raises(Fenced):
                    zombie.commit(PROGRESS)

        assert cluster.read_committed(topic) == []

    def test_fencing_aborts_what_the_predecessor_left_open(self, cluster: ClusterUnderTest) -> None:
        identity, topic = cluster.identity(), cluster.topic()

        with self.opened(cluster, identity) as predecessor:
            predecessor.commit(PROGRESS)
            predecessor.send(lines(topic, b"left open"))
            with self.fenced(cluster, identity) as fence:
                found = fence.read()

        assert found == PROGRESS
        assert cluster.read_committed(topic) == []

    # -- records --------------------------------------------------------------------------------

    def test_nulls_empty_values_keys_and_headers_round_trip(
        self, cluster: ClusterUnderTest
    ) -> None:
        topic = cluster.topic()
        headers: list[Headers] = [[], [("place", b"12"), ("place", b"")], [("\u00e9", b"\0\xff")]]
        keys = pa.array([b"k", None, b""], pa.binary())

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(lines(topic, None, b"", b"\0\xff", keys=keys, headers=headers))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        assert values_of(delivered) == [None, b"", b"\0\xff"]
        assert [record.key for record in delivered] == [b"k", None, b""]
        assert [list(record.headers) for record in delivered] == headers

    def test_headers_of_columns_and_timestamps_go_with_their_record(
        self, cluster: ClusterUnderTest
    ) -> None:
        topic = cluster.topic()
        kinds = pa.array([b"x", b"a", None], pa.binary())
        headers = HeaderColumns([("kind", kinds), ("file", b"f")], 3)
        now = time.time_ns() // 1_000_000
        times = pa.array([now, now - 7_000, now - 5], pa.int64())
        records = replace(lines(topic, b"0", b"1", b"2", headers=headers), timestamps=times)

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(records.slice(1, 3))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        assert values_of(delivered) == [b"1", b"2"]
        assert [list(record.headers) for record in delivered] == [
            [("kind", b"a"), ("file", b"f")],
            [("file", b"f")],
        ]
        assert [record.timestamp for record in delivered] == [now - 7_000, now - 5]

    def test_lists_of_headers_keep_order_repeated_names_and_nulls(
        self, cluster: ClusterUnderTest
    ) -> None:
        topic = cluster.topic()
        names, values = ["b", "a", "b", "\u00fc"], [b"1", None, b"", b"\0\xff"]
        offsets = np.array([0, 0, 3, 3, 4])
        headers = HeaderLists(offsets, pa.array(names), pa.array(values, pa.binary()))
        records = lines(topic, b"0", b"1", b"2", b"3", headers=headers)

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(records.slice(1, 4))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        assert [list(record.headers) for record in delivered] == [
            [("b", b"1"), ("a", None), ("b", b"")],
            [],
            [("\u00fc", b"\0\xff")],
        ]

    @pytest.mark.parametrize("headers", [None, [()] * 4], ids=["arrays", "records"])
    def test_records_go_to_partitions_of_their_own(
        self, cluster: ClusterUnderTest, headers: list[Headers] | None
    ) -> None:
        topic = cluster.topic(partitions=3)
        places = pa.array([2, 0, 2, 1], pa.int32())
        records = lines(topic, b"a", b"b", b"c", b"d", headers=headers)

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(replace(records, partitions=places))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        found = [(record.partition, record.value) for record in delivered]
        assert sorted(found) == [(0, b"b"), (1, b"d"), (2, b"a"), (2, b"c")]

    @pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()], ids=str)
    def test_slices_of_arrays_are_sent_as_slices(
        self, cluster: ClusterUnderTest, type_: pa.DataType
    ) -> None:
        topic = cluster.topic()
        column = pa.array([b"zero", b"one", None, b"three", b"four"], type_)

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(Records(topic, column[1:4], keys=column[0:3]))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        assert values_of(delivered) == [b"one", None, b"three"]
        assert [record.key for record in delivered] == [b"zero", b"one", None]

    @pytest.mark.parametrize("column", ["keys", "headers"])
    def test_columns_of_different_length_are_rejected_as_a_whole(
        self, cluster: ClusterUnderTest, column: str
    ) -> None:
        topic = cluster.topic()
        short = {"keys": pa.array([b"k"]), "headers": [()]}[column]

        with self.opened(cluster, cluster.identity()) as sink:
            with pytest.raises(ValueError, match=r"\d"):
                sink.send(lines(topic, b"a", b"b", **{column: short}))
            sink.commit(PROGRESS)

        assert cluster.read_committed(topic) == []

    def test_no_records_are_no_problem(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic()

        with self.opened(cluster, cluster.identity()) as sink:
            refused = sink.send(lines(topic))
            sink.commit(PROGRESS)

        assert list(refused) == []
        assert cluster.read_committed(topic) == []

    def test_keys_land_where_javas_partitioner_puts_them(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(3)
        keys = pa.array(list(JAVA_HASHES), pa.binary())

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(Records(topic, keys, keys=keys))
            sink.commit(PROGRESS)
        delivered = cluster.read_committed(topic)

        assert {record.key: record.partition for record in delivered} == {
            key: (hash_ & 0x7FFFFFFF) % 3 for key, hash_ in JAVA_HASHES.items()
        }

    def test_records_without_keys_reach_every_partition(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(3)
        client = ProducerSettings({"sticky.partitioning.linger.ms": "0"})

        with self.opened(cluster, cluster.identity(), client) as sink:
            for _ in range(100):
                sink.send(lines(topic, b"x"))
            sink.commit(PROGRESS)

        assert {record.partition for record in cluster.read_committed(topic)} == {0, 1, 2}

    def test_an_explicit_partition_is_kept(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(3)

        with self.opened(cluster, cluster.identity()) as sink:
            sink.send(lines(topic, b"a", b"b", keys=pa.array([b"21", b"foobar"]), partition=0))
            sink.commit(PROGRESS)

        assert [r.partition for r in cluster.read_committed(topic)] == [0, 0]

    def test_an_explicit_partition_is_kept_without_keys(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(3)

        with self.opened(cluster, cluster.identity()) as sink:
            for _ in range(5):
                sink.send(lines(topic, b"a", b"b", partition=1))
            sink.commit(PROGRESS)

        assert [r.partition for r in cluster.read_committed(topic)] == [1] * 10

    def test_a_partition_that_does_not_exist_is_named(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic(2)

        with (
            self.opened(cluster, cluster.identity()) as sink,
            pytest.raises(Misconfigured, match=rf"{topic}.* 2 partitions.*partition 5"),
        ):
            sink.send(lines(topic, b"a", partition=5))

    def test_an_unknown_topic_is_named(self, cluster: ClusterUnderTest) -> None:
        with (
            self.opened(cluster, cluster.identity()) as sink,
            pytest.raises(SinkUnavailable, match=r"no\.such\.topic.*create it"),
        ):
            sink.send(lines("no.such.topic", b"a"))

    def test_trap_t29_the_topics_limit_rejects_one_record_alone(
        self, cluster: ClusterUnderTest
    ) -> None:
        topic = cluster.topic(max_message_bytes=20_000)
        client = ProducerSettings(max_message_bytes=20_000)
        small = [b"%05d" % number * 100 for number in range(500)]

        with self.opened(cluster, cluster.identity(), client) as sink:
            refused = [
                *sink.send(lines(topic, *small[:100], b"x" * 20_001, *small[100:])),
                *sink.send(lines(topic, b"y" * 30_000, b"last")),
            ]
            sink.commit(PROGRESS)

        assert [refusal.index for refusal in refused] == [100, 0]
        stated = "too large for the topic: max.message.bytes of the topic is 20000; raise it"
        assert all(stated in refusal.reason for refusal in refused)
        assert values_of(cluster.read_committed(topic)) == [*small, b"last"]

    @pytest.mark.parametrize("client", [EXACTLY_ONCE, AT_LEAST_ONCE], ids=["once", "at_least_once"])
    @pytest.mark.parametrize("bad", ["key", "timestamp"])
    def test_a_record_that_the_topic_refuses_rejects_its_batch(
        self, cluster: ClusterUnderTest, client: ProducerSettings, bad: str
    ) -> None:
        topic = cluster.topic(compacted=bad == "key")
        now_ms = int(time.time() * 1000)
        ahead_ms = 86_400_000 if bad == "timestamp" else 0
        records = lines(
            topic,
            b"a",
            b"b",
            keys=pa.array([b"k", None if bad == "key" else b"l"], pa.binary()),
            timestamps=pa.array([now_ms, now_ms + ahead_ms], pa.int64()),
        )

        def deliver() -> None:
            with self.opened(cluster, cluster.identity(), client) as sink:
                sink.send(records)
                sink.commit(PROGRESS)

        with pytest.raises(RecordsRejected, match=topic) as raised:
            deliver()

        assert raised.value.topic == topic
        assert b"b" not in values_of(cluster.read_committed(topic))

    # -- at least once --------------------------------------------------------------------------

    def test_at_least_once_delivers_with_the_flush_and_keeps_the_mark(
        self, cluster: ClusterUnderTest
    ) -> None:
        identity, topic = cluster.identity(), cluster.topic()
        fence = cluster.broker.fence(identity, AT_LEAST_ONCE)
        fence.mark(SlotProgress(epoch=3))

        sink = fence.open()
        sink.send(lines(topic, b"a", b"b"))
        sink.commit(PROGRESS)
        sink.close()

        assert values_of(cluster.read_committed(topic)) == [b"a", b"b"]
        with self.fenced(cluster, identity) as fence:
            assert fence.read() == SlotProgress(epoch=3)

    def test_at_least_once_commits_as_often_as_asked(self, cluster: ClusterUnderTest) -> None:
        topic = cluster.topic()

        with self.opened(cluster, cluster.identity(), AT_LEAST_ONCE) as sink:
            for value in (b"a", b"b", b"c"):
                sink.send(lines(topic, value))
                sink.commit(PROGRESS)

        assert values_of(cluster.read_committed(topic)) == [b"a", b"b", b"c"]
