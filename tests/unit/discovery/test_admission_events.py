"""The planner publishes the end of jobs that end during planning."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.memory_delivery import TOPIC
from tests.unit.discovery.test_admission import AdmissionWorld

from extentflow.errors import BusUnavailable
from extentflow.jobs.events import JobEvents
from extentflow.model import Job, JobState
from extentflow.testing.services import MemoryJobEvents


def job_events(admission: AdmissionWorld, publisher: MemoryJobEvents) -> JobEvents:
    return JobEvents(admission.world.ledger, (publisher,), lambda _job: TOPIC)


def test_an_empty_object_is_published_by_its_planner_once() -> None:
    admission, publisher = AdmissionWorld(), MemoryJobEvents()
    handler = replace(admission.handler(), publish=job_events(admission, publisher).publish)
    body = admission.put(b"")

    handler.take(body)
    handler.take(body)

    (job,) = admission.jobs()
    assert [(event.job, event.state) for event in publisher.events] == [(job.id, JobState.DONE)]
    assert job.published


def test_a_job_that_is_sent_to_workers_is_not_published() -> None:
    admission, publisher = AdmissionWorld(), MemoryJobEvents()

    replace(admission.handler(), publish=job_events(admission, publisher).publish).take(
        admission.put(b"abc")
    )

    assert publisher.events == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BusUnavailable("no bus answers"), "no bus answers"),
        (ZeroDivisionError("oh"), "unexpected ZeroDivisionError"),
    ],
)
def test_what_cannot_be_published_never_makes_a_message_come_again(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    def unavailable(_jobs: Sequence[Job]) -> None:
        raise error

    admission = AdmissionWorld()
    body = admission.put(b"")

    (received,) = replace(admission.handler(), publish=unavailable).take(body)

    assert [job.state for job in received.jobs] == [JobState.DONE]
    assert "job events are published later: " in caplog.text
    assert said in caplog.text
