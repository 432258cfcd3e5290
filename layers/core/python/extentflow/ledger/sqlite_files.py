"""What a file of SQLite needs of its file system, and what tells it from a copy."""

import ctypes
import os
import struct
from pathlib import Path

from extentflow.errors import Misconfigured

# Of <linux/stat.h> and <fcntl.h>.
STATX_BYTES, STATX_BTIME, STX_BTIME_OFFSET, AT_FDCWD = 256, 0x800, 80, -100

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"}
    | {"smb2", "smb3", "smbfs", "virtiofs", "webdav"}
)


def check_file_system(path: Path) -> None:
    """Refuse a file on a network: SQLite's locks and shared memory do not work there."""
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS or kind.startswith("fuse."):
        raise Misconfigured(
            f"ledger.url: {path} is on a file system of type {kind}, where several machines"
            " write and SQLite's locks do not hold; use a local path, or postgresql://"
        )


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of a path; empty where the system does not state it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    kinds = {}
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        kinds[place.encode().decode("unicode_escape")] = kind
    real = path.resolve()
    return next((kinds[str(each)] for each in (real, *real.parents) if str(each) in kinds), "")


def created_ns(path: Path) -> int:
    """Return when a file was created, in nanoseconds since 1970; 0 where the system keeps no time.

    Linux states it by statx(2) only, for which Python has no function before 3.15.
    """
    if (seconds := getattr(path.stat(), "st_birthtime", None)) is not None:
        return int(seconds * 10**9)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(STATX_BYTES)
    if statx is None or statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, found) != 0:
        return 0
    (known,) = struct.unpack_from("=I", found)
    seconds, nanoseconds = struct.unpack_from("=qI", found, STX_BTIME_OFFSET)
    return int(seconds * 10**9 + nanoseconds) if known & STATX_BTIME else 0
