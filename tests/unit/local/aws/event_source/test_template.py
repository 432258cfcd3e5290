"""What a synthesised template says about an event path on one machine."""

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.golden import Golden
from tests.support.toy_functions import TEMPLATE, toys

from extentflow.errors import Misconfigured
from extentflow_local.aws.event_source.deployment import (
    Deployment,
    Redrive,
    Route,
    Schedule,
    SourceMapping,
    Subscription,
)
from extentflow_local.aws.event_source.names import TemplateContext
from extentflow_local.aws.event_source.template import read_document

SQS = "http://127.0.0.1:19324"
AROUND = TemplateContext(sqs=SQS, values={"Brokers": "127.0.0.1:9092"})
Template = dict[str, Any]


@pytest.fixture
def template() -> Template:
    found: Template = json.loads(TEMPLATE.read_text())
    return found


def properties(template: Template, name: str) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][name]["Properties"]
    return found


def test_queues_come_with_their_times_and_their_dead_letter_queue() -> None:
    deployment = toys(SQS)

    queue, dead = deployment.queue_of("toy"), deployment.dead_letter_queue_of("toy")

    assert queue.url == f"{SQS}/000000000000/ToysQueueC4D3E9A9"
    assert queue.arn == "arn:aws:sqs:us-east-1:000000000000:ToysQueueC4D3E9A9"
    assert (queue.visibility_seconds, queue.retention_seconds) == (180, 345_600)
    assert queue.redrive == Redrive(arn=dead.arn, most_receives=3)
    assert (dead.visibility_seconds, dead.retention_seconds) == (30, 1_209_600)
    assert deployment.sqs == SQS


def test_functions_have_a_service_name_and_a_resolved_environment() -> None:
    functions = toys(SQS, environment={"EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": None}).functions

    toy = functions["toy"]
    assert list(functions) == ["toy", "echo", "tick"]
    assert (toy.handler, toy.runtime) == ("handler.handler", "python3.13")
    assert (toy.timeout_seconds, toy.memory_mib) == (170, 1769)
    assert (functions["tick"].timeout_seconds, functions["tick"].memory_mib) == (170, 128)
    assert toy.environment == {
        "EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
        "EXTENTFLOW_LEDGER_TABLE": "LedgerTable9343E4AA",
        "EXTENTFLOW_TOYS_QUEUE_URL": f"{SQS}/000000000000/ToysQueueC4D3E9A9",
        "EXTENTFLOW_TOYS_DLQ": "dead/ToysDeadF6D8CD3B",
        "EXTENTFLOW_WHERE": "us-east-1/000000000000/${literal}",
        "POWERTOOLS_SERVICE_NAME": "toy",
    }


def test_what_makes_functions_run() -> None:
    deployment = toys(SQS)

    assert deployment.mappings == (
        SourceMapping(
            function="toy",
            queue_arn=deployment.queue_of("toy").arn,
            batch_size=10,
            most_concurrent=2,
            reports_failures=True,
        ),
    )
    assert deployment.schedules == (
        Schedule(
            function="tick",
            arn="arn:aws:events:us-east-1:000000000000:rule/Tick1EB93218",
            every_seconds=300,
            source="aws.events",
        ),
    )
    assert deployment.routes == (Route(function="echo", key="$default", front="http-api"),)
    assert deployment.run_here() == ["toy", "echo", "tick"]
    assert deployment.outputs == {"ToysQueueUrl": deployment.queue_of("toy").url}


def heard(template: Template, target: object) -> None:
    """Send the toys the events of an application's runs."""
    template["Resources"]["Application"] = {"Type": "AWS::EMRServerless::Application"}
    template["Resources"]["RunEnded"] = {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "EventPattern": {
                "source": ["aws.emr-serverless"],
                "detail": {"applicationId": [{"Fn::GetAtt": ["Application", "ApplicationId"]}]},
            },
            "Targets": [{"Arn": {"Fn::GetAtt": ["Bus", "Arn"]}}, {"Arn": target}],
        },
    }


def test_events_make_functions_run(template: Template) -> None:
    heard(template, {"Fn::GetAtt": ["EchoFunction8C742FB9", "Arn"]})

    deployment = read_document(template, replace(AROUND, application="00here"))

    assert deployment.subscriptions == (
        Subscription(
            function="echo",
            pattern={"source": ["aws.emr-serverless"], "detail": {"applicationId": ["00here"]}},
        ),
    )


def test_events_that_go_elsewhere_are_not_ours(template: Template) -> None:
    heard(template, {"Fn::GetAtt": ["ToysQueueC4D3E9A9", "Arn"]})

    assert read_document(template, AROUND).subscriptions == ()


def test_a_prefix_begins_every_name() -> None:
    deployment = toys(SQS, prefix="mine-")

    queue = deployment.queue_of("toy")
    assert queue.name == "mine-ToysQueueC4D3E9A9"
    assert queue.redrive is not None
    assert queue.redrive.arn.endswith(":mine-ToysDeadF6D8CD3B")
    assert deployment.functions["toy"].deployed_name == "mine-ToyFunction614A2319"
    table = deployment.functions["toy"].environment["EXTENTFLOW_LEDGER_TABLE"]
    assert table == "mine-LedgerTable9343E4AA"


def test_names_that_the_template_gives_are_used(template: Template) -> None:
    properties(template, "ToysQueueC4D3E9A9")["QueueName"] = {"Fn::Sub": "q-${AWS::Region}"}

    queue = read_document(template, AROUND).queue_of("toy")

    assert queue.url == f"{SQS}/000000000000/q-us-east-1"


