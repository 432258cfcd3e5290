"""The planner publishes the end of jobs that end during planning."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.memory_delivery import TOPIC
from tests.unit.discovery.test_admission import Desk

from extentflow.errors import BusUnavailable
from extentflow.jobs.events import JobEvents
from extentflow.model import Job, JobState
from extentflow.testing.services import MemoryJobEvents


def told_by(desk: Desk, announcer: MemoryJobEvents) -> JobEvents:
    return JobEvents(desk.world.ledger, (announcer,), lambda _job: TOPIC)


def test_an_empty_object_is_announced_by_its_planner_once() -> None:
    desk, announcer = Desk(), MemoryJobEvents()
    reception = replace(desk.reception(), announce=told_by(desk, announcer).publish)
    body = desk.put(b"")

    reception.take(body)
    reception.take(body)

    (job,) = desk.jobs()
    assert [(event.job, event.state) for event in announcer.events] == [(job.id, JobState.DONE)]
    assert job.announced


def test_a_job_that_is_sent_to_workers_is_not_published() -> None:
    desk, announcer = Desk(), MemoryJobEvents()

    replace(desk.reception(), announce=told_by(desk, announcer).publish).take(desk.put(b"abc"))

    assert announcer.events == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BusUnavailable("no bus answers"), "no bus answers"),
        (ZeroDivisionError("oh"), "unexpected ZeroDivisionError"),
    ],
)
def test_what_cannot_be_announced_never_makes_a_message_come_again(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    def away(_jobs: Sequence[Job]) -> None:
        raise error

    desk = Desk()
    body = desk.put(b"")

    (received,) = replace(desk.reception(), announce=away).take(body)

    assert [job.state for job in received.jobs] == [JobState.DONE]
    assert "job events are published later: " in caplog.text
    assert said in caplog.text
