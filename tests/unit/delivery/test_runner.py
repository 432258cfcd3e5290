"""`run_extent`, over doubles: what each fault means for the extent, and that nothing doubles."""

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, pairwise
from typing import Unpack

import numpy as np
import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import DEAD, TOPIC, Bytewise, World, expected

from extentflow.background import prefetch
from extentflow.converters import Converter
from extentflow.delivery.dead_letters import DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import (
    Chunks,
    DeliveryContext,
    PrefetchedChunks,
    TransactionLimits,
    fail_extent,
    run_extent,
)
from extentflow.delivery.slots import Slots
from extentflow.errors import (
    AccessDenied,
    BatchTooLarge,
    CorruptRecord,
    ExtentflowError,
    Fenced,
    LedgerUnavailable,
    Misconfigured,
    ProcessExhausted,
    ProducerSpent,
    RegistryUnavailable,
    SinkUnavailable,
    StoreUnavailable,
    TopicAbsent,
    TopicLost,
)
from extentflow.formats import Chunk
from extentflow.kafka import ProducerSettings, Records, RejectedRecord, SlotProgress
from extentflow.ledger import Claim, Totals
from extentflow.model import Extent, ExtentState, JobState, Outcome
from extentflow.storage import RangeSource
from extentflow.testing.broker import MemoryBroker, MemoryFence, MemorySink
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore
from extentflow.transforms import Rows


def run_all(world: World, job_extents: list[Extent]) -> list[Outcome]:
    work = world.worker()
    return [run_extent(extent, work).outcome for extent in job_extents]


def test_all_extents_of_an_object_arrive_once() -> None:
    world = World()
    job = world.job(b"abcdefghij")

    outcomes = run_all(world, world.extents(job))

    assert set(outcomes) == {Outcome.DONE}
    assert sorted(world.delivered()) == sorted(expected(b"abcdefghij"))
    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    assert world.ledger.jobs.progress(job.id).records == 10


def test_running_a_done_extent_again_adds_nothing() -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abc"))
    work = world.worker()
    run_extent(extent, work)

    again = run_extent(extent, work)

    assert again.outcome is Outcome.DONE
    assert again.records == 0
    assert len(world.delivered()) == 3


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_commit_without_an_answer_neither_loses_nor_doubles(committed: bool, which: int) -> None:  # noqa: FBT001
    world = World(limits=TransactionLimits(transaction_bytes=6))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    work = world.worker()
    for _ in range(which):
        world.broker.lose_commit_answer(committed=committed)

    receipt = run_extent(extent, work)

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")
    assert world.ledger.extents.get(extent.job, 0).records == 8


@pytest.mark.parametrize("call", ["lease", "claim", "advance", "complete", "settle", "extent"])
def test_a_ledger_write_without_an_answer_neither_loses_nor_doubles(call: str) -> None:
    world = World(limits=TransactionLimits(transaction_bytes=6))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    work = world.worker()
    world.ledger.lose_answer(call)

    receipt = run_extent(extent, work)

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")
    assert world.ledger.jobs.progress(extent.job).records == 8


def test_an_unavailable_ledger_is_raised_and_the_extent_can_run_later() -> None:
    world = World(limits=TransactionLimits(retry_seconds=10))
    (extent,) = world.extents(world.job(b"abc"))
    world.ledger.refuse("claim", times=1_000_000)

    with pytest.raises(LedgerUnavailable):
        run_extent(extent, world.worker())

    world.ledger.refuse("claim", times=0)
    assert world.ledger.extents.get(extent.job, 0).state is ExtentState.PENDING


@pytest.mark.parametrize("gives_up", [True, False])
def test_an_unavailable_store_fails_the_extent_only_without_redelivery(
    gives_up: bool,  # noqa: FBT001
) -> None:
    memory = MemoryStore()
    world = World(store=memory, limits=TransactionLimits(retry_seconds=10, gives_up=gives_up))
    (extent,) = world.extents(world.job(b"abcd"))
    world.store = FaultyStore(memory, Fault("unavailable"))

    if gives_up:
        assert (
            "replay the job when the store is available"
            in run_extent(extent, world.worker()).reason
        )
    else:
        with pytest.raises(StoreUnavailable):
            run_extent(extent, world.worker())

    item = world.ledger.extents.get(extent.job, 0)
    assert item.claim is None
    assert item.state is (ExtentState.FAILED if gives_up else ExtentState.PENDING)
    assert gives_up or item.attempts == 0


@pytest.mark.parametrize("gives_up", [True, False])
def test_an_unavailable_schema_registry_uses_up_no_attempt(gives_up: bool, golden: Golden) -> None:  # noqa: FBT001
    world = World(limits=TransactionLimits(attempts=2, retry_seconds=10, gives_up=gives_up))
    (extent,) = world.extents(world.job(b"abcd"))
    work = world.worker()

    def unavailable(_schema: pa.Schema) -> Converter:
        raise RegistryUnavailable("schema registry http://registry: answered 503")

    failing = replace(work, open=lambda one: replace(work.open(one), value=unavailable))
    if gives_up:
        reason = run_extent(extent, failing).reason
        golden(reason)
    else:
        for _ in range(3):
            with pytest.raises(RegistryUnavailable):
                run_extent(extent, failing)
        assert world.ledger.extents.get(extent.job, 0).attempts == 0
        assert run_extent(extent, work).outcome is Outcome.DONE


