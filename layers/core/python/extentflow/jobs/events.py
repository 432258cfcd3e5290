"""What others are told when a job ends, and when an end counts as told.

Owns: the event's schema, the Announcer port, the order of announcing and marking. Refuses to know:
Kafka, EventBridge, who asks for it.

    final job ──totals──> event ──every announcer accepted it──> marked in the ledger
                                └─ one is away, or we crash ──> not marked: told again later

At least once: the same end may be told twice. `job` and `reopened` name an end; of two events of
one job the higher `reopened` is the later one.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol

from extentflow.errors import Misconfigured
from extentflow.ledger import Ledger
from extentflow.ledger.totals import committed
from extentflow.model import Job, JobState, ObjectVersion

log = logging.getLogger(__name__)

EVENT_VERSION = 1
PAGE_EVENTS = 50


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One end of one job, of schema version 1 (docs/events.md).

    `records` and `bad` count what is committed, that of failed extents included. `topic` is empty
    where the connector cannot be read. `ended` is in seconds since the epoch.
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

    @property
    def moment(self) -> datetime:
        """When the job ended."""
        return datetime.fromtimestamp(self.ended, UTC)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "v": EVENT_VERSION,
            "job": self.job,
            "connector": self.connector,
            "revision": self.revision,
            "object": asdict(self.version),
            "state": self.state.value,
            "reason": self.reason,
            "extents": self.extents,
            "failed": self.failed,
            "records": self.records,
            "bad": self.bad,
            "topic": self.topic,
            "generation": self.generation,
            "reopened": self.reopened,
            "ended": self.moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }

    def to_text(self) -> str:
        """Return the event as compact JSON, in ASCII."""
        return json.dumps(self.to_json(), separators=(",", ":"))


class Announcer(Protocol):
    """One place where ends of jobs are told. Used by one thread."""

    def announce(self, events: Sequence[JobEvent]) -> None:
        """Return when every event was accepted for good; a repeated call may tell some twice.

        Raises:
            Retryable: the place is away.
            Misconfigured: it is missing, or refuses us.
        """
        ...

    def close(self) -> None:
        """Let go of clients; never raises. The next call opens them again."""
        ...


@dataclass(frozen=True, slots=True)
class Announcements:
    """Tells ends of jobs to every announcer. `topic` returns the topic of a job's records.

    Where it raises Misconfigured, the end is told without a topic.
    """

    ledger: Ledger
    announcers: Sequence[Announcer]
    topic: Callable[[Job], str]

    def announce_ended(self, job: Job) -> None:
        """Announce one job's end, as `announce`."""
        self.announce([job])

    def announce(self, jobs: Iterable[Job]) -> int:
        """Announce the ends of final jobs, as the ledger has them; return how many were told.

        Jobs that are open or announced are passed over.

        Raises:
            Retryable, Misconfigured: an announcer or the ledger; what was not told to all stays
                unannounced.
        """
        waiting = (job for job in jobs if not (job.state.open or job.announced))
        told = 0
        while page := list(islice(waiting, PAGE_EVENTS)):
            events = [self._event(job) for job in page]
            for announcer in self.announcers:
                announcer.announce(events)
            for job in page:
                self.ledger.announced(job)
            told += len(page)
        return told

    def sweep(self, limit: int) -> int:
        """Announce at most `limit` ends that nobody was told of yet. Raises as `announce`.

        Listings lag, so that each job is read again first.
        """
        listed = self.ledger.unannounced(limit)
        return self.announce(self.ledger.job(job.id) or job for job in listed)

    def close(self) -> None:
        """Let go of the announcers' clients."""
        for announcer in self.announcers:
            announcer.close()

    def _topic(self, job: Job) -> str:
        try:
            return self.topic(job)
        except Misconfigured as exc:  # an end that is not told would be in others' way for ever
            log.warning("the end of job %s is announced without a topic: %s", job.id, exc)
            return ""

    def _event(self, job: Job) -> JobEvent:
        totals = committed(self.ledger, job)
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
            topic=self._topic(job),
            generation=job.generation,
            reopened=job.reopened,
            ended=job.ended,
        )
