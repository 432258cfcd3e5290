"""However a bucket announces its objects, the announcement reaches the arrivals queue."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template
from infra.config import Bucket, BucketNotification, Unmatched
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    ANOTHER_ACCOUNT,
    ORDERS,
    PLAIN,
    Bench,
    environment,
    function,
    of_type,
    yaml_of,
)

from extentflow.errors import Misconfigured

BUCKET = "AWS::S3::Bucket"
RULE = "AWS::Events::Rule"
SWITCH = "Custom::S3BucketNotifications"
BUS = "AWS::Events::EventBusPolicy"


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
                "account": [{"Ref": "AWS::AccountId"}],
                "detail": {
                    "bucket": {"name": ["landing"]},
                    "object": {"key": [{"prefix": "orders/"}]},
                },
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


def test_a_bucket_that_stays_keeps_its_policy(templates: Templates) -> None:
    """Without it, the bucket would take requests without TLS."""
    (policy,) = templates("plain").find_resources("AWS::S3::BucketPolicy").values()

    assert policy["DeletionPolicy"] == "RetainExceptOnCreate"
    assert policy["UpdateReplacePolicy"] == "Retain"


def test_a_new_bucket_notifies_the_queue_after_its_policy_exists(bench: Bench) -> None:
    bucket = Bucket(name="landing", announced=BucketNotification.DIRECT)
    template = bench.template(replace(PLAIN, buckets=(bucket,)))
    queue, _ = arrivals(template)

    (made,) = template.find_resources(BUCKET).values()

    (reported,) = made["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert reported == {
        "Event": "s3:ObjectCreated:*",
        "Queue": {"Fn::GetAtt": [queue, "Arn"]},
        "Filter": {"S3Key": {"Rules": [{"Name": "prefix", "Value": "orders/"}]}},
    }
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
    (handler,) = (
        one
        for one in of_type(templates("existing"), "AWS::Lambda::Function").values()
        if one["Role"]["Fn::GetAtt"][0].startswith("BucketsRole")
    )
    (group,) = handler["LoggingConfig"].values()
    assert log["Resource"] == {"Fn::GetAtt": [group["Ref"], "Arn"]}
    assert group["Ref"] in of_type(templates("existing"), "AWS::Logs::LogGroup")
    assert statement["Action"] == ["s3:GetBucketNotification", "s3:PutBucketNotification"]
    assert statement["Resource"] == ["arn:aws:s3:::landing", "arn:aws:s3:::direct"]


def test_new_buckets_need_no_function_to_be_reported(templates: Templates) -> None:
    templates("plain").resource_count_is(SWITCH, 0)


def connector(bench: Bench, number: int, bucket: str, prefix: str, **others: str) -> None:
    written = {"name": f"orders-{number}", "topic": "orders", "aws.s3.bucket.name": bucket}
    prefixed = {"aws.s3.prefix": prefix} if prefix else {}
    changed = {key.replace("_", "."): value for key, value in others.items()}
    bench.write(f"connectors/orders-{number}.yaml", yaml_of(written | prefixed | changed))


def details(template: Template) -> list[dict[str, Any]]:
    """Return the detail of each pattern of S3's events."""
    return [one["detail"] for one in patterns(template)]


def patterns(template: Template) -> list[dict[str, Any]]:
    found = [rule.get("EventPattern", {}) for rule in of_type(template, RULE).values()]
    return [one for one in found if one.get("source") == ["aws.s3"]]


def entry(names: list[str], *prefixes: str) -> dict[str, Any]:
    keys = {"object": {"key": [{"prefix": one} for one in prefixes]}} if prefixes else {}
    return {"bucket": {"name": names}} | keys


def test_objects_that_connectors_read_are_announced_and_no_others(bench: Bench) -> None:
    """Prefixes within another one are left out: a second rule would announce objects twice."""
    for number, (bucket, prefix) in enumerate(
        [
            ("landing", "orders/2025/"),
            ("landing", "refunds/"),
            ("older", "orders/"),
            ("older", "refunds/"),
            ("all", ""),
            ("all", "in/"),
        ]
    ):
        connector(bench, number, bucket, prefix)
    buckets = (
        *(Bucket(name=name, exists=True) for name in ("landing", "older", "all", "moved")),
        Bucket(name="other", announced=BucketNotification.DIRECT),
    )

    template = bench.template(replace(PLAIN, buckets=buckets))

    (detail,) = details(template)
    assert detail == {"$or": [entry(["landing", "older"], "orders/", "refunds/"), entry(["all"])]}
    switched = of_type(template, SWITCH).values()
    assert {one["BucketName"] for one in switched} == {"landing", "older", "all"}
    (unread,) = of_type(template, BUCKET).values()
    assert not unread["NotificationConfiguration"].get("QueueConfigurations")
    assert environment(function(template, "planner"))["EXTENTFLOW_ARRIVALS_UNMATCHED"] == "ignore"


def test_unmatched_objects_are_announced_where_a_stage_reports_them(bench: Bench) -> None:
    buckets = (
        Bucket(name="landing"),
        Bucket(name="older", exists=True),
        Bucket(name="other", announced=BucketNotification.DIRECT),
    )
    stage = replace(PLAIN, buckets=buckets, unmatched=Unmatched.DEAD_LETTER)

    template = bench.template(stage)

    assert details(template) == [entry(["landing", "older"])]
    found = {one["BucketName"]: one for one in of_type(template, BUCKET).values()}
    (reported,) = found["other"]["NotificationConfiguration"]["QueueConfigurations"]
    assert "Filter" not in reported
    variables = environment(function(template, "planner"))
    assert variables["EXTENTFLOW_ARRIVALS_UNMATCHED"] == "dead-letter"


