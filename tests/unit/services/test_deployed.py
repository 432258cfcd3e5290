"""`doctor --deployed`: what works in a stage, what does not, and the remedy."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from tests.support.aws_answers import Answers, Client, refused

from extentflow.errors import Retryable
from extentflow.retry import Clock
from extentflow.services.deployed import DeployedStage
from extentflow.services.health import Finding

NOW = 1_800_000_000.0
TOPIC = "arn:aws:sns:eu-central-1:111122223333:alarms"
URL = "https://id.execute-api.eu-central-1.amazonaws.com/"
QUEUES = ("ArrivalsQueueUrl", "ExtentsQueueUrl", "ArrivalsDlqUrl", "ExtentsDlqUrl")
SERVICES = ("planner", "worker", "reconciler", "receiver")


def working() -> Answers:
    """What AWS answers about a stage in which everything works, by service and operation."""
    outputs = {"LedgerTable": "ledger", "ReceiverUrl": URL, "SparkApplicationId": "app"}
    outputs |= {name: f"https://sqs/{name}" for name in QUEUES}
    resources = [("AWS::Lambda::Function", name) for name in (*SERVICES, "cdk-handler")]
    resources += [("AWS::Events::Rule", "default|reconcile")]
    return {
        ("cloudformation", "describe_stacks"): {
            "Stacks": [
                {
                    "StackStatus": "CREATE_COMPLETE",
                    "Outputs": [
                        {"OutputKey": key, "OutputValue": value} for key, value in outputs.items()
                    ],
                }
            ]
        },
        ("cloudformation", "list_stack_resources"): pages(resources),
        ("dynamodb", "describe_table"): {"Table": {"TableStatus": "ACTIVE"}},
        ("dynamodb", "describe_continuous_backups"): recovery("ENABLED"),
        ("sqs", "get_queue_attributes"): lambda _request: depth(0, 2),
        ("lambda", "get_function_configuration"): lambda request: function(request["FunctionName"]),
        ("lambda", "get_function_recursion_config"): {"RecursiveLoop": "Allow"},
        ("lambda", "list_event_source_mappings"): mapping("Enabled"),
        ("lambda", "get_account_settings"): concurrency(1_000),
        ("events", "describe_rule"): {"Name": "reconcile", "State": "ENABLED"},
        ("ec2", "describe_vpc_attribute"): dns(on=True),
        ("cloudwatch", "describe_alarms"): {"MetricAlarms": [alarm()]},
        ("sns", "list_subscriptions_by_topic"): subscribed(f"{TOPIC}:1"),
        ("emr-serverless", "get_application"): {"application": {"state": "STOPPED"}},
        ("logs", "filter_log_events"): {"events": []},
    }


def pages(resources: list[tuple[str, str]]) -> Callable[..., Any]:
    """Answer one resource per page."""

    def answer(request: Mapping[str, str]) -> dict[str, Any]:
        assert request["StackName"] == "extentflow-dev"
        number = int(request.get("NextToken", "0"))
        kind, name = resources[number]
        more = {"NextToken": str(number + 1)} if number + 1 < len(resources) else {}
        found = [{"ResourceType": kind, "PhysicalResourceId": name}]
        return {"StackResourceSummaries": found, **more}

    return answer


def function(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    own = {"POWERTOOLS_SERVICE_NAME": name} if name in SERVICES else {}
    return {
        "FunctionName": name,
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "Environment": {"Variables": own},
        "VpcConfig": {"VpcId": "" if name == "receiver" else "vpc-1"},
        "LoggingConfig": {"LogGroup": f"log-{name}"},
        **changes,
    }


def mapping(state: str) -> Callable[..., Any]:
    found = {"UUID": "u-1", "State": state, "ScalingConfig": {"MaximumConcurrency": 100}}
    fed = ("planner", "worker")
    return lambda request: {
        "EventSourceMappings": [found] if request["FunctionName"] in fed else []
    }


def depth(waiting: int, taken: int) -> dict[str, Any]:
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    return {"Attributes": dict(zip(names, map(str, (waiting, taken)), strict=True))}


def recovery(status: str) -> dict[str, Any]:
    return {
        "ContinuousBackupsDescription": {
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status}
        }
    }


def concurrency(count: int) -> dict[str, Any]:
    return {"AccountLimit": {"UnreservedConcurrentExecutions": count}}


def dns(*, on: bool) -> Callable[..., Any]:
    def answer(request: Mapping[str, str]) -> dict[str, Any]:
        attribute = request["Attribute"]
        return {f"{attribute[0].upper()}{attribute[1:]}": {"Value": on}}

    return answer


def alarm(state: str = "OK", **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    name = "extentflow-dev-AlarmsErrors"
    return {
        "AlarmName": name,
        "StateValue": state,
        "StateReason": "1 datapoint was above",
        "ActionsEnabled": True,
        "AlarmActions": [TOPIC],
        **changes,
    }


def subscribed(*arns: str) -> dict[str, Any]:
    return {"Subscriptions": [{"SubscriptionArn": arn} for arn in arns]}


def examined(changes: Answers | None = None, probe: Any = None) -> list[Finding]:  # noqa: ANN401
    answers = {**working(), **(changes or {})}
    stage = DeployedStage(
        "dev",
        open_client=lambda service: Client(service, answers),
        probe=probe or (lambda _url: "extentflow receiver\n"),
        clock=Clock(wall=lambda: NOW),
    )
    return list(stage.examine())


def only(findings: list[Finding]) -> Finding:
    """Return the one finding that is not ok."""
    (found,) = (one for one in findings if one.verdict != "ok")
    return found


def test_a_stage_that_works_has_no_finding_but_ok() -> None:
    findings = examined()

    assert {one.verdict for one in findings} == {"ok"}
    assert {one.check for one in findings} == {
        "stack",
        "ledger table",
        *(name.removesuffix("Url") for name in QUEUES),
        *(f"function {name}" for name in SERVICES),
        "messages of planner",
        "messages of worker",
        "rule",
        "account",
        "network",
        "alarms",
        "alarm topic",
        "receiver",
        "Spark",
        *(f"log of {name}" for name in SERVICES),
    }


BROKEN: Mapping[str, tuple[Answers, str, str, str]] = {
    "a stack that failed": (
        {("cloudformation", "describe_stacks"): {"Stacks": [{"StackStatus": "ROLLBACK_FAILED"}]}},
        "stack",
        "ROLLBACK_FAILED",
        "make deploy",
    ),
    "a table that is being deleted": (
        {("dynamodb", "describe_table"): {"Table": {"TableStatus": "DELETING"}}},
        "ledger table",
        "DELETING",
        "restore it",
    ),
    "no recovery": (
        {("dynamodb", "describe_continuous_backups"): recovery("DISABLED")},
        "ledger table",
        "ledger: ACTIVE",
        "enable point-in-time recovery",
    ),
    "dead letters": (
        {
            ("sqs", "get_queue_attributes"): lambda request: depth(
                3 * request["QueueUrl"].endswith("ExtentsDlqUrl"), 0
            )
        },
        "ExtentsDlq",
        "3 messages waiting",
        "extentflow redrive --dry-run",
    ),
    "a function that failed to start": (
        {
            ("lambda", "get_function_configuration"): lambda request: function(
                request["FunctionName"],
                State="Failed" if request["FunctionName"] == "worker" else "Active",
                StateReason="no free address",
            )
        },
        "function worker",
        "no free address",
        "free addresses",
    ),
    "recursive loop detection": (
        {
            ("lambda", "get_function_recursion_config"): lambda request: {
                "RecursiveLoop": "Terminate" if request["FunctionName"] == "planner" else "Allow"
            }
        },
        "function planner",
        "recursive loop detection is Terminate",
        "set it to Allow",
    ),
    "a rule that is off": (
        {("events", "describe_rule"): {"Name": "reconcile", "State": "DISABLED"}},
        "rule",
        "reconcile is DISABLED",
        "aws events enable-rule --name reconcile",
    ),
    "little concurrency": (
        {("lambda", "get_account_settings"): concurrency(10)},
        "account",
        "10 concurrent invocations are allowed, 200 are configured",
        "Concurrent executions",
    ),
    "no DNS": (
        {("ec2", "describe_vpc_attribute"): dns(on=False)},
        "network",
        "vpc-1: enableDnsSupport, enableDnsHostnames off",
        "private names of interface endpoints",
    ),
    "an alarm that rings": (
        {("cloudwatch", "describe_alarms"): {"MetricAlarms": [alarm("ALARM")]}},
        "alarm",
        "Errors: 1 datapoint was above",
        "docs/operations.md",
    ),
    "alarms without actions": (
        {("cloudwatch", "describe_alarms"): {"MetricAlarms": [alarm(ActionsEnabled=False)]}},
        "alarms",
        "1 notify no topic",
        "enable-alarm-actions",
    ),
    "no alarms": (
        {("cloudwatch", "describe_alarms"): {"MetricAlarms": []}},
        "alarms",
        "none begins with extentflow-dev-Alarms",
        "make deploy",
    ),
    "no subscription": (
        {("sns", "list_subscriptions_by_topic"): subscribed()},
        "alarm topic",
        "no subscription",
        "set alarm_email",
    ),
    "a subscription that waits": (
        {("sns", "list_subscriptions_by_topic"): subscribed("PendingConfirmation")},
        "alarm topic",
        "no confirmed subscription",
        "confirm it",
    ),
    "a deleted application": (
        {("emr-serverless", "get_application"): {"application": {"state": "TERMINATED"}}},
        "Spark",
        "application app: TERMINATED",
        "make deploy",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_does_not_work_is_named_with_its_remedy(name: str) -> None:
    changes, check, fact, remedy = BROKEN[name]
    if name == "a stack that failed":  # the rest needs its outputs
        outputs = working()["cloudformation", "describe_stacks"]["Stacks"][0]["Outputs"]
        changes["cloudformation", "describe_stacks"]["Stacks"][0]["Outputs"] = outputs

    found = only(examined(changes))

    assert found.check == check
    assert fact in found.fact
    assert remedy in found.remedy


@pytest.mark.parametrize("state", ["Disabled", "Disabling"])
def test_event_sources_that_are_off_are_named(state: str) -> None:
    findings = examined({("lambda", "list_event_source_mappings"): mapping(state)})

    bad = [one for one in findings if one.verdict == "problem"]
    assert [one.check for one in bad] == ["messages of planner", "messages of worker"]
    assert all("update-event-source-mapping --enabled --uuid u-1" in one.remedy for one in bad)


def test_event_sources_that_are_missing_are_named() -> None:
    missing: Answers = {("lambda", "list_event_source_mappings"): {"EventSourceMappings": []}}

    bad = [one for one in examined(missing) if one.verdict == "problem"]

    assert {one.fact for one in bad} == {"no event source mapping"}


def test_event_sources_of_an_alias_are_found() -> None:
    """Lambda lists the mappings of a function without those of its aliases."""
    alias = "arn:aws:lambda:eu-central-1:111122223333:function:{}:live"
    resources = [("AWS::Lambda::Function", name) for name in SERVICES]
    resources += [("AWS::Lambda::Alias", alias.format(name)) for name in SERVICES]
    fed = {alias.format("planner"), alias.format("worker")}
    found = mapping("Enabled")({"FunctionName": "planner"})["EventSourceMappings"]

    findings = examined(
        {
            ("cloudformation", "list_stack_resources"): pages(resources),
            ("lambda", "list_event_source_mappings"): lambda request: {
                "EventSourceMappings": found if request["FunctionName"] in fed else []
            },
        }
    )

    messages = [one.verdict for one in findings if one.check.startswith("messages of")]
    assert messages == ["ok", "ok"]


def test_the_last_error_of_each_function_is_shown_within_an_hour() -> None:
    asked: list[Any] = []

    def events(request: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(request)
        lines = [(1, "old"), (3, "broker  unavailable\n"), (2, "older")]
        if request["logGroupName"] != "log-worker":
            lines = []
        return {"events": [{"timestamp": at, "message": text} for at, text in lines]}

    found = only(examined({("logs", "filter_log_events"): events}))

    assert found == Finding(
        "log of worker",
        "warning",
        "3 warnings and errors; last: broker unavailable",
        "log-worker",
    )
    assert {one["startTime"] for one in asked} == {int((NOW - 3_600) * 1_000)}


def test_a_receiver_that_does_not_answer_is_named() -> None:
    def silent(url: str) -> str:
        raise Retryable(f"{url}: timed out")

    found = only(examined(probe=silent))

    assert (found.check, found.verdict, found.fact) == ("receiver", "problem", f"{URL}: timed out")


@pytest.mark.parametrize(
    ("error", "fact", "remedy"),
    [
        (refused("ValidationError"), "cloudformation describe_stacks", "deploy the stage"),
        (refused("AccessDenied"), "describe_stacks", "allow cloudformation:DescribeStacks"),
        (NoCredentialsError(), "no AWS credentials", "AWS_PROFILE"),
        (EndpointConnectionError(endpoint_url="https://x"), "EndpointConnectionError", ""),
    ],
)
def test_without_the_stack_its_reason_is_the_only_finding(
    error: Exception, fact: str, remedy: str
) -> None:
    (found,) = examined({("cloudformation", "describe_stacks"): error})

    assert (found.check, found.verdict) == ("stack", "problem")
    assert fact in found.fact
    assert remedy in found.remedy


def test_a_missing_permission_leaves_out_its_check_only() -> None:
    findings = examined({("sqs", "get_queue_attributes"): refused("AccessDenied")})

    found = only(findings)
    assert found.check == "queues"
    assert "allow sqs:GetQueueAttributes" in found.remedy
    assert [one.check for one in findings if one.check.startswith("function")]
