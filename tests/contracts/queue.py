"""What every Queue must do; run over MemoryQueue and over SQS's API.

A suite subclasses `QueueContract` and provides the fixture `place`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from extentflow.errors import Misconfigured
from extentflow.queue import Message, Queue

HIDE_SECONDS = 60.0


class PlaceUnderTest(Protocol):
    """Where queues are, and how a test gets time to pass there."""

    patience_seconds: float
    """How long a message may take to appear."""

    def queue(self) -> Queue:
        """Create an empty queue."""
        ...

    def pass_seconds(self, seconds: float) -> None:
        """Return when so much time has passed."""
        ...


class Collecting:
    """How suites get at messages."""

    @pytest.fixture
    def place(self) -> PlaceUnderTest:
        raise NotImplementedError

    @pytest.fixture
    def queue(self, place: PlaceUnderTest) -> Queue:
        return place.queue()

    def collect(
        self, place: PlaceUnderTest, queue: Queue, count: int, hide_seconds: float = HIDE_SECONDS
    ) -> list[Message]:
        """Receive until there are so many; a queue may hand out fewer than it has."""
        found: list[Message] = []
        for _ in range(20 + count):
            if len(found) >= count:
                break
            found += queue.receive(wait_seconds=place.patience_seconds, hide_seconds=hide_seconds)
        return found

    def take(self, place: PlaceUnderTest, queue: Queue) -> Message:
        (message,) = self.collect(place, queue, 1)
        return message


class QueueContract(Collecting):
    # -- sending and receiving ------------------------------------------------------------------

    def test_an_empty_queue_has_nothing(self, queue: Queue) -> None:
        assert list(queue.receive()) == []
        assert queue.depth().waiting == 0

    @pytest.mark.parametrize(
        "body",
        [
            "a",
            '{"v":1,"key":"a b+%00"}',
            "ключ ☃ \U0001f600",
            "tab\tnew\nline\rreturn",
            "<&>\"'",
            "x" * 200_000,
        ],
        ids=["short", "json", "unicode", "whitespace", "markup", "long"],
    )
    def test_a_body_arrives_as_it_was_sent(
        self, place: PlaceUnderTest, queue: Queue, body: str
    ) -> None:
        queue.send([body])

        assert self.take(place, queue).body == body

    def test_sending_nothing_sends_nothing(self, queue: Queue) -> None:
        queue.send([])

        assert list(queue.receive()) == []

    def test_many_messages_arrive_once_each(self, place: PlaceUnderTest, queue: Queue) -> None:
        bodies = [f"message {number}" for number in range(37)]

        queue.send(bodies)
        found = self.collect(place, queue, 37)

        assert sorted(message.body for message in found) == sorted(bodies)
        assert len({message.id for message in found}) == 37

    def test_large_messages_arrive_together(self, place: PlaceUnderTest, queue: Queue) -> None:
        bodies = [letter * 100_000 for letter in "abcde"]

        queue.send(bodies)

        found = self.collect(place, queue, 5)
        assert sorted(message.body for message in found) == bodies

    def test_at_most_ten_messages_come_at_once(self, queue: Queue) -> None:
        queue.send([str(number) for number in range(25)])

        assert len(queue.receive()) <= 10

    def test_a_message_says_when_it_was_sent(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["first"])
        first = self.take(place, queue)
        place.pass_seconds(2)
        queue.send(["second"])

        second = self.take(place, queue)

        assert 1 <= second.sent - first.sent <= 60

    # -- reasons --------------------------------------------------------------------------------

    def test_a_reason_travels_with_the_message(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a", "b"], reason="because of ☃")

        found = self.collect(place, queue, 2)

        assert [message.reason for message in found] == ["because of ☃"] * 2

    def test_a_message_without_a_reason_has_none(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a"])

        assert self.take(place, queue).reason == ""

    @pytest.mark.parametrize(
        "reason",
        ["x" * 100_000, "☃" * 20_000, "a\x00b\x1b[31m", "lone \ud800 surrogate", " ", "\ufffe"],
        ids=["long", "long unicode", "control characters", "surrogate", "space", "non-character"],
    )
    def test_a_reason_never_keeps_a_message_from_being_sent(
        self, place: PlaceUnderTest, queue: Queue, reason: str
    ) -> None:
        queue.send(["body"], reason=reason)

        message = self.take(place, queue)
        assert message.body == "body"
        assert message.reason[:1] == reason[:1] or message.reason.startswith("\\u")

    def test_a_reason_is_cut_where_the_body_leaves_no_room(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        body = "x" * ((256 << 10) - 500)

        queue.send([body], reason="y" * 4_000)

        message = self.take(place, queue)
        assert message.body == body
        assert set(message.reason) <= {"y"}

    # -- groups ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("group", ["", "orders", "a.b_c-" + "x" * 94])
    def test_a_group_travels_with_the_message(
        self, place: PlaceUnderTest, queue: Queue, group: str
    ) -> None:
        queue.send(["a"], group=group)

        assert self.take(place, queue).group == group

    def test_equal_messages_of_a_group_are_all_delivered_though_none_is_deleted(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        """A group neither blocks nor deduplicates, as it does in a FIFO queue."""
        queue.send(["a"] * 12, group="orders")

        assert len(self.collect(place, queue, 12)) == 12

    # -- deliveries -----------------------------------------------------------------------------

    def test_a_received_message_is_hidden(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a"])
        self.take(place, queue)

        assert list(queue.receive(hide_seconds=HIDE_SECONDS)) == []

    def test_a_message_is_redelivered_and_counted_after_its_timeout(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a"])
        (first,) = self.collect(place, queue, 1, hide_seconds=2)
        assert list(queue.receive(hide_seconds=2)) == []

        place.pass_seconds(2.5)
        (second,) = self.collect(place, queue, 1, hide_seconds=2)

        assert (second.id, second.body) == (first.id, "a")
        assert (first.received, second.received) == (1, 2)
        assert second.handle != first.handle

    def test_a_fraction_of_a_second_still_hides(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a"])
        self.collect(place, queue, 1, hide_seconds=0.3)

        assert list(queue.receive()) == []

    def test_a_deleted_message_is_not_redelivered(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a"])
        (message,) = self.collect(place, queue, 1, hide_seconds=1)

        queue.delete(message)
        place.pass_seconds(1.5)

        assert list(queue.receive()) == []
        assert queue.depth().waiting == 0

    def test_deleting_twice_is_harmless(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a", "b"])
        first, second = self.collect(place, queue, 2)

        for message in (first, first):
            queue.delete(message)
        queue.delay(second, 0)

        assert [message.id for message in self.collect(place, queue, 1)] == [second.id]

    def test_a_delay_of_nothing_brings_a_message_back_at_once(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a"])
        message = self.take(place, queue)

        queue.delay(message, 0)

        assert self.take(place, queue).id == message.id

    def test_a_delay_counts_from_now(self, place: PlaceUnderTest, queue: Queue) -> None:
        queue.send(["a"])
        (message,) = self.collect(place, queue, 1, hide_seconds=2)

        queue.delay(message, 4)
        place.pass_seconds(2.5)
        assert list(queue.receive()) == []
        place.pass_seconds(2)

        assert self.take(place, queue).id == message.id

    @pytest.mark.parametrize("seconds", [-5.0, 1e9])
    def test_a_delay_without_bounds_is_taken_as_the_nearest_possible(
        self, place: PlaceUnderTest, queue: Queue, seconds: float
    ) -> None:
        queue.send(["a"])
        message = self.take(place, queue)

        queue.delay(message, seconds)

        assert len(queue.receive()) == (seconds < 0)

    def test_a_delay_of_a_deleted_message_is_harmless(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a"])
        message = self.take(place, queue)
        queue.delete(message)

        queue.delay(message, 0)

        assert list(queue.receive()) == []

    # -- depth ----------------------------------------------------------------------------------

    def test_depth_counts_what_waits_and_what_is_hidden(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a", "b", "c"])
        before = queue.depth()
        (message,) = self.only(place, queue)

        after = queue.depth()

        assert (before.waiting, before.hidden) == (3, 0)
        assert (after.waiting, after.hidden, after.delayed) == (2, 1, 0)
        queue.delete(message)
        assert (queue.depth().waiting, queue.depth().hidden) == (2, 0)

    def only(self, place: PlaceUnderTest, queue: Queue) -> Sequence[Message]:
        """Receive one message and put back what came along."""
        first, *others = self.collect(place, queue, 1)
        for other in others:
            queue.delay(other, 0)
        return [first]


class HandleContract(Collecting):
    """What AWS says of old handles without promising it: they may delete, or may not.

    Our own rule needs it only against two faults at once: a worker that froze before it deleted,
    and the death of the one that got the message next. The reconciler covers that as well.
    """

    def test_a_delivery_that_is_over_deletes_nothing(
        self, place: PlaceUnderTest, queue: Queue
    ) -> None:
        queue.send(["a"])
        (first,) = self.collect(place, queue, 1, hide_seconds=1)
        place.pass_seconds(1.5)
        (second,) = self.collect(place, queue, 1, hide_seconds=1)

        queue.delete(first)
        place.pass_seconds(1.5)

        assert self.take(place, queue).id == second.id


class MissingQueueContract:
    """What a queue that does not exist says; a suite provides the fixture `missing`."""

    @pytest.fixture
    def missing(self) -> Queue:
        raise NotImplementedError

    @pytest.mark.parametrize("call", ["send", "receive", "delete", "delay", "depth"])
    def test_a_queue_that_is_missing_says_what_to_do(self, missing: Queue, call: str) -> None:
        message = Message("id", "body", "handle")
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: missing.send(["a"]),
            "receive": missing.receive,
            "delete": lambda: missing.delete(message),
            "delay": lambda: missing.delay(message, 1),
            "depth": missing.depth,
        }

        with pytest.raises(Misconfigured, match=r"there is no such queue; correct its URL"):
            calls[call]()
