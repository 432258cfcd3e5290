"""No function is placed in a VPC from which it cannot reach what it calls."""

from dataclasses import replace
from typing import Any

import pytest
from aws_cdk.assertions import Template
from infra.config import Auth, Bucket, BucketNotification, Cluster, Network, Stage, Subnet
from infra.grants import WITHOUT_CONNECTION
from tests.infra.conftest import Templates
from tests.support.synthesis import (
    IN_A_VPC,
    IN_VPC,
    ON_SPARK,
    SECRET_ARN,
    STAGES,
    Bench,
    actions,
    function,
    of_type,
    yaml_of,
)

from extentflow.errors import Misconfigured

ENDPOINT = "AWS::EC2::VPCEndpoint"
FAR_ARN = "arn:aws:secretsmanager:us-east-1:111122223333:secret:far-AbCdEf"
ALL = ("s3", "dynamodb", "sqs", "events")


def placed(**changes: Any) -> Stage:  # noqa: ANN401 - fields of Network
    assert IN_A_VPC.network is not None
    return replace(IN_A_VPC, network=replace(IN_A_VPC.network, **changes))


def problems(bench: Bench, stage: Stage) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        bench.stack(stage)
    return caught.value.problems


@pytest.fixture(scope="module")
def without_paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The problems of a stage without endpoints."""
    found = problems(Bench.at(tmp_path_factory.mktemp("project")), placed(endpoints=()))
    assert all(sum(f" {service} (" in problem for service in ALL) == 1 for problem in found)
    return found


def endpoints(template: Template) -> dict[str, dict[str, Any]]:
    """Return endpoints by the last word of their service's name."""
    return {_service(one): one for one in of_type(template, ENDPOINT).values()}


@pytest.mark.parametrize("missing", ALL)
def test_a_service_without_a_path_is_rejected_with_reason_and_remedy(
    without_paths: tuple[str, ...], missing: str
) -> None:
    found = [problem for problem in without_paths if f" {missing} (" in problem]

    called, why = zip(*(problem.split(f" {missing} (") for problem in found), strict=True)
    assert {name for name in IN_VPC for names in called if name in names} == set(IN_VPC)
    assert len({*why}) == len(found)  # one line per reason for all callers
    for problem in found:
        assert f"add {missing} to network.endpoints" in problem


@pytest.mark.parametrize(
    "existing",
    [
        "s3",
        pytest.param("dynamodb", marks=pytest.mark.variant),
        "sqs",
        pytest.param("events", marks=pytest.mark.variant),
    ],
)
def test_an_endpoint_that_is_there_already_is_a_path_and_not_made_again(
    bench: Bench, existing: str
) -> None:
    kept = tuple(service for service in ALL if service != existing)

    template = bench.template(placed(endpoints=kept, existing_endpoints=(existing,)))

    assert set(endpoints(template)) == set(kept)


def test_nat_is_a_path_to_everything_beside_which_only_named_endpoints_are_made(
    bench: Bench,
) -> None:
    assert not endpoints(bench.template(placed(nat=True, vpc_cidrs=())))

    template = bench.template(placed(endpoints=("s3", "dynamodb"), nat=True, vpc_cidrs=()))

    assert set(endpoints(template)) == {"s3", "dynamodb"}
    assert "EndpointsSecurityGroupId" not in template.find_outputs("*")


@pytest.mark.parametrize("name", STAGES)
def test_no_endpoint_that_takes_over_a_name_admits_fewer_than_the_vpc(
    templates: Templates, name: str
) -> None:
    """Private DNS gives the name to the endpoint for every workload of the VPC."""
    template, network = templates(name), STAGES[name].network
    groups = of_type(template, "AWS::EC2::SecurityGroup")
    apart = of_type(template, "AWS::EC2::SecurityGroupIngress").values()
    taking = [one for one in of_type(template, ENDPOINT).values() if one.get("PrivateDnsEnabled")]

    assert bool(taking) == (network is not None)
    for one in taking:
        assert "PolicyDocument" not in one  # it would refuse the others' calls
        (own,) = (each["Fn::GetAtt"][0] for each in one["SecurityGroupIds"])
        rules = [*groups[own].get("SecurityGroupIngress", [])]
        rules += [rule for rule in apart if rule["GroupId"] == {"Fn::GetAtt": [own, "GroupId"]}]
        admitted = [rule["CidrIp"] for rule in rules if rule["FromPort"] <= 443 <= rule["ToPort"]]
        assert network is not None
        assert set(admitted) == set(network.vpc_cidrs) != set()


