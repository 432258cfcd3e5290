"""What a cluster reports about itself and its topics, and the two topics that are extentflow's."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import JOBS_TOPIC, PROGRESS_TOPIC
from extentflow.sink.producer import LOG, error_of, needs_operator, translate
from extentflow.sink.settings import Timeouts

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# A shorter delay is not worth a warning.
SILENCE_SECONDS = 2.0

UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"})


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic as the cluster describes it. `max_message_bytes` limits a *batch* of records."""

    name: str
    partitions: int
    max_message_bytes: int
    compacted: bool = False


class MetadataRequests:
    """Repeats requests to a cluster until they are answered, time is up, or retrying cannot help.

    `report` is the `error_cb` of the client: librdkafka reports causes only there.
    """

    def __init__(self, subject: str, timeouts: Timeouts) -> None:
        self.subject = subject
        self.timeouts = timeouts
        self._reported: list[KafkaError] = []

    def report(self, error: KafkaError) -> None:
        """Remember an error that librdkafka reports apart from its answers."""
        self._reported.append(error)

    def send(
        self,
        request: Callable[[float], Answer],
        *,
        serve: Callable[[], object],
        seconds: float | None = None,
    ) -> Answer:
        """Return the answer of `request(timeout of one attempt)`.

        `serve` runs the client's callbacks; `seconds` defaults to `request_seconds`.

        Raises:
            SinkUnavailable: no answer in time.
            Misconfigured: credentials or permissions are missing.
        """
        seconds = self.timeouts.request_seconds if seconds is None else seconds
        last = KafkaError(KafkaError.UNKNOWN)
        started, warned = self.timeouts.retry.clock.monotonic(), False
        for remaining in self.timeouts.attempts(seconds):
            try:
                return request(remaining)
            except KafkaException as exc:
                # An earlier error says more than the timeouts that follow it.
                if error_of(exc).name() != "_TIMED_OUT" or last.code() == KafkaError.UNKNOWN:
                    last = error_of(exc)
                serve()
                self._raise_if_permanent(last)
                silent = self.timeouts.retry.clock.monotonic() - started
                if not warned and silent > SILENCE_SECONDS:
                    warned = True
                    log.warning("%s does not answer; retrying for %.0f s", self.subject, seconds)
        reported = self._reported[-1].str() if self._reported else "is the broker up?"
        raise SinkUnavailable(f"{translate(last, self.subject)} for {seconds:g} s; {reported}")

    def _raise_if_permanent(self, last: KafkaError) -> None:
        for error in (*self._reported, last):
            if needs_operator(error):
                raise translate(error, self.subject)


