"""Jobs as the ledger has them: list and get."""

import builtins
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any

from extentflow.config.worker import WorkerSettings
from extentflow.engines.submitted_runs import run_of
from extentflow.errors import Misconfigured
from extentflow.jobs.completion import FAILURES
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import Planner
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import JobReport, known_job, report_of
from extentflow.ledger import ExtentItem, JobProgress, Ledger
from extentflow.ledger.summaries import LeasedWork, leased_work, summaries, summary_of
from extentflow.model import Job, JobState
from extentflow.services.failures import ENDED, delivered_since, is_unfinished, later_jobs
from extentflow.wording import plain

# In the order in which jobs pass through them: one that ends meanwhile is seen later.
UNDELIVERED = (JobState.PLANNING, JobState.RUNNING, *ENDED, JobState.SUPERSEDED)
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with its totals.

    `seconds` is the time from its registration to its end, or to now. `active`: a worker holds one
    of its extents; None where it ended. `may_go_on`: none does, but a worker that is between two
    extents may claim one.

    `list` adds the `cause` of its end: the first failed extent's, if there is one. A job has no
    cause where a later job delivers the object. `delivered_by`: it FAILED or is CANCELLED, and this
    job delivered its object since, in the same version or another one.

    `get` adds its extents by ordinal (one without an item is PENDING), its remote run,
    and why nothing is delivered now. It adds why `after.completion` failed, and the jobs that
    deliver the same version (`later`) and a later version (`newer`). It adds whether `replay`
    continues the job, whether a queue delivers it, and whether `-c` finds its connector.
    """

    job: Job
    report: JobReport
    cause: str = ""
    delivered_by: str = ""
    extents: dict[int, ExtentItem] = field(default_factory=dict)
    run: str | None = None
    skipped: str = ""
    completion: str = ""
    later: Job | None = None
    newer: Job | None = None
    replayable: bool = False
    topic: str = ""
    seconds: float = 0.0
    active: bool | None = None
    may_go_on: bool = False
    queued: bool = False
    stored: bool = True

    @property
    def followed(self) -> bool:
        """Whether it FAILED or is CANCELLED, and its object was delivered since."""
        return bool(self.delivered_by)

    @property
    def rate(self) -> float:
        """Records per second from its registration on."""
        return self.report.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def open(self) -> bool:
        """Whether it can still change."""
        return self.job.state.open

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready values; times are in UTC."""
        return {
            **asdict(self.report),
            "topic": self.topic,
            "generation": self.job.generation,
            "created": _utc(self.job.created),
            "ended": _utc(self.job.ended) if self.job.ended else None,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.rate, 1),
            "active": self.active,
            "cause": self.cause,
            "delivered_by": self.delivered_by or None,
        }


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are shown: of a connector, a state, keys or addresses that begin with `prefix`.

    `since` is in seconds since the epoch; jobs match that began or ended since. `undelivered`: only
    open jobs, and those that ended without their object, which no later job has.
    """

    connector: str | None = None
    state: JobState | None = None
    prefix: str = ""
    since: float = 0.0
    undelivered: bool = False

    def matches(self, job: Job) -> bool:
        """Return whether a job of that connector and state matches."""
        name = job.version.uri if "://" in self.prefix else job.version.key
        return max(job.created, job.ended) >= self.since and name.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class InterruptedJobs:
    """Open jobs of a connector of which no worker holds an extent now.

    They were interrupted, or a driver plans or waits. `may_go_on`: a worker that is between two
    extents may claim one of them. `stored`: `run -c` continues them. `held` says that the connector
    is paused or stopped.
    """

    connector: str
    count: int
    stored: bool
    held: str = ""
    may_go_on: bool = False


@dataclass(frozen=True, slots=True)
class JobList:
    """The newest of the jobs that match, and how many match by state.

    Of all that match, those that ended without their object (`is_unfinished`) are counted by state.
    `delivered` has those whose object a later job delivered, `undelivered` those without a later
    job.
    """

    jobs: tuple[JobDetail, ...]
    states: Mapping[str, int]
    delivered: Mapping[str, int] = field(default_factory=dict)
    undelivered: Mapping[str, int] = field(default_factory=dict)
    interrupted: tuple[InterruptedJobs, ...] = ()
    only_undelivered: bool = False

    @property
    def matching(self) -> int:
        """How many jobs match, shown or not."""
        return sum(self.states.values())

    @property
    def open(self) -> bool:
        """Whether a job that matches can still change, or the first one is still to come."""
        awaited = not self.states and not self.only_undelivered
        return awaited or any(JobState(state).open for state in self.states)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Reads jobs of a ledger; `settings` are those of this process."""

    ledger: Ledger
    connectors: ConnectorCatalogue
    planner: Planner
    settings: WorkerSettings

    def list(
        self, connector: str | None = None, *, state: JobState | None = None, limit: int = 50
    ) -> builtins.list[JobDetail]:
        """Return the newest jobs, newest first; Misconfigured for a connector that is unknown."""
        return [*self.find(JobFilter(connector, state), limit=limit).jobs]

    def find(self, chosen: JobFilter, *, limit: int = 50) -> JobList:
        """Return the newest jobs that match, and how many match; raises as `list`.

        Lists the connector's jobs, then reads what is shown in few requests; it may lag a little.
        """
        ledger = self.ledger
        known = _Matching(ledger, chosen)
        if chosen.undelivered:
            candidates = list(known.jobs())
            later = later_jobs(ledger, known.ended)
            known.states = Counter(job.state for job in candidates if job.id not in later)
            candidates = [job for job in candidates if job.id not in later]
            found = nlargest(limit, candidates, key=lambda job: job.created)
        else:
            found = nlargest(limit, known.jobs(), key=lambda job: job.created)
            later = later_jobs(ledger, known.ended)
        if not found and chosen.connector is not None:
            # An unknown name is a mistake.
            self.connectors.latest(chosen.connector, deleted=True)
        facts = summaries(ledger, found)
        working = leased_work(ledger, {job.cluster for job in known.open})
        details: builtins.list[JobDetail] = []
        listed: set[tuple[str, str, str]] = set()
        for job in found:
            target = (job.connector, job.version.bucket, job.version.key)
            since = later.get(job.id)
            done = since is not None and since.state is JobState.DONE
            shown = target not in listed and not (since and (done or since.version == job.version))
            listed.add(target)
            details.append(
                replace(
                    self._detail(job, facts[job.id].progress),
                    cause=facts[job.id].cause if job.reason and shown else "",
                    delivered_by=since.id if since and done and job.state in ENDED else "",
                    active=job.id in working.jobs if job.state.open else None,
                )
            )
        ended = [job for job in known.ended if is_unfinished(job)]
        since_done = {key for key, one in later.items() if one.state is JobState.DONE}
        return JobList(
            tuple(details),
            dict(known.states.most_common()),
            delivered=_by_state(job for job in ended if job.id in since_done),
            undelivered=_by_state(job for job in ended if job.id not in later),
            interrupted=self._interrupted(known.open, working),
            only_undelivered=chosen.undelivered,
        )

    def _interrupted(
        self, open_jobs: Sequence[Job], working: LeasedWork
    ) -> tuple[InterruptedJobs, ...]:
        """Return the connectors with open jobs of which no worker holds an extent.

        None where a queue delivers them: their messages wait for functions.
        """
        if self.settings.extents_queue_url is not None:
            return ()
        ledger, own = self.ledger, {job.id for job in open_jobs}
        # A filter may leave out the jobs that are in work.
        others = ledger.jobs.get_many(job_id for job_id in working.jobs if job_id not in own)
        busy = {job.connector for job in open_jobs if job.id in working.jobs}
        busy |= {job.connector for job in others}
        counts = Counter(job.connector for job in open_jobs if job.connector not in busy)
        between = {job.connector for job in open_jobs if job.cluster in working.idle}
        return tuple(
            InterruptedJobs(
                name,
                count,
                stored=ledger.connectors.get(name) is not None,
                held=skip_reason(ledger, name),
                may_go_on=name in between,
            )
            for name, count in counts.most_common()
        )

    def get(self, job_id: str) -> JobDetail:
        """Return one job, by its id or its beginning; Misconfigured if none or several match."""
        ledger = self.ledger
        job = known_job(ledger, job_id)
        totals = ledger.jobs.progress(job.id)
        items = {item.ordinal: item for item in ledger.extents.list(job.id)}
        summary = summary_of(job, totals, items.values())
        ended = job.state in (JobState.FAILED, JobState.CANCELLED)
        later = self.planner.later(job) if ended else None
        newer = delivered_since(ledger, [job]).get(job.id) if ended else None
        working = leased_work(ledger, [job.cluster]) if job.state.open else LeasedWork()
        return replace(
            self._detail(job, summary.progress),
            extents=items,
            run=run_of(ledger, job.id),
            skipped=skip_reason(ledger, job.connector) if job.state.open else "",
            completion=FAILURES.read(ledger.notes, job.id) or "",
            later=later,
            newer=newer,
            # Without versions, the bytes that the job is pinned to do not exist any more.
            replayable=ended and not later and not (newer and job.version.version_id is None),
            active=job.id in working.jobs if job.state.open else None,
            may_go_on=job.id not in working.jobs and job.cluster in working.idle,
            queued=self.settings.extents_queue_url is not None,
            stored=ledger.connectors.get(job.connector) is not None,
        )

    def _detail(self, job: Job, totals: JobProgress) -> JobDetail:
        try:
            topic = self.connectors.topic_of(job)
        except Misconfigured:  # stored by another version, or lost
            topic = ""
        until = job.ended or max(job.created, self.planner.clock.wall())
        return JobDetail(job, report_of(job, totals), topic=topic, seconds=until - job.created)


