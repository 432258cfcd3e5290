"""Metrics that functions write to their logs, as a scraper reads them."""

import json
from pathlib import Path

from extentflow_local.aws.event_source.metrics import FunctionMetrics


def line(**values: float | list[float]) -> bytes:
    """Return a line as Powertools writes it."""
    names = [{"Name": name, "Unit": "Count"} for name in values]
    directive = {"Namespace": "extentflow", "Dimensions": [["service"]], "Metrics": names}
    about = {"Timestamp": 1, "CloudWatchMetrics": [directive]}
    return json.dumps({"_aws": about, "service": "worker", **values}).encode() + b"\n"


def write(path: Path, *lines: bytes) -> None:
    with path.open("ab") as log:
        log.writelines(lines)


def samples(metrics: FunctionMetrics) -> dict[str, float]:
    found = (each.rpartition(" ") for each in metrics.text().splitlines() if each[0] != "#")
    return {name: float(value) for name, _, value in found}


def test_counters_add_up_per_function_from_now_on(tmp_path: Path) -> None:
    worker, planner = tmp_path / "worker.log", tmp_path / "planner.log"
    write(worker, line(BadRecords=100.0))
    metrics = FunctionMetrics({"worker": worker, "planner": planner})

    assert samples(metrics) == {}
    write(worker, line(BadRecords=[2.0, 3.0]), b'{"message": "no metrics"}\n', b"Traceback\n")
    write(planner, line(BadRecords=1.0))
    samples(metrics)
    write(worker, line(BadRecords=4.0))

    assert samples(metrics) == {
        'extentflow_bad_records_total{function="worker"}': 9.0,
        'extentflow_bad_records_total{function="planner"}': 1.0,
    }


def test_a_gauge_is_the_last_value(tmp_path: Path) -> None:
    log = tmp_path / "reconciler.log"
    metrics = FunctionMetrics({"reconciler": log})

    write(log, line(OldestOpenJobSeconds=60.0), line(OldestOpenJobSeconds=30.0))

    assert samples(metrics) == {'extentflow_oldest_open_job_seconds{function="reconciler"}': 30.0}


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log, whole = tmp_path / "worker.log", line(Records=7.0)
    metrics = FunctionMetrics({"worker": log})

    write(log, whole[:40])
    assert samples(metrics) == {}
    write(log, whole[40:])
    assert samples(metrics) == {'extentflow_records_total{function="worker"}': 7.0}


def test_what_a_killed_process_left_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    metrics = FunctionMetrics({"worker": log})

    write(log, line(Records=7.0)[:120], line(Records=1.0), line(Records=2.0))

    assert samples(metrics) == {'extentflow_records_total{function="worker"}': 2.0}
