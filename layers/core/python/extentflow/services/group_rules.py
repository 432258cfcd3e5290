"""Rules of security groups: the ports that they open, and the addresses to which.

Tests: unit/services/test_account_checks.py
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

ALL_PROTOCOLS = "-1"
ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class Outbound:
    """The outbound rules of a security group; what is in the prefix lists `known` is known."""

    rules: Sequence[Mapping[str, Any]]
    known: Collection[str]

    def lets(
        self,
        port: int,
        *,
        blocks: Sequence[str] = (),
        vague: Sequence[str] = (),
        groups: Collection[str] = (),
        lists: Collection[str | None] = (),
    ) -> bool | None:
        """Return whether connections to a target may leave; None if the rules do not show it.

        The target has all addresses of `blocks`, or some of those in `vague`, and one of the
        `groups` or `lists`.
        """
        rules = [rule for rule in self.rules if opens(rule, port)]
        pairs = {pair["GroupId"] for rule in rules for pair in rule.get("UserIdGroupPairs", ())}
        named = {one["PrefixListId"] for rule in rules for one in rule.get("PrefixListIds", ())}
        ranges = [one["CidrIp"] for rule in rules for one in rule.get("IpRanges", ())]
        needed = (*blocks, *vague)
        if pairs & {*groups} or named & {*lists}:
            return True
        if needed and all(covered(one, ranges) for one in needed):
            return True
        return None if named - {*self.known} or (vague and rules) or not needed else False


def covered(block: str, admitted: Iterable[str]) -> bool:
    """Whether blocks together contain another one."""
    wanted = IPv4Network(block)
    joined = collapse_addresses(IPv4Network(one, strict=False) for one in admitted)
    return any(wanted.subnet_of(one) for one in joined)


def opens(rule: Mapping[str, Any], port: int) -> bool:
    """Whether a rule is for TCP connections to a port."""
    if rule["IpProtocol"] == ALL_PROTOCOLS:
        return True
    return bool(rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"])
