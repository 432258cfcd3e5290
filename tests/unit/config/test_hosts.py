"""Which hosts connectors may name: spellings of addresses, and where connections lead."""

import ipaddress
import socket
from typing import cast

import pytest

from extentflow.config.hosts import OF_FUNCTIONS, RUNTIME_API, HostRule
from extentflow.errors import Misconfigured

METADATA = [
    "169.254.169.254",
    "169.254.169.254.",
    "169.254.43518",
    "2852039166",
    "0xa9fea9fe",
    "fe80::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "100.100.100.200",
    "fd20:ce::254",
    "168.63.129.16",
    "192.0.0.192",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "::ffff:0:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:a9fe:a9:fe00::",  # a prefix of 48 bits
    "64:ff9b:1:aa:a9:fea9:fe00:0",  # 64 bits
    "64:ff9b:1:ffa9:fe:a9fe::",  # 56 bits
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",  # Teredo's server
    "2001:0:1:1::5601:5601",  # and its client, inverted
    "2001:db8::5efe:169.254.169.254",
]
OWN = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.8.8.8",
    "2130706433",
    "0x7f.1",
    "017700000001",
    "0.0.0.0",  # noqa: S104 - no server binds to it
    "0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "224.0.0.1",
    "ff02::1",
]
NAMES = ["localhost", "localhost.", "a.localhost", "sandbox"]
FOREIGN = [
    "s3.example.com",
    "10.0.0.7",
    "192.168.1.1",
    "100.64.0.1",
    "52.95.110.1",
    "2600:1f18::1",
    "fd12::1",
    "64:ff9b::10.0.0.7",
    "2002:a00:7::1",
    "localhost.example.com",
]


@pytest.fixture
def in_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    monkeypatch.setenv(RUNTIME_API, "sandbox:9001")


@pytest.mark.parametrize("host", METADATA)
def test_addresses_of_the_link_need_a_pattern_of_their_own(host: str) -> None:
    assert not HostRule().admits(host)
    assert not HostRule(("**",)).admits(host)
    assert HostRule((host.rstrip("."),)).admits(host)


@pytest.mark.parametrize("host", OWN + NAMES)
@pytest.mark.usefixtures("in_functions")
def test_in_functions_so_do_the_machines_own_addresses_and_names(host: str) -> None:
    assert not HostRule().admits(host)
    assert HostRule((host.rstrip("."),)).admits(host)


@pytest.mark.parametrize("host", OWN + NAMES)
def test_on_other_workers_they_are_hosts_as_any(host: str) -> None:
    assert HostRule().admits(host)


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.usefixtures("in_functions")
def test_other_hosts_need_no_pattern_of_their_own(host: str) -> None:
    assert HostRule().admits(host)
    assert not HostRule(("*.example.org",)).admits(host)


def test_a_pattern_fits_the_address_however_it_is_written() -> None:
    assert HostRule(("169.254.169.*",)).admits("2852039166")


class Connection:
    """Stands for a socket that is connected to an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def getpeername(self) -> tuple[str, int]:
        return self._address, 80


def check(rule: HostRule, host: str, address: str) -> None:
    rule.check(cast("socket.socket", Connection(address)), host)


@pytest.mark.parametrize("address", [one for one in METADATA + OWN if "%" not in one])
@pytest.mark.usefixtures("in_functions")
def test_a_name_that_leads_to_such_an_address_is_refused(address: str) -> None:
    try:
        peer = str(ipaddress.ip_address(address))
    except ValueError:  # a spelling: sockets know addresses only
        return

    with pytest.raises(Misconfigured, match=r"x\.example\.com leads to .*connectors.host.allowed"):
        check(HostRule(("*", "*.example.com")), "x.example.com", peer)
    check(HostRule(("x.example.com",)), "x.example.com", peer)
    check(HostRule((peer,)), "x.example.com", peer)


@pytest.mark.parametrize("address", ["10.0.0.7", "2600:1f18::1", "127.0.0.1"])
def test_a_name_may_lead_to_any_other_address(address: str) -> None:
    check(HostRule(), "x.example.com", address)
