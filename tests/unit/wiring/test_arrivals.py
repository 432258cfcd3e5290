"""Queues beside a ledger in SQL: who makes them, who sees them, and when they are not used."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.queue.sql_queue import SqlQueue
from extentflow.queue.sqs_queue import SqsQueue
from extentflow.services.composition import open_submissions
from extentflow.wiring import Runtime
from extentflow.wiring.arrivals import (
    ARRIVALS,
    DEAD,
    ENQUEUE_SECONDS,
    StackQueues,
    open_intake,
    open_receiving_queue,
    own_queue,
)

SQS = "https://sqs.eu-central-1.amazonaws.com/111122223333/arrivals"


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    where = LedgerAddress.of_file(tmp_path / "ledger.db")
    return WorkerSettings(bootstrap_servers="127.0.0.1:1", ledger_url=where)


@pytest.fixture
def runtime(settings: WorkerSettings) -> Runtime:
    made = Runtime(settings)
    made.ledger.admin.create()
    return made


def never() -> bool:
    return False


def test_before_a_receiver_ran_there_are_no_queues(runtime: Runtime) -> None:
    assert list(StackQueues(runtime).list()) == []
    assert open_intake(runtime, never) is None


def test_a_receiver_makes_the_queues_that_the_query_reads(runtime: Runtime) -> None:
    open_receiving_queue(runtime).send(["{}", "{"])

    assert [(name, one.depth().waiting) for name, one in StackQueues(runtime).list()] == [
        ("arrivals.queue", 2),
        ("arrivals.dlq", 0),
    ]
    intake = open_intake(runtime, never)
    assert intake is not None
    assert intake.take(most=1) == 1
    assert intake.take(most=10) == 1
    assert [one.depth().waiting for _, one in StackQueues(runtime).list()] == [0, 2]


def test_a_receiver_waits_briefly_for_the_database(runtime: Runtime) -> None:
    found = open_receiving_queue(runtime)

    assert isinstance(found, SqlQueue)
    assert found.calls.retry.total_seconds == ENQUEUE_SECONDS


def test_the_users_own_ledger_gets_a_queue_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    where = LedgerAddress.in_state_folder(os.environ)
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1", ledger_url=where))

    open_receiving_queue(runtime).send(["a"])

    assert (tmp_path / "extentflow" / "ledger.db").exists()


def test_a_queue_of_sqs_takes_the_place_of_the_table(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    runtime = Runtime(replace(settings, arrivals_queue_url=SQS))
    runtime.ledger.admin.create()

    StackQueues(runtime).create_own()

    assert not StackQueues(runtime).are_own
    assert isinstance(open_receiving_queue(runtime), SqsQueue)
    assert not own_queue(runtime, ARRIVALS).exists()
    assert open_intake(runtime, never) is None


def test_a_ledger_in_dynamodb_keeps_no_notifications(
    settings: WorkerSettings, golden: Golden
) -> None:
    runtime = Runtime(replace(settings, ledger_url=LedgerAddress.parse("dynamodb://extentflow")))

    with golden.raises(Misconfigured):
        open_receiving_queue(runtime)
    assert open_intake(runtime, never) is None


def test_dead_notifications_are_shown_and_taken_again(runtime: Runtime) -> None:
    StackQueues(runtime).create_own()
    own_queue(runtime, DEAD).send(["a", "b"], reason="no connector reads them")
    submissions = open_submissions(runtime)

    shown = submissions.redrive(dry_run=True)
    moved = submissions.redrive()

    assert [one.reason for one in shown.moved] == ["no connector reads them"] * 2
    assert (len(moved.moved), moved.left) == (2, 0)
    depths = {name: one.waiting for name, one in submissions.queue_depths().depths.items()}
    assert depths == {"arrivals.queue": 2, "arrivals.dlq": 0}
