"""The reader of committed records ends at its bounds, and counts silence of brokers only."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError
from tests.support.memory_delivery import Ticker

from extentflow.errors import SinkUnavailable
from extentflow.kafka import reading as reader
from extentflow.kafka.settings import SPACING, Timeouts

Message = SimpleNamespace


def message(partition: int, offset: int, *, ends: bool = False) -> Message:
    error = KafkaError(KafkaError._PARTITION_EOF) if ends else None
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
    **bounds: Any,  # noqa: ANN401 - what the reader takes
) -> Iterator[list[Any]]:
    """Read what a consumer returns: the batches of a script, then nothing for a second each."""

    class Scripted:
        def __init__(self, _settings: object) -> None:
            self.left = list(script)

        def assign(self, places: list[Any]) -> None:
            assert places

        def consume(self, _most: int, _seconds: float) -> list[Message]:
            if self.left:
                return self.left.pop(0)
            ticker.now += 1
            return []

        def close(self) -> None:
            pass

    class Topics:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def partitions_to_read(self, _name: str) -> int:
            return 2

    monkeypatch.setattr(reader, "Consumer", Scripted)
    monkeypatch.setattr(reader, "Admin", Topics)
    timeouts = Timeouts(retry=replace(SPACING, clock=ticker.clock))
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    return reader.read_committed(
        kafka, "topic", timeouts=timeouts, group="g", idle_seconds=5, **bounds
    )


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
