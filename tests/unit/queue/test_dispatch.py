"""From jobs to messages: nothing unsent, whenever a planner dies; order kept where it is asked."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.support.memory_delivery import Bytewise, expected
from tests.support.queued import Queued, ordinals, queue_world

from extentflow.errors import (
    CorruptObject,
    CorruptRecord,
    LedgerUnavailable,
    ObjectChanged,
    QueueUnavailable,
    Retryable,
    StoreUnavailable,
)
from extentflow.jobs.planner import PAGE_EXTENTS
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.queue import Message
from extentflow.queue.dispatch import UnfinishedDispatch, body_of
from extentflow.storage import RangeSource

TWO_PAGES = b"x" * (PAGE_EXTENTS + 50)


class Looking(Bytewise):
    """A columnar format, as far as planning goes: it reads the object to cut it, unevenly."""

    location_unit: Literal["offset", "row"] = "row"
    extent_bytes: int | None = 32 << 20
    cut_version = 1

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        start, size = 0, source.version.size
        while start < size:
            length = target_bytes + source.read(start, start + 1)[0] % 2
            yield start, min(size, start + length)
            start += length


FORMATS = [Bytewise(), Looking()]


def registered(queued: Queued, body: bytes, **changes: bool) -> Job:
    """Put an object and register it, one byte an extent."""
    request = queued.world.request(queued.world.put(body), 1, **changes)
    return queued.world.planner.register(request)


class Killed(Exception):  # noqa: N818
    """The planner's process is gone."""


@dataclass
class Killer:
    """Kills a planner at its n-th operation: before it takes effect, or after."""

    at: int
    when: Literal["before", "after"]
    error: Exception = field(default_factory=Killed)
    count: int = 0

    def watch(self, queued: Queued) -> None:
        ledger, queue = queued.world.ledger, queued.queue
        ledger.on_call = queue.on_call = self.before
        ledger.on_answer = queue.on_answer = self.after

    def before(self, _name: str) -> None:
        self.count += 1
        if self.when == "before" and self.count == self.at:
            raise self.error

    def after(self, _name: str) -> None:
        if self.when == "after" and self.count == self.at:
            raise self.error


def spared(queued: Queued) -> None:
    """Stop killing workers."""
    Killer(at=0, when="before").watch(queued)


# -- planning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", FORMATS, ids=["text", "columnar"])
def test_every_extent_of_a_job_is_sent_once(fmt: Bytewise) -> None:
    queued = Queued(queue_world(format=fmt))
    job = registered(queued, b"ab" * 300)

    started = queued.dispatch.start(job)

    extents = queued.world.extents(job)
    assert len(extents) > 2 * PAGE_EXTENTS
    assert queued.queue.sent == [body_of(extent) for extent in extents]
    assert (started.state, started.plan.count) == (JobState.RUNNING, len(extents))


def test_a_message_is_ascii_and_says_everything_about_its_extent() -> None:
    queued = Queued()
    job = queued.job(b"abc", "ключ/☃ %+.csv")
    (extent,) = queued.world.extents(job)

    (body,) = queued.queue.sent

    assert body.isascii()
    assert Extent.from_message(json.loads(body)) == extent
    assert json.loads(body) == {
        "v": 1,
        "job": job.id,
        "extent": 0,
        "connector": "c",
        "object": {
            "bucket": "bucket",
            "key": "ключ/☃ %+.csv",
            "version_id": None,
            "etag": job.version.etag,
            "size": 3,
        },
        "range": [0, 3],
        "format": "bytewise",
    }


