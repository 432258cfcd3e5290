"""`doctor --stage`: what an account lacks before the first deployment, and the remedy."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from moto import mock_aws
from tests.support.aws_answers import Answers, Client, account, refused
from tests.support.golden import Golden
from tests.support.planned import DEV, SUBNETS

from extentflow.aws import open_client
from extentflow.retry import Clock
from extentflow.services.account_checks import AccountChecks
from extentflow.services.health import Finding
from extentflow.services.planned import (
    PlannedBucket,
    PlannedKey,
    PlannedNetwork,
    PlannedStage,
)

NOW = 1_790_000_000.0  # September 2026
ACCOUNTS = ("empty", "shared", "locked")
ARN = "arn:aws:kms:eu-central-1:111122223333:key/11112222-3333-4444-5555-666677778888"
SECRET = DEV.secrets[0].id
ROUTES = tuple(f"rtb-0a1b2c3d4e5f6000{number}" for number in (1, 2))
# Of what the checks call, Moto lacks these.
NOT_IN_MOTO = {
    ("cloudformation", "describe_stacks"),
    ("ec2", "describe_vpc_endpoint_services"),
    ("iam", "simulate_principal_policy"),
    ("kafka", "describe_cluster_v2"),
    ("kafka", "get_bootstrap_brokers"),
    ("lambda", "get_account_settings"),
    ("service-quotas", "list_service_quotas"),
    ("service-quotas", "list_aws_default_service_quotas"),
}


def network() -> PlannedNetwork:
    assert DEV.network is not None
    return DEV.network


def planned(**changes: Any) -> PlannedStage:  # noqa: ANN401 - fields of many types
    """Return the example stage with other fields of its network."""
    return replace(DEV, network=replace(network(), **changes))


def examined(
    name: str = "empty", changes: Answers | None = None, stage: PlannedStage = DEV
) -> list[Finding]:
    answers = {**account(name), **(changes or {})}
    checks = AccountChecks(stage, lambda service: Client(service, answers), Clock(wall=lambda: NOW))
    return list(checks.examine())


class Proxy:
    """Answers all calls but that of the identity with `answer`; None: the SDK fails on it."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def ask(**_request: object) -> Any:  # noqa: ANN401 - JSON
            if operation == "get_caller_identity":
                return {"Arn": "arn:aws:iam::111122223333:user/x", "Account": "111122223333"}
            if self.answer is None:
                raise AttributeError("'NoneType' object has no attribute 'update'")
            return self.answer

        return ask


@pytest.mark.parametrize("answer", [{"ResponseMetadata": {}}, None])
def test_answers_of_another_form_leave_out_their_own_checks_only(
    answer: dict[str, Any] | None,
) -> None:
    checks = AccountChecks(DEV, lambda _service: Proxy(answer), Clock(wall=lambda: NOW))

    findings = {one.check: one for one in checks.examine()}

    assert findings["credentials"].verdict == "ok"
    assert "event bus" in findings  # the last check
    why = "it has no Parameter" if answer else "'NoneType' object has no attribute 'update'"
    fact = f"ssm get_parameter: the answer is not one of AWS ({why})"
    assert findings["CDK bootstrap"].fact == fact
    assert "look for a proxy" in findings["VPC"].remedy


def failed(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.verdict != "ok"]


@pytest.mark.parametrize("name", ACCOUNTS)
def test_each_kind_of_account_gets_its_findings(name: str, golden: Golden) -> None:
    found = failed(examined(name))

    golden("\n".join(f"{f.verdict}: {f.check}: {f.fact}; {f.remedy}" for f in found) or "no fault")


def test_an_empty_account_takes_the_example_stage() -> None:
    assert not failed(examined("empty"))


def test_a_shared_account_takes_the_stage_that_follows_the_remedies() -> None:
    """The remaining findings are those that a stage cannot remove: quotas, cluster, policies."""
    first = network().subnets[:1]
    stage = replace(
        planned(
            subnets=first,
            gateways=("dynamodb",),
            interfaces=dict.fromkeys(("events", "logs", "emr-serverless"), SUBNETS[:1]),
            existing_endpoints=("s3", "sqs"),
            vpc_cidrs=("10.0.0.0/16", "100.64.0.0/16"),
            function_subnets=SUBNETS[:1],
            spark_subnets=SUBNETS[:1],
        ),
        buckets=(
            PlannedBucket(name="extentflow-dev-landing", exists=True, prefixes=(), elsewhere=False),
        ),
    )

    left = failed(examined("shared", stage=stage))

    checks = ["other users of the VPC", "invocations", "cluster", "access log"]
    assert [one.check for one in left] == checks


def test_a_cluster_that_the_stack_creates_is_not_looked_for() -> None:
    made = replace(DEV.cluster, servers=(), arn=None)
    stage = replace(planned(cluster_security_group_id=""), cluster=made)
    answers: Answers = {("ec2", "describe_security_groups"): refused("InvalidGroupId.Malformed")}

    assert failed(examined("empty", answers, stage)) == []


@pytest.mark.parametrize(
    "source",
    [
        {"UserIdGroupPairs": [{"GroupId": "sg-0c11e0"}], "IpRanges": []},
        {"IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
    ],
)
def test_a_given_group_that_the_brokers_admit_is_accepted(source: dict[str, Any]) -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 9098, "ToPort": 9098, **source}
    answers = described("ec2.describe_security_groups", IpPermissions=[rule])

    found = examined("empty", answers, planned(client_security_group_id="sg-0c11e0"))

    assert failed(found) == []
    assert "functions' group" in {one.check for one in found}


def test_brokers_that_admit_functions_only_shut_out_spark() -> None:
    stage = planned(client_security_group_id="sg-0c11e0")
    assert stage.network is not None
    assert stage.spark is not None
    one, *others = account("empty")["ec2", "describe_subnets"]["Subnets"]
    network = replace(
        stage.network,
        function_subnets=(one["SubnetId"],),
        spark_subnets=tuple(each["SubnetId"] for each in others),
    )
    admitted = [{"CidrIp": one["CidrBlock"]}]
    rule = {"IpProtocol": "tcp", "FromPort": 9098, "ToPort": 9098, "IpRanges": admitted}
    answers = described("ec2.describe_security_groups", IpPermissions=[rule])

    found = examined("empty", answers, replace(stage, network=network))

    assert "brokers' group" in {each.check for each in failed(found)}


def test_a_given_group_needs_no_group_of_the_brokers() -> None:
    stage = planned(client_security_group_id="sg-0c11e0", cluster_security_group_id="")

    assert failed(examined("empty", stage=stage)) == []


