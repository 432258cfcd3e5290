"""`extentflow serve` over doubles: what it prints when it is ready, and how it ends."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from extentflow.errors import Misconfigured
from extentflow_local.aws import serve
from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.aws.event_source.execution import Outcome, Verdict
from extentflow_local.aws.project import Project
from extentflow_local.cli import app
from extentflow_local.stack.errors import ServiceFailed


class Stack:
    """A stack that is there without any server."""

    def __init__(self, root: Path, **_others: object) -> None:
        self.settings = SimpleNamespace(root=root)

    def up(self, _names: object) -> None:
        """Start nothing."""

    def endpoint(self, name: str) -> str:
        return f"http://127.0.0.1:9/{name}"

    def environment(self) -> dict[str, str]:
        return {}


class NoStack:
    """A stack that must not be made."""

    def __init__(self, *_words: object, **_others: object) -> None:
        raise AssertionError("servers would start")


class EndedPath:
    """An event path whose notifications end at once; `routes` are those of its receiver."""

    routes: tuple[str, ...] = ()

    def __init__(self, *, directory: Path, **_others: object) -> None:
        self.directory = directory
        self.deployment = SimpleNamespace(routes=self.routes)
        self.queues: dict[str, str] = {}
        self.logs: dict[str, Path] = {}

    @contextmanager
    def run(self, *, on_end: Callable[[], object], **_others: object) -> Iterator[object]:
        on_end()
        yield SimpleNamespace(url="http://127.0.0.1:18380")


class EndedPathWithReceiver(EndedPath):
    """The same with a receiver."""

    routes = ("POST /{path}",)


def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: type[EndedPath]) -> Result:
    """Return the result of the command over a stack without servers."""
    template = tmp_path / "template.json"
    template.write_text("{}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("extentflow_local.stack.stack.Stack", Stack)
    monkeypatch.setattr("extentflow_local.aws.event_path.LocalEventPath", path)
    for step in ("_initialise", "_remember"):
        monkeypatch.setattr(serve, step, lambda _path: None)

    command = ["serve", "--dir", str(tmp_path), "--template", str(template)]
    return CliRunner().invoke(app, command)


def test_serve_fails_when_notifications_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failure = served(monkeypatch, tmp_path, EndedPath).exception

    assert isinstance(failure, ServiceFailed)
    assert "notifications of uploads ended" in str(failure)


@pytest.mark.parametrize(
    ("path", "ready"),
    [
        (
            EndedPathWithReceiver,
            (
                "ready at http://127.0.0.1:18380: posted notifications, and uploads to any bucket"
                " at http://127.0.0.1:9/s3, are delivered; Ctrl-C stops the functions"
            ),
        ),
        (
            EndedPath,
            (
                "ready: uploads to any bucket at http://127.0.0.1:9/s3 are delivered; Ctrl-C stops"
                " the functions"
            ),
        ),
    ],
)
def test_serve_says_that_it_is_ready_and_where(
    path: type[EndedPath], ready: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = served(monkeypatch, tmp_path, path).stderr.splitlines()

    assert [line for line in lines if line.startswith("ready")] == [ready]


def test_a_python_without_the_cdk_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "app.py").touch()
    (tmp_path / "functions").mkdir()
    monkeypatch.setitem(sys.modules, "aws_cdk", None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("extentflow_local.stack.stack.Stack", NoStack)

    command = ["serve", "--dir", str(tmp_path), "--project", str(tmp_path)]
    failure = CliRunner().invoke(app, command).exception

    assert isinstance(failure, Misconfigured)
    for words in ("aws_cdk", "`make setup`", str(tmp_path), "--template FILE"):
        assert words in str(failure)


def test_a_folder_without_the_functions_names_the_option_for_the_checkout(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="extentflow serve --project CHECKOUT"):
        Project(tmp_path)


def test_the_line_of_returned_messages_has_the_reason_of_that_invocation(tmp_path: Path) -> None:
    log = tmp_path / "planner.log"
    entries = [
        {"level": "WARNING", "message": "older", "function_request_id": "r0"},
        {"level": "WARNING", "message": "MYSECRET is not set", "function_request_id": "r1"},
        {"level": "INFO", "message": "job", "function_request_id": "r1"},
    ]
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries) + "no JSON\n")
    logs = {"planner": log}

    def line(request: str, *failed: str) -> str:
        outcome = Outcome(Verdict.RETURNED, request, 1, 0.15)
        return serve._line(
            Delivery(function="planner", outcome=outcome, received=("a", "b"), failed=failed), logs
        )

    begun = "planner returned in 0.15 s, 2 messages"
    assert line("r1") == begun
    assert line("r1", "a", "b") == f"{begun}; returned to the queue: MYSECRET is not set"
    assert line("r1", "a") == f"{begun}; 1 of them returned to the queue: MYSECRET is not set"
    assert line("r2", "a", "b").endswith(f"returned to the queue: {log} has the reason")
