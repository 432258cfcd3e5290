"""A runtime in memory: real connectors and formats; store, ledger and broker are doubles.

Time is a counter that sleeping moves.
"""

from collections.abc import Callable

import pyarrow as pa
from tests.support.memory_delivery import TOPIC, Ticker

from extentflow.config.connector import ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.runner import run_extent
from extentflow.errors import Misconfigured
from extentflow.kafka import (
    JOBS_TOPIC,
    SCHEMAS_TOPIC,
    ProducerSettings,
    Records,
    Sink,
    SlotProgress,
)
from extentflow.kafka.topic_admin import NewTopics, TopicFacts
from extentflow.model import ExtentState, Job, JobState
from extentflow.services.composition import open_orders
from extentflow.services.orders import StoredOrder
from extentflow.storage import ObjectStore
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import MemoryStore
from extentflow.wiring import Runtime
from extentflow.wiring.extents import delivery_context
from extentflow.wiring.objects import ObjectAccess

BUCKET = "shop"


class Cluster(MemoryBroker):
    """A broker that counts the checks of the progress topic."""

    ensured = 0

    def ensure_progress_topic(self) -> None:
        self.ensured += 1

    def ensure_schemas_topic(self) -> None:
        if self.missing_topics([SCHEMAS_TOPIC]):
            self.create_topic(SCHEMAS_TOPIC)

    def add_schema(self, key: bytes, value: bytes) -> None:
        sink = self.fence("schemas", ProducerSettings(exactly_once=False)).open()
        keys = pa.array([key], pa.binary())
        sink.send(Records(SCHEMAS_TOPIC, pa.array([value], pa.binary()), keys))
        sink.commit(SlotProgress(0))

    # Whether the brokers create topics at their first use.
    creates_topics = False

    def topics(self, names: list[str]) -> list[TopicFacts]:
        if missing := self.missing_topics(names):
            raise Misconfigured([f"topic {name} does not exist" for name in missing])
        return [
            TopicFacts(name, self._partitions(name), 1_000_000, stated=self.limits(name))
            for name in names
        ]

    def delete_topic(self, name: str) -> None:
        del self._log.topics[name]

    def missing_topics(self, names: list[str]) -> list[str]:
        return [name for name in names if name not in self._log.topics]

    def create_topics(self, names: list[str], wanted: NewTopics) -> list[str]:
        missing = self.missing_topics(names)
        for name in missing:
            self.create_topic(name, 1 if wanted.partitions == -1 else wanted.partitions)
        return missing

    def _partitions(self, name: str) -> int:
        return len(self._log.topics[name].partitions)


class _MemoryObjects(ObjectAccess):
    """Object access whose every store is the runtime's `reads`, a double that may fail."""

    def __init__(self, runtime: "MemoryRuntime") -> None:
        super().__init__(runtime.connectors, runtime.secrets, retry_seconds=1.0)
        self._runtime = runtime

    def store(self, config: ConnectorConfig, revision: int) -> ObjectStore:
        _ = config, revision
        return self._runtime.reads


class MemoryRuntime(Runtime):
    """One process's runtime. Connectors read `BUCKET`, extents are of 4 bytes."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        usual = WorkerSettings(bootstrap_servers="127.0.0.1:1", ledger_table="memory")
        super().__init__(settings or usual)
        self.ticker = Ticker()
        self.clock = self.ticker.clock
        self.memory = MemoryLedger(clock=self.ticker.read)
        self.cluster = Cluster({TOPIC: 1}, wall=self.ticker.read)
        self.event_calls: list[str] = []
        self.events = MemoryBroker({JOBS_TOPIC: 1}, on_call=self.event_calls.append)
        self.memory_store = MemoryStore()
        self.reads: ObjectStore = self.memory_store
        # The doubles take the place of what cached properties would open.
        self.__dict__.update(ledger=self.memory, brief_ledger=self.memory, broker=self.cluster)
        self.__dict__["objects"] = self.__dict__["brief_objects"] = _MemoryObjects(self)

    def use_cluster(self, cluster: Cluster) -> None:
        """Lead to another Kafka cluster from now on."""
        self.cluster = self.__dict__["broker"] = cluster

    def open_event_sink(self) -> Sink:
        """Return a sink for job events, at a broker of their own that records its calls."""
        return self.events.fence("events", ProducerSettings(exactly_once=False)).open()

    # -- arranging ------------------------------------------------------------------------------

    def put_connector(self, name: str = "c", **changes: str) -> None:
        """Store a connector's next revision; dots are written as two underscores."""
        usual = {
            "name": name,
            "topic": TOPIC,
            "aws.s3.bucket.name": BUCKET,
            "aws.s3.prefix": f"{name}/",
            "input.format": "text",
            "extent.bytes": "4",
        }
        given = {key.replace("__", "."): text for key, text in changes.items()}
        self.memory.connectors.put(name, {**usual, **given})

    def put(self, key: str = "c/a.txt", lines: int = 1) -> None:
        """Put an object of as many extents as lines, without a notification."""
        self.memory_store.put(BUCKET, key, b"abc\n" * lines)

    def order(self, *addresses: str, connector: str = "c") -> StoredOrder:
        """Return an order of a stored connector."""
        return open_orders(self).stored(connector, addresses)

    def job(self, key: str = "c/a.txt", lines: int = 1, connector: str = "c") -> Job:
        """Put an object and register its job, as a planner that died then."""
        self.put(key, lines)
        config, revision = self.connectors.latest(connector)
        version = self.memory_store.head(BUCKET, key)
        return self.planner().register(self.requests.make(config, revision, version, 1))

    # -- acting and looking ---------------------------------------------------------------------

    def run(self, job: Job, *ordinals: int) -> None:
        """Deliver extents of a job, as some worker."""
        work = delivery_context(self, self.slots(f"worker-{self.random.getrandbits(64):016x}"))
        for extent in self.planner().extents(job):
            if extent.ordinal in ordinals:
                run_extent(extent, work)
                assert self.memory.extents.get(job.id, extent.ordinal).state is ExtentState.DONE
        work.slots.release()

    def states(self) -> dict[str, JobState]:
        """The state of every object's job."""
        return {job.version.key: job.state for job in self.memory.jobs.list()}

    def asked(self, names: set[str]) -> Callable[[], list[str]]:
        """Begin to note calls of the ledger's operations `names`; return what returns them."""
        noted: list[str] = []

        def note(name: str) -> None:
            if name in names:
                noted.append(name)

        self.memory.on_call = note
        return lambda: noted