def test_an_interface_endpoint_needs_the_blocks_of_its_vpc(bench: Bench) -> None:
    (problem,) = problems(bench, placed(vpc_cidrs=()))

    assert "network.vpc_cidrs: endpoints of events, sqs answer for all workloads" in problem
    assert "aws ec2 describe-vpcs --vpc-ids vpc-0a1b2c3d" in problem
    bench.stack(placed(vpc_cidrs=(), existing_endpoints=("sqs", "events")))


@pytest.mark.parametrize("cidr", ["10.0.0.1/16", "vpc", "2001:db8::/56"])
def test_what_is_no_block_of_addresses_is_rejected(bench: Bench, cidr: str) -> None:
    (problem,) = problems(bench, placed(vpc_cidrs=(cidr,)))

    assert f"network.vpc_cidrs[0]={cidr}: " in problem
    assert problem.endswith("write a block such as 10.0.0.0/16")


def test_other_stages_learn_the_group_of_the_endpoints(templates: Templates) -> None:
    template = templates("vpc")
    (sqs,) = (one for name, one in endpoints(template).items() if name == "sqs")

    outputs = template.find_outputs("EndpointsSecurityGroupId")

    assert [one["Value"] for one in outputs.values()] == sqs["SecurityGroupIds"]


def test_endpoints_and_functions_stand_where_they_are_placed(bench: Bench) -> None:
    template = bench.template(
        placed(placement={"sqs": ("subnet-00000002",), "functions": ("subnet-00000001",)})
    )

    found = endpoints(template)
    assert found["sqs"]["SubnetIds"] == ["subnet-00000002"]
    assert found["events"]["SubnetIds"] == ["subnet-00000001", "subnet-00000002"]
    for service in IN_VPC:
        assert function(template, service)["VpcConfig"]["SubnetIds"] == ["subnet-00000001"]


def test_an_endpoint_has_one_subnet_per_zone_as_aws_requires(bench: Bench) -> None:
    assert IN_A_VPC.network is not None
    second = Subnet(
        id="subnet-00000003", availability_zone="eu-central-1a", route_table_id="rtb-00000003"
    )

    template = bench.template(placed(subnets=(*IN_A_VPC.network.subnets, second)))

    assert endpoints(template)["sqs"]["SubnetIds"] == ["subnet-00000001", "subnet-00000002"]
    assert len(function(template, "worker")["VpcConfig"]["SubnetIds"]) == 3


@pytest.mark.parametrize(
    ("placement", "reported"),
    [
        ({"s3": ("subnet-00000001",)}, "s3 has no subnets; known are events, functions, sqs"),
        ({"sqs": ()}, "sqs: name at least one subnet"),
        ({"functions": ("subnet-9",)}, "functions: subnet-9: not in network.subnets"),
        ({"sqs": ("subnet-00000001",) * 2}, "sqs: an endpoint has one subnet per zone"),
    ],
)
def test_a_placement_that_cannot_be_is_rejected(
    bench: Bench, placement: dict[str, tuple[str, ...]], reported: str
) -> None:
    (problem,) = problems(bench, placed(placement=placement))

    assert f"network.placement: {reported}" in problem


def test_credentials_in_a_secret_need_a_path_to_it(bench: Bench) -> None:
    cluster = Cluster(bootstrap_servers="b:9096", auth=Auth.SCRAM, secret_arn=SECRET_ARN)
    stage = replace(placed(), cluster=cluster)

    found = problems(bench, stage)

    (problem,) = found
    assert all(name in problem for name in IN_VPC)
    assert "call secretsmanager" in problem
    bench.stack(replace(placed(endpoints=(*ALL, "secretsmanager")), cluster=cluster))


@pytest.mark.parametrize(
    ("changes", "service"),
    [
        ({"event_bus": "arn:aws:events:us-east-1:111122223333:event-bus/far"}, "events"),
        (
            {"cluster": Cluster(bootstrap_servers="b:9096", auth=Auth.SCRAM, secret_arn=FAR_ARN)},
            "secretsmanager",
        ),
        pytest.param(
            {"settings": {"kafka.ssl.key.password": f"${{secretsmanager:{FAR_ARN}}}"}},
            "secretsmanager",
            marks=pytest.mark.variant,
        ),
    ],
    ids=["bus", "brokers' secret", "settings' secret"],
)
def test_a_service_of_another_region_needs_a_path_there(
    bench: Bench, changes: dict[str, Any], service: str
) -> None:
    found = problems(bench, replace(placed(endpoints=(*ALL, "secretsmanager")), **changes))

    reported = "\n".join(found)
    assert all(name in reported for name in IN_VPC)
    for problem in found:
        assert f" {service} in us-east-1 (" in problem
        assert "covers eu-central-1 only; set network.nat" in problem
    bench.stack(replace(placed(nat=True), **changes))


