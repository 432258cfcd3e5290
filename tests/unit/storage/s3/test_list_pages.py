"""Pages of current versions: choice of request, continuation, incomplete servers."""

import logging

import pytest
from tests.unit.storage.conftest import OpenStore
from tests.unit.storage.loopback import Loopback, Reply, Version, error

from extentflow.errors import AccessDenied, ObjectGone, Permanent
from extentflow.model import ObjectVersion
from extentflow.storage import Page
from extentflow.storage.s3 import RequestLimits, S3Store

ODD = ["a,b", "a b", "a+b", "ü€😀", "100%", "%20", "a&b=c?d#e", "q'\"<>", "dir/", "x\x01y"]


def keys(pages: list[Page]) -> list[str]:
    return [version.key for page in pages for version in page.versions]


@pytest.fixture
def versioned(server: Loopback) -> Loopback:
    """Keys 0 to 4: an older version behind each, and 2 deleted."""
    server.versioning = "Enabled"
    for number in range(5):
        key, deleted = f"in/{number}", number == 2
        server.hold(f"/bucket/{key}", b"12345", "new")
        server.versions.append(Version(key, f"{number}new", "new", 5, deleted=deleted))
        server.versions.append(Version(key, f"{number}old", "old", 3, latest=False))
    return server


# -- versions -------------------------------------------------------------------------------------


def test_current_versions_are_listed_with_their_ids_and_nothing_else(
    store: S3Store, versioned: Loopback
) -> None:
    pages = list(store.pages("bucket", "in/"))

    assert pages == [
        Page(
            tuple(
                ObjectVersion("bucket", f"in/{number}", f"{number}new", "new", 5)
                for number in (0, 1, 3, 4)
            )
        )
    ]
    assert versioned.methods == ["GET", "GET"]  # its versioning, and one page


