"""An EMR Serverless application: its runs, from request to end.

    SUBMITTED -> PENDING -> SCHEDULED -> RUNNING -+-> SUCCESS      exit code 0
                                |          |      +-> FAILED       any other exit code
                                |          +-> CANCELLING -> CANCELLED   requested, or overdue
                                +-> FAILED   it could not be started

A request with a known token returns the run of that token. Every state change is an event; the
events of one run are in order.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import uuid4

from extentflow.retry import Clock
from extentflow_local.aws.emr import events
from extentflow_local.aws.emr.description import Refused
from extentflow_local.stack.errors import LocalStackError
from extentflow_local.stack.servers import ACCOUNT, REGION

log = logging.getLogger(__name__)

RELEASE = "emr-local"
MINUTE_SECONDS = 60.0
GRACE_SECONDS = 10
# Default timeout of a run on EMR Serverless; 0 means none.
_USUAL_MINUTES = 720
_POLL_SECONDS = 0.1
_CALLER = f"arn:aws:sts::{ACCOUNT}:assumed-role/extentflow/local"
_LONGEST_DETAILS = 256
_CLOCK = Clock()
# Not emulated: requests with these are rejected, not silently ignored.
_NOT_EMULATED = ("executionIamPolicy", "retryPolicy", "flexExecution", "mode")


class State(StrEnum):
    """The state of a run, as GetJobRun returns it."""

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
        """Whether it is final."""
        return self in {State.SUCCESS, State.FAILED, State.CANCELLED}


@dataclass(frozen=True, slots=True)
class Order:
    """A requested run: its id, the program in S3, its arguments, Spark's properties."""

    run: str
    entry_point: str
    arguments: tuple[str, ...]
    properties: Mapping[str, str]


class Work(Protocol):
    """A started run. Used by one thread."""

    def wait(self, seconds: float) -> int | None:
        """Wait for the end, for at most the given time; return the exit code, or None."""
        ...

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, and kill after the grace period; return when all processes have ended."""
        ...


# Starts the ordered run; raises LocalStackError if it cannot.
Begin = Callable[[Order], Work]
Listener = Callable[[Mapping[str, Any]], object]


@dataclass
class _Run:
    """A run, changed under the application's lock. `grace_seconds` is set by a cancellation."""

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
    """The application `id`, whose runs `begin` starts. Thread-safe.

    `minute_seconds` is the emulated length of a minute of a run's timeout.
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
        """Process StartJobRun. Raises Refused."""
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
        """Process GetJobRun. Raises Refused."""
        with self._lock:
            return {"jobRun": self._shown(self._found(asked))}

    def cancel(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Process CancelJobRun; an ended run stays unchanged. Raises Refused."""
        with self._lock:
            run = self._found(asked)
            run.grace_seconds = asked.get("shutdownGracePeriodInSeconds", GRACE_SECONDS)
        return {"applicationId": self.id, "jobRunId": run.id}

    # -- listeners ------------------------------------------------------------------------

    @contextmanager
    def forwarding(self, listener: Listener) -> Iterator[None]:
        """Call a listener for every state change, on the run's thread."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def stop(self) -> None:
        """Cancel all runs without grace; return when they have ended."""
        with self._lock:
            for run in self._runs.values():
                run.grace_seconds = 0
            watches = list(self._watches)
        for watch in watches:
            watch.join()

    # -- one run, on its own thread --------------------------------------------------------

    def _carry_out(self, run: _Run) -> None:
        self._tell(run, None)
        self._enter(run, State.PENDING, "waiting to be scheduled")
        self._enter(run, State.SCHEDULED, "downloading its code")
        try:
            work = self.begin(run.order)
        except LocalStackError as exc:
            self._enter(run, State.FAILED, f"the run could not be started: {exc}")
            return
        self._enter(run, State.RUNNING, "the driver is running")
        self._enter(run, *self._ended(run, work))

    def _ended(self, run: _Run, work: Work) -> tuple[State, str]:
        """Wait for a run's end, or cause it; return its final state."""
        minutes = run.asked.get("executionTimeoutMinutes", _USUAL_MINUTES)
        limit = minutes * self.minute_seconds or float("inf")
        began = self.clock.monotonic()
        while (code := work.wait(_POLL_SECONDS)) is None:
            if run.grace_seconds is not None:
                self._enter(run, State.CANCELLING, "cancellation requested")
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

    # -- responses --------------------------------------------------------------------------------

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
        """Return a run in the form of GetJobRun."""
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
    """Return the run that a request describes.

    Raises:
        Refused: it uses something that is not emulated (ValidationException).
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
