"""Where Spark is asked to deliver: the Runs port, and one run that is to be started.

Owns: the contract, the token by which one start is known again. Refuses to know: EMR, what a run
does, who decides that there shall be one.
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

# As long as EMR Serverless lets a run go on unless it is told otherwise.
TIMEOUT_MINUTES = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run that is to be started: for which job, the how manieth, with which command line.

    `arguments` are those of `jobs/spark_ingest.py`. After `timeout_minutes` the run is ended.
    """

    job: str
    number: int
    arguments: tuple[str, ...]
    timeout_minutes: int = TIMEOUT_MINUTES

    @property
    def token(self) -> str:
        """What a repeated start is known by: 64 hexadecimal digits of job and number alone."""
        return hashlib.sha256(f"{self.job}/{self.number}".encode()).hexdigest()


class Runs(Protocol):
    """Starts runs."""

    def start(self, run: Run) -> str:
        """Return the id of the run, begun now or by an earlier call with the same token.

        Raises:
            RunsUnavailable: no usable answer; the run may have begun, so call again.
            Misconfigured: no such application, no permission, or settings that it refuses.
        """
        ...
