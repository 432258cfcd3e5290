"""A model of a cluster with the topics of column groups, for consumers that join them.

`Cluster` holds the logs. Producers write transactions into them at random: a batch in each topic,
in another order each, and the ends of transactions become known in one partition after the other.
`Client` is what a `TopicConsumer` uses of a Kafka client; `Joining` is a consumer with that client.
What a consumer yields counts when it commits, as with a sink that stores rows and positions
together.
"""

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from extentflow.columnar import BatchFacts
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import encoder
from extentflow.consumer import ConsumedBatch, TopicConsumer
from extentflow.consumer.joins import METADATA_BYTES
from extentflow.consumer.row_batches import Position
from extentflow.errors import PositionGone
from extentflow.kafka.reading import RecordReader

Place = tuple[str, int]
# Transactions that are open at a time.
CONCURRENT = 6


class Crash(Exception):  # noqa: N818 - no error
    """The end of a member."""


def facts_of(batch: str, rows: int, schema: str = "s") -> BatchFacts:
    return BatchFacts(
        encoding="arrow",
        rows=rows,
        schema=schema,
        batch=batch,
        object=f"s3://b/{batch}",
        version="v",
        extent="0-9",
        first=0,
        last=rows - 1,
        unit="row",
    )


def rows_of(topic: str, batch: str, rows: int) -> pa.RecordBatch:
    """Return rows whose one column is called as the topic."""
    values = [f"{batch}/{row}" for row in range(rows)]
    return pa.record_batch({topic: pa.array(values, pa.string())})


def batch_of(
    topic: str, batch: str, offset: int, *, rows: int = 3, partition: int = 0, column: str = ""
) -> ConsumedBatch:
    """Return a batch whose one column is called as its topic, unless `column` is given."""
    columns = rows_of(column or topic, batch, rows)
    return ConsumedBatch(topic, partition, columns, offset, facts=facts_of(batch, rows))


def batch_in(message: "Message") -> str:
    """Return the id of a message's batch."""
    return dict(message.headers_)["extentflow.batch"].decode()


@dataclass(frozen=True)
class Message:
    """A message as Kafka's client has it: a record, the end of a partition, or a lost position."""

    place: Place
    at: int
    headers_: Sequence[tuple[str, bytes]] = ()
    value_: bytes | None = None
    is_end: bool = False
    is_lost: bool = False

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        if self.is_lost:
            return KafkaError(KafkaError._AUTO_OFFSET_RESET)
        return KafkaError(KafkaError._PARTITION_EOF) if self.is_end else None

    def headers(self) -> Sequence[tuple[str, bytes]]:
        return self.headers_

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


@dataclass
class Transaction:
    """Batches that are still to be written to each topic, and where it was begun."""

    aborts: bool
    left: dict[str, deque[tuple[str, int, int]]]
    first: dict[Place, int] = field(default_factory=dict)
    is_decided: bool = False