def test_partitions_without_leaders_use_no_attempts() -> None:
    world = World(limits=TransactionLimits(attempts=3, retry_seconds=10))
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    topic = world.broker._log.topics.pop(TOPIC)  # claims and marks succeed, records do not

    for _ in range(10):
        with pytest.raises(SinkUnavailable):
            run_extent(extent, world.worker())
        world.ticker.sleep(60)
    world.broker._log.topics[TOPIC] = topic
    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdef")


def test_a_single_attempt_is_not_used_up_by_an_outage() -> None:
    world = World(limits=TransactionLimits(attempts=1))
    before, extent = world.extents(world.job(b"abcdefgh"))
    worker = world.worker()
    run_extent(before, worker)  # the next commit is the extent's, not a slot's mark
    world.broker.lose_commit_answer(committed=False)

    receipt = run_extent(extent, worker)

    assert receipt.outcome is Outcome.DONE


@pytest.mark.parametrize("error", [SinkUnavailable("not delivered"), Fenced("timed out")])
def test_outages_between_claim_and_commit_use_no_attempts(
    monkeypatch: pytest.MonkeyPatch, error: ExtentflowError
) -> None:
    world = World(limits=TransactionLimits(attempts=2, retry_seconds=20, gives_up=False))
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    unavailable: list[bool] = []
    fence, commit = MemoryBroker.fence, MemorySink.commit

    def failing_fence(self: MemoryBroker, identity: str, client: ProducerSettings) -> MemoryFence:
        if unavailable:
            raise SinkUnavailable("no coordinator")
        return fence(self, identity, client)

    def failing_commit(_self: MemorySink, _progress: SlotProgress) -> None:
        unavailable.append(True)
        raise error

    monkeypatch.setattr(MemoryBroker, "fence", failing_fence)
    monkeypatch.setattr(MemorySink, "commit", failing_commit)

    for _ in range(6):
        unavailable.clear()
        with pytest.raises((SinkUnavailable, Fenced)):
            run_extent(extent, world.worker())
        assert world.ledger.extents.get(extent.job, 0).attempts == 0
        world.ticker.sleep(300)
    unavailable.clear()
    monkeypatch.setattr(MemorySink, "commit", commit)
    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdef")


def test_an_outage_returns_no_attempt_of_another_owner() -> None:
    world = World(limits=TransactionLimits(attempts=3, transaction_bytes=100))
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    slow = world.worker()
    claim = slow.slots.claim(extent, slow.client(extent))
    assert isinstance(claim, Claim)
    world.ticker.sleep(600)
    other = world.worker()
    taken = other.slots.claim(extent, other.client(extent))

    world.ledger.extents.return_attempt(claim)

    assert isinstance(taken, Claim)
    assert world.ledger.extents.get(extent.job, 0) == taken.item


