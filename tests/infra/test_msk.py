"""An MSK cluster by its ARN: one look-up with credentials, then synthesis without any."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from infra.config import Auth, Cluster, Network, Stage
from infra.msk import CONTEXT_FILE, complete, context_key, keep, kept
from infra.stages import STAGES
from infra.synthesis import synthesise
from tests.support.aws_answers import Answers, Client, account
from tests.support.synthesis import IN_A_VPC, QUICK, SECRET_ARN, Bench

from extentflow.errors import Misconfigured
from infra import __main__ as command

(EXAMPLE,) = STAGES
assert EXAMPLE.network is not None
ARN = EXAMPLE.cluster.arn or ""
BY_ARN = replace(
    EXAMPLE, cluster=Cluster(arn=ARN), network=Network(endpoints=EXAMPLE.network.endpoints)
)
SHORT = replace(IN_A_VPC, cluster=Cluster(arn=ARN), network=Network())
DESCRIBE = ("kafka", "describe_cluster_v2")
BROKERS = ("kafka", "get_bootstrap_brokers")


def looked_up(folder: Path, answers: Answers | None = None, arn: str = ARN) -> dict[str, Any]:
    found = {**account("shared"), **(answers or {})}
    keep(arn, folder, lambda service: Client(service, found))
    return kept(folder)


def message(stage: Stage, context: dict[str, Any]) -> str:
    with pytest.raises(Misconfigured) as caught:
        complete(stage, context.get)
    (problem,) = caught.value.problems
    return problem


def test_a_stage_with_an_arn_becomes_the_one_that_says_everything(tmp_path: Path) -> None:
    found = complete(BY_ARN, looked_up(tmp_path).get)

    assert EXAMPLE.network is not None
    zones = ("euc1-az2", "euc1-az3")
    subnets = tuple(
        replace(subnet, zone_id=zone)
        for subnet, zone in zip(EXAMPLE.network.subnets, zones, strict=True)
    )
    cidrs = ("10.0.0.0/16", "100.64.0.0/16")
    assert found == replace(
        EXAMPLE, network=replace(EXAMPLE.network, subnets=subnets, vpc_cidrs=cidrs)
    )
    found.check()


def test_what_a_stage_says_itself_is_not_replaced(tmp_path: Path) -> None:
    network = replace(IN_A_VPC.network or Network(), subnets=(), vpc_id="")

    found = complete(replace(BY_ARN, network=network), looked_up(tmp_path).get).network

    assert found is not None
    assert found.cluster_security_group_id == network.cluster_security_group_id
    assert found.vpc_cidrs == network.vpc_cidrs
    assert [one.id for one in found.subnets] == [
        one.id for one in (EXAMPLE.network or network).subnets
    ]


def test_the_template_is_that_of_the_written_values(bench: Bench, tmp_path: Path) -> None:
    context = looked_up(tmp_path)
    written = replace(SHORT, cluster=EXAMPLE.cluster, network=complete(SHORT, context.get).network)
    made = bench.stack(written)
    by_arn = bench.stack(SHORT, cdk.App(context=QUICK | context))

    assert Template.from_stack(by_arn).to_json() == Template.from_stack(made).to_json()


def test_synthesis_reads_the_answer_beside_the_settings_of_cdk(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CDK_OUTDIR", str(tmp_path / "out"))
    monkeypatch.delenv("CDK_CONTEXT_JSON", raising=False)
    bench.write("cdk.json", json.dumps({"context": QUICK}))

    with pytest.raises(SystemExit) as refused:
        synthesise(SHORT, project=bench.project)

    assert f"run `python -m infra lookup {ARN}` once with credentials" in str(refused.value)

    looked_up(bench.root)
    synthesise(SHORT, project=bench.project)

    text = (tmp_path / "out/extentflow-vpc.template.json").read_text()
    assert "b-1.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098" in text


def test_the_rest_of_the_context_stays(tmp_path: Path) -> None:
    (tmp_path / CONTEXT_FILE).write_text('{"vpc-provider:account=1": {"vpcId": "vpc-1"}}')

    found = looked_up(tmp_path)

    assert found["vpc-provider:account=1"] == {"vpcId": "vpc-1"}
    assert list(found) == sorted(found)
    assert context_key(ARN) in found


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_context_is_named_and_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / CONTEXT_FILE).write_text(text)

    with pytest.raises(Misconfigured, match=rf"{CONTEXT_FILE}: no JSON.*correct it"):
        looked_up(tmp_path)

    assert (tmp_path / CONTEXT_FILE).read_text() == text


def test_an_authentication_that_the_cluster_lacks_is_reported_with_its_own(tmp_path: Path) -> None:
    context = looked_up(tmp_path)
    scram = Cluster(arn=ARN, auth=Auth.SCRAM, secret_arn=SECRET_ARN)

    assert "has no brokers with it, but with iam;" in message(
        replace(BY_ARN, cluster=scram), context
    )
    public = message(replace(BY_ARN, network=None), context)
    assert (
        "no public brokers (a stage without network needs them) with it, but with nothing" in public
    )


@pytest.mark.parametrize(("enabled", "expected"), [(False, ["iam"]), (True, ["mtls", "iam"])])
def test_brokers_with_tls_are_those_of_certificates_where_the_cluster_asks_for_them(
    tmp_path: Path, *, enabled: bool, expected: list[str]
) -> None:
    described = json.loads(json.dumps(account("shared")[DESCRIBE]))
    proof = described["ClusterInfo"]["Provisioned"]["ClientAuthentication"]
    proof["Tls"] = {"Enabled": enabled}
    brokers = {
        "BootstrapBrokerStringTls": "b-1:9094",
        "BootstrapBrokerStringSaslIam": "b-1:9098",
        "BootstrapBrokerStringPublicSaslIam": "b-1-public:9198",
    }

    context = looked_up(tmp_path, {DESCRIBE: described, BROKERS: brokers})

    assert list(context[context_key(ARN)]["inside"]) == expected
    outside = complete(replace(BY_ARN, network=None), context.get)
    assert outside.cluster.servers == (("b-1-public", 9198),)


def test_a_subnet_without_a_route_table_of_its_own_has_that_of_the_vpc(tmp_path: Path) -> None:
    tables = [
        {"RouteTableId": "rtb-main", "Associations": [{"Main": True}]},
        {
            "RouteTableId": "rtb-own",
            "Associations": [{"Main": False, "SubnetId": "subnet-0a1b2c3d4e5f60002"}],
        },
    ]

    context = looked_up(tmp_path, {("ec2", "describe_route_tables"): {"RouteTables": tables}})

    subnets = context[context_key(ARN)]["subnets"]
    assert [one["routeTableId"] for one in subnets] == ["rtb-main", "rtb-own"]


def test_serverless_and_absent_clusters_are_refused(tmp_path: Path) -> None:
    serverless = {"ClusterInfo": {"ClusterType": "SERVERLESS", "Serverless": {}}}

    with pytest.raises(Misconfigured, match="MSK Serverless is not supported"):
        looked_up(tmp_path, {DESCRIBE: serverless})
    with pytest.raises(Misconfigured, match="no ARN of an MSK cluster"):
        looked_up(tmp_path, arn="arn:aws:sqs:eu-central-1:111122223333:orders")

    assert not (tmp_path / CONTEXT_FILE).exists()


def test_an_answer_of_another_version_is_looked_up_again() -> None:
    context = {context_key(ARN): {"inside": {"iam": "b:9098"}}}

    assert f"run `python -m infra lookup {ARN}` again" in message(BY_ARN, context)


def test_a_stage_names_its_brokers_or_their_cluster() -> None:
    with pytest.raises(Misconfigured) as caught:
        replace(EXAMPLE, cluster=Cluster(auth=Auth.NONE), network=Network()).check()

    reported = "\n".join(caught.value.problems)
    assert "cluster: write bootstrap_servers, arn of an MSK cluster, or created" in reported
    assert "network.vpc_id: write it, or cluster.arn of MSK, which gives it" in reported


def test_the_command_says_why_it_cannot_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials, the SDK's own chain ends in an error with a remedy."""
    monkeypatch.setattr("infra.msk.keep", lambda *_: (_ for _ in ()).throw(Misconfigured("none")))

    with pytest.raises(SystemExit, match="error: none"):
        command.main(["lookup", ARN])