class Cluster:
    """Logs of topics, and what consumer groups committed."""

    def __init__(self, source: random.Random, topics: Sequence[str], partitions: int) -> None:
        self.random, self.topics, self.partitions = source, topics, partitions
        self.places = [(topic, one) for topic in topics for one in range(partitions)]
        self.logs: dict[Place, dict[int, Message]] = {one: {} for one in self.places}
        self.low, self.high = dict.fromkeys(self.places, 0), dict.fromkeys(self.places, 0)
        self.ids = {topic: f"id of {topic}" for topic in topics}
        self.committed: dict[Place, TopicPartition] = {}
        self.longest_metadata = 0
        self.begun: dict[Place, int] = {}
        self.truth: dict[str, list[str]] = {}
        self.deleted: set[str] = set()
        self.order: dict[int, list[str]] = {one: [] for one in range(partitions)}
        self._open: list[Transaction] = []
        self._count = self.planned = 0

    def write(self, count: int = 0, *, together: bool = False) -> None:
        """Write `count` batches, and end all transactions; `together`: in the same order."""
        self.planned += count
        while self.planned > 0 or self._open:
            self.step(together=together)

    def write_batch(self, batch: str, *, topics: Sequence[str], partition: int = 0) -> None:
        """Write one batch to some of the topics."""
        left = {topic: deque([(batch, partition, 2)]) for topic in topics}
        self._open.append(Transaction(aborts=False, left=left))
        self.truth[batch] = [f"{batch}/{row}" for row in range(2)]
        while self._open:
            self.step()

    def _begin(self, count: int) -> int:
        made = []
        aborts = self.random.random() < 0.1
        for _ in range(count):
            batch, rows = f"b{self._count}", self.random.randrange(1, 5)
            self._count += 1
            made.append((batch, self.random.randrange(self.partitions), rows))
            if not aborts:
                self.truth[batch] = [f"{batch}/{row}" for row in range(rows)]
        self._open.append(Transaction(aborts, {topic: deque(made) for topic in self.topics}))
        return count

    def step(self, *, together: bool = False) -> None:
        """Go on with a random transaction; begin one of the `planned` batches."""
        if self.planned > 0 and len(self._open) < CONCURRENT:
            self.planned -= self._begin(min(self.planned, self.random.randrange(1, 6)))
        if not self._open:
            return
        one = self.random.choice(self._open)
        if topics := [topic for topic, left in one.left.items() if left]:
            for topic in topics if together else [self.random.choice(topics)]:
                self._append(one, topic, *one.left[topic].popleft())
        elif not one.is_decided:
            one.is_decided = True
        elif one.first:
            # Its end becomes known in one partition after the other.
            place = self.random.choice(list(one.first))
            del one.first[place]
            self.high[place] += 1
        else:
            self._open.remove(one)

    def _append(self, to: Transaction, topic: str, batch: str, partition: int, rows: int) -> None:
        place = topic, partition
        at = self.high[place]
        self.high[place] += 1
        to.first.setdefault(place, at)
        if to.aborts:
            return
        columns = rows_of(topic, batch, rows)
        value = encoder("arrow", "none", columns.schema)(columns).to_pybytes()
        headers = facts_of(batch, rows, identity(columns.schema)).headers()
        self.logs[place][at] = Message(place, at, headers, value)
        if topic == self.topics[0]:
            self.order[partition].append(batch)

    def stable(self, place: Place) -> int:
        """Return the offset up to which transactions have ended."""
        return min([self.high[place], *(one.first.get(place, 2**62) for one in self._open)])

    def delete(self, place: Place, before: int) -> None:
        """Delete records, as retention does; note which batches are incomplete since."""
        self.low[place] = max(self.low[place], min(before, self.stable(place)))
        log = self.logs[place]
        self.deleted |= {batch_in(log[at]) for at in log if at < self.low[place]}
        self.logs[place] = {at: one for at, one in log.items() if at >= self.low[place]}

    def add_partition(self) -> None:
        """Add a partition to each topic."""
        for place in [(topic, self.partitions) for topic in self.topics]:
            self.places.append(place)
            self.logs[place], self.low[place], self.high[place] = {}, 0, 0
        self.order[self.partitions] = []
        self.partitions += 1

    def create_again(self, topic: str) -> None:
        """Delete a topic, with the offsets of groups, and create it again."""
        self.ids[topic] += ", created again"
        for place in [one for one in self.places if one[0] == topic]:
            self.logs[place], self.low[place], self.high[place] = {}, 0, 0
            self.committed.pop(place, None)

    def whole(self) -> set[str]:
        """Return the batches that are behind the start of each topic, and were not deleted."""
        before = {
            batch_in(one)
            for place, log in self.logs.items()
            for at, one in log.items()
            if at < self.begun.get(place, 0)
        }
        return self.truth.keys() - before - self.deleted