@pytest.mark.parametrize("fmt", FORMATS, ids=["text", "columnar"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_planner_killed_at_any_point_sends_a_page_at_most_twice(
    fmt: Bytewise, when: Literal["before", "after"]
) -> None:
    at = 0
    while True:
        at += 1
        queued = Queued(queue_world(format=fmt))
        killer = Killer(at, when)
        killer.watch(queued)

        with suppress(Killed):
            queued.dispatch.start(registered(queued, TWO_PAGES))
        if killer.count < at:
            break
        spared(queued)
        job = queued.dispatch.start(registered(queued, TWO_PAGES))

        sent = Counter(ordinals(queued.queue.sent))
        assert job.state is JobState.RUNNING
        assert set(sent) == set(range(job.plan.count))
        assert sum(sent.values()) <= job.plan.count + PAGE_EXTENTS
        assert max(sent.values()) <= 2
    assert at > 5


@settings(deadline=None, max_examples=30)
@given(kills=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=6))
def test_planners_killed_again_and_again_send_at_most_one_page_more_each(
    kills: list[tuple[int, bool]],
) -> None:
    queued = Queued()

    for at, before in kills:
        Killer(at, "before" if before else "after").watch(queued)
        with suppress(Killed):
            queued.dispatch.start(registered(queued, TWO_PAGES))
    spared(queued)
    job = queued.dispatch.start(registered(queued, TWO_PAGES))

    sent = Counter(ordinals(queued.queue.sent))
    assert set(sent) == set(range(job.plan.count))
    assert sum(sent.values()) <= job.plan.count + PAGE_EXTENTS * len(kills)


@pytest.mark.parametrize(
    "error", [QueueUnavailable("unavailable"), LedgerUnavailable("unavailable")]
)
def test_an_unavailable_queue_or_table_leaves_the_plan_to_be_resumed(error: Retryable) -> None:
    queued = Queued()
    job = registered(queued, TWO_PAGES)
    Killer(3, "before", error).watch(queued)

    with pytest.raises(type(error)):
        queued.dispatch.start(job)

    spared(queued)
    assert queued.now(job).state is JobState.PLANNING
    assert queued.dispatch.start(queued.now(job)).state is JobState.RUNNING
    assert set(ordinals(queued.queue.sent)) == set(range(len(TWO_PAGES)))


def test_a_planner_without_time_stops_after_a_page_and_resumes_there() -> None:
    queued = Queued()
    job = registered(queued, b"x" * (5 * PAGE_EXTENTS))
    calls = 0

    while job.state is JobState.PLANNING:
        assert calls <= 5
        before = len(queued.queue.sent)
        job = queued.dispatch.start(job, late=lambda: True)
        assert len(queued.queue.sent) - before <= PAGE_EXTENTS
        calls += 1

    assert calls == 6  # five pages, and the end
    assert queued.queue.sent == [body_of(extent) for extent in queued.world.extents(job)]


def test_workers_may_finish_everything_before_the_plan_is_complete() -> None:
    queued = Queued()
    job = queued.dispatch.start(registered(queued, TWO_PAGES), late=lambda: True)
    assert job.state is JobState.PLANNING
    queued.drain(queued.worker(), most=2 * len(TWO_PAGES))
    assert queued.now(job).state is JobState.PLANNING

    job = queued.dispatch.start(queued.now(job))
    assert job.state is JobState.RUNNING
    queued.drain(queued.worker(), most=2 * len(TWO_PAGES))

    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted(expected(TWO_PAGES))


def test_trap_t19_an_empty_object_sends_nothing_and_is_done() -> None:
    queued = Queued()

    job = queued.dispatch.start(registered(queued, b""))

    assert job.state is JobState.DONE
    assert queued.queue.sent == []


@dataclass
class Tripping(Bytewise):
    """A format that cannot cut on after some extents, until it is fixed."""

    error: Exception | None
    good: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        for ordinal, cut in enumerate(super().plan(source, target_bytes)):
            if self.error is not None and ordinal >= self.good:
                raise self.error
            yield cut


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CorruptObject("its footer is damaged"), JobState.FAILED),
        (CorruptRecord("a quote that never ends"), JobState.FAILED),
        (ObjectChanged("replaced"), JobState.SUPERSEDED),
    ],
)
def test_a_replay_of_a_plan_that_failed_half_way_sends_the_rest(
    error: Exception, state: JobState
) -> None:
    fmt = Tripping(error, good=PAGE_EXTENTS + 10)
    queued = Queued(queue_world(format=fmt))
    worker = queued.worker()
    job = queued.dispatch.start(registered(queued, TWO_PAGES))
    assert (job.state, job.reason) == (state, str(error))
    queued.drain(worker)  # what was sent finds the job closed: its messages are over
    fmt.error = None

    started = queued.dispatch.start(queued.world.planner.replay(job))
    queued.drain(worker)

    assert started.state is JobState.RUNNING
    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted(expected(TWO_PAGES))
    assert sum(Counter(ordinals(queued.queue.sent)).values()) == len(TWO_PAGES) + PAGE_EXTENTS


