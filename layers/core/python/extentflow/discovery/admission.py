"""From an arrival to jobs: which connectors want the object, and what becomes of it.

Owns: matching, pinning, what a planning failure leaves behind. Refuses to know: notification
dialects, queues, where connectors are stored.

    arrival ──match──> connectors ──HEAD──> pinned version ──register──> job ──dispatch──> extents
                 │          │        └── gone, or a folder: over (a later arrival tells)
                 │          └── paused: comes again, as a copy before the receive count ends it
                 ├── none, or never possible: kept, with the reason
                 └── only hidden names: over (no data)

One object or connector that makes trouble holds up no other: everything else is dealt with first,
then the message has to come again. Where time runs out, each arrival that is left goes on as a
message of its own.
"""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from extentflow.connectors import ConnectorConfig
from extentflow.connectors.names import hidden
from extentflow.discovery import Arrival
from extentflow.discovery.notifications import parse_notification
from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    Misconfigured,
    NotOffered,
    ObjectGone,
    Retryable,
    reason,
)
from extentflow.jobs.planner import JobRequest, Planner
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue import Queue
from extentflow.queue.backfill import Backfill
from extentflow.queue.consumer import PAUSED_RECEIVES

log = logging.getLogger(__name__)

_RUNNING = ConnectorState.RUNNING
# Mended from outside, for more than one object.
_AGAIN = (Retryable, Misconfigured, AccessDenied)


@dataclass(frozen=True, slots=True)
class UnparsedConnector:
    """A stored connector that this version of ours cannot parse, and where it seems to read.

    `error` names it. `bucket` is empty where nothing says which.
    """

    error: Misconfigured
    name: str
    bucket: str = ""
    prefix: str = ""

    def may_read(self, arrival: Arrival) -> bool:
        """Whether the object may be this connector's."""
        return self.bucket in ("", arrival.bucket) and arrival.key.startswith(self.prefix)


class AdmissionContext(Protocol):
    """What receiving needs of a process's outside world."""

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int] | UnparsedConnector]:
        """Yield every connector's latest revision, also one that cannot be parsed."""
        ...

    def state(self, config: ConnectorConfig) -> ConnectorState:
        """Return what people want of a connector."""
        ...

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        """Pin the object as it is now. Raises as `ObjectStore.head`."""
        ...

    def request(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion, cores: int
    ) -> JobRequest:
        """Return what a job is made of."""
        ...


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """What an arrival came to: jobs, or why there is none.

    `waiting` names connectors that are paused: the arrival has to come again. `elsewhere` are those
    that read objects of that name from another endpoint or region than the arrival's.
    """

    jobs: tuple[Job, ...] = ()
    waiting: tuple[str, ...] = ()
    unmatched: bool = False
    elsewhere: tuple[ConnectorConfig, ...] = ()


@dataclass(slots=True)
class _Dealt:
    """What a message came to: `kept` is documents with reasons, `again` bodies of what is not over.

    `problems` say why something may not be over, whoever waits; `paused` who waits, and what else
    is known of the same arrivals.
    """

    kept: list[tuple[str, str]]
    found: list[AdmissionResult] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)


class ArrivalPending(Retryable):
    """A message was not dealt with completely; it has to come again, and goes on from there."""


def _never() -> bool:
    return False


def _not_offered(wanted: Backfill) -> None:
    raise NotOffered(f"backfill {wanted.id}: nobody runs it here")


