"""The keeper's thread: renews at its interval, ends with its block."""

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from extentflow.keeper import Keeper


class Counted:
    """Counts calls; `reached(n)` waits until there were `n`."""

    def __init__(self) -> None:
        self.calls = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.calls += 1
            self._changed.notify_all()

    def reached(self, calls: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.calls >= calls, timeout=30)


@pytest.fixture
def renew() -> Iterator[Counted]:
    before = set(threading.enumerate())
    yield Counted()
    assert set(threading.enumerate()) <= before


def test_a_keeper_renews_again_and_again_while_its_block_runs(renew: Counted) -> None:
    with Keeper(renew, 0.01):
        assert renew.reached(3)


def test_nothing_is_renewed_before_the_interval_is_over(renew: Counted) -> None:
    with Keeper(renew, 3_600):
        pass

    assert renew.calls == 0


def test_nothing_is_renewed_after_the_block(renew: Counted) -> None:
    with Keeper(renew, 0.01):
        assert renew.reached(1)
    seen = renew.calls

    threading.Event().wait(0.1)

    assert renew.calls == seen


def test_leaving_the_block_does_not_wait_for_the_interval(renew: Counted) -> None:
    done = threading.Event()

    def block() -> None:
        with Keeper(renew, 3_600):
            pass
        done.set()

    thread = threading.Thread(target=block)
    thread.start()
    left = done.wait(30)
    thread.join()

    assert left


def test_an_error_in_the_block_ends_the_renewals_and_comes_through(renew: Counted) -> None:
    def block() -> None:
        with Keeper(renew, 0.01):
            assert renew.reached(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()

    assert not any(thread.name == "extentflow-keeper" for thread in threading.enumerate())


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_renewal_that_raises_ends_the_renewals_and_not_the_block() -> None:
    calls = count()
    ended = threading.Event()
    heard: list[object] = []

    def failing() -> None:
        next(calls)
        ended.set()
        raise ZeroDivisionError

    hook, threading.excepthook = threading.excepthook, heard.append
    try:
        with Keeper(failing, 0.01):
            assert ended.wait(30)
            threading.Event().wait(0.1)
    finally:
        threading.excepthook = hook

    assert next(calls) == 1
    assert len(heard) == 1
