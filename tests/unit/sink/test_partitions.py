"""A topic is asked for once, and what is wrong with it is told before a record is queued."""

import pyarrow as pa
import pytest
from tests.unit.sink.scripted import ScriptedProducer, error, patience

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.sink import Records
from extentflow.sink.partitions import KnownTopics


def records(topic: str = "orders", partition: int = -1) -> Records:
    return Records(topic, pa.array([b"a"], pa.binary()), partition=partition)


def topics(producer: ScriptedProducer) -> KnownTopics:
    return KnownTopics(producer.client(), patience())


def test_a_topic_is_asked_for_once() -> None:
    producer = ScriptedProducer()
    known = topics(producer)

    for _ in range(3):
        known.check(records())

    assert producer.calls == ["list_topics"]


def test_a_topic_that_just_appeared_is_asked_for_again() -> None:
    producer = ScriptedProducer()
    producer.topic_errors = ["UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"]

    topics(producer).check(records())

    assert producer.calls == ["list_topics"] * 3


def test_a_missing_topic_is_named_even_when_the_last_answer_was_a_timeout() -> None:
    producer = ScriptedProducer(list_topics=[None, *[error("_TIMED_OUT")] * 100])
    producer.topic_errors = ["UNKNOWN_TOPIC_OR_PART"]

    with pytest.raises(SinkUnavailable, match="topic orders does not exist; create it"):
        topics(producer).check(records())


def test_a_broker_that_does_not_answer_is_no_missing_topic() -> None:
    producer = ScriptedProducer(list_topics=[error("_TRANSPORT")] * 100)

    with pytest.raises(SinkUnavailable, match="topic orders: _TRANSPORT"):
        topics(producer).check(records())


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"])
def test_what_a_person_must_mend_is_not_asked_for_again(code: str) -> None:
    producer = ScriptedProducer()
    producer.topic_errors = [code]

    with pytest.raises(Misconfigured, match="topic orders"):
        topics(producer).check(records())

    assert producer.calls[:1] == ["list_topics"]


@pytest.mark.parametrize("partition", [-1, 0, 3])
def test_partitions_that_exist_pass(partition: int) -> None:
    topics(ScriptedProducer()).check(records(partition=partition))


def test_a_partition_that_does_not_exist_ends_nothing() -> None:
    known = topics(ScriptedProducer())

    with pytest.raises(Misconfigured, match="has 4 partitions, partition 4 was asked for"):
        known.check(records(partition=4))

    known.check(records())


def test_every_partition_has_its_turn_topic_by_topic() -> None:
    known = topics(ScriptedProducer())
    for topic in ("orders", "returns"):
        known.check(records(topic))

    orders, returns = known.turns("orders"), known.turns("returns")

    found = [next(orders) for _ in range(6)]
    assert found == [(found[0] + number) % 4 for number in range(6)]
    assert {next(returns) for _ in range(4)} == {0, 1, 2, 3}
    assert next(known.turns("orders")) == (found[-1] + 1) % 4


def test_producers_begin_with_different_partitions() -> None:
    first = set()
    for _ in range(100):
        known = topics(ScriptedProducer())
        known.check(records())
        first.add(next(known.turns("orders")))

    assert first == {0, 1, 2, 3}
