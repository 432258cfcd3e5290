import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.storage.conftest import HandTurnedClock

from extentflow.errors import ObjectGone, StoreUnavailable
from extentflow.storage.retry import Patience


class Flaky:
    """Fails so many times, then returns its count."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts = 0

    def __call__(self) -> int:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise StoreUnavailable(f"failure {self.attempts}")
        return self.attempts


def test_an_attempt_that_succeeds_is_not_repeated(hand_turned: HandTurnedClock) -> None:
    flaky = Flaky(0)

    assert hand_turned.patience().retried(flaky) == 1

    assert hand_turned.pauses == []


def test_pauses_double_up_to_the_cap(hand_turned: HandTurnedClock) -> None:
    flaky = Flaky(8)

    assert hand_turned.patience().retried(flaky) == 9

    assert hand_turned.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_pauses_are_a_random_share_of_their_ceiling(hand_turned: HandTurnedClock) -> None:
    hand_turned.patience(chance=0.25).retried(Flaky(3))

    assert hand_turned.pauses == pytest.approx([0.025, 0.05, 0.1])


@given(total=st.floats(0.0, 200.0), chance=st.floats(0.01, 1.0))
@settings(deadline=None)
def test_no_attempt_begins_after_the_total_time(total: float, chance: float) -> None:
    clock = HandTurnedClock()
    flaky = Flaky(10**9)

    with pytest.raises(StoreUnavailable, match="gave up after"):
        clock.patience(total, chance).retried(flaky)

    assert clock.now <= total
    assert all(pause <= 5.0 for pause in clock.pauses)


def test_the_last_failure_is_raised_with_what_was_tried(hand_turned: HandTurnedClock) -> None:
    with pytest.raises(StoreUnavailable) as raised:
        hand_turned.patience(total_seconds=0.5).retried(Flaky(99))

    assert str(raised.value) == "failure 3; gave up after 3 attempts in 0.3 s"
    assert isinstance(raised.value.__cause__, StoreUnavailable)


def test_permanent_errors_are_not_retried(hand_turned: HandTurnedClock) -> None:
    def gone() -> None:
        raise ObjectGone("gone")

    with pytest.raises(ObjectGone):
        hand_turned.patience().retried(gone)

    assert hand_turned.pauses == []


def test_the_shipped_patience_ends_after_a_minute() -> None:
    assert Patience().total_seconds == 60.0
    assert Patience().cap_seconds == 5.0
