"""Events on the topic extentflow.jobs: what a record is, how long its producer lives."""

import json
from dataclasses import dataclass, field, replace

import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker
from tests.unit.jobs.test_events import EVENT

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.jobs.publishers import KAFKA_IDLE_SECONDS, KafkaJobEvents
from extentflow.kafka import JOBS_TOPIC, ProducerSettings, Sink
from extentflow.testing.broker import MemoryBroker


@dataclass
class Cluster:
    """A broker in memory that counts the producers it gave."""

    broker: MemoryBroker = field(default_factory=lambda: MemoryBroker({JOBS_TOPIC: 1}))
    ticker: Ticker = field(default_factory=Ticker)
    opened: int = 0

    def open(self) -> Sink:
        self.opened += 1
        return self.broker.fence("jobs", ProducerSettings(exactly_once=False)).open()

    @property
    def publisher(self) -> KafkaJobEvents:
        return KafkaJobEvents(self.open, self.ticker.clock)


def test_an_event_is_a_record_with_the_jobs_id_as_its_key() -> None:
    cluster = Cluster()
    other = replace(EVENT, job="f" * 20)

    cluster.publisher.publish([EVENT, other])

    records = cluster.broker.read_committed(JOBS_TOPIC)
    assert [record.key for record in records] == [EVENT.job.encode(), other.job.encode()]
    assert [json.loads(record.value or b"") for record in records] == [
        EVENT.to_json(),
        other.to_json(),
    ]


def test_one_producer_serves_many_calls() -> None:
    cluster = Cluster()
    publisher = cluster.publisher

    for _ in range(3):
        publisher.publish([EVENT])
        cluster.ticker.sleep(KAFKA_IDLE_SECONDS)

    assert cluster.opened == 1


def test_a_producer_that_was_idle_for_long_is_replaced() -> None:
    cluster = Cluster()
    publisher = cluster.publisher
    publisher.publish([EVENT])

    cluster.ticker.sleep(KAFKA_IDLE_SECONDS + 1)
    publisher.publish([EVENT])

    assert cluster.opened == 2
    assert len(cluster.broker.read_committed(JOBS_TOPIC)) == 2


def test_a_producer_that_failed_is_replaced() -> None:
    cluster = Cluster()
    publisher = cluster.publisher
    publisher.publish([EVENT])
    cluster.broker.lose_commit_answer(committed=False)

    with pytest.raises(SinkUnavailable):
        publisher.publish([EVENT])
    publisher.publish([EVENT])

    assert cluster.opened == 2


def test_an_event_that_the_topic_rejects_names_its_job_and_the_remedy(golden: Golden) -> None:
    cluster = Cluster()
    cluster.broker.create_topic(JOBS_TOPIC, max_message_bytes=100)

    with golden.raises(Misconfigured, match=rf"{EVENT.job}.*max\.message\.bytes"):
        cluster.publisher.publish([EVENT])


def test_a_closed_publisher_opens_again() -> None:
    cluster = Cluster()
    publisher = cluster.publisher
    publisher.close()
    publisher.publish([EVENT])

    publisher.close()
    publisher.publish([EVENT])

    assert cluster.opened == 2
