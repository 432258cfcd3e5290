"""Functions may read the secrets that settings and connectors refer to, and reach them."""

from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.config import Auth, Cluster, Stage
from infra.secrets import referred
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    CLUSTER_ARN,
    IN_A_VPC,
    IN_VPC,
    KEY_ARN,
    ORDERS,
    PLAIN,
    SECRET_ARN,
    Bench,
    actions,
    statements,
    yaml_of,
)

from extentflow.config.worker import load, variable
from extentflow.errors import Misconfigured
from extentflow.wiring import check_connector

STORE_ARN = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:grid-AbCdEf"
FAR_ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:far-AbCdEf"
READ = "secretsmanager:GetSecretValue"


def secretive(store: str = "", producer: str = "") -> str:
    """Return a connector that reads its store, or writes, with what a secret holds."""
    config = {**ORDERS, "name": "secretive"}
    if store:
        config["aws.access.key.id"] = f"${{secretsmanager:{store}:id}}"
        config["aws.secret.access.key"] = f"${{secretsmanager:{store}:key}}"
    if producer:
        config["producer.sasl.password"] = f"${{secretsmanager:{producer}}}"
    return yaml_of(config)


def readable(template: Template, service: str) -> list[Any]:
    return [
        resource
        for statement in statements(template, service)
        if READ in statement["Action"]
        for resource in statement["Resource"]
    ]


def problems(bench: Bench, stage: Stage) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        bench.stack(stage)
    return caught.value.problems


def reaching(*more: str, nat: bool = False) -> Stage:
    assert IN_A_VPC.network is not None
    endpoints = (*IN_A_VPC.network.created, *more)
    return replace(IN_A_VPC, network=replace(IN_A_VPC.network, endpoints=endpoints, nat=nat))


def test_a_function_reads_the_secrets_that_it_uses(bench: Bench) -> None:
    bench.write("connectors/secretive.yaml", secretive(STORE_ARN, SECRET_ARN))

    template = bench.template(PLAIN)

    assert {service: readable(template, service) for service in (*IN_VPC, "provider")} == {
        "planner": [STORE_ARN],
        "reconciler": [STORE_ARN],
        "worker": [SECRET_ARN, STORE_ARN],
        "provider": [],
    }


def test_a_secrets_name_stands_for_the_one_of_the_stages_region(bench: Bench) -> None:
    bench.write("connectors/secretive.yaml", secretive("app/grid"))

    (resource,) = readable(bench.template(PLAIN), "planner")

    joined = "".join(part for part in resource["Fn::Join"][1] if isinstance(part, str))
    assert joined.endswith(":secret:app/grid-??????")
    assert ":secretsmanager:eu-central-1:" in joined


def test_what_settings_refer_to_is_read_by_all_that_use_them(bench: Bench) -> None:
    settings = {"kafka.ssl.key.password": f"${{secretsmanager:{STORE_ARN}}}"}

    template = bench.template(replace(PLAIN, settings=settings))

    assert [readable(template, service) for service in IN_VPC] == [[STORE_ARN]] * len(IN_VPC)


def test_keys_of_secrets_are_used_where_there_are_secrets(bench: Bench) -> None:
    stage = replace(PLAIN, secret_key_arns=(KEY_ARN,))
    without = bench.template(stage)
    assert not [service for service in IN_VPC if "kms:Decrypt" in actions(without, service)]

    bench.write("connectors/secretive.yaml", secretive(STORE_ARN))

    template = bench.template(stage)
    assert all("kms:Decrypt" in actions(template, service) for service in IN_VPC)
    # The receiver has a secret of its own.
    for each in (without, template):
        (decrypting,) = (
            statement
            for statement in statements(each, "receiver")
            if "kms:Decrypt" in statement["Action"]
        )
        assert decrypting["Resource"] == [KEY_ARN]


def test_a_secrets_key_is_a_complete_arn(bench: Bench) -> None:
    (problem,) = problems(bench, replace(PLAIN, secret_key_arns=("alias/ours",)))

    assert "secret_key_arns[0]=alias/ours: write a complete ARN" in problem


def test_a_connectors_secret_needs_a_path(bench: Bench) -> None:
    bench.write("connectors/secretive.yaml", secretive(producer=STORE_ARN))

    (problem,) = problems(bench, IN_A_VPC)

    assert "function worker calls secretsmanager (settings and connectors" in problem
    assert "add secretsmanager to network.endpoints" in problem
    bench.stack(reaching("secretsmanager"))


def test_a_secret_of_another_region_needs_a_path_there(bench: Bench) -> None:
    bench.write("connectors/secretive.yaml", secretive(FAR_ARN))

    (problem,) = problems(bench, reaching("secretsmanager"))

    assert problem.startswith(f"secretive.yaml: secret {FAR_ARN}: ")
    assert "covers eu-central-1 only" in problem
    bench.stack(reaching(nat=True))


def test_text_that_only_looks_like_a_reference_names_no_secret() -> None:
    config = {**ORDERS, "input.format": "csv", "csv.null": "${x}"}
    assert check_connector(config).options_of("csv").null == "${x}"

    assert referred({**config, "ssl.key.pem": f"${{secretsmanager:{STORE_ARN}}}"}) == {STORE_ARN}


@pytest.mark.parametrize("stage", ["plain", "vpc"])
@pytest.mark.parametrize("service", IN_VPC)
def test_without_references_no_secret_is_read(
    templates: Templates, stage: str, service: str
) -> None:
    assert READ not in actions(templates(stage), service)


@pytest.mark.parametrize("auth", list(Auth))
def test_functions_understand_what_they_are_reported_of_the_brokers(auth: Auth) -> None:
    cluster = Cluster(
        bootstrap_servers="b-1.msk:9098", auth=auth, arn=CLUSTER_ARN, secret_arn=SECRET_ARN
    )
    reported = cluster.client_settings()

    read = load({variable(key): text for key, text in reported.items()}, read_text=lambda _: None)

    assert {f"kafka.{key}": text for key, text in read.kafka.items()} == {
        key: text for key, text in reported.items() if key.startswith("kafka.")
    }
    kept = set() if auth in {Auth.NONE, Auth.IAM} else {SECRET_ARN}
    assert referred(reported) == kept


def test_what_is_no_secret_is_found_at_synthesis(bench: Bench) -> None:
    cluster = Cluster(bootstrap_servers="b:9096", auth=Auth.SCRAM, secret_arn=KEY_ARN)

    found = problems(bench, replace(PLAIN, cluster=cluster))

    assert any("settings: kafka.sasl.password=" in problem for problem in found)
    assert any("secretsmanager:name:key" in problem for problem in found)
    assert any("cluster.secret_arn=" in problem for problem in found)
