"""The dashboard: its graphs show metrics that exist, and every alarm."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from aws_cdk.assertions import Template
from tests.infra.conftest import Templates
from tests.support.synthesis import PLAIN, STAGES, Bench, function, of_type

from extentflow.ledger.dynamodb_calls import JOBS_INDEX
from extentflow.metric_table import TABLE
from extentflow.model import Receipt

DASHBOARD = "AWS::CloudWatch::Dashboard"
SUBJECTS = ("Throughput", "Lag", "Failures", "Cost")


def body(template: Template) -> dict[str, Any]:
    """Return the dashboard's body; references are `<logical id>`."""
    (found,) = of_type(template, DASHBOARD).values()
    parts = found["DashboardBody"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else f"<{_name(part)}>" for part in parts)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def _name(part: dict[str, Any]) -> str:
    value = next(iter(part.values()))
    return value if isinstance(value, str) else str(value[0])


def shown(dashboard: dict[str, Any], subject: str) -> Iterator[list[Any]]:
    """Yield the metrics of the graphs of one subject."""
    for widget in dashboard["widgets"]:
        if widget["properties"].get("title", "").startswith(subject):
            yield from widget["properties"].get("metrics", [])


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_one_with_graphs_of_every_subject(templates: Templates, stage: str) -> None:
    dashboard = body(templates(stage))

    for subject in SUBJECTS:
        assert list(shown(dashboard, subject)), subject


@pytest.mark.parametrize(
    ("subject", "metrics"),
    [
        ("Throughput", {"Records", "BytesRead", "Jobs"}),
        ("Lag", {"OldestOpenJobSeconds", "ApproximateAgeOfOldestMessage"}),
        ("Failures", {"FailedJobs", "MessagesReturned", "Errors", "Throttles", "5xx"}),
        ("Cost", {"Duration", "Invocations", "NumberOfMessagesReceived", "KeysListed"}),
        ("Cost", {"ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits"}),
    ],
)
def test_a_subjects_graphs_show_its_metrics(
    templates: Templates, subject: str, metrics: set[str]
) -> None:
    found = {metric[1] for metric in shown(body(templates("plain")), subject) if len(metric) > 2}

    assert metrics <= found


def test_our_metrics_have_the_stages_namespace(templates: Templates) -> None:
    dashboard = body(templates("plain"))

    spaces = {
        metric[0] for subject in SUBJECTS for metric in shown(dashboard, subject) if len(metric) > 2
    }

    assert "extentflow/plain" in spaces
    assert all(space.startswith("AWS/") or space == "extentflow/plain" for space in spaces)


def test_the_index_is_counted_beside_the_table(templates: Templates) -> None:
    metrics = list(shown(body(templates("plain")), "Cost: DynamoDB"))

    assert len(metrics) == 4
    assert sum(JOBS_INDEX in metric for metric in metrics) == 2


def test_it_shows_the_state_of_every_alarm(templates: Templates) -> None:
    template = templates("plain")

    (widget,) = (one for one in body(template)["widgets"] if one["type"] == "alarm")

    alarms = of_type(template, "AWS::CloudWatch::Alarm")
    assert {name.strip("<>") for name in widget["properties"]["alarms"]} == set(alarms)


def test_a_stage_may_do_without(bench: Bench) -> None:
    template = bench.template(replace(PLAIN, dashboard=False))

    assert of_type(template, DASHBOARD) == {}


def test_every_connector_is_shown_from_the_workers_log(templates: Templates) -> None:
    template = templates("plain")
    (widget,) = (one for one in body(template)["widgets"] if one["type"] == "log")

    query = widget["properties"]["query"]

    (log,) = re.findall(r"SOURCE '<(\w+)>'", query)
    assert log in of_type(template, "AWS::Logs::LogGroup")
    assert log == function(template, "worker")["LoggingConfig"]["LogGroup"]["Ref"]
    # What a worker's line contains: a receipt, and its connector.
    assert 'filter message = "extent"' in query
    summed = {*re.findall(r"(?:sum|avg)\((\w+)", query)}
    assert summed <= {field.name for field in fields(Receipt)}
    assert query.partition(" by ")[2].startswith("connector")


def test_measured_connectors_have_graphs_of_their_own(templates: Templates, bench: Bench) -> None:
    measured = replace(PLAIN, settings={"metrics.connectors": "orders,re*"})

    before = [*shown(body(templates("plain")), "Connectors")]
    graphs = [*shown(body(bench.template(measured)), "Connectors")]

    assert before == []
    searches = [metric[0]["expression"] for metric in graphs]
    pattern = re.compile(
        r"SEARCH\('\{\"extentflow/plain\",connector\} MetricName=\"(\w+)\"', '\w+', 300\)"
    )
    names = [found[1] for one in searches if (found := pattern.fullmatch(one))]
    assert len(names) == len(searches)
    assert all(TABLE[name].per_connector for name in names)
    assert {"Records", "FailedJobs", "OldestOpenJobSeconds", "ObjectsDelivered"} <= {*names}
