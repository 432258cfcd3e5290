"""Messages go from a dead letter queue back to where they came from, each once, none lost."""

import pytest

from extentflow.errors import QueueUnavailable
from extentflow.queue import Message
from extentflow.queue.redrive import redrive
from extentflow.testing.services import MemoryQueue


def filled(*bodies: str) -> MemoryQueue:
    queue = MemoryQueue(lambda: 100.0)
    for body in bodies:
        queue.send([body], reason=f"because of {body}")
    return queue


def bodies(queue: MemoryQueue) -> list[str]:
    return [message.body for message in queue.messages]


def test_every_message_goes_back_and_leaves_the_dead_letter_queue() -> None:
    dead, queue = filled(*map(str, range(25))), filled()

    found = redrive(dead, queue)

    assert bodies(queue) == [str(number) for number in range(25)]
    assert (bodies(dead), len(found.moved), found.left) == ([], 25, 0)
    assert found.moved[0].reason == "because of 0"


def test_what_is_not_wanted_stays_and_can_be_seen_at_once() -> None:
    dead, queue = filled("a", "b", "c"), filled()

    found = redrive(dead, queue, wanted=lambda message: message.body == "b")

    assert (bodies(queue), bodies(dead), found.left) == (["b"], ["a", "c"], 2)
    assert dead.depth().waiting == 2


def test_a_dry_run_moves_nothing_and_hides_nothing() -> None:
    dead, queue = filled("a", "b"), filled()

    found = redrive(dead, queue, dry_run=True)

    assert [message.body for message in found.moved] == ["a", "b"]
    assert (bodies(queue), bodies(dead), dead.depth().waiting) == ([], ["a", "b"], 2)


def test_an_interruption_loses_nothing_and_the_next_call_continues() -> None:
    dead, queue = filled("a", "b", "c"), filled()
    asked: list[str] = []

    def third_fails(message: Message) -> bool:
        asked.append(message.body)
        queue.failures = len(asked) == 2
        return True

    with pytest.raises(QueueUnavailable):
        redrive(dead, queue, wanted=third_fails)
    assert sorted([*bodies(queue), *bodies(dead)]) == ["a", "b", "c"]
    assert dead.depth().waiting == 2

    redrive(dead, queue)

    assert (bodies(queue), bodies(dead)) == (["a", "b", "c"], [])


def test_what_running_functions_give_up_again_meanwhile_is_left() -> None:
    dead, queue = filled("a", "b"), filled()

    def give_up_again(name: str) -> None:
        if name == "receive" and len(queue.sent) < 10:
            for message in queue.receive():
                dead.send([message.body], reason="again")
                queue.delete(message)

    dead.on_call = give_up_again

    found = redrive(dead, queue)

    assert (queue.sent, found.left) == (["a", "b"], 2)
    assert (bodies(dead), dead.depth().waiting) == (["a", "b"], 2)


@pytest.mark.parametrize("dry_run", [True, False])
def test_of_messages_that_say_the_same_one_is_moved_and_none_is_lost(dry_run: bool) -> None:  # noqa: FBT001
    dead, queue = filled("a", "a", "b"), filled()

    found = redrive(dead, queue, dry_run=dry_run)

    assert [message.body for message in found.moved] == ["a", "b"]
    assert (queue.sent, bodies(dead)) == (([], ["a", "a", "b"]) if dry_run else (["a", "b"], ["a"]))
    assert dead.depth().waiting == found.left
