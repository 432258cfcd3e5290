"""A cluster of MSK that the stack creates, and how functions reach and may use it."""

from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template
from infra.config import Auth, Cluster
from infra.config_cluster import NewCluster
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    CLUSTER_ARN,
    IN_VPC,
    KEY_ARN,
    NEW_BROKERS,
    Bench,
    environment,
    function,
    of_type,
    statements,
)

from extentflow.errors import Misconfigured

CLUSTER = "AWS::MSK::Cluster"
CONFIGURATION = "AWS::MSK::Configuration"
EXPRESS = replace(
    NEW_BROKERS, cluster=Cluster(created=NewCluster(brokers_per_zone=2)), kms_key_arn=KEY_ARN
)


@pytest.fixture
def template(templates: Templates) -> Template:
    return templates("brokers")


def cluster(template: Template) -> dict[str, Any]:
    (found,) = of_type(template, CLUSTER).values()
    return found


def test_standard_brokers_keep_acknowledged_transactions_without_a_zone(
    template: Template,
) -> None:
    (configuration,) = of_type(template, CONFIGURATION).values()
    lines = configuration["ServerProperties"].splitlines()
    assert "KafkaVersionsList" not in configuration  # a change would need another name

    assert dict(line.split("=") for line in lines) == {
        "auto.create.topics.enable": "false",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.replication.factor": "3",
        "unclean.leader.election.enable": "false",
    }
    made = cluster(template)
    assert "LatestRevision.Revision" in str(made["ConfigurationInfo"]["Revision"])
    assert made["NumberOfBrokerNodes"] == len(made["BrokerNodeGroupInfo"]["ClientSubnets"]) == 3
    storage = made["BrokerNodeGroupInfo"]["StorageInfo"]
    assert storage == {"EBSStorageInfo": {"VolumeSize": 100}}


def test_clients_use_iam_over_tls_only(template: Template) -> None:
    made = cluster(template)

    assert made["ClientAuthentication"] == {
        "Sasl": {"Iam": {"Enabled": True}},
        "Unauthenticated": {"Enabled": False},
    }
    assert made["EncryptionInfo"]["EncryptionInTransit"] == {
        "ClientBroker": "TLS",
        "InCluster": True,
    }


def test_express_brokers_have_what_aws_does_not_let_them_change(bench: Bench) -> None:
    template = bench.template(EXPRESS)
    made = cluster(template)

    assert made["NumberOfBrokerNodes"] == 6
    assert made["BrokerNodeGroupInfo"]["InstanceType"] == "express.m7g.large"
    assert "StorageInfo" not in made["BrokerNodeGroupInfo"]
    assert "ConfigurationInfo" not in made
    template.resource_count_is(CONFIGURATION, 0)
    assert made["EncryptionInfo"]["EncryptionAtRest"] == {"DataVolumeKMSKeyId": KEY_ARN}


def test_cluster_configuration_and_group_stay_without_the_stack(template: Template) -> None:
    kinds = (CLUSTER, CONFIGURATION)
    kept = [one for kind in kinds for one in template.find_resources(kind).values()]
    kept += template.find_resources(
        "AWS::EC2::SecurityGroup",
        {"Properties": {"GroupDescription": Match.string_like_regexp("Brokers of")}},
    ).values()

    assert len(kept) == 3
    assert {one["DeletionPolicy"] for one in kept} == {"RetainExceptOnCreate"}
    assert {one["UpdateReplacePolicy"] for one in kept} == {"Retain"}


@pytest.mark.parametrize("service", IN_VPC)
def test_functions_learn_the_brokers_from_the_cluster(template: Template, service: str) -> None:
    (asked,) = of_type(template, "Custom::AWS")
    variables = environment(function(template, service))

    assert variables["EXTENTFLOW_BOOTSTRAP_SERVERS"] == {
        "Fn::GetAtt": [asked, "BootstrapBrokerStringSaslIam"]
    }


def test_functions_reach_the_brokers_port_of_the_new_group(template: Template) -> None:
    (group,) = cluster(template)["BrokerNodeGroupInfo"]["SecurityGroups"]
    (rule,) = of_type(template, "AWS::EC2::SecurityGroupIngress").values()

    assert rule["GroupId"] == group
    assert rule["FromPort"] == rule["ToPort"] == 9098


