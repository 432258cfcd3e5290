"""Read a pinned object in windows, with a bounded number of windows read ahead.

consumer       |w0 yielded|
read ahead                 w1 ready | w2 in flight | w3 in flight   at most `ahead` windows
not requested                                               w4 ... dropped by close()
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from extentflow.background import ExceptionRelay
from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore, RangeSource, pins
from extentflow.storage.pins import TransferCounters

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
        pins.check_request(self._version, start, end)
        self._counters.count_request()
        body = self._store.read(self._version, start, end)
        self._counters.count_body(len(body))
        pins.check_length(self._version, start, end, body=body, source="the store")
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
            where = pins.range_uri(self._version, start, end)
            raise ValueError(f"{where} is not a range of {self._version.size} bytes")
        if not 0 < window <= pins.MAX_READ_BYTES:
            raise ValueError(f"a window of {window} bytes is not in [1, {pins.MAX_READ_BYTES}]")
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
        return _Window(lambda: self.read(*cut), pins.range_uri(self._version, *cut))


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
        with ExceptionRelay(self._outcome):
            self._outcome.set_result(self._fetch())