def test_values_say_what_names_stand_for_otherwise(template: Template) -> None:
    around = replace(AROUND, values={**AROUND.values, "LedgerTable9343E4AA": "ledger"})

    environment = read_document(template, around).functions["toy"].environment

    assert environment["EXTENTFLOW_LEDGER_TABLE"] == "ledger"


def test_a_variable_that_is_replaced_need_not_be_known(template: Template) -> None:
    around = TemplateContext(sqs=SQS, environment={"EXTENTFLOW_BOOTSTRAP_SERVERS": "here:1"})

    environment = read_document(template, around).functions["toy"].environment

    assert environment["EXTENTFLOW_BOOTSTRAP_SERVERS"] == "here:1"


def test_everything_unknown_is_reported_at_once(template: Template, golden: Golden) -> None:
    toy = properties(template, "ToyFunction614A2319")["Environment"]["Variables"]
    toy["EXTENTFLOW_SECRET"] = {"Fn::GetAtt": ["Secret", "Id"]}
    properties(template, "Tick1EB93218")["ScheduleExpression"] = "cron(0 * * * ? *)"

    with pytest.raises(Misconfigured) as caught:
        read_document(template, TemplateContext(sqs=SQS))

    golden(*[re.split(r" is (?:not|unknown)", line)[0] for line in caught.value.problems])


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("ToyMessagesD2C57241", {"FilterCriteria": {"Filters": []}}, "FilterCriteria: not emul"),
        ("ToyMessagesD2C57241", {"BatchSize": 100}, "BatchSize 100 is not emulated"),
        ("ToysQueueC4D3E9A9", {"FifoQueue": True}, "FifoQueue: not emulated"),
        (
            "EndpointApiDefaultRouteEcho3BC52A07",
            {"PayloadFormatVersion": "1.0"},
            "only PayloadFormatVersion 2.0",
        ),
    ],
)
def test_what_is_not_emulated_is_rejected(
    template: Template, name: str, change: dict[str, Any], why: str
) -> None:
    properties(template, name).update(change)

    with pytest.raises(Misconfigured, match=why):
        read_document(template, AROUND)


def switched_off(template: Template) -> None:
    properties(template, "ToyMessagesD2C57241")["Enabled"] = False
    properties(template, "Tick1EB93218")["State"] = "DISABLED"


def of_others(template: Template) -> None:
    foreign = {"Fn::GetAtt": ["ProviderframeworkonEvent6E22E98D", "Arn"]}
    properties(template, "ToyMessagesD2C57241")["FunctionName"] = foreign
    properties(template, "Tick1EB93218")["Targets"][0]["Arn"] = foreign


@pytest.mark.parametrize("change", [switched_off, of_others])
def test_what_is_switched_off_or_runs_something_else_is_left_out(
    template: Template, change: Callable[[Template], None]
) -> None:
    change(template)

    deployment = read_document(template, AROUND)

    assert (deployment.mappings, deployment.schedules) == ((), ())
    assert deployment.run_here() == ["echo"]


def test_a_schedule_of_the_scheduler_and_a_function_url_are_read(template: Template) -> None:
    arn = {"Fn::GetAtt": ["TickFunction4B381F7D", "Arn"]}
    template["Resources"] |= {
        "Every": {
            "Type": "AWS::Scheduler::Schedule",
            "Properties": {
                "ScheduleExpression": "rate(1 hour)",
                "Target": {"Arn": arn, "Input": '{"fixed": true}'},
            },
        },
        "Url": {
            "Type": "AWS::Lambda::Url",
            "Properties": {"AuthType": "NONE", "TargetFunctionArn": arn},
        },
    }

    deployment = read_document(template, AROUND)

    assert deployment.schedules[-1] == Schedule(
        function="tick",
        arn="arn:aws:scheduler:us-east-1:000000000000:schedule/default/Every",
        every_seconds=3600,
        source="aws.scheduler",
        payload='{"fixed": true}',
    )
    assert deployment.routes[-1] == Route(function="tick", key="$default", front="function-url")


def test_an_integration_may_name_the_function_by_lambdas_path(template: Template) -> None:
    path = "arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/"
    properties(template, "EndpointApiDefaultRouteEcho3BC52A07")["IntegrationUri"] = {
        "Fn::Join": ["", [path, {"Fn::GetAtt": ["EchoFunction8C742FB9", "Arn"]}, "/invocations"]]
    }

    assert [route.function for route in read_document(template, AROUND).routes] == ["echo"]


def test_tests_change_one_thing_at_a_time() -> None:
    before = toys(SQS)

    after = (
        before.with_function("toy", timeout_seconds=0.5)
        .with_queue("toy", visibility_seconds=1)
        .with_mapping("toy", batch_size=1)
        .with_schedule("tick", every_seconds=0.1)
    )

    assert after.functions["toy"].timeout_seconds == 0.5
    assert after.queue_of("toy") == replace(before.queue_of("toy"), visibility_seconds=1)
    assert after.mappings[0].batch_size == 1
    assert after.schedules[0].every_seconds == 0.1
    assert after.functions["echo"] == before.functions["echo"]
    assert isinstance(before, Deployment)
    assert before == toys(SQS)


def test_reading_leaves_the_template_as_it_is(template: Template) -> None:
    before = copy.deepcopy(template)

    read_document(template, AROUND)

    assert template == before
