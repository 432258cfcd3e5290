"""The estimate of the server's clock never runs ahead of it."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extentflow.ledger.server_calls import ServerClock
from extentflow.retry import Clock

START = 1_700_000_000.0


@dataclass
class Clocks:
    """A server's clock and ours, set by the test."""

    server: float = START
    local: float = 50.0
    wall: float = 9_000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.local, lambda: self.wall, self.pass_by)

    def pass_by(self, seconds: float, *, rate: float = 1.0) -> None:
        self.server += seconds
        self.local += seconds * rate
        self.wall += seconds

    def answer(self, clock: ServerClock, *, out: float = 0.0, back: float = 0.0) -> None:
        asked = self.local
        self.pass_by(out)
        date = float(int(self.server))
        self.pass_by(back)
        clock.observe(date, sent_at=asked, resolution_seconds=1.0)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> ServerClock:
    return ServerClock(clocks.clock())


def test_there_is_no_estimate_before_the_first_response(clock: ServerClock) -> None:
    assert clock.now() is None


def test_the_local_clock_advances_the_date_of_a_response(
    clocks: Clocks, clock: ServerClock
) -> None:
    clocks.answer(clock)

    clocks.pass_by(12.5)

    assert clock.now() == START + 12.5


def test_a_later_response_tightens_the_bound(clocks: Clocks, clock: ServerClock) -> None:
    clocks.pass_by(0.9)
    clocks.answer(clock)
    clocks.pass_by(0.2)

    clocks.answer(clock)

    assert clock.now() == START + 1.0


def test_a_response_in_the_same_second_keeps_the_tighter_bound(
    clocks: Clocks, clock: ServerClock
) -> None:
    clocks.answer(clock)
    clocks.pass_by(0.7)

    clocks.answer(clock)

    assert clock.now() == pytest.approx(START + 0.7)


def test_a_slow_response_does_not_turn_the_clock_back(clocks: Clocks, clock: ServerClock) -> None:
    clocks.answer(clock)

    clocks.answer(clock, out=0.2, back=4.0)

    assert clock.now() == pytest.approx(START + 4.2)


def test_a_local_clock_that_runs_fast_is_corrected(clocks: Clocks, clock: ServerClock) -> None:
    clocks.answer(clock)
    clocks.pass_by(40.0, rate=1.1)
    assert clock.now() == pytest.approx(START + 44.0)

    clocks.answer(clock)

    assert clock.now() == START + 40.0


def test_an_estimate_expires_after_a_minute_without_a_response(
    clocks: Clocks, clock: ServerClock
) -> None:
    clocks.answer(clock)

    clocks.pass_by(60.0)

    assert clock.now() is None


def test_an_estimate_expires_while_a_sandbox_is_frozen(clocks: Clocks, clock: ServerClock) -> None:
    clocks.answer(clock)

    clocks.pass_by(600.0, rate=0.0)

    assert clock.now() is None


@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=30
    ),
    st.floats(0, 0.999),
)
def test_the_estimate_lags_by_at_most_a_second_and_the_transit_time(
    exchanges: list[tuple[float, float, float]], fraction: float
) -> None:
    clocks = Clocks(server=START + fraction)
    clock = ServerClock(clocks.clock())
    latest = 0.0

    for idle, out, back in exchanges:
        clocks.pass_by(idle)
        clocks.answer(clock, out=out, back=back)

        estimate = clock.now()

        assert estimate is not None
        assert estimate <= clocks.server + 1e-6
        assert estimate > clocks.server - 1.0 - back - 1e-6
        assert estimate >= latest - 1e-6
        latest = estimate
