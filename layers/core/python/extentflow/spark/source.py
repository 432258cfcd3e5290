"""The data source `extentflow`, and its batch query: plan on the driver, deliver on executors.

    partitions()   driver's machine, in a process of the JVM's, once per scan that is planned:
                   selects objects, registers and cuts jobs. Spark keeps a DataFrame's plan
    read()         executors, once per partition and attempt: runs extents until they are final, in
                   a worker that lives as long as its Python process

Pending extents come first, the largest in front, then rows of extents that were final before. The
last partition runs the rest, waits for extents that other workers hold, closes the jobs and
publishes their ends. With FAILFAST only this partition fails if something is not DONE, because
Spark ends all tasks of a query once one has failed for good.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from extentflow.engines import Task, WorkerSpec, pack
from extentflow.engines.spark import deal, reduce_task_overhead, spark_task
from extentflow.errors import Misconfigured, Permanent, ProgressUnknown, StoreUnavailable, reason
from extentflow.jobs import preflight
from extentflow.jobs.addresses import KeyScope, select_all
from extentflow.jobs.preflight import ConnectorStateCache
from extentflow.jobs.run import closed, cutting
from extentflow.ledger import ExtentItem
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.spark import receipts
from extentflow.spark.query_options import FAIL_FAST, ReadOptions, StreamOptions
from extentflow.spark.receipts import COLUMNS, Row
from extentflow.spark.streaming import StreamReader
from extentflow.spark.tasks import open_query_worker
from extentflow.wiring import Runtime
from extentflow.wiring.extents import require_ledger_for

log = logging.getLogger(__name__)

# Rows are part of the partition, which Spark pickles into the task.
KNOWN_ROWS = 4_096
SHOWN = 3
# The same for all queries, so that the next one finds workers, slots and clients warm.
RUN = "source"


class ExtentflowSource(DataSource):
    """See `register`. Spark makes one per `load`, and of it readers, one for each scan planned.

    `master` is the session's; None: not known.
    """

    master: str | None = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        reduce_task_overhead()
        # The same in every process that Spark copies this one to.
        self._run = f"stream-{uuid4().hex[:12]}"

    @classmethod
    def of(cls, master: str | None) -> type[ExtentflowSource]:
        """Return the source of a session; Spark copies its class to the processes that plan."""
        return type(cls.__name__, (cls,), {"master": master})

    @classmethod
    def name(cls) -> str:
        return "extentflow"

    def schema(self) -> StructType:
        return COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        _require_ours(schema)
        options = ReadOptions.read(self.options)
        require_ledger_for(self.master, options.settings)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's
        _require_ours(schema)
        options = StreamOptions.read({"run": self._run, **self.options})
        require_ledger_for(self.master, options.settings)
        return StreamReader(options)


def _require_ours(schema: StructType) -> None:
    # Spark matches rows by place, and a user's schema may differ in what it declares nullable.
    columns = [(field.name, field.dataType) for field in COLUMNS]
    if [(field.name, field.dataType) for field in schema] != columns:
        raise Misconfigured("receipts have columns of their own: leave out .schema(...)")


@dataclass
class BatchPartition(InputPartition):
    """Rows of what was final, extents to deliver, or the jobs that the last partition ends."""

    rows: Sequence[Row] = ()
    tasks: tuple[Task, ...] = ()
    jobs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Tasks to run, at most `most` at once, rows of final extents, and the ids of all jobs."""

    tasks: Sequence[Task]
    most: int
    rows: Sequence[Row]
    jobs: Sequence[str]


