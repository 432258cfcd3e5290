"""MemoryBroker: the Broker, Fence and Sink ports in memory, with Kafka's rules of fencing.

Unlike with Kafka, a pending transaction does not hold back the records behind it. The records of
one `send` for a partition are a batch. A compacted topic rejects the whole batch of a record
without a key, and any topic that of a timestamp out of its range; the commit raises
RecordsRejected.

Every operation first calls `on_call(name)`, where an explorer of interleavings switches to another
worker, and then takes effect atomically. `name` is `fence`, `read`, `mark`, `open`, `send`,
`commit`, `abort` or `close`.
"""

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from extentflow.errors import (
    ExtentflowError,
    Fenced,
    Misconfigured,
    SinkUnavailable,
    TopicAbsent,
    TopicLost,
)
from extentflow.kafka import ProducerSettings, Records, RejectedRecord, SlotProgress
from extentflow.kafka.producer import rejection, translate
from extentflow.kafka.reading import ConsumedRecord, position_gone
from extentflow.kafka.record_headers import Headers
from extentflow.kafka.topic_limits import TopicLimits

DEFAULT_MAX_MESSAGE_BYTES = 1_000_000
# Kafka's.
DEFAULT_CONFIG = {"message.timestamp.after.max.ms": "3600000"}


def murmur2(key: bytes) -> int:
    """Return Kafka's signed 32-bit murmur2 (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    whole = len(key) & ~3
    h = 0x9747B28C ^ len(key)
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        k = word * multiplier & mask
        h = h * multiplier & mask ^ (k ^ k >> 24) * multiplier & mask
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def java_partition(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@dataclass(slots=True)
class _StoredRecord:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    state: Literal["pending", "committed", "aborted"]


@dataclass(slots=True)
class _Topic:
    """`firsts` are the first offsets that retention left in its partitions."""

    max_message_bytes: int
    partitions: list[list[_StoredRecord]]
    limits: TopicLimits
    id: str
    firsts: dict[int, int] = field(default_factory=dict)
    unkeyed: int = 0

    def verdict(self, batch: Sequence[_StoredRecord], now_ms: float) -> str:
        """Return the error code of a batch; empty if it is valid."""
        times = pa.array([record.timestamp for record in batch], pa.int64())
        if len(self.limits.outside(times, now_ms)):
            return "INVALID_TIMESTAMP"
        keys = pa.array([record.key for record in batch], pa.binary())
        return "INVALID_RECORD" if len(self.limits.without_keys(keys, len(batch))) else ""

    def place(self, key: bytes | None) -> int:
        if key is not None:
            return java_partition(key, len(self.partitions))
        self.unkeyed += 1
        return self.unkeyed % len(self.partitions)


@dataclass(slots=True)
class _Slot:
    """One transactional id: its producer epoch, its open transaction, its group's offset."""

    epoch: int = 0
    open: list[_StoredRecord] = field(default_factory=list)
    group: tuple[int, str] | None = None

    def decide(self, state: Literal["committed", "aborted"]) -> None:
        for record in self.open:
            record.state = state
        self.open = []


