"""Directories as buckets."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.unit.storage.conftest import HandTurnedClock

from extentflow.config.trust import Trust
from extentflow.errors import (
    AccessDenied,
    BucketGone,
    ExtentflowError,
    Misconfigured,
    ObjectChanged,
    ObjectGone,
    StoreUnavailable,
)
from extentflow.model import ObjectVersion
from extentflow.storage import Page, StoreOptions, ranges
from extentflow.storage.local import LocalStore, _translate_errors

BODY = bytes(range(256)) * 4

REMEDY = "replace the link by its file, or remove it"


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(StoreOptions())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bucket"
    root.mkdir()
    return root


@pytest.fixture
def version(store: LocalStore, folder: Path) -> ObjectVersion:
    (folder / "in").mkdir()
    (folder / "in" / "key").write_bytes(BODY)
    return store.head(str(folder), "in/key")


def later(path: Path) -> None:
    """Move the file's time by one nanosecond: the smallest change the pin must notice."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))


def test_options_that_apply_to_s3_only_are_rejected() -> None:
    with pytest.raises(Misconfigured, match="localfile accepts no endpoint"):
        LocalStore(StoreOptions(region="eu-test-1"))


def test_files_of_credentials_are_no_objects_unless_their_folder_is_named(folder: Path) -> None:
    guarded = LocalStore(StoreOptions(trust=Trust(folders=(str(folder), f"{folder}/.aws"))))
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text("key")
    (folder / "a.csv").write_text("1")

    listed = {one.key: one.link for one in guarded.list(str(folder))}

    assert listed.keys() == {".aws", "a.csv"}
    assert listed[".aws"] is not None
    assert "holds credentials" in listed[".aws"].problem
    with pytest.raises(AccessDenied, match="holds credentials; name its own folder"):
        guarded.head(str(folder), ".aws/credentials")
    assert [one.key for one in guarded.list(f"{folder}/.aws")] == ["credentials"]


def test_a_link_below_a_folder_leads_to_no_credentials(folder: Path) -> None:
    guarded = LocalStore(StoreOptions(trust=Trust(folders=(str(folder), f"{folder}/owner/.ssh"))))
    (folder / "owner" / ".ssh").mkdir(parents=True)
    (folder / "owner" / ".ssh" / "id_rsa").write_text("key")
    (folder / "owner" / ".ssh" / "same").symlink_to("id_rsa")
    (folder / "team").mkdir()
    (folder / "team" / "x.txt").symlink_to("../owner/.ssh/id_rsa")
    (folder / "team" / "d").symlink_to("../owner/.ssh")

    for key in ("team/x.txt", "team/d/id_rsa"):
        with pytest.raises(AccessDenied, match="holds credentials"):
            guarded.head(str(folder), key)
    assert guarded.head(f"{folder}/owner/.ssh", "same").size == 3
    listed = {one.key: one.link for one in guarded.list(str(folder))}
    assert listed.keys() == {"owner/.ssh", "team/d", "team/x.txt"}
    assert all(link and "it holds credentials" in link.problem for link in listed.values())
    pages = list(guarded.pages(f"{folder}/owner/.ssh"))
    assert [one.key for page in pages for one in page.versions] == ["id_rsa", "same"]


def test_a_file_of_credentials_that_a_variable_names_is_listed_with_its_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = LocalStore(StoreOptions(trust=Trust(folders=(str(folder),))))
    (folder / "own.ini").write_text("key")
    (folder / "link.ini").symlink_to("own.ini")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "own.ini"))

    for listed in guarded.list(str(folder)):
        assert listed.link is not None
        assert "it holds credentials" in listed.link.problem
        with pytest.raises(AccessDenied, match="holds credentials"):
            guarded.head(str(folder), listed.key)


