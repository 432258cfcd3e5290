"""Writes columnar and JSON values to topics of a real broker, as producers of any kind do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.columnar import BatchFacts
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import encoder
from extentflow.consumer import ConsumedBatch, TopicConsumer

OBJECT = "s3://shop/in/object"


@dataclass(frozen=True)
class Value:
    """A record to write."""

    partition: int
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


def rows_of(start: int, end: int) -> pa.RecordBatch:
    """Return rows of two columns, which no other numbers give."""
    numbers = range(start, end)
    columns = {"id": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]}
    return pa.record_batch(columns)


def columnar(
    rows: pa.RecordBatch,
    partition: int = 0,
    *,
    batch: str = "",
    encoding: str = "arrow",
    uri: str = OBJECT,
    extent: str = "0-9",
) -> Value:
    """Return a record of a batch; by default its id is that of its first value."""
    facts = BatchFacts(
        encoding=encoding,
        rows=rows.num_rows,
        schema=identity(rows.schema),
        batch=batch or f"batch-{rows.column(0)[0]}",
        object=uri,
        version="v",
        extent=extent,
        first=0,
        last=rows.num_rows - 1,
        unit="row",
    )
    value = encoder(encoding, "none", rows.schema)(rows).to_pybytes()
    return Value(partition, value, facts.headers())


@dataclass(frozen=True)
class Topics:
    """Topics of one broker."""

    servers: str

    def write(self, values: Mapping[str, Iterable[Value]], *, abort: bool = False) -> None:
        """Write records by topic, in one transaction."""
        settings = {"bootstrap.servers": self.servers, "transactional.id": "-".join(values)}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for topic, records in values.items():
            for one in records:
                producer.produce(topic, one.value, partition=one.partition, headers=[*one.headers])
        producer.flush(30)
        if abort:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    def delete(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        admin, at = self._open_admin(), TopicPartition(topic, partition, before)
        admin.delete_records([at])[at].result(AWAITED_SECONDS)

    def add_partition(self, topic: str, before: int) -> None:
        """Add a partition to a topic that has `before` ones."""
        admin = self._open_admin()
        admin.create_partitions([NewPartitions(topic, before + 1)])[topic].result(AWAITED_SECONDS)
        eventually("it is there", lambda: self._partitions(topic) > before)

    def create_again(self, topic: str) -> None:
        """Delete a topic, and create it with one partition."""
        self.delete_topic(topic)
        self.create(topic)

    def delete_topic(self, topic: str) -> None:
        admin = self._open_admin()
        admin.delete_topics([topic])[topic].result(AWAITED_SECONDS)
        eventually("it is gone", lambda: not self._partitions(topic))

    def create(self, topic: str, partitions: int = 1) -> None:
        admin = self._open_admin()
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(AWAITED_SECONDS)
        eventually("it is there", lambda: self._partitions(topic))

    def id_of(self, topic: str) -> str:
        admin = self._open_admin()
        described = admin.describe_topics(TopicCollection([topic]))[topic]
        return str(described.result(AWAITED_SECONDS).topic_id)

    def _partitions(self, topic: str) -> int:
        return len(self._open_admin().list_topics(topic, 10).topics[topic].partitions)

    def _open_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers})

    def commit(self, group: str, topic: str, offset: int, metadata: str) -> None:
        """Commit an offset of partition 0 as another client does."""
        at = TopicPartition(topic, 0, offset, metadata=metadata)
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        consumer.commit(offsets=[at], asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, tuple[int, str]]:
        """Return offsets and metadata of a group."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        places = [TopicPartition(topic, one) for one in range(partitions)]
        found = eventually("offsets are answered", lambda: consumer.committed(places, 10))
        consumer.close()
        return {one.partition: (one.offset, one.metadata or "") for one in found}


class Reading:
    """A consumer group of a topic."""

    def __init__(self, topics: Topics, group: str, *names: str, **options: Any) -> None:  # noqa: ANN401
        self.topics, self.group, self.names = topics, f"group-{group}", names
        kafka = {"bootstrap.servers": topics.servers}
        options = {"join": len(names) > 1, **options}
        self.member = partial(TopicConsumer, kafka, names, group=self.group, **options)

    def ids(self) -> list[int]:
        """Return all ids up to the end, by a member that commits nothing."""
        with self.member() as consumer:
            return [row["id"] for row in consumer.rows(until_end=True)]

    def batches(self) -> list[ConsumedBatch]:
        with self.member() as consumer:
            return list(consumer.batches(until_end=True))
