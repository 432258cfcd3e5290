"""A second implementation of CloudFormation creates, updates and deletes the stack: Moto's.

It makes each resource in a model of its service. What these models lack is left out by name, and
the rest refers to stand-ins. Another implementation reads a template in another way than CDK's own
assertions: references, order, attributes, and what a service refuses.
"""

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest
from aws_cdk.assertions import Template
from infra.config import Stage
from moto import mock_aws
from tests.infra.conftest import Templates
from tests.support.synthesis import CANARY, IN_A_VPC, ORDERS, STAGES, Bench, yaml_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION: Final = "eu-central-1"  # of all stages here
ACCOUNT = "123456789012"  # Moto's
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
STACK = "stage"
# With the parts that templates cut out of the ARN of a cluster.
STAND_IN = f"arn:aws:any:{REGION}:{ACCOUNT}:cluster/stand-in/1"
pytestmark = pytest.mark.long

# Types without a model in Moto 5.2. cfn-lint checks their properties against AWS's schemas.
LACKING = {
    "AWS::ApiGateway::GatewayResponse",
    "AWS::ApiGateway::Stage",
    "AWS::ApiGatewayV2::Api",
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::ApiGatewayV2::Stage",
    "AWS::CloudWatch::Alarm",
    "AWS::CodeDeploy::Application",
    "AWS::CodeDeploy::DeploymentGroup",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EMRServerless::Application",
    "AWS::Events::EventBusPolicy",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::MSK::Cluster",
    "AWS::MSK::Configuration",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::WAFv2::IPSet",
    "AWS::WAFv2::WebACL",
    "AWS::WAFv2::WebACLAssociation",
    "Custom::AWS",
    "Custom::ExtentflowConnector",
    "Custom::S3BucketNotifications",
}
NO_OPENAPI = "openapi_spec_validator"


@pytest.fixture(scope="module", autouse=True)
def models() -> Iterator[Mapping[str, object]]:
    """Import Moto's CloudFormation; return its model of each type.

    It imports a validator of OpenAPI documents, which no template contains.
    """
    named = (NO_OPENAPI, f"{NO_OPENAPI}.validation", f"{NO_OPENAPI}.validation.exceptions")
    package, validation, exceptions = made = [ModuleType(name) for name in named]
    package.__path__ = validation.__path__ = []
    package.validate = None  # type: ignore[attr-defined]
    exceptions.OpenAPIValidationError = ValueError  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patched:
        for module in made:
            patched.setitem(sys.modules, module.__name__, module)
        from moto.awslambda.models import LayerVersion  # noqa: PLC0415 - needs the above
        from moto.cloudformation.parsing import get_model_map  # noqa: PLC0415

        # Otherwise, a reference to a layer is the model itself, which no function can be given.
        own = property(lambda layer: layer.arn)
        patched.setattr(LayerVersion, "physical_resource_id", own, raising=False)
        yield get_model_map()


@dataclass
class Account:
    """An account of AWS with an empty VPC; `vpc` has the ids that stand for a stage's."""

    vpc: dict[str, str] = field(default_factory=dict)

    @property
    def cloudformation(self) -> Any:  # noqa: ANN401 - its types are not installed
        return boto3.client("cloudformation", region_name=REGION)

    @property
    def s3(self) -> "S3Client":
        return boto3.client("s3", region_name=REGION)

    def prepare(self) -> None:
        """Do what `cdk bootstrap` does, and create the VPC of `IN_A_VPC`."""
        self.s3.create_bucket(
            Bucket=ASSETS, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        ssm = boto3.client("ssm", region_name=REGION)
        ssm.put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
        ec2 = boto3.client("ec2", region_name=REGION)
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.vpc["vpc-0a1b2c3d"] = vpc
        for number in (1, 2, 3):
            subnet = ec2.create_subnet(
                VpcId=vpc,
                CidrBlock=f"10.0.{number}.0/24",
                AvailabilityZone=f"{REGION}{'abc'[number - 1]}",
            )
            routes = ec2.create_route_table(VpcId=vpc)["RouteTable"]
            self.vpc[f"subnet-0000000{number}"] = subnet["Subnet"]["SubnetId"]
            self.vpc[f"rtb-0000000{number}"] = routes["RouteTableId"]
        group = ec2.create_security_group(GroupName="brokers", Description="x", VpcId=vpc)
        self.vpc["sg-0a1b2c3d"] = group["GroupId"]

    def deploy(self, template: dict[str, Any], *, update: bool = False) -> dict[str, str]:
        """Create or update the stack; return the physical id of each resource."""
        self._upload_assets(template)
        text = json.dumps(template)
        for name, here in self.vpc.items():
            text = text.replace(name, here)
        self.s3.put_object(Bucket=ASSETS, Key="template.json", Body=text)
        url = f"https://{ASSETS}.s3.{REGION}.amazonaws.com/template.json"
        if update:
            self.cloudformation.update_stack(StackName=STACK, TemplateURL=url)
        else:
            self.cloudformation.create_stack(
                StackName=STACK, TemplateURL=url, Capabilities=["CAPABILITY_IAM"]
            )
        found = self.cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]
        assert found["StackStatus"] == ("UPDATE_COMPLETE" if update else "CREATE_COMPLETE")
        return self.resources()

    def resources(self) -> dict[str, str]:
        pages = self.cloudformation.get_paginator("list_stack_resources")
        return {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for page in pages.paginate(StackName=STACK)
            for one in page["StackResourceSummaries"]
        }

    def _upload_assets(self, template: Mapping[str, Any]) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("handler.py", "")
        for resource in template["Resources"].values():
            for place in ("Code", "Content"):
                asset = resource["Properties"].get(place, {})
                if "S3Key" in asset:
                    self.s3.put_object(Bucket=ASSETS, Key=asset["S3Key"], Body=archive.getvalue())


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        made = Account()
        made.prepare()
        yield made


