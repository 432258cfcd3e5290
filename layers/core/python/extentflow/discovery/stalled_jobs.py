"""Resume open jobs without progress: plan them, send their extents again, or close them.

    PLANNING   new, or its cursor moved since the last check     unchanged
               otherwise                                         planned on, extents sent
    RUNNING    complete by its counters                          closed
               counters or claims moved since the last check     unchanged
               no progress for some time                         `JobRouter.resend`
    either     a Spark run owns it                               unchanged, for at most a day

A note per job contains its last state and when it changed. Messages may only be waiting: while the
queue holds any, the thresholds are much higher than with an empty queue, which proves that messages
are lost. Each repeated sending doubles the threshold, unless it failed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice

from extentflow.discovery.report import Report, attempt_step
from extentflow.engines.submitted_runs import RunOwnership
from extentflow.errors import ExtentflowError
from extentflow.ledger import ConnectorState, Ledger, rules
from extentflow.ledger.notes import NoteKind
from extentflow.model import Job, JobState
from extentflow.queue import Queue
from extentflow.queue.dispatch import UnfinishedDispatch
from extentflow.queue.routing import JobRouter
from extentflow.work_context import working_on

log = logging.getLogger(__name__)

KEEP_SECONDS = 14 * 86_400.0
BACKLOG_FACTOR = 8
LONGEST_WAIT_SECONDS = 86_400.0
MAX_DOUBLINGS = 20

NOTHING = Report()
_BY_A_RUN = (RunOwnership.OWN, RunOwnership.SHARED)


@dataclass(frozen=True, slots=True)
class StallThresholds:
    """How long new jobs, and RUNNING jobs without progress, are left unchanged."""

    grace_seconds: float = 300.0
    stall_seconds: float = 900.0

    def until_resent(self, resent: int, *, empty_queue: bool) -> float:
        """Return the allowed time without progress for a job that was sent `resent` times."""
        factor = 1 if empty_queue else BACKLOG_FACTOR
        seconds = self.stall_seconds * factor * 2.0 ** min(resent, MAX_DOUBLINGS)
        return min(seconds, max(LONGEST_WAIT_SECONDS, self.stall_seconds))


@dataclass(frozen=True, slots=True)
class _Mark:
    """A job's last state and when it changed; how often it was sent again, and when last."""

    seen: str
    claims: str
    since: float
    resent: int = 0
    resent_at: float = 0.0

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> _Mark:
        since, resent_at = float(facts["since"]), float(facts["resent_at"])
        return cls(facts["seen"], facts["claims"], since, int(facts["resent"]), resent_at)

    def to_facts(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items()}


MARKS: NoteKind[_Mark] = NoteKind("watch#", _Mark.to_facts, _Mark.of, KEEP_SECONDS)
# The number of open jobs that the scan of a connector and state has checked.
ROUNDS: NoteKind[int] = NoteKind(
    "round#", lambda behind: {"behind": str(behind)}, lambda facts: int(facts["behind"])
)


