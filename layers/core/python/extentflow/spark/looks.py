"""What Spark asks a streaming query for on the driver's machine: is there work, which tasks do it.

Owns: offsets, how often is looked, how much one trigger takes on. Refuses to know: how work is
found and done.

    latest() ── a look, once per second at most ── work: a new offset, which tells how much there is
                                                └─ none, or nobody knows: the offset before
    partitions() ── tasks for what that look found, at most as many as slots are free

None of an offset is a position. Once a first look succeeded, what is away is told in the log, and
the next look finds out: it ends no query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from extentflow.engines import Task, pack
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.queue import Depth, Queue
from extentflow.spark.options import StreamOptions
from extentflow.spark.standing import Found, Standing
from extentflow.spark.stopping import Stop
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queue

log = logging.getLogger(__name__)

# Without a trigger interval Spark asks a hundred times a second.
LOOK_SECONDS = 1.0
# How long a process that only looks waits for what is away.
RETRY_SECONDS = 20.0
FEW_SECONDS = 5.0

Offset: TypeAlias = dict[str, int]
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


class Looks:
    """What both kinds of looks have: offsets, and looks that are not too frequent."""

    def __init__(self, options: StreamOptions, runtime: Runtime) -> None:
        self.options = options
        self.runtime = runtime
        self.stop = Stop(runtime.ledger, options.run, runtime.clock.monotonic)
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
        now = self.runtime.clock.monotonic()
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
        self._next = self.runtime.clock.monotonic() + LOOK_SECONDS
        if facts is not None:
            # Above that of any process before this one, which a checkpoint may remember.
            number = max(self._last["look"] + 1, int(self.runtime.clock.wall() * 1000))
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

    def look(self) -> Offset | None:
        """Return what is known of the work that there is; None where there is none."""
        raise NotImplementedError

    def partitions(self) -> Sequence[InputPartition]:
        """Return tasks for what the last look found; only the first to ask is given that.

        Spark also asks without a look before, where it repeats the last trigger of a run that died.
        """
        raise NotImplementedError

    def free_slots(self) -> int:
        """Return how many workers of ours can have a slot; all of them where nobody knows."""
        ledger, run = self.runtime.ledger, f"{self.options.run}/"
        try:
            now = ledger.now()
            taken = sum(
                slot.until > now and not slot.owner.startswith(run)
                for slot in ledger.slots(self.runtime.broker.cluster)
            )
        except Retryable as exc:
            log.warning("it is not known how many slots are free: %s", exc)
            taken = 0
        return max(1, self.options.settings.exactly_once_slots - taken)


class QueueLooks(Looks):
    """Looks at how much the extents queue holds."""

    def __init__(self, options: StreamOptions, runtime: Runtime, messages: Queue) -> None:
        super().__init__(options, runtime)
        self._queue = messages
        self._waiting: int | None = None

    def look(self) -> Offset | None:
        """See `Looks.look`."""
        depth = self._queue.depth()
        self._waiting = depth.waiting
        return _counts(depth) if depth.waiting else None

    def partitions(self) -> Sequence[InputPartition]:
        """See `Looks.partitions`."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            waiting = self._look_again()
        options = self.options
        most = min(options.parallelism, options.most_extents, self.free_slots())
        # What is known of a queue is approximate, so that one task looks in any case.
        tasks = min(most, max(1, waiting))
        # The fewer, the sooner they make room for a trigger that has more to do.
        seconds = options.most_seconds if tasks == most else min(FEW_SECONDS, options.most_seconds)
        return [Drained(share, seconds) for share in _dealt(options.most_extents, tasks)]

    def _look_again(self) -> int:
        try:
            return self._queue.depth().waiting
        except Retryable as exc:
            log.warning("it is not known how much waits: %s", exc)
            return 0


class ListingLooks(Looks):
    """Looks at connectors: at objects without a job, and at open jobs."""

    def __init__(self, options: StreamOptions, runtime: Runtime) -> None:
        super().__init__(options, runtime)
        self._standing = Standing(runtime, options, stopping=self.stop)
        self._found: list[Found] | None = None
        self._prepared = False

    def look(self) -> Offset | None:
        """See `Looks.look`."""
        if not self._prepared:
            self.runtime.require_app()
            self._prepared = True
        self._found = self._standing.look()
        waiting = sum(len(one.extents) for one in self._found)
        # A trigger without tasks, that whoever waits for the end of a listing hears of it.
        listing = {"listing": 1} if self._standing.listing else {}
        return {"waiting": waiting, **listing} if waiting or listing else None

    def partitions(self) -> Sequence[InputPartition]:
        """See `Looks.partitions`."""
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


def open_looks(options: StreamOptions) -> Looks:
    """Return a query's looks, in the process that calls this.

    Raises:
        Misconfigured: the settings of the queue or of AWS are wrong.
    """
    settings = options.settings
    patience = min(settings.retry_timeout_seconds, RETRY_SECONDS)
    runtime = Runtime(replace(settings, retry_timeout_seconds=patience))
    if options.listing:
        return ListingLooks(options, runtime)
    return QueueLooks(options, runtime, queue(settings, "extents_queue_url"))


def _counts(depth: Depth) -> Offset:
    return {"waiting": depth.waiting, "hidden": depth.hidden, "delayed": depth.delayed}


def _dealt(most: int, tasks: int) -> list[int]:
    """Return shares of `most` that differ by one at most."""
    share, rest = divmod(most, tasks)
    return [share + (number < rest) for number in range(tasks)]