def known(template: Template) -> dict[str, Any]:
    """Return a template without the types that Moto lacks, and without rules."""
    whole = template.to_json()
    left_out = {name for name, one in whole["Resources"].items() if one["Type"] in LACKING}

    invoked = {
        name: {"Fn::GetAtt": [one["Properties"]["FunctionName"]["Ref"], "Arn"]}
        for name, one in whole["Resources"].items()
        if one["Type"] == "AWS::Lambda::Alias"
    }

    def stand_in(part: Any) -> Any:  # noqa: ANN401 - CloudFormation's JSON
        match part:
            case {"Fn::Join": ["", [{"Fn::Select": [6, {"Fn::Split": [":", to]}]}, ":live"]]}:
                return stand_in(to)
            case {"Ref": str(name)} if name in invoked:
                return invoked[name]
            case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]} if name in left_out:
                return STAND_IN
            case dict():
                return {key: stand_in(each) for key, each in part.items()}
            case list():
                return [stand_in(each) for each in part]
        return part

    kept = {name: stand_in(one) for name, one in whole["Resources"].items() if name not in left_out}
    for one in kept.values():
        one["DependsOn"] = [each for each in one.get("DependsOn", []) if each not in left_out]
        one.setdefault("Properties", {})
        if one.get("DeletionPolicy") == "RetainExceptOnCreate":
            one["DeletionPolicy"] = "Retain"  # Moto has no failed creation that is rolled back
    return {
        "Parameters": whole.get("Parameters", {}),
        "Resources": kept,
        "Outputs": stand_in(whole.get("Outputs", {})),
    }


def test_moto_lacks_these_types_and_no_others(
    templates: Templates, models: Mapping[str, object]
) -> None:
    """A type that Moto has learned must be tested; an unknown one must be looked at here."""
    used = {
        one["Type"] for name in STAGES for one in templates(name).to_json()["Resources"].values()
    }

    assert used - models.keys() == LACKING


@pytest.mark.parametrize("stage", STAGES)
def test_another_cloudformation_creates_and_deletes_the_stack(
    templates: Templates, account: Account, stage: str
) -> None:
    template = known(templates(stage))

    made = account.deploy(template)
    outputs = account.cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["Outputs"]
    account.cloudformation.delete_stack(StackName=STACK)

    assert made.keys() == template["Resources"].keys()
    assert {one["OutputKey"] for one in outputs} == template["Outputs"].keys()
    assert all(one["OutputValue"] for one in outputs)
    lambdas = boto3.client("lambda", region_name=REGION).list_functions()["Functions"]
    queues = boto3.client("sqs", region_name=REGION).list_queues().get("QueueUrls", [])
    tables = boto3.client("dynamodb", region_name=REGION).list_tables()["TableNames"]
    assert (lambdas, queues) == ([], [])
    # The ledger records what was delivered.
    assert tables == [made[name] for name in made if name.startswith("LedgerTable")]


# -- updates --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """A change of a stage or its project, and the resources that it adds and modifies."""

    change: Callable[[Bench], Stage]
    added: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def _setting(_bench: Bench) -> Stage:
    return replace(IN_A_VPC, settings={"lease.seconds": "30"}, most_workers=9)


def _connector(bench: Bench) -> Stage:
    more = {**ORDERS, "name": "more", "topic": "more", "aws.s3.prefix": "more/"}
    bench.write("connectors/more.yaml", yaml_of(more))
    return IN_A_VPC


def _layer(bench: Bench) -> Stage:
    bench.write("build/layers/deps/python/boto3.py", "changed = True\n")
    return IN_A_VPC


def _canary(_bench: Bench) -> Stage:
    return replace(IN_A_VPC, canary_minutes=CANARY.canary_minutes)


UPDATES = {
    "setting": Update(_setting, modified=("IngestWorkerMessages", "IngestWorkerFunction")),
    "connector": Update(_connector, modified=("IngestWorkerRole",)),
    "layer": Update(_layer, replaced=("LayersDeps",)),
    "canary": Update(_canary, added=("IngestWorkerFunctionCurrentVersion",)),
}


@pytest.mark.parametrize("name", UPDATES)
def test_another_cloudformation_updates_the_stack(
    bench: Bench, account: Account, name: str
) -> None:
    update = UPDATES[name]
    first = known(bench.template(IN_A_VPC))
    second = known(bench.template(update.change(bench)))

    before = account.deploy(first)
    after = account.deploy(second, update=True)

    changed = {
        one
        for one in first["Resources"].keys() & second["Resources"].keys()
        if first["Resources"][one] != second["Resources"][one]
    }
    # Moto forgets the name of what it replaces.
    replaced = second["Resources"].keys() - after.keys()
    assert after.keys() - {""} == second["Resources"].keys() - replaced
    assert len(replaced) == len(update.replaced) == ("" in after)
    assert all(one.startswith(update.replaced) and before[one] != after[""] for one in replaced)
    for prefix in update.added:
        assert any(one.startswith(prefix) for one in after.keys() - before.keys()), prefix
    for prefix in update.modified:
        assert any(one.startswith(prefix) for one in changed), prefix
    # What holds messages and progress must never be replaced.
    kept = [
        one
        for one in before
        if one.startswith(("Ledger", "Arrivals", "Extents", "Buckets"))
        and first["Resources"][one]["Type"] != "AWS::Events::Rule"  # its pattern may change
    ]
    assert kept
    assert [one for one in kept if before[one] != after[one]] == []