@pytest.mark.parametrize("exists", [False, True])
def test_filters_of_s3_are_encoded_and_never_overlap(bench: Bench, *, exists: bool) -> None:
    """S3 rejects filters of which one is within another; a space is `+`, others are encoded."""
    (bench.root / "connectors" / "orders.yaml").unlink()
    for number, prefix in enumerate(["in/", "in/eu/", "year=2025/", "grüße an/"]):
        connector(bench, number, "landing", prefix)
    bucket = Bucket(name="landing", announced=BucketNotification.DIRECT, exists=exists)

    template = bench.template(replace(PLAIN, buckets=(bucket,)))

    (made,) = of_type(template, SWITCH if exists else BUCKET).values()
    queues = made["NotificationConfiguration"]["QueueConfigurations"]
    key, rules = ("Key", "FilterRules") if exists else ("S3Key", "Rules")
    found = [one["Filter"][key][rules] for one in queues]
    assert [[rule["Value"] for rule in one] for one in found] == [
        ["gr%C3%BC%C3%9Fe+an/"],
        ["in/"],
        ["year%3D2025/"],
    ]
    assert {rule["Name"].lower() for one in found for rule in one} == {"prefix"}


def test_a_bucket_that_others_manage_is_admitted_and_not_written(bench: Bench) -> None:
    bucket = Bucket(name="landing", exists=True, announced=BucketNotification.ELSEWHERE)

    template = bench.template(replace(PLAIN, buckets=(bucket,)))

    queue, _ = arrivals(template)
    assert details(template) == [entry(["landing"], "orders/")]
    admitted = {one["Principal"]["Service"]: one for one in senders(template, queue)}
    assert admitted["s3.amazonaws.com"]["Condition"] == {
        "ArnEquals": {"aws:SourceArn": "arn:aws:s3:::landing"},
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
    }
    assert not any(of_type(template, kind) for kind in (BUCKET, SWITCH, BUS))


def test_a_bucket_of_another_account_announces_through_the_bus_or_to_the_queue(
    bench: Bench,
) -> None:
    """Its events count only as those of its account, and the bus takes no others from there."""
    role = "arn:aws:iam::444455556666:role/reader"
    connector(bench, 1, "theirs", "in/", aws_sts_role_arn=role)
    theirs = Bucket(
        name="theirs", exists=True, announced=BucketNotification.ELSEWHERE, account=ANOTHER_ACCOUNT
    )

    template = bench.template(replace(PLAIN, buckets=(Bucket(name="landing"), theirs)))

    assert {str(one["account"]): one["detail"] for one in patterns(template)} == {
        "[{'Ref': 'AWS::AccountId'}]": entry(["landing"], "orders/"),
        f"['{ANOTHER_ACCOUNT}']": entry(["theirs"], "in/"),
    }
    queue, _ = arrivals(template)
    (sender,) = (one for one in senders(template, queue) if "s3." in str(one["Principal"]))
    assert sender["Condition"] == {
        "ArnEquals": {"aws:SourceArn": "arn:aws:s3:::theirs"},
        "StringEquals": {"aws:SourceAccount": ANOTHER_ACCOUNT},
    }
    (bus,) = of_type(template, BUS).values()
    assert bus["Statement"]["Principal"] == {"AWS": f"arn:aws:iam::{ANOTHER_ACCOUNT}:root"}
    assert bus["Statement"]["Condition"]["StringEquals"]["events:source"] == "aws.s3"
    assert bus["StatementId"] == bus["Statement"]["Sid"] == f"extentflow-plain-{ANOTHER_ACCOUNT}"


@pytest.mark.parametrize(
    ("bucket", "reported"),
    [
        (
            Bucket(name="landing", announced=BucketNotification.ELSEWHERE),
            "landing: announced=ELSEWHERE is for a bucket that others manage; set exists=True",
        ),
        (
            Bucket(name="landing", exists=True, account=ANOTHER_ACCOUNT),
            f"notifications of a bucket of account {ANOTHER_ACCOUNT}; set announced=ELSEWHERE",
        ),
        (
            Bucket(
                name="landing",
                exists=True,
                announced=BucketNotification.ELSEWHERE,
                account="4444-5555",
            ),
            "buckets[landing].account=4444-5555: write twelve digits",
        ),
    ],
)
def test_a_bucket_of_others_is_declared_as_such(bucket: Bucket, reported: str) -> None:
    with pytest.raises(Misconfigured, match=re.escape(reported)):
        replace(PLAIN, buckets=(bucket,)).check()


def test_a_bucket_of_another_region_is_refused_with_the_way_on(bench: Bench) -> None:
    bench.write("connectors/orders.yaml", yaml_of(ORDERS | {"aws.s3.region": "eu-west-1"}))
    bucket = Bucket(name="landing", exists=True)

    with pytest.raises(Misconfigured) as caught:
        bench.stack(replace(PLAIN, buckets=(bucket,)))

    (problem,) = caught.value.problems
    assert "aws.s3.region=eu-west-1: notifications of landing do not leave that region" in problem
    assert "with a stage in eu-west-1. Or set announced=ELSEWHERE: listings" in problem
    elsewhere = replace(bucket, announced=BucketNotification.ELSEWHERE)
    assert details(bench.template(replace(PLAIN, buckets=(elsewhere,))))


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
