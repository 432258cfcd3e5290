"""Everything that a worker process needs to deliver extents, and the worker itself.

Tests: unit/wiring/test_runtime.py
"""

import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from uuid import uuid4

import pyarrow as pa

from extentflow.background import LeaseRenewer, prefetch
from extentflow.config.column_lists import BY_NAME
from extentflow.config.connector import ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.badrecords import BadRecordLog, LogRate
from extentflow.delivery.dead_letters import DeadLetters
from extentflow.delivery.memory import tune_allocator
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import DeliveryContext, TransactionLimits
from extentflow.delivery.slots import Slots
from extentflow.engines import ENGINES, Engine, Worker, WorkerSpec, run_or_fail, run_until_final
from extentflow.engines.remote import RunService
from extentflow.engines.submitted_engine import SubmittedRunEngine
from extentflow.engines.submitted_runs import SubmittedRuns
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.formats import Chunk, Format
from extentflow.formats.magic import SAMPLE_BYTES
from extentflow.jobs.contents import FILES
from extentflow.jobs.pinned_files import PinnedFile, SameContents
from extentflow.jobs.preflight import ConnectorStateCache
from extentflow.kafka import ProducerSettings, Records, RejectedRecord
from extentflow.kafka.sinks import rejected_records
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.model import Content, Extent, Receipt
from extentflow.plugins import from_extra
from extentflow.storage import ObjectStore, RangeSource
from extentflow.storage.ranges import RangeReader
from extentflow.wiring import options
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.runtime import Runtime

log = logging.getLogger(__name__)

# Opened here and not by the registry; an entry point with this name is never used.
SPARK = "spark"
INLINE = "inline"
# Where it is not known what topics take.
UNLIMITED = 2**31 - 1
SUBMITTED = "submitted"
HERE = ", or use --engine inline, or spark without --master, on this machine"

Settle = Callable[[str, pa.Schema], None]


def unsettled(_topic: str, _schema: pa.Schema) -> None:
    """Settle no schema: nothing is sent."""


# Starts a remote run for the jobs of a driver; returns the run's id.
StartRun = Callable[[SubmittedRuns], str]


class ExtentSetup:
    """Builds the pipeline, dead letters and producer settings of one extent after another."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._log_rate = LogRate(runtime.clock.monotonic)
        self._same = SameContents(lambda: runtime.ledger.notes)

    def pipeline(self, extent: Extent) -> Pipeline:
        """Return how this extent becomes records."""
        config, revision = self._config(extent)
        store = self._runtime.objects.store(config, revision)
        source = self._source(extent, store)
        format_ = self._format(config, revision, extent)
        made = pipeline(
            config,
            extent,
            source,
            format_,
            partitions=self._partitions,
            look_up=self._runtime.connector_secrets,
            store=store,
            limit_bytes=least_limit(self._runtime.topic, config, extent)[0],
            settle=self._runtime.schemas.settle,
        )
        made = replace(made, acceptance=self._runtime.acceptance)
        if not config.ordered or config.keyed:
            return made
        # One partition keeps the object's order.
        topic = _written_topic(config, made.topic)
        return replace(made, partition=self._pinned_partition(extent, topic))

    def _source(self, extent: Extent, store: ObjectStore) -> RangeReader:
        """Return the reader of an extent's object; a file's compares its content with the job's."""
        version = extent.version
        if not version.bucket.startswith(FILES):
            return RangeReader(store, version)
        job = None if version.modified else self._runtime.ledger.jobs.get(extent.job)
        version = version if job is None else job.version  # messages of queues state no ctime
        return RangeReader(PinnedFile(store, extent.connector, self._same), version)

    def dead_letters(self, extent: Extent) -> DeadLetters:
        """Return where this extent's bad records go."""
        config, revision = self._config(extent)
        format_ = self._format(config, revision, extent)
        return DeadLetters(
            topic=config.dead_letter_topic if config.errors_tolerance == "all" else None,
            source_topic=config.topic_for(extent.version),
            location_unit=format_.location_unit,
            context=config.dead_letter_headers,
            limit_bytes=self._dead_letter_limit(config),
            most_records=config.errors_max_records,
            log=BadRecordLog(self._log_rate, config.errors_log_messages)
            if config.errors_log
            else None,
        )

    def client(self, extent: Extent) -> ProducerSettings:
        """Return the producer settings of this extent's connector, with its topics' limits."""
        config, _ = self._config(extent)
        limit, topic = least_limit(self._runtime.topic, config, extent)
        return ProducerSettings(
            producer=options.producer(config),
            exactly_once=config.exactly_once,
            # A record is too large by its topic's limit, never by that of the dead letter queue.
            max_message_bytes=limit,
            max_batch_bytes=min(limit, self._dead_letter_limit(config) or limit),
            topic=topic,
        )

    def topics(self, extent: Extent) -> list[str]:
        """Return the topics of this extent's records and of their dead letters."""
        config, _ = self._config(extent)
        written = config.written_topics(config.topic_for(extent.version))
        queue = config.dead_letter_topic if config.errors_tolerance == "all" else None
        return [*dict.fromkeys((*written, *([queue] if queue else [])))]

    def _partitions(self, topic: str) -> int:
        return self._runtime.topic(topic).partitions

    def _pinned_partition(self, extent: Extent, topic: str) -> int:
        """Return the partition that the job's first worker chose; others may have been added."""
        job = self._runtime.ledger.jobs.get(extent.job)
        if job is not None and job.partition >= 0:
            return job.partition
        # CRC-32 has one value in every process and release; `hash` has not.
        chosen = zlib.crc32(extent.version.key.encode()) % self._runtime.topic(topic).partitions
        return self._runtime.ledger.jobs.pin_partition(extent.job, chosen)

    def _format(self, config: ConnectorConfig, revision: int, extent: Extent) -> Format:
        content = self._runtime.connectors.content_of(extent)
        return self._runtime.objects.format(config, revision, extent.version, content)

    def _config(self, extent: Extent) -> tuple[ConnectorConfig, int]:
        revision = self._runtime.connectors.revision_of(extent)
        return self._runtime.connectors.revision(extent.connector, revision), revision

    def _dead_letter_limit(self, config: ConnectorConfig) -> int | None:
        queue = config.dead_letter_topic
        return self._runtime.topic(queue).max_message_bytes if queue else None