# -- sending again --------------------------------------------------------------------------------


def test_a_job_that_was_reopened_has_everything_sent_that_is_not_final() -> None:
    queued = Queued()
    worker = queued.worker()
    job = queued.job(b"abcdefghijkl")
    message = queued.take()
    queued.settle(message, worker.handle(message))
    queued.world.put(b"ABCDEFGHIJKL")
    queued.drain(worker)
    assert queued.now(job).state is JobState.SUPERSEDED
    queued.world.put(b"abcdefghijkl")
    queued.queue.sent.clear()

    queued.dispatch.start(queued.world.planner.replay(queued.now(job)))

    assert ordinals(queued.queue.sent) == [1, 2]
    queued.drain(worker)
    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted(expected(b"abcdefghijkl"))


def test_a_running_job_that_was_never_reopened_is_not_sent_again() -> None:
    queued = Queued()
    job = queued.job(b"abcdefgh")

    assert queued.dispatch.start(queued.now(job)) == queued.now(job)

    assert ordinals(queued.queue.sent) == [0, 1]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.SUPERSEDED, JobState.CANCELLED])
def test_a_job_that_has_ended_is_not_sent_again(state: JobState) -> None:
    queued = Queued()
    job = queued.world.ledger.jobs.end(queued.job(b"abcd").id, state, "enough")
    queued.queue.sent.clear()

    assert queued.dispatch.start(job) == job
    assert queued.dispatch.resend(job) == 0

    assert queued.queue.sent == []


def test_resending_says_how_many_messages_it_took() -> None:
    queued = Queued()
    job = queued.dispatch.start(registered(queued, TWO_PAGES))
    queued.deliver(queued.worker())  # ten of them
    queued.queue.sent.clear()

    sent = queued.dispatch.resend(queued.now(job))

    assert sent == len(queued.queue.sent) == len(TWO_PAGES) - 10


def test_resending_without_time_says_that_it_is_not_finished(golden: Golden) -> None:
    queued = Queued()
    job = queued.dispatch.start(registered(queued, TWO_PAGES))
    queued.queue.sent.clear()

    with golden.raises(UnfinishedDispatch, match=f"job {job.id}.*{PAGE_EXTENTS}"):
        queued.dispatch.resend(queued.now(job), late=lambda: True)

    assert ordinals(queued.queue.sent) == list(range(PAGE_EXTENTS))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CorruptObject("its footer is damaged"), JobState.FAILED),
        (ObjectChanged("replaced"), JobState.SUPERSEDED),
    ],
)
def test_a_job_that_cannot_be_cut_again_ends_when_it_is_sent_again(
    error: Exception, state: JobState
) -> None:
    fmt = Tripping(None)
    queued = Queued(queue_world(format=fmt))
    job = queued.job(b"abcdefgh")
    fmt.error = error

    queued.dispatch.resend(queued.now(job))

    assert (queued.now(job).state, queued.now(job).reason) == (state, str(error))


# -- order ----------------------------------------------------------------------------------------


def waiting(queued: Queued) -> list[int]:
    return ordinals(message.body for message in queued.queue.messages)


def ordered(queued: Queued, body: bytes = b"abcdefghijkl") -> Job:
    return queued.job(body, ordered=True)


@pytest.mark.parametrize("fmt", FORMATS, ids=["text", "columnar"])
def test_an_ordered_job_has_one_message_at_a_time(fmt: Bytewise) -> None:
    queued = Queued(queue_world(format=fmt))
    job = ordered(queued)
    worker = queued.worker()
    seen = []

    while queued.queue.messages:
        seen.append(waiting(queued))
        queued.deliver(worker)

    assert seen == [[ordinal] for ordinal in range(job.plan.count)]
    assert queued.world.delivered() == expected(b"abcdefghijkl")
    assert queued.now(job).state is JobState.DONE