def test_a_missing_permission_uses_no_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer whose send was refused has ended, so that its abort raises, too."""
    denied, ended = [True], set[int]()
    send, abort = MemorySink.send, MemorySink.abort

    def refused(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        if denied:
            ended.add(id(self))
            raise Misconfigured("topic: allow Write")
        return send(self, records)

    def ended_abort(self: MemorySink) -> None:
        if id(self) in ended:
            raise Misconfigured("topic: allow Write")
        abort(self)

    monkeypatch.setattr(MemorySink, "send", refused)
    monkeypatch.setattr(MemorySink, "abort", ended_abort)
    world = World(limits=TransactionLimits(attempts=2))
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    worker = world.worker()

    for _ in range(5):
        with pytest.raises(Misconfigured, match="allow Write"):
            run_extent(extent, worker)
        item = world.ledger.extents.get(extent.job, 0)
        assert (item.attempts, item.claim) == (0, None)
    denied.clear()
    receipt = run_extent(extent, worker)

    assert receipt.outcome is Outcome.DONE


def test_a_spent_producer_is_no_fault_of_an_extent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, begun = World(), count()
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    send = MemorySink.send

    def spent_once(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        if not next(begun):
            raise ProducerSpent("slot 1: a transaction took 0.11 s to end")
        return send(self, records)

    monkeypatch.setattr(MemorySink, "send", spent_once)
    with caplog.at_level(logging.INFO):
        receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdef")
    (record,) = [one for one in caplog.records if "0.11 s" in one.getMessage()]
    assert record.levelno == logging.INFO


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """A topic that takes batches of 50 bytes only; return the limit of each producer that sent."""
    sent_with: list[int | None] = []
    send = MemorySink.send

    def limited(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        sent_with.append(self._owner.client.max_message_bytes)
        if sent_with[-1] != 50:
            raise BatchTooLarge("topic records: too large")
        return send(self, records)

    monkeypatch.setattr(MemorySink, "send", limited)
    return sent_with


def test_batches_above_a_lowered_limit_are_sent_again_with_the_current_limit(
    lowered: list[int | None],
) -> None:
    world, limits = World(), [100]
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    worker = replace(
        world.worker(),
        client=lambda _: ProducerSettings(max_message_bytes=limits[-1]),
        expire_topics=lambda: limits.append(50),
    )

    receipt = run_extent(extent, worker)

    assert receipt.outcome is Outcome.DONE
    assert lowered[:2] == [100, 50]
    assert world.delivered() == expected(b"abcdef")
    assert worker.size.limit(64 << 20) > 1  # brokers are not slow


@pytest.mark.parametrize("exists", [True, False])
def test_a_topic_that_was_deleted_is_named_at_once_unless_it_exists(
    *, exists: bool, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Brokers that lack their metadata for a moment do not list it either."""
    world, expired = World(), list[bool]()
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    send, answers = MemorySink.send, [False, False, True]

    def listed(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        if answers and not answers.pop(0):
            raise TopicLost("topic records does not exist; create it")
        return send(self, records)

    def client(_: Extent) -> ProducerSettings:
        if expired and not exists:
            raise TopicAbsent("topic records does not exist on Kafka at broker; create it")
        return ProducerSettings()

    monkeypatch.setattr(MemorySink, "send", listed)
    worker = replace(world.worker(), client=client, expire_topics=lambda: expired.append(True))

    if exists:
        assert run_extent(extent, worker).outcome is Outcome.DONE
        assert world.delivered() == expected(b"abcdef")
        assert expired == [True, True]
    else:
        with golden.raises(TopicAbsent, match="it was deleted during the delivery.*--again"):
            run_extent(extent, worker)
        assert expired == [True]


def test_a_limit_that_no_batch_respects_uses_up_the_attempts(
    lowered: list[int | None], golden: Golden
) -> None:
    world = World(limits=TransactionLimits(attempts=3))
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    golden(receipt.reason)
    assert "topic records" in receipt.reason
    assert len(lowered) == 3


class FailingOnce(Bytewise):
    """Raises an error outside the error tree at the first `times` decodings."""

    def __init__(self, error: Exception, times: int = 1) -> None:
        super().__init__()
        self._error, self.left = error, times

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        if self.left:
            self.left -= 1
            raise self._error
        return super().decode(source, extent, position)


EXHAUSTION = [
    MemoryError("out of memory"),
    pa.ArrowMemoryError("malloc of size 4194304 failed"),
    OSError(errno.EMFILE, "Too many open files"),
    RuntimeError("can't start new thread"),
]


@pytest.mark.parametrize("error", EXHAUSTION, ids=lambda error: type(error).__name__)
def test_a_process_without_resources_is_retried(error: Exception) -> None:
    world = World(format=FailingOnce(error), limits=TransactionLimits(attempts=3))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcd")


def test_a_process_that_stays_without_resources_uses_up_the_attempts() -> None:
    world = World(
        format=FailingOnce(MemoryError("out of memory"), times=100),
        limits=TransactionLimits(attempts=3),
    )
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    assert "gave up after 3 attempts" in receipt.reason
    assert "MemoryError: out of memory" in receipt.reason


def test_a_process_without_resources_leaves_the_message_to_another() -> None:
    world = World(
        format=FailingOnce(MemoryError("out of memory")),
        limits=TransactionLimits(attempts=3, gives_up=False),
    )
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))

    with pytest.raises(ProcessExhausted):
        run_extent(extent, world.worker())

    item = world.ledger.extents.get(extent.job, 0)
    assert (item.state, item.claim, item.attempts) == (ExtentState.PENDING, None, 1)
    assert run_extent(extent, world.worker()).outcome is Outcome.DONE


def exhaust(world: World, call: str, times: int = 1, *, answered: bool = False) -> None:
    """Let the next calls of a ledger operation raise MemoryError, before or after the effect."""
    left = [MemoryError("out of memory")] * times

    def hook(name: str) -> None:
        if name == call and left:
            raise left.pop()

    if answered:
        world.ledger.on_answer = hook
    else:
        world.ledger.on_call = hook


@pytest.mark.parametrize("gives_up", [True, False])
@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("call", ["advance", "complete"])
def test_a_process_that_runs_out_of_memory_in_a_commit_hands_the_extent_back(
    call: str,
    answered: bool,  # noqa: FBT001
    gives_up: bool,  # noqa: FBT001
) -> None:
    world = World(limits=TransactionLimits(transaction_bytes=6, gives_up=gives_up))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    exhaust(world, call, answered=answered)

    with suppress(ProcessExhausted):
        run_extent(extent, world.worker())

    item = world.ledger.extents.get(extent.job, 0)
    assert item.claim is None
    assert run_extent(extent, world.worker()).outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")
    assert world.ledger.jobs.progress(extent.job).records == 8


@pytest.mark.parametrize("call", ["settle", "slot", "release", "lease"])
def test_a_hand_back_in_doubt_is_repeated_without_memory(call: str) -> None:
    """The commit fails, and so does the first try of the settlement that hands back."""
    world = World(limits=TransactionLimits(transaction_bytes=6, gives_up=False))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    failing = ["advance", call]

    def hook(name: str) -> None:
        if failing and name == failing[0]:
            raise MemoryError(failing.pop(0))

    world.ledger.on_call = hook

    with pytest.raises(ProcessExhausted, match="advance"):
        run_extent(extent, world.worker())

    assert failing == []
    assert world.ledger.extents.get(extent.job, 0).claim is None
    assert world.ledger.extents.get(extent.job, 0).position == 2
    assert run_extent(extent, world.worker()).outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")


