"""A queue worker publishes the end of a job last; a failed publication never fails a message."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from tests.support.memory_delivery import TOPIC
from tests.support.queued import Queued

from extentflow.errors import LedgerUnavailable
from extentflow.jobs.events import JobEvents
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState
from extentflow.queue.consumer import QueueWorker
from extentflow.testing.services import MemoryJobEvents


@dataclass
class ObservedQueues:
    """Queues with a recorder of published job ends."""

    queued: Queued = field(default_factory=Queued)
    publisher: MemoryJobEvents = field(default_factory=MemoryJobEvents)

    @property
    def events(self) -> JobEvents:
        return JobEvents(self.queued.world.ledger, (self.publisher,), lambda _job: TOPIC)

    def worker(self, ended: Callable[[Job], None] | None = None) -> QueueWorker:
        return replace(self.queued.worker(), ended=ended or self.events.publish_ended)

    @property
    def ends(self) -> list[tuple[str, JobState, int]]:
        return [(event.job, event.state, event.reopened) for event in self.publisher.events]


def test_the_worker_that_ends_a_job_publishes_it_once() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"abcdefgh")

    scene.queued.drain(scene.worker())

    assert scene.ends == [(job.id, JobState.DONE, 0)]
    assert scene.queued.now(job).published


def test_a_doubled_message_publishes_nothing_more() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"abc")
    (body,) = scene.queued.queue.sent
    scene.queued.drain(scene.worker())

    scene.queued.queue.send([body])
    scene.queued.drain(scene.worker())

    assert scene.ends == [(job.id, JobState.DONE, 0)]


def test_the_answer_names_the_job_that_it_brought_to_its_end() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"ab!defgh")
    (_, second) = scene.queued.queue.sent

    first, ending = scene.queued.drain(scene.worker())
    scene.queued.queue.send([second])
    (doubled,) = scene.queued.drain(scene.worker())

    assert first.ended is None
    assert ending.ended is not None
    assert (ending.ended.id, ending.ended.state) == (job.id, JobState.FAILED)
    assert doubled.ended is None


def test_a_failed_job_is_published_once_its_message_is_dead_lettered() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"ab!d")
    dead_letters: list[int] = []

    def ended(found: Job) -> None:
        dead_letters.append(len(scene.queued.dead.messages))
        scene.events.publish_ended(found)

    scene.queued.drain(scene.worker(ended))

    assert dead_letters == [1]
    assert scene.ends == [(job.id, JobState.FAILED, 0)]


def test_a_replay_from_the_dead_letter_queue_publishes_its_own_end() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"ab!d")
    scene.queued.drain(scene.worker())
    scene.queued.world.tolerant = True

    scene.queued.redrive()
    scene.queued.drain(scene.worker())

    assert scene.ends == [(job.id, JobState.FAILED, 0), (job.id, JobState.DONE, 1)]


def test_a_job_of_a_stopped_connector_is_published_as_cancelled() -> None:
    scene = ObservedQueues()
    scene.queued.world.ledger.connectors.put("c", {})
    job = scene.queued.job(b"abcdefgh")
    scene.queued.world.ledger.connectors.set_state("c", ConnectorState.STOPPED)

    scene.queued.drain(scene.worker())

    assert scene.ends == [(job.id, JobState.CANCELLED, 0)]


def test_an_end_that_others_brought_about_is_published_by_the_next_message() -> None:
    scene = ObservedQueues()
    job = scene.queued.job(b"abcdefgh")
    scene.queued.world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "replaced")

    scene.queued.drain(scene.worker())

    assert scene.ends == [(job.id, JobState.SUPERSEDED, 0)]


def test_an_unavailable_publisher_leaves_the_event_to_the_reconciler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = ObservedQueues()
    scene.queued.world.ledger.connectors.put("c", {})
    job = scene.queued.job(b"abc")
    scene.publisher.failures = 1

    with caplog.at_level(logging.WARNING):
        (answer,) = scene.queued.drain(scene.worker())

    assert answer.again_seconds is None
    assert f"the end of job {job.id} is published later" in caplog.text
    assert not scene.queued.now(job).published
    assert scene.events.sweep(10) == 1
    assert scene.ends == [(job.id, JobState.DONE, 0)]


@pytest.mark.parametrize("error", [LedgerUnavailable("unavailable"), KeyError("a defect")])
def test_whatever_goes_wrong_in_publishing_never_fails_a_message(error: Exception) -> None:
    scene = ObservedQueues()
    scene.queued.job(b"abc")

    def ended(_job: Job) -> None:
        raise error

    (answer,) = scene.queued.drain(scene.worker(ended))

    assert answer.again_seconds is None
    assert scene.queued.dead.messages == []
