"""Choose where jobs are delivered: functions, or Spark runs.

    lambda, or auto up to the threshold   planned, extents sent to the queue (`ExtentDispatcher`)
    spark, or auto above it               planned, a run started, whose workers claim the extents
    no run can be started                 extents sent to the queue
    an object that functions cannot end   FAILED with the reason, unless a run delivers it
    a backfill                            one run for all of it
    a run ended                           of a job: unfinished extents are sent to the queue. Of a
                                          backfill that FAILED with open jobs: one more run

Several recipients of a job are harmless: the claim decides. A planner that dies before it starts
the run leaves a job without progress, which the reconciler sends again. It does the same with what
a backfill's runs leave, and lists objects without a job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow.config.connector import AUTO, SPARK
from extentflow.engines.emr import RunState
from extentflow.engines.emr.submitted import (
    OnCompletion,
    RunOwnership,
    SubmittedRun,
    SubmittedRuns,
    run_of,
)
from extentflow.errors import Misconfigured, NotOffered, Retryable
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState
from extentflow.queue import Backfill
from extentflow.queue.dispatch import ExtentDispatcher

log = logging.getLogger(__name__)

MOST_RUNS = 2
"""How many a backfill gets: the second for what a lost driver left."""


@dataclass(frozen=True, slots=True)
class JobRouter:
    """Sends jobs to functions or Spark. `started` None: no Spark, everything goes to the queue.

    `refusal` returns why functions can never deliver a job's object, or "".
    """

    dispatch: ExtentDispatcher
    started: SubmittedRuns | None = None
    threshold_bytes: int = 0
    engine: Callable[[Job], str] = lambda _job: AUTO
    absent: Callable[[str], str | None] = lambda _connector: None
    refusal: Callable[[Job], str] = lambda _job: ""

    def start(self, job: Job, *, late: Callable[[], bool] = lambda: False) -> Job:
        """Do what `ExtentDispatcher.start` does, or give the job to a run. Raises as that does."""
        planner = self.dispatch.planner
        if self.started is None or not self._for_spark(job):
            if job.state is JobState.PLANNING and (why := self.refusal(job)):
                return planner.ledger.jobs.end(job.id, JobState.FAILED, why)
            return self.dispatch.start(job, late=late)
        job = planner.plan(job)
        if job.state is JobState.RUNNING:
            try:
                run_id = self.started.begin_job(job)
            except (Retryable, Misconfigured) as exc:
                if why := self.refusal(job):
                    why = f"{why}; no run of Spark could be started: {exc}"
                    return planner.ledger.jobs.end(job.id, JobState.FAILED, why)
                log.warning("job %s goes to the queue instead of Spark: %s", job.id, exc)
                self.dispatch.resend(job, late=late)
            else:
                log.info("job %s is delivered by run %s", job.id, run_id)
        return planner.ledger.jobs.get(job.id) or job

    def backfill(self, wanted: Backfill) -> None:
        """Start a run for everything that is meant; harmless when repeated.

        Raises:
            NotOffered: there is no Spark, or no run could have what the connector refers to.
            RunsUnavailable, Misconfigured: ask again.
        """
        if self.started is None:
            raise NotOffered(
                f"backfill {wanted.id} of connector {wanted.connector} wants Spark, and this stage "
                "has none; set `spark` in the stage, or submit with --engine lambda"
            )
        if absent := self.absent(wanted.connector):
            raise NotOffered(f"backfill {wanted.id}: {absent}")
        run_id = self.started.begin_shared(wanted.id, wanted.connector, wanted.addresses)
        log.info("backfill %s of %s is run %s", wanted.id, wanted.connector, run_id)

    def ended(
        self, run_id: str, state: RunState, *, late: Callable[[], bool] = lambda: False
    ) -> int:
        """Continue the jobs of a run that ended; return the number of messages sent.

        Runs of other deployments are ignored. Idempotent. Raises Retryable and Misconfigured:
        repeat the call; otherwise the scan for stalled jobs finds them.
        """
        found = self.started.find(run_id) if self.started else None
        if self.started is None or found is None:
            log.info("run %s does not belong to this site", run_id)
            return 0
        sent = 0
        if found.then is OnCompletion.FUNCTIONS:
            sent = self._to_functions(found, late)
        elif found.then is OnCompletion.RUN and state is RunState.FAILED:
            self._once_more(self.started, found)
        self.started.forget(found)
        return sent

    def ownership(self, job: Job) -> RunOwnership:
        """Say which run has a job."""
        return self.started.ownership(job) if self.started else RunOwnership.NONE

    def _for_spark(self, job: Job) -> bool:
        """Whether a job is large enough for a run, and no worker may have started on it."""
        reopened = job.state is JobState.RUNNING and job.reopened
        if job.state is not JobState.PLANNING and not reopened:
            return False
        wanted = self.engine(job)
        return wanted == SPARK or (wanted == AUTO and job.version.size > self.threshold_bytes)

    def _to_functions(self, found: SubmittedRun, late: Callable[[], bool]) -> int:
        ledger = self.dispatch.planner.ledger
        job = ledger.jobs.get(found.job)
        # It may have been reopened since, and a later run have it.
        if job is None or run_of(ledger, job.id) not in (None, found.id):
            return 0
        job = ledger.jobs.close(job.id) if job.state is JobState.RUNNING else job
        if not job.state.open:
            return 0
        log.warning("run %s ended, job %s did not: functions go on", found.id, job.id)
        return self.dispatch.resend(self.dispatch.planner.plan(job), late=late)

    def _once_more(self, started: SubmittedRuns, found: SubmittedRun) -> None:
        """Start a backfill's next run, where the one that failed left anything that it can do."""
        following = found.number + 1
        if following >= MOST_RUNS or not self._left(found):
            return
        if absent := self.absent(found.connector):
            log.warning("backfill %s gets no further run: %s", found.subject, absent)
            return
        where = (found.subject, found.connector, found.addresses)
        run_id = started.begin_shared(*where, number=following)
        log.warning("run %s of a backfill failed, run %s continues it", found.id, run_id)

    def _left(self, found: SubmittedRun) -> bool:
        """Whether jobs of a run are open, or it died before it made any.

        A run also fails when a job of it did; another one would change nothing about that.
        """
        ledger = self.dispatch.planner.ledger
        if ledger.connectors.state(found.connector) is not ConnectorState.RUNNING:
            return False
        for state in (JobState.RUNNING, JobState.PLANNING):
            if any(found.may_have(job) for job in ledger.jobs.list(found.connector, state)):
                return True
        newest = next(iter(ledger.jobs.list(found.connector)), None)
        return newest is None or newest.created < found.begun