def _written_topic(config: ConnectorConfig, topic: str) -> str:
    """Return the topic whose partitions count: with column groups, `topic` need not exist."""
    return config.written_topics(topic)[0]


def least_limit(
    topic: Callable[[str], TopicFacts], config: ConnectorConfig, extent: Extent
) -> tuple[int, str]:
    """Return the lowest `max.message.bytes` of the topics of an extent's records, and its topic.

    `topic` returns the facts of a topic.
    """
    topics = config.written_topics(config.topic_for(extent.version))
    return min((topic(one).max_message_bytes, one) for one in topics)


def pipeline(
    config: ConnectorConfig,
    extent: Extent,
    source: RangeSource,
    decoder: Format,
    *,
    partitions: Callable[[str], int],
    look_up: options.SecretResolver,
    store: object,
    limit_bytes: int = UNLIMITED,
    settle: Settle = unsettled,
    preview: bool = False,
) -> Pipeline:
    """Return how an extent becomes records.

    `partitions` returns how many a topic has, `look_up` the secrets of converters; no topic takes
    records above `limit_bytes`. `settle` makes the schema of columnar values one of a topic's.
    `store` is that of the object, for what records get of it beside its bytes. `preview`: nothing
    will be sent.
    """
    version = extent.version
    topic = config.topic_for(version)
    written = _written_topic(config, topic)
    opener = partial(options.converter_opener, config, preview=preview)
    open_value = opener("value.converter", topic, look_up)
    open_key = opener("key.converter", topic, look_up)
    place = -1
    if config.message_partition == BY_NAME:
        place, count = int(config.named(version)["partition"]), partitions(written)
        if place >= count:
            raise UnsupportedFormat(
                f"{version.uri}: its name says partition {place}, and topic {written} has {count};"
                " add partitions, or remove message.partition"
            )
    return Pipeline(
        partition=place,
        source=source,
        format=decoder,
        topic=topic,
        value=options.value(config, extent.format, open_value),
        key=options.key(config, version, open_key) if config.keyed else None,
        chain=options.chain(config),
        key_columns=config.message_key.columns,
        select=config.select,
        source_topic=config.template_topic(version),
        fixed_key=options.fixed_key(config, version),
        attributes=options.attributes(config, partial(partitions, written), store, version),
        columns=options.columns(config, limit_bytes, partitions, settle, look_up),
        columns_from=config.spec_of(extent.format).remedy,
    )


def rejected(
    config: ConnectorConfig, limit_bytes: int, topic: str, records: Records
) -> Sequence[RejectedRecord]:
    """Return those records that a connector's producer would reject; see `least_limit`."""
    client = ProducerSettings(options.producer(config), max_message_bytes=limit_bytes, topic=topic)
    return rejected_records(client, records)


