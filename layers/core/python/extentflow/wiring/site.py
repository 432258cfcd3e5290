"""What one process needs of the outside world, made when first used.

Owns: which clients a process has and how long they live. Refuses to know: commands, engines.
"""

from __future__ import annotations

import logging
import os
import zlib
from functools import cached_property
from random import Random
from typing import Self

from extentflow.clock import Clock
from extentflow.config import nearest, read_if_present
from extentflow.config import worker as worker_settings
from extentflow.config.worker import ARRAYS, WorkerSettings
from extentflow.connectors import ConnectorConfig
from extentflow.credentials.mskiam import TokenSigner
from extentflow.credentials.secretsmanager import SecretsManager
from extentflow.delivery.deadletters import DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.slots import SlotPolicy, Slots, require_app
from extentflow.errors import Misconfigured, Retryable
from extentflow.formats import Format, open_format
from extentflow.jobs.planner import Intake, Planner
from extentflow.ledger import ConnectorVersion
from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.ledger.dynamodb_calls import Patience as LedgerPatience
from extentflow.model import Extent, Job, ObjectVersion
from extentflow.sink import ClientSettings, Sink
from extentflow.sink.broker import KafkaBroker
from extentflow.sink.layout import trusted_library
from extentflow.sink.native import Library
from extentflow.sink.settings import Timeouts
from extentflow.sink.topics import TopicFacts
from extentflow.storage import ObjectStore, RangeSource, StoreOptions, open_store
from extentflow.storage.ranges import RangeReader
from extentflow.wiring import options
from extentflow.wiring.registry import parse_connector
from extentflow.wiring.rotation import RotatedStore

log = logging.getLogger(__name__)

REMEMBERED_JOBS = 1_024


