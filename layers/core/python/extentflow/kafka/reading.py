"""Reads committed records: the one poll loop, and the records of a topic from start to end.

consume ──> record      in the order of its partition
            end         of a partition: transactions leave gaps, so offsets count no records
            lost        the next record was deleted, or never was: no other one is read instead
            error       translated once, here
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from extentflow.errors import (
    ExtentflowError,
    Fenced,
    Misconfigured,
    PositionGone,
    SinkUnavailable,
    TopicAbsent,
)
from extentflow.kafka.broker_errors import READING
from extentflow.kafka.producer import LOG, error_of, translate
from extentflow.kafka.record_headers import Headers
from extentflow.kafka.settings import Sign, Timeouts, client_settings, with_tokens
from extentflow.kafka.topic_admin import Admin, partial_response

BATCH_RECORDS = 10_000
POLL_SECONDS = 0.1  # also the time that a batch waits for more records
REQUEST_SECONDS = 30.0
# How often a reader without an end asks for partitions that were added, and for the topic's id.
REFRESH_SECONDS = 5.0
_READ_AGAIN = "read the topic again"
_LOST_MEMBERSHIP = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"})

# A topic and the number of a partition.
Place: TypeAlias = tuple[str, int]
Rebalanced: TypeAlias = Callable[[list[Place]], None]


class ConsumedRecord(NamedTuple):
    """One record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int = 0  # milliseconds since 1970


def read_committed(
    kafka: Mapping[str, str],
    topic: str,
    *,
    begin: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    follow: bool = False,
    group: str = "",
    idle_seconds: float = 60.0,
    timeouts: Timeouts | None = None,
    sign: Sign | None = None,
) -> Iterator[list[ConsumedRecord]]:
    """Yield the committed records of `topic` in batches, in order within each partition.

    Starts at the oldest record, or reads the partitions of `begin` from these offsets, which must
    be there. Ends when every partition was read up to its last stable offset, or before its offset
    in `end`. The last stable offset is that of the time when the reader is there: without `end` it
    moves with every commit, that of the caller included. With `follow` it never ends, and reads
    partitions that are added from their beginning. An open transaction holds that offset back: wait
    for its end (at most `transaction.timeout.ms`) before reading. Brokers with ACLs ask for
    Describe on `group` (empty: one of its own), in which nothing is committed. `sign` signs tokens
    for brokers with IAM.

    Raises:
        Misconfigured: there is no such topic.
        PositionGone: records were deleted before they were read, or the topic was created again.
        SinkUnavailable: no record arrived for `idle_seconds`.
    """
    timeouts = timeouts or Timeouts()
    clock = timeouts.retry.clock
    cluster = with_tokens(client_settings(kafka, {}), sign)
    followed = _FollowedTopic(topic, lambda: Admin(cluster, timeouts))
    firsts = followed.first_offsets()
    offsets = firsts if begin is None else dict(begin)
    end = end or {}
    unread = {one for one, offset in offsets.items() if one not in end or offset < end[one]}
    group = group or f"extentflow.reader.{uuid.uuid4().hex}"
    settings = with_tokens(consumer_settings(kafka, group), sign)
    with RecordReader(settings, f"topic {topic}") as reader:
        reader.assign({(topic, one): offsets[one] for one in unread})
        last_arrival, refreshed = clock.monotonic(), -REFRESH_SECONDS
        while unread:
            if follow and clock.monotonic() - refreshed >= REFRESH_SECONDS:
                refreshed = clock.monotonic()
                for one in followed.added(offsets):
                    offsets[one] = 0
                    unread.add(one)
                    reader.read_from((topic, one), 0)
            polled = reader.poll(BATCH_RECORDS, POLL_SECONDS)
            arrived = bool(polled.records or polled.ended)
            silent = clock.monotonic() - last_arrival
            if not arrived and not follow and not polled.lost and silent > idle_seconds:
                raise SinkUnavailable(f"topic {topic}: nothing read for {idle_seconds:g} s")
            ended = {} if follow else {one: offset for (_, one), offset in polled.ended.items()}
            ends = {**end, **{one: min(at, end.get(one, at)) for one, at in ended.items()}}
            if batch := list(_before_ends(polled.records, ends, unread)):
                yield batch
            unread -= ended.keys()
            for place, offset in polled.lost.items():
                if place[1] in unread:
                    raise position_gone(place, offset, reader.watermarks(place), _READ_AGAIN)
            if arrived:  # behind the yield: what the caller does meanwhile is no silence
                last_arrival = clock.monotonic()


