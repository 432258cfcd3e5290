"""What the functions count: above all every job that FAILED, for the alarm that watches it."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support.xray import daemon

from extentflow.discovery.admission import AdmissionResult, ArrivalPending
from extentflow.discovery.report import Report
from extentflow.engines.remote import RunState
from extentflow.model import Job, JobState, ObjectVersion, Outcome, Plan, Receipt
from extentflow.queue.consumer import MessageDisposition
from extentflow.work_context import INVOCATION

FUNCTIONS = Path(__file__).parents[3] / "functions"
CONTEXT = SimpleNamespace(
    function_name="one",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:one",
    aws_request_id="request",
    get_remaining_time_in_millis=lambda: 120_000,
)
JOB = Job(
    id="6c1a3d0f9b2e4a7c8d15",
    connector="orders",
    revision=1,
    version=ObjectVersion("shop", "in/orders.csv", None, "etag", 4),
    format="csv",
    cluster="cluster",
    plan=Plan(target_bytes=1),
)

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a function's handler as Lambda would."""

    def module(name: str) -> ModuleType:
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", name)
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "extentflow")
        if "AWS_LAMBDA_FUNCTION_VERSION" not in os.environ:
            monkeypatch.setenv("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        spec = spec_from_file_location(f"{name}_handler", FUNCTIONS / name / "handler.py")
        assert spec is not None
        assert spec.loader is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return module


def job(state: JobState, *, published: bool = False) -> Job:
    return replace(JOB, state=state, published=published)


@pytest.mark.parametrize(
    ("ended", "failed"),
    [(job(JobState.FAILED), 1), (job(JobState.DONE), 0), (None, 0)],
)
def test_the_worker_counts_the_jobs_that_it_brought_to_failed(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ended: Job | None,
    failed: int,
) -> None:
    worker = load("worker")
    answer = SimpleNamespace(handle=lambda _message: MessageDisposition(ended=ended))
    monkeypatch.setattr(worker, "worker", lambda: answer)

    worker.handler(messages("{}"), CONTEXT)

    assert counted(capsys)["FailedJobs"] == [failed]


@pytest.mark.parametrize(
    ("planned", "failed"),
    [
        (job(JobState.FAILED), 1),
        (job(JobState.FAILED, published=True), 0),
        (job(JobState.RUNNING), 0),
    ],
)
def test_the_planner_counts_failed_jobs_until_they_are_published(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    planned: Job,
    failed: int,
) -> None:
    planner = load("planner")
    handler = SimpleNamespace(take=lambda _body, **_: [AdmissionResult((planned,))])
    monkeypatch.setattr(planner, "arrival_handler", lambda: handler)

    planner.handler(messages("{}"), CONTEXT)

    assert counted(capsys)["FailedJobs"] == [failed]


FAILS: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "worker",
        "worker",
        {"handle": lambda _message: MessageDisposition(ended=job(JobState.FAILED))},
        "FailedJobs",
    ),
    ("worker", "worker", {}, "MessagesReturned"),
    (
        "planner",
        "arrival_handler",
        {"take": lambda _body, **_: [AdmissionResult((job(JobState.FAILED),))]},
        "FailedJobs",
    ),
    ("planner", "arrival_handler", {}, "MessagesReturned"),
    (
        "receiver",
        "receiver",
        {"answer": lambda _request: SimpleNamespace(status=503, content_type="x", body="")},
        "Status5xx",
    ),
]


@pytest.mark.parametrize("version", ["7", "$LATEST"])
@pytest.mark.parametrize("case", FAILS, ids=lambda case: f"{case[0]}-{case[3]}")
def test_failures_of_a_published_version_are_counted_by_its_number(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str, dict[str, Any], str],
    version: str,
) -> None:
    """A gradual deployment compares the two versions; the alarms of operators do not."""
    service, opened, does, metric = case
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_VERSION", version)
    function = load(service)
    monkeypatch.setattr(function, opened, lambda: SimpleNamespace(**does))
    monkeypatch.setattr(function, "HttpRequest", Mock(), raising=False)

    function.handler(messages("{}"), CONTEXT)

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (found,) = [line for line in lines if metric in line and "_aws" in line]
    by_version = [] if version == "$LATEST" else [["service", "version"]]
    assert dimensions(found) == [["service"], *by_version]
    assert found.get("version") == ("7" if by_version else None)
    assert found[metric] == [1.0]


