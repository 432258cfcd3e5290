"""The worker of the data source's queries: delivers extents on executors, returns rows.

deliver, finish   batch query: waits until its extents are final, then closes and publishes jobs
drain             streaming query, work=queue: takes extents off the queue
run_once          streaming query, work=listing: runs each extent of a trigger once
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import inf

from extentflow.engines import run_in_turn
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    ExtentflowError,
    LedgerUnavailable,
    Permanent,
    SinkUnavailable,
    StoreUnavailable,
    reason,
)
from extentflow.jobs.preflight import ConnectorStateCache
from extentflow.jobs.run import closed
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import Extent, ExtentState, Job, JobState, Outcome, Receipt
from extentflow.queue.consumer import QueueDrain, read_extent
from extentflow.spark import receipts
from extentflow.spark.receipts import Row
from extentflow.wiring import Runtime
from extentflow.wiring.extents import ExtentWorker, worker_runtime
from extentflow.wiring.functions import open_job_events, open_queue_worker

# Powertools drops records of loggers whose name contains a function's service name, "worker".
log = logging.getLogger("extentflow.spark")

STOP_POLL_SECONDS = 1.0
STOP_KEEP_SECONDS = 86_400.0
STOPS: NoteKind[bool] = NoteKind(
    "stop#", lambda _: {"stop": "true"}, lambda _: True, STOP_KEEP_SECONDS
)


def request_stop(ledger: Ledger, run: str) -> None:
    """Ask the workers of `run`, on any machine, to commit, hand back and start nothing more."""
    STOPS.write(ledger.notes, run, True)  # noqa: FBT003 - the value of the note


class StopRequest:
    """Whether the workers of `run` were asked to stop; reads the ledger once per second at most."""

    def __init__(self, ledger: Ledger, run: str, monotonic: Callable[[], float]) -> None:
        self._ledger = ledger
        self._run = run
        self._monotonic = monotonic
        self._next = -inf
        self._requested = False

    def __call__(self) -> bool:
        """Return whether a stop was requested; the last known answer if the ledger fails."""
        now = self._monotonic()
        if not self._requested and now >= self._next:
            self._next = now + STOP_POLL_SECONDS
            try:
                self._requested = STOPS.read(self._ledger.notes, self._run) is not None
            except ExtentflowError as exc:
                log.warning("cannot read whether run %s shall stop: %s", self._run, exc)
        return self._requested


class QueryWorker:
    """Delivers extents of a query in one Python process; see the module for who calls what."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._runtime, self._ledger = runtime, runtime.ledger
        self._slots = runtime.slots(owner)
        self._events = open_job_events(runtime)
        self._worker = ExtentWorker(runtime, self._slots)
        self._stop = StopRequest(runtime.ledger, owner.partition("/")[0], runtime.clock.monotonic)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._events.close()
        self._slots.release()

    def deliver(self, extents: Sequence[Extent]) -> Iterator[Row]:
        """Run extents until they or their jobs are final, or are paused; yield a row for each."""
        for extent, first in zip(extents, run_in_turn(extents, self._worker.run), strict=True):
            receipt = first
            while (row := self._final_row(extent, receipt)) is None:
                if receipt.outcome is Outcome.SKIPPED:
                    item = self._ledger.extents.get(extent.job, extent.ordinal)
                    row = receipts.delivered(extent, receipt, item, None)
                    break
                log.info("%s was reopened while it ran; running it again", extent.uri)
                receipt = self._worker.run(extent)
            yield row

    def finish(self, jobs: Iterable[str]) -> list[Row]:
        """Run what is left of jobs, close and publish them; return rows of what is not DONE."""
        ended = [self._finish(job) for job in jobs]
        try:
            self._events.publish([job for job, _ in ended])
        except ExtentflowError as exc:
            log.warning("not every job's end was published; the next query does it: %s", exc)
        rows: list[Row] = []
        for job, why in ended:
            if job.state is not JobState.DONE:
                items = self._ledger.extents.list(job.id)
                failed = [item for item in items if item.state is ExtentState.FAILED]
                rows += [receipts.known(job.id, job.version.uri, item) for item in failed]
                rows += [] if failed else [receipts.whole(job, why)]
        return rows

    def _finish(self, job_id: str) -> tuple[Job, str]:
        """Return a job after its remaining extents ran, and why it is not final, "" if it is."""
        ledger, planner = self._ledger, self._runtime.planner()
        job = ledger.jobs.get(job_id)
        if job is None:
            raise Conflict(f"the ledger no longer has job {job_id}, which this query started")
        if not job.state.open:
            return job, ""
        why = self._runtime.deliverability.undeliverable_reason(job)
        try:
            job = job if why else planner.plan(job)
            pending = planner.pending(job) if job.state is JobState.RUNNING and not why else ()
            for receipt in run_in_turn(pending, self._worker.run):
                why = receipt.reason if receipt.outcome is Outcome.SKIPPED else why
        except (Permanent, CorruptRecord, StoreUnavailable) as exc:
            why = reason(exc)
            log.warning("job %s cannot be finished: %s", job_id, why)
        states = ConnectorStateCache(ledger, self._runtime.clock.monotonic)
        return closed(job.id, ledger, states), why

    def drain(self, *, most: int, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that became final; an unavailable service ends this early."""
        for message, answer in self._drain.answers(most=most, seconds=seconds):
            if answer.receipt is not None and (extent := read_extent(message.body)):
                yield from self._rows(extent, answer.receipt)

    @cached_property
    def _drain(self) -> QueueDrain:
        worker = open_queue_worker(
            self._runtime,
            self._slots,
            seconds_left=lambda: 0.0 if self._stop() else inf,
            margin_seconds=1.0,
            job_events=self._events,
        )
        return QueueDrain(worker, self._runtime.clock.monotonic, self._stop)

    def run_once(self, extents: Iterable[Extent], *, seconds: float) -> Iterator[Row]:
        """Yield a row per final extent; never wait; start none after `seconds` or a stop."""
        monotonic = self._runtime.clock.monotonic
        until = monotonic() + seconds
        for extent in extents:
            if self._stop() or monotonic() >= until:
                return
            try:
                receipt = self._worker.run_once(extent, self._stop)
            except (SinkUnavailable, LedgerUnavailable) as exc:  # affects the other extents, too
                log.warning("no further extent is started by this task: %s", exc)
                return
            except ExtentflowError as exc:
                log.warning("%s stays pending: %s", extent.uri, exc)
                continue
            yield from self._rows(extent, receipt)

    def _final_row(self, extent: Extent, receipt: Receipt) -> Row | None:
        """Return the row of an extent after a run; None while neither it nor its job is final."""
        item = self._ledger.extents.get(extent.job, extent.ordinal)
        job = None if item.state.final else self._ledger.jobs.get(extent.job)
        over = job is None or not job.state.open
        return receipts.delivered(extent, receipt, item, job) if over else None

    def _rows(self, extent: Extent, receipt: Receipt) -> Iterator[Row]:
        """Yield the row of a final extent; none if the ledger is unavailable."""
        try:
            row = self._final_row(extent, receipt)
        except ExtentflowError as exc:
            log.warning("%s: no receipt is returned: %s", extent.uri, exc)
            return
        if row is not None:
            yield row


def open_query_worker(settings: dict[str, str], owner: str) -> QueryWorker:
    """Return this process's worker; executors call it (see `engines.WorkerSpec`)."""
    return QueryWorker(worker_runtime(settings), owner)
