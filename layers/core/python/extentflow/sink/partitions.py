"""The partitions of topics, as far as one producer has to know them.

Owns: asking for them, with a bound; where the next records go that may go to any of them. Without
the question a mistyped topic would show only when the first record's delivery times out. Refuses to
know: which partition a key belongs to (librdkafka does).
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import Records
from extentflow.sink.producer import ProducerHandle
from extentflow.sink.settings import Timeouts
from extentflow.sink.translate import error_of, hopeless, translate

# librdkafka's own interval: partitions that are added later are found by a producer that lives on.
REFRESH_SECONDS = 300.0


class PartitionBalancer:
    """Deals records to partitions: the next ones go where fewest went so far.

    Where that is undecided, chance decides, so that producers with few records do not all choose
    the same partition.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._dealt = dict.fromkeys(random.sample(partitions, len(partitions)), 0)

    def take(self, records: int) -> int:
        """Return the partition of the next so many records."""
        partition = min(self._dealt, key=self._dealt.__getitem__)
        self._dealt[partition] += records
        return partition


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found out about a topic, and when. `open` are the partitions that have a leader."""

    partitions: int
    open: Sequence[int]
    turns: PartitionBalancer
    asked: float


class KnownTopics:
    """The topics that one producer has met; they are asked for anew every few minutes."""

    def __init__(
        self, client: ProducerHandle, timeouts: Timeouts, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._timeouts = timeouts
        self._now = now
        self._known: dict[str, _Known] = {}

    def check(self, records: Records) -> None:
        """Raise when the records' topic or partition does not exist.

        Raises:
            SinkUnavailable: no such topic (the message says so), or no answer.
            Misconfigured: no such partition, or no permission.
        """
        known = self._known.get(records.topic)
        if known is None or self._now() - known.asked >= REFRESH_SECONDS:
            known = self._known[records.topic] = self._found(records.topic, known)
        if records.partition >= known.partitions:
            raise Misconfigured(
                f"topic {records.topic} has {known.partitions} partitions, "
                f"partition {records.partition} was asked for"
            )

    def turns(self, topic: str) -> PartitionBalancer:
        """Return who deals a checked topic's records to its partitions, as long as it lasts."""
        return self._known[topic].turns

    def _found(self, topic: str, before: _Known | None) -> _Known:
        with self._client.calling() as producer:
            leaders = self._ask(producer, topic)
        # One that has no leader would hold back the whole transaction, until it fails.
        available = [number for number, leader in leaders.items() if leader >= 0] or list(leaders)
        turns = (
            before.turns if before and before.open == available else PartitionBalancer(available)
        )
        return _Known(len(leaders), available, turns, self._now())

    def _ask(self, producer: Producer, topic: str) -> dict[int, int]:
        """Return the leader of each partition, -1 where there is none."""
        last: KafkaError | None = None
        for remaining in self._timeouts.attempts(self._timeouts.topic_seconds):
            try:
                found = producer.list_topics(topic, remaining).topics[topic]
            except KafkaException as exc:
                last = last or error_of(exc)  # an earlier answer says more than a time-out
                continue
            last = found.error
            if last is None and found.partitions:
                return {number: each.leader for number, each in sorted(found.partitions.items())}
            if last is not None and hopeless(last):
                raise translate(last, f"topic {topic}")
        if last is not None and last.name() == "UNKNOWN_TOPIC_OR_PART":
            raise SinkUnavailable(f"topic {topic} does not exist; create it")
        raise SinkUnavailable(
            f"topic {topic}: {last.str() if last else 'no answer'}{self._client.hint()}"
        )
