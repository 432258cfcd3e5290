"""Hosts that connectors name: which of them a worker's owner admits, as written and as connected.

A name may lead anywhere, and elsewhere at the next look-up. So clients also judge the address to
which a socket is connected, before TLS and before any request:

    host as written --admits--> connection --check--> TLS, credentials, request

Some addresses need a pattern of their own; `*` does not admit them. Everywhere they are those of
this machine's link, as cloud metadata has. In functions they are also those of the machine itself,
where Lambda's API gives events to every client.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias
from urllib.parse import urlsplit

from extentflow.errors import Misconfigured

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

EVERY = ("*",)
OF_FUNCTIONS = "AWS_LAMBDA_FUNCTION_NAME"
RUNTIME_API = "AWS_LAMBDA_RUNTIME_API"  # host and port
# Not link-local: the metadata of AWS, Alibaba Cloud, Azure, Google Cloud and Oracle Cloud.
_METADATA = (
    ipaddress.IPv6Network("fd00:ec2::/32"),
    ipaddress.IPv4Network("100.100.100.200/32"),
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv6Network("fd20:ce::254/128"),
    ipaddress.IPv4Network("192.0.0.192/32"),
)
# Where IPv6 addresses hold IPv4 addresses, by the positions of their bytes.
_END = ((12, 13, 14, 15),)
_WITHIN = {
    ipaddress.IPv6Network("::/96"): _END,
    ipaddress.IPv6Network("::ffff:0:0/96"): _END,
    ipaddress.IPv6Network("::ffff:0:0:0/96"): _END,
    ipaddress.IPv6Network("64:ff9b::/96"): _END,
    # A network chooses the length of its own prefix below this one (RFC 6052, 8215).
    ipaddress.IPv6Network("64:ff9b:1::/48"): (
        *((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12)),
        *_END,
    ),
    ipaddress.IPv6Network("2002::/16"): ((2, 3, 4, 5),),
}
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")


@dataclass(frozen=True, slots=True)
class HostRule:
    """The hosts that connectors may name on a worker: patterns, as `connectors.host.allowed`."""

    patterns: tuple[str, ...] = EVERY

    def admits(self, host: str) -> bool:
        """Whether a connector may name the host; what a name leads to is not looked up."""
        host = host.rstrip(".")
        address = _read(host)
        if address is not None and _is_guarded(address):
            return self._names(host, str(address))
        if _is_own(host):
            return self._names(host)
        return any(fnmatchcase(host, one) for one in self.patterns)

    def check(self, connection: socket.socket, host: str) -> None:
        """Raise Misconfigured where a connection leads to an address that needs a pattern.

        A pattern is the whole name of `host`, or any but `*` that fits the address.
        """
        address = ipaddress.ip_address(connection.getpeername()[0])
        host = host.strip("[]").rstrip(".").lower()
        if _is_guarded(address) and host not in self.patterns and not self._names(str(address)):
            raise Misconfigured(
                f"{host} leads to {address}: connectors may not name this here; the worker's"
                " connectors.host.allowed has no pattern for this address"
            )

    def _names(self, *hosts: str) -> bool:
        own = naming(self.patterns)
        return any(fnmatchcase(host, one) for host in hosts for one in own)


def naming(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that name something: all but `*`."""
    return tuple(one for one in patterns if one.strip("*"))


def _read(host: str) -> Address | None:
    """Return the address that a host is; None where it is a name."""
    with suppress(OSError, UnicodeError):  # inet_aton also reads 0xa9fea9fe, 2852039166 and 127.1
        return ipaddress.ip_address(socket.inet_aton(host))
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _is_own(host: str) -> bool:
    """Whether the name is this machine's, in functions."""
    if OF_FUNCTIONS not in os.environ:
        return False
    runtime = urlsplit(f"//{os.environ.get(RUNTIME_API, '')}").hostname
    return host in ("localhost", runtime) or host.endswith(".localhost")


def _is_guarded(address: Address) -> bool:
    """Whether the address, or one within it, needs a pattern of its own."""
    functions = OF_FUNCTIONS in os.environ
    return any(
        one.is_link_local
        or any(one in network for network in _METADATA)
        or (functions and (one.is_loopback or one.is_unspecified or one.is_multicast))
        for one in (address, *_within(address))
    )


def _within(address: Address) -> Iterator[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return
    packed = address.packed
    for network, places in _WITHIN.items():
        if address in network:
            for place in places:
                yield ipaddress.IPv4Address(bytes(packed[at] for at in place))
    if address.teredo is not None:
        yield from address.teredo
    if packed[8:12] in _ISATAP:
        yield ipaddress.IPv4Address(packed[12:])
