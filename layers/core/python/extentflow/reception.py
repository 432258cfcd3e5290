"""From an arrival to jobs: which connectors want the object, and what becomes of it.

Owns: matching, pinning, what a planning failure leaves behind. Refuses to know: notification
dialects, queues, where connectors are stored.

    arrival ──match──> connectors ──HEAD──> pinned version ──register──> job ──dispatch──> extents
                 └── none: kept            └── gone: over (a later arrival tells)
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from extentflow.arrivals import Arrival
from extentflow.arrivals.notifications import news_of
from extentflow.connectors import ConnectorConfig
from extentflow.connectors.names import hidden
from extentflow.errors import (
    Misconfigured,
    ObjectGone,
    Retryable,
    UnsupportedFormat,
    reason,
)
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.planner import Intake, Planner
from extentflow.queues import Queue

log = logging.getLogger(__name__)

UNKNOWN_FORMAT = "unknown"


class Surroundings(Protocol):
    """What receiving needs of a process's outside world."""

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int, ConnectorState]]:
        """Yield every connector's latest revision and what people want of it."""
        ...

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        """Pin the object as it is now. Raises as `ObjectStore.head`."""
        ...

    def intake(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion, cores: int
    ) -> Intake:
        """Return what a job is made of. Raises UnsupportedFormat."""
        ...

    def cluster(self) -> str:
        """Return the id of the Kafka cluster that jobs deliver to."""
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """What an arrival came to: jobs, or why there is none.

    `waiting` names connectors that are paused: the arrival has to come again.
    """

    jobs: tuple[Job, ...] = ()
    waiting: tuple[str, ...] = ()
    unmatched: bool = False


class NotYet(Retryable):
    """A message was not dealt with completely; it has to come again, and goes on from there."""


@dataclass(frozen=True, slots=True)
class Reception:
    """Turns arrivals into jobs.

    `start` plans a job and sends its extents; `kept` holds for people what was not understood, and
    what no connector wants.
    """

    surroundings: Surroundings
    planner: Planner
    start: Callable[[Job], Job]
    kept: Queue

    def take(self, body: str) -> list[Received]:
        """Deal with one message of the arrivals queue, of any dialect; harmless when repeated.

        Raises:
            NotYet: a connector is paused, or time ran out while a job was planned.
            Retryable, Misconfigured, AccessDenied: as `receive`.
        """
        news = news_of(body)
        for unreadable in news.unreadable:
            self.kept.send([unreadable.document], reason=str(unreadable))
        for ignored in (*news.ignored, *news.tests):
            log.info("nothing to do for %s", ignored)
        found = [self._take(arrival) for arrival in news.arrivals]
        waiting = [name for one in found for name in one.waiting]
        unplanned = [job.id for one in found for job in one.jobs if job.state is JobState.PLANNING]
        if waiting or unplanned:
            raise NotYet(f"paused connectors: {waiting}, jobs still being planned: {unplanned}")
        return found

    def _take(self, arrival: Arrival) -> Received:
        received = self.receive(arrival)
        if received.unmatched:
            why = f"no connector reads {arrival.uri}"
            log.warning("%s; the arrival is kept", why)
            self.kept.send([json.dumps(arrival.to_message())], reason=why)
        return received

    def receive(self, arrival: Arrival) -> Received:
        """Register and start a job per connector that wants the object; harmless when repeated.

        Raises:
            Retryable: store, table, queue or broker is away; the arrival has to come again.
            Misconfigured, AccessDenied: credentials or permissions; the same.
        """
        wanted = [one for one in self.surroundings.connectors() if wants(one[0], arrival)]
        if not wanted:
            return Received(unmatched=True)
        waiting = [one[0].name for one in wanted if one[2] is ConnectorState.PAUSED]
        running = [one for one in wanted if one[2] is ConnectorState.RUNNING]
        jobs = [self._job(config, revision, arrival) for config, revision, _ in running]
        return Received(tuple(job for job in jobs if job is not None), tuple(waiting))

    def _job(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> Job | None:
        try:
            version = self.surroundings.head(config, revision, arrival)
        except ObjectGone as exc:
            log.warning("%s was announced, and is gone: %s", arrival.uri, exc)
            return None
        try:
            intake = self.surroundings.intake(config, revision, version, 1)
        except UnsupportedFormat as exc:
            return self.planner.refuse(self._unformatted(config, revision, version), reason(exc))
        try:
            job = self.planner.register(intake)
        except (UnsupportedFormat, Misconfigured) as exc:
            return self.planner.refuse(intake, reason(exc))
        return self.start(job)

    def _unformatted(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion
    ) -> Intake:
        return Intake(
            connector=config.name,
            revision=revision,
            version=version,
            format=UNKNOWN_FORMAT,
            cluster=self.surroundings.cluster(),
            ordered=config.ordered,
            extent_bytes=config.extent_bytes,
        )


def wants(config: ConnectorConfig, arrival: Arrival) -> bool:
    """Whether a connector reads the object: bucket, key and the endpoint it was announced from.

    A connector without an endpoint reads AWS; an arrival that does not know its endpoint may be
    anybody's.
    """
    if not config.matches(arrival.bucket, arrival.key) or hidden(arrival.key, config.prefix):
        return False
    if arrival.endpoint is not None and config.endpoint is not None:
        return _place(arrival.endpoint) == _place(config.endpoint)
    if arrival.endpoint is not None:
        return False
    return arrival.region is None or config.region in (None, arrival.region)


def _place(endpoint: str) -> Sequence[object]:
    """Return what tells two endpoints apart."""
    parts = urlsplit(endpoint)
    default = 443 if parts.scheme == "https" else 80
    return (parts.hostname, parts.port or default)
