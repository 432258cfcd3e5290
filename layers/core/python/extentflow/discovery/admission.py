"""Register jobs for arrivals: match connectors, pin the object, plan.

    arrival ──match──> connectors ──HEAD──> pinned version ──register──> job ──dispatch──> extents
                 │          │        └── missing, or a folder: done (a later arrival follows)
                 │          └── paused: returns to the queue, or is sent again as a copy
                 ├── no match, or never possible: dead-lettered, with the reason
                 └── hidden names only: done (no data)

A failing object or connector does not delay others: the rest of the message is processed first,
then the message returns to the queue. When time runs out, each remaining arrival becomes a message
of its own.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from extentflow.config.connector import ConnectorConfig, hidden
from extentflow.discovery import Arrival
from extentflow.discovery.notifications import parse_notification
from extentflow.errors import (
    AccessDenied,
    BucketGone,
    Defect,
    ExtentflowError,
    Misconfigured,
    ObjectGone,
    Retryable,
    contain_defects,
    reason,
)
from extentflow.jobs.planner import JobRequest, Planner
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue import Backfill, Queue
from extentflow.queue.consumer import PAUSED_RECEIVES
from extentflow.work_context import working_on

log = logging.getLogger(__name__)

_ENABLED = ConnectorState.ENABLED
# Fixed outside this object, for several objects at once.
_AGAIN = (Retryable, Misconfigured, AccessDenied)


@dataclass(frozen=True, slots=True)
class UnparsedConnector:
    """A stored connector that this version cannot parse. `bucket` is empty if it is unknown."""

    error: Misconfigured
    name: str
    bucket: str = ""
    prefix: str = ""

    def may_read(self, arrival: Arrival) -> bool:
        """Return whether the object may belong to this connector."""
        return self.bucket in ("", arrival.bucket) and arrival.key.startswith(self.prefix)


class AdmissionContext(Protocol):
    """What admission needs from the process: connectors, stores, requests."""

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int] | UnparsedConnector]:
        """Yield every connector's latest revision, including unparseable ones."""

    def state(self, config: ConnectorConfig) -> ConnectorState:
        """Return the connector's state."""

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        """Return the current version of the object. Raises as `ObjectStore.head`."""

    def request(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> JobRequest:
        """Return the request for a job."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The result of an arrival: its jobs, or why there is none.

    `waiting` names paused connectors: the arrival must be received again. `elsewhere` are
    connectors for that name at another endpoint or region.
    """

    jobs: tuple[Job, ...] = ()
    waiting: tuple[str, ...] = ()
    unmatched: bool = False
    elsewhere: tuple[ConnectorConfig, ...] = ()


@dataclass(slots=True)
class _MessageResult:
    """The result of a message. `kept` are dead letters and their reasons, `again` bodies to send.

    `problems` are reasons why the message must be received again; `paused` names paused connectors.
    """

    kept: list[tuple[str, str]]
    found: list[AdmissionResult] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)


class ArrivalPending(Retryable):
    """A message was not processed completely; it must be received again, and continues."""


class ArrivalPaused(ArrivalPending):
    """A message is left only because its connectors are paused."""


