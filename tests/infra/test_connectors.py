"""Declared connectors are checked by the library at synthesis and written at deployment."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.connectors import RESOURCE
from infra.declared import declared
from infra.project import Project
from infra.provider.handler import handler
from infra.synthesis import synthesise
from moto import mock_aws
from tests.infra.conftest import Templates
from tests.support.synthesis import ORDERS, PLAIN, Bench, of_type, yaml_of

from extentflow.config.files import load
from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions
from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.wiring import check_connector


def problems(bench: Bench) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        bench.stack(PLAIN)
    return caught.value.problems


def written(template: Template) -> dict[str, Any]:
    return {one["config"]["name"]: one["config"] for one in of_type(template, RESOURCE).values()}


def test_a_connector_is_written_as_it_stands_in_its_file(templates: Templates) -> None:
    assert written(templates("plain")) == {"orders": ORDERS}


def test_every_file_is_written(bench: Bench) -> None:
    bench.write("connectors/more.yml", yaml_of({**ORDERS, "name": "more"}))
    bench.write("connectors/notes.md", "no connector")

    assert set(written(bench.template(PLAIN))) == {"orders", "more"}


def test_every_problem_of_every_file_is_reported_with_its_file(bench: Bench) -> None:
    bench.write("connectors/a.yaml", yaml_of({**ORDERS, "name": "a", "input.formt": "csv"}))
    bench.write("connectors/b.yaml", "name: b\ntopic: a b\n")
    bench.write("connectors/c.yaml", "name: [c]\n")

    reported = problems(bench)

    assert any(
        line.startswith("a.yaml: input.formt") and "input.format" in line for line in reported
    )
    assert any(line.startswith("b.yaml: topic=") for line in reported)
    assert any(line.startswith("b.yaml: aws.s3.bucket.name") for line in reported)
    assert any("c.yaml:1: name: a list" in line for line in reported)


@pytest.mark.parametrize(
    ("folder", "why"), [("connectors", "declares no connector"), ("conectors", "is not a folder")]
)
def test_a_stage_without_connectors_is_rejected(bench: Bench, folder: str, why: str) -> None:
    for path in (bench.project.root / "connectors").glob("*.yaml"):
        path.unlink()

    with pytest.raises(SystemExit) as ended:
        synthesise(replace(PLAIN, connectors=folder), project=bench.project)

    (problem,) = str(ended.value).splitlines()
    assert problem.startswith(f"error: stage plain: {bench.root}/{folder}: it {why}")


def test_producer_settings_are_checked_by_the_client(bench: Bench) -> None:
    bench.write("connectors/orders.yaml", yaml_of({**ORDERS, "producer.linger.ms": "soon"}))

    (problem,) = problems(bench)

    assert problem.startswith("orders.yaml: producer.linger.ms")


@pytest.mark.parametrize("name", ["orders.properties", "more.json"])
def test_a_connectors_file_that_would_not_be_deployed_is_reported_of(
    bench: Bench, name: str
) -> None:
    bench.write(f"connectors/{name}", "name=more\n")

    (problem,) = problems(bench)

    assert problem.startswith(f"{name}: only *.yaml, *.yml are deployed")


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("/etc/pki/tls/certs/ca-bundle.crt", None),
        ("/opt/python/botocore/cacert.pem", None),
        ("/opt/grid-ca.pem", "{core}/grid-ca.pem does not exist"),
        ("/opt/there.pem", None),
    ],
)
def test_a_ca_bundle_that_functions_lack_is_reported(
    bench: Bench, written: str, reported: str | None
) -> None:
    core = bench.root / "core"
    bench.write("core/there.pem", "")
    grid = {"aws.s3.endpoint": "https://grid:10443", "aws.s3.ca.bundle": written}
    bench.write("connectors/orders.yaml", yaml_of({**ORDERS, **grid}))

    if reported is None:
        assert declared(bench.root / "connectors", PLAIN, layer=core)
    else:
        with pytest.raises(Misconfigured) as caught:
            declared(bench.root / "connectors", PLAIN, layer=core)
        (problem,) = caught.value.problems
        assert reported.format(core=core) in problem


def test_a_registrys_ca_that_functions_lack_is_reported(bench: Bench) -> None:
    registry = {
        "value.converter": "avro",
        "value.converter.schema.registry.url": "https://registry:8081",
        "value.converter.schema.registry.ssl.ca.location": "/opt/registry-ca.pem",
    }
    bench.write("connectors/orders.yaml", yaml_of({**ORDERS, **registry}))

    with pytest.raises(Misconfigured, match=r"ca\.location=/opt/registry-ca\.pem: .* not exist"):
        declared(bench.root / "connectors", PLAIN, layer=bench.root / "core")


def test_two_files_cannot_declare_one_name(bench: Bench) -> None:
    bench.write("connectors/twin.yaml", yaml_of(ORDERS))

    reported = problems(bench)

    assert {line.partition(":")[0] for line in reported} == {"orders.yaml", "twin.yaml"}
    assert all("name=orders: another file has the same name" in line for line in reported)


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        ({**ORDERS, "aws.s3.bucket.name": "lnading"}, "stage plain has no such bucket"),
        (
            {"name": "o", "topic": "o", "endpoint.type": "localfile", "directory": "/data"},
            "functions have no access to this directory",
        ),
        ({**ORDERS, "aws.sts.role.arn": "${secretsmanager:a:b}"}, "write the ARN"),
        ({**ORDERS, "aws.sts.role.arn": "role/*"}, "are allowed one role; write its ARN"),
        ({**ORDERS, "aws.sts.role.arn": "arn:aws:iam::111122223333:role/*"}, "write its ARN"),
        ({**ORDERS, "aws.sts.role.arn": "arn:aws:iam::*:role/reader"}, "write its ARN"),
    ],
)
def test_a_connector_that_the_stage_cannot_serve_is_rejected(
    bench: Bench, config: dict[str, str], reported: str
) -> None:
    bench.write("connectors/orders.yaml", yaml_of(config))

    (problem,) = problems(bench)

    assert problem.startswith("orders.yaml: ")
    assert reported in problem


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("connectors.bucket.allowed=other-*", "aws.s3.bucket.name", "landing"),
        ("connectors.completion.allowed=tag", "after.completion", "delete"),
        ("connectors.secret.allowed=team-*", "producer.sasl.password", "${secretsmanager:a:b}"),
        ("connectors.host.allowed=grid", "aws.s3.endpoint", "https://elsewhere"),
        ("", "producer.sasl.password", "${env:PASSWORD}"),
    ],
)
def test_a_connector_that_the_stages_own_settings_forbid_is_rejected(
    bench: Bench, setting: str, key: str, value: str
) -> None:
    """CloudFormation refused it in the middle of the deployment."""
    bench.write("connectors/orders.yaml", yaml_of({**ORDERS, key: value}))
    name, _, patterns = setting.partition("=")
    stage = replace(PLAIN, settings={name: patterns} if name else {})

    with pytest.raises(Misconfigured) as caught:
        bench.stack(stage)

    (problem,) = caught.value.problems
    assert problem.startswith(f"orders.yaml: {key}={value}: connectors may not name this here;")
    assert (name or "functions have no variables for connectors") in problem


@pytest.mark.parametrize("file", sorted((Project().root / "connectors").glob("*.yaml")))
def test_connectors_of_the_project_are_valid(file: Path) -> None:
    assert check_connector(load(file)).name == file.stem


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoLedger]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "EXTENTFLOW_BOOTSTRAP_SERVERS": "broker:9092",
        "EXTENTFLOW_LEDGER_TABLE": "ledger",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        ledger = DynamoLedger(LedgerOptions("ledger"))
        ledger.admin.create()
        yield ledger


def event(request: str, config: dict[str, str], physical: str | None = None) -> dict[str, Any]:
    """What CDK's framework hands on; `physical` is what an earlier answer said."""
    given = {} if physical is None else {"PhysicalResourceId": physical}
    properties = {"ServiceToken": "x", "config": config}
    return {"RequestType": request, "ResourceProperties": properties, **given}


