"""Runs of Spark that were started: what each is for, and which run has a job.

Owns: their notes in the ledger, what a run's state means for a job. Refuses to know: when a run is
wanted, what follows from its end (`routing`), EMR.

    run#RUN             what it is for, and how it was started
    run-of#JOB          the run that has this job
    backfill#CONNECTOR  the latest run that has whatever of this connector waits

Notes are written after the start. Where that fails, nobody hears of the run's end, and what it
leaves undone is found as a job that stands still.
"""

from __future__ import annotations

import enum
import json
import logging
from dataclasses import dataclass

from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger
from extentflow.model import Job
from extentflow.runs import Run, Runs
from extentflow.settings import SPARK_TIMEOUT_MINUTES

log = logging.getLogger(__name__)

KEEP_SECONDS = 14 * 86_400.0


class Hold(enum.Enum):
    """Whether a run of Spark has a job.

    NOBODY also where that is not to be found out. OWN: a run of its own; SHARED: one of many, in
    which it may wait for its turn. GONE: its own run has ended.
    """

    NOBODY = enum.auto()
    OWN = enum.auto()
    SHARED = enum.auto()
    GONE = enum.auto()


@dataclass(frozen=True, slots=True)
class Started:
    """What is known of a run: `job` is the one that it is for, or empty; `run` how it began."""

    id: str
    connector: str
    job: str
    run: Run


@dataclass(frozen=True, slots=True)
class StartedRuns:
    """Starts runs, and remembers them."""

    runs: Runs
    ledger: Ledger
    timeout_minutes: int = SPARK_TIMEOUT_MINUTES

    def begin_job(self, job: Job) -> str:
        """Start a run of a job's own, another one each time that it is reopened; return its id.

        Raises as `Runs.start`, and LedgerUnavailable: then the run may have begun.
        """
        return self._begin(job.id, job.reopened, ("--job", job.id, "--json"), job.connector, job.id)

    def begin_shared(
        self, subject: str, number: int, arguments: tuple[str, ...], *, connector: str
    ) -> str:
        """Start a run for many objects of a connector; raises as `begin_job`."""
        return self._begin(subject, number, arguments, connector, "")

    def find(self, run_id: str) -> Started | None:
        """Return what is known of a run; None where nobody here started it."""
        facts = self.ledger.recall(_of_run(run_id))
        if not facts:
            return None
        run = Run(
            subject=facts["subject"],
            number=int(facts["number"]),
            arguments=tuple(json.loads(facts["arguments"])),
            timeout_minutes=self.timeout_minutes,
        )
        return Started(run_id, facts["connector"], facts["job"], run)

    def hold(self, job: Job) -> Hold:
        """Say which run has a job; it may wait in the run of a backfill as well."""
        try:
            if (own := run_of(self.ledger, job.id)) is not None:
                return Hold.GONE if self.runs.look(own).state.ended else Hold.OWN
            place = _of_connector(job.connector)
            if (shared := self._run_in(place)) is not None:
                if not self.runs.look(shared).state.ended:
                    return Hold.SHARED
                self.ledger.remember(place, {})  # later jobs have nothing to do with it
        except ExtentflowError as exc:
            log.warning("job %s: whether a run has it is unknown: %s", job.id, exc)
        return Hold.NOBODY

    def forget(self, started: Started) -> None:
        """Let nobody take a run that ended for the one that has something."""
        place = _of_job(started.job) if started.job else _of_connector(started.connector)
        if self._run_in(place) == started.id:
            self.ledger.remember(place, {})

    def _begin(
        self, subject: str, number: int, arguments: tuple[str, ...], connector: str, job: str
    ) -> str:
        run = Run(
            subject=subject,
            number=number,
            arguments=arguments,
            timeout_minutes=self.timeout_minutes,
        )
        run_id = self.runs.start(run)
        facts = {
            "subject": subject,
            "number": str(number),
            "arguments": json.dumps(arguments),
            "connector": connector,
            "job": job,
        }
        self.ledger.remember(_of_run(run_id), facts, keep_seconds=KEEP_SECONDS)
        place = _of_job(job) if job else _of_connector(connector)
        self.ledger.remember(place, {"run": run_id}, keep_seconds=KEEP_SECONDS)
        return run_id

    def _run_in(self, place: str) -> str | None:
        return _noted(self.ledger, place)


def run_of(ledger: Ledger, job_id: str) -> str | None:
    """Return the id of the run that has a job, or had it until its end was not told."""
    return _noted(ledger, _of_job(job_id))


def _noted(ledger: Ledger, place: str) -> str | None:
    return (ledger.recall(place) or {}).get("run")


def _of_run(run_id: str) -> str:
    return f"run#{run_id}"


def _of_job(job_id: str) -> str:
    return f"run-of#{job_id}"


def _of_connector(connector: str) -> str:
    return f"backfill#{connector}"
