"""Which services may call, publish and send, from where; and whether every role can log."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk.assertions import Template
from tests.infra.conftest import Templates
from tests.support.synthesis import ANOTHER_ACCOUNT, STAGES, of_type

SOURCES = {"aws:SourceArn", "aws:SourceAccount"}
POLICIES = (
    "AWS::SQS::QueuePolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::S3::BucketPolicy",
    "AWS::KMS::Key",
    "AWS::Events::EventBusPolicy",
)
PERMISSION = "AWS::Lambda::Permission"
ACCOUNT = {"Ref": "AWS::AccountId"}


@pytest.fixture(params=STAGES)
def template(request: pytest.FixtureRequest, templates: Templates) -> Template:
    return templates(request.param)


def test_every_service_that_is_admitted_is_admitted_for_this_account_only(
    template: Template,
) -> None:
    """Without the condition, the service would act for anyone who names the queue or topic."""
    admitted = list(_admitted(template))

    assert admitted
    assert not [statement for statement in admitted if not _bounded(statement)]


def test_every_service_that_invokes_a_function_does_it_for_one_source(template: Template) -> None:
    permissions = list(of_type(template, PERMISSION).values())

    assert permissions
    assert not [each for each in permissions if not {"SourceArn", "SourceAccount"} & each.keys()]


def test_a_bucket_that_exists_is_admitted_with_its_account(templates: Templates) -> None:
    """Names of deleted buckets can be taken by other accounts."""
    (statement,) = (
        statement
        for statement in _admitted(templates("existing"))
        if "arn:aws:s3:::direct'" in str(statement.get("Condition"))
    )

    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ["arn:aws:s3:::direct", "arn:aws:s3:::direct-new"]},
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
    }


def test_a_bucket_that_exists_waits_for_the_queue_to_admit_it(templates: Templates) -> None:
    """S3 sends a test message at once, and rejects the setting if it is refused."""
    found = templates("existing").find_resources("Custom::S3BucketNotifications")

    (waiting,) = (one for one in found.values() if one["Properties"]["BucketName"] == "direct")

    assert any(name.startswith("ArrivalsQueuePolicy") for name in waiting["DependsOn"])


def test_the_role_of_every_function_can_log(template: Template) -> None:
    roles = of_type(template, "AWS::IAM::Role")
    functions = of_type(template, "AWS::Lambda::Function").values()

    used = {one["Role"]["Fn::GetAtt"][0] for one in functions}

    assert used
    for name in used:
        written = json.dumps(roles[name]["Policies"])
        assert "logs:CreateLogStream" in written, name
        assert "logs:PutLogEvents" in written, name


def _admitted(template: Template) -> Iterator[dict[str, Any]]:
    """Yield what resource policies allow to services."""
    for kind in POLICIES:
        for policy in of_type(template, kind).values():
            document = policy.get("PolicyDocument") or policy.get("KeyPolicy")
            for statement in document["Statement"] if document else ():
                principal = statement["Principal"]
                if statement["Effect"] == "Allow" and "Service" in principal:
                    yield statement


def _bounded(statement: dict[str, Any]) -> bool:
    """Whether the source is one of this account, or of that which the stage names.

    An ARN of S3 contains no account.
    """
    conditions = statement.get("Condition", {})
    given = {key: value for each in conditions.values() for key, value in each.items()}
    if ":s3:::" in str(given.get("aws:SourceArn")):
        owner = ANOTHER_ACCOUNT if ":s3:::theirs" in str(given) else ACCOUNT
        return given.get("aws:SourceAccount") == owner
    return bool(SOURCES & given.keys())
