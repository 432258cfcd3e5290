"""A streaming query as Spark sees it: offsets, partitions, what reading one does.

Owns: when there is something to do, how many tasks do it. Refuses to know: how work is found and
done.

    latestOffset()  driver's machine, one process for the whole query, before every trigger: is
                    there work? A new offset means so, and tells how much; none of it is a position
    partitions()    the same process, once per trigger: tasks, at most as many as slots are free
    read()          executors, once per task and attempt: work is done, receipts come back

Progress is the ledger's and Kafka's. An offset says "from here on look again", so that a checkpoint
may be lost, or be older than what was delivered: nothing is lost or doubled, only receipts are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from extentflow.engines import Task, WorkerSpec, pack
from extentflow.engines.spark import this_worker
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.queues import Depth
from extentflow.spark.fleet import open_draining_worker, open_standing_worker
from extentflow.spark.options import StreamOptions
from extentflow.spark.receipts import Row
from extentflow.spark.standing import Found, Standing
from extentflow.spark.stopping import Stop
from extentflow.wiring import Site
from extentflow.wiring.functions import queue

log = logging.getLogger(__name__)

# Without a trigger interval Spark asks a hundred times a second.
LOOK_SECONDS = 1.0
# How long a process that only looks waits for what is away.
RETRY_SECONDS = 20.0
FEW_SECONDS = 5.0

Offset = dict[str, int]
NOTHING: Offset = {"look": 0}


@dataclass
class Drained(InputPartition):
    """So many messages of the queue at most, begun within so many seconds."""

    most: int
    seconds: float


@dataclass
class Standings(InputPartition):
    """Extents that a look found, begun within so many seconds."""

    tasks: tuple[Task, ...]
    seconds: float


class _Looks:
    """What both kinds of readers have: offsets, and looks that are not too frequent."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        settings = options.settings
        patience = min(settings.retry_timeout_seconds, RETRY_SECONDS)
        self.site = Site(replace(settings, retry_timeout_seconds=patience))
        self.stop = Stop(self.site.ledger, options.run, self.site.clock.monotonic)
        self._last = NOTHING
        self._next = float("-inf")
        self._looked = False

    def latest(self) -> Offset:
        """Return the offset behind which nothing is left to do, as far as is known.

        Raises:
            ExtentflowError: the first look fails; later ones are told in the log and repeated.
            Misconfigured: a run of that name was stopped before.
        """
        self._require_fresh()
        now = self.site.clock.monotonic()
        if now < self._next or self.stop():
            return self._last
        try:
            facts = self.look()
        except ExtentflowError as exc:
            if not self._looked:
                raise
            log.warning("it is not known what there is to do: %s", exc)
            facts = None
        self._looked = True
        self._next = self.site.clock.monotonic() + (LOOK_SECONDS if facts else self.rest_seconds)
        if facts is not None:
            # Above that of any process before this one, which a checkpoint may remember.
            number = max(self._last["look"] + 1, int(self.site.clock.wall() * 1000))
            self._last = {"look": number, **facts}
        return self._last

    def resume(self, offset: Offset) -> None:
        """Go on behind what a checkpoint remembers."""
        if offset.get("look", 0) > self._last["look"]:
            self._last = offset

    def _require_fresh(self) -> None:
        if not self._looked and self.stop():
            raise Misconfigured(
                f"run {self.options.run} was stopped before; give every start another name, or none"
            )

    @property
    def rest_seconds(self) -> float:
        """How long after a look in vain the next one comes."""
        return LOOK_SECONDS

    def look(self) -> Offset | None:
        """Return what is known of the work that there is; None where there is none."""
        raise NotImplementedError

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks for what there is now."""
        raise NotImplementedError

    def free_slots(self) -> int:
        """Return how many workers of ours can have a slot; all of them where nobody knows."""
        ledger, run = self.site.ledger, f"{self.options.run}/"
        try:
            now = ledger.now()
            taken = sum(
                slot.until > now and not slot.owner.startswith(run)
                for slot in ledger.slots(self.site.broker.cluster)
            )
        except Retryable as exc:
            log.warning("it is not known how many slots are free: %s", exc)
            taken = 0
        return max(1, self.options.settings.exactly_once_slots - taken)


class _QueueLooks(_Looks):
    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self._queue = queue(options.settings, "extents_queue_url")

    def look(self) -> Offset | None:
        depth = self._queue.depth()
        return _counts(depth) if depth.waiting else None

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        most = min(options.parallelism, options.most_extents, self.free_slots())
        # What is known of a queue is approximate, so that one task looks in any case.
        tasks = min(most, max(1, self._waiting()))
        # The fewer, the sooner they make room for a trigger that has more to do.
        seconds = options.most_seconds if tasks == most else min(FEW_SECONDS, options.most_seconds)
        return [Drained(share, seconds) for share in _dealt(options.most_extents, tasks)]

    def _waiting(self) -> int:
        try:
            return self._queue.depth().waiting
        except Retryable as exc:
            log.warning("it is not known how much waits: %s", exc)
            return 0


class _ListingLooks(_Looks):
    def __init__(self, options: StreamOptions) -> None:
        super().__init__(options)
        self._standing = Standing(
            self.site,
            connector=options.connector,
            most=options.most_extents,
            rest_seconds=options.listing_seconds,
            stopping=self.stop,
        )
        self._found: list[Found] | None = None
        self._prepared = False

    def look(self) -> Offset | None:
        if not self._prepared:
            self.site.require_app()
            self._prepared = True
        self._found = self._standing.look()
        waiting = sum(len(one.extents) for one in self._found)
        return {"waiting": waiting} if waiting else None

    def partitions(self) -> Sequence[InputPartition]:
        # Spark asks without a look before where it repeats the last trigger of a run that died.
        found, self._found = self._look_again() if self._found is None else self._found, None
        free = min(self.options.parallelism, self.free_slots())
        return [share for one in found for share in self._shares(one, free)]

    def _look_again(self) -> list[Found]:
        try:
            return self._standing.look()
        except ExtentflowError as exc:
            log.warning("it is not known what there is to do: %s", exc)
            return []

    def _shares(self, found: Found, free: int) -> Iterator[Standings]:
        """Yield a connector's tasks in as many parts as may run at once."""
        most = min(free, found.most_tasks or free)
        tasks = pack(found.extents, found.ordered.__getitem__, most)
        for first in range(min(most, len(tasks))):
            yield Standings(tuple(tasks[first::most]), self.options.most_seconds)