def dimensions(document: dict[str, Any]) -> list[list[str]]:
    """Return the sets of dimensions under which a document's metrics are stored."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    return [sorted(one) for one in directive["Dimensions"]]


EXTENT = JOB.extent(2, 0, 4)
RECEIPT = Receipt(JOB.id, 2, EXTENT.uri, Outcome.DONE, records=7, bytes_read=4, seconds=1.5)
OPEN = "reconciliation of a connector"


@pytest.mark.parametrize("measured", ["none", "ord*", "other"])
def test_a_measured_connector_has_metrics_of_its_own_beside_the_total(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    measured: str,
) -> None:
    monkeypatch.setenv("EXTENTFLOW_METRICS_CONNECTORS", measured)
    worker = load("worker")
    done = MessageDisposition(receipt=RECEIPT, ended=job(JobState.DONE), extent=EXTENT)
    monkeypatch.setattr(worker, "worker", lambda: SimpleNamespace(handle=lambda _message: done))

    worker.handler(messages("{}"), CONTEXT)

    documents = written(capsys)
    totals = {name: value for one in documents for name, value in values(one).items()}
    own = [one for one in documents if ["connector"] in dimensions(one)]
    assert all(["service"] in dimensions(one) for one in documents)
    assert totals["Records"] == totals["BytesRead"] + 3 == 7.0
    assert totals["BadRecords"] == totals["FailedJobs"] == 0.0
    assert [one["connector"] for one in own] == (["orders"] if measured == "ord*" else [])
    # A 0 would be billed as a metric of the connector.
    for one in own:
        assert values(one) == {
            "Records": 7.0,
            "BytesRead": 4.0,
            "ExtentSeconds": 1.5,
            "ExtentsDelivered": 1.0,
            "ObjectsDelivered": 1.0,
        }


def test_connectors_of_a_reconciliation_are_measured_beside_its_totals(
    load: Load,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXTENTFLOW_METRICS_CONNECTORS", "*")
    reconciler = load("reconciler")
    report = Report(oldest_open_seconds=61.0, jobs_failed=1).of("orders")
    report += Report(oldest_open_seconds=5.0, jobs_failed=2).of("worker")
    monkeypatch.setattr(reconciler, "reconciler", lambda: SimpleNamespace(run=lambda: report))

    reconciler.handler({}, CONTEXT)

    found = {json.dumps(dimensions(one)) + one.get("connector", ""): one for one in written(capsys)}
    assert {name: values(one)["OldestOpenJobSeconds"] for name, one in found.items()} == {
        '[["service"]]': 61.0,
        '[["connector"]]orders': 61.0,
        '[["connector"]]worker': 5.0,
    }
    assert values(found['[["service"]]'])["FailedJobs"] == 3.0
    assert values(found['[["connector"]]worker']).keys() == {"FailedJobs", "OldestOpenJobSeconds"}
    assert [line for line in caplog.messages if line == OPEN] == [OPEN] * 2


def test_every_line_about_an_extent_names_connector_job_extent_and_trace(
    load: Load, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace is that of the message, which planner and workers have in common."""
    worker = load("worker")
    done = MessageDisposition(receipt=RECEIPT, extent=EXTENT)
    monkeypatch.setattr(worker, "worker", lambda: SimpleNamespace(handle=lambda _message: done))
    monkeypatch.setenv(INVOCATION, "Root=1-2-own;Parent=1;Sampled=0")
    event = messages("{}")
    event["Records"][0]["attributes"]["AWSTraceHeader"] = "Root=1-1-planner;Sampled=0"

    worker.handler(event, CONTEXT)

    (record,) = [one for one in caplog.records if one.message == "extent"]
    line = json.loads(worker.logger.registered_handler.format(record))
    keys = ("connector", "job", "extent", "trace", "records")
    assert [line[key] for key in keys] == ["orders", JOB.id, 2, "1-1-planner", 7]


