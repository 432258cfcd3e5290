"""Properties, tags, copies and deletions of pinned objects: what is read or done beside the bytes.

Every change applies to the pinned version or to nothing:

    bucket with versions    by version id
    other buckets           If-Match; tags have no such condition, so that they are refused there

Tests: integration/test_changes_s3.py
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from extentflow.errors import ExtentflowError, NotOffered, ObjectChanged, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.storage import ObjectProperties, ranges, untaggable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

log = logging.getLogger(__name__)

# One request copies up to 5 GiB, and may take longer than a request is waited for.
SINGLE_COPY_BYTES = 1 << 30
PART_BYTES = 256 << 20
MOST_PARTS = 10_000
PARALLEL_PARTS = 8
MOST_TAGGINGS = 10
# Of an object, by the documentation of S3.
MOST_TAGS = 10
NO_OBJECTS_ETAG = '"00000000000000000000000000000000"'
# What a copy in parts has to carry over by itself.
CARRIED = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
    "Metadata",
)


@dataclass(slots=True)
class ObjectChanges:
    """The requests of one store. `conditional_deletes`: the server is known to honour If-Match."""

    request: Callable[[str], AbstractContextManager[S3Client]]
    retry: RetryPolicy
    endpoint: str
    conditional_deletes: bool
    single_copy_bytes: int = SINGLE_COPY_BYTES
    part_bytes: int = PART_BYTES
    _honours: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        """See `DescribedStore`."""
        found = self._head(version)
        return ObjectProperties(found["LastModified"], found.get("ContentType"), found["Metadata"])

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        """See `DescribedStore`."""

        def read() -> Mapping[str, str]:
            with self.request(version.uri) as client:
                answer = client.get_object_tagging(**_source(version))
            return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}

        found = self.retry.call(read)
        if version.version_id is None:
            self._head(version)  # otherwise they may be those of a later object
        return found

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        """See `ChangeableStore`. S3 replaces all tags at once, and on no condition.

        So the tags are read back: another program that tagged the version meanwhile may have
        removed this tag, which is then set again. Raises StoreUnavailable after MOST_TAGGINGS.
        """
        if version.version_id is None:
            raise NotOffered(untaggable(version))
        for _ in range(MOST_TAGGINGS):
            tags = dict(self.tags(version))
            if tags.get(name) == value:
                return
            if name not in tags and len(tags) >= MOST_TAGS:
                raise NotOffered(
                    f"{version.uri} has {len(tags)} tags, and S3 allows {MOST_TAGS}: remove one of"
                    f" them, so that {name} can be added"
                )
            self._write_tags(version, {**tags, name: value})
        raise StoreUnavailable(
            f"{version.uri}: another program removed the tag {name} {MOST_TAGGINGS} times; repeat"
            " later, or let one program tag the object"
        )

    def _write_tags(self, version: ObjectVersion, tags: Mapping[str, str]) -> None:
        def write() -> None:
            with self.request(version.uri) as client:
                client.put_object_tagging(
                    **_source(version),
                    Tagging={"TagSet": [{"Key": key, "Value": tags[key]} for key in tags]},
                )

        self.retry.call(write)

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        """See `ChangeableStore`."""
        if version.size > self.single_copy_bytes:
            self._copy_in_parts(version, bucket, key)
            return

        def copy() -> None:
            with self.request(version.uri) as client:
                client.copy_object(
                    Bucket=bucket,
                    Key=key,
                    CopySource=_source(version),
                    CopySourceIfMatch=f'"{version.etag}"',
                )

        self.retry.call(copy)

    def delete(self, version: ObjectVersion) -> None:
        """See `ChangeableStore`."""
        pin: dict[str, Any] = {"IfMatch": f'"{version.etag}"'}
        if version.version_id is not None:
            pin = {}
        else:
            self.require_conditional_deletes(version.bucket, version.key.rpartition("/")[0])

        def delete() -> None:
            with self.request(version.uri) as client:
                client.delete_object(**_source(version), **pin)

        self.retry.call(delete)

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        """See `ChangeableStore`; asked once per process and bucket, and never of S3 itself."""
        with self._lock:
            if self.conditional_deletes or bucket in self._honours:
                return
            # No connector reads names that begin with a dot.
            key = f"{folder}/.extentflow-probe-{secrets.token_hex(8)}".removeprefix("/")
            where = f"s3://{bucket}/{key}"
            refused = False

            def put() -> None:
                with self.request(where) as client:
                    client.put_object(Bucket=bucket, Key=key, Body=b"")

            def delete(**condition: str) -> None:
                with self.request(where) as client:
                    client.delete_object(Bucket=bucket, Key=key, **condition)  # type: ignore[arg-type]

            self.retry.call(put)
            try:
                self.retry.call(lambda: delete(IfMatch=NO_OBJECTS_ETAG))
            except ObjectChanged:
                refused = True
                self.retry.call(delete)
            if not refused:
                raise NotOffered(
                    f"s3://{bucket}: {self.endpoint} ignores If-Match of DeleteObject, so that a"
                    " later object could be deleted; enable the bucket's versioning, or write"
                    " after.completion=none"
                )
            self._honours.add(bucket)

    def _head(self, version: ObjectVersion) -> Any:  # noqa: ANN401 - the SDK's response
        def head() -> Any:  # noqa: ANN401
            with self.request(version.uri) as client:
                return client.head_object(**_source(version), IfMatch=f'"{version.etag}"')

        found = self.retry.call(head)
        ranges.check_etag(version, found.get("ETag"), where=version.uri, endpoint=self.endpoint)
        return found

    def _copy_in_parts(self, version: ObjectVersion, bucket: str, key: str) -> None:
        """Copy the ranges of an object in parallel; nothing is left of a copy that fails."""
        found = self._head(version)
        carried: dict[str, Any] = {name: found[name] for name in CARRIED if found.get(name)}
        # Not every server counts tags in its answer to HEAD.
        if tags := self.tags(version):
            carried["Tagging"] = urlencode(tags)
        part_bytes = max(self.part_bytes, -(-version.size // MOST_PARTS))
        where = f"s3://{bucket}/{key}"

        def begin() -> str:
            with self.request(where) as client:
                return client.create_multipart_upload(Bucket=bucket, Key=key, **carried)["UploadId"]

        upload = self.retry.call(begin)

        def copy(number: int) -> CompletedPartTypeDef:
            start = (number - 1) * part_bytes
            end = min(version.size, start + part_bytes)

            def part() -> str:
                with self.request(ranges.range_uri(version, start, end)) as client:
                    answer = client.upload_part_copy(
                        Bucket=bucket,
                        Key=key,
                        UploadId=upload,
                        PartNumber=number,
                        CopySource=_source(version),
                        CopySourceIfMatch=f'"{version.etag}"',
                        CopySourceRange=f"bytes={start}-{end - 1}",
                    )
                return answer["CopyPartResult"]["ETag"]

            return {"ETag": self.retry.call(part), "PartNumber": number}

        def complete(parts: list[CompletedPartTypeDef]) -> None:
            with self.request(where) as client:
                client.complete_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
                )

        try:
            with ThreadPoolExecutor(PARALLEL_PARTS) as threads:
                numbers = range(1, -(-version.size // part_bytes) + 1)
                parts = list(threads.map(copy, numbers))
            # Not repeated: after a lost response, a second one finds no upload.
            complete(parts)
        except BaseException:
            self._abort(bucket, key, upload)
            raise

    def _abort(self, bucket: str, key: str, upload: str) -> None:
        where = f"s3://{bucket}/{key}"
        try:
            with self.request(where) as client:
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
        except ExtentflowError as exc:  # the error that led here is the one to report
            log.warning("%s: parts of upload %s may be left: %s", where, upload, exc)


def _source(version: ObjectVersion) -> Any:  # noqa: ANN401 - parameters of several requests
    pinned = {"VersionId": version.version_id} if version.version_id else {}
    return {"Bucket": version.bucket, "Key": version.key, **pinned}
