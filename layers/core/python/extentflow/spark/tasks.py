"""Workers of the data source's queries: deliver extents on executors and return receipts as rows.

BatchWorker    batch query: waits until its extents are final, then closes and publishes jobs
QueueWorker    streaming query, work=queue: takes extents off the queue
ListedWorker   streaming query, work=listing: runs each extent of a trigger once
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from extentflow.background import LeaseRenewer
from extentflow.engines import run_in_turn, run_or_fail
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
from extentflow.wiring.extents import ExtentWorker, delivery_context, worker_runtime
from extentflow.wiring.functions import open_job_events, open_queue_worker

# Powertools drops records of loggers whose name contains a function's service name, "worker".
log = logging.getLogger("extentflow.spark")

STOP_POLL_SECONDS = 1.0
STOP_KEEP_SECONDS = 86_400.0


STOPS: NoteKind[bool] = NoteKind(
    "stop#", lambda _: {"stop": "true"}, lambda _: True, STOP_KEEP_SECONDS
)

# -- stopping -------------------------------------------------------------------------------------


def request_stop(ledger: Ledger, run: str) -> None:
    """Ask the workers of `run`, on any machine, to commit, hand back and start nothing more."""
    STOPS.write(ledger.notes, run, True)  # noqa: FBT003 - the value of the note


class StopRequest:
    """Whether the workers of `run` were asked to stop; reads the ledger once per second at most."""

    def __init__(self, ledger: Ledger, run: str, monotonic: Callable[[], float]) -> None:
        self._ledger = ledger
        self._run = run
        self._monotonic = monotonic
        self._next = float("-inf")
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


def _stop_request(runtime: Runtime, owner: str) -> StopRequest:
    return StopRequest(runtime.ledger, owner.partition("/")[0], runtime.clock.monotonic)


# -- batch ----------------------------------------------------------------------------------------


class BatchWorker:
    """Runs extents until they are final, and finishes the jobs of a batch query."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._runtime = runtime
        self._worker = ExtentWorker(runtime, owner)
        self._events = open_job_events(runtime)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._events.close()
        self._worker.close()

    def deliver(self, extents: Sequence[Extent]) -> Iterator[Row]:
        """Run a task's extents until they or their jobs are final; yield a row for each.

        An extent of a paused connector yields a PENDING row with the reason.
        """
        ledger = self._runtime.ledger
        for extent, first in zip(extents, run_in_turn(extents, self._worker.run), strict=True):
            receipt = first
            while (row := final_row(ledger, extent, receipt)) is None:
                if receipt.outcome is Outcome.SKIPPED:
                    item = ledger.extents.get(extent.job, extent.ordinal)
                    row = receipts.delivered(extent, receipt, item, None)
                    break
                log.info("%s was reopened while it ran; running it again", extent.uri)
                receipt = self._worker.run(extent)
            yield row

    def finish(self, jobs: Iterable[str]) -> list[Row]:
        """Run the rest of jobs, close and publish them; return the rows of what is not DONE.

        Waits for extents that other workers hold, so that jobs are final when this returns, except
        those of a paused connector.
        """
        ended = [self._finish(job) for job in jobs]
        try:
            self._events.publish([job for job, _ in ended])
        except ExtentflowError as exc:
            log.warning("not every job's end was published; the next query does it: %s", exc)
        return [row for job, why in ended for row in self._undelivered(job, why)]

    def _finish(self, job_id: str) -> tuple[Job, str]:
        """Return a job after its remaining extents ran, and why it is not final, "" if it is."""
        ledger, planner = self._runtime.ledger, self._runtime.planner()
        job = ledger.jobs.get(job_id)
        if job is None:
            raise Conflict(f"the ledger no longer has job {job_id}, which this query started")
        if not job.state.open:
            return job, ""
        why = self._runtime.undeliverable_reason(job)
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

    def _undelivered(self, job: Job, why: str) -> Iterable[Row]:
        if job.state is JobState.DONE:
            return ()
        items = self._runtime.ledger.extents.list(job.id)
        failed = (item for item in items if item.state is ExtentState.FAILED)
        rows = [receipts.known(job.id, job.version.uri, item) for item in failed]
        return rows or [receipts.whole(job, why)]


