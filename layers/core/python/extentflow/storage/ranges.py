"""Read a pinned object in windows, with a bounded number of windows read ahead.

consumer       |w0 yielded|
read ahead                 w1 ready | w2 in flight | w3 in flight   at most `ahead` windows
not requested                                               w4 ... dropped by close()
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus

from extentflow.background import ExceptionRelay
from extentflow.errors import ObjectChanged, Permanent, StoreUnavailable
from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore, RangeSource

WINDOW_BYTES = 8 << 20
TAIL_BYTES = 64 << 10


class RangeReader:
    """The RangeSource port over any store; holds no threads and no connections between calls.

    A stream runs one thread per window in flight and ends them all, so a reader may be used before
    and after a fork. Closing a stream waits up to `linger_seconds` for the windows in flight. A
    request that takes longer ends at the store's own timeout, on a daemon thread, which does not
    keep the process alive.
    """

    def __init__(
        self,
        store: ObjectStore,
        version: ObjectVersion,
        *,
        window_bytes: int = WINDOW_BYTES,
        ahead: int = 3,
        linger_seconds: float = 2.0,
    ) -> None:
        self._store = store
        self._version = version
        self._window_bytes = window_bytes
        self._ahead = ahead
        self._linger_seconds = linger_seconds
        self._counters = TransferCounters()

    @property
    def version(self) -> ObjectVersion:
        """The pinned version."""
        return self._version

    @property
    def fetched_bytes(self) -> int:
        """Bytes that the store returned to this reader, consumed or not."""
        return self._counters.fetched_bytes

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)` in one request, on the caller's thread.

        Raises:
            ValueError: not a range of the object, or more than 64 MiB.
            StoreUnavailable: the store returned another number of bytes.
        """
        check_request(self._version, start, end)
        self._counters.count_request()
        body = self._store.read(self._version, start, end)
        self._counters.count_body(len(body))
        # Again here, because any ObjectStore may stand behind the port.
        check_length(self._version, start, end, body=body, source="the store")
        return body

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)` in windows, in order; see the port. Nothing for an empty range.

        Read-ahead starts with the first `next()`. The windows are the bytes objects that the store
        returned; nothing is copied.

        Raises:
            ValueError: immediately, where the range is not within the object, or the window is not
                between 1 byte and 64 MiB.
        """
        window = self._window_bytes if window_bytes is None else window_bytes
        if not 0 <= start <= end <= self._version.size:
            where = range_uri(self._version, start, end)
            raise ValueError(f"{where} is not a range of {self._version.size} bytes")
        if not 0 < window <= MAX_READ_BYTES:
            raise ValueError(f"a window of {window} bytes is not in [1, {MAX_READ_BYTES}]")
        cuts = ((at, min(at + window, end)) for at in range(start, end, window))
        return self._windows(cuts)

    def _windows(self, cuts: Iterator[tuple[int, int]]) -> Iterator[bytes]:
        ahead = deque(self._fetch(cut) for cut in itertools.islice(cuts, self._ahead))
        try:
            while ahead:
                ready = [ahead.popleft().body()]
                ahead.extend(self._fetch(cut) for cut in itertools.islice(cuts, 1))
                # pop() leaves the consumer as the only owner, so a consumed window is freed at
                # once.
                yield ready.pop()
        finally:
            for window in ahead:
                window.drop(self._linger_seconds / self._ahead)

    def _fetch(self, cut: tuple[int, int]) -> _Window:
        return _Window(lambda: self.read(*cut), range_uri(self._version, *cut))


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


class _Window:
    """One range that a thread of its own fetches."""

    def __init__(self, fetch: Callable[[], bytes], where: str) -> None:
        self._fetch = fetch
        self._outcome: Future[bytes] = Future()
        # Daemon: a stalled request must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"read-ahead {where}", daemon=True)
        self._thread.start()

    def body(self) -> bytes:
        """Wait for the fetch; return its bytes or raise its error."""
        self._thread.join()
        return self._outcome.result()

    def drop(self, seconds: float) -> None:
        """Wait up to `seconds` for the thread to end, and discard the bytes."""
        self._thread.join(seconds)

    def _run(self) -> None:
        # Every exception reaches the consumer: a fault must not look like the end of data.
        with ExceptionRelay(self._outcome):
            self._outcome.set_result(self._fetch())


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
    # Before the body: buffering a whole object could exhaust the memory (trap T25).
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
