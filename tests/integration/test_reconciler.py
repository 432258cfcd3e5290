"""The reconciler on real servers: lost events, dead planners and dead workers cost time only."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.support import real
from tests.support.delivery import LEASE_SECONDS, Delivery, joined, numbered_lines
from tests.support.past import registered_ago
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.discovery.report import Report
from extentflow.model import Extent, Job, JobState
from extentflow.queue.consumer import QueueWorker
from extentflow.wiring import Runtime
from extentflow.wiring.functions import open_queue_worker, open_reconciler
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

FUNCTION = Path(__file__).parents[2] / "functions" / "reconciler"
LINES = numbered_lines("line-", 20_000)


@pytest.fixture(params=["bucket", "versioned_bucket"])
def home(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def delivery(
    stack: Stack,
    queues: Stack,
    s3: "S3Client",
    sqs: "SQSClient",
    *,
    bucket: str,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Delivery:
    return queued(Delivery(stack, s3, bucket, unique), queues, sqs, monkeypatch)


def queued(
    delivery: Delivery, queues: Stack, sqs: "SQSClient", monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    """Give a delivery queues of its own, and a connector without any event source."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", queues.endpoint("sqs"))
    delivery.make_queues(sqs)
    delivery.connector({"extent.bytes": "64KiB"})
    return delivery


def reconcile(delivery: Delivery) -> Report:
    """Do one run as a process of its own would."""
    return open_reconciler(Runtime(delivery.settings)).run()


def work(delivery: Delivery) -> None:
    """Be a worker until the queue is empty."""
    runtime = Runtime(delivery.settings)
    worker = open_queue_worker(
        runtime,
        runtime.slots(f"worker-{uuid4().hex}"),
        seconds_left=lambda: 900.0,
        margin_seconds=1.0,
    )
    eventually("the queue is empty", lambda: emptied(worker))
    worker.work.slots.release()


def emptied(worker: QueueWorker) -> bool:
    for message in worker.queue.receive(hide_seconds=30.0):
        answer = worker.handle(message)
        if answer.again_seconds is None:
            worker.queue.delete(message)
        else:
            worker.queue.delay(message, answer.again_seconds)
    depth = worker.queue.depth()
    return depth.waiting + depth.hidden == 0


def registered_long_ago(delivery: Delivery, key: str) -> Job:
    """Register a job as a planner does that dies before it sends anything."""
    runtime = delivery.runtime
    config, revision = runtime.connectors.latest(delivery.connector_name)
    version = runtime.objects.store(config, revision).head(delivery.bucket, key)
    return registered_ago(runtime, runtime.requests.make(config, revision, version, 1), 1_000)


def state_of(delivery: Delivery, job: Job) -> JobState:
    found = delivery.runtime.ledger.jobs.get(job.id)
    assert found is not None
    return found.state


@pytest.mark.long
def test_objects_without_a_notification_are_delivered_once(
    stack: Stack,
    queues: Stack,
    s3: "S3Client",
    sqs: "SQSClient",
    *,
    home: str,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery = queued(Delivery(stack, s3, home, unique), queues, sqs, monkeypatch)
    lines = {f"{number}.txt": numbered_lines(f"{number}-", 500) for number in range(5)}
    for label, body in lines.items():
        delivery.put(label, joined(body))
    delivery.put("_SUCCESS", b"")

    first, second = reconcile(delivery), reconcile(delivery)
    work(delivery)
    third = reconcile(delivery)
    fourth = reconcile(delivery)

    assert (first.keys_listed, first.jobs_new, first.problems) == (6, 5, 0)
    assert first.listings_finished == (delivery.connector_name,)
    assert [second.jobs_new, third.jobs_new, third.problems] == [0, 0, 0]
    assert fourth.ends_published == 0
    assert {job.state for job in delivery.jobs()} == {JobState.DONE}
    assert sorted(delivery.values()) == sorted(line for body in lines.values() for line in body)


@pytest.mark.long
def test_a_planner_killed_between_registering_and_sending_is_made_up_for(
    delivery: Delivery,
) -> None:
    job = registered_long_ago(delivery, delivery.put("lines.txt", joined(LINES)))

    report = reconcile(delivery)
    sent_once = delivery.runtime.ledger.jobs.progress(job.id)
    work(delivery)

    assert (report.jobs_resumed, report.jobs_new, report.problems) == (1, 0, 0)
    assert sent_once.done == 0
    assert state_of(delivery, job) is JobState.DONE
    assert sorted(delivery.values()) == sorted(LINES)


@pytest.mark.long
def test_the_reconciler_settles_a_worker_that_died_within_a_transaction(
    delivery: Delivery,
) -> None:
    delivery.put("lines.txt", joined(LINES))
    reconcile(delivery)
    (job,) = delivery.jobs()
    extent: Extent = next(delivery.runtime.planner().extents(job))
    began = time.monotonic()
    with (
        pytest.raises(real.Crash),
        real.worker(delivery, before=real.at(8, real.crash)) as worker,
    ):
        worker.run(extent)
    assert delivery.leftovers()
    early = reconcile(delivery)
    if time.monotonic() - began < LEASE_SECONDS:
        assert early.slots_recovered == 0  # its lease is respected

    reports = [early]

    def recovered() -> bool:
        reports.append(reconcile(delivery))
        return sum(report.slots_recovered for report in reports) > 0

    eventually("the lease ends and the slot is recovered", recovered)

    assert sum(report.slots_recovered for report in reports) == 1
    assert {report.problems for report in reports} == {0}
    assert delivery.leftovers() == []
    work(delivery)
    assert state_of(delivery, job) is JobState.DONE
    assert sorted(delivery.values()) == sorted(LINES)


def test_the_function_returns_logs_and_measures_what_it_did(delivery: Delivery) -> None:
    registered_long_ago(delivery, delivery.put("stuck.txt", b"a\nb\n"))
    delivery.put("lost.txt", b"c\n")

    log_lines = invoked(delivery)

    (line,) = [one for one in log_lines if one.get("message") == "reconciliation"]
    (metrics,) = [one for one in log_lines if "_aws" in one]
    answer = log_lines[-1]
    assert (answer["jobs_resumed"], answer["jobs_new"], answer["problems"]) == (1, 1, 0)
    assert (line["jobs_resumed"], line["keys_listed"]) == (1, 2)
    assert [metrics[name] for name in ("JobsResumed", "StalledJobs", "FailedJobs")] == [
        [1],
        [0],
        [0],
    ]
    work(delivery)
    assert sorted(delivery.values()) == [b"a", b"b", b"c"]


INVOKE = """
import json, types
import handler

context = types.SimpleNamespace(
    function_name="reconciler",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:reconciler",
    aws_request_id="request",
    get_remaining_time_in_millis=lambda: 120_000,
)
print(json.dumps(handler.handler({}, context)))
"""


def invoked(delivery: Delivery) -> list[dict[str, Any]]:
    """Run the handler in a process of its own; return the lines that it wrote, its answer last."""
    environment = {
        **delivery.environment,
        "PYTHONPATH": os.pathsep.join((str(FUNCTION), *sys.path)),
        "POWERTOOLS_SERVICE_NAME": "reconciler",
        "POWERTOOLS_METRICS_NAMESPACE": "extentflow",
    }
    done = subprocess.run(
        [sys.executable, "-c", INVOKE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=AWAITED_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