@dataclass(frozen=True, slots=True)
class PinnedExtent:
    """An extent, the connector's revision, and what its job pins of the object's content."""

    config: ConnectorConfig
    revision: int
    extent: Extent
    content: Content


@dataclass(frozen=True, slots=True)
class Previews:
    """Opens pipelines for the first records of extents; nothing will be sent."""

    objects: ObjectAccess
    secrets: options.SecretResolver

    def open(
        self,
        at: PinnedExtent,
        *,
        partitions: Callable[[str], int],
        limit_bytes: int = UNLIMITED,
        settle: Settle = unsettled,
    ) -> Pipeline:
        """Return how an extent becomes records; the keywords are those of `pipeline`."""
        config, revision, extent = at.config, at.revision, at.extent
        store = self.objects.store(config, revision)
        return pipeline(
            config,
            extent,
            RangeReader(store, extent.version, ahead=1),
            self.objects.format(
                config, revision, extent.version, at.content, window_bytes=SAMPLE_BYTES
            ),
            partitions=partitions,
            look_up=self.secrets,
            store=store,
            limit_bytes=limit_bytes,
            settle=settle,
            preview=True,
        )

    def decoded(self, at: PinnedExtent) -> Iterator[Chunk]:
        """Yield what an extent's records are before transforms. Raises as decoding does."""
        config, revision, extent = at.config, at.revision, at.extent
        opened = self.objects.format(
            config, revision, extent.version, at.content, window_bytes=SAMPLE_BYTES
        )
        source = RangeReader(self.objects.store(config, revision), extent.version, ahead=1)
        return opened.decode(source, extent, 0)


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
        topics=setup.topics,
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
        expire_topics=runtime.expire_topics,
    )


class ExtentWorker:
    """One worker process: clients, a slot, and the extent in work (see `engines.Worker`)."""

    def __init__(self, runtime: Runtime, slots: Slots, *, setup: ExtentSetup | None = None) -> None:
        self._stopping = False
        self._slots = slots
        # Two renewals in a row may fail before the lease expires.
        self._renew_seconds = runtime.settings.lease_seconds / 3
        context = delivery_context(runtime, slots, setup=setup)
        self._work = replace(context, stopping=lambda: self._stopping)
        self._wanted = ConnectorStateCache(runtime.ledger, runtime.clock.monotonic)

    def run(self, extent: Extent) -> Receipt:
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            return run_until_final(extent, self._work, self._wanted.skip_reason)

    def run_once(self, extent: Extent, stopping: Callable[[], bool]) -> Receipt:
        """Run an extent as `run_or_fail`; hand it back where `stopping`, or its store fails."""
        limits = replace(self._work.limits, gives_up=False)
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            return run_or_fail(extent, replace(self._work, limits=limits, stopping=stopping))

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        self._slots.release()


def prepare_process() -> None:
    """Limit Arrow in this process to one core, and its memory to what one core needs."""
    pa.set_cpu_count(1)
    # Arrow's own allocator either keeps its peak, or returns pages so soon that clearing new ones
    # takes a quarter of a worker's time. It stays where the C allocator is not glibc's.
    if tune_allocator():
        pa.set_memory_pool(pa.system_memory_pool())


def worker_runtime(settings: dict[str, str]) -> Runtime:
    """Prepare this worker process and return its clients."""
    prepare_process()
    return Runtime(WorkerSettings.from_map(settings))


def open_worker(settings: dict[str, str], owner: str) -> ExtentWorker:
    """Return this process's worker; engines call it in worker processes (`engines.WorkerSpec`)."""
    runtime = worker_runtime(settings)
    return ExtentWorker(runtime, runtime.slots(owner))


def chosen_engine(name: str | None, master: str | None = None) -> str:
    """Return the engine called `name`; without a name `inline`, and `spark` for its master."""
    return name or (INLINE if master is None else "spark")


def require_engine(name: str, master: str | None = None) -> None:
    """Raise Misconfigured where there is no engine called `name`, or none that takes `master`."""
    known = (SPARK, *ENGINES.names())
    if name not in known:
        raise Misconfigured(
            f"--engine {name}: there is no such engine; use one of {', '.join(known)}"
        )
    if master is not None and name != "spark":
        raise Misconfigured(f"--master goes with --engine spark, not with {name}")
    if name == SPARK:  # before a broker is asked, or a topic is made
        with _from_spark_extra():
            if find_spec("pyspark") is None:
                raise ModuleNotFoundError(name="pyspark")