def test_a_listing_resolves_the_files_that_variables_name_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: with long paths in variables, most of a listing's time went into resolving them."""
    guarded = LocalStore(StoreOptions(trust=Trust(folders=(str(folder),))))
    for name in ("a.ini", "b.ini"):
        (folder / name).write_text("key")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "b.ini"))

    listed = iter(guarded.list(str(folder)))
    first = next(listed)
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    (second,) = listed

    assert first.link is None
    assert second.link is not None


def test_a_folder_is_judged_whenever_it_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / "a.csv").write_text("1")
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("1")
    store = LocalStore(StoreOptions(trust=Trust(folders=(str(folder),))))
    version = store.head(f"{folder}/in", "a.csv")

    (folder / "in").rename(folder / "before")
    (folder / "in").symlink_to(tmp_path / "owners")

    for call in (
        lambda: store.head(f"{folder}/in", "a.csv"),
        lambda: store.read(version, 0, 1),
        lambda: list(store.list(f"{folder}/in")),
        lambda: list(store.pages(f"{folder}/in")),
    ):
        with pytest.raises(AccessDenied, match="owners now, which connectors may not read here"):
            call()


def test_a_read_returns_exactly_the_range(store: LocalStore, version: ObjectVersion) -> None:
    assert version.size == len(BODY)
    assert store.read(version, 100, 200) == BODY[100:200]
    assert store.read(version, 0, len(BODY)) == BODY
    assert store.fetched_bytes == 100 + len(BODY)


def test_a_bucket_may_be_a_file_uri(store: LocalStore, folder: Path) -> None:
    spaced = folder / "with space"
    spaced.mkdir()
    (spaced / "key").write_bytes(b"01")

    version = store.head(spaced.as_uri(), "key")

    assert "%20" in version.bucket
    assert store.read(version, 0, 2) == b"01"


@pytest.mark.parametrize("bucket", ["relative/path", "", "file://host/path", "file:relative"])
def test_a_bucket_that_is_no_absolute_directory_is_misconfigured(
    store: LocalStore, bucket: str
) -> None:
    with pytest.raises(Misconfigured, match="not an absolute directory"):
        store.head(bucket, "key")


def test_ranges_outside_the_file_are_rejected(store: LocalStore, version: ObjectVersion) -> None:
    for start, end in ((5, 5), (-1, 5), (0, len(BODY) + 1)):
        with pytest.raises(ValueError, match="is not a range"):
            store.read(version, start, end)


def test_trap_t17_more_than_64_mib_in_one_read_is_rejected(
    store: LocalStore, version: ObjectVersion
) -> None:
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        store.read(replace(version, size=1 << 40), 0, ranges.MAX_READ_BYTES + 1)


def overwrite_in_place(path: Path) -> None:
    path.write_bytes(BODY[::-1])
    later(path)


def replace_by_rename(path: Path) -> None:
    found = path.stat()
    fresh = path.with_name("fresh")
    fresh.write_bytes(BODY[::-1])
    os.utime(fresh, ns=(found.st_atime_ns, found.st_mtime_ns))
    fresh.rename(path)


