"""Files that change while their job runs: no job mixes two contents of one."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.errors import ObjectChanged, StoreUnavailable
from extentflow.jobs import contents
from extentflow.jobs.contents import StoredContent
from extentflow.jobs.pinned_files import PinnedFile, SameContents
from extentflow.model import ObjectVersion
from extentflow.storage import RangeSource, StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.storage.ranges import RangeReader
from extentflow.testing.ledger import MemoryLedger

BODY, OTHER = b"abcdefgh", b"stuvwxyz"


class File:
    """A file that a job has registered."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a.csv"
        self.path.write_bytes(BODY)
        self.store, self.notes = LocalStore(StoreOptions()), MemoryLedger().notes
        self.version = self.head()
        self.register()
        self.before_read: Callable[[], object] = lambda: None

    def head(self) -> ObjectVersion:
        return self.store.head(str(self.path.parent), "a.csv")

    def register(self) -> None:
        """Store the content as that of a new job."""
        now = self.head()
        digest = contents.digest_of(now, lambda: RangeReader(self.store, now))
        found = StoredContent(now.etag, now.modified, digest, now.etag)
        contents.register(self.notes, "c", now, found)

    def reader(self) -> RangeReader:
        """Return a reader as another process of the job opens it."""

        class Store(LocalStore):
            def read(store, version: ObjectVersion, start: int, end: int) -> bytes:  # noqa: N805
                self.before_read()
                return super().read(version, start, end)

        same = SameContents(lambda: self.notes)
        return RangeReader(PinnedFile(Store(StoreOptions()), "c", same), self.version)

    def overwrite(self, body: bytes = OTHER) -> None:
        """Write into the same inode, and set the old time."""
        found = self.path.stat()
        while self.path.stat().st_ctime_ns == found.st_ctime_ns:  # within a tick of its clock
            self.path.write_bytes(body)
            os.utime(self.path, ns=(found.st_atime_ns, found.st_mtime_ns))

    def change_mode(self) -> None:
        before, mode = self.path.stat().st_ctime_ns, 0o600
        while self.path.stat().st_ctime_ns == before:
            self.path.chmod(mode := mode ^ 0o040)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def test_a_file_that_is_overwritten_in_place_is_an_error_that_names_it(
    file: File, golden: Golden
) -> None:
    reader = file.reader()
    assert reader.read(0, 4) == BODY[:4]
    file.overwrite()

    for each in (reader, file.reader()):
        with golden.raises(ObjectChanged, match=r"a.csv was overwritten in place"):
            each.read(4, 8)


def test_a_file_that_is_overwritten_during_a_read_is_an_error(file: File) -> None:
    """The store repeats its read, which no longer sees a change."""

    def overwrite() -> None:
        file.before_read = lambda: None
        file.overwrite()

    file.before_read = overwrite

    with pytest.raises(ObjectChanged, match="overwritten in place"):
        file.reader().read(0, 8)


def test_a_mode_that_changes_fails_no_job_and_the_digest_is_made_once(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, original = list[ObjectVersion](), contents.digest_of

    def digest_of(version: ObjectVersion, source: Callable[[], RangeSource]) -> str:
        made.append(version)
        return original(version, source)

    monkeypatch.setattr(contents, "digest_of", digest_of)
    reader = file.reader()

    for _ in range(2):
        file.change_mode()
        assert b"".join(reader.read(at, at + 2) for at in range(0, 8, 2)) == BODY

    assert len(made) == 2


def test_a_file_of_which_samples_are_known_is_not_read_after_a_change(
    file: File,
) -> None:
    now = file.head()
    sampled = StoredContent(now.etag, now.modified, f"{contents.SAMPLED}0123", now.etag)
    contents.register(file.notes, "c", now, sampled)
    reader = file.reader()
    assert reader.read(0, 4) == BODY[:4]

    file.change_mode()

    with pytest.raises(ObjectChanged, match=r"a.csv was touched while its job runs"):
        reader.read(4, 8)


def test_a_content_that_another_job_registered_meanwhile_is_not_that_of_this_one(
    file: File,
) -> None:
    file.overwrite()
    file.register()

    with pytest.raises(ObjectChanged, match="overwritten in place"):
        file.reader().read(0, 4)


@pytest.mark.parametrize("lost", ["note", "digest", "registration"])
def test_a_file_without_a_digest_is_read_on_with_a_warning(
    file: File, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = contents.recall(file.notes, "c", file.version)
    assert known
    if lost == "note":
        contents.CONTENTS.clear(file.notes, f"c#{file.version.bucket}/a.csv")
    else:
        changed = replace(known, digest="") if lost == "digest" else replace(known, registered=0)
        contents.remember(file.notes, "c", file.version, changed)
    file.change_mode()

    reader = file.reader()
    assert reader.read(0, 4) + reader.read(4, 8) == BODY

    (warning,) = caplog.messages
    assert "a.csv was touched while its job runs, and no digest" in warning


def test_a_job_that_states_no_ctime_is_read_as_its_pin_allows(file: File) -> None:
    file.version = replace(file.version, modified=0)
    file.change_mode()

    assert file.reader().read(0, 8) == BODY


def test_a_file_that_changes_during_each_read_is_not_ready(file: File) -> None:
    file.before_read = file.change_mode

    with pytest.raises(StoreUnavailable, match="changed during each read"):
        file.reader().read(0, 8)