@dataclass(frozen=True, slots=True)
class StalledJobScanner:
    """Checks open jobs during one run. `empty_queue`: no message is visible, hidden or delayed.

    Jobs of another Kafka cluster than `cluster` are closed, never sent: these workers cannot
    deliver them.
    """

    ledger: Ledger
    router: JobRouter
    thresholds: StallThresholds
    late: Callable[[], bool]
    cluster: str
    empty_queue: bool

    def scan(self, connector: str) -> Iterator[Report]:
        """Check a connector's jobs one by one, from where the last run stopped."""
        active = self.ledger.connectors.state(connector) is ConnectorState.ENABLED
        for state in (JobState.PLANNING, JobState.RUNNING):
            yield from self._round(connector, state, active=active)

    def _round(self, connector: str, state: JobState, *, active: bool) -> Iterator[Report]:
        """Check jobs from the newest to the oldest.

        The number of checked jobs is stored when time runs out. New and closed jobs shift it a
        little; the next round starts with the first again.
        """
        notes, key = self.ledger.notes, f"{connector}#{state}"
        check = self._check_planning if state is JobState.PLANNING else self._check_running
        before = ROUNDS.read(notes, key) or 0
        behind = before
        for job in islice(self.ledger.jobs.list(connector, state), before, None):
            if self.late():
                ROUNDS.write(notes, key, behind)
                return
            what = f"job {job.id} of {job.version.uri}"
            with working_on(connector=connector, job=job.id):
                step = attempt_step(what, partial(check, job, active=active))
            touched = step.jobs_resumed or step.jobs_closed
            behind += not touched or self._now(job).state is state
            is_open = active and not step.jobs_closed and not step.jobs_failed
            yield step + self._aged(job) if is_open else step
        if before:
            ROUNDS.clear(notes, key)

    def _aged(self, job: Job) -> Report:
        """Report the age of an open job; that of a replayed job says nothing about its replay."""
        age = 0.0 if job.reopened else max(0.0, self.ledger.now() - job.created)
        return Report(oldest_open_seconds=age)

    def _check_planning(self, listed: Job, *, active: bool) -> Report:
        job = self._now(listed) if active else listed
        if not active or job.state is not JobState.PLANNING or job.cluster != self.cluster:
            return NOTHING
        mark = MARKS.read(self.ledger.notes, job.id)
        if mark is None and self._is_young(job):
            return NOTHING
        if mark is not None and mark.seen != _plan(job):
            self._mark(job, _plan(job))
            return NOTHING
        if self.router.ownership(job) in (*_BY_A_RUN, RunOwnership.UNKNOWN):
            return NOTHING
        planned = self.router.start(job, late=self.late)
        if planned.state is JobState.PLANNING:
            self._mark(planned, _plan(planned))
        return Report(jobs_resumed=1, jobs_failed=_failed(planned), jobs_done=_done(planned))

    def _check_running(self, job: Job, *, active: bool) -> Report:
        progress = self.ledger.jobs.progress(job.id)
        if rules.verdict(job, progress) is not None:
            closed = self.ledger.jobs.close(job.id)
            if closed.state.open:
                return NOTHING
            return Report(jobs_closed=1, jobs_failed=_failed(closed), jobs_done=_done(closed))
        if job.cluster != self.cluster:
            return NOTHING
        seen = f"{job.reopened}:{progress.done}:{progress.failed}" if active else "PAUSED"
        mark = MARKS.read(self.ledger.notes, job.id)
        if mark is None or mark.seen != seen:
            if mark is not None or not self._is_young(job):
                self._mark(job, seen)
        elif active:
            claims = self._claims(job)
            if mark.claims == claims:
                return self._stalled(job, mark)
            self._mark(job, seen, claims)
        return NOTHING

    def _stalled(self, job: Job, mark: _Mark) -> Report:
        now, ownership = self.ledger.now(), self.router.ownership(job)
        # Behind many other messages it may wait for hours.
        shared = ownership is RunOwnership.SHARED
        quiet = LONGEST_WAIT_SECONDS if shared else self.thresholds.stall_seconds
        stalled = Report(jobs_stalled=int(now - mark.since >= quiet))
        if now - max(mark.since, mark.resent_at) < self._longest_wait(ownership, mark):
            return stalled
        # Stored first: a run killed while it sends must not start from the beginning each time.
        again = replace(mark, resent=mark.resent + 1, resent_at=now)
        MARKS.write(self.ledger.notes, job.id, again)
        stall = f"{mark.since:.0f}-{again.resent}"
        try:
            sent = self.router.resend(self._now(job), stall=stall, late=self.late)
        except UnfinishedDispatch:
            raise
        except ExtentflowError:
            # Not everything was sent: an outage must not double the threshold.
            MARKS.write(self.ledger.notes, job.id, replace(again, resent=mark.resent))
            raise
        return stalled + Report(messages_resent=sent, jobs_failed=_failed(self._now(job)))

    def _longest_wait(self, ownership: RunOwnership, mark: _Mark) -> float:
        """Return how long a job may make no progress before functions take it over."""
        if ownership in _BY_A_RUN:  # the run's timeout usually ends this earlier
            return LONGEST_WAIT_SECONDS
        # The event of the run's end was lost.
        if ownership is RunOwnership.GONE and not mark.resent:
            return 0.0
        empty = self.empty_queue and ownership is not RunOwnership.UNKNOWN
        return self.thresholds.until_resent(mark.resent, empty_queue=empty)

    def _is_young(self, job: Job) -> bool:
        return self.ledger.now() - job.created < self.thresholds.grace_seconds

    def _mark(self, job: Job, seen: str, claims: str = "") -> None:
        MARKS.write(self.ledger.notes, job.id, _Mark(seen, claims, self.ledger.now()))

    def _now(self, job: Job) -> Job:
        """Return a job as stored; an index may be behind."""
        return self.ledger.jobs.get(job.id) or job

    def _claims(self, job: Job) -> str:
        """Return a digest of the extents in work: position, attempts, holders."""
        digest = hashlib.sha256()
        for item in self.ledger.extents.list(job.id):
            if not item.state.final:
                nonce = item.claim.nonce if item.claim else ""
                line = f"{item.ordinal}:{item.position}:{item.attempts}:{nonce}\n"
                digest.update(line.encode())
        return digest.hexdigest()


def is_empty(queue: Queue) -> bool:
    """Return whether a queue holds no message; False if that is unknown."""
    try:
        depth = queue.depth()
    except ExtentflowError as exc:
        log.warning("it is not known whether messages wait, thresholds are higher: %s", exc)
        return False
    return depth.waiting + depth.hidden + depth.delayed == 0


def _failed(job: Job) -> int:
    return int(job.state is JobState.FAILED)


def _done(job: Job) -> int:
    return int(job.state is JobState.DONE)


def _plan(job: Job) -> str:
    return f"{job.reopened}:{job.plan.count}:{job.plan.cursor}"
