"""The doubles keep the port's contract and inject scripted faults."""

import pytest
from tests.support.golden import Golden

from extentflow.errors import AccessDenied, ObjectChanged, ObjectGone, StoreUnavailable
from extentflow.storage import ListedObject, Page
from extentflow.testing.stores import Fault, FaultyStore, MemorySource, MemoryStore, StoreRequest


def test_what_was_put_is_pinned_and_read() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", b"0123456789")

    assert store.head("bucket", "key") == version
    assert store.read(version, 2, 5) == b"234"

    assert store.requests == 2
    assert store.fetched_bytes == 3
    assert store.asked[1] == StoreRequest("read", "bucket", "key", 2, 5)


def test_an_unversioned_put_replaces_what_was_pinned() -> None:
    store = MemoryStore()
    old = store.put("bucket", "key", b"old")
    store.put("bucket", "key", b"new")

    with pytest.raises(ObjectChanged):
        store.read(old, 0, 3)


def test_the_same_bytes_again_are_the_same_unversioned_object() -> None:
    store = MemoryStore()
    first = store.put("bucket", "key", b"A")
    store.put("bucket", "key", b"B")

    assert store.put("bucket", "key", b"A") == first


def test_a_versioned_put_leaves_the_pinned_version_readable() -> None:
    store = MemoryStore(versioned=True)
    old = store.put("bucket", "key", b"old")
    new = store.put("bucket", "key", b"new")

    assert store.read(old, 0, 3) == b"old"
    assert store.head("bucket", "key") == new
    assert store.head("bucket", "key", old.version_id) == old


def test_a_delete_hides_the_key_and_keeps_older_versions() -> None:
    store = MemoryStore(versioned=True)
    old = store.put("bucket", "key", b"old")

    store.remove("bucket", "key")

    with pytest.raises(ObjectGone, match="no such key"):
        store.head("bucket", "key")
    assert list(store.list("bucket")) == []
    assert store.read(old, 0, 3) == b"old"


def test_pages_continue_after_a_token() -> None:
    store = MemoryStore(versioned=True, page_keys=2)
    for key in ("b", "a", "ü", "c", "gone"):
        store.put("bucket", f"in/{key}", b"old")
    latest = [store.put("bucket", f"in/{key}", b"new") for key in ("a", "b", "c", "ü")]
    store.put("bucket", "out", b"0")
    store.remove("bucket", "in/gone")

    pages = list(store.pages("bucket", "in/"))

    assert pages == [Page(tuple(latest[:2]), "in/b"), Page(tuple(latest[2:]))]
    assert list(store.pages("bucket", "in/", token="in/b")) == pages[1:]
    assert list(store.pages("bucket", "absent/")) == [Page(())]
    assert store.asked[-1] == StoreRequest("list", "bucket", "absent/")


def test_a_fault_fails_pages_like_listings() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", b"0")
    faulty = FaultyStore(store, Fault("denied", "list", frozenset({1})))

    with pytest.raises(AccessDenied):
        list(faulty.pages("bucket"))

    assert list(faulty.pages("bucket")) == [Page((version,))]


def test_an_error_names_what_is_missing(golden: Golden) -> None:
    store = MemoryStore()
    gone = store.put("bucket", "key", b"0")
    store.remove("bucket", "key")

    with pytest.raises(ObjectGone, match="s3://nowhere: no such bucket"):
        store.head("nowhere", "key")
    with pytest.raises(ObjectGone, match="s3://nowhere: no such bucket"):
        list(store.list("nowhere"))
    with golden.raises(ObjectGone, match="s3://bucket/key"):
        store.read(gone, 0, 1)
    with pytest.raises(ObjectGone, match="no such version v9"):
        store.head("bucket", "key", "v9")


def test_a_listing_is_one_request_in_key_order() -> None:
    store = MemoryStore()
    for key in ("b", "a/ü", "a/z", "c"):
        store.put("bucket", key, b"0")

    keys = [listed.key for listed in store.list("bucket", "")]

    assert keys == ["a/z", "a/ü", "b", "c"]
    assert store.requests == 5 - 4
    assert list(store.list("bucket", "b")) == [
        ListedObject("bucket", "b", store.head("bucket", "b").etag, 1)
    ]


def test_trap_t17_more_than_64_mib_in_one_read_is_rejected() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", bytes((64 << 20) + 1))

    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        store.read(version, 0, version.size)

    assert store.fetched_bytes == 0
    assert len(store.read(version, 0, 64 << 20)) == 64 << 20


def test_faults_hit_calls_by_number() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", b"0123456789")
    faulty = FaultyStore(store, Fault("unavailable", calls=frozenset({2})))

    assert faulty.read(version, 0, 1) == b"0"
    with pytest.raises(StoreUnavailable, match=r"s3://bucket/key\[1-2\)"):
        faulty.read(version, 1, 2)
    assert faulty.read(version, 1, 2) == b"1"

    assert faulty.calls["read"] == 3


def test_faults_hit_ranges() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", b"0123456789")
    faulty = FaultyStore(store, Fault("gone", touching=(4, 6)))

    assert faulty.read(version, 0, 4) == b"0123"
    assert faulty.read(version, 6, 10) == b"6789"
    for start, end in ((0, 5), (5, 6), (4, 10)):
        with pytest.raises(ObjectGone):
            faulty.read(version, start, end)


def test_faults_hit_operations() -> None:
    store = MemoryStore()
    store.put("bucket", "key", b"0")
    faulty = FaultyStore(store, Fault("denied", "head"), Fault("unavailable", "list"))

    with pytest.raises(AccessDenied):
        faulty.head("bucket", "key")
    with pytest.raises(StoreUnavailable):
        list(faulty.list("bucket"))
    assert faulty.read(store.head("bucket", "key"), 0, 1) == b"0"


def test_a_short_fault_cuts_the_last_byte() -> None:
    store = MemoryStore()
    version = store.put("bucket", "key", b"0123456789")

    assert FaultyStore(store, Fault("short")).read(version, 0, 4) == b"012"


def test_a_source_yields_its_windows_and_lists_its_reads() -> None:
    source = MemorySource(b"0123456", window_bytes=2)

    assert list(source.stream(1, 6)) == [b"12", b"34", b"5"]
    assert list(source.stream(1, 6, window_bytes=4)) == [b"1234", b"5"]

    assert source.reads == [(1, 3), (3, 5), (5, 6), (1, 5), (5, 6)]
    assert source.version.size == 7


def test_a_source_raises_at_the_position_of_a_fault() -> None:
    source = MemorySource(b"0123456", window_bytes=2, faults={4: StoreUnavailable("here")})
    stream = source.stream(0, 7)

    assert [next(stream), next(stream)] == [b"01", b"23"]
    with pytest.raises(StoreUnavailable, match="here"):
        next(stream)


def test_a_source_rejects_ranges_outside_the_object() -> None:
    source = MemorySource(b"0123456")

    with pytest.raises(ValueError, match="not a range of 7 bytes"):
        source.read(0, 8)
    with pytest.raises(ValueError, match="not a range of 7 bytes"):
        source.stream(0, 8)
