"""List current object versions, by ListObjectsV2 or by ListObjectVersions.

    versioning of the bucket            request
    never enabled                       ListObjectsV2: the ETag is the whole pin
    enabled or suspended                ListObjectVersions, current versions only
    ... but the server rejects          ListObjectsV2 without version ids, and a warning: planning
        ListObjectVersions or           then sends one HEAD request per key
        loses entries of it

Requests ask for url-encoded keys, because XML cannot carry every character; botocore decodes them
only where it added that parameter itself.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_plus

from extentflow.errors import Permanent, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.storage import Page, ranges
from extentflow.storage.s3.errors import Unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ListObjectVersionsOutputTypeDef

log = logging.getLogger(__name__)

# SeaweedFS 4.48 loses keys at the edge of two pages of versions where the order by directory
# differs
# from the order by key (d/x, d.x, d-1/x). Its ListObjectsV2 is complete.
_SERVERS_LOSING_VERSIONS = ("SeaweedFS",)
_NULL_VERSION = "null"


class VersionsUnlisted(Unsupported):
    """The server cannot list versions, or lists them incompletely."""


_Kind = Literal["keys", "versions"]
_KINDS: Mapping[str, _Kind] = {"keys": "keys", "versions": "versions"}


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The request parameters of the next page."""

    kind: _Kind
    markers: Mapping[str, str]

    def to_token(self) -> str:
        return json.dumps([self.kind, self.markers], separators=(",", ":"))

    @classmethod
    def from_token(cls, token: str, where: str) -> _Cursor:
        try:
            kind, markers = json.loads(token)
            return cls(_KINDS[kind], {**markers})
        except (ValueError, TypeError, KeyError) as exc:
            raise Permanent(
                f"{where}: {token!r} is not a continuation token of this store; "
                "start the listing again"
            ) from exc


_KEYS, _VERSIONS = _Cursor("keys", {}), _Cursor("versions", {})
_PageResult = tuple[list[ObjectVersion], _Cursor | None]