def append(path: Path) -> None:
    found = path.stat()
    with path.open("ab") as file:
        file.write(b"more")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def truncate(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize("change", [overwrite_in_place, replace_by_rename, append, truncate])
def test_trap_t12_a_file_changed_between_two_reads_is_object_changed(
    store: LocalStore, version: ObjectVersion, folder: Path, change: Callable[[Path], None]
) -> None:
    store.read(version, 0, 100)
    change(folder / "in" / "key")

    with pytest.raises(ObjectChanged, match=r"in/key\[100-200\) was replaced"):
        store.read(version, 100, 200)


def test_trap_t12_a_file_changed_during_a_read_is_object_changed(
    version: ObjectVersion, folder: Path
) -> None:
    def overwriting(file: int, size: int, offset: int) -> bytes:
        overwrite_in_place(folder / "in" / "key")
        return os.pread(file, size, offset)

    store = LocalStore(StoreOptions(), pread=overwriting)

    with pytest.raises(ObjectChanged, match=r"in/key\[100-200\) was replaced"):
        store.read(version, 100, 200)


def test_trap_t12_a_file_changed_before_a_read_is_not_even_read(
    version: ObjectVersion, folder: Path
) -> None:
    asked: list[int] = []

    def noting(file: int, size: int, offset: int) -> bytes:
        asked.append(offset)
        return os.pread(file, size, offset)

    overwrite_in_place(folder / "in" / "key")

    with pytest.raises(ObjectChanged):
        LocalStore(StoreOptions(), pread=noting).read(version, 100, 200)

    assert asked == []


def test_trap_t24_short_reads_are_completed(version: ObjectVersion) -> None:
    store = LocalStore(StoreOptions(), pread=lambda file, _, offset: os.pread(file, 7, offset))

    assert store.read(version, 100, 121) == BODY[100:121]


def test_trap_t24_reads_that_end_early_are_repeated_and_then_raise(
    version: ObjectVersion, hand_turned: HandTurnedClock, golden: Golden
) -> None:
    ends = [b"", b"abc", b"", BODY[100:200]]
    store = LocalStore(
        StoreOptions(),
        retry=hand_turned.retry(),
        pread=lambda _file, _size, _offset: ends.pop(0) if ends else b"",
    )

    assert store.read(version, 100, 200) == BODY[100:200]
    with golden.raises(StoreUnavailable, match=r"\[0-9\)"):
        store.read(version, 0, 9)


def test_a_file_deleted_after_planning_is_object_gone(
    store: LocalStore, version: ObjectVersion, folder: Path, golden: Golden
) -> None:
    (folder / "in" / "key").unlink()

    with golden.raises(ObjectGone, match=r"in/key\[0-1\)"):
        store.read(version, 0, 1)


@pytest.mark.parametrize("key", ["absent", "in", "in/key/below", "x" * 300])
def test_what_is_no_file_is_object_gone(
    store: LocalStore, version: ObjectVersion, key: str
) -> None:
    with pytest.raises(ObjectGone, match=f"file://{version.bucket}/{key}"):
        store.head(version.bucket, key)


@pytest.mark.parametrize("bucket", ["absent", "file"])
def test_a_missing_directory_is_bucket_gone(
    store: LocalStore, folder: Path, bucket: str, golden: Golden
) -> None:
    """A volume that is not mounted must not look like files that were deleted."""
    (folder / "file").write_bytes(BODY)
    where = str(folder / bucket)
    with golden.raises(BucketGone, match=f"{where}"):
        store.head(where, "key")
    with golden.raises(BucketGone, match=f"{where}"):
        list(store.list(where))


def test_a_version_id_is_object_gone(
    store: LocalStore, version: ObjectVersion, golden: Golden
) -> None:
    with golden.raises(ObjectGone):
        store.head(version.bucket, version.key, "v1")


def test_a_pipe_is_rejected_without_waiting_for_its_writer(store: LocalStore, folder: Path) -> None:
    os.mkfifo(folder / "pipe")

    with pytest.raises(ObjectGone, match="not a regular file"):
        store.head(str(folder), "pipe")


@pytest.mark.parametrize(
    "key", ["../outside", "in/../../outside", "/etc/passwd", "in//key", "./in"]
)
def test_a_key_cannot_leave_its_bucket_or_have_two_forms(
    store: LocalStore, version: ObjectVersion, folder: Path, key: str, golden: Golden
) -> None:
    (folder.parent / "outside").write_bytes(b"secret")

    with golden.raises(AccessDenied):
        store.head(version.bucket, key)
    with golden.raises(AccessDenied):
        store.read(replace(version, key=key), 0, 1)


def problems(store: LocalStore, folder: Path) -> dict[str, str]:
    """Return the problems of links, which pages have as well as lists."""
    listed = {one.key: one.link for one in store.list(str(folder)) if one.link is not None}
    paged = {key: link for page in store.pages(str(folder)) for key, link in page.links.items()}
    assert paged == listed
    return {key: link.problem for key, link in listed.items() if link.problem}


def test_a_link_out_of_the_bucket_is_rejected(
    store: LocalStore, folder: Path, golden: Golden
) -> None:
    (folder.parent / "outside").write_bytes(b"secret")
    (folder / "link").symlink_to(folder.parent / "outside")

    with golden.raises(AccessDenied):
        store.head(str(folder), "link")
    assert problems(store, folder) == {"link": f"it leads out of its folder; {REMEDY}"}


def test_a_linked_directory_out_of_the_bucket_is_rejected(
    store: LocalStore, folder: Path, golden: Golden
) -> None:
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "key").write_bytes(b"secret")
    (folder / "link").symlink_to(folder.parent / "other")

    with golden.raises(AccessDenied):
        store.head(str(folder), "link/key")
    assert problems(store, folder) == {"link": f"it leads out of its folder; {REMEDY}"}