class StreamReader(DataSourceStreamReader):
    """Made once on the driver's machine and once for executors; `_looks` is the former's only."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._looks: _Looks | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return the offset of a query without a checkpoint."""
        return dict(NOTHING)

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Return a new offset where there is work. Raises as `_Looks.latest`."""
        return dict(self._here().latest())

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return tasks for what there is now, whatever the offsets were; none without news."""
        if start == end:  # a checkpoint's, when the query starts
            self._here().resume(dict(end))
            return []
        return self._here().partitions()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield a row per extent that came to its end; what is not over is found again."""
        settings, run = self._options.settings.to_map(), self._options.run
        if isinstance(partition, Drained):
            fleet = this_worker(WorkerSpec(open_draining_worker, settings, run))
            yield from fleet.drained(most=partition.most, seconds=partition.seconds)
        elif isinstance(partition, Standings):
            worker = this_worker(WorkerSpec(open_standing_worker, settings, run))
            extents = (one for task in partition.tasks for one in task.extents)
            yield from worker.delivered(extents, seconds=partition.seconds)
        else:
            raise TypeError(f"Spark did not plan this partition: {partition!r}")

    def _here(self) -> _Looks:
        if self._looks is None:
            kind = _ListingLooks if self._options.listing else _QueueLooks
            self._looks = kind(self._options)
        return self._looks


def _counts(depth: Depth) -> Offset:
    return {"waiting": depth.waiting, "hidden": depth.hidden, "delayed": depth.delayed}


def _dealt(most: int, tasks: int) -> list[int]:
    """Return shares of `most` that differ by one at most."""
    share, rest = divmod(most, tasks)
    return [share + (number < rest) for number in range(tasks)]
