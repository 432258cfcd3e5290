"""Background threads end with their caller, and their errors reach the caller."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.background import (
    START_SECONDS,
    BackgroundCall,
    LatestCall,
    LeaseRenewer,
    prefetch,
)

T = TypeVar("T")

# Longer than the slowest machine needs: a test that waits for so long fails.
LONG_SECONDS = 300.0


# -- calls with a timeout --------------------------------------------------------------------------


def test_a_call_that_returns_in_time_returns() -> None:
    called = threading.Event()

    BackgroundCall(called.set, "call").result(LONG_SECONDS)

    assert called.is_set()


def test_an_exception_of_the_call_is_raised_in_the_caller() -> None:
    def fail() -> None:
        raise ValueError("in the thread")

    with pytest.raises(ValueError, match="in the thread"):
        BackgroundCall(fail, "call").result(LONG_SECONDS)


def test_a_call_that_does_not_return_raises_timeout_error() -> None:
    released = threading.Event()

    def hang() -> None:
        released.wait(LONG_SECONDS)

    with pytest.raises(TimeoutError):
        BackgroundCall(hang, "call").result(0.05)
    released.set()


class _Lost(BackgroundCall[None]):
    """Its thread ends as one does that lacks the memory to store an outcome."""

    def _run(self, call: Callable[[], None]) -> None:
        call()


def test_a_thread_that_ended_without_an_outcome_is_not_waited_for(golden: Golden) -> None:
    with golden.raises(MemoryError, match="read-ahead"):
        _Lost(threading.Event().set, "read-ahead").result()


# -- the latest call -------------------------------------------------------------------------------


class Slow:
    """A call that begins, and waits until the test lets it end."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self) -> None:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.released.wait(LONG_SECONDS)


def test_a_slow_call_does_not_delay_its_caller_and_the_newest_one_follows() -> None:
    calls, slow, last = LatestCall(), Slow(), threading.Event()
    done: list[int] = []
    calls.submit(slow)
    assert slow.begun.wait(LONG_SECONDS)

    for number in range(4):
        calls.submit(partial(done.append, number))
    calls.submit(last.set)
    before = list(done)
    slow.released.set()

    assert last.wait(LONG_SECONDS)
    assert before == done == []
    assert slow.threads != [threading.current_thread()]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_a_call_without_a_thread_runs_in_the_foreground(error: Exception) -> None:
    def start(_run: Callable[..., None], _arguments: tuple[object, ...]) -> int:
        raise error

    calls, threads = LatestCall(start), list[threading.Thread]()

    for _ in range(2):
        calls.submit(lambda: threads.append(threading.current_thread()))

    assert threads == [threading.current_thread()] * 2


class StartedByHand:
    """Starts of threads, which the test runs itself, or never."""

    def __init__(self) -> None:
        self.now = 0.0
        self.started: list[Callable[[], None]] = []
        self.calls = LatestCall(self.start, lambda: self.now)
        self.done: list[str] = []

    def start(self, run: Callable[..., None], arguments: tuple[object, ...]) -> int:
        self.started.append(lambda: run(*arguments))
        return 1

    def submit(self, name: str) -> None:
        self.calls.submit(lambda: self.done.append(name))


def test_a_thread_that_ended_before_it_began_is_replaced() -> None:
    threads = StartedByHand()
    threads.submit("first")
    threads.submit("second")
    threads.now = START_SECONDS

    threads.submit("third")
    late, replacement = threads.started
    late()
    replacement()
    late()

    assert threads.done == ["third"]


def test_after_an_error_on_the_thread_a_call_runs_in_the_foreground_and_raises() -> None:
    threads = StartedByHand()

    def fail() -> None:
        raise MemoryError("out of memory")

    threads.calls.submit(fail)
    threads.started.pop()()

    with pytest.raises(MemoryError, match="out of memory"):
        threads.calls.submit(fail)
    threads.submit("later")

    assert len(threads.started) == 1
    threads.started.pop()()
    assert threads.done == ["later"]


# -- lease renewal ---------------------------------------------------------------------------------


class CallCounter:
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
            return self._changed.wait_for(lambda: self.calls >= calls, timeout=LONG_SECONDS)


@pytest.fixture
def renew() -> Iterator[CallCounter]:
    before = set(threading.enumerate())
    yield CallCounter()
    assert set(threading.enumerate()) <= before


def test_the_lease_is_renewed_repeatedly_while_the_block_runs(renew: CallCounter) -> None:
    with LeaseRenewer(renew, 0.01):
        assert renew.reached(3)


def test_nothing_is_renewed_before_the_interval_has_passed(renew: CallCounter) -> None:
    with LeaseRenewer(renew, 3_600):
        pass

    assert renew.calls == 0


def test_nothing_is_renewed_after_the_block(renew: CallCounter) -> None:
    with LeaseRenewer(renew, 0.01):
        assert renew.reached(1)
    calls = renew.calls

    threading.Event().wait(0.1)

    assert renew.calls == calls


def test_leaving_the_block_does_not_wait_for_the_interval(renew: CallCounter) -> None:
    done = threading.Event()

    def block() -> None:
        with LeaseRenewer(renew, 3_600):
            pass
        done.set()

    thread = threading.Thread(target=block)
    thread.start()
    left = done.wait(LONG_SECONDS)
    thread.join()

    assert left


