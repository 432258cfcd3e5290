"""Each function may do what it does, and nothing else, on names wherever names are known."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Template
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    CLUSTER_ARN,
    FUNCTIONS,
    IN_A_VPC,
    IN_VPC,
    KEY_ARN,
    PLAIN,
    SECRET_ARN,
    SOURCES_ARN,
    Bench,
    actions,
    environment,
    function,
    of_type,
    statements,
)

LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}
TAKE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
LEDGER = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"}
OBJECTS = {"s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket"}


def resources(template: Template, service: str, action: str) -> list[Any]:
    return [
        resource
        for statement in statements(template, service)
        if action in statement["Action"]
        for resource in statement["Resource"]
    ]


@pytest.mark.parametrize(
    ("service", "allowed"),
    [
        ("receiver", LOG | {"sqs:SendMessage", "secretsmanager:GetSecretValue"}),
        (
            "planner",
            LOG | TAKE | LEDGER | OBJECTS | {"sqs:SendMessage", "events:PutEvents"},
        ),
        (
            "worker",
            LOG
            | TAKE
            | LEDGER
            | OBJECTS
            | {"dynamodb:ConditionCheckItem"}
            | {"sqs:SendMessage", "sqs:ChangeMessageVisibility", "events:PutEvents"},
        ),
        (
            "reconciler",
            LOG
            | LEDGER
            | OBJECTS
            | {"dynamodb:BatchGetItem", "s3:GetBucketVersioning", "s3:ListBucketVersions"}
            | {"sqs:SendMessage", "sqs:GetQueueAttributes", "events:PutEvents"},
        ),
        ("provider", LOG | {"dynamodb:GetItem", "dynamodb:UpdateItem"}),
    ],
)
def test_a_function_may_do_exactly_this(
    templates: Templates, service: str, allowed: set[str]
) -> None:
    assert actions(templates("plain"), service) == allowed


@pytest.mark.parametrize("stage", ["plain", "vpc", "spark", "existing"])
def test_no_action_is_a_wildcard(templates: Templates, stage: str) -> None:
    found = _statements_of_all_roles(templates(stage))

    assert found
    assert not [each for each in found if "*" in str(each["Action"])]


@pytest.mark.parametrize("stage", ["plain", "vpc", "spark", "existing"])
def test_only_network_interfaces_have_no_name(templates: Templates, stage: str) -> None:
    found = _statements_of_all_roles(templates(stage))

    unnamed = [
        each for each in found if each["Effect"] == "Allow" and each["Resource"] in ("*", ["*"])
    ]

    assert {each["Sid"] for each in unnamed} <= {"StandInVpc"}
    for each in unnamed:
        assert all(action.startswith("ec2:") for action in each["Action"])


@pytest.mark.parametrize("service", IN_VPC)
def test_code_of_functions_cannot_change_the_vpc_as_lambda_does_for_them(
    templates: Templates, service: str
) -> None:
    """AWS adds the key to calls of a function's code, and not to those of Lambda itself."""
    template = templates("vpc")
    role = function(template, service)["Role"]["Fn::GetAtt"][0]
    (policy,) = of_type(template, "AWS::IAM::Role")[role]["Policies"]
    written = policy["PolicyDocument"]["Statement"]

    (allowed,) = (one for one in written if one["Sid"] == "StandInVpc")
    (denied,) = (one for one in written if one["Effect"] == "Deny")

    assert denied["Condition"] == {"Null": {"lambda:SourceFunctionArn": "false"}}
    assert (denied["Action"], denied["Resource"]) == (allowed["Action"], "*")


@pytest.mark.parametrize("stage", ["plain", "vpc", "spark", "existing"])
def test_every_permission_has_a_name(templates: Templates, stage: str) -> None:
    assert all(each.get("Sid") for each in _statements_of_all_roles(templates(stage)))


