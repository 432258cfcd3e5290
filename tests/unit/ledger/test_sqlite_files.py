"""What a file system states of a ledger's file."""

import ctypes
import struct
import time
from pathlib import Path

import pytest

from extentflow.ledger.sqlite_files import created_ns, file_system, is_network, statfs_kind


def test_a_file_system_states_when_a_file_was_created(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    before = time.time_ns()
    path.touch()
    created = created_ns(path)
    path.write_text("more")

    # Kernels take the time of their last tick.
    assert created == 0 or before - 10**8 <= created <= time.time_ns()
    assert created_ns(path) == created


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/x.db", "ext4"),
        ("/mnt/share/x.db", "nfs4"),
        ("/mnt/a b/x.db", "fuse.sshfs"),
        ("/mnt/größe/x.db", "cifs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_innermost_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\n"
        "host:/x /mnt/share nfs4 rw 0 0\n"
        "me@host:/ /mnt/a\\040b fuse.sshfs rw 0 0\n"
        "//host/x /mnt/größe cifs rw 0 0\n",
        encoding="utf-8",
    )

    assert file_system(Path(path), mounts) == kind


@pytest.mark.parametrize(
    "kind",
    [
        "9p",
        "acfs",
        "beegfs",
        "ceph",
        "fuse",
        "fuse.s3fs",
        "gfs2",
        "glusterfs",
        "lustre",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    ],
)
def test_file_systems_of_several_machines_are_known(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", ["", "apfs", "btrfs", "ext4", "fuseblk", "overlay", "tmpfs", "xfs"]
)
def test_file_systems_of_one_machine_are_accepted(kind: str) -> None:
    assert not is_network(kind)


class MacOs:
    """The C library of macOS, which answers statfs(2) with one file system."""

    def __init__(self, kind: bytes, flags: int, name: str = "statfs") -> None:
        self.answer = struct.pack("=64xII16s", flags, 0, kind)
        setattr(self, name, self.fill)

    def fill(self, path: bytes, found: "ctypes.Array[ctypes.c_char]") -> int:
        assert path == b"/Volumes/x"
        ctypes.memmove(found, self.answer, len(self.answer))
        return 0


@pytest.mark.parametrize(
    ("kind", "flags", "name", "network"),
    [
        (b"apfs", 0x0480_9000, "statfs", False),
        (b"apfs", 0x0480_9000, "statfs$INODE64", False),
        (b"smbfs", 0x0000_0018, "statfs", True),
        (b"newfs", 0x0000_0018, "statfs", True),
        (b"macfuse", 0x0000_1018, "statfs", True),
    ],
)
def test_macos_states_the_type_and_whether_it_is_local(
    kind: bytes, flags: int, name: str, *, network: bool
) -> None:
    found = statfs_kind("/Volumes/x", "darwin", lambda _: MacOs(kind, flags, name))

    assert found.endswith(kind.decode())
    assert is_network(found) is network
    assert statfs_kind("/Volumes/x", "linux") == ""
