"""What a file system states of a ledger's file."""

import time
from pathlib import Path

import pytest

from extentflow.ledger.sqlite_files import created_ns, file_system


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
    [("/home/me/x.db", "ext4"), ("/mnt/share/x.db", "nfs4"), ("/mnt/a b/x.db", "fuse.sshfs")],
)
def test_the_file_system_of_a_path_is_that_of_the_innermost_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\n"
        "host:/x /mnt/share nfs4 rw 0 0\n"
        "me@host:/ /mnt/a\\040b fuse.sshfs rw 0 0\n"
    )

    assert file_system(Path(path), mounts) == kind