@pytest.mark.parametrize("page_keys", [1, 2, 3, 10])
def test_trap_t16_a_page_can_start_within_the_versions_of_a_key(
    open_store: OpenStore, versioned: Loopback, page_keys: int
) -> None:
    store = open_store(limits=RequestLimits(page_keys=page_keys))

    pages = list(store.pages("bucket", "in/"))

    assert keys(pages) == ["in/0", "in/1", "in/3", "in/4"]
    assert len(pages) == -(-10 // page_keys)
    assert len(versioned.seen) == 1 + len(pages)


def test_any_token_continues_behind_its_page_in_another_process(
    open_store: OpenStore, versioned: Loopback
) -> None:
    assert versioned.versioning
    pages = list(open_store(limits=RequestLimits(page_keys=3)).pages("bucket", "in/"))
    another = open_store(limits=RequestLimits(page_keys=3))

    for number, page in enumerate(pages[:-1]):
        assert list(another.pages("bucket", "in/", token=page.token)) == pages[number + 1 :]


def test_the_version_null_is_no_pin(store: S3Store, versioned: Loopback) -> None:
    versioned.versioning = "Suspended"
    versioned.versions[:] = [Version("in/0", "null", "etag", 1)]

    (page,) = store.pages("bucket", "in/")

    assert page.versions == (ObjectVersion("bucket", "in/0", None, "etag", 1),)


@pytest.mark.parametrize("encodes", [True, False])
def test_trap_t20_odd_keys_are_listed_exactly_also_as_markers(
    open_store: OpenStore, server: Loopback, *, encodes: bool
) -> None:
    odd = sorted(key for key in ODD if encodes or "\x01" not in key)
    server.versioning, server.ignores_encoding_type = "Enabled", not encodes
    server.versions += [Version(key, "1", "etag", 1) for key in odd]
    server.hold("/bucket/key", b"", "etag")

    assert keys(list(open_store(limits=RequestLimits(page_keys=1)).pages("bucket"))) == odd


def test_a_page_that_failed_is_requested_again_without_duplicate_keys(
    open_store: OpenStore, versioned: Loopback
) -> None:
    listing = open_store(limits=RequestLimits(page_keys=5)).pages("bucket", "in/")

    first = next(listing)
    versioned.script.extend([error(503, "SlowDown"), Reply(reset=True)])

    assert keys([first, *listing]) == ["in/0", "in/1", "in/3", "in/4"]


# -- keys -----------------------------------------------------------------------------------------


def test_a_bucket_that_never_kept_versions_is_listed_by_its_keys(
    open_store: OpenStore, server: Loopback
) -> None:
    for number in range(5):
        server.hold(f"/bucket/in/{number}", b"12345", "aaa")
    store = open_store(limits=RequestLimits(page_keys=2))

    pages = list(store.pages("bucket", "in/"))

    assert [len(page.versions) for page in pages] == [2, 2, 1]
    assert pages[0].versions[0] == ObjectVersion("bucket", "in/0", None, "aaa", 5)
    assert list(store.pages("bucket", "in/", token=pages[0].token)) == pages[1:]


def test_a_server_without_versioning_is_listed_by_keys(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/in/0", b"12345", "aaa")
    server.script.append(error(501, "NotImplemented"))

    assert keys(list(store.pages("bucket", "in/"))) == ["in/0"]


def test_trap_t19_an_empty_prefix_is_one_empty_page(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/key", b"0", "aaa")
    plain = list(store.pages("bucket", "absent/"))
    server.versioning = "Enabled"

    assert plain == list(store.pages("bucket", "absent/")) == [Page(())]


# -- servers that list no versions ----------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal", [error(501, "NotImplemented"), error(405, "MethodNotAllowed")], ids=["501", "405"]
)
def test_a_server_that_rejects_listing_versions_is_listed_by_keys(
    store: S3Store, versioned: Loopback, refusal: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    status = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    versioned.script.extend([Reply(200, status, {"Content-Type": "application/xml"}), refusal])

    (page,) = store.pages("bucket", "in/")

    assert [version.version_id for version in page.versions] == [None] * 5
    assert "listed without version ids" in caplog.text


def test_a_response_without_versions_does_not_look_empty(
    store: S3Store, versioned: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    versioned.ignores_versions = True

    pages = list(store.pages("bucket", "in/"))

    assert keys(pages) == [f"in/{number}" for number in range(5)]
    assert "lists no versions, although the prefix contains keys" in caplog.text


def test_a_prefix_in_which_everything_is_deleted_is_empty(
    store: S3Store, versioned: Loopback
) -> None:
    versioned.versions[:] = [Version("in/0", "1", deleted=True)]

    assert list(store.pages("bucket", "in/")) == [Page(())]


def test_a_server_that_loses_versions_between_pages_is_listed_by_key(
    open_store: OpenStore, versioned: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    versioned.name = "SeaweedFS 8000GB 4.48"

    complete = list(open_store(limits=RequestLimits(page_keys=10)).pages("bucket", "in/"))
    over_pages = list(open_store(limits=RequestLimits(page_keys=9)).pages("bucket", "in/"))

    assert [version.version_id for version in complete[0].versions] == [
        "0new",
        "1new",
        "3new",
        "4new",
    ]
    assert [version.version_id for version in over_pages[0].versions] == [None] * 5
    assert "loses keys" in caplog.text


def test_a_server_that_does_not_say_what_is_current_is_listed_by_its_keys(
    store: S3Store, versioned: Loopback
) -> None:
    body = b"<ListVersionsResult><IsTruncated>false</IsTruncated><Version><Key>in/0</Key>"
    body += b"<VersionId>1</VersionId><Size>1</Size></Version></ListVersionsResult>"
    status = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    versioned.script.extend([Reply(200, status), Reply(200, body)])

    (page,) = store.pages("bucket", "in/")

    assert {version.version_id for version in page.versions} == {None}


# -- listings that cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "<NextKeyMarker>in/0</NextKeyMarker>"])
def test_a_truncated_page_that_leads_nowhere_raises_instead_of_ending(
    store: S3Store, versioned: Loopback, token: str
) -> None:
    status = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    item = Version("in/0", "1", "etag", 1).to_xml(encoded=False)
    page = f"<ListVersionsResult><IsTruncated>true</IsTruncated>{token}{item}</ListVersionsResult>"
    versioned.script.extend([Reply(200, status), *[Reply(200, page.encode())] * 2])

    with pytest.raises(Permanent, match="without a new continuation token"):
        list(store.pages("bucket", "in/"))


@pytest.mark.parametrize("token", ["", "nothing", '"keys"', "7", '["keys"]', '["else", {}]'])
def test_a_token_of_another_store_is_rejected(store: S3Store, server: Loopback, token: str) -> None:
    server.hold("/bucket/key", b"0", "aaa")

    with pytest.raises(Permanent, match=r"not a continuation token"):
        list(store.pages("bucket", token=token))


def test_what_is_missing_or_denied_is_named_with_the_permission(
    store: S3Store, versioned: Loopback
) -> None:
    versioned.script.append(error(404, "NoSuchBucket"))
    with pytest.raises(ObjectGone, match=r"s3://bucket: no such bucket"):
        list(store.pages("bucket"))
    versioned.script.append(error(403, "AccessDenied"))
    with pytest.raises(AccessDenied, match="allow s3:GetBucketVersioning"):
        list(store.pages("bucket"))
    status = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    versioned.script.extend([Reply(200, status), error(403, "AccessDenied")])
    with pytest.raises(AccessDenied, match="allow s3:ListBucketVersions"):
        list(store.pages("bucket"))
