"""What a query that ends by itself has to do: what was there when it began, not what arrives since.

Owns: when there is nothing left of that, or nobody gets on with it. Refuses to know: Spark, where
work comes from.

    two looks that found all ──> open jobs are noted ──> none of them is open: over
                                                     └─> several queries in vain: they stay

Queues and listings cannot say what is old; jobs can, and new ones are none of the noted.
"""

from __future__ import annotations

import logging

from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger
from extentflow.model import Job, JobState

log = logging.getLogger(__name__)

# What is left may be in other hands, paused, or known to the queue a little late.
VAIN_QUERIES = 3
# The first may have gone on with a listing that somebody began; the next lists from the first key.
WHOLE_LOOKS = 2


class Backlog:
    """The jobs of one connector, or of all of them, that are open when a run begins."""

    def __init__(self, ledger: Ledger, connector: str | None) -> None:
        self._ledger = ledger
        self._connector = connector
        self._looks = 0
        self._vain = 0
        self._noted: dict[str, Job] | None = None
        self._over: int | None = None

    def left(self, *, ended: int, listing: bool) -> bool:
        """Return whether another query is worth it, after one that ended so many extents.

        `listing`: it did not get to see all objects. What the ledger does not tell is nothing that
        anybody got on with.
        """
        looking = self._noted is None
        try:
            moved = self._moved(listing=listing)
        except ExtentflowError as exc:
            log.warning("it is not known what is left to do: %s", exc)
            moved = False
        self._vain = 0 if moved and (ended or looking) else self._vain + 1
        return self._vain < VAIN_QUERIES and self._noted != {}

    def _moved(self, *, listing: bool) -> bool:
        if self._noted is None:
            self._looks += not listing
            if self._looks >= WHOLE_LOOKS:
                self._noted = self._open()
            return True
        still = {name: job for name, job in self._open().items() if name in self._noted}
        fewer, self._noted = len(still) < len(self._noted), still
        if fewer:
            self._over = None
            return True
        before, self._over = self._over, sum(self._ended(job) for job in still.values())
        return before != self._over

    def _open(self) -> dict[str, Job]:
        states = (JobState.PLANNING, JobState.RUNNING)
        found = (job for state in states for job in self._ledger.jobs(self._connector, state))
        return {job.id: job for job in found}

    def _ended(self, job: Job) -> int:
        progress = self._ledger.progress(job.id)
        return progress.done + progress.failed
