"""Tags, copies and deletions of pinned objects on a real S3 server."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from tests.integration.faultproxy import Delay, FaultProxy, Request

from extentflow.errors import NotOffered, ObjectChanged, ObjectGone, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.storage import StoreOptions
from extentflow.storage.s3 import S3Store
from extentflow.storage.s3.changes import MOST_TAGGINGS
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture
def store(stack: Stack) -> Iterator[S3Store]:
    opened = S3Store(StoreOptions(endpoint=stack.endpoint("s3")))
    yield opened
    opened.close()


def body(s3: "S3Client", bucket: str, key: str) -> bytes:
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def keys(s3: "S3Client", bucket: str, prefix: str) -> list[str]:
    found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [each["Key"] for each in found.get("Contents", [])]


def replaced(store: S3Store, s3: "S3Client", bucket: str, key: str) -> ObjectVersion:
    """Put an object, and another one in its place; return the first one's version."""
    s3.put_object(Bucket=bucket, Key=key, Body=b"old")
    version = store.head(bucket, key)
    s3.put_object(Bucket=bucket, Key=key, Body=b"new")
    return version


def test_properties_and_tags_are_those_of_the_pinned_version(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(
        Bucket=versioned_bucket,
        Key=key,
        Body=b"old",
        ContentType="text/csv",
        Metadata={"owner": "shop"},
        Tagging="team=a",
    )
    version = store.head(versioned_bucket, key)
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"new", Tagging="team=b")

    properties, tags = store.properties(version), store.tags(version)

    assert (properties.content_type, properties.metadata) == ("text/csv", {"owner": "shop"})
    assert properties.last_modified.tzinfo is not None
    assert tags == {"team": "a"}


def test_listings_and_heads_agree_when_an_upload_was_stored(
    store: S3Store, s3: "S3Client", bucket: str, versioned_bucket: str, prefix: str
) -> None:
    for where in (bucket, versioned_bucket):
        stored = s3.put_object(Bucket=where, Key=f"{prefix}key", Body=b"x")
        time = s3.head_object(Bucket=where, Key=f"{prefix}key")["LastModified"]

        (listed,) = next(store.pages(where, prefix)).versions

        assert stored["ETag"].strip('"') == listed.etag
        assert store.head(where, listed.key).modified == listed.modified == time.timestamp()


def test_properties_of_an_object_that_was_replaced_are_refused(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    version = replaced(store, s3, bucket, f"{prefix}key")

    with pytest.raises(ObjectChanged):
        store.properties(version)
    with pytest.raises(ObjectChanged):
        store.tags(version)


def test_a_tag_goes_to_the_pinned_version_and_keeps_the_others(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"old", Tagging="team=a")
    version = store.head(versioned_bucket, key)
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"new")

    for _ in range(2):
        store.tag(version, "delivered", "yes")

    assert store.tags(version) == {"team": "a", "delivered": "yes"}
    assert store.tags(store.head(versioned_bucket, key)) == {}


@pytest.mark.parametrize("removals", [1, MOST_TAGGINGS])
def test_a_tag_that_another_program_removes_is_set_again(
    s3: "S3Client", s3_proxy: FaultProxy, versioned_bucket: str, prefix: str, removals: int
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"x")

    def replaces_all_tags(request: Request) -> bool:
        """Replace the tags before the store reads back its own: each read behind the first."""
        if request.method == "GET" and "tagging" in request.target:
            s3.put_object_tagging(
                Bucket=versioned_bucket,
                Key=key,
                Tagging={"TagSet": [{"Key": "other", "Value": "program"}]},
            )
            return True
        return False

    with closing(S3Store(StoreOptions(endpoint=s3_proxy.endpoint))) as store:
        version = store.head(versioned_bucket, key)
        s3_proxy.inject(Delay(0), when=replaces_all_tags, times=removals + 1)
        if removals < MOST_TAGGINGS:
            store.tag(version, "delivered", "yes")
            assert store.tags(version) == {"other": "program", "delivered": "yes"}
        else:
            with pytest.raises(StoreUnavailable, match="another program removed the tag"):
                store.tag(version, "delivered", "yes")


def test_an_eleventh_tag_is_refused_with_the_way_out(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key, tags = f"{prefix}key", {f"tag{number}": "x" for number in range(10)}
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"x", Tagging=urlencode(tags))
    version = store.head(versioned_bucket, key)

    with pytest.raises(NotOffered, match="has 10 tags, and S3 allows 10: remove one"):
        store.tag(version, "delivered", "yes")

    store.tag(version, "tag3", "yes")
    assert store.tags(version) == tags | {"tag3": "yes"}


def test_an_object_without_versions_is_not_tagged(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    s3.put_object(Bucket=bucket, Key=f"{prefix}key", Body=b"x")

    with pytest.raises(NotOffered, match="needs a bucket with versions"):
        store.tag(store.head(bucket, f"{prefix}key"), "delivered", "yes")


@pytest.mark.parametrize("single_copy_bytes", [1 << 30, 1])
def test_a_copy_has_the_bytes_and_the_metadata_of_the_pinned_version(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str, single_copy_bytes: int
) -> None:
    key = f"{prefix}key"
    large = bytes(range(256)) * (44 << 10)
    store._changes.single_copy_bytes = single_copy_bytes
    store._changes.part_bytes = 5 << 20
    s3.put_object(
        Bucket=versioned_bucket,
        Key=key,
        Body=large,
        ContentType="text/csv",
        Metadata={"a": "b"},
        Tagging="team=a%20b",
    )
    version = store.head(versioned_bucket, key)
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"new")

    for _ in range(2):
        store.copy(version, versioned_bucket, f"{prefix}copy")

    assert body(s3, versioned_bucket, f"{prefix}copy") == large
    copied = s3.head_object(Bucket=versioned_bucket, Key=f"{prefix}copy")
    assert (copied["ContentType"], copied["Metadata"]) == ("text/csv", {"a": "b"})
    assert store.tags(store.head(versioned_bucket, f"{prefix}copy")) == {"team": "a b"}
    assert not s3.list_multipart_uploads(Bucket=versioned_bucket, Prefix=prefix).get("Uploads")


@pytest.mark.parametrize("single_copy_bytes", [1 << 30, 1])
def test_an_object_that_was_replaced_is_not_copied(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str, single_copy_bytes: int
) -> None:
    store._changes.single_copy_bytes = single_copy_bytes
    version = replaced(store, s3, bucket, f"{prefix}key")

    with pytest.raises(ObjectChanged):
        store.copy(version, bucket, f"{prefix}copy")

    assert keys(s3, bucket, f"{prefix}copy") == []


def test_a_deletion_removes_the_pinned_version_only(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"old")
    version = store.head(versioned_bucket, key)
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"new")

    for _ in range(2):
        store.delete(version)

    assert body(s3, versioned_bucket, key) == b"new"
    with pytest.raises(ObjectGone):
        store.head(versioned_bucket, key, version.version_id)


def test_a_deletion_without_versions(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    version = replaced(store, s3, bucket, f"{prefix}key")

    with pytest.raises(ObjectChanged):
        store.delete(version)

    assert body(s3, bucket, f"{prefix}key") == b"new"
    store.delete(store.head(bucket, f"{prefix}key"))
    assert keys(s3, bucket, prefix) == []
