"""Common to all demos: signals, errors, exit codes; arguments and verdict of event path demos."""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.eventrows import TopicComparison
from demo.rig import CommandError
from extentflow.errors import ExtentflowError
from extentflow_local.stack.errors import LocalStackError

ROOT = Path.cwd()
STOPPED = 130
ERRORS = (ExtentflowError, LocalStackError, CommandError, subprocess.SubprocessError)
COUNTED = ("records", "duplicates", "missing", "foreign")
console = Console(stderr=True, width=None if sys.stderr.isatty() else 120, emoji=False)


def ended(target: str, main: Callable[[], int]) -> int:
    """Run a demo; return its exit code. SIGTERM stops it and its processes, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return main()
    except ERRORS as exc:
        console.print(f"make {target}: {exc}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print(f"make {target}: stopped")
        return STOPPED


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
    raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a demo came to: its counts, and what its topics hold."""

    summary: dict[str, Any]
    found: Sequence[TopicComparison]


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo of the event path. `target` is make's; `about` is for its help.

    `run_story(run, objects)` runs the demo under a unique name, with `objects` times the scale, but
    `least` of them. `dead_letters` names the count that is 0 when all is well.
    """

    target: str
    about: str
    objects: int
    least: int
    run_story: Callable[[str, int], Outcome]
    show: Callable[[Outcome], None]
    dead_letters: str

    def main(self) -> int:
        """Run the demo; 0 only when every row arrived once and no dead letter is left."""
        scale = self._arguments().scale
        started = time.monotonic()
        run = time.strftime("%Y%m%d-%H%M%S")
        outcome = self.run_story(run, max(self.least, round(self.objects * scale)))
        for name in COUNTED:
            outcome.summary[name] = sum(getattr(one, name) for one in outcome.found)
        file = ROOT / "var" / "demo" / f"{self.target.removeprefix('demo-')}.json"
        file.write_text(json.dumps(outcome.summary, indent=2) + "\n")
        self.show(outcome)
        wrong = ("duplicates", "missing", "foreign", self.dead_letters)
        ok = not any(outcome.summary[name] for name in wrong)
        word = "every record exactly once" if ok else "[red]something is wrong, see above[/red]"
        seconds = time.monotonic() - started
        console.print(f"make {self.target}: {word}; {seconds:.0f} s; {file.relative_to(ROOT)}")
        console.print(
            "the stack is still running; `.venv/bin/extentflow down` (or `make clean`) stops it"
        )
        return 0 if ok else 1

    def _arguments(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(prog=f"make {self.target}", description=self.about)
        parser.add_argument(
            "--scale", type=float, default=1.0, help=f"times {self.objects} objects"
        )
        return parser.parse_args()


def show_topics(found: Sequence[TopicComparison]) -> None:
    """Show the content of topics beside the expected content."""
    table = Table("topic", "rows expected", "records", "duplicates", "missing")
    for one in found:
        counts = (one.expected, one.records, one.duplicates, one.missing)
        table.add_row(one.topic, *(f"{count:,}" for count in counts))
    console.print(table)
