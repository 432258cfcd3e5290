"""From jobs to messages: a job's extents go on the queue.

Owns: what is sent and when. Refuses to know: SQS, what becomes of a message (`queue`).

    PLANNING ──pages, cursor──> RUNNING      every extent was sent at least once
    ordering=object: only the first extent; each that is DONE sends the next
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from extentflow.model import Extent, Job, JobState
from extentflow.planner import Planner
from extentflow.queues import Queue


def body_of(extent: Extent) -> str:
    """Return the message that asks for an extent, of schema version 1; ASCII, as queues want it."""
    return json.dumps(extent.to_message(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Sends extents. A message that is sent twice does no harm: the ledger absorbs it."""

    planner: Planner
    queue: Queue

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Plan a PLANNING job, sending its extents page by page; raises as `Planner.plan`.

        PLANNING again when `late` said so: call it anew. Any other job is returned as it is.
        """

        def send(page: Sequence[Extent]) -> None:
            self._send(extent for extent in page if not job.ordered or extent.ordinal == 0)

        return self.planner.plan(job, send=send, late=late)

    def resend(self, job: Job) -> int:
        """Send what a RUNNING job still has to do; return how many messages that took."""
        if job.state is not JobState.RUNNING:
            return 0
        pending = self.planner.pending(job)
        if job.ordered:
            first = next(pending, None)
            return self._send([] if first is None else [first])
        return self._send(pending)

    def follow(self, job: Job, extent: Extent) -> None:
        """Send the extent after one that is DONE, where a job's extents keep their order."""
        if job.ordered and job.state.open:
            later = (one for one in self.planner.extents(job) if one.ordinal > extent.ordinal)
            following = next(later, None)
            self._send([] if following is None else [following])

    def _send(self, extents: Iterable[Extent]) -> int:
        bodies = [body_of(extent) for extent in extents]
        if bodies:
            self.queue.send(bodies)
        return len(bodies)
