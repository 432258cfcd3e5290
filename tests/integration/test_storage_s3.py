"""The storage room against a real S3 server, and against one behind a broken network."""

import hashlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.integration.faultproxy import Answer, CutBody, FaultProxy, Request, Reset, ShortBody

from extentflow.errors import AccessDenied, ObjectChanged, ObjectGone, StoreUnavailable
from extentflow.retry import RetryPolicy
from extentflow.storage import StoreOptions
from extentflow.storage.ranges import RangeReader
from extentflow.storage.s3 import RequestLimits, S3Store
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGE = random.Random(7).randbytes(20 << 20)
ODD = ["a,b", "a b", "a+b", "ü€😀", "100%", "%20", "%2B", "a&b=c?d#e", "q'\"<>", "tab\tbed"]


@pytest.fixture
def store(stack: Stack) -> Iterator[S3Store]:
    opened = S3Store(StoreOptions(endpoint=stack.endpoint("s3")), limits=RequestLimits(page_keys=4))
    yield opened
    opened.close()


@pytest.fixture
def hasty(s3_proxy: FaultProxy) -> Iterator[S3Store]:
    """A store behind the fault proxy that hardly pauses between attempts."""
    opened = behind(s3_proxy, total_seconds=30.0)
    yield opened
    opened.close()


def behind(proxy: FaultProxy, total_seconds: float) -> S3Store:
    return S3Store(
        StoreOptions(endpoint=proxy.endpoint),
        retry=RetryPolicy(total_seconds, first_pause_seconds=0.01, longest_pause_seconds=0.05),
        limits=RequestLimits(connect_seconds=2.0, read_seconds=5.0),
    )


def ranged(request: Request) -> bool:
    return request.byte_range is not None


