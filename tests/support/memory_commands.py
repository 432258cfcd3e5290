"""The command line over a runtime in memory, and the commands that its texts advise."""

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.support.local_engine import RunOne, until_final
from tests.support.memory_runtime import MemoryRuntime

from extentflow.cli import app, opening, output, run_command_line
from extentflow.cli import run_commands as runs
from extentflow.cli.option_groups import ServerOptions
from extentflow.engines import RunListener, Task
from extentflow.services.composition import open_runs
from extentflow.services.run_control import RunControl
from extentflow.services.runs import Runs
from extentflow.wiring.extents import delivery_context, require_engine

ADVISED = re.compile(r"`extentflow ([^`]+)`")
TOPIC = "orders"


class Killed(BaseException):
    """The process ends here, and does nothing more."""


@dataclass
class CommandLine:
    """Commands over one runtime; `said` are the messages of the last one, `shown` its results.

    `on_extent` is called before an extent runs, with the number of those that ran. It may change
    the world, call `stop`, as a person does, or raise `Killed`.
    """

    captured: pytest.CaptureFixture[str]
    runtime: MemoryRuntime = field(default_factory=MemoryRuntime)
    engines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    given: ServerOptions | None = None
    said: str = ""
    shown: str = ""
    on_extent: Callable[[int], object] = lambda _done: None
    stopped: bool = False

    def open(
        self, given: ServerOptions, *, creates: bool = True
    ) -> tuple[MemoryRuntime, Callable[[], Runs]]:
        _ = creates
        self.given = given
        control = RunControl(
            notify=output.note, stop_on=lambda _stop: nullcontext(lambda: self.stopped)
        )
        return self.runtime, partial(open_runs, self.runtime, control, self._opened)

    def stop(self) -> None:
        """Stop the command that runs."""
        self.stopped = True

    def run(self, *words: str) -> int:
        return self.follow(["run", *words])

    def follow(self, words: Sequence[str]) -> int:
        """Run a command; keep what it wrote."""
        self.captured.readouterr()
        self.stopped = False
        try:
            return run_command_line(app, [*words])
        finally:
            self.shown, self.said = self.captured.readouterr()

    def advice(self, begins: str, but: str = "--no-such", **given: str) -> list[str]:
        """Return the words of the advised command that begins so, and does not have `but`.

        `given` replaces placeholders.
        """
        return advised(self.said, begins, but, **given)

    @property
    def delivered(self) -> list[bytes | None]:
        return [record.value for record in self.runtime.cluster.read_committed(TOPIC)]

    @property
    def count(self) -> int:
        """How many records consumers of the topic see."""
        return len(self.delivered)

    def _opened(self, _runtime: object, name: str, **words: Any) -> "_Engine":  # noqa: ANN401
        require_engine(name, words.get("master"))
        self.engines.append((name, words))
        work = delivery_context(self.runtime, self.runtime.slots("here"))
        return _Engine(self, until_final(work))


@dataclass
class _Engine:
    """Runs extents one after the other, on the calling thread, until the command is stopped."""

    line: CommandLine
    deliver: RunOne
    cores: int = 2
    done: int = 0

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        for extent in (extent for task in tasks for extent in task.extents):
            self.line.on_extent(self.done)
            if self.line.stopped:
                return
            listener.on_receipt(self.deliver(extent))
            self.done += 1

    def stop(self) -> None:
        """Nothing runs on."""

    def close(self) -> None:
        """Nothing is open."""


def advised(text: str, begins: str, but: str = "--no-such", **given: str) -> list[str]:
    """Return the words of the one command that a text advises so; see `CommandLine.advice`."""
    begun: set[str] = {one for one in ADVISED.findall(text) if one.startswith(begins)}
    found = [one for one in begun if but not in one]
    assert len(found) == 1, (begins, text)
    return [given.get(word, word) for word in found[0].split()]


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    made = CommandLine(capsys)
    made.runtime.cluster.create_topic(TOPIC)
    monkeypatch.setattr(runs, "_open", made.open)
    monkeypatch.setattr(opening, "open_runtime", lambda *_, **__: made.runtime)
    return made
