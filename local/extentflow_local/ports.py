"""Ports on the loopback interface: which are free.

Owns: probing and picking. Refuses to know: who will listen there.
"""

import random
import socket
from collections.abc import Iterable

from extentflow_local.errors import PortTaken

HOST = "127.0.0.1"

# Below Linux's and macOS's ephemeral ranges, whose ports come and go with every connection.
_PICK_FROM = range(22_000, 32_000)
_ATTEMPTS = 200


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = HOST) -> bool:
    """Whether anything listens there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def free_run(length: int, dice: random.Random) -> int:
    """Pick the first of `length` free ports in a row.

    Raises:
        PortTaken: no such row was found.
    """
    for _ in range(_ATTEMPTS):
        first = dice.choice(_PICK_FROM)
        if all(is_free(port) for port in range(first, first + length)):
            return first
    raise PortTaken(
        f"found no {length} free ports in a row between {_PICK_FROM.start} and {_PICK_FROM.stop}:"
        " stop some of the servers that run on this machine"
    )


def taken(ports: Iterable[int]) -> list[int]:
    """Those of the ports where something already listens."""
    return [port for port in ports if not is_free(port)]
