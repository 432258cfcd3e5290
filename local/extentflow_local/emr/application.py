"""An application of EMR Serverless: its runs, from the request to the end.

Owns: states, tokens, time, who hears of changes. Refuses to know: HTTP, Spark, what a run does.

    SUBMITTED -> PENDING -> SCHEDULED -> RUNNING -+-> SUCCESS      it ended with 0
                                |          |      +-> FAILED       with something else
                                |          +-> CANCELLING -> CANCELLED   asked for, or overdue
                                +-> FAILED   it could not be begun

A request with a token that was seen before is the run that began then. Every change of state is an
event; of one run they come in order.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import uuid4

from extentflow.clock import Clock
from extentflow_local.emr import events
from extentflow_local.emr.description import Refused
from extentflow_local.errors import LocalStackError
from extentflow_local.services import ACCOUNT, REGION

log = logging.getLogger(__name__)

RELEASE = "emr-local"
MINUTE_SECONDS = 60.0
GRACE_SECONDS = 10
# As long as EMR Serverless lets a run go on unless it is told otherwise; 0 is for ever.
_USUAL_MINUTES = 720
_POLL_SECONDS = 0.1
_CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/extentflow/local"
_LONGEST_DETAILS = 256
_CLOCK = Clock()
# What would have to be done for these is not: they are refused, rather than forgotten.
_NOT_EMULATED = ("executionIamPolicy", "retryPolicy", "flexExecution", "mode")


class State(StrEnum):
    """Where a run stands, as GetJobRun says it."""

    SUBMITTED = "SUBMITTED"
    PENDING = "PENDING"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self in {State.SUCCESS, State.FAILED, State.CANCELLED}


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do: its id, the program in S3, its arguments, Spark's properties."""

    run: str
    entry_point: str
    arguments: tuple[str, ...]
    properties: Mapping[str, str]


class Work(Protocol):
    """A run that was begun. Used by one thread."""

    def wait(self, seconds: float) -> int | None:
        """Wait for the end, no longer than given; return the exit code, None while it goes on."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Ask it to end, and end it when the time is over; return when nothing of it is left."""
        ...


# Begins what is ordered; raises LocalStackError where it cannot.
Begin = Callable[[Order], Work]
Listener = Callable[[Mapping[str, Any]], object]


@dataclass
class _Run:
    """A run, changed under the application's lock. `grace_seconds`: somebody cancelled it."""

    id: str
    asked: Mapping[str, Any]
    order: Order
    created: float
    updated: float
    state: State = State.SUBMITTED
    details: str = "the run was submitted"
    grace_seconds: float | None = None


