"""MemoryQueue keeps the queue's contract, and fails where a test says so."""

from dataclasses import dataclass, field

import pytest
from tests.contracts.queue import HandleContract, QueueContract
from tests.support.memory_delivery import Ticker

from extentflow.errors import QueueUnavailable
from extentflow.testing.services import MemoryQueue


@dataclass
class MemoryPlace:
    ticker: Ticker = field(default_factory=Ticker)
    patience_seconds: float = 0.0

    def queue(self) -> MemoryQueue:
        return MemoryQueue(self.ticker.read)

    def pass_seconds(self, seconds: float) -> None:
        self.ticker.sleep(seconds)


class TestMemoryQueue(QueueContract, HandleContract):
    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()


def test_a_queue_that_is_unavailable_takes_nothing() -> None:
    queue = MemoryPlace().queue()
    queue.failures = 2

    for _ in range(2):
        with pytest.raises(QueueUnavailable):
            queue.send(["a"])
    queue.send(["b"])

    assert queue.sent == ["b"]
    assert [message.body for message in queue.messages] == ["b"]


def test_a_lost_answer_is_raised_after_the_effect() -> None:
    queue = MemoryPlace().queue()
    calls: list[str] = []

    def lose(name: str) -> None:
        calls.append(name)
        raise QueueUnavailable("lost")

    queue.on_answer = lose

    with pytest.raises(QueueUnavailable, match="lost"):
        queue.send(["a"])

    assert queue.sent == ["a"]
    assert calls == ["send"]


def test_a_test_may_use_the_queue_while_it_steps_in() -> None:
    queue = MemoryPlace().queue()
    seen: list[int] = []

    def look(name: str) -> None:
        if name == "send":
            seen.append(queue.depth().waiting)

    queue.on_call = queue.on_answer = look

    queue.send(["a"])

    assert seen == [0, 1]


def test_the_time_of_the_next_visible_message_is_available() -> None:
    place = MemoryPlace()
    queue = place.queue()
    assert queue.next_at is None
    queue.send(["a"])

    queue.receive(hide_seconds=30)

    assert queue.next_at == place.ticker.now + 30
