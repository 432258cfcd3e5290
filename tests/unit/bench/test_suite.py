"""Cases by name, one after the other; what is written, and what a broken one does to the others."""

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from bench.result import Result
from bench.stand import Terms
from bench.suite import CASES, Case, chosen, run, write
from rich.console import Console

MACHINE = {"cores": 2}


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def terms(tmp_path: Path, scale: float = 1.0) -> Terms:
    return Terms(tmp_path, scale, 5, lambda _line: None)


def case(
    name: str, measure: Callable[[Terms], Result], monkeypatch: pytest.MonkeyPatch, share: float = 1
) -> Case:
    """A case in a module of its own."""
    module = ModuleType(f"cases_of_this_test.{name}")
    module.measure = measure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Case(name, module.__name__, share, "")


def working(given: Terms) -> Result:
    return Result(case="works", scale=given.scale, pairs=5, rows_per_second={"ours": 7})


def breaking(_given: Terms) -> Result:
    raise RuntimeError("broker unavailable")


def test_a_broken_case_is_reported_and_hides_no_other(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [case("bad", breaking, monkeypatch), case("good", working, monkeypatch)]

    broken = run(cases, terms(tmp_path), console, tmp_path)

    assert broken == ["bad"]
    assert isinstance(console.file, io.StringIO)
    assert "broker unavailable" in console.file.getvalue()
    assert not (tmp_path / "bad.json").exists()
    assert json.loads((tmp_path / "good.json").read_text())["rows_per_second"] == {"ours": 7}


def test_a_case_whose_module_cannot_be_imported_is_a_broken_one(
    tmp_path: Path, console: Console
) -> None:
    assert run([Case("gone", "bench.gone", 1, "")], terms(tmp_path), console, tmp_path) == ["gone"]


def test_cases_take_their_share_of_the_scale_only_where_several_run(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = case("small", working, monkeypatch, share=0.5)
    other = case("other", working, monkeypatch)

    run([small, other], terms(tmp_path, 2), console, tmp_path)
    together = json.loads((tmp_path / "small.json").read_text())["scale"]
    run([small], terms(tmp_path, 2), console, tmp_path)
    alone = json.loads((tmp_path / "small.json").read_text())["scale"]

    assert (together, alone) == (1.0, 2.0)


def test_every_case_has_a_module_that_measures() -> None:
    for one in CASES.values():
        assert callable(importlib.import_module(one.module).measure)


def test_names_of_before_mean_the_cases_of_now() -> None:
    assert [one.name for one in chosen("main,small,lines,lines")] == [
        "spark-native",
        "small-objects",
        "lines",
    ]


def test_all_are_those_that_fit_into_half_an_hour() -> None:
    assert chosen("all") == [one for one in CASES.values() if one.share]


def test_spark_native_is_also_written_under_the_name_that_scripts_read(tmp_path: Path) -> None:
    found = {"case": "lineitem"}

    paths = write("spark-native", found, tmp_path)

    assert [path.name for path in paths] == ["spark-native.json", "main.json"]
    assert {path.read_text() for path in paths} == {json.dumps(found, indent=2) + "\n"}


def test_the_fields_that_scripts_read_come_first_and_keep_their_names() -> None:
    result = Result(
        case="lineitem",
        scale=1,
        pairs=5,
        rows_per_second={"spark_native": 1},
        ratios={"extentflow_to_spark_native": 2.5},
        cpu_seconds_per_million_rows={"spark_native": 4.0},
        worker_peak_rss_bytes=3,
        figures={"own": 1},
    )

    assert list(result.to_json(MACHINE)) == [
        "case",
        "scale",
        "pairs",
        "rows_per_second",
        "ratios",
        "cpu_seconds_per_million_rows",
        "worker_peak_rss_bytes",
        "own",
        "machine",
    ]


def test_fields_that_mean_nothing_to_a_case_are_left_out() -> None:
    found = Result(case="planning", scale=1, figures={"objects": []}).to_json(MACHINE)

    assert list(found) == ["case", "scale", "objects", "machine"]
