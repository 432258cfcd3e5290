"""The partitions of topics, asked for once per topic and producer.

Owns: the question and its bound; whose turn it is where a record may go to any of them. Without the
question a mistyped topic would show only when the first record's delivery times out. Refuses to
know: which partition a key belongs to (librdkafka does).
"""

import secrets
from collections.abc import Iterator
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Producer

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import Records
from extentflow.sink.patience import Patience
from extentflow.sink.producer import Client
from extentflow.sink.translate import error_of, hopeless, translate


class KnownTopics:
    """The topics that one producer has met."""

    def __init__(self, client: Client, patience: Patience) -> None:
        self._client = client
        self._patience = patience
        self._partitions: dict[str, int] = {}
        self._turns: dict[str, Iterator[int]] = {}

    def check(self, records: Records) -> None:
        """Raise when the records' topic or partition does not exist.

        Raises:
            SinkUnavailable: no such topic (the message says so), or no answer.
            Misconfigured: no such partition, or no permission.
        """
        if records.topic not in self._partitions:
            with self._client.calling() as producer:
                self._partitions[records.topic] = self._ask(producer, records.topic)
        partitions = self._partitions[records.topic]
        if records.partition >= partitions:
            raise Misconfigured(
                f"topic {records.topic} has {partitions} partitions, "
                f"partition {records.partition} was asked for"
            )

    def turns(self, topic: str) -> Iterator[int]:
        """Return the partitions of a topic that was checked, one after the other, without end.

        They begin anywhere, so that producers with few records do not all choose the same ones.
        """
        if topic not in self._turns:
            partitions = self._partitions[topic]
            first = secrets.randbelow(partitions)
            self._turns[topic] = (number % partitions for number in count(first))
        return self._turns[topic]

    def _ask(self, producer: Producer, topic: str) -> int:
        last: KafkaError | None = None
        for remaining in self._patience.attempts(self._patience.topic_seconds):
            try:
                found = producer.list_topics(topic, remaining).topics[topic]
            except KafkaException as exc:
                last = last or error_of(exc)  # an earlier answer says more than a time-out
                continue
            last = found.error
            if last is None:
                return len(found.partitions)
            if hopeless(last):
                raise translate(last, f"topic {topic}")
        if last is not None and last.name() == "UNKNOWN_TOPIC_OR_PART":
            raise SinkUnavailable(f"topic {topic} does not exist; create it")
        raise SinkUnavailable(
            f"topic {topic}: {last.str() if last else 'no answer'}{self._client.hint()}"
        )
