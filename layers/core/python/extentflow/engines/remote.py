"""Remote runs: the port of a service that runs the library on other machines.

An engine that is a `RunService` is remote. `submitted_engine` follows one of its runs,
`submitted_runs` notes which run owns a job.

Tests: unit/engines/test_submitted_engine.py, unit/engines/test_memory_runs.py
"""

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Run:
    """A run of `jobs/spark_deliver.py` to start; `number` counts those for a job or a command."""

    subject: str
    number: int
    arguments: tuple[str, ...]
    timeout_minutes: int

    @property
    def token(self) -> str:
        """Idempotency token of 64 hexadecimal digits; depends on subject and number only."""
        return hashlib.sha256(f"{self.subject}/{self.number}".encode()).hexdigest()


class RunState(enum.StrEnum):
    """State of a run: waiting for capacity, running, or how it ended."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether the run has ended, in any way."""
        return self not in (RunState.WAITING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """State of a run and the service's details."""

    state: RunState
    details: str = ""


class RunGone(Misconfigured):
    """There is no such run: the application was replaced since, or the run is forgotten."""


class JobRuns(Protocol):
    """Starts, describes and cancels runs."""

    def start(self, run: Run) -> str:
        """Return the run's id, one per token. RunsUnavailable: it may have started; call again."""

    def describe(self, run_id: str) -> RunStatus:
        """Return the state of a run. Raises as `start`; RunGone if there is none."""

    def cancel(self, run_id: str) -> None:
        """Request the end of a run; no effect after its end. Raises as `describe`."""

    def check(self) -> None:
        """Raise Misconfigured where the service would refuse every run."""


@dataclass(frozen=True, slots=True)
class RunService:
    """A service of remote runs; the value of an entry point of group `extentflow.engines`.

    `open(settings)` returns its runs, or None where the settings name none of the service.
    Messages call the service `title`; `needs` completes "--engine NAME needs".
    """

    title: str
    needs: str
    open: Callable[[WorkerSettings], JobRuns | None]
