"""Ledger writes that took effect although their response was lost; unavailable servers.

A proxy between the worker and DynamoDB forwards a write and resets the connection instead of
returning the response. For every kind of write: each record arrives once, counters are exact.
"""

import json
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.faultproxy import Answer, DropResponse, FaultProxy, Request
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.real import (
    Crash,
    at,
    crash,
    replay_here,
    run_here,
    take_over,
    the_job,
)
from tests.support.waiting import eventually

from extentflow.jobs.run import RunReport
from extentflow.model import JobState
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINES = numbered_lines("line ", 5_000)
BAD = joined([*LINES[:4_000], b"\xff", *LINES[4_000:]])

Item = Mapping[str, Any]


@pytest.fixture
def delivery(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, dynamodb_proxy: FaultProxy
) -> Delivery:
    """A delivery whose ledger is behind the proxy."""
    changes = {"ledger_endpoint": dynamodb_proxy.endpoint, "retry_timeout_seconds": 1.0}
    return Delivery(stack, s3, bucket, unique, changes)


# -- which write is it? ---------------------------------------------------------------------------


def writes(request: Request) -> list[Item]:
    """Return the writes of a request, each with its key, expressions and values."""
    operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
    body = json.loads(request.body) if operation.endswith(("Item", "Items")) else {}
    if operation == "UpdateItem":
        return [body]
    entries = body.get("TransactItems", ()) if operation == "TransactWriteItems" else ()
    return [item for entry in entries for item in entry.values()]


def is_about(item: Item, pk: str, sk: str = "") -> bool:
    key = item["Key"]
    return bool(key["pk"]["S"].startswith(pk) and key["sk"]["S"].startswith(sk))


def sets(item: Item, **expected: str) -> bool:
    """Whether a write sets attributes to these texts (or, where empty, to anything)."""
    values = item.get("ExpressionAttributeValues", {})
    update = item.get("UpdateExpression", "").partition("SET")[2].partition("REMOVE")[0]
    return all(
        f"#{name} = :{name}" in update and (not text or values[f":{name}"] == {"S": text})
        for name, text in expected.items()
    )


def some(about: tuple[str, str], **expected: str) -> Callable[[Request], bool]:
    """Return whether one of a request's writes is about that item and sets those attributes."""
    return lambda request: any(
        is_about(item, *about) and sets(item, **expected) for item in writes(request)
    )


def in_transaction(holds: Callable[[Request], bool]) -> Callable[[Request], bool]:
    return lambda request: len(writes(request)) > 1 and holds(request)


JOB, EXTENT, SLOT = ("JOB#", "JOB"), ("JOB#", "EXTENT#"), ("SLOTS#", "")


def settles(request: Request) -> bool:
    """A transaction that lets an extent go without being its owner's last word."""
    found = writes(request)
    lets_go = any(
        is_about(item, *SLOT) and "REMOVE #working" in item.get("UpdateExpression", "")
        for item in found
    )
    is_last_word = any(is_about(item, *EXTENT) and sets(item, last="") for item in found)
    return len(found) > 1 and lets_go and not is_last_word


def completes(verdict: str) -> Callable[[Request], bool]:
    return in_transaction(
        lambda request: any(
            is_about(item, *EXTENT) and sets(item, last="", state=verdict)
            for item in writes(request)
        )
    )


# -- a run ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(some(JOB, created=""), id="register"),
        pytest.param(some(JOB, planned="", count=""), id="plan"),
        pytest.param(some(SLOT, epoch="", owner=""), id="lease"),
        pytest.param(in_transaction(some(SLOT, working="")), id="claim"),
        pytest.param(some(EXTENT, position="", attempts="", records=""), id="advance"),
        pytest.param(completes("DONE"), id="complete"),
        pytest.param(some(JOB, state="DONE"), id="close"),
    ],
)
@pytest.mark.long
def test_a_write_without_an_answer_neither_loses_nor_doubles(
    delivery: Delivery, dynamodb_proxy: FaultProxy, write: Callable[[Request], bool]
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"extent.bytes": "20KiB"})
    rule = dynamodb_proxy.inject(DropResponse(), when=write, times=2)

    report = run_here(delivery)

    assert rule.hits == 2
    assert report.ok
    check_exactly_once(delivery, report)


