"""When a job's end is told, to whom, and when it counts as told."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.support.here import until_final
from tests.support.world import TOPIC, World

from extentflow.errors import BusUnavailable, LedgerUnavailable, Misconfigured
from extentflow.jobs.events import PAGE_EVENTS, JobEvent, JobEvents
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.testing.publishers import MemoryJobEvents

EVENT = JobEvent(
    job="0123456789abcdef0123",
    connector="orders",
    revision=3,
    version=ObjectVersion("shop", "in/ü \ud800.csv", "v1", "etag", 12_345),
    state=JobState.FAILED,
    reason="1 of 2 extents failed",
    extents=2,
    failed=1,
    records=90,
    bad=4,
    topic="orders",
    generation=1,
    reopened=2,
    ended=1_700_000_000.25,
)


@dataclass
class Told:
    """A world, two who want to hear of ends, and jobs that end."""

    world: World = field(default_factory=World)
    first: MemoryJobEvents = field(default_factory=MemoryJobEvents)
    second: MemoryJobEvents = field(default_factory=MemoryJobEvents)

    @property
    def announcements(self) -> JobEvents:
        return JobEvents(self.world.ledger, (self.first, self.second), lambda _job: TOPIC)

    def run(self, body: bytes, key: str = "key") -> Job:
        """Deliver an object; return its ended job."""
        job = self.world.job(body, key)
        run = until_final(self.world.worker())
        for extent in self.world.extents(job):
            run(extent)
        return self.now(job)

    def now(self, job: Job) -> Job:
        found = self.world.ledger.jobs.get(job.id)
        assert found is not None
        return found

    def ended(self, count: int) -> list[Job]:
        """Return jobs that somebody called off, the oldest first."""
        jobs = [self.world.job(b"abc", f"key{number}") for number in range(count)]
        return [self.world.ledger.jobs.end(job.id, JobState.CANCELLED, "stopped") for job in jobs]

    @property
    def jobs_told(self) -> list[tuple[str, JobState, int]]:
        """What the one asked last accepted."""
        return [(event.job, event.state, event.reopened) for event in self.second.events]


class AwayAfter(MemoryJobEvents):
    """Accepts a few calls, then is away."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def publish(self, events: Sequence[JobEvent]) -> None:
        self.failures = self.calls <= 0
        self.calls -= 1
        super().publish(events)


# -- the event ------------------------------------------------------------------------------------


def test_an_event_is_json_of_schema_version_1() -> None:
    text = EVENT.to_text()

    assert text.isascii()
    assert json.loads(text) == {
        "v": 1,
        "job": "0123456789abcdef0123",
        "connector": "orders",
        "revision": 3,
        "object": {
            "bucket": "shop",
            "key": "in/ü \ud800.csv",
            "version_id": "v1",
            "etag": "etag",
            "size": 12_345,
        },
        "state": "FAILED",
        "reason": "1 of 2 extents failed",
        "extents": 2,
        "failed": 1,
        "records": 90,
        "bad": 4,
        "topic": "orders",
        "generation": 1,
        "reopened": 2,
        "ended": "2023-11-14T22:13:20.250Z",
    }


def test_an_event_has_the_totals_of_the_ledger() -> None:
    told = Told(World(tolerant=True))
    job = told.run(b"abcd!fgh")

    told.announcements.publish_ended(job)

    (event,) = told.first.events
    assert (event.job, event.state, event.reason) == (job.id, JobState.DONE, "")
    assert (event.extents, event.failed, event.records, event.bad) == (2, 0, 7, 1)
    assert (event.version, event.connector, event.revision) == (job.version, "c", 1)
    assert (event.topic, event.generation, event.reopened) == (TOPIC, 0, 0)
    assert event.ended == job.ended == told.world.ticker.now


def test_what_a_failed_extent_committed_is_counted() -> None:
    told = Told()
    job = told.run(b"abcdef!h")

    told.announcements.publish_ended(job)

    (event,) = told.first.events
    assert (event.state, event.failed, event.records) == (JobState.FAILED, 1, 6)
    assert event.reason == "1 of 2 extents failed"


# -- announcing and marking -----------------------------------------------------------------------


def test_an_end_is_told_to_all_and_marked() -> None:
    told = Told()
    job = told.run(b"abc")

    told.announcements.publish_ended(job)

    assert told.first.events == told.second.events
    assert told.now(job) == replace(job, announced=True)
    assert list(told.world.ledger.jobs.unpublished(10)) == []


def test_an_end_that_was_told_is_not_told_again() -> None:
    told = Told()
    told.announcements.publish_ended(told.run(b"abc"))

    again = told.announcements.publish([told.now(job) for job in told.world.ledger.jobs.list()])

    assert again == 0
    assert len(told.first.events) == 1


def test_open_jobs_have_no_end_to_tell() -> None:
    told = Told()
    job = told.world.job(b"abc")

    assert told.announcements.publish([job]) == 0
    assert told.first.events == []


@pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
def test_every_early_end_is_told(state: JobState) -> None:
    told = Told()
    job = told.world.ledger.jobs.end(told.world.job(b"abc").id, state, "why")

    told.announcements.publish_ended(job)

    (event,) = told.first.events
    assert (event.state, event.reason) == (state, "why")


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_end_is_not_marked_before_every_announcer_accepted_it(which: str) -> None:
    told = Told()
    job = told.run(b"abc")
    away: MemoryJobEvents = getattr(told, which)
    away.failures = 1

    with pytest.raises(BusUnavailable):
        told.announcements.publish_ended(job)
    unmarked = told.now(job)
    swept = told.announcements.sweep(10)

    assert not unmarked.announced
    assert swept == 1
    assert [event.job for event in away.events] == [job.id]
    assert told.now(job).announced


def test_a_crash_between_announcing_and_marking_announces_again() -> None:
    told = Told()
    job = told.run(b"abc")
    told.world.ledger.refuse("mark_published")
    with pytest.raises(LedgerUnavailable):
        told.announcements.publish_ended(job)

    swept = told.announcements.sweep(10)

    assert swept == 1
    assert told.first.events == [told.first.events[0]] * 2
    assert told.now(job).announced


def test_a_replay_that_ends_is_told_as_another_end() -> None:
    told = Told(World(tolerant=False))
    job = told.run(b"ab!d")
    told.announcements.publish_ended(job)
    replayed = told.world.planner.replay(told.now(job))
    told.world.tolerant = True
    told.world.broker.create_topic("dead")
    until_final(told.world.worker())(told.world.extents(replayed)[0])

    told.announcements.publish_ended(told.now(job))

    done = told.now(job)
    assert done.announced
    assert done.reopened > 0
    assert told.jobs_told == [
        (job.id, JobState.FAILED, 0),
        (job.id, JobState.DONE, done.reopened),
    ]


def test_a_job_that_is_replayed_while_its_end_is_told_keeps_its_next_end_to_tell() -> None:
    told = Told()
    job = told.run(b"ab!d")

    def reopen(name: str) -> None:
        if name == "mark_published":
            told.world.ledger.jobs.resume(job.id)

    told.world.ledger.on_call = reopen
    told.announcements.publish_ended(job)
    ended = told.world.ledger.jobs.close(job.id)

    assert (ended.state, ended.reopened, ended.announced) == (JobState.FAILED, 1, False)
    assert list(told.world.ledger.jobs.unpublished(10)) == [ended]


def test_a_job_whose_connector_cannot_be_read_is_told_without_a_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    unreadable, readable = told.ended(2)

    def topic(job: Job) -> str:
        if job.id == unreadable.id:
            raise Misconfigured("no revision 1 of connector c")
        return TOPIC

    with caplog.at_level(logging.WARNING):
        count = replace(told.announcements, topic=topic).sweep(10)

    assert count == 2
    assert {event.job: event.topic for event in told.second.events} == {
        unreadable.id: "",
        readable.id: TOPIC,
    }
    assert told.now(unreadable).announced
    assert f"{unreadable.id} has no topic: no revision 1" in caplog.text


def test_jobs_without_a_topic_are_not_in_the_way_of_a_sweep() -> None:
    told = Told()
    jobs = told.ended(3)

    def topic(_job: Job) -> str:
        raise Misconfigured("the key makes no topic name")

    announcements = replace(told.announcements, topic=topic)
    counts = [announcements.sweep(2) for _ in range(3)]

    assert counts == [2, 1, 0]
    assert {event.job for event in told.second.events} == {job.id for job in jobs}


# -- sweeping -------------------------------------------------------------------------------------


def test_a_sweep_tells_everything_that_waits_page_by_page() -> None:
    told = Told()
    jobs = told.ended(PAGE_EVENTS + 1)

    swept = told.announcements.sweep(1_000)

    assert swept == len(jobs)
    assert {event.job for event in told.second.events} == {job.id for job in jobs}
    assert told.announcements.sweep(1_000) == 0


def test_a_sweep_tells_no_more_than_asked_for() -> None:
    told = Told()
    told.ended(3)

    assert told.announcements.sweep(2) == 2
    assert len(list(told.world.ledger.jobs.unpublished(10))) == 1


def test_a_sweep_that_meets_an_outage_keeps_what_it_told() -> None:
    told = Told()
    told.ended(2 * PAGE_EVENTS)
    told.second = AwayAfter(calls=1)

    with pytest.raises(BusUnavailable):
        told.announcements.sweep(1_000)

    assert len(told.second.events) == PAGE_EVENTS
    assert len(list(told.world.ledger.jobs.unpublished(1_000))) == PAGE_EVENTS


def test_a_sweep_looks_at_jobs_as_they_are_now() -> None:
    told = Told()
    job = told.run(b"ab!d")

    def reopen(name: str) -> None:
        if name == "job":
            told.world.ledger.on_call = lambda _name: None
            told.world.ledger.jobs.resume(job.id)

    told.world.ledger.on_call = reopen

    assert told.announcements.sweep(10) == 0
    assert told.first.events == []


def test_closing_lets_go_of_every_announcer() -> None:
    told = Told()

    told.announcements.close()

    assert told.first.closed
    assert told.second.closed