@dataclass
class Application:
    """The application `id`, whose runs `begin` begins. Safe from any thread.

    `minute_seconds` is how long a minute of a run's allowed time takes.
    """

    id: str
    begin: Begin
    minute_seconds: float = MINUTE_SECONDS
    clock: Clock = _CLOCK
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _tokens: dict[str, str] = field(default_factory=dict)
    _watches: list[threading.Thread] = field(default_factory=list)
    _listeners: list[Listener] = field(default_factory=list)

    # -- calls ----------------------------------------------------------------------------------

    def start(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer StartJobRun. Raises Refused."""
        self._require(asked["applicationId"])
        run_id = f"00{uuid4().hex[:14]}"
        order = order_of(run_id, asked)
        with self._lock:
            known = self._tokens.setdefault(asked["clientToken"], run_id)
            if known == run_id:
                now = self.clock.wall()
                run = self._runs[run_id] = _Run(run_id, asked, order, created=now, updated=now)
                watch = threading.Thread(target=self._carry_out, args=(run,), name=f"run-{run_id}")
                self._watches.append(watch)
                watch.start()
        return {"applicationId": self.id, "jobRunId": known, "arn": self._arn(known)}

    def get(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer GetJobRun. Raises Refused."""
        with self._lock:
            return {"jobRun": self._shown(self._found(asked))}

    def cancel(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer CancelJobRun; a run that ended stays as it is. Raises Refused."""
        with self._lock:
            run = self._found(asked)
            run.grace_seconds = asked.get("shutdownGracePeriodInSeconds", GRACE_SECONDS)
        return {"applicationId": self.id, "jobRunId": run.id}

    # -- who hears of it ------------------------------------------------------------------------

    @contextmanager
    def telling(self, listener: Listener) -> Iterator[None]:
        """Tell a listener of every change of state, on the run's thread, which waits for it."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def stop(self) -> None:
        """Cancel what runs, without grace; return when everything has ended."""
        with self._lock:
            for run in self._runs.values():
                run.grace_seconds = 0
            watches = list(self._watches)
        for watch in watches:
            watch.join()

    # -- one run, on a thread of its own --------------------------------------------------------

    def _carry_out(self, run: _Run) -> None:
        self._tell(run, None)
        self._enter(run, State.PENDING, "the run waits to be scheduled")
        self._enter(run, State.SCHEDULED, "its code is fetched")
        try:
            work = self.begin(run.order)
        except LocalStackError as exc:
            self._enter(run, State.FAILED, f"the run could not be begun: {exc}")
            return
        self._enter(run, State.RUNNING, "the driver runs")
        self._enter(run, *self._ended(run, work))

    def _ended(self, run: _Run, work: Work) -> tuple[State, str]:
        """Wait for a run's end, or bring it about; return how it ended."""
        minutes = run.asked.get("executionTimeoutMinutes", _USUAL_MINUTES)
        limit = minutes * self.minute_seconds or float("inf")
        began = self.clock.monotonic()
        while (code := work.wait(_POLL_SECONDS)) is None:
            if run.grace_seconds is not None:
                self._enter(run, State.CANCELLING, "somebody asked for its end")
                work.stop(run.grace_seconds)
                return State.CANCELLED, "the run was cancelled"
            if self.clock.monotonic() - began > limit:
                self._enter(run, State.CANCELLING, f"the run took more than {minutes} minutes")
                work.stop(0)
                return (
                    State.CANCELLED,
                    f"automatically cancelled: the run took more than {minutes} minutes",
                )
        if code == 0:
            return State.SUCCESS, "the run ended"
        return State.FAILED, f"the run ended with exit code {code}"

    def _enter(self, run: _Run, state: State, details: str) -> None:
        with self._lock:
            previous, run.state = run.state, state
            run.details = details[:_LONGEST_DETAILS]
            run.updated = self.clock.wall()
        log.info("run %s is %s: %s", run.id, state, run.details)
        self._tell(run, previous)

    def _tell(self, run: _Run, previous: State | None) -> None:
        event = events.changed(self._shown(run), previous)
        for listener in list(self._listeners):
            listener(event)

    # -- answers --------------------------------------------------------------------------------

    def _require(self, application: str) -> None:
        if application != self.id:
            raise Refused("ResourceNotFoundException", f"Application {application} does not exist")

    def _found(self, asked: Mapping[str, Any]) -> _Run:
        self._require(asked["applicationId"])
        run = self._runs.get(asked["jobRunId"])
        if run is None:
            raise Refused("ResourceNotFoundException", f"JobRun {asked['jobRunId']} does not exist")
        return run

    def _arn(self, run: str) -> str:
        where = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}"
        return f"{where}:/applications/{self.id}/jobruns/{run}"

    def _shown(self, run: _Run) -> dict[str, Any]:
        """Return a run as GetJobRun shows it."""
        kept = ("name", "jobDriver", "configurationOverrides", "tags")
        return {
            "applicationId": self.id,
            "jobRunId": run.id,
            "arn": self._arn(run.id),
            "createdBy": _CALLER,
            "createdAt": run.created,
            "updatedAt": run.updated,
            "executionRole": run.asked["executionRoleArn"],
            "executionTimeoutMinutes": run.asked.get("executionTimeoutMinutes", _USUAL_MINUTES),
            "releaseLabel": RELEASE,
            "state": run.state.value,
            "stateDetails": run.details,
            **{name: run.asked[name] for name in kept if name in run.asked},
        }


def order_of(run: str, asked: Mapping[str, Any]) -> Order:
    """Return what a request orders.

    Raises:
        Refused: it asks for what is not done here (ValidationException).
    """
    odd = [name for name in _NOT_EMULATED if name in asked]
    driver = asked.get("jobDriver", {})
    program = driver.get("sparkSubmit")
    if program is None:
        odd.append("jobDriver without sparkSubmit")
    elif "sparkSubmitParameters" in program:
        odd.append("sparkSubmitParameters")
    overrides = asked.get("configurationOverrides", {})
    odd += [name for name in overrides if name != "applicationConfiguration"]
    configurations = overrides.get("applicationConfiguration", [])
    odd += [
        f"classification {one['classification']}"
        for one in configurations
        if one["classification"] != "spark-defaults" or "configurations" in one
    ]
    if odd:
        raise Refused("ValidationException", f"not emulated on one machine: {', '.join(odd)}")
    properties: dict[str, str] = {}
    for one in configurations:
        properties |= one.get("properties", {})
    arguments = tuple(program.get("entryPointArguments", ()))
    return Order(run, program["entryPoint"], arguments, properties)