def described(key: str, **changes: Any) -> Answers:  # noqa: ANN401 - JSON
    """Return the empty account's answer, of which the first listed item has other members."""
    service, _, operation = key.rpartition(".")
    answer = dict(account("empty")[service, operation])
    (kind,) = answer
    first, *rest = answer[kind]
    return {(service, operation): {kind: [{**first, **changes}, *rest]}}


def endpoint(service: str, **changes: Any) -> Answers:  # noqa: ANN401 - JSON
    gateway = service in ("s3", "dynamodb")
    found = {
        "VpcEndpointId": "vpce-1",
        "VpcEndpointType": "Gateway" if gateway else "Interface",
        "ServiceName": f"com.amazonaws.eu-central-1.{service}",
        "State": "available",
        "PrivateDnsEnabled": not gateway,
        "RouteTableIds": [*ROUTES] if gateway else [],
        "Groups": [{"GroupId": "sg-0a1b2c3d4e5f60718"}],
        "PolicyDocument": policy(),
    }
    return {("ec2", "describe_vpc_endpoints"): {"VpcEndpoints": [{**found, **changes}]}}


def policy(**changes: Any) -> str:  # noqa: ANN401 - JSON
    allow = {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}
    return json.dumps({"Statement": [allow | changes]})


def admitted(*blocks: str, **changes: Any) -> Answers:  # noqa: ANN401 - JSON
    rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
    ranges = [{"CidrIp": block} for block in blocks]
    return described(
        "ec2.describe_security_groups", IpPermissions=[{**rule, "IpRanges": ranges, **changes}]
    )


def without(service: str, **changes: Any) -> PlannedStage:  # noqa: ANN401 - fields of many types
    """Return a stage in whose VPC the endpoint of a service exists already."""
    left = {one: ids for one, ids in network().interfaces.items() if one != service}
    gateways = tuple(one for one in network().gateways if one != service)
    return planned(interfaces=left, gateways=gateways, existing_endpoints=(service,), **changes)


def cluster(**changes: Any) -> Answers:  # noqa: ANN401 - JSON
    found = account("empty")["kafka", "describe_cluster_v2"]["ClusterInfo"]
    return {("kafka", "describe_cluster_v2"): {"ClusterInfo": {**found, **changes}}}


def with_bucket(**fields: Any) -> PlannedStage:  # noqa: ANN401 - fields of two types
    bucket = PlannedBucket(
        **{"name": "landing", "exists": False, "prefixes": (), "elsewhere": False, **fields}
    )
    return replace(DEV, buckets=(bucket,))


def default_route(**way: str) -> Answers:
    route = {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **way}
    return described("ec2.describe_route_tables", Routes=[route])


def with_secret(
    *keys: str, option: str = "secret_key_arns", members: tuple[str, ...] = ()
) -> PlannedStage:
    secret = replace(DEV.secrets[0], keys=keys, key_option=option, members=members)
    return replace(DEV, secrets=(secret,))


def with_key(*services: str, arn: str = ARN) -> PlannedStage:
    return replace(DEV, keys=(PlannedKey(arn=arn, services=services),))


def leaving(*rules: dict[str, Any]) -> Answers:
    """Return the answers about a VPC whose only group lets clients in, and has outbound rules."""
    names = {"logs": "pl-logs", "s3": "pl-s3", "dynamodb": "pl-dynamodb"}
    lists = [
        {"PrefixListName": f"com.amazonaws.eu-central-1.{name}", "PrefixListId": id_}
        for name, id_ in names.items()
    ]
    inward = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    answers = described(
        "ec2.describe_security_groups", IpPermissions=[inward], IpPermissionsEgress=[*rules]
    )
    return answers | {("ec2", "describe_prefix_lists"): {"PrefixLists": lists}}


