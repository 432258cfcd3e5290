"""What becomes of one message: every row of `engines.queue`'s table, and nothing ever lost."""

import json
import logging
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.support.memory_delivery import TOPIC, Bytewise, World, expected
from tests.support.queued import HIDE_SECONDS, Queued, after, ask, cut, ordinals, queue_world

from extentflow.delivery.runner import TransactionLimits
from extentflow.delivery.slots import SlotPolicy
from extentflow.errors import (
    CredentialsUnavailable,
    LedgerUnavailable,
    Misconfigured,
    QueueUnavailable,
)
from extentflow.formats import Chunk
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Extent, ExtentState, JobState, Outcome
from extentflow.queue import Message
from extentflow.queue.consumer import PAUSED_RECEIVES
from extentflow.queue.dispatch import body_of
from extentflow.storage import ObjectStore, RangeSource
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore
from extentflow.work_context import label_lines

LEASE_SECONDS = 3.0


def held(queued: Queued, extent: Extent, *, message: str) -> None:
    """Let a worker claim an extent and say no more."""
    claim = queued.world.slots().claim(extent, ProducerSettings(), message=message)
    assert isinstance(claim, Claim)


def forget_progress(world: World) -> None:
    for number in range(4):
        world.broker.forget_group(f"app.{world.ledger.id}.slot-{number}")


# -- over -----------------------------------------------------------------------------------------


def test_messages_of_extents_that_are_done_are_over_and_the_job_is_closed() -> None:
    queued = Queued()
    job = queued.job(b"abcdefghij")

    answers = queued.drain(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [True, True, True]
    assert {answer.receipt.outcome for answer in answers if answer.receipt} == {Outcome.DONE}
    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted(expected(b"abcdefghij"))
    assert queued.dead.messages == []


def test_a_message_that_comes_twice_delivers_once() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    worker = queued.worker()

    first, second = worker.handle(message), worker.handle(message)

    assert first.again_seconds is None
    assert second.again_seconds is None
    assert queued.world.delivered() == expected(b"abcd")
    assert queued.world.ledger.jobs.progress(job.id).done == 1


@settings(deadline=None, max_examples=50)
@given(order=st.permutations([0, 0, 0, 1, 1, 2, 2, 2]), workers=st.integers(1, 3))
def test_trap_t14_copies_in_any_order_among_several_workers_deliver_once(
    order: list[int], workers: int
) -> None:
    """Trap: workers without a shared claim delivered everything once each."""
    queued = Queued()
    job = queued.job(b"abcdefghij")
    extents = queued.world.extents(job)
    crew = [queued.worker() for _ in range(workers)]

    for place, ordinal in enumerate(order):
        message = Message(f"copy-{place}", body_of(extents[ordinal]))
        assert crew[place % workers].handle(message).again_seconds is None

    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted(expected(b"abcdefghij"))
    assert queued.dead.messages == []


def test_any_message_of_a_final_extent_closes_a_job_left_open() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    come_back = refuse(queued.world, "close")
    queued.settle(message, queued.worker().handle(message))
    assert queued.now(job).state is JobState.RUNNING
    come_back()

    queued.drain(queued.worker())

    assert queued.now(job).state is JobState.DONE


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.FAILED, JobState.SUPERSEDED])
def test_messages_of_a_job_that_has_ended_are_over(state: JobState) -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    queued.world.ledger.jobs.end(job.id, state, "enough")

    (answer,) = queued.deliver(queued.worker())

    assert answer.again_seconds is None
    assert answer.receipt is not None
    assert answer.receipt.outcome is Outcome.JOB_CLOSED
    assert queued.world.delivered() == []
    assert queued.dead.messages == []


def test_an_extent_of_a_superseded_job_is_not_dead_lettered() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh")
    worker = queued.worker()
    message = queued.take()
    queued.settle(message, worker.handle(message))
    queued.world.put(b"ABCDEFGH")

    queued.drain(worker)

    assert queued.now(job).state is JobState.SUPERSEDED
    assert queued.world.delivered() == expected(b"abcd")
    assert queued.dead.messages == []


# -- failed ---------------------------------------------------------------------------------------