def test_an_error_in_the_block_ends_the_renewals_and_propagates(renew: CallCounter) -> None:
    def block() -> None:
        with LeaseRenewer(renew, 0.01):
            assert renew.reached(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()

    assert not any(thread.name == "extentflow-renewal" for thread in threading.enumerate())


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_renewal_that_raises_ends_the_renewals_but_not_the_block() -> None:
    calls = count()
    called = threading.Event()
    reported: list[object] = []

    def fail() -> None:
        next(calls)
        called.set()
        raise ZeroDivisionError

    hook, threading.excepthook = threading.excepthook, reported.append
    try:
        with LeaseRenewer(fail, 0.01):
            assert called.wait(LONG_SECONDS)
            threading.Event().wait(0.1)
    finally:
        threading.excepthook = hook

    assert next(calls) == 1
    assert len(reported) == 1


# -- prefetch --------------------------------------------------------------------------------------


def counting(produced: list[int], until: int) -> Generator[int, None, None]:
    for number in range(until):
        produced.append(number)
        yield number


def without_timeout(
    items: Generator[T, None, None], size_bytes: Callable[[T], int], budget_bytes: int
) -> Generator[T, None, None]:
    """Prefetch items with an idle time that no machine is slow enough to reach."""
    prefetched = prefetch(items, size_bytes, budget_bytes, idle_seconds=LONG_SECONDS)
    with closing(prefetched):
        for item in prefetched:
            assert item is not None
            yield item


def one_byte(_: object) -> int:
    return 1


def recording_close(
    items: Generator[int, None, None], closed: list[bool]
) -> Generator[int, None, None]:
    try:
        yield from items
    finally:
        closed.append(True)


@given(st.lists(st.integers(0, 9)), st.integers(0, 30))
def test_items_arrive_in_order_with_any_budget(sizes: list[int], budget: int) -> None:
    assert list(without_timeout((size for size in sizes), int, budget)) == sizes


def test_the_next_item_is_produced_while_the_consumer_holds_one() -> None:
    released, started = threading.Event(), threading.Event()

    def items() -> Generator[str, None, None]:
        yield "first"
        started.set()
        assert released.wait(LONG_SECONDS)
        yield "second"

    prefetched = without_timeout(items(), one_byte, 1)

    assert next(prefetched) == "first"
    assert started.wait(LONG_SECONDS)  # before the consumer requested the second item
    released.set()
    assert list(prefetched) == ["second"]


def test_no_more_items_are_produced_than_the_budget_allows() -> None:
    produced: list[int] = []
    prefetched = without_timeout(counting(produced, 100), one_byte, 3)

    for item in prefetched:
        # Consumed items, three in the buffer and one in production.
        assert len(produced) <= item + 1 + 3 + 1


def test_an_item_larger_than_the_budget_is_buffered_alone() -> None:
    assert list(without_timeout((size for size in (100, 100)), int, 1)) == [100, 100]


def test_an_error_of_the_producer_is_raised_after_its_items() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise ZeroDivisionError("in the third")

    prefetched = without_timeout(items(), one_byte, 10)

    assert [next(prefetched), next(prefetched)] == [1, 2]
    with pytest.raises(ZeroDivisionError, match="in the third"):
        next(prefetched)


def test_none_is_yielded_while_no_item_is_ready() -> None:
    released = threading.Event()

    def items() -> Generator[str, None, None]:
        yield "first"
        assert released.wait(LONG_SECONDS)
        yield "second"

    prefetched = prefetch(items(), one_byte, 10, idle_seconds=0.01)

    assert list(islice(prefetched, 3)) == ["first", None, None]
    released.set()
    assert [item for item in prefetched if item is not None] == ["second"]


def test_closing_after_none_does_not_wait_for_the_producer() -> None:
    released = threading.Event()

    def items() -> Generator[str, None, None]:
        assert released.wait(LONG_SECONDS)
        yield "late"

    prefetched = prefetch(items(), one_byte, 10, idle_seconds=0.01, linger_seconds=LONG_SECONDS)
    assert next(prefetched) is None
    began = time.monotonic()
    prefetched.close()

    assert time.monotonic() - began < LONG_SECONDS
    released.set()


def test_nothing_is_produced_before_the_first_request() -> None:
    produced: list[int] = []
    closed: list[bool] = []

    prefetched = without_timeout(recording_close(counting(produced, 3), closed), one_byte, 10)
    prefetched.close()

    assert produced == []


def test_closing_closes_the_producer_and_ends_its_thread() -> None:
    closed: list[bool] = []
    before = set(threading.enumerate())
    prefetched = without_timeout(recording_close(counting([], 100), closed), one_byte, 2)
    next(prefetched)

    prefetched.close()

    assert closed == [True]
    assert set(threading.enumerate()) <= before


def test_closing_waits_no_longer_than_linger_seconds() -> None:
    released = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        released.wait(LONG_SECONDS)

    prefetched = prefetch(items(), one_byte, 10, linger_seconds=0.01)
    next(prefetched)

    prefetched.close()

    assert not released.is_set()
    released.set()


def test_an_error_of_the_consumer_closes_the_producer(recwarn: pytest.WarningsRecorder) -> None:
    closed: list[bool] = []

    def consume(items: Iterator[int]) -> None:
        for number in items:
            raise ZeroDivisionError(str(number))

    items = without_timeout(recording_close(counting([], 100), closed), one_byte, 2)
    with pytest.raises(ZeroDivisionError):
        consume(items)
    del items

    assert closed == [True]
    assert not recwarn.list
