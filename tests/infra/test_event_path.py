"""Queues, functions and event sources: the numbers that the protocol depends on."""

from dataclasses import replace

import pytest
from aws_cdk.assertions import Match, Template
from infra.project import Project
from tests.infra.conftest import Templates
from tests.support.synthesis import FUNCTIONS, PLAIN, STAGES, Bench, environment, function, of_type

from extentflow.config.worker import WorkerSettings, load
from extentflow.errors import Misconfigured
from extentflow.wiring.functions import HIDDEN_LEASES

DAY = 86_400
QUEUE = "AWS::SQS::Queue"
MAPPING = "AWS::Lambda::EventSourceMapping"


@pytest.fixture
def plain(templates: Templates) -> Template:
    return templates("plain")


def variable(template: Template, name: str) -> str:
    """Return the logical id that a variable of the worker refers to."""
    found: str = environment(function(template, "worker"))[name]["Ref"]
    return found


@pytest.mark.parametrize("kind", ["ARRIVALS", "EXTENTS"])
def test_messages_are_kept_for_four_days_and_dead_ones_for_fourteen(
    plain: Template, kind: str
) -> None:
    queues = of_type(plain, QUEUE)

    queue = queues[variable(plain, f"EXTENTFLOW_{kind}_QUEUE_URL")]
    dead = queues[variable(plain, f"EXTENTFLOW_{kind}_DLQ_URL")]

    assert queue["MessageRetentionPeriod"] == 4 * DAY
    assert dead["MessageRetentionPeriod"] == 14 * DAY
    lease = WorkerSettings(bootstrap_servers="any:1").lease_seconds
    # At least the function timeout, as Lambda requires; workers extend it during work.
    assert queue["VisibilityTimeout"] == 180 >= HIDDEN_LEASES * lease
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 100
    assert queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0] == variable(
        plain, f"EXTENTFLOW_{kind}_DLQ_URL"
    )


def test_every_queue_is_a_standard_one_whose_message_groups_share_the_workers(
    plain: Template,
) -> None:
    """Only in standard queues a group of many messages leaves room for others."""
    queues = of_type(plain, QUEUE).values()

    assert not any("FifoQueue" in queue for queue in queues)


def test_every_queue_is_encrypted_and_rejects_plain_text(plain: Template) -> None:
    queues = of_type(plain, QUEUE)

    policies = of_type(plain, "AWS::SQS::QueuePolicy").values()
    guarded = {queue["Ref"] for policy in policies for queue in policy["Queues"]}

    assert len(queues) == 4
    assert all(queue["SqsManagedSseEnabled"] for queue in queues.values())
    assert guarded == set(queues)
    for policy in policies:
        assert {"Bool": {"aws:SecureTransport": "false"}} in [
            each.get("Condition") for each in policy["PolicyDocument"]["Statement"]
        ]


@pytest.mark.parametrize(
    ("kind", "service", "batch", "concurrency"),
    [("ARRIVALS", "planner", 10, 5), ("EXTENTS", "worker", 1, 100)],
)
def test_messages_are_handed_over_in_batches_of_which_a_part_may_fail(
    plain: Template, kind: str, service: str, batch: int, concurrency: int
) -> None:
    queue = variable(plain, f"EXTENTFLOW_{kind}_QUEUE_URL")

    (mapping,) = (
        mapping
        for mapping in of_type(plain, MAPPING).values()
        if mapping["EventSourceArn"]["Fn::GetAtt"][0] == queue
    )

    target = mapping["FunctionName"]["Ref"]
    named = environment(of_type(plain, "AWS::Lambda::Function")[target])
    assert named["POWERTOOLS_SERVICE_NAME"] == service
    assert mapping["BatchSize"] == batch
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": concurrency}