class _Log:
    """The broker's state; every method is atomic under one lock."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.lock = threading.RLock()
        self.wall = wall
        self.topics: dict[str, _Topic] = {}
        self.created = 0
        self.slots: dict[str, _Slot] = {}
        # Of later commits without a response: do they take effect, is their producer fenced?
        self.unclear: deque[tuple[bool, bool]] = deque()

    def fence(self, identity: str) -> int:
        with self.lock:
            slot = self.slots.setdefault(identity, _Slot())
            slot.epoch += 1
            slot.decide("aborted")
            return slot.epoch

    def owned(self, identity: str, epoch: int) -> _Slot:
        slot = self.slots[identity]
        if slot.epoch != epoch:
            raise Fenced(f"{identity}: another producer took over this transactional id")
        return slot

    def commit(self, identity: str, epoch: int, progress: SlotProgress) -> None:
        with self.lock:
            slot, unclear = self.owned(identity, epoch), bool(self.unclear)
            committed, fenced = self.unclear.popleft() if unclear else (True, False)
            if committed:
                slot.decide("committed")
                slot.group = (progress.position, progress.to_metadata())
            if fenced:
                self.fence(identity)
                self.owned(identity, epoch)
            if unclear:
                raise SinkUnavailable(f"{identity}: no answer to a commit; its outcome is unknown")

    def abort(self, identity: str, epoch: int) -> None:
        with self.lock:
            self.owned(identity, epoch).decide("aborted")

    def flush(self, identity: str) -> None:
        # At least once: the records are in the log already.
        with self.lock:
            if self.unclear and not self.unclear.popleft()[0]:
                raise SinkUnavailable(f"{identity}: deliveries failed; records may be doubled")

    def append(
        self, records: Records, limit: int
    ) -> tuple[list[_StoredRecord], list[RejectedRecord], ExtentflowError | None]:
        """Append the valid batches; return their records, and what is wrong with the others."""
        topic = self.topics.get(records.topic)
        if topic is None:
            raise TopicLost(f"topic {records.topic} does not exist; create it")
        if records.partition >= len(topic.partitions):
            raise Misconfigured(
                f"topic {records.topic} has {len(topic.partitions)} partitions, "
                f"partition {records.partition} was asked for"
            )
        batches: dict[int, list[_StoredRecord]] = {}
        refused: list[RejectedRecord] = []
        for index, (key, value, headers) in enumerate(list(_rows(records))):
            size = (
                len(key or b"")
                + len(value or b"")
                + sum(len(k) + len(v or b"") for k, v in headers)
            )
            if size > min(limit, topic.max_message_bytes):
                why = f"a record of {size} bytes is too large for the topic"
                refused.append(RejectedRecord(index, why))
                continue
            stamp = 0 if records.timestamps is None else records.timestamps[index].as_py()
            wanted = records.partition
            if records.partitions is not None:
                wanted = records.partitions[index].as_py()
            number = topic.place(key) if wanted < 0 else wanted
            stored = _StoredRecord(key, value, headers, stamp, "pending")
            batches.setdefault(number, []).append(stored)
        taken: list[_StoredRecord] = []
        failed: ExtentflowError | None = None
        for number, batch in batches.items():
            if verdict := topic.verdict(batch, self.wall() * 1000):
                error = rejection(verdict, records.topic, number, count=len(batch))
                failed = failed or translate(error, f"broker {records.topic}")
                continue
            topic.partitions[number] += batch
            taken += batch
        return taken, refused, failed

    def read(self, topic: str, states: Collection[str]) -> list[ConsumedRecord]:
        with self.lock:
            return [
                ConsumedRecord(
                    number, offset, record.key, record.value, record.headers, record.timestamp
                )
                for number, records in enumerate(self.topics[topic].partitions)
                for offset, record in enumerate(records)
                if record.state in states and offset >= self.topics[topic].firsts.get(number, 0)
            ]


def _rows(records: Records) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    count = len(records.values)
    keys = [None] * count if records.keys is None else records.keys.to_pylist()
    headers: Sequence[Headers] = [()] * count if records.headers is None else records.headers
    return zip(keys, records.values.to_pylist(), headers, strict=True)


class MemoryBroker:
    """One Kafka cluster in memory. Safe for use from several threads."""

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        cluster: str = "memory",
        on_call: Callable[[str], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Make a cluster whose clock is `wall`, in seconds since 1970."""
        self.cluster = cluster
        self._log, self._on_call = _Log(wall), on_call
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def fence(self, identity: str, client: ProducerSettings) -> "MemoryFence":
        self._on_call("fence")
        return MemoryFence(self._log, self._on_call, identity, self._log.fence(identity), client)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Add an empty topic, with an id of its own; in place of one of that name, if any.

        `config` are Kafka's settings of keys and timestamps.
        """
        limits = TopicLimits.of(name, {**DEFAULT_CONFIG, **(config or {})})
        with self._log.lock:
            self._log.created += 1
            empty: list[list[_StoredRecord]] = [[] for _ in range(partitions)]
            made = _Topic(max_message_bytes, empty, limits, f"topic-{self._log.created}")
            self._log.topics[name] = made

    def limits(self, topic: str) -> TopicLimits:
        """Return which keys and timestamps a topic takes."""
        return self._log.topics[topic].limits

    def add_partitions(self, topic: str, count: int) -> None:
        """Add so many empty partitions to a topic."""
        with self._log.lock:
            self._topic(topic).partitions += [[] for _ in range(count)]

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        with self._log.lock:
            firsts = self._topic(topic).firsts
            firsts[partition] = max(before, firsts.get(partition, 0))

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, which another topic of the same name does not have."""
        with self._log.lock:
            return self._topic(topic).id

    def present_topics(self, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of those topics that exist."""
        with self._log.lock:
            return {one: self._topic(one).id for one in names if one in self._log.topics}

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        with self._log.lock:
            del self._log.topics[topic]

    def first_offsets(self, topic: str) -> dict[int, int]:
        """Return the first offset that each partition has."""
        with self._log.lock:
            found = self._topic(topic)
            return {one: found.firsts.get(one, 0) for one in range(len(found.partitions))}

    def _topic(self, name: str) -> _Topic:
        if name not in self._log.topics:
            raise TopicAbsent(f"topic {name} does not exist; create it")
        return self._log.topics[name]

    def read_committed(self, topic: str) -> list[ConsumedRecord]:
        """Return what consumers with `isolation.level=read_committed` see, by partition."""
        return self._log.read(topic, {"committed"})

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset behind the last record of each partition, whatever its state."""
        with self._log.lock:
            return dict(enumerate(map(len, self._topic(topic).partitions)))

    def read_from(
        self,
        topic: str,
        begin: Mapping[int, int],
        *,
        end: Mapping[int, int],
        group: str = "",
        follow: bool = False,
        batch_records: int = 2,
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield what `read_committed` returns of partitions, from their offsets to `end`.

        As a consumer does: each batch is read when it is asked for, so that records that are sent
        meanwhile are among them where `end` is behind them. Also with `follow`, it ends there.
        Raises PositionGone where records were deleted before they were read.
        """
        _ = group, follow
        self._on_call("read_from")
        unread = dict(begin)
        while batch := self._read_next(topic, unread, end)[:batch_records]:
            unread |= {record.partition: record.offset + 1 for record in batch}
            yield batch

    def _read_next(
        self, topic: str, unread: Mapping[int, int], end: Mapping[int, int]
    ) -> list[ConsumedRecord]:
        with self._log.lock:
            firsts, ends = self.first_offsets(topic), self.end_offsets(topic)
            for partition, offset in unread.items():
                if offset >= end.get(partition, offset + 1):
                    continue
                bounds = firsts[partition], ends[partition]
                if not bounds[0] <= offset <= bounds[1]:
                    raise position_gone((topic, partition), offset, bounds, "read it again")
            return [
                record
                for record in self.read_committed(topic)
                if unread.get(record.partition, record.offset + 1)
                <= record.offset
                < end.get(record.partition, record.offset + 1)
            ]

    def read_uncommitted(self, topic: str) -> list[ConsumedRecord]:
        """Return every record that was ever sent, by partition."""
        return self._log.read(topic, {"committed", "aborted", "pending"})

    def group(self, identity: str) -> SlotProgress | None:
        """Return the identity's committed progress, without fencing it."""
        slot = self._log.slots.get(identity)
        return SlotProgress.from_metadata(slot.group[1]) if slot and slot.group else None

    def forget_group(self, identity: str) -> None:
        """Lose a group's offset, as retention, deletion or a rebuilt broker does."""
        with self._log.lock:
            self._log.slots.setdefault(identity, _Slot()).group = None

    def time_out_transaction(self, identity: str) -> None:
        """Abort the identity's transaction, as the broker does after `transaction.timeout.ms`."""
        self._log.fence(identity)

    def lose_commit_answer(self, *, committed: bool, fenced: bool = False) -> None:
        """Let the next commit take effect, or not, and raise SinkUnavailable; first in, first out.

        `fenced` raises Fenced instead: the response was lost, another worker fenced the producer,
        and Kafka refused the repeated commit. So the outcome is unknown after Fenced, too.
        """
        self._log.unclear.append((committed, fenced))


@dataclass(frozen=True, slots=True)
class MemoryFence:
    """`Fence` over a MemoryBroker: the owner of a transactional id under one epoch."""

    log: _Log
    on_call: Callable[[str], None]
    identity: str
    epoch: int
    client: ProducerSettings

    def read(self) -> SlotProgress | None:
        self.on_call("read")
        with self.log.lock:
            group = self.log.slots[self.identity].group
        return None if group is None else SlotProgress.from_metadata(group[1])

    def mark(self, progress: SlotProgress) -> None:
        self.on_call("mark")
        self.log.commit(self.identity, self.epoch, progress)

    def open(self) -> "MemorySink":
        self.on_call("open")
        return MemorySink(self)

    def close(self) -> None:
        self.on_call("close")


class MemorySink:
    """`Sink` over a MemoryBroker.

    `send` on a fenced producer returns normally (Kafka's may, too); its records stay invisible.
    After a commit whose outcome is unknown, or with a rejected batch, every call raises
    SinkUnavailable.
    """

    def __init__(self, owner: MemoryFence) -> None:
        self._owner, self._lost = owner, False
        self._failed: ExtentflowError | None = None
        self._exactly_once = owner.client.exactly_once
        self._limit = owner.client.max_message_bytes or DEFAULT_MAX_MESSAGE_BYTES

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        self._begin("send")
        log = self._owner.log
        with log.lock:
            taken, refused, failed = log.append(records, self._limit)
            self._failed = self._failed or failed
            slot = log.slots[self._owner.identity]
            if self._exactly_once and slot.epoch == self._owner.epoch:
                slot.open += taken
            else:
                for record in taken:
                    record.state = "aborted" if self._exactly_once else "committed"
            return self._owner.client.stated(refused)

    def commit(self, progress: SlotProgress) -> None:
        self._begin("commit")
        if self._failed is not None:
            self._lost = True
            raise self._failed
        try:
            if self._exactly_once:
                self._owner.log.commit(self._owner.identity, self._owner.epoch, progress)
            else:
                self._owner.log.flush(self._owner.identity)
        except SinkUnavailable:
            self._lost = True
            raise

    def abort(self) -> None:
        self._begin("abort")
        self._failed = None
        if self._exactly_once:
            self._owner.log.abort(self._owner.identity, self._owner.epoch)

    def close(self) -> None:
        self._owner.on_call("close")
        self._lost = True

    def _begin(self, name: str) -> None:
        self._owner.on_call(name)
        if self._lost:
            raise SinkUnavailable(f"{self._owner.identity}: the sink is closed; acquire it again")