@pytest.mark.parametrize("stage", ["plain", "vpc", "spark", "existing"])
def test_no_role_takes_over_policies_of_aws(templates: Templates, stage: str) -> None:
    roles = of_type(templates(stage), "AWS::IAM::Role").values()

    assert not [role for role in roles if "ManagedPolicyArns" in role]


@pytest.mark.parametrize(
    ("service", "queues"),
    [
        ("receiver", {"ARRIVALS_QUEUE"}),
        ("planner", {"EXTENTS_QUEUE", "ARRIVALS_DLQ", "ARRIVALS_QUEUE"}),
        ("worker", {"EXTENTS_QUEUE", "EXTENTS_DLQ"}),
        ("reconciler", {"EXTENTS_QUEUE"}),
    ],
)
def test_messages_are_sent_to_these_queues_only(
    templates: Templates, service: str, queues: set[str]
) -> None:
    template = templates("plain")
    variables = environment(function(template, service))

    sent = resources(template, service, "sqs:SendMessage")

    assert sorted(each["Fn::GetAtt"][0] for each in sent) == sorted(
        variables[f"EXTENTFLOW_{name}_URL"]["Ref"] for name in queues
    )


def test_the_receiver_reads_its_own_secret_only(templates: Templates) -> None:
    read = resources(templates("plain"), "receiver", "secretsmanager:GetSecretValue")

    assert read == [SOURCES_ARN]


@pytest.mark.parametrize("service", ["planner", "worker", "reconciler"])
def test_objects_of_the_stages_buckets_are_read(templates: Templates, service: str) -> None:
    template = templates("existing")

    assert resources(template, service, "s3:GetObject") == [
        "arn:aws:s3:::landing/*",
        "arn:aws:s3:::direct/*",
        "arn:aws:s3:::direct-new/*",
        "arn:aws:s3:::theirs/*",
    ]
    assert KEY_ARN in resources(template, service, "kms:Decrypt")


@pytest.mark.parametrize("service", ["planner", "worker", "reconciler"])
def test_credentials_for_the_brokers_come_from_one_secret(
    templates: Templates, service: str
) -> None:
    found = resources(templates("existing"), service, "secretsmanager:GetSecretValue")

    assert found == [SECRET_ARN]


def test_the_receiver_has_nothing_to_do_with_brokers(templates: Templates) -> None:
    assert not [each for each in actions(templates("vpc"), "receiver") if "kafka" in each]


def test_workers_write_the_connectors_topics_and_their_own_ids(bench: Bench) -> None:
    bench.write(
        "connectors/logs.yaml",
        "name: logs\ntopic: logs.{extension}\naws.s3.bucket.name: landing\n"
        "errors.tolerance: all\nerrors.deadletterqueue.topic.name: logs-dead\n",
    )
    bench.write(
        "connectors/routed.yaml",
        "name: routed\ntopic: raw\naws.s3.bucket.name: landing\ntransforms: all,each\n"
        "transforms.all.type: RegexRouter\ntransforms.all.regex: raw\n"
        "transforms.all.replacement: to-raw\ntransforms.each.type: ExtractTopic\n"
        "transforms.each.field: country\ntransforms.each.topics: de,fr\n",
    )
    template = bench.template(IN_A_VPC)
    below = CLUSTER_ARN.partition(":cluster/")

    written = resources(template, "worker", "kafka-cluster:WriteData")
    owned = resources(template, "worker", "kafka-cluster:AlterTransactionalId")

    names = {str(arn).rpartition("/")[2] for arn in written}
    own = {"extentflow.jobs", "extentflow.schemas"}
    assert names == {"orders", "logs.*", "logs-dead", "to-raw", "de", "fr"} | own
    assert owned == [
        f"{below[0]}:transactional-id/{below[2]}/extentflow-test.*",
        f"{below[0]}:group/{below[2]}/extentflow-test.*",
    ]


