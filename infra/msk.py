"""An MSK cluster by its ARN: what a stage leaves out is looked up once, and then kept in a file.

    python -m infra lookup ARN ──AWS──> cdk.context.json ──synthesis──> brokers, VPC, subnets

CDK keeps what it looked up in that file, too: synthesis needs no credentials, and the same commit
gives the same template. CDK's own lookups do not know bootstrap brokers, hence a command. CDK's
command line passes entries that it does not know to the application.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from extentflow.aws import open_client
from extentflow.errors import Misconfigured
from extentflow.services.aws_calls import AwsCalls, OpenClient

from .config import Auth, Cluster, Network, Stage, Subnet

CONTEXT_FILE = "cdk.context.json"
COMMAND = f"python -m {__package__} lookup"
_REGION, _KIND = 3, 5
# What AWS calls the brokers of each authentication: inside the VPC, and with public access.
_BROKERS: Mapping[Auth, tuple[str, str]] = {
    Auth.NONE: ("BootstrapBrokerString", ""),
    Auth.MTLS: ("BootstrapBrokerStringTls", "BootstrapBrokerStringPublicTls"),
    Auth.SCRAM: ("BootstrapBrokerStringSaslScram", "BootstrapBrokerStringPublicSaslScram"),
    Auth.IAM: ("BootstrapBrokerStringSaslIam", "BootstrapBrokerStringPublicSaslIam"),
}


def context_key(arn: str) -> str:
    """Return the key of a cluster in CDK's context."""
    return f"extentflow-msk:arn={arn}"


def complete(stage: Stage, context: Callable[[str], Any]) -> Stage:
    """Return a stage with what it leaves out of its cluster and network; `context` is CDK's.

    Raises:
        Misconfigured: the cluster was not looked up, or does not have what the stage needs.
    """
    cluster, network = stage.cluster, stage.network
    absent = network is not None and network.absent
    if cluster.arn is None or (cluster.bootstrap_servers and not absent):
        return stage
    found = context(context_key(cluster.arn))
    if found is None:
        raise Misconfigured(
            f"stage {stage.name}: {CONTEXT_FILE} has no answer about cluster.arn={cluster.arn}; run"
            f" `{COMMAND} {cluster.arn}` once with credentials for its account, and commit the file"
        )
    try:
        return replace(
            stage,
            cluster=_cluster(stage, cluster, found),
            network=_network(network, found) if network else None,
        )
    except (KeyError, TypeError) as exc:
        raise Misconfigured(
            f"{CONTEXT_FILE}: another version wrote the answer about {cluster.arn} ({exc!r}); run"
            f" `{COMMAND} {cluster.arn}` again"
        ) from exc


def _cluster(stage: Stage, cluster: Cluster, found: Mapping[str, Any]) -> Cluster:
    if cluster.bootstrap_servers:
        return cluster
    place = "inside" if stage.network else "public"
    servers = found[place].get(cluster.auth)
    if servers:
        return replace(cluster, bootstrap_servers=servers)
    way = "brokers" if stage.network else "public brokers (a stage without network needs them)"
    offered = ", ".join(found[place]) or "nothing"
    raise Misconfigured(
        f"stage {stage.name}: cluster.auth={cluster.auth}: {cluster.arn} has no {way} with it, but"
        f" with {offered}; change auth or the cluster, then run `{COMMAND} {cluster.arn}`"
    )


def _network(network: Network, found: Mapping[str, Any]) -> Network:
    subnets = tuple(
        Subnet(
            id=one["id"],
            availability_zone=one["availabilityZone"],
            route_table_id=one["routeTableId"],
            zone_id=one["zoneId"],
        )
        for one in found["subnets"]
    )
    return replace(
        network,
        vpc_id=network.vpc_id or found["vpcId"],
        subnets=network.subnets or subnets,
        cluster_security_group_id=network.cluster_security_group_id or found["securityGroupId"],
        vpc_cidrs=network.vpc_cidrs or tuple(found["vpcCidrs"]),
    )


def kept(folder: Path) -> dict[str, Any]:
    """Return the context that is kept in a folder, for a synthesis without CDK's command line.

    Raises:
        Misconfigured: the file is no JSON object.
    """
    path = folder / CONTEXT_FILE
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise Misconfigured(f"{path}: no JSON ({exc}); correct it") from exc
    if not isinstance(found, dict):
        raise Misconfigured(f"{path}: no JSON object; correct it")
    return found


