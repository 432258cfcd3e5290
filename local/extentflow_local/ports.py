"""Ports on the loopback interface: which are free.

Owns: probing and picking. Refuses to know: who will listen there.

A server listens seconds after its port was picked. Until then nobody else may pick that one, so a
process locks the byte of that number in a file that all of a user's processes share, if they have
the same directory for temporary files.
"""

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from extentflow_local.errors import PortTaken, ServiceFailed

HOST = "127.0.0.1"

# Below Linux's and macOS's ephemeral ranges, whose ports come and go with every connection.
_PICK_FROM = range(22_000, 32_000)
_ATTEMPTS = 200
# Locks are a process's: they do not keep it, or two of its threads, from picking a port twice.
_picked: set[int] = set()
_picking = threading.Lock()


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
    """Pick the first of `length` free ports in a row, which no other process picks meanwhile.

    They stay this process's until it ends, whether anything listens there or not.

    Raises:
        PortTaken: no such row was found.
        ServiceFailed: nobody can say what others picked.
    """
    for _ in range(_ATTEMPTS):
        first = dice.choice(_PICK_FROM)
        row = range(first, first + length)
        if all(map(is_free, row)) and _reserved(row):
            return first
    raise PortTaken(
        f"found no {length} free ports in a row between {_PICK_FROM.start} and {_PICK_FROM.stop}:"
        " stop some of the servers that run on this machine"
    )


def taken(ports: Iterable[int]) -> list[int]:
    """Those of the ports where something already listens."""
    return [port for port in ports if not is_free(port)]


def _reserved(row: range) -> bool:
    """Whether the ports are this process's from now on, and were nobody's."""
    file = _reservations()
    with _picking:
        if not _picked.isdisjoint(row):
            return False
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, len(row), row.start)
        except (BlockingIOError, PermissionError):  # which of the two is the system's choice
            return False
        _picked.update(row)
        return True


@cache
def _reservations() -> int:
    """Open the file once: to close any of its descriptors would give all locks up."""
    file = Path(tempfile.gettempdir()) / f"extentflow-ports-{os.getuid()}"
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise ServiceFailed(
            f"{file}, where processes say which ports they picked, cannot be opened: "
            f"{exc.strerror}; remove it, or set TMPDIR to a directory of your own"
        ) from exc