@dataclass(slots=True)
class _Matching:
    """Lists the jobs that match, once, and keeps those that are `open` or `ended` but not DONE."""

    ledger: Ledger
    chosen: JobFilter
    states: Counter[str] = field(default_factory=Counter)
    open: list[Job] = field(default_factory=list)
    ended: list[Job] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs, those with a state that `undelivered` leaves out aside."""
        chosen, jobs = self.chosen, self.ledger.jobs
        states: Sequence[JobState | None] = (chosen.state,)
        if chosen.undelivered:
            states = [state for state in UNDELIVERED if chosen.state in (None, state)]
        for job in (job for state in states for job in jobs.list(chosen.connector, state)):
            # One whose state changes meanwhile may be listed twice.
            left = not chosen.undelivered or job.state.open or is_unfinished(job)
            if left and chosen.matches(job) and job.id not in self._known:
                self._known.add(job.id)
                self.states[job.state] += 1
                if job.state.open:
                    self.open.append(job)
                elif job.state is not JobState.DONE:
                    self.ended.append(job)
                yield job


def _by_state(jobs: Iterable[Job]) -> dict[str, int]:
    return dict(Counter(str(job.state) for job in jobs).most_common())


def parse_since(text: str | None, now: float) -> float:
    """Return seconds since the epoch for an age such as 2h or 3d, or for a date and time.

    Without a zone it is that of this machine. Nothing is the beginning. Raises Misconfigured.
    """
    if not text:
        return 0.0
    if age := re.fullmatch(r"(\d+)([smhd])", text):
        return now - int(age[1]) * SECONDS[age[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (OverflowError, ValueError):
        raise Misconfigured(
            f"--since {plain(text)}: write a number and s, m, h or d, as in 2h, or a time, as in"
            " 2026-11-26T08:00:00Z"
        ) from None


def _utc(seconds: float) -> str:
    found = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return found.replace("+00:00", "Z")
