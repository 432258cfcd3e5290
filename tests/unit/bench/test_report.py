"""The page of figures says what is recorded, and is up to date."""

import json
from pathlib import Path
from typing import Any

import pytest
from bench.bars import BARS, Bar
from bench.report import (
    CASES_PAGE,
    PAGE,
    PARTS,
    RECORDED,
    cases,
    page,
    read,
    record,
    with_measured,
)
from bench.show import Grid, grids
from bench.suite import CASES

MACHINE = {
    "cores": 2,
    "memory_bytes": 8 << 30,
    "cpu": "a model",
    "system": "Linux",
    "python": "3.11.1",
    "versions": {"kafka": "4.1.2"},
}


def result(**members: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON values
    return {"case": "what was run", "scale": 1.0, "pairs": 5, **members, "machine": MACHINE}


def test_the_pages_are_what_the_recorded_figures_make_of_them() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read(RECORDED)), "run `make bench-record`"
    assert CASES_PAGE.read_text(encoding="utf-8") == cases(read(RECORDED))


@pytest.mark.parametrize("part", PARTS, ids=lambda path: path.stem)
def test_parts_of_pages_are_what_the_recorded_figures_make_of_them(part: Path) -> None:
    text = part.read_text(encoding="utf-8")

    assert text == with_measured(part, read(RECORDED)), "run `make bench-record`"


def test_a_bar_is_shown_with_its_figure_and_one_that_is_missed_says_so() -> None:
    ratios = {"extentflow_to_spark_native": 2.1, "exactly_once_to_at_least_once": 0.97}

    text = page({"spark-native": result(ratios=ratios)})

    assert "Spark's own sink | ≥ 2.4 | 2.1, missed | `spark-native` |" in text
    assert "exactly against at least once | ≥ 0.95 | 0.97 | `spark-native` |" in text


def test_a_bar_is_for_scale_1_and_judges_no_smaller_one() -> None:
    ratios = {"one_process_to_ceiling": 0.1}

    text = page({"lines": {**result(ratios=ratios), "scale": 0.1}})

    assert "| ≥ 0.7 | 0.1 with SCALE=0.1, not judged | `lines` |" in text


def test_a_bar_whose_case_is_not_recorded_says_so() -> None:
    assert "| ≥ 0.7 | not recorded yet | `lines` |" in page({})


def test_a_page_names_each_machine_with_what_was_measured_on_it() -> None:
    other = {**result(), "machine": {**MACHINE, "cores": 64}}

    text = page({"plain": result(), "lines": result(), "memory": other})

    assert (
        "Of `plain`, `lines`: 2 cores (a model), 8 GiB, Linux, Python 3.11.1, kafka 4.1.2." in text
    )
    assert "Of `memory`: 64 cores" in text


def test_recording_keeps_what_was_measured_and_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    measured, recorded = tmp_path / "measured", tmp_path / "recorded"
    measured.mkdir()
    for name, scale in (("lines", 1.0), ("memory", 0.1), ("unknown", 1.0)):
        (measured / f"{name}.json").write_text(json.dumps({"scale": scale}))

    assert record(["all"], measured, recorded) == ["lines", "memory"]
    (measured / "lines.json").write_text(json.dumps({"scale": 2.0}))
    (measured / "memory.json").write_text(json.dumps({"scale": 2.0}))
    assert record(["memory"], measured, recorded) == ["memory"]

    assert {name: one["scale"] for name, one in read(recorded).items()} == {
        "lines": 1.0,
        "memory": 2.0,
    }


def test_every_bar_belongs_to_a_case() -> None:
    assert set(BARS) <= set(CASES)


@pytest.mark.parametrize(
    ("bar", "figure", "holds"),
    [
        (Bar("ratios.a", "", least=2.0), 2.0, True),
        (Bar("ratios.a", "", least=2.0), 1.9, False),
        (Bar("ratios.a", "", most=2.0), 2.0, True),
        (Bar("ratios.a", "", most=2.0), 2.1, False),
    ],
)
def test_a_bar_holds_up_to_its_bound(bar: Bar, figure: float, holds: bool) -> None:  # noqa: FBT001 - a parameter
    assert bar.holds(figure) is holds


def test_a_bar_finds_its_figure_or_nothing() -> None:
    bar = Bar("ratios.a", "", least=1.0)

    assert bar.figure({"ratios": {"a": 3}}) == 3.0
    assert bar.figure({"ratios": {}}) is None
    assert bar.figure({}) is None


def test_rates_and_costs_are_columns_of_one_table() -> None:
    found = result(
        rows_per_second={"one_process": 1_500_000, "plain": 60_000},
        cpu_seconds_per_million_rows={"one_process": 1.25, "plain": 12.0},
        ratios={"one_process_to_plain": 25.0},
        worker_peak_rss_bytes=300 << 20,
    )

    assert list(grids(found)) == [
        Grid(
            ["", "rows per second", "cpu seconds per million rows"],
            [["one process", "1,500,000", "1.25"], ["plain", "60,000", "12"]],
        ),
        Grid(["ratios", ""], [["one process to plain", "25"]]),
        Grid(["", ""], [["worker peak rss bytes", "300 MiB"]]),
    ]


@pytest.mark.parametrize(
    "shapes",
    [
        {"text": {"object_bytes": 5}, "Parquet": {"object_bytes": 6, "largest_row_group": 7}},
        [
            {"shapes": "text", "object_bytes": 5},
            {"shapes": "Parquet", "object_bytes": 6, "largest_row_group": 7},
        ],
    ],
    ids=["named", "listed"],
)
def test_records_are_one_table_with_every_column_of_any_of_them(
    shapes: object,
) -> None:
    assert list(grids(result(shapes=shapes))) == [
        Grid(
            ["shapes", "object bytes", "largest row group"],
            [["text", "5", ""], ["Parquet", "6", "7"]],
        )
    ]


def test_the_least_and_the_most_rate_stand_behind_the_median() -> None:
    found = result(
        rows_per_second={"plain": 60_000},
        rows_per_second_least_and_most={"plain": [50_000, 70_000]},
    )

    assert list(grids(found)) == [
        Grid(["", "rows per second"], [["plain", "60,000 (50,000 - 70,000)"]])
    ]


def test_mappings_of_the_same_figures_are_rows_of_one_table() -> None:
    found = result(
        **{
            "1_mib_per_second": {"committed": 0.5, "passed": 1.0},
            "2_mib_per_second": {"committed": 1.5, "passed": 2.0},
            "peak_rss_bytes": {"3,000 columns": 700 << 20},
        }
    )

    assert list(grids(found)) == [
        Grid(
            ["", "committed", "passed"],
            [["1 mib per second", "0.5", "1"], ["2 mib per second", "1.5", "2"]],
        ),
        Grid(["peak rss bytes", ""], [["3,000 columns", "700 MiB"]]),
    ]


def test_a_page_shows_a_ratio_that_has_a_bar_with_the_bar_only() -> None:
    ratios = {"one_process_to_ceiling": 0.771, "from_s3_to_ceiling": 0.408}

    results = {"lines": result(ratios=ratios)}

    assert page(results).count("0.771") == 1
    assert "0.771" not in (text := cases(results))
    assert "Ratios:\n\n- from s3 to ceiling: 0.408\n" in text


def test_a_page_leaves_out_what_another_page_shows() -> None:
    found = result(rows_per_second={"orc": 7}, parquet_peak_rss_bytes={"wide": 9 << 20})

    text = cases({"formats": found})

    assert "rows per second" not in text
    assert "Parquet peak rss bytes:\n\n- wide: 9 MiB\n" in text