def final_row(ledger: Ledger, extent: Extent, receipt: Receipt) -> Row | None:
    """Return the row of an extent after a run; None while neither it nor its job is final."""
    item = ledger.extents.get(extent.job, extent.ordinal)
    if item.state.final:
        return receipts.delivered(extent, receipt, item, None)
    job = ledger.jobs.get(extent.job)
    if job is None or not job.state.open:
        return receipts.delivered(extent, receipt, item, job)
    return None


# -- streaming ------------------------------------------------------------------------------------


class QueueWorker:
    """Takes extents off the queue; functions may consume the same queue."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._ledger = runtime.ledger
        stop = _stop_request(runtime, owner)
        self._events = open_job_events(runtime)
        self._worker = open_queue_worker(
            runtime,
            owner,
            seconds_left=lambda: 0.0 if stop() else inf,
            margin_seconds=1.0,
            job_events=self._events,
        )
        self._drain = QueueDrain(self._worker, runtime.clock.monotonic, stop)

    def deliver(self, *, most: int, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that became final; an unavailable service ends this early."""
        for message, answer in self._drain.answers(most=most, seconds=seconds):
            extent = read_extent(message.body)
            if extent is not None and answer.receipt is not None:
                yield from _rows(self._ledger, extent, answer.receipt)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._events.close()
        self._worker.work.slots.release()


class ListedWorker:
    """Runs each extent of a trigger once, until its query is asked to stop.

    Never waits for an unavailable service or another worker: a later trigger retries the extent.
    """

    def __init__(self, runtime: Runtime, owner: str) -> None:
        self._ledger = runtime.ledger
        self._monotonic = runtime.clock.monotonic
        self._slots = runtime.slots(owner)
        # Two renewals in a row may fail before the lease expires.
        self._renew_seconds = runtime.settings.lease_seconds / 3
        self._stop = _stop_request(runtime, owner)
        context = delivery_context(runtime, self._slots)
        limits = replace(context.limits, gives_up=False)  # a later trigger retries
        self._context = replace(context, limits=limits, stopping=self._stop)

    def deliver(self, extents: Iterable[Extent], *, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that became final; starts none after `seconds`."""
        until = self._monotonic() + seconds
        for extent in extents:
            if self._stop() or self._monotonic() >= until:
                return
            try:
                with LeaseRenewer(self._slots.renew, self._renew_seconds):
                    receipt = run_or_fail(extent, self._context)
            except (SinkUnavailable, LedgerUnavailable) as exc:  # affects the other extents, too
                log.warning("no further extent is started by this task: %s", exc)
                return
            except ExtentflowError as exc:
                log.warning("%s stays pending: %s", extent.uri, exc)
                continue
            yield from _rows(self._ledger, extent, receipt)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._slots.release()


def _rows(ledger: Ledger, extent: Extent, receipt: Receipt) -> Iterator[Row]:
    """Yield the row of a final extent; none if the ledger is unavailable."""
    try:
        row = final_row(ledger, extent, receipt)
    except ExtentflowError as exc:
        log.warning("%s: no receipt is returned: %s", extent.uri, exc)
        return
    if row is not None:
        yield row


# -- opened on executors (see `engines.WorkerSpec`) ------------------------------------------------


def open_batch_worker(settings: dict[str, str], owner: str) -> BatchWorker:
    """Return the worker of a batch query in this process."""
    return BatchWorker(worker_runtime(settings), owner)


def open_queue_query_worker(settings: dict[str, str], owner: str) -> QueueWorker:
    """Return the worker of a query over the queue in this process."""
    return QueueWorker(worker_runtime(settings), owner)


def open_listed_worker(settings: dict[str, str], owner: str) -> ListedWorker:
    """Return the worker of a query over listings in this process."""
    return ListedWorker(worker_runtime(settings), owner)
