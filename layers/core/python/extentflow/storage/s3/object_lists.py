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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from extentflow.errors import Permanent
from extentflow.model import ObjectVersion
from extentflow.retry import RetryPolicy
from extentflow.storage import Page, ranges
from extentflow.storage.s3.error_codes import Unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ListObjectVersionsOutputTypeDef

log = logging.getLogger(__name__)

# SeaweedFS 4.48 loses keys at the edge of two pages of versions where the order by directory
# differs from the order by key (d/x, d.x, d-1/x). Its ListObjectsV2 is complete.
_SERVERS_LOSING_VERSIONS = ("SeaweedFS",)


class VersionsUnlisted(Unsupported):
    """The server cannot list versions, or lists them incompletely."""


# Of each kind of request: its parameters for the next page and the elements of the response that
# contain them; the first one is mandatory.
_MARKERS = {
    "keys": {"ContinuationToken": "NextContinuationToken"},
    "versions": {"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"},
}


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The request parameters of the next page."""

    kind: str
    markers: Mapping[str, str]

    @classmethod
    def from_token(cls, token: str, where: str) -> _Cursor:
        try:
            kind, markers = json.loads(token)
            _ = _MARKERS[kind]  # KeyError
            return cls(kind, {**markers})
        except (ValueError, TypeError, KeyError) as exc:
            raise Permanent(
                f"{where}: {token!r} is not a continuation token of this store; "
                "start the listing again"
            ) from exc


_KEYS, _VERSIONS = _Cursor("keys", {}), _Cursor("versions", {})


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
        if token is not None:
            cursor = _Cursor.from_token(token, where)
        else:
            cursor = _VERSIONS if self.retry.call(lambda: self._versioned(bucket)) else _KEYS
        while True:
            request = functools.partial(self._page, bucket, prefix, cursor)
            try:
                found, following = self.retry.call(request)
            except VersionsUnlisted as exc:
                log.warning("%s; its keys are listed without version ids", exc)
                cursor = _KEYS
                continue
            if following is None:
                yield Page(tuple(found))
                return
            cursor = following
            token = json.dumps([cursor.kind, cursor.markers], separators=(",", ":"))
            yield Page(tuple(found), token)

    def keys(self, bucket: str, prefix: str, after: str = "") -> Iterator[ObjectVersion]:
        """Yield every key behind `after`, pinned by its ETag only."""
        cursor: _Cursor | None = _Cursor("keys", {"StartAfter": after}) if after else _KEYS
        while cursor is not None:
            request = functools.partial(self._page, bucket, prefix, cursor)
            found, cursor = self.retry.call(request)
            yield from found

    def _versioned(self, bucket: str) -> bool:
        with suppress(Unsupported), self.request(f"s3://{bucket}") as client:
            status = client.get_bucket_versioning(Bucket=bucket).get("Status")
            return status in ("Enabled", "Suspended")
        return False

    def _page(
        self, bucket: str, prefix: str, cursor: _Cursor
    ) -> tuple[list[ObjectVersion], _Cursor | None]:
        where = f"s3://{bucket}/{prefix}*"
        page: Mapping[str, Any]
        items: Sequence[Mapping[str, Any]]
        if cursor.kind == "keys":
            page = self._list_keys(bucket, prefix, self.page_keys, cursor.markers)
            items = page.get("Contents", ())
        else:
            page = self._list_versions(bucket, prefix, cursor.markers)
            items = page.get("Versions", ())
        decoded = unquote_plus if page.get("EncodingType") == "url" else str
        following = self._next_page(page, cursor, decoded, where)
        found = []
        for item in items:
            key, etag = decoded(item["Key"]), ranges.unquote_etag(item.get("ETag", ""))
            if cursor.kind == "versions" and "IsLatest" not in item:
                raise VersionsUnlisted(
                    f"s3://{bucket}/{key}: {self.endpoint} does not report which version is current"
                )
            if item.get("IsLatest", True):
                version_id: Any = item.get("VersionId")
                pinned = None if version_id == "null" else version_id
                modified = ranges.whole_seconds(item.get("LastModified"))
                found.append(ObjectVersion(bucket, key, pinned, etag, item["Size"], modified))
        return found, following

    def _list_keys(
        self, bucket: str, prefix: str, most: int, markers: Mapping[str, Any]
    ) -> ListObjectsV2OutputTypeDef:
        with self.request(f"s3://{bucket}/{prefix}*") as client:
            # XML cannot carry every character of a key, so S3 encodes keys.
            return client.list_objects_v2(
                Bucket=bucket, Prefix=prefix, EncodingType="url", MaxKeys=most, **markers
            )

    def _list_versions(
        self, bucket: str, prefix: str, markers: Mapping[str, Any]
    ) -> ListObjectVersionsOutputTypeDef:
        """Raise where the server ignored the request for versions, or is known to lose entries."""
        where = f"s3://{bucket}/{prefix}*"
        try:
            with self.request(where) as client:
                page = client.list_object_versions(
                    Bucket=bucket,
                    Prefix=prefix,
                    EncodingType="url",
                    MaxKeys=self.page_keys,
                    **markers,
                )
        except Unsupported as exc:
            raise VersionsUnlisted(str(exc)) from exc
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
        return page

    def _next_page(
        self, page: Mapping[str, Any], cursor: _Cursor, decoded: Callable[[str], str], where: str
    ) -> _Cursor | None:
        if "IsTruncated" not in page:
            raise Permanent(
                f"{where}: the response of {self.endpoint} has no IsTruncated; it may be incomplete"
            )
        if not page["IsTruncated"]:
            return None
        names = _MARKERS[cursor.kind]
        found = {name: page[element] for name, element in names.items() if page.get(element)}
        if "KeyMarker" in found:
            found["KeyMarker"] = decoded(found["KeyMarker"])
        if next(iter(names)) not in found or found == cursor.markers:
            raise Permanent(
                f"{where}: {self.endpoint} reports more keys without a new continuation token"
            )
        return _Cursor(cursor.kind, found)
