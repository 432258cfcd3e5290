"""What a file of SQLite needs of its file system, and what tells it from a copy."""

import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from extentflow.errors import Misconfigured

# Of <linux/stat.h> and <fcntl.h>.
STATX_BYTES, STATX_BTIME, STX_BTIME_OFFSET, AT_FDCWD = 256, 0x800, 80, -100

# Of macOS: <sys/mount.h>, struct statfs with 64-bit inodes.
STATFS_BYTES, FLAGS_OFFSET, KIND_OFFSET, KIND_BYTES, MNT_LOCAL = 4096, 64, 72, 16, 0x1000

# Of several machines: file servers, disks that machines share, and folders of a virtual machine's
# host.
NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "cvfs", "davfs", "fakeowner"}
    | {"fuse", "fusefs", "gfs", "gfs2", "glusterfs", "gpfs", "grpcfuse", "lustre", "macfuse"}
    | {"mmfs", "ncp", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2", "orangefs", "osxfs", "osxfuse"}
    | {"panfs", "prl_fs", "prl_vzfs", "pvfs2", "quobyte", "scoutfs", "smb2", "smb3", "smbfs"}
    | {"snfs", "vboxsf", "virtiofs", "vmhgfs", "webdav", "wekafs", "xtreemfs"}
)
ESCAPED = re.compile(rb"\\([0-7]{3})")


def check_file_system(path: Path) -> None:
    """Refuse a file on a network: SQLite's locks and shared memory do not work there."""
    kind = file_system(path)
    if is_network(kind):
        raise Misconfigured(
            f"ledger.url: {path} is on a file system of type {kind}, where several machines"
            " write and SQLite's locks do not hold; use a local path, or postgresql://"
        )


def is_network(kind: str) -> bool:
    """Return whether several machines may write to file systems of a type."""
    return kind in NETWORK_FILE_SYSTEMS or kind.startswith(("fuse.", "network."))


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system of a path; empty where the system does not state it."""
    real = path.resolve()
    places = [str(each) for each in (real, *real.parents)]
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return statfs_kind(next(place for place in places if Path(place).exists()))
    kinds = {}
    for line in lines:
        _, place, kind, *_ = line.split(b" ")
        name = ESCAPED.sub(lambda found: bytes([int(found[1], 8) & 255]), place)
        kinds[os.fsdecode(name)] = kind.decode()
    return next((kinds[place] for place in places if place in kinds), "")


def statfs_kind(
    place: str, platform: str = sys.platform, library: Callable[[None], object] = ctypes.CDLL
) -> str:
    """Return the type of file system that macOS states of a path; empty on other systems.

    `network.TYPE` where macOS states that it is not local, whatever the type.
    """
    if platform != "darwin":
        return ""
    calls = library(None)
    # On Intel the plain name is the call with 32-bit inodes.
    statfs = getattr(calls, "statfs$INODE64", None) or getattr(calls, "statfs", None)
    found = ctypes.create_string_buffer(STATFS_BYTES)
    if statfs is None or statfs(os.fsencode(place), found) != 0:
        return ""
    (flags,) = struct.unpack_from("=I", found, FLAGS_OFFSET)
    kind = found.raw[KIND_OFFSET : KIND_OFFSET + KIND_BYTES].split(b"\0")[0].decode()
    return kind if flags & MNT_LOCAL or kind in NETWORK_FILE_SYSTEMS else f"network.{kind}"


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
