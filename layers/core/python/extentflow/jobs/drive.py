"""Drive the extents of jobs through an engine until every job is final.

jobs ──pending──> extents ──pack──> tasks ──Engine.run──> receipts
└─ close every job; totals are the ledger's
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from extentflow.delivery.connector_state import ConnectorStateCache
from extentflow.engines import Engine, RunListener, pack
from extentflow.errors import CorruptRecord, ObjectChanged, Permanent, StoreUnavailable, reason
from extentflow.jobs.planner import Planner
from extentflow.ledger import ConnectorState, Ledger
from extentflow.model import Extent, Job, JobState, Outcome, Receipt

log = logging.getLogger(__name__)

WAVE_EXTENTS = 4_096


def drive(
    jobs: Sequence[Job],
    *,
    planner: Planner,
    ledger: Ledger,
    engine: Engine,
    watch: RunListener,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Job]:
    """Run the pending extents of open jobs, in waves, and return every job as the ledger has it.

    `stopped` True leaves the rest to a later run; so does a connector that rests. Open jobs of a
    STOPPED one end CANCELLED, as anywhere.
    """
    left = _Left(watch, ConnectorStateCache(ledger, planner.clock.monotonic))
    running = [job if stopped() or left.alone(job) else _planned(job, planner) for job in jobs]
    ordered = {job.id: job.ordered for job in running}
    extents = (
        extent
        for job in running
        if job.state is JobState.RUNNING
        for extent in _pending(job, planner, ledger, left)
    )
    for wave in _waves(extents):
        if stopped():
            break
        for extent in wave:
            watch.on_extent(extent)
        engine.run(pack(wave, lambda job: ordered[job], engine.cores), left)
    now = ConnectorStateCache(
        ledger, planner.clock.monotonic
    )  # nothing known before: jobs end by what holds
    return [closed(job.id, ledger, now) for job in running]


@dataclass(frozen=True, slots=True)
class _Left:
    """A run's watch, which remembers the jobs that it leaves alone, whoever found that out."""

    watch: RunListener
    wanted: ConnectorStateCache
    jobs: set[str] = field(default_factory=set)

    def on_extent(self, extent: Extent) -> None:
        self.watch.on_extent(extent)

    def on_receipt(self, receipt: Receipt) -> None:
        if receipt.outcome is Outcome.RESTING:
            self.jobs.add(receipt.job)
        self.watch.on_receipt(receipt)

    def alone(self, job: Job) -> bool:
        """Whether nothing more of a job is begun in this run."""
        if job.state.open and job.id not in self.jobs and self.wanted.skip_reason(job.connector):
            self.jobs.add(job.id)
        return job.id in self.jobs


def closed(job_id: str, ledger: Ledger, wanted: ConnectorStateCache) -> Job:
    """Close a job; one that `stop` missed, because it was registered meanwhile, is cancelled."""
    job = ledger.close(job_id)
    if job.state.open and wanted.state(job.connector) is ConnectorState.STOPPED:
        why = f"connector {job.connector} was stopped"
        return ledger.end(job.id, JobState.CANCELLED, why)
    return job


def _planned(job: Job, planner: Planner) -> Job:
    """Plan a job; one whose store is away stays PLANNING and holds up nobody else."""
    try:
        return planner.plan(job)
    except StoreUnavailable as exc:
        log.warning("%s is not planned yet: %s", job.version.uri, exc)
        return job


def _pending(job: Job, planner: Planner, ledger: Ledger, left: _Left) -> Iterator[Extent]:
    """Yield a job's pending extents; an object that cannot be cut again ends its own job only."""
    try:
        with cutting(ledger, job):
            for extent in () if left.alone(job) else planner.pending(job):
                if left.alone(job):
                    return
                yield extent
    except StoreUnavailable as exc:
        log.warning("%s stays RUNNING: %s", job.version.uri, exc)


def _waves(extents: Iterator[Extent]) -> Iterator[list[Extent]]:
    """Yield extents in lists short enough for any driver's memory."""
    while wave := list(islice(extents, WAVE_EXTENTS)):
        yield wave


@contextmanager
def cutting(ledger: Ledger, job: Job) -> Iterator[None]:
    """End a job whose object cannot be cut any more; nobody would deliver its other extents."""
    try:
        yield
    except ObjectChanged as exc:
        ledger.end(job.id, JobState.SUPERSEDED, reason(exc))
    except (Permanent, CorruptRecord) as exc:
        ledger.end(job.id, JobState.FAILED, reason(exc))
