"""Stages with many topics, connectors and buckets stay below AWS's limits, or are rejected."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.config import Bucket, BucketNotification, Stage, Unmatched
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    IN_A_VPC,
    PLAIN,
    STAGES,
    Bench,
    actions,
    allowed,
    checked_app,
    of_type,
    yaml_of,
)

from extentflow.errors import Misconfigured

INLINE, MANAGED, MOST_MANAGED = 10_240, 6_144, 10
PATTERN, STATEMENTS, QUEUE_POLICY = 2_048, 20, 8_192
CONNECTORS, BUCKETS = 30, 60
LONG = 20  # of a bucket's or topic's name, beyond what tells them apart
# Of a deployed stage, or longer.
DEPLOYED = {
    "AWS::Partition": "aws-us-gov",
    "AWS::Region": "ap-southeast-1",
    "AWS::AccountId": "111122223333",
}
GENERATED = f"arn:aws:sqs:ap-southeast-1:111122223333:{'x' * 80}"


def resolved(part: Any) -> Any:  # noqa: ANN401 - CloudFormation's JSON
    """Return what CloudFormation makes of an expression, with long names."""
    match part:
        case {"Ref": _} | {"Fn::GetAtt": _}:
            return DEPLOYED.get(part.get("Ref", ""), GENERATED)
        case {"Fn::Join": [between, parts]}:
            return between.join(map(resolved, parts))
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([^}]+)\}", lambda found: DEPLOYED[found[1]], text)
        case dict():
            return {key: resolved(value) for key, value in part.items()}
        case list():
            return [resolved(each) for each in part]
    return part


def size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(resolved(document), separators=(",", ":")))


def large(
    bench: Bench, stage: Stage, *, announced: BucketNotification, exists: bool = False
) -> Stage:
    """Give a project 30 connectors, two topics each; return the stage with 60 buckets."""
    names = [f"landing-{number:03d}-{'b' * LONG}" for number in range(BUCKETS)]
    for number in range(CONNECTORS):
        topic = f"topic-{number:03d}-{'t' * LONG}"
        config = {
            "name": f"connector-{number:03d}",
            "topic": topic,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic}-dead",
            "aws.s3.bucket.name": names[number],
        }
        bench.write(f"connectors/{number}.yaml", yaml_of(config))
    (bench.root / "connectors" / "orders.yaml").unlink()
    buckets = tuple(Bucket(name=name, announced=announced, exists=exists) for name in names)
    return replace(stage, buckets=buckets, unmatched=Unmatched.DEAD_LETTER)


def roles(template: Template) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield each role with the sizes of its inline and of its managed policies."""
    policies = of_type(template, "AWS::IAM::ManagedPolicy")
    for name, role in of_type(template, "AWS::IAM::Role").items():
        inline = [size(one["PolicyDocument"]) for one in role.get("Policies", [])]
        attached = [one["Ref"] for one in role.get("ManagedPolicyArns", [])]
        yield name, inline, [size(policies[one]["PolicyDocument"]) for one in attached]


