"""Work for the deployed functions: submit objects, redrive dead letters, depths of queues."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import AUTO, ENGINES, LAMBDA, SPARK
from extentflow.config.worker import WorkerSettings
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import ParsedNotification, parse_notification
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import known_job
from extentflow.ledger import Ledger
from extentflow.model import ObjectVersion
from extentflow.queue import MOST_ADDRESSES, Backfill, Depth, Message, Queue
from extentflow.queue.redrive import RedriveResult, redrive
from extentflow.services.driving import require_reachable, unreachable_reason
from extentflow.services.jobs import parse_since
from extentflow.services.orders import Orders
from extentflow.services.run_control import RunControl
from extentflow.services.selections import Selections
from extentflow.wiring.arrivals import ARRIVALS, DEAD, StackQueues
from extentflow.wiring.functions import FUNCTIONS
from extentflow.wiring.options import require_shared_ledger
from extentflow.wording import either, plain

DEAD_EXTENTS = ("extents_dlq_url", "extents_queue_url")
DEAD_ARRIVALS = (DEAD, ARRIVALS)


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """Depths of the configured queues; `unavailable` has the error of each that has no answer."""

    depths: dict[str, Depth] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """What was submitted; `backfill` is the id of the Spark run for all objects, if there is one.

    `skipped` says that the connector is paused or stopped, "" where it is enabled. `unread` are
    addresses that no connector reads, `unchecked` those of which it is not known whether they
    exist; only the first one has the reason.
    """

    submitted: int
    backfill: str | None = None
    skipped: str = ""
    unread: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submissions:
    """Sends work to the queues of a stack.

    The callables open what only some calls use: the planner function's queue, the ledger, orders
    of its connectors, and their objects. `look` returns whether any connector's store has an
    object; None: none reads it. It raises StoreUnavailable, or another error of a store.
    """

    settings: WorkerSettings
    queues: StackQueues
    arrivals: Callable[[], Queue]
    ledger: Callable[[], Ledger]
    orders: Callable[[], Orders]
    selections: Callable[[RunControl], Selections]
    look: Callable[[str, str], bool | None]

    def queue_depths(self) -> QueueDepths:
        """Return the depths of the stack's queues; one unavailable queue hides no other."""
        found = QueueDepths()
        for name, messages in self.queues.list():
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

        Without `connector`, every address names a single object. Nothing was sent if it raises, as
        for objects that do not exist.
        """
        require_engine(engine, connector)
        require_shared_ledger(self.settings, FUNCTIONS)
        if connector is None:
            named = {address: _bucket_and_key(address) for address in addresses}
            arrivals = self._open_arrivals()
            unread, unchecked = self._check_exist(named)
            arrivals.send([_body(*one) for one in named.values()])
            return Submission(len(named), unread=unread, unchecked=unchecked)
        order = self.orders().stored(connector, addresses)
        config = order.config
        if engine == SPARK:
            require_reachable(config, addresses)  # before objects are listed
        arrivals = self._open_arrivals()  # before a long listing finds that there is no queue
        versions = list(self.selections(control or RunControl()).versions(order))
        skipped = skip_reason(self.ledger(), connector)
        few = len(addresses) <= MOST_ADDRESSES or engine == SPARK
        if versions and few and _takes_one_run(self.settings, config, versions, engine):
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
            problems = [_no_object(name, parsed)]
        if problems:
            raise Misconfigured(problems)
        return self._announce([document])

    def redrive(
        self, job_id: str | None = None, *, since: str | None = None, dry_run: bool = False
    ) -> RedriveResult:
        """Send messages of the dead letter queues again; a job's only from the extents' one.

        `since` is an age such as 2h or 3d: only messages dead-lettered since then.
        """
        job = known_job(self.ledger(), job_id).id if job_id else None
        oldest = parse_since(since, time.time())

        def wanted(message: Message) -> bool:
            return message.sent >= oldest and job in (None, job_of(message))

        pairs = [DEAD_EXTENTS] if job else [DEAD_EXTENTS, DEAD_ARRIVALS]
        if self.queues.are_own and self.settings.extents_queue_url is None:
            if job:
                raise Misconfigured(
                    f"job {job} has no messages, because there is no extents queue;"
                    f" `extentflow replay {job}` delivers the rest of it"
                )
            pairs = [DEAD_ARRIVALS]
        queues = self.queues
        between = [(queues.open(dead), queues.open(back)) for dead, back in pairs]
        found = [redrive(*both, wanted=wanted, dry_run=dry_run) for both in between]
        moved = tuple(message for one in found for message in one.moved)
        # In a dry run, each queue's `left` includes what would be resent.
        left = sum(one.left for one in found) - (len(moved) if dry_run else 0)
        return RedriveResult(moved, left)

    def _check_exist(
        self, named: Mapping[str, tuple[str, str]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the addresses that no connector reads, and those of stores without an answer.

        Raises Misconfigured where objects do not exist.
        """
        unread: list[str] = []
        unchecked: list[str] = []
        absent: list[str] = []
        for address, place in named.items():
            if unchecked:  # one store that does not answer is waited for once
                unchecked.append(address)
                continue
            try:
                found = self.look(*place)
            except ExtentflowError as exc:
                unchecked.append(f"{address} ({exc})")
                continue
            if found is None:
                unread.append(address)
            elif not found:
                absent.append(f"{address} does not exist; correct the address: nothing was sent")
        if absent:
            raise Misconfigured(absent)
        return tuple(unread), tuple(unchecked)

    def _announce(self, bodies: Sequence[str]) -> Submission:
        self._open_arrivals().send(bodies)
        return Submission(len(bodies))

    def _open_arrivals(self) -> Queue:
        try:
            return self.arrivals()
        except Misconfigured as exc:
            raise Misconfigured(
                f"{exc}; in a checkout of the project, `extentflow serve` makes queues on this"
                " machine, and `extentflow stack --env` names them. Without queues, `extentflow"
                " run` delivers"
            ) from exc


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


def _takes_one_run(
    settings: WorkerSettings,
    config: ConnectorConfig,
    versions: Sequence[ObjectVersion],
    engine: str,
) -> bool:
    """Return whether all objects go to one Spark run: as asked, else by engine and size."""
    if engine != AUTO:
        return engine == SPARK
    excluded = settings.spark_application_id is None or config.engine == LAMBDA
    if excluded or len(versions) == 1 or unreachable_reason(config):
        return False
    total = sum(version.size for version in versions)
    return config.engine == SPARK or total > settings.spark_threshold_bytes


def _no_object(name: str, parsed: ParsedNotification) -> str:
    """Return why a notification announces no object: a test, or other events."""
    if parsed.ignored:
        events = ", ".join(plain(one) for one in dict.fromkeys(parsed.ignored))
        return f"{name} announces no object, but {events}; there is nothing to submit"
    origin = next(filter(None, parsed.tests), "")
    sender = f" ({plain(origin)})" if origin else ""
    return (
        f"{name} is a test notification{sender}, which a store sends when notifications are set up:"
        " it announces no object, and there is nothing to submit"
    )
