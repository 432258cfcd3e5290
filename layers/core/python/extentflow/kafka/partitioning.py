"""The partitions of topics as one producer needs them: that they exist, and where to send next.

Without the check a mistyped topic would fail only at the delivery timeout of its first record.
librdkafka maps keys to partitions; this module chooses only for records without keys.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException, Producer

from extentflow.errors import Misconfigured, SinkUnavailable, TopicLost
from extentflow.kafka import Records
from extentflow.kafka.producer import ProducerHandle, error_of, remedy_of, translate
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.topic_admin import UNLISTED
from extentflow.wording import again_command

log = logging.getLogger(__name__)

# librdkafka's own interval: partitions that are added later are found by a producer that lives on.
REFRESH_SECONDS = 300.0
# How often brokers are asked whether they list the topics, while deliveries are awaited.
AWAITED_SECONDS = 5.0
AGAIN_SECONDS = 1.0
# A producer with more topics asks for them in turn.
MOST_AWAITED = 16


class PartitionBalancer:
    """Chooses the partition with the fewest records so far, for the next slice of records.

    The order of ties is random per producer, so that producers with few records do not all choose
    the same partition.
    """

    def __init__(self, partitions: Sequence[int]) -> None:
        self._sent = dict.fromkeys(random.sample(partitions, len(partitions)), 0)

    def choose(self, records: int) -> int:
        """Return the partition for the next `records` records."""
        partition = min(self._sent, key=self._sent.__getitem__)
        self._sent[partition] += records
        return partition


@dataclass(frozen=True, slots=True)
class _TopicDescription:
    """A topic as last described. `led` are its partitions that have a leader."""

    partitions: int
    led: Sequence[int]
    balancer: PartitionBalancer
    read_at: float


class KnownTopics:
    """The topics that one producer sends to; described again every REFRESH_SECONDS."""

    def __init__(
        self, client: ProducerHandle, timeouts: Timeouts, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._timeouts = timeouts
        self._now = now
        self._known: dict[str, _TopicDescription] = {}
        self._unlisted: dict[str, float] = {}
        self._turns: dict[str, float] = {}
        self._asked = now()

    def check(self, records: Records) -> PartitionBalancer:
        """Return the topic's balancer, which is replaced when partitions change.

        Raises TopicLost for a topic that does not exist, SinkUnavailable without an answer, unless
        it was described before; Misconfigured without the partition or a permission.
        """
        known = self._known.get(records.topic)
        if known is None or self._now() - known.read_at >= REFRESH_SECONDS:
            known = self._known[records.topic] = self._describe(records.topic, known)
        if records.partition >= known.partitions:
            raise Misconfigured(
                f"topic {records.topic} has {known.partitions} partitions, but the job delivers in "
                f"order to partition {records.partition}; add partitions, or deliver the object "
                f"with {again_command()}"
            )
        return known.balancer

    def require_listed(self) -> None:
        """Raise TopicLost where brokers have not listed a topic for `topic_seconds`.

        To be called while deliveries are awaited: librdkafka repeats the records of a deleted topic
        until their time-out. Asks now and then, for MOST_AWAITED topics at a time; without an
        answer, nothing is known.
        """
        now = self._now()
        if now - self._asked < (AGAIN_SECONDS if self._unlisted else AWAITED_SECONDS):
            return
        self._asked = now
        with self._client.calling() as producer:
            for topic in self._due():
                self._turns[topic] = now
                try:
                    found = producer.list_topics(topic, AGAIN_SECONDS).topics[topic].error
                except KafkaException:
                    return
                if found is None or found.name() != UNLISTED:
                    self._unlisted.pop(topic, None)
                elif now - self._unlisted.setdefault(topic, now) >= self._timeouts.topic_seconds:
                    raise TopicLost.of(topic)

    def _due(self) -> list[str]:
        """Return the topics to ask for: those not listed before, then the longest unasked."""
        never = float("-inf")
        ordered = sorted(
            self._known, key=lambda one: (one not in self._unlisted, self._turns.get(one, never))
        )
        return ordered[:MOST_AWAITED]

    def _describe(self, topic: str, before: _TopicDescription | None) -> _TopicDescription:
        with self._client.calling() as producer:
            try:
                leaders = self._leaders(producer, topic)
            except SinkUnavailable as exc:
                if before is None:
                    raise
                # Raised here it would end the producer, and with it an open transaction.
                log.warning("topic %s: what is known of it stays in use: %s", topic, exc)
                return replace(before, read_at=self._now())
        # A partition without a leader would block the whole transaction until it fails.
        available = [number for number, leader in leaders.items() if leader >= 0] or list(leaders)
        if before is not None and before.led == available:
            return replace(before, partitions=len(leaders), read_at=self._now())
        return _TopicDescription(len(leaders), available, PartitionBalancer(available), self._now())

    def _leaders(self, producer: Producer, topic: str) -> dict[int, int]:
        """Return the leader of each partition, -1 where there is none."""
        last: KafkaError | None = None
        for remaining in self._timeouts.attempts(self._timeouts.topic_seconds):
            try:
                found = producer.list_topics(topic, remaining).topics[topic]
            except KafkaException as exc:
                last = last or error_of(exc)  # an earlier answer says more than a timeout
                continue
            last = found.error
            if last is None and found.partitions:
                return {number: each.leader for number, each in sorted(found.partitions.items())}
            if last is not None and remedy_of(last):
                raise translate(last, f"topic {topic}")
        if last is not None and last.name() == UNLISTED:
            raise TopicLost.of(topic)
        cause = last.str() if last else "no answer"
        raise SinkUnavailable(f"topic {topic}: {cause}{self._client.hint()}")
