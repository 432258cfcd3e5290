"""Runs in turn, and what remains of them."""

import pytest
from bench.pairs import Run, Runs, alternate


def run(seconds: float, cpu_seconds: float = 1.0, *, rows: int = 1_000_000) -> Run:
    return Run(rows, seconds, cpu_seconds, peak_rss_bytes=round(seconds * 100))


def test_everybody_runs_in_turn_and_back_and_the_first_lap_only_warms_up() -> None:
    ran: list[str] = []

    def competitor(name: str, seconds: list[float]) -> Run:
        ran.append(name)
        return run(seconds.pop(0))

    ours, theirs = [100.0, 1.0, 2.0], [100.0, 4.0, 4.0]
    runs = alternate(
        {"ours": lambda: competitor("ours", ours), "theirs": lambda: competitor("theirs", theirs)},
        2,
        lambda _line: None,
    )

    assert ran == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert runs.rates() == {"ours": 750_000, "theirs": 250_000}
    assert runs.spread() == {"ours": [500_000, 1_000_000], "theirs": [250_000, 250_000]}


def test_a_ratio_is_the_median_of_the_ratios_of_each_lap() -> None:
    runs = Runs({"ours": [run(1), run(2), run(10)], "theirs": [run(2), run(6), run(10)]})

    assert runs.ratio("ours", "theirs") == 2.0


def test_cpu_time_is_reported_per_million_rows() -> None:
    one, two = run(1, 3.0, rows=2_000_000), run(1, 3.0, rows=1_000_000)
    runs = Runs({"one": [one], "two": [two]})

    assert runs.costs() == {"one": 1.5, "two": 3.0}
    assert runs.cost_ratio("two", "one") == 2.0


def test_the_peak_is_the_largest_of_all_laps_of_those_asked_for() -> None:
    runs = Runs({"ours": [run(1), run(3)], "theirs": [run(9), run(9)]})

    assert runs.peak_rss_bytes(["ours"]) == 300


def test_competitors_with_different_numbers_of_runs_are_rejected() -> None:
    runs = Runs({"ours": [run(1)], "theirs": [run(1), run(1)]})

    with pytest.raises(ValueError, match="argument"):
        runs.ratio("ours", "theirs")
