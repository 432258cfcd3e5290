"""One execution environment: a process that runs a function's real handler, as Lambda does.

cold --first invoke--> init --picked--> busy --response--> warm --invoke--> busy ...
|               |
|               +--timeout: killed       +--process ends: gone
+--error, end of the process, or timeout: gone
"""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from extentflow.retry import Clock
from extentflow_local.aws.event_source.lineage import entered
from extentflow_local.aws.event_source.runtime_api import (
    InitFailed,
    Invocation,
    InvocationError,
    InvocationResult,
    InvocationStart,
    ProcessEnd,
    RuntimeApi,
    Said,
)

# Lambda allows 10 s at first, then a second attempt with the function's timeout.
_LEAST_INIT_SECONDS = 60.0
_STOP_SECONDS = 2.0


class Verdict(StrEnum):
    """The result of an invocation."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    DIED = "died"
    INIT_FAILED = "init failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One completed invocation. `payload` is the handler's result or the error, as JSON."""

    verdict: Verdict
    request_id: str
    pid: int
    seconds: float
    payload: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the handler returned."""
        return self.verdict is Verdict.RETURNED

    @property
    def reusable(self) -> bool:
        """Whether its environment can serve another invocation."""
        return self.verdict in {Verdict.RETURNED, Verdict.RAISED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a function's process; `handler` is module.function below `directory`."""

    handler: str
    directory: Path
    path: Sequence[Path]
    environment: Mapping[str, str]
    log: Path
    function_arn: str
    timeout_seconds: float


class ExecutionEnvironment:
    """A process with `awslambdaric`, and its Runtime API. One invocation at a time."""

    def __init__(self, launch: Launch, clock: Clock) -> None:
        self._launch = launch
        self._clock = clock
        self._said: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._api = RuntimeApi(self._said.put, clock)
        self._process = self._start()
        self._watch = threading.Thread(target=self._await_end, daemon=True)
        self._watch.start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether its process is alive."""
        return self._process.poll() is None

    def invoke(self, event: bytes, trace: str = "") -> Outcome:
        """Call the handler with an event, JSON; a timeout kills the process.

        `trace` is the invocation's trace header, "" for one that nothing led to.
        """
        self.thaw()
        limit = self._launch.timeout_seconds
        request_id = str(uuid4())
        arn = self._launch.function_arn
        trace = trace or entered((), arn)[0]
        self._api.offer(Invocation(request_id, event, arn, limit, trace))
        said = self._listen(max(_LEAST_INIT_SECONDS, limit))
        started = self._clock.monotonic()
        picked = isinstance(said, InvocationStart)
        if picked:
            said = self._listen(limit)
        verdict, payload = _verdict(said, picked=picked)
        if said is None:
            self.kill()
        seconds = self._clock.monotonic() - started
        return Outcome(verdict, request_id, self.pid, seconds, payload)

    def freeze(self) -> None:
        """Suspend the process, as Lambda does between invocations."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue a suspended process."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and its children; return when they have ended."""
        self._signal(signal.SIGKILL)
        self._leave()

    def stop(self) -> None:
        """Send SIGTERM, then kill it."""
        self._signal(signal.SIGTERM)
        self.thaw()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._leave()

    def _leave(self) -> None:
        self._watch.join()
        self._api.close()

    def _listen(self, seconds: float) -> Said | None:
        try:
            return self._said.get(timeout=seconds)
        except queue.Empty:
            return None

    def _await_end(self) -> None:
        self._said.put(ProcessEnd(self._process.wait()))

    def _signal(self, number: signal.Signals) -> None:
        # Only before the child is reaped: its pid cannot be reused until then.
        if self.alive():
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return

    def _start(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        surroundings = {
            **launch.environment,
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            "LAMBDA_TASK_ROOT": str(launch.directory),
            "PYTHONPATH": os.pathsep.join(map(str, (launch.directory, *launch.path))),
            "_HANDLER": launch.handler,
        }
        with launch.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "awslambdaric", launch.handler],
                cwd=launch.directory,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _verdict(said: Said | None, *, picked: bool) -> tuple[Verdict, bytes]:
    match said:
        case InvocationResult(payload):
            return Verdict.RETURNED, payload
        case InvocationError(error):
            return Verdict.RAISED, error
        case InitFailed(error):
            return Verdict.INIT_FAILED, error
        case ProcessEnd(code):
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return Verdict.DIED, how.encode()
        case None if picked:
            return Verdict.TIMED_OUT, b""
        case _:
            return Verdict.INIT_FAILED, b"it requested no event in time"
