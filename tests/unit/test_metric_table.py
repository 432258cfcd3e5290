"""The table of metrics: who uses it, and how its names are written elsewhere."""

import re
from pathlib import Path

import pytest

from extentflow.cli.receive_commands import METRICS as RECEIVED
from extentflow.cli.stream_commands import METRICS as STREAMED
from extentflow.metric_table import RECEIVER, STREAM, TABLE

ROOT = Path(__file__).parents[2]
FUNCTIONS = ("planner", "receiver", "reconciler", "worker")


def constants() -> dict[str, str]:
    """Return the name of each metric by that of its constant."""
    text = (ROOT / "layers/core/python/extentflow/metric_table.py").read_text()
    return dict(re.findall(r'^(\w+): Final = MetricEntry\(\n    name="(\w+)"', text, re.MULTILINE))


def test_every_metric_has_a_constant_and_a_name_of_its_own() -> None:
    assert sorted(constants().values()) == sorted(TABLE)
    assert len({one.prometheus for one in TABLE.values()}) == len(TABLE)


@pytest.mark.parametrize("service", FUNCTIONS)
def test_a_function_writes_what_the_table_says(service: str) -> None:
    text = (ROOT / "functions" / service / "handler.py").read_text()
    imported = re.search(r"from extentflow\.metric_table import (\([^)]*\)|.*)", text)
    assert imported is not None
    named = {name for name in re.findall(r"[A-Z_]+\b", imported[1]) if name in constants()}
    if "BY_STATUS" in imported[1]:
        named |= {"STATUS_2XX", "STATUS_4XX", "STATUS_5XX"}

    # Names come from the table only, and all that are imported are written.
    assert "add_metric" not in text
    assert all(text.count(name) > 1 for name in named if not name.startswith("STATUS"))
    written = {constants()[name] for name in named}
    assert written == {one.name for one in TABLE.values() if service in one.writers}


def test_commands_serve_what_the_table_says_under_names_for_prometheus() -> None:
    for served, writer in ((STREAMED, STREAM), (RECEIVED, RECEIVER)):
        expected = {one.prometheus for one in TABLE.values() if writer in one.writers}
        assert {metric.name for metric in served} == expected


def test_names_for_prometheus() -> None:
    assert TABLE["BadRecords"].prometheus == "extentflow_bad_records_total"
    assert TABLE["OldestOpenJobSeconds"].prometheus == "extentflow_oldest_open_job_seconds"
    assert TABLE["Status2xx"].prometheus == "extentflow_status2xx_total"
