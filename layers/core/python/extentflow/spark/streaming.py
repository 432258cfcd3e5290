"""The streaming query as Spark calls it.

    latestOffset()  driver's machine, one process for the whole query, before every trigger: polls
                    the work source, once per second at most; a new offset means that there is work
    partitions()    the same process, once per trigger: at most as many tasks as slots are free
    read()          executors, once per task and attempt: delivers extents, returns receipts

Progress is in the ledger and in Kafka. No part of an offset is a position, so a checkpoint may be
lost or older than what was delivered: no record is lost or doubled, only receipts are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from extentflow.engines import Task, WorkerSpec, pack
from extentflow.engines.spark import deal, spark_task
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.queue import Queue
from extentflow.spark.query_options import StreamOptions
from extentflow.spark.receipts import Row
from extentflow.spark.scanner import JobScanner, PendingWork
from extentflow.spark.tasks import QueryWorker, StopRequest, open_query_worker
from extentflow.wiring import Runtime
from extentflow.wiring.arrivals import open_intake
from extentflow.wiring.functions import queue

log = logging.getLogger(__name__)

# Without a trigger interval Spark calls latestOffset a hundred times per second.
LOOK_SECONDS = 1.0
# Retries of the polling process end after this time.
RETRY_SECONDS = 20.0
FEW_SECONDS = 5.0

Offset: TypeAlias = dict[str, int]
NOTHING: Offset = {"look": 0}


@dataclass
class QueuePartition(InputPartition):
    """Up to `most` messages of the queue, started within `seconds`."""

    most: int
    seconds: float

    def deliver(self, worker: QueryWorker) -> Iterator[Row]:
        return worker.drain(most=self.most, seconds=self.seconds)


@dataclass
class ListedPartition(InputPartition):
    """Extents that a scan found, started within `seconds`."""

    tasks: tuple[Task, ...]
    seconds: float

    def deliver(self, worker: QueryWorker) -> Iterator[Row]:
        extents = (one for task in self.tasks for one in task.extents)
        return worker.run_once(extents, seconds=self.seconds)


class WorkSource:
    """Polls for work at most once per second and returns the offsets of a query."""

    def __init__(self, options: StreamOptions, runtime: Runtime) -> None:
        self.options = options
        self.runtime = runtime
        self.stop = StopRequest(runtime.ledger, options.run, runtime.clock.monotonic)
        self._last, self._looked = NOTHING, False
        self._next = float("-inf")

    def latest(self) -> Offset:
        """Return the offset after all work found so far; only the first poll raises its errors."""
        # A stopped run's name would end its workers at once.
        if not self._looked and self.stop():
            raise Misconfigured(
                f"run {self.options.run} was stopped before; give each start its own name, or none"
            )
        if self.runtime.clock.monotonic() < self._next or self.stop():
            return self._last
        facts: Offset = {}
        try:
            facts = self.look()
        except ExtentflowError as exc:
            if not self._looked:
                raise
            log.warning("cannot read the pending work; the next poll retries: %s", exc)
        self._looked = True
        # From the end of the poll: a listing takes many seconds.
        self._next = self.runtime.clock.monotonic() + LOOK_SECONDS
        if facts:
            # Above the offsets of earlier processes, which a checkpoint may contain.
            number = max(self._last["look"] + 1, int(self.runtime.clock.wall() * 1000))
            self._last = {"look": number, **facts}
        return self._last

    def resume(self, offset: Offset) -> None:
        """Continue after the offset of a checkpoint."""
        if offset.get("look", 0) > self._last["look"]:
            self._last = offset

    def look(self) -> Offset:
        """Return counts of the pending work; empty if there is none."""
        raise NotImplementedError

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks for the work of the last poll, once; else poll, for a repeated trigger."""
        raise NotImplementedError

    def free_slots(self) -> int:
        """Return how many workers of this run can lease a slot; all of them if unknown."""
        ledger, run = self.runtime.ledger, f"{self.options.run}/"
        try:
            now, slots = ledger.now(), ledger.slots.list(self.runtime.broker.cluster)
            taken = sum(one.until > now and not one.owner.startswith(run) for one in slots)
        except Retryable as exc:
            log.warning("cannot read how many slots are free; assuming all: %s", exc)
            taken = 0
        return max(1, self.options.settings.exactly_once_slots - taken)


