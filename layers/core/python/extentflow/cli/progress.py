"""The display of a running delivery, and its stop on SIGINT or SIGTERM."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from extentflow.cli import output
from extentflow.cli.output import duration, size
from extentflow.model import Extent, Outcome, Receipt

LINE_SECONDS = 5.0
STOPPING = "stopping: committing or aborting what is under way"


class RunProgress:
    """Shows extents, records, MB/s and time left: a bar on a terminal, lines in a pipe.

    A context manager. A repeated receipt counts once. An extent that was not read, because its job
    ended or another worker holds it, is neither delivered nor part of the rate.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lengths: dict[tuple[str, int], int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._records = self._bytes = self._settled_bytes = self._failed = self._unread = 0
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("delivering", total=None, facts="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_extent(self, extent: Extent) -> None:
        """Add an extent to the total."""
        self._lengths[extent.job, extent.ordinal] = extent.end - extent.start

    def on_receipt(self, receipt: Receipt) -> None:
        """Add a receipt to what is done."""
        extent = (receipt.job, receipt.ordinal)
        if extent in self._seen:
            return
        self._records += receipt.records
        # Another receipt follows, of this run or of the next one.
        if receipt.outcome in (Outcome.HANDED_BACK, Outcome.SKIPPED):
            return
        self._seen.add(extent)
        length = self._lengths.get(extent, 0)
        self._settled_bytes += length
        self._failed += receipt.outcome is Outcome.FAILED
        self._unread += receipt.outcome in (Outcome.BUSY, Outcome.JOB_CLOSED)
        if receipt.outcome is Outcome.DONE:
            self._bytes += length
        else:
            self._bytes += min(length, receipt.bytes_read)
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        seconds = max(1e-6, now - self._started)
        failed = f", {self._failed} failed" if self._failed else ""
        failed += f", {self._unread} not read" if self._unread else ""
        read = len(self._seen) - self._unread
        facts = (
            f"{read}/{len(self._lengths)} extents{failed}, {self._records:,} records, "
            f"{size(self._bytes)} at {size(self._bytes / seconds)}/s"
        )
        total = sum(self._lengths.values())
        self._bar.update(
            self._task, completed=self._settled_bytes, total=total or None, facts=facts
        )
        last = len(self._seen) == len(self._lengths)
        if not self._console.is_terminal and (last or now - self._last_line >= LINE_SECONDS):
            self._last_line = now
            self._console.print(f"{duration(now - self._started)}: {facts}", highlight=False)


@contextmanager
def signals_stop(
    stop: Callable[[], None], stopping: str = STOPPING
) -> Iterator[Callable[[], bool]]:
    """Call `stop` on SIGINT and SIGTERM; yield a function that returns whether one arrived.

    A second signal ends the process at once.
    """
    stopped = False
    with output.err.capture():  # imports what printing needs: a handler must not import
        output.err.print(stopping)

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        for number in before:  # so that a second signal ends the process
            signal.signal(number, signal.SIG_DFL)
        output.err.print(stopping)
        stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield lambda: stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
