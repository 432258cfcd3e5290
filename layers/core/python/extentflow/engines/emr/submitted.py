"""Submitted runs: starts them, notes what each is for, and returns which run owns a job.

    run#RUN             what the run is for, its number, what follows its end
    run-of#JOB          the job's own run
    runs-of#CONNECTOR   the runs that deliver all objects below their addresses

Notes are written after the start and may be lost or stale without harm: then a run's end starts
nothing, or functions work beside the run, and each extent belongs to the worker that claims it.
"""

from __future__ import annotations

import enum
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from extentflow.config.worker import SPARK_TIMEOUT_MINUTES
from extentflow.engines.emr import JobRuns, Run, RunState
from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import Job

log = logging.getLogger(__name__)

KEEP_SECONDS = 14 * 86_400.0
# Runs per connector that are noted; older ones own no job.
MOST_SHARED = 16
# How long a state is cached: checking many jobs describes each run once.
CACHE_SECONDS = 60.0


class RunOwnership(enum.Enum):
    """Which kind of run owns a job.

    OWN: the job's own run; SHARED: a run with other jobs, where it may wait for its turn. GONE: its
    own run has ended. UNKNOWN: the state of its run cannot be read.
    """

    NONE = enum.auto()
    OWN = enum.auto()
    SHARED = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()


class OnCompletion(enum.StrEnum):
    """What delivers the rest after a run's end: functions, another run, or a person's command."""

    FUNCTIONS = "functions"
    RUN = "run"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """A noted run. `job` is the only job that it delivers; empty: all below `addresses`.

    `begun` is in seconds since the epoch on the ledger's clock.
    """

    id: str
    subject: str
    number: int
    connector: str
    job: str
    addresses: tuple[str, ...]
    then: OnCompletion
    begun: float

    def may_have(self, job: Job) -> bool:
        """Whether this run may own a job, judging by its addresses."""
        if self.job:
            return job.id == self.job
        # An address matches by its literal prefix, `bucket/key` up to the first wildcard.
        prefixes = [
            re.split(r"[*?\[]", address.partition("://")[2], maxsplit=1)[0]
            for address in self.addresses
        ]
        return not prefixes or f"{job.version.bucket}/{job.version.key}".startswith(tuple(prefixes))


def _run_to_facts(run: SubmittedRun) -> dict[str, str]:
    return {
        "subject": run.subject,
        "number": str(run.number),
        "connector": run.connector,
        "job": run.job,
        "addresses": json.dumps(run.addresses),
        "then": run.then,
        "begun": repr(run.begun),
    }


def _run_from_facts(facts: Mapping[str, str]) -> SubmittedRun:
    return SubmittedRun(
        id="",  # the note's key
        subject=facts["subject"],
        number=int(facts["number"]),
        connector=facts["connector"],
        job=facts["job"],
        addresses=tuple(json.loads(facts["addresses"])),
        then=OnCompletion(facts["then"]),
        begun=float(facts["begun"]),
    )


RUNS = NoteKind("run#", _run_to_facts, _run_from_facts, KEEP_SECONDS)
RUN_OF: NoteKind[str] = NoteKind(
    "run-of#", lambda run_id: {"run": run_id}, lambda facts: facts["run"], KEEP_SECONDS
)
RUNS_OF: NoteKind[list[str]] = NoteKind(
    "runs-of#",
    lambda run_ids: {"runs": ",".join(run_ids)},
    lambda facts: [one for one in facts["runs"].split(",") if one],
    KEEP_SECONDS,
)


