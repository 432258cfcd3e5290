"""What executors do for a batch query: run extents, tell how the ledger has them, close jobs.

Owns: rows out of runs; that a job is over before its query is. Refuses to know: partitions, modes.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from extentflow.config.worker import WorkerSettings
from extentflow.delivery.connector_state import ConnectorStateCache
from extentflow.engines import run_in_turn
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    ExtentflowError,
    Permanent,
    StoreUnavailable,
    reason,
)
from extentflow.jobs.run import closed
from extentflow.ledger import Ledger
from extentflow.model import Extent, ExtentState, Job, JobState, Outcome, Receipt
from extentflow.spark import receipts
from extentflow.spark.receipts import Row
from extentflow.wiring import Runtime
from extentflow.wiring.extents import ExtentWorker, prepare_process
from extentflow.wiring.functions import open_job_events

log = logging.getLogger(__name__)


class ReportingWorker(ExtentWorker):
    """A worker that also tells how the ledger has what it ran."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        super().__init__(runtime, owner)
        self._runtime = runtime
        self._announcements = open_job_events(runtime)

    def close(self) -> None:
        """See `engines.CachedWorker`."""
        self._announcements.close()
        super().close()

    def deliver(self, extents: Sequence[Extent]) -> Iterator[Row]:
        """Run a task's extents until they are final, or their jobs are; yield their rows.

        Those of a connector that rests are left PENDING, with that for a reason.
        """
        for extent, receipt in zip(extents, run_in_turn(extents, self.run), strict=True):
            row = self._row(extent, receipt)
            while row is None:
                log.info("%s was reopened while it was run; running it again", extent.uri)
                row = self._row(extent, self.run(extent))
            yield row

    def _row(self, extent: Extent, receipt: Receipt) -> Row | None:
        """Return the row of an extent that was run; None where it has to be run again."""
        ledger = self._runtime.ledger
        row = ended_as(ledger, extent, receipt)
        if row is None and receipt.outcome is Outcome.RESTING:
            item = ledger.extent(extent.job, extent.ordinal)
            return receipts.delivered(extent, receipt, item, None)
        return row

    def finish(self, jobs: Iterable[str]) -> list[Row]:
        """Run what is left of jobs, close and announce them; return the rows of what is not DONE.

        Extents that others hold are waited for, so that all of it is over when this returns; but
        for jobs of a connector that rests.
        """
        ended = [self._finished(job) for job in jobs]
        self._announce([job for job, _ in ended])
        return [row for job, why in ended for row in self._unfit(job, why)]

    def _finished(self, job_id: str) -> tuple[Job, str]:
        """Return a job that is over, or why it cannot be."""
        ledger, planner = self._runtime.ledger, self._runtime.planner()
        job = ledger.job(job_id)
        if job is None:
            raise Conflict(f"the ledger has no job {job_id} any more, which this query began")
        if not job.state.open:
            return job, ""
        why = self._runtime.undeliverable_reason(job)
        try:
            job = job if why else planner.plan(job)
            pending = planner.pending(job) if job.state is JobState.RUNNING and not why else ()
            for receipt in run_in_turn(pending, self.run):
                why = receipt.reason if receipt.outcome is Outcome.RESTING else why
        except (Permanent, CorruptRecord, StoreUnavailable) as exc:
            why = reason(exc)
            log.warning("job %s cannot be finished: %s", job_id, why)
        return closed(
            job.id, ledger, ConnectorStateCache(ledger, self._runtime.clock.monotonic)
        ), why

    def _unfit(self, job: Job, why: str) -> Iterable[Row]:
        if job.state is JobState.DONE:
            return ()
        items = self._runtime.ledger.extents(job.id)
        failed = (item for item in items if item.state is ExtentState.FAILED)
        rows = [receipts.known(job.id, job.version.uri, item) for item in failed]
        return rows or [receipts.whole(job, why)]

    def _announce(self, ended: Sequence[Job]) -> None:
        try:
            self._announcements.publish(ended)
        except ExtentflowError as exc:
            log.warning("not every job's end was announced; the next query does it: %s", exc)


def ended_as(ledger: Ledger, extent: Extent, receipt: Receipt) -> Row | None:
    """Return the row of an extent that was run; None while neither it nor its job is over."""
    item = ledger.extent(extent.job, extent.ordinal)
    if item.state.final:
        return receipts.delivered(extent, receipt, item, None)
    job = ledger.job(extent.job)
    if job is None or not job.state.open:
        return receipts.delivered(extent, receipt, item, job)
    return None


def open_reporting_worker(settings: dict[str, str], owner: str) -> ReportingWorker:
    """Become such a worker, in the process that calls this (see `engines.WorkerSpec`)."""
    prepare_process()
    return ReportingWorker(Runtime(WorkerSettings.from_map(settings)), owner)
