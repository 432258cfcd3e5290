"""How an S3 server is asked what there is: keys by ListObjectsV2, versions by ListObjectVersions.

Owns: pages, their tokens, which of the two is asked. Refuses to know: the client, what a refusal
means, what is done with the objects.

    the bucket never kept versions        keys: ETags are all the pins there are
    it keeps them, or did once            versions, those that are current
    ... and its server refuses to list    keys, without version ids, and a warning: every one of
        versions, or loses some of them   them costs a HEAD until somebody knows its version

Keys are url-encoded where the server says so: botocore leaves that to us when it is asked for.
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

from extentflow.errors import Permanent
from extentflow.model import ObjectVersion
from extentflow.storage import Page, pins
from extentflow.storage.retry import Patience
from extentflow.storage.s3.refusals import Unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef, ListObjectVersionsOutputTypeDef

log = logging.getLogger(__name__)

# Seen of 4.48: whatever sorts differently by directory and by key (d/x, d.x, d-1/x) is lost at the
# edge of two pages of versions. Its ListObjectsV2 is complete.
_LOSING_VERSIONS = ("SeaweedFS",)
_NULL = "null"


class VersionsUnlisted(Unsupported):
    """The server does not list versions, or not all of them."""


_Kind = Literal["keys", "versions"]
_KINDS: Mapping[str, _Kind] = {"keys": "keys", "versions": "versions"}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a listing goes on: the next page's markers."""

    kind: _Kind
    markers: Mapping[str, str]

    def to_token(self) -> str:
        return json.dumps([self.kind, self.markers], separators=(",", ":"))

    @classmethod
    def of_token(cls, token: str, where: str) -> _Place:
        try:
            kind, markers = json.loads(token)
            return cls(_KINDS[kind], {**markers})
        except (ValueError, TypeError, KeyError) as exc:
            raise Permanent(f"{where}: {token!r} is no place to go on from; list anew") from exc


_KEYS, _VERSIONS = _Place("keys", {}), _Place("versions", {})
_Found = tuple[list[ObjectVersion], _Place | None]