def open_engine(
    runtime: Runtime,
    name: str = INLINE,
    *,
    cores: int | None = None,
    master: str | None = None,
    max_tasks: int | None = None,
    start_run: StartRun | None = None,
    say: Callable[[str], object] = log.info,
) -> Engine:
    """Return the engine called `name`; `cores` are its workers here (default: this machine's).

    `max_tasks` (`tasks.max`) bounds the extents in work at once on any engine. `master` None means
    this machine for `spark`; SUBMITTED leaves it to spark-submit. `start_run` starts a remote run,
    whose progress messages go to `say`. Misconfigured: there is no such engine here.
    """
    require_engine(name, master)
    engine = None if name == SPARK else ENGINES.get(name)
    if isinstance(engine, RunService):
        return _remote(runtime, name, engine, start_run, cores=cores, say=say)
    run = f"run-{uuid4().hex[:12]}"
    spec = WorkerSpec(open=open_worker, settings=runtime.settings.to_map(), run=run)
    slots = runtime.settings.exactly_once_slots
    most = min(max_tasks or slots, slots)  # a worker without a slot only waits
    count = min(cores or os.cpu_count() or 1, most)
    if engine is None:
        return _spark(runtime, spec, count, master, most)
    return engine(spec, cores=count, evict=runtime.evict)


def _remote(
    runtime: Runtime,
    name: str,
    service: RunService,
    start_run: StartRun | None,
    *,
    cores: int | None,
    say: Callable[[str], object],
) -> SubmittedRunEngine:
    options.require_shared_ledger(runtime.settings, f"runs on {service.title}", HERE)
    options.require_password_elsewhere(runtime.settings, f"a run of {service.title}")
    if start_run is None:
        raise Misconfigured(f"--engine {name} is for `run` and `replay`")
    runs = service.open(runtime.settings)
    if runs is None:
        raise Misconfigured(f"--engine {name} needs {service.needs}")
    runs.check()
    started = SubmittedRuns(runs, runtime.ledger, runtime.settings.spark_timeout_minutes)
    start = partial(start_run, started)
    clock = runtime.clock
    return SubmittedRunEngine(runs, start, runtime.ledger, clock, cores=cores or 1, say=say)


def _from_spark_extra() -> AbstractContextManager[None]:
    return from_extra("spark", "--engine spark", "; --engine inline needs no Spark")


def _spark(
    runtime: Runtime, spec: WorkerSpec[Worker], cores: int, master: str | None, most: int
) -> Engine:
    if master != SUBMITTED:
        require_ledger_for(master, runtime.settings, HERE)
    with _from_spark_extra():
        from extentflow.engines import spark  # noqa: PLC0415 - only Spark users need pyspark
    home = os.environ.get("JAVA_HOME")
    if master != SUBMITTED and shutil.which("java", path=f"{home}/bin" if home else None) is None:
        # Spark would only say that its gateway ended.
        where = f"JAVA_HOME={home} holds none" if home else "there is none on the path"
        raise Misconfigured(
            f"--engine spark needs Java 17 or 21, and {where}; install it, set JAVA_HOME, or use "
            "--engine inline"
        )
    owned, given = not spark.is_running(), None if master == SUBMITTED else master
    sc = spark.local_context(cores) if master is None else spark.context(given, {})
    require_ledger_for(sc.master, runtime.settings)  # as spark-submit chose it
    return spark.SparkEngine(spec, sc, max_tasks=most, evict=runtime.evict, owned=owned)


def is_local(master: str | None) -> bool:
    """Whether a Spark master runs all of its executors on this machine; None: the default does."""
    return master is None or master == "local" or master.startswith(("local[", "local-cluster["))


def require_ledger_for(master: str | None, settings: WorkerSettings, instead: str = "") -> None:
    """Raise Misconfigured where executors of a Spark master cannot use the ledger."""
    if not is_local(master):
        options.require_shared_ledger(settings, f"executors of {master}", instead)


def open_started(runtime: Runtime) -> SubmittedRuns | None:
    """Return the submitted runs of the ledger; None where the settings name no service of them."""
    if runtime.settings.spark_application_id is None:
        return None
    services = (one for _, one in ENGINES.items() if isinstance(one, RunService))
    runs = next(filter(None, (one.open(runtime.settings) for one in services)), None)
    minutes = runtime.settings.spark_timeout_minutes
    return SubmittedRuns(runs, runtime.ledger, minutes) if runs else None
