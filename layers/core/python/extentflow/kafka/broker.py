"""KafkaBroker: the `Broker` and `Fence` ports on a Kafka cluster."""

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from extentflow.errors import Misconfigured, SinkUnavailable, TransactionsRefused
from extentflow.kafka import (
    JOBS_TOPIC,
    PROGRESS_TOPIC,
    SCHEMAS_TOPIC,
    ProducerSettings,
    Records,
    Sink,
    SlotProgress,
)
from extentflow.kafka.native import Library, trusted_library
from extentflow.kafka.partitioning import KnownTopics
from extentflow.kafka.producer import ProducerHandle
from extentflow.kafka.reading import ConsumedRecord, consumer_settings, read_committed
from extentflow.kafka.settings import (
    Sign,
    Timeouts,
    client_settings,
    describe_security,
    idempotent_settings,
    spreads,
    transactional_settings,
    unreadable_files,
    with_tokens,
)
from extentflow.kafka.sinks import Arrays, FlushingSink, TransactionalSink
from extentflow.kafka.topic_admin import ONE_PARTITION, Admin, NewTopics, TopicFacts
from extentflow.kafka.transaction import (
    RetryBackoff,
    Transactions,
    coordinator_error,
    initialise,
    read_progress,
)

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# How long a dead worker's open transaction holds back read_committed consumers (the last
# stable offset). Brokers allow at most 15 minutes by default.
TRANSACTION_TIMEOUT_MS = 30_000
# Job events are few and each is flushed, so lingering would only delay them.
JOB_EVENTS = ProducerSettings(producer={"linger.ms": "0"}, exactly_once=False)


class SecretLookup(Protocol):
    """Looks up secrets that settings refer to; `refresh` bypasses the cache."""

    def __call__(self, written: Mapping[str, str], *, refresh: bool = False) -> Mapping[str, str]:
        """Return the settings with values. Raises CredentialsUnavailable, Misconfigured."""
        ...


def without_references(written: Mapping[str, str], *, refresh: bool = False) -> Mapping[str, str]:  # noqa: ARG001 - a SecretLookup
    """Return settings that contain no references to secrets."""
    return written


