"""Reads the committed records of a topic, once from start to end, to verify a delivery."""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from extentflow.errors import SinkUnavailable
from extentflow.kafka.producer import LOG, translate
from extentflow.kafka.record_headers import Headers
from extentflow.kafka.settings import Sign, Timeouts, client_settings, with_tokens
from extentflow.kafka.topic_admin import Admin

BATCH_RECORDS = 10_000
POLL_SECONDS = 0.1  # also the time that a batch waits for more records


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

    Starts at the oldest record, or reads the partitions of `begin` from these offsets, and ends
    when every partition was read up to its last stable offset, or before its offset in `end`. The
    last stable offset is that of the time when the reader is there: without `end` it moves with
    every commit, that of the caller included. With `follow` it never ends. An open transaction
    holds that offset back: wait for its end (at most `transaction.timeout.ms`) before reading.
    Brokers with ACLs ask for Describe on `group` (empty: one of its own), in which nothing is
    committed. `sign` signs tokens for brokers with IAM. Raises Misconfigured without the topic,
    SinkUnavailable where no record arrived for `idle_seconds`.
    """
    timeouts = timeouts or Timeouts()
    clock = timeouts.retry.clock
    with Admin(with_tokens(client_settings(kafka, {}), sign), timeouts) as admin:
        count = admin.partitions_to_read(topic)
    offsets = dict.fromkeys(range(count), 0) if begin is None else dict(begin)
    end = end or {}
    unread = {one for one, offset in offsets.items() if one not in end or offset < end[one]}
    group = group or f"extentflow.reader.{uuid.uuid4().hex}"
    settings = consumer_settings(kafka, group)
    consumer = Consumer({**with_tokens(settings, sign), "logger": LOG})
    try:
        consumer.assign([TopicPartition(topic, one, offsets[one]) for one in unread])
        last_arrival = clock.monotonic()
        while unread:
            messages = consumer.consume(BATCH_RECORDS, POLL_SECONDS)
            silent = clock.monotonic() - last_arrival
            if not messages and not follow and silent > idle_seconds:
                raise SinkUnavailable(f"topic {topic}: nothing read for {idle_seconds:g} s")
            if batch := _consumed_records(messages, unread, end, topic, follow=follow):
                yield batch
            if messages:  # behind the yield: what the caller does meanwhile is no silence
                last_arrival = clock.monotonic()
    finally:
        consumer.close()


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
        "auto.offset.reset": "earliest",
        "check.crcs": "true",
        # Per partition. With the default a full queue pauses fetching for a second: 163 instead of
        # 764 k rows/s.
        "queued.max.messages.kbytes": "16384",
        "fetch.queue.backoff.ms": "5",
    }


def _consumed_records(
    messages: list[Message], unread: set[int], end: Mapping[int, int], topic: str, *, follow: bool
) -> list[ConsumedRecord]:
    """Return the records among `messages`; remove partitions that ended from `unread`."""
    batch: list[ConsumedRecord] = []
    for message in messages:
        partition: Any = message.partition()
        offset: Any = message.offset()  # like the partition never None where there is no error
        error = message.error()
        if error is None:
            if partition in end and offset >= end[partition]:
                unread.discard(partition)
            if partition in unread:
                batch.append(consumed(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
            if not follow:
                unread.discard(partition)
        elif error.fatal() or not error.retriable():
            raise translate(error, f"topic {topic}[{partition}]")
    return batch


def consumed(message: Message) -> ConsumedRecord:
    """Return the record of a message that is no error."""
    partition: Any = message.partition()
    offset: Any = message.offset()
    headers: Any = message.headers() or ()
    key, value, time = message.key(), message.value(), message.timestamp()[1]
    return ConsumedRecord(partition, offset, key, value, headers, time)
