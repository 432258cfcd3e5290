"""Read a pinned object in windows, with a bounded number of windows read ahead.

consumer       |w0 yielded|
read ahead                 w1 ready | w2 in flight | w3 in flight   at most `ahead` windows
not requested                                               w4 ... dropped by close()
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from extentflow.background import BackgroundCall
from extentflow.errors import ObjectChanged, Permanent, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.storage import RangeSource

WINDOW_BYTES = 8 << 20
TAIL_BYTES = 64 << 10
MAX_READ_BYTES = 64 << 20


class PinnedReads(Protocol):
    """The part of an `ObjectStore` that a RangeReader needs."""

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly the bytes `[start, end)` of that version; see `ObjectStore`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RangeReader:
    """The RangeSource port over any store; holds no threads and no connections between calls.

    A stream runs one thread per window in flight and ends them all, so a reader may be used before
    and after a fork. Closing a stream waits up to `linger_seconds` for the windows in flight. A
    request that takes longer ends at the store's own timeout, on a daemon thread, which does not
    keep the process alive.
    """

    store: PinnedReads
    version: ObjectVersion
    window_bytes: int = WINDOW_BYTES
    ahead: int = 3
    linger_seconds: float = 2.0

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)` in one request, on the caller's thread.

        Raises as `check_request` and `check_length`.
        """
        check_request(self.version, start, end)
        body = self.store.read(self.version, start, end)
        # Again here, because any ObjectStore may stand behind the port.
        check_length(self.version, start, end, body=body, source="the store")
        return body

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)` in windows, in order; see the port. Nothing for an empty range.

        Read-ahead starts with the first `next()`. The windows are the bytes objects that the store
        returned; nothing is copied. Raises ValueError immediately, where the range is not within
        the object, or the window is not between 1 byte and 64 MiB.
        """
        window = self.window_bytes if window_bytes is None else window_bytes
        if not 0 <= start <= end <= self.version.size:
            where = range_uri(self.version, start, end)
            raise ValueError(f"{where} is not a range of {self.version.size} bytes")
        if not 0 < window <= MAX_READ_BYTES:
            raise ValueError(f"a window of {window} bytes is not in [1, {MAX_READ_BYTES}]")
        return self._windows((at, min(at + window, end)) for at in range(start, end, window))

    def _windows(self, cuts: Iterator[tuple[int, int]]) -> Iterator[bytes]:
        ahead = deque(self._fetch(*cut) for cut in itertools.islice(cuts, self.ahead))
        try:
            while ahead:
                ready = [ahead.popleft().result()]
                ahead.extend(self._fetch(*cut) for cut in itertools.islice(cuts, 1))
                # pop() leaves the consumer as the only owner, so a consumed window is freed at
                # once.
                yield ready.pop()
        finally:
            for window in ahead:
                window.wait(self.linger_seconds / self.ahead)

    def _fetch(self, start: int, end: int) -> BackgroundCall[bytes]:
        name = f"read-ahead {range_uri(self.version, start, end)}"
        return BackgroundCall(lambda: self.read(start, end), name)


def tail(
    source: RangeSource,
    start: int,
    *,
    first_bytes: int = TAIL_BYTES,
    most_bytes: int = WINDOW_BYTES,
) -> Iterator[bytes]:
    """Yield `[start, size)` in reads whose size doubles from `first_bytes`, without read-ahead.

    For the bytes after an extent's end that complete its last unit; the caller stops as soon as it
    has them.
    """
    length = first_bytes
    while start < source.version.size:
        end = min(start + length, source.version.size)
        yield source.read(start, end)
        start, length = end, min(2 * length, most_bytes)


def range_uri(version: ObjectVersion, start: int, end: int) -> str:
    """Return `s3://bucket/key[start-end)`, the form in which messages name a range."""
    return f"{version.uri}[{start}-{end})"


def unquote_etag(etag: str) -> str:
    """Return an ETag without its quotes, as pins hold it."""
    return etag.removeprefix('"').removesuffix('"')


def whole_seconds(time: datetime | None) -> int:
    """Return seconds since the epoch, 0 without a time.

    Listings of some servers have fractions of a second, which their answers to HEAD lack.
    """
    return 0 if time is None else int(time.timestamp())


def check_request(version: ObjectVersion, start: int, end: int) -> None:
    """Raise ValueError unless `0 <= start < end <= size` and the range is at most 64 MiB.

    Memory must not grow with the object; `RangeReader.stream` reads any range.
    """
    where = range_uri(version, start, end)
    if not 0 <= start < end <= version.size:
        raise ValueError(f"{where} is not a range of {version.size} bytes")
    if end - start > MAX_READ_BYTES:
        raise ValueError(f"{where} is more than {MAX_READ_BYTES} bytes; read it with stream()")


def check_etag(version: ObjectVersion, etag: str | None, *, where: str, endpoint: str) -> None:
    """Compare a response's ETag, with or without quotes, with the pinned one.

    Raises ObjectChanged where it differs; Permanent where it is missing. A version with an id never
    changes: another ETag for it is a wrong response, and raises StoreUnavailable.
    """
    if not etag:
        raise Permanent(
            f"{where}: {endpoint} sent no ETag, so a replaced object could not be detected; "
            "use an endpoint that sends ETags"
        )
    found = unquote_etag(etag)
    if found != version.etag and version.version_id is not None:
        raise StoreUnavailable(
            f"{where}: {endpoint} sent the ETag {found} for a version whose ETag is {version.etag}"
        )
    if found != version.etag:
        raise object_changed(where, f"its ETag is {found}, not {version.etag}")


def check_length(version: ObjectVersion, start: int, end: int, *, body: bytes, source: str) -> None:
    """Raise StoreUnavailable for a body that is shorter or longer than the range."""
    if len(body) != end - start:
        raise StoreUnavailable(
            f"{range_uri(version, start, end)}: {source} sent {len(body)} bytes instead of"
            f" {end - start}"
        )


def object_changed(where: str, difference: str) -> ObjectChanged:
    """Return the error for an object that was replaced after planning."""
    return ObjectChanged(
        f"{where} was replaced after planning ({difference}); "
        "run its address again to deliver the new version as a job of its own, if it was not"
        " delivered yet"
    )


class TransferCounters:
    """One store's requests, failed ones too, and body bytes received; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.fetched_bytes = 0

    def count(self, *, requests: int = 0, body_bytes: int = 0) -> None:
        """Add requests, and bytes of response bodies, including discarded bodies."""
        with self._lock:
            self.requests += requests
            self.fetched_bytes += body_bytes