@pytest.mark.parametrize("error", [MemoryError("none left"), OSError(errno.EMFILE, "too many")])
@pytest.mark.parametrize("answered", [True, False])
def test_a_hand_back_without_resources_is_repeated(
    error: Exception,
    answered: bool,  # noqa: FBT001
) -> None:
    world = World(format=FailingOnce(error), limits=TransactionLimits(gives_up=False))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    exhaust(world, "hand_back", answered=answered)

    with pytest.raises(ProcessExhausted, match=str(error)[-8:]):
        run_extent(extent, world.worker())

    item = world.ledger.extents.get(extent.job, 0)
    assert (item.state, item.claim, item.attempts) == (ExtentState.PENDING, None, 1)


def test_an_error_survives_a_hand_back_that_fails_twice() -> None:
    world = World(format=FailingOnce(MemoryError("decoding")), limits=TransactionLimits(attempts=9))
    first, second = world.extents(world.job(b"abcdefgh"))
    world.limits = replace(world.limits, gives_up=False)
    worker = world.worker()
    exhaust(world, "hand_back", times=2)

    with pytest.raises(ProcessExhausted, match="decoding"):
        run_extent(first, worker)
    receipt = run_extent(second, worker)

    assert receipt.outcome is Outcome.DONE
    assert world.ledger.extents.get(first.job, 0).claim is None


def test_an_attempt_is_returned_by_a_process_without_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(limits=TransactionLimits(attempts=2, retry_seconds=0))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))

    def failing_send(_self: MemorySink, _records: Records) -> Sequence[RejectedRecord]:
        raise SinkUnavailable("no leader")

    monkeypatch.setattr(MemorySink, "send", failing_send)
    exhaust(world, "return_attempt")

    with pytest.raises(SinkUnavailable, match="no leader"):
        run_extent(extent, world.worker())

    assert world.ledger.extents.get(extent.job, 0).attempts == 0


def test_a_failure_is_recorded_by_a_process_without_memory() -> None:
    world = World()
    (extent,) = world.extents(world.job(b"ab!d"))
    exhaust(world, "fail")

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    assert world.ledger.extents.get(extent.job, 0).claim is None


def test_an_attempt_that_is_owed_is_made_up_for_by_the_next_call() -> None:
    world = World(limits=TransactionLimits(attempts=2, retry_seconds=0))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    worker = world.worker()
    unavailable = [True]

    def open_pipeline(extent: Extent) -> Pipeline:
        if unavailable:
            raise LedgerUnavailable("no connector")
        return worker.open(extent)

    failing = replace(worker, open=open_pipeline)

    for _ in range(5):
        with pytest.raises(LedgerUnavailable, match="no connector"):
            run_extent(extent, failing)
    unavailable.clear()
    receipt = run_extent(extent, failing)

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcd")
    assert not failing.owed


def test_an_owed_attempt_is_returned_at_the_end_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(limits=TransactionLimits(attempts=2, retry_seconds=1))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    fence = MemoryBroker.fence
    fenced: list[str] = []

    def fence_once(self: MemoryBroker, identity: str, client: ProducerSettings) -> MemoryFence:
        if fenced:
            raise SinkUnavailable("no coordinator")
        fenced.append(identity)
        return fence(self, identity, client)

    def failing_send(_self: MemorySink, _records: Records) -> Sequence[RejectedRecord]:
        raise SinkUnavailable("no leader")

    monkeypatch.setattr(MemoryBroker, "fence", fence_once)
    monkeypatch.setattr(MemorySink, "send", failing_send)
    world.ledger.refuse("return_attempt")

    with pytest.raises(SinkUnavailable, match="no coordinator"):
        run_extent(extent, world.worker())

    assert world.ledger.extents.get(extent.job, 0).attempts == 0


def test_a_reset_of_attempts_survives_a_hand_back() -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    slots = world.slots()
    client = world.worker().client(extent)
    for _ in range(3):
        claim = slots.claim(extent, client)
        assert isinstance(claim, Claim)
        slots.hand_back(claim, position=0, records=0, bad=0, filtered=0, keep_attempt=True)
    claim = slots.claim(extent, client)
    assert isinstance(claim, Claim)

    claim = slots.reset_attempts(claim)
    slots.hand_back(claim, position=0, records=0, bad=0, filtered=0, keep_attempt=True)

    assert world.ledger.extents.get(extent.job, 0).attempts == 1


def test_an_extent_is_never_handed_back_behind_what_was_committed() -> None:
    """An error between a commit and its caller's totals must not repeat records."""
    world = World()
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    slots = world.slots()
    claim = slots.claim(extent, world.worker().client(extent))
    assert isinstance(claim, Claim)
    slots.commit(claim, position=2, records=2, bad=0, filtered=0)

    slots.hand_back(claim, position=0, records=0, bad=0, filtered=0, keep_attempt=True)

    item = world.ledger.extents.get(extent.job, 0)
    assert (item.claim, item.position, item.records) == (None, 2, 2)


def test_an_error_outside_the_tree_fails_its_extent_where_it_was_committed() -> None:
    world = World(format=FailingOnce(ValueError("a defect")))
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    assert "unexpected ValueError: a defect" in receipt.reason


