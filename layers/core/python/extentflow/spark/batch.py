"""A batch query: objects become jobs when it is planned, extents are delivered where it runs.

Owns: which partitions a query has, when it fails. Refuses to know: options' spelling, columns.

    partitions()   on the driver's machine, in a process of Spark's, once per query (and by
                   `explain`): objects are selected, jobs registered and cut, nothing is delivered.
                   Spark keeps a DataFrame's plan: `collect` twice is one query, `count` another
    read()         on executors, once per partition and attempt: extents are run until they are
                   final, in a worker that lives as long as its Python process

A repeated or speculative task waits for the one that holds an extent and then reports what it came
to. A partition whose extents FAILED fails when all of its extents were run; Spark repeats it, which
delivers nothing and fails again, and the action fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceReader, InputPartition

from extentflow import preflight
from extentflow.engines import Task, WorkerSpec, pack
from extentflow.engines.spark import this_worker
from extentflow.errors import Permanent
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.selection import Territory, select_all
from extentflow.settings import WorkerSettings
from extentflow.spark import receipts
from extentflow.spark.receipts import Row
from extentflow.wiring import Site
from extentflow.wiring.worker import SiteWorker, prepare_process

if TYPE_CHECKING:
    from extentflow.spark.source import ReadOptions

KNOWN_ROWS = 4_096
SHOWN = 3


@dataclass
class Pending(InputPartition):
    """Extents to deliver, by a worker of `spec`."""

    spec: WorkerSpec
    tasks: tuple[Task, ...]


@dataclass
class Known(InputPartition):
    """Rows of what is final already."""

    rows: tuple[Row, ...]


class ReportingWorker(SiteWorker):
    """A worker that also tells how the ledger has what it ran."""

    def __init__(self, site: Site, owner: str) -> None:
        super().__init__(site, owner)
        self._ledger = site.ledger

    def deliver(self, extent: Extent) -> Row:
        """Run an extent until it is final, or its job is; return its row."""
        receipt = self.run(extent)
        item = self._ledger.extent(extent.job, extent.ordinal)
        job = None if item.state.final else self._ledger.job(extent.job)
        return receipts.delivered(extent, receipt, item, job)


def open_reporting_worker(settings: dict[str, str], owner: str) -> ReportingWorker:
    """Become such a worker, in the process that calls this (see `engines.WorkerSpec`)."""
    prepare_process()
    return ReportingWorker(Site(WorkerSettings.from_map(settings)), owner)


class BatchReader(DataSourceReader):
    """Plans on the driver's machine, reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Register and cut jobs; return what is to deliver, and what is known already.

        Raises:
            Misconfigured: something is missing, all of it at once; or the connector rests.
            Permanent: with FAILFAST, a job that nothing can be delivered of.
        """
        return _Planning(self._options).partitions()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield the rows of a partition, after delivering what it holds.

        Raises:
            Permanent: with FAILFAST, some of its extents FAILED.
        """
        if isinstance(partition, Known):
            rows: Iterator[Row] = iter(partition.rows)
        else:
            rows = _delivered(partition)  # type: ignore[arg-type]
        unfit: list[Row] = []
        for row in rows:
            if self._options.permissive or row[receipts.STATE] == ExtentState.DONE.value:
                yield row
            else:
                unfit.append(row)
        if unfit:
            raise Permanent(_told(unfit))


def _delivered(partition: Pending) -> Iterator[Row]:
    worker = this_worker(partition.spec)
    for task in partition.tasks:
        for extent in task.extents:
            yield worker.deliver(extent)  # type: ignore[attr-defined]


def _told(unfit: Sequence[Row]) -> str:
    reasons = dict.fromkeys(f"{row[1]}: {row[receipts.STATE]}: {row[-1]}" for row in unfit)
    shown = "; ".join(islice(reasons, SHOWN))
    more = f"; and {len(unfit) - SHOWN} more" if len(reasons) > SHOWN else ""
    return (
        f"{len(unfit)} extents are not delivered: {shown}{more}; mend the cause and run the action "
        "again, or read with mode=PERMISSIVE; everything else is delivered"
    )


class _Planning:
    """One action's plan."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._site = Site(options.settings)
        self._planner = self._site.planner()
        self._config, self._revision = self._site.connector(options.connector)

    def partitions(self) -> list[InputPartition]:
        """Return those of pending extents, the largest first, and then those of final ones."""
        jobs = [self._planned(job) for job in self._jobs()]
        return [*self._pending(jobs), *map(Known, _pages(self._final(jobs)))]

    def _jobs(self) -> Iterator[Job]:
        """Yield a job per object, new or as it stands."""
        site, config, revision = self._site, self._config, self._revision
        preflight.require_running(site.ledger, config.name)
        site.require_app()
        territory = Territory(config.name, config.bucket, config.prefix)
        store = site.store(config, revision)
        versions = list(select_all(store, territory, self._options.addresses))
        preflight.check(config, site.broker, versions)
        for version in versions:
            intake = site.intake(config, revision, version, self._options.parallelism)
            yield self._planner.admit(intake)

    def _planned(self, job: Job) -> Job:
        """Return a job whose extents are known, and pending again where they are to be."""
        if job.state is JobState.FAILED and self._options.replay:
            job = self._planner.replay(job)
        return self._planner.plan(job)

    def _pending(self, jobs: Sequence[Job]) -> list[InputPartition]:
        running = [job for job in jobs if job.state is JobState.RUNNING]
        ordered = {job.id: job.ordered for job in running}
        extents = (extent for job in running for extent in self._planner.pending(job))
        tasks = pack(extents, ordered.__getitem__, self._options.parallelism)
        spec = WorkerSpec(
            open_reporting_worker, self._options.settings.to_map(), f"spark-{uuid4().hex[:12]}"
        )
        most = self._config.max_tasks or len(tasks)
        # In turn, so that each partition begins with one of the largest.
        shares = (tuple(tasks[first::most]) for first in range(min(most, len(tasks))))
        return [Pending(spec, share) for share in shares]

    def _final(self, jobs: Sequence[Job]) -> Iterator[Row]:
        """Yield the rows of extents that are final; one for a job that has none and never will."""
        for job in jobs:
            items = [item for item in self._site.ledger.extents(job.id) if item.state.final]
            yield from (receipts.known(job, item) for item in items)
            lost = any(item.state is ExtentState.FAILED for item in items)
            if not job.state.open and job.state is not JobState.DONE and not lost:
                yield receipts.ended(job)


def _pages(rows: Iterator[Row]) -> Iterator[tuple[Row, ...]]:
    while page := tuple(islice(rows, KNOWN_ROWS)):
        yield page
