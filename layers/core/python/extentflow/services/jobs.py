"""Jobs as the ledger has them, and work for the deployed functions: submit and redrive."""

import builtins
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from heapq import nlargest
from typing import Any
from uuid import uuid4

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import AUTO, ENGINES, LAMBDA, SPARK
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import parse_notification
from extentflow.engines.submitted_runs import run_of
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.jobs.completion import FAILURES
from extentflow.jobs.planner import following_id
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import JobReport, known_job, report_of
from extentflow.ledger import ExtentItem, JobProgress
from extentflow.ledger.summaries import JobSummary, summaries, summary_of
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue import MOST_ADDRESSES, Backfill, Depth, Message, Queue
from extentflow.queue.redrive import RedriveResult, redrive
from extentflow.services.driving import require_reachable, unreachable_reason
from extentflow.services.failures import delivered_since
from extentflow.services.orders import Orders
from extentflow.services.run_control import RunControl
from extentflow.services.selections import Selections
from extentflow.wiring import Runtime, functions
from extentflow.wiring.arrivals import ARRIVALS, DEAD, has_own_queue, queue, queues
from extentflow.wiring.functions import FUNCTIONS
from extentflow.wiring.options import require_shared_ledger
from extentflow.wording import either, plain

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DEAD_EXTENTS = ("extents_dlq_url", "extents_queue_url")
DEAD_ARRIVALS = (DEAD, ARRIVALS)


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with its totals.

    `seconds` is the time from its registration to its end, or to now. `active`: a worker holds one
    of its extents; None where it ended.

    `list` adds the `cause` of its end: the first failed extent's, if there is one. A job has no
    cause where a later job delivers the object.

    `get` adds its extents by ordinal (one without an item is PENDING), its remote run,
    and why nothing is delivered now. It adds why `after.completion` failed, and the jobs that
    deliver the same version (`later`) and a later version (`newer`). It adds whether `replay`
    continues the job, whether a queue delivers it, and whether `-c` finds its connector.
    """

    job: Job
    report: JobReport
    cause: str = ""
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
class QueueDepths:
    """Depths of the configured queues; `unavailable` has the error of each that has no answer."""

    depths: dict[str, Depth] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """What was submitted; `backfill` is the id of the Spark run for all objects, if there is one.

    `skipped` says that the connector is paused or stopped, "" where it runs.
    """

    submitted: int
    backfill: str | None = None
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Jobs:
    """Reads jobs of a ledger and sends work to the queues of its stack."""

    runtime: Runtime

    def list(
        self, connector: str | None = None, *, state: JobState | None = None, limit: int = 50
    ) -> builtins.list[JobDetail]:
        """Return the newest jobs, newest first; Misconfigured for a connector that is unknown."""
        return [*self.find(JobFilter(connector, state), limit=limit).jobs]

    def find(self, chosen: JobFilter, *, limit: int = 50) -> JobList:
        """Return the newest jobs that match, and how many match; raises as `list`.

        Lists the connector's jobs, then reads what is shown in few requests; it may lag a little.
        """
        ledger = self.runtime.ledger
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
            self.runtime.connectors.latest(chosen.connector, deleted=True)
        facts = summaries(ledger, found)
        following = {job.id: following_id(job) for job in found if job.reason}
        followed = ledger.jobs.find_registered(following.values())
        working = self._working(found, facts)
        replaced = delivered_since(ledger, [job for job in found if job.state is JobState.FAILED])
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
                    active=job.id in working if job.state.open else None,
                )
            )
        return JobList(tuple(details), dict(states.most_common()))

    def get(self, job_id: str) -> JobDetail:
        """Return one job, by its id or its beginning; Misconfigured if none or several match."""
        ledger = self.runtime.ledger
        job = known_job(ledger, job_id)
        totals = ledger.jobs.progress(job.id)
        items = {item.ordinal: item for item in ledger.extents.list(job.id)}
        facts = {job.id: summary_of(job, totals, items.values())}
        ended = job.state in (JobState.FAILED, JobState.CANCELLED)
        later = self.runtime.planner().later(job) if ended else None
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
            queued=self.runtime.settings.extents_queue_url is not None,
            stored=ledger.connectors.get(job.connector) is not None,
        )

    def _detail(self, job: Job, totals: JobProgress) -> JobDetail:
        try:
            topic = self.runtime.connectors.topic_of(job)
        except Misconfigured:  # stored by another version, or lost
            topic = ""
        until = job.ended or max(job.created, self.runtime.clock.wall())
        return JobDetail(job, report_of(job, totals), topic=topic, seconds=until - job.created)

    def _working(self, jobs: Sequence[Job], facts: Mapping[str, JobSummary]) -> set[str]:
        """Return the jobs of which a worker, whose lease has not ended, holds an extent."""
        ledger = self.runtime.ledger
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

    def queue_depths(self) -> QueueDepths:
        """Return the depths of the stack's queues; one unavailable queue hides no other."""
        found = QueueDepths()
        for name, messages in queues(self.runtime):
            try:
                found.depths[name] = messages.depth()
            except ExtentflowError as exc:
                found.unavailable[name] = str(exc)
        return found

    def submit(
        self,
        addresses: Sequence[str] = (),
        *,
        connector: str | None = None,
        engine: str = AUTO,
        control: RunControl | None = None,
    ) -> Submission:
        """Announce objects to the planner function, or have one Spark run deliver them all.

        Without `connector`, every address names a single object. Nothing was sent if it raises.
        """
        require_engine(engine, connector)
        require_shared_ledger(self.runtime.settings, FUNCTIONS)
        if connector is None:
            named = [_bucket_and_key(address) for address in addresses]
            return self._announce([_body(*one) for one in named])
        order = Orders.of(self.runtime).stored(connector, addresses)
        config = order.config
        if engine == SPARK:
            require_reachable(config, addresses)  # before objects are listed
        arrivals = self._arrivals()  # before a long listing finds that there is no queue
        versions = list(Selections(self.runtime, control or RunControl()).objects(order))
        skipped = skip_reason(self.runtime.ledger, connector)
        few = len(addresses) <= MOST_ADDRESSES or engine == SPARK
        if versions and few and self._takes_one_run(config, versions, engine):
            backfill = _backfill(config, addresses)
            arrivals.send([json.dumps(backfill.to_message(), separators=(",", ":"))])
            return Submission(len(versions), backfill.id, skipped)
        bodies = [_body(one.bucket, one.key, one.version_id) for one in versions]
        arrivals.send(bodies)
        return Submission(len(bodies), skipped=skipped)

    def submit_event(self, document: str, *, name: str = "the notification") -> Submission:
        """Send an object-created notification, as a store sends it; `name` is for messages."""
        parsed = parse_notification(document)
        problems = [str(problem) for problem in parsed.unparseable]
        if not problems and not parsed.arrivals:
            problems = [f"{name} announces no object: {[*parsed.ignored, *parsed.tests]}"]
        if problems:
            raise Misconfigured(problems)
        return self._announce([document])

    def redrive(
        self, job_id: str | None = None, *, since: str | None = None, dry_run: bool = False
    ) -> RedriveResult:
        """Send messages of the dead letter queues again; a job's only from the extents' one.

        `since` is an age such as 2h or 3d: only messages dead-lettered since then.
        """
        job = known_job(self.runtime.ledger, job_id).id if job_id else None
        oldest = parse_since(since, time.time())

        def wanted(message: Message) -> bool:
            return message.sent >= oldest and job in (None, job_of(message))

        pairs = [DEAD_EXTENTS] if job else [DEAD_EXTENTS, DEAD_ARRIVALS]
        if has_own_queue(self.runtime) and self.runtime.settings.extents_queue_url is None:
            if job:
                raise Misconfigured(
                    f"job {job} has no messages, because there is no extents queue;"
                    f" `extentflow replay {job}` delivers the rest of it"
                )
            pairs = [DEAD_ARRIVALS]
        between = [(queue(self.runtime, dead), queue(self.runtime, back)) for dead, back in pairs]
        found = [redrive(*both, wanted=wanted, dry_run=dry_run) for both in between]
        moved = tuple(message for one in found for message in one.moved)
        # In a dry run, each queue's `left` includes what would be resent.
        left = sum(one.left for one in found) - (len(moved) if dry_run else 0)
        return RedriveResult(moved, left)

    def _announce(self, bodies: Sequence[str]) -> Submission:
        self._arrivals().send(bodies)
        return Submission(len(bodies))

    def _arrivals(self) -> Queue:
        try:
            return functions.queue(self.runtime.settings, ARRIVALS)
        except Misconfigured as exc:
            raise Misconfigured(
                f"{exc}; in a checkout of the project, `extentflow serve` makes queues on this"
                " machine, and `extentflow stack --env` names them. Without queues, `extentflow"
                " run` delivers"
            ) from exc

    def _takes_one_run(
        self, config: ConnectorConfig, versions: Sequence[ObjectVersion], engine: str
    ) -> bool:
        """Return whether all objects go to one Spark run: as asked, else by engine and size."""
        settings = self.runtime.settings
        if engine != AUTO:
            return engine == SPARK
        excluded = settings.spark_application_id is None or config.engine == LAMBDA
        if excluded or len(versions) == 1 or unreachable_reason(config):
            return False
        total = sum(version.size for version in versions)
        return config.engine == SPARK or total > settings.spark_threshold_bytes


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


