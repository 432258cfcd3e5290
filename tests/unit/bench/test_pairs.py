"""Laps in turn, and what remains of them."""

import pytest
from bench.pairs import Lap, Laps, alternate


def lap(seconds: float, cpu_seconds: float = 1.0, *, rows: int = 1_000_000) -> Lap:
    return Lap(rows, seconds, cpu_seconds, peak_rss_bytes=round(seconds * 100))


def test_everybody_runs_in_turn_and_back_and_the_first_lap_only_warms_up() -> None:
    ran: list[str] = []

    def competitor(name: str, seconds: list[float]) -> Lap:
        ran.append(name)
        return lap(seconds.pop(0))

    ours, theirs = [100.0, 1.0, 2.0], [100.0, 4.0, 4.0]
    laps = alternate(
        {"ours": lambda: competitor("ours", ours), "theirs": lambda: competitor("theirs", theirs)},
        2,
        lambda _line: None,
    )

    assert ran == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert laps.rates() == {"ours": 750_000, "theirs": 250_000}
    assert laps.spread() == {"ours": [500_000, 1_000_000], "theirs": [250_000, 250_000]}


def test_a_ratio_is_the_median_of_the_ratios_of_each_lap() -> None:
    laps = Laps({"ours": [lap(1), lap(2), lap(10)], "theirs": [lap(2), lap(6), lap(10)]})

    assert laps.ratio("ours", "theirs") == 2.0


def test_cpu_time_is_told_per_million_rows() -> None:
    one, two = lap(1, 3.0, rows=2_000_000), lap(1, 3.0, rows=1_000_000)
    laps = Laps({"one": [one], "two": [two]})

    assert laps.costs() == {"one": 1.5, "two": 3.0}
    assert laps.cost_ratio("two", "one") == 2.0


def test_the_peak_is_the_largest_of_all_laps_of_those_asked_for() -> None:
    laps = Laps({"ours": [lap(1), lap(3)], "theirs": [lap(9), lap(9)]})

    assert laps.peak_rss_bytes(["ours"]) == 300


def test_competitors_with_different_numbers_of_laps_are_refused() -> None:
    laps = Laps({"ours": [lap(1)], "theirs": [lap(1), lap(1)]})

    with pytest.raises(ValueError, match="argument"):
        laps.ratio("ours", "theirs")
