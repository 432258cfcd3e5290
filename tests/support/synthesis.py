"""Synthesise stacks for tests: a project of stand-ins, stages to vary, templates to read."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk.assertions import Annotations, Match, Template
from cdk_nag import AwsSolutionsChecks
from infra.config import (
    Auth,
    Bucket,
    BucketNotification,
    Cluster,
    Front,
    Network,
    Receiver,
    Stage,
    Subnet,
    Unmatched,
)
from infra.config_cluster import NewCluster
from infra.config_spark import Spark
from infra.project import Project
from infra.recipes import lambda_layer, spark_archive
from infra.stack import ExtentflowStack

FUNCTIONS = ("planner", "receiver", "reconciler", "worker")
IN_VPC = ("planner", "reconciler", "worker")
CLUSTER_ARN = "arn:aws:kafka:eu-central-1:111122223333:cluster/events/11112222-3333-4444-5555-6-2"
SECRET_ARN = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:AmazonMSK_events-AbCdEf"
KEY_ARN = "arn:aws:kms:eu-central-1:111122223333:key/11112222-3333-4444-5555-666677778888"
SOURCES_ARN = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:sources-AbCdEf"
ANOTHER_ACCOUNT = "444455556666"
ALARMS_ARN = "arn:aws:sns:eu-central-1:111122223333:alarms"

# No test reads the copied assets, 180 MB of layer for every stack.
QUICK = {"aws:cdk:disable-asset-staging": True}

ORDERS = {
    "name": "orders",
    "topic": "orders",
    "aws.s3.bucket.name": "landing",
    "aws.s3.prefix": "orders/",
}

PLAIN = Stage(
    name="plain",
    region="eu-central-1",
    app_id="extentflow-test",
    buckets=(Bucket(name="landing"),),
    cluster=Cluster(bootstrap_servers="broker-1:9092,broker-2:9092", auth=Auth.NONE),
    receiver=Receiver(secret_arn=SOURCES_ARN),
)

IN_A_VPC = replace(
    PLAIN,
    name="vpc",
    cluster=Cluster(bootstrap_servers="b-1.msk:9098,b-2.msk:9098", auth=Auth.IAM, arn=CLUSTER_ARN),
    network=Network(
        vpc_id="vpc-0a1b2c3d",
        subnets=(
            Subnet(
                id="subnet-00000001",
                availability_zone="eu-central-1a",
                route_table_id="rtb-00000001",
            ),
            Subnet(
                id="subnet-00000002",
                availability_zone="eu-central-1b",
                route_table_id="rtb-00000002",
            ),
        ),
        cluster_security_group_id="sg-0a1b2c3d",
        vpc_cidrs=("10.0.0.0/16", "100.64.0.0/16"),
    ),
)

assert IN_A_VPC.network is not None
ON_SPARK = replace(
    IN_A_VPC,
    name="spark",
    spark=Spark(),
    spark_cores=64,
    network=replace(
        IN_A_VPC.network, endpoints=("s3", "dynamodb", "sqs", "events", "logs", "emr-serverless")
    ),
)

# Everything that the others leave out.
EXISTING = replace(
    PLAIN,
    name="existing",
    cluster=Cluster(
        bootstrap_servers="b-1.msk:9096",
        auth=Auth.SCRAM,
        secret_arn=SECRET_ARN,
        secret_key_arn=KEY_ARN,
    ),
    buckets=(
        Bucket(name="landing", exists=True, kms_key_arn=KEY_ARN),
        Bucket(name="direct", exists=True, announced=BucketNotification.DIRECT),
        Bucket(name="direct-new", announced=BucketNotification.DIRECT),
        Bucket(
            name="theirs",
            exists=True,
            announced=BucketNotification.ELSEWHERE,
            account=ANOTHER_ACCOUNT,
        ),
    ),
    receiver=None,
    unmatched=Unmatched.DEAD_LETTER,
    table="restored-ledger",
    alarm_topic_arn=ALARMS_ARN,
)

BEHIND_WAF = replace(
    PLAIN,
    name="rest",
    kms_key_arn=KEY_ARN,
    receiver=Receiver(
        secret_arn=SOURCES_ARN,
        front=Front.REST,
        requests_per_sender=1_500,
        allowed_cidrs=("192.0.2.0/24", "2001:db8::/32"),
    ),
)

CANARY = replace(IN_A_VPC, name="canary", canary_minutes=10, most_planners=20, pollers=2)

_THIRD = Subnet(
    id="subnet-00000003", availability_zone="eu-central-1c", route_table_id="rtb-00000002"
)
NEW_BROKERS = replace(
    IN_A_VPC,
    name="brokers",
    cluster=Cluster(created=NewCluster(instance="kafka.m7g.large", storage_gib=100)),
    network=replace(
        IN_A_VPC.network,
        cluster_security_group_id="",
        subnets=(*IN_A_VPC.network.subnets, _THIRD),
    ),
)

STAGES = {
    stage.name: stage
    for stage in (PLAIN, IN_A_VPC, ON_SPARK, EXISTING, BEHIND_WAF, CANARY, NEW_BROKERS)
}


@dataclass(frozen=True)
class Bench:
    """A project in a folder of its own: stand-ins for functions, a layer, one connector."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> "Bench":
        bench = cls(root)
        for name in FUNCTIONS:
            bench.write(f"functions/{name}/handler.py", "def handler(event, context): ...\n")
        bench.write("connectors/orders.yaml", yaml_of(ORDERS))
        bench.write(str(lambda_layer.LOCK), "boto3==1\n")
        bench.write(str(lambda_layer.LAYER / "python" / "boto3.py"), "")
        made = {"fingerprint": lambda_layer.fingerprint(root), "unzipped_bytes": 1}
        bench.write(str(lambda_layer.STAMP), json.dumps(made))
        bench.write("jobs/spark_deliver.py", "")
        bench.write(str(spark_archive.LOCK), "boto3==1\n")
        bench.write(str(spark_archive.archive()), "")
        packed = {"fingerprint": spark_archive.fingerprint(root)}
        sizes = {"packed_bytes": 1, "unpacked_bytes": 1}
        bench.write(str(spark_archive.stamp()), json.dumps(packed | sizes))
        return bench

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    @property
    def project(self) -> Project:
        return Project(root=self.root, functions=self.root / "functions")

    def stack(self, stage: Stage, app: cdk.App | None = None) -> ExtentflowStack:
        return ExtentflowStack(app or cdk.App(context=QUICK), stage=stage, project=self.project)

    def template(self, stage: Stage) -> Template:
        return Template.from_stack(self.stack(stage))


