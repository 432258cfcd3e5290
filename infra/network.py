"""The brokers' VPC: the functions in it, and every path out of it.

    function ──security group──> brokers                       their ports, from their group, or
    and Spark (its own)                                        with a group that they admit already
             ──gateway endpoint──> S3, DynamoDB                free of charge
             ──interface endpoint──> SQS, Secrets Manager ...  billed by the hour and zone
             ──NAT──> all others, with network.nat

An interface endpoint with private DNS takes over the name of its service in the whole VPC. It must
admit everybody there: a packet that it drops has no other way.

The grants of a function define which services it calls.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from extentflow.errors import Misconfigured

from . import config
from .grants import Grant

HTTPS_PORT = 443
HTTPS = ec2.Port.tcp(HTTPS_PORT)

GATEWAYS: Mapping[str, ec2.GatewayVpcEndpointAwsService] = {
    "s3": ec2.GatewayVpcEndpointAwsService.S3,
    "dynamodb": ec2.GatewayVpcEndpointAwsService.DYNAMODB,
}
INTERFACES: Mapping[str, ec2.InterfaceVpcEndpointAwsService] = {
    "sqs": ec2.InterfaceVpcEndpointAwsService.SQS,
    "secretsmanager": ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
    "sts": ec2.InterfaceVpcEndpointAwsService.STS,
    "events": ec2.InterfaceVpcEndpointAwsService.EVENTBRIDGE,
    "kms": ec2.InterfaceVpcEndpointAwsService.KMS,
    "glue": ec2.InterfaceVpcEndpointAwsService.GLUE,
    "logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "emr-serverless": ec2.InterfaceVpcEndpointAwsService.EMR_SERVERLESS,
}


class Network(Construct):
    """The brokers' VPC, with the functions' security group and the endpoints of a stage."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: config.Stage) -> None:
        super().__init__(scope, construct_id)
        if stage.network is None:
            raise TypeError("a stage without network has none")
        settings = stage.network
        self.settings = settings
        self._placed: list[tuple[str, tuple[Grant, ...]]] = []
        self.vpc = _existing(self, settings)
        self._broker_ports = stage.cluster.ports
        self._client = settings.client_security_group_id
        self.security_group = self._given() if self._client else self._made()
        self.subnets = self._subnets(settings.placed(config.FUNCTIONS))
        self._doors = self._make_endpoints(stage)

    def outputs(self) -> Mapping[str, str]:
        """Return what administrators of the VPC need to admit more callers."""
        if self._doors is None:
            return {}
        return {"EndpointsSecurityGroupId": self._doors.security_group_id}

    def admit(
        self, scope: Construct, description: str, *, ports: Iterable[int]
    ) -> ec2.ISecurityGroup:
        """Return a security group that may connect to brokers: the given one, or one in `scope`.

        Of the latter, other outbound traffic is limited to `ports`.
        """
        if self._client:
            return self.security_group
        made = ec2.SecurityGroup(
            scope, "Group", vpc=self.vpc, description=description, allow_all_outbound=False
        )
        brokers = self._let_in(made, description)
        for port in self._broker_ports:
            made.add_egress_rule(brokers, ec2.Port.tcp(port), "Brokers")
        for port in sorted(ports):
            made.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "Stores and services")
        return made

    def place(self, function: str, grants: Iterable[Grant]) -> None:
        """Register a function, or the Spark jobs, with the services that it may call."""
        self._placed.append((function, tuple(grants)))

    @property
    def called(self) -> tuple[str, ...]:
        """The services that registered functions and jobs call."""
        grants = (grant for _, those in self._placed for grant in those)
        return tuple(sorted({service for grant in grants for service in grant.services}))

    def require_paths(self) -> None:
        """Raise Misconfigured unless every registered service can be reached."""
        region = Stack.of(self).region
        callers: dict[str, list[str]] = {}
        for function, grants in self._placed:
            for what in unreached(self.settings, grants, region=region):
                callers.setdefault(what, []).append(function)
        if callers:
            raise Misconfigured([f"{_call(names)} {what}" for what, names in callers.items()])

    def _given(self) -> ec2.ISecurityGroup:
        """Return the functions' group that the brokers admit already; others keep its rules."""
        return ec2.SecurityGroup.from_security_group_id(self, "Client", self._client, mutable=False)

    def _made(self) -> ec2.ISecurityGroup:
        """Create the functions' group, which the brokers' group admits."""
        description = "Functions of extentflow"
        made = ec2.SecurityGroup(self, "Functions", vpc=self.vpc, description=description)
        self._let_in(made, description)
        return made

    def _let_in(self, group: ec2.ISecurityGroup, description: str) -> ec2.ISecurityGroup:
        """Allow a group to connect to the brokers' security group, and return the latter."""
        brokers = self._brokers
        for port in self._broker_ports:
            brokers.add_ingress_rule(group, ec2.Port.tcp(port), description)
        return brokers

    @cached_property
    def _brokers(self) -> ec2.ISecurityGroup:
        return ec2.SecurityGroup.from_security_group_id(
            self, "Brokers", self.settings.cluster_security_group_id
        )

    def _make_endpoints(self, stage: config.Stage) -> ec2.SecurityGroup | None:
        """Create the stage's endpoints; return the group of the interface endpoints."""
        wanted = self.settings.created
        for service in sorted(GATEWAYS.keys() & {*wanted}):
            self.vpc.add_gateway_endpoint(_title(service), service=GATEWAYS[service])
        interfaces = sorted(INTERFACES.keys() & {*wanted})
        if not interfaces:
            return None
        doors = ec2.SecurityGroup(
            self,
            "Endpoints",
            vpc=self.vpc,
            description="Interface endpoints of extentflow",
            allow_all_outbound=False,
        )
        for cidr in self.settings.vpc_cidrs:
            doors.add_ingress_rule(ec2.Peer.ipv4(cidr), HTTPS, "Everybody in the VPC")
        for service in interfaces:
            self.vpc.add_interface_endpoint(
                _title(service),
                service=INTERFACES[service],
                security_groups=[doors],
                open=False,
                subnets=self._subnets(stage.endpoint_subnets(service)),
            )
        return doors

    def _subnets(self, wanted: Iterable[config.Subnet]) -> ec2.SubnetSelection:
        ids = {one.id for one in wanted}
        chosen = [one for one in self.vpc.private_subnets if one.subnet_id in ids]
        return ec2.SubnetSelection(subnets=chosen)


