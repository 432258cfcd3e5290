"""From jobs to messages: a job's extents go on the queue.

Owns: what is sent and when. Refuses to know: SQS, what becomes of a message (`queue`).

    PLANNING ──pages, cursor──> RUNNING      every extent was sent at least once
    reopened ─────────────────> RUNNING      what is not final was sent once more: its messages
                                             were over when the job had ended
    ordering=object: only the first extent; each that is DONE sends the next
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from extentflow.errors import Retryable
from extentflow.jobs.planner import PAGE_EXTENTS, Planner
from extentflow.jobs.run import cutting
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.queue import Queue


class Unfinished(Retryable):
    """Time ran out before everything was sent; the same call again goes on."""


def body_of(extent: Extent) -> str:
    """Return the message that asks for an extent, of schema version 1; ASCII, as queues want it."""
    return json.dumps(extent.to_message(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ExtentDispatcher:
    """Sends extents. A message that is sent twice does no harm: the ledger absorbs it."""

    planner: Planner
    queue: Queue

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Send what nobody may have a message for: raises as `Planner.plan`, and Unfinished.

        A PLANNING job is planned, its extents sent page by page; PLANNING again when `late` said
        so: call it anew. Of a job that was reopened (A, B, A; a replay) what is left is sent, too.
        Any other job is returned as it is.
        """
        sent_before = job.plan.count

        def send(page: Sequence[Extent]) -> None:
            self._send(extent for extent in page if not job.ordered or extent.ordinal == 0)

        planning = job.state is JobState.PLANNING
        job = self.planner.plan(job, send=send, late=late)
        if job.state is JobState.RUNNING and job.reopened:
            self.resend(job, below=sent_before if planning else job.plan.count, late=late)
            return self.planner.ledger.jobs.get(job.id) or job
        return job

    def resend(
        self, job: Job, *, below: int | None = None, late: Callable[[], bool] = lambda: False
    ) -> int:
        """Send what a RUNNING job still has to do; return how many messages that took.

        Only ordinals `below`, where it is given. An object that cannot be cut again ends its job.

        Raises:
            Unfinished: `late` said so, between two pages.
        """
        if job.state is not JobState.RUNNING:
            return 0
        sent = 0
        with cutting(self.planner.ledger, job):
            pending = self.planner.pending(job)
            wanted = (one for one in pending if below is None or one.ordinal < below)
            for page in _pages(islice(wanted, 1) if job.ordered else wanted):
                if sent and late():
                    raise Unfinished(f"job {job.id}: time ran out after {sent} messages")
                sent += self._send(page)
        return sent

    def follow(self, job: Job, extent: Extent) -> Job:
        """Send the extent after one that is DONE, where a job's extents keep their order.

        Nothing where the next one has a message already: its own, or one in the dead letter queue.
        Return the job, which is over where its object cannot be cut again.
        """
        if not job.ordered or not job.state.open:
            return job
        with cutting(self.planner.ledger, job):
            following = self._following(job, extent)
            self._send([] if following is None else [following])
        return self.planner.ledger.jobs.get(job.id) or job

    def _following(self, job: Job, extent: Extent) -> Extent | None:
        for later in islice(self.planner.extents(job), extent.ordinal + 1, None):
            item = self.planner.ledger.extents.get(job.id, later.ordinal)
            if item.state is ExtentState.DONE:  # by another engine, or this is a doubled message
                continue
            in_work = item.claim is not None and item.claim.message
            return None if item.state is ExtentState.FAILED or in_work else later
        return None

    def _send(self, extents: Iterable[Extent]) -> int:
        bodies = [body_of(extent) for extent in extents]
        if bodies:
            self.queue.send(bodies)
        return len(bodies)


def _pages(extents: Iterator[Extent]) -> Iterator[list[Extent]]:
    while page := list(islice(extents, PAGE_EXTENTS)):
        yield page