class BatchReader(DataSourceReader):
    """Plans on the driver's machine, reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions in the module's order; errors are those of a run's start."""
        reduce_task_overhead()
        found = plan(self._options, Runtime(self._options.settings))
        pages = range(0, len(found.rows), KNOWN_ROWS)
        # At most a partition per slot, because a task without a slot only waits.
        shares = deal(found.tasks, min(found.most, len(found.tasks)))
        pending = [BatchPartition(tasks=share) for share in shares]
        known = [BatchPartition(rows=found.rows[one : one + KNOWN_ROWS]) for one in pages]
        return [*pending, *known, BatchPartition(jobs=found.jobs)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Deliver a partition's extents and yield its rows; the last one raises, with FAILFAST."""
        if not isinstance(partition, BatchPartition):
            raise TypeError(f"Spark did not plan this partition: {partition!r}")
        yield from filter(self._is_shown, partition.rows)
        if not partition.tasks and not partition.jobs:
            return
        with spark_task(
            WorkerSpec(open_query_worker, self._options.settings.to_map(), RUN)
        ) as worker:
            for task in partition.tasks:
                yield from filter(self._is_shown, worker.deliver(task.extents))
            unfit = worker.finish(partition.jobs) if partition.jobs else []
        if unfit and self._options.mode == FAIL_FAST:
            reasons = list(dict.fromkeys(receipts.describe_undelivered(row) for row in unfit))
            more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
            raise Permanent(
                f"not everything is delivered: {'; '.join(reasons[:SHOWN])}{more}; everything "
                "else is. Fix the cause and `load` again, or read with mode=PERMISSIVE"
            )

    def _is_shown(self, row: Row) -> bool:
        # With FAILFAST only what is DONE: the last partition reports the others.
        return self._options.mode != FAIL_FAST or row.state == ExtentState.DONE


def plan(options: ReadOptions, runtime: Runtime) -> Plan:
    """Register and cut jobs for the objects that the options select; delivers nothing."""
    config, revision = runtime.connectors.latest(options.connector)
    preflight.require_running(runtime.ledger, config.name)
    runtime.require_app()
    store, scope = runtime.objects.store(config, revision), KeyScope.of(config)
    versions = list(select_all(store, scope, options.addresses))
    recognised = partial(runtime.requests.recognised, config, revision)
    preflight.check(config, runtime.broker, versions, recognised)
    wanted = ConnectorStateCache(runtime.ledger, runtime.clock.monotonic)
    planner = runtime.planner()
    pending: list[Extent] = []
    rows: list[Row] = []
    ordered: dict[str, bool] = {}
    for version in versions:
        job = planner.admit(runtime.requests.make(config, revision, version, options.parallelism))
        ordered[job.id] = job.ordered
        # The job pins an older revision, whose secrets may no longer resolve.
        begins = job.state.open or (options.replay and job.state is JobState.FAILED)
        if (
            begins
            and job.revision != revision
            and (why := runtime.deliverability.undeliverable_reason(job))
        ):
            rows.append(receipts.whole(job, why))
        else:
            extents, final = _plan_or_replay(runtime, job, replay=options.replay)
            pending += extents
            rows += final
        # `stop` cancels open jobs once; those that were registered after it are cancelled here.
        if why := wanted.skip_reason(config.name):
            for begun in ordered:
                closed(begun, runtime.ledger, wanted)
            raise Misconfigured(why)
    slots = options.settings.exactly_once_slots
    tasks = pack(pending, ordered.__getitem__, options.parallelism)
    return Plan(tasks, min(config.max_tasks or slots, slots), rows, list(ordered))


def _plan_or_replay(runtime: Runtime, job: Job, *, replay: bool) -> tuple[list[Extent], list[Row]]:
    """Plan a job, close it if it is complete; return pending extents and final rows."""
    final: list[ExtentItem] | None = None
    try:
        job = _planned(runtime, job)
        final = _final(runtime, job)
        failed = any(item.state is ExtentState.FAILED for item in final)
        if replay and (job.state is JobState.FAILED or (job.state.open and failed)):
            final = None  # read again below: a replay makes FAILED extents pending
            job = _planned(runtime, runtime.planner().replay(job))
    except (StoreUnavailable, ProgressUnknown) as exc:
        log.warning("%s is not planned or replayed yet: %s", job.version.uri, exc)
    final = _final(runtime, job) if final is None else final
    job, pending, why = _pending(runtime, job, {item.ordinal for item in final})
    rows = [receipts.known(job.id, job.version.uri, item) for item in final]
    # An empty object's job is DONE with neither extents nor a row; any other job has a row.
    if not pending and not final and job.state is not JobState.DONE:
        rows.append(receipts.whole(job, why))
    return pending, rows


def _planned(runtime: Runtime, job: Job) -> Job:
    job = runtime.planner().plan(job)
    return runtime.ledger.jobs.close(job.id) if job.state is JobState.RUNNING else job


def _final(runtime: Runtime, job: Job) -> list[ExtentItem]:
    return [item for item in runtime.ledger.extents.list(job.id) if item.state.final]


def _pending(runtime: Runtime, job: Job, final: Collection[int]) -> tuple[Job, list[Extent], str]:
    """Return a job with its extents that are not final, or why they are unknown."""
    if job.state is not JobState.RUNNING:
        # Planning leaves a job PLANNING only when its store is unavailable.
        return job, [], "its store was unavailable" if job.state is JobState.PLANNING else ""
    extents: list[Extent] = []
    try:
        with cutting(runtime.ledger, job):
            cut = runtime.planner().extents(job)
            extents = [extent for extent in cut if extent.ordinal not in final]
    except StoreUnavailable as exc:
        log.warning("%s cannot be cut now: %s", job.version.uri, exc)
        return job, [], reason(exc)
    return job if extents else runtime.ledger.jobs.get(job.id) or job, extents, ""
