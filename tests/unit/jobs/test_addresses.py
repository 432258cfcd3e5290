"""Selection of objects by address: keys, prefixes and globs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.errors import AccessDenied, Misconfigured, ObjectGone
from extentflow.jobs.addresses import KeyScope, Known, match_missing, select, select_all
from extentflow.storage import ListedObject, Page, StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore

ODD_KEYS = (
    "in/a b.txt",
    "in/a+b.txt",
    "in/a%2Fb.txt",
    "in/a%25b.txt",
    "in/ümläut.txt",
    "in/snow☃man.txt",
    "in/comma,semi;.txt",
    "in/star*.txt",
    "in/what?.txt",
    "in/[1].txt",
    "in/#hash&and=.txt",
    "in//double.txt",
    "in/trailing .txt",
)


def store(*keys: str) -> MemoryStore:
    filled = MemoryStore()
    for key in keys:
        filled.put("bucket", key, key.encode())
    return filled


def keys(filled: MemoryStore, address: str, prefix: str = "") -> list[str]:
    scope = KeyScope("orders", "bucket", prefix)
    found = select(filled, scope, scope.key(address))
    return [version.key for version in found]


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "prefix", "key"),
    [
        ("s3://bucket", "", ""),
        ("s3://bucket/", "", ""),
        ("s3://bucket/a/b.csv", "", "a/b.csv"),
        ("s3://bucket/a/b.csv", "a/", "a/b.csv"),
        ("s3://bucket/a/", "a/", "a/"),
        ("s3://bucket/a", "a/", "a/"),
        ("s3://bucket/", "a/b/", "a/b/"),
        ("s3://bucket", "a/b/", "a/b/"),
        ("s3://bucket/a", "a/b/", "a/b/"),
        ("s3://bucket/a/", "a/log-", "a/log-"),
        ("s3://bucket/a/log-2", "a/log-", "a/log-2"),
        ("s3a://bucket/a/b.csv", "a/", "a/b.csv"),
    ],
)
def test_an_address_names_a_key_of_the_scope(address: str, prefix: str, key: str) -> None:
    assert KeyScope("orders", "bucket", prefix).key(address) == key


@pytest.mark.parametrize(
    "address",
    [
        "s3://other/a",
        "s3://bucket2/a",
        "bucket/a",
        "/a",
        "https://bucket/a",
        "",
        "s3:/bucket/a",
        "s3a://other/a",
    ],
)
def test_an_address_elsewhere_is_rejected_with_the_place_to_look(
    address: str, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match="s3://bucket/in/"):
        KeyScope("orders", "bucket", "in/").key(address)


@pytest.mark.parametrize("address", ["s3://bucket/out/a", "s3://bucket/inside", "s3://bucket/i"])
def test_an_address_beside_the_prefix_is_rejected(address: str, golden: Golden) -> None:
    with golden.raises(Misconfigured, match="s3://bucket/in/"):
        KeyScope("orders", "bucket", "in/").key(address)


def test_a_directory_is_addressed_as_a_file_url() -> None:
    scope = KeyScope("orders", "/data/in")

    assert scope.key("file:///data/in/a.csv") == "a.csv"
    assert scope.uri("a.csv") == "file:///data/in/a.csv"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("s3://bucket", "in/a"),
        ("s3://bucket/in/", "in/a"),
        ("s3://bucket/in/a", "in/a"),
        ("s3://bucket/in/a/part-0", "in/a/part-0"),
    ],
)
def test_an_address_names_the_only_object_of_its_scope(address: str, key: str) -> None:
    assert KeyScope("orders", "bucket", "in/", "in/a").key(address) == key


@pytest.mark.parametrize("address", ["s3://bucket/in/a.bak", "s3://bucket/in/*", "s3://bucket/b"])
def test_an_address_beside_the_only_object_is_rejected(address: str, golden: Golden) -> None:
    with golden.raises(Misconfigured, match="s3://bucket/in/a.*s3"):
        KeyScope("orders", "bucket", "in/", "in/a").key(address)


# -- what is selected -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        (("in/a", "in/a.bak", "in/b"), ["in/a"]),
        (("in/a/1", "in/a/_tmp", "in/a.bak"), ["in/a/1"]),
    ],
)
def test_the_only_object_is_selected_or_what_is_below_it(
    stored: tuple[str, ...], found: list[str]
) -> None:
    scope = KeyScope("orders", "bucket", "in/", "in/a")

    assert [one.key for one in select_all(store(*stored), scope, ())] == found
    assert all(match_missing(scope, (), ())(key) for key in found)
    assert not match_missing(scope, (), ())("in/a.bak")


def test_the_only_object_must_exist(golden: Golden) -> None:
    scope = KeyScope("orders", "bucket", "in/", "in/[a]")

    with golden.raises(Misconfigured, match=r"s3://bucket/in/\[a\]"):
        list(select_all(store("in/a"), scope, ()))


def test_an_exact_key_is_that_object_and_costs_one_request() -> None:
    filled = store("in/a.txt", "in/a.txt.bak", "in/a.txt/below.txt")

    assert keys(filled, "s3://bucket/in/a.txt") == ["in/a.txt"]
    assert [asked.operation for asked in filled.asked] == ["head"]


def test_a_prefix_means_everything_below_it_nested_prefixes_included() -> None:
    filled = store("in/a.txt", "in/sub/b.txt", "in/sub/deep/c.txt", "inside.txt", "out/d.txt")

    assert keys(filled, "s3://bucket/in/") == ["in/a.txt", "in/sub/b.txt", "in/sub/deep/c.txt"]
    assert keys(filled, "s3://bucket/in/sub") == ["in/sub/b.txt", "in/sub/deep/c.txt"]


def test_the_whole_scope_is_every_key_that_begins_with_the_prefix() -> None:
    filled = store("log-1.txt", "log-2/a.txt", "log-", "other.txt", "dir/log-3.txt")

    assert keys(filled, "s3://bucket/", prefix="log-") == ["log-", "log-1.txt", "log-2/a.txt"]


def test_a_prefix_with_glob_characters_is_compared_as_text() -> None:
    filled = store("a[1]/x.txt", "a1/x.txt")

    assert keys(filled, "s3://bucket/", prefix="a[1]/") == ["a[1]/x.txt"]
    assert keys(filled, "s3://bucket/a[1]/*.txt", prefix="a[1]/") == ["a[1]/x.txt"]
    assert keys(filled, "s3://bucket/a[1]/") == ["a[1]/x.txt"]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("in/*.csv", ["in/a.csv", "in/b.csv", "in/sub/c.csv"]),
        ("in/?.csv", ["in/a.csv", "in/b.csv"]),
        ("in/[!a].csv", ["in/b.csv"]),
        ("*", ["in/a.csv", "in/b.csv", "in/b.txt", "in/sub/c.csv", "out/a.csv"]),
        ("*/a.csv", ["in/a.csv", "out/a.csv"]),
        ("i*/", ["in/a.csv", "in/b.csv", "in/b.txt", "in/sub/c.csv"]),
    ],
)
def test_a_glob_crosses_slashes(glob: str, found: list[str]) -> None:
    filled = store("in/a.csv", "in/b.csv", "in/b.txt", "in/sub/c.csv", "out/a.csv")

    assert keys(filled, f"s3://bucket/{glob}") == found


def test_a_glob_requests_only_matching_objects_and_lists_little() -> None:
    filled = store("in/a.csv", "in/b.txt", "in/c.txt", "out/d.csv")

    assert keys(filled, "s3://bucket/in/*.csv") == ["in/a.csv"]

    heads = [asked.key for asked in filled.asked if asked.operation == "head"]
    lists = [asked.key for asked in filled.asked if asked.operation == "list"]
    assert heads == ["in/*.csv", "in/a.csv"]
    assert lists == ["in/*.csv/", "in/"]


def test_a_glob_never_leaves_the_connectors_prefix() -> None:
    filled = store("in/a.csv", "inside/b.csv")

    assert keys(filled, "s3://bucket/in/*", prefix="in/") == ["in/a.csv"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_trap_t20_an_odd_key_is_found_by_its_exact_name(key: str) -> None:
    filled = store(*ODD_KEYS, "in/starfish.txt", "in/whatx.txt", "in/1.txt", "in/a/b.txt")

    assert keys(filled, f"s3://bucket/{key}") == [key]


def test_trap_t20_odd_keys_are_found_below_their_prefix() -> None:
    assert sorted(keys(store(*ODD_KEYS), "s3://bucket/in/")) == sorted(ODD_KEYS)


def test_keys_that_stand_for_folders_are_no_objects() -> None:
    filled = store("in/a.txt")
    filled.put("bucket", "in/", b"")
    filled.put("bucket", "in/sub/", b"")

    assert keys(filled, "s3://bucket/in/") == ["in/a.txt"]
    assert keys(filled, "s3://bucket/i*") == ["in/a.txt"]


def test_an_object_with_content_is_found_whatever_its_key_ends_with() -> None:
    assert keys(store("in/odd/"), "s3://bucket/in/") == ["in/odd/"]


def test_a_key_with_a_trailing_slash_and_content_is_an_object() -> None:
    assert keys(store("in/a/"), "s3://bucket/in/") == ["in/a/"]


def test_an_object_deleted_since_it_was_listed_is_left_out() -> None:
    filled = FaultyStore(
        store("in/a.txt", "in/b.txt"), Fault("gone", operation="head", calls=frozenset({1}))
    )

    found = select(filled, KeyScope("orders", "bucket"), "in/")

    assert [version.key for version in found] == ["in/b.txt"]


@pytest.mark.parametrize("address", ["s3://bucket/none/", "s3://bucket/none", "s3://bucket/n*"])
def test_an_address_without_match_is_named(address: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        keys(store("in/a.txt"), address)

    assert address in str(caught.value)


def test_trap_t19_an_empty_scope_is_no_error() -> None:
    filled = store("out/a.txt")

    assert keys(filled, "s3://bucket/", prefix="in/") == []
    assert keys(filled, "s3://bucket/in/", prefix="in/") == []


@pytest.mark.parametrize("pattern", ["a", ""])
def test_a_missing_bucket_is_named(pattern: str) -> None:
    scope = KeyScope("orders", "absent")

    with pytest.raises(ObjectGone, match="s3://absent: no such bucket"):
        list(select(store("a"), scope, pattern))


def test_an_address_that_is_no_utf_8_is_rejected_readably() -> None:
    with pytest.raises(Misconfigured, match=r"is not UTF-8") as caught:
        KeyScope("orders", "bucket").key("s3://bucket/\udcff")

    assert str(caught.value).isascii()


def test_a_rejected_listing_is_not_an_empty_one() -> None:
    filled = FaultyStore(store("in/a.txt"), Fault("denied", operation="list"))

    with pytest.raises(AccessDenied):
        list(select(filled, KeyScope("orders", "bucket"), "in/"))


# -- names that say that they are no data ----------------------------------------------------------


def left_out(filled: MemoryStore, address: str, prefix: str = "") -> tuple[list[str], list[str]]:
    scope = KeyScope("orders", "bucket", prefix)
    hidden: list[str] = []
    found = [v.key for v in select(filled, scope, scope.key(address), hidden.append)]
    return found, hidden


def test_markers_and_unfinished_files_are_left_out_and_reported() -> None:
    filled = store("in/a.csv", "in/_SUCCESS", "in/.a.csv.crc", "in/_temporary/0/b.csv", "in/x/_c")

    found, hidden = left_out(filled, "s3://bucket/in/")

    assert found == ["in/a.csv"]
    assert hidden == ["in/.a.csv.crc", "in/_SUCCESS", "in/_temporary/0/b.csv", "in/x/_c"]


def test_the_prefixs_own_names_hide_nothing() -> None:
    filled = store("_raw/in/a.csv", "_raw/_SUCCESS")

    assert left_out(filled, "s3://bucket/_raw/", "_raw/") == (["_raw/in/a.csv"], ["_raw/_SUCCESS"])


def test_a_hidden_objects_own_address_delivers_it() -> None:
    assert left_out(store("in/_a.csv"), "s3://bucket/in/_a.csv") == (["in/_a.csv"], [])


def test_a_glob_that_spells_the_mark_out_means_it() -> None:
    filled = store("in/_a.csv", "in/_b.csv", "in/c.csv")

    assert left_out(filled, "s3://bucket/in/_*.csv") == (["in/_a.csv", "in/_b.csv"], [])


def test_a_glob_reports_only_the_hidden_names_that_match_it() -> None:
    filled = store("in/_a.csv", "in/_b.txt", "in/c.csv")

    assert left_out(filled, "s3://bucket/in/*.csv") == (["in/c.csv"], ["in/_a.csv"])


def test_a_partition_whose_column_begins_with_a_mark_is_data() -> None:
    filled = store("in/_year=2026/a.csv")

    assert left_out(filled, "s3://bucket/in/") == (["in/_year=2026/a.csv"], [])


# -- versions that are known ----------------------------------------------------------------------


class PagesDenied(MemoryStore):
    """A store whose credentials may list keys, but no versions."""

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        raise AccessDenied(f"{bucket}/{prefix}: s3:ListBucketVersions is missing {token or ''}")


@pytest.mark.parametrize("made", [MemoryStore, PagesDenied])
@pytest.mark.parametrize("address", ["s3://bucket/in/", "s3://bucket/in/*.txt"])
def test_known_versions_are_left_out_without_a_request(
    made: type[MemoryStore], address: str
) -> None:
    filled = made()
    for name in ("a", "b", "c"):
        filled.put("bucket", f"in/{name}.txt", b"x")
    scope = KeyScope("orders", "bucket")
    before = {filled.head("bucket", "in/a.txt"), filled.head("bucket", "in/c.txt")}
    filled.asked.clear()

    found = select(filled, scope, scope.key(address), known=lambda page: before & {*page})

    selected = ["in/b.txt"] if made is MemoryStore else ["in/a.txt", "in/b.txt", "in/c.txt"]
    assert [version.key for version in found] == selected
    heads = [asked.key for asked in filled.asked if asked.operation == "head"]
    assert [key for key in heads if "*" not in key] == selected


def test_an_address_whose_objects_are_all_known_matches() -> None:
    filled = store("in/a.txt")
    scope = KeyScope("orders", "bucket", "other/")

    assert [*select(filled, KeyScope("orders", "bucket"), "in/", known=lambda page: page)] == []
    with pytest.raises(Misconfigured, match="no object matches"):
        [*select(filled, scope, "other/none/", known=lambda page: page)]


def test_a_server_that_ignores_the_leading_slash_of_a_prefix_is_reported(golden: Golden) -> None:
    class Lenient(MemoryStore):
        def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
            return super().list(bucket, prefix.removeprefix("/"))

    filled = Lenient()
    filled.put("bucket", "fix/a.csv", b"x")

    with golden.raises(Misconfigured, match="s3://bucket//fix/.*fix/a.csv"):
        [*select(filled, KeyScope("orders", "bucket", "/fix/"), "/fix/")]


# -- several names of one file --------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, and links to it that sort before and after."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.csv").write_bytes(b"id\n1\n")
    (tmp_path / "in" / "a-latest.csv").symlink_to("b.csv")
    (tmp_path / "in" / "z-latest.csv").symlink_to(tmp_path / "in" / "a-latest.csv")
    (tmp_path / "in" / "c-hard.csv").hardlink_to(tmp_path / "in" / "b.csv")
    (tmp_path / "in" / ".hidden").write_bytes(b"id\n2\n")
    (tmp_path / "in" / "shown.csv").symlink_to(".hidden")
    (tmp_path / "out.csv").write_bytes(b"id\n3\n")
    (tmp_path / "in" / "out.csv").symlink_to("../out.csv")
    return tmp_path


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(
    ("address", "found", "links"),
    [
        ("in/", ["b.csv", "out.csv", "shown.csv"], ["a-latest.csv", "c-hard.csv", "z-latest.csv"]),
        ("in/*b.csv", ["b.csv"], []),
        ("in/?-latest.csv", ["a-latest.csv"], ["z-latest.csv"]),
        ("in/c-hard.csv", ["c-hard.csv"], []),
        ("in/a-latest.csv", ["a-latest.csv"], []),
    ],
)
def test_a_file_of_several_names_is_selected_once(
    folder: Path, address: str, found: list[str], links: list[str], *, paged: bool
) -> None:
    scope, left_out = KeyScope("orders", str(folder)), dict[str, str]()
    known: Known | None = (lambda _page: ()) if paged else None
    files, note = LocalStore(StoreOptions(), page_keys=2), left_out.__setitem__
    (folder / "in/z-broken").symlink_to(folder / "no-such")

    versions = select_all(files, scope, [f"{folder}/{address}"], known=known, same=note)

    assert [version.key for version in versions] == [f"in/{name}" for name in found]
    assert "it leads to no file" in left_out.pop("in/z-broken", "it leads to no file")
    assert sorted(left_out.items()) == [(f"in/{name}", "") for name in links]
