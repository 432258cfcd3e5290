"""The Python API: deliver objects, iterate over receipts, inspect jobs, manage connectors."""

from __future__ import annotations

import builtins
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

from extentflow.background import BackgroundCall
from extentflow.config.connector_keys import AUTO
from extentflow.config.worker import WorkerSettings, with_ledger
from extentflow.engines import Engine
from extentflow.jobs.run import RunReport
from extentflow.kafka.topic_admin import NewTopics
from extentflow.model import JobState, Receipt
from extentflow.queue.redrive import RedriveResult
from extentflow.services.composition import (
    open_initialisation,
    open_jobs,
    open_orders,
    open_runs,
    open_submissions,
)
from extentflow.services.connectors import Connectors
from extentflow.services.health import Initialised
from extentflow.services.jobs import JobDetail, JobFilter, JobList, Jobs
from extentflow.services.orders import StoredOrder
from extentflow.services.plans import Plans
from extentflow.services.run_control import EngineChoice, Listener, RunControl
from extentflow.services.runs import Runs
from extentflow.services.submissions import QueueDepths, Submission, Submissions
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.extents import INLINE

OnReceipt = Callable[[Receipt], object]
# Of missing topics: `partitions`, `replication.factor`, and settings of topics.
TopicSettings = Mapping[str, object]


