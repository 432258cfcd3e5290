"""The clients of one process, each opened when first used."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Self

from extentflow import aws
from extentflow.aws.msk import TokenSigner
from extentflow.aws.secrets_manager import SecretsManager
from extentflow.background import LatestCall
from extentflow.columnar.topic_schemas import TopicSchemas
from extentflow.config import worker as worker_settings
from extentflow.config.files import read_owned
from extentflow.config.ledgers import DEFAULT_TABLE, LedgerAddress
from extentflow.config.worker import ARRAYS, WorkerSettings
from extentflow.delivery.acceptance import Acceptance
from extentflow.delivery.slots import SlotPolicy, Slots, require_app
from extentflow.errors import Misconfigured, Retryable, SinkUnavailable
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import Planner
from extentflow.kafka import Sink
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.native import trusted_library
from extentflow.kafka.partitioning import REFRESH_SECONDS
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.ledger import Ledger, LedgerOptions, open_ledger
from extentflow.retry import Clock
from extentflow.wiring import options
from extentflow.wiring.deliverability import Deliverability
from extentflow.wiring.objects import JobRequests, ObjectAccess

log = logging.getLogger(__name__)

# As long as producers wait before they ask for a topic's partitions again.
TOPIC_SECONDS = REFRESH_SECONDS
# Before records are refused for a limit; bad records of several chunks cost one request.
CURRENT_SECONDS = 10.0
# Of a question to a store whose answer is not needed, while a person waits for the command's end.
BRIEF_SECONDS = 2.0
# Of one request, at the creation of a ledger.
TABLE_SECONDS = 1.0


class Runtime:
    """The ledger, broker, connectors and objects of one process; each process makes its own."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        notify: Callable[[str], object] = log.info,
        creates: bool = True,
    ) -> None:
        """Use settings; `creates` False: a missing ledger of the user is an error."""
        self.settings = settings
        self._notify = notify
        self._creates = creates
        self.clock = Clock()
        self.random = Random()  # noqa: S311 - jitter and names, no secrets
        self.secrets = options.SecretResolver(SecretsManager(self.clock))
        self.connector_secrets = replace(self.secrets, trust=settings.trust)
        self._sign = TokenSigner()
        self._topics: dict[str, tuple[TopicFacts, float]] = {}
        self._warned: set[str] = set()

    @classmethod
    def from_environment(
        cls,
        given: Mapping[str, str] | None = None,
        *,
        notify: Callable[[str], object] = log.info,
        creates: bool = True,
        brokers: bool = True,
    ) -> Self:
        """Read settings from the environment, the files it names, and `given` over both.

        `brokers` False: the command uses the ledger only, and no setting has to name brokers.
        """
        found = worker_settings.load(os.environ, read_text=read_owned, given=given, brokers=brokers)
        if path := worker_settings.found_file(os.environ, read_owned):
            notify(f"using the settings in {Path(path).resolve()}")
        return cls(found, notify=notify, creates=creates)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger; nothing is requested before its first call, but the user's own is created."""
        opened = open_ledger(options.ledger_options(self.settings, self.secrets))
        where = self.ledger_address
        # Not where a setting names a file: a mistyped path would be a ledger without any job.
        if not where.chosen and not opened.admin.exists():
            _require_no_table(where)
            if not self._creates:
                raise Misconfigured(
                    f"there is no ledger yet: {where.path} is created with the first connector or"
                    " delivery; set ledger.url where another one records them"
                )
            opened.admin.create()
            self._notify(f"created the ledger {where.path}, which records what is delivered")
        return opened

    @property
    def ledger_address(self) -> LedgerAddress:
        """Where the ledger is."""
        return options.ledger_address(self.settings)

    @cached_property
    def brief_ledger(self) -> Ledger:
        """The ledger with short timeouts, for calls that hold up the end of a command."""
        return open_ledger(options.ledger_options(self.settings, self.secrets, brief=True))

    @cached_property
    def broker(self) -> KafkaBroker:
        """The Kafka cluster of `bootstrap.servers`."""
        return self._open_broker(options.sink_timeouts(self.settings.retry_timeout_seconds))

    @cached_property
    def schemas(self) -> TopicSchemas:
        """The schemas of columnar values in topics."""
        group = f"{self.settings.app_id}.schemas.{self.random.getrandbits(64):x}"
        return TopicSchemas(self.broker, group)

    @cached_property
    def connectors(self) -> ConnectorCatalogue:
        """The connectors of the ledger."""
        return ConnectorCatalogue(self.ledger, self.settings.trust)

    @cached_property
    def objects(self) -> ObjectAccess:
        """The stores and formats of connectors."""
        return ObjectAccess(
            self.connectors,
            self.connector_secrets,
            retry_seconds=self.settings.retry_timeout_seconds,
        )

    @cached_property
    def brief_objects(self) -> ObjectAccess:
        """The stores of connectors with short timeouts, for calls that may do without an answer."""
        connectors = ConnectorCatalogue(self.brief_ledger)
        brief = min(BRIEF_SECONDS, self.settings.retry_timeout_seconds)
        return ObjectAccess(connectors, self.connector_secrets, retry_seconds=brief)

    @cached_property
    def requests(self) -> JobRequests:
        """Requests of jobs that deliver to this process's cluster."""
        return JobRequests(self.objects, lambda: self.broker.cluster)

    @cached_property
    def deliverability(self) -> Deliverability:
        """What this process can deliver."""
        return Deliverability(self.connectors, self.objects, self.connector_secrets)

    def planner(self) -> Planner:
        """Return a planner over this process's ledger and stores."""
        return Planner(self.ledger, self.objects.source, self.clock)

    def topic(self, name: str, *, within_seconds: float = TOPIC_SECONDS) -> TopicFacts:
        """Return a topic's facts, no older than stated unless the broker is unavailable."""
        known, now = self._topics.get(name), self.clock.monotonic()
        if known is not None and now - known[1] < within_seconds:
            return known[0]
        try:
            (facts,) = self.broker.topics([name])
        except SinkUnavailable as exc:
            if known is None:
                raise
            log.warning("topic %s: what is known of it stays in use: %s", name, exc)
            facts = known[0]
        self._topics[name] = (facts, now)
        return facts

    @property
    def acceptance(self) -> Acceptance:
        """What topics take, beside sizes."""
        return Acceptance(
            limits=lambda name: self.topic(name).limits,
            current=lambda name: self.topic(name, within_seconds=CURRENT_SECONDS).limits,
            wall=self.clock.wall,
            aged=self._warn_of_deletion,
        )

    def _warn_of_deletion(self, limits: TopicLimits, count: int, of: int) -> None:
        """Log once per topic that Kafka deletes records soon after they arrive."""
        if limits.topic not in self._warned:
            self._warned.add(limits.topic)
            log.warning("%s", limits.describe_deleted(count, of))

    def expire_topics(self) -> None:
        """Read topics' facts again at their next use: a broker applies another limit."""
        self._topics = {name: (facts, -math.inf) for name, (facts, _) in self._topics.items()}

    def open_event_sink(self) -> Sink:
        """Return a sink for job events, without a slot and with short timeouts."""
        return self._open_broker(options.JOB_EVENT_TIMEOUTS).open_job_events()

    def require_app(self) -> None:
        """Bind the ledger to `app.id`; Misconfigured: another one's producers use it."""
        require_app(self.ledger, self.settings.app_id)

    def slots(self, owner: str) -> Slots:
        """Return slot ownership under the unique name `owner`."""
        return self._open_slots(self.ledger, self.broker, owner)

    def evict(self, owner_prefix: str) -> int:
        """Free the slots of terminated workers, where services are available; return how many."""
        try:
            return self._evictor.evict(owner_prefix)
        except Retryable as exc:
            lease = self.settings.lease_seconds
            log.warning("slots stay leased for up to %g s more: %s", lease, exc)
            return 0

    @cached_property
    def _evictor(self) -> Slots:
        owner = f"driver-{os.getpid()}-{self.random.getrandbits(32):08x}"
        # Short timeouts, because an eviction holds up the end of a command.
        broker = self._open_broker(options.BRIEF_TIMEOUTS)
        return self._open_slots(self.brief_ledger, broker, owner)

    def _open_slots(self, ledger: Ledger, broker: KafkaBroker, owner: str) -> Slots:
        settings = self.settings
        policy = SlotPolicy(
            count=settings.exactly_once_slots,
            lease_seconds=settings.lease_seconds,
            stall_seconds=settings.extent_stall_seconds,
        )
        return Slots(
            ledger=ledger,
            broker=broker,
            policy=policy,
            app_id=settings.app_id,
            owner=owner,
            clock=self.clock,
            random=self.random,
            submit=LatestCall().submit,
        )

    def _open_broker(self, timeouts: Timeouts) -> KafkaBroker:
        settings = self.settings
        return KafkaBroker(
            {"bootstrap.servers": settings.bootstrap_servers, **settings.kafka},
            transaction_timeout_ms=settings.transaction_timeout_ms,
            timeouts=timeouts,
            look_up=self.secrets,
            sign=self._sign,
            find_library=lambda: trusted_library() if settings.sink_enqueue == ARRAYS else None,
        )


def _require_no_table(own: LedgerAddress) -> None:
    """Raise Misconfigured where DynamoDB has the table that was the ledger of unset settings.

    An empty ledger beside it would deliver everything again. Sends a request only where AWS is
    configured; without a usable response there is no such table.
    """
    if not aws.is_configured():
        return
    table = LedgerOptions(
        DEFAULT_TABLE,
        retry_seconds=TABLE_SECONDS,
        connect_seconds=TABLE_SECONDS,
        read_seconds=TABLE_SECONDS,
    )
    try:
        exists = open_ledger(table).admin.exists()
    except (Misconfigured, Retryable):  # no permission to see it, no network
        return
    if exists:
        raise Misconfigured(
            f"no setting names a ledger, and DynamoDB has the table {DEFAULT_TABLE}:"
            f" EXTENTFLOW_LEDGER_TABLE={DEFAULT_TABLE} uses it; EXTENTFLOW_LEDGER_URL={own}, with"
            " `extentflow init`, begins a ledger on this machine, under which everything is"
            " delivered again"
        )
