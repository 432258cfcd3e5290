"""Find free ports on the loopback interface, without races between processes.

A server listens seconds after its port was picked. Until then a process reserves the port: it locks
the byte of that number in a file. All processes of a user share this file, if they use the same
directory for temporary files.
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

from extentflow_local.stack.errors import PortTaken, ServiceFailed

HOST = "127.0.0.1"

# Below Linux's and macOS's ephemeral ranges, which the kernel assigns to outgoing connections.
_PICK_FROM = range(22_000, 32_000)
_ATTEMPTS = 200
# Locks belong to a process: they do not prevent two of its threads from picking the same port.
_picked: set[int] = set()
_picking = threading.Lock()


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = HOST) -> bool:
    """Return whether a server listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def free_run(length: int, dice: random.Random) -> int:
    """Pick the first of `length` consecutive free ports and reserve them.

    They stay reserved until this process ends, with or without a listening server.

    Raises:
        PortTaken: there is no such range.
        ServiceFailed: the file of reservations cannot be opened.
    """
    for _ in range(_ATTEMPTS):
        first = dice.choice(_PICK_FROM)
        row = range(first, first + length)
        if all(map(is_free, row)) and _reserved(row):
            return first
    raise PortTaken(
        f"no {length} consecutive free ports between {_PICK_FROM.start} and {_PICK_FROM.stop}:"
        " stop some servers on this machine"
    )


def taken(ports: Iterable[int]) -> list[int]:
    """Return the ports on which a server listens."""
    return [port for port in ports if not is_free(port)]


def _reserved(row: range) -> bool:
    """Reserve the ports; return whether no other process had reserved them."""
    file = _reservations()
    with _picking:
        if not _picked.isdisjoint(row):
            return False
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, len(row), row.start)
        except (BlockingIOError, PermissionError):  # the operating system decides which
            return False
        _picked.update(row)
        return True


@cache
def _reservations() -> int:
    """Open the file once: closing any descriptor of it would release all locks."""
    file = Path(tempfile.gettempdir()) / f"extentflow-ports-{os.getuid()}"
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise ServiceFailed(
            f"{file}, the file of port reservations, cannot be opened: "
            f"{exc.strerror}; remove it, or set TMPDIR to a directory of your own"
        ) from exc