def test_an_unknown_endpoint_is_rejected(bench: Bench) -> None:
    (problem,) = problems(bench, placed(endpoints=(*ALL, "dynamo")))

    assert "network.endpoints[4]=dynamo: the stack has dynamodb, emr-serverless" in problem


def test_an_endpoint_is_made_or_there_never_both(bench: Bench) -> None:
    (problem,) = problems(bench, placed(endpoints=ALL, existing_endpoints=("sqs",)))

    assert "sqs is also in existing_endpoints" in problem


@pytest.mark.parametrize("service", IN_VPC)
def test_every_service_that_a_role_may_call_has_an_endpoint(
    templates: Templates, service: str
) -> None:
    template = templates("vpc")
    called = {action.partition(":")[0] for action in actions(template, service)}

    assert called - WITHOUT_CONNECTION.keys() <= set(endpoints(template))


@pytest.mark.parametrize("service", ["receiver", "provider"])
def test_functions_that_need_no_broker_stay_outside(templates: Templates, service: str) -> None:
    assert "VpcConfig" not in function(templates("vpc"), service)


@pytest.mark.parametrize("service", IN_VPC)
def test_functions_stand_in_the_brokers_subnets(templates: Templates, service: str) -> None:
    placed_in = function(templates("vpc"), service)["VpcConfig"]

    assert placed_in["SubnetIds"] == ["subnet-00000001", "subnet-00000002"]


def test_brokers_let_functions_in_at_their_port(templates: Templates) -> None:
    templates("vpc").has_resource_properties(
        "AWS::EC2::SecurityGroupIngress",
        {"GroupId": "sg-0a1b2c3d", "FromPort": 9098, "ToPort": 9098, "IpProtocol": "tcp"},
    )


def test_a_group_that_brokers_admit_already_is_used_as_it_is(bench: Bench) -> None:
    assert ON_SPARK.network is not None
    network = replace(
        ON_SPARK.network, client_security_group_id="sg-00c11e00", cluster_security_group_id=""
    )

    template = bench.template(replace(ON_SPARK, network=network))

    for service in IN_VPC:
        assert function(template, service)["VpcConfig"]["SecurityGroupIds"] == ["sg-00c11e00"]
    (spark,) = of_type(template, "AWS::EMRServerless::Application").values()
    assert spark["NetworkConfiguration"]["SecurityGroupIds"] == ["sg-00c11e00"]
    (made,) = of_type(template, "AWS::EC2::SecurityGroup").values()
    assert made["GroupDescription"] == "Interface endpoints of extentflow"
    template.resource_count_is("AWS::EC2::SecurityGroupIngress", 0)
    template.resource_count_is("AWS::EC2::SecurityGroupEgress", 0)


def test_gateways_and_interface_endpoints_serve_the_subnets(templates: Templates) -> None:
    template = templates("vpc")
    found = endpoints(template)

    for service in ("s3", "dynamodb"):
        assert found[service]["VpcEndpointType"] == "Gateway"
        assert found[service]["RouteTableIds"] == ["rtb-00000001", "rtb-00000002"]
    for service in ("sqs", "events"):
        assert found[service]["VpcEndpointType"] == "Interface"
        assert found[service]["SubnetIds"] == ["subnet-00000001", "subnet-00000002"]
        assert found[service]["PrivateDnsEnabled"] is True


def test_without_a_network_nothing_of_it_is_made(templates: Templates) -> None:
    template = templates("plain")

    for kind in (ENDPOINT, "AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress"):
        template.resource_count_is(kind, 0)


