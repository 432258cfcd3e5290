"""`extentflow serve` over doubles: it ends with an error when it hears of uploads no more."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from extentflow_local import serve
from extentflow_local.cli import app
from extentflow_local.errors import ServiceFailed


class Stack:
    """A stack that is there without any server."""

    def __init__(self, root: Path, **_others: object) -> None:
        self.settings = SimpleNamespace(root=root)

    def up(self) -> None:
        """Start nothing."""

    def endpoint(self, name: str) -> str:
        return f"http://127.0.0.1:9/{name}"


class Deaf:
    """An event path that hears of no upload."""

    deployment = SimpleNamespace(routes=())

    def __init__(self, *, directory: Path, **_others: object) -> None:
        self.directory = directory
        self.queues: dict[str, str] = {}

    @contextmanager
    def run(self, *, unheard: Callable[[], object], **_others: object) -> Iterator[object]:
        unheard()
        yield SimpleNamespace(url=None)


def test_serve_fails_when_notifications_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    template = tmp_path / "template.json"
    template.write_text("{}")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(serve, "Stack", Stack)
    monkeypatch.setattr(serve, "LocalEventPath", Deaf)
    for step in ("_initialise", "_remember"):
        monkeypatch.setattr(serve, step, lambda _path: None)

    command = ["serve", "--dir", str(tmp_path), "--template", str(template)]
    failure = CliRunner().invoke(app, command).exception

    assert isinstance(failure, ServiceFailed)
    assert "notifications of uploads ended" in str(failure)