def resolved(part: Any, arn: str) -> Any:  # noqa: ANN401 - CloudFormation's JSON
    """Return an expression as CloudFormation resolves it, with the ARN of the created cluster."""
    match part:
        case {"Fn::GetAtt": [_, "Arn"]}:
            return arn
        case {"Fn::Split": [between, text]}:
            return resolved(text, arn).split(between)
        case {"Fn::Select": [index, parts]}:
            return resolved(parts, arn)[int(index)]
        case {"Fn::Join": [between, parts]}:
            return between.join(resolved(each, arn) for each in parts)
    return part


@pytest.fixture(scope="module")
def on_that_cluster(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stage on a cluster that exists, with the ARN of the created one."""
    network = NEW_BROKERS.network
    assert network is not None
    same = replace(
        NEW_BROKERS,
        cluster=Cluster(bootstrap_servers="b-1.msk:9098", auth=Auth.IAM, arn=CLUSTER_ARN),
        network=replace(network, cluster_security_group_id="sg-0a1b2c3d"),
    )
    return Bench.at(tmp_path_factory.mktemp("project")).template(same)


@pytest.mark.parametrize("service", IN_VPC)
def test_permissions_are_those_on_a_cluster_with_that_arn(
    on_that_cluster: Template, template: Template, service: str
) -> None:
    def on_cluster(found: Template) -> dict[str, Any]:
        return {
            one["Sid"]: [resolved(each, CLUSTER_ARN) for each in one["Resource"]]
            for one in statements(found, service)
            if one["Action"][0].startswith("kafka-cluster:")
        }

    assert on_cluster(template) == on_cluster(on_that_cluster)
    assert on_cluster(template)


def test_the_custom_resource_may_ask_this_cluster_for_its_brokers(template: Template) -> None:
    (name,) = of_type(template, CLUSTER)
    (asked,) = of_type(template, "Custom::AWS").values()
    handler = of_type(template, "AWS::Lambda::Function")[asked["ServiceToken"]["Fn::GetAtt"][0]]
    role = of_type(template, "AWS::IAM::Role")[handler["Role"]["Fn::GetAtt"][0]]

    assert "ManagedPolicyArns" not in role
    (policy,) = role["Policies"]
    ask, log = policy["PolicyDocument"]["Statement"]
    assert ask["Action"] == "kafka:GetBootstrapBrokers"
    assert ask["Resource"] == {"Fn::GetAtt": [name, "Arn"]}
    assert log["Sid"] == "WriteLog"


def test_a_subnet_that_is_added_later_replaces_no_cluster(bench: Bench) -> None:
    network = NEW_BROKERS.network
    assert network is not None
    late = replace(network.subnets[0], id="subnet-00000000")
    more = replace(NEW_BROKERS, network=replace(network, subnets=(*network.subnets, late)))

    found = cluster(bench.template(more))["BrokerNodeGroupInfo"]["ClientSubnets"]

    assert found == [one.id for one in network.subnets]


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"instance": "m7g.large"}, "instance=m7g.large: write express.* or kafka.*"),
        ({"instance": "kafka.m7g.large"}, "storage_gib: write 1 to 16384 per broker"),
        ({"storage_gib": 100}, "storage_gib is for standard brokers; remove it"),
        ({"brokers_per_zone": 0}, "brokers_per_zone=0: write 1 or more"),
        ({"monitoring": "ALL"}, "monitoring=ALL: AWS has DEFAULT, PER_BROKER"),
    ],
)
def test_settings_that_msk_refuses_are_rejected(changes: dict[str, Any], reported: str) -> None:
    stage = replace(NEW_BROKERS, cluster=Cluster(created=NewCluster(**changes)))

    with pytest.raises(Misconfigured) as caught:
        stage.check()

    (problem,) = caught.value.problems
    assert reported in problem


def test_a_new_cluster_needs_three_zones_and_nothing_of_an_existing_one() -> None:
    network = NEW_BROKERS.network
    assert network is not None
    stage = replace(
        NEW_BROKERS,
        cluster=Cluster(arn=CLUSTER_ARN, auth=Auth.SCRAM, created=NewCluster()),
        network=replace(
            network,
            subnets=network.subnets[:2],
            cluster_security_group_id="sg-1",
            client_security_group_id="sg-2",
        ),
    )

    with pytest.raises(Misconfigured) as caught:
        stage.check()

    reported = "\n".join(caught.value.problems)
    assert "the stack creates it, with auth=iam; leave out the rest" in reported
    assert "brokers need network.subnets in 3 zones; 2 listed" in reported
    for name in ("cluster_security_group_id", "client_security_group_id"):
        assert f"network.{name}: the stack creates the brokers' group; remove it" in reported
