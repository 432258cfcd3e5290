"""Files in local folders: visible at once and whole, and never one over another."""

from pathlib import Path

import pytest

from extentflow.errors import Conflict, ObjectGone, StoreUnavailable
from extentflow.storage.local_target import LocalTarget


@pytest.fixture
def target(tmp_path: Path) -> LocalTarget:
    return LocalTarget(tmp_path / "lake")


def test_a_file_is_visible_when_it_is_published_and_not_before(target: LocalTarget) -> None:
    spool = target.spool("orders/0")
    spool.write(b"one ")
    spool.write(memoryview(b"two"))
    before = target.names("orders/0")
    spool.publish("a")
    spool.close()

    assert before == []
    assert target.names("orders/0") == ["a"]
    assert target.read("orders/0", "a") == b"one two"
    assert [path.name for path in (target.root / "orders/0").iterdir()] == ["a"]


def test_a_file_has_the_mode_that_the_umask_leaves(target: LocalTarget) -> None:
    spool = target.spool("orders")
    spool.publish("a")
    spool.close()
    beside = target.root / "orders" / "b"
    beside.touch()

    assert (target.root / "orders" / "a").stat().st_mode == beside.stat().st_mode


def test_a_file_is_not_published_over_another_one(target: LocalTarget) -> None:
    for content, same in ((b"first", True), (b"first", True), (b"other", False)):
        spool = target.spool("orders")
        spool.write(content)
        if same:
            spool.publish("a")
        else:
            with pytest.raises(Conflict, match="exists with other bytes"):
                spool.publish("a")
        spool.close()

    assert target.read("orders", "a") == b"first"
    assert target.names("orders") == ["a"]


def test_a_name_is_created_once(target: LocalTarget) -> None:
    created = [target.create("orders", ".next", content) for content in (b"1", b"2")]

    assert created == [True, False]
    assert target.read("orders", ".next") == b"1"


def test_what_a_writer_left_is_removed_and_what_another_one_writes_is_not(
    target: LocalTarget,
) -> None:
    left = target.root / "orders" / ".writing-left"
    spool = target.spool("orders")
    left.write_bytes(b"half of")

    target.clean("orders")

    assert not left.exists()
    spool.write(b"whole")
    spool.publish("a")
    spool.close()
    assert target.names("orders") == ["a"]


def test_names_are_in_order_from_a_name_on(target: LocalTarget) -> None:
    for name in ("3", "1", "2"):
        target.create("orders", name, b"")

    assert target.names("orders") == ["1", "2", "3"]
    assert target.names("orders", "2") == ["2", "3"]
    assert target.names("elsewhere") == []


def test_a_file_that_is_not_there_is_gone_and_deleting_it_has_no_effect(
    target: LocalTarget,
) -> None:
    target.delete("orders", "a")

    with pytest.raises(ObjectGone, match="no such file"):
        target.read("orders", "a")


def test_a_folder_that_is_a_file_is_an_error(target: LocalTarget, tmp_path: Path) -> None:
    (tmp_path / "lake").write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="lake"):
        target.spool("orders")
