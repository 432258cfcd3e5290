"""A stage's customer managed key encrypts what the stack keeps; each role that uses it may."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.config import Auth, Bucket, BucketNotification, Cluster, Stage, Unmatched
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    KEY_ARN,
    PLAIN,
    SECRET_ARN,
    STAGES,
    Bench,
    allowed,
    of_type,
    statements,
)

from extentflow.errors import Misconfigured

POLICY = Path(__file__).parents[2] / "docs" / "key-policy.json"
OWN_KEY = KEY_ARN.replace(":key/1", ":key/2")
# Where each type of resource names the key of what it keeps.
KEYS = {
    "AWS::CloudWatch::Dashboard": (),  # numbers only
    "AWS::DynamoDB::Table": ("SSESpecification", "KMSMasterKeyId"),
    "AWS::EMRServerless::Application": (),  # disks that end with a run
    "AWS::Lambda::Function": ("KmsKeyArn",),
    "AWS::Logs::LogGroup": ("KmsKeyId",),
    "AWS::S3::Bucket": (
        *("BucketEncryption", "ServerSideEncryptionConfiguration", 0),
        *("ServerSideEncryptionByDefault", "KMSMasterKeyID"),
    ),
    "AWS::SNS::Topic": ("KmsMasterKeyId",),
    "AWS::SQS::Queue": ("KmsMasterKeyId",),
}
# They keep nothing of their own.
KEPT_NOWHERE = (
    "AWS::ApiGateway",
    "AWS::CDK::",
    "AWS::CloudWatch::Alarm",
    "AWS::EC2::",
    "AWS::Events::",
    "AWS::IAM::",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::EventSourceMapping",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::WAFv2::",
    "Custom::",
)
# What Lambda gives to KMS with a function's variables, and what the functions of stacks are called.
CONTEXT = "kms:EncryptionContext:aws:lambda:FunctionArn"
FUNCTIONS = {
    "Fn::Join": [
        "",
        [
            "arn:",
            {"Ref": "AWS::Partition"},
            ":lambda:eu-central-1:",
            {"Ref": "AWS::AccountId"},
            ":function:extentflow-*",
        ],
    ]
}
BUCKETS = (
    Bucket(name="landing"),
    Bucket(name="own-key", kms_key_arn=OWN_KEY),
    Bucket(name="older", exists=True, announced=BucketNotification.DIRECT),
)


# Requests to KMS of a rule with an encrypted target have no source, says the guide of SNS: with a
# condition, no event would arrive. The queue admits one rule only.
WITHOUT_SOURCE = {"events.amazonaws.com"}


def with_key(stage: Stage) -> Stage:
    return replace(stage, kms_key_arn=KEY_ARN, buckets=BUCKETS)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Synthesise each stage with a key once: tests only read it."""
    bench = Bench.at(tmp_path_factory.mktemp("project"))

    @cache
    def template(name: str) -> Template:
        return bench.template(with_key(STAGES[name]))

    return template


