"""Where a new job is delivered: by functions, or by a run of Spark of its own.

Owns: the rule, which run belongs to which job, what follows from a run's end. Refuses to know: EMR,
queues, when anybody asks.

    up to the threshold   planned, its extents sent to the queue                       (`Dispatch`)
    above it              planned, a run started, whose workers take the extents from the ledger
    no run can be had     its extents are sent to the queue
    a run ended           what it has left undone is sent to the queue; nothing, as a rule

Nobody loses or doubles anything where both get a job: whoever claims an extent has it. A planner
that dies before it starts the run leaves a job that does not move, which the reconciler resends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow.engines.dispatch import Dispatch
from extentflow.errors import Misconfigured, Retryable
from extentflow.model import Job, JobState
from extentflow.runs import Run, Runs

log = logging.getLogger(__name__)

KEEP_SECONDS = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class Routing:
    """Sends jobs on their way. `runs` None: there is no Spark, everything goes to the queue."""

    dispatch: Dispatch
    runs: Runs | None = None
    threshold_bytes: int = 0

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Do what `Dispatch.start` does, for a large new job by a run. Raises as that does."""
        large = job.version.size > self.threshold_bytes
        if self.runs is None or not large or job.state is not JobState.PLANNING:
            return self.dispatch.start(job, late=late)
        planner = self.dispatch.planner
        job = planner.plan(job)
        if job.state is JobState.RUNNING:
            try:
                self._begin(job, self.runs)
            except (Retryable, Misconfigured) as exc:
                log.warning("job %s goes to the queue instead of Spark: %s", job.id, exc)
                self.dispatch.resend(job, late=late)
        return planner.ledger.job(job.id) or job

    def ended(self, run: str) -> int:
        """Look after the job of a run that ended, well or not; return how many messages were sent.

        A run that nobody here started is left alone. Harmless when repeated.

        Raises:
            LedgerUnavailable, QueueUnavailable, StoreUnavailable: tell it again.
        """
        ledger = self.dispatch.planner.ledger
        facts = ledger.recall(_note(run))
        job = ledger.job(facts["job"]) if facts else None
        if job is None:
            log.info("run %s belongs to nobody here", run)
            return 0
        job = ledger.close(job.id) if job.state is JobState.RUNNING else job
        if not job.state.open:
            return 0
        log.warning("run %s ended, job %s did not: functions go on", run, job.id)
        return self.dispatch.resend(self.dispatch.planner.plan(job))

    def _begin(self, job: Job, runs: Runs) -> None:
        """Start a job's run, and remember whose it is.

        Where the ledger is away, both the run and functions work on it.
        """
        address = f"s3://{job.version.bucket}/{job.version.key}"
        arguments = ("--connector", job.connector, "--json", address)
        run = runs.start(Run(job=job.id, number=job.reopened, arguments=arguments))
        log.info("job %s is delivered by run %s", job.id, run)
        self.dispatch.planner.ledger.remember(
            _note(run), {"job": job.id}, keep_seconds=KEEP_SECONDS
        )


def _note(run: str) -> str:
    return f"run#{run}"
