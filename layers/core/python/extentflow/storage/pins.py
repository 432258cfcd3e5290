"""Checks that every response must pass before its bytes leave a store, and request counters.

Servers may ignore If-Match and Range, and proxies may truncate bodies. Every response is therefore
compared with the pin:

    200 for a request of a range            -> Permanent         before the body is read
    no ETag                                 -> Permanent         the version cannot be verified
    another ETag, another total size        -> ObjectChanged
    another range, another length           -> StoreUnavailable  the caller retries
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from http import HTTPStatus

from extentflow.errors import ObjectChanged, Permanent, StoreUnavailable
from extentflow.model import ObjectVersion

MAX_READ_BYTES = 64 << 20

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class RangeResponse:
    """Status and headers of a response to a ranged GET, before its body is read."""

    status: int
    etag: str | None
    content_range: str | None


def range_uri(version: ObjectVersion, start: int, end: int) -> str:
    """Return `s3://bucket/key[start-end)`, the form in which messages name a range."""
    return f"{version.uri}[{start}-{end})"


def unquote_etag(etag: str) -> str:
    """Return an ETag without its quotes, as pins hold it."""
    return etag.removeprefix('"').removesuffix('"')


def check_request(version: ObjectVersion, start: int, end: int) -> None:
    """Check the bounds of a request.

    Raises:
        ValueError: not `0 <= start < end <= size`, or more than 64 MiB at once, because memory must
            not grow with the object (trap T17); `RangeReader.stream` reads any range in windows.
    """
    if not 0 <= start < end <= version.size:
        raise ValueError(f"{range_uri(version, start, end)} is not a range of {version.size} bytes")
    if end - start > MAX_READ_BYTES:
        raise ValueError(
            f"{range_uri(version, start, end)} is more than {MAX_READ_BYTES} "
            "bytes; read it with stream()"
        )


def check_response(
    version: ObjectVersion, start: int, end: int, *, response: RangeResponse, endpoint: str
) -> None:
    """Compare status and headers with the pin; called before the body is read.

    Status 200 is accepted only where the range is the whole object: the body then is that range.

    Raises:
        Permanent: the endpoint ignores the Range header, or sends no ETag.
        ObjectChanged: ETag or total size differ from the pin.
        StoreUnavailable: the response contains another range.
    """
    where = range_uri(version, start, end)
    whole = response.status == HTTPStatus.OK
    if whole and (start, end) != (0, version.size):
        raise Permanent(
            f"{where}: {endpoint} ignored the Range header and answered 200 with the whole object; "
            "use an endpoint, or a proxy setting, that honours Range"
        )
    check_etag(version, response.etag, where=where, endpoint=endpoint)
    if not whole:
        _check_content_range(version, start, end, response=response, endpoint=endpoint)


def check_etag(version: ObjectVersion, etag: str | None, *, where: str, endpoint: str) -> None:
    """Compare a response's ETag, with or without quotes, with the pinned one.

    Raises:
        Permanent: it is missing, so the version cannot be verified.
        ObjectChanged: it differs.
    """
    if not etag:
        raise Permanent(
            f"{where}: {endpoint} sent no ETag, so a replaced object could not be detected; "
            "use an endpoint that sends ETags"
        )
    if unquote_etag(etag) != version.etag:
        raise object_changed(where, f"its ETag is {unquote_etag(etag)}, not {version.etag}")


def check_length(version: ObjectVersion, start: int, end: int, *, body: bytes, source: str) -> None:
    """Compare the body's length with the range's.

    Raises:
        StoreUnavailable: the body is shorter or longer.
    """
    where, wanted = range_uri(version, start, end), end - start
    if len(body) != wanted:
        raise StoreUnavailable(f"{where}: {source} sent {len(body)} bytes instead of {wanted}")


def object_changed(where: str, difference: str) -> ObjectChanged:
    """Return the error for an object that was replaced after planning."""
    return ObjectChanged(
        f"{where} was replaced after planning ({difference}); "
        "run its address again to deliver the new version as a job of its own"
    )


def _check_content_range(
    version: ObjectVersion, start: int, end: int, *, response: RangeResponse, endpoint: str
) -> None:
    where = range_uri(version, start, end)
    parsed = _CONTENT_RANGE.fullmatch(response.content_range or "")
    if parsed is None:
        raise StoreUnavailable(
            f"{where}: {endpoint} answered {response.status} with Content-Range "
            f"{response.content_range!r}; expected bytes {start}-{end - 1}/{version.size}"
        )
    first, last, total = parsed.groups()
    if total not in ("*", str(version.size)):
        raise object_changed(where, f"it has {total} bytes, not {version.size}")
    if (int(first), int(last)) != (start, end - 1):
        raise StoreUnavailable(f"{where}: {endpoint} sent bytes {first}-{last} instead")


class TransferCounters:
    """Counts one store's requests and received body bytes in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._fetched_bytes = 0

    @property
    def requests(self) -> int:
        """Requests made, including failed attempts."""
        return self._requests

    @property
    def fetched_bytes(self) -> int:
        """Bytes of object bodies received, including discarded bodies."""
        return self._fetched_bytes

    def count_request(self) -> None:
        """Count one request."""
        with self._lock:
            self._requests += 1

    def count_body(self, body_bytes: int) -> None:
        """Add the bytes of one response body."""
        with self._lock:
            self._fetched_bytes += body_bytes