class Admin:
    """A short-lived AdminClient; a context manager, which closes its connections.

    Only for requests that go to no coordinator: librdkafka's answers to those can crash the process
    (librdkafka issues 5040 and 5397).
    """

    def __init__(self, settings: Mapping[str, Any], timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.servers = settings.get("bootstrap.servers")
        self.subject = f"Kafka at {self.servers}"
        self._requests = MetadataRequests(self.subject, timeouts)
        callbacks: dict[str, Any] = {"logger": LOG, "error_cb": self._requests.report}
        try:
            self.client = AdminClient({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"Kafka client settings: {error_of(exc).str()}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self.client

    def send(self, request: Callable[[float], Answer]) -> Answer:
        """Return the answer of `request(seconds)`. Raises as `MetadataRequests.send`."""
        return self._requests.send(request, serve=lambda: self.client.poll(0))


def cluster_id(admin: Admin) -> str:
    """Return the id of the cluster."""

    def request(seconds: float) -> str:
        described = admin.client.describe_cluster(request_timeout=seconds).result()
        return str(described.cluster_id)

    return admin.send(request)


def topic_facts(admin: Admin, names: Sequence[str]) -> list[TopicFacts]:
    """Return the facts of every topic in `names`, in that order.

    Raises:
        Misconfigured: topics that do not exist, all of them at once, and how to create them.
        SinkUnavailable: no answer.
    """
    partitions = _partitions(admin, names)
    if missing := [name for name in names if name not in partitions]:
        raise Misconfigured(
            [
                f"topic {name} does not exist on {admin.subject}; create it, for example: "
                f"kafka-topics --bootstrap-server {admin.servers} --create --topic {name} "
                "--partitions 8"
                for name in missing
            ]
        )
    return [_facts(admin, name, partitions[name]) for name in names]


def broker_config(admin: Admin) -> dict[str, str]:
    """Return the configuration of one broker; all brokers of a cluster agree on what we read.

    Raises:
        Misconfigured: no permission to describe the broker.
        SinkUnavailable: no answer.
    """

    def request(seconds: float) -> dict[str, str]:
        number = min(admin.client.list_topics(timeout=seconds).brokers)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        (future,) = admin.client.describe_configs([resource], request_timeout=seconds).values()
        return {key: entry.value for key, entry in future.result().items()}

    return admin.send(request)


def ensure_progress_topic(admin: Admin) -> None:
    """Create the progress topic unless it exists: one partition, always empty.

    Several workers may do this concurrently. Without the topic librdkafka retries an offset for it
    until the call's timeout.

    Raises:
        Misconfigured: it is missing and may not be created.
        SinkUnavailable: no answer.
    """
    _ensure(admin, PROGRESS_TOPIC, {})


def ensure_jobs_topic(admin: Admin) -> None:
    """Create the topic of job events unless it exists; raises as `ensure_progress_topic`.

    It keeps the last event of each job for the cluster's retention time.
    """
    _ensure(admin, JOBS_TOPIC, {"cleanup.policy": "compact,delete"})


def _ensure(admin: Admin, name: str, config: Mapping[str, str]) -> None:
    if _partition_count(admin, name):
        return
    try:
        admin.send(lambda seconds: _create(admin, name, config, seconds))
    except Misconfigured as exc:
        raise Misconfigured(
            f"topic {name} is missing and could not be created; "
            f"create it with one partition ({exc})"
        ) from exc
    if not _partitions(admin, [name]):
        raise SinkUnavailable(f"topic {name} was created, but the brokers do not list it")


def require_progress_topic(admin: Admin) -> None:
    """Raise Misconfigured when the progress topic does not exist."""
    if not _partitions(admin, [PROGRESS_TOPIC]):
        raise Misconfigured(
            f"topic {PROGRESS_TOPIC} does not exist on {admin.subject}; "
            "create it with one partition and run again"
        )


def _partitions(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """Return the partition counts of those topics that exist.

    Repeated for `topic_seconds`: a new topic reaches the brokers one after the other.
    """
    found: dict[str, int] = {}
    for _ in admin.timeouts.attempts(admin.timeouts.topic_seconds):
        found |= {name: _partition_count(admin, name) for name in names if not found.get(name)}
        if all(found.values()):
            break
    return {name: count for name, count in found.items() if count}


def _partition_count(admin: Admin, name: str) -> int:
    """Return the partition count of a topic on one broker; 0 if that broker does not list it."""

    def request(seconds: float) -> int:
        found = admin.client.list_topics(name, seconds).topics[name]
        if found.error is not None and found.error.name() not in UNKNOWN_TOPIC:
            raise KafkaException(
                KafkaError(found.error.code(), f"topic {name}: {found.error.str()}")
            )
        return len(found.partitions)

    return admin.send(request)


def _create(admin: Admin, name: str, config: Mapping[str, str], seconds: float) -> None:
    topic = NewTopic(name, num_partitions=1, config=dict(config))
    (future,) = admin.client.create_topics([topic], request_timeout=seconds).values()
    try:
        future.result()
    except KafkaException as exc:
        # Another worker may have created it since the check.
        if error_of(exc).name() != "TOPIC_ALREADY_EXISTS":
            raise


def _facts(admin: Admin, name: str, partitions: int) -> TopicFacts:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)

    def request(seconds: float) -> dict[str, str]:
        (future,) = admin.client.describe_configs([resource], request_timeout=seconds).values()
        return {key: entry.value for key, entry in future.result().items()}

    config = admin.send(request)
    return TopicFacts(
        name,
        partitions,
        int(config["max.message.bytes"]),
        compacted=is_compacted(config.get("cleanup.policy", "")),
    )


def is_compacted(policy: str) -> bool:
    """Whether a topic with that `cleanup.policy` is compacted, and therefore requires keys."""
    return "compact" in (word.strip() for word in policy.split(","))
