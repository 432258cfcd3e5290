"""A consumer of committed records that is positioned before anything is sent."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from demo.rig import PARTITIONS

POLL_SECONDS = 0.005
BATCH_RECORDS = 2_000
PATIENCE_SECONDS = 120.0


class NothingSeenError(Exception):
    """The records did not arrive, or the sender ended first."""


class Witness:
    """Waits at the end of a topic for new records."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    @classmethod
    @contextmanager
    def of(cls, kafka: Mapping[str, str], topic: str) -> Iterator["Witness"]:
        """Watch a topic from its end on, with `isolation.level=read_committed`.

        Raises:
            NothingSeenError: the end is not reached in time.
        """
        consumer = Consumer(
            {
                **kafka,
                "group.id": f"bench-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
            }
        )
        places = [TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)]
        consumer.assign(places)
        try:
            witness = cls(consumer)
            witness._stand()
            yield witness
        finally:
            consumer.close()

    def _stand(self) -> None:
        """Wait until the end of every partition is reached: later records are fetched at once."""
        met: set[int | None] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(met) < PARTITIONS:
            if time.monotonic() > deadline:
                raise NothingSeenError(
                    f"reached the end of {len(met)} of {PARTITIONS} partitions only"
                )
            messages = self._consumer.consume(BATCH_RECORDS, POLL_SECONDS)
            met.update(message.partition() for message in messages if _ends(message))

    def await_records(self, count: int, goes_on: Callable[[], bool]) -> float:
        """Wait for `count` records; return the time of the last one.

        In seconds of `time.perf_counter`. `goes_on` returns whether more may arrive.

        Raises:
            NothingSeenError: it takes too long, or no more can arrive.
        """
        seen, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while seen < count:
            last = not goes_on()
            messages = self._consumer.consume(BATCH_RECORDS, POLL_SECONDS)
            seen += sum(not _ends(message) for message in messages)
            if time.monotonic() > deadline or (last and not messages):
                raise NothingSeenError(f"{seen:,} records of {count:,}")
        return time.perf_counter()


def _ends(message: Message) -> bool:
    """Return whether a message only reports the end of its partition."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
        return True
    raise KafkaException(error)
