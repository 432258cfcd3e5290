"""What is opened with a service, and what only by the calls that need it."""

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.memory_runtime import BUCKET, MemoryRuntime

import extentflow.services
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.services.composition import (
    open_dead_letters,
    open_exports,
    open_health,
    open_initialisation,
    open_jobs,
    open_runs,
    open_submissions,
)
from extentflow.services.submissions import Submission
from extentflow.testing.services import MemoryQueue
from extentflow.testing.stores import Fault, FaultKind, FaultyStore
from extentflow.wiring import Runtime

# The composition, and the public facade.
KNOW_RUNTIME = {"composition.py", "client.py"}
NOTIFICATION = Path(__file__).parents[3] / "events" / "aws-s3-put.json"
SHARED = WorkerSettings(
    bootstrap_servers="127.0.0.1:1", ledger_url=LedgerAddress.parse("dynamodb://extentflow")
)


def test_only_the_composition_and_the_client_know_runtime() -> None:
    """Why: the fields of a service say which clients it uses, and a test gives it just these."""
    (folder,) = map(Path, extentflow.services.__path__)

    found = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and "Runtime" in {one.name for one in node.names})
        or (isinstance(node, ast.Name) and node.id == "Runtime")
        or (isinstance(node, ast.Attribute) and node.attr == "Runtime")
    }

    assert found == KNOW_RUNTIME


@pytest.mark.parametrize(
    "open_service",
    [
        open_submissions,
        open_exports,
        open_health,
        open_initialisation,
        lambda runtime: open_dead_letters(runtime, "c"),
    ],
    ids=["submissions", "exports", "health", "initialisation", "dead letters"],
)
def test_a_service_whose_calls_may_fail_before_they_need_a_client_opens_none(
    open_service: Callable[[Runtime], object], notes: list[str], own_ledger: Path
) -> None:
    runtime = Runtime(WorkerSettings(bootstrap_servers=""), notify=notes.append)

    open_service(runtime)

    assert not {"ledger", "broker", "connectors", "objects"} & vars(runtime).keys()
    assert notes == []
    assert not own_ledger.exists()


@pytest.mark.parametrize("open_service", [open_jobs, open_runs])
def test_a_service_that_always_reads_the_ledger_opens_it_and_no_broker(
    open_service: Callable[[Runtime], object], notes: list[str], own_ledger: Path
) -> None:
    runtime = Runtime(WorkerSettings(bootstrap_servers=""), notify=notes.append)

    open_service(runtime)

    assert "broker" not in vars(runtime)
    assert [str(own_ledger) in note for note in notes] == [True]


def test_a_notification_is_submitted_without_a_ledger() -> None:
    runtime = Runtime(SHARED)
    queue = MemoryQueue(lambda: 0.0)
    submissions = replace(open_submissions(runtime), arrivals=lambda: queue)

    submissions.submit_event(NOTIFICATION.read_text())

    assert len(queue.sent) == 1
    assert not {"ledger", "brief_ledger"} & vars(runtime).keys()


def test_an_object_that_does_not_exist_is_not_submitted() -> None:
    runtime = MemoryRuntime(SHARED)
    runtime.put_connector()
    runtime.put("c/a.txt")
    queue = MemoryQueue(lambda: 0.0)
    submissions = replace(open_submissions(runtime), arrivals=lambda: queue)
    there, absent = (f"s3://{BUCKET}/c/{name}.txt" for name in ("a", "b"))

    with pytest.raises(Misconfigured, match=f"{absent} does not exist"):
        submissions.submit([there, absent])
    assert queue.sent == []
    assert submissions.submit([there]) == Submission(1)
    assert submissions.submit(["s3://other/a.txt"]) == Submission(1, unread=("s3://other/a.txt",))
    assert len(queue.sent) == 2


@pytest.mark.parametrize("kind", ["unavailable", "denied"])
def test_a_store_that_does_not_answer_holds_up_no_submission(kind: FaultKind) -> None:
    runtime = MemoryRuntime(SHARED)
    runtime.put_connector()
    runtime.put("c/a.txt")
    runtime.reads = FaultyStore(runtime.memory_store, Fault(kind, "head"))
    queue = MemoryQueue(lambda: 0.0)
    submissions = replace(open_submissions(runtime), arrivals=lambda: queue)

    found = submissions.submit([f"s3://{BUCKET}/c/{name}.txt" for name in ("a", "b")])

    assert (found.submitted, len(queue.sent)) == (2, 2)
    assert found.unchecked[0].startswith(f"s3://{BUCKET}/c/a.txt (")
    assert found.unchecked[1:] == (f"s3://{BUCKET}/c/b.txt",)


def test_submitting_creates_no_ledger_where_functions_cannot_use_it(own_ledger: Path) -> None:
    submissions = open_submissions(Runtime(WorkerSettings(bootstrap_servers="")))

    with pytest.raises(Misconfigured, match=r"ledger\.url"):
        submissions.submit(["s3://shop/in/a.csv"])

    assert not own_ledger.exists()


def test_a_connector_whose_objects_are_submitted_is_read_from_the_ledger() -> None:
    runtime = MemoryRuntime(SHARED)
    runtime.put_connector()
    runtime.put()
    queue = MemoryQueue(lambda: 0.0)
    submissions = replace(open_submissions(runtime), arrivals=lambda: queue)

    assert submissions.submit(connector="c").submitted == 1
    assert len(queue.sent) == 1


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def own_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the user's own ledger, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return LedgerAddress.in_state_folder({"XDG_STATE_HOME": str(tmp_path)}).path
