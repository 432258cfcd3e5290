"""Attempts are bounded, spaced with jitter, and never too many."""

from random import Random

from extentflow.clock import Clock
from extentflow.sink.patience import SLICE_SECONDS, Patience


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def patience(time: Time) -> Patience:
    clock = Clock(monotonic=lambda: time.now, wall=lambda: time.now, sleep=time.sleep)
    return Patience(clock=clock, random=Random(1))


def test_there_is_always_one_attempt() -> None:
    assert len(list(patience(Time()).attempts(0))) == 1


def test_attempts_end_with_the_time() -> None:
    time = Time()

    count = sum(1 for _ in patience(time).attempts(10))

    assert 100 < time.now <= 110.5
    assert 10 < count < 60


def test_pauses_grow_to_a_second_and_no_further() -> None:
    time = Time()

    list(patience(time).attempts(60))

    assert max(time.slept) <= 1
    assert sum(time.slept[:3]) < sum(time.slept[-4:-1])


def test_the_time_of_an_attempt_counts_as_pause() -> None:
    time = Time()

    for _ in patience(time).attempts(10):
        time.now += SLICE_SECONDS

    assert set(time.slept) == {0.0}


def test_no_attempt_gets_more_than_a_slice_or_than_is_left() -> None:
    time = Time()
    granted = []

    for seconds in patience(time).attempts(5):
        granted.append(seconds)
        time.now += seconds

    assert granted == [2.0, 2.0, 1.0]
