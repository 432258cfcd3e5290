"""Files that look delivered, or look new: their content decides which of them are delivered."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.memory_delivery import World

from extentflow.delivery.runner import run_extent
from extentflow.jobs import contents
from extentflow.model import Job, JobState, Outcome
from extentflow.storage import StoreOptions
from extentflow.storage.local import LocalStore

BODY, OTHER = b"abcdefgh", b"stuvwxyz"


class Files:
    """A folder with one file, and what commands deliver of it."""

    def __init__(self, folder: Path, *, connector: str = "c") -> None:
        self.path = folder / "a.csv"
        self.path.write_bytes(BODY)
        self.store = LocalStore(StoreOptions())
        self.world = World(store=self.store)
        self.connector = connector

    def admit(self) -> Job:
        """Register the file as it is now."""
        version = self.store.head(str(self.path.parent), self.path.name)
        request = self.world.request(version)
        return self.world.planner.admit(request)

    def deliver(self) -> Job:
        """Deliver the file as it is now; a DONE job stays as it is."""
        planner = self.world.planner
        job = planner.plan(self.admit())
        for extent in list(planner.pending(job)):
            assert run_extent(extent, self.world.worker()).outcome is Outcome.DONE
        return self.world.ledger.jobs.close(job.id)

    def known(self) -> bool:
        """Return whether a listing leaves the file out as delivered."""
        (page,) = self.store.pages(str(self.path.parent))
        return bool(self.world.planner.delivered("c", page.versions))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rewrite(path: Path) -> None:
    """Write other content into the same inode, and set the old time."""
    found = path.stat()
    path.write_bytes(OTHER)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def restore(path: Path) -> None:
    """Replace a file by a copy of itself, as a backup does."""
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def restore_other(path: Path) -> None:
    restore(path)
    rewrite(path)


def change_mode(path: Path) -> None:
    path.chmod(0o600)


def link(path: Path) -> None:
    path.with_name("_other").hardlink_to(path)
    path.with_name("_other").unlink()


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns))


@pytest.mark.parametrize("change", [restore, change_mode, link, touch])
def test_the_same_content_is_delivered_once(files: Files, change: Callable[[Path], None]) -> None:
    first = files.deliver()
    assert files.known()

    for _ in range(2):
        change(files.path)
        assert files.deliver() == first


@pytest.mark.parametrize("change", [rewrite, restore_other])
def test_other_content_is_delivered_whatever_its_time(
    files: Files, change: Callable[[Path], None]
) -> None:
    first = files.deliver()
    change(files.path)

    assert not files.known()
    second = files.deliver()

    assert second.id != first.id
    assert second.state is JobState.DONE
    assert files.deliver() == second
    change_mode(files.path)
    assert files.deliver() == second


def test_a_file_whose_change_was_looked_at_is_not_read_again(files: Files) -> None:
    files.deliver()
    change_mode(files.path)
    assert not files.known()
    files.deliver()
    read = files.store.fetched_bytes

    assert files.known()
    files.deliver()
    assert files.store.fetched_bytes == read


def test_a_mode_that_changes_during_a_delivery_does_not_end_it(files: Files) -> None:
    job = files.world.planner.plan(files.admit())
    change_mode(files.path)

    assert files.deliver().id == job.id


def test_an_unfinished_job_of_content_that_was_replaced_ends(files: Files) -> None:
    job = files.world.planner.plan(files.admit())
    rewrite(files.path)

    after = files.deliver()

    assert after.generation == 1
    ended = files.world.ledger.jobs.get(job.id)
    assert ended
    assert ended.state is JobState.SUPERSEDED
    assert "written again" in ended.reason


def test_what_a_ledger_without_times_delivered_counts(files: Files) -> None:
    version = replace(files.store.head(str(files.path.parent), "a.csv"), modified=0)
    planner = files.world.planner
    first = planner.plan(planner.admit(files.world.request(version)))
    for extent in planner.pending(first):
        run_extent(extent, files.world.worker())
    first = files.world.ledger.jobs.close(first.id)

    assert files.known()
    assert files.deliver() == first


@pytest.fixture
def large(files: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """One whose file has no digest but that of samples: its first, middle and last byte."""
    monkeypatch.setattr(contents, "MAX_DIGEST_BYTES", len(BODY) - 1)
    monkeypatch.setattr(contents, "SAMPLES", 3)
    monkeypatch.setattr(contents, "SAMPLE_BYTES", 1)
    return files


def test_a_large_file_that_was_touched_counts_as_delivered_with_a_warning(
    large: Files, caplog: pytest.LogCaptureFixture
) -> None:
    first = large.deliver()

    for _ in range(2):
        change_mode(large.path)
        assert large.deliver() == first
        assert large.known()

    assert "a.csv" in caplog.text
    assert "--again" in caplog.text


def test_a_large_file_of_which_samples_differ_is_delivered_again(large: Files) -> None:
    first = large.deliver()
    rewrite(large.path)

    second = large.deliver()

    assert second.id != first.id
    assert large.deliver() == second


def test_samples_prove_nothing_of_a_copy_of_a_large_file(large: Files) -> None:
    first = large.deliver()
    restore(large.path)

    assert large.deliver().id != first.id


def test_a_file_whose_digest_an_earlier_version_left_out_counts_as_delivered(
    large: Files, caplog: pytest.LogCaptureFixture
) -> None:
    first = large.deliver()
    version = large.store.head(str(large.path.parent), "a.csv")
    notes = large.world.ledger.notes
    known = contents.recall(notes, "c", version)
    assert known
    contents.remember(notes, "c", version, replace(known, digest=""))
    rewrite(large.path)

    assert large.deliver() == first
    assert "no digest is stored" in caplog.text


@pytest.mark.parametrize(("change", "again"), [(change_mode, False), (rewrite, True)])
def test_another_connectors_job_counts_for_the_content_that_it_read(
    files: Files, change: Callable[[Path], None], *, again: bool
) -> None:
    theirs = files.deliver()
    change(files.path)
    version = files.store.head(str(files.path.parent), "a.csv")
    request = replace(files.world.request(version), connector="d", others=lambda: [theirs])

    assert (files.world.planner.admit(request).id != theirs.id) is again
