"""Send a job's extents to the queue.

PLANNING ──pages, cursor──> RUNNING      every extent was sent at least once
reopened ─────────────────> RUNNING      unfinished extents were sent again: their messages
were deleted when the job ended
ordering=object: only the first extent; each completed one sends the next
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from extentflow.errors import Retryable
from extentflow.jobs.planner import PAGE_EXTENTS, Planner, in_pages
from extentflow.jobs.run import cutting
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.queue import Queue


class UnfinishedDispatch(Retryable):
    """Time ran out before everything was sent; the same call continues."""


def body_of(extent: Extent) -> str:
    """Return the message of an extent, schema version 1; ASCII, because queues require it."""
    return json.dumps(extent.to_message(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ExtentDispatcher:
    """Sends extents. Duplicate messages are harmless: the ledger absorbs them."""

    planner: Planner
    queue: Queue

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Send the extents that may have no message. Raises as `Planner.plan`; UnfinishedDispatch.

        A PLANNING job is planned, and its extents are sent page by page; it stays PLANNING if
        `late` returned true, so call this again. For a reopened job (A, B, A; a replay), unfinished
        extents are sent. Any other job is returned unchanged.
        """
        sent_before = job.plan.count

        def send(page: Sequence[Extent]) -> None:
            if not job.ordered:
                self._send(job, page)
            elif not job.reopened:  # else: by `resend`, which knows the first unfinished one
                self._send(job, [one for one in page if one.ordinal == 0])

        planning = job.state is JobState.PLANNING
        job = self.planner.plan(job, send=send, late=late)
        if job.state is JobState.RUNNING and job.reopened:
            # Of an ordered job, everything below `sent_before` may be DONE.
            below = sent_before if planning and not job.ordered else job.plan.count
            self.resend(job, below=below, late=late)
            return self.planner.ledger.jobs.get(job.id) or job
        return job

    def resend(
        self, job: Job, *, below: int | None = None, late: Callable[[], bool] = lambda: False
    ) -> int:
        """Send the unfinished extents of a RUNNING job; return the number of messages.

        Only ordinals `below`, if given. An object that cannot be cut any more ends its job. Raises
        UnfinishedDispatch if `late` returned true between two pages.
        """
        if job.state is not JobState.RUNNING:
            return 0
        sent = 0
        with cutting(self.planner.ledger, job):
            pending = self.planner.pending(job)
            wanted = (one for one in pending if below is None or one.ordinal < below)
            for page in in_pages(islice(wanted, 1) if job.ordered else wanted, PAGE_EXTENTS):
                if sent and late():
                    raise UnfinishedDispatch(f"job {job.id}: time ran out after {sent} messages")
                sent += self._send(job, page)
        return sent

    def follow(self, job: Job, extent: Extent) -> Job:
        """Send the extent after a completed one, for jobs with ordered extents.

        Sends nothing if the next one has a message already: its own, or one in the dead letter
        queue. Returns the job, which has ended if its object cannot be cut any more.
        """
        if not job.ordered or not job.state.open:
            return job
        ledger = self.planner.ledger
        with cutting(ledger, job):
            for later in islice(self.planner.extents(job), extent.ordinal + 1, None):
                item = ledger.extents.get(job.id, later.ordinal)
                if item.state is ExtentState.DONE:  # by another engine, or the message is doubled
                    continue
                in_work = item.claim is not None and item.claim.message
                if item.state is not ExtentState.FAILED and not in_work:
                    self._send(job, [later])
                break
        return ledger.jobs.get(job.id) or job

    def _send(self, job: Job, extents: Iterable[Extent]) -> int:
        """Send extents as messages of their connector's group, and return how many."""
        bodies = [body_of(extent) for extent in extents]
        if bodies:
            self.queue.send(bodies, group=job.connector)
        return len(bodies)
