"""KafkaBroker: the `Broker` and `Fence` ports on a Kafka cluster."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from extentflow.errors import Misconfigured
from extentflow.sink import JOBS_TOPIC, ProducerSettings, Sink, SlotProgress
from extentflow.sink.native import Library, trusted_library
from extentflow.sink.partitions import KnownTopics
from extentflow.sink.producer import ProducerHandle
from extentflow.sink.settings import (
    Sign,
    Timeouts,
    client_settings,
    describe_security,
    idempotent_settings,
    spreads,
    transactional_settings,
    with_tokens,
)
from extentflow.sink.sinks import Arrays, FlushingSink, TransactionalSink
from extentflow.sink.topics import (
    Admin,
    TopicFacts,
    broker_config,
    cluster_id,
    ensure_jobs_topic,
    ensure_progress_topic,
    topic_facts,
)
from extentflow.sink.transaction import Transactions, initialise, read_progress

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

    @functools.cached_property
    def cluster(self) -> str:
        """The id of the cluster. Raises as `topics`."""
        return self._request(cluster_id)

    def ensure_progress_topic(self) -> None:
        """Create `extentflow.progress` unless it exists; several workers may do so concurrently.

        Raises:
            Misconfigured: it is missing and may not be created.
            SinkUnavailable: the broker did not answer.
        """
        self._request(ensure_progress_topic)

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        """Return the facts of the topics called `names`, in that order.

        Raises:
            Misconfigured: topics that do not exist (all at once), or missing permissions.
            SinkUnavailable: the broker did not answer.
        """
        return self._request(lambda admin: topic_facts(admin, names))

    def config(self) -> Mapping[str, str]:
        """Return the configuration of one broker. Raises as `topics`."""
        return self._request(broker_config)

    def proof(self) -> str:
        """Resolve secrets and sign a token, as every client does; describe what brokers are shown.

        Connects to no broker.

        Raises:
            CredentialsUnavailable, Misconfigured: a secret or a token is unavailable.
        """
        found = self._look_up(self._kafka, refresh=True)
        with_tokens(client_settings(found, {}), self._sign)
        return describe_security(found)

    def fence(self, identity: str, client: ProducerSettings) -> "KafkaFence":
        """Fence the previous producer of `identity`, as `Broker.fence`."""

        def fence(kafka: Mapping[str, str], producer: Mapping[str, str]) -> KafkaFence:
            return self._fence(identity, kafka, replace(client, producer=producer))

        return self._with_secrets(client.producer, fence)

    def _fence(
        self, identity: str, kafka: Mapping[str, str], client: ProducerSettings
    ) -> "KafkaFence":
        timeout_ms, subject = self._transaction_timeout_ms, f"slot {identity}"
        settings = transactional_settings(
            kafka, client, identity, transaction_timeout_ms=timeout_ms
        )
        owner = self._client(settings, subject)
        # Also for at least once: the epoch of the transactional id fences the previous owner.
        initialise(owner, self._timeouts)
        plain = None
        if not client.exactly_once:
            idempotent = idempotent_settings(kafka, client, delivery_timeout_ms=timeout_ms)
            plain = functools.partial(self._client, idempotent, subject)
        reading = with_tokens(client_settings(kafka, client.producer), self._sign)
        return KafkaFence(
            owner,
            identity,
            reading,
            plain,
            self._timeouts,
            arrays=self._arrays,
            spreads=spreads(settings),
        )

    def open_job_events(self) -> Sink:
        """Return a sink for job events; it belongs to no slot, and its commit flushes.

        `extentflow.jobs` is created unless it exists. Raises as `ensure_progress_topic`.
        """
        self._request(ensure_jobs_topic)
        timeout_ms = round(self._timeouts.commit_seconds * 1000)
        settings = idempotent_settings(
            self._look_up(self._kafka), JOB_EVENTS, delivery_timeout_ms=timeout_ms
        )
        return FlushingSink(
            functools.partial(self._client, settings, f"topic {JOBS_TOPIC}"), self._timeouts
        )

    @functools.cached_property
    def _arrays(self) -> Arrays | None:
        library = self._find_library()
        return None if library is None else Arrays(library)

    def _client(self, settings: Mapping[str, str], subject: str) -> ProducerHandle:
        return ProducerHandle(with_tokens(settings, self._sign), subject)

    def _request(self, request: Callable[[Admin], Answer]) -> Answer:
        def send(kafka: Mapping[str, str], producer: Mapping[str, str]) -> Answer:
            settings = with_tokens(client_settings(kafka, producer), self._sign)
            with Admin(settings, self._timeouts) as admin:
                return request(admin)

        return self._with_secrets({}, send)

    def _with_secrets(
        self,
        producer: Mapping[str, str],
        act: Callable[[Mapping[str, str], Mapping[str, str]], Answer],
    ) -> Answer:
        """Return `act(kafka, producer)`; repeat it with fresh secrets if cached ones were rejected.

        A rotated secret must not fail an extent.
        """
        written = (self._kafka, producer)
        cached = [self._look_up(settings) for settings in written]
        try:
            return act(*cached)
        except Misconfigured:
            fresh = [self._look_up(settings, refresh=True) for settings in written]
            # The same secrets would be rejected again.
            if fresh == cached:
                raise
        return act(*fresh)


class KafkaFence:
    """`Fence` of the producer that fenced its predecessors."""

    def __init__(
        self,
        client: ProducerHandle,
        identity: str,
        settings: Mapping[str, Any],
        plain: Callable[[], ProducerHandle] | None,
        timeouts: Timeouts,
        *,
        arrays: Arrays | None = None,
        spreads: bool = False,
    ) -> None:
        self._client = client
        self._arrays = arrays
        self._spreads = spreads
        self._identity = identity
        self._settings = settings
        self._plain = plain
        self._timeouts = timeouts
        self._transactions = Transactions(client, identity, timeouts)
        self._opened = False

    def read(self) -> SlotProgress | None:
        """Return the last committed progress, as `Fence.read`."""
        return read_progress(self._settings, self._identity, self._timeouts)

    def mark(self, progress: SlotProgress) -> None:
        """Commit only `progress`, as `Fence.mark`."""
        self._transactions.commit(progress)

    def open(self) -> Sink:
        """Return the sink; an at-least-once sink uses a producer of its own."""
        self._opened = True
        if self._plain is None:
            topics = KnownTopics(self._client, self._timeouts)
            return TransactionalSink(
                self._client, self._transactions, topics, self._arrays, spreads=self._spreads
            )
        self._client.close()
        return FlushingSink(self._plain, self._timeouts)

    def close(self) -> None:
        """Drop the producer where no sink was opened, as `Fence.close`."""
        if not self._opened:
            self._client.close()
