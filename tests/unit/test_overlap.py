"""What is made ahead: the same items, in order, within a budget, and nothing of it stays."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extentflow.overlap import overlapped

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


def counting(made: list[int], until: int) -> Generator[int, None, None]:
    for number in range(until):
        made.append(number)
        yield number


def patiently(
    items: Generator[T, None, None], size_bytes: Callable[[T], int], budget_bytes: int
) -> Generator[T, None, None]:
    """Take items of which none is late, on however slow a machine."""
    ahead = overlapped(items, size_bytes, budget_bytes, idle_seconds=PATIENCE_SECONDS)
    with closing(ahead):
        for item in ahead:
            assert item is not None
            yield item


def one_byte(_: object) -> int:
    return 1


@given(st.lists(st.integers(0, 9)), st.integers(0, 30))
def test_items_come_as_they_were_made_whatever_the_budget(sizes: list[int], budget: int) -> None:
    assert list(patiently((size for size in sizes), int, budget)) == sizes


def test_items_are_made_while_the_consumer_holds_one() -> None:
    asked, answered = threading.Event(), threading.Event()

    def items() -> Generator[str, None, None]:
        yield "first"
        answered.set()
        assert asked.wait(PATIENCE_SECONDS)
        yield "second"

    ahead = patiently(items(), one_byte, 1)

    assert next(ahead) == "first"
    assert answered.wait(PATIENCE_SECONDS)  # nobody asked for the second one
    asked.set()
    assert list(ahead) == ["second"]


def test_no_more_is_made_ahead_than_the_budget_allows() -> None:
    made: list[int] = []
    ahead = patiently(counting(made, 100), one_byte, 3)

    for taken in ahead:
        # Taken ones, three that wait, and one in the making.
        assert len(made) <= taken + 1 + 3 + 1


def test_an_item_beyond_the_budget_is_made_alone() -> None:
    assert list(patiently((size for size in (100, 100)), int, 1)) == [100, 100]


def test_what_the_maker_raises_is_raised_after_what_it_made() -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise ZeroDivisionError("in the third")

    ahead = patiently(items(), one_byte, 10)

    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ZeroDivisionError, match="in the third"):
        next(ahead)


def test_whoever_waits_for_an_item_is_told_now_and_then_that_there_is_none() -> None:
    asked = threading.Event()

    def items() -> Generator[str, None, None]:
        yield "first"
        assert asked.wait(PATIENCE_SECONDS)
        yield "second"

    ahead = overlapped(items(), one_byte, 10, idle_seconds=0.01)

    assert list(islice(ahead, 3)) == ["first", None, None]
    asked.set()
    assert [item for item in ahead if item is not None] == ["second"]


def test_whoever_waited_in_vain_leaves_without_waiting_for_the_maker() -> None:
    ended = threading.Event()

    def items() -> Generator[str, None, None]:
        assert ended.wait(PATIENCE_SECONDS)
        yield "late"

    ahead = overlapped(items(), one_byte, 10, idle_seconds=0.01, linger_seconds=PATIENCE_SECONDS)
    assert next(ahead) is None
    began = time.monotonic()
    ahead.close()

    assert time.monotonic() - began < PATIENCE_SECONDS
    ended.set()


def test_nothing_is_made_before_anybody_asks() -> None:
    made: list[int] = []
    closed: list[bool] = []

    ahead = patiently(_closing(counting(made, 3), closed), one_byte, 10)
    ahead.close()

    assert made == []


def test_closing_closes_the_maker_and_ends_its_thread() -> None:
    closed: list[bool] = []
    before = set(threading.enumerate())
    ahead = patiently(_closing(counting([], 100), closed), one_byte, 2)
    next(ahead)

    ahead.close()

    assert closed == [True]
    assert set(threading.enumerate()) <= before


def test_a_maker_that_hangs_keeps_nobody_waiting() -> None:
    released = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        released.wait(PATIENCE_SECONDS)

    ahead = overlapped(items(), one_byte, 10, linger_seconds=0.01)
    next(ahead)

    ahead.close()

    assert not released.is_set()
    released.set()


def _closing(items: Generator[int, None, None], closed: list[bool]) -> Generator[int, None, None]:
    try:
        yield from items
    finally:
        closed.append(True)


def test_the_consumers_error_ends_the_maker(recwarn: pytest.WarningsRecorder) -> None:
    closed: list[bool] = []

    def consume(items: Iterator[int]) -> None:
        for number in items:
            raise ZeroDivisionError(str(number))

    items = patiently(_closing(counting([], 100), closed), one_byte, 2)
    with pytest.raises(ZeroDivisionError):
        consume(items)
    del items

    assert closed == [True]
    assert not recwarn.list
