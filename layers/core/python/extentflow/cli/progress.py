"""The display of a running delivery, and its stop on SIGINT or SIGTERM."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Self, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from extentflow.background import BackgroundCall
from extentflow.cli import output
from extentflow.cli.output import counted, duration, size
from extentflow.errors import ExtentflowError, contain_defects
from extentflow.model import Extent, Outcome, Receipt

log = logging.getLogger(__name__)

# Returns the committed records of the extents of some jobs that a worker holds.
Committed: TypeAlias = Callable[[Collection[str]], Mapping[tuple[str, int], int]]

LINE_SECONDS = 5.0
SHOWN_SECONDS = 0.2
POLL_SECONDS = 2.0
POLLED_JOBS = 32  # extents are sent in the order of their jobs: these are in work
CLOSING_SECONDS = 1.0
STOPPING = "stopping: committing or aborting what is under way"


class RunProgress:
    """Shows extents, records, MB/s and time left: a bar on a terminal, lines in a pipe.

    A context manager. A repeated receipt counts once. An extent that was not read, because its job
    ended or another worker holds it, is neither delivered nor part of the rate. With `committed`,
    records of extents in work count as they are committed.
    """

    def __init__(self, console: Console, committed: Committed | None = None) -> None:
        self._console = console
        self._committed = committed
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._poller: BackgroundCall[None] | None = None
        self._before: dict[tuple[str, int], int] = {}
        self._moving: dict[tuple[str, int], int] = {}
        self._lengths: dict[tuple[str, int], int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._records = self._bytes = self._settled_bytes = self._failed = self._unread = 0
        self._started = self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(complete_style="cyan", finished_style="green"),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("delivering", total=None, facts="")

    def __enter__(self) -> Self:
        self._bar.start()
        if self._committed is not None:
            self._poller = BackgroundCall(self._poll, "extentflow-progress")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._poller is not None:
            self._poller.wait(CLOSING_SECONDS)
        self._bar.stop()

    def on_step(self, what: str, done: int) -> None:
        """Show what is done before extents run, such as `planning`."""
        facts = counted(done, "object")
        self._bar.update(self._task, description=what, facts=facts)
        self._print(f"{what}: {facts}")

    @contextmanager
    def counting(self, what: str, of: str = "object") -> Iterator[Callable[[int], None]]:
        """Show how many objects, or others, were listed, planned or read, until the block ends."""
        shown = time.monotonic()

        def show(done: int) -> None:
            nonlocal shown
            if time.monotonic() - shown < SHOWN_SECONDS:
                return
            shown = time.monotonic()
            facts = f"{what}: {counted(done, of)}"
            status.update(facts)
            self._print(facts)

        with self._console.status(what) as status:
            yield show

    def on_extent(self, extent: Extent) -> None:
        """Add an extent to the total."""
        with self._lock:
            self._lengths[extent.job, extent.ordinal] = extent.end - extent.start

    def on_receipt(self, receipt: Receipt) -> None:
        """Add a receipt to what is done."""
        with self._lock:
            self._add(receipt)

    def _poll(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            with self._lock:
                left = (extent for extent in self._lengths if extent not in self._seen)
                open_jobs = dict.fromkeys(job for job, _ in left)
            if not open_jobs or self._committed is None:
                continue
            try:
                with contain_defects("the display of progress"):
                    found = self._committed([*open_jobs][:POLLED_JOBS])
            except ExtentflowError as exc:  # the workers report what matters
                log.debug("progress is shown later: %s", exc)
                continue
            with self._lock:
                self._move(found)

    def _move(self, found: Mapping[tuple[str, int], int]) -> None:
        """Count what extents in work committed since they were first seen."""
        for extent, records in found.items():
            self._before.setdefault(extent, records)
        self._moving = {
            extent: records - self._before[extent]
            for extent, records in found.items()
            if extent in self._lengths and extent not in self._seen
        }
        self._show()

    def _add(self, receipt: Receipt) -> None:
        extent = (receipt.job, receipt.ordinal)
        if extent in self._seen:
            return
        self._records += receipt.records
        self._moving.pop(extent, None)
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
        seconds = max(1e-6, time.monotonic() - self._started)
        failed = f", {self._failed} failed" if self._failed else ""
        failed += f", {self._unread} not read" if self._unread else ""
        read = len(self._seen) - self._unread
        records = self._records + sum(self._moving.values())
        facts = (
            f"{read:,}/{counted(len(self._lengths), 'extent')}{failed},"
            f" {counted(records, 'record')}"
        )
        # Of extents in work, only their records are known.
        if self._bytes:
            facts += f", {size(self._bytes)} at {size(self._bytes / seconds)}/s"
        total = sum(self._lengths.values())
        self._bar.update(
            self._task,
            description="delivering",
            completed=self._settled_bytes,
            total=total or None,
            facts=facts,
        )
        self._print(facts, last=len(self._seen) == len(self._lengths))

    def _print(self, facts: str, *, last: bool = False) -> None:
        """Write a line to a pipe, every LINE_SECONDS."""
        now = time.monotonic()
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