def test_an_object_is_pinned_and_streamed(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    s3.put_object(Bucket=bucket, Key=f"{prefix}large", Body=LARGE)
    version = store.head(bucket, f"{prefix}large")
    digest = hashlib.sha256()

    for window in RangeReader(store, version, window_bytes=3 << 20).stream(0, version.size):
        digest.update(window)

    assert version.version_id is None
    assert version.etag == hashlib.md5(LARGE, usedforsecurity=False).hexdigest()
    assert digest.digest() == hashlib.sha256(LARGE).digest()
    assert store.fetched_bytes == len(LARGE)


def test_many_threads_share_one_store(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    s3.put_object(Bucket=bucket, Key=f"{prefix}large", Body=LARGE)
    version = store.head(bucket, f"{prefix}large")
    step = 1 << 19

    with ThreadPoolExecutor(8) as threads:
        starts = range(0, len(LARGE), step)
        bodies = threads.map(lambda at: store.read(version, at, at + step), starts)

        assert b"".join(bodies) == LARGE


def test_a_multipart_object_is_read_across_its_parts(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}parts"
    part_bytes = 5 << 20
    upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    parts = []
    for number, at in enumerate((0, part_bytes), 1):
        body = LARGE[at : at + part_bytes]
        done = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": done["ETag"]})
    s3.complete_multipart_upload(
        Bucket=bucket,
        Key=key,
        UploadId=upload,
        MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
    )

    version = store.head(bucket, key)

    assert version.etag.endswith("-2")
    edge = (part_bytes - 10, part_bytes + 10)
    assert store.read(version, *edge) == LARGE[slice(*edge)]


def test_trap_t12_an_overwritten_object_is_object_changed(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=bucket, Key=key, Body=b"old bytes")
    version = store.head(bucket, key)
    assert store.read(version, 0, 4) == b"old "

    s3.put_object(Bucket=bucket, Key=key, Body=b"new bytes")

    with pytest.raises(ObjectChanged, match="was replaced"):
        store.read(version, 4, 9)


def test_trap_t12_a_pinned_version_is_readable_after_overwrite_and_delete(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"old bytes")
    old = store.head(versioned_bucket, key)
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"new bytes")
    new = store.head(versioned_bucket, key)
    s3.delete_object(Bucket=versioned_bucket, Key=key)

    assert old.version_id != new.version_id
    assert store.read(old, 0, 9) == b"old bytes"
    assert store.read(new, 0, 9) == b"new bytes"
    assert store.head(versioned_bucket, key, old.version_id) == old


def test_a_delete_marker_and_a_removed_version_are_object_gone(
    store: S3Store, s3: "S3Client", versioned_bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=versioned_bucket, Key=key, Body=b"bytes")
    version = store.head(versioned_bucket, key)
    marker = s3.delete_object(Bucket=versioned_bucket, Key=key)["VersionId"]
    assert version.version_id is not None
    s3.delete_object(Bucket=versioned_bucket, Key=key, VersionId=version.version_id)

    with pytest.raises(ObjectGone, match=key):
        store.head(versioned_bucket, key)
    with pytest.raises(ObjectGone, match=key):
        store.head(versioned_bucket, key, marker)
    with pytest.raises(ObjectGone, match="no such version"):
        store.read(version, 0, 5)


def test_what_is_missing_is_named(store: S3Store, bucket: str, prefix: str) -> None:
    with pytest.raises(ObjectGone, match=f"s3://{bucket}/{prefix}absent: no such key"):
        store.head(bucket, f"{prefix}absent")
    with pytest.raises(ObjectGone, match="s3://absent-bucket: no such bucket"):
        store.head("absent-bucket", "key")
    with pytest.raises(ObjectGone, match=r"s3://absent-bucket/\*: no such bucket"):
        list(store.list("absent-bucket"))


def test_wrong_credentials_are_denied(stack: Stack, bucket: str) -> None:
    options = StoreOptions(
        endpoint=stack.endpoint("s3"), access_key_id="unknown", secret_access_key="wrong"
    )
    store = S3Store(options)

    with pytest.raises(AccessDenied, match="check the credentials"):
        store.head(bucket, "key")
    with pytest.raises(AccessDenied, match="check the credentials"):
        list(store.list(bucket))

    store.close()


def test_trap_t15_t16_listing_sends_one_request_per_page_and_no_write(
    hasty: S3Store, s3_proxy: FaultProxy, s3: "S3Client", bucket: str, prefix: str
) -> None:
    for number in range(10):
        s3.put_object(Bucket=bucket, Key=f"{prefix}{number}", Body=b"body")

    listed = list(hasty.list(bucket, prefix))

    assert [item.key for item in listed] == [f"{prefix}{number}" for number in range(10)]
    assert {item.size for item in listed} == {4}
    assert {item.etag for item in listed} == {hasty.head(bucket, f"{prefix}0").etag}
    assert [exchange.method for exchange in s3_proxy.exchanges] == ["GET", "HEAD"]


def test_trap_t19_a_zero_byte_object_and_an_empty_prefix_are_no_errors(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    s3.put_object(Bucket=bucket, Key=f"{prefix}empty", Body=b"")

    version = store.head(bucket, f"{prefix}empty")

    assert version.size == 0
    assert list(RangeReader(store, version).stream(0, 0)) == []
    assert list(store.list(bucket, f"{prefix}absent/")) == []


def test_trap_t20_odd_keys_are_listed_pinned_and_read_exactly(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    keys = [f"{prefix}{odd}" for odd in ODD]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())

    listed = [item.key for item in store.list(bucket, prefix)]

    assert listed == sorted(keys, key=str.encode)
    for key in keys:
        version = store.head(bucket, key)
        assert store.read(version, 0, version.size) == key.encode()


def test_trap_t24_a_stream_through_a_broken_network_is_exact(
    hasty: S3Store, s3_proxy: FaultProxy, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}large"
    s3.put_object(Bucket=bucket, Key=key, Body=LARGE)
    version = hasty.head(bucket, key)
    faults = (
        Answer(500),
        Answer(503),
        Reset(),
        CutBody(1000),
        CutBody(0, reset=True),
        CutBody(300_000, reset=True),
        ShortBody((1 << 20) - 1),
        ShortBody(0),
    )
    rules = [s3_proxy.inject(fault, when=ranged, times=2, skip=2) for fault in faults]

    body = b"".join(RangeReader(hasty, version, window_bytes=1 << 20).stream(0, version.size))

    assert hashlib.sha256(body).digest() == hashlib.sha256(LARGE).digest()
    assert [rule.hits for rule in rules] == [2] * len(faults)


def test_trap_t24_bodies_that_stay_short_end_in_a_bounded_error(
    s3_proxy: FaultProxy, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=bucket, Key=key, Body=LARGE[: 1 << 20])
    store = behind(s3_proxy, total_seconds=0.3)
    version = store.head(bucket, key)
    s3_proxy.inject(ShortBody(99), when=ranged, times=None)

    with pytest.raises(StoreUnavailable, match=r"\[0-100\): .* sent 99 bytes instead of 100; gave"):
        store.read(version, 0, 100)

    store.close()


def test_an_object_overwritten_under_a_stream_is_never_spliced(
    hasty: S3Store, s3_proxy: FaultProxy, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}large"
    s3.put_object(Bucket=bucket, Key=key, Body=LARGE)
    version = hasty.head(bucket, key)
    overwritten = threading.Event()

    def overwrite_once(request: Request) -> bool:
        if ranged(request) and not overwritten.is_set():
            overwritten.set()
            s3.put_object(Bucket=bucket, Key=key, Body=LARGE[::-1])
        return False

    stream = RangeReader(hasty, version, window_bytes=1 << 20).stream(0, version.size)
    windows = [next(stream)]
    s3_proxy.inject(Reset(), when=overwrite_once)

    with pytest.raises(ObjectChanged, match=key):
        windows.extend(stream)

    got = b"".join(windows)
    assert got == LARGE[: len(got)]


def test_bytes_fetched_are_the_objects_bytes(
    hasty: S3Store, s3_proxy: FaultProxy, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}large"
    s3.put_object(Bucket=bucket, Key=key, Body=LARGE)
    version = hasty.head(bucket, key)
    reader = RangeReader(hasty, version)

    for _ in reader.stream(0, version.size):
        pass

    assert hasty.fetched_bytes == len(LARGE)
    assert s3_proxy.response_body_bytes("GET") == len(LARGE)


def test_a_version_of_another_size_is_rejected_despite_an_equal_etag(
    store: S3Store, s3: "S3Client", bucket: str, prefix: str
) -> None:
    key = f"{prefix}key"
    s3.put_object(Bucket=bucket, Key=key, Body=b"0123456789")
    version = replace(store.head(bucket, key), size=20)

    with pytest.raises(ObjectChanged, match="it has 10 bytes, not 20"):
        store.read(version, 0, 5)
