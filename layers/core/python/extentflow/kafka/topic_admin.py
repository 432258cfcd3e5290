"""What a cluster reports about itself and its topics; creates extentflow's own topics."""

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from extentflow.errors import Misconfigured, SinkUnavailable, TopicAbsent
from extentflow.kafka import PROGRESS_TOPIC
from extentflow.kafka.producer import (
    LOG,
    Rejections,
    error_of,
    is_rejection,
    remedy_of,
    translate,
)
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.topic_limits import TopicLimits, is_compacted
from extentflow.wording import nearest

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SILENCE_SECONDS = 2.0  # a shorter delay is not worth a warning
SHOWN_TOPICS = 5
NO_ID = str(Uuid(0, 0))  # of a topic, where brokers have none
DEFAULT_MESSAGE_BYTES = 1_048_588  # of Kafka's brokers
CLEANUP_POLICY = "cleanup.policy"
UNLISTED = "UNKNOWN_TOPIC_OR_PART"
ISOLATION = "share.isolation.level"  # of a share group
# A topic's setting in Inkless, and its former name.
DISKLESS = ("diskless.enable", "inkless.enable")


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic as the cluster describes it. `max_message_bytes` limits a *batch* of records.

    `diskless`: it states to keep records in an object store (KIP-1150).
    """

    name: str
    partitions: int
    max_message_bytes: int
    compacted: bool = False
    stated: TopicLimits | None = None
    diskless: bool = False

    @property
    def limits(self) -> TopicLimits:
        """Which keys and timestamps the topic takes, as far as it is known."""
        return self.stated or TopicLimits(self.name, needs_keys=self.compacted)


@dataclass(frozen=True, slots=True)
class NewTopics:
    """How missing topics are created; -1 is the cluster's default."""

    partitions: int = -1
    replication: int = -1
    config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> Self:
        """Return what `partitions`, `replication.factor` and settings of topics say.

        Raises Misconfigured where a count is no whole number.
        """
        # Kafka writes booleans in lower case.
        found = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
        }
        counts = [found.pop(name, "-1") for name in ("partitions", "replication.factor")]
        for count in counts:
            if not re.fullmatch(r"-1|[1-9][0-9]{0,5}", count):
                raise Misconfigured(
                    "topics to create: partitions and replication.factor are whole numbers, not"
                    f" {count!r}"
                )
        return cls(int(counts[0]), int(counts[1]), found)

    def without_keys(self) -> Self:
        """Return how a topic is created whose records have no keys, which compaction refuses."""
        if not is_compacted(self.config.get(CLEANUP_POLICY, "")):
            return self
        return replace(self, config={**self.config, CLEANUP_POLICY: "delete"})

    def facts(self, name: str) -> TopicFacts:
        """Return what a topic would be, as far as this says it; its partitions are not known."""
        stated = self.config.get("max.message.bytes", "")  # brokers refuse what is no number
        most = int(stated) if stated.isdecimal() else DEFAULT_MESSAGE_BYTES
        limits = TopicLimits.of(name, self.config)
        return TopicFacts(name, self.partitions, most, compacted=limits.needs_keys, stated=limits)


ONE_PARTITION = NewTopics(1)


