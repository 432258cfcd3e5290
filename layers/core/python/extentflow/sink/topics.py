"""What the cluster says about itself and its topics.

Owns: the AdminClient (one per question, dropped after the answer), topic facts, the two topics
that are ours. Refuses to know: producers, records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import JOBS_TOPIC, PROGRESS_TOPIC
from extentflow.sink.asking import Answer, MetadataRequests
from extentflow.sink.producer import LOG
from extentflow.sink.settings import Timeouts
from extentflow.sink.translate import error_of

UNKNOWN_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"})


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic as the cluster describes it. `max_message_bytes` limits a *batch* of records."""

    name: str
    partitions: int
    max_message_bytes: int
    compacted: bool = False


class Admin:
    """An AdminClient for a few questions; a context manager, its connections end with it.

    Only questions that go to no coordinator: librdkafka's answers to those can crash the process
    (librdkafka issues 5040 and 5397).
    """

    def __init__(self, settings: Mapping[str, Any], timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.servers = settings.get("bootstrap.servers")
        self.subject = f"Kafka at {self.servers}"
        self._questions = MetadataRequests(self.subject, timeouts)
        callbacks: dict[str, Any] = {"logger": LOG, "error_cb": self._questions.heard}
        try:
            self.client = AdminClient({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"Kafka client settings: {error_of(exc).str()}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self.client

    def ask(self, question: Callable[[float], Answer]) -> Answer:
        """Return the answer of `question(seconds)`. Raises as `MetadataRequests.ask`."""
        return self._questions.ask(question, serve=lambda: self.client.poll(0))


def cluster_id(admin: Admin) -> str:
    """Return the cluster's id, as its brokers report it."""

    def question(seconds: float) -> str:
        described = admin.client.describe_cluster(request_timeout=seconds).result()
        return str(described.cluster_id)

    return admin.ask(question)


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
    """Return the configuration of one broker; those of a cluster agree on what concerns us.

    Raises:
        Misconfigured: no permission to look.
        SinkUnavailable: no answer.
    """

    def question(seconds: float) -> dict[str, str]:
        number = min(admin.client.list_topics(timeout=seconds).brokers)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        (future,) = admin.client.describe_configs([resource], request_timeout=seconds).values()
        return {key: entry.value for key, entry in future.result().items()}

    return admin.ask(question)


def ensure_progress_topic(admin: Admin) -> None:
    """Create the progress topic unless it exists: one partition, and empty for ever.

    Several workers may do this at once.

    Raises:
        Misconfigured: it is missing and may not be created.
        SinkUnavailable: no answer.
    """
    _ensure(admin, PROGRESS_TOPIC, {})


def ensure_jobs_topic(admin: Admin) -> None:
    """Create the topic of job events unless it exists; raises as `ensure_progress_topic`.

    It keeps a job's last event as long as the cluster keeps records.
    """
    _ensure(admin, JOBS_TOPIC, {"cleanup.policy": "compact,delete"})


def _ensure(admin: Admin, name: str, config: Mapping[str, str]) -> None:
    if _glance(admin, name):
        return
    try:
        admin.ask(lambda seconds: _create(admin, name, config, seconds))
    except Misconfigured as exc:
        raise Misconfigured(
            f"topic {name} is missing and could not be created; "
            f"create it with one partition ({exc})"
        ) from exc
    if not _partitions(admin, [name]):
        raise SinkUnavailable(f"topic {name} was created, but brokers do not show it")


def require_progress_topic(admin: Admin) -> None:
    """Raise Misconfigured when the progress topic does not exist."""
    if not _partitions(admin, [PROGRESS_TOPIC]):
        raise Misconfigured(
            f"topic {PROGRESS_TOPIC} does not exist on {admin.subject}; "
            "create it with one partition and run again"
        )


def _partitions(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    """Return the partition counts of those topics that exist.

    A topic created a moment ago may not have reached every broker: brokers are asked again.
    """
    found: dict[str, int] = {}
    for _ in admin.timeouts.attempts(admin.timeouts.topic_seconds):
        found |= {name: _glance(admin, name) for name in names if not found.get(name)}
        if all(found.values()):
            break
    return {name: count for name, count in found.items() if count}


def _glance(admin: Admin, name: str) -> int:
    """Return how many partitions a topic has by one broker's word; 0 where it knows of none."""

    def question(seconds: float) -> int:
        found = admin.client.list_topics(name, seconds).topics[name]
        if found.error is not None and found.error.name() not in UNKNOWN_TOPIC:
            raise KafkaException(
                KafkaError(found.error.code(), f"topic {name}: {found.error.str()}")
            )
        return len(found.partitions)

    return admin.ask(question)


def _create(admin: Admin, name: str, config: Mapping[str, str], seconds: float) -> None:
    topic = NewTopic(name, num_partitions=1, config=dict(config))
    (future,) = admin.client.create_topics([topic], request_timeout=seconds).values()
    try:
        future.result()
    except KafkaException as exc:
        if error_of(exc).name() != "TOPIC_ALREADY_EXISTS":
            raise


def _facts(admin: Admin, name: str, partitions: int) -> TopicFacts:
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)

    def question(seconds: float) -> dict[str, str]:
        (future,) = admin.client.describe_configs([resource], request_timeout=seconds).values()
        return {key: entry.value for key, entry in future.result().items()}

    config = admin.ask(question)
    return TopicFacts(
        name,
        partitions,
        int(config["max.message.bytes"]),
        compacted=is_compacted(config.get("cleanup.policy", "")),
    )


def is_compacted(policy: str) -> bool:
    """Whether a topic of that `cleanup.policy` keeps the last record of each key, and wants keys.

    One that deletes as well (`compact,delete`) does.
    """
    return "compact" in (word.strip() for word in policy.split(","))
