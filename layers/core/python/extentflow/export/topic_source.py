"""The committed records of a topic, partition by partition, from chosen offsets on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from extentflow.kafka.producer import error_of, translate
from extentflow.kafka.reading import ConsumedRecord, consumed

POLL_RECORDS: Final = 32
POLL_SECONDS: Final = 0.02
REQUEST_SECONDS: Final = 30.0
# A fetch takes several values, which have about a megabyte. Brokers report the end of a partition
# when they have waited for more: half a second by default.
FETCH: Final = {
    "fetch.message.max.bytes": "8388608",
    "fetch.wait.max.ms": "50",
    "auto.offset.reset": "error",
}


class RecordSource(Protocol):
    """The committed records of one topic."""

    def partitions(self) -> int:
        """Return how many partitions the topic has now."""
        ...

    def watermarks(self, partition: int) -> tuple[int, int]:
        """Return the first offset that the partition has, and the one behind its last."""
        ...

    def assign(self, partition: int, begin: int) -> None:
        """Read a partition from an offset on, also one that is read already."""
        ...

    def poll(self) -> "PolledRecords":
        """Return what has arrived, after a short wait at most."""
        ...


@dataclass(slots=True)
class PolledRecords:
    """Records in the order of each partition.

    `ended` are partitions that were read to their end now. `lost` are those whose next record was
    deleted before it was read; they are read no further until they are assigned again.
    """

    records: list[ConsumedRecord] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)


class TopicSource:
    """The RecordSource port on a Kafka cluster; a context manager.

    `settings` are those of a consumer of committed records, which commits no offsets itself. All
    calls raise SinkUnavailable where brokers do not answer, and Misconfigured where settings or
    permissions are wrong.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._assigned: set[int] = set()
        with self._errors():
            self._client = Consumer({**settings, **FETCH})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def partitions(self) -> int:
        """See `RecordSource`."""
        with self._errors():
            found = self._client.list_topics(self._topic, REQUEST_SECONDS).topics[self._topic]
            if found.error is not None:
                raise KafkaException(found.error)
        return len(found.partitions)

    def watermarks(self, partition: int) -> tuple[int, int]:
        """See `RecordSource`."""
        place = TopicPartition(self._topic, partition)
        with self._errors():
            low, high = self._client.get_watermark_offsets(place, REQUEST_SECONDS)
        return low, high

    def assign(self, partition: int, begin: int) -> None:
        """See `RecordSource`."""
        with self._errors():
            if partition in self._assigned:
                self._client.incremental_unassign([TopicPartition(self._topic, partition)])
            self._client.incremental_assign([TopicPartition(self._topic, partition, begin)])
        self._assigned.add(partition)

    def poll(self) -> PolledRecords:
        """See `RecordSource`."""
        found = PolledRecords()
        with self._errors():
            messages = self._client.consume(POLL_RECORDS, POLL_SECONDS)
        for message in messages:
            partition: Any = message.partition()  # never None
            error = message.error()
            if error is None:
                found.records.append(consumed(message))
            elif error.name() == "_PARTITION_EOF":
                found.ended.add(partition)
            elif error.name() == "_AUTO_OFFSET_RESET":
                found.lost.add(partition)
            elif error.fatal() or not error.retriable():
                raise translate(error, f"topic {self._topic}[{partition}]")
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise translate(error_of(exc), f"topic {self._topic}") from exc
