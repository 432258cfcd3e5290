"""Job events on a real broker and table: published once, with the job's facts."""

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.real import replay_here, run_here

from extentflow.errors import SinkUnavailable
from extentflow.jobs.events import JobEvents
from extentflow.jobs.publishers import KafkaJobEvents
from extentflow.kafka import JOBS_TOPIC
from extentflow.model import Job, JobState
from extentflow.wiring.functions import open_job_events, publish_pending

if TYPE_CHECKING:
    pass

LINES = numbered_lines("line ", 20_000)
BAD_JSON = b'{"n": 1}\nnot json\n'


def published_events(delivery: Delivery) -> list[dict[str, Any]]:
    """Return the events of this delivery's connector, as any consumer reads them."""
    records = delivery.read(JOBS_TOPIC)
    events = [(record.key, json.loads(record.value or b"")) for record in records]
    ours = [(key, event) for key, event in events if event["connector"] == delivery.connector_name]
    assert all(key == event["job"].encode() for key, event in ours)
    return [event for _, event in ours]


def expected_event(job: Job) -> dict[str, Any]:
    """Return the members that every event of a job has."""
    version = job.version
    return {
        "v": 1,
        "job": job.id,
        "connector": job.connector,
        "revision": 1,
        "object": {
            "bucket": version.bucket,
            "key": version.key,
            "version_id": version.version_id,
            "etag": version.etag,
            "size": version.size,
        },
        "state": job.state.value,
        "reason": job.reason,
        "extents": job.plan.count,
        "generation": 0,
        "reopened": job.reopened,
    }


@pytest.mark.long
def test_a_run_publishes_each_end_once(delivery: Delivery) -> None:
    delivery.connector({"extent.bytes": "64KiB"})
    delivery.put("full.txt", joined(LINES))
    delivery.put("empty.txt", b"")

    delivery.finish("inline")
    delivery.finish("inline")

    jobs = {job.id: job for job in delivery.jobs()}
    events = published_events(delivery)
    assert sorted(event["job"] for event in events) == sorted(jobs)
    assert all(job.published for job in jobs.values())
    for event in events:
        job = jobs[event["job"]]
        full = job.version.size > 0
        assert expected_event(job).items() <= event.items()
        assert (event["state"], event["topic"]) == ("DONE", delivery.topic)
        assert (event["records"], event["bad"]) == (len(LINES) if full else 0, 0)
        assert (event["extents"] > 1, event["failed"]) == (full, 0)
        assert event["ended"].endswith("Z")


def test_the_topic_keeps_a_jobs_last_event(delivery: Delivery) -> None:
    delivery.runtime.open_event_sink().close()

    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, JOBS_TOPIC)
    config = admin.describe_configs([resource], request_timeout=60)[resource].result()
    assert config["cleanup.policy"].value == "compact,delete"
    assert len(admin.list_topics(JOBS_TOPIC, timeout=60).topics[JOBS_TOPIC].partitions) == 1


def test_a_failed_job_and_its_replay_are_two_ends(delivery: Delivery) -> None:
    delivery.connector({})
    delivery.put("a.jsonl", BAD_JSON)
    run_here(delivery)
    first = publish_pending(delivery.runtime, 10)
    (job,) = delivery.jobs()
    replay_here(delivery, job)

    second = publish_pending(delivery.runtime, 10)

    (again,) = delivery.jobs()
    assert (first, second) == (1, 1)
    before, after = published_events(delivery)
    assert expected_event(job).items() <= before.items()
    assert expected_event(again).items() <= after.items()
    assert (before["state"], before["failed"]) == (JobState.FAILED, 1)
    assert after["reopened"] > before["reopened"]  # times are two processes', a second apart or so


def test_an_end_that_no_broker_accepted_is_swept_later(delivery: Delivery) -> None:
    delivery.connector({})
    delivery.put("a.txt", joined(LINES[:10]))
    run_here(delivery)
    (job,) = delivery.jobs()

    def no_broker() -> Any:  # noqa: ANN401
        raise SinkUnavailable("no broker answers")

    runtime = delivery.runtime
    nowhere = KafkaJobEvents(no_broker, runtime.clock)
    with pytest.raises(SinkUnavailable):
        JobEvents(runtime.ledger, (nowhere,), runtime.connectors.topic_of).publish_ended(job)
    runtime.open_event_sink().close()  # the topic is there, whichever test comes first
    silent = published_events(delivery)
    swept = publish_pending(runtime, 10)

    assert silent == []
    assert swept == 1
    assert [event["job"] for event in published_events(delivery)] == [job.id]
    assert list(runtime.ledger.jobs.unpublished(10)) == []


def test_a_producer_serves_many_ends(delivery: Delivery) -> None:
    delivery.connector({})
    for number in range(3):
        delivery.put(f"{number}.txt", joined(LINES[:10]))
    run_here(delivery)
    job_events = open_job_events(delivery.runtime)

    for job in delivery.jobs():
        job_events.publish_ended(job)
    job_events.close()

    assert len(published_events(delivery)) == 3
