"""The plan that a template carries is that of its stage, and asks about all that it creates."""

import json
from dataclasses import replace
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from infra.config import Auth, Bucket, BucketNotification, Cluster, Receiver, Stage
from infra.plan import plan
from infra.stages import STAGES as EXAMPLES
from tests.infra.conftest import Templates
from tests.support.planned import DEV
from tests.support.synthesis import (
    EXISTING,
    KEY_ARN,
    ON_SPARK,
    ORDERS,
    PLAIN,
    QUICK,
    SECRET_ARN,
    SOURCES_ARN,
    STAGES,
    Bench,
    allowed,
    of_type,
    yaml_of,
)

from extentflow.services.account_checks import CREATES
from extentflow.services.planned import read_planned

STORE_ARN = SOURCES_ARN.replace("sources", "grid")
OF_BROKERS, OF_STAGE = f"{KEY_ARN}1", f"{KEY_ARN}2"
PASSWORD = Cluster(
    bootstrap_servers="b:9096",
    auth=Auth.SCRAM,
    secret_arn=SECRET_ARN,
    secret_key_arn=OF_BROKERS,
)
SECRETIVE = {
    "landing": {},
    "store": {
        "aws.access.key.id": f"${{secretsmanager:{STORE_ARN}:id}}",
        "aws.secret.access.key": f"${{secretsmanager:{STORE_ARN}:key}}",
    },
    "producer": {"producer.sasl.password": f"${{secretsmanager:{STORE_ARN}}}"},
}
# Made by functions of the stack, not by CloudFormation.
OWN = ("Custom", "AWS::CloudFormation")


def test_the_plan_of_the_example_is_the_one_that_recorded_accounts_describe() -> None:
    called = DEV.network.called if DEV.network else ()
    assert plan(EXAMPLES[0], called=called) == replace(DEV, resources=(), bootstrap=None)


@pytest.mark.parametrize("name", STAGES)
def test_a_template_carries_the_plan_of_its_stage(
    name: str, templates: Templates, tmp_path: Path
) -> None:
    path = tmp_path / "cdk.out" / f"extentflow-{name}.template.json"
    path.parent.mkdir()
    path.write_text(json.dumps(templates(name).to_json()))

    found = read_planned(name, tmp_path)

    called = found.network.called if found.network else ()
    assert found == replace(
        plan(STAGES[name], called=called), resources=found.resources, bootstrap=found.bootstrap
    )
    if found.network is not None:
        assert {"dynamodb", "s3", "sqs"} <= {*called}
        assert {*found.network.existing_endpoints} <= {*called}
    asked = {kind.rpartition("::")[0] for kind in CREATES}
    made = {kind.rpartition("::")[0] for kind in found.resources}
    assert made - asked <= {*OWN}
    assert found.bootstrap == DEV.bootstrap


@pytest.mark.parametrize("stage", [EXISTING, ON_SPARK])
def test_a_boundary_of_the_project_is_that_of_the_plan(
    stage: Stage, bench: Bench, tmp_path: Path
) -> None:
    context = {**QUICK, "@aws-cdk/core:permissionsBoundary": {"name": "company"}}
    template = Template.from_stack(bench.stack(stage, cdk.App(context=context)))
    path = tmp_path / "cdk.out" / f"extentflow-{stage.name}.template.json"
    path.parent.mkdir()
    path.write_text(json.dumps(template.to_json()))

    found = read_planned(stage.name, tmp_path)

    assert found.boundary == "arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/company"


def keyed(stage: Stage) -> Stage:
    """Return a stage with a key of each option; its bucket has none of them."""
    network = stage.network
    endpoints = (*network.created, "secretsmanager", "kms") if network else ()
    return replace(
        stage,
        network=replace(network, endpoints=endpoints) if network else None,
        cluster=PASSWORD,
        buckets=(Bucket(name="landing", exists=True, announced=BucketNotification.DIRECT),),
        kms_key_arn=OF_STAGE,
        secret_key_arns=(KEY_ARN,),
        receiver=Receiver(secret_arn=SOURCES_ARN),
    )


def decrypting(template: Template, secret: str) -> set[str]:
    """Return the keys that each role that reads a secret may decrypt it with."""
    found = []
    for role in of_type(template, "AWS::IAM::Role").values():
        given = list(allowed(role, template))
        if any(secret in one["Resource"] for one in given):
            found.append(
                {
                    key
                    for one in given
                    if "kms:Decrypt" in one["Action"]
                    # Others are for variables of functions, or for other services.
                    and "secretsmanager." in str(one.get("Condition", "secretsmanager."))
                    for key in one["Resource"]
                }
            )
    return set.intersection(*found)


@pytest.mark.parametrize("secretive", SECRETIVE)
@pytest.mark.parametrize("stage", [PLAIN, ON_SPARK])
def test_keys_of_a_secret_are_those_that_each_of_its_readers_may_use(
    stage: Stage, secretive: str, bench: Bench
) -> None:
    bench.write(
        "connectors/secretive.yaml", yaml_of({**ORDERS, "name": "s"} | SECRETIVE[secretive])
    )
    template = bench.template(keyed(stage))

    found = json.loads(template.to_json()["Metadata"]["extentflow"])

    secrets, members = found["secrets"], {SECRET_ARN: ["password", "username"]}
    wanted = {SECRET_ARN, SOURCES_ARN} | ({STORE_ARN} if SECRETIVE[secretive] else set())
    assert {one["id"] for one in secrets} == wanted
    for one in secrets:
        assert {*one["keys"]} == decrypting(template, one["id"])
        option = "cluster.secret_key_arn" if one["id"] == SECRET_ARN else "secret_key_arns"
        assert one["key_option"] == option
    if secretive == "store":
        members[STORE_ARN] = ["id", "key"]
    assert {one["id"]: one["members"] for one in secrets if one["members"]} == members
    (bucket,) = found["buckets"]
    assert bucket["prefixes"] == [ORDERS["aws.s3.prefix"]]
    services = {one["arn"]: one["services"] for one in found["keys"]}
    assert services == {KEY_ARN: [], OF_BROKERS: [], OF_STAGE: ["cloudwatch", "logs", "s3"]}