def out(port: int, *blocks: str, group: str = "", lists: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return an outbound rule."""
    return {
        "IpProtocol": "tcp",
        "FromPort": port,
        "ToPort": port,
        "IpRanges": [{"CidrIp": block} for block in blocks],
        "UserIdGroupPairs": [{"GroupId": group}] if group else [],
        "PrefixListIds": [{"PrefixListId": one} for one in lists],
    }


def key_policy(*statements: dict[str, Any]) -> Answers:
    """Return the answers about an enabled key whose policy has these statements, and others."""
    others = {"Effect": "Deny", "Principal": "*", "Action": "kms:*", "Resource": "*"}
    text = json.dumps({"Statement": [others, *({"Effect": "Allow"} | one for one in statements)]})
    metadata = {"KeyId": "k", "KeyState": "Enabled"}
    return {
        ("kms", "describe_key"): {"KeyMetadata": metadata},
        ("kms", "get_key_policy"): {"Policy": text},
    }


def notifying(*events: str, prefix: str | None = None, suffix: str = "") -> Answers:
    """Return the answers about a bucket that exists, with a rule of others."""
    rule: dict[str, Any] = {"Id": "theirs", "QueueArn": "q", "Events": [*events]}
    if prefix is not None:
        rules = [{"Name": "Prefix", "Value": prefix}, {"Name": "Suffix", "Value": suffix}]
        rule["Filter"] = {"Key": {"FilterRules": rules}}
    return {
        ("s3", "head_bucket"): EXISTS,
        ("s3", "get_bucket_notification_configuration"): {"QueueConfigurations": [rule]},
    }


def deployed(*resources: dict[str, str]) -> Answers:
    """Return the answers of an account that has the stack, with these resources."""
    return {
        ("cloudformation", "describe_stacks"): {"Stacks": [{"StackStatus": "CREATE_COMPLETE"}]},
        ("cloudformation", "list_stack_resources"): {"StackResourceSummaries": [*resources]},
        ("lambda", "get_function_concurrency"): {"ReservedConcurrentExecutions": 20},
    }


def paged_rights(*decisions: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an answer whose second page decides about the last actions."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        names = sorted(request["ActionNames"])
        first, last = names[: -len(decisions)], names[-len(decisions) :]
        if "Marker" not in request:
            allowed = [{"EvalActionName": one, "EvalDecision": "allowed"} for one in first]
            return {"EvaluationResults": allowed, "IsTruncated": True, "Marker": "2"}
        rest = zip(last, decisions, strict=True)
        found = [{"EvalActionName": one, "EvalDecision": decision} for one, decision in rest]
        return {"EvaluationResults": found, "IsTruncated": False}

    return answer


def there(arn: str) -> str:
    return arn.replace("eu-central-1", "us-east-1")


def invocations(allowed: int, free: int) -> Answers:
    limit = {"ConcurrentExecutions": allowed, "UnreservedConcurrentExecutions": free}
    return {("lambda", "get_account_settings"): {"AccountLimit": limit}}


EXISTS = {"BucketRegion": "eu-central-1"}
NAT_ROUTE: Answers = {
    ("ec2", "describe_route_tables"): {
        "RouteTables": [
            {
                "RouteTableId": table,
                "Associations": [{"SubnetId": subnet, "Main": False}],
                "Routes": [
                    {
                        "DestinationCidrBlock": "0.0.0.0/0",
                        "State": "active",
                        "NatGatewayId": "nat-1",
                    }
                ],
            }
            for table, subnet in zip(ROUTES, SUBNETS, strict=True)
        ]
    }
}
CREATED = "s3:ObjectCreated:*"
ROOT = {"Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": ["kms:*"]}
PASSWORD = ("password", "username")
BROKERS = "sg-0a1b2c3d4e5f60718"
GIVEN = planned(client_security_group_id="sg-0c11e0")
OF_GATEWAYS = ("pl-s3", "pl-dynamodb")
# Calls without whose permission a check says less, and is no problem.
UNNEEDED = (("kms", "get_key_policy"), ("secretsmanager", "get_secret_value"))
Case = tuple[Answers, PlannedStage, str, str, str]

FAULTS: Mapping[str, Case] = {
    "no bootstrap with the qualifier of a company": (
        {("ssm", "get_parameter"): refused("ParameterNotFound")},
        replace(DEV, bootstrap="/cdk-bootstrap/acme/version"),
        "CDK bootstrap",
        "/cdk-bootstrap/acme/version does not exist",
        "eu-central-1 --qualifier acme --toolkit-stack-name CDKToolkit-acme`",
    ),
    "an old bootstrap with the qualifier of a company": (
        {("ssm", "get_parameter"): {"Parameter": {"Value": "5"}}},
        replace(DEV, bootstrap="/cdk-bootstrap/acme/version"),
        "CDK bootstrap",
        "version 5",
        "eu-central-1 --qualifier acme`",
    ),
    "a bootstrap whose version is no number": (
        {("ssm", "get_parameter"): {"Parameter": {"Value": "21-acme"}}},
        DEV,
        "CDK bootstrap",
        "has the value 21-acme",
        "npx cdk bootstrap aws://111122223333/eu-central-1",
    ),
    "an old bootstrap": (
        {("ssm", "get_parameter"): {"Parameter": {"Value": "5"}}},
        DEV,
        "CDK bootstrap",
        "version 5",
        "npx cdk bootstrap aws://111122223333/eu-central-1",
    ),
    "a stack that was rolled back": (
        {
            ("cloudformation", "describe_stacks"): {
                "Stacks": [{"StackStatus": "ROLLBACK_COMPLETE"}]
            },
            ("cloudformation", "list_stack_resources"): {"StackResourceSummaries": []},
        },
        DEV,
        "stack",
        "ROLLBACK_COMPLETE",
        "aws cloudformation delete-stack --stack-name extentflow-dev",
    ),
    "a stack in work": (
        {
            ("cloudformation", "describe_stacks"): {
                "Stacks": [{"StackStatus": "UPDATE_IN_PROGRESS"}]
            },
            ("cloudformation", "list_stack_resources"): {"StackResourceSummaries": []},
        },
        DEV,
        "stack",
        "UPDATE_IN_PROGRESS",
        "wait",
    ),
    "an artifact that was not built": (
        {},
        replace(DEV, unbuilt=("the layer is missing; run `make layers`",)),
        "template",
        "run `make layers`",
        "synthesise the stage again",
    ),
    "no role of CDK": (
        {("iam", "simulate_principal_policy"): refused("NoSuchEntity")},
        DEV,
        "rights of CloudFormation",
        "no role cdk-hnb659fds-cfn-exec-role-111122223333-eu-central-1",
        "bootstrap",
    ),
    "a subnet in another zone": (
        described("ec2.describe_subnets", AvailabilityZone="eu-central-1c"),
        DEV,
        f"subnet {SUBNETS[0]}",
        "it is in eu-central-1c, the stage says eu-central-1a",
        "availability_zone='eu-central-1c'",
    ),
    "a zone with another id": (
        {},
        planned(subnets=tuple(replace(one, zone_id="euc1-az3") for one in network().subnets)),
        f"subnet {SUBNETS[0]}",
        "its zone is euc1-az2, the stage says euc1-az3",
        "zone_id='euc1-az2'",
    ),
    "a subnet of another VPC": (
        described("ec2.describe_subnets", SubnetId="subnet-other"),
        DEV,
        f"subnet {SUBNETS[0]}",
        "not in vpc-0a1b2c3d4e5f60718",
        "correct network.subnets",
    ),
    "few addresses for Spark": (
        described("ec2.describe_subnets", AvailableIpAddressCount=9),
        DEV,
        f"subnet {SUBNETS[0]}",
        "9 addresses are free",
        "lower spark.most_vcpu",
    ),
    "a public subnet": (
        default_route(GatewayId="igw-1"),
        planned(
            nat=True,
            subnets=network().subnets[:1],
            interfaces={},
            function_subnets=SUBNETS[:1],
            spark_subnets=SUBNETS[:1],
        ),
        f"routes of {SUBNETS[0]}",
        "igw-1: functions have no public address",
        "private subnet",
    ),
    "no route to a NAT gateway": (
        default_route(NatGatewayId="nat-1"),
        planned(nat=True),
        f"routes of {SUBNETS[1]}",
        "no default route, and network.nat is set",
        "nat=False",
    ),
    "another route table": (
        {},
        planned(
            subnets=(replace(network().subnets[0], route_table_id="rtb-1"), network().subnets[1])
        ),
        f"routes of {SUBNETS[0]}",
        f"the stage says route table rtb-1, the subnet has {ROUTES[0]}",
        f"route_table_id='{ROUTES[0]}'",
    ),
    "an interface endpoint that exists": (
        endpoint("sqs"),
        DEV,
        "new endpoint sqs",
        "has one already: vpce-1",
        "existing_endpoints",
    ),
    "a gateway endpoint that exists": (
        endpoint("s3"),
        DEV,
        "new endpoint s3",
        "has one already: vpce-1",
        "existing_endpoints",
    ),
    "no endpoint where one should exist": (
        {},
        without("sqs"),
        "existing endpoint sqs",
        "has none",
        "name it in network.endpoints",
    ),
    "an existing endpoint that refuses functions": (
        endpoint("sqs") | admitted("10.0.0.0/24"),
        without("sqs"),
        "existing endpoint sqs",
        "does not admit 10.0.1.0/24 on port 443",
        "authorize-security-group-ingress --group-id sg-0a1b2c3d4e5f60718 --protocol tcp",
    ),
    "an existing endpoint without private DNS": (
        endpoint("sqs", PrivateDnsEnabled=False),
        without("sqs"),
        "existing endpoint sqs",
        "no private DNS",
        "modify-vpc-endpoint --vpc-endpoint-id vpce-1 --private-dns-enabled",
    ),
    "an existing gateway endpoint without a route": (
        endpoint("s3", RouteTableIds=[ROUTES[0]]),
        without("s3"),
        "existing endpoint s3",
        f"no route in {ROUTES[1]}",
        f"--add-route-table-ids {ROUTES[1]}",
    ),
    "an existing endpoint with a policy": (
        endpoint("s3", PolicyDocument=policy(Action="s3:Get*")),
        without("s3"),
        "existing endpoint s3",
        "a policy of its own",
        "functions' roles",
    ),
    "an existing endpoint that was not accepted": (
        endpoint("sqs", State="pendingAcceptance"),
        without("sqs"),
        "existing endpoint sqs",
        "vpce-1 is not available: pendingAcceptance",
        "let its owner accept",
    ),
    "an existing endpoint that failed": (
        endpoint("sqs", State="failed"),
        without("sqs"),
        "existing endpoint sqs",
        "vpce-1 is not available: failed",
        "replace it",
    ),
    "an existing endpoint that refuses Spark": (
        endpoint("logs") | admitted("10.0.0.0/24"),
        without("logs", function_subnets=SUBNETS[:1]),
        "existing endpoint logs",
        "does not admit 10.0.1.0/24 on port 443",
        "authorize-security-group-ingress",
    ),
    "an existing endpoint that admits prefix lists": (
        endpoint("sqs") | admitted("10.0.0.0/24", PrefixListIds=[{"PrefixListId": "pl-1"}]),
        without("sqs"),
        "existing endpoint sqs",
        "vpce-1 admits 10.0.1.0/24 at most by pl-1",
        "see whether that contains all callers",
    ),
    "an existing endpoint for another account": (
        endpoint("s3", PolicyDocument=policy(Principal={"AWS": "444455556666"})),
        without("s3"),
        "existing endpoint s3",
        "a policy of its own",
        "functions' roles",
    ),
    "an existing endpoint for another bucket": (
        endpoint("s3", PolicyDocument=policy(Resource="arn:aws:s3:::theirs/*")),
        without("s3"),
        "existing endpoint s3",
        "a policy of its own",
        "functions' roles",
    ),
    "an endpoint of others before a NAT gateway": (
        endpoint("sqs") | admitted("10.0.0.0/24") | NAT_ROUTE,
        planned(nat=True, gateways=(), interfaces={}),
        "endpoint sqs of others",
        "answers for the service in the VPC, and vpce-1 does not admit 10.0.1.0/24",
        "authorize-security-group-ingress",
    ),
    "an endpoint of others that a connector may need": (
        endpoint("glue") | admitted("10.0.0.0/24") | NAT_ROUTE,
        planned(nat=True, gateways=(), interfaces={}),
        "endpoint glue of others",
        "vpce-1 does not admit 10.0.1.0/24",
        "authorize-security-group-ingress",
    ),
    "a zone without Lambda": (
        {
            ("ec2", "describe_vpc_endpoint_services"): {
                "ServiceDetails": [
                    one | {"AvailabilityZones": ["eu-central-1b"]}
                    if one["ServiceName"].endswith("lambda")
                    else one
                    for one in account("empty")["ec2", "describe_vpc_endpoint_services"][
                        "ServiceDetails"
                    ]
                ]
            }
        },
        DEV,
        "zones of functions",
        "the service is not in eu-central-1a",
        f"placement={{'functions': ('{SUBNETS[1]}',)}}",
    ),
    "endpoints in a VPC of another account": (
        described("ec2.describe_vpcs", OwnerId="444455556666"),
        planned(gateways=("s3",), interfaces={}),
        "new endpoints",
        "444455556666 owns vpc-0a1b2c3d4e5f60718: only it may create endpoints there",
        "existing_endpoints=('s3',) and no endpoints; or set nat=True",
    ),
    "existing endpoints in a VPC of another account": (
        described("ec2.describe_vpcs", OwnerId="444455556666"),
        planned(gateways=(), interfaces={}, existing_endpoints=("sqs",)),
        "existing endpoint sqs",
        "444455556666 owns vpc-0a1b2c3d4e5f60718: this one cannot see its endpoints",
        "ask 444455556666 whether it exists",
    ),
    "brokers' group in a VPC of another account": (
        described("ec2.describe_vpcs", OwnerId="444455556666")
        | {("ec2", "describe_security_groups"): refused("InvalidGroup.NotFound")},
        planned(gateways=(), interfaces={}, nat=False),
        "brokers' group",
        "is not of this account, but of 444455556666",
        "deploy into the account of the brokers",
    ),
    "a shared group of brokers": (
        described("ec2.describe_security_groups", OwnerId="444455556666"),
        DEV,
        "brokers' group",
        "is not of this account, but of 444455556666: the stage may not add a rule",
        "deploy into the account of the brokers",
    ),
    "brokers of another VPC": (
        described("ec2.describe_security_groups", VpcId="vpc-other"),
        DEV,
        "brokers' group",
        "is in vpc-other",
        "cluster_security_group_id",
    ),
    "a given group that the brokers do not admit": (
        {},
        planned(client_security_group_id="sg-0c11e0"),
        "brokers' group",
        "sg-0a1b2c3d4e5f60718 does not admit sg-0c11e0 on port 9098",
        "--port 9098 --source-group sg-0c11e0`",
    ),
    "no group of brokers": (
        {("ec2", "describe_security_groups"): refused("InvalidGroup.NotFound")},
        DEV,
        "brokers' group",
        "not in this account",
        "cluster_security_group_id",
    ),
    "a lower quota than the stage says": (
        {
            ("lambda", "get_account_settings"): {
                "AccountLimit": {
                    "ConcurrentExecutions": 500,
                    "UnreservedConcurrentExecutions": 500,
                }
            }
        },
        DEV,
        "invocations",
        "500 are allowed, the stage says 1000",
        "account_concurrency=500",
    ),
    "invocations of others": (
        {
            ("lambda", "get_account_settings"): {
                "AccountLimit": {
                    "ConcurrentExecutions": 1_000,
                    "UnreservedConcurrentExecutions": 130,
                }
            }
        },
        DEV,
        "invocations",
        "130 of 1000 concurrent invocations are free, the stage needs 135",
        "lower most_workers",
    ),
    "few vCPUs": (
        {
            ("service-quotas", "list_service_quotas"): {
                "Quotas": [{"QuotaName": "Max concurrent vCPUs per account", "Value": 8.0}]
            }
        },
        DEV,
        "vCPUs of Spark",
        "8 allowed, spark.quota_vcpu=16",
        "leave spark out: no run fits",
    ),
    "few vCPUs by default": (
        {
            ("service-quotas", "list_service_quotas"): {"Quotas": []},
            ("service-quotas", "list_aws_default_service_quotas"): {
                "Quotas": [{"QuotaName": "Max concurrent vCPUs per account", "Value": 12.0}]
            },
        },
        DEV,
        "vCPUs of Spark",
        "12 allowed, spark.quota_vcpu=16",
        'request 16 of the quota "Max concurrent vCPUs per account", or lower quota_vcpu to 12',
    ),
    "no such cluster": (
        {("kafka", "describe_cluster_v2"): refused("NotFoundException")},
        DEV,
        "cluster",
        "no such cluster",
        "correct cluster.arn",
    ),
    "MSK Serverless": (
        {
            ("kafka", "describe_cluster_v2"): {
                "ClusterInfo": {"ClusterType": "SERVERLESS", "ClusterName": "dev"}
            }
        },
        DEV,
        "cluster",
        "is MSK Serverless",
        "provisioned",
    ),
    "a cluster in creation": (
        cluster(State="CREATING"),
        DEV,
        "cluster",
        "dev: it is CREATING",
        "wait",
    ),
    "other bootstrap servers": (
        {("kafka", "get_bootstrap_brokers"): {"BootstrapBrokerStringSaslIam": "other:9098"}},
        DEV,
        "cluster",
        "no bootstrap server b-1.dev.abc123",
        "aws kafka get-bootstrap-brokers",
    ),
    "another group of brokers": (
        described("ec2.describe_security_groups"),
        planned(cluster_security_group_id="sg-other"),
        "cluster",
        "its brokers have sg-0a1b2c3d4e5f60718, not sg-other",
        "cluster_security_group_id='sg-0a1b2c3d4e5f60718'",
    ),
    "a bucket that exists": (
        {("s3", "head_bucket"): EXISTS},
        DEV,
        "bucket extentflow-dev-landing",
        "exists already",
        "exists=True",
    ),
    "a bucket that does not exist": (
        {},
        with_bucket(exists=True),
        "bucket landing",
        "does not exist",
        "leave out exists=True",
    ),
    "a bucket in another region": (
        {("s3", "head_bucket"): {"BucketRegion": "eu-west-1"}},
        with_bucket(exists=True),
        "bucket landing",
        "it is in eu-west-1, the stage in eu-central-1",
        "in the bucket's region",
    ),
    "a bucket that may not be read": (
        {("s3", "head_bucket"): refused("403")},
        with_bucket(exists=True),
        "bucket landing",
        "may not read it",
        "allow s3:ListBucket",
    ),
    "a receiver that a deployed stage does not have yet": (
        deployed({"ResourceType": "AWS::Lambda::Function", "PhysicalResourceId": "planner"})
        | {
            ("lambda", "get_function_concurrency"): {},
            ("lambda", "get_account_settings"): {
                "AccountLimit": {
                    "ConcurrentExecutions": 1_000,
                    "UnreservedConcurrentExecutions": 115,
                }
            },
        },
        DEV,
        "invocations",
        "the stage needs 20 reserved for the receiver and 100 others unreserved",
        "write Receiver(concurrency=15) or less",
    ),
    "rights on a second page": (
        {("iam", "simulate_principal_policy"): paged_rights("explicitDeny")},
        DEV,
        "rights of CloudFormation",
        "the role's own policy does not allow",
        "ask who owns that policy",
    ),
    "a bucket that notifies others of a deployed stage": (
        deployed() | notifying(CREATED),
        with_bucket(exists=True, prefixes=("in/",)),
        "bucket landing",
        "it notifies others of new objects below in/: theirs",
        "BucketNotification.EVENTBRIDGE",
    ),
    "a bucket that notifies others": (
        notifying("s3:ObjectCreated:Put", prefix="i", suffix=".csv"),
        with_bucket(exists=True, prefixes=("in/",)),
        "bucket landing",
        "it notifies others of new objects below in/: theirs",
        "BucketNotification.EVENTBRIDGE",
    ),
    "a bucket of others that does not exist": (
        {},
        with_bucket(exists=True, elsewhere=True),
        "bucket landing",
        "it does not exist",
        "correct the name",
    ),
    "a bucket of another account": (
        {("s3", "head_bucket"): refused("403")},
        with_bucket(exists=True, elsewhere=True),
        "bucket landing",
        "these credentials may not read it",
        "let its owner allow the roles",
    ),
    "a bucket of others in another region": (
        {("s3", "head_bucket"): {"BucketRegion": "eu-west-1"}},
        with_bucket(exists=True, elsewhere=True),
        "bucket landing",
        "it is in eu-west-1, the stage in eu-central-1",
        "forward its events",
    ),
    "an incomplete ARN of a secret": (
        {},
        replace(DEV, secrets=(replace(DEV.secrets[0], id=SECRET.removesuffix("-AbCdEf")),)),
        f"secret {SECRET.removesuffix('-AbCdEf')}",
        f"its ARN is {SECRET}",
        "write the complete ARN",
    ),
    "a secret in another region": (
        {},
        replace(DEV, secrets=(replace(DEV.secrets[0], id=there(SECRET)),)),
        f"secret {there(SECRET)}",
        "it is in us-east-1, the stage in eu-central-1: not checked",
        f"`aws secretsmanager describe-secret --secret-id {there(SECRET)} --region us-east-1`",
    ),
    "a key in another region": (
        {},
        with_key(arn=there(ARN)),
        f"key {there(ARN)}",
        "it is in us-east-1, the stage in eu-central-1: not checked",
        f"`aws kms describe-key --key-id {there(ARN)} --region us-east-1`",
    ),
    "no secret": (
        {("secretsmanager", "describe_secret"): refused("ResourceNotFoundException")},
        DEV,
        f"secret {SECRET}",
        "does not exist",
        "create it",
    ),
    "a secret with another key": (
        {
            ("secretsmanager", "describe_secret"): {"ARN": SECRET, "KmsKeyId": "alias/theirs"},
            ("kms", "describe_key"): {
                "KeyMetadata": {"KeyId": "k", "Arn": f"{ARN}0", "KeyState": "Enabled"}
            },
        },
        with_secret(ARN, option="secret_key_arns"),
        f"secret {SECRET}",
        "encrypted with alias/theirs, which secret_key_arns does not name",
        "write the key's ARN in secret_key_arns",
    ),
    "a secret of the brokers, whose key the stage uses for others": (
        {
            ("secretsmanager", "describe_secret"): {"ARN": SECRET, "KmsKeyId": ARN},
            ("kms", "describe_key"): {"KeyMetadata": {"KeyId": "k", "KeyState": "Enabled"}},
        },
        replace(with_secret(option="cluster.secret_key_arn"), keys=with_key().keys),
        f"secret {SECRET}",
        f"encrypted with {ARN}, which cluster.secret_key_arn does not name",
        "write the key's ARN in cluster.secret_key_arn: its readers may not decrypt it",
    ),
    "a given group without outbound rules": (
        leaving(),
        GIVEN,
        "outbound rules",
        (
            "sg-0c11e0 lets out nothing to port 9098 of the brokers, sqs on port 443, events on"
            " port 443, logs on port 443, emr-serverless on port 443, dynamodb on port 443, s3 on"
            " port 443"
        ),
        "aws ec2 authorize-security-group-egress",
    ),
    "a given group whose outbound rules leave out a gateway": (
        leaving(
            out(9_098, group=BROKERS), out(443, "10.0.0.0/24"), out(443, lists=OF_GATEWAYS[:1])
        ),
        planned(
            client_security_group_id="sg-0c11e0",
            interfaces={"sqs": SUBNETS[:1]},
        ),
        "outbound rules",
        "sg-0c11e0 lets out nothing to dynamodb on port 443",
        "its owner adds rules",
    ),
    "a given group that lets out to one endpoint": (
        leaving(out(9_098, "10.0.0.0/16"), out(443, "10.0.0.0/24")),
        planned(
            client_security_group_id="sg-0c11e0",
            interfaces={"sqs": SUBNETS[:1], "events": SUBNETS},
            gateways=(),
        ),
        "outbound rules",
        "sg-0c11e0 lets out nothing to events on port 443",
        "its owner adds rules",
    ),
    "a given group that lets out to some addresses": (
        NAT_ROUTE | leaving(out(9_098, "10.0.0.0/24"), out(443, "10.0.0.0/16")),
        planned(client_security_group_id="sg-0c11e0", gateways=(), nat=True),
        "outbound rules",
        "lets out to some addresses or lists only: port 9098 of the brokers, NAT on port 443",
        "see whether these contain the targets",
    ),
    "a given group that lets out to a list of its owner": (
        leaving(out(9_098, group=BROKERS), out(443, lists=(*OF_GATEWAYS, "pl-theirs"))),
        GIVEN,
        "outbound rules",
        "or lists only: sqs on port 443, events on port 443",
        "see whether these contain the targets",
    ),
    "an endpoint that a stage does not call": (
        {},
        planned(existing_endpoints=("athena",)),
        "existing endpoint athena",
        "network.existing_endpoints names athena, which the stage does not call",
        "the stage calls dynamodb, emr-serverless, events",
    ),
    "a cluster of another account": (
        {("kafka", "describe_cluster_v2"): refused("AccessDeniedException")},
        replace(
            DEV,
            cluster=replace(
                DEV.cluster, arn=str(DEV.cluster.arn).replace("111122223333", "999988887777")
            ),
        ),
        "cluster",
        "account 999988887777 owns it, the stage is of 111122223333: not checked",
        "let 999988887777 turn on multi-VPC connectivity, with a policy of the cluster that admits",
    ),
    "a secret without a value": (
        {("secretsmanager", "describe_secret"): {"ARN": SECRET}},
        DEV,
        f"secret {SECRET}",
        "it has no value: no version is AWSCURRENT",
        f"`aws secretsmanager put-secret-value --secret-id {SECRET} --secret-string",
    ),
    "a secret that is no text": (
        {("secretsmanager", "get_secret_value"): {"SecretBinary": b"{}"}},
        DEV,
        f"secret {SECRET}",
        "its value is no text",
        "put-secret-value",
    ),
    "a secret of the brokers without a password": (
        {("secretsmanager", "get_secret_value"): {"SecretString": '{"username": "a"}'}},
        with_secret(option="cluster.secret_key_arn", members=PASSWORD),
        f"secret {SECRET}",
        "its value is no JSON object with a text for password",
        "put-secret-value",
    ),
    "a secret of the brokers that is a password": (
        {("secretsmanager", "get_secret_value"): {"SecretString": "Pa55"}},
        with_secret(option="cluster.secret_key_arn", members=PASSWORD),
        f"secret {SECRET}",
        "its value is no JSON object with a text for password, username",
        "put-secret-value",
    ),
    "a key whose policy admits others": (
        key_policy(
            {"Principal": {"AWS": ["arn:aws:iam::111122223333:role/Admin"]}, "Action": "kms:*"},
            ROOT | {"Action": ["kms:Describe*"]},
        ),
        with_key(),
        f"key {ARN}",
        "its policy does not admit 111122223333:root or the roles of the stage",
        "docs/key-policy.json",
    ),
    "a key of the stage whose policy admits one service": (
        key_policy(
            ROOT,
            {
                "Principal": {"Service": "logs.eu-central-1.amazonaws.com"},
                "Action": "kms:GenerateDataKey*",
            },
        ),
        with_key("cloudwatch", "events", "logs"),
        f"key {ARN}",
        "its policy does not admit cloudwatch, events",
        "docs/key-policy.json",
    ),
    "a key whose policy is hidden": (
        key_policy() | {("kms", "get_key_policy"): refused("AccessDeniedException")},
        with_key(),
        f"key {ARN}",
        "these credentials may not read its policy",
        "allow kms:GetKeyPolicy",
    ),
    "a key of another account": (
        key_policy(),
        with_key(arn=ARN.replace("111122223333", "999988887777")),
        f"key {ARN.replace('111122223333', '999988887777')}",
        "account 999988887777 does not show its policy",
        "whether it admits 111122223333",
    ),
    "a key for signatures": (
        {
            ("kms", "describe_key"): {
                "KeyMetadata": {"KeyId": "k", "KeyState": "Enabled", "KeySpec": "RSA_2048"}
            }
        },
        with_key(),
        f"key {ARN}",
        "it is of kind RSA_2048",
        "SYMMETRIC_DEFAULT",
    ),
    "a disabled key": (
        {("kms", "describe_key"): {"KeyMetadata": {"KeyId": "k", "KeyState": "Disabled"}}},
        with_key(),
        f"key {ARN}",
        "it is Disabled",
        "aws kms enable-key",
    ),
    "no key": (
        {("kms", "describe_key"): refused("NotFoundException")},
        with_key(),
        f"key {ARN}",
        "does not exist",
        "correct its ARN",
    ),
    "no topic": (
        {("sns", "get_topic_attributes"): refused("NotFound")},
        replace(DEV, topic="arn:aws:sns:eu-central-1:111122223333:alarms"),
        "alarm topic",
        "alarms does not exist",
        "leave out alarm_topic_arn",
    ),
    "no event bus": (
        {("events", "describe_event_bus"): refused("ResourceNotFoundException")},
        replace(DEV, event_bus="jobs"),
        "event bus",
        "jobs does not exist",
        "correct event_bus",
    ),
    "no table": (
        {("dynamodb", "describe_table"): refused("ResourceNotFoundException")},
        replace(DEV, table="restored"),
        "ledger table",
        "restored does not exist",
        "leave out table",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_stands_in_the_way_is_named_with_its_remedy(name: str) -> None:
    changes, stage, check, fact, remedy = FAULTS[name]

    (found,) = failed(examined("empty", changes, stage))

    assert found.check == check
    assert fact in found.fact
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("changes", "stage", "fact", "remedy"),
    [
        (
            {},
            replace(DEV, account="999988887777"),
            "the stage is of 999988887777",
            "use credentials",
        ),
        ({("sts", "get_caller_identity"): NoCredentialsError()}, DEV, "no AWS cred", "AWS_PROFILE"),
    ],
)
def test_without_the_right_credentials_nothing_else_is_checked(
    changes: Answers, stage: PlannedStage, fact: str, remedy: str
) -> None:
    (found,) = failed(examined("empty", changes, stage))

    assert (found.check, found.verdict) == ("credentials", "problem")
    assert fact in found.fact
    assert remedy in found.remedy


def test_without_credentials_problems_of_the_template_are_reported() -> None:
    unbuilt = replace(planned(existing_endpoints=("athena",)), unbuilt=("run `make layers`",))
    refusal: Answers = {("sts", "get_caller_identity"): NoCredentialsError()}

    found = failed(examined("empty", refusal, unbuilt))

    checks = ["template", "existing endpoint athena", "credentials"]
    assert [one.check for one in found] == checks


def test_without_its_vpc_no_part_of_a_network_is_checked() -> None:
    missing: Answers = {("ec2", "describe_vpcs"): refused("InvalidVpcID.NotFound")}

    findings = examined("empty", missing)

    (found,) = failed(findings)
    assert found.check == "VPC"
    assert "correct network.vpc_id" in found.remedy
    assert not [one for one in findings if one.check.startswith(("subnet", "zones"))]


def test_a_release_whose_support_ends_soon_is_a_warning() -> None:
    answers = account("empty")
    late = Clock(wall=lambda: NOW + 90 * 86_400)

    findings = AccountChecks(DEV, lambda service: Client(service, answers), late).examine()

    (found,) = failed(list(findings))
    assert (found.check, found.verdict) == ("release of Spark", "warning")
    assert "until 2027-05-20" in found.fact


def test_what_the_stack_has_created_does_not_stand_in_its_way() -> None:
    """Its own endpoints and buckets exist when an update is deployed."""
    own = ("vpce-1", "extentflow-dev-landing", "https://sqs/111122223333/arrivals")
    resources = [{"ResourceType": "any", "PhysicalResourceId": one} for one in own]
    receiver = {"ResourceType": "AWS::Lambda::Function", "PhysicalResourceId": "receiver"}
    queue = {"QueueArn": "arn:aws:sqs:eu-central-1:111122223333:arrivals"}
    rule = {"Id": "ours", "Events": ["s3:ObjectCreated:*"], **queue}
    answers: Answers = {
        **deployed(*resources, receiver),
        ("s3", "head_bucket"): EXISTS,
        ("s3", "get_bucket_notification_configuration"): {"QueueConfigurations": [rule]},
        ("lambda", "get_account_settings"): {
            "AccountLimit": {"ConcurrentExecutions": 1_000, "UnreservedConcurrentExecutions": 115}
        },
        **endpoint("sqs"),
    }

    assert not failed(examined("empty", answers))
    assert not failed(examined("empty", answers, with_bucket(exists=True, prefixes=("in/",))))


HALVES = ("10.0.0.0/17", "10.0.128.0/17")


@pytest.mark.parametrize(
    ("answers", "stage"),
    [
        ({}, planned(vpc_cidrs=HALVES)),
        (
            endpoint("sqs") | admitted("10.0.0.0/24", "10.0.1.0/25", "10.0.1.128/25"),
            without("sqs"),
        ),
        # Only Spark's runs call CloudWatch Logs: functions write through Lambda.
        (endpoint("logs") | admitted("10.0.0.0/24"), without("logs", spark_subnets=SUBNETS[:1])),
        (endpoint("sqs") | admitted("10.0.0.0/24"), without("sqs", function_subnets=SUBNETS[:1])),
        (endpoint("glue") | admitted("10.0.0.0/24"), DEV),
        ({("iam", "simulate_principal_policy"): paged_rights("allowed", "allowed")}, DEV),
        (notifying(CREATED, prefix="out/"), with_bucket(exists=True, prefixes=("in/",))),
        (notifying(CREATED, prefix="a%26b"), with_bucket(exists=True, prefixes=("a%2",))),
        (notifying("s3:ObjectRemoved:*"), with_bucket(exists=True, prefixes=("",))),
        (notifying(CREATED), with_bucket(exists=True)),
        (
            {("secretsmanager", "get_secret_value"): refused("AccessDeniedException")},
            with_secret(members=PASSWORD),
        ),
        (
            deployed({"ResourceType": "AWS::IAM::Role", "PhysicalResourceId": "worker"})
            | key_policy(
                {"Principal": {"AWS": "arn:aws:iam::111122223333:role/worker"}, "Action": "kms:*"}
            ),
            with_key(),
        ),
        (key_policy({"Principal": "*", "Action": "*"}), with_key("logs")),
        (
            leaving(
                out(9_098, group=BROKERS), out(443, "10.0.0.0/16"), out(443, lists=OF_GATEWAYS)
            ),
            GIVEN,
        ),
        (
            leaving(out(9_098, *HALVES), out(443, group=BROKERS, lists=OF_GATEWAYS))
            | endpoint("sqs", SubnetIds=[*SUBNETS]),
            planned(
                client_security_group_id="sg-0c11e0",
                interfaces={},
                existing_endpoints=("sqs",),
            ),
        ),
    ],
)
def test_what_serves_a_stage_in_parts_is_no_problem(answers: Answers, stage: PlannedStage) -> None:
    assert not failed(examined("empty", answers, stage))


def test_rights_are_those_with_the_boundary_of_the_roles() -> None:
    """A company's policy allows the creation of roles with its own boundary only."""

    def simulated(request: dict[str, Any]) -> dict[str, Any]:
        given = {
            one["ContextKeyName"]: one["ContextKeyValues"] for one in request["ContextEntries"]
        }
        wanted = ["arn:aws:iam::111122223333:policy/company"]
        decision = {True: "allowed", False: "implicitDeny"}
        return {
            "EvaluationResults": [
                {
                    "EvalActionName": one,
                    "EvalDecision": decision[
                        one != "iam:CreateRole" or given.get("iam:PermissionsBoundary") == wanted
                    ],
                }
                for one in request["ActionNames"]
            ]
        }

    answers: Answers = {("iam", "simulate_principal_policy"): simulated}
    boundary = "arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/company"

    (found,) = failed(examined("empty", answers))

    assert "does not allow cdk-hnb659fds-cfn-exec-role" in found.fact
    assert not failed(examined("empty", answers, replace(DEV, boundary=boundary)))


def test_what_iam_does_not_answer_is_a_problem() -> None:
    answers: Answers = {("iam", "simulate_principal_policy"): {"EvaluationResults": []}}

    (found,) = failed(examined("empty", answers))

    assert "does not say whether cdk-hnb659fds-cfn-exec-role" in found.fact
    assert "sns:CreateTopic" in found.fact


def test_a_stack_that_only_a_change_set_has_made_is_new() -> None:
    reviewed: Answers = {
        ("cloudformation", "describe_stacks"): {"Stacks": [{"StackStatus": "REVIEW_IN_PROGRESS"}]}
    }

    found = next(one for one in examined("empty", reviewed) if one.check == "stack")

    assert found == Finding("stack", "ok", "extentflow-dev: new")


@pytest.mark.parametrize(
    "call", [key for key in account("empty") if key[0] != "sts" and key not in UNNEEDED]
)
def test_a_missing_permission_leaves_out_its_check_only(call: tuple[str, str]) -> None:
    denied = "403" if call[1] == "head_bucket" else "AccessDenied"

    findings = examined("empty", {call: refused(denied)})

    left = failed(findings)
    assert left
    assert {one.verdict for one in left} == {"problem"}
    assert [one for one in findings if one.check == "event bus"]
    if call[1] != "head_bucket":
        words = "".join(word.capitalize() for word in call[1].split("_"))
        prefix = {"service-quotas": "servicequotas"}.get(call[0], call[0])
        assert any(f"allow {prefix}:{words}" in one.remedy for one in left)


class PartOfMoto:
    """A client of Moto's, with recorded answers for what Moto lacks."""

    def __init__(self, service: str, region: str) -> None:
        self._service = service
        self._moto = open_client(service, region)
        self._recorded = Client(service, account("empty"))

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        lacking = (self._service, operation) in NOT_IN_MOTO
        found: Callable[..., Any] = getattr(self._recorded if lacking else self._moto, operation)
        return found


def in_moto() -> PlannedStage:
    """Create in Moto what the example stage names, and return the stage with those ids."""
    ec2 = boto3.client("ec2", region_name="eu-central-1")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnets = []
    for number, one in enumerate(network().subnets):
        zone, block = one.availability_zone, f"10.0.{number}.0/24"
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)["Subnet"]
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.associate_route_table(RouteTableId=table, SubnetId=made["SubnetId"])
        subnets.append(replace(one, id=made["SubnetId"], route_table_id=table))
    group = ec2.create_security_group(GroupName="b", Description="brokers", VpcId=vpc)["GroupId"]
    ids = tuple(one.id for one in subnets)
    secrets = boto3.client("secretsmanager", region_name="eu-central-1")
    secret = secrets.create_secret(Name="sources", SecretString="{}")["ARN"]
    boto3.client("ssm", region_name="eu-central-1").put_parameter(
        Name=str(DEV.bootstrap), Value="27", Type="String"
    )
    key = boto3.client("kms", region_name="eu-central-1").create_key()
    stage = planned(
        vpc_id=vpc,
        cluster_security_group_id=group,
        subnets=tuple(subnets),
        interfaces=dict.fromkeys(network().interfaces, ids),
        function_subnets=ids,
        spark_subnets=ids,
    )
    return replace(
        stage,
        secrets=(replace(DEV.secrets[0], id=secret),),
        keys=(PlannedKey(arn=key["KeyMetadata"]["Arn"], services=()),),
        cluster=replace(stage.cluster, arn=None),
    )