class Standing(Bytewise):
    """Yields a chunk that leads nowhere, and then the others."""

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        chunks = list(super().decode(source, extent, position))
        yield Chunk(chunks[0].batch.slice(0, 0), extent.start, [])
        yield from chunks


def test_a_chunk_that_leads_nowhere_is_no_progress() -> None:
    world = World(format=Standing(), limits=TransactionLimits(transaction_seconds=0, attempts=2))
    (extent,) = world.extents(world.job(b"abcd"))
    worker = world.worker(stopping=lambda: True)

    outcomes = [run_extent(extent, worker).outcome for _ in range(3)]

    assert outcomes == [Outcome.HANDED_BACK, Outcome.HANDED_BACK, Outcome.FAILED]
    assert world.delivered() == []


def test_a_chunk_that_leads_nowhere_does_no_harm() -> None:
    world = World(format=Standing(), limits=TransactionLimits(transaction_seconds=0))
    (extent,) = world.extents(world.job(b"abcd"))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcd")


def test_a_bad_record_fails_the_extent_behind_what_was_committed(golden: Golden) -> None:
    world = World(limits=TransactionLimits(transaction_bytes=6))
    (extent,) = world.extents(world.job(b"abcdef!h", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    golden(receipt.reason)
    assert "s3://bucket/key[0-8)" in receipt.reason
    assert world.delivered() == expected(b"abcdef")
    item = world.ledger.extents.get(extent.job, 0)
    assert (item.state, item.position, item.records) == (ExtentState.FAILED, 6, 6)


def test_bad_records_go_to_the_dead_letter_queue_with_their_place() -> None:
    world = World(tolerant=True)
    job = world.job(b"ab!d!f")

    run_all(world, world.extents(job))

    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    assert sorted(world.delivered()) == sorted(expected(b"ab!d!f"))
    letters = world.broker.read_committed(DEAD)
    assert [dict(letter.headers)["extentflow.offset"] for letter in letters] == [b"2", b"4"]
    assert {letter.value for letter in letters} == {b"!"}
    assert world.ledger.jobs.progress(job.id).bad == 2


# -- how many bad records a job may have -----------------------------------------------------------


def limited(world: World, most: int) -> DeliveryContext:
    """A worker of a connector with `errors.max.records`."""
    return replace(
        world.worker(),
        dead_letters=lambda _: DeadLetters(DEAD, TOPIC, "offset", most_records=most),
    )


def test_a_job_with_as_many_bad_records_as_it_may_have_is_done() -> None:
    world = World(tolerant=True)
    job = world.job(b"ab!d!f", most_bad=2)
    work = limited(world, 2)

    outcomes = {run_extent(extent, work).outcome for extent in world.extents(job)}

    assert outcomes == {Outcome.DONE}
    assert world.ledger.jobs.close(job.id).state is JobState.DONE


def test_one_bad_record_more_than_a_job_may_have_fails_it_before_it_is_committed(
    golden: Golden,
) -> None:
    world = World(tolerant=True)
    job = world.job(b"ab!de!gh", most_bad=1)
    first, second = world.extents(job)
    work = limited(world, 1)

    receipts = [run_extent(extent, work) for extent in (first, second)]

    assert [receipt.outcome for receipt in receipts] == [Outcome.DONE, Outcome.FAILED]
    golden(receipts[1].reason)
    assert "s3://bucket/key[4-8)" in receipts[1].reason
    assert len(world.broker.read_committed(DEAD)) == 1
    closed = world.ledger.jobs.close(job.id)
    assert closed.state is JobState.FAILED
    assert "`extentflow run --failed`" in closed.reason


def test_extents_of_a_job_with_too_many_bad_records_are_not_started() -> None:
    world = World(tolerant=True)
    first, second = world.extents(world.job(b"!!!!abcd", most_bad=1))
    work = limited(world, 1)

    outcomes = [run_extent(extent, work).outcome for extent in (first, second)]

    assert outcomes == [Outcome.FAILED, Outcome.JOB_CLOSED]
    assert world.delivered() == []


def test_bad_records_that_parallel_extents_committed_unseen_still_fail_the_job() -> None:
    world = World(tolerant=True)
    job = world.job(b"ab!!ef!!", most_bad=2)
    first, second = world.extents(job)
    work = limited(world, 2)
    ran: list[Outcome] = []

    def meanwhile(name: str) -> None:
        if name == "complete" and not ran:
            ran.append(Outcome.BUSY)
            ran.append(run_extent(second, limited(world, 2)).outcome)

    world.ledger.on_call = meanwhile
    outcome = run_extent(first, work).outcome

    assert (outcome, ran[1]) == (Outcome.DONE, Outcome.DONE)
    closed = world.ledger.jobs.close(job.id)
    assert closed.state is JobState.FAILED
    assert closed.reason.startswith("4 bad records, and errors.max.records=2")


def test_trap_t12_an_object_replaced_mid_read_supersedes_its_job() -> None:
    """Trap: an overwrite between two reads spliced two versions into one."""
    world = World()
    job = world.job(b"aaaaaaaa")
    first, second = world.extents(job)
    work = world.worker()
    run_extent(first, work)
    world.put(b"bbbbbbbb")

    receipt = run_extent(second, work)

    assert receipt.outcome is Outcome.FAILED
    assert world.ledger.jobs.close(job.id).state is JobState.SUPERSEDED
    assert world.delivered() == expected(b"aaaa")


def test_trap_t12_a_versioned_object_is_delivered_as_pinned() -> None:
    world = World(store=MemoryStore(versioned=True))
    job = world.job(b"aaaaaaaa")
    world.put(b"bbbbbbbb")

    run_all(world, world.extents(job))

    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    assert sorted(world.delivered()) == expected(b"aaaaaaaa")


def test_trap_t11_a_deleted_object_fails_visibly_and_can_be_replayed() -> None:
    """Trap: a deleted object was dropped without a message, or retried for ever."""
    world = World()
    job = world.job(b"abcd")
    (extent,) = world.extents(job)
    assert isinstance(world.store, MemoryStore)
    world.store.remove("bucket", "key")
    work = world.worker()
    assert run_extent(extent, work).reason.startswith("object gone: ")
    assert world.ledger.jobs.close(job.id).state is JobState.FAILED
    world.put(b"abcd")

    world.planner.replay(job)
    run_extent(extent, work)

    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    assert world.delivered() == expected(b"abcd")


def test_trap_t08_a_read_fault_is_never_the_end_of_data() -> None:
    """Trap: a failed read was taken for the end of the object, which was then done."""
    memory = MemoryStore()
    world = World(store=memory)
    job = world.job(b"abcdefgh", extent_bytes=100)
    (extent,) = world.extents(job)
    world.store = FaultyStore(memory, Fault("denied", calls=frozenset({3})))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    assert world.ledger.jobs.close(job.id).state is JobState.FAILED
    assert world.ledger.extents.get(extent.job, 0).state is ExtentState.FAILED


def test_a_store_that_recovers_within_the_retry_time_costs_nothing() -> None:
    memory = MemoryStore()
    world = World(store=memory)
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    world.store = FaultyStore(memory, Fault("unavailable", calls=frozenset({2})))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")


class BreakingOnce(Bytewise):
    """Decodes one chunk of the first extent, then raises an error, once."""

    def __init__(self, error: ExtentflowError) -> None:
        super().__init__()
        self._errors = [error]

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        for chunk in super().decode(source, extent, position):
            yield chunk
            if self._errors:
                raise self._errors.pop()


@pytest.mark.parametrize(
    ("error", "delivered"),
    [
        (StoreUnavailable("unavailable"), b"abcdefgh"),
        (AccessDenied("refused"), b"efgh"),
        (CorruptRecord("too large"), b"efgh"),
        (Misconfigured("no such topic"), b"efgh"),
    ],
)
def test_records_sent_before_a_fault_are_not_in_the_next_commit(
    error: ExtentflowError, delivered: bytes
) -> None:
    world = World(format=BreakingOnce(error), limits=TransactionLimits(transaction_bytes=1_000))
    first, second = world.extents(world.job(b"abcdefgh"))
    work = world.worker()

    with suppress(Misconfigured):
        run_extent(first, work)
    run_extent(second, work)

    assert world.delivered() == expected(b"abcdefgh")[-len(delivered) :]


def test_an_extent_whose_workers_die_fails_after_the_allowed_attempts() -> None:
    world = World(limits=TransactionLimits(attempts=2))
    (extent,) = world.extents(world.job(b"abc"))
    for number in range(2):
        dying = world.worker(world.slots(f"dying-{number}"))
        dying.slots.claim(extent, dying.client(extent))
        world.ticker.sleep(60)

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.FAILED
    assert "gave up after 2 attempts" in receipt.reason


def test_stopping_commits_and_the_next_worker_resumes_at_the_position() -> None:
    world = World(limits=TransactionLimits(transaction_bytes=1_000))
    job = world.job(b"abcdefgh", extent_bytes=100)
    (extent,) = world.extents(job)

    stopped = run_extent(extent, world.worker(stopping=lambda: True))
    resumed = run_extent(extent, world.worker())

    assert (stopped.outcome, stopped.position) == (Outcome.HANDED_BACK, 2)
    assert resumed.records == 6
    assert world.delivered() == expected(b"abcdefgh")


def nothing_yet(chunks: Chunks) -> PrefetchedChunks:
    """Say before every chunk, and before the end, that it is not there yet."""
    for chunk in chunks:
        yield None
        yield chunk
    yield None


def test_a_chunk_that_is_not_there_yet_changes_nothing() -> None:
    world = World(limits=TransactionLimits(transaction_bytes=4))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))

    receipt = run_extent(extent, replace(world.worker(), prefetch=nothing_yet))

    assert (receipt.outcome, receipt.records) == (Outcome.DONE, 8)
    assert world.delivered() == expected(b"abcdefgh")