def test_the_next_is_sent_only_after_the_one_before_is_done() -> None:
    queued = Queued()
    job = ordered(queued)
    states: list[ExtentState] = []

    def look(name: str) -> None:
        if name == "send":
            queued.queue.on_call = lambda _: None
            states.append(queued.item(job).state)

    queued.queue.on_call = look
    queued.deliver(queued.worker())

    assert states == [ExtentState.DONE]
    assert waiting(queued) == [1]


@pytest.mark.parametrize("died", ["before", "after"])
def test_a_redelivered_message_sends_the_next_extent_after_a_crash(
    died: str,
) -> None:
    queued = Queued()
    job = ordered(queued)
    message = queued.take()

    def die(name: str) -> None:
        if name == "send":
            raise Killed

    if died == "before":
        queued.queue.on_call = die
    else:
        queued.queue.on_answer = die
    with pytest.raises(Killed):
        queued.worker().handle(message)
    queued.queue.on_call = queued.queue.on_answer = lambda _: None
    assert queued.item(job).state is ExtentState.DONE

    queued.drain(queued.worker())

    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcdefghijkl")
    assert max(Counter(ordinals(queued.queue.sent)).values()) <= 2


def test_an_unavailable_queue_after_completion_retries_the_message() -> None:
    queued = Queued()
    job = ordered(queued)
    message = queued.take()
    queued.queue.failures = 1

    answer = queued.worker().handle(message)

    assert answer.again_seconds is not None
    assert queued.item(job).state is ExtentState.DONE
    queued.settle(message, answer)
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE


def test_a_doubled_message_of_an_early_extent_starts_no_second_row() -> None:
    queued = Queued()
    job = ordered(queued)
    worker = queued.worker()
    early = body_of(queued.world.extents(job)[0])
    for _ in range(2):
        queued.deliver(worker)
    assert waiting(queued) == [2]
    message = queued.take()
    claim = queued.world.slots().claim(
        queued.world.extents(job)[2], ProducerSettings(), message=message.id
    )
    assert isinstance(claim, Claim)

    assert worker.handle(Message("doubled", early)).again_seconds is None

    assert waiting(queued) == [2]


def test_an_ordered_job_continues_after_the_extents_of_another_engine() -> None:
    queued = Queued()
    job = ordered(queued)
    message = queued.take()
    inline = queued.worker()
    for extent in queued.world.extents(job)[:2]:
        inline.work.slots.release()
        inline._run(extent, Message("", ""))  # an engine that sends nothing
    assert queued.item(job, 1).state is ExtentState.DONE

    queued.settle(message, queued.worker().handle(message))

    assert waiting(queued) == [2]
    queued.drain(queued.worker())
    assert queued.world.delivered() == expected(b"abcdefghijkl")


def test_an_ordered_job_stops_at_a_failed_extent_and_a_replay_resumes() -> None:
    queued = Queued()
    job = ordered(queued, b"abcd!fghijkl")
    worker = queued.worker()

    queued.drain(worker)
    assert queued.now(job).state is JobState.FAILED
    assert ordinals(message.body for message in queued.dead.messages) == [1]
    assert queued.item(job, 2).state is ExtentState.PENDING
    early = Message("doubled", body_of(queued.world.extents(job)[0]))
    assert worker.handle(early).again_seconds is None

    assert queued.queue.messages == []


def test_a_duplicate_message_replays_no_later_extent() -> None:
    queued = Queued()
    job = ordered(queued, b"abcd!fghijkl")
    worker = queued.worker()
    queued.deliver(worker)
    queued.world.ledger.refuse("close", times=1_000)  # the job stays open for a while
    queued.settle(message := queued.take(), worker.handle(message))
    queued.world.ledger.refuse("close", times=-1_000)
    assert (queued.item(job, 1).state, queued.now(job).state) == (
        ExtentState.FAILED,
        JobState.RUNNING,
    )
    queued.queue.delete(message)

    queued.dispatch.follow(queued.now(job), queued.world.extents(job)[0])

    assert queued.queue.messages == []


