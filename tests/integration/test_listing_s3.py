"""Pages of current versions, as a real S3 server lists them."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from extentflow.errors import AccessDenied, ObjectGone
from extentflow.model import ObjectVersion, job_id
from extentflow.storage import Page, StoreOptions
from extentflow.storage.s3 import RequestLimits, S3Store
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MANY = 2_500
# A server that keeps keys in directories sorts these otherwise than S3 does.
MIXED = [
    f"{name}{rest}"
    for name in ("d", "d.x", "d-y", "e", "f f", "ü+%20")
    for rest in ("/1", "/2", ".z", "/s/t", "/s.q", "-1/x")
]


@pytest.fixture
def store(stack: Stack) -> Iterator[S3Store]:
    opened = S3Store(StoreOptions(endpoint=stack.endpoint("s3")))
    yield opened
    opened.close()


@pytest.fixture
def by_threes(stack: Stack) -> Iterator[S3Store]:
    opened = S3Store(StoreOptions(endpoint=stack.endpoint("s3")), limits=RequestLimits(page_keys=3))
    yield opened
    opened.close()


def put(s3: "S3Client", bucket: str, keys: Iterable[str]) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: s3.put_object(Bucket=bucket, Key=key, Body=b"body"), keys))


def listed(pages: Iterable[Page]) -> list[ObjectVersion]:
    return [version for page in pages for version in page.versions]


@pytest.mark.long
def test_a_plain_bucket_is_listed_over_pages_and_from_any_token(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    keys = [f"{prefix}{number:05}.csv" for number in range(MANY)]
    put(s3, bucket, keys)

    pages = list(store.pages(bucket, prefix))

    assert [len(page.versions) for page in pages] == [1_000, 1_000, 500]
    assert [version.key for version in listed(pages)] == keys
    assert list(store.pages(bucket, prefix, token=pages[0].token)) == pages[1:]
    assert (
        store.counters.requests == 1 + 3 + 2
    )  # the bucket's versioning once, no request for a key


@pytest.mark.parametrize("versioned", [False, True])
def test_no_key_is_lost_at_the_edge_of_a_page_whatever_the_server_sorts_by(
    by_threes: S3Store,
    s3: "S3Client",
    *,
    bucket: str,
    versioned_bucket: str,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    versioned: bool,
) -> None:
    """This server loses versions in listings, so its keys are listed, with a warning."""
    caplog.set_level(logging.WARNING)
    home = versioned_bucket if versioned else bucket
    put(s3, home, [prefix + key for key in MIXED])

    pages = list(by_threes.pages(home, prefix))

    assert sorted(version.key for version in listed(pages)) == sorted(prefix + key for key in MIXED)
    assert {version.version_id for version in listed(pages)} == {None}
    assert ("loses keys" in caplog.text) == versioned
    for number, page in enumerate(pages[:-1]):
        again = list(by_threes.pages(home, prefix, token=page.token))
        assert listed(again) == listed(pages[number + 1 :])


def test_listings_return_current_version_ids_and_no_delete_markers(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    keys = [prefix + key for key in ("a", "b b+ü", "c/d", "gone", "gone and back")]
    for body in (b"older", b"old", b"new"):
        for key in keys:
            s3.put_object(Bucket=versioned_bucket, Key=key, Body=body)
    for key in keys[3:]:
        s3.delete_object(Bucket=versioned_bucket, Key=key)
    s3.put_object(Bucket=versioned_bucket, Key=keys[4], Body=b"back")

    pages = list(store.pages(versioned_bucket, prefix))

    current = [store.head(versioned_bucket, key) for key in keys if key != keys[3]]
    assert listed(pages) == current
    assert all(version.version_id for version in current)


def test_what_was_put_before_versioning_is_pinned_by_its_etag(
    store: S3Store, s3: "S3Client", unique: str
) -> None:
    home = f"late-{unique}"
    s3.create_bucket(Bucket=home)
    s3.put_object(Bucket=home, Key="before", Body=b"body")
    s3.put_bucket_versioning(Bucket=home, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=home, Key="behind", Body=b"body")

    found = listed(store.pages(home))

    assert [bool(version.version_id) for version in found] == [False, True]
    assert found == [store.head(home, "before"), store.head(home, "behind")]


@pytest.mark.parametrize("versioned", [False, True])
def test_a_listed_object_has_the_job_id_that_its_planner_gives_it(
    store: S3Store,
    s3: "S3Client",
    bucket: str,
    versioned_bucket: str,
    prefix: str,
    *,
    versioned: bool,
) -> None:
    home = versioned_bucket if versioned else bucket
    put(s3, home, [f"{prefix}full"])
    s3.put_object(Bucket=home, Key=f"{prefix}empty", Body=b"")

    found = listed(store.pages(home, prefix))

    assert len(found) == 2
    assert [job_id("c", version) for version in found] == [
        job_id("c", store.head(home, version.key)) for version in found
    ]


def test_an_empty_prefix_is_one_empty_page(
    store: S3Store, bucket: str, versioned_bucket: str, prefix: str
) -> None:
    assert list(store.pages(bucket, prefix)) == [Page(())]
    assert list(store.pages(versioned_bucket, prefix)) == [Page(())]


def test_a_missing_bucket_and_wrong_credentials_are_named(
    store: S3Store, stack: Stack, bucket: str
) -> None:
    with pytest.raises(ObjectGone, match="s3://absent-bucket: no such bucket"):
        list(store.pages("absent-bucket"))
    options = StoreOptions(
        endpoint=stack.endpoint("s3"), access_key_id="unknown", secret_access_key="wrong"
    )
    denied = S3Store(options)
    with pytest.raises(AccessDenied, match="check the credentials"):
        list(denied.pages(bucket))
    denied.close()
