"""Submitted runs: starts them, notes what each is for, and returns which run owns a job.

    run#RUN        what the run is for, its number, what follows its end
    runs-of#WHAT   WHAT is `job/ID`: the job's own run; or a connector: the runs that deliver all
                   objects below their addresses

Notes are written after the start, and may be lost or stale without harm. Then a run's end starts
nothing, or functions work beside the run. Each extent belongs to the worker that claims it.

Tests: unit/queue/test_routing.py, unit/discovery/test_stalled_jobs.py
"""

from __future__ import annotations

import enum
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from extentflow.config.worker import SPARK_TIMEOUT_MINUTES
from extentflow.engines.remote import JobRuns, Run, RunGone, RunState
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
    """Which kind of run owns a job."""

    NONE = enum.auto()
    OWN = enum.auto()  # the job's own run
    SHARED = enum.auto()  # a run with other jobs, where it may wait for its turn
    GONE = enum.auto()  # its own run, which has ended
    UNKNOWN = enum.auto()  # the state of its run cannot be read


class OnCompletion(enum.StrEnum):
    """What delivers the rest after a run's end: functions, another run, or a person's command."""

    FUNCTIONS = "functions"
    RUN = "run"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedRun:
    """A noted run of one `job`, or of all below `addresses`; `begun` at this time of the ledger."""

    id: str = ""
    subject: str
    number: int
    connector: str
    job: str = ""
    addresses: tuple[str, ...] = ()
    then: OnCompletion
    begun: float = 0.0

    @property
    def owned(self) -> str:
        """What it delivers, as the key of a note."""
        return f"job/{self.job}" if self.job else self.connector

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


def _to_facts(run: SubmittedRun) -> dict[str, str]:
    known = [(name, value) for name, value in asdict(run).items() if name != "id"]  # the key
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in known}


def _from_facts(facts: Mapping[str, str]) -> SubmittedRun:
    return SubmittedRun(
        **{name: facts[name] for name in ("subject", "connector", "job")},
        number=int(facts["number"]),
        addresses=tuple(json.loads(facts["addresses"])),
        then=OnCompletion(facts["then"]),
        begun=float(facts["begun"]),
    )


RUNS = NoteKind("run#", _to_facts, _from_facts, KEEP_SECONDS)
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
        """Start a run for a job, another one after a reopening; raises as `JobRuns.start`."""
        name = subject or job.id
        run = SubmittedRun(
            subject=name, number=job.reopened, connector=job.connector, job=job.id, then=then
        )
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
        found = tuple(addresses)
        run = SubmittedRun(
            subject=subject, number=number, connector=connector, addresses=found, then=then
        )
        return self._begin(run, "--connector", connector, "--json", *addresses)

    def find(self, run_id: str) -> SubmittedRun | None:
        """Return a noted run, or None."""
        found = RUNS.read(self.ledger.notes, run_id)
        return found and replace(found, id=run_id)

    def ownership(self, job: Job) -> RunOwnership:
        """Return which kind of run owns a job."""
        try:
            if own := run_of(self.ledger, job.id):
                # GONE, not NONE: the event of its end, which starts what follows, may be lost.
                return self._held(own, RunOwnership.OWN, RunOwnership.GONE)
            found = RunOwnership.NONE
            for run_id in RUNS_OF.read(self.ledger.notes, job.connector) or ():
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
        noted = RUNS_OF.read(self.ledger.notes, started.owned) or []
        if started.id in noted:
            left = [one for one in noted if one != started.id]
            RUNS_OF.write(self.ledger.notes, started.owned, left)

    def _begin(self, run: SubmittedRun, *arguments: str) -> str:
        """Start a run and note it under the id that the service gives; return that."""
        run_id = self.runs.start(Run(run.subject, run.number, arguments, self.timeout_minutes))
        try:
            notes = self.ledger.notes
            RUNS.write(notes, run_id, replace(run, begun=self.ledger.now()))
            others = [] if run.job else RUNS_OF.read(notes, run.owned) or []
            kept = dict.fromkeys([run_id, *others])
            RUNS_OF.write(notes, run.owned, list(kept)[:MOST_SHARED])
        except ExtentflowError as exc:
            # It delivers all the same: a lost note only lets functions work beside the run.
            log.warning("run %s is started but could not be noted: %s", run_id, exc)
        return run_id

    def _held(self, run_id: str, alive: RunOwnership, over: RunOwnership) -> RunOwnership:
        now = self.monotonic()
        fresh = {one: seen for one, seen in self._looked.items() if now - seen[0] < CACHE_SECONDS}
        if run_id not in fresh:
            try:
                fresh[run_id] = (now, self.runs.describe(run_id).state)
            except RunGone as exc:
                # Of an application that was replaced, for example: it delivers nothing any more.
                log.warning("run %s owns no job any more: %s", run_id, exc)
                fresh[run_id] = (now, RunState.CANCELLED)
            except ExtentflowError as exc:
                log.warning("cannot read the state of run %s: %s", run_id, exc)
                fresh[run_id] = (now, None)
        self._looked = fresh
        state = fresh[run_id][1]
        if state is None:
            return RunOwnership.UNKNOWN
        return over if state.ended else alive


def run_of(ledger: Ledger, job_id: str) -> str | None:
    """Return the id of the job's own run; None without one, or after its end was processed."""
    return next(iter(RUNS_OF.read(ledger.notes, f"job/{job_id}") or ()), None)