@pytest.mark.parametrize("service", ["planner", "worker"])
def test_a_sampled_trace_is_found_by_the_object_of_its_message(
    load: Load, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    done = MessageDisposition(receipt=RECEIPT, extent=EXTENT)
    planned = [AdmissionResult((job(JobState.RUNNING),))]
    function = load(service)
    doubles = {
        "worker": SimpleNamespace(handle=lambda _message: done),
        "arrival_handler": SimpleNamespace(take=lambda _body, **_: planned),
    }
    opened = {"worker": "worker", "planner": "arrival_handler"}[service]
    monkeypatch.setattr(function, opened, lambda: doubles[opened])
    with daemon(monkeypatch) as received:
        function.handler(messages("{}"), CONTEXT)
        (segment,) = received()

    extent = {"extent": 2} if service == "worker" else {}
    assert segment["annotations"] == {
        "connector": "orders",
        "job": JOB.id,
        "object": JOB.version.uri,
        **extent,
    }


def test_the_reconciler_processes_only_the_run_of_an_end_event(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler = load("reconciler")
    asked: list[tuple[str, str]] = []

    def ended(run: str, state: RunState, *, late: Callable[[], bool]) -> int:
        asked.append((run, state))
        assert not late()
        return 3

    monkeypatch.setattr(reconciler, "job_router", lambda: SimpleNamespace(ended=ended))
    event = {"source": "aws.emr-serverless", "detail": {"jobRunId": "r1", "state": "FAILED"}}

    answer = reconciler.handler(event, CONTEXT)

    assert (asked, answer) == ([("r1", "FAILED")], {"run": "r1", "messages_resent": 3})


def test_a_successful_reconciler_run_writes_the_metric_of_its_alarm(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciler = load("reconciler")
    found_old = SimpleNamespace(run=lambda: Report(oldest_open_seconds=61.5))
    monkeypatch.setattr(reconciler, "reconciler", lambda: found_old)

    reconciler.handler({}, CONTEXT)

    found = counted(capsys)
    assert found["OldestOpenJobSeconds"] == [61.5]
    assert found["ReconciliationProblems"] == [0]
    assert found["service"] == "reconciler"


def test_the_planner_starts_no_message_when_its_batch_has_no_time_left(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = load("planner")
    taken: list[str] = []

    def take(body: str, **_: object) -> list[AdmissionResult]:
        taken.append(body)
        planner.deadline.start(planner.BEGIN_SECONDS + 1 if body == "a" else 1)
        return [AdmissionResult()]

    monkeypatch.setattr(planner, "arrival_handler", lambda: SimpleNamespace(take=take))
    hurried = SimpleNamespace(**{**vars(CONTEXT), "get_remaining_time_in_millis": lambda: 1})

    answer = planner.handler(messages("a", "b", "c", "d"), hurried)

    assert taken == ["a", "b"]
    assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == ["2", "3"]


@pytest.mark.parametrize(
    "error", [ArrivalPending("the table is unavailable"), TypeError("a defect")]
)
def test_the_planner_logs_why_a_message_is_redelivered(
    load: Load,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    planner = load("planner")
    monkeypatch.setattr(planner, "arrival_handler", lambda: SimpleNamespace(take=raising(error)))

    answer = planner.handler(messages("{}"), CONTEXT)

    assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == ["0"]
    assert str(error) in caplog.text


def test_the_worker_logs_an_unexpected_error(
    load: Load, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = load("worker")
    failing = SimpleNamespace(handle=raising(TypeError("a defect")))
    monkeypatch.setattr(worker, "worker", lambda: failing)

    answer = worker.handler(messages("{}"), CONTEXT)

    assert [one["itemIdentifier"] for one in answer["batchItemFailures"]] == ["0"]
    assert "a defect" in caplog.text


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def messages(*bodies: str) -> dict[str, Any]:
    """Return an event of SQS for a function."""
    return {
        "Records": [
            {
                "messageId": str(number),
                "receiptHandle": "handle",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:queue",
                "awsRegion": "us-east-1",
            }
            for number, body in enumerate(bodies)
        ]
    }


def counted(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the only document of metrics that was printed."""
    (found,) = written(capsys)
    return found


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the documents of metrics that were printed."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "_aws" in line]


def values(document: dict[str, Any]) -> dict[str, float]:
    """Return what a document counts."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    return {one["Name"]: sum(document[one["Name"]]) for one in directive["Metrics"]}