GRID = {
    "name": "grid",
    "topic": "grid",
    "endpoint.type": "storagegrids3",
    "aws.s3.bucket.name": "measurements",
    "aws.s3.endpoint": "https://grid.example:10443",
}
ELSEWHERE = {
    "name": "far",
    "topic": "far",
    "aws.s3.bucket.name": "landing",
    "aws.s3.region": "us-east-1",
}
# Its notifications stay in its region; the path to its objects is another question.
LISTED = (Bucket(name="landing", exists=True, announced=BucketNotification.ELSEWHERE),)
GLUE = {
    "name": "typed",
    "topic": "typed",
    "aws.s3.bucket.name": "landing",
    "value.converter": "avro",
    "value.converter.schema.registry.type": "glue",
    "value.converter.registry.name": "shop",
}
REGISTRY = {
    "name": "typed",
    "topic": "typed",
    "aws.s3.bucket.name": "landing",
    "value.converter": "avro",
    "value.converter.schema.registry.url": "https://registry.example:8081",
}


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        (GRID, "no path from the VPC"),
        (ELSEWHERE, "covers eu-central-1 only"),
        (REGISTRY, "no path from the VPC; add registry.example"),
    ],
)
def test_a_connectors_store_needs_a_path(
    bench: Bench, config: dict[str, str], reported: str
) -> None:
    bench.write("connectors/other.yaml", yaml_of(config))

    (problem,) = problems(bench, replace(IN_A_VPC, buckets=LISTED))

    assert problem.startswith("other.yaml: ")
    assert reported in problem


def test_routes_of_ones_own_lead_to_a_grid_and_a_schema_registry(bench: Bench) -> None:
    bench.write("connectors/grid.yaml", yaml_of(GRID))
    bench.write("connectors/typed.yaml", yaml_of(REGISTRY))

    bench.stack(placed(reaches=("grid.example", "registry.example")))


def test_schemas_in_glue_need_a_path(bench: Bench) -> None:
    bench.write("connectors/typed.yaml", yaml_of(GLUE))

    found = problems(bench, IN_A_VPC)

    assert {one.partition(" (")[0] for one in found} == {"function worker calls glue"}
    assert all("add glue to network.endpoints" in one for one in found)
    bench.stack(placed(endpoints=(*ALL, "glue")))


def test_keys_in_kms_need_a_path(bench: Bench) -> None:
    config = {
        "name": "cards",
        "topic": "cards",
        "aws.s3.bucket.name": "landing",
        "columnar.encoding": "parquet",
        "columnar.encryption.columns": "card",
        "columnar.encryption.key": "alias/cards",
    }
    bench.write("connectors/cards.yaml", yaml_of(config))

    found = problems(bench, IN_A_VPC)

    assert {one.partition(" (")[0] for one in found} == {"function worker calls kms"}
    bench.stack(placed(endpoints=(*ALL, "kms")))


def test_an_endpoint_of_glue_needs_a_path_unless_it_is_the_regions_own(bench: Bench) -> None:
    own = {"value.converter.endpoint": "https://glue.eu-central-1.amazonaws.com"}
    bench.write("connectors/typed.yaml", yaml_of(GLUE | own))
    bench.stack(placed(endpoints=(*ALL, "glue")))
    bench.write(
        "connectors/typed.yaml",
        yaml_of(GLUE | {"value.converter.endpoint": "https://schemas.example"}),
    )

    (problem,) = problems(bench, placed(endpoints=(*ALL, "glue")))

    assert problem.startswith(
        "typed.yaml: value.converter.endpoint=https://schemas.example: no path"
    )
    assert "add schemas.example to network.reaches" in problem
    bench.stack(placed(endpoints=(*ALL, "glue"), reaches=("schemas.example",)))


def test_nat_leads_to_every_store(bench: Bench) -> None:
    for config in (GRID, ELSEWHERE, REGISTRY):
        bench.write(f"connectors/{config['name']}.yaml", yaml_of(config))

    bench.stack(replace(placed(nat=True), buckets=LISTED))


def test_a_network_needs_a_subnet(bench: Bench) -> None:
    network = Network(vpc_id="vpc-0a1b2c3d", cluster_security_group_id="sg-0a1b2c3d", nat=True)
    cluster = Cluster(bootstrap_servers="broker-1:9092", auth=Auth.NONE)

    (problem,) = problems(bench, replace(IN_A_VPC, cluster=cluster, network=network))

    assert "network.subnets: write it, or cluster.arn of MSK" in problem


def _service(endpoint: dict[str, Any]) -> str:
    name = endpoint["ServiceName"]
    text: str = name if isinstance(name, str) else name["Fn::Join"][1][-1]
    return text.rpartition(".")[2]
