"""Where Spark is asked to deliver: the JobRuns port, and one run that is to be started.

Owns: the contract, the token by which one start is known again, where a run stands. Refuses to
know: EMR, what a run does, who decides that there shall be one.
"""

import enum
import hashlib
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run that is to be started: what it is for, the how manieth, with which command line.

    `subject` is a job's id or an errand's. `arguments` are those of `jobs/spark_ingest.py`. After
    `timeout_minutes` the run is ended.
    """

    subject: str
    number: int
    arguments: tuple[str, ...]
    timeout_minutes: int

    @property
    def token(self) -> str:
        """What a repeated start is known by: 64 hexadecimal digits of subject and number alone."""
        return hashlib.sha256(f"{self.subject}/{self.number}".encode()).hexdigest()


class RunState(enum.StrEnum):
    """Where a run stands: nobody works for it yet, it runs, or how it ended."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (RunState.WAITING, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands, and what the service says about it."""

    state: RunState
    details: str = ""


class JobRuns(Protocol):
    """Starts runs, knows where they stand, ends them."""

    def start(self, run: Run) -> str:
        """Return the id of the run, begun now or by an earlier call with the same token.

        Raises:
            RunsUnavailable: no usable answer; the run may have begun, so call again.
            Misconfigured: no such application, no permission, or settings that it refuses.
        """
        ...

    def look(self, run_id: str) -> RunStatus:
        """Return where a run stands. Raises as `start`; Misconfigured where there is none."""
        ...

    def cancel(self, run_id: str) -> None:
        """Ask for a run's end, which may take a while; nothing where it ended. Raises as `look`."""
        ...
