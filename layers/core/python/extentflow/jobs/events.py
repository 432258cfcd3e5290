"""Job events: the schema, the port of publishers, and which ends count as published.

    final job ──totals──> event ──every publisher accepted it──> marked in the ledger
                                └─ one is unavailable, or this process dies ──> published later

At least once: the same end may be published twice. `job` and `reopened` identify an end; of two
events of one job the one with the higher `reopened` is later.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from extentflow.errors import Misconfigured
from extentflow.jobs.planner import in_pages
from extentflow.ledger import Ledger, committed
from extentflow.model import Job, JobState, ObjectVersion

log = logging.getLogger(__name__)

EVENT_VERSION = 1
PAGE_EVENTS = 50


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One end of one job, of schema version 1 (docs/events.md).

    `records`, `bad` and `filtered` count what is committed, that of failed extents included.
    `topic` is empty where the connector cannot be read. `ended` is in seconds since the epoch.
    """

    job: str
    connector: str
    revision: int
    version: ObjectVersion
    state: JobState
    reason: str
    extents: int
    failed: int
    records: int
    bad: int
    topic: str
    generation: int
    reopened: int
    ended: float
    filtered: int = 0

    @property
    def moment(self) -> datetime:
        """When the job ended."""
        return datetime.fromtimestamp(self.ended, UTC)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self)
        values["object"] = values.pop("version")
        ended = self.moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"v": EVENT_VERSION, **values, "state": self.state.value, "ended": ended}

    def to_text(self) -> str:
        """Return the event as compact JSON, in ASCII."""
        return json.dumps(self.to_json(), separators=(",", ":"))


class JobEventPublisher(Protocol):
    """A destination of job events. Used by one thread."""

    def publish(self, events: Sequence[JobEvent]) -> None:
        """Return when every event is durable; a repeated call may publish some twice.

        Raises Retryable if the destination is unavailable, Misconfigured if it refuses.
        """

    def close(self) -> None:
        """Close clients; never raises. The next call opens them again."""


@dataclass(frozen=True, slots=True)
class JobEvents:
    """Publishes ends of jobs to every publisher. `topic` returns the topic of a job's records."""

    ledger: Ledger
    publishers: Sequence[JobEventPublisher]
    topic: Callable[[Job], str]

    def publish_ended(self, job: Job) -> None:
        """Publish one job's end, as `publish`."""
        self.publish([job])

    def publish(self, jobs: Iterable[Job]) -> int:
        """Publish the ends of final jobs that are not published yet; return how many.

        Raises as ledger and publishers; ends that not all of these accepted stay unpublished.
        """
        waiting = (job for job in jobs if not (job.state.open or job.published))
        published = 0
        for page in in_pages(waiting, PAGE_EVENTS):
            events = [self._event(job) for job in page]
            for publisher in self.publishers:
                publisher.publish(events)
            for job in page:
                self.ledger.jobs.mark_published(job)
            published += len(page)
        return published

    def sweep(self, limit: int) -> int:
        """Publish at most `limit` ends as `publish`; jobs are read again, as the index lags."""
        listed = self.ledger.jobs.unpublished(limit)
        return self.publish(self.ledger.jobs.get(job.id) or job for job in listed)

    def close(self) -> None:
        """Close the publishers' clients."""
        for publisher in self.publishers:
            publisher.close()

    def _event(self, job: Job) -> JobEvent:
        totals = committed(self.ledger, job)
        try:
            topic = self.topic(job)
        except Misconfigured as exc:  # an end that is never published would block the sweep
            log.warning("the event of job %s has no topic: %s", job.id, exc)
            topic = ""
        return JobEvent(
            job=job.id,
            connector=job.connector,
            revision=job.revision,
            version=job.version,
            state=job.state,
            reason=job.reason,
            extents=job.plan.count,
            failed=totals.failed,
            records=totals.records,
            bad=totals.bad,
            topic=topic,
            generation=job.generation,
            reopened=job.reopened,
            ended=job.ended,
            filtered=totals.filtered,
        )
