"""Job events: the schema, the port of publishers, and which ends count as published.

    final job ──totals──> event ──every publisher accepted it──> marked in the ledger
                                └─ one is unavailable, or this process dies ──> published later

At least once: the same end may be published twice. `job` and `reopened` identify an end; of two
events of one job the one with the higher `reopened` is later.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, TypedDict

from extentflow.errors import ExtentflowError, Misconfigured, contain_defects
from extentflow.jobs.planner import in_pages
from extentflow.ledger import JobProgress, Ledger
from extentflow.ledger.summaries import committed
from extentflow.model import Job, JobState, ObjectVersion

log = logging.getLogger(__name__)

EVENT_VERSION = 1
PAGE_EVENTS = 50
# Ends that one sweep looks at, those included that are passed over.
MOST_SWEPT = 10_000


class JobFields(TypedDict):
    """What an event and a report of a job have in common."""

    job: str
    connector: str
    revision: int
    reason: str
    extents: int
    failed: int
    records: int
    bad: int
    filtered: int


def job_fields(job: Job, totals: JobProgress) -> JobFields:
    """Return what an event or a report says of a job with these totals."""
    return JobFields(
        job=job.id,
        connector=job.connector,
        revision=job.revision,
        reason=job.reason,
        extents=job.plan.count,
        failed=totals.failed,
        records=totals.records,
        bad=totals.bad,
        filtered=totals.filtered,
    )


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One end of one job, of schema version 1 (docs/events.md).

    `records`, `bad` and `filtered` count what is committed, that of failed extents included.
    `topic` is empty where the connector cannot be read. `ended` is in seconds since the epoch.
    `completion` is why `after.completion` failed, "" if it did not.
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
    completion: str = ""

    @property
    def moment(self) -> datetime:
        """When the job ended."""
        return datetime.fromtimestamp(self.ended, UTC)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self)
        del values["version"]
        values["object"] = self.version.pin
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
    """Publishes ends of jobs to every publisher. `topic` returns the topic of a job's records.

    `complete` comes before: it does to the object of a DONE job what its connector says, and
    returns why that failed, "" if it did not. A job with which it raises stays unpublished.
    """

    ledger: Ledger
    publishers: Sequence[JobEventPublisher]
    topic: Callable[[Job], str]
    complete: Callable[[Job], str] = lambda _job: ""

    def publish_ended(self, job: Job) -> None:
        """Publish one job's end, as `publish`."""
        self.publish([job])

    def publish(self, jobs: Iterable[Job]) -> int:
        """Complete final jobs, then publish the ends that are not yet published; return how many.

        A job that was published is completed as well: its object is there again, or still. Raises
        as ledger, publishers and `complete`; ends that not all of these accepted stay unpublished,
        and a failure of `complete` holds up no other connector's jobs.
        """
        return self._publish(jobs, {})

    def sweep(self, limit: int) -> int:
        """Publish at most `limit` ends as `publish`; jobs are read again, as the index lags.

        DONE jobs of a connector whose store is unavailable are passed over: they would hold up all
        others.
        """
        failures: dict[str, ExtentflowError] = {}
        listed = (
            job
            for job in self.ledger.jobs.unpublished(MOST_SWEPT)
            if job.connector not in failures or job.state is not JobState.DONE
        )
        current = (self.ledger.jobs.get(job.id) or job for job in listed)
        return self._publish(current, failures, limit)

    def _publish(
        self, jobs: Iterable[Job], failures: dict[str, ExtentflowError], limit: int | None = None
    ) -> int:
        waiting = islice(self._completed(jobs, failures), limit)
        published = 0
        for page in in_pages(waiting, PAGE_EVENTS):
            events = [self._event(job, failed) for job, failed in page]
            for publisher in self.publishers:
                publisher.publish(events)
            for job, _ in page:
                self.ledger.jobs.mark_published(job)
            published += len(page)
        if failures:
            raise next(iter(failures.values()))
        return published

    def _completed(
        self, jobs: Iterable[Job], failures: dict[str, ExtentflowError]
    ) -> Iterator[tuple[Job, str]]:
        """Complete final jobs; yield those to publish, each with why its action failed or ""."""
        for job in jobs:
            if job.state.open or (job.connector in failures and job.state is JobState.DONE):
                continue
            try:
                with contain_defects(f"after.completion of job {job.id}"):
                    failed = self.complete(job)
            except ExtentflowError as exc:
                log.warning("after.completion of job %s is repeated later: %s", job.id, exc)
                failures[job.connector] = exc
                continue
            if not job.published:
                yield job, failed

    def close(self) -> None:
        """Close the publishers' clients."""
        for publisher in self.publishers:
            publisher.close()

    def _event(self, job: Job, failed: str) -> JobEvent:
        try:
            topic = self.topic(job)
        except Misconfigured as exc:  # an end that is never published would block the sweep
            log.warning("the event of job %s has no topic: %s", job.id, exc)
            topic = ""
        return JobEvent(
            **job_fields(job, committed(self.ledger, job)),
            version=job.version,
            state=job.state,
            topic=topic,
            generation=job.generation,
            reopened=job.reopened,
            ended=job.ended,
            completion=failed,
        )