@dataclass(frozen=True, slots=True)
class JobAdmission:
    """Registers jobs for an arrival. `start` plans a job and may send its extents."""

    context: AdmissionContext
    planner: Planner
    start: Callable[[Job], Job]

    def receive(self, arrival: Arrival) -> AdmissionResult:
        """Register and start a job for each matching connector, before one's error is raised.

        Raises:
            Retryable: store, table, queue or broker is unavailable; receive the arrival again.
            Misconfigured, AccessDenied: credentials or permissions; receive the arrival again.
            Permanent: no job is possible; an operator must act.
        """
        received, errors = self._each(arrival)
        if passing := [error for error in errors if isinstance(error, _AGAIN)]:
            raise passing[0]
        if errors:
            raise ArrivalPending(str(errors[0])) if received.waiting else errors[0]
        return received

    def _each(
        self, arrival: Arrival, turn: int = 0, late: Callable[[], bool] = lambda: False
    ) -> tuple[AdmissionResult, list[ExtentflowError]]:
        """Process all connectors; return their errors beside the results.

        `turn` rotates their order, so that an unavailable store delays no connector permanently.
        """
        here: list[tuple[ConnectorConfig, int]] = []
        jobs: list[Job] = []
        waiting: list[str] = []
        errors: list[ExtentflowError] = []
        elsewhere: list[ConnectorConfig] = []
        for one in self.context.connectors():
            if isinstance(one, UnparsedConnector):
                log.warning("%s", one.error)
                errors += [one.error] if one.may_read(arrival) else []
            elif lies_in(one[0], arrival):
                here.append(one)
            elif one[0].matches(arrival.bucket, arrival.key):
                elsewhere.append(one[0])
        first = turn % len(here) if here else 0
        for number, (config, revision) in enumerate(here[first:] + here[:first]):
            if hidden(arrival.key, config.listed_prefix):
                log.info("%s is no data to connector %s, by its name", arrival.uri, config.name)
                continue
            if number and late():
                why = f"{arrival.uri}: no time left for connector {config.name}"
                errors.append(ArrivalPending(why))
                continue
            with working_on(connector=config.name):
                try:
                    with contain_defects(f"connector {config.name}, {arrival.uri}"):
                        state = self.context.state(config)
                        job = self._job(config, revision, arrival) if state is _ENABLED else None
                except ExtentflowError as exc:
                    log.warning("connector %s, %s: %s", config.name, arrival.uri, exc)
                    errors.append(exc)
                    continue
            jobs += [] if job is None else [job]
            waiting += [config.name] if state is ConnectorState.PAUSED else []
        unmatched = not (here or errors)
        return AdmissionResult(tuple(jobs), tuple(waiting), unmatched, tuple(elsewhere)), errors

    def _job(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> Job | None:
        try:
            version = self.context.head(config, revision, arrival)
        except BucketGone:  # not a deletion: a name or an endpoint is wrong
            raise
        except ObjectGone as exc:
            log.warning("%s was announced, and is gone: %s", arrival.uri, exc)
            return None
        if version.key.endswith("/") and not version.size:
            log.info("%s is a console's folder", version.uri)
            return None
        job = self.planner.admit(self.context.request(config, revision, version))
        try:
            with contain_defects(job.version.uri), working_on(job=job.id):
                return self.start(job)
        except Defect as exc:
            if job.state is not JobState.PLANNING:
                raise
            return self.planner.ledger.jobs.end(job.id, JobState.FAILED, reason(exc))


@dataclass(frozen=True, slots=True)
class ArrivalHandler(JobAdmission):
    """Processes messages of the arrivals queue.

    `kept` is the dead letter queue for unparseable and unmatched notifications. `arrivals` is the
    source queue, to which waiting arrivals are sent again. `publish` publishes events of jobs that
    ended while they were planned. `late` returns whether there is no time for another arrival or
    connector. `backfill` starts a Spark run for many objects. With `ignores_unmatched`, an object
    that no connector reads is logged only, unless one reads that name from another server.
    """

    kept: Queue
    arrivals: Queue
    backfill: Callable[[Backfill], object]
    publish: Callable[[Sequence[Job]], object] = lambda _jobs: None
    late: Callable[[], bool] = lambda: False
    ignores_unmatched: bool = False

    def take(self, body: str, *, received: int = 1) -> list[AdmissionResult]:
        """Process one message of the arrivals queue, of any dialect. Idempotent.

        Before the receive count, `received`, ends the message, arrivals that only wait for paused
        connectors are sent again as messages of their own, and the message is done. So are arrivals
        without time left: a message that always starts with the same ones would never be completed.

        Raises:
            ArrivalPending: a connector is paused, time ran out for the only arrival, or a service
                is unavailable; everything else in the message is processed.
            QueueUnavailable, Misconfigured: messages or dead letters could not be sent.
        """
        parsed = parse_notification(body)
        for ignored in (*parsed.ignored, *parsed.tests):
            log.info("nothing to do for %s", ignored)
        dealt = _MessageResult(
            kept=[(one.document or body, str(one)) for one in parsed.unparseable]
        )
        for wanted in parsed.backfills:
            self._deal_backfill(wanted, dealt)
        rest: Sequence[Arrival] = ()
        for number, arrival in enumerate(parsed.arrivals):
            if number and self.late():
                rest = parsed.arrivals[number:]
                log.warning("%d arrivals go on by themselves: no time", len(rest))
                break
            self._deal(arrival, dealt, turn=received - 1)
        if not rest and (dealt.problems or (dealt.paused and received < PAUSED_RECEIVES)):
            left = ArrivalPending if dealt.problems else ArrivalPaused
            raise left("; ".join(dealt.problems + dealt.paused))
        # First, because only this may be repeated: dead letters are sent when the message is done.
        if again := [*dealt.again, *(_body(arrival) for arrival in rest)]:
            self.arrivals.send(again)
        for document, why in dealt.kept:
            log.warning("dead-lettered: %s", why)
            self.kept.send([document], reason=why)
        self._publish([job for one in dealt.found for job in one.jobs])
        return dealt.found

    def _deal(self, arrival: Arrival, dealt: _MessageResult, turn: int) -> None:
        """Process one arrival of a message, and record what remains to be done."""
        try:
            received, errors = self._each(arrival, turn, self.late)
        except ExtentflowError as exc:
            received, errors = AdmissionResult(), [exc]
        problems = [str(error) for error in errors if isinstance(error, _AGAIN)]
        problems += [
            f"job {job.id} is PLANNING" for job in received.jobs if job.state is JobState.PLANNING
        ]
        final = [reason(error) for error in errors if not isinstance(error, _AGAIN)]
        if received.unmatched:
            unread = _unread(arrival, received.elsewhere)
            if self.ignores_unmatched and not received.elsewhere:
                log.warning("%s; ignored, because of arrivals.unmatched=ignore", unread)
            else:
                final.append(unread)
        dealt.found.append(received)
        dealt.problems += problems
        if received.waiting:
            dealt.paused += [f"connector {name} is PAUSED" for name in received.waiting] + final
        if problems or received.waiting:
            dealt.again.append(_body(arrival))
        if final and not problems:
            dealt.kept.append((_body(arrival), "; ".join(final)))

    def _deal_backfill(self, wanted: Backfill, dealt: _MessageResult) -> None:
        """Start a backfill, unless its connector is paused."""
        body = json.dumps(wanted.to_message())
        try:
            state = self._state_of(wanted.connector)
            if state is _ENABLED:
                self.backfill(wanted)
            elif state is ConnectorState.PAUSED:
                dealt.paused.append(f"connector {wanted.connector} is PAUSED")
                dealt.again.append(body)
            else:
                what = "is STOPPED" if state else "is not there"
                dealt.kept.append((body, f"backfill: connector {wanted.connector} {what}"))
        except _AGAIN as exc:
            dealt.problems.append(f"backfill {wanted.id}: {exc}")
            dealt.again.append(body)
        except ExtentflowError as exc:
            dealt.kept.append((body, reason(exc)))

    def _state_of(self, connector: str) -> ConnectorState | None:
        """Return a connector's state, or None without one. Raises Misconfigured if unparseable."""
        for one in self.context.connectors():
            if isinstance(one, UnparsedConnector):
                if one.name == connector:
                    raise one.error
            elif one[0].name == connector:
                return self.context.state(one[0])
        return None

    def _publish(self, jobs: Sequence[Job]) -> None:
        try:
            with contain_defects("publishing job events"):
                self.publish(jobs)
        except ExtentflowError as exc:  # the message is done: dead letters must not be sent twice
            log.warning("job events are published later: %s", exc)


def lies_in(config: ConnectorConfig, arrival: Arrival) -> bool:
    """Return whether bucket, key and endpoint of an arrival match a connector.

    A connector without an endpoint reads AWS; an arrival without an endpoint matches any connector.
    """
    if not config.matches(arrival.bucket, arrival.key):
        return False
    if arrival.endpoint is None:
        return arrival.region is None or config.region in (None, arrival.region)
    return config.endpoint is not None and _place(arrival.endpoint) == _place(config.endpoint)


def _unread(arrival: Arrival, elsewhere: Sequence[ConnectorConfig]) -> str:
    """Return the message that no connector reads an object, naming those that nearly do."""
    message = f"no connector reads {arrival.uri}"
    if not elsewhere:
        return message
    theirs = ", ".join(
        f"connector {one.name} reads that name from {_origin(one)}" for one in elsewhere
    )
    remedy = "correct its aws.s3.endpoint or aws.s3.region"
    return f"{message} of {_origin(arrival)}: {theirs}; {remedy}"


def _origin(one: Arrival | ConnectorConfig) -> str:
    return one.endpoint or (f"AWS region {one.region}" if one.region else "AWS")


def _place(endpoint: str) -> tuple[str, int | None]:
    """Return the host and port of an endpoint, or its text if it is not a URL."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return (endpoint, None)
    return (parts.hostname or endpoint, port)


def _body(arrival: Arrival) -> str:
    return json.dumps(arrival.to_message())