@pytest.mark.parametrize("bus", ["arn:aws:events:eu-west-1:111122223333:event-bus/theirs", "ours"])
def test_ends_of_jobs_are_reported_to_one_bus(bench: Bench, bus: str) -> None:
    template = bench.template(replace(PLAIN, event_bus=bus))

    for service in IN_VPC:
        (reported,) = resources(template, service, "events:PutEvents")
        assert reported == bus or reported["Fn::Join"][1][-1] == f":event-bus/{bus}", service
        assert environment(function(template, service))["EXTENTFLOW_EVENT_BUS"] == bus, service


@pytest.mark.parametrize("service", ["planner", "worker", "reconciler"])
def test_own_topics_are_created_by_the_functions_that_need_them(
    templates: Templates, service: str
) -> None:
    made = resources(templates("vpc"), service, "kafka-cluster:CreateTopic")

    others = "extentflow.schemas" if service == "worker" else "extentflow.progress"
    assert {str(arn).rpartition("/")[2] for arn in made} == {"extentflow.jobs", others}


@pytest.mark.parametrize("service", ["planner", "reconciler"])
def test_only_workers_write_records(templates: Templates, service: str) -> None:
    written = resources(templates("vpc"), service, "kafka-cluster:WriteData")

    assert {str(arn).rpartition("/")[2] for arn in written} == {"extentflow.jobs"}


ROLE = "arn:aws:iam::444455556666:role/reader"


def encrypting(name: str, key: str, **more: str) -> str:
    lines = {
        "name": name,
        "topic": name,
        "aws.s3.bucket.name": "landing",
        "aws.s3.prefix": f"{name}/",
        "columnar.encoding": "parquet",
        "columnar.encryption.columns": "card",
        "columnar.encryption.key": key,
        **{key.replace("__", "."): text for key, text in more.items()},
    }
    return "".join(f"{key}: '{text}'\n" for key, text in lines.items())


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """One stage with connectors of which each needs permissions of its own."""
    bench = Bench.at(tmp_path_factory.mktemp("project"))
    bench.write(
        "connectors/theirs.yaml",
        f"name: theirs\ntopic: theirs\naws.s3.bucket.name: theirs\naws.sts.role.arn: {ROLE}\n",
    )
    bench.write(
        "connectors/team.yaml",
        "name: team\ntopic: t\naws.s3.bucket.name: landing\naws.s3.prefix: team/\n"
        "headers: team=tag:team\n",
    )
    bench.write(
        "connectors/typed.yaml",
        "name: typed\ntopic: t\naws.s3.bucket.name: landing\naws.s3.prefix: typed/\n"
        "value.converter: avro\nvalue.converter.schema.registry.type: glue\n"
        "value.converter.registry.name: shop\nmessage.key: column:id\nkey.converter: protobuf\n"
        "key.converter.schema.registry.type: glue\nkey.converter.registry.name: keys\n"
        "key.converter.auto.register.schemas: 'false'\n",
    )
    listed = {"columnar__encryption__key__list": "${secretsmanager:keys}"}
    bench.write("connectors/one.yaml", encrypting("one", KEY_ARN))
    bench.write("connectors/two.yaml", encrypting("two", "12345678-aaaa-bbbb-cccc-1234567890ab"))
    bench.write("connectors/three.yaml", encrypting("three", "alias/cards"))
    bench.write("connectors/four.yaml", encrypting("four", "of-the-list", **listed))
    return bench.template(replace(IN_A_VPC, network=None))


def test_a_connectors_role_may_be_assumed_and_no_other(several: Template) -> None:
    assert resources(several, "worker", "sts:AssumeRole") == [ROLE]


CHANGES = {
    "s3:PutObjectTagging",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:AbortMultipartUpload",
    "s3:GetObjectTagging",
}


def test_no_function_may_change_an_object_unless_a_connector_does(templates: Templates) -> None:
    for service in FUNCTIONS:
        assert not CHANGES & actions(templates("plain"), service)