class Client:
    """What a consumer uses of a Kafka client."""

    def __init__(self, cluster: Cluster, *, steps: float = 0.0, most: int = 10) -> None:
        self.cluster, self._steps, self._most = cluster, steps, most
        self.next: dict[Place, int] = {}
        self.paused: set[Place] = set()
        self.delayed: dict[Place, int] = {}  # of which nothing arrives before a poll
        self.ended: dict[Place, int] = {}
        self.errors: list[Message] = []
        self.polls = self.fetched = 0
        self.before_poll: Callable[[], None] = lambda: None

    def consume(self, _count: int, _seconds: float) -> list[Message]:
        source = self.cluster.random
        self.polls += 1
        if not self.polls % 20:  # transactions end at some time
            self.cluster.step()
        while source.random() < self._steps:
            self.cluster.step()
        self.before_poll()
        self._find_lost()
        found, self.errors = self.errors, []
        for place in source.sample(sorted(self.next), len(self.next)):
            if place not in self.paused and self.polls >= self.delayed.get(place, 0):
                found += self._fetched(place, source.randrange(self._most + 1))
        self.fetched += len(found)
        return found

    def _fetched(self, place: Place, most: int) -> list[Message]:
        log, stable = self.cluster.logs[place], self.cluster.stable(place)
        begin = self.next[place]
        found = [log[at] for at in sorted(log) if begin <= at < stable][:most]
        if found:
            self.next[place] = found[-1].at + 1
        if not any(self.next[place] <= at < stable for at in log):
            self.next[place] = max(self.next[place], stable)
            if self.ended.get(place) != self.next[place]:
                self.ended[place] = self.next[place]
                found.append(Message(place, self.next[place], is_end=True))
        return found

    def committed(self, places: Sequence[TopicPartition], _seconds: float) -> list[TopicPartition]:
        nothing = [TopicPartition(one.topic, one.partition, -1001) for one in places]
        held = self.cluster.committed
        return [
            TopicPartition(at.topic, at.partition, at.offset, metadata=at.metadata or "")
            for at in (held.get((one.topic, one.partition), one) for one in nothing)
        ]

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.next = {(one.topic, one.partition): one.offset for one in places}
        self.cluster.begun = {**self.next, **self.cluster.begun}
        self.ended.clear()
        self._find_lost()

    def _find_lost(self) -> None:
        """Note positions that are gone; as librdkafka, keep such errors when it is assigned."""
        for place, offset in [*self.next.items()]:
            if not self.cluster.low[place] <= offset <= self.cluster.high[place]:
                self.errors.append(Message(place, self.next.pop(place), is_lost=True))

    def unassign(self) -> None:
        self.next = {}

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused |= {(one.topic, one.partition) for one in places}

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self.paused -= {(one.topic, one.partition) for one in places}

    def seek(self, place: TopicPartition) -> None:
        at = place.topic, place.partition
        assert at not in self.paused
        self.next[at] = place.offset
        self.ended.pop(at, None)

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        assert not asynchronous
        longest = max(len(one.metadata or "") for one in offsets)
        self.cluster.longest_metadata = max(self.cluster.longest_metadata, longest)
        self.cluster.committed |= {(one.topic, one.partition): one for one in offsets}

    def close(self) -> None:
        self.next = {}


@dataclass(frozen=True)
class Described:
    """What brokers say about the topics of a modelled cluster."""

    cluster: Cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {topic: self.cluster.ids[topic] for topic in topics}

    def partitions(self, _topic: str) -> int:
        return self.cluster.partitions

    def ends_of(self, places: Sequence[Place]) -> Mapping[Place, int]:
        return {one: self.cluster.high[one] for one in places}

    def bounds_of(self, places: Sequence[Place]) -> Mapping[Place, tuple[int, int]]:
        return {one: (self.cluster.low[one], self.cluster.stable(one)) for one in places}


class Joining(TopicConsumer):
    """A consumer of a modelled cluster; it joins the topics, unless there is only one.

    It has the partitions `places`, by default all.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        *,
        metadata_bytes: int = METADATA_BYTES,
        places: Sequence[Place] = (),
        **options: Any,  # noqa: ANN401
    ) -> None:
        kafka = {"bootstrap.servers": "127.0.0.1:1"}
        join = len(cluster.topics) > 1
        self._cluster, self._model = cluster, client
        super().__init__(kafka, cluster.topics, group="g", join=join, **options)
        if self._join is not None:
            self._join.metadata_bytes = metadata_bytes
        self.join_partitions(places)

    def _open_client(self) -> RecordReader:
        opened = super()._open_client()
        opened.close()
        opened._client = self._model  # type: ignore[assignment]
        return opened

    def _join_again(self, place: Place, at: Position) -> None:
        super()._join_again(place, at)
        self.join_partitions()

    def join_partitions(self, places: Sequence[Place] = ()) -> None:
        """Assign partitions, by default all, as the group does."""
        self._assign(places or self._cluster.places)

    def leave(self, place: Place) -> None:
        """Take one partition away."""
        self._assigned.discard(place)
        del self._model.next[place]

    def rebalance(self) -> None:
        """Take all partitions away, and give them back."""
        self._revoke([*self._assigned])
        self.join_partitions()

    def _admin(self) -> Described:  # type: ignore[override]
        return Described(self._cluster)

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows wait."""
        assert self._join is not None
        return self._join.held_bytes


