"""What executors do for a streaming query: drain the queue, or run the extents they are given.

Owns: rows out of messages, stopping soon. Refuses to know: triggers, partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from extentflow.engines.draining import Drain
from extentflow.engines.queue import read_extent
from extentflow.model import Extent
from extentflow.settings import WorkerSettings
from extentflow.spark.executor import ended_as
from extentflow.spark.receipts import Row
from extentflow.spark.stopping import Stop
from extentflow.wiring import Site
from extentflow.wiring.functions import open_queue_worker
from extentflow.wiring.worker import SiteWorker, prepare_process


class DrainingWorker:
    """A worker that takes its extents off the queue, beside functions or without them."""

    def __init__(self, site: Site, owner: str) -> None:
        self._ledger = site.ledger
        stop = _stop_of(site, owner)
        self._worker = open_queue_worker(
            site, owner, seconds_left=lambda: 0.0 if stop() else inf, margin_seconds=1.0
        )
        self._drain = Drain(self._worker, site.clock.monotonic, stop)

    def drained(self, *, most: int, seconds: float) -> Iterator[Row]:
        """Yield a row per extent that came to its end here. Raises as `Drain.answers`."""
        for message, answer in self._drain.answers(most=most, seconds=seconds):
            extent = read_extent(message.body)
            if extent is None or answer.receipt is None:
                continue
            row = ended_as(self._ledger, extent, answer.receipt)
            if row is not None:
                yield row

    def close(self) -> None:
        """See `engines.Resident`."""
        self._worker.work.slots.release()


class StandingWorker(SiteWorker):
    """A worker that runs what a trigger found, until somebody asks its query to stop."""

    def __init__(self, site: Site, owner: str) -> None:
        super().__init__(site, owner)
        self._ledger = site.ledger
        self._asked: Callable[[], bool] = _stop_of(site, owner)

    def stopping(self) -> bool:
        """See `SiteWorker.stopping`."""
        return super().stopping() or self._asked()

    def delivered(self, extents: Iterable[Extent]) -> Iterator[Row]:
        """Yield a row per extent that came to its end here; the others are pending as before."""
        for extent in extents:
            if self.stopping():
                return
            row = ended_as(self._ledger, extent, self.run(extent))
            if row is not None:
                yield row


def _stop_of(site: Site, owner: str) -> Stop:
    return Stop(site.ledger, owner.partition("/")[0], site.clock.monotonic)


def open_draining_worker(settings: dict[str, str], owner: str) -> DrainingWorker:
    """Become a worker of the queue, in the process that calls this (see `engines.WorkerSpec`)."""
    prepare_process()
    return DrainingWorker(Site(WorkerSettings.from_map(settings)), owner)


def open_standing_worker(settings: dict[str, str], owner: str) -> StandingWorker:
    """Become a worker of a listing query, in the process that calls this."""
    prepare_process()
    return StandingWorker(Site(WorkerSettings.from_map(settings)), owner)
