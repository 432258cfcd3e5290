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
from dataclasses import dataclass, field

from extentflow.config.worker import SPARK_TIMEOUT_MINUTES
from extentflow.engines.emr import JobRuns, Run, RunState
from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger
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
        address = f"{job.version.bucket}/{job.version.key}"
        return not self.addresses or any(address.startswith(_literal(a)) for a in self.addresses)


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
        run = self._run(subject or job.id, job.reopened, ("--job", job.id, "--json"))
        return self._begin(run, job.connector, job.id, (), then)

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
        run = self._run(subject, number, ("--connector", connector, "--json", *addresses))
        return self._begin(run, connector, "", tuple(addresses), then)

    def find(self, run_id: str) -> SubmittedRun | None:
        """Return a noted run, or None."""
        facts = self.ledger.notes.recall(_of_run(run_id))
        if not facts:
            return None
        return SubmittedRun(
            id=run_id,
            subject=facts["subject"],
            number=int(facts["number"]),
            connector=facts["connector"],
            job=facts["job"],
            addresses=tuple(json.loads(facts["addresses"])),
            then=OnCompletion(facts["then"]),
            begun=float(facts["begun"]),
        )

    def hold(self, job: Job) -> RunOwnership:
        """Return which kind of run owns a job."""
        try:
            own = run_of(self.ledger, job.id)
            if own is not None:
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
                self.ledger.notes.remember(_of_job(started.job), {})
            return
        left = [one for one in self._shared(started.connector) if one != started.id]
        self._share(started.connector, left)

    def _run(self, subject: str, number: int, arguments: Sequence[str]) -> Run:
        return Run(
            subject=subject,
            number=number,
            arguments=tuple(arguments),
            timeout_minutes=self.timeout_minutes,
        )

    def _begin(
        self, run: Run, connector: str, job: str, addresses: tuple[str, ...], then: OnCompletion
    ) -> str:
        run_id = self.runs.start(run)
        try:
            facts = {
                "subject": run.subject,
                "number": str(run.number),
                "connector": connector,
                "job": job,
                "addresses": json.dumps(addresses),
                "then": then,
                "begun": repr(self.ledger.now()),
            }
            self._note(_of_run(run_id), facts)
            if job:
                self._note(_of_job(job), {"run": run_id})
            else:
                others = [one for one in self._shared(connector) if one != run_id]
                self._share(connector, [run_id, *others][:MOST_SHARED])
        except ExtentflowError as exc:
            log.warning("run %s is started but could not be noted: %s", run_id, exc)
        return run_id

    def _held(self, run_id: str, alive: RunOwnership, over: RunOwnership) -> RunOwnership:
        state = self._state(run_id)
        if state is None:
            return RunOwnership.UNKNOWN
        return over if state.ended else alive

    def _state(self, run_id: str) -> RunState | None:
        """Return the state of a run, cached for a minute; None if unknown."""
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
        facts = self.ledger.notes.recall(_of_connector(connector)) or {}
        return [one for one in facts.get("runs", "").split(",") if one]

    def _share(self, connector: str, run_ids: Sequence[str]) -> None:
        self._note(_of_connector(connector), {"runs": ",".join(run_ids)})

    def _note(self, name: str, facts: Mapping[str, str]) -> None:
        self.ledger.notes.remember(name, facts, keep_seconds=KEEP_SECONDS)


def run_of(ledger: Ledger, job_id: str) -> str | None:
    """Return the id of the job's own run; None without one, or after its end was processed."""
    return (ledger.notes.recall(_of_job(job_id)) or {}).get("run")


def _literal(address: str) -> str:
    """Return the literal prefix of an address: `bucket/key` up to the first wildcard."""
    return re.split(r"[*?\[]", address.partition("://")[2], maxsplit=1)[0]


def _of_run(run_id: str) -> str:
    return f"run#{run_id}"


def _of_job(job_id: str) -> str:
    return f"run-of#{job_id}"


def _of_connector(connector: str) -> str:
    return f"runs-of#{connector}"
