"""Who hears of a runtime's jobs, and when a worker has no time to tell."""

from dataclasses import replace

import pytest

from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured, Retryable, SinkUnavailable
from extentflow.jobs.publishers import EventBridgeJobEvents, KafkaJobEvents
from extentflow.ledger import Ledger
from extentflow.model import Job, JobState, ObjectVersion, Plan
from extentflow.queue.consumer import QueueWorker
from extentflow.testing.ledger import MemoryLedger
from extentflow.wiring import Runtime
from extentflow.wiring.functions import (
    PUBLISHING_SECONDS,
    open_job_events,
    open_queue_worker,
    publish_pending,
    unless_late,
)

SETTINGS = WorkerSettings(bootstrap_servers="127.0.0.1:1", ledger_table="ledger")
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/extents"
JOB = Job("1" * 20, "c", 1, ObjectVersion("shop", "in/k", None, "e", 1), "text", "k", Plan(1))


def runtime(settings: WorkerSettings = SETTINGS, ledger: Ledger | None = None) -> Runtime:
    made = Runtime(settings)
    made.__dict__["ledger"] = ledger or MemoryLedger()
    return made


def test_every_end_is_published_to_the_cluster() -> None:
    (only,) = open_job_events(runtime()).publishers

    assert isinstance(only, KafkaJobEvents)


def test_every_end_is_published_to_a_configured_bus() -> None:
    publishers = open_job_events(runtime(replace(SETTINGS, event_bus="jobs"))).publishers

    assert [type(one) for one in publishers] == [KafkaJobEvents, EventBridgeJobEvents]
    assert isinstance(publishers[1], EventBridgeJobEvents)
    assert publishers[1].bus == "jobs"


def test_an_event_names_the_topic_that_the_jobs_revision_says() -> None:
    ledger = MemoryLedger()
    usual = {"name": "c", "aws.s3.bucket.name": "shop"}
    ledger.connectors.put("c", {**usual, "topic": "old.{key}"})
    ledger.connectors.put("c", {**usual, "topic": "new"})

    assert open_job_events(runtime(ledger=ledger)).topic(JOB) == "old.in.k"


def test_an_event_names_the_template_where_the_key_makes_no_topic_of_it() -> None:
    ledger = MemoryLedger()
    ledger.connectors.put("c", {"name": "c", "aws.s3.bucket.name": "shop", "topic": "in.{key}"})
    job = replace(JOB, version=replace(JOB.version, key="my file.csv"))

    assert open_job_events(runtime(ledger=ledger)).topic(job) == "in.{key}"


def test_a_connector_that_is_gone_has_no_topic() -> None:
    with pytest.raises(Misconfigured, match="no revision 1 of connector c"):
        open_job_events(runtime()).topic(JOB)


def test_a_sweep_without_events_needs_no_broker() -> None:
    assert publish_pending(runtime(), 10) == 0


def test_a_sweep_with_an_unavailable_broker_reports_it_and_marks_nothing() -> None:
    ledger = MemoryLedger()
    ledger.connectors.put("c", {"name": "c", "topic": "t", "aws.s3.bucket.name": "shop"})
    ledger.jobs.end(ledger.jobs.register(JOB).id, JobState.CANCELLED, "stopped")

    with pytest.raises(SinkUnavailable):
        publish_pending(runtime(ledger=ledger), 10)

    assert len(list(ledger.jobs.unpublished(10))) == 1


def test_publishing_is_begun_only_with_time_enough() -> None:
    published: list[Job] = []
    lateness = iter([False, True])
    ended = unless_late(lambda: next(lateness), published.append)

    ended(JOB)
    with pytest.raises(Retryable, match="too little time"):
        ended(JOB)

    assert published == [JOB]


def queue_worker(seconds_left: float) -> QueueWorker:
    """A worker whose connector is not stored, so that publishing an event fails."""
    settings = replace(SETTINGS, extents_queue_url=QUEUE, extents_dlq_url=QUEUE)
    made = runtime(settings)
    return open_queue_worker(
        made, made.slots("w"), seconds_left=lambda: seconds_left, margin_seconds=25.0
    )


def test_a_queue_worker_publishes_while_there_is_time_for_an_outage() -> None:
    with pytest.raises(SinkUnavailable):
        queue_worker(PUBLISHING_SECONDS).ended(JOB.in_state(JobState.DONE))


def test_a_queue_worker_leaves_an_end_to_others_when_time_is_short() -> None:
    with pytest.raises(Retryable, match="too little time"):
        queue_worker(PUBLISHING_SECONDS - 1).ended(JOB.in_state(JobState.DONE))
