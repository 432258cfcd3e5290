"""Runs of Spark that were started: what each is for, and which run has a job.

Owns: their notes in the ledger, what a run's state means for a job. Refuses to know: when a run is
wanted, what follows from its end (`routing`), EMR.

    run#RUN             what it is for, the how manieth, what follows its end
    run-of#JOB          the run that has this job
    runs-of#CONNECTOR   the runs that have whatever lies below their addresses

Notes are written after the start; like all notes they may be lost or stale without harm: then
nobody hears of a run's end, or functions work beside it, and whoever claims an extent has it.
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
# Runs of one connector that are remembered at once; those before are held by nobody.
MOST_SHARED = 16
# How long an answer of the service counts: a look at many jobs asks about each run once.
FRESH_SECONDS = 60.0


class RunOwnership(enum.Enum):
    """Whether a run of Spark has a job.

    OWN: a run of its own; SHARED: one of many, in which it may wait for its turn. GONE: its own run
    has ended. UNKNOWN: a run had it, and nobody says where that stands.
    """

    NOBODY = enum.auto()
    OWN = enum.auto()
    SHARED = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()


class OnCompletion(enum.StrEnum):
    """What follows where a run ends and leaves something: functions, another run, or a person."""

    FUNCTIONS = "functions"
    RUN = "run"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """What is known of a run. `job` is the one that it is for; empty: all below `addresses`.

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
        """Whether a job is this run's, as far as addresses tell."""
        if self.job:
            return job.id == self.job
        address = f"{job.version.bucket}/{job.version.key}"
        return not self.addresses or any(address.startswith(_literal(a)) for a in self.addresses)


@dataclass(slots=True)
class SubmittedRuns:
    """Starts runs, and remembers them."""

    runs: JobRuns
    ledger: Ledger
    timeout_minutes: int = SPARK_TIMEOUT_MINUTES
    monotonic: Callable[[], float] = time.monotonic
    _looked: dict[str, tuple[float, RunState | None]] = field(default_factory=dict)

    def begin_job(
        self, job: Job, *, subject: str = "", then: OnCompletion = OnCompletion.FUNCTIONS
    ) -> str:
        """Start a run for one job, another one each time that it is reopened; return its id.

        Raises as `JobRuns.start`; then the run may have begun.
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
        """Start a run for all that addresses mean to a connector; raises as `begin_job`."""
        run = self._run(subject, number, ("--connector", connector, "--json", *addresses))
        return self._begin(run, connector, "", tuple(addresses), then)

    def find(self, run_id: str) -> SubmittedRun | None:
        """Return what is known of a run; None where nobody here started it."""
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
        """Say which run has a job."""
        try:
            own = run_of(self.ledger, job.id)
            if own is not None:
                return self._held(own, RunOwnership.OWN, RunOwnership.GONE)
            found = RunOwnership.NOBODY
            for run_id in self._shared(job.connector):
                started = self.find(run_id)
                if started is None or not started.may_have(job):
                    continue
                held = self._held(run_id, RunOwnership.SHARED, RunOwnership.NOBODY)
                if held is RunOwnership.SHARED:
                    return held
                found = RunOwnership.UNKNOWN if held is RunOwnership.UNKNOWN else found
        except ExtentflowError as exc:
            log.warning("job %s: whether a run has it is unknown: %s", job.id, exc)
            return RunOwnership.UNKNOWN
        return found

    def forget(self, started: SubmittedRun) -> None:
        """Let nobody take a run that ended for one that has something."""
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
            log.warning("run %s is started, and could not be noted: %s", run_id, exc)
        return run_id

    def _held(self, run_id: str, alive: RunOwnership, over: RunOwnership) -> RunOwnership:
        state = self._state(run_id)
        if state is None:
            return RunOwnership.UNKNOWN
        return over if state.ended else alive

    def _state(self, run_id: str) -> RunState | None:
        """Return where a run stands, or stood a moment ago; None where nobody says."""
        now = self.monotonic()
        asked, state = self._looked.get(run_id, (float("-inf"), None))
        if now - asked < FRESH_SECONDS:
            return state
        try:
            state = self.runs.look(run_id).state
        except ExtentflowError as exc:
            log.warning("where run %s stands is unknown: %s", run_id, exc)
            state = None
        fresh = {one: seen for one, seen in self._looked.items() if now - seen[0] < FRESH_SECONDS}
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
    """Return the id of the run of a job's own; None where there is none, or its end was told."""
    return (ledger.notes.recall(_of_job(job_id)) or {}).get("run")


def _literal(address: str) -> str:
    """Return how whatever an address means begins: `bucket/key`, up to a glob's first wildcard."""
    return re.split(r"[*?\[]", address.partition("://")[2], maxsplit=1)[0]


def _of_run(run_id: str) -> str:
    return f"run#{run_id}"


def _of_job(job_id: str) -> str:
    return f"run-of#{job_id}"


def _of_connector(connector: str) -> str:
    return f"runs-of#{connector}"
