"""Calls that may never return are given up; all others behave as if called directly."""

import threading

import pytest

from extentflow.sink.bounded import bounded


def test_a_call_that_returns_returns() -> None:
    called = threading.Event()

    bounded(called.set, 10)

    assert called.is_set()


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("told")

    with pytest.raises(ValueError, match="told"):
        bounded(fail, 10)


def test_a_call_that_never_returns_is_given_up() -> None:
    never = threading.Event()

    with pytest.raises(TimeoutError):
        bounded(lambda: _wait(never), 0.05)
    never.set()


def _wait(event: threading.Event) -> None:
    event.wait(30)
