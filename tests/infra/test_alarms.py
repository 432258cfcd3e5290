"""Alarms for failures that need an operator."""

from typing import Any

import pytest
from tests.infra.conftest import Templates
from tests.infra.test_dashboard import body as dashboard_body
from tests.support.synthesis import ALARMS_ARN, STAGES, environment, function, of_type

from extentflow.metric_table import TABLE

ALARM = "AWS::CloudWatch::Alarm"


def alarms(templates: Templates, stage: str = "plain") -> list[dict[str, Any]]:
    return list(of_type(templates(stage), ALARM).values())


@pytest.mark.parametrize("kind", ["ARRIVALS", "EXTENTS"])
def test_messages_that_wait_for_long_are_reported(templates: Templates, kind: str) -> None:
    (alarm,) = _about(templates, f"EXTENTFLOW_{kind}_QUEUE_URL")

    assert alarm["MetricName"] == "ApproximateAgeOfOldestMessage"
    assert alarm["Statistic"] == "Maximum"
    assert alarm["Threshold"] == 15 * 60


@pytest.mark.parametrize("kind", ["ARRIVALS", "EXTENTS"])
def test_the_first_dead_message_is_reported(templates: Templates, kind: str) -> None:
    (alarm,) = _about(templates, f"EXTENTFLOW_{kind}_DLQ_URL")

    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert alarm["Threshold"] == 0


@pytest.mark.parametrize(
    ("metric", "services"),
    [
        ("FailedJobs", {"planner", "worker", "reconciler"}),
        ("StalledJobs", {"reconciler"}),
        ("MessagesReturned", {"planner", "worker"}),
        ("ReconciliationProblems", {"reconciler"}),
    ],
)
def test_failed_and_stalled_jobs_are_counted_over_all_functions_that_tell(
    templates: Templates, metric: str, services: set[str]
) -> None:
    (alarm,) = (one for one in alarms(templates) if metric in str(one.get("Metrics")))

    counted = [one["MetricStat"] for one in alarm["Metrics"] if "MetricStat" in one]
    (total,) = (one["Expression"] for one in alarm["Metrics"] if "Expression" in one)

    assert {one["Metric"]["Namespace"] for one in counted} == {"extentflow/plain"}
    assert {one["Metric"]["MetricName"] for one in counted} == {metric}
    named = {one["Metric"]["Dimensions"][0]["Value"] for one in counted}
    assert named == services
    assert all(f"FILL({service}, 0)" in total for service in services)
    assert alarm["Threshold"] == 0
    for service in services:
        found = environment(function(templates("plain"), service))
        assert found["POWERTOOLS_SERVICE_NAME"] == service
        assert found["POWERTOOLS_METRICS_NAMESPACE"] == "extentflow/plain"


def test_a_reconciler_that_does_not_run_or_raises_is_reported(templates: Templates) -> None:
    (alarm,) = (one for one in alarms(templates) if one["TreatMissingData"] == "breaching")

    # What each run writes when it comes to its end: tests/unit/test_function_metrics.py.
    assert alarm["MetricName"] == "ReconciliationProblems"
    assert alarm["Dimensions"] == [{"Name": "service", "Value": "reconciler"}]
    assert (alarm["Statistic"], alarm["Period"]) == ("SampleCount", 3600)
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)


def test_a_job_that_is_open_for_long_is_reported(templates: Templates) -> None:
    """The age of the oldest message leaves out messages that were received three times."""
    (alarm,) = (one for one in alarms(templates) if one.get("MetricName") == "OldestOpenJobSeconds")

    assert alarm["Dimensions"] == [{"Name": "service", "Value": "reconciler"}]
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Maximum", 3_600)


def test_other_alarms_fire_above_their_threshold_and_not_without_data(
    templates: Templates,
) -> None:
    found = [one for one in alarms(templates) if one["TreatMissingData"] != "breaching"]

    assert len(found) == 14
    assert {one["ComparisonOperator"] for one in found} == {"GreaterThanThreshold"}
    assert {one["TreatMissingData"] for one in found} == {"notBreaching"}


