"""Choose where jobs are delivered: functions, or Spark runs.

    lambda, or auto up to the threshold   planned, extents sent to the queue (`ExtentDispatcher`)
    spark, or auto above it               planned, a run started, whose workers claim the extents
    no run can be started                 extents sent to the queue
    a backfill                            one run for all of it
    a run ended                           of a job: unfinished extents are sent to the queue. Of a
                                          backfill that FAILED with open jobs: one more run
    a job stalled                         unfinished extents are sent to the queue

An object that functions cannot deliver never goes to the queue:

    a run is possible                     one is started, and another one for each stall
    the service of runs is unavailable    raised: the request is repeated
    no run is possible                    FAILED with the reason, unless a worker holds the extent

Several recipients of a job are harmless: the claim decides. A planner that dies before it starts
the run leaves a job without progress, which the reconciler sends again. It does the same with what
a backfill's runs leave, and lists objects without a job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow.config.connector_keys import AUTO, SPARK
from extentflow.engines.remote import RunState
from extentflow.engines.submitted_runs import (
    OnCompletion,
    RunOwnership,
    SubmittedRun,
    SubmittedRuns,
    run_of,
)
from extentflow.errors import Misconfigured, NotOffered, Retryable, RunsUnavailable
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
        """Do what `ExtentDispatcher.start` does, or give the job to a run. Raises as that does.

        Raises RunsUnavailable where only a run can deliver the job, and starting one failed for a
        time: call this again.
        """
        planner = self.dispatch.planner
        if self.started is not None and self._for_spark(self.started, job):
            job = planner.plan(job)
            if job.state is JobState.RUNNING:
                self._start_run(self.started, job, late)
            return planner.ledger.jobs.get(job.id) or job
        reopened = job.state is JobState.RUNNING and job.reopened
        if (job.state is JobState.PLANNING or reopened) and (why := self.refusal(job)):
            # A reopened job may be in work elsewhere: it ends when it stalls.
            return job if reopened else planner.ledger.jobs.end(job.id, JobState.FAILED, why)
        return self.dispatch.start(job, late=late)

    def resend(self, job: Job, *, stall: str, late: Callable[[], bool] = lambda: False) -> int:
        """Continue a RUNNING job without progress; return the number of messages sent.

        `stall` names this stall of the job: a repeated call starts no second run. Raises as
        `ExtentDispatcher.resend`, and RunsUnavailable.
        """
        why = self.refusal(job) if job.state is JobState.RUNNING else ""
        if not why:
            return self.dispatch.resend(job, late=late)
        if self.started is None or not self._wants_spark(job):
            self._fail(job, why)
        elif (ownership := self.ownership(job)) is RunOwnership.UNKNOWN:
            raise RunsUnavailable(f"{why}; the state of its run on Spark is unknown")
        elif ownership in (RunOwnership.NONE, RunOwnership.GONE):
            try:
                run_id = self.started.begin_job(job, subject=f"{job.id}/{stall}")
            except Misconfigured as exc:
                self._fail(job, f"{why}; no run of Spark could be started: {exc}")
            else:
                log.info("job %s made no progress and is continued by run %s", job.id, run_id)
        return 0

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

    def _for_spark(self, started: SubmittedRuns, job: Job) -> bool:
        """Whether a run has to be started for the job, on which no other worker works."""
        reopened = job.state is JobState.RUNNING and job.reopened
        if job.state is JobState.PLANNING or reopened:
            return self._wants_spark(job)
        # Also where only Spark can deliver it, and the service of runs was unavailable before.
        return (
            job.state is JobState.RUNNING
            and started.ownership(job) is RunOwnership.NONE
            and self._wants_spark(job)
            and bool(self.refusal(job))
        )

    def _wants_spark(self, job: Job) -> bool:
        wanted = self.engine(job)
        return wanted == SPARK or (wanted == AUTO and job.version.size > self.threshold_bytes)

    def _start_run(self, started: SubmittedRuns, job: Job, late: Callable[[], bool]) -> None:
        """Start the run of a RUNNING job, or send its extents where functions deliver it too."""
        try:
            run_id = started.begin_job(job)
        except (Retryable, Misconfigured) as exc:
            why = self.refusal(job)
            if not why:
                log.warning("job %s goes to the queue instead of Spark: %s", job.id, exc)
                self.dispatch.resend(job, late=late)
            elif isinstance(exc, Retryable):
                raise
            else:
                self._fail(job, f"{why}; no run of Spark could be started: {exc}")
        else:
            log.info("job %s is delivered by run %s", job.id, run_id)

    def _fail(self, job: Job, why: str) -> None:
        """End a job that neither functions nor a run can deliver, unless a worker delivers it."""
        ledger = self.dispatch.planner.ledger
        claims = (item.claim for item in ledger.extents.list(job.id) if item.claim is not None)
        slots = (ledger.slots.get(job.cluster, claim.slot) for claim in claims)
        if any(slot.until > ledger.now() for slot in slots):
            log.info("job %s is delivered by a worker outside this deployment", job.id)
            return
        ledger.jobs.end(job.id, JobState.FAILED, why)

    def _to_functions(self, found: SubmittedRun, late: Callable[[], bool]) -> int:
        ledger = self.dispatch.planner.ledger
        job = ledger.jobs.get(found.job)
        # It may have been reopened since, and a later run have it.
        if job is None or run_of(ledger, job.id) not in (None, found.id):
            return 0
        job = ledger.jobs.close(job.id) if job.state is JobState.RUNNING else job
        if not job.state.open:
            return 0
        if self.refusal(job):
            log.warning("run %s ended, job %s did not; another run follows", found.id, job.id)
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
        if ledger.connectors.state(found.connector) is not ConnectorState.ENABLED:
            return False
        for state in (JobState.RUNNING, JobState.PLANNING):
            if any(found.may_have(job) for job in ledger.jobs.list(found.connector, state)):
                return True
        newest = next(iter(ledger.jobs.list(found.connector)), None)
        return newest is None or newest.created < found.begun