def test_objects_are_changed_below_the_prefixes_of_connectors_that_do(bench: Bench) -> None:
    connector = "topic: t\naws.s3.bucket.name: landing\n"
    for name, keys in {
        "tags": "after.completion: tag\nafter.completion.tag: delivered=yes\n",
        "moves": "after.completion: move\nafter.completion.move.prefix: done/\n",
        "deletes": "after.completion: delete\n",
    }.items():
        text = f"name: {name}\n{connector}aws.s3.prefix: {name}/\n{keys}"
        bench.write(f"connectors/{name}.yaml", text)
    template = bench.template(replace(IN_A_VPC, network=None))

    for service in IN_VPC:
        assert resources(template, service, "s3:PutObjectVersionTagging") == [
            "arn:aws:s3:::landing/tags/*"
        ], service
        assert resources(template, service, "s3:PutObject") == ["arn:aws:s3:::landing/done/*"]
        assert resources(template, service, "s3:DeleteObject") == [
            "arn:aws:s3:::landing/deletes/*",
            "arn:aws:s3:::landing/moves/*",
        ], service


def test_only_workers_read_tags_for_headers(several: Template) -> None:
    found = resources(several, "worker", "s3:GetObjectTagging")

    assert found == ["arn:aws:s3:::landing/team/*"]
    assert "s3:GetObjectTagging" not in actions(several, "planner")


def test_only_workers_settle_schemas_and_only_those_of_their_connectors(
    several: Template,
) -> None:
    ends = ["registry/keys", "registry/shop", "schema/keys/t-key", "schema/shop/t-value"]

    def places(action: str) -> list[str]:
        found = [json.dumps(one) for one in resources(several, "worker", action)]
        named = [end for end in ends for one in found if f':{end}"' in one]
        assert len(named) == len(found)
        return named

    assert places("glue:GetSchemaByDefinition") == ends
    assert places("glue:CreateSchema") == ["registry/shop", "schema/shop/t-value"]
    assert not {one for one in actions(several, "planner") if one.startswith("glue:")}


def test_only_workers_use_the_keys_in_kms_that_encrypt_columns(several: Template) -> None:
    by_sid = {one["Sid"]: one for one in statements(several, "worker")}

    own, aliases = by_sid["EncryptColumns"], by_sid["EncryptColumnsByAlias"]
    assert {*own["Action"]} == {*aliases["Action"]} == {"kms:Encrypt", "kms:Decrypt"}
    assert own["Resource"][0] == KEY_ARN or own["Resource"][1] == KEY_ARN
    assert "key/12345678-aaaa-bbbb-cccc-1234567890ab" in json.dumps(own["Resource"])
    assert "of-the-list" not in json.dumps(by_sid)
    assert "key/*" in json.dumps(aliases["Resource"])
    assert aliases["Condition"] == {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": ["alias/cards"]}
    }
    assert "kms:Encrypt" not in actions(several, "planner")


def test_a_stage_without_encrypted_columns_has_no_permission_to_encrypt(
    templates: Templates,
) -> None:
    found = {one for service in FUNCTIONS for one in actions(templates("plain"), service)}

    assert not {one for one in found if one.startswith("kms:")}


def test_a_stage_without_glue_has_no_permission_for_it(templates: Templates) -> None:
    found = {one for service in FUNCTIONS for one in actions(templates("plain"), service)}

    assert not {one for one in found if one.startswith("glue:")}


def test_the_fixture_reads_roles_of_all_functions(templates: Templates) -> None:
    assert all(actions(templates("plain"), service) for service in FUNCTIONS)


def _statements_of_all_roles(template: Template) -> list[dict[str, Any]]:
    return [
        statement
        for role in of_type(template, "AWS::IAM::Role").values()
        for policy in role.get("Policies", [])
        for statement in policy["PolicyDocument"]["Statement"]
    ]