@dataclass(slots=True)
class SubmittedRuns:
    """Starts runs and notes them in the ledger."""

    runs: JobRuns
    ledger: Ledger
    timeout_minutes: int = SPARK_TIMEOUT_MINUTES
    monotonic: Callable[[], float] = time.monotonic
    _looked: dict[str, tuple[float, RunState | None]] = field(default_factory=dict)

    def begin_job(
        self, job: Job, *, subject: str = "", then: OnCompletion = OnCompletion.FUNCTIONS
    ) -> str:
        """Start a run for one job, another one each time that it is reopened; return its id.

        Raises as `JobRuns.start`; then the run may have started.
        """
        subject = subject or job.id
        # Without `id`, the note's key, and `begun`, which `_begin` sets after the start.
        run = SubmittedRun("", subject, job.reopened, job.connector, job.id, (), then, 0.0)
        return self._begin(run, "--job", job.id, "--json")

    def begin_shared(
        self,
        subject: str,
        connector: str,
        addresses: Sequence[str],
        *,
        number: int = 0,
        then: OnCompletion = OnCompletion.RUN,
    ) -> str:
        """Start a run for all of a connector's objects at addresses; raises as `begin_job`."""
        run = SubmittedRun("", subject, number, connector, "", tuple(addresses), then, 0.0)
        return self._begin(run, "--connector", connector, "--json", *addresses)

    def find(self, run_id: str) -> SubmittedRun | None:
        """Return a noted run, or None."""
        found = RUNS.read(self.ledger.notes, run_id)
        return found and replace(found, id=run_id)

    def hold(self, job: Job) -> RunOwnership:
        """Return which kind of run owns a job."""
        try:
            own = run_of(self.ledger, job.id)
            if own is not None:
                # GONE, not NONE: the event of its end, which starts what follows, may be lost.
                return self._held(own, RunOwnership.OWN, RunOwnership.GONE)
            found = RunOwnership.NONE
            for run_id in self._shared(job.connector):
                started = self.find(run_id)
                if started is None or not started.may_have(job):
                    continue
                held = self._held(run_id, RunOwnership.SHARED, RunOwnership.NONE)
                if held is RunOwnership.SHARED:
                    return held
                found = RunOwnership.UNKNOWN if held is RunOwnership.UNKNOWN else found
        except ExtentflowError as exc:
            log.warning("job %s: cannot read whether a run owns it: %s", job.id, exc)
            return RunOwnership.UNKNOWN
        return found

    def forget(self, started: SubmittedRun) -> None:
        """Remove the ownership of a run that has ended."""
        if started.job:
            if run_of(self.ledger, started.job) == started.id:
                RUN_OF.clear(self.ledger.notes, started.job)
            return
        left = [one for one in self._shared(started.connector) if one != started.id]
        self._share(started.connector, left)

    def _begin(self, run: SubmittedRun, *arguments: str) -> str:
        """Start a run and note it under the id that the service gives; return that."""
        started = Run(
            subject=run.subject,
            number=run.number,
            arguments=arguments,
            timeout_minutes=self.timeout_minutes,
        )
        run_id = self.runs.start(started)
        try:
            RUNS.write(self.ledger.notes, run_id, replace(run, begun=self.ledger.now()))
            if run.job:
                RUN_OF.write(self.ledger.notes, run.job, run_id)
            else:
                others = [one for one in self._shared(run.connector) if one != run_id]
                self._share(run.connector, [run_id, *others][:MOST_SHARED])
        except ExtentflowError as exc:
            # It delivers all the same: a lost note only lets functions work beside the run.
            log.warning("run %s is started but could not be noted: %s", run_id, exc)
        return run_id

    def _held(self, run_id: str, alive: RunOwnership, over: RunOwnership) -> RunOwnership:
        state = self._state(run_id)
        if state is None:
            return RunOwnership.UNKNOWN
        return over if state.ended else alive

    def _state(self, run_id: str) -> RunState | None:
        """Return the state of a run; None if unknown."""
        now = self.monotonic()
        asked, state = self._looked.get(run_id, (float("-inf"), None))
        if now - asked < CACHE_SECONDS:
            return state
        try:
            state = self.runs.describe(run_id).state
        except ExtentflowError as exc:
            log.warning("cannot read the state of run %s: %s", run_id, exc)
            state = None
        fresh = {one: seen for one, seen in self._looked.items() if now - seen[0] < CACHE_SECONDS}
        self._looked = {**fresh, run_id: (now, state)}
        return state

    def _shared(self, connector: str) -> list[str]:
        return RUNS_OF.read(self.ledger.notes, connector) or []

    def _share(self, connector: str, run_ids: Sequence[str]) -> None:
        RUNS_OF.write(self.ledger.notes, connector, list(run_ids))


def run_of(ledger: Ledger, job_id: str) -> str | None:
    """Return the id of the job's own run; None without one, or after its end was processed."""
    return RUN_OF.read(ledger.notes, job_id)
