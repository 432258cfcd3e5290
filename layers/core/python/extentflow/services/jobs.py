"""Jobs as the ledger has them: list and get."""

import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any

from extentflow.config.worker import WorkerSettings
from extentflow.engines.submitted_runs import run_of
from extentflow.errors import Misconfigured
from extentflow.jobs.completion import FAILURES
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import Planner, following_id
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import JobReport, known_job, report_of
from extentflow.ledger import ExtentItem, JobProgress, Ledger
from extentflow.ledger.summaries import JobSummary, summaries, summary_of
from extentflow.model import Job, JobState
from extentflow.services.failures import delivered_since
from extentflow.wording import plain

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with its totals.

    `seconds` is the time from its registration to its end, or to now. `active`: a worker holds one
    of its extents; None where it ended.

    `list` adds the `cause` of its end: the first failed extent's, if there is one. A job has no
    cause where a later job delivers the object. `followed`: it FAILED, and the next job of its
    version, or one of a later version, is DONE.

    `get` adds its extents by ordinal (one without an item is PENDING), its remote run,
    and why nothing is delivered now. It adds why `after.completion` failed, and the jobs that
    deliver the same version (`later`) and a later version (`newer`). It adds whether `replay`
    continues the job, whether a queue delivers it, and whether `-c` finds its connector.
    """

    job: Job
    report: JobReport
    cause: str = ""
    followed: bool = False
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
    queued: bool = False
    stored: bool = True

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
        }


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are shown: of a connector, a state, keys or addresses that begin with `prefix`.

    `since` is in seconds since the epoch; jobs match that began or ended since.
    """

    connector: str | None = None
    state: JobState | None = None
    prefix: str = ""
    since: float = 0.0

    def matches(self, job: Job) -> bool:
        """Return whether a job of that connector and state matches."""
        name = job.version.uri if "://" in self.prefix else job.version.key
        return max(job.created, job.ended) >= self.since and name.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class JobList:
    """The newest of the jobs that match, and how many match by state."""

    jobs: tuple[JobDetail, ...]
    states: Mapping[str, int]

    @property
    def matching(self) -> int:
        """How many jobs match, shown or not."""
        return sum(self.states.values())

    @property
    def open(self) -> bool:
        """Whether a job that matches can still change, or the first one is still to come."""
        return not self.states or any(JobState(state).open for state in self.states)


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
        states: Counter[str] = Counter()
        known: set[str] = set()

        def counted() -> Iterator[Job]:
            for job in ledger.jobs.list(chosen.connector, chosen.state):
                # One whose state changes meanwhile may be listed twice.
                if chosen.matches(job) and job.id not in known:
                    known.add(job.id)
                    states[job.state] += 1
                    yield job

        found = nlargest(limit, counted(), key=lambda job: job.created)
        if not found and chosen.connector is not None:
            # An unknown name is a mistake.
            self.connectors.latest(chosen.connector, deleted=True)
        facts = summaries(ledger, found)
        following = {job.id: following_id(job) for job in found if job.reason}
        followed = ledger.jobs.find_registered(following.values())
        working = self._working(found, facts)
        failed = [job for job in found if job.state is JobState.FAILED]
        replaced = delivered_since(ledger, failed)
        again = {following.get(job.id, "") for job in failed} & followed
        done = {job.id for job in ledger.jobs.get_many(again) if job.state is JobState.DONE}
        settled = {job.id for job in failed if following.get(job.id) in done} | {*replaced}
        details: builtins.list[JobDetail] = []
        listed: set[tuple[str, str, str]] = set()
        for job in found:
            target = (job.connector, job.version.bucket, job.version.key)
            since = following.get(job.id) in followed or job.id in replaced
            shown = job.reason and target not in listed and not since
            listed.add(target)
            details.append(
                replace(
                    self._detail(job, facts[job.id].progress),
                    cause=facts[job.id].cause if shown else "",
                    followed=job.id in settled,
                    active=job.id in working if job.state.open else None,
                )
            )
        return JobList(tuple(details), dict(states.most_common()))

    def get(self, job_id: str) -> JobDetail:
        """Return one job, by its id or its beginning; Misconfigured if none or several match."""
        ledger = self.ledger
        job = known_job(ledger, job_id)
        totals = ledger.jobs.progress(job.id)
        items = {item.ordinal: item for item in ledger.extents.list(job.id)}
        facts = {job.id: summary_of(job, totals, items.values())}
        ended = job.state in (JobState.FAILED, JobState.CANCELLED)
        later = self.planner.later(job) if ended else None
        newer = delivered_since(ledger, [job]).get(job.id) if ended else None
        return replace(
            self._detail(job, facts[job.id].progress),
            extents=items,
            run=run_of(ledger, job.id),
            skipped=skip_reason(ledger, job.connector) if job.state.open else "",
            completion=FAILURES.read(ledger.notes, job.id) or "",
            later=later,
            newer=newer,
            # Without versions, the bytes that the job is pinned to do not exist any more.
            replayable=ended and not later and not (newer and job.version.version_id is None),
            active=bool(self._working([job], facts)) if job.state.open else None,
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

    def _working(self, jobs: Sequence[Job], facts: Mapping[str, JobSummary]) -> set[str]:
        """Return the jobs of which a worker, whose lease has not ended, holds an extent."""
        ledger = self.ledger
        claims = {
            (job.cluster, item.claim.slot, item.claim.epoch): job.id
            for job in jobs
            for item in (facts[job.id].claimed if job.state.open else ())
            if item.claim is not None
        }
        now = ledger.now() if claims else 0.0
        clusters = {cluster for cluster, _, _ in claims}
        slots = (slot for cluster in clusters for slot in ledger.slots.list(cluster))
        held = ((slot.cluster, slot.number, slot.epoch) for slot in slots if slot.until > now)
        return {claims[place] for place in held if place in claims}


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