def keep(arn: str, folder: Path, opened: OpenClient | None = None) -> str:
    """Look a cluster up, and write the answer into the folder's context; return a line about it.

    Raises:
        Misconfigured: the cluster or a right is missing, or it is MSK Serverless.
        Retryable: AWS does not answer.
    """
    context = kept(folder)
    region = _region_of(arn)
    answer = _looked_up(arn, AwsCalls(opened or (lambda service: open_client(service, region))))
    path = folder / CONTEXT_FILE
    # Sorted, as CDK's command line writes it.
    made = dict(sorted({**context, context_key(arn): answer}.items()))
    path.write_text(json.dumps(made, indent=2) + "\n")
    zones = ", ".join(one["availabilityZone"] for one in answer["subnets"])
    kinds = ", ".join(answer["inside"])
    return f"{path}: brokers for {kinds} in {answer['vpcId']} ({zones}); commit the file"


def _region_of(arn: str) -> str:
    parts = arn.split(":")
    if len(parts) <= _KIND or parts[2] != "kafka" or not parts[_KIND].startswith("cluster/"):
        raise Misconfigured(
            f"{arn}: no ARN of an MSK cluster, arn:aws:kafka:REGION:ACCOUNT:cluster"
        )
    return parts[_REGION]


def _looked_up(arn: str, calls: AwsCalls) -> dict[str, Any]:
    answer = calls.find("kafka", "describe_cluster_v2", ("NotFoundException",), ClusterArn=arn)
    if answer is None:
        raise Misconfigured(f"{arn}: there is no such cluster; correct the ARN")
    found = answer["ClusterInfo"]
    if "Provisioned" not in found:
        raise Misconfigured(
            f"{arn}: MSK Serverless is not supported: no test has shown transactions there"
        )
    nodes = found["Provisioned"]["BrokerNodeGroupInfo"]
    subnets = list(
        calls.pages("ec2", "describe_subnets", "Subnets", SubnetIds=nodes["ClientSubnets"])
    )
    vpc = subnets[0]["VpcId"]
    (described,) = calls.call("ec2", "describe_vpcs", VpcIds=[vpc])["Vpcs"]
    tables = list(
        calls.pages(
            "ec2",
            "describe_route_tables",
            "RouteTables",
            Filters=[{"Name": "vpc-id", "Values": [vpc]}],
        )
    )
    brokers = calls.call("kafka", "get_bootstrap_brokers", ClusterArn=arn)
    proof = found["Provisioned"].get("ClientAuthentication", {})
    return {
        "inside": dict(_offered(brokers, proof, public=False)),
        "public": dict(_offered(brokers, proof, public=True)),
        "securityGroupId": nodes["SecurityGroups"][0],
        "subnets": [
            {
                "availabilityZone": one["AvailabilityZone"],
                "id": one["SubnetId"],
                "routeTableId": _route_table(one["SubnetId"], tables),
                "zoneId": one["AvailabilityZoneId"],
            }
            for one in sorted(subnets, key=lambda one: str(one["AvailabilityZone"]))
        ],
        "vpcCidrs": [
            one["CidrBlock"]
            for one in described["CidrBlockAssociationSet"]
            if one["CidrBlockState"]["State"] == "associated"
        ],
        "vpcId": vpc,
    }


def _offered(
    brokers: Mapping[str, Any], proof: Mapping[str, Any], *, public: bool
) -> Iterator[tuple[str, str]]:
    """Yield each authentication with its brokers; those with TLS may ask for no certificate."""
    certificates = proof.get("Tls", {}).get("Enabled", False)
    for auth, names in _BROKERS.items():
        servers = brokers.get(names[public])
        if servers and (auth is not Auth.MTLS or certificates):
            yield str(auth), servers


def _route_table(subnet: str, tables: Sequence[Mapping[str, Any]]) -> str:
    """Return the route table of a subnet: its own, or the main one of the VPC."""
    of_subnet: dict[str | None, str] = {}
    for table in tables:
        for one in table["Associations"]:
            of_subnet[one.get("SubnetId") if not one.get("Main") else None] = table["RouteTableId"]
    return of_subnet.get(subnet) or of_subnet[None]
