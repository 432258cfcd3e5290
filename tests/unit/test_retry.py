"""Attempts are bounded in time and spaced with full jitter."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extentflow.errors import ObjectGone, StoreUnavailable
from extentflow.retry import Clock, RetryPolicy

BLOCKING = RetryPolicy(
    first_pause_seconds=0.05,
    longest_pause_seconds=1.0,
    attempts_block=True,
    jitter=Random(1).random,
)


class SimulatedTime:
    """A clock that advances only while a policy sleeps, or by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def policy(self, total_seconds: float = 20.0, share: float = 1.0) -> RetryPolicy:
        return self.simulate(RetryPolicy(total_seconds, jitter=lambda: share))

    def simulate(self, policy: RetryPolicy) -> RetryPolicy:
        return replace(policy, clock=Clock(monotonic=lambda: self.now, sleep=self.sleep))


@pytest.fixture
def time() -> SimulatedTime:
    return SimulatedTime()


class FailingCall:
    """Fails so many times, then returns the number of its calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise StoreUnavailable(f"failure {self.calls}")
        return self.calls


def call(policy: RetryPolicy, failures: int) -> int:
    return policy.call(FailingCall(failures))


def exhaust(attempts: Iterable[object]) -> int:
    return sum(1 for _ in attempts)


def test_a_call_that_succeeds_is_not_repeated(time: SimulatedTime) -> None:
    assert call(time.policy(), failures=0) == 1

    assert time.pauses == []


def test_pauses_double_up_to_the_longest_pause(time: SimulatedTime) -> None:
    assert call(time.policy(), failures=8) == 9

    assert time.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_a_pause_is_a_random_share_of_its_bound(time: SimulatedTime) -> None:
    call(time.policy(share=0.25), failures=3)

    assert time.pauses == pytest.approx([0.025, 0.05, 0.1])


@given(total=st.floats(0.0, 200.0), share=st.floats(0.01, 1.0))
@settings(deadline=None)
def test_no_attempt_starts_after_the_deadline(total: float, share: float) -> None:
    time = SimulatedTime()
    policy = time.policy(total_seconds=total, share=share)

    with pytest.raises(StoreUnavailable, match="gave up after"):
        call(policy, failures=10**9)

    assert time.now - 100.0 <= total + 1e-9
    assert all(pause <= 5.0 for pause in time.pauses)


def test_the_last_error_is_raised_with_the_number_of_attempts(time: SimulatedTime) -> None:
    with pytest.raises(StoreUnavailable) as raised:
        call(time.policy(total_seconds=0.5), failures=99)

    assert str(raised.value) == "failure 3; gave up after 3 attempts in 0.3 s"
    assert isinstance(raised.value.__cause__, StoreUnavailable)


def test_other_errors_are_not_retried(time: SimulatedTime) -> None:
    def gone() -> None:
        raise ObjectGone("gone")

    with pytest.raises(ObjectGone):
        time.policy().call(gone)

    assert time.pauses == []


def test_a_policy_can_be_shortened_but_not_extended() -> None:
    policy = RetryPolicy(20.0)

    assert policy.within(5.0).total_seconds == 5.0
    assert policy.within(60.0) is policy
    assert policy.within(None) is policy


def test_the_default_policy_ends_after_a_minute() -> None:
    assert RetryPolicy().total_seconds == 60.0
    assert RetryPolicy().longest_pause_seconds == 5.0


# -- attempts that block until a timeout -----------------------------------------------------------


@pytest.mark.parametrize("blocking", [False, True])
def test_there_is_always_one_attempt(time: SimulatedTime, *, blocking: bool) -> None:
    policy = time.simulate(RetryPolicy(0.0, attempts_block=blocking))

    assert exhaust(policy.attempts()) == 1


def test_blocking_attempts_end_at_the_deadline(time: SimulatedTime) -> None:
    attempts = exhaust(time.simulate(BLOCKING.within(10.0)).attempts())

    assert 100 < time.now <= 110.5
    assert 10 < attempts < 60


def test_pauses_between_blocking_attempts_grow_to_a_second(time: SimulatedTime) -> None:
    policy = time.simulate(BLOCKING.within(60.0))
    exhaust(replace(policy, jitter=lambda: 0.5).attempts())

    assert max(time.pauses) <= 1
    assert sum(time.pauses[:3]) < sum(time.pauses[-4:-1])


def test_the_time_of_a_blocking_attempt_counts_as_pause(time: SimulatedTime) -> None:
    for _ in time.simulate(BLOCKING.within(10.0)).attempts():
        time.now += 2.0

    assert set(time.pauses) == {0.0}


def test_an_attempt_states_its_number_and_the_time_left(time: SimulatedTime) -> None:
    attempts = []

    for attempt in time.simulate(BLOCKING.within(5.0)).attempts():
        attempts.append((attempt.number, attempt.remaining_seconds))
        time.now += 2.0

    assert attempts == [(1, 5.0), (2, 3.0), (3, 1.0)]


@pytest.mark.parametrize(("failures", "lines"), [(1, 0), (4, 0), (30, 1), (100, 1)])
def test_a_person_who_waits_is_told_once_for_what(
    time: SimulatedTime, caplog: pytest.LogCaptureFixture, failures: int, lines: int
) -> None:
    with suppress(StoreUnavailable):
        time.policy(total_seconds=60.0).call(FailingCall(failures))

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == lines
    assert all("retrying for up to 60 s" in one for one in said)