@pytest.mark.long
def test_moto_answers_as_the_records_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        stage = in_moto()
        checks = AccountChecks(stage, lambda service: PartOfMoto(service, stage.region))

        clean = [one for one in checks.examine() if one.check != "release of Spark"]

        assert not failed(clean)
        assert stage.network is not None
        ec2 = boto3.client("ec2", region_name=stage.region)
        for kind, service in (("Gateway", "s3"), ("Interface", "sqs")):
            ec2.create_vpc_endpoint(
                VpcId=stage.network.vpc_id,
                ServiceName=f"com.amazonaws.{stage.region}.{service}",
                VpcEndpointType=kind,
                RouteTableIds=[one.route_table_id for one in stage.network.subnets],
                PrivateDnsEnabled=kind == "Interface",
            )
        boto3.client("s3", region_name=stage.region).create_bucket(
            Bucket=stage.buckets[0].name,
            CreateBucketConfiguration={"LocationConstraint": "eu-central-1"},
        )
        again = AccountChecks(stage, lambda service: PartOfMoto(service, stage.region))

        problems = [one.check for one in again.examine() if one.verdict == "problem"]

    bucket = f"bucket {stage.buckets[0].name}"
    assert problems == ["new endpoint s3", "new endpoint sqs", bucket]


@pytest.mark.parametrize(
    ("allowed", "free", "received", "fact", "remedy"),
    [
        (
            10,
            10,
            20,
            (
                "needs 34 or more, 20 reserved for the receiver and 100 others unreserved, 135 at"
                " its settings; 10 are allowed, the stage says 1000"
            ),
            'request 1000 of the quota "Concurrent executions" of Lambda: no stage fits into 10',
        ),
        (
            1_000,
            110,
            20,
            "needs 20 reserved for the receiver and 100 others unreserved, 135 at its settings",
            (
                'request 1025 of the quota "Concurrent executions" of Lambda, or write'
                " Receiver(concurrency=10) or less and lower most_workers and account_concurrency"
            ),
        ),
        (1_000, 125, 15, "needs 130 at its", "lower most_workers and account_concurrency"),
        (
            1_000,
            100,
            20,
            "needs 20 reserved",
            "receiver out and lower most_workers and account_concurrency",
        ),
        (1_000, 12, 0, "needs 14 or more, 115 at", "or free some: no stage fits"),
        (1_000, 14, 0, "needs 115 at", "lower most_workers and account_concurrency"),
        (500, 110, 0, "needs 115 at its settings; 500 are", "and write account_concurrency=500"),
    ],
)
def test_a_remedy_for_a_quota_is_one_that_fits_into_it(
    allowed: int, free: int, received: int, fact: str, remedy: str
) -> None:
    stage = replace(DEV, received=received)

    (found,) = failed(examined("empty", invocations(allowed, free), stage))

    assert fact in found.fact
    assert found.remedy.endswith(remedy)


def test_a_bucket_that_others_announce_has_a_line() -> None:
    stage = with_bucket(exists=True, elsewhere=True)

    found = examined("empty", {("s3", "head_bucket"): EXISTS}, stage)

    assert "others write its notifications" in next(
        one.fact for one in found if one.check == "bucket landing"
    )