def named(properties: Any, place: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - JSON
    for step in place:
        properties = properties[step]
    return properties


@pytest.mark.parametrize("stage", ["spark", "rest"])
def test_all_that_the_stack_keeps_is_encrypted_with_the_stages_key(
    keyed: Templates, stage: str
) -> None:
    template = keyed(stage)

    found: dict[str, Any] = {}
    for name, one in template.to_json()["Resources"].items():
        kind, properties = one["Type"], one.get("Properties", {})
        if kind.startswith(KEPT_NOWHERE) or not KEYS[kind]:
            continue
        if kind == "AWS::Lambda::Function" and "Environment" not in properties:
            continue
        found[name] = named(properties, KEYS[kind])

    own = {name for name, key in found.items() if key == OWN_KEY}
    assert {template.to_json()["Resources"][name]["Type"] for name in own} == {"AWS::S3::Bucket"}
    assert {name for name, key in found.items() if key != KEY_ARN} == own
    for queue in of_type(template, "AWS::SQS::Queue").values():
        assert "SqsManagedSseEnabled" not in queue  # SQS takes one of both
    for bucket in of_type(template, "AWS::S3::Bucket").values():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["BucketKeyEnabled"]
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"


def test_a_new_bucket_is_encrypted_with_its_own_key_without_one_of_the_stage(bench: Bench) -> None:
    stage = replace(PLAIN, buckets=(Bucket(name="landing", kms_key_arn=KEY_ARN),))

    template = bench.template(stage)

    (bucket,) = of_type(template, "AWS::S3::Bucket").values()
    assert named(bucket, KEYS["AWS::S3::Bucket"]) == KEY_ARN
    (queue, *_) = of_type(template, "AWS::SQS::Queue").values()
    assert queue["SqsManagedSseEnabled"]


@pytest.mark.parametrize(
    ("service", "through"),
    [
        ("planner", ["dynamodb", "sqs"]),
        ("worker", ["dynamodb", "sqs"]),
        ("reconciler", ["dynamodb", "sqs"]),
        ("receiver", ["sqs"]),
    ],
)
def test_functions_use_the_key_through_the_services_that_they_call(
    keyed: Templates, service: str, through: list[str]
) -> None:
    found = {one["Sid"]: one for one in statements(keyed("spark"), service)}

    used = found["UseStageKey"]
    assert used["Resource"] == [KEY_ARN]
    assert used["Condition"] == {
        "StringEquals": {
            "kms:ViaService": [f"{name}.eu-central-1.amazonaws.com" for name in through]
        }
    }
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= {*used["Action"]}
    assert found["DecryptVariables"]["Action"] == ["kms:Decrypt"]
    if service != "receiver":
        assert {*found["DecryptObjects"]["Resource"]} == {KEY_ARN, OWN_KEY}


def test_other_keys_are_used_through_the_service_that_needs_them(bench: Bench) -> None:
    far = KEY_ARN.replace("eu-central-1", "us-east-1")
    scram = Cluster(
        bootstrap_servers="b:9096", auth=Auth.SCRAM, secret_arn=SECRET_ARN, secret_key_arn=KEY_ARN
    )
    elsewhere = BucketNotification.ELSEWHERE
    distant = Bucket(name="distant", exists=True, announced=elsewhere, kms_key_arn=far)
    stage = replace(
        with_key(PLAIN), cluster=scram, buckets=(*BUCKETS, distant), secret_key_arns=(OWN_KEY,)
    )
    template = bench.template(stage)

    used = {
        one["Sid"]: one["Condition"]["StringEquals"]["kms:ViaService"]
        for service in ("worker", "receiver")
        for one in statements(template, service)
        if "kms:Decrypt" in one["Action"] and one["Sid"] not in ("DecryptVariables", "UseStageKey")
    }

    own, secrets = "s3.eu-central-1.amazonaws.com", "secretsmanager.eu-central-1.amazonaws.com"
    assert used == {
        "DecryptObjects": [own],
        "DecryptObjects1": ["s3.us-east-1.amazonaws.com"],
        "DecryptSecrets": [secrets],
        "DecryptBrokerCredentials": [secrets],
    }


def test_every_role_of_a_function_with_variables_may_decrypt_them(keyed: Templates) -> None:
    """Also that of CDK's framework, which no grant of this project describes."""
    template = keyed("plain")
    roles = of_type(template, "AWS::IAM::Role")

    for one in of_type(template, "AWS::Lambda::Function").values():
        if "KmsKeyArn" in one:
            role = roles[one["Role"]["Fn::GetAtt"][0]]
            given = {each["Sid"]: each for each in allowed(role)}
            assert given["DecryptVariables"]["Action"] == ["kms:Decrypt"], one.get("Description")
            assert given["DecryptVariables"]["Condition"] == {"ArnLike": {CONTEXT: FUNCTIONS}}
            # So CloudFormation names it, beginning with the stack's name.
            assert "FunctionName" not in one


def test_spark_uses_the_key_without_variables(keyed: Templates) -> None:
    (role,) = (
        role
        for role in of_type(keyed("spark"), "AWS::IAM::Role").values()
        if role["Description"] == "Delivers large objects on Spark"
    )

    sids = {one["Sid"] for one in allowed(role)}

    assert {"UseStageKey", "DecryptObjects"} <= sids
    assert "DecryptVariables" not in sids


def test_queues_admit_the_same_senders_with_a_key(keyed: Templates, bench: Bench) -> None:
    """CDK leaves out the rules' ARNs where it encrypts a queue with a key."""

    def admitted(template: Template) -> list[Any]:
        return list(of_type(template, "AWS::SQS::QueuePolicy").values())

    without = replace(with_key(PLAIN), kms_key_arn=None)

    assert admitted(keyed("plain")) == admitted(bench.template(without))


def test_the_keys_policy_admits_every_service_that_calls_kms_itself(bench: Bench) -> None:
    """Those that may send to the encrypted queues and topic, and the service of logs."""
    template = bench.template(replace(with_key(PLAIN), unmatched=Unmatched.DEAD_LETTER))
    needed = {"logs.eu-central-1.amazonaws.com"}
    for kind in ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy"):
        for policy in of_type(template, kind).values():
            for statement in policy["PolicyDocument"]["Statement"]:
                principal = statement["Principal"]
                needed |= {principal["Service"]} if "Service" in principal else set()

    conditions: dict[str, set[str]] = {}
    for statement in json.loads(POLICY.read_text())["Statement"]:
        services = statement["Principal"].get("Service", [])
        keys = {key for each in statement.get("Condition", {}).values() for key in each}
        for service in [services] if isinstance(services, str) else services:
            conditions[service] = keys

    assert conditions.keys() == needed
    assert {one for one, keys in conditions.items() if not keys} == WITHOUT_SOURCE


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        (
            {"kms_key_arn": KEY_ARN.replace("eu-central-1", "eu-west-1")},
            "it is in eu-west-1; write one in eu-central-1, the stage's region",
        ),
        (
            {"kms_key_arn": "arn:aws:kms:eu-central-1:111122223333:alias/data"},
            "this is another resource; write arn:aws:kms:eu-central-1:ACCOUNT:key/...",
        ),
        (
            {"secret_key_arns": ("arn:aws:kms:eu-central-1:111122223333:alias/data",)},
            "secret_key_arns[0]=arn:aws:kms:eu-central-1:111122223333:alias/data: this is another",
        ),
        ({"kms_key_arn": "data"}, "kms_key_arn=data: write a complete ARN"),
    ],
)
def test_a_key_that_policies_cannot_name_is_refused(changes: dict[str, Any], reported: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        replace(PLAIN, **changes).check()

    (problem,) = caught.value.problems
    assert reported in problem
