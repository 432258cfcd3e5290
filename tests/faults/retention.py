"""A reader whose records retention deletes, and whose topic is created again at the end.

deletion      committed records up to a cut are kept for the comparison, then deleted
reader        `TopicConsumer`: PositionGone, accepted; all other records are read once
created again more records in a new topic: PositionGone for each partition that was read

Tests: unit/faults/test_retention.py
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import Producer
from tests.faults.comparison import SAMPLES, Verdict
from tests.faults.console import FOUND, NO_HEADERS
from tests.faults.servers import Servers

from extentflow.consumer import ConsumedBatch, TopicConsumer, topic_watch
from extentflow.errors import ExtentflowError, Fenced, Misconfigured, PositionGone, Retryable

IDLE_SECONDS = 1.0
LAG_SECONDS = 2.0
ARCHIVE_SECONDS = 5.0
LAST_DELETIONS = 4
FINISH_SECONDS = 120.0
# Longer than a member waits before it asks again whether topics are still those that they were.
AGAIN_SECONDS = topic_watch.IDLE_SECONDS + 30.0
# Of a new topic, beyond the offsets that the reader committed in the one before.
MORE = 5

Place = tuple[int, int]


@dataclass
class Reading:
    """What a reader met, as (partition, offset). `seen` is committed, `perhaps` maybe not.

    A gap is a partition, the offset where reading was, and the one where it continued. `cuts` are
    the deletions: partition and first offset that was left.
    """

    seen: Counter[Place] = field(default_factory=Counter)
    perhaps: set[Place] = field(default_factory=set)
    gaps: set[tuple[int, int, int]] = field(default_factory=set)
    cuts: set[Place] = field(default_factory=set)

    def skipped(self, place: Place) -> bool:
        """Whether a gap that was accepted covers a record."""
        partition, offset = place
        return any(one == partition and a <= offset < b for one, a, b in self.gaps)

    def verdict(self, archived: Iterable[Place], left: Iterable[Place]) -> Verdict:
        """Compare with the records of the topic: those that were deleted, and those `left`."""
        deleted, kept = set(archived), set(left)
        records = deleted | kept
        found: dict[str, Sequence[tuple[int, ...]]] = {
            "not read": sorted(
                one
                for one in records - self.seen.keys() - self.perhaps
                if not (one in deleted and self.skipped(one))
            ),
            "read twice": sorted(one for one, count in self.seen.items() if count > 1),
            "read, but not committed": sorted(self.seen.keys() - records),
            "read, though stated to be gone": sorted(one for one in self.seen if self.skipped(one)),
            "a gap up to an offset without a deletion": sorted(
                gap for gap in self.gaps if (gap[0], gap[2]) not in self.cuts
            ),
        }
        missing, twice, foreign, both, wrong = found.values()
        return Verdict(
            missing=len(missing),
            duplicates=len(twice),
            foreign=len(foreign),
            changed=len(both) + len(wrong),
            samples=tuple(
                f"reader under retention, {what}: {one}"
                for what, some in found.items()
                for one in some[:SAMPLES]
            ),
        )


@dataclass
class RetainedReader:
    """Reads one topic of JSON rows while records are deleted."""

    servers: Servers
    topic: str
    reading: Reading = field(default_factory=Reading)
    archived: pa.Table = field(default_factory=FOUND.empty_table)
    group: str = field(default_factory=lambda: f"retained-{uuid4().hex}")
    stop: threading.Event = field(default_factory=threading.Event)
    missed: int = 0
    again: int = 0
    stated: int = 0
    interrupted: int = 0

    def go(self, over: threading.Event) -> None:
        """Read until the faults are `over` and some records were read, or until `stop` is set.

        Members follow each other where brokers do not answer.
        """
        while not self.stop.is_set():
            try:
                self._read_on(over)
            except (Retryable, Fenced):
                self.stop.wait(0.5)
            except Misconfigured as exc:
                if "TOPIC_AUTHORIZATION_FAILED" not in str(exc):  # a fault of the campaign
                    raise
                self.stop.wait(0.5)

    def _read_on(self, over: threading.Event) -> None:
        kafka = {"bootstrap.servers": self.servers.settings.bootstrap_servers}
        with TopicConsumer(kafka, self.topic, group=self.group) as member:
            while not self.stop.is_set():
                with self._accepting(member):
                    for batch in member.batches(idle_seconds=IDLE_SECONDS):
                        self._commit(member, batch)
                        if over.is_set():
                            self.stop.set()
                        # So that some records are deleted before they are read.
                        if self.stop.wait(LAG_SECONDS):
                            return

    def _read_to_end(self) -> None:
        kafka = {"bootstrap.servers": self.servers.bootstrap}
        with TopicConsumer(kafka, self.topic, group=self.group) as member:
            is_read = False
            while not is_read:
                with self._accepting(member):
                    for batch in member.batches(until_end=True, idle_seconds=FINISH_SECONDS):
                        self._commit(member, batch)
                    is_read = True

    @contextmanager
    def _accepting(self, member: TopicConsumer) -> Iterator[None]:
        """Accept the gap that is raised, if any."""
        try:
            yield
        except PositionGone as gap:
            self.reading.gaps.add((gap.partition, gap.position, gap.first))
            member.accept_gap(gap)
            member.commit()

    def _commit(self, member: TopicConsumer, batch: ConsumedBatch) -> None:
        places = [(batch.partition, one) for one in batch.offsets]
        try:
            member.commit()
        except ExtentflowError:
            self.reading.perhaps.update(places)
            raise
        self.reading.seen.update(places)

    # -- deletions ------------------------------------------------------------------------------

    def delete(self, random: Random) -> bool:
        """Delete some committed records of a partition that the reader has begun."""
        begun = sorted({partition for partition, _ in self.reading.seen.copy()})
        if not begun:
            return False
        place = TopicPartition(self.topic, random.choice(begun))
        with _consumer(self.servers.bootstrap, f"archive-{uuid4().hex}") as client:
            low, _ = _bounds(client, place)
            end = self._stable_end(place)
            if end <= low:
                return False
            cut = random.choice((end, random.randrange(low + 1, end + 1)))
            rows = _records(client, place, low, cut)
        if rows is None:
            return False
        self.reading.cuts.add((place.partition, cut))
        # Kept before: whether a deletion without an answer took place, the comparison shows.
        self.archived = pa.concat_tables([self.archived, rows])
        self.servers.delete_records(self.topic, place.partition, cut)
        return True

    def _stable_end(self, place: TopicPartition) -> int:
        wanted = {place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        asked = self.servers.admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30
        )
        return int(asked[place].result().offset)

    def figures(self) -> Counter[str]:
        """Return what happened, for the report; after `recreated`."""
        return Counter(
            {
                "records read": len(self.reading.seen),
                "gaps accepted": len(self.reading.gaps),
                "deletions": len(self.reading.cuts),
                "records deleted": self.archived.num_rows,
                "records deleted before they were read": self.missed,
                "topics created again": self.again,
                "interrupted then": self.interrupted,
                "partitions stated to be created again": self.stated,
            }
        )

    # -- the end --------------------------------------------------------------------------------

    def delete_some(self, random: Random) -> None:
        """Delete records that were delivered since the reader stopped, and others."""
        for _ in range(LAST_DELETIONS):
            _patiently(lambda: self.delete(random))

    def verdict(self, found: pa.Table) -> tuple[pa.Table, Verdict]:
        """Read to the end; return all records, deleted ones included, and what the reader missed.

        `found` is what the topic has now.
        """
        _patiently(self._read_to_end)
        left = set(_places(found))
        # A deletion that was not answered, and did not take place.
        is_gone = [one not in left for one in _places(self.archived)]
        gone = self.archived.filter(pa.array(is_gone, pa.bool_()))
        gone = gone.group_by(FOUND.names).aggregate([]).select(FOUND.names)
        self.missed = sum(map(self.reading.skipped, _places(gone)))
        return pa.concat_tables([found, gone]), self.reading.verdict(_places(gone), left)

    def recreated(self) -> Verdict:
        """Create the topic again, with more records than before, under a member that reads it.

        Kafka forgets a group's offsets of a deleted topic, and its clients continue at the offset
        of the topic before. A member that ends meanwhile is counted as `interrupted`.
        """
        try:
            stated, rows, written = self._read_across()
        except (Retryable, Fenced, KafkaException):
            self.interrupted = 1
            return Verdict()
        self.stated = len(stated)
        begun = {partition for partition, _ in self.reading.seen}
        silent, lost = sorted(begun - stated), sorted(written - set(rows))
        samples = [f"created again, and partition {one} was continued" for one in silent]
        samples += [f"created again, and not read: {one}" for one in lost[:SAMPLES]]
        return Verdict(
            missing=len(lost),
            changed=len(silent),
            duplicates=len(rows) - len(set(rows)),
            samples=tuple(samples),
        )

    def _read_across(self) -> tuple[set[int], list[Place], set[Place]]:
        """Return the partitions stated to be new, what was read of the new topic, and what it has.

        The member that notices accepts the gaps, and another one reads the rest.
        """
        kafka = {"bootstrap.servers": self.servers.bootstrap}
        begun = {partition for partition, _ in self.reading.seen}
        stated: set[int] = set()
        rows: list[Place] = []
        with TopicConsumer(kafka, self.topic, group=self.group) as member:
            for _ in member.batches(until_end=True, idle_seconds=FINISH_SECONDS):
                member.commit()
            ends = self._create_again()
            self.again = 1
            written = self._fill(ends)
            while not begun <= stated:
                try:
                    for batch in member.batches(idle_seconds=AGAIN_SECONDS):
                        rows += [(batch.partition, one) for one in batch.offsets]
                    break
                except PositionGone as gap:
                    if "was created again" in str(gap):
                        stated.add(gap.partition)
                    # Until a member asks, it reads the new topic from the offset of the old one.
                    rows = [one for one in rows if one[0] != gap.partition]
                    member.accept_gap(gap)
            member.commit()
        with TopicConsumer(kafka, self.topic, group=self.group) as member:
            for batch in member.batches(until_end=True, idle_seconds=FINISH_SECONDS):
                rows += [(batch.partition, one) for one in batch.offsets]
        return stated, rows, written

    def _create_again(self) -> dict[int, int]:
        """Delete the topic, and create it; return where its partitions ended."""
        with _consumer(self.servers.bootstrap, self.group) as client:
            partitions = client.list_topics(self.topic, timeout=30).topics[self.topic].partitions
            ends = {one: _bounds(client, TopicPartition(self.topic, one))[1] for one in partitions}
        self.servers.delete_topics([self.topic])
        self.servers.make_topic(self.topic, partitions=len(ends))
        return ends

    def _fill(self, ends: dict[int, int]) -> set[Place]:
        client = Producer({"bootstrap.servers": self.servers.bootstrap, "log_level": 0})
        for partition, end in ends.items():
            for number in range(end + MORE):
                body = json.dumps({"id": number}).encode()
                client.produce(self.topic, body, partition=partition)
                client.poll(0)
        if client.flush(60):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return {(one, number) for one, end in ends.items() for number in range(end + MORE)}


class _consumer:  # noqa: N801 - a context manager
    """A client that is closed at the end."""

    def __init__(self, brokers: str, group: str) -> None:
        self.client = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )

    def __enter__(self) -> Consumer:
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()


def _bounds(client: Consumer, place: TopicPartition) -> tuple[int, int]:
    found = client.get_watermark_offsets(place, 30)
    if found is None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return found


def _records(client: Consumer, place: TopicPartition, low: int, cut: int) -> pa.Table | None:
    """Return the committed records of [low, cut); None where brokers do not answer in time."""
    client.assign([TopicPartition(place.topic, place.partition, low)])
    rows: list[dict[str, object]] = []
    end = time.monotonic() + ARCHIVE_SECONDS
    while time.monotonic() < end:
        one = client.poll(0.2)
        if one is None:
            continue
        error = one.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            continue
        # Marks of transactions are no records: the last one before the cut may be earlier.
        if error is not None or (one.offset() or 0) >= cut:
            return pa.Table.from_pylist(rows, FOUND)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "position": one.offset(),
                "headers": NO_HEADERS,
                "key": _text(one.key()),
                "value": _text(one.value()),
            }
        )
    return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _places(table: pa.Table) -> list[Place]:
    columns = (table.column(name).to_pylist() for name in ("partition", "position"))
    return list(zip(*columns, strict=True))


def _patiently(act: Callable[[], object]) -> None:
    """Call again while brokers of a later round are down."""
    end = time.monotonic() + FINISH_SECONDS
    while True:
        try:
            act()
        except (Retryable, Fenced, KafkaException):
            if time.monotonic() > end:
                raise
            time.sleep(1.0)
        else:
            return
