"""Metrics for Prometheus: the text format, the server, and what a streaming query counts."""

import urllib.error
import urllib.request
from collections import Counter
from dataclasses import fields, replace

import pytest
from tests.support.golden import Golden

from extentflow.cli.stream_commands import METRICS, OBSERVED, _report
from extentflow.errors import Misconfigured
from extentflow.services.metrics import Metric, Metrics, serve_metrics
from extentflow.spark.query import TriggerResult

TRIGGERED = TriggerResult(
    batch=0,
    extents=3,
    failed=1,
    records=1_000,
    bad=2,
    filtered=0,
    bytes_read=5_000_000_000,
    seconds=1.5,
    records_per_second=666.7,
    waiting=7,
    hidden=2,
)


def made() -> Metrics:
    return Metrics([Metric("a_total", "counter", "A."), Metric("b", "gauge", "B.")])


def test_counters_add_up_and_gauges_are_the_last_value() -> None:
    metrics = made()

    metrics.update({"a_total": 2, "b": 5})
    metrics.update({"a_total": 3, "b": 4})

    assert metrics.text() == (
        "# HELP a_total A.\n# TYPE a_total counter\na_total 5.0\n"
        "# HELP b B.\n# TYPE b gauge\nb 4.0\n"
    )


def test_a_scraper_reads_them_and_nothing_else() -> None:
    metrics = made()
    with serve_metrics(metrics.text, "127.0.0.1:0") as url:
        metrics.update({"a_total": 1})
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of this test
            body, kind = answer.read().decode(), answer.headers["Content-Type"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("metrics", "other"), timeout=30)  # noqa: S310

    assert body == metrics.text()
    assert kind.startswith("text/plain; version=0.0.4")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=30)  # noqa: S310


def test_a_taken_port_is_reported_and_another_one_serves(golden: Golden) -> None:
    with serve_metrics(made().text, "127.0.0.1:0") as url:
        taken = url.removeprefix("http://").removesuffix("/metrics")
        with golden.raises(Misconfigured, match="write another"), serve_metrics(made().text, taken):
            pass

        with serve_metrics(made().text, "127.0.0.1:0") as other:
            assert other != url


@pytest.mark.parametrize("address", ["", "9108", "host", "host:", "host:x", "host:65536"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(Misconfigured, match="write HOST:PORT"), serve_metrics(made().text, address):
        pass


def test_triggers_of_a_query_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(METRICS)

    for batch in range(2):
        _report(Counter(), metrics, replace(TRIGGERED, batch=batch), as_json=True)

    values = dict(line.split() for line in metrics.text().splitlines() if line[0] != "#")
    assert values["extentflow_triggers_total"] == "2.0"
    assert values["extentflow_records_total"] == "2000.0"
    assert values["extentflow_bytes_read_total"] == "10000000000.0"
    assert values["extentflow_extents_waiting"] == "7.0"
    assert set(OBSERVED.values()) <= {field.name for field in fields(TriggerResult)}
    assert len(capsys.readouterr().out.splitlines()) == 2
