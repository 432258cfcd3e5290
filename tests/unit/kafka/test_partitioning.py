"""A topic is described once; its problems are reported before a record is queued."""

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.unit.kafka.scripted import ScriptedProducer, error, timeouts

from extentflow.errors import Misconfigured, SinkUnavailable, TopicLost
from extentflow.kafka import Records
from extentflow.kafka.partitioning import (
    MOST_AWAITED,
    REFRESH_SECONDS,
    KnownTopics,
    PartitionBalancer,
)
from extentflow.kafka.settings import Timeouts


def records(topic: str = "orders", partition: int = -1) -> Records:
    return Records(topic, pa.array([b"a"], pa.binary()), partition=partition)


def topics(producer: ScriptedProducer) -> KnownTopics:
    return KnownTopics(producer.client(), timeouts())


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


def test_a_missing_topic_is_named_even_when_the_last_answer_was_a_timeout(golden: Golden) -> None:
    producer = ScriptedProducer(list_topics=[None, *[error("_TIMED_OUT")] * 100])
    producer.topic_errors = ["UNKNOWN_TOPIC_OR_PART"]

    with golden.raises(SinkUnavailable, match="topic orders"):
        topics(producer).check(records())


@pytest.mark.parametrize(
    ("answers", "is_lost"),
    [
        (["UNKNOWN_TOPIC_OR_PART"] * 9, True),
        # A broker that restarts lacks its metadata, and another one lists the topic.
        (["UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PART", "", "UNKNOWN_TOPIC_OR_PART"], False),
        (["LEADER_NOT_AVAILABLE"] * 9, False),
        ([], False),
    ],
)
def test_a_topic_that_brokers_list_no_longer_is_named_while_its_records_are_awaited(
    answers: list[str], *, is_lost: bool
) -> None:
    now, producer = [0.0], ScriptedProducer()
    known = KnownTopics(producer.client(), Timeouts(topic_seconds=3.0), now=lambda: now[0])
    known.check(records())
    producer.topic_errors = answers
    caught: list[float] = []

    for _ in range(90):
        now[0] += 0.1
        try:
            known.require_listed()
        except TopicLost:
            caught.append(round(now[0]))
            break

    assert caught == ([8] if is_lost else [])
    assert producer.calls.count("list_topics") <= 6


def test_each_of_many_topics_is_asked_for_in_turn_while_records_are_awaited() -> None:
    """Trap: only the first topics of a producer were asked for, so that the others timed out."""
    now, producer = [0.0], ScriptedProducer()
    known = KnownTopics(producer.client(), Timeouts(topic_seconds=3.0), now=lambda: now[0])
    names = [f"t{number}" for number in range(2 * MOST_AWAITED + 1)]
    for name in names:
        known.check(records(name))
    producer.calls.clear()
    producer.deleted = names[-1]

    def wait() -> None:
        for _ in range(60):
            now[0] += 1.0
            known.require_listed()

    with pytest.raises(TopicLost, match=names[-1]):
        wait()

    rounds = len({5, 10, 15, 16, 17, 18})
    assert now[0] == 18
    assert len(producer.calls) <= rounds * MOST_AWAITED


def test_without_an_answer_no_topic_is_lost() -> None:
    now, producer = [0.0], ScriptedProducer()
    known = KnownTopics(producer.client(), timeouts(), now=lambda: now[0])
    known.check(records())
    producer._answers["list_topics"] = [error("_TRANSPORT")] * 100

    for _ in range(100):
        now[0] += 1.0
        known.require_listed()


def test_a_broker_that_does_not_answer_is_no_missing_topic() -> None:
    producer = ScriptedProducer(list_topics=[error("_TRANSPORT")] * 100)

    with pytest.raises(SinkUnavailable, match="topic orders: _TRANSPORT"):
        topics(producer).check(records())


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"])
def test_a_permanent_error_is_not_retried(code: str) -> None:
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

    with pytest.raises(Misconfigured, match=r"has 4 partitions, but .* partition 4"):
        known.check(records(partition=4))

    known.check(records())


def test_records_are_dealt_evenly_whatever_they_come_in() -> None:
    turns, dealt = PartitionBalancer(range(4)), dict.fromkeys(range(4), 0)

    for _ in range(100):
        for size in (8_192, 1_808):  # a chunk's slices; dealt in turn, every other one is short
            dealt[turns.choose(size)] += size

    assert max(dealt.values()) - min(dealt.values()) <= 8_192
    assert sum(dealt.values()) == 1_000_000


def test_producers_begin_with_different_partitions() -> None:
    assert {PartitionBalancer(range(4)).choose(1) for _ in range(100)} == {0, 1, 2, 3}


def test_a_partition_without_a_leader_is_dealt_nothing() -> None:
    producer = ScriptedProducer(leaders={0: 1, 1: -1, 2: 1})
    known = topics(producer)

    known.check(records())

    assert {known.check(records()).choose(1) for _ in range(6)} == {0, 2}


def test_where_none_has_a_leader_any_may_find_one() -> None:
    known = topics(ScriptedProducer(leaders={0: -1, 1: -1}))

    known.check(records())

    assert {known.check(records()).choose(1) for _ in range(6)} == {0, 1}


def test_partitions_that_were_added_are_found_by_a_producer_that_lives_on() -> None:
    producer, now = ScriptedProducer(leaders={0: 1}), [0.0]
    known = KnownTopics(producer.client(), timeouts(), now=lambda: now[0])
    known.check(records())
    before = known.check(records())
    producer.leaders = {0: 1, 1: 1}

    now[0] = REFRESH_SECONDS - 1
    known.check(records())
    assert known.check(records()) is before
    now[0] = REFRESH_SECONDS
    known.check(records(partition=1))

    assert {known.check(records()).choose(1) for _ in range(4)} == {0, 1}


def test_balancing_continues_where_no_record_was_added() -> None:
    now = [0.0]
    known = KnownTopics(ScriptedProducer().client(), timeouts(), now=lambda: now[0])
    known.check(records())
    before = known.check(records())

    now[0] = REFRESH_SECONDS
    known.check(records())

    assert known.check(records()) is before


def test_a_topic_whose_partitions_are_still_to_come_is_asked_for_again() -> None:
    producer = ScriptedProducer(leaders={})

    with pytest.raises(SinkUnavailable, match="topic orders"):
        topics(producer).check(records())

    assert producer.calls.count("list_topics") > 1


def test_a_late_refresh_keeps_what_is_known_and_the_producer() -> None:
    producer = ScriptedProducer(list_topics=[None, *[error("_TIMED_OUT")] * 100])
    now = [0.0]
    client = producer.client()
    known = KnownTopics(client, timeouts(), now=lambda: now[0])
    known.check(records())
    now[0] = REFRESH_SECONDS + 1

    known.check(records())

    with client.calling():  # raises where the producer has ended, with its open transaction
        assert known.check(records()).choose(1) in range(4)


def test_a_topic_that_was_never_described_is_not_guessed() -> None:
    producer = ScriptedProducer(list_topics=[error("_TIMED_OUT")] * 100)

    with pytest.raises(SinkUnavailable):
        topics(producer).check(records())
