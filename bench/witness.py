"""A consumer of committed records that stands ready before anything is sent.

Owns: being connected, and seeing the n-th record. Refuses to know: who sends.
"""

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
    """The records did not come, or whoever sends them ended first."""


class Witness:
    """Stands at the end of a topic and waits for what comes."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    @classmethod
    @contextmanager
    def of(cls, kafka: Mapping[str, str], topic: str) -> Iterator["Witness"]:
        """Watch a topic from its end on, as `isolation.level=read_committed` sees it.

        Raises:
            NothingSeenError: the end is not found in time.
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
        """Wait until every partition's end was met: what comes next is fetched at once."""
        met: set[int | None] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(met) < PARTITIONS:
            if time.monotonic() > deadline:
                raise NothingSeenError(f"the ends of {len(met)} partitions of {PARTITIONS}")
            messages = self._consumer.consume(BATCH_RECORDS, POLL_SECONDS)
            met.update(message.partition() for message in messages if _ends(message))

    def await_records(self, count: int, goes_on: Callable[[], bool]) -> float:
        """Wait for `count` records; return when the last of them was seen.

        On the clock of `time.perf_counter`. `goes_on` says whether more may come.

        Raises:
            NothingSeenError: it takes too long, or nothing more can come.
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
    """Whether a message only says that its partition has no more."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
        return True
    raise KafkaException(error)