def test_a_failed_extent_moves_to_the_dead_letter_queue_with_its_reason(golden: Golden) -> None:
    queued = Queued()
    job = queued.job(b"abcd!fgh")
    first, second = (body_of(extent) for extent in queued.world.extents(job))

    answers = queued.drain(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [True, True]
    assert [answer.dead for answer in answers] == [False, True]
    assert [answer.extent for answer in answers] == list(queued.world.extents(job))
    assert [message.body for message in queued.dead.messages] == [second]
    assert first != second
    assert queued.reasons() == [queued.item(job, 1).error]
    golden(queued.reasons()[0])
    assert queued.now(job).state is JobState.FAILED


def test_lines_about_a_message_name_its_connector_job_and_extent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    label_lines(caplog.handler)
    queued = Queued()
    job = queued.job(b"abcd!fgh")

    queued.drain(queued.worker())

    keys = ("connector", "job", "extent")
    (line,) = (one for one in caplog.records if "goes to the dead letter queue" in one.message)
    assert [getattr(line, key) for key in keys] == [job.connector, job.id, 1]


def test_a_message_is_in_the_dead_letter_queue_before_it_is_over() -> None:
    queued = Queued()
    queued.job(b"!bcd")
    seen: list[int] = []
    queued.queue.on_call = lambda _: seen.append(queued.dead.depth().waiting)

    queued.deliver(queued.worker())

    assert seen == [0, 1]


def test_a_failed_extents_message_is_retried_while_the_dlq_is_unavailable() -> None:
    queued = Queued()
    job = queued.job(b"ab!d")
    worker = queued.worker()
    queued.dead.failures = 3

    answers = queued.drain(worker)

    assert [answer.again_seconds is None for answer in answers] == [False, False, False, True]
    assert queued.item(job).state is ExtentState.FAILED
    assert ordinals(message.body for message in queued.dead.messages) == [0]
    assert queued.now(job).state is JobState.FAILED
    assert queued.world.ledger.jobs.progress(job.id).failed == 1


def test_a_dead_letter_whose_answer_was_lost_is_there_at_least_once() -> None:
    queued = Queued()
    job = queued.job(b"!bcd")
    lost = iter([True])

    def lose(name: str) -> None:
        if name == "send" and next(lost, False):
            raise LedgerUnavailable("the answer got lost")

    queued.dead.on_answer = lose

    queued.drain(queued.worker())

    assert ordinals(message.body for message in queued.dead.messages) == [0, 0]
    assert queued.now(job).state is JobState.FAILED
    assert queued.world.ledger.jobs.progress(job.id).failed == 1


def test_a_message_of_a_failed_extent_is_a_replay_from_where_it_stopped() -> None:
    world = World(format=SwitchableFormat(), limits=TransactionLimits(transaction_bytes=6))
    queued = Queued(world)
    job = queued.job(b"abcd!fgh", extent_bytes=8)
    worker = queued.worker()
    queued.drain(worker)
    assert (queued.item(job).position, queued.now(job).state) == (4, JobState.FAILED)
    assert isinstance(world.format, SwitchableFormat)
    world.format.accepts_all = True
    seen: list[tuple[int, JobState, int]] = []

    def look(name: str) -> None:
        if name == "claim":
            world.ledger.on_call = lambda _: None
            item, counts = queued.item(job), world.ledger.jobs.progress(job.id)
            seen.append((item.position, queued.now(job).state, counts.failed))

    world.ledger.on_call = look
    assert queued.redrive() == 1
    queued.drain(worker)

    assert seen == [(4, JobState.RUNNING, 0)]
    assert queued.now(job).state is JobState.DONE
    assert world.ledger.jobs.progress(job.id).failed == 0
    assert world.delivered() == [b"%d:%c" % (n, c) for n, c in enumerate(b"abcd?fgh")]
    assert queued.dead.messages == []


class SwitchableFormat(Bytewise):
    """Takes `!` for a bad record until `accepts_all` is set."""

    accepts_all = False

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        if self.accepts_all:
            source = Corrected(source)
        return super().decode(source, extent, position)


class Corrected:
    """A source in which nothing is bad."""

    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self.version = source.version

    def read(self, start: int, end: int) -> bytes:
        return self._source.read(start, end).replace(b"!", b"?")

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        return self._source.stream(start, end, window_bytes=window_bytes)


def test_a_replay_of_one_extent_leaves_the_others_failed() -> None:
    queued = Queued()
    job = queued.job(b"!bcd!fgh")
    worker = queued.worker()
    queued.drain(worker)
    one, other = queued.dead.messages
    queued.dead.delete(one)
    queued.queue.send([one.body])

    queued.drain(worker)

    assert queued.now(job).state is JobState.FAILED
    assert queued.world.ledger.jobs.progress(job.id).failed == 2
    assert {message.id for message in queued.dead.messages} > {other.id}


def test_a_replay_of_a_replaced_object_is_superseded_and_leaves_the_dlq() -> None:
    queued = Queued()
    corrupt = queued.job(b"abcd!fgh")
    worker = queued.worker()
    queued.drain(worker)
    assert queued.now(corrupt).state is JobState.FAILED
    corrected = queued.job(b"ABCDEFGH")
    queued.drain(worker)
    assert queued.now(corrected).state is JobState.DONE

    queued.redrive()
    queued.drain(worker)

    assert queued.now(corrupt).state is JobState.SUPERSEDED
    assert queued.dead.messages == []
    assert sorted(queued.world.delivered()) == sorted(expected(b"abcd") + expected(b"ABCDEFGH"))


def test_an_extent_of_unknown_progress_stays_failed_and_closes_its_job() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    held(queued, queued.world.extents(job)[0], message=message.id)
    forget_progress(queued.world)
    queued.world.ticker.sleep(60)
    queued.world.slots(policy=SlotPolicy(count=4, lease_seconds=3)).evict("worker")
    assert queued.item(job).progress_unknown
    assert queued.now(job).state is JobState.RUNNING

    answer = queued.worker().handle(message)

    assert answer.again_seconds is None
    assert queued.item(job).state is ExtentState.FAILED
    assert "progress unknown" in queued.reasons()[0]
    assert "--accept-duplicates" in queued.reasons()[0]
    assert queued.now(job).state is JobState.FAILED


def test_a_replay_of_unknown_progress_goes_back_to_the_dead_letter_queue() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    held(queued, queued.world.extents(job)[0], message=message.id)
    forget_progress(queued.world)
    queued.world.ticker.sleep(60)
    worker = queued.worker()
    queued.settle(message, worker.handle(message))

    for _ in range(3):
        assert queued.redrive() == 1
        queued.drain(worker)

    assert len(queued.dead.messages) == 1
    assert "progress unknown" in queued.reasons()[0]
    assert queued.now(job).state is JobState.FAILED
    assert queued.world.ledger.jobs.progress(job.id).failed == 1


def test_a_replay_of_a_cancelled_job_is_rejected() -> None:
    queued = Queued()
    job = queued.job(b"!bcdefgh")
    worker = queued.worker()
    message = queued.take()
    queued.settle(message, worker.handle(message))
    queued.world.ledger.jobs.end(job.id, JobState.CANCELLED, "enough")

    queued.redrive()
    queued.drain(worker)

    remedy = f"`extentflow replay {job.id}` delivers the rest of it"
    assert queued.reasons() == [f"job {job.id} is CANCELLED; {remedy}"]
    assert queued.item(job).state is ExtentState.FAILED


def test_a_dead_letter_of_an_object_that_was_delivered_again_is_not_replayed(
    golden: Golden,
) -> None:
    world = World(format=SwitchableFormat(), limits=TransactionLimits(transaction_bytes=6))
    queued = Queued(world)
    first = queued.job(b"!bcd")
    worker = queued.worker()
    queued.drain(worker)
    assert queued.now(first).state is JobState.FAILED
    assert isinstance(world.format, SwitchableFormat)
    world.format.accepts_all = True
    request = world.request(world.put(b"!bcd"), 4)
    queued.dispatch.start(world.planner.register(request, again=math.inf))
    queued.drain(worker)

    queued.redrive()
    queued.drain(worker)

    assert world.delivered() == [b"0:?", b"1:b", b"2:c", b"3:d"]
    (why,) = queued.reasons()
    golden(why)
    assert "s3://bucket/key" in why
    assert queued.now(first).state is JobState.FAILED


# -- handed back ----------------------------------------------------------------------------------


def test_trap_t10_at_the_deadline_a_copy_of_the_message_continues_the_extent() -> None:
    """Trap: work beyond the visibility timeout began again, with the whole object."""
    queued = Queued()
    job = queued.job(b"abcdefgh", extent_bytes=8)
    message = queued.take()
    late = queued.worker(queued.world.worker(stopping=after(1)))

    answer = queued.settle(message, late.handle(message))

    assert answer.again_seconds is None
    assert queued.item(job).position == 4
    assert queued.item(job).claim is None
    (copy,) = queued.queue.messages
    assert (copy.id != message.id, copy.body) == (True, message.body)
    queued.drain(queued.worker())
    assert queued.world.delivered() == expected(b"abcdefgh")
    assert queued.now(job).state is JobState.DONE


def test_a_failed_copy_returns_the_message_itself() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh", extent_bytes=8)
    message = queued.take()
    queued.queue.failures = 1

    answer = queued.worker(queued.world.worker(stopping=after(1))).handle(message)

    assert answer.again_seconds is not None
    assert [one.id for one in queued.queue.messages] == [message.id]
    assert queued.item(job).position == 4


def test_an_extent_of_many_deadlines_is_delivered_once() -> None:
    queued = Queued()
    body = bytes(range(97, 123))
    job = queued.job(body, extent_bytes=26)

    answers = queued.drain(queued.worker(queued.world.worker(stopping=lambda: True)))

    assert len(answers) == 14  # a chunk of two bytes each, and the end
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(body)


class Standing(Bytewise):
    """Yields chunks that lead nowhere."""

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        start = max(position, extent.start)
        for chunk in super().decode(source, replace(extent, end=start + 1), start):
            while True:
                yield Chunk(chunk.batch.slice(0, 0), start, [])


def test_hand_backs_that_move_nothing_are_attempts(golden: Golden) -> None:
    queued = Queued(queue_world(format=Standing()))
    job = queued.job(b"abcd")

    worker = queued.worker(queued.world.worker(stopping=lambda: True))

    for attempt in range(1, 4):
        queued.deliver(worker)
        assert queued.item(job).attempts == attempt
    queued.deliver(worker)

    assert queued.now(job).state is JobState.FAILED
    golden(queued.reasons()[0])
    assert queued.queue.messages == []


def test_workers_that_die_use_attempts_up_until_the_extent_fails() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    for _ in range(3):
        message = queued.take()
        held(queued, queued.world.extents(job)[0], message=message.id)
        queued.world.ticker.sleep(HIDE_SECONDS)

    queued.drain(queued.worker())

    assert "gave up after 3 attempts" in queued.reasons()[0]
    assert queued.now(job).state is JobState.FAILED
    queued.redrive()
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcd")


# -- busy -----------------------------------------------------------------------------------------


def test_a_claim_names_the_message_that_asked_for_it() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    seen: list[str] = []

    def look(name: str) -> None:
        if name == "complete":
            claim = queued.item(job).claim
            seen.append(claim.message if claim else "")

    queued.world.ledger.on_call = look
    queued.worker().handle(message)

    assert seen == [message.id]


@pytest.mark.parametrize("holder", ["its own", "another", ""])
def test_a_message_of_a_claimed_extent_is_retried_when_the_lease_may_end(
    holder: str,
) -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.take()
    held(
        queued,
        queued.world.extents(job)[0],
        message=message.id if holder == "its own" else holder,
    )

    answer = queued.worker().handle(message)

    assert answer.receipt is not None
    assert answer.receipt.outcome is Outcome.BUSY
    assert answer.again_seconds is not None
    assert answer.again_seconds >= LEASE_SECONDS * 1.25
    assert queued.item(job).attempts == 1
    queued.settle(message, answer)
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcd")


def test_a_worker_that_dies_after_its_message_was_deleted_loses_nothing() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    frozen = queued.take()
    queued.dispatch.resend(queued.now(job))
    queued.queue.delete(frozen)  # by another worker, while the first one was frozen
    held(queued, queued.world.extents(job)[0], message=frozen.id)

    answers = queued.deliver(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [False]
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcd")


def test_without_a_free_slot_a_message_backs_off_and_uses_no_attempt() -> None:
    policy = SlotPolicy(count=1, lease_seconds=3, wait_seconds=1)
    world = World()
    queued = Queued(world)
    job = queued.job(b"abcdefgh")
    first, _ = world.extents(job)
    other = world.slots(policy=policy)
    assert isinstance(other.claim(first, ProducerSettings(), message="elsewhere"), Claim)
    worker = queued.worker(world.worker(world.slots(policy=policy)))
    second = queued.receive(2)[1]

    delays = []
    for received in range(1, 9):
        other.renew()
        answer = worker.handle(replace(second, received=received))
        assert answer.again_seconds is not None
        delays.append(answer.again_seconds)

    assert delays[-1] > delays[0] * 20
    assert sum(delays) > 300
    assert queued.item(job, 1).attempts == 0
    assert queued.dead.messages == []


def test_a_copy_that_arrives_while_the_first_worker_works_changes_nothing() -> None:
    world = World(limits=TransactionLimits(transaction_bytes=6, attempts=3))
    queued = Queued(world)
    job = queued.job(b"abcdefgh", extent_bytes=8)
    message = queued.take()
    work, other = world.worker(), queued.worker()
    answers = []

    def interrupted() -> bool:
        answers.append(other.handle(Message("copy", message.body)))
        answers.append(other.handle(message))
        return False

    queued.settle(message, queued.worker(replace(work, stopping=interrupted)).handle(message))

    assert {answer.again_seconds is None for answer in answers} == {False}
    assert world.delivered() == expected(b"abcdefgh")
    assert queued.now(job).state is JobState.DONE
    assert queued.item(job).attempts == 0


# -- unavailable services -------------------------------------------------------------------------


def refuse(world: World, *names: str) -> Callable[[], None]:
    """Take the table away for these operations; return what brings it back."""
    for name in names:
        world.ledger.refuse(name, times=10**9)

    def end() -> None:
        for name in names:
            world.ledger.refuse(name, times=-(10**9))

    return end


def table_away(world: World) -> Callable[[], None]:
    return refuse(world, "connector_state", "extent", "slot", "slots", "lease", "job", "claim")


def table_refuses_writes(world: World) -> Callable[[], None]:
    return refuse(world, "claim", "advance", "complete", "settle", "hand_back", "close")


def broker_away(world: World) -> Callable[[], None]:
    cut(world)
    return lambda: cut(world, unavailable=False)


def partitions_away(world: World) -> Callable[[], None]:
    """The topic's leaders are gone, coordinators are there: claims succeed, records do not."""
    topics = world.broker._log.topics
    lost = topics.pop(TOPIC)

    def end() -> None:
        topics[TOPIC] = lost

    return end


def store_away(world: World) -> Callable[[], None]:
    there = world.store
    world.store = FaultyStore(there, Fault("unavailable"))

    def end() -> None:
        world.store = there

    return end


class Locked:
    """A store whose credentials cannot be looked up."""

    def __getattr__(self, name: str) -> object:
        raise CredentialsUnavailable(f"secret keys: throttled, asked for {name}")


def secrets_away(world: World) -> Callable[[], None]:
    there = world.store
    world.store = cast("ObjectStore", Locked())

    def end() -> None:
        world.store = there

    return end


UNAVAILABLE = [
    table_away,
    table_refuses_writes,
    broker_away,
    partitions_away,
    store_away,
    secrets_away,
]


@pytest.mark.parametrize("unavailable", UNAVAILABLE)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_an_outage_of_more_receives_than_attempts_fails_nothing(
    unavailable: Callable[[World], Callable[[], None]],
    warm: bool,  # noqa: FBT001
) -> None:
    queued = Queued()
    world, worker = queued.world, queued.worker()
    if warm:  # it holds a slot when the lights go out
        queued.job(b"xyz", "before")
        queued.drain(worker)
    delivered = len(world.delivered())
    job = queued.job(b"abcdefghij")

    come_back = unavailable(world)
    for _ in range(3 * world.limits.attempts):
        assert queued.queue.next_at is not None
        world.ticker.now = max(world.ticker.now, queued.queue.next_at)
        assert not any(answer.again_seconds is None for answer in queued.deliver(worker))
    come_back()
    queued.drain(worker)

    assert queued.now(job).state is JobState.DONE
    assert [item.attempts for item in world.ledger.extents.list(job.id)] == [0, 0, 0]
    assert sorted(world.delivered()[delivered:]) == sorted(expected(b"abcdefghij"))
    assert queued.dead.sent == []


@pytest.mark.parametrize("unavailable", UNAVAILABLE)
def test_an_outage_delays_messages_with_backoff(
    unavailable: Callable[[World], Callable[[], None]],
) -> None:
    queued = Queued()
    queued.job(b"abcd")
    message = queued.take()
    unavailable(queued.world)
    worker = queued.worker()

    delays = [
        worker.handle(replace(message, received=received)).again_seconds or 0.0
        for received in (1, 3, 5, 7, 99)
    ]

    assert delays == sorted(delays)
    assert 2.5 <= delays[0] <= 5
    assert 150 <= delays[-1] <= 300


def test_delays_have_jitter() -> None:
    queued = Queued()
    queued.job(b"abcd")
    message = queued.take()
    broker_away(queued.world)
    worker = queued.worker()

    delays = {worker.handle(message).again_seconds for _ in range(10)}

    assert len(delays) == 10


def test_a_table_that_denies_access_returns_messages() -> None:
    queued = Queued()
    queued.job(b"abcd")
    message = queued.take()

    def deny(name: str) -> None:
        raise Misconfigured(f"{name}: no permission")

    queued.world.ledger.on_call = deny

    answer = queued.worker().handle(message)

    assert answer.again_seconds is not None
    assert queued.dead.sent == []


# -- what people want -----------------------------------------------------------------------------


def steer(queued: Queued, state: ConnectorState) -> None:
    queued.world.ledger.connectors.put("c", {"name": "c"})
    assert queued.world.ledger.connectors.set_state("c", state)


def test_a_paused_connectors_messages_wait_and_use_no_attempt() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh")
    steer(queued, ConnectorState.PAUSED)
    worker = queued.worker()

    for _ in range(20):
        assert queued.queue.next_at is not None
        queued.world.ticker.now = max(queued.world.ticker.now, queued.queue.next_at)
        assert not any(answer.again_seconds is None for answer in queued.deliver(worker))
    steer(queued, ConnectorState.ENABLED)
    queued.drain(worker)

    assert queued.now(job).state is JobState.DONE
    assert queued.dead.sent == []
    assert sorted(queued.world.delivered()) == sorted(expected(b"abcdefgh"))


def test_a_long_pause_ends_no_message() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    steer(queued, ConnectorState.PAUSED)
    worker = queued.worker()
    highest = 0

    for _ in range(10 * PAUSED_RECEIVES):
        queued.world.ticker.now = queued.queue.next_at or 0.0
        queued.deliver(worker)
        highest = max(highest, *(message.received for message in queued.queue.messages))
    steer(queued, ConnectorState.ENABLED)
    queued.drain(worker)

    assert highest <= PAUSED_RECEIVES
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcd")


def test_a_stopped_connector_cancels_its_jobs() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh")
    steer(queued, ConnectorState.STOPPED)

    answers = queued.drain(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [True, True]
    ended = queued.now(job)
    assert (ended.state, ended.reason) == (JobState.CANCELLED, "connector c was stopped")
    assert queued.world.delivered() == []
    assert queued.dead.messages == []


def test_a_replay_for_a_stopped_connector_stays_in_the_dead_letter_queue() -> None:
    queued = Queued()
    job = queued.job(b"!bcd")
    worker = queued.worker()
    queued.drain(worker)
    steer(queued, ConnectorState.STOPPED)

    queued.redrive()
    queued.drain(worker)

    remedy = f"`extentflow resume c`, then `extentflow replay {job.id}`"
    assert queued.reasons() == [f"connector c was stopped, job {job.id} is FAILED; {remedy}"]
    assert queued.now(job).state is JobState.FAILED


def test_a_message_that_names_another_stopped_connector_cancels_nothing() -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    (extent,) = queued.world.extents(job)
    queued.world.ledger.connectors.put("other", {"name": "other"})
    queued.world.ledger.connectors.set_state("other", ConnectorState.STOPPED)

    why = dead_letter(queued, ask(extent, connector="other"))

    assert why == (f"connector other was stopped, and job {job.id} belongs to connector c")
    assert queued.now(job).state is JobState.RUNNING


# -- bodies ---------------------------------------------------------------------------------------


def dead_letter(queued: Queued, body: str) -> str:
    """Let a worker handle a body; return why it went to the dead letter queue."""
    answer = queued.worker().handle(Message("m", body))

    assert answer.again_seconds is None
    assert answer.receipt is None
    (message,) = queued.dead.messages
    assert message.body == body
    return message.reason


@settings(deadline=None, max_examples=50)
@given(body=st.text())
def test_any_text_ends_in_the_dead_letter_queue(body: str) -> None:
    why = dead_letter(Queued(), body)

    assert why == "not an extent of schema version 1; it was not read"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = ("v", "job", "extent", "connector", "object", "range", "format")
WITHIN = ("bucket", "key", "version_id", "etag", "size")


@settings(deadline=None, max_examples=50)
@given(field=st.sampled_from([*FIELDS, *WITHIN]), value=JSON)
def test_a_body_with_any_other_value_ends_in_the_dead_letter_queue(field: str, value: Any) -> None:  # noqa: ANN401
    queued = Queued()
    job = queued.job(b"abcd")
    message = queued.world.extents(job)[0].to_message()
    target = message["object"] if field in WITHIN else message
    assume(target[field] != value)
    assume(field not in ("extent", "range") or not isinstance(value, int | list))  # may be one
    target[field] = value

    dead_letter(queued, json.dumps(message))

    assert queued.now(job).state is JobState.RUNNING
    assert queued.item(job).state is ExtentState.PENDING
    assert queued.world.delivered() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("bucket", "b"), ("key", "other"), ("version_id", "v1"), ("etag", ""), ("size", 9)],
)
def test_a_message_never_has_another_object_delivered_for_a_job(field: str, value: object) -> None:
    queued = Queued()
    job = queued.job(b"abcd")
    queued.world.put(b"efgh", "other")
    extent = queued.world.extents(job)[0]

    why = dead_letter(queued, ask(extent, object={**extent.to_message()["object"], field: value}))

    assert f"job {job.id} of connector c delivers s3://bucket/key" in why
    assert queued.now(job).state is JobState.RUNNING
    assert queued.world.delivered() == []


@pytest.mark.parametrize("field", [*FIELDS, *WITHIN])
def test_a_body_without_a_field_ends_in_the_dead_letter_queue(field: str) -> None:
    queued = Queued()
    message = queued.world.extents(queued.job(b"abcd"))[0].to_message()
    del (message["object"] if field in WITHIN else message)[field]

    assert "it was not read" in dead_letter(queued, json.dumps(message))


@pytest.mark.parametrize(
    "body",
    ["[" * 100_000, '{"v":1,"range":' + "9" * 5_000 + "}", "NaN", "null", "[]", '"\\ud800"', "\0"],
    ids=["deep", "digits", "nan", "null", "list", "surrogate", "nul"],
)
def test_hostile_bodies_end_in_the_dead_letter_queue(body: str) -> None:
    assert "it was not read" in dead_letter(Queued(), body)


def test_an_extent_of_an_unknown_job_says_so_in_the_dead_letter_queue() -> None:
    queued = Queued()
    (extent,) = queued.world.extents(queued.job(b"abcd"))

    why = dead_letter(queued, ask(extent, job="0" * 20))

    assert f"the ledger has no job {'0' * 20}" in why


def test_an_extent_with_another_range_than_the_ledgers_is_rejected() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh", extent_bytes=8)
    (extent,) = queued.world.extents(job)
    message = queued.take()
    queued.worker(queued.world.worker(stopping=after(0))).handle(message)

    why = dead_letter(queued, ask(extent, range=[0, 4]))

    assert "the ledger holds [0-8)" in why
    assert queued.item(job).state is ExtentState.PENDING


def test_an_extent_of_another_kafka_cluster_says_where_it_belongs() -> None:
    queued = Queued()
    world = queued.world
    request = replace(world.request(world.put(b"abcd")), cluster="elsewhere")
    job = queued.dispatch.start(world.planner.register(request))

    why = dead_letter(queued, queued.take().body)

    assert "belongs to Kafka cluster elsewhere" in why
    assert queued.now(job).state is JobState.RUNNING


def test_an_invalid_body_is_retried_while_the_dlq_is_unavailable() -> None:
    queued = Queued()
    queued.queue.send(["hello"])
    queued.dead.failures = 2

    answers = queued.drain(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [False, False, True]
    assert [message.body for message in queued.dead.messages] == ["hello"]


# -- defects of extentflow -------------------------------------------------------------------------


def test_a_missing_topic_fails_the_extent_and_a_replay_delivers_it() -> None:
    world = queue_world(store=MemoryStore(versioned=True))
    queued = Queued(world)
    job = queued.job(b"abcdefgh")
    missing = {TOPIC}

    def client(_extent: Extent) -> ProducerSettings:
        if TOPIC in missing:
            raise Misconfigured(f"topic {TOPIC} does not exist; create it")
        return ProducerSettings()

    worker = queued.worker(replace(world.worker(), client=client))
    queued.drain(worker)
    assert queued.reasons() == [f"topic {TOPIC} does not exist; create it"] * 2
    assert queued.now(job).state is JobState.FAILED
    world.put(b"ABCDEFGH")
    missing.clear()

    assert queued.redrive() == 2
    queued.drain(worker)

    done = queued.now(job)
    assert (done.state, done.version) == (JobState.DONE, job.version)
    assert sorted(world.delivered()) == expected(b"abcdefgh")
    assert queued.dead.messages == []
    assert world.ledger.jobs.progress(job.id).failed == 0


class Defective(Bytewise):
    """Trips over the object at one place."""

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        for chunk in super().decode(source, extent, position):
            if 4 in chunk.locations:
                raise ZeroDivisionError("a defect")
            yield chunk


def test_a_defect_of_a_format_fails_only_its_extent(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    queued = Queued(queue_world(format=Defective()))
    job = queued.job(b"abcdefghij")

    with caplog.at_level(logging.ERROR):
        queued.drain(queued.worker())

    states = [queued.item(job, ordinal).state for ordinal in range(3)]
    assert states == [ExtentState.DONE, ExtentState.FAILED, ExtentState.DONE]
    golden(*queued.reasons())
    assert queued.now(job).state is JobState.FAILED
    assert "ZeroDivisionError" in caplog.text


def test_trap_t09_one_corrupt_object_stops_no_other() -> None:
    """Trap: one corrupt object stopped all objects behind it."""
    queued = Queued()
    corrupt = queued.job(b"!!!!!!!!", "corrupt")
    sound = [queued.job(b"abcdefgh", f"sound-{number}") for number in range(3)]

    queued.drain(queued.worker())

    assert queued.now(corrupt).state is JobState.FAILED
    assert {queued.now(job).state for job in sound} == {JobState.DONE}


# -- renewal --------------------------------------------------------------------------------------


class Slow(Bytewise):
    """Decodes after two renewals."""

    def __init__(self, renewals: threading.Semaphore) -> None:
        super().__init__()
        self._renewals = renewals

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        assert self._renewals.acquire(timeout=300)
        assert self._renewals.acquire(timeout=300)
        return super().decode(source, extent, position)


@pytest.mark.parametrize(
    "fault",
    [
        None,
        QueueUnavailable("unavailable"),
        LedgerUnavailable("unavailable"),
        Misconfigured("refused"),
    ],
)
def test_lease_and_message_are_renewed_while_an_extent_is_in_work(fault: Exception | None) -> None:
    renewals = threading.Semaphore(0)
    queued = Queued(queue_world(format=Slow(renewals)))
    job = queued.job(b"abcd")
    message = queued.take()
    faults = [fault] if fault else []
    leases: list[str] = []

    def lease(name: str) -> None:
        if name == "renew" and threading.current_thread() is not threading.main_thread():
            leases.append(name)
            if faults and not isinstance(fault, QueueUnavailable):
                raise faults.pop()

    def visibility(name: str) -> None:
        if name == "delay":
            if faults:
                raise faults.pop()
            if leases:  # before the extent is claimed there is no lease to renew
                renewals.release()

    queued.world.ledger.on_call, queued.queue.on_call = lease, visibility

    answer = replace(queued.worker(), renew_seconds=0.001).handle(message)

    assert answer.again_seconds is None
    assert len(leases) >= 2
    assert queued.queue.next_at == queued.world.ticker.now + HIDE_SECONDS
    assert queued.now(job).state is JobState.DONE
