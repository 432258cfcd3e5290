"""A worker that takes messages itself: how many, until when, and what troubles it meets."""

from collections.abc import Callable

import pytest
from tests.support.queued import Queued

from extentflow.errors import QueueUnavailable
from extentflow.model import JobState
from extentflow.queue import Message
from extentflow.queue.consumer import MessageDisposition, QueueDrain, QueueWorker


def never() -> bool:
    return False


def drain(queued: Queued, stopping: Callable[[], bool] = never) -> QueueDrain:
    return QueueDrain(queued.worker(), queued.world.ticker.read, stopping)


def taken(found: QueueDrain, *, most: int = 100, seconds: float = 60.0) -> list[MessageDisposition]:
    return [answer for _, answer in found.answers(most=most, seconds=seconds)]


def test_draining_processes_every_message_and_deletes_final_ones() -> None:
    queued = Queued()
    job = queued.job(b"abcdefghij")

    answers = taken(drain(queued))

    assert [answer.again_seconds is None for answer in answers] == [True, True, True]
    assert queued.queue.messages == []
    assert queued.now(job).state is JobState.DONE


def test_what_it_is_not_to_take_stays_visible_for_others() -> None:
    queued = Queued()
    queued.job(b"abcdefghij")

    assert len(taken(drain(queued), most=2)) == 2
    assert queued.queue.depth().waiting == 1
    assert len(taken(drain(queued))) == 1


def test_nothing_is_begun_after_its_time() -> None:
    queued = Queued()
    queued.job(b"abcdefghij")
    answers = drain(queued).answers(most=100, seconds=10.0)

    next(answers)
    queued.world.ticker.now += 10.0

    assert list(answers) == []
    assert queued.queue.depth().waiting == 2


def test_nothing_starts_after_a_stop_request() -> None:
    queued = Queued()
    queued.job(b"abcdefghij")
    asked: list[bool] = []
    answers = drain(queued, lambda: bool(asked)).answers(most=100, seconds=60.0)

    next(answers)
    asked.append(True)

    assert list(answers) == []
    assert queued.queue.depth().waiting == 2


def test_a_retried_message_is_hidden_for_the_requested_time() -> None:
    queued = Queued()
    queued.job(b"abcd")
    queued.world.store = queued.world.store
    (message,) = queued.queue.messages
    queued.world.ledger.refuse("claim", 100)

    (answer,) = taken(drain(queued))

    assert answer.again_seconds is not None
    assert queued.queue.next_at == queued.world.ticker.now + answer.again_seconds
    assert [one.id for one in queued.queue.messages] == [message.id]


def test_a_queue_that_is_unavailable_has_no_further_message() -> None:
    queued = Queued()
    queued.job(b"abcdefghij")
    queued.queue.failures = 1

    assert taken(drain(queued)) == []
    answers = drain(queued).answers(most=100, seconds=60.0)
    next(answers)
    queued.queue.failures = 1

    assert list(answers) == []
    assert queued.queue.depth().waiting == 2


def test_a_message_that_cannot_be_deleted_is_only_delivered_twice() -> None:
    queued = Queued()
    job = queued.job(b"abcd")

    def fail(name: str) -> None:
        if name == "delete":
            raise QueueUnavailable("delete: as the test wants it")

    queued.queue.on_call = fail
    assert len(taken(drain(queued))) == 1
    queued.queue.on_call = lambda _name: None
    queued.world.ticker.now += 1_000.0

    assert [answer.again_seconds is None for answer in taken(drain(queued))] == [True]
    assert queued.now(job).state is JobState.DONE
    assert sorted(queued.world.delivered()) == sorted([b"0:a", b"1:b", b"2:c", b"3:d"])


def test_a_defect_brings_its_message_back_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    queued = Queued()
    job = queued.job(b"abcdefghij")
    first = queued.queue.messages[0]
    real = QueueWorker.handle

    def handle(worker: QueueWorker, message: Message) -> MessageDisposition:
        if message.id == first.id:
            raise AssertionError("a defect")
        return real(worker, message)

    monkeypatch.setattr(QueueWorker, "handle", handle)
    assert len(taken(drain(queued))) == 3
    monkeypatch.setattr(QueueWorker, "handle", real)

    assert [one.id for one in queued.queue.messages] == [first.id]
    queued.world.ticker.now += 60.0
    taken(drain(queued))
    assert queued.now(job).state is JobState.DONE