class QueueSource(WorkSource):
    """Work of the extents queue."""

    def __init__(self, options: StreamOptions, runtime: Runtime, messages: Queue) -> None:
        super().__init__(options, runtime)
        self._queue = messages
        self._waiting: int | None = None

    def look(self) -> Offset:
        depth = self._queue.depth()
        self._waiting = depth.waiting
        return asdict(depth) if depth.waiting else {}

    def partitions(self) -> Sequence[InputPartition]:
        waiting, self._waiting = self._waiting, None
        try:
            waiting = self._queue.depth().waiting if waiting is None else waiting
        except Retryable as exc:
            log.warning("cannot read the depth of the extents queue: %s", exc)
            waiting = 0
        options = self.options
        most = min(options.parallelism, options.most_extents, self.free_slots())
        # A queue's depth is approximate, so one task polls in any case.
        tasks = min(most, max(1, waiting))
        # Few tasks end early, so that the next trigger can start more of them.
        seconds = options.most_seconds if tasks == most else min(FEW_SECONDS, options.most_seconds)
        share, rest = divmod(options.most_extents, tasks)
        return [QueuePartition(share + (number < rest), seconds) for number in range(tasks)]


class ListingSource(WorkSource):
    """Work of listed connectors: objects without a job, and open jobs."""

    def __init__(self, options: StreamOptions, runtime: Runtime) -> None:
        super().__init__(options, runtime)
        self._scanner = JobScanner(
            runtime,
            options,
            stopping=self.stop,
            open_intake=partial(open_intake, runtime, self.stop),
        )
        self._found: list[PendingWork] | None = None

    def look(self) -> Offset:
        if not self._looked:
            self.runtime.require_app()
        self._found = self._scanner.look()
        waiting = sum(len(one.extents) for one in self._found)
        # A trigger without tasks reports an unfinished listing to a `--once` run.
        listing = {"listing": 1} if self._scanner.listing else {}
        return {"waiting": waiting, **listing} if waiting or listing else {}

    def partitions(self) -> Sequence[InputPartition]:
        found, self._found = self._found, None
        try:
            found = self._scanner.look() if found is None else found
        except ExtentflowError as exc:
            log.warning("cannot read the pending work; the next poll retries: %s", exc)
            return []
        free = min(self.options.parallelism, self.free_slots())
        shares: list[ListedPartition] = []
        for one in found:
            most = min(free, one.most_tasks or free)
            tasks = deal(pack(one.extents, one.ordered.__getitem__, most), most)
            shares += [ListedPartition(share, self.options.most_seconds) for share in tasks]
        return [share for share in shares if share.tasks]


def open_work_source(options: StreamOptions) -> WorkSource:
    """Return a query's work source. Raises Misconfigured for wrong settings of queue or AWS."""
    settings = options.settings
    retry_seconds = min(settings.retry_timeout_seconds, RETRY_SECONDS)
    runtime = Runtime(replace(settings, retry_timeout_seconds=retry_seconds))
    if options.listing:
        return ListingSource(options, runtime)
    return QueueSource(options, runtime, queue(settings, "extents_queue_url"))


class StreamReader(DataSourceStreamReader):
    """Spark creates one on the driver's machine, which opens `_source`, and one for executors."""

    def __init__(
        self,
        options: StreamOptions,
        open_source: Callable[[StreamOptions], WorkSource] = open_work_source,
    ) -> None:
        self._options = options
        self._open = open_source

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        return dict(NOTHING)

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's
        return dict(self._source.latest())

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return tasks for the current work, whatever the offsets are; none between equal ones."""
        if start == end:  # a checkpoint's, when the query starts
            self._source.resume(dict(end))
            return []
        return self._source.partitions()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield a row per extent that became final; a later poll finds the others."""
        if not isinstance(partition, QueuePartition | ListedPartition):
            raise TypeError(f"Spark did not plan this partition: {partition!r}")
        options = self._options
        spec = WorkerSpec(open_query_worker, options.settings.to_map(), options.run)
        with spark_task(spec) as worker:
            yield from partition.deliver(worker)

    @cached_property
    def _source(self) -> WorkSource:
        return self._open(self._options)
