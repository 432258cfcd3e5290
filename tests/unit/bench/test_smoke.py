"""Ratios against the recorded ones: what differs too much is named."""

import json
import signal
from pathlib import Path

import pytest
from bench.smoke import SCALES, OutOfTimeError, _time, differences, read
from bench.suite import CASES


def recorded(**scales: float) -> str:
    return json.dumps({"scales": scales, "ratios_by_case": {name: {"a": 1.0} for name in scales}})


def test_ratios_within_the_tolerance_are_not_mentioned() -> None:
    assert not list(differences({"lines": {"a": 1.14}}, {"lines": {"a": 1.0}}))


@pytest.mark.parametrize(("now", "percent"), [(0.8, "-20%"), (1.5, "+50%")])
def test_a_ratio_beyond_it_is_named_with_both_values(now: float, percent: str) -> None:
    found = {"lines": {"one_process_to_ceiling": now}}
    before = {"lines": {"one_process_to_ceiling": 1.0}}

    assert list(differences(found, before)) == [
        f"lines, one process to ceiling: {now:g}, recorded 1 ({percent})"
    ]


def test_what_was_not_recorded_or_not_measured_differs_from_nothing() -> None:
    assert not list(differences({"lines": {"a": 1.0}}, {"plain": {"a": 9.0}}))


def test_recorded_ratios_are_read_by_case(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"

    assert read(path) == {}
    path.write_text(recorded(lines=SCALES["lines"]))
    assert read(path) == {"lines": {"a": 1.0}}


def test_ratios_of_another_scale_are_not_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "smoke.json"
    path.write_text(recorded(lines=SCALES["lines"] * 2, scaling=SCALES["scaling"]))

    assert list(read(path)) == ["scaling"]


def test_only_known_cases_are_asked_for() -> None:
    assert set(SCALES) <= set(CASES)


def test_what_takes_too_long_is_interrupted_and_nothing_rings_afterwards() -> None:
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)

    with pytest.raises(OutOfTimeError), _time(0.05):
        signal.pause()

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(timer[0], abs=5)