def test_a_link_inside_the_bucket_is_followed(store: LocalStore, version: ObjectVersion) -> None:
    root = Path(version.bucket)
    (root / "link").symlink_to(root / "in" / "key")
    (root / "folder").symlink_to(root / "in")

    assert store.head(version.bucket, "link").etag == version.etag
    assert [listed.key for listed in store.list(version.bucket)] == ["in/key", "link"]


def test_a_link_that_turns_in_circles_is_object_gone(store: LocalStore, folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")

    with pytest.raises(ObjectGone, match="symbolic links"):
        store.head(str(folder), "a")
    assert problems(store, folder) == dict.fromkeys("ab", f"it leads to no file; {REMEDY}")


def test_a_link_to_no_file_hides_no_other_file(store: LocalStore, folder: Path) -> None:
    """Trap: of a link whose file was deleted, nothing was said, and one to nowhere refused all."""
    (folder / "a").write_bytes(b"a")
    (folder / "link").symlink_to(folder / "no-such")

    assert [one.key for one in store.list(str(folder)) if one.link is None] == ["a"]
    assert problems(store, folder) == {"link": f"it leads to no file; {REMEDY}"}


@pytest.mark.parametrize(
    ("code", "error"),
    [(errno.EACCES, AccessDenied), (errno.EIO, StoreUnavailable), (errno.ENOENT, ObjectGone)],
)
def test_system_errors_map_to_distinct_errors_and_keep_their_cause(
    code: int, error: type[ExtentflowError]
) -> None:
    refused = OSError(code, os.strerror(code), "/data/key")

    with (
        pytest.raises(error, match=r"file:///data/key: .*/data/key") as raised,
        _translate_errors("file:///data/key"),
    ):
        raise refused

    assert raised.value.__cause__ is refused


def test_a_listing_carries_the_pin(store: LocalStore, version: ObjectVersion) -> None:
    (listed,) = store.list(version.bucket)

    assert (listed.key, listed.etag, listed.size) == ("in/key", version.etag, version.size)


def test_trap_t15_reading_changes_nothing_at_the_source(
    store: LocalStore, version: ObjectVersion
) -> None:
    path = Path(version.bucket) / version.key
    before = path.stat()
    path.chmod(0o400)

    store.read(version, 0, version.size)
    list(store.list(version.bucket))

    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_size,
    )


def test_trap_t19_an_empty_file_and_an_empty_prefix_are_no_errors(
    store: LocalStore, folder: Path
) -> None:
    (folder / "empty").touch()

    assert store.head(str(folder), "empty").size == 0
    assert list(store.list(str(folder), "absent/")) == []


def test_trap_t20_odd_keys_are_exact(store: LocalStore, folder: Path) -> None:
    keys = ["a b", "a%20b", "a+b", "a,b", "ü€😀", "%", "q'\"<>?#&="]
    for key in keys:
        (folder / key).write_bytes(key.encode())

    listed = [item.key for item in store.list(str(folder))]

    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        version = store.head(str(folder), key)
        assert store.read(version, 0, version.size) == key.encode()


NAMES = st.text("ab./-!0", min_size=1, max_size=8).filter(
    lambda key: all(part not in ("", ".", "..") for part in key.split("/"))
)