@dataclass
class Reader:
    """Reads a cluster by members that come and go; `rows` are those that were committed."""

    cluster: Cluster
    crash: float = 0.0
    commit: float = 0.3
    rebalance: float = 0.0
    steps: float = 0.0
    deletes: float = 0.0
    seek: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: dict[int, list[str]] = field(default_factory=dict)
    most_held: int = 0
    fetched: int = 0
    # With more of them, no member comes far.
    _rebalances: int = 10
    _pending: list[tuple[int, str]] = field(default_factory=list)

    def read(self) -> None:
        """Read to the end, by as many members as it takes."""
        for _ in range(500):
            try:
                self._read_as_member()
            except Crash:
                continue
            return
        raise AssertionError("no member came to the end")

    def _read_as_member(self) -> None:
        self._pending = []
        client = Client(self.cluster, steps=self.steps)
        with Joining(self.cluster, client, **self.options) as member:
            client.before_poll = lambda: self._disturb(member, client)
            if self.seek:
                assert member.seek(f"s3://b/{self.seek}")
                self.seek = ""
                member.commit()
            is_read = False
            while not is_read:
                try:
                    self._read_batches(member)
                    is_read = True
                except PositionGone as gone:
                    member.accept_gap(gone)
            self._commit(member)

    def _read_batches(self, member: Joining) -> None:
        for batch in member.batches(until_end=True):
            self._handle(member, batch)
            if self._chance(self.crash):
                raise Crash
            if self._chance(self.commit):
                self._commit(member)

    def _disturb(self, member: Joining, client: Client) -> None:
        self.most_held = max(self.most_held, member.held_bytes)
        self.fetched = client.fetched
        if self._chance(self.deletes):
            place = self.cluster.random.choice(self.cluster.places)
            self.cluster.delete(place, self.cluster.random.randrange(self.cluster.high[place] + 1))
        assert client.polls < 20_000, "it reads for ever"
        if self._rebalances and self._chance(self.rebalance):
            self._rebalances -= 1
            self._pending = []
            member.rebalance()

    def _handle(self, member: Joining, batch: ConsumedBatch) -> None:
        """Take the rows of a batch, perhaps in parts with a commit between them."""
        parts = [tuple(row.values()) for row in batch.rows.to_pylist()]
        assert all(len(set(row)) == 1 for row in parts), "columns of different rows"
        assert all(len(row) == len(self.cluster.topics) for row in parts)
        rows, taken = [(batch.partition, row[0]) for row in parts], 0
        if self._chance(self.commit):
            taken = self.cluster.random.randrange(len(rows) + 1)
            self._pending += rows[:taken]
            member.handled(batch, taken)
            self._commit(member)
        self._pending += rows[taken:]
        member.handled(batch, len(rows))
        if self._chance(self.commit):
            self._commit(member)

    def _commit(self, member: Joining) -> None:
        member.commit()
        for partition, row in self._pending:
            self.rows.setdefault(partition, []).append(row)
        self._pending = []

    def _chance(self, probability: float) -> bool:
        return self.cluster.random.random() < probability

    def expect(self, batches: Collection[str]) -> None:
        """Assert that the rows of these batches were read, and each row once, in order."""
        for partition, order in self.cluster.order.items():
            read, truth = self.rows.get(partition, []), self.cluster.truth
            expected = [row for batch in order for row in truth[batch] if row in {*read}]
            assert read == expected
            assert {row for one in order if one in batches for row in truth[one]} <= {*read}
