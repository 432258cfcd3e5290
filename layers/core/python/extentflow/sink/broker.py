"""KafkaBroker: one real cluster behind the Broker and Fence ports.

Owns: which client is made for what. Refuses to know: slots, the ledger, records.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

from extentflow.errors import Misconfigured
from extentflow.sink import JOBS_TOPIC, ClientSettings, Progress, Sink
from extentflow.sink.flush import FlushingSink
from extentflow.sink.layout import trusted_library
from extentflow.sink.native import Library
from extentflow.sink.partitions import KnownTopics
from extentflow.sink.patience import Patience
from extentflow.sink.producer import Client
from extentflow.sink.progress import read_progress
from extentflow.sink.settings import (
    client_settings,
    idempotent_settings,
    transactional_settings,
)
from extentflow.sink.topics import (
    Admin,
    TopicFacts,
    broker_config,
    cluster_id,
    ensure_jobs_topic,
    ensure_progress_topic,
    topic_facts,
)
from extentflow.sink.transaction import Arrays, TransactionalSink, Transactions, initialise

TRANSACTION_TIMEOUT_MS = 30_000
# Job events are few, and somebody waits for each of them.
NEWS = ClientSettings(producer={"linger.ms": "0"}, exactly_once=False)


class KafkaBroker:
    """One Kafka cluster. Safe for use from several threads; its fences and sinks are not.

    `kafka` are librdkafka settings: bootstrap.servers and security. A dead worker holds consumers
    back for at most `transaction_timeout_ms`. `find_library` returns librdkafka where whole arrays
    may be queued, None where records go one by one.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        patience: Patience | None = None,
        find_library: Callable[[], Library | None] = trusted_library,
    ) -> None:
        if not kafka.get("bootstrap.servers"):
            raise Misconfigured("bootstrap.servers is not set; it names the Kafka brokers")
        self._kafka = dict(kafka)
        self._transaction_timeout_ms = transaction_timeout_ms
        self._patience = patience or Patience()
        self._find_library = find_library

    @functools.cached_property
    def cluster(self) -> str:
        """The cluster's id, as brokers report it. Raises as `topics`."""
        with self._admin() as admin:
            return cluster_id(admin)

    def ensure_progress_topic(self) -> None:
        """Create `extentflow.progress` unless it exists; several workers may do so at once.

        Raises:
            Misconfigured: it is missing and may not be created.
            SinkUnavailable: the broker did not answer.
        """
        with self._admin() as admin:
            ensure_progress_topic(admin)

    def topics(self, names: Sequence[str]) -> list[TopicFacts]:
        """Return the facts of the topics called `names`, in that order.

        Raises:
            Misconfigured: topics that do not exist (all at once), or missing permissions.
            SinkUnavailable: the broker did not answer.
        """
        with self._admin() as admin:
            return topic_facts(admin, names)

    def config(self) -> Mapping[str, str]:
        """Return the configuration of one broker. Raises as `topics`."""
        with self._admin() as admin:
            return broker_config(admin)

    def fence(self, identity: str, client: ClientSettings) -> "KafkaFence":
        """Fence the previous producer of `identity`, as `Broker.fence`."""
        timeout_ms = self._transaction_timeout_ms
        settings = transactional_settings(
            self._kafka, client, identity, transaction_timeout_ms=timeout_ms
        )
        owner = Client(settings, f"slot {identity}")
        initialise(owner, self._patience)
        plain = None
        if not client.exactly_once:
            plain = idempotent_settings(self._kafka, client, delivery_timeout_ms=timeout_ms)
        asking = client_settings(self._kafka, client.producer)
        return KafkaFence(owner, identity, asking, plain, self._patience, arrays=self._arrays)

    def open_news(self) -> Sink:
        """Return a sink for job events, which belongs to no slot and is flushed by its commit.

        `extentflow.jobs` is created unless it exists. Raises as `ensure_progress_topic`.
        """
        with self._admin() as admin:
            ensure_jobs_topic(admin)
        timeout_ms = round(self._patience.commit_seconds * 1000)
        settings = idempotent_settings(self._kafka, NEWS, delivery_timeout_ms=timeout_ms)
        return FlushingSink(
            functools.partial(Client, settings, f"topic {JOBS_TOPIC}"), self._patience
        )

    @functools.cached_property
    def _arrays(self) -> Arrays | None:
        library = self._find_library()
        return None if library is None else Arrays(library)

    def _admin(self) -> Admin:
        return Admin(client_settings(self._kafka, {}), self._patience)


class KafkaFence:
    """`Fence` over the producer that took the identity over."""

    def __init__(
        self,
        client: Client,
        identity: str,
        settings: Mapping[str, str],
        plain: Mapping[str, str] | None,
        patience: Patience,
        *,
        arrays: Arrays | None = None,
    ) -> None:
        self._client = client
        self._arrays = arrays
        self._identity = identity
        self._settings = settings
        self._plain = plain
        self._patience = patience
        self._transactions = Transactions(client, identity, patience)
        self._opened = False

    def read(self) -> Progress | None:
        """Return what previous owners last committed, as `Fence.read`."""
        return read_progress(self._settings, self._identity, self._patience)

    def mark(self, progress: Progress) -> None:
        """Commit only `progress`, as `Fence.mark`."""
        self._transactions.commit(progress)

    def open(self) -> Sink:
        """Return the sink; an at-least-once one works through a producer of its own."""
        self._opened = True
        if self._plain is None:
            topics = KnownTopics(self._client, self._patience)
            return TransactionalSink(self._client, self._transactions, topics, self._arrays)
        self._client.close()
        make = functools.partial(Client, self._plain, f"slot {self._identity}")
        return FlushingSink(make, self._patience)

    def close(self) -> None:
        """Drop the producer where no sink was opened, as `Fence.close`."""
        if not self._opened:
            self._client.close()
