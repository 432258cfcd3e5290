"""MemoryBroker keeps the contract, and offers what explorers and fault tests need."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import confluent_kafka
import pytest
from tests.contracts.sink import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    JAVA_HASHES,
    PROGRESS,
    SinkContract,
    lines,
    values_of,
)

from extentflow.errors import Fenced, PositionGone, SinkUnavailable
from extentflow.kafka import ProducerSettings, SlotProgress
from extentflow.kafka.reading import ConsumedRecord
from extentflow.testing.broker import MemoryBroker, murmur2


@dataclass
class MemoryCluster:
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    numbers: Iterator[int] = field(default_factory=count)

    def topic(
        self, partitions: int = 1, *, max_message_bytes: int | None = None, compacted: bool = False
    ) -> str:
        name, most = f"topic-{next(self.numbers)}", max_message_bytes or 1_000_000
        config = {"cleanup.policy": "compact"} if compacted else {}
        self.broker.create_topic(name, partitions, max_message_bytes=most, config=config)
        return name

    def identity(self) -> str:
        return f"app.ledger.slot-{next(self.numbers)}"

    def read_committed(self, topic: str) -> list[ConsumedRecord]:
        return self.broker.read_committed(topic)

    def forget_group(self, identity: str) -> None:
        self.broker.forget_group(identity)


class TestMemoryBroker(SinkContract):
    @pytest.fixture
    def cluster(self) -> MemoryCluster:
        return MemoryCluster()


@pytest.mark.parametrize("committed", [True, False])
def test_an_unclear_commit_happened_or_not_and_ends_the_sink(*, committed: bool) -> None:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", EXACTLY_ONCE).open()
    broker.lose_commit_answer(committed=committed)

    sink.send(lines("topic", b"a"))
    with pytest.raises(SinkUnavailable):
        sink.commit(PROGRESS)

    with pytest.raises(SinkUnavailable):
        sink.commit(PROGRESS)
    assert broker.fence("slot", EXACTLY_ONCE).read() == (PROGRESS if committed else None)
    assert values_of(broker.read_committed("topic")) == ([b"a"] if committed else [])


@pytest.mark.parametrize("committed", [True, False])
def test_a_fenced_commit_may_have_happened(*, committed: bool) -> None:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", EXACTLY_ONCE).open()
    broker.lose_commit_answer(committed=committed, fenced=True)

    sink.send(lines("topic", b"a"))
    with pytest.raises(Fenced):
        sink.commit(PROGRESS)

    with pytest.raises(Fenced):
        sink.commit(PROGRESS)
    assert broker.group("slot") == (PROGRESS if committed else None)
    assert values_of(broker.read_committed("topic")) == ([b"a"] if committed else [])


def test_an_unclear_mark_happened_or_not() -> None:
    broker = MemoryBroker()
    broker.lose_commit_answer(committed=True)
    broker.lose_commit_answer(committed=False)
    fence = broker.fence("slot", EXACTLY_ONCE)

    for mark in (SlotProgress(epoch=1), SlotProgress(epoch=2)):
        with pytest.raises(SinkUnavailable):
            fence.mark(mark)

    assert fence.read() == SlotProgress(epoch=1)


def test_a_failed_flush_leaves_at_least_once_records_visible() -> None:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", AT_LEAST_ONCE).open()
    broker.lose_commit_answer(committed=False)

    sink.send(lines("topic", b"a"))
    with pytest.raises(SinkUnavailable):
        sink.commit(PROGRESS)

    assert values_of(broker.read_committed("topic")) == [b"a"]


def test_a_transaction_that_timed_out_is_fenced() -> None:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", EXACTLY_ONCE).open()
    sink.send(lines("topic", b"late"))

    broker.time_out_transaction("slot")

    with pytest.raises(Fenced):
        sink.commit(PROGRESS)
    assert broker.read_committed("topic") == []
    assert values_of(broker.read_uncommitted("topic")) == [b"late"]


def test_every_operation_yields_before_it_happens() -> None:
    seen: list[tuple[str, int]] = []
    broker = MemoryBroker(
        {"topic": 1},
        on_call=lambda name: seen.append((name, len(broker.read_committed("topic")))),
    )

    fence = broker.fence("slot", EXACTLY_ONCE)
    fence.read()
    fence.mark(SlotProgress(epoch=1))
    sink = fence.open()
    sink.send(lines("topic", b"a"))
    sink.commit(PROGRESS)
    sink.abort()
    sink.close()

    names = ["fence", "read", "mark", "open", "send", "commit", "abort", "close"]
    assert seen == [*((name, 0) for name in names[:6]), ("abort", 1), ("close", 1)]


def test_a_group_can_be_looked_at_without_fencing() -> None:
    broker = MemoryBroker()
    sink = broker.fence("slot", ProducerSettings()).open()

    before = broker.group("slot")
    sink.commit(PROGRESS)

    assert before is None
    assert broker.group("slot") == PROGRESS
    sink.commit(PROGRESS)


@pytest.mark.parametrize(("key", "hash_"), JAVA_HASHES.items())
def test_murmur2_is_javas(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_


def test_murmur2_agrees_with_the_client_at_every_length() -> None:
    keys = [bytes(range(200, 200 + length)) for length in range(50)]

    ours = [(murmur2(key) & 0x7FFFFFFF) % 1_000 for key in keys]

    assert ours == [confluent_kafka.murmur2(key, 1_000) for key in keys]


def test_retention_new_partitions_and_topics_created_again_are_seen_by_readers() -> None:
    broker = MemoryBroker({"topic": 1})
    sink = broker.fence("slot", AT_LEAST_ONCE).open()
    sink.send(lines("topic", b"a", b"b", b"c"))
    before = broker.topic_id("topic")

    broker.delete_records("topic", 0, 2)
    broker.add_partitions("topic", 1)

    assert (broker.first_offsets("topic"), broker.end_offsets("topic")) == (
        {0: 2, 1: 0},
        {0: 3, 1: 0},
    )
    assert values_of(broker.read_committed("topic")) == [b"c"]
    with pytest.raises(PositionGone, match="the offsets 1 to 1 were deleted"):
        list(broker.read_from("topic", {0: 1}, end={0: 3}))
    broker.create_topic("topic")
    assert broker.topic_id("topic") != before
    with pytest.raises(PositionGone, match="created again"):
        list(broker.read_from("topic", {0: 3}, end={}))