def test_alarms_are_reported_to_the_stages_topic(templates: Templates) -> None:
    for alarm in alarms(templates, "existing"):
        assert alarm["AlarmActions"] == [ALARMS_ARN]
        assert alarm["OKActions"] == [ALARMS_ARN]


def test_without_a_topic_the_stack_creates_one_for_every_alarm(templates: Templates) -> None:
    (topic,) = of_type(templates("plain"), "AWS::SNS::Topic")

    for alarm in alarms(templates):
        assert alarm["AlarmActions"] == [{"Ref": topic}]
    (policy,) = of_type(templates("plain"), "AWS::SNS::TopicPolicy").values()
    publishers = [
        statement["Principal"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    assert publishers == [{"Service": "cloudwatch.amazonaws.com"}]


@pytest.mark.parametrize("metric", ["Errors", "Throttles", "RecursiveInvocationsDropped"])
def test_failed_and_dropped_invocations_are_reported(templates: Templates, metric: str) -> None:
    (alarm,) = (one for one in alarms(templates) if f"'{metric}'" in str(one.get("Metrics")))

    counted = [one["MetricStat"]["Metric"] for one in alarm["Metrics"] if "MetricStat" in one]

    assert {one["Namespace"] for one in counted} == {"AWS/Lambda"}
    assert len({str(one["Dimensions"]) for one in counted}) == 3
    assert alarm["Threshold"] == 0


def test_a_receiver_that_fails_is_reported(templates: Templates) -> None:
    found = [one for one in alarms(templates) if one.get("MetricName") == "5xx"]

    assert [one["Namespace"] for one in found] == ["AWS/ApiGateway"]
    without = alarms(templates, "existing")
    assert not [one for one in without if one.get("MetricName") == "5xx"]


@pytest.mark.parametrize("stage", ["plain", "rest"])
def test_refused_notifications_are_reported_as_a_share(templates: Templates, stage: str) -> None:
    (alarm,) = (
        one for one in alarms(templates, stage) if "answered 4xx" in one["AlarmDescription"]
    )

    counted = {
        one["Id"]: (one["MetricStat"]["Metric"]["MetricName"], one["MetricStat"]["Stat"])
        for one in alarm["Metrics"]
        if "MetricStat" in one
    }

    name = {"plain": "4xx", "rest": "4XXError"}[stage]
    assert counted == {"part": (name, "Sum"), "whole": ("Count", "SampleCount")}
    assert alarm["Threshold"] == 50


@pytest.mark.parametrize("stage", STAGES)
def test_alarms_and_dashboard_refer_to_metrics_and_dimensions_that_are_written(
    templates: Templates, stage: str
) -> None:
    template = templates(stage)
    found = [
        (
            str(metric["Namespace"]),
            metric["MetricName"],
            {each["Name"]: each["Value"] for each in metric["Dimensions"]},
        )
        for alarm in of_type(template, ALARM).values()
        for metric in (
            [each["MetricStat"]["Metric"] for each in alarm["Metrics"] if "MetricStat" in each]
            if "Metrics" in alarm
            else [alarm]
        )
    ]
    for widget in dashboard_body(template)["widgets"]:
        for namespace, *rest in widget["properties"].get("metrics", []):
            if isinstance(namespace, str):
                names = [each for each in rest[1:] if isinstance(each, str)]
                found.append((namespace, rest[0], dict(zip(names[::2], names[1::2], strict=True))))
    ours = [one for one in found if one[0].startswith("extentflow/")]

    assert len(ours) > 15
    for _, name, dimensions in ours:
        entry = TABLE[name]
        assert dimensions["service"] in entry.writers
        assert {*dimensions} == {"service"} or (
            entry.per_version and {*dimensions} == {"service", "version"}
        )


def _about(templates: Templates, variable: str) -> list[dict[str, Any]]:
    queue = environment(function(templates("plain"), "worker"))[variable]["Ref"]
    return [
        one
        for one in alarms(templates)
        if one.get("Dimensions", [{}])[0].get("Value") == {"Fn::GetAtt": [queue, "QueueName"]}
    ]
