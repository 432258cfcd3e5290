"""Jobs as the ledger has them, and work for the deployed functions: submit and redrive."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from uuid import uuid4

from extentflow.config.connector import AUTO, ENGINES, LAMBDA, SPARK, ConnectorConfig
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import parse_notification
from extentflow.engines.emr.submitted import run_of
from extentflow.errors import ExtentflowError, Misconfigured, either
from extentflow.jobs.completion import FAILURES
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import JobReport, known_job, report
from extentflow.ledger import ExtentItem, failure_reason
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue import MOST_ADDRESSES, Backfill, Depth, Message, Queue
from extentflow.queue.redrive import RedriveResult, redrive
from extentflow.services.runs import RunControl, Runs, require_reachable, unreachable_reason
from extentflow.wiring import Runtime
from extentflow.wiring.functions import FUNCTIONS, queue, queues
from extentflow.wiring.options import require_shared_ledger

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
EXTENTS = ("extents_dlq_url", "extents_queue_url")
ARRIVALS = ("arrivals_dlq_url", "arrivals_queue_url")


@dataclass(frozen=True, slots=True)
class JobDetail:
    """A job with its totals.

    `list` adds the `cause` of its end, the first failed extent's where there is one, and none if a
    later job delivers the object: another generation, or a newer one of the list. `get` adds its
    extents by ordinal (one without an item is PENDING), its run on EMR Serverless, why nothing is
    delivered now, why `after.completion` failed, and whether `replay` is what continues it.
    """

    job: Job
    report: JobReport
    cause: str = ""
    extents: dict[int, ExtentItem] = field(default_factory=dict)
    run: str | None = None
    skipped: str = ""
    completion: str = ""
    replayable: bool = False


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
    ) -> list[JobDetail]:
        """Return the newest jobs, newest first; Misconfigured for a connector that is unknown."""
        ledger = self.runtime.ledger
        found = nlargest(limit, ledger.jobs.list(connector, state), key=lambda job: job.created)
        if not found and connector is not None:
            # An unknown name is a mistake.
            self.runtime.connectors.latest(connector, deleted=True)
        planner = self.runtime.planner()
        details: list[JobDetail] = []
        listed: set[tuple[str, str, str]] = set()
        for job in found:
            target = (job.connector, job.version.bucket, job.version.key)
            cause = ""
            if job.reason and target not in listed and not planner.is_followed(job):
                cause = failure_reason(ledger, job)
            listed.add(target)
            details.append(JobDetail(job, report(ledger, job), cause))
        return details

    def get(self, job_id: str) -> JobDetail:
        """Return one job, by its id or its beginning; Misconfigured if none or several match."""
        ledger = self.runtime.ledger
        job = known_job(ledger, job_id)
        items = {item.ordinal: item for item in ledger.extents.list(job.id)}
        skipped = skip_reason(ledger, job.connector) if job.state.open else ""
        ended = job.state in (JobState.FAILED, JobState.CANCELLED)
        return JobDetail(
            job,
            report(ledger, job),
            extents=items,
            run=run_of(ledger, job.id),
            skipped=skipped,
            completion=FAILURES.read(ledger.notes, job.id) or "",
            replayable=ended and not self.runtime.planner().is_followed(job),
        )

    def queue_depths(self) -> QueueDepths:
        """Return the depths of the stack's queues; one unavailable queue hides no other."""
        found = QueueDepths()
        for name, messages in queues(self.runtime.settings):
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
        config, revision = self.runtime.connectors.latest(connector)
        if engine == SPARK:
            require_reachable(config, addresses)  # before objects are listed
        arrivals = self._arrivals()  # before a long listing finds that there is no queue
        runs = Runs(self.runtime, control or RunControl())
        versions = list(runs.select(config, revision, addresses))
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
        """Send messages of both dead letter queues again; a job's only from the extents' one.

        `since` is an age such as 2h or 3d: only messages dead-lettered since then.
        """
        job = known_job(self.runtime.ledger, job_id).id if job_id else None
        oldest = 0.0
        if since:
            age = re.fullmatch(r"(\d+)([smhd])", since)
            if age is None:
                raise Misconfigured(f"--since {since}: write a number and s, m, h or d, as in 2h")
            oldest = time.time() - int(age[1]) * SECONDS[age[2]]

        def wanted(message: Message) -> bool:
            return message.sent >= oldest and job in (None, job_of(message))

        settings = self.runtime.settings
        found = [
            redrive(queue(settings, dead), queue(settings, back), wanted=wanted, dry_run=dry_run)
            for dead, back in ([EXTENTS] if job else [EXTENTS, ARRIVALS])
        ]
        moved = tuple(message for one in found for message in one.moved)
        # In a dry run, each queue's `left` includes what would be resent.
        left = sum(one.left for one in found) - (len(moved) if dry_run else 0)
        return RedriveResult(moved, left)

    def _announce(self, bodies: Sequence[str]) -> Submission:
        self._arrivals().send(bodies)
        return Submission(len(bodies))

    def _arrivals(self) -> Queue:
        try:
            return queue(self.runtime.settings, "arrivals_queue_url")
        except Misconfigured as exc:
            raise Misconfigured(
                f"{exc}; on this machine `extentflow serve` makes queues, and `extentflow stack "
                "--env` names them. Without queues, `extentflow run` delivers"
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
