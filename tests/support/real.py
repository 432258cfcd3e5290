"""A worker on the calling thread, on real servers, with hooks that run between short chunks."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

from tests.support.delivery import Delivery
from tests.support.local_engine import CallingThreadEngine, RecordingListener

from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.pipeline import Pipeline
from extentflow.engines import RunListener
from extentflow.formats import Chunk, Format, open_format
from extentflow.jobs.run import RunReport, known_job
from extentflow.kafka.sinks import FlushingSink, TransactionalSink
from extentflow.model import Content, Extent, Job, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.wiring import Runtime, options
from extentflow.wiring.extents import ExtentSetup, ExtentWorker
from extentflow.wiring.objects import ObjectAccess

CHUNK_ROWS = 1_000
WINDOW_BYTES = 64 << 10
OWNER = "here"

Before = Callable[[], object]


class Crash(BaseException):
    """The end of a worker, in the middle of whatever it did."""


def nothing() -> None:
    """Leave the worker alone."""


def at(number: int, act: Callable[[], object]) -> Before:
    """Do something once, before chunk `number` (from 1, over all extents and attempts)."""
    calls = itertools.count(1)
    return lambda: next(calls) == number and act()


def crash() -> None:
    raise Crash


@dataclass(frozen=True)
class Hooked:
    """A format whose decoding asks `before` before each chunk, as if that took time."""

    inner: Format
    before: Before

    @property
    def splittable(self) -> bool:
        return self.inner.splittable

    @property
    def location_unit(self) -> Literal["offset", "row"]:
        return self.inner.location_unit

    @property
    def extent_bytes(self) -> int | None:
        return self.inner.extent_bytes

    @property
    def cut_version(self) -> int:
        return self.inner.cut_version

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        return self.inner.plan(source, target_bytes)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        for chunk in self.inner.decode(source, extent, position):
            self.before()
            yield chunk


class ShortChunks(ObjectAccess):
    """Object access whose formats yield chunks of a thousand rows at most."""

    def format(
        self,
        config: ConnectorConfig,
        revision: int,
        version: ObjectVersion,
        content: Content = NOTHING_FOUND,
        *,
        window_bytes: int | None = None,
        excludes: bool = True,
    ) -> Format:
        _ = revision, window_bytes, excludes
        name = config.format_for(version.key, content.format)
        compression = config.compression_for(version.key, content)
        usual = options.format_options(config, name, compression, content.facts)
        short = replace(usual, batch_rows=CHUNK_ROWS, window_bytes=WINDOW_BYTES)
        return open_format(name, short, config.options_of(name))


class HookedSetup(ExtentSetup):
    """Pipelines that call `before` before each chunk."""

    def __init__(self, runtime: Runtime, before: Before) -> None:
        super().__init__(runtime)
        self._before = before

    def pipeline(self, extent: Extent) -> Pipeline:
        usual = super().pipeline(extent)
        return replace(usual, format=Hooked(usual.format, self._before))


def _open_worker(settings: WorkerSettings, before: Before) -> ExtentWorker:
    runtime = Runtime(settings)
    short = ShortChunks(
        runtime.connectors, runtime.secrets, retry_seconds=settings.retry_timeout_seconds
    )
    runtime.__dict__["objects"] = short
    slots = runtime.slots(f"{OWNER}/{uuid4().hex}")
    return ExtentWorker(runtime, slots, setup=HookedSetup(runtime, before))


def _vanish(made: ExtentWorker) -> None:
    """Let go of the producer as a crash does: nothing is aborted, nothing is closed."""
    hold, made._slots._own = made._slots._own, None
    if hold is not None:
        assert isinstance(hold.sink, TransactionalSink | FlushingSink)
        hold.sink.client.orphan()


@contextmanager
def worker(delivery: Delivery, *, before: Before = nothing) -> Iterator[ExtentWorker]:
    """Be a worker on this thread; a `Crash` leaves claim, lease and open transaction behind."""
    made = _open_worker(delivery.settings, before)
    try:
        yield made
    except Crash:
        _vanish(made)
        raise
    made.close()


def run_here(
    delivery: Delivery,
    *,
    before: Before = nothing,
    again: bool = False,
    watch: RunListener | None = None,
) -> RunReport:
    """Deliver what is below the prefix on this thread."""
    with worker(delivery, before=before) as made:
        return delivery.run(
            engine=CallingThreadEngine(made.run), again=again, watch=watch or RecordingListener()
        )


def replay_here(
    delivery: Delivery, job: Job | str, *, before: Before = nothing, accept_duplicates: bool = False
) -> RunReport:
    """Replay a job on this thread."""
    known = job if isinstance(job, Job) else known_job(delivery.runtime.ledger, job)
    with worker(delivery, before=before) as made:
        driver = delivery.driver(CallingThreadEngine(made.run), RecordingListener())
        return driver.replay(known, accept_duplicates=accept_duplicates)


def take_over(delivery: Delivery) -> int:
    """Settle what crashed workers left, without waiting for their leases."""
    return delivery.runtime.evict(OWNER)


def the_job(delivery: Delivery) -> Job:
    """Return the only job, as the ledger has it now."""
    (listed,) = delivery.jobs()
    job = delivery.runtime.ledger.jobs.get(listed.id)
    assert job is not None
    return job