@dataclass(frozen=True, slots=True)
class Listings:
    """Lists one store; `request` yields its client for one request and translates errors."""

    request: Callable[[str], AbstractContextManager[S3Client]]
    retry: RetryPolicy
    endpoint: str
    page_keys: int

    def pages(self, bucket: str, prefix: str, token: str | None) -> Iterator[Page]:
        """Yield pages of current versions; see `ObjectStore.pages`."""
        where = f"s3://{bucket}/{prefix}*"
        cursor = self._first_cursor(bucket) if token is None else _Cursor.from_token(token, where)
        while True:
            request = functools.partial(self._page, bucket, prefix, cursor)
            try:
                found, following = self.retry.call(request, retry_on=StoreUnavailable)
            except VersionsUnlisted as exc:
                log.warning("%s; its keys are listed without version ids", exc)
                cursor = _KEYS
                continue
            yield Page(tuple(found), following.to_token() if following else None)
            if following is None:
                return
            cursor = following

    def keys(self, bucket: str, prefix: str) -> Iterator[ObjectVersion]:
        """Yield every key, pinned by its ETag only."""
        cursor: _Cursor | None = _KEYS
        while cursor is not None:
            request = functools.partial(self._page, bucket, prefix, cursor)
            found, cursor = self.retry.call(request, retry_on=StoreUnavailable)
            yield from found

    def _first_cursor(self, bucket: str) -> _Cursor:
        versioned = self.retry.call(lambda: self._versioned(bucket), retry_on=StoreUnavailable)
        return _VERSIONS if versioned else _KEYS

    def _versioned(self, bucket: str) -> bool:
        try:
            with self.request(f"s3://{bucket}") as client:
                status = client.get_bucket_versioning(Bucket=bucket).get("Status")
        except Unsupported:
            return False
        return status in ("Enabled", "Suspended")

    def _page(self, bucket: str, prefix: str, cursor: _Cursor) -> _PageResult:
        if cursor.kind == "keys":
            return self._keys_page(bucket, prefix, cursor)
        return self._versions_page(bucket, prefix, cursor)

    # -- keys -----------------------------------------------------------------------------------

    def _keys_page(self, bucket: str, prefix: str, cursor: _Cursor) -> _PageResult:
        where = f"s3://{bucket}/{prefix}*"
        page = self._list_keys(bucket, prefix, self.page_keys, cursor.markers)
        following = self._next_markers(page, where, ContinuationToken="NextContinuationToken")
        decoded = _decoder(page)
        found = [
            ObjectVersion(
                bucket,
                decoded(item["Key"]),
                None,
                ranges.unquote_etag(item.get("ETag", "")),
                item["Size"],
            )
            for item in page.get("Contents", ())
        ]
        self._check_progress(cursor.markers, following, where)
        return found, _Cursor("keys", following) if following else None

    def _list_keys(
        self, bucket: str, prefix: str, most: int, markers: Mapping[str, str]
    ) -> ListObjectsV2OutputTypeDef:
        parameters: dict[str, Any] = dict(markers)
        with self.request(f"s3://{bucket}/{prefix}*") as client:
            return client.list_objects_v2(
                # XML cannot carry every character of a key, so S3 encodes keys (trap T20).
                Bucket=bucket,
                Prefix=prefix,
                EncodingType="url",
                MaxKeys=most,
                **parameters,
            )

    # -- versions -------------------------------------------------------------------------------

    def _versions_page(self, bucket: str, prefix: str, cursor: _Cursor) -> _PageResult:
        where = f"s3://{bucket}/{prefix}*"
        parameters: dict[str, Any] = dict(cursor.markers)
        try:
            with self.request(where) as client:
                page = client.list_object_versions(
                    Bucket=bucket,
                    Prefix=prefix,
                    EncodingType="url",
                    MaxKeys=self.page_keys,
                    **parameters,
                )
        except Unsupported as exc:
            raise VersionsUnlisted(str(exc)) from exc
        self._check_complete(page, bucket, prefix)
        decoded = _decoder(page)
        following = self._next_markers(
            page, where, KeyMarker="NextKeyMarker", VersionIdMarker="NextVersionIdMarker"
        )
        if following:
            following["KeyMarker"] = decoded(following["KeyMarker"])
        self._check_progress(cursor.markers, following, where)
        found = list(self._current(page, bucket, decoded))
        return found, _Cursor("versions", following) if following else None

    def _current(
        self, page: ListObjectVersionsOutputTypeDef, bucket: str, decoded: Callable[[str], str]
    ) -> Iterator[ObjectVersion]:
        for item in page.get("Versions", ()):
            key = decoded(item["Key"])
            if "IsLatest" not in item:
                raise VersionsUnlisted(
                    f"s3://{bucket}/{key}: {self.endpoint} does not report which version is current"
                )
            if item["IsLatest"]:
                version_id = item.get("VersionId", _NULL_VERSION)
                yield ObjectVersion(
                    bucket,
                    key,
                    None if version_id == _NULL_VERSION else version_id,
                    ranges.unquote_etag(item.get("ETag", "")),
                    item["Size"],
                )

    def _check_complete(
        self, page: ListObjectVersionsOutputTypeDef, bucket: str, prefix: str
    ) -> None:
        """Raise where the server ignored the request for versions, or is known to lose entries."""
        where = f"s3://{bucket}/{prefix}*"
        server = page["ResponseMetadata"]["HTTPHeaders"].get("server", "")
        if page.get("IsTruncated") and server.startswith(_SERVERS_LOSING_VERSIONS):
            raise VersionsUnlisted(
                f"{where}: {self.endpoint} ({server}) loses keys between pages of a listing of "
                "versions"
            )
        has_entries = bool(page.get("Versions") or page.get("DeleteMarkers"))
        if not has_entries and self._list_keys(bucket, prefix, 1, {}).get("Contents"):
            raise VersionsUnlisted(
                f"{where}: {self.endpoint} lists no versions, although the prefix contains keys"
            )

    # -- pagination -----------------------------------------------------------------------------

    def _next_markers(
        self,
        page: ListObjectsV2OutputTypeDef | ListObjectVersionsOutputTypeDef,
        where: str,
        **names: str,
    ) -> dict[str, str] | None:
        """Return the parameters of the next page, or None where IsTruncated is false.

        `names` maps each request parameter to the response element; the first one is mandatory.
        """
        if "IsTruncated" not in page:
            raise Permanent(
                f"{where}: the response of {self.endpoint} has no IsTruncated; it may be incomplete"
            )
        if not page["IsTruncated"]:
            return None
        elements: Mapping[str, Any] = {**page}
        found = {
            parameter: elements[element]
            for parameter, element in names.items()
            if elements.get(element)
        }
        if next(iter(names)) not in found:
            raise self._no_next_page(where)
        return found

    def _check_progress(
        self, before: Mapping[str, str], following: Mapping[str, str] | None, where: str
    ) -> None:
        if following is not None and following == before:
            raise self._no_next_page(where)

    def _no_next_page(self, where: str) -> Permanent:
        return Permanent(
            f"{where}: {self.endpoint} reports more keys without a new continuation token"
        )


def _decoder(
    page: ListObjectsV2OutputTypeDef | ListObjectVersionsOutputTypeDef,
) -> Callable[[str], str]:
    return unquote_plus if page.get("EncodingType") == "url" else str
