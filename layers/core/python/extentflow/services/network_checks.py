"""Whether a VPC takes what a planned stage adds to it: endpoints, functions, paths to brokers.

Tests: unit/services/test_account_checks.py
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from extentflow.errors import ExtentflowError
from extentflow.services.aws_calls import AwsCalls
from extentflow.services.group_rules import ANYWHERE, Outbound, covered, opens
from extentflow.services.health import Finding, examine_each
from extentflow.services.planned import PlannedNetwork, PlannedStage, PlannedSubnet
from extentflow.wording import counted

HTTPS_PORT = 443
# Addresses that the functions of one stage take in a subnet, and that AWS keeps while it changes
# them: Lambda shares one interface among up to 65,000 connections.
FUNCTION_ADDRESSES = 4
# Interfaces that pass on the traffic of others, by their types, and those of brokers.
PASSING = (
    "gateway_load_balancer",
    "gateway_load_balancer_endpoint",
    "load_balancer",
    "nat_gateway",
    "network_load_balancer",
    "transit_gateway",
    "vpc_endpoint",
)
BROKERS = "Amazon MSK network interface"
AVAILABLE = "available"
# Of an endpoint that no second one may stand beside, in lower case, and of one that is no more.
_STANDING = (AVAILABLE, "pending", "pendingacceptance")
_GONE = ("deleted", "deleting")
# Services that functions call, besides what connectors and brokers need; and those that only
# functions or only Spark's runs call.
_CALLED, _CALLED_FOR_SPARK = ("sqs", "events"), ("emr-serverless", "logs")
_PERHAPS_CALLED = ("secretsmanager", "sts", "kms", "glue")
_BY_FUNCTIONS, _BY_SPARK = ("sqs", "emr-serverless"), ("logs",)
NO_VPC = "correct network.vpc_id, region or credentials"
_BROKERS_GROUP, _CLIENT_GROUP = "cluster_security_group_id", "client_security_group_id"
_NOT_FOUND = ("InvalidVpcID.NotFound", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound")


@dataclass(frozen=True)
class NetworkChecks:
    """Checks the VPC of a planned stage of `account`; `own` are the ids of what its stack has.

    Another account may own the VPC and share its subnets (AWS RAM). Then this one may neither
    create nor see endpoints, and may change its own security groups only.
    """

    stage: PlannedStage
    network: PlannedNetwork
    account: str
    calls: AwsCalls
    own: frozenset[str]

    def examine(self) -> Iterator[Finding]:
        """Yield a finding per check. Without the VPC there is one only."""
        found = list(examine_each((("VPC", self._vpc),)))
        yield from found
        if any(one.remedy == NO_VPC for one in found):
            return
        endpoints = (
            ("new endpoints", self._new_endpoints),
            ("endpoint zones", self._zones),
            ("other users of the VPC", self._others),
            ("existing endpoints", self._existing_endpoints),
            ("endpoints of others", self._unlisted_endpoints),
        )
        yield from examine_each(
            (
                ("DNS", self._dns),
                ("subnets", self._subnets),
                ("routes", self._routes),
                *((("shared VPC", self._shared),) if self._owner else endpoints),
                ("groups", self._groups),
            )
        )

    # -- what AWS reports -------------------------------------------------------------------------

    def _all(self, operation: str, key: str) -> list[Mapping[str, Any]]:
        within = [{"Name": "vpc-id", "Values": [self.network.vpc_id]}]
        return list(self.calls.pages("ec2", operation, key, Filters=within))

    @cached_property
    def _found_vpc(self) -> Mapping[str, Any] | None:
        asked = {"VpcIds": [self.network.vpc_id]}
        answer = self.calls.find("ec2", "describe_vpcs", _NOT_FOUND, **asked)
        return next(iter(answer["Vpcs"]), None) if answer else None

    @cached_property
    def _owner(self) -> str | None:
        """The account that shares the VPC with this one; None if this one owns it."""
        try:
            owner = self._found_vpc["OwnerId"] if self._found_vpc else self.account
        except ExtentflowError:
            return None  # the check of the VPC has reported it
        return None if owner == self.account else str(owner)

    @cached_property
    def _endpoints(self) -> list[Mapping[str, Any]]:
        return [
            one
            for one in self._all("describe_vpc_endpoints", "VpcEndpoints")
            if one["State"].lower() not in _GONE
        ]

    @cached_property
    def _found_subnets(self) -> dict[str, Mapping[str, Any]]:
        found = self._all("describe_subnets", "Subnets")
        return {one["SubnetId"]: one for one in found}

    @cached_property
    def _tables(self) -> list[Mapping[str, Any]]:
        return self._all("describe_route_tables", "RouteTables")

    def _of(self, service: str) -> Iterator[Mapping[str, Any]]:
        """Yield the VPC's endpoints of a service."""
        end = f".{self.stage.region}.{service}"
        return (one for one in self._endpoints if one["ServiceName"].endswith(end))

    @property
    def _named(self) -> list[str]:
        """The services of existing endpoints that the stage calls."""
        return [one for one in self.network.existing_endpoints if one in self.network.called]

    # -- checks -----------------------------------------------------------------------------------

    def _vpc(self) -> Iterator[Finding]:
        vpc = self.network.vpc_id
        if self._found_vpc is None:
            where = f"{vpc}: not in {self.stage.region} of this account"
            yield Finding("VPC", "problem", where, NO_VPC)
            return
        blocks = _blocks(self._found_vpc)
        left = [block for block in blocks if not covered(block, self.network.vpc_cidrs)]
        if self.network.interfaces and left:
            fact = (
                f"{vpc}: {', '.join(left)} is not in network.vpc_cidrs; from the deployment on, its"
                f" workloads could not reach {', '.join(self.network.interfaces)}"
            )
            remedy = f"write vpc_cidrs={tuple(blocks)}"
            yield Finding("VPC", "problem", fact, remedy)
        else:
            yield Finding("VPC", "ok", f"{vpc}: {', '.join(blocks)}")

    def _dns(self) -> Iterator[Finding]:
        vpc = self.network.vpc_id
        off = dns_attributes_off(self.calls, vpc)
        if off:
            remedy = "; ".join(
                f"`aws ec2 modify-vpc-attribute --vpc-id {vpc} --{option}`"
                for option in map(_option, off)
            )
            fact = f"{vpc}: {', '.join(off)} off: names of interface endpoints do not resolve"
            yield Finding("DNS", "problem", fact, remedy)
        else:
            yield Finding("DNS", "ok", f"{vpc}: DNS resolution and host names are on")

    def _subnets(self) -> Iterator[Finding]:
        for one in self.network.subnets:
            check, found = f"subnet {one.id}", self._found_subnets.get(one.id)
            if found is None:
                fact = f"not in {self.network.vpc_id}"
                yield Finding(check, "problem", fact, "correct network.subnets")
                continue
            wrong = _misdescribed(one, found)
            if wrong:
                yield Finding(check, "problem", wrong[0], wrong[1])
                continue
            yield self._addresses(check, one, int(found["AvailableIpAddressCount"]))

    def _addresses(self, check: str, subnet: PlannedSubnet, free: int) -> Finding:
        endpoints = sum(subnet.id in ids for ids in self.network.interfaces.values())
        functions = FUNCTION_ADDRESSES * (subnet.id in self.network.function_subnets)
        runs = 0
        if self.stage.spark is not None and subnet.id in self.network.spark_subnets:
            # All processes of a run may be in one of the subnets.
            runs = self.stage.spark.processes
        needed = endpoints + functions + runs
        fact = f"{free} addresses are free; endpoints, functions and Spark need up to {needed}"
        if free < endpoints + functions:
            remedy = "free some, or leave the subnet out of network.subnets"
            return Finding(check, "problem", fact, remedy)
        if free < needed:
            return Finding(check, "warning", fact, "lower spark.most_vcpu, or use larger subnets")
        return Finding(check, "ok", fact)

    def _routes(self) -> Iterator[Finding]:
        for one in self.network.subnets:
            if one.id not in self._found_subnets:
                continue
            check, table = f"routes of {one.id}", _table_of(one.id, self._tables)
            if table is None and self._owner:
                fact = f"account {self._owner} does not show its route table"
                remedy = f"ask {self._owner} whether it is {one.route_table_id}"
                yield Finding(check, "warning", fact, remedy)
                continue
            if table is None or table["RouteTableId"] != one.route_table_id:
                has = table["RouteTableId"] if table else "none"
                fact = f"the stage says route table {one.route_table_id}, the subnet has {has}"
                yield Finding(check, "problem", fact, f"write route_table_id={has!r}")
                continue
            way = _default_way(table)
            if self.network.nat and way.startswith("igw-"):
                fact = f"the default route leads to {way}: functions have no public address"
                yield Finding(check, "problem", fact, "name a private subnet")
            elif self.network.nat and not way:
                remedy = "add one to a NAT gateway, or set nat=False"
                yield Finding(check, "problem", "no default route, and network.nat is set", remedy)
            else:
                lead = f", default route to {way}" if way else ", no default route"
                yield Finding(check, "ok", f"{one.route_table_id}{lead}")

    def _shared(self) -> Iterator[Finding]:
        """Report what a stage wants of endpoints in a VPC of another account."""
        vpc, owner = self.network.vpc_id, self._owner
        made = (*self.network.gateways, *self.network.interfaces)
        if made:
            existing = tuple(sorted({*self.network.existing_endpoints, *made}))
            fact = (
                f"account {owner} owns {vpc}: only it may create endpoints there, and the stage"
                f" would create those of {', '.join(made)}"
            )
            remedy = (
                f"let {owner} create them, then write existing_endpoints={existing} and no"
                " endpoints; or set nat=True without endpoints"
            )
            yield Finding("new endpoints", "problem", fact, remedy)
        for service in self._named:
            fact = f"account {owner} owns {vpc}: this one cannot see its endpoints"
            remedy = (
                f"ask {owner} whether it exists, with private DNS or the subnets' route tables,"
                " and admits the subnets of functions and Spark"
            )
            yield Finding(f"existing endpoint {service}", "warning", fact, remedy)
        if not made and not self.network.existing_endpoints:
            yield Finding("shared VPC", "ok", f"account {owner} owns {vpc}; no endpoint is needed")

    def _new_endpoints(self) -> Iterator[Finding]:
        for service in (*self.network.gateways, *self.network.interfaces):
            check = f"new endpoint {service}"
            others = [one for one in self._of(service) if one["VpcEndpointId"] not in self.own]
            taken = [one for one in others if self._collides(service, one)]
            if taken:
                ids = ", ".join(one["VpcEndpointId"] for one in taken)
                fact = f"{self.network.vpc_id} has one already: {ids}; a second one is refused"
                remedy = "list the service in network.existing_endpoints, not in endpoints"
                yield Finding(check, "problem", fact, remedy)
            else:
                yield Finding(check, "ok", "the VPC has none that collides with it")

    def _collides(self, service: str, one: Mapping[str, Any]) -> bool:
        if one["State"].lower() not in _STANDING:
            return False
        if service in self.network.gateways:
            used = {subnet.route_table_id for subnet in self.network.subnets}
            return one["VpcEndpointType"] == "Gateway" and bool(used & {*one["RouteTableIds"]})
        return one["VpcEndpointType"] == "Interface" and bool(one["PrivateDnsEnabled"])

    def _zones(self) -> Iterator[Finding]:
        named = {one.id: one.availability_zone for one in self.network.subnets}
        wanted: dict[str, set[str]] = {
            service: {named[id_] for id_ in ids} for service, ids in self.network.interfaces.items()
        }
        # That of Lambda's own API: no call tells where functions can have interfaces.
        wanted["lambda"] = {named[id_] for id_ in self.network.function_subnets}
        served = self._served(wanted)
        for service, zones in wanted.items():
            check = "zones of functions" if service == "lambda" else f"zones of {service}"
            place = "functions" if service == "lambda" else service
            if service not in served:
                if service != "lambda":
                    fact = f"{self.stage.region} has no endpoint service {service}"
                    yield Finding(check, "problem", fact, "leave it out, and set network.nat")
                continue
            lacking = sorted(zones - served[service])
            if not lacking:
                yield Finding(check, "ok", f"served: {', '.join(sorted(zones))}")
                continue
            here = [one.id for one in self.network.subnets if one.availability_zone not in lacking]
            remedy = f"write placement={ {place: tuple(here)} } in network"
            verdict = "warning" if service == "lambda" else "problem"
            fact = f"the service is not in {', '.join(lacking)}"
            yield Finding(check, verdict, fact, remedy if here else "add a subnet in another zone")

    def _served(self, wanted: Iterable[str]) -> dict[str, set[str]]:
        """Return the names of the zones of each endpoint service that the region has."""
        names = [f"com.amazonaws.{self.stage.region}.{service}" for service in wanted]
        if self.stage.region.startswith("cn-"):
            names += [f"cn.{name}" for name in names]
        details = self.calls.pages(
            "ec2",
            "describe_vpc_endpoint_services",
            "ServiceDetails",
            Filters=[{"Name": "service-name", "Values": names}],
        )
        return {
            one["ServiceName"].rpartition(f"{self.stage.region}.")[2]: {*one["AvailabilityZones"]}
            for one in details
            if any(kind["ServiceType"] == "Interface" for kind in one["ServiceType"])
        }

    def _others(self) -> Iterator[Finding]:
        new = [
            service
            for service in self.network.interfaces
            if not any(one["VpcEndpointId"] in self.own for one in self._of(service))
        ]
        if not new:
            return
        found = self._all("describe_network_interfaces", "NetworkInterfaces")
        others = [one for one in found if _calls_aws(one)]
        if others:
            fact = (
                f"{counted(len(others), 'network interface')} of others: names of"
                f" {', '.join(new)} will lead all of them to the new endpoints"
            )
            remedy = (
                "tell their owners; endpoints admit network.vpc_cidrs only, so add blocks of"
                " networks that resolve names here; or use nat=True without endpoints"
            )
            yield Finding("other users of the VPC", "warning", fact, remedy)
        else:
            yield Finding("other users of the VPC", "ok", "none has a network interface")

    def _existing_endpoints(self) -> Iterator[Finding]:
        for service in self._named:
            check, found = f"existing endpoint {service}", list(self._of(service))
            if not found:
                fact = f"{self.network.vpc_id} has none"
                yield Finding(check, "problem", fact, "name it in network.endpoints instead")
                continue
            reasons = [reason for one in found if (reason := self._unusable(service, one))]
            if len(reasons) == len(found):
                yield Finding(check, *reasons[0])
                continue
            limited = [one for one in found if not _admits_all(str(one.get("PolicyDocument", "")))]
            ids = ", ".join(one["VpcEndpointId"] for one in found)
            if limited:
                remedy = "let its policy allow the stage's resources to the functions' roles"
                yield Finding(check, "warning", f"{ids} has a policy of its own", remedy)
            else:
                yield Finding(check, "ok", ids)

    def _unlisted_endpoints(self) -> Iterator[Finding]:
        """Report endpoints that answer in NAT's place without being named.

        Without NAT, synthesis requires that a stage names all services that it calls.
        """
        if not self.network.nat:
            return
        spark = _CALLED_FOR_SPARK if self.stage.spark is not None else ()
        listed = {*self.network.existing_endpoints, *self.network.interfaces}
        for service in (*_CALLED, *spark, *_PERHAPS_CALLED):
            for one in self._of(service) if service not in listed else ():
                answers = one["VpcEndpointType"] == "Interface" and one["PrivateDnsEnabled"]
                if not answers or one["VpcEndpointId"] in self.own:
                    continue
                if reason := self._unusable(service, one):
                    verdict = "warning" if service in _PERHAPS_CALLED else reason[0]
                    fact = f"it answers for the service in the VPC, and {reason[1]}"
                    yield Finding(f"endpoint {service} of others", verdict, fact, reason[2])

    def _callers(self, service: str) -> dict[str, str]:
        """Return the blocks of the subnets from which a service is called, by id."""
        ids = {*self.network.function_subnets} if service not in _BY_SPARK else set()
        if self.stage.spark is not None and service not in _BY_FUNCTIONS:
            ids |= {*self.network.spark_subnets}
        known = self._found_subnets
        return {one: known[one]["CidrBlock"] for one in sorted(ids) if one in known}

    def _unusable(self, service: str, endpoint: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """Return why functions or Spark cannot use an endpoint: verdict, fact and remedy."""
        name, state = endpoint["VpcEndpointId"], endpoint["State"]
        if state.lower() != AVAILABLE:
            remedy = "wait, or let its owner accept or replace it"
            return "problem", f"{name} is not available: {state}", remedy
        if endpoint["VpcEndpointType"] == "Gateway":
            used = {one.route_table_id for one in self.network.subnets}
            left = sorted(used - {*endpoint["RouteTableIds"]})
            if not left:
                return None
            remedy = (
                f"`aws ec2 modify-vpc-endpoint --vpc-endpoint-id {name} --add-route-table-ids"
                f" {' '.join(left)}`"
            )
            return "problem", f"{name} has no route in {', '.join(left)}", remedy
        if not endpoint["PrivateDnsEnabled"]:
            remedy = f"`aws ec2 modify-vpc-endpoint --vpc-endpoint-id {name} --private-dns-enabled`"
            return "problem", f"{name} has no private DNS, so that callers do not find it", remedy
        return self._refusing(service, endpoint)

    def _refusing(self, service: str, endpoint: Mapping[str, Any]) -> tuple[str, str, str] | None:
        """Return which callers the groups of an interface endpoint do not admit, if any."""
        name = endpoint["VpcEndpointId"]
        groups = [one["GroupId"] for one in endpoint["Groups"]]
        rules = [
            rule
            for group in self.calls.call("ec2", "describe_security_groups", GroupIds=groups)[
                "SecurityGroups"
            ]
            for rule in group["IpPermissions"]
            if opens(rule, HTTPS_PORT)
        ]
        admitted = [block["CidrIp"] for rule in rules for block in rule["IpRanges"]]
        left = [cidr for cidr in self._callers(service).values() if not covered(cidr, admitted)]
        if not left:
            return None
        lists = [one["PrefixListId"] for rule in rules for one in rule.get("PrefixListIds", ())]
        members = [one["GroupId"] for rule in rules for one in rule.get("UserIdGroupPairs", ())]
        if unread := sorted({*lists, *members} & {*lists, *self.own}):
            fact = f"{name} admits {', '.join(left)} at most by {', '.join(unread)}"
            remedy = "see whether that contains all callers: the check reads blocks only"
            return "warning", fact, remedy
        fact = f"{name} does not admit {', '.join(left)} on port {HTTPS_PORT}"
        remedy = "; ".join(
            f"`aws ec2 authorize-security-group-ingress --group-id {groups[0]} --protocol tcp"
            f" --port {HTTPS_PORT} --cidr {cidr}`"
            for cidr in left
        )
        return "problem", fact, remedy

    def _groups(self) -> Iterator[Finding]:
        for kind, name in (("brokers'", _BROKERS_GROUP), ("functions'", _CLIENT_GROUP)):
            group = getattr(self.network, name)
            if group:  # the stack creates the others
                yield self._group(f"{kind} group", name, group)
        yield from self._outbound()

    def _group(self, check: str, name: str, group: str) -> Finding:
        answer = self.calls.find("ec2", "describe_security_groups", _NOT_FOUND, GroupIds=[group])
        found = answer["SecurityGroups"] if answer else []
        vpcs = {one["VpcId"] for one in found}
        # In a shared VPC, AWS does not show the groups of other accounts.
        hidden = {f"{self._owner} or another that shares the VPC"} if self._owner else set()
        owners = {one["OwnerId"] for one in found} or hidden
        others = ", ".join(sorted(owners - {self.account}))
        if others and name == _BROKERS_GROUP:
            return self._foreign_brokers(check, group, others)
        if self.network.vpc_id not in vpcs:
            where = f"in {', '.join(vpcs)}" if vpcs else "not in this account and region"
            fact = f"{group} is {where}, the stage in {self.network.vpc_id}"
            return Finding(check, "problem", fact, f"correct network.{name}")
        closed = self._closed(found) if name == _BROKERS_GROUP else []
        if not closed:
            return Finding(check, "ok", group)
        client, ports = self.network.client_security_group_id, ", ".join(map(str, closed))
        remedy = "; ".join(
            f"its owner runs `aws ec2 authorize-security-group-ingress --group-id {group}"
            f" --protocol tcp --port {port} --source-group {client}`"
            for port in closed
        )
        return Finding(check, "problem", f"{group} does not admit {client} on port {ports}", remedy)

    def _outbound(self) -> Iterator[Finding]:
        """Report where the rules of a given group do not let functions and Spark go."""
        client = self.network.client_security_group_id
        asked = {"GroupIds": [client]}
        answer = client and self.calls.find("ec2", "describe_security_groups", _NOT_FOUND, **asked)
        if not answer:
            return
        rules = [rule for one in answer["SecurityGroups"] for rule in one["IpPermissionsEgress"]]
        lists = self._prefix_lists() if any(one.get("PrefixListIds") for one in rules) else {}
        check, out = "outbound rules", Outbound(rules, known=lists.values())
        verdicts = {what: out.lets(port, **to) for what, port, to in self._targets(lists)}
        closed = [what for what, verdict in verdicts.items() if verdict is False]
        unsure = [what for what, verdict in verdicts.items() if verdict is None]
        if closed:
            remedy = "its owner adds rules for TCP (`aws ec2 authorize-security-group-egress`)"
            fact = f"{client} lets out nothing to {', '.join(closed)}"
            yield Finding(check, "problem", fact, remedy)
        if unsure:
            fact = f"{client} lets out to some addresses or lists only: {', '.join(unsure)}"
            yield Finding(check, "warning", fact, "see whether these contain the targets")
        if not closed and not unsure:
            yield Finding(check, "ok", f"{client} lets out what the stage calls")

    def _targets(self, lists: Mapping[str, str]) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield what functions and Spark call: words for it, its port, and where it may be."""
        blocks = _blocks(self._found_vpc or {"CidrBlockAssociationSet": ()})
        brokers = {"vague": blocks, "groups": {self.network.cluster_security_group_id}}
        for port in sorted({int(one.rpartition(":")[2]) for one in self.stage.cluster.servers}):
            yield f"port {port} of the brokers", port, brokers
        subnets = {id_: one["CidrBlock"] for id_, one in self._found_subnets.items()}
        for service, ids in self.network.interfaces.items():
            blocks = [subnets[one] for one in ids if one in subnets]
            yield f"{service} on port {HTTPS_PORT}", HTTPS_PORT, {"blocks": blocks}
        gateways = {*self.network.gateways}
        for service in () if self._owner else self._named:
            for one in self._of(service):
                if one["VpcEndpointType"] == "Gateway":
                    gateways.add(service)
                    continue
                blocks = [subnets[each] for each in one["SubnetIds"] if each in subnets]
                groups = {each["GroupId"] for each in one["Groups"]}
                to = {"blocks": blocks, "groups": groups}
                yield f"{service} on port {HTTPS_PORT}", HTTPS_PORT, to
        for service in sorted(gateways):
            to = {"blocks": [ANYWHERE], "lists": {lists.get(service)}}
            yield f"{service} on port {HTTPS_PORT}", HTTPS_PORT, to
        if self.network.nat:
            yield f"NAT on port {HTTPS_PORT}", HTTPS_PORT, {"vague": [ANYWHERE]}

    def _prefix_lists(self) -> dict[str, str]:
        """Return the ids of AWS's own prefix lists by service; gateway endpoints have them."""
        found = self.calls.pages("ec2", "describe_prefix_lists", "PrefixLists")
        start = f"com.amazonaws.{self.stage.region}."
        return {one["PrefixListName"].removeprefix(start): one["PrefixListId"] for one in found}

    def _foreign_brokers(self, check: str, group: str, owners: str) -> Finding:
        """Return what a brokers' group of another account, whose rules AWS hides, needs."""
        if client := self.network.client_security_group_id:
            fact = f"{group} is of {owners}: its rules are not shown"
            return Finding(check, "warning", fact, f"its owner says whether it admits {client}")
        fact = (
            f"{group} is not of this account, but of {owners}: the stage may not add a rule to it"
            " that admits its functions"
        )
        remedy = (
            "set network.client_security_group_id to a group that it admits already, or deploy into"
            " the account of the brokers"
        )
        return Finding(check, "problem", fact, remedy)

    def _closed(self, groups: Iterable[Mapping[str, Any]]) -> list[int]:
        """Return the brokers' ports that their groups do not open to a given group of clients."""
        client, blocks = self.network.client_security_group_id, self._callers("kafka").values()
        rules = [rule for one in groups for rule in one["IpPermissions"]]
        ports = {int(server.rpartition(":")[2]) for server in self.stage.cluster.servers}

        def opened(port: int) -> bool:
            own = [rule for rule in rules if opens(rule, port)]
            named = {pair["GroupId"] for rule in own for pair in rule.get("UserIdGroupPairs", ())}
            ranges = [block["CidrIp"] for rule in own for block in rule["IpRanges"]]
            lists = any(rule.get("PrefixListIds") for rule in own)  # not read here
            return client in named or lists or all(covered(one, ranges) for one in blocks)

        return [port for port in sorted(ports) if client and not opened(port)]


def dns_attributes_off(calls: AwsCalls, vpc: str) -> list[str]:
    """Return those DNS attributes of a VPC that are off; private names need both."""
    off = []
    for attribute in ("enableDnsSupport", "enableDnsHostnames"):
        answer = calls.call("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=attribute)
        key = attribute[0].upper() + attribute[1:]
        if not answer[key]["Value"]:
            off.append(attribute)
    return off


def _blocks(vpc: Mapping[str, Any]) -> list[str]:
    """Return the IPv4 blocks that a VPC has now."""
    return [
        one["CidrBlock"]
        for one in vpc["CidrBlockAssociationSet"]
        if one["CidrBlockState"]["State"] == "associated"
    ]


def _calls_aws(interface: Mapping[str, Any]) -> bool:
    """Whether what has an interface in a VPC may resolve names of AWS's services there."""
    return not (
        interface.get("InterfaceType", "interface") in PASSING
        or BROKERS in interface.get("Description", "")
    )


def _option(attribute: str) -> str:
    return {"enableDnsSupport": "enable-dns-support", "enableDnsHostnames": "enable-dns-hostnames"}[
        attribute
    ]


def _misdescribed(subnet: PlannedSubnet, found: Mapping[str, Any]) -> tuple[str, str] | None:
    zone, zone_id = found["AvailabilityZone"], found["AvailabilityZoneId"]
    if zone != subnet.availability_zone:
        fact = f"it is in {zone}, the stage says {subnet.availability_zone}"
        return fact, f"write availability_zone={zone!r}"
    if subnet.zone_id is not None and zone_id != subnet.zone_id:
        return (
            f"its zone is {zone_id}, the stage says {subnet.zone_id}",
            f"write zone_id={zone_id!r}",
        )
    return None


def _table_of(subnet: str, tables: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the route table of a subnet: its own, or else the main one of the VPC."""
    main = None
    for table in tables:
        for one in table["Associations"]:
            if one.get("SubnetId") == subnet:
                return table
            if one["Main"]:
                main = table
    return main


def _default_way(table: Mapping[str, Any]) -> str:
    """Return the id of what the default route leads to; empty without one."""
    ways = (
        "NatGatewayId",
        "TransitGatewayId",
        "GatewayId",
        "NetworkInterfaceId",
        "InstanceId",
        "VpcPeeringConnectionId",
    )
    for route in table["Routes"]:
        if route.get("DestinationCidrBlock") == ANYWHERE and route.get("State") == "active":
            return str(next((route[way] for way in ways if route.get(way)), ""))
    return ""


def _admits_all(policy: str) -> bool:
    """Whether an endpoint's policy is the one that AWS gives it: everything, to everyone."""
    if not policy:
        return True
    try:
        statements = json.loads(policy)["Statement"]
    except (ValueError, LookupError, TypeError):
        return False
    given = [statements] if isinstance(statements, dict) else statements
    return all(one["Effect"] == "Allow" for one in given) and any(map(_allows_all, given))


def _allows_all(statement: Mapping[str, Any]) -> bool:
    free = statement.get("Principal") in ("*", {"AWS": "*"}) and "Condition" not in statement
    return free and all(statement.get(key) in ("*", ["*"]) for key in ("Action", "Resource"))