class MetadataRequests:
    """Repeats requests to a cluster until they are answered, time is up, or retrying cannot help.

    `report` is the `error_cb` of the client: librdkafka reports causes only there. `serve` runs
    the client's callbacks. `servers` are the bootstrap servers.
    """

    def __init__(
        self, subject: str, servers: str, timeouts: Timeouts, serve: Callable[[], object]
    ) -> None:
        self.subject = subject
        self.timeouts = timeouts
        self._serve = serve
        self._reported: list[KafkaError] = []
        self._rejections = Rejections(servers)

    def report(self, error: KafkaError) -> None:
        """Store an error that the client reports."""
        self._reported.append(error)
        self._rejections.report(error)

    def send(self, request: Callable[[float], Answer], *, seconds: float | None = None) -> Answer:
        """Return the answer of `request(timeout of one attempt)`.

        Raises SinkUnavailable without an answer in `seconds` (default: `request_seconds`), and
        Misconfigured where credentials or permissions are missing.
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
                self._serve()
                others = (error for error in self._reported if not is_rejection(error))
                for error in (*others, self._rejections.proven(), last):
                    if error is not None and remedy_of(error):
                        raise translate(error, self.subject) from exc
                silent = self.timeouts.retry.clock.monotonic() - started
                if not warned and silent > SILENCE_SECONDS:
                    warned = True
                    log.warning("%s does not answer; retrying for %.0f s", self.subject, seconds)
        reported = self._reported[-1].str() if self._reported else "is the broker up?"
        raise SinkUnavailable(f"{translate(last, self.subject)} for {seconds:g} s; {reported}")


def similar(name: str, topics: Iterable[str]) -> str:
    """Return which topics a reader may mean by `name`: its column groups, or a near one."""
    names = [one for one in topics if not one.startswith("__")]  # Kafka's own
    groups = sorted(one for one in names if one.startswith(f"{name}."))
    if not groups:
        return nearest(name, names, "correct its name")
    more = f" and {len(groups) - SHOWN_TOPICS} more" if len(groups) > SHOWN_TOPICS else ""
    there = "there is topic" if len(groups) == 1 else "there are topics"
    return f"{there} {', '.join(groups[:SHOWN_TOPICS])}{more}"


def partial_response(what: str) -> KafkaException:
    """Return the error for a response that lacks something, which is asked for again.

    While leaders change, librdkafka may answer without an error and without a value: an offset is
    -1001 then.
    """
    return KafkaException(KafkaError(KafkaError._PARTIAL, what))  # noqa: SLF001


class Admin:
    """A short-lived AdminClient; a context manager, which closes its connections.

    Only for requests that go to no coordinator: librdkafka's answers to those can crash the process
    (librdkafka issues 5040 and 5397). Every request raises as `MetadataRequests.send`.
    """

    def __init__(self, settings: Mapping[str, Any], timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._subject = f"Kafka at {self._servers}"
        requests = MetadataRequests(
            self._subject, self._servers, timeouts, lambda: self._client.poll(0)
        )
        self._send = requests.send
        callbacks: dict[str, Any] = {"logger": LOG, "error_cb": requests.report}
        try:
            self._client = AdminClient({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"Kafka client settings: {error_of(exc).str()}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self._client

    def cluster_id(self) -> str:
        """Return the id of the cluster.

        Not by `describe_cluster`: librdkafka ends the process (SIGABRT) where a broker that has
        just started lists no broker yet. One topic, because a cluster may have very many.
        """

        def request(seconds: float) -> str:
            found: str | None = self._client.list_topics(PROGRESS_TOPIC, seconds).cluster_id
            if found is None:
                raise partial_response("no cluster id")
            return found

        return self._send(request)

    def topic_facts(self, names: Sequence[str]) -> list[TopicFacts]:
        """Return the facts of every topic in `names`, as `KafkaBroker.topics`.

        Raises TopicAbsent for those that do not exist, all at once.
        """
        partitions = self._partitions(names)
        if missing := [name for name in names if name not in partitions]:
            self._require_absent(missing)
            raise TopicAbsent(
                [
                    f"topic {name} does not exist on {self._subject}; `extentflow run` with "
                    "--create-topic partitions=8 (in Python create_topic={'partitions': 8}) creates"
                    " it where objects are to deliver; otherwise your Kafka tools do, for "
                    f"example `kafka-topics.sh --bootstrap-server {self._servers} --create --topic "
                    f"{name} --partitions 8`"
                    for name in missing
                ]
            )
        return [self._facts(name, partitions[name]) for name in names]

    def _require_absent(self, names: Sequence[str]) -> None:
        """Raise SinkUnavailable for a topic that exists, and that brokers do not list.

        As the controller states it, which validates the creation of such a topic and creates none.
        A client that may not create topics gets no statement, and what brokers list counts.
        """

        def exists(name: str, seconds: float) -> bool:
            (future,) = self._client.create_topics(
                [NewTopic(name, num_partitions=-1)], request_timeout=seconds, validate_only=True
            ).values()
            try:
                future.result()
            except KafkaException as exc:
                error = error_of(exc)
                if error.retriable() or error.name().startswith("_"):  # no answer of a broker
                    raise
                return error.name() == "TOPIC_ALREADY_EXISTS"
            return False

        for name in names:
            if self._send(partial(exists, name)):
                raise SinkUnavailable(f"topic {name} exists, and the brokers do not list it yet")

    def partitions_to_read(self, name: str) -> int:
        """Return a topic's partition count.

        Raises TopicAbsent, which names topics with similar names.
        """
        if found := self._partitions([name]):
            return found[name]
        names = self._send(lambda seconds: [*self._client.list_topics(timeout=seconds).topics])
        raise TopicAbsent(f"topic {name} does not exist on {self._subject}; {similar(name, names)}")

    def _facts(self, name: str, partitions: int) -> TopicFacts:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        config = self._send(lambda seconds: self._describe(resource, seconds))
        limits = TopicLimits.of(name, config)
        # Servers that are not Kafka may state no settings.
        most = int(config.get("max.message.bytes", DEFAULT_MESSAGE_BYTES))
        return TopicFacts(
            name,
            partitions,
            most,
            compacted=limits.needs_keys,
            stated=limits,
            diskless=any(config.get(key) == "true" for key in DISKLESS),
        )

    def end_offsets(self, name: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic, as `Broker.end_offsets`."""
        partitions = self.partitions_to_read(name)
        found = self.ends_of([(name, one) for one in range(partitions)])
        return {partition: end for (_, partition), end in found.items()}

    def first_offsets(self, name: str) -> dict[int, int]:
        """Return the first offset of each partition of a topic, as `Broker.first_offsets`."""
        places = [(name, one) for one in range(self.partitions_to_read(name))]
        earliest: OffsetSpec = EarliestSpec()  # type: ignore[no-untyped-call]
        found = self._offsets_of(places, earliest)
        return {partition: first for (_, partition), first in found.items()}

    def topic_ids(self, names: Sequence[str], *, absent: bool = False) -> dict[str, str]:
        """Return the id of each topic, which another topic of the same name does not have.

        Empty where brokers have none (before Kafka 2.8). With `absent`, topics that brokers do not
        list for `topic_seconds` are left out.
        """
        wanted = TopicCollection([*names])
        deadline = self._timeouts.retry.clock.monotonic() + self._timeouts.topic_seconds

        def request(seconds: float) -> dict[str, str]:
            found = self._client.describe_topics(wanted, request_timeout=seconds)
            ids: dict[str, str] = {}
            for name, one in found.items():
                try:
                    ids[name] = _known_id(str(one.result().topic_id))
                except KafkaException as exc:
                    late = self._timeouts.retry.clock.monotonic() >= deadline
                    if not (absent and late and error_of(exc).name() == UNLISTED):
                        raise
            return ids

        return self._send(request)

    def ends_of(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the end offsets of partitions of topics, as `Broker.end_offsets`."""
        return self._offsets_of(places, LatestSpec())  # type: ignore[no-untyped-call]

    def bounds_of(
        self, places: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the first offset of partitions, and the end of what is committed of them."""
        earliest: OffsetSpec = EarliestSpec()  # type: ignore[no-untyped-call]
        latest: OffsetSpec = LatestSpec()  # type: ignore[no-untyped-call]
        begins = self._offsets_of(places, earliest)
        ends = self._offsets_of(places, latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return {place: (begin, ends[place]) for place, begin in begins.items()}

    def _offsets_of(
        self, places: Sequence[tuple[str, int]], spec: OffsetSpec, **options: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        wanted = dict.fromkeys((TopicPartition(*place) for place in places), spec)

        def request(seconds: float) -> dict[tuple[str, int], int]:
            found = self._client.list_offsets(wanted, request_timeout=seconds, **options)
            offsets = {(at.topic, at.partition): one.result().offset for at, one in found.items()}
            if any(offset < 0 for offset in offsets.values()):
                raise partial_response("a partition without an offset")
            return offsets

        return self._send(request)

    def share_groups(self) -> dict[str, str]:
        """Return the isolation level of each share group (KIP-932), by its name.

        Streams groups (KIP-1071) are among them, because no request of this client has their type.
        """

        def listed(seconds: float) -> list[str]:
            known = self._client.list_consumer_groups(request_timeout=seconds).result()
            if known.errors:
                raise known.errors[0]
            others = {one.group_id for one in known.valid}
            with warnings.catch_warnings():
                # The request that replaces it leaves out groups of types that librdkafka lacks.
                warnings.simplefilter("ignore", DeprecationWarning)
                groups = self._client.list_groups(timeout=seconds)
            # Describing a classic group, as Connect's, states its protocol.
            return [str(one.id) for one in groups if one.id not in others and not one.protocol_type]

        def level(name: str) -> str:
            resource = ConfigResource(ConfigResource.Type.GROUP, name)
            found = self._send(lambda seconds: self._describe(resource, seconds))
            return found.get(ISOLATION, "")

        levels = {name: level(name) for name in sorted(self._send(listed))}
        return {name: found for name, found in levels.items() if found}

    def broker_config(self) -> dict[str, str]:
        """Return the configuration of one broker; all of a cluster agree on what is read here."""

        def request(seconds: float) -> dict[str, str]:
            number = min(self._client.list_topics(timeout=seconds).brokers)
            return self._describe(ConfigResource(ConfigResource.Type.BROKER, str(number)), seconds)

        return self._send(request)

    def ensure(self, name: str, wanted: NewTopics) -> bool:
        """Create a topic unless it exists, as `KafkaBroker` documents; return whether it did."""
        if self.partitions(name):
            return False
        topic = NewTopic(
            name,
            num_partitions=wanted.partitions,
            replication_factor=wanted.replication,
            config=dict(wanted.config),
        )

        def create(seconds: float) -> None:
            (future,) = self._client.create_topics([topic], request_timeout=seconds).values()
            try:
                future.result()
            except KafkaException as exc:
                # Another worker may have created it since the check.
                if error_of(exc).name() != "TOPIC_ALREADY_EXISTS":
                    raise

        try:
            self._send(create)
        except Misconfigured as exc:
            raise Misconfigured(
                f"topic {name} is missing and could not be created; create it with "
                f"{'one partition' if wanted.partitions == 1 else 'your Kafka tools'} ({exc})"
            ) from exc
        if not self._partitions([name]):
            raise SinkUnavailable(f"topic {name} was created, but the brokers do not list it")
        return True

    def require_progress_topic(self) -> None:
        """Raise Misconfigured when the progress topic does not exist."""
        if not self._partitions([PROGRESS_TOPIC]):
            raise Misconfigured(
                f"topic {PROGRESS_TOPIC} does not exist on {self._subject}; "
                "`extentflow init` creates it, with one partition"
            )

    def _partitions(self, names: Sequence[str]) -> dict[str, int]:
        """Return the partition counts of those topics that exist.

        Repeated for `topic_seconds`: a new topic reaches the brokers one after the other.
        """
        found: dict[str, int] = {}
        for _ in self._timeouts.attempts(self._timeouts.topic_seconds):
            found |= {name: self.partitions(name) for name in names if not found.get(name)}
            if all(found.values()):
                break
        return {name: count for name, count in found.items() if count}

    def partitions(self, name: str) -> int:
        """Return a topic's partition count on one broker; 0 if that broker does not list it."""

        def request(seconds: float) -> int:
            found = self._client.list_topics(name, seconds).topics[name]
            error = found.error
            unknown = ("UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE")
            if error is not None and error.name() not in unknown:
                raise KafkaException(KafkaError(error.code(), f"topic {name}: {error.str()}"))
            return len(found.partitions)

        return self._send(request)

    def _describe(self, resource: ConfigResource, seconds: float) -> dict[str, str]:
        (future,) = self._client.describe_configs([resource], request_timeout=seconds).values()
        return {key: entry.value for key, entry in future.result().items()}


def _known_id(text: str) -> str:
    return "" if text in (str(None), NO_ID) else text
