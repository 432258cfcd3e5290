"""The ObjectStore port over S3: conditional requests, verified against the pin and retried."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import botocore.exceptions as boto
import urllib3.exceptions
from botocore.parsers import ResponseParserError

from extentflow.errors import (
    AccessDenied,
    Misconfigured,
    ObjectGone,
    Permanent,
    Retryable,
    StoreUnavailable,
)
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.storage import Listed, Page, StoreOptions, ranges
from extentflow.storage.ranges import TransferCounters
from extentflow.storage.s3.client import RequestLimits, connect, find_problems
from extentflow.storage.s3.errors import S3Error, bucket_gone
from extentflow.storage.s3.listing import Listings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")

_CREDENTIAL_ERRORS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
    boto.ProfileNotFound,
)
_CREDENTIALS_REMEDY = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, in the environment of every "
    "worker, attach a role to its machine, or write references in the connector's "
    "aws.access.key.id and "
    "aws.secret.access.key, for example ${env:NAME}"
)
# ResponseParserError: a listing truncated inside its XML. HTTPError: urllib3 raises it while a body
# is read, and botocore does not translate it.
_TRANSPORT_ERRORS = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    ResponseParserError,
    urllib3.exceptions.HTTPError,
)


class S3Store:
    """The ObjectStore port over S3; creates its client at first use, and again in a forked child.

    Raises:
        Misconfigured: invalid options; all problems at once.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        retry: RetryPolicy | None = None,
        limits: RequestLimits | None = None,
    ) -> None:
        if found := list(find_problems(options)):
            raise Misconfigured(found)
        self._options = options
        self._retry = (retry or RetryPolicy()).within(options.retry_seconds)
        self._limits = limits or RequestLimits()
        # The SDK's default endpoint is that of its environment; only messages name it.
        configured = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        default = configured or f"AWS S3 ({options.region or 'default region'})"
        self.endpoint = options.endpoint or default
        self._reset()
        _open_stores.add(self)

    def _reset(self) -> None:
        # A forked child must not share sockets or counters, nor a lock that a thread of its parent
        # held.
        self._lock = threading.Lock()
        self._client: S3Client | None = None
        self.counters = TransferCounters()

    @property
    def fetched_bytes(self) -> int:
        """Bytes of object bodies received by this process, including discarded bodies."""
        return self.counters.fetched_bytes

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        # A delete marker raises ObjectGone.
        try:
            return self._retry.call(lambda: self._head(bucket, key, version_id))
        except ObjectGone as exc:
            if self._bucket_exists(bucket):
                raise
            raise bucket_gone(f"s3://{bucket}", self.endpoint) from exc

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Raises ValueError for a range that is not of the object, or of more than 64 MiB."""
        ranges.check_request(version, start, end)
        return self._retry.call(lambda: self._read(version, start, end))

    def list(self, bucket: str, prefix: str = "") -> Iterator[Listed]:
        for found in self._listings.keys(bucket, prefix):
            yield Listed(found.bucket, found.key, found.etag, found.size)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        return self._listings.pages(bucket, prefix, token)

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _head(self, bucket: str, key: str, version_id: str | None) -> ObjectVersion:
        parameters: dict[str, Any] = {"VersionId": version_id} if version_id else {}
        suffix = f"?versionId={version_id}" if version_id else ""
        where = f"s3://{bucket}/{key}{suffix}"
        with self._request(where) as client:
            response = client.head_object(Bucket=bucket, Key=key, **parameters)
        etag = ranges.unquote_etag(response.get("ETag", ""))
        if not etag:
            raise Permanent(
                f"{where}: {self.endpoint} sent no ETag, so the version cannot be pinned; "
                "use an endpoint that sends ETags"
            )
        found = response.get("VersionId")
        # "null" is no pin, because the next upload replaces that version.
        return ObjectVersion(
            bucket, key, None if found == "null" else found, etag, response["ContentLength"]
        )

    def _bucket_exists(self, bucket: str) -> bool:
        """Tell a missing bucket from a missing key: the response to HEAD has no error code."""
        try:
            with self._request(f"s3://{bucket}") as client:
                client.head_bucket(Bucket=bucket)
        except ObjectGone:
            return False
        # Unclear whether the bucket exists: report the missing key.
        except (AccessDenied, Retryable):
            return True
        return True

    def _read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        pinned: dict[str, Any] = {"VersionId": version.version_id} if version.version_id else {}
        with self._request(ranges.range_uri(version, start, end)) as client:
            # If-Match fails with 412 for a replaced object, so two versions are never spliced.
            response = client.get_object(
                Bucket=version.bucket,
                Key=version.key,
                Range=f"bytes={start}-{end - 1}",
                IfMatch=f'"{version.etag}"',
                **pinned,
            )
            with contextlib.closing(response["Body"]) as stream:
                self._check_response(version, start, end, response)
                # One byte more than requested detects a longer body without holding it in memory.
                body = stream.read(end - start + 1)
        self.counters.count(body_bytes=len(body))
        # A cut connection or a proxy can end a body early without an error (trap T24).
        ranges.check_length(version, start, end, body=body, source=self.endpoint)
        return body

    def _check_response(
        self, version: ObjectVersion, start: int, end: int, response: GetObjectOutputTypeDef
    ) -> None:
        """Compare status and headers with the pin, before the body is read.

        Status 200 is accepted only where the range is the whole object: the body then is that
        range. Buffering a larger object could exhaust the memory (trap T25).
        """
        where, endpoint = ranges.range_uri(version, start, end), self.endpoint
        status = response["ResponseMetadata"]["HTTPStatusCode"]
        whole = status == HTTPStatus.OK
        if whole and (start, end) != (0, version.size):
            raise Permanent(
                f"{where}: {endpoint} ignored the Range header and answered 200 with the whole "
                "object; use an endpoint, or a proxy setting, that honours Range"
            )
        ranges.check_etag(version, response.get("ETag"), where=where, endpoint=endpoint)
        if whole:
            return
        content_range = response.get("ContentRange")
        parsed = _CONTENT_RANGE.fullmatch(content_range or "")
        if parsed is None:
            raise StoreUnavailable(
                f"{where}: {endpoint} answered {status} with Content-Range "
                f"{content_range!r}; expected bytes {start}-{end - 1}/{version.size}"
            )
        first, last, total = parsed.groups()
        if total not in ("*", str(version.size)):
            raise ranges.object_changed(where, f"it has {total} bytes, not {version.size}")
        if (int(first), int(last)) != (start, end - 1):
            raise StoreUnavailable(f"{where}: {endpoint} sent bytes {first}-{last} instead")

    @property
    def _listings(self) -> Listings:
        return Listings(self._request, self._retry, self.endpoint, self._limits.page_keys)

    @contextlib.contextmanager
    def _request(self, where: str) -> Iterator[S3Client]:
        """Yield the client for one request on `where`, and translate the errors of the SDK."""
        self.counters.count(requests=1)
        try:
            with self._lock:
                if self._client is None:
                    self._client = connect(self._options, self._limits)
                client = self._client
            yield client
        except boto.ClientError as exc:
            raise S3Error.of(exc, where, self.endpoint).to_exception() from exc
        except _CREDENTIAL_ERRORS as exc:
            raise AccessDenied(
                f"{where}: no usable credentials ({exc}); {_CREDENTIALS_REMEDY}"
            ) from exc
        except boto.SSLError as exc:
            if "CERTIFICATE_VERIFY_FAILED" in str(exc):
                raise Misconfigured(
                    f"{where}: the certificate of {self.endpoint} is not trusted ({exc}); "
                    "set aws.s3.ca.bundle to its CA bundle"
                ) from exc
            raise StoreUnavailable(f"{where}: {self.endpoint}: {exc}") from exc
        except _TRANSPORT_ERRORS as exc:
            raise StoreUnavailable(
                f"{where}: no complete response from {self.endpoint} ({exc})"
            ) from exc
        except boto.BotoCoreError as exc:
            raise Misconfigured(f"{where}: {self.endpoint}: {exc}") from exc


_open_stores: weakref.WeakSet[S3Store] = weakref.WeakSet()


def _reset_in_child() -> None:
    for store in _open_stores:
        store._reset()  # noqa: SLF001 - the store's own module


os.register_at_fork(after_in_child=_reset_in_child)
