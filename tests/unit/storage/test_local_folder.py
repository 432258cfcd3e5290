"""Folders of a local disk: files are visible at once and whole, and never one over another."""

import errno
from pathlib import Path

import pytest
from tests.contracts.folder import FolderContract
from tests.support.golden import Golden

from extentflow.errors import ProcessExhausted, StoreUnavailable
from extentflow.storage.folders import Folder
from extentflow.storage.local_folder import LocalFolder


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "lake")


class TestLocalFolder(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return LocalFolder(tmp_path / "lake")


def test_a_file_has_the_mode_that_the_umask_leaves(folder: LocalFolder) -> None:
    spool = folder.spool()
    spool.publish("a")
    spool.close()
    beside = folder.root / "b"
    beside.touch()

    assert (folder.root / "a").stat().st_mode == beside.stat().st_mode


def test_what_a_writer_left_is_removed_and_what_another_one_writes_is_not(
    folder: LocalFolder,
) -> None:
    left = folder.root / ".writing-left"
    spool = folder.spool()
    left.write_bytes(b"half of")

    folder.clean()

    assert not left.exists()
    spool.write(b"whole")
    spool.publish("a")
    spool.close()
    assert [path.name for path in folder.root.iterdir()] == ["a"]


def test_a_deleted_file_leaves_no_empty_folder(folder: LocalFolder) -> None:
    folder.put("staged/x/a", b"")
    folder.put("kept", b"")

    folder.delete("staged/x/a")

    assert [path.name for path in folder.root.iterdir()] == ["kept"]


def test_a_folder_that_is_a_file_is_an_error(folder: LocalFolder, tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="lake"):
        folder.spool()


def test_errors_of_the_system_have_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="file"):
        LocalFolder(tmp_path).put("file/below", b"")

    def fill_up(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fill_up)
    with golden.raises(ProcessExhausted):
        LocalFolder(tmp_path).create("new", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