def test_a_settlement_without_an_answer_neither_loses_nor_doubles(
    delivery: Delivery, dynamodb_proxy: FaultProxy
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    with pytest.raises(Crash):
        run_here(delivery, before=at(3, crash))
    rule = dynamodb_proxy.inject(DropResponse(), when=settles, times=2)

    take_over(delivery)
    report = run_here(delivery)

    assert rule.hits == 2
    assert report.ok
    check_exactly_once(delivery, report)


@pytest.mark.parametrize(
    ("write", "before"),
    [
        pytest.param(completes("FAILED"), 0, id="fail"),
        pytest.param(some(JOB, state="FAILED"), 0, id="close as failed", marks=pytest.mark.variant),
        pytest.param(
            some(JOB, state="RUNNING", reopened=""), 1, id="resume", marks=pytest.mark.variant
        ),
        pytest.param(in_transaction(some(EXTENT, state="PENDING")), 1, id="reopen"),
    ],
)
def test_failing_and_replaying_without_answers_counts_every_extent_once(
    delivery: Delivery,
    dynamodb_proxy: FaultProxy,
    write: Callable[[Request], bool],
    before: int,
) -> None:
    delivery.put("lines.txt", BAD)
    delivery.connector({"extent.bytes": "20KiB"})
    if before:
        assert not run_here(delivery).ok
    rule = dynamodb_proxy.inject(DropResponse(), when=write)

    report = replay_here(delivery, the_job(delivery)) if before else run_here(delivery)

    assert rule.hits == 1
    assert (report.jobs[0].state, report.jobs[0].failed) == ("FAILED", 1)
    assert report.jobs[0].done == report.jobs[0].extents - 1
    values = delivery.values()
    assert len(values) == len(set(values))
    assert set(values) < set(LINES)
    assert delivery.leftovers() == []


def test_every_answer_lost_once_in_one_run_neither_loses_nor_doubles(
    delivery: Delivery, dynamodb_proxy: FaultProxy
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"extent.bytes": "20KiB"})
    seen: set[bytes] = set()

    def fresh(request: Request) -> bool:
        """Whether this very write, tokens and all, is heard for the first time."""
        first = bool(writes(request)) and request.body not in seen
        seen.add(request.body)
        return first

    rule = dynamodb_proxy.inject(DropResponse(), when=fresh, times=None)

    report = run_here(delivery)

    assert rule.hits > 10
    assert report.ok
    check_exactly_once(delivery, report)


def check_exactly_once(delivery: Delivery, report: RunReport) -> None:
    assert sorted(delivery.values()) == sorted(LINES)
    (job,) = report.jobs
    assert (job.done, job.failed, job.records, job.bad) == (job.extents, 0, len(LINES), 0)
    assert [item.claim for item in delivery.items()] == [None] * job.extents
    assert delivery.leftovers() == []


# -- unavailable servers --------------------------------------------------------------------------


@pytest.mark.outage
def test_an_unavailable_ledger_fails_the_run_and_the_next_one_resumes(
    delivery: Delivery, dynamodb_proxy: FaultProxy
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})

    def go_away() -> None:
        dynamodb_proxy.inject(Answer(503), times=None)

    broken = run_here(delivery, before=at(3, go_away))

    assert (broken.ok, broken.broken) == (False, True)
    assert f"table {delivery.settings.ledger_table}" in broken.errors[0]
    dynamodb_proxy.clear()
    report = run_here(delivery)
    assert report.ok
    check_exactly_once(delivery, report)


