"""Job events: content, publishing, marking as published, and sweeps."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.support.local_engine import until_final
from tests.support.memory_delivery import TOPIC, World

from extentflow.errors import BusUnavailable, LedgerUnavailable, Misconfigured
from extentflow.jobs.events import PAGE_EVENTS, JobEvent, JobEvents
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.testing.services import MemoryJobEvents

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
class JobEnds:
    """A world, two publishers, and jobs that end."""

    world: World = field(default_factory=World)
    first: MemoryJobEvents = field(default_factory=MemoryJobEvents)
    second: MemoryJobEvents = field(default_factory=MemoryJobEvents)

    def __post_init__(self) -> None:
        self.world.ledger.connectors.put("c", {})

    @property
    def job_events(self) -> JobEvents:
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
        """Return cancelled jobs, the oldest first."""
        jobs = [self.world.job(b"abc", f"key{number}") for number in range(count)]
        return [self.world.ledger.jobs.end(job.id, JobState.CANCELLED, "stopped") for job in jobs]

    @property
    def published_ends(self) -> list[tuple[str, JobState, int]]:
        """The ends that the last publisher accepted."""
        return [(event.job, event.state, event.reopened) for event in self.second.events]


class UnavailableAfter(MemoryJobEvents):
    """Accepts a few calls, then is unavailable."""

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
        "filtered": 0,
        "completion": "",
    }


def test_an_event_has_the_totals_of_the_ledger() -> None:
    ends = JobEnds(World(tolerant=True))
    job = ends.run(b"abcd!fgh")

    ends.job_events.publish_ended(job)

    (event,) = ends.first.events
    assert (event.job, event.state, event.reason) == (job.id, JobState.DONE, "")
    assert (event.extents, event.failed, event.records, event.bad) == (2, 0, 7, 1)
    assert (event.version, event.connector, event.revision) == (job.version, "c", 1)
    assert (event.topic, event.generation, event.reopened) == (TOPIC, 0, 0)
    assert event.ended == job.ended == ends.world.ticker.now


def test_an_event_counts_the_records_of_failed_extents() -> None:
    ends = JobEnds()
    job = ends.run(b"abcdef!h")

    ends.job_events.publish_ended(job)

    (event,) = ends.first.events
    assert (event.state, event.failed, event.records) == (JobState.FAILED, 1, 6)
    assert event.reason == "1 of 2 extents failed"


# -- publishing and marking -----------------------------------------------------------------------


def test_an_end_is_published_to_every_publisher_and_marked() -> None:
    ends = JobEnds()
    job = ends.run(b"abc")

    ends.job_events.publish_ended(job)

    assert ends.first.events == ends.second.events
    assert ends.now(job) == replace(job, published=True)
    assert list(ends.world.ledger.jobs.unpublished(10)) == []


def test_a_published_end_is_not_published_again() -> None:
    ends = JobEnds()
    ends.job_events.publish_ended(ends.run(b"abc"))

    again = ends.job_events.publish([ends.now(job) for job in ends.world.ledger.jobs.list()])

    assert again == 0
    assert len(ends.first.events) == 1


def test_open_jobs_are_not_published() -> None:
    ends = JobEnds()
    job = ends.world.job(b"abc")

    assert ends.job_events.publish([job]) == 0
    assert ends.first.events == []


@pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
def test_every_early_end_is_published(state: JobState) -> None:
    ends = JobEnds()
    job = ends.world.ledger.jobs.end(ends.world.job(b"abc").id, state, "why")

    ends.job_events.publish_ended(job)

    (event,) = ends.first.events
    assert (event.state, event.reason) == (state, "why")


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_end_is_marked_only_after_every_publisher_accepted_it(which: str) -> None:
    ends = JobEnds()
    job = ends.run(b"abc")
    unavailable: MemoryJobEvents = getattr(ends, which)
    unavailable.failures = 1

    with pytest.raises(BusUnavailable):
        ends.job_events.publish_ended(job)
    unmarked = ends.now(job)
    swept = ends.job_events.sweep(10)

    assert not unmarked.published
    assert swept == 1
    assert [event.job for event in unavailable.events] == [job.id]
    assert ends.now(job).published


def test_a_crash_between_publishing_and_marking_publishes_again() -> None:
    ends = JobEnds()
    job = ends.run(b"abc")
    ends.world.ledger.refuse("mark_published")
    with pytest.raises(LedgerUnavailable):
        ends.job_events.publish_ended(job)

    swept = ends.job_events.sweep(10)

    assert swept == 1
    assert ends.first.events == [ends.first.events[0]] * 2
    assert ends.now(job).published


def test_the_end_of_a_replay_is_another_event() -> None:
    ends = JobEnds(World(tolerant=False))
    job = ends.run(b"ab!d")
    ends.job_events.publish_ended(job)
    replayed = ends.world.planner.replay(ends.now(job))
    ends.world.tolerant = True
    ends.world.broker.create_topic("dead")
    until_final(ends.world.worker())(ends.world.extents(replayed)[0])

    ends.job_events.publish_ended(ends.now(job))

    done = ends.now(job)
    assert done.published
    assert done.reopened > 0
    assert ends.published_ends == [
        (job.id, JobState.FAILED, 0),
        (job.id, JobState.DONE, done.reopened),
    ]


def test_a_job_replayed_during_publishing_has_another_unpublished_end() -> None:
    ends = JobEnds()
    job = ends.run(b"ab!d")

    def reopen(name: str) -> None:
        if name == "mark_published":
            ends.world.ledger.jobs.resume(job.id)

    ends.world.ledger.on_call = reopen
    ends.job_events.publish_ended(job)
    ended = ends.world.ledger.jobs.close(job.id)

    assert (ended.state, ended.reopened, ended.published) == (JobState.FAILED, 1, False)
    assert list(ends.world.ledger.jobs.unpublished(10)) == [ended]


def test_a_job_with_an_unreadable_connector_is_published_without_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ends = JobEnds()
    unreadable, readable = ends.ended(2)

    def topic(job: Job) -> str:
        if job.id == unreadable.id:
            raise Misconfigured("no revision 1 of connector c")
        return TOPIC

    with caplog.at_level(logging.WARNING):
        count = replace(ends.job_events, topic=topic).sweep(10)

    assert count == 2
    assert {event.job: event.topic for event in ends.second.events} == {
        unreadable.id: "",
        readable.id: TOPIC,
    }
    assert ends.now(unreadable).published
    assert f"{unreadable.id} has no topic: no revision 1" in caplog.text


def test_jobs_without_a_topic_do_not_block_a_sweep() -> None:
    ends = JobEnds()
    jobs = ends.ended(3)

    def topic(_job: Job) -> str:
        raise Misconfigured("the key makes no topic name")

    job_events = replace(ends.job_events, topic=topic)
    counts = [job_events.sweep(2) for _ in range(3)]

    assert counts == [2, 1, 0]
    assert {event.job for event in ends.second.events} == {job.id for job in jobs}


# -- sweeping -------------------------------------------------------------------------------------


def test_a_sweep_publishes_all_unpublished_ends_page_by_page() -> None:
    ends = JobEnds()
    jobs = ends.ended(PAGE_EVENTS + 1)

    swept = ends.job_events.sweep(1_000)

    assert swept == len(jobs)
    assert {event.job for event in ends.second.events} == {job.id for job in jobs}
    assert ends.job_events.sweep(1_000) == 0


def test_a_sweep_publishes_no_more_than_its_limit() -> None:
    ends = JobEnds()
    ends.ended(3)

    assert ends.job_events.sweep(2) == 2
    assert len(list(ends.world.ledger.jobs.unpublished(10))) == 1


def test_ends_published_before_an_outage_stay_published() -> None:
    ends = JobEnds()
    ends.ended(2 * PAGE_EVENTS)
    ends.second = UnavailableAfter(calls=1)

    with pytest.raises(BusUnavailable):
        ends.job_events.sweep(1_000)

    assert len(ends.second.events) == PAGE_EVENTS
    assert len(list(ends.world.ledger.jobs.unpublished(1_000))) == PAGE_EVENTS


def test_a_sweep_reads_the_current_state_of_jobs() -> None:
    ends = JobEnds()
    job = ends.run(b"ab!d")

    def reopen(name: str) -> None:
        if name == "job":
            ends.world.ledger.on_call = lambda _name: None
            ends.world.ledger.jobs.resume(job.id)

    ends.world.ledger.on_call = reopen

    assert ends.job_events.sweep(10) == 0
    assert ends.first.events == []


def test_close_closes_every_publisher() -> None:
    ends = JobEnds()

    ends.job_events.close()

    assert ends.first.closed
    assert ends.second.closed
