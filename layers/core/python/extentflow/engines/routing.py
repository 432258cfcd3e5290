"""Where jobs are delivered: by functions, or by runs of Spark.

Owns: the rule, what follows from a run's end. Refuses to know: EMR, queues, which run belongs to
which job (`started`), when anybody asks.

    lambda, or auto up to the threshold   planned, its extents sent to the queue      (`Dispatch`)
    spark, or auto above it               planned, a run started, whose workers take the extents
                                          from the ledger
    no run can be had                     its extents are sent to the queue
    a backfill                            one run for all that it means
    a run ended                           a job's: what it has left undone is sent to the queue.
                                          A backfill's that FAILED: one more run

Nobody loses or doubles anything where several get a job: whoever claims an extent has it. A planner
that dies before it starts the run leaves a job that does not move, which the reconciler resends. So
it does with what the runs of a backfill leave, and it lists the objects that got no job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow.arrivals.backfill import Backfill
from extentflow.connectors.config import AUTO, SPARK
from extentflow.engines.dispatch import Dispatch
from extentflow.engines.started import Hold, Started, StartedRuns
from extentflow.errors import Misconfigured, NotOffered, Retryable
from extentflow.model import Job, JobState
from extentflow.runs import RunState

log = logging.getLogger(__name__)

MOST_RUNS = 2
"""How many a backfill gets: the second for what a lost driver left."""


def _auto(_job: Job) -> str:
    return AUTO


@dataclass(frozen=True, slots=True)
class Routing:
    """Sends jobs on their way. `started` None: there is no Spark, everything goes to the queue.

    `engine` returns what a job's connector wants (`connectors.config.ENGINES`).
    """

    dispatch: Dispatch
    started: StartedRuns | None = None
    threshold_bytes: int = 0
    engine: Callable[[Job], str] = _auto

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Do what `Dispatch.start` does, or give the job to a run. Raises as that does."""
        if self.started is None or not self._for_spark(job):
            return self.dispatch.start(job, late=late)
        planner = self.dispatch.planner
        job = planner.plan(job)
        if job.state is JobState.RUNNING:
            try:
                run_id = self.started.begin_job(job)
            except (Retryable, Misconfigured) as exc:
                log.warning("job %s goes to the queue instead of Spark: %s", job.id, exc)
                self.dispatch.resend(job, late=late)
            else:
                log.info("job %s is delivered by run %s", job.id, run_id)
        return planner.ledger.job(job.id) or job

    def backfill(self, wanted: Backfill) -> None:
        """Start a run for everything that is meant; harmless when repeated.

        Raises:
            NotOffered: there is no Spark.
            RunsUnavailable, LedgerUnavailable, Misconfigured: ask again.
        """
        if self.started is None:
            raise NotOffered(
                f"backfill {wanted.id} of connector {wanted.connector} wants Spark, and this stage "
                "has none; set `spark` in the stage, or submit with --engine lambda"
            )
        arguments = ("--connector", wanted.connector, "--json", *wanted.addresses)
        run_id = self.started.begin_shared(wanted.id, 0, arguments, connector=wanted.connector)
        log.info("backfill %s of %s is run %s", wanted.id, wanted.connector, run_id)

    def ended(self, run_id: str, state: RunState) -> int:
        """Look after what a run was for; return how many messages were sent.

        A run that nobody here started is left alone. Harmless when repeated.

        Raises:
            LedgerUnavailable, QueueUnavailable, StoreUnavailable, RunsUnavailable, Misconfigured:
                tell it again; where nobody does, jobs that stand still are found.
        """
        found = self.started and self.started.find(run_id)
        if not self.started or not found:
            log.info("run %s belongs to nobody here", run_id)
            return 0
        sent = self._job_ended(found) if found.job else self._shared_ended(found, state)
        self.started.forget(found)
        return sent

    def hold(self, job: Job) -> Hold:
        """Say which run has a job."""
        return self.started.hold(job) if self.started else Hold.NOBODY

    def _for_spark(self, job: Job) -> bool:
        """Whether a job is large enough for a run, and nobody may be at work for it yet."""
        begins = job.state is JobState.PLANNING or (job.state is JobState.RUNNING and job.reopened)
        if not begins:
            return False
        wanted = self.engine(job)
        return wanted == SPARK or (wanted == AUTO and job.version.size > self.threshold_bytes)

    def _job_ended(self, found: Started) -> int:
        ledger = self.dispatch.planner.ledger
        job = ledger.job(found.job)
        if job is None:
            return 0
        job = ledger.close(job.id) if job.state is JobState.RUNNING else job
        if not job.state.open:
            return 0
        log.warning("run %s ended, job %s did not: functions go on", found.id, job.id)
        return self.dispatch.resend(self.dispatch.planner.plan(job))

    def _shared_ended(self, found: Started, state: RunState) -> int:
        following = found.run.number + 1
        if self.started is None or state is not RunState.FAILED or following >= MOST_RUNS:
            return 0
        run_id = self.started.begin_shared(
            found.run.subject, following, found.run.arguments, connector=found.connector
        )
        log.warning("run %s of a backfill failed, run %s goes on", found.id, run_id)
        return 0
