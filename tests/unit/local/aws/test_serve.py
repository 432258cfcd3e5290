"""`extentflow serve` over doubles: what it prints when it is ready, and how it ends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from extentflow_local.aws import serve
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