def yaml_of(config: Mapping[str, str]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in config.items())


def checked_app(outdir: Path) -> cdk.App:
    """Return an application that cdk-nag judges; every accepted finding is in the template."""
    app = cdk.App(context=QUICK, outdir=str(outdir), analytics_reporting=False)
    checks = AwsSolutionsChecks(app, write_suppressions_to_cloud_formation=True)
    cdk.Validations.of(app).add_plugins(checks)
    return app


def rejected(stack: ExtentflowStack, what: str, command: str) -> bool:
    """Whether CloudFormation refuses a stack as long as `what` is not built, and says how it is.

    Raises:
        KeyError: there is no such rule.
        RuntimeError: synthesis did not warn of it.
    """
    template = Template.from_stack(stack).to_json()
    (rule,) = template["Rules"][f"{what}IsBuilt"]["Assertions"]
    Annotations.from_stack(stack).has_warning("*", Match.string_like_regexp(command))
    return (
        rule["Assert"] == {"Fn::Equals": [{"Ref": what}, "built"]}
        and f"run `{command}`" in rule["AssertDescription"]
        and template["Parameters"][what]["Default"] != "built"
    )


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    """Return the properties of the resources of one type, by logical id."""
    found = template.find_resources(kind)
    return {name: resource.get("Properties", {}) for name, resource in found.items()}


def function(template: Template, service: str) -> dict[str, Any]:
    """Return the properties of the function with that service name."""
    for properties in of_type(template, "AWS::Lambda::Function").values():
        if environment(properties).get("POWERTOOLS_SERVICE_NAME") == service:
            return properties
    raise LookupError(f"no function {service}")


def environment(properties: Mapping[str, Any]) -> dict[str, Any]:
    variables: dict[str, Any] = properties.get("Environment", {}).get("Variables", {})
    return variables


def statements(template: Template, service: str) -> Iterator[dict[str, Any]]:
    """Yield what a function's role allows, with actions and resources as lists."""
    role = function(template, service)["Role"]["Fn::GetAtt"][0]
    yield from allowed(of_type(template, "AWS::IAM::Role")[role], template)


def allowed(role: Mapping[str, Any], template: Template | None = None) -> Iterator[dict[str, Any]]:
    """Yield what a role allows, with actions and resources as lists.

    Without `template`, its inline policies only.
    """
    managed = of_type(template, "AWS::IAM::ManagedPolicy") if template else {}
    attached = [managed[arn["Ref"]] for arn in role.get("ManagedPolicyArns", []) if managed]
    for policy in (*role["Policies"], *attached):
        for statement in policy["PolicyDocument"]["Statement"]:
            if statement["Effect"] != "Allow":
                continue
            listed = {key: _list(statement[key]) for key in ("Action", "Resource")}
            yield {**statement, **listed}


def actions(template: Template, service: str) -> set[str]:
    return {action for each in statements(template, service) for action in each["Action"]}


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]