@dataclass(slots=True)
class _FollowedTopic:
    """A topic that is read for long: partitions are added to it, and it may be created again."""

    topic: str
    open_admin: Callable[[], Admin]
    id: str = ""

    def first_offsets(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        with self.open_admin() as admin:
            return admin.first_offsets(self.topic)

    def added(self, known: Collection[int]) -> list[int]:
        """Return the partitions that are not known.

        Raises PositionGone where this is not the topic that it was at the first call, TopicAbsent
        where it was deleted.
        """
        with self.open_admin() as admin:
            try:
                count = admin.partitions_to_read(self.topic)
            except TopicAbsent as exc:  # it was there: its name needs no correction
                raise TopicAbsent(
                    f"topic {self.topic} was deleted while it was read; nothing more arrives. Where"
                    " it is created again, repeat the command"
                ) from exc
            found = admin.topic_ids([self.topic])[self.topic]
        if self.id not in ("", found):
            raise PositionGone(f"{created_again(self.topic, self.id, found)}; {_READ_AGAIN}")
        self.id = found
        return [one for one in range(count) if one not in known]


def _before_ends(
    records: Iterable[tuple[Place, ConsumedRecord]], ends: Mapping[int, int], unread: set[int]
) -> Iterator[ConsumedRecord]:
    """Yield the records of unread partitions that are before their ends."""
    for (_, partition), record in records:
        if partition in ends and record.offset >= ends[partition]:
            unread.discard(partition)
        elif partition in unread:
            yield record


def is_another(before: str, now: str) -> bool:
    """Return whether two ids, which are empty where they are unknown, are of different topics."""
    return bool(before and now and before != now)


def created_again(topic: str, before: str, now: str) -> str:
    """Return the words for a topic that has another id (KIP-516) than it had before."""
    return f"topic {topic} was created again: its id was {before}, and is {now} now"


def position_gone(
    place: Place, position: int, bounds: tuple[int, int], remedy: str
) -> PositionGone:
    """Return the error for an offset that a partition does not have; `bounds` are its own."""
    (topic, partition), (first, end) = place, bounds
    if first > position:
        what = f"the offsets {position} to {first - 1} were deleted before they were read"
    else:
        what = (
            f"reading continues at offset {position}, and the partition has the offsets {first} to"
            f" {end - 1}: the topic was created again, or lost records"
        )
    message = f"topic {topic}[{partition}]: {what}; {remedy}"
    return PositionGone(message, topic, partition, position, first)


def consumer_settings(kafka: Mapping[str, str], group: str) -> dict[str, str]:
    """Return the settings of a consumer of committed records, which commits no offsets itself."""
    return {
        **client_settings(kafka, {}),
        "group.id": group,
        # librdkafka's default, stated because the verification depends on it.
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        # The end of a partition is an event: transactions leave gaps, so offsets count no records.
        "enable.partition.eof": "true",
        # A position that is gone is an error, never another position.
        "auto.offset.reset": "error",
        "check.crcs": "true",
        # Per partition. With the default a full queue pauses fetching for a second: 163 instead of
        # 764 k rows/s.
        "queued.max.messages.kbytes": "16384",
        "fetch.queue.backoff.ms": "5",
    }


def consumed(message: Message) -> ConsumedRecord:
    """Return the record of a message that is no error."""
    partition: Any = message.partition()
    offset: Any = message.offset()
    headers: Any = message.headers() or ()
    key, value, time = message.key(), message.value(), message.timestamp()[1]
    return ConsumedRecord(partition, offset, key, value, headers, time)


class CommittedOffset(NamedTuple):
    """What a group has committed of a partition; `offset` is negative where it has nothing."""

    place: Place
    offset: int
    metadata: str | None
    error: ExtentflowError | None


@dataclass(slots=True)
class PolledRecords:
    """Records in the order of each partition, and what happened to partitions.

    `ended` has the end that was reached; records from it on were added meanwhile. `lost` has the
    offset that was to be read next, and is not there: its partition is read no further until it
    is assigned again.
    """

    records: list[tuple[Place, ConsumedRecord]] = field(default_factory=list)
    ended: dict[Place, int] = field(default_factory=dict)
    lost: dict[Place, int] = field(default_factory=dict)


class RecordReader:
    """The poll loop of committed records, from chosen offsets on or as a member of a group.

    `settings` begin with `consumer_settings`; messages begin with `subject`. Used by one thread; a
    context manager. All calls raise SinkUnavailable where brokers do not answer, and Misconfigured
    where settings or permissions are wrong.
    """

    def __init__(self, settings: Mapping[str, Any], subject: str) -> None:
        self._subject = subject
        self._added: set[Place] = set()
        with self._misconfigured():
            self._client = Consumer({**settings, "logger": LOG})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, if any."""
        self._client.close()

    def subscribe(self, topics: Sequence[str], assigned: Rebalanced, revoked: Rebalanced) -> None:
        """Join the group. The callbacks are called by `poll`; `assigned` has to call `assign`."""

        def places(call: Rebalanced) -> Callable[[Consumer, list[TopicPartition]], None]:
            return lambda _, partitions: call([(one.topic, one.partition) for one in partitions])

        with self._misconfigured():
            self._client.subscribe(
                list(topics),
                on_assign=places(assigned),
                on_revoke=places(revoked),
                on_lost=places(revoked),
            )

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has now."""
        with self._errors():
            found = self._client.list_topics(topic, timeout=REQUEST_SECONDS).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
        return len(found.partitions)

    def watermarks(self, place: Place) -> tuple[int, int]:
        """Return the first offset that a partition has, and the one behind its last."""
        with self._errors():
            low, high = self._client.get_watermark_offsets(
                TopicPartition(*place), timeout=REQUEST_SECONDS
            )
            if min(low, high) < 0:
                raise partial_response(f"partition {place[1]} without an offset")
        return low, high

    def require_brokers(self, seconds: float) -> None:
        """Raise SinkUnavailable where no broker answers."""
        with self._errors():
            self._client.list_topics(timeout=seconds)

    def committed(self, places: Sequence[Place], seconds: float) -> list[CommittedOffset]:
        """Return what the group has committed."""
        with self._errors():
            found = self._client.committed([TopicPartition(*one) for one in places], seconds)
        return [
            CommittedOffset(
                (one.topic, one.partition),
                one.offset,
                one.metadata,
                None if one.error is None else self._translated(one.error),
            )
            for one in found
        ]

    def commit(self, offsets: Mapping[Place, tuple[int, str]]) -> None:
        """Commit offsets with their metadata for the group."""
        with self._errors():
            answered = self._client.commit(
                offsets=[
                    TopicPartition(*place, offset, metadata=metadata)
                    for place, (offset, metadata) in offsets.items()
                ],
                asynchronous=False,
            )
        for one in answered or ():
            if one.error is not None:
                raise self._translated(one.error)

    def assign(self, begins: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        with self._errors():
            self._client.assign([TopicPartition(*one, begins[one]) for one in begins])

    def unassign(self) -> None:
        """Read no partition."""
        with self._errors():
            self._client.unassign()

    def read_from(self, place: Place, begin: int) -> None:
        """Read one more partition from an offset on, or one that is read already."""
        with self._errors():
            if place in self._added:
                self._client.incremental_unassign([TopicPartition(*place)])
            self._client.incremental_assign([TopicPartition(*place, begin)])
        self._added.add(place)

    def pause(self, places: Collection[Place]) -> None:
        """Fetch no records of these partitions."""
        with self._errors():
            self._client.pause([TopicPartition(*one) for one in places])

    def resume(self, places: Collection[Place]) -> None:
        """Fetch records of these partitions again."""
        with self._errors():
            self._client.resume([TopicPartition(*one) for one in places])

    def seek(self, place: Place, offset: int) -> None:
        """Continue a partition at another offset."""
        with self._errors():
            self._client.seek(TopicPartition(*place, offset))

    def poll(self, most: int, seconds: float) -> PolledRecords:
        """Return at most so many records, after so long a wait."""
        found = PolledRecords()
        with self._errors():
            messages = self._client.consume(most, seconds)
        for message in messages:
            topic: Any = message.topic()
            partition: Any = message.partition()
            place, error = (topic, partition), message.error()
            if error is None:
                found.records.append((place, consumed(message)))
            elif error.name() == "_PARTITION_EOF":
                found.ended[place] = message.offset() or 0
            elif error.name() == "_AUTO_OFFSET_RESET":
                found.lost[place] = message.offset() or 0
            elif error.fatal() or not error.retriable():
                where = f"topic {topic}[{partition}]" if topic else self._subject
                raise self._translated(error, where)
        return found

    def _translated(self, error: KafkaError, where: str = "") -> ExtentflowError:
        if error.name() in _LOST_MEMBERSHIP:
            return Fenced(f"{self._subject}: the group gave the partitions to others; poll again")
        return translate(error, where or self._subject, READING)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise self._translated(error_of(exc)) from exc

    @contextmanager
    def _misconfigured(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise Misconfigured(f"{self._subject}: {error_of(exc).str()}") from exc
