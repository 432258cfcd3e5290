"""Uploads of new objects: in one request, or in parts that become one object when all are there.

Tests: unit/storage/s3/test_folder.py, integration/test_storage_s3.py
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from extentflow.errors import (
    BucketGone,
    ExtentflowError,
    ObjectChanged,
    ObjectGone,
    Permanent,
    Retryable,
)
from extentflow.retry import RetryPolicy
from extentflow.storage.folders import PROBE, other_bytes
from extentflow.storage.s3.error_codes import Unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef, CopySourceTypeDef

log = logging.getLogger(__name__)

# Parts have 5 MiB or more, except the last one; 10,000 of them make an object.
PART_BYTES = 16 << 20
MOST_PARTS = 10_000
PARALLEL_PARTS = 4
_ONLY_NEW = "*"
_COMPARED_BYTES = 8 << 20


@dataclass(slots=True)
class Uploads:
    """The requests of one store that make objects. `is_aws`: conditions are known to be honoured.

    Where a server honours no condition (`creates_once`), requests have none.
    """

    request: Callable[[str], AbstractContextManager[S3Client]]
    retry: RetryPolicy
    endpoint: str
    is_aws: bool
    part_bytes: int = PART_BYTES
    _honours: dict[str, bool] = field(default_factory=dict)

    def creates_once(self, bucket: str, prefix: str) -> bool:
        """Return whether the server refuses to put an object over another one, if so requested.

        Asked once per bucket, and never of S3 itself: puts and deletes a small hidden object.
        """
        if self.is_aws:
            return True
        if bucket not in self._honours:
            key = f"{prefix}{PROBE}{os.urandom(8).hex()}"
            self._honours[bucket] = self._probe(bucket, key)
        return self._honours[bucket]

    def require_bucket(self, bucket: str) -> None:
        """Raise BucketGone where there is no such bucket: some servers create it with an object."""
        where = f"s3://{bucket}"

        def head() -> None:
            with self.request(where) as client:
                client.head_bucket(Bucket=bucket)

        try:
            self.retry.call(head)
        except ObjectGone as exc:
            raise BucketGone(
                f"{where}: no such bucket at {self.endpoint}; create it, or correct its name"
            ) from exc
        except Permanent as exc:  # a response to HEAD has no reason: that of the next request has
            log.debug("%s: not known to exist: %s", where, exc)

    def read(self, bucket: str, key: str) -> bytes:
        """Return a small object. Raises ObjectGone where there is none."""

        def read() -> bytes:
            with self.request(f"s3://{bucket}/{key}") as client:
                return client.get_object(Bucket=bucket, Key=key)["Body"].read()

        return self.retry.call(read)

    def create(self, bucket: str, key: str, content: bytes) -> bool:
        """Put a small object; False: the key exists, with other bytes."""
        try:
            self.retry.call(lambda: self._put(bucket, key, content))
        except ObjectChanged:
            # It may be this one, of a request whose response was lost.
            with suppress(ObjectGone):
                return self.read(bucket, key) == content
            return False
        return True

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Put an object, in place of any other."""

        def put() -> None:
            with self.request(f"s3://{bucket}/{key}") as client:
                client.put_object(Bucket=bucket, Key=key, Body=content)

        self.retry.call(put)

    def move(self, bucket: str, key: str, target: str) -> None:
        """Copy an object, then delete it. Raises ObjectGone where neither key exists."""

        def copy() -> None:
            with self.request(f"s3://{bucket}/{key}") as client:
                source: CopySourceTypeDef = {"Bucket": bucket, "Key": key}
                client.copy_object(Bucket=bucket, Key=target, CopySource=source)

        try:
            self.retry.call(copy)
        except ObjectGone:
            self._require(bucket, target)
            return
        self.delete(bucket, key)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object, where there is one."""

        def delete() -> None:
            with self.request(f"s3://{bucket}/{key}") as client:
                client.delete_object(Bucket=bucket, Key=key)

        self.retry.call(delete)

    def put_file(self, bucket: str, key: str, file: IO[bytes], size: int) -> None:
        """Make an object of a file, unless it exists. Raises Conflict where that has other bytes.

        In parts where it is larger than one; none of them is left of an upload that fails.
        """
        where = f"s3://{bucket}/{key}"
        try:
            if size <= self.part_bytes:
                body = os.pread(file.fileno(), size, 0)
                self.retry.call(lambda: self._put(bucket, key, body))
            else:
                self._put_parts(bucket, key, file, size)
        except ObjectChanged as exc:
            if not self._is_same(bucket, key, file, size):
                raise other_bytes(where) from exc

    def abort_all(self, bucket: str, prefix: str) -> None:
        """Abort the unfinished uploads of keys that begin with a prefix."""

        def unfinished() -> list[tuple[str, str]]:
            with self.request(f"s3://{bucket}/{prefix}*") as client:
                found = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
            return [(one["Key"], one["UploadId"]) for one in found.get("Uploads", ())]

        try:
            while uploads := self.retry.call(unfinished):
                for key, upload in uploads:
                    self._abort(bucket, key, upload)
        except Unsupported as exc:
            log.warning("%s; parts of unfinished uploads may be left below %s", exc, prefix)

    def _probe(self, bucket: str, key: str) -> bool:
        where = f"s3://{bucket}/{key}"

        def put() -> None:
            with self.request(where) as client:
                client.put_object(Bucket=bucket, Key=key, Body=b"", IfNoneMatch=_ONLY_NEW)

        honours = False
        try:
            self.retry.call(put)
            self.retry.call(put)
        except ObjectChanged:
            honours = True
        except Unsupported:
            pass
        # Not after other errors: the same server would not answer for as long again.
        self.delete(bucket, key)
        return honours

    def _condition(self, bucket: str) -> Any:  # noqa: ANN401 - parameters of several requests
        honours = self.is_aws or self._honours.get(bucket, True)
        return {"IfNoneMatch": _ONLY_NEW} if honours else {}

    def _put(self, bucket: str, key: str, body: bytes) -> None:
        with self.request(f"s3://{bucket}/{key}") as client:
            client.put_object(Bucket=bucket, Key=key, Body=body, **self._condition(bucket))

    def _put_parts(self, bucket: str, key: str, file: IO[bytes], size: int) -> None:
        part_bytes = max(self.part_bytes, -(-size // MOST_PARTS))
        where = f"s3://{bucket}/{key}"

        def begin() -> str:
            with self.request(where) as client:
                return client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]

        upload = self.retry.call(begin)

        def put(number: int) -> CompletedPartTypeDef:
            start = (number - 1) * part_bytes
            body = os.pread(file.fileno(), min(part_bytes, size - start), start)

            def part() -> str:
                with self.request(f"{where}[{start}-{start + len(body)})") as client:
                    answer = client.upload_part(
                        Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body
                    )
                return answer["ETag"]

            return {"ETag": self.retry.call(part), "PartNumber": number}

        try:
            with ThreadPoolExecutor(PARALLEL_PARTS) as threads:
                parts = list(threads.map(put, range(1, -(-size // part_bytes) + 1)))
            self._complete(bucket, key, upload, parts)
        except BaseException:
            with suppress(ExtentflowError):  # the error that led here is the one to report
                self._abort(bucket, key, upload)
            raise

    def _complete(
        self, bucket: str, key: str, upload: str, parts: list[CompletedPartTypeDef]
    ) -> None:
        """Make an object of the parts. A lost response counts if the object is there."""
        where = f"s3://{bucket}/{key}"
        try:
            with self.request(where) as client:
                client.complete_multipart_upload(
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload,
                    MultipartUpload={"Parts": parts},
                    **self._condition(bucket),
                )
        except Retryable as exc:
            try:
                self._require(bucket, key)
            except ObjectGone:
                raise exc from None
            raise ObjectChanged(f"{where} exists") from exc

    def _require(self, bucket: str, key: str) -> None:
        """Raise ObjectGone unless an object exists."""

        def head() -> None:
            with self.request(f"s3://{bucket}/{key}") as client:
                client.head_object(Bucket=bucket, Key=key)

        self.retry.call(head)

    def _abort(self, bucket: str, key: str, upload: str) -> None:
        def abort() -> None:
            with (
                self.request(f"s3://{bucket}/{key}") as client,
                suppress(client.exceptions.NoSuchUpload),
            ):
                client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)

        self.retry.call(abort)

    def _is_same(self, bucket: str, key: str, file: IO[bytes], size: int) -> bool:
        def compare() -> bool:
            with self.request(f"s3://{bucket}/{key}") as client:
                found = client.get_object(Bucket=bucket, Key=key)
                if found["ContentLength"] != size:
                    found["Body"].close()
                    return False
                body = found["Body"]
                return all(
                    os.pread(file.fileno(), _COMPARED_BYTES, at) == body.read(_COMPARED_BYTES)
                    for at in range(0, size, _COMPARED_BYTES)
                )

        return self.retry.call(compare)
