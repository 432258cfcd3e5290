"""The two sinks: transactions for exactly once, flushes for at least once.

Tests: unit/kafka/test_sinks_records.py, unit/kafka/test_sinks_flush.py
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaException, Producer

from extentflow.errors import SinkUnavailable
from extentflow.kafka import ProducerSettings, Records, RejectedRecord, SlotProgress
from extentflow.kafka.native import (
    FULL_QUEUE_POLL_SECONDS,
    SLICE_ROWS,
    Library,
    enqueue_arrays,
    too_large,
)
from extentflow.kafka.partitioning import KnownTopics
from extentflow.kafka.producer import ProducerHandle, error_of
from extentflow.kafka.settings import Timeouts, idempotent_settings
from extentflow.kafka.transaction import Transactions

NO_LIMITS = ProducerSettings()


@dataclass(slots=True)
class Arrays:
    """Whether whole arrays are queued; shared by the sinks of one broker.

    Records queued as arrays get no delivery reports: a failed transaction has no reason. The next
    transaction is therefore queued record by record (`careful`). A lasting failure is then reported
    with topic, partition and reason, and is not retried if an operator must act. The first record
    for each topic has a report, too, so that a topic which refuses all records is named at once.
    `reported` are the topics that had one.
    """

    library: Library | None = None
    careful: bool = False
    reported: set[str] = field(default_factory=set)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """After a failure of the block, queue the next transaction record by record."""
        try:
            yield
        except SinkUnavailable:
            self.careful = True
            raise


@dataclass(frozen=True, slots=True, eq=False)
class TransactionalSink:
    """`Sink` with `delivery.guarantee=exactly_once`: records and progress in one transaction.

    `spreads`: records without keys may go to any partition, so arrays of them go slice by slice.
    `limits` are the settings whose limits too large records exceed.
    """

    client: ProducerHandle
    transactions: Transactions
    topics: KnownTopics
    arrays: Arrays
    spreads: bool = False
    limits: ProducerSettings = NO_LIMITS

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        chosen = self.topics.check(records)
        free = self.spreads and records.keys is None and records.partition < 0
        free = free and records.partitions is None
        library = self.arrays.library
        with self.arrays.watched(), self.transactions.begun() as producer:
            # Headers and timestamps need one call per record: librdkafka's call for a batch has
            # neither.
            single = records.headers is not None or records.timestamps is not None
            if library is None or self.arrays.careful or single:
                rejected = enqueue(producer, records, self._check)
            else:
                balancer = chosen if free else None
                first = 0 if records.topic in self.arrays.reported else min(1, len(records.values))
                rejected = enqueue(producer, records.slice(0, first), self._check)
                if first:
                    self.arrays.reported.add(records.topic)
                rest = records.slice(first, len(records.values))
                rejected += (
                    replace(one, index=one.index + first)
                    for one in enqueue_arrays(library, producer, rest, self._check, balancer)
                )
            return self.limits.stated(rejected)

    def commit(self, progress: SlotProgress) -> None:
        with self.arrays.watched():
            self.transactions.commit(progress, self.topics.require_listed)
        self.arrays.careful = False

    def _check(self) -> None:
        self.client.check_deliveries()
        self.topics.require_listed()

    def abort(self) -> None:
        self.transactions.abort()

    def close(self) -> None:
        self.transactions.abandon()
        self.client.close()


def _flush(
    client: ProducerHandle, producer: Producer, timeouts: Timeouts, check: Callable[[], None]
) -> None:
    """Wait until the brokers have all records, for `commit_seconds`; `check` raises as it does."""
    for remaining in timeouts.attempts(timeouts.commit_seconds):
        waiting = producer.flush(remaining)
        check()
        if not waiting:
            return
    raise SinkUnavailable(
        f"{client.subject}: {waiting} records not acknowledged after"
        f" {timeouts.commit_seconds:g} s{client.hint()}"
    )


class FlushingSink:
    """`Sink` with `delivery.guarantee=at_least_once`: a commit flushes an idempotent producer.

    The ledger stores the progress after the flush; a crash between the two duplicates at most one
    chunk.
    """

    def __init__(
        self,
        make: Callable[[], ProducerHandle],
        timeouts: Timeouts,
        limits: ProducerSettings = NO_LIMITS,
    ) -> None:
        self._make = make
        self._limits = limits
        self._timeouts = timeouts
        self._open()

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        self._topics.check(records)
        with self.client.calling() as producer:
            rejected = enqueue(producer, records, self._check)
            return self._limits.stated(rejected)

    def commit(self, progress: SlotProgress) -> None:  # noqa: ARG002 - the ledger stores it
        with self.client.calling() as producer:
            _flush(self.client, producer, self._timeouts, self._check)

    def _check(self) -> None:
        self.client.check_deliveries()
        self._topics.require_listed()

    def abort(self) -> None:
        """Discard queued records; records in flight may be delivered twice.

        The producer is replaced: its queues are purged some time after `purge` returns
        (confluent-kafka 2.16 inverts `blocking`), together with records queued meanwhile. Records
        in flight are awaited, which keeps the order.
        """
        with self.client.calling() as producer:
            producer.purge(in_queue=True, in_flight=False)
            # Discarded records may have failed.
            _flush(self.client, producer, self._timeouts, lambda: None)
        self.client.close()
        self._open()

    def close(self) -> None:
        self.client.close()

    def _open(self) -> None:
        self.client = self._make()
        self._topics = KnownTopics(self.client, self._timeouts)


# -- one produce() per record ----------------------------------------------------------------------

# Positional arguments of produce(): topic, value, key, partition; with headers also two unused
# callbacks and the timestamp. Keyword arguments cost a third of the call.
Row = tuple[Any, ...]


def enqueue(
    producer: Producer, records: Records, check: Callable[[], None]
) -> list[RejectedRecord]:
    """Queue `records` one by one, in order; return those that are too large for the topic.

    Waits while the queue is full. `check` raises when a delivery failed; it is called after each
    slice and while waiting, so that an unavailable broker ends it. Raises as `enqueue_arrays`.
    """
    rejected: list[RejectedRecord] = []
    produce = producer.produce
    for start in range(0, len(records.values), SLICE_ROWS):
        for index, row in enumerate(_rows(records, start), start):
            while True:
                try:
                    produce(*row)
                except BufferError:
                    producer.poll(FULL_QUEUE_POLL_SECONDS)
                    check()
                    continue
                except KafkaException as exc:
                    if error_of(exc).name() != "MSG_SIZE_TOO_LARGE":
                        raise
                    rejected.append(too_large(index, *(len(part or b"") for part in row[1:3])))
                break
        producer.poll(0)
        check()
    return rejected


def rejected_records(client: ProducerSettings, records: Records) -> Sequence[RejectedRecord]:
    """Return the records above the limit of `client`, which it states; nothing is sent.

    Raises as `idempotent_settings`.
    """
    settings = idempotent_settings({}, client, delivery_timeout_ms=1_000)
    queue = {"queue.buffering.max.messages": "0", "queue.buffering.max.kbytes": "2147483647"}
    limit = {"message.max.bytes": settings["message.max.bytes"]}
    producer = Producer({**queue, **limit, "log_level": 0})  # without brokers
    try:
        return client.stated(enqueue(producer, records, lambda: None))
    finally:
        producer.purge()


def _rows(records: Records, start: int) -> Iterator[Row]:
    values = records.values.slice(start, SLICE_ROWS).to_pylist()
    keys: Iterable[bytes | None] = repeat(None)
    if records.keys is not None:
        keys = records.keys.slice(start, SLICE_ROWS).to_pylist()
    partitions: Iterable[int] = repeat(records.partition)
    if records.partitions is not None:
        partitions = records.partitions.slice(start, SLICE_ROWS).to_pylist()
    row = (repeat(records.topic), values, keys, partitions)
    if records.headers is None and records.timestamps is None:
        return zip(*row, strict=False)
    times: Iterable[int] = repeat(0)
    if records.timestamps is not None:
        times = records.timestamps.slice(start, SLICE_ROWS).to_pylist()
    headers: Iterable[list[tuple[str, bytes | None]]] = repeat([])
    if records.headers is not None:
        headers = map(list, records.headers[start : start + SLICE_ROWS])
    return zip(*row, repeat(None), repeat(None), times, headers, strict=False)