def _call(functions: Sequence[str]) -> str:
    """Return the start of the message for these functions."""
    one = len(functions) == 1
    return f"function {functions[0]} calls" if one else f"functions {', '.join(functions)} call"


def unreached(settings: config.Network, grants: Iterable[Grant], *, region: str) -> Iterator[str]:
    """Yield every service that is called but not reachable, with the remedy.

    Endpoints cover services of the VPC's own `region`.
    """
    if settings.nat:
        return
    reached = {*settings.created, *settings.existing_endpoints}
    for grant in grants:
        for service in sorted(grant.services - reached):
            yield (
                f"{service} ({grant.why}), and there is no path from"
                f" {settings.vpc_id}: {_remedy(service)}"
            )
        for resource in grant.resources:
            service, found = _place(resource)
            if service in grant.services & reached and found not in {"", region}:
                yield (
                    f"{service} in {found} ({grant.why}: {resource}), and"
                    f" the path from {settings.vpc_id} covers {region} only; set network.nat"
                )


def _place(resource: str) -> tuple[str, str]:
    """Return service and region of an ARN; the region is empty where the ARN has none."""
    service, region = f"{resource}::::".split(":")[2:4]
    return service, "" if Token.is_unresolved(region) else region


def _remedy(service: str) -> str:
    if service in GATEWAYS or service in INTERFACES:
        return f"add {service} to network.endpoints or network.existing_endpoints, or set nat"
    return "set network.nat, or add it to network.existing_endpoints if an endpoint exists"


def _existing(scope: Construct, settings: config.Network) -> ec2.IVpc:
    subnets = sorted(settings.subnets, key=lambda subnet: subnet.availability_zone)
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=settings.vpc_id,
        availability_zones=[subnet.availability_zone for subnet in subnets],
        private_subnet_ids=[subnet.id for subnet in subnets],
        private_subnet_route_table_ids=[subnet.route_table_id for subnet in subnets],
    )


def _title(service: str) -> str:
    return f"{service.title().replace('-', '')}Endpoint"