@dataclass(frozen=True, slots=True)
class Listings:
    """Listings of one store. `asking` lends its client for one request, as `S3Store` does."""

    asking: Callable[[str], AbstractContextManager[S3Client]]
    patience: Patience
    endpoint: str
    page_keys: int

    def pages(self, bucket: str, prefix: str, token: str | None) -> Iterator[Page]:
        """Yield pages of current versions; see `ObjectStore.pages`."""
        where = f"s3://{bucket}/{prefix}*"
        place = self._begin(bucket) if token is None else _Place.of_token(token, where)
        while True:
            ask = functools.partial(self._page, bucket, prefix, place)
            try:
                found, following = self.patience.retried(ask)
            except VersionsUnlisted as exc:
                log.warning("%s; its keys are listed without version ids", exc)
                place = _KEYS
                continue
            yield Page(tuple(found), following.to_token() if following else None)
            if following is None:
                return
            place = following

    def keys(self, bucket: str, prefix: str) -> Iterator[ObjectVersion]:
        """Yield every key, pinned by its ETag alone."""
        place: _Place | None = _KEYS
        while place is not None:
            ask = functools.partial(self._page, bucket, prefix, place)
            found, place = self.patience.retried(ask)
            yield from found

    def _begin(self, bucket: str) -> _Place:
        return _VERSIONS if self.patience.retried(lambda: self._versioned(bucket)) else _KEYS

    def _versioned(self, bucket: str) -> bool:
        try:
            with self.asking(f"s3://{bucket}") as client:
                status = client.get_bucket_versioning(Bucket=bucket).get("Status")
        except Unsupported:
            return False
        return status in ("Enabled", "Suspended")

    def _page(self, bucket: str, prefix: str, place: _Place) -> _Found:
        if place.kind == "keys":
            return self._page_of_keys(bucket, prefix, place)
        return self._page_of_versions(bucket, prefix, place)

    # -- keys -----------------------------------------------------------------------------------

    def _page_of_keys(self, bucket: str, prefix: str, place: _Place) -> _Found:
        where = f"s3://{bucket}/{prefix}*"
        page = self._ask_keys(bucket, prefix, self.page_keys, place.markers)
        following = self._following(page, where, ContinuationToken="NextContinuationToken")
        decoded = _decoder(page)
        found = [
            ObjectVersion(
                bucket,
                decoded(item["Key"]),
                None,
                pins.unquoted(item.get("ETag", "")),
                item["Size"],
            )
            for item in page.get("Contents", ())
        ]
        self._check_moves(place.markers, following, where)
        return found, _Place("keys", following) if following else None

    def _ask_keys(
        self, bucket: str, prefix: str, most: int, markers: Mapping[str, str]
    ) -> ListObjectsV2OutputTypeDef:
        going_on: dict[str, Any] = dict(markers)
        with self.asking(f"s3://{bucket}/{prefix}*") as client:
            return client.list_objects_v2(
                Bucket=bucket, Prefix=prefix, EncodingType="url", MaxKeys=most, **going_on
            )

    # -- versions -------------------------------------------------------------------------------

    def _page_of_versions(self, bucket: str, prefix: str, place: _Place) -> _Found:
        where = f"s3://{bucket}/{prefix}*"
        going_on: dict[str, Any] = dict(place.markers)
        try:
            with self.asking(where) as client:
                page = client.list_object_versions(
                    Bucket=bucket,
                    Prefix=prefix,
                    EncodingType="url",
                    MaxKeys=self.page_keys,
                    **going_on,
                )
        except Unsupported as exc:
            raise VersionsUnlisted(str(exc)) from exc
        self._check_complete(page, bucket, prefix)
        decoded = _decoder(page)
        following = self._following(
            page, where, KeyMarker="NextKeyMarker", VersionIdMarker="NextVersionIdMarker"
        )
        if following:
            following["KeyMarker"] = decoded(following["KeyMarker"])
        self._check_moves(place.markers, following, where)
        found = list(self._current(page, bucket, decoded))
        return found, _Place("versions", following) if following else None

    def _current(
        self, page: ListObjectVersionsOutputTypeDef, bucket: str, decoded: Callable[[str], str]
    ) -> Iterator[ObjectVersion]:
        for item in page.get("Versions", ()):
            key = decoded(item["Key"])
            if "IsLatest" not in item:
                raise VersionsUnlisted(
                    f"s3://{bucket}/{key}: {self.endpoint} does not say which version is current"
                )
            if item["IsLatest"]:
                version_id = item.get("VersionId", _NULL)
                yield ObjectVersion(
                    bucket,
                    key,
                    None if version_id == _NULL else version_id,
                    pins.unquoted(item.get("ETag", "")),
                    item["Size"],
                )

    def _check_complete(
        self, page: ListObjectVersionsOutputTypeDef, bucket: str, prefix: str
    ) -> None:
        """Refuse a page of versions by a server that ignored the question, or that loses some."""
        where = f"s3://{bucket}/{prefix}*"
        server = page["ResponseMetadata"]["HTTPHeaders"].get("server", "")
        if page.get("IsTruncated") and server.startswith(_LOSING_VERSIONS):
            raise VersionsUnlisted(
                f"{where}: {self.endpoint} ({server}) loses keys where a listing of versions has "
                "more than one page"
            )
        answered = bool(page.get("Versions") or page.get("DeleteMarkers"))
        if not answered and self._ask_keys(bucket, prefix, 1, {}).get("Contents"):
            raise VersionsUnlisted(
                f"{where}: {self.endpoint} lists no versions, although there are keys"
            )

    # -- going on -------------------------------------------------------------------------------

    def _following(
        self,
        page: ListObjectsV2OutputTypeDef | ListObjectVersionsOutputTypeDef,
        where: str,
        **names: str,
    ) -> dict[str, str] | None:
        """Return the next page's markers; a listing ends only where the server says so.

        `names` maps what a request calls them to what an answer does; the first has to be there.
        """
        if "IsTruncated" not in page:
            raise Permanent(f"{where}: {self.endpoint} does not say whether keys are left")
        if not page["IsTruncated"]:
            return None
        answer: Mapping[str, Any] = {**page}
        found = {asked: answer[told] for asked, told in names.items() if answer.get(told)}
        if next(iter(names)) not in found:
            raise self._nowhere(where)
        return found

    def _check_moves(
        self, before: Mapping[str, str], following: Mapping[str, str] | None, where: str
    ) -> None:
        if following is not None and following == before:
            raise self._nowhere(where)

    def _nowhere(self, where: str) -> Permanent:
        return Permanent(f"{where}: {self.endpoint} says keys are left but not where to go on")


def _decoder(
    page: ListObjectsV2OutputTypeDef | ListObjectVersionsOutputTypeDef,
) -> Callable[[str], str]:
    return unquote_plus if page.get("EncodingType") == "url" else str
