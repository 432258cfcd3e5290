"""What a company's rules ask of every resource: tags, logs that stay, protection of the stack."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from infra.stack import ExtentflowStack
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    EXISTING,
    ON_SPARK,
    QUICK,
    STAGES,
    Bench,
    of_type,
)

from extentflow.errors import Misconfigured

LOGS = "AWS::Logs::LogGroup"
TAGS = {"cost-center": "4711", "owner": "data"}
# Types without tags in CloudFormation, or without an own bill and owner: parts of another resource.
UNTAGGED = {
    "AWS::ApiGateway::Deployment",
    "AWS::ApiGateway::GatewayResponse",
    "AWS::ApiGateway::Method",
    "AWS::ApiGateway::Resource",
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::CloudWatch::Dashboard",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::Events::EventBusPolicy",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::Policy",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Permission",
    "AWS::Lambda::Version",
    "AWS::MSK::Configuration",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::WAFv2::WebACLAssociation",
    "Custom::AWS",
    "Custom::ExtentflowConnector",
    "Custom::S3BucketNotifications",
}


def groups(template: Template) -> list[dict[str, Any]]:
    return [dict(one) for one in template.find_resources(LOGS).values()]


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExtentflowStack]:
    """Synthesise each stage once with all that rules ask of it: tests only read it."""
    bench = Bench.at(tmp_path_factory.mktemp("project"))

    @cache
    def stack(name: str) -> ExtentflowStack:
        logged = replace(STAGES[name], log_days=3653, logs_stay=True)
        return bench.stack(replace(logged, tags=TAGS, termination_protection=True))

    return stack


@pytest.mark.parametrize("stage", ["spark", "existing", "rest", "brokers"])
def test_every_resource_that_can_has_the_stages_tags(
    ruled: Callable[[str], ExtentflowStack], stage: str
) -> None:
    stack = ruled(stage)
    resources = Template.from_stack(stack).to_json()["Resources"]

    tagged: dict[str, Any] = {}
    for name, one in resources.items():
        if one["Type"] not in UNTAGGED:
            tags = one["Properties"].get("Tags", {})
            pairs = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
            tagged[f"{name} of {one['Type']}"] = pairs

    assert [name for name, tags in tagged.items() if not TAGS.items() <= tags.items()] == []
    assert stack.tags.tag_values() == TAGS


@pytest.mark.parametrize("name", STAGES)
def test_logs_are_kept_for_a_month_and_end_with_the_stack(templates: Templates, name: str) -> None:
    found = groups(templates(name))

    assert found
    assert {one["Properties"]["RetentionInDays"] for one in found} == {30}
    assert {one["DeletionPolicy"] for one in found} == {"Delete"}


@pytest.mark.parametrize("stage", ["spark", "existing"])
def test_logs_of_an_audit_outlast_the_stack(
    ruled: Callable[[str], ExtentflowStack], stage: str
) -> None:
    found = groups(Template.from_stack(ruled(stage)))

    assert {one["Properties"]["RetentionInDays"] for one in found} == {3653}
    assert {one["DeletionPolicy"] for one in found} == {"RetainExceptOnCreate"}
    assert {one["UpdateReplacePolicy"] for one in found} == {"Retain"}


@pytest.mark.parametrize("name", STAGES)
def test_logs_that_a_service_delivers_need_no_part_of_the_accounts_policy(
    templates: Templates, name: str
) -> None:
    """Any other group adds a statement to it; in accounts with many APIs it has no room."""
    template = templates(name)
    made = of_type(template, LOGS)
    named = {
        each["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]
        for kind in ("AWS::ApiGatewayV2::Stage", "AWS::ApiGateway::Stage")
        for each in of_type(template, kind).values()
        if "AccessLogSettings" in each
    }

    # All that deliver: other types of such logs would have to be looked at here.
    assert not of_type(template, "AWS::WAFv2::LoggingConfiguration")
    assert not of_type(template, "AWS::Logs::ResourcePolicy")
    for one in named:
        begin, *rest = made[one]["LogGroupName"]["Fn::Join"][1]
        assert begin == "/aws/vendedlogs/extentflow/"
        assert "AWS::StackId" in str(rest)  # a group that stayed must not stop the next stack
    assert bool(named) == ("AWS::ApiGatewayV2::Stage" in str(template.to_json()))


def test_a_stack_is_protected_where_the_stage_says_so(
    ruled: Callable[[str], ExtentflowStack], bench: Bench
) -> None:
    assert ruled("existing").termination_protection
    assert not bench.stack(EXISTING).termination_protection


def test_a_locked_down_account_names_boundary_qualifier_and_bucket(
    bench: Bench, tmp_path: Path
) -> None:
    context = {
        "@aws-cdk/core:permissionsBoundary": {"name": "company-${Qualifier}"},
        "@aws-cdk/core:bootstrapQualifier": "company",
    }
    app = cdk.App(context=QUICK | context, outdir=str(tmp_path / "cdk.out"))
    bucket = "acme-assets-eu-central-1"
    usual = replace(ON_SPARK, buckets=EXISTING.buckets)
    stages = [usual, replace(usual, name="apart", qualifier="team", assets_bucket=bucket)]

    stacks = [bench.stack(one, app) for one in stages]
    app.synth()

    assets = {"company": "cdk-company-assets-${AWS::AccountId}-eu-central-1", "team": bucket}
    for stack, (qualifier, place) in zip(stacks, assets.items(), strict=True):
        template = Template.from_stack(stack)
        version = template.to_json()["Parameters"]["BootstrapVersion"]["Default"]
        assert version == f"/cdk-bootstrap/{qualifier}/version"
        roles = of_type(template, "AWS::IAM::Role")
        boundaries = {json.dumps(one.get("PermissionsBoundary")) for one in roles.values()}
        (boundary,) = boundaries
        assert f":policy/company-{qualifier}" in boundary
        manifest = json.loads((tmp_path / f"cdk.out/{stack.artifact_id}.assets.json").read_text())
        targets = [
            one for asset in manifest["files"].values() for one in asset["destinations"].values()
        ]
        assert {one["bucketName"] for one in targets} == {place}
        roles_used = {one["assumeRoleArn"] for one in targets}
        assert all(f"role/cdk-{qualifier}-file-publishing-role-" in one for one in roles_used)
        code = of_type(template, "AWS::Lambda::Function").values()
        assert {json.dumps(one["Code"].get("S3Bucket")) for one in code} <= {
            json.dumps({"Fn::Sub": place}),
            json.dumps(place),
            "null",
        }
        (fetched,) = (
            statement["Resource"]
            for one in roles.values()
            for policy in one["Policies"]
            for statement in policy["PolicyDocument"]["Statement"]
            if statement.get("Sid") == "FetchCode"
        )
        assert place in json.dumps(fetched)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"log_days": 31}, "log_days=31: CloudWatch Logs has 1, 3, 5, 7, 14, 30, 60"),
        ({"tags": {"aws:owner": "x"}}, "tags: 'aws:owner': write 1 to 128 characters"),
        ({"tags": {"": "x"}}, "tags: '': write 1 to 128"),
        ({"tags": {"owner": ""}}, "tags: owner: write a value of 1 to 256"),
        ({"tags": dict.fromkeys(map(str, range(41)), "x")}, "tags: 41 are too many"),
    ],
)
def test_settings_that_aws_refuses_are_rejected(changes: dict[str, Any], reported: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        replace(EXISTING, **changes).check()

    (problem,) = caught.value.problems
    assert reported in problem