@given(keys=st.sets(NAMES, max_size=12), prefix=st.text("ab./-", max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_listing_is_in_key_order_below_any_prefix(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], prefix: str
) -> None:
    root = tmp_path_factory.mktemp("bucket")
    held: set[str] = set()
    for key in sorted(keys):
        # A name cannot be a file and a directory at once.
        if not any(key.startswith(f"{other}/") or other.startswith(f"{key}/") for other in held):
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).touch()
            held.add(key)

    listed = [item.key for item in LocalStore(StoreOptions()).list(str(root), prefix)]

    assert listed == sorted(key for key in held if key.startswith(prefix))


# -- pages ----------------------------------------------------------------------------------------

# Names that sort differently as directories and as keys.
TREE = ["d-1/x", "d.x", "d/1", "d/s.q", "d/s/t", "d/s/u/v", "e", "f f/1", "ü/ü"]


def tree(folder: Path) -> None:
    for key in TREE:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(b"body")


def keys(pages: list[Page]) -> list[str]:
    return [version.key for page in pages for version in page.versions]


@pytest.mark.parametrize("page_keys", [1, 2, 3, 9, 10])
@pytest.mark.parametrize("prefix", ["", "d", "d/", "d/s", "absent/"])
def test_pages_hold_what_a_listing_holds(folder: Path, prefix: str, page_keys: int) -> None:
    tree(folder)
    store = LocalStore(StoreOptions(), page_keys=page_keys)

    pages = list(store.pages(str(folder), prefix))

    expected = [listed.key for listed in store.list(str(folder), prefix)]
    assert keys(pages) == expected
    assert [len(page.versions) for page in pages[:-1]] == [page_keys] * (len(pages) - 1)
    assert [page.token is None for page in pages] == [False] * (len(pages) - 1) + [True]


def test_a_page_pins_as_head_does(store: LocalStore, version: ObjectVersion) -> None:
    assert list(store.pages(version.bucket)) == [Page((version,))]


@pytest.mark.parametrize("page_keys", [1, 2, 3])
def test_any_token_continues_behind_its_page(folder: Path, page_keys: int) -> None:
    tree(folder)
    store = LocalStore(StoreOptions(), page_keys=page_keys)
    pages = list(store.pages(str(folder)))

    for number, page in enumerate(pages[:-1]):
        assert list(store.pages(str(folder), token=page.token)) == pages[number + 1 :]


def test_a_token_continues_where_its_file_and_directory_are_gone(folder: Path) -> None:
    tree(folder)
    store = LocalStore(StoreOptions(), page_keys=4)
    token = next(store.pages(str(folder))).token
    (folder / "d/s.q").unlink()

    assert keys(list(store.pages(str(folder), token=token))) == TREE[4:]


def test_directories_before_a_token_are_not_read_again(store: LocalStore, folder: Path) -> None:
    tree(folder)
    (folder / "d/link").symlink_to("/")  # walking there is refused

    assert keys(list(store.pages(str(folder), token="e"))) == ["f f/1", "ü/ü"]


def test_a_name_that_is_no_utf8_makes_a_token_that_any_text_can_hold(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"")
    (folder / "ÿ").write_bytes(b"")
    store = LocalStore(StoreOptions(), page_keys=1)

    tokens = [page.token for page in store.pages(str(folder))]

    assert tokens == ["%C3%BF", None]
    (last,) = store.pages(str(folder), token="%FE")
    assert os.fsencode(last.versions[0].key) == b"\xff"


def test_pages_of_a_missing_bucket_are_object_gone(store: LocalStore, folder: Path) -> None:
    with pytest.raises(ObjectGone):
        list(store.pages(str(folder / "absent")))


def test_messages_name_a_local_file_by_a_file_uri(store: LocalStore, folder: Path) -> None:
    with pytest.raises(ObjectGone, match=f"file://{folder}/missing"):
        store.head(str(folder), "missing")
