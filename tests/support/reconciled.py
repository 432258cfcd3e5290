"""The event path in memory with a reconciler, run after run, on a clock that a test moves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tests.support.memory_delivery import World
from tests.support.queued import Queued

from extentflow.config.connector import ConnectorConfig
from extentflow.delivery.slots import SlotPolicy
from extentflow.discovery import Arrival
from extentflow.discovery.admission import AdmissionResult, ArrivalHandler
from extentflow.discovery.listing import ListedPrefix
from extentflow.discovery.reconciler import Reconciler
from extentflow.discovery.report import Report
from extentflow.discovery.stalled_jobs import StallThresholds
from extentflow.engines.submitted_runs import RunOwnership, SubmittedRuns
from extentflow.formats import Format
from extentflow.jobs.events import JobEvents
from extentflow.jobs.planner import JobRequest, Planner
from extentflow.ledger import ConnectorState
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.queue.routing import JobRouter
from extentflow.storage import ObjectStore, RangeSource
from extentflow.storage.ranges import RangeReader
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.services import MemoryJobEvents, MemoryJobRuns, MemoryQueue
from extentflow.testing.stores import MemoryStore

BUCKET = "bucket"
EVERY_SECONDS = 300.0
PATIENCE = StallThresholds(grace_seconds=300, stall_seconds=900)
POLICY = SlotPolicy(count=4, lease_seconds=3, wait_seconds=1)


def never() -> bool:
    return False


def after(steps: int) -> Callable[[], bool]:
    """Time for so many questions, and none after."""
    left = [steps]

    def late() -> bool:
        left[0] -= 1
        return left[0] < 0

    return late


@dataclass(frozen=True, slots=True)
class Owned(JobRouter):
    """A router whose jobs a test gives to runs."""

    owner: Callable[[Job], RunOwnership] | None = None

    def ownership(self, job: Job) -> RunOwnership:
        return self.owner(job) if self.owner else JobRouter.ownership(self, job)


@dataclass
class Reconciled:
    """A queued world whose connectors read `bucket`; each run has a reconciler of its own."""

    queued: Queued = field(default_factory=Queued)
    stores: dict[str, ObjectStore] = field(default_factory=dict)
    settling: frozenset[str] = frozenset()
    broken: dict[str, Exception] = field(default_factory=dict)
    thresholds: StallThresholds = PATIENCE
    ownership: Callable[[Job], RunOwnership] | None = None
    spark: MemoryJobRuns | None = None
    refusal: Callable[[Job], str] = lambda _job: ""

    def __post_init__(self) -> None:
        self.configs: dict[str, ConnectorConfig] = {}
        self.arrived: list[Arrival] = []
        self.publisher = MemoryJobEvents()
        self.runs = 0
        self.open: Callable[[Job], tuple[Format, RangeSource]] = self._open
        self.connector("c")

    # -- arranging ------------------------------------------------------------------------------

    def connector(self, name: str, prefix: str = "", **changes: object) -> None:
        """Store a connector that reads `bucket`."""
        config = ConnectorConfig(
            name=name, topic="records", s3_bucket=BUCKET, prefix=prefix, format="text"
        )
        self.configs[name] = replace(config, extent_bytes=4, **changes)  # type: ignore[arg-type]
        self.ledger.connectors.put(name, {"aws.s3.prefix": prefix})

    def want(self, state: ConnectorState, name: str = "c") -> None:
        assert self.ledger.connectors.set_state(name, state)

    def put(self, key: str, body: bytes = b"abcdefgh") -> ObjectVersion:
        """Put an object without a notification."""
        assert isinstance(self.world.store, MemoryStore)
        return self.world.store.put(BUCKET, key, body)

    def registered(
        self, key: str, body: bytes = b"abcdefgh", *, connector: str = "c", ordered: bool = False
    ) -> Job:
        """An object whose planner died when its job was registered."""
        version = self.put(key, body)
        return self.planner.register(self._intake(connector, version, ordered=ordered))

    def sent(self, key: str, body: bytes = b"abcdefgh", *, ordered: bool = False) -> Job:
        """An object whose extents were sent."""
        return self.dispatch.start(self.registered(key, body, ordered=ordered))

    def lose_messages(self) -> int:
        """Take all messages off the queue; return how many there were."""
        messages = self.queue.messages
        for message in messages:
            self.queue.delete(message)
        return len(messages)

    # -- acting ---------------------------------------------------------------------------------

    def run(self, late: Callable[[], bool] = never) -> Report:
        """Do one run, as a new process does."""
        self.runs += 1
        handler = ArrivalHandler(
            context=self,
            planner=self.planner,
            start=lambda job: self.router.start(job, late=late),
            kept=MemoryQueue(self.world.ticker.read),
            arrivals=MemoryQueue(self.world.ticker.read),
            backfill=lambda _wanted: None,
        )

        def receive(arrival: Arrival) -> AdmissionResult:
            self.arrived.append(arrival)
            return handler.receive(arrival)

        return Reconciler(
            context=self,
            ledger=self.ledger,
            slots=self.world.slots(f"reconciler-{self.runs}", policy=POLICY),
            router=self.router,
            receive=receive,
            publish=JobEvents(self.ledger, [self.publisher], lambda _job: "records").sweep,
            random=Random(self.runs),
            late=late,
            thresholds=self.thresholds,
        ).run()

    def run_for(self, seconds: float) -> Report:
        """Run every five minutes for a while; return what was done in sum."""
        total = Report()
        end = self.world.ticker.now + seconds
        while self.world.ticker.now < end:
            self.world.ticker.now += EVERY_SECONDS
            total += self.run()
        return total

    def work(self) -> None:
        """Let a worker drain the queue."""
        self.queued.drain(self.queued.worker())

    # -- looking --------------------------------------------------------------------------------

    @property
    def world(self) -> World:
        return self.queued.world

    @property
    def ledger(self) -> MemoryLedger:
        return self.world.ledger

    @property
    def queue(self) -> MemoryQueue:
        return self.queued.queue

    @property
    def planner(self) -> Planner:
        return Planner(self.world.ledger, self.open, self.world.ticker.clock)

    @property
    def dispatch(self) -> ExtentDispatcher:
        return ExtentDispatcher(self.planner, self.queue)

    @property
    def router(self) -> JobRouter:
        started = None
        if self.spark is not None:
            clock = self.world.ticker.clock
            started = SubmittedRuns(self.spark, self.ledger, monotonic=clock.monotonic)
        return Owned(self.dispatch, started, refusal=self.refusal, owner=self.ownership)

    def state_of(self, job: Job) -> JobState:
        return self.queued.now(job).state

    def states(self) -> dict[str, JobState]:
        """The state of every object's job."""
        return {job.version.key: job.state for job in self.world.ledger.jobs.list()}

    # -- the outside world ----------------------------------------------------------------------

    def connectors(self) -> Iterator[tuple[ConnectorConfig, int]]:
        for stored in self.ledger.connectors.list():
            yield self.configs[stored.name], stored.revision

    def state(self, config: ConnectorConfig) -> ConnectorState:
        return self.ledger.connectors.state(config.name)

    def listed_prefix(self, connector: str, revision: int) -> ListedPrefix:
        assert (self.configs[connector], revision) in list(self.connectors())
        if connector in self.broken:
            raise self.broken[connector]
        store = self.stores.get(connector, self.world.store)
        return ListedPrefix(self.configs[connector], store, settles=connector in self.settling)

    def head(self, config: ConnectorConfig, revision: int, arrival: Arrival) -> ObjectVersion:
        assert (config, revision) in list(self.connectors())
        if arrival.key in self.broken:
            raise self.broken[arrival.key]
        return self.world.store.head(arrival.bucket, arrival.key, arrival.version_id)

    def request(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> JobRequest:
        return self._intake(config.name, version, revision)

    def cluster(self) -> str:
        return self.world.broker.cluster

    def _intake(
        self, connector: str, version: ObjectVersion, revision: int = 1, *, ordered: bool = False
    ) -> JobRequest:
        return JobRequest(
            connector=connector,
            revision=revision,
            version=version,
            format="bytewise",
            cluster=self.cluster(),
            extent_bytes=4,
            ordered=ordered,
        )

    def _open(self, job: Job) -> tuple[Format, RangeSource]:
        return self.world.format, RangeReader(self.world.store, job.version)
