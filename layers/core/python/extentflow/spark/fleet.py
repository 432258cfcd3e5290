"""What executors do for a streaming query: drain the queue, or run the extents they are given.

Owns: rows out of messages, stopping soon. Refuses to know: triggers, partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf

from extentflow.background import LeaseRenewer
from extentflow.config.worker import WorkerSettings
from extentflow.engines import run_or_fail
from extentflow.errors import (
    ExtentflowError,
    LedgerUnavailable,
    SinkUnavailable,
)
from extentflow.ledger import Ledger
from extentflow.model import Extent, Receipt
from extentflow.queue.consumer import read_extent
from extentflow.queue.draining import Drain
from extentflow.spark.executor import ended_as
from extentflow.spark.receipts import Row
from extentflow.spark.stopping import Stop
from extentflow.wiring import Runtime
from extentflow.wiring.extents import ExtentWorker, prepare_process
from extentflow.wiring.functions import open_job_events, open_queue_worker

log = logging.getLogger(__name__)


class DrainingWorker:
    """A worker that takes its extents off the queue, beside functions or without them."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._ledger = runtime.ledger
        stop = _stop_of(runtime, owner)
        self._announcements = open_job_events(runtime)
        self._worker = open_queue_worker(
            runtime,
            owner,
            seconds_left=lambda: 0.0 if stop() else inf,
            margin_seconds=1.0,
            announcements=self._announcements,
        )
        self._drain = Drain(self._worker, runtime.clock.monotonic, stop)

    def drained(self, *, most: int, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that came to its end here. What is away ends this early."""
        for message, answer in self._drain.answers(most=most, seconds=seconds):
            extent = read_extent(message.body)
            if extent is not None and answer.receipt is not None:
                yield from _told(self._ledger, extent, answer.receipt)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._announcements.close()
        self._worker.work.slots.release()


class StandingWorker(ExtentWorker):
    """A worker that runs what a trigger found, until somebody asks its query to stop.

    Nothing that is away, wrong or in other hands is waited for: the next look finds it again.
    """

    def __init__(self, runtime: Runtime, owner: str) -> None:
        super().__init__(runtime, owner)
        self._ledger = runtime.ledger
        self._monotonic = runtime.clock.monotonic
        self._asked: Callable[[], bool] = _stop_of(runtime, owner)
        self._work = replace(self._work, limits=replace(self._work.limits, gives_up=False))

    def stopping(self) -> bool:
        """See `ExtentWorker.stopping`."""
        return super().stopping() or self._asked()

    def delivered(self, extents: Iterable[Extent], *, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that came to its end here; none is begun after `seconds`."""
        until = self._monotonic() + seconds
        for extent in extents:
            if self.stopping() or self._monotonic() >= until:
                return
            try:
                receipt = self.run(extent)
            except (SinkUnavailable, LedgerUnavailable) as exc:  # for the others, too
                log.warning("nothing is begun now: %s", exc)
                return
            except ExtentflowError as exc:
                log.warning("%s stays pending: %s", extent.uri, exc)
                continue
            yield from _told(self._ledger, extent, receipt)

    def run(self, extent: Extent) -> Receipt:
        """Run an extent once, as functions do (see `run_or_fail`)."""
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            return run_or_fail(extent, self._work)


def _told(ledger: Ledger, extent: Extent, receipt: Receipt) -> Iterator[Row]:
    """Yield the row of an extent that is over; where the ledger is away, it goes untold."""
    try:
        row = ended_as(ledger, extent, receipt)
    except ExtentflowError as exc:
        log.warning("%s: its end is not told: %s", extent.uri, exc)
        return
    if row is not None:
        yield row


def _stop_of(runtime: Runtime, owner: str) -> Stop:
    return Stop(runtime.ledger, owner.partition("/")[0], runtime.clock.monotonic)


def open_draining_worker(settings: dict[str, str], owner: str) -> DrainingWorker:
    """Become a worker of the queue, in the process that calls this (see `engines.WorkerSpec`)."""
    prepare_process()
    return DrainingWorker(Runtime(WorkerSettings.from_map(settings)), owner)


def open_standing_worker(settings: dict[str, str], owner: str) -> StandingWorker:
    """Become a worker of a listing query, in the process that calls this."""
    prepare_process()
    return StandingWorker(Runtime(WorkerSettings.from_map(settings)), owner)
