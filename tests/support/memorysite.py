"""A site in memory: real connectors and formats; store, ledger and broker are doubles.

Time is a counter that sleeping moves.
"""

from collections.abc import Callable

from tests.support.world import TOPIC, Ticker

from extentflow.config.worker import WorkerSettings
from extentflow.connectors import ConnectorConfig
from extentflow.delivery.runner import run_extent
from extentflow.model import ExtentState, Job, JobState
from extentflow.sink import JOBS_TOPIC, ClientSettings, Sink
from extentflow.sink.topics import TopicFacts
from extentflow.storage import ObjectStore
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import MemoryStore
from extentflow.wiring import Site
from extentflow.wiring.worker import work_of

BUCKET = "shop"


class Cluster(MemoryBroker):
    """A broker that counts how often somebody made sure of the topic of progress."""

    ensured = 0

    def ensure_progress_topic(self) -> None:
        self.ensured += 1

    def topics(self, names: list[str]) -> list[TopicFacts]:
        return [TopicFacts(name, 1, 1_000_000) for name in names]


class MemorySite(Site):
    """One process's site. Connectors read `BUCKET`, extents are of 4 bytes."""

    def __init__(self, settings: WorkerSettings | None = None) -> None:
        super().__init__(settings or WorkerSettings(bootstrap_servers="127.0.0.1:1"))
        self.ticker = Ticker()
        self.clock = self.ticker.clock
        self.memory = MemoryLedger(clock=self.ticker.read)
        self.cluster = Cluster({TOPIC: 1})
        self.news_calls: list[str] = []
        self.news = MemoryBroker({JOBS_TOPIC: 1}, on_call=self.news_calls.append)
        self.objects = MemoryStore()
        self.reads: ObjectStore = self.objects
        # Where cached properties keep what was made, so that nothing else is.
        self.__dict__.update(ledger=self.memory, brief_ledger=self.memory, broker=self.cluster)

    # -- what a site makes of the outside world -------------------------------------------------

    def store(self, config: ConnectorConfig, revision: int) -> ObjectStore:
        """Every connector's store; `reads` may be another one that fails."""
        _ = config, revision
        return self.reads

    def open_news(self) -> Sink:
        """A sink for job events, at a broker of their own that notes what it is asked."""
        return self.news.fence("news", ClientSettings(exactly_once=False)).open()

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
        self.memory.put_connector(name, {**usual, **given})

    def put(self, key: str = "c/a.txt", lines: int = 1) -> None:
        """Put an object of as many extents as lines, of which nobody tells."""
        self.objects.put(BUCKET, key, b"abc\n" * lines)

    def job(self, key: str = "c/a.txt", lines: int = 1, connector: str = "c") -> Job:
        """Put an object and register its job, as a planner that died then."""
        self.put(key, lines)
        config, revision = self.connector(connector)
        version = self.objects.head(BUCKET, key)
        return self.planner().register(self.intake(config, revision, version, 1))

    # -- acting and looking ---------------------------------------------------------------------

    def run(self, job: Job, *ordinals: int) -> None:
        """Deliver extents of a job, as some worker."""
        work = work_of(self, self.slots(f"worker-{self.random.getrandbits(64):016x}"))
        for extent in self.planner().extents(job):
            if extent.ordinal in ordinals:
                run_extent(extent, work)
                assert self.memory.extent(job.id, extent.ordinal).state is ExtentState.DONE
        work.slots.release()

    def states(self) -> dict[str, JobState]:
        """The state of every object's job."""
        return {job.version.key: job.state for job in self.memory.jobs()}

    def asked(self, names: set[str]) -> Callable[[], list[str]]:
        """Begin to note calls of the ledger's operations `names`; return what returns them."""
        noted: list[str] = []

        def note(name: str) -> None:
            if name in names:
                noted.append(name)

        self.memory.on_call = note
        return lambda: noted