def test_stopping_waits_for_no_chunk_that_is_not_there_yet() -> None:
    world = World(limits=TransactionLimits(transaction_bytes=1_000))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    answers = iter([False, False, True])  # nothing, a chunk, nothing
    worker = replace(world.worker(stopping=lambda: next(answers)), prefetch=nothing_yet)

    stopped = run_extent(extent, worker)
    resumed = run_extent(extent, world.worker())

    assert (stopped.outcome, stopped.position, stopped.records) == (Outcome.HANDED_BACK, 2, 2)
    assert (resumed.outcome, resumed.records) == (Outcome.DONE, 6)
    assert world.delivered() == expected(b"abcdefgh")


def test_sent_records_are_committed_in_time_while_no_chunk_is_ready() -> None:
    world = World(
        limits=TransactionLimits(transaction_bytes=1_000, first_bytes=1_000, transaction_seconds=5)
    )
    (extent,) = world.extents(world.job(b"abcd", extent_bytes=100))
    seen: list[int] = []

    def slow(chunks: Chunks) -> PrefetchedChunks:
        yield next(chunks)
        seen.append(len(world.delivered()))
        world.ticker.now += 6
        yield None
        seen.append(len(world.delivered()))
        yield from chunks

    receipt = run_extent(extent, replace(world.worker(), prefetch=slow))

    assert (receipt.outcome, seen) == (Outcome.DONE, [0, 2])
    assert world.delivered() == expected(b"abcd")