@pytest.mark.parametrize(("service", "most"), [("planner", 20), ("worker", 100)])
def test_pollers_of_a_stage_replace_the_limit_of_concurrency(
    templates: Templates, service: str, most: int
) -> None:
    """AWS refuses both together; a poller invokes ten at a time, so their number is a limit."""
    (mapping,) = (
        one
        for one in of_type(templates("canary"), MAPPING).values()
        if f"{service.title()}Live" in str(one["FunctionName"])
    )

    assert mapping["ProvisionedPollerConfig"] == {"MinimumPollers": 2, "MaximumPollers": most // 10}
    assert "ScalingConfig" not in mapping


@pytest.mark.parametrize("service", FUNCTIONS)
def test_functions_run_pythons_that_the_layers_are_built_for(plain: Template, service: str) -> None:
    found = function(plain, service)

    assert found["Runtime"] == "python3.13"
    assert found["Architectures"] == ["arm64"]
    assert found["Handler"] == "handler.handler"
    assert len(found["Layers"]) == 2


def test_a_worker_has_one_vcpu_and_ends_before_its_message_is_redelivered(
    plain: Template,
) -> None:
    worker = function(plain, "worker")

    assert worker["MemorySize"] == 1769
    assert worker["Timeout"] == 170


@pytest.mark.parametrize("service", ["planner", "worker"])
def test_trap_t10_a_function_ends_before_its_messages_are_redelivered(
    plain: Template, service: str
) -> None:
    queues = of_type(plain, QUEUE).values()

    hidden = [queue["VisibilityTimeout"] for queue in queues if "RedrivePolicy" in queue]

    assert function(plain, service)["Timeout"] < min(hidden)


def test_the_reconciler_runs_every_five_minutes_and_is_not_called_again(plain: Template) -> None:
    plain.has_resource_properties(
        "AWS::Events::Rule",
        {
            "ScheduleExpression": "rate(5 minutes)",
            "Targets": [Match.object_like({"RetryPolicy": {"MaximumRetryAttempts": 0}})],
        },
    )
    assert function(plain, "reconciler")["Timeout"] < 5 * 60


@pytest.mark.parametrize("stage", STAGES)
def test_no_function_gets_an_event_that_nobody_waits_for(templates: Templates, stage: str) -> None:
    """Lambda keeps events for six hours, and repeats failed invocations twice, if not limited."""
    template = templates(stage)
    limits = {
        one["FunctionName"]["Ref"]: (one["MaximumEventAgeInSeconds"], one["MaximumRetryAttempts"])
        for one in of_type(template, "AWS::Lambda::EventInvokeConfig").values()
    }
    aliases = of_type(template, "AWS::Lambda::Alias")
    named = {name: one["FunctionName"]["Ref"] for name, one in aliases.items()}
    targets = {
        target["Arn"]["Ref"] if "Ref" in target["Arn"] else target["Arn"]["Fn::GetAtt"][0]
        for rule in of_type(template, "AWS::Events::Rule").values()
        for target in rule["Targets"]
    }
    scheduled = {
        name
        for name in (named.get(target, target) for target in targets)
        if name in of_type(template, "AWS::Lambda::Function")
    }
    waiting: dict[str, int] = {}
    for one in template.to_json()["Resources"].values():
        if "ServiceToken" in one.get("Properties", {}):
            name = one["Properties"]["ServiceToken"]["Fn::GetAtt"][0]
            hour = 3_600
            waiting[name] = min(
                waiting.get(name, hour), int(one["Properties"].get("ServiceTimeout", hour))
            )

    assert scheduled
    assert waiting
    assert limits.keys() == scheduled | waiting.keys()
    assert all(limits[name] == (300, 0) for name in scheduled)
    assert all(limits[name][0] <= seconds for name, seconds in waiting.items())


def test_a_flood_of_requests_leaves_the_accounts_concurrency_to_others(
    bench: Bench, plain: Template
) -> None:
    assert function(plain, "receiver")["ReservedConcurrentExecutions"] == 20
    assert "ReservedConcurrentExecutions" not in function(plain, "worker")
    assert PLAIN.receiver is not None
    template = bench.template(replace(PLAIN, receiver=replace(PLAIN.receiver, concurrency=3)))

    assert function(template, "receiver")["ReservedConcurrentExecutions"] == 3


@pytest.mark.parametrize("stage", ["plain", "vpc"])
@pytest.mark.parametrize("service", [*FUNCTIONS, "provider"])
def test_the_library_accepts_every_functions_environment(
    templates: Templates, stage: str, service: str
) -> None:
    found = environment(function(templates(stage), service))
    reported = {name: _deployed(name, value) for name, value in found.items()}

    settings = load(reported, read_text=_no_file)

    assert settings.extents_queue_url == "https://EXTENTFLOW_EXTENTS_QUEUE_URL"
    assert settings.event_bus == "default"
    assert found["POWERTOOLS_METRICS_NAMESPACE"] == f"extentflow/{stage}"


def test_settings_of_a_stage_reach_the_functions(bench: Bench) -> None:
    settings = {"lease.seconds": "30", "kafka.client.id": "shop", "retry.timeout.seconds": "9"}
    template = bench.template(replace(PLAIN, settings=settings))

    found = environment(function(template, "worker"))

    assert found["EXTENTFLOW_LEASE_SECONDS"] == "30"
    assert found["EXTENTFLOW_KAFKA_CLIENT_ID"] == "shop"
    assert found["EXTENTFLOW_RETRY_TIMEOUT_SECONDS"] == "9"


@pytest.mark.parametrize("service", FUNCTIONS)
def test_functions_hand_back_what_cannot_be_done_now(templates: Templates, service: str) -> None:
    found = environment(function(templates("plain"), service))

    assert float(found["EXTENTFLOW_RETRY_TIMEOUT_SECONDS"]) < 25  # the worker's margin


@pytest.mark.parametrize("service", FUNCTIONS)
def test_info_lines_of_the_library_are_logged(templates: Templates, service: str) -> None:
    said = function(templates("plain"), service)["LoggingConfig"]

    assert (said["LogFormat"], said["ApplicationLogLevel"]) == ("JSON", "INFO")
    assert "LogGroup" in said


def test_the_http_endpoint_hands_everything_to_the_receiver_in_payload_2(plain: Template) -> None:
    plain.has_resource_properties(
        "AWS::ApiGatewayV2::Integration",
        {"IntegrationType": "AWS_PROXY", "PayloadFormatVersion": "2.0"},
    )
    plain.has_resource_properties("AWS::ApiGatewayV2::Route", {"RouteKey": "$default"})
    plain.has_resource_properties("AWS::ApiGatewayV2::Api", {"ProtocolType": "HTTP"})
    assert function(plain, "receiver")["Timeout"] < 30


def test_the_access_log_never_holds_the_path_for_it_may_be_a_secret(plain: Template) -> None:
    (stage,) = of_type(plain, "AWS::ApiGatewayV2::Stage").values()

    written = stage["AccessLogSettings"]["Format"]

    assert "$context.status" in written
    assert "path" not in written.lower()
    assert "routeKey" not in written


def test_a_stage_without_receiver_has_no_endpoint(templates: Templates) -> None:
    template = templates("existing")

    template.resource_count_is("AWS::ApiGatewayV2::Api", 0)
    template.resource_count_is("AWS::Lambda::Url", 0)
    assert "ReceiverUrl" not in template.find_outputs("*")
    with pytest.raises(LookupError):
        function(template, "receiver")


def test_outputs_name_endpoint_queues_and_table(plain: Template) -> None:
    assert set(plain.find_outputs("*")) == {
        "ReceiverUrl",
        "ArrivalsQueueUrl",
        "ArrivalsDlqUrl",
        "ExtentsQueueUrl",
        "ExtentsDlqUrl",
        "LedgerTable",
    }


def test_a_function_without_code_is_reported_by_its_path(bench: Bench) -> None:
    (bench.root / "functions/worker/handler.py").unlink()

    with pytest.raises(Misconfigured, match=r"functions/worker/handler\.py: no such file"):
        bench.stack(PLAIN)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_projects_own_functions_are_where_the_stack_looks(name: str) -> None:
    assert (Project().functions / name / "handler.py").is_file()


def _deployed(name: str, value: object) -> str:
    """Return what a variable may hold when deployed: tokens become something of their kind."""
    if isinstance(value, str):
        return value
    return f"https://{name}" if name.endswith("_URL") else "table"


def _no_file(_path: str) -> None:
    """Find no file of settings."""


@pytest.mark.parametrize(
    ("service", "loop"), [("planner", "Allow"), ("worker", "Allow"), ("reconciler", None)]
)
def test_functions_that_send_to_their_own_queue_may_recurse(
    templates: Templates, service: str, loop: str | None
) -> None:
    """Lambda would drop a chain of messages after about 16 invocations."""
    assert function(templates("plain"), service).get("RecursiveLoop") == loop
