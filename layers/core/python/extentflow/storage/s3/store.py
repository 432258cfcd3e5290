"""The ObjectStore port over S3: pinned and conditional requests, compared and retried.

Owns: one client per process, the requests, the translation of the provider's errors in one place.
Refuses to know: how the client is made, what a refusal means, what the bytes mean.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
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
from extentflow.storage import Listed, Page, StoreOptions, pins
from extentflow.storage.retry import Patience
from extentflow.storage.s3.client import Limits, connect, problems
from extentflow.storage.s3.listing import Listings
from extentflow.storage.s3.refusals import Refusal, bucket_gone
from extentflow.storage.traffic import Traffic

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PATIENCE = Patience()

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
    boto.ProfileNotFound,
)
_GIVE_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, in the environment of every "
    "worker, give its machine a role, or write references in the connector's aws.access.key.id and "
    "aws.secret.access.key, for example ${env:NAME}"
)
# Besides botocore's own: a list page that was cut inside its XML, and what urllib3 raises while a
# body is read without botocore translating it.
_NO_ANSWER = (
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.IncompleteReadError,
    ResponseParserError,
    urllib3.exceptions.HTTPError,
)


_LIMITS = Limits()
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _usual_endpoint(region: str | None) -> str:
    """Return where the SDK goes by itself, in words."""
    given = [os.environ[name] for name in _ENDPOINT_VARIABLES if os.environ.get(name)]
    return given[0] if given else f"AWS S3 ({region or 'default region'})"


class S3Store:
    """The ObjectStore port over S3. The client is made at first use, anew in a forked child.

    Raises:
        Misconfigured: options that cannot work together; all problems at once.
    """

    def __init__(
        self, options: StoreOptions, *, patience: Patience = _PATIENCE, limits: Limits = _LIMITS
    ) -> None:
        found = list(problems(options))
        if found:
            raise Misconfigured(found)
        self._options = options
        self._patience = patience.within(options.retry_seconds)
        self._limits = limits
        self.endpoint = options.endpoint or _usual_endpoint(options.region)
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        # A forked child must share neither sockets, nor counts, nor a lock held by a lost thread.
        self._lock = threading.Lock()
        self._client: S3Client | None = None
        self._traffic = Traffic()

    @property
    def fetched_bytes(self) -> int:
        """Bytes of object bodies this process received, those of discarded bodies included."""
        return self._traffic.fetched_bytes

    @property
    def requests(self) -> int:
        """Requests this process made, attempts that failed included."""
        return self._traffic.requests

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        """Return the current (or the given) version; see the port.

        A delete marker is ObjectGone. The version id "null" is not a pin, for the next upload
        replaces it: such a version is pinned by its ETag alone.
        """
        try:
            return self._patience.retried(lambda: self._head(bucket, key, version_id))
        except ObjectGone as exc:
            if self._has(bucket):
                raise
            raise bucket_gone(f"s3://{bucket}", self.endpoint) from exc

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly `[start, end)` of that version; see the port.

        Raises:
            ValueError: not a range of the object, or more than 64 MiB at once.
        """
        pins.check_request(version, start, end)
        return self._patience.retried(lambda: self._read(version, start, end))

    def list(self, bucket: str, prefix: str = "") -> Iterator[Listed]:
        """Yield every key below `prefix`, page by page, without a request per key; see the port."""
        for found in self._listings.keys(bucket, prefix):
            yield Listed(found.bucket, found.key, found.etag, found.size)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        """Yield current versions, page by page; see the port."""
        return self._listings.pages(bucket, prefix, token)

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _head(self, bucket: str, key: str, version_id: str | None) -> ObjectVersion:
        wanted: dict[str, Any] = {"VersionId": version_id} if version_id else {}
        suffix = f"?versionId={version_id}" if version_id else ""
        where = f"s3://{bucket}/{key}{suffix}"
        with self._asking(where) as client:
            answer = client.head_object(Bucket=bucket, Key=key, **wanted)
        etag = pins.unquoted(answer.get("ETag", ""))
        if not etag:
            raise Permanent(f"{where}: {self.endpoint} sent no ETag; no version can be pinned")
        found = answer.get("VersionId")
        return ObjectVersion(
            bucket, key, None if found == "null" else found, etag, answer["ContentLength"]
        )

    def _has(self, bucket: str) -> bool:
        """Tell a missing bucket from a missing key, where HEAD's answer without a body cannot."""
        try:
            with self._asking(f"s3://{bucket}") as client:
                client.head_bucket(Bucket=bucket)
        except ObjectGone:
            return False
        except (AccessDenied, Retryable):
            return True
        return True

    def _read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        with self._asking(pins.place(version, start, end)) as client:
            answer = client.get_object(
                **_pinned(version), Range=f"bytes={start}-{end - 1}", IfMatch=f'"{version.etag}"'
            )
            head = pins.Answer(
                answer["ResponseMetadata"]["HTTPStatusCode"],
                answer.get("ETag"),
                answer.get("ContentRange"),
            )
            with contextlib.closing(answer["Body"]) as stream:
                pins.check_answer(version, start, end, answer=head, endpoint=self.endpoint)
                # One byte more than asked: a longer body is noticed, and never held.
                body = stream.read(end - start + 1)
        self._traffic.received(len(body))
        pins.check_length(version, start, end, body=body, source=self.endpoint)
        return body

    @property
    def _listings(self) -> Listings:
        return Listings(self._asking, self._patience, self.endpoint, self._limits.page_keys)

    @contextlib.contextmanager
    def _asking(self, where: str) -> Iterator[S3Client]:
        """Lend the client for one request for `where`; errors are translated here alone."""
        self._traffic.asked()
        try:
            yield self._connected()
        except boto.ClientError as exc:
            raise _refusal(exc, where, self.endpoint).error() from exc
        except _NO_CREDENTIALS as exc:
            raise AccessDenied(
                f"{where}: no usable credentials ({exc}); {_GIVE_CREDENTIALS}"
            ) from exc
        except boto.SSLError as exc:
            if "CERTIFICATE_VERIFY_FAILED" in str(exc):
                raise Misconfigured(
                    f"{where}: the certificate of {self.endpoint} is not trusted ({exc}); "
                    "name its CA bundle in aws.s3.ca.bundle"
                ) from exc
            raise StoreUnavailable(f"{where}: {self.endpoint}: {exc}") from exc
        except _NO_ANSWER as exc:
            raise StoreUnavailable(f"{where}: {self.endpoint} did not answer ({exc})") from exc
        except boto.BotoCoreError as exc:
            raise Misconfigured(f"{where}: {self.endpoint}: {exc}") from exc

    def _connected(self) -> S3Client:
        with self._lock:
            if self._client is None:
                self._client = connect(self._options, self._limits)
            return self._client


_living: weakref.WeakSet[S3Store] = weakref.WeakSet()


def _begin_in_child() -> None:
    for store in _living:
        store._begin()  # noqa: SLF001 - the store's own module


os.register_at_fork(after_in_child=_begin_in_child)


def _pinned(version: ObjectVersion) -> dict[str, Any]:
    name = {"Bucket": version.bucket, "Key": version.key}
    return {**name, "VersionId": version.version_id} if version.version_id else name


def _refusal(exc: boto.ClientError, where: str, endpoint: str) -> Refusal:
    error = exc.response.get("Error", {})
    metadata = exc.response.get("ResponseMetadata", {})
    return Refusal(
        operation=exc.operation_name,
        where=where,
        endpoint=endpoint,
        status=metadata.get("HTTPStatusCode", 0),
        code=error.get("Code", ""),
        message=error.get("Message", ""),
        headers=metadata.get("HTTPHeaders", {}),
    )