def test_a_job_that_has_ended_has_no_next() -> None:
    queued = Queued()
    job = ordered(queued)
    worker = queued.worker()
    message = queued.take()
    worker.handle(message)
    queued.world.ledger.jobs.end(job.id, JobState.CANCELLED, "enough")
    queued.queue.sent.clear()

    assert worker.handle(message).again_seconds is None

    assert queued.queue.sent == []


def test_an_ordered_jobs_replay_delivers_the_rest_in_order() -> None:
    queued = Queued()
    job = ordered(queued)
    worker = queued.worker()
    steer = queued.world.ledger
    steer.connectors.put("c", {"name": "c"})
    message = queued.take()
    queued.settle(message, worker.handle(message))
    steer.connectors.set_state("c", ConnectorState.STOPPED)
    queued.drain(worker)
    assert queued.now(job).state is JobState.CANCELLED
    steer.connectors.set_state("c", ConnectorState.ENABLED)

    queued.dispatch.start(queued.world.planner.replay(queued.now(job)))
    assert waiting(queued) == [1]
    queued.drain(worker)

    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcdefghijkl")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CorruptObject("its footer is damaged"), JobState.FAILED),
        (ObjectChanged("replaced"), JobState.SUPERSEDED),
    ],
)
def test_a_row_that_cannot_be_cut_on_ends_its_job_instead_of_hanging(
    error: Exception, state: JobState
) -> None:
    fmt = Tripping(None)
    queued = Queued(queue_world(format=fmt))
    job = ordered(queued)
    fmt.error = error

    answers = queued.drain(queued.worker())

    assert [answer.ended.state for answer in answers if answer.ended] == [state]
    assert (queued.now(job).state, queued.now(job).reason) == (state, str(error))
    assert queued.dead.messages == []
    fmt.error = None
    queued.dispatch.start(queued.world.planner.replay(queued.now(job)))
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(b"abcdefghijkl")


def test_an_ordered_job_that_ended_while_planning_continues_after_its_replay() -> None:
    queued = Queued()
    job = registered(queued, TWO_PAGES, ordered=True)
    planning = queued.dispatch.start(job, late=lambda: True)
    assert (planning.state, planning.plan.count) == (JobState.PLANNING, PAGE_EXTENTS)
    worker = queued.worker()
    for _ in range(PAGE_EXTENTS):
        queued.deliver(worker)
    assert ordinals(message.body for message in queued.queue.messages) == [PAGE_EXTENTS]
    queued.world.ledger.jobs.end(job.id, JobState.FAILED, "enough")
    queued.drain(worker)  # the message of the next extent finds its job ended

    queued.dispatch.start(queued.world.planner.replay(queued.now(job)))
    assert ordinals(message.body for message in queued.queue.messages) == [PAGE_EXTENTS]
    queued.drain(worker)

    assert queued.now(job).state is JobState.DONE
    assert queued.world.delivered() == expected(TWO_PAGES)


def test_a_planner_sends_nothing_more_of_a_job_that_ended_meanwhile() -> None:
    queued = Queued()
    job = registered(queued, TWO_PAGES)

    def cancel(name: str) -> None:
        if name == "send":
            queued.world.ledger.jobs.end(job.id, JobState.CANCELLED, "enough")

    queued.queue.on_answer = cancel
    started = queued.dispatch.start(job)

    assert started.state is JobState.CANCELLED
    assert ordinals(queued.queue.sent) == list(range(PAGE_EXTENTS))


def test_an_unavailable_store_before_the_next_extent_retries_the_message() -> None:
    fmt = Tripping(None)
    queued = Queued(queue_world(format=fmt))
    job = ordered(queued)
    fmt.error = StoreUnavailable("unavailable")

    answers = queued.deliver(queued.worker())

    assert [answer.again_seconds is None for answer in answers] == [False]
    fmt.error = None
    queued.drain(queued.worker())
    assert queued.now(job).state is JobState.DONE