class Site:
    """Everything one process needs of the outside world.

    A driver has one for its commands; a worker process has its own, never a forked one.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.random = Random()  # noqa: S311 - jitter and names, no secrets
        self._references = options.References(SecretsManager(self.clock))
        self._usable: set[tuple[str, int]] = set()
        self._sign = TokenSigner()
        self._stores: dict[tuple[str, int, StoreOptions], ObjectStore] = {}
        self._configs: dict[tuple[str, int], ConnectorConfig] = {}
        self._formats: dict[tuple[str, int, str, str], Format] = {}
        self._revisions: dict[str, int] = {}
        self._topics: dict[str, TopicFacts] = {}

    @classmethod
    def from_environment(cls) -> Self:
        """Read settings from the environment and the files it names."""
        return cls(worker_settings.load(os.environ, read_text=read_if_present))

    @cached_property
    def ledger(self) -> DynamoLedger:
        """The ledger; nothing is requested before its first call."""
        return self._open_ledger(options.ledger_patience(self.settings.retry_timeout_seconds))

    @cached_property
    def broker(self) -> KafkaBroker:
        """The Kafka cluster of `bootstrap.servers`."""
        return self._open_broker(options.sink_timeouts(self.settings.retry_timeout_seconds))

    def _open_ledger(self, patience: LedgerPatience) -> DynamoLedger:
        return DynamoLedger(
            self.settings.ledger_table,
            endpoint=self.settings.ledger_endpoint,
            region=self.settings.ledger_region,
            patience=patience,
        )

    def _open_broker(self, timeouts: Timeouts) -> KafkaBroker:
        settings = self.settings
        return KafkaBroker(
            {"bootstrap.servers": settings.bootstrap_servers, **settings.kafka},
            transaction_timeout_ms=settings.transaction_timeout_ms,
            timeouts=timeouts,
            look_up=self._references,
            sign=self._sign,
            find_library=self._library,
        )

    def _library(self) -> Library | None:
        return trusted_library() if self.settings.sink_enqueue == ARRAYS else None

    def open_news(self) -> Sink:
        """Return a sink for job events, of no slot, that does not wait for long."""
        return self._open_broker(options.job_event_timeouts()).open_news()

    def topic(self, name: str) -> TopicFacts:
        """Return a topic's facts, asked for once per process."""
        if name not in self._topics:
            (self._topics[name],) = self.broker.topics([name])
        return self._topics[name]

    # -- connectors -----------------------------------------------------------------------------

    def connector(self, name: str) -> tuple[ConnectorConfig, int]:
        """Return a connector's latest revision.

        Raises:
            Misconfigured: there is none, or this version of ours cannot read it.
        """
        stored = self.ledger.connector(name)
        if stored is None:
            put = "`extentflow connectors put FILE` stores one"
            names = list(self.ledger.connector_names())
            if name in names:
                raise Misconfigured(f"connector {name} was deleted; {put} anew")
            raise Misconfigured(f"there is no connector {name}; {nearest(name, names, put)}")
        return self.config(name, stored.revision), stored.revision

    def config(self, name: str, revision: int) -> ConnectorConfig:
        """Return one revision of a connector, as jobs pin it."""
        if (name, revision) not in self._configs:
            stored = self.ledger.connector(name, revision)
            if stored is None:
                raise Misconfigured(
                    f"the ledger has no revision {revision} of connector {name}, which a job "
                    "pins; restore the table, or run the object's address with --again"
                )
            self._configs[name, revision] = _parsed(stored)
        return self._configs[name, revision]

    def topic_of(self, job: Job) -> str:
        """Return the topic of a job's records; its template where that makes no legal name.

        Raises:
            Misconfigured: the connector cannot be read.
        """
        config = self.config(job.connector, job.revision)
        try:
            return config.topic_for(job.version)
        except Misconfigured:
            return config.topic

    def revision(self, extent: Extent) -> int:
        """Return the connector revision that the extent's job pins."""
        if extent.job not in self._revisions:
            job = self.ledger.job(extent.job)
            if job is None:
                raise Misconfigured(f"{extent.uri}: the ledger has no job {extent.job}")
            if len(self._revisions) >= REMEMBERED_JOBS:
                self._revisions.clear()
            self._revisions[extent.job] = job.revision
        return self._revisions[extent.job]

    def unusable(self, job: Job) -> str:
        """Return why no job can be delivered from here under the revision that this one pins.

        "" where it can, as far as its configuration tells; that is asked once per revision.
        """
        if (job.connector, job.revision) in self._usable:
            return ""
        try:
            config = self.config(job.connector, job.revision)
            self.store(config, job.revision)
            self._references(config.producer)
        except Misconfigured as exc:
            problems = "; ".join(exc.problems)
            return f"revision {job.revision} of connector {job.connector}: {problems}"
        self._usable.add((job.connector, job.revision))
        return ""

    # -- objects --------------------------------------------------------------------------------

    def store(self, config: ConnectorConfig, revision: int) -> ObjectStore:
        """Return the connector's object store; one client per process, revision and secrets."""
        chosen = self._store_options(config)
        key = (config.name, revision, chosen)
        if key not in self._stores:
            store = open_store(config.endpoint_type, chosen)
            if config.secret_access_key:
                store = RotatedStore(
                    store, lambda: self._store_options(config, anew=True) != chosen
                )
            self._stores[key] = store
        return self._stores[key]

    def _store_options(self, config: ConnectorConfig, *, anew: bool = False) -> StoreOptions:
        return options.store_options(
            config,
            self._references,
            retry_seconds=self.settings.retry_timeout_seconds,
            anew=anew,
        )

    def fetched_bytes(self) -> int:
        """Bytes that this process has read from its stores so far."""
        return sum(getattr(store, "fetched_bytes", 0) for store in self._stores.values())

    def format(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> Format:
        """Return the format that decodes this object; caches live as long as the process."""
        name = config.format_for(version.key)
        compression = config.compression_for(version.key)
        key = (config.name, revision, name, compression)
        if key not in self._formats:
            chosen = options.format_options(config, name, compression)
            self._formats[key] = open_format(name, chosen)
        return self._formats[key]

    def source(self, job: Job) -> tuple[Format, RangeSource]:
        """Return how a job's object is decoded and read."""
        config = self.config(job.connector, job.revision)
        store = self.store(config, job.revision)
        return self.format(config, job.revision, job.version), RangeReader(store, job.version)

    def planner(self) -> Planner:
        """Return the planner over this site's ledger and stores."""
        return Planner(self.ledger, self.source, self.clock)

    def intake(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion, cores: int
    ) -> Intake:
        """Return what a job for this object is made of."""
        return options.intake(config, revision, version, self.broker.cluster, cores)

    # -- ownership ------------------------------------------------------------------------------

    def require_app(self) -> None:
        """Tie the ledger to our `app.id`.

        Raises:
            Misconfigured: it belongs to another one, whose workers nobody of ours would fence.
        """
        require_app(self.ledger, self.settings.app_id)

    def slots(self, owner: str) -> Slots:
        """Return ownership under the unique name `owner`."""
        settings = self.settings
        policy = SlotPolicy(
            count=settings.exactly_once_slots,
            lease_seconds=settings.lease_seconds,
            stall_seconds=settings.extent_stall_seconds,
        )
        return Slots(
            ledger=self.ledger,
            broker=self.broker,
            policy=policy,
            app_id=settings.app_id,
            owner=owner,
            clock=self.clock,
            random=self.random,
        )

    def evict(self, owner_prefix: str) -> int:
        """Settle and free the slots of workers that are known to be gone; return how many.

        Best effort, within seconds: where brokers or table are away, the leases' ends do it.
        """
        try:
            return self._evictor.evict(owner_prefix)
        except Retryable as exc:
            lease = self.settings.lease_seconds
            log.warning("slots stay leased for up to %g s more: %s", lease, exc)
            return 0

    @cached_property
    def brief_ledger(self) -> DynamoLedger:
        """The ledger for whoever cannot wait for long."""
        return self._open_ledger(options.brief_ledger_patience())

    @cached_property
    def _evictor(self) -> Slots:
        """Ownership for `evict`, over clients that do not wait for long."""
        settings = self.settings
        return Slots(
            ledger=self.brief_ledger,
            broker=self._open_broker(options.brief_sink_timeouts()),
            policy=SlotPolicy(settings.exactly_once_slots, settings.lease_seconds),
            app_id=settings.app_id,
            owner=f"driver-{os.getpid()}-{self.random.getrandbits(32):08x}",
            clock=self.clock,
            random=self.random,
        )

    # -- one extent -----------------------------------------------------------------------------

    def pipeline(self, extent: Extent) -> Pipeline:
        """Return how this extent becomes records."""
        revision = self.revision(extent)
        config = self.config(extent.connector, revision)
        topic = config.topic_for(extent.version)
        keyed = config.message_key.source != "none"
        return Pipeline(
            source=RangeReader(self.store(config, revision), extent.version),
            format=self.format(config, revision, extent.version),
            topic=topic,
            value=options.value(config, extent.format),
            key=options.key(config, extent.version) if keyed else None,
            partition=-1 if keyed else self._partition(config, extent, topic),
        )

    def dead_letters(self, extent: Extent) -> DeadLetters:
        """Return where this extent's bad records go."""
        revision = self.revision(extent)
        config = self.config(extent.connector, revision)
        return DeadLetters(
            topic=config.dead_letter_topic if config.errors_tolerance == "all" else None,
            source_topic=config.topic_for(extent.version),
            place=self.format(config, revision, extent.version).place,
            context=config.dead_letter_headers,
            limit_bytes=self._dead_letter_limit(config),
        )

    def client(self, extent: Extent) -> ClientSettings:
        """Return the producer settings of this extent's connector, with its topics' limits.

        The topic's decides which records are too large, never the dead letter queue's.
        """
        config = self.config(extent.connector, self.revision(extent))
        topic = config.topic_for(extent.version)
        limit = self.topic(topic).max_message_bytes
        return ClientSettings(
            producer=config.producer,
            exactly_once=config.exactly_once,
            max_message_bytes=limit,
            max_batch_bytes=min(limit, self._dead_letter_limit(config) or limit),
            topic=topic,
        )

    def _dead_letter_limit(self, config: ConnectorConfig) -> int | None:
        queue = config.dead_letter_topic
        return None if queue is None else self.topic(queue).max_message_bytes

    def _partition(self, config: ConnectorConfig, extent: Extent, topic: str) -> int:
        """Return the one partition of an ordered object without keys, -1 otherwise."""
        if not config.ordered:
            return -1
        return zlib.crc32(extent.version.key.encode()) % self.topic(topic).partitions


def _parsed(stored: ConnectorVersion) -> ConnectorConfig:
    """Return what a stored connector says; problems name it, for it may be one of many."""
    try:
        return parse_connector(stored.config)
    except Misconfigured as exc:
        which = f"connector {stored.name}, revision {stored.revision}, cannot be read"
        raise Misconfigured([f"{which}: {problem}" for problem in exc.problems]) from exc
