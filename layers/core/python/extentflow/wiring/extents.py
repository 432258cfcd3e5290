"""Everything that a worker process needs to deliver extents, and the worker itself."""

import zlib
from dataclasses import replace
from functools import partial

import pyarrow as pa

from extentflow.background import LeaseRenewer, prefetch
from extentflow.config.connector import ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.connector_state import ConnectorStateCache
from extentflow.delivery.deadletters import DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import DeliveryContext, TransactionLimits
from extentflow.delivery.slots import Slots
from extentflow.engines import run_until_final
from extentflow.memory import tune_allocator
from extentflow.model import Extent, Receipt
from extentflow.sink import ProducerSettings
from extentflow.storage.ranges import RangeReader
from extentflow.wiring import options
from extentflow.wiring.runtime import Runtime


class ExtentSetup:
    """Builds the pipeline, dead letters and producer settings of one extent after another."""

    def __init__(self, runtime: Runtime) -> None:
        self._connectors = runtime.connectors
        self._objects = runtime.objects
        self._topic = runtime.topic

    def pipeline(self, extent: Extent) -> Pipeline:
        """Return how this extent becomes records."""
        config, revision = self._config(extent)
        topic = config.topic_for(extent.version)
        keyed = config.message_key.source != "none"
        partition = -1
        if config.ordered and not keyed:  # one partition keeps the object's order
            partition = zlib.crc32(extent.version.key.encode()) % self._topic(topic).partitions
        return Pipeline(
            source=RangeReader(self._objects.store(config, revision), extent.version),
            format=self._objects.format(config, revision, extent.version),
            topic=topic,
            value=options.value(config, extent.format),
            key=options.key(config, extent.version) if keyed else None,
            partition=partition,
        )

    def dead_letters(self, extent: Extent) -> DeadLetters:
        """Return where this extent's bad records go."""
        config, revision = self._config(extent)
        return DeadLetters(
            topic=config.dead_letter_topic if config.errors_tolerance == "all" else None,
            source_topic=config.topic_for(extent.version),
            location_unit=self._objects.format(config, revision, extent.version).location_unit,
            context=config.dead_letter_headers,
            limit_bytes=self._dead_letter_limit(config),
        )

    def client(self, extent: Extent) -> ProducerSettings:
        """Return the producer settings of this extent's connector, with its topics' limits.

        The topic's limit decides which records are too large, never the dead letter queue's.
        """
        config, _ = self._config(extent)
        topic = config.topic_for(extent.version)
        limit = self._topic(topic).max_message_bytes
        return ProducerSettings(
            producer=config.producer,
            exactly_once=config.exactly_once,
            max_message_bytes=limit,
            max_batch_bytes=min(limit, self._dead_letter_limit(config) or limit),
            topic=topic,
        )

    def _config(self, extent: Extent) -> tuple[ConnectorConfig, int]:
        revision = self._connectors.revision_of(extent)
        return self._connectors.revision(extent.connector, revision), revision

    def _dead_letter_limit(self, config: ConnectorConfig) -> int | None:
        queue = config.dead_letter_topic
        return None if queue is None else self._topic(queue).max_message_bytes


def delivery_context(
    runtime: Runtime, slots: Slots, *, setup: ExtentSetup | None = None
) -> DeliveryContext:
    """Return what `run_extent` needs, from one process's clients and slots."""
    settings = runtime.settings
    setup = setup or ExtentSetup(runtime)
    return DeliveryContext(
        open=setup.pipeline,
        dead_letters=setup.dead_letters,
        client=setup.client,
        slots=slots,
        ledger=runtime.ledger,
        limits=TransactionLimits(
            transaction_bytes=settings.transaction_max_bytes,
            transaction_seconds=settings.transaction_max_seconds,
            attempts=settings.extent_attempts_max,
            retry_seconds=settings.retry_timeout_seconds,
        ),
        clock=runtime.clock,
        random=runtime.random,
        prefetch=partial(
            prefetch,
            size_bytes=lambda prepared: prepared.payload_bytes,
            budget_bytes=settings.extent_ahead_bytes,
        ),
        fetched_bytes=runtime.objects.fetched_bytes,
    )


class ExtentWorker:
    """One worker process: clients, a slot, and the extent in work (see `engines.Worker`)."""

    def __init__(self, runtime: Runtime, owner: str, *, setup: ExtentSetup | None = None) -> None:
        self._stopping = False
        self._slots = runtime.slots(owner)
        self._renew_seconds = runtime.settings.lease_seconds / 3
        context = delivery_context(runtime, self._slots, setup=setup)
        self._work = replace(context, stopping=self.stopping)
        self._wanted = ConnectorStateCache(runtime.ledger, runtime.clock.monotonic)

    def run(self, extent: Extent) -> Receipt:
        """Deliver an extent until it is final, as `engines.Worker.run`."""
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            return run_until_final(extent, self._work, self._wanted.skip_reason)

    def stop(self) -> None:
        """Commit and hand back the extent in work, as `engines.Worker.stop`."""
        self._stopping = True

    def stopping(self) -> bool:
        """Return whether to commit and hand back the extent in work; read at every chunk."""
        return self._stopping

    def close(self) -> None:
        """Release the slot, as `engines.Worker.close`."""
        self._slots.release()


def prepare_process() -> None:
    """Limit Arrow in this process to one core, and its memory to what one core needs.

    Arrow's own allocator either keeps its peak, or returns pages so soon that clearing new ones
    takes a quarter of a worker's time. It stays where the C allocator is not glibc's.
    """
    pa.set_cpu_count(1)
    if tune_allocator():
        pa.set_memory_pool(pa.system_memory_pool())


def open_worker(settings: dict[str, str], owner: str) -> ExtentWorker:
    """Return this process's worker; engines call it in worker processes (`engines.WorkerSpec`)."""
    prepare_process()
    return ExtentWorker(Runtime(WorkerSettings.from_map(settings)), owner)
