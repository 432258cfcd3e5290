"""A whole delivery in memory: store, broker, ledger, a one-byte-per-record format, workers.

Time is a counter that sleeping moves, so that leases end when a test says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pyarrow as pa

from extentflow.converters import Converter
from extentflow.delivery.acceptance import Acceptance
from extentflow.delivery.attributes import Attributes
from extentflow.delivery.columnvalues import ColumnValues
from extentflow.delivery.dead_letters import DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import DeliveryContext, TransactionLimits
from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.formats import BadRecord, Chunk, Format
from extentflow.jobs.planner import JobRequest, Planner
from extentflow.kafka import ProducerSettings
from extentflow.model import Extent, Job, ObjectVersion
from extentflow.retry import Clock
from extentflow.storage import ObjectStore, RangeSource
from extentflow.storage.ranges import RangeReader
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import MemoryStore

TOPIC, DEAD = "records", "dead"
BAD = ord("!")


@dataclass
class Ticker:
    """Seconds that pass only in `sleep`."""

    now: float = 1_000.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(monotonic=self.read, wall=self.read, sleep=self.sleep)


class Bytewise:
    """Every byte is a record; `!` is a bad one. `chunk` bytes a chunk."""

    splittable = True
    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None
    cut_version = 1

    def __init__(self, chunk: int = 2) -> None:
        self._chunk = chunk

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        size = source.version.size
        for start in range(0, size, target_bytes):
            yield start, min(size, start + target_bytes)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        start = max(position, extent.start)
        while start < extent.end:
            end = min(extent.end, start + self._chunk)
            body = source.read(start, end)
            good = [start + i for i, byte in enumerate(body) if byte != BAD]
            bad = [start + i for i, byte in enumerate(body) if byte == BAD]
            values = [f"{place}:{chr(body[place - start])}".encode() for place in good]
            batch = pa.record_batch({"value": pa.array(values, pa.binary())})
            found = tuple(BadRecord(b"!", place, "an exclamation mark") for place in bad)
            yield Chunk(batch, end, good, found)
            start = end


def first_column(_schema: pa.Schema) -> Converter:
    return lambda batch: batch.column(0)


@dataclass
class World:
    """One cluster, one ledger, one store; as many workers as a test asks for."""

    store: ObjectStore = field(default_factory=MemoryStore)
    ticker: Ticker = field(default_factory=Ticker)
    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker({TOPIC: 1, DEAD: 1}))
    format: Format = field(default_factory=Bytewise)
    limits: TransactionLimits = field(
        default_factory=lambda: TransactionLimits(transaction_bytes=8, attempts=3, retry_seconds=30)
    )
    tolerant: bool = False
    exactly_once: bool = True
    attributes: Attributes | None = None
    key: Callable[[pa.Schema], Converter] | None = None
    acceptance: Acceptance | None = None
    columns: ColumnValues | None = None

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger("ledger", clock=self.ticker.read)
        self._workers = 0

    @property
    def planner(self) -> Planner:
        return Planner(self.ledger, self._open, self.ticker.clock)

    def _open(self, job: Job) -> tuple[Format, RangeSource]:
        return self.format, RangeReader(self.store, job.version)

    def put(self, body: bytes, key: str = "key") -> ObjectVersion:
        assert isinstance(self.store, MemoryStore)
        return self.store.put("bucket", key, body)

    def request(
        self,
        version: ObjectVersion,
        extent_bytes: int = 4,
        **changes: Any,  # noqa: ANN401 - fields
    ) -> JobRequest:
        return JobRequest(
            connector="c",
            revision=1,
            version=version,
            format="bytewise",
            cluster=self.broker.cluster,
            extent_bytes=extent_bytes,
            **changes,
        )

    def job(self, body: bytes, key: str = "key", *, extent_bytes: int = 4, **changes: int) -> Job:
        """Put an object and plan it."""
        request = self.request(self.put(body, key), extent_bytes, **changes)
        return self.planner.plan(self.planner.register(request))

    def extents(self, job: Job) -> list[Extent]:
        return list(self.planner.extents(job))

    def slots(
        self,
        owner: str | None = None,
        *,
        policy: SlotPolicy | None = None,
        submit: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> Slots:
        self._workers += 1
        return Slots(
            ledger=self.ledger,
            broker=self.broker,
            policy=policy or SlotPolicy(count=4, lease_seconds=3, wait_seconds=1),
            app_id="app",
            owner=owner or f"worker-{self._workers}",
            clock=self.ticker.clock,
            random=Random(self._workers),
            submit=submit,
        )

    def worker(
        self, slots: Slots | None = None, stopping: Callable[[], bool] = lambda: False
    ) -> DeliveryContext:
        return DeliveryContext(
            open=self._pipeline,
            dead_letters=lambda _: DeadLetters(DEAD if self.tolerant else None, TOPIC, "offset"),
            client=lambda _: ProducerSettings(exactly_once=self.exactly_once),
            topics=lambda _: [TOPIC, DEAD] if self.tolerant else [TOPIC],
            slots=slots or self.slots(),
            ledger=self.ledger,
            limits=self.limits,
            clock=self.ticker.clock,
            random=Random(7),
            stopping=stopping,
        )

    def _pipeline(self, extent: Extent) -> Pipeline:
        return Pipeline(
            RangeReader(self.store, extent.version),
            self.format,
            TOPIC,
            first_column,
            key=self.key,
            attributes=self.attributes,
            acceptance=self.acceptance,
            columns=self.columns,
        )

    def delivered(self) -> list[bytes]:
        """What a read_committed consumer sees, in order."""
        return [record.value or b"" for record in self.broker.read_committed(TOPIC)]


def expected(body: bytes) -> list[bytes]:
    return [f"{place}:{chr(byte)}".encode() for place, byte in enumerate(body) if byte != BAD]