class Extentflow:
    """One configured stack: a ledger, a Kafka cluster, and the connectors in the ledger.

    `settings` are worker keys such as `bootstrap.servers` (docs/configuration.md); without them the
    environment is read, as the command line does. Nothing is connected before the first call.

        flow = Extentflow({"bootstrap.servers": "localhost:9092"})
        flow.connectors.put({"name": "orders", "topic": "orders", "aws.s3.bucket.name": "shop"})
        report = flow.deliver("s3://shop/in/", connector="orders")
        assert report.ok, report.errors

    Every method raises `Misconfigured` with all problems at once where something is missing or
    wrong, and a subclass of `Retryable` where a service is unavailable (`extentflow.errors`).
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        runtime: Runtime | None = None,
        open_engine: Callable[..., Engine] = open_engine,
    ) -> None:
        """Use `settings`, or the environment's; tests pass a `runtime` and engine of doubles."""
        if runtime is None and settings is not None:
            runtime = Runtime(with_ledger(WorkerSettings.from_map(settings), os.environ))
        self._runtime = runtime or Runtime.from_environment()
        self._open_engine = open_engine

    def init(self) -> Initialised:
        """Create the ledger and the progress topic where they are missing, as `extentflow init`.

        A ledger that `settings` name needs it once; without such a setting, the first delivery
        creates the ledger. Repeated, it changes nothing.
        """
        return open_initialisation(self._runtime).run()

    @property
    def connectors(self) -> Connectors:
        """Put, list, get, delete, pause, resume and stop connectors."""
        return Connectors(self._runtime.ledger)

    @property
    def jobs(self) -> StackJobs:
        """List and get jobs, submit objects to the deployed functions, redrive dead letters."""
        runtime = self._runtime
        return StackJobs(partial(open_jobs, runtime), open_submissions(runtime))

    def plan(self, *addresses: str, connector: str) -> Plans:
        """Return how a connector cuts the addressed objects; nothing is written."""
        return self._runs(RunControl()).plan(self._order(connector, addresses))

    def deliver(
        self,
        *addresses: str,
        connector: str,
        engine: str = INLINE,
        cores: int | None = None,
        again: bool = False,
        failed: bool = False,
        create_topic: TopicSettings | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> RunReport:
        """Deliver objects into Kafka, exactly once, and return when every job has ended.

        An address is an object, a prefix or a glob; without any, everything that the connector
        reads. Jobs that are DONE are only reported, unless `again`; with `failed` only objects
        whose jobs FAILED or are CANCELLED are delivered, under the connector's latest revision.
        Failures of single objects are in the report: `report.ok`, `report.errors`, `report.jobs`.
        `create_topic`, such as `{"partitions": 8, "retention.ms": 86400000}`, creates missing
        topics; existing ones stay as they are. `on_receipt` is called in this process for each
        processed extent. `engine` is `inline` (processes of this machine), `spark` or a remote one.
        """
        topics = _new_topics(create_topic)
        control = RunControl(watch=lambda: nullcontext(Listener(on_receipt)))
        choice = EngineChoice(engine, cores)
        hidden = bool(addresses) and (again or failed)
        order = self._order(connector, addresses, deleted=hidden)
        return self._runs(control).run(
            order, engine=choice, again=again, failed=failed, topics=topics
        )

    def receipts(
        self,
        *addresses: str,
        connector: str,
        engine: str = INLINE,
        cores: int | None = None,
        again: bool = False,
        create_topic: TopicSettings | None = None,
    ) -> Generator[Receipt, None, RunReport]:
        """Deliver as `deliver` does, and yield each extent's receipt as soon as it arrives.

        The generator's return value is the report. Closing it stops the delivery: extents in work
        commit and stay pending, and the next delivery resumes them.
        """
        found: SimpleQueue[Receipt | None] = SimpleQueue()
        stop = _Stop()
        control = RunControl(watch=lambda: nullcontext(Listener(found.put)), stop_on=stop.on)
        choice, topics = EngineChoice(engine, cores), _new_topics(create_topic)

        def deliver() -> RunReport:
            try:
                order = self._order(connector, addresses, deleted=again and bool(addresses))
                return self._runs(control).run(order, engine=choice, again=again, topics=topics)
            finally:
                found.put(None)

        delivery, ended = BackgroundCall(deliver, "extentflow-delivery"), False
        try:
            while (receipt := found.get()) is not None:
                yield receipt
            ended = True
        finally:
            if not ended and not delivery.wait(0):
                stop.request()
            delivery.wait()
        return delivery.result()

    def replay(
        self,
        job: str,
        *,
        engine: str = INLINE,
        extent: int | None = None,
        accept_duplicates: bool = False,
    ) -> RunReport:
        """Deliver what a FAILED or CANCELLED job has left; with `extent` only that one."""
        choice = EngineChoice(engine)  # refuses an unknown engine before the ledger is opened
        return self._runs(RunControl()).replay(
            job, engine=choice, extent=extent, accept_duplicates=accept_duplicates
        )

    def _order(
        self, connector: str, addresses: Sequence[str], *, deleted: bool = False
    ) -> StoredOrder:
        return open_orders(self._runtime).stored(connector, addresses, deleted=deleted)

    def _runs(self, control: RunControl) -> Runs:
        return open_runs(self._runtime, control, self._open_engine)


@dataclass(frozen=True, slots=True)
class StackJobs:
    """Jobs of the ledger, which `open_jobs` opens, and work for the deployed functions.

    Every method is that of `Jobs` or `Submissions`.
    """

    open_jobs: Callable[[], Jobs]
    submissions: Submissions

    def list(
        self, connector: str | None = None, *, state: JobState | None = None, limit: int = 50
    ) -> builtins.list[JobDetail]:
        """Return the newest jobs, newest first; Misconfigured for a connector that is unknown."""
        return self.open_jobs().list(connector, state=state, limit=limit)

    def find(self, chosen: JobFilter, *, limit: int = 50) -> JobList:
        """Return the newest jobs that match, and how many match; raises as `list`."""
        return self.open_jobs().find(chosen, limit=limit)

    def get(self, job_id: str) -> JobDetail:
        """Return one job, by its id or its beginning; Misconfigured if none or several match."""
        return self.open_jobs().get(job_id)

    def queue_depths(self) -> QueueDepths:
        """Return the depths of the stack's queues; one unavailable queue hides no other."""
        return self.submissions.queue_depths()

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
        return self.submissions.submit(
            addresses, connector=connector, engine=engine, control=control
        )

    def submit_event(self, document: str, *, name: str = "the notification") -> Submission:
        """Send an object-created notification, as a store sends it; `name` is for messages."""
        return self.submissions.submit_event(document, name=name)

    def redrive(
        self, job_id: str | None = None, *, since: str | None = None, dry_run: bool = False
    ) -> RedriveResult:
        """Send messages of the dead letter queues again; a job's only from the extents' one.

        `since` is an age such as 2h or 3d: only messages dead-lettered since then.
        """
        return self.submissions.redrive(job_id, since=since, dry_run=dry_run)


@dataclass(slots=True)
class _Stop:
    """Stops the engine of a delivery, also one that starts later."""

    requested: threading.Event = field(default_factory=threading.Event)
    engine: Callable[[], None] = lambda: None

    def request(self) -> None:
        self.requested.set()
        self.engine()

    @contextmanager
    def on(self, engine: Callable[[], None]) -> Iterator[Callable[[], bool]]:
        self.engine = engine
        if self.requested.is_set():
            engine()
        yield self.requested.is_set


def deliver(
    *addresses: str,
    connector: str,
    engine: str = INLINE,
    settings: Mapping[str, str] | None = None,
    create_topic: TopicSettings | None = None,
    on_receipt: OnReceipt | None = None,
) -> RunReport:
    """Deliver objects as `Extentflow.deliver` does, with settings of the environment."""
    flow = Extentflow(settings)
    return flow.deliver(
        *addresses,
        connector=connector,
        engine=engine,
        create_topic=create_topic,
        on_receipt=on_receipt,
    )


def _new_topics(settings: TopicSettings | None) -> NewTopics | None:
    return None if settings is None else NewTopics.of(settings)
