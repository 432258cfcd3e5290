"""Transactions over slow brokers: a model of a client queue that drains at a fixed rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pytest
from tests.support.memory_delivery import TOPIC, Ticker, World

from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import TransactionLimits, TransactionSize, run_extent
from extentflow.errors import Fenced, Retryable, SinkUnavailable
from extentflow.kafka import Records, RejectedRecord, SlotProgress
from extentflow.model import Extent
from extentflow.testing.broker import MemorySink

MIB = 1 << 20
QUEUE_MIB = 64
OBJECT_MIB = 4096
# A chunk is queued in this time, faster than any of these brokers takes it.
QUEUED_SECONDS = 0.05


@dataclass
class Link:
    """The queue of one producer; sizes in MiB. A commit waits for it for `bound_seconds`.

    `burst` MiB are taken at once, before the rate applies.
    """

    ticker: Ticker
    rate: float
    bound_seconds: float
    queued: float = 0.0
    sent: float = 0.0
    at: float = 0.0
    burst: float = 0.0

    def drain(self) -> None:
        free = min(self.burst, self.queued)
        self.burst -= free
        taken = min(self.queued, free + (self.ticker.now - self.at) * self.rate)
        self.at = self.ticker.now
        self.queued -= taken
        self.sent += taken

    def put(self, size: float) -> None:
        self.drain()
        if self.queued + size > QUEUE_MIB:
            self.ticker.sleep((self.queued + size - QUEUE_MIB) / self.rate)
            self.drain()
        self.queued += size
        self.ticker.sleep(QUEUED_SECONDS)

    def flush(self) -> None:
        self.drain()
        needed = self.queued / self.rate
        self.ticker.sleep(min(needed, self.bound_seconds) + QUEUED_SECONDS)
        self.drain()
        if needed > self.bound_seconds:
            self.queued = 0.0
            raise SinkUnavailable("records were not delivered in time")


@dataclass(frozen=True)
class MibChunk(ConvertedChunk):
    """A chunk whose records count as a MiB of payload each. Positions are in MiB."""

    @property
    def payload_bytes(self) -> int:
        return len(self.records.values) * MIB


@dataclass(frozen=True)
class MibPipeline:
    chunk_mib: int
    resumable = False

    def convert(self, extent: Extent, position: int) -> Iterator[ConvertedChunk]:
        for start in range(position, extent.end, self.chunk_mib):
            end = min(start + self.chunk_mib, extent.end)
            records = Records(TOPIC, pa.array([b"r"] * (end - start), pa.binary()))
            yield MibChunk(records, range(start, end), (), end)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    link = Link(Ticker(), rate=1.0, bound_seconds=30.0)
    send, commit, close = MemorySink.send, MemorySink.commit, MemorySink.close

    def slow_send(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        link.put(len(records.values))
        return send(self, records)

    def slow_commit(self: MemorySink, progress: SlotProgress) -> None:
        if progress.job:
            link.flush()
        commit(self, progress)

    def slow_close(self: MemorySink) -> None:
        link.queued = 0.0
        close(self)

    monkeypatch.setattr(MemorySink, "send", slow_send)
    monkeypatch.setattr(MemorySink, "commit", slow_commit)
    monkeypatch.setattr(MemorySink, "close", slow_close)
    return link


CHUNK_MIB = 1


def committed_mib(
    link: Link,
    seconds: float,
    size: TransactionSize | None = None,
    *,
    chunk_mib: int = CHUNK_MIB,
) -> float:
    """Deliver one large object for `seconds`; return the MiB that were committed."""
    world = World(ticker=link.ticker, limits=TransactionLimits(gives_up=False))
    (extent,) = world.extents(world.job(b"0" * OBJECT_MIB, extent_bytes=OBJECT_MIB))
    end = link.ticker.now + seconds
    worker = replace(
        world.worker(),
        open=lambda _extent: cast("Pipeline", MibPipeline(chunk_mib)),
        stopping=lambda: link.ticker.now >= end,
        size=size or TransactionSize(),
    )
    while link.ticker.now < end:
        try:
            run_extent(extent, worker)
        except Retryable:
            continue
    return world.ledger.extents.get(extent.job, 0).position


@pytest.mark.parametrize("bound_seconds", [30.0, 20.0], ids=["spark", "lambda"])
@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0, 2.0, 8.0])
def test_what_slow_brokers_take_is_committed(link: Link, rate: float, bound_seconds: float) -> None:
    link.rate, link.bound_seconds = rate, bound_seconds
    seconds = min(1_800.0, OBJECT_MIB / rate)

    committed = committed_mib(link, seconds)

    assert committed >= 0.9 * rate * seconds


@pytest.mark.parametrize("bound_seconds", [30.0, 20.0], ids=["spark", "lambda"])
@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0, 2.0, 8.0])
def test_chunks_larger_than_slow_brokers_take_are_sent_in_parts(
    link: Link, rate: float, bound_seconds: float
) -> None:
    """65,536 rows of Parquet as JSON are 24 MiB."""
    link.rate, link.bound_seconds = rate, bound_seconds

    seconds = min(1_000.0, OBJECT_MIB / rate)

    committed = committed_mib(link, seconds, chunk_mib=24)

    assert committed >= 0.9 * rate * seconds


@pytest.mark.parametrize("bound_seconds", [30.0, 20.0], ids=["spark", "lambda"])
@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_burst_at_the_start_is_not_taken_for_the_rate(
    link: Link, rate: float, bound_seconds: float
) -> None:
    link.rate, link.bound_seconds, link.burst = rate, bound_seconds, 3.0

    committed = committed_mib(link, 120.0)

    assert committed >= 0.9 * rate * 120.0


@pytest.mark.parametrize("bound_seconds", [30.0, 20.0], ids=["spark", "lambda"])
def test_brokers_that_become_slow_cost_a_few_transactions(link: Link, bound_seconds: float) -> None:
    link.rate, link.bound_seconds = 64.0, bound_seconds
    size = TransactionSize()
    committed_mib(link, 30.0, size)
    assert size.limit(64 * MIB) == 64 * MIB
    link.rate = 0.25

    committed = committed_mib(link, 1_800.0, size)

    assert committed >= 0.8 * 0.25 * 1_800


def test_no_transaction_fails_from_the_start(link: Link) -> None:
    """The first, small transaction tells how much brokers take."""
    link.rate, size = 0.5, TransactionSize()

    committed_mib(link, 300.0, size)
    link.drain()

    assert committed_mib(link, 300.0, size) == pytest.approx(150.0, rel=0.1)


def test_a_failed_commit_never_leads_to_the_same_size_again() -> None:
    size = TransactionSize()

    limits = []
    for _ in range(3):
        size.failed(int(size.limit(64 * MIB)))
        limits.append(size.limit(64 * MIB) / MIB)

    assert limits == [16, 4, 1]


@pytest.mark.parametrize("error", [SinkUnavailable("no broker"), Fenced("timed out")])
def test_an_error_before_the_first_record_is_sent_keeps_the_size(
    link: Link, monkeypatch: pytest.MonkeyPatch, error: Retryable
) -> None:
    """A new transaction cannot begin, or its topic cannot be described: nothing was too large."""
    link.rate, size = 64.0, TransactionSize()
    committed_mib(link, 30.0, size)
    failures = []

    def unable(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        del self, records
        link.ticker.sleep(3.0)
        failures.append(error)
        raise error

    monkeypatch.setattr(MemorySink, "send", unable)
    committed_mib(link, 12.0, size)

    assert failures
    assert size.limit(64 * MIB) == 64 * MIB


def test_a_first_chunk_that_brokers_do_not_take_is_sent_in_parts(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is full before the chunk is in it; its records time out meanwhile."""
    link.rate, send = 1.0, MemorySink.send

    def timing_out(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        began = link.ticker.now
        rejected = send(self, records)
        if link.ticker.now - began > link.bound_seconds:
            raise SinkUnavailable("records were not delivered in time")
        return rejected

    monkeypatch.setattr(MemorySink, "send", timing_out)

    assert committed_mib(link, 600.0, chunk_mib=256) >= 0.6 * 600


def test_the_size_recovers_with_the_brokers() -> None:
    size = TransactionSize()
    for _ in range(20):
        size.failed(64 * MIB)

    for _ in range(5):
        size.committed(int(size.limit(64 * MIB)), seconds=0.1, target_seconds=10.0)

    assert size.limit(64 * MIB) == 64 * MIB
