"""The ObjectStore port over S3: conditional requests, verified against the pin and retried.

botocore's own retries are off. The store retries instead, because it must compare every response
with the pin, bound the total time, and name the range in errors.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import boto3.session
import botocore.exceptions as boto
import botocore.session
import urllib3.exceptions
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from extentflow.aws import NO_ANSWER, check_connections, new_botocore_session, refusal
from extentflow.errors import (
    AccessDenied,
    Misconfigured,
    ObjectGone,
    Permanent,
    Retryable,
    StoreUnavailable,
    reason,
)
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.storage import ListedObject, ObjectProperties, Page, StoreOptions, ranges
from extentflow.storage.ranges import TransferCounters
from extentflow.storage.s3.changes import ObjectChanges
from extentflow.storage.s3.error_codes import S3Error, bucket_gone
from extentflow.storage.s3.folder import S3Folder
from extentflow.storage.s3.object_lists import Listings
from extentflow.storage.s3.uploads import Uploads

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
    "aws.access.key.id and aws.secret.access.key, for example ${env:NAME}"
)
# Among NO_ANSWER is ResponseParserError: a listing truncated inside its XML. HTTPError: urllib3
# raises it while a body is read, and botocore does not translate it.
_TRANSPORT_ERRORS = (*NO_ANSWER, boto.IncompleteReadError, urllib3.exceptions.HTTPError)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of a single request.

    `read_seconds` bounds the time without any received byte, not the whole download. `connections`
    is the size of the pool: windows read ahead times extents in work in one process.
    """

    connect_seconds: float = 3.0
    read_seconds: float = 20.0
    connections: int = 32
    page_keys: int = 1000


class S3Store:
    """The ObjectStore port over S3; creates its client at first use, and again in a forked child.

    Raises Misconfigured for invalid options, all problems at once.
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
        page_keys = self._limits.page_keys
        self._listings = Listings(self._request, self._retry, self.endpoint, page_keys)
        # S3 documents conditions of its requests; other servers may ignore them.
        self._is_aws = not (options.endpoint or configured)
        self._changes = ObjectChanges(self._request, self._retry, self.endpoint, self._is_aws)
        self._reset()
        _open_stores.add(self)

    def _reset(self) -> None:
        # A forked child must not share sockets, counters, or a lock that its parent's thread held.
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

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        for found in self._listings.keys(bucket, prefix):
            yield ListedObject(found.bucket, found.key, found.etag, found.size)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        return self._listings.pages(bucket, prefix, token)

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        return self._changes.properties(version)

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        return self._changes.tags(version)

    def tag(self, version: ObjectVersion, name: str, value: str) -> None:
        self._changes.tag(version, name, value)

    def copy(self, version: ObjectVersion, bucket: str, key: str) -> None:
        self._changes.copy(version, bucket, key)

    def delete(self, version: ObjectVersion) -> None:
        self._changes.delete(version)

    def require_conditional_deletes(self, bucket: str, folder: str) -> None:
        self._changes.require_conditional_deletes(bucket, folder)

    def folder(self, bucket: str, prefix: str) -> S3Folder:
        """Return a folder of a bucket; `prefix` is empty or ends with `/`."""
        uploads = Uploads(self._request, self._retry, self.endpoint, is_aws=self._is_aws)
        return S3Folder(uploads, self._listings, bucket, prefix)

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
        pinned = None if found == "null" else found
        modified = ranges.whole_seconds(response.get("LastModified"))
        return ObjectVersion(bucket, key, pinned, etag, response["ContentLength"], modified)

    def _bucket_exists(self, bucket: str) -> bool:
        """Tell a missing bucket from a missing key: the response to HEAD has no error code."""
        # Where it is unclear whether the bucket exists, the missing key is reported.
        unclear = contextlib.suppress(AccessDenied, Retryable)
        try:
            with unclear, self._request(f"s3://{bucket}") as client:
                client.head_bucket(Bucket=bucket)
        except ObjectGone:
            return False
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
        # A cut connection or a proxy can end a body early without an error.
        ranges.check_length(version, start, end, body=body, source=self.endpoint)
        return body

    def _check_response(
        self, version: ObjectVersion, start: int, end: int, response: GetObjectOutputTypeDef
    ) -> None:
        """Compare status and headers with the pin, before the body is read.

        Status 200 is accepted only where the range is the whole object: the body then is that
        range. Buffering a larger object could exhaust the memory.
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
            if refused := refusal(exc):
                raise Misconfigured(f"{where}: {reason(refused)}") from exc
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


def find_problems(options: StoreOptions) -> Iterator[str]:
    """Yield one line for each invalid option or combination of options."""
    if (endpoint := options.endpoint) is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield f"aws.s3.endpoint {endpoint!r} is not a URL of the form https://host:port"
    if bool(options.access_key_id) != bool(options.secret_access_key):
        yield "aws.access.key.id and aws.secret.access.key must be set together"
    if options.role_external_id and not options.role_arn:
        yield "aws.sts.role.external.id needs aws.sts.role.arn"
    if options.verify is not None and not Path(options.verify).exists():
        yield f"aws.s3.ca.bundle {options.verify}: no such file or directory"


def connect(options: StoreOptions, limits: RequestLimits) -> S3Client:
    """Return a new client; usable from several threads, but not in a forked child."""
    config = Config(
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        max_pool_connections=limits.connections,
        retries={"mode": "standard", "total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    session = new_botocore_session()
    if options.access_key_id and options.secret_access_key:
        session.set_credentials(options.access_key_id, options.secret_access_key)
    if options.role_arn:
        session = _in_role(session, options.role_arn, options=options, config=config)
    style: Literal["auto", "path", "virtual"] = "path" if options.endpoint else "auto"
    if options.path_style is not None:
        style = "path" if options.path_style else "virtual"
    client = boto3.session.Session(botocore_session=session).client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint,
        verify=options.verify,
        config=config.merge(Config(s3={"addressing_style": style})),
    )
    # Without one in the connector, the endpoint is that of AWS or of the owner's variables.
    if options.endpoint and options.trust is not None:
        check_connections(client, options.trust.host_rule.check)
    return client


def _in_role(
    source: botocore.session.Session, role_arn: str, *, options: StoreOptions, config: Config
) -> botocore.session.Session:
    credentials = source.get_credentials()
    if credentials is None:
        raise boto.NoCredentialsError
    external = {"ExternalId": options.role_external_id} if options.role_external_id else {}
    fetcher = AssumeRoleCredentialFetcher(
        functools.partial(source.create_client, region_name=options.region, config=config),
        credentials,
        role_arn,
        extra_args={"RoleSessionName": "extentflow", **external},
    )
    session = new_botocore_session()
    session.register_component("credential_provider", CredentialResolver([_RoleProvider(fetcher)]))
    return session


class _RoleProvider(CredentialProvider):
    """Credentials of an assumed role, fetched at first use and refreshed before they expire."""

    METHOD = "assume-role"

    def __init__(self, fetcher: AssumeRoleCredentialFetcher) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(self._fetcher.fetch_credentials, self.METHOD)
