"""Listings: by page, exact, never ending early by mistake."""

import pytest
from tests.support.golden import Golden
from tests.unit.storage.conftest import OpenStore
from tests.unit.storage.loopback import Loopback, Reply, error

from extentflow.errors import AccessDenied, ObjectGone, Permanent, StoreUnavailable
from extentflow.storage import ListedObject
from extentflow.storage.s3 import RequestLimits, S3Store

ODD = ["a,b", "a b", "a+b", "ü€😀", "100%", "%20", "a&b=c?d#e", "q'\"<>", "dir/", "x\x01y"]


def test_a_listing_carries_key_etag_and_size(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/in/a", b"01", "aaa")
    server.hold("/bucket/in/deep/b", b"", "eee")
    server.hold("/bucket/out/c", b"0", "ccc")

    listed = list(store.list("bucket", "in/"))

    assert listed == [
        ListedObject("bucket", "in/a", "aaa", 2),
        ListedObject("bucket", "in/deep/b", "eee", 0),
    ]


def test_trap_t16_a_listing_makes_one_request_per_page_and_none_per_key(
    open_store: OpenStore, server: Loopback
) -> None:
    store = open_store(limits=RequestLimits(page_keys=100))
    for number in range(250):
        server.hold(f"/bucket/{number:04}", b"0", "aaa")

    listed = list(store.list("bucket"))

    assert [item.key for item in listed] == [f"{number:04}" for number in range(250)]
    assert server.methods == ["GET", "GET", "GET"]


def test_trap_t19_an_empty_prefix_lists_nothing(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/key", b"0", "aaa")

    assert list(store.list("bucket", "absent/")) == []


@pytest.mark.parametrize("encodes", [True, False])
def test_trap_t20_odd_keys_are_listed_exactly(
    open_store: OpenStore, server: Loopback, *, encodes: bool
) -> None:
    """Keys are decoded only where the response declares an encoding."""
    keys = [key for key in ODD if encodes or "\x01" not in key]
    for key in keys:
        server.hold(f"/bucket/{key}", b"0", "aaa")

    server.ignores_encoding_type = not encodes
    store = open_store(limits=RequestLimits(page_keys=3))

    assert [item.key for item in store.list("bucket")] == sorted(keys)


def test_a_page_that_failed_is_requested_again_without_duplicate_keys(
    open_store: OpenStore, server: Loopback
) -> None:
    store = open_store(limits=RequestLimits(page_keys=2))
    for number in range(6):
        server.hold(f"/bucket/{number}", b"0", "aaa")
    listing = store.list("bucket")

    first = [next(listing), next(listing)]
    server.script.extend([error(503, "SlowDown"), Reply(reset=True)])

    assert [item.key for item in [*first, *listing]] == list("012345")


def test_trap_t24_a_page_cut_inside_its_xml_is_requested_again(
    store: S3Store, server: Loopback
) -> None:
    server.hold("/bucket/key", b"0", "aaa")
    cut = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>ke"
    server.script.append(Reply(200, cut, {"Content-Type": "application/xml"}))

    assert [item.key for item in store.list("bucket")] == ["key"]

    assert len(server.seen) == 2


def test_pages_that_stay_broken_raise(store: S3Store, server: Loopback, golden: Golden) -> None:
    server.script.extend([Reply(200, b"<ListBucketResult><Cont")] * 100)

    with golden.raises(StoreUnavailable, match=r"s3://bucket/in/\*"):
        list(store.list("bucket", "in/"))


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>same</NextContinuationToken>"])
def test_a_truncated_page_that_leads_nowhere_raises_instead_of_ending(
    store: S3Store, server: Loopback, token: str
) -> None:
    page = f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>"
    server.script.extend([Reply(200, page.encode())] * 2)

    with pytest.raises(Permanent, match="without a new continuation token"):
        list(store.list("bucket"))


def test_a_page_that_does_not_say_whether_it_is_complete_raises(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(Reply(200, b"<ListBucketResult></ListBucketResult>"))

    with pytest.raises(Permanent, match="has no IsTruncated"):
        list(store.list("bucket"))


def test_a_missing_bucket_and_a_denied_listing_are_named(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/key", b"0", "aaa")
    with pytest.raises(ObjectGone, match=r"s3://nowhere/\*: no such bucket"):
        list(store.list("nowhere"))
    server.script.append(error(403, "AccessDenied"))
    with pytest.raises(AccessDenied, match="s3:ListBucket"):
        list(store.list("bucket"))
