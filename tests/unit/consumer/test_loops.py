"""Loops over batches that end early: what was fetched with the last batch is not lost."""

from collections.abc import Iterator

import pytest

from extentflow.consumer import TopicConsumer
from extentflow.consumer import topic_consumer as topics
from extentflow.errors import SinkUnavailable
from extentflow.kafka.reading import ConsumedRecord, Place


class Fetched(TopicConsumer):
    """A consumer whose records are these, a list for each poll."""

    def __init__(self, *polls: list[tuple[int, int]]) -> None:
        kafka = {"bootstrap.servers": "127.0.0.1:1"}
        super().__init__(kafka, ["t"], group="g")
        self._assigned = {("t", partition) for poll in polls for partition, _ in poll}
        self._polls = iter(polls)

    def _messages(self, *, skips: bool = False) -> list[tuple[Place, ConsumedRecord]]:
        assert not skips
        found = next(self._polls, None)
        if found is None:
            self._ended |= self._assigned
            return []
        return [
            (("t", one), ConsumedRecord(one, offset, None, b'{"id":%d}' % (10 * one + offset), []))
            for one, offset in found
        ]


@pytest.fixture
def consumer() -> Iterator[TopicConsumer]:
    with Fetched([(0, 0), (0, 1), (1, 0), (1, 1)], [(1, 2)]) as made:
        yield made


def test_batches_that_were_fetched_are_yielded_by_the_next_loop(consumer: TopicConsumer) -> None:
    found: list[int] = []

    for batch in consumer.batches(until_end=True):
        found += batch.rows.column("id").to_pylist()
        break
    for batch in consumer.batches(until_end=True):
        found += batch.rows.column("id").to_pylist()

    assert found == [0, 1, 10, 11, 12]


@pytest.mark.parametrize("idle_seconds", [None, 0.2])
def test_brokers_that_never_answer_are_an_error_and_no_empty_topic(
    idle_seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "REQUEST_SECONDS", 0.5)

    with (
        TopicConsumer({"bootstrap.servers": "127.0.0.1:1"}, "t", group="g") as consumer,
        pytest.raises(SinkUnavailable, match="topics t for group g"),
    ):
        next(consumer.batches(until_end=True, idle_seconds=idle_seconds))
