"""The reader of committed records ends at its bounds, and counts silence of brokers only."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, TopicPartition
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker

from extentflow.errors import Misconfigured, PositionGone, SinkUnavailable, TopicAbsent
from extentflow.kafka import reading as reader
from extentflow.kafka.settings import SPACING, Timeouts

Message = SimpleNamespace
# Partitions that were added to what is read, and from which offset on.
added: list[tuple[int, int]] = []
ONE_TOPIC = repeat((2, "id"))


@dataclass
class DescribedTopic:
    """What brokers say of a topic: its partitions and id, each time that they are asked."""

    states: Iterator[tuple[int, str]]
    state: tuple[int, str] = (0, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def first_offsets(self, _name: str) -> dict[int, int]:
        return {0: 0, 1: 0}

    def partitions_to_read(self, _name: str) -> int:
        self.state = next(self.states)
        if not self.state[0]:
            raise TopicAbsent("topic topic does not exist; correct its name")
        return self.state[0]

    def topic_ids(self, names: list[str]) -> dict[str, str]:
        return dict.fromkeys(names, self.state[1])


def message(partition: int, offset: int, *, ends: bool = False, lost: bool = False) -> Message:
    error = KafkaError(KafkaError._PARTITION_EOF) if ends else None
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET) if lost else error
    return Message(
        topic=lambda: "topic",
        partition=lambda: partition,
        offset=lambda: offset,
        error=lambda: error,
        headers=lambda: None,
        key=lambda: None,
        value=lambda: b"%d" % offset,
        timestamp=lambda: (0, 0),
    )


def read(
    monkeypatch: pytest.MonkeyPatch,
    script: list[list[Message]],
    ticker: Ticker,
    topics: Iterator[tuple[int, str]] = ONE_TOPIC,
    **bounds: Any,  # noqa: ANN401 - what the reader takes
) -> Iterator[list[Any]]:
    """Read what a consumer returns: the batches of a script, then nothing for a second each.

    `topics` are partitions and id of the topic, whenever they are asked for.
    """
    added.clear()

    class Scripted:
        def __init__(self, _settings: object) -> None:
            self.left = list(script)

        def assign(self, places: list[Any]) -> None:
            assert places

        def incremental_assign(self, places: list[Any]) -> None:
            added.extend((one.partition, one.offset) for one in places)

        def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
            assert timeout
            return (5, 9) if place.partition == 0 else (-1001, 9)

        def consume(self, _most: int, _seconds: float) -> list[Message]:
            if self.left:
                return self.left.pop(0)
            ticker.now += 1
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(reader, "Consumer", Scripted)
    monkeypatch.setattr(reader, "Admin", lambda *_: DescribedTopic(topics))
    timeouts = Timeouts(retry=replace(SPACING, clock=ticker.clock))
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    return reader.read_committed(
        kafka, "topic", timeouts=timeouts, group="g", idle_seconds=5, **bounds
    )


def test_a_reader_without_permission_is_told_what_readers_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: Write was advised, as to those who write."""
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    refused = message(0, 0)
    refused.error = lambda: denied

    with pytest.raises(Misconfigured, match=r"topic topic.*; allow Read and Describe on the topic"):
        list(read(monkeypatch, [[refused]], Ticker()))


def test_a_partition_ends_at_its_event_or_before_its_end_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = [
        [message(0, 3), message(1, 7)],
        # Between 4 and 8 is only what transactions leave, and the records behind 8 are new.
        [message(0, 8), message(0, 9), message(1, 8, ends=True), message(1, 8)],
        [message(0, 10)],
    ]

    batches = read(monkeypatch, script, Ticker(), begin={0: 3, 1: 7}, end={0: 8, 1: 20})

    assert [(one.partition, one.offset) for batch in batches for one in batch] == [(0, 3), (1, 7)]


def test_the_time_that_the_caller_takes_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    ticker, script = Ticker(), [[message(0, 0)], [], [message(0, 1)], [message(0, 2, ends=True)]]
    found = []

    for (record,) in read(monkeypatch, script, ticker, begin={0: 0}):
        found.append(record.offset)
        ticker.now += 60

    assert found == [0, 1]


def test_brokers_that_send_nothing_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkUnavailable, match="nothing read for 5 s"):
        list(read(monkeypatch, [], Ticker(), begin={0: 0}))


def test_records_that_are_deleted_before_they_are_read_are_an_error_behind_those_that_were_read(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    script = [[message(0, 2), message(0, 3, lost=True), message(1, 7)]]
    batches = read(monkeypatch, script, Ticker(), begin={0: 2, 1: 7})

    found = next(batches)
    with golden.raises(
        PositionGone, match=r"topic\[0\]: the offsets 3 to 4 were deleted"
    ) as caught:
        next(batches)

    assert [(one.partition, one.offset) for one in found] == [(0, 2), (1, 7)]
    gone = caught.value
    assert (gone.topic, gone.partition, gone.position, gone.first) == ("topic", 0, 3, 5)


def test_an_offset_that_brokers_did_not_state_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """While leaders change, the client may answer -1001 without an error."""
    with pytest.raises(SinkUnavailable, match="partition 1 without an offset"):
        list(read(monkeypatch, [[message(1, 7, lost=True)]], Ticker(), begin={1: 7}))


def test_an_offset_behind_the_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    with golden.raises(PositionGone, match="20"):
        list(read(monkeypatch, [[message(0, 20, lost=True)]], Ticker(), begin={0: 20}))


def test_a_topic_that_is_deleted_while_it_is_followed_is_called_deleted(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Trap: the correction of its name was advised."""
    topics = chain([(2, "old")], repeat((0, "")))
    batches = read(monkeypatch, [], Ticker(), begin={0: 4, 1: 4}, follow=True, topics=topics)

    with golden.raises(TopicAbsent, match="topic topic was deleted"):
        next(batches)


def test_partitions_that_are_added_are_followed_and_a_topic_created_again_is_an_error(
    monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    topics = chain([(2, "old"), (3, "old")], repeat((3, "new")))
    batches = read(monkeypatch, [], Ticker(), begin={0: 4, 1: 4}, follow=True, topics=topics)

    with golden.raises(PositionGone, match="its id was old, and is new now"):
        next(batches)

    assert added == [(2, 0)]