def test_transactions_of_an_extent_start_small_and_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(
        format=Bytewise(chunk=1), limits=TransactionLimits(first_bytes=1, transaction_bytes=400)
    )
    (extent,) = world.extents(world.job(b"x" * 200, extent_bytes=1_000))
    positions = [0]
    commit = Slots.commit

    def noted(self: Slots, claim: Claim, **totals: Unpack[Totals]) -> None:
        commit(self, claim, **totals)
        positions.append(totals["position"])

    monkeypatch.setattr(Slots, "commit", noted)

    assert run_extent(extent, world.worker()).outcome is Outcome.DONE

    spans = [end - start for start, end in pairwise(positions)]
    assert spans[0] == 1
    assert spans[:4] == sorted(set(spans[:4]))  # four times as many, up to 400 bytes
    assert max(spans) <= spans[3] + 1  # and no further
    assert world.delivered() == expected(b"x" * 200)


def test_only_the_first_extent_of_a_job_starts_with_a_small_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = TransactionLimits(first_bytes=1, transaction_bytes=400)
    world = World(format=Bytewise(chunk=1), limits=limits)
    worker = world.worker()
    commits: list[tuple[bytes, int]] = []
    commit = Slots.commit

    def noted(self: Slots, claim: Claim, **totals: Unpack[Totals]) -> None:
        commit(self, claim, **totals)
        if totals["position"] == 1:
            commits.append((body, extent.ordinal))

    monkeypatch.setattr(Slots, "commit", noted)

    for body in (b"x", b"y"):
        for extent in world.extents(world.job(body * 60, extent_bytes=30)):
            assert run_extent(extent, worker).outcome is Outcome.DONE

    assert commits == [(b"x", 0), (b"y", 0)]
    assert world.delivered() == expected(b"x" * 60) + expected(b"y" * 60)


@pytest.mark.parametrize("budget_bytes", [0, 100, 1_000_000])
@pytest.mark.parametrize(
    "fault", [None, StoreUnavailable("unavailable"), CorruptRecord("too large")]
)
def test_chunks_that_are_prepared_ahead_change_nothing(
    fault: ExtentflowError | None, budget_bytes: int
) -> None:
    fmt = Bytewise(chunk=1) if fault is None else BreakingOnce(fault)
    world = World(format=fmt, limits=TransactionLimits(transaction_bytes=1_000))
    body = b"abcdefgh" * 10
    extents = world.extents(world.job(body, extent_bytes=40))
    ahead = replace(
        world.worker(),
        prefetch=lambda chunks: prefetch(chunks, lambda one: one.payload_bytes, budget_bytes),
    )

    outcomes = [run_extent(extent, ahead).outcome for extent in extents]

    failed = isinstance(fault, CorruptRecord)
    assert outcomes == [Outcome.FAILED if failed else Outcome.DONE, Outcome.DONE]
    assert world.delivered() == expected(body)[40 if failed else 0 :]


def test_at_least_once_writes_the_position_after_the_flush() -> None:
    world = World(exactly_once=False, limits=TransactionLimits(transaction_bytes=4))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))

    receipt = run_extent(extent, world.worker())

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == expected(b"abcdefgh")


def test_a_defect_fails_its_extent_and_keeps_what_was_committed() -> None:
    world = World(limits=TransactionLimits(transaction_bytes=6))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    stopped = world.worker(stopping=lambda: True)
    run_extent(extent, stopped)

    receipt = fail_extent(extent, world.worker(), "a defect")

    assert receipt.outcome is Outcome.FAILED
    assert world.ledger.extents.get(extent.job, 0).position == 2


