"""However a bucket announces its objects, the announcement reaches the arrivals queue."""

import json
from dataclasses import replace
from typing import Any

from aws_cdk.assertions import Match, Template
from infra.config import Bucket, BucketNotification
from tests.infra.conftest import Templates
from tests.support.synthesis import PLAIN, Bench, environment, function, of_type, yaml_of

BUCKET = "AWS::S3::Bucket"
RULE = "AWS::Events::Rule"
SWITCH = "Custom::S3BucketNotifications"


def arrivals(template: Template) -> tuple[str, str]:
    """Return the logical ids of the arrivals queue and of its dead letter queue."""
    found = environment(function(template, "planner"))
    return (
        found["EXTENTFLOW_ARRIVALS_QUEUE_URL"]["Ref"],
        found["EXTENTFLOW_ARRIVALS_DLQ_URL"]["Ref"],
    )


def senders(template: Template, queue: str) -> list[dict[str, Any]]:
    """Return who is allowed to send to a queue."""
    return [
        statement
        for policy in of_type(template, "AWS::SQS::QueuePolicy").values()
        if {"Ref": queue} in policy["Queues"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]


def test_a_new_bucket_uses_eventbridge_and_one_rule(templates: Templates) -> None:
    template = templates("plain")
    queue, dead = arrivals(template)

    template.has_resource_properties(
        BUCKET,
        {
            "BucketName": "landing",
            "NotificationConfiguration": {"EventBridgeConfiguration": {"EventBridgeEnabled": True}},
        },
    )
    template.has_resource_properties(
        RULE,
        {
            "EventPattern": {
                "source": ["aws.s3"],
                "detail-type": ["Object Created"],
                "detail": {"bucket": {"name": ["landing"]}},
            },
            "Targets": [
                Match.object_like(
                    {
                        "Arn": {"Fn::GetAtt": [queue, "Arn"]},
                        "DeadLetterConfig": {"Arn": {"Fn::GetAtt": [dead, "Arn"]}},
                    }
                )
            ],
        },
    )
    for each in (queue, dead):
        (sender,) = senders(template, each)
        assert sender["Principal"] == {"Service": "events.amazonaws.com"}


def test_a_new_bucket_is_private_encrypted_versioned_and_kept(templates: Templates) -> None:
    templates("plain").has_resource(
        BUCKET,
        {
            "DeletionPolicy": "RetainExceptOnCreate",
            "Properties": {
                "VersioningConfiguration": {"Status": "Enabled"},
                "BucketEncryption": Match.any_value(),
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
            },
        },
    )


def test_a_new_bucket_notifies_the_queue_after_its_policy_exists(bench: Bench) -> None:
    bucket = Bucket(name="landing", announced=BucketNotification.DIRECT)
    template = bench.template(replace(PLAIN, buckets=(bucket,)))
    queue, _ = arrivals(template)

    (made,) = template.find_resources(BUCKET).values()

    (reported,) = made["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert reported == {"Event": "s3:ObjectCreated:*", "Queue": {"Fn::GetAtt": [queue, "Arn"]}}
    policies = template.find_resources("AWS::SQS::QueuePolicy")
    (before,) = (name for name in made["DependsOn"] if name in policies)
    assert {"Ref": queue} in policies[before]["Properties"]["Queues"]
    (sender,) = senders(template, queue)
    assert sender["Principal"] == {"Service": "s3.amazonaws.com"}
    assert sender["Condition"]["ArnEquals"] == {"aws:SourceArn": "arn:aws:s3:::landing"}
    assert sender["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}


def test_existing_buckets_keep_their_own_notifications(
    templates: Templates,
) -> None:
    template = templates("existing")

    found = {one["BucketName"]: one for one in of_type(template, SWITCH).values()}

    assert set(found) == {"landing", "direct"}
    assert found["landing"]["NotificationConfiguration"] == {"EventBridgeConfiguration": {}}
    assert found["direct"]["NotificationConfiguration"]["QueueConfigurations"]
    assert all(one["Managed"] is False for one in found.values())


def test_only_buckets_that_exist_may_be_changed(templates: Templates) -> None:
    (role,) = (
        role
        for role in of_type(templates("existing"), "AWS::IAM::Role").values()
        if role["Description"] == "Adds notifications to existing buckets"
    )

    statement, log = role["Policies"][0]["PolicyDocument"]["Statement"]
    assert log["Sid"] == "WriteLog"

    assert statement["Action"] == ["s3:GetBucketNotification", "s3:PutBucketNotification"]
    assert statement["Resource"] == ["arn:aws:s3:::landing", "arn:aws:s3:::direct"]


def test_new_buckets_need_no_function_to_be_reported(templates: Templates) -> None:
    templates("plain").resource_count_is(SWITCH, 0)


def test_every_bucket_that_uses_eventbridge_is_in_the_rule(bench: Bench) -> None:
    buckets = (
        Bucket(name="landing"),
        Bucket(name="older", exists=True),
        Bucket(name="other", announced=BucketNotification.DIRECT),
    )
    template = bench.template(replace(PLAIN, buckets=buckets))

    template.has_resource_properties(
        RULE, {"EventPattern": {"detail": {"bucket": {"name": ["landing", "older"]}}}}
    )


def test_a_stage_of_other_stores_needs_no_bucket(bench: Bench) -> None:
    grid = {
        "name": "grid",
        "topic": "orders",
        "endpoint.type": "storagegrids3",
        "aws.s3.endpoint": "https://grid.example.com:10443",
        "aws.s3.bucket.name": "orders",
    }
    bench.write("connectors/orders.yaml", yaml_of(grid))

    template = bench.template(replace(PLAIN, buckets=()))

    assert not of_type(template, BUCKET)
    assert '"s3:' not in json.dumps(template.to_json())