def test_a_ledger_that_recovers_in_time_costs_nothing(
    delivery: Delivery, dynamodb_proxy: FaultProxy
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    rule = dynamodb_proxy.inject(Answer(503), times=0)

    def stumble() -> None:
        rule.times = 5

    report = run_here(delivery, before=at(3, stumble))

    assert rule.hits == 5
    assert report.ok
    check_exactly_once(delivery, report)


@pytest.mark.outage
def test_an_unavailable_store_fails_the_run_and_a_replay_adds_no_duplicate(
    delivery: Delivery, s3_proxy: FaultProxy
) -> None:
    lines = numbered_lines("a line longer than what is read ahead " * 3, 15_000)
    delivery.put("lines.txt", joined(lines))
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "64MiB"})

    def go_away() -> None:
        s3_proxy.inject(Answer(503), times=None)

    failed = run_here(delivery, before=at(3, go_away))

    (job,) = failed.jobs
    assert (job.state, job.failed) == ("FAILED", 1)
    (error,) = failed.errors
    assert "503" in error
    assert f"{delivery.address}lines.txt[" in error
    assert "replay the job when the store is available" in error
    partial = delivery.values()
    assert 0 < len(partial) < 15_000
    s3_proxy.clear()

    replayed = replay_here(delivery, the_job(delivery))

    assert replayed.ok
    assert replayed.records_this_run == 15_000 - len(partial)
    assert sorted(delivery.values()) == sorted(lines)


def test_a_store_that_recovers_in_time_costs_nothing(
    delivery: Delivery, s3_proxy: FaultProxy
) -> None:
    # "In time" also where one request takes longer than a second.
    delivery.changes["retry_timeout_seconds"] = 60.0
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint})
    rule = s3_proxy.inject(Answer(503), when=lambda request: request.method == "GET", times=2)

    report = run_here(delivery)

    assert rule.hits == 2
    assert report.ok
    check_exactly_once(delivery, report)


# -- the broker -----------------------------------------------------------------------------------


@pytest.fixture
def patient(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    """Transactions time out after 3 s, and so do not survive a longer pause."""
    changes = {"transaction_timeout_ms": 3_000, "transaction_max_seconds": 2.0}
    return Delivery(stack, s3, bucket, unique, changes)


@pytest.mark.outage
def test_a_broker_frozen_past_the_transaction_timeout_loses_nothing(
    patient: Delivery, stack: Stack
) -> None:
    patient.changes["transaction_max_bytes"] = 1
    patient.put("lines.txt", joined(LINES))
    patient.connector({})

    report = run_here(patient, before=at(3, lambda: freeze(stack)))

    assert report.ok
    check_exactly_once(patient, report)


def freeze(stack: Stack) -> None:
    """Stop the broker's process; it continues after 5 s, even while this thread is blocked."""
    stack.pause("kafka")
    threading.Timer(5.0, stack.resume, ["kafka"]).start()


@pytest.mark.long
def test_a_transaction_that_the_broker_gave_up_is_sent_again(patient: Delivery) -> None:
    patient.changes["transaction_max_bytes"] = 64 << 20
    patient.put("lines.txt", joined(LINES))
    patient.connector({})
    gone = 0

    def stand_still() -> None:
        """Hold the transaction open until the broker has ended it."""
        nonlocal gone
        eventually("records wait", lambda: not patient._is_stable(patient.topic))
        eventually("the broker ends the transaction", lambda: patient._is_stable(patient.topic))
        gone += 1

    report = run_here(patient, before=at(3, stand_still))

    assert gone == 1
    assert report.ok
    assert patient.items()[0].attempts == 0
    check_exactly_once(patient, report)


@pytest.mark.outage
def test_a_broker_that_restarts_in_mid_extent_neither_loses_nor_doubles(
    patient: Delivery, stack: Stack
) -> None:
    patient.put("lines.txt", joined(LINES))
    patient.connector({})

    report = run_here(patient, before=at(3, lambda: stack.restart("kafka")))

    assert report.ok
    check_exactly_once(patient, report)


@pytest.mark.long
def test_a_job_that_the_ledger_lost_sight_of_is_closed_by_the_next_run(
    delivery: Delivery, dynamodb_proxy: FaultProxy
) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({})
    rule = dynamodb_proxy.inject(Answer(503), when=some(JOB, state="DONE"), times=None)
    broken = run_here(delivery)
    assert (broken.ok, broken.broken) == (False, True)
    assert rule.hits > 1
    assert the_job(delivery).state is JobState.RUNNING
    dynamodb_proxy.clear()

    report = run_here(delivery)

    assert report.ok
    assert report.records_this_run == 0
    check_exactly_once(delivery, report)
    eventually("the job is closed", lambda: the_job(delivery).state is JobState.DONE)