def test_an_unavailable_broker_is_raised_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(limits=TransactionLimits(retry_seconds=5))
    (extent,) = world.extents(world.job(b"abcdefgh", extent_bytes=100))
    for _ in range(10_000):
        world.broker.lose_commit_answer(committed=False)

    with pytest.raises(SinkUnavailable):
        run_extent(extent, world.worker())
    said = [one.getMessage() for one in caplog.records if "retrying" in one.getMessage()]
    assert len(said) == 1
    assert "for up to" in said[0]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_missing_group_is_unknown_progress_only_where_kafka_kept_it(
    monkeypatch: pytest.MonkeyPatch,
    exactly_once: bool,  # noqa: FBT001
) -> None:
    limits = TransactionLimits(transaction_bytes=2, first_bytes=2)
    world = World(exactly_once=exactly_once, limits=limits)
    (extent,) = world.extents(world.job(b"abcdef", extent_bytes=100))
    dying = world.worker()
    commit = Slots.commit

    def commit_and_die(self: Slots, claim: Claim, **totals: Unpack[Totals]) -> None:
        commit(self, claim, **totals)
        raise KeyboardInterrupt

    monkeypatch.setattr(Slots, "commit", commit_and_die)
    with pytest.raises(KeyboardInterrupt):
        run_extent(extent, dying)
    monkeypatch.setattr(Slots, "commit", commit)
    claim = world.ledger.extents.get(extent.job, 0).claim
    assert claim is not None
    world.broker.forget_group(f"app.ledger.slot-{claim.slot}")
    world.ticker.sleep(100)

    receipt = run_extent(extent, world.worker())

    if exactly_once:
        assert "progress unknown" in receipt.reason
    else:
        assert receipt.outcome is Outcome.DONE
        assert world.delivered() == expected(b"abcdef")


class Refusing(MemoryLedger):
    """A ledger that refuses one call for good, as an expired token or a withdrawn right does."""

    def __init__(self, call: str, clock: Callable[[], float]) -> None:
        super().__init__("ledger", clock=clock)
        self.refused = {call}
        self.on_call = self._refuse_for_good

    def _refuse_for_good(self, call: str) -> None:
        if call in self.refused:
            self.refused.clear()
            raise Misconfigured(f"{call}: the token has expired")


@pytest.mark.parametrize("call", ["advance", "complete"])
@pytest.mark.parametrize("transaction_bytes", [6, 1_000])
def test_a_rejection_after_a_commit_never_hands_back_what_kafka_has(
    call: str, transaction_bytes: int
) -> None:
    world = World(limits=TransactionLimits(transaction_bytes=transaction_bytes))
    world.ledger = Refusing(call, world.ticker.read)
    job = world.job(b"abcdefgh", extent_bytes=100)
    (extent,) = world.extents(job)

    for _ in range(2):
        with suppress(Misconfigured):
            run_extent(extent, world.worker())
        world.ticker.sleep(60)

    assert world.delivered() == expected(b"abcdefgh")
    assert world.ledger.jobs.get(job.id) == world.ledger.jobs.close(job.id)
    assert world.ledger.jobs.close(job.id).state is JobState.DONE
    assert world.ledger.jobs.progress(job.id).records == 8


# -- records that transforms drop ------------------------------------------------------------------


def dropping(world: World, dropped: bytes) -> DeliveryContext:
    """A worker whose transforms drop the records of some bytes."""

    def chain(rows: Rows) -> Rows:
        texts = [value.partition(b":")[2] for value in rows.values.column(0).to_pylist()]
        return rows.take(np.flatnonzero([text not in dropped for text in texts]))

    work = world.worker()
    return replace(work, open=lambda extent: replace(work.open(extent), chain=lambda: chain))


def test_dropped_records_are_passed_once_and_leave_no_gap() -> None:
    world = World(tolerant=True)
    job = world.job(b"abcab!cabc")
    work = dropping(world, b"b")

    receipts = [run_extent(extent, work) for extent in world.extents(job)]

    assert {receipt.outcome for receipt in receipts} == {Outcome.DONE}
    assert sum(receipt.filtered for receipt in receipts) == 3
    assert world.delivered() == [each for each in expected(b"abcab!cabc") if b"b" not in each]
    totals = world.ledger.jobs.progress(job.id)
    assert (totals.records, totals.bad, totals.filtered) == (6, 1, 3)
    assert world.ledger.jobs.close(job.id).state is JobState.DONE


def test_an_extent_of_which_all_records_are_dropped_is_done() -> None:
    world = World()
    job = world.job(b"bbbbbbaa")
    work = dropping(world, b"b")

    receipts = [run_extent(extent, work) for extent in world.extents(job)]

    assert {receipt.outcome for receipt in receipts} == {Outcome.DONE}
    assert world.delivered() == [b"6:a", b"7:a"]
    assert world.ledger.jobs.close(job.id).state is JobState.DONE


@pytest.mark.parametrize("crash_at", range(1, 9))
def test_a_crash_among_dropped_records_doubles_and_loses_nothing(crash_at: int) -> None:
    world = World(limits=TransactionLimits(transaction_bytes=4, first_bytes=4, retry_seconds=30))
    job = world.job(b"abcabcabcabc", extent_bytes=12)
    (extent,) = world.extents(job)
    calls = iter(range(1, 100))

    class Died(BaseException):
        pass

    def die() -> bool:
        if next(calls) == crash_at:
            raise Died
        return False

    with suppress(Died):
        run_extent(extent, replace(dropping(world, b"b"), stopping=die))
    world.ticker.sleep(60)
    receipt = run_extent(extent, dropping(world, b"b"))

    assert receipt.outcome is Outcome.DONE
    assert world.delivered() == [each for each in expected(b"abcabcabcabc") if b"b" not in each]
    totals = world.ledger.jobs.progress(job.id)
    assert (totals.records, totals.filtered) == (8, 4)