def test_deployment_stores_the_connector_and_returns_its_revision(ledger: DynamoLedger) -> None:
    answer = handler(event("Create", ORDERS), None)

    stored = ledger.connectors.get("orders")
    assert answer == {"PhysicalResourceId": "orders", "Data": {"revision": "1"}}
    assert stored is not None
    assert stored.config == ORDERS


def test_only_a_changed_configuration_makes_a_new_revision(
    ledger: DynamoLedger,
) -> None:
    handler(event("Create", ORDERS), None)

    same = handler(event("Update", ORDERS, "orders"), None)
    other = handler(event("Update", {**ORDERS, "topic": "orders-2"}, "orders"), None)

    assert same["PhysicalResourceId"] == other["PhysicalResourceId"] == "orders"
    assert same["Data"] == {"revision": "1"}
    assert other["Data"] == {"revision": "2"}
    stored = ledger.connectors.get("orders")
    assert stored is not None
    assert stored.config["topic"] == "orders-2"


def test_a_connector_that_is_no_longer_declared_is_hidden(ledger: DynamoLedger) -> None:
    physical = handler(event("Create", ORDERS), None)["PhysicalResourceId"]

    answer = handler(event("Delete", ORDERS, physical), None)

    assert answer == {"PhysicalResourceId": "orders"}
    assert ledger.connectors.get("orders") is None
    assert ledger.connectors.get("orders", 1) is not None


def test_a_connector_that_was_there_before_stays(ledger: DynamoLedger) -> None:
    ledger.connectors.put("orders", ORDERS)

    created = handler(event("Create", ORDERS), None)["PhysicalResourceId"]
    updated = handler(event("Update", ORDERS, created), None)["PhysicalResourceId"]
    deleted = handler(event("Delete", ORDERS, updated), None)["PhysicalResourceId"]

    assert created == updated == deleted != "orders"
    assert ledger.connectors.get("orders") is not None


def test_a_connector_that_was_hidden_and_is_declared_again_is_the_stacks(
    ledger: DynamoLedger,
) -> None:
    ledger.connectors.put("orders", ORDERS)
    ledger.connectors.delete("orders")

    answer = handler(event("Create", ORDERS), None)

    assert answer["PhysicalResourceId"] == "orders"


def test_hiding_a_connector_that_was_never_written_is_no_failure(ledger: DynamoLedger) -> None:
    answer = handler(event("Delete", ORDERS, "orders"), None)

    assert answer == {"PhysicalResourceId": "orders"}
    assert ledger.connectors.get("orders") is None


def test_a_template_that_was_edited_by_hand_is_rejected_at_deployment(ledger: DynamoLedger) -> None:
    with pytest.raises(Misconfigured, match=r"input\.formt"):
        handler(event("Create", {**ORDERS, "input.formt": "csv"}), None)

    assert ledger.connectors.get("orders") is None