def require_engine(engine: str, connector: str | None) -> None:
    """Raise Misconfigured where a submission's engine is unknown or needs a connector."""
    if engine not in ENGINES:
        raise Misconfigured(f"--engine {engine}: write {either(ENGINES)}")
    if engine == SPARK and connector is None:
        raise Misconfigured("--engine spark goes with --connector")


def job_of(message: Message) -> str | None:
    """Return the job of an extent's message; arrivals have none."""
    try:
        found = json.loads(message.body)
    except ValueError:
        return None
    job = found.get("job") if isinstance(found, dict) else None
    return job if isinstance(job, str) else None


def _backfill(config: ConnectorConfig, addresses: Sequence[str]) -> Backfill:
    require_reachable(config, addresses)
    return Backfill(uuid4().hex, config.name, tuple(addresses))


def _body(bucket: str, key: str, version_id: str | None = None) -> str:
    arrival = Arrival(bucket, key, Dialect.COMMAND, version_id=version_id)
    return json.dumps(arrival.to_message(), separators=(",", ":"))


def _bucket_and_key(address: str) -> tuple[str, str]:
    scheme, _, path = address.partition("://")
    bucket, _, key = path.partition("/")
    if scheme not in {"s3", "s3a"} or not bucket or not key or key.endswith("/"):
        raise Misconfigured(
            f"{address} is no object's address; write s3://bucket/key, or give --connector to "
            "submit all below a prefix"
        )
    return bucket, key