@dataclass(frozen=True, slots=True)
class JobAdmission:
    """Turns an arrival into jobs. `start` plans one, and sends its extents where that is done."""

    surroundings: AdmissionContext
    planner: Planner
    start: Callable[[Job], Job]

    def receive(self, arrival: Arrival) -> AdmissionResult:
        """Register and start a job per connector that wants the object; harmless when repeated.

        Connectors that can have their job get it before another one's error is raised.

        Raises:
            Retryable: store, table, queue or broker is away; the arrival has to come again.
            Misconfigured, AccessDenied: credentials or permissions; the same.
            Permanent: there is no way to a job; a person has to act.
        """
        received, errors = self._each(arrival)
        if errors:
            raise _first(errors, again=bool(received.waiting))
        return received

    def _each(
        self, arrival: Arrival, turn: int = 0, late: Callable[[], bool] = _never
    ) -> tuple[AdmissionResult, list[ExtentflowError]]:
        """Do what `receive` does; return the connectors' errors beside what worked.

        The connector that is asked first is another one every `turn`: a store that is away costs
        time, and is in the way of no connector for ever.
        """
        here: list[tuple[ConnectorConfig, int]] = []
        jobs: list[Job] = []
        waiting: list[str] = []
        errors: list[ExtentflowError] = []
        elsewhere: list[ConnectorConfig] = []
        for one in self.surroundings.connectors():
            if isinstance(one, UnparsedConnector):
                log.warning("%s", one.error)
                errors += [one.error] if one.may_read(arrival) else []
            elif lies_in(one[0], arrival):
                here.append(one)
            elif one[0].matches(arrival.bucket, arrival.key):
                elsewhere.append(one[0])
        first = turn % len(here) if here else 0
        for number, (config, revision) in enumerate(here[first:] + here[:first]):
            if not wants(config, arrival):
                log.info("%s is no data to connector %s, by its name", arrival.uri, config.name)
                continue
            if number and late():
                errors.append(
                    ArrivalPending(f"{arrival.uri}: no time left for connector {config.name}")
                )
                continue
            try:
                state = self.surroundings.state(config)
                job = self._job(config, revision, arrival) if state is _RUNNING else None
            except ExtentflowError as exc:
                log.warning("connector %s, %s: %s", config.name, arrival.uri, exc)
                errors.append(exc)
                continue
            except Exception as exc:  # a defect of ours, in the way of this object alone
                log.exception("connector %s, %s: unexpected error", config.name, arrival.uri)
                what = f"unexpected {type(exc).__name__}: {exc}"
                errors.append(ArrivalPending(f"connector {config.name}, {arrival.uri}: {what}"))
                continue
            jobs += [] if job is None else [job]
            waiting += [config.name] if state is ConnectorState.PAUSED else []
        unmatched = not (here or errors)
        received = AdmissionResult(
            tuple(jobs), tuple(waiting), unmatched=unmatched, elsewhere=tuple(elsewhere)
        )
        return received, errors

    def _job(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> Job | None:
        try:
            version = self.surroundings.head(config, revision, arrival)
        except BucketGone:  # no deletion: a name or an endpoint is wrong
            raise
        except ObjectGone as exc:
            log.warning("%s was announced, and is gone: %s", arrival.uri, exc)
            return None
        if version.key.endswith("/") and not version.size:
            log.info("%s is a console's folder", version.uri)
            return None
        request = self.surroundings.request(config, revision, version, 1)
        return self._started(self.planner.admit(request))

    def _started(self, job: Job) -> Job:
        try:
            return self.start(job)
        except ExtentflowError:
            raise
        except Exception as exc:
            if job.state is not JobState.PLANNING:
                raise
            log.exception("%s: unexpected error", job.version.uri)
            what = f"{job.version.uri}: unexpected {type(exc).__name__}: {exc}"
            return self.planner.ledger.jobs.end(job.id, JobState.FAILED, what)


@dataclass(frozen=True, slots=True)
class ArrivalHandler(JobAdmission):
    """Turns messages of arrivals into jobs.

    `kept` holds for people what was not understood, and what no connector wants. `arrivals` is
    where messages come from: an arrival that waits for days goes there again. `announce` is given a
    message's jobs: some end when they are planned. `late` says that there is no time to begin with
    another arrival or connector. `backfill` starts what delivers many objects at once.
    """

    kept: Queue
    arrivals: Queue
    announce: Callable[[Sequence[Job]], object] = lambda _jobs: None
    late: Callable[[], bool] = _never
    backfill: Callable[[Backfill], object] = _not_offered

    def take(self, body: str, *, received: int = 1) -> list[AdmissionResult]:
        """Deal with one message of the arrivals queue, of any dialect; harmless when repeated.

        `received` counts its deliveries: before they can end it, those of its arrivals that only
        wait for paused connectors go on as messages of their own, and the rest of it is over. So do
        those that there is no time for, and what would have come again: a message that began with
        the same ones each time would never come to its end.

        Raises:
            ArrivalPending: a connector is paused, time ran out for the only arrival, or a service
                is unavailable; everything else in the message is processed.
            QueueUnavailable, Misconfigured: what goes on, or what is to be kept for people, could
                not be sent.
        """
        news = parse_notification(body)
        for ignored in (*news.ignored, *news.tests):
            log.info("nothing to do for %s", ignored)
        dealt = _Dealt(kept=[(one.document or body, str(one)) for one in news.unreadable])
        for wanted in news.backfills:
            self._deal_backfill(wanted, dealt)
        rest = self._deal_in_time(news.arrivals, dealt, turn=received - 1)
        if not rest and (dealt.problems or (dealt.paused and received < PAUSED_RECEIVES)):
            raise ArrivalPending("; ".join(dealt.problems + dealt.paused))
        # First, for only this may be repeated: what is kept is kept when the message is over.
        if again := [*dealt.again, *(_body(arrival) for arrival in rest)]:
            self.arrivals.send(again)
        for document, why in dealt.kept:
            log.warning("kept for people: %s", why)
            self.kept.send([document], reason=why)
        self._tell([job for one in dealt.found for job in one.jobs])
        return dealt.found

    def _deal_in_time(
        self, arrivals: Sequence[Arrival], dealt: _Dealt, *, turn: int
    ) -> Sequence[Arrival]:
        """Deal with arrivals, the first in any case; return those that there is no time for."""
        for number, arrival in enumerate(arrivals):
            if number and self.late():
                log.warning("%d arrivals go on by themselves: no time", len(arrivals) - number)
                return arrivals[number:]
            self._deal(arrival, dealt, turn)
        return ()

    def _deal(self, arrival: Arrival, dealt: _Dealt, turn: int) -> None:
        """Receive one arrival of a message, and note what is still to be done about it."""
        try:
            received, errors = self._each(arrival, turn, self.late)
        except ExtentflowError as exc:
            received, errors = AdmissionResult(), [exc]
        problems = [str(error) for error in errors if isinstance(error, _AGAIN)]
        problems += [f"job {job.id} is PLANNING" for job in received.jobs if _unplanned(job)]
        final = [reason(error) for error in errors if not isinstance(error, _AGAIN)]
        final += [_unread(arrival, received.elsewhere)] if received.unmatched else []
        dealt.found.append(received)
        dealt.problems += problems
        if received.waiting:
            dealt.paused += [f"connector {name} is PAUSED" for name in received.waiting] + final
        if problems or received.waiting:
            dealt.again.append(_body(arrival))
        if final and not problems:
            dealt.kept.append((_body(arrival), "; ".join(final)))

    def _deal_backfill(self, wanted: Backfill, dealt: _Dealt) -> None:
        """Give a backfill to whoever runs it, unless its connector rests."""
        body = json.dumps(wanted.to_message())
        try:
            state = self._state_of(wanted.connector)
            if state is _RUNNING:
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
        """Return what people want of a connector; None where there is none of that name.

        Raises:
            Misconfigured: it cannot be read; a later version of ours may.
        """
        for one in self.surroundings.connectors():
            if isinstance(one, UnparsedConnector):
                if one.name == connector:
                    raise one.error
            elif one[0].name == connector:
                return self.surroundings.state(one[0])
        return None

    def _tell(self, jobs: Sequence[Job]) -> None:
        try:
            self.announce(jobs)
        except ExtentflowError as exc:
            log.warning("ends of jobs are announced later: %s", exc)
        except Exception:  # what was kept for people must not be kept twice
            log.exception("ends of jobs are announced later: unexpected error")


def wants(config: ConnectorConfig, arrival: Arrival) -> bool:
    """Whether a connector reads the object: it lies in its place, and its name says it is data."""
    return lies_in(config, arrival) and not hidden(arrival.key, config.prefix)


def lies_in(config: ConnectorConfig, arrival: Arrival) -> bool:
    """Whether an object lies where a connector reads: bucket, key and the endpoint that told.

    A connector without an endpoint reads AWS; an arrival that does not know its endpoint may be
    anybody's.
    """
    if not config.matches(arrival.bucket, arrival.key):
        return False
    if arrival.endpoint is not None and config.endpoint is not None:
        return _place(arrival.endpoint) == _place(config.endpoint)
    if arrival.endpoint is not None:
        return False
    return arrival.region is None or config.region in (None, arrival.region)


def _unread(arrival: Arrival, elsewhere: Sequence[ConnectorConfig]) -> str:
    """Return that no connector reads an object, and what keeps those from it that nearly do."""
    told = f"no connector reads {arrival.uri}"
    if not elsewhere:
        return told
    theirs = ", ".join(
        f"connector {one.name} reads that name from {_from(one.endpoint, one.region)}"
        for one in elsewhere
    )
    came = _from(arrival.endpoint, arrival.region)
    return f"{told} of {came}: {theirs}; correct its aws.s3.endpoint or aws.s3.region"


def _from(endpoint: str | None, region: str | None) -> str:
    return endpoint or (f"AWS region {region}" if region else "AWS")


def _place(endpoint: str) -> tuple[str, int | None]:
    """Return what tells two endpoints apart: host and port, or the text where it is no URL."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return (endpoint, None)
    return (parts.hostname or endpoint, port)


def _first(errors: Sequence[ExtentflowError], *, again: bool) -> ExtentflowError:
    """Return the error that decides: nothing is over while coming again may help."""
    for error in errors:
        if isinstance(error, _AGAIN):
            return error
    return ArrivalPending(str(errors[0])) if again else errors[0]


def _unplanned(job: Job) -> bool:
    """Whether the plan was cut short, although nothing went wrong."""
    return job.state is JobState.PLANNING


def _body(arrival: Arrival) -> str:
    return json.dumps(arrival.to_message())
