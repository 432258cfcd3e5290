"""Folders of a local disk, for lake targets."""

import errno
from pathlib import Path

import pytest

from extentflow.errors import Misconfigured, ObjectGone, ProcessExhausted, StoreUnavailable
from extentflow.storage.local_folder import LocalFolder
from extentflow.wiring.folders import open_folder


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(tmp_path / "lake")


def test_a_name_is_created_once(folder: LocalFolder) -> None:
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert list(folder.names("")) == ["a/b"]


def test_put_takes_the_place_of_an_object(folder: LocalFolder) -> None:
    folder.put("a", b"first")
    folder.put("a", b"second")

    assert folder.read("a") == b"second"
    assert folder.read("b") is None


def test_names_are_sorted_and_below_the_prefix(folder: LocalFolder) -> None:
    for name in ("b/2", "b/1", "c/1", "b/x/0"):
        folder.put(name, b"")

    assert list(folder.names("b/")) == ["b/1", "b/2", "b/x/0"]
    assert list(folder.names("none/")) == []


def test_a_move_may_be_repeated(folder: LocalFolder) -> None:
    folder.put("staged/a", b"a")

    folder.move("staged/a", "day=1/a")
    folder.move("staged/a", "day=1/a")

    assert list(folder.names("")) == ["day=1/a"]


def test_a_move_of_nothing_is_an_error(folder: LocalFolder) -> None:
    with pytest.raises(ObjectGone, match="neither"):
        folder.move("staged/a", "day=1/a")


def test_a_deleted_object_leaves_no_empty_folder(folder: LocalFolder) -> None:
    folder.put("staged/x/a", b"")
    folder.put("kept", b"")

    folder.delete("staged/x/a")
    folder.delete("staged/x/a")

    assert [path.name for path in folder.root.iterdir()] == ["kept"]


def test_errors_of_the_system_have_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="file"):
        LocalFolder(tmp_path).put("file/below", b"")

    def fill_up(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fill_up)
    with pytest.raises(ProcessExhausted, match="No space left on device; make room"):
        LocalFolder(tmp_path).create("new", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_addresses_open_their_folder(tmp_path: Path) -> None:
    assert open_folder(str(tmp_path)) == open_folder(tmp_path.as_uri()) == LocalFolder(tmp_path)
    assert open_folder("s3a://lake/a/b/", "http://127.0.0.1:1").uri == "s3://lake/a/b/"
    with pytest.raises(Misconfigured, match="write s3://bucket/prefix"):
        open_folder("hdfs://host/lake")