@pytest.fixture(scope="module")
def large_templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Synthesise each large stage once: that takes seconds, and tests only read it."""

    @cache
    def template(name: str) -> Template:
        bench = Bench.at(tmp_path_factory.mktemp(name))
        stage = large(bench, STAGES[name], announced=BucketNotification.EVENTBRIDGE)
        return bench.template(stage)

    return template


# The stage with Spark has all roles of the other one.
@pytest.fixture(params=[pytest.param("vpc", marks=pytest.mark.variant), "spark"])
def template(request: pytest.FixtureRequest, large_templates: Templates) -> Template:
    return large_templates(request.param)


def test_policies_of_60_topics_30_connectors_and_60_buckets_fit(template: Template) -> None:
    found = list(roles(template))

    assert any(managed for _, _, managed in found)
    for name, inline, managed in found:
        assert sum(inline) <= INLINE, name
        assert all(each <= MANAGED for each in managed), (name, managed)
        assert len(managed) <= MOST_MANAGED, name


def test_a_divided_role_allows_exactly_what_it_would_allow_in_one_policy(
    large_templates: Templates,
) -> None:
    template = large_templates("spark")

    granted = [
        (statement["Sid"].rstrip("0123456789"), str(resource))
        for role in of_type(template, "AWS::IAM::Role").values()
        if role["Description"] == "Delivers one extent's records"
        for statement in allowed(role, template)
        for resource in statement["Resource"]
    ]

    counts = Counter(sid for sid, _ in granted)
    assert counts["WriteRecords"] == 2 * CONNECTORS
    assert counts["ReadObjects"] == counts["ListObjects"] == BUCKETS
    assert len(granted) == len(set(granted))
    assert "kafka-cluster:WriteData" in actions(template, "worker")


def test_ids_of_statements_are_unique_within_each_policy(template: Template) -> None:
    documents = [
        policy["PolicyDocument"]
        for role in of_type(template, "AWS::IAM::Role").values()
        for policy in role.get("Policies", [])
    ]
    documents += [
        one["PolicyDocument"] for one in of_type(template, "AWS::IAM::ManagedPolicy").values()
    ]

    for document in documents:
        sids = [statement["Sid"] for statement in document["Statement"]]
        assert len(sids) == len(set(sids))


def test_a_small_stage_has_inline_policies_only(templates: Templates) -> None:
    for name in STAGES:
        assert not of_type(templates(name), "AWS::IAM::ManagedPolicy")


def test_a_large_stage_has_nothing_unexplained(bench: Bench, tmp_path: Any) -> None:  # noqa: ANN401
    many = large(bench, IN_A_VPC, announced=BucketNotification.EVENTBRIDGE)
    stage = replace(many, unmatched=IN_A_VPC.unmatched)
    app = checked_app(tmp_path / "out")

    bench.stack(stage, app)

    app.synth()  # raises with what cdk-nag found


def patterns(template: Template) -> list[dict[str, Any]]:
    return [
        rule["EventPattern"]
        for rule in of_type(template, "AWS::Events::Rule").values()
        if rule.get("EventPattern", {}).get("source") == ["aws.s3"]
    ]


def test_patterns_of_many_buckets_fit_and_name_each_once(template: Template) -> None:
    found = patterns(template)

    named = [name for one in found for name in one["detail"]["bucket"]["name"]]

    assert len(found) > 1
    assert len(named) == len(set(named)) == BUCKETS
    assert all(size(pattern) <= PATTERN for pattern in found)


def test_patterns_of_many_prefixes_fit_and_name_each_once(bench: Bench) -> None:
    """One bucket with more prefixes than a pattern takes, and buckets with one prefix each."""
    wanted = {
        *(("landing", f"{number:03d}-{'p' * LONG}/") for number in range(90)),
        *((f"landing-{number:03d}", f"in/{number:03d}/") for number in range(20)),
    }
    for number, (bucket, prefix) in enumerate(sorted(wanted)):
        config = {
            "name": f"connector-{number:03d}",
            "topic": "orders",
            "aws.s3.bucket.name": bucket,
            "aws.s3.prefix": prefix,
        }
        bench.write(f"connectors/{number}.yaml", yaml_of(config))
    (bench.root / "connectors" / "orders.yaml").unlink()
    names = sorted({bucket for bucket, _ in wanted})

    template = bench.template(replace(PLAIN, buckets=tuple(Bucket(name=one) for one in names)))

    found = patterns(template)
    entries = [each for one in found for each in one["detail"].get("$or", [one["detail"]])]
    named = [
        (bucket, key["prefix"])
        for each in entries
        for bucket in each["bucket"]["name"]
        for key in each["object"]["key"]
    ]
    assert len(found) > 1
    assert sorted(named) == sorted(wanted)
    assert all(size(pattern) <= PATTERN for pattern in found)


@pytest.mark.parametrize(
    ("announced", "exists"),
    [
        pytest.param(BucketNotification.EVENTBRIDGE, False, marks=pytest.mark.variant),
        (BucketNotification.EVENTBRIDGE, True),
        pytest.param(BucketNotification.DIRECT, False, marks=pytest.mark.variant),
        (BucketNotification.DIRECT, True),
        (BucketNotification.ELSEWHERE, True),
    ],
)
def test_the_policy_of_the_queue_has_room_for_60_buckets(
    bench: Bench, announced: BucketNotification, *, exists: bool
) -> None:
    template = bench.template(large(bench, PLAIN, announced=announced, exists=exists))

    for policy in of_type(template, "AWS::SQS::QueuePolicy").values():
        document = policy["PolicyDocument"]
        assert len(document["Statement"]) <= STATEMENTS
        assert size(document) <= QUEUE_POLICY
    for name, inline, managed in roles(template):
        assert sum(inline) <= INLINE, name
        assert all(each <= MANAGED for each in managed), name


@pytest.mark.parametrize(
    ("count", "announced", "reported"),
    [
        (600, BucketNotification.EVENTBRIDGE, "announcements by EventBridge need [0-9]+ rules"),
        (100, BucketNotification.DIRECT, "100 with announced=DIRECT or ELSEWHERE do not fit"),
    ],
)
def test_more_buckets_than_the_policy_of_a_queue_takes_are_rejected(
    bench: Bench, count: int, announced: BucketNotification, reported: str
) -> None:
    names = ["landing", *(f"{number:03d}-{'b' * 50}" for number in range(count - 1))]
    buckets = tuple(Bucket(name=name, announced=announced) for name in names)

    with pytest.raises(Misconfigured, match=reported):
        bench.stack(replace(PLAIN, buckets=buckets, unmatched=Unmatched.DEAD_LETTER))


def test_permissions_that_fit_into_no_ten_policies_are_rejected(bench: Bench) -> None:
    for number in range(350):
        config = {
            "name": f"connector-{number}",
            "topic": f"topic-{number:03d}-{'t' * 200}",
            "aws.s3.bucket.name": "landing",
        }
        bench.write(f"connectors/{number}.yaml", yaml_of(config))

    with pytest.raises(Misconfigured, match="managed policies, and AWS allows 10; declare fewer"):
        bench.stack(IN_A_VPC)