class KafkaBroker:
    """One Kafka cluster. Safe for use from several threads; its fences and sinks are not.

    `kafka` are librdkafka settings: bootstrap.servers and security. `look_up` resolves references
    to secrets whenever a client is created; `sign` signs tokens for brokers with IAM. The open
    transaction of a dead worker blocks consumers for at most `transaction_timeout_ms`.
    `find_library` returns librdkafka to queue whole arrays, or None to queue record by record.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        timeouts: Timeouts | None = None,
        look_up: SecretLookup = without_references,
        sign: Sign | None = None,
        find_library: Callable[[], Library | None] = trusted_library,
    ) -> None:
        if not kafka.get("bootstrap.servers"):
            raise Misconfigured("bootstrap.servers is not set; it names the Kafka brokers")
        self._kafka = dict(kafka)
        self._transaction_timeout_ms = transaction_timeout_ms
        self._timeouts = timeouts or Timeouts()
        self._look_up = look_up
        self._sign = sign
        self._find_library = find_library
        self._backoff = RetryBackoff()
        self._refused = False
        self._watching = threading.Lock()
        self._watcher: Admin | None = None

    @functools.cached_property
    def cluster(self) -> str:
        """The id of the cluster. Raises as `topics`."""
        return self._request(Admin.cluster_id)

    def ensure_progress_topic(self) -> None:
        """Create `extentflow.progress` unless it exists: one partition, always empty.

        Several workers may do so concurrently. Without the topic librdkafka retries an offset for
        it until the call's timeout. Raises Misconfigured where it may not be created, and
        SinkUnavailable where the broker did not answer.
        """
        self._request(lambda admin: admin.ensure(PROGRESS_TOPIC, ONE_PARTITION))

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        """Return the facts of the topics called `names`, in that order.

        Raises Misconfigured for topics that do not exist (all at once) and missing permissions,
        SinkUnavailable where the broker did not answer.
        """
        return self._request(lambda admin: admin.topic_facts(names))

    def missing_topics(self, names: Sequence[str]) -> list[str]:
        """Return those topics that do not exist. Raises as `topics`."""
        return self._request(lambda admin: [one for one in names if not admin.partitions(one)])

    def create_topics(self, names: Sequence[str], wanted: NewTopics) -> list[str]:
        """Create the topics that do not exist; return them. Raises as `ensure_progress_topic`."""
        return self._request(lambda admin: [one for one in names if admin.ensure(one, wanted)])

    @property
    def creates_topics(self) -> bool:
        """Whether the brokers create a topic at its first use, as far as they say so."""
        with suppress(Misconfigured):  # their configuration may not be read
            return self.config().get("auto.create.topics.enable") == "true"
        return False

    def config(self) -> Mapping[str, str]:
        """Return the configuration of one broker. Raises as `topics`."""
        return self._request(Admin.broker_config)

    def share_groups(self) -> Mapping[str, str]:
        """Return the isolation level of each share group, by its name. Raises as `topics`."""
        return self._request(Admin.share_groups)

    def proof(self) -> str:
        """Resolve secrets and sign a token, as every client does; describe what brokers are shown.

        Connects to no broker. Raises CredentialsUnavailable or Misconfigured as these do.
        """
        found = self._look_up(self._kafka, refresh=True)
        _require_files(found)
        with_tokens(client_settings(found, {}), self._sign)
        return describe_security(found)

    def fence(self, identity: str, client: ProducerSettings) -> "KafkaFence":
        """Fence the previous producer of `identity`, as `Broker.fence`."""
        timeout_ms, subject = self._transaction_timeout_ms, f"slot {identity}"

        def fence(kafka: Mapping[str, str], client: ProducerSettings) -> KafkaFence:
            settings = transactional_settings(kafka, client, identity, timeout_ms=timeout_ms)
            settings |= self._backoff.settings(settings)
            owner = self._client(settings, subject)
            # Also for at least once: the epoch of the transactional id fences the previous owner.
            ask = functools.partial(coordinator_error, settings)
            self._fencing(client, lambda: initialise(owner, self._timeouts, ask))
            arrays, free = self._arrays, spreads(settings)
            transactions = Transactions(
                owner,
                identity,
                self._timeouts,
                repeats_after_seconds=int(settings["socket.timeout.ms"]) / 1000,
                retry_backoff_ms=int(settings["retry.backoff.ms"]),
                backoff=self._backoff,
            )
            reading = with_tokens(client_settings(kafka, client.producer), self._sign)

            def open_sink() -> Sink:
                if client.exactly_once:
                    topics = KnownTopics(owner, self._timeouts)
                    return TransactionalSink(owner, transactions, topics, arrays, free, client)
                owner.close()
                plain = idempotent_settings(kafka, client, delivery_timeout_ms=timeout_ms)
                make = functools.partial(self._client, plain, subject)
                return FlushingSink(make, self._timeouts, client)

            def mark(progress: SlotProgress) -> None:
                self._fencing(client, lambda: transactions.commit(progress))

            return KafkaFence(
                owner,
                mark,
                lambda: read_progress(reading, identity, self._timeouts),
                open_sink,
            )

        return self._with_secrets(client, fence)

    def _fencing(self, client: ProducerSettings, step: Callable[[], None]) -> None:
        """Take a step of fencing; at least once does without where brokers refuse transactions.

        There the ledger has the only position, and Kafka holds nothing that a fence protects.
        """
        if client.exactly_once:
            step()
        elif not self._refused:
            try:
                step()
            except TransactionsRefused as exc:
                why, _, _ = str(exc).partition("; ")  # the rest names this way as the remedy
                log.warning("slots are leased in the ledger only: %s", why)
                self._refused = True

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the end offset of each partition, as `Broker.end_offsets`."""
        return self._request(lambda admin: admin.end_offsets(topic))

    def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition, as `Broker.first_offsets`."""
        return self._request(lambda admin: admin.first_offsets(topic))

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the id of each topic; empty where brokers have none. Raises as `end_offsets`."""

        def ask(admin: Admin) -> Mapping[str, str]:
            for name in names:
                admin.partitions_to_read(name)  # names what is missing, with what is similar
            return admin.topic_ids(names)

        return self._request(ask)

    def present_topics(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics, as `Broker.present_topics`; its client stays open."""
        with self._watching:
            if self._watcher is None:
                self._watcher = self.open_admin()
            try:
                return self._watcher.topic_ids(names, absent=True)
            except (Misconfigured, SinkUnavailable):
                self._watcher = None  # its secrets or connections may be outdated
        return self._request(lambda admin: admin.topic_ids(names, absent=True))

    def open_admin(self) -> Admin:
        """Return a client for many requests, with the secrets of now; to be closed.

        Raises CredentialsUnavailable and Misconfigured.
        """
        settings = client_settings(self._look_up(self._kafka), {})
        return Admin(with_tokens(settings, self._sign), self._timeouts)

    def read_from(
        self,
        topic: str,
        begin: Mapping[int, int],
        *,
        end: Mapping[int, int],
        group: str,
        follow: bool = False,
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the committed records of the partitions of `begin`, from these offsets to `end`.

        With `follow`, without an end, and for ever, also of partitions that are added. `group`
        begins with `app.id`, on which ACLs are granted. Raises as `reader.read_committed`.
        """
        kafka, timeouts = self._look_up(self._kafka), self._timeouts
        return read_committed(
            kafka,
            topic,
            begin=begin,
            end=end,
            group=group,
            follow=follow,
            timeouts=timeouts,
            sign=self._sign,
        )

    def reader_settings(self, group: str) -> dict[str, Any]:
        """Return librdkafka's settings of a consumer of committed records, with secrets.

        `group` as for `read_from`. Raises CredentialsUnavailable and Misconfigured.
        """
        settings = consumer_settings(self._look_up(self._kafka), group)
        return with_tokens(settings, self._sign)

    def open_job_events(self) -> Sink:
        """Return a sink for job events; it belongs to no slot, and its commit flushes.

        `extentflow.jobs` is created unless it exists, and keeps the last event of each job for the
        cluster's retention time. Raises as `ensure_progress_topic`.
        """
        wanted = replace(ONE_PARTITION, config={"cleanup.policy": "compact,delete"})
        self._request(lambda admin: admin.ensure(JOBS_TOPIC, wanted))
        return self._open_own(JOBS_TOPIC)

    def ensure_schemas_topic(self) -> None:
        """Create `extentflow.schemas` unless it exists: one partition, which keeps every record.

        Not compacted: the order of its records decides, and compaction would change it.

        Raises as `ensure_progress_topic`.
        """
        kept = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        wanted = replace(ONE_PARTITION, config=kept)
        self._request(lambda admin: admin.ensure(SCHEMAS_TOPIC, wanted))

    def add_schema(self, key: bytes, value: bytes) -> None:
        """Add a record to `extentflow.schemas`, and wait until brokers have it.

        Raises as `Sink.commit`, and Misconfigured for one that is too large for the topic.
        """
        sink = self._open_own(SCHEMAS_TOPIC)
        try:
            record = Records(
                SCHEMAS_TOPIC, pa.array([value], pa.binary()), pa.array([key], pa.binary())
            )
            if rejected := sink.send(record):
                raise Misconfigured(f"topic {SCHEMAS_TOPIC}: {rejected[0].reason}")
            sink.commit(SlotProgress(0))
        finally:
            sink.close()

    def _open_own(self, topic: str) -> Sink:
        timeout_ms = round(self._timeouts.commit_seconds * 1000)
        kafka, subject = self._look_up(self._kafka), f"topic {topic}"
        settings = idempotent_settings(kafka, JOB_EVENTS, delivery_timeout_ms=timeout_ms)
        return FlushingSink(lambda: self._client(settings, subject), self._timeouts)

    @functools.cached_property
    def _arrays(self) -> Arrays:
        return Arrays(self._find_library())

    def _client(self, settings: Mapping[str, str], subject: str) -> ProducerHandle:
        return ProducerHandle(with_tokens(settings, self._sign), subject)

    def _request(self, request: Callable[[Admin], Answer]) -> Answer:
        def send(kafka: Mapping[str, str], client: ProducerSettings) -> Answer:
            settings = with_tokens(client_settings(kafka, client.producer), self._sign)
            with Admin(settings, self._timeouts) as admin:
                return request(admin)

        return self._with_secrets(ProducerSettings(), send)

    def _with_secrets(
        self, client: ProducerSettings, act: Callable[[Mapping[str, str], ProducerSettings], Answer]
    ) -> Answer:
        """Return `act(kafka, client)`; repeat it with fresh secrets if cached ones were rejected.

        A rotated secret must not fail an extent.
        """

        def look_up(*, refresh: bool) -> tuple[Mapping[str, str], ProducerSettings]:
            producer = self._look_up(client.producer, refresh=refresh)
            return self._look_up(self._kafka, refresh=refresh), replace(client, producer=producer)

        def attempt(kafka: Mapping[str, str], client: ProducerSettings) -> Answer:
            _require_files(kafka)
            return act(kafka, client)

        cached = look_up(refresh=False)
        try:
            return attempt(*cached)
        except Misconfigured:
            fresh = look_up(refresh=True)
            # The same secrets would be rejected again.
            if fresh == cached:
                raise
        return attempt(*fresh)


def _require_files(kafka: Mapping[str, str]) -> None:
    if missing := unreadable_files(kafka):
        raise Misconfigured(missing)


@dataclass(slots=True, eq=False)
class KafkaFence:
    """`Fence` of `owner`, the producer that fenced its predecessors."""

    owner: ProducerHandle
    commit_marker: Callable[[SlotProgress], None]
    read_progress: Callable[[], SlotProgress | None]
    open_sink: Callable[[], Sink]
    opened: bool = False

    def read(self) -> SlotProgress | None:
        return self.read_progress()

    def mark(self, progress: SlotProgress) -> None:
        self.commit_marker(progress)

    def open(self) -> Sink:
        self.opened = True
        return self.open_sink()

    def close(self) -> None:
        if not self.opened:
            self.owner.close()
