"""Pinned ranges of one object, read ahead in bounded windows.

Owns: the order of windows, how many may exist at once, the end of their threads. Refuses to know:
the store behind it, what the bytes mean, retries.

    consumer   |w0 yielded|
    ahead                  w1 ready | w2 in flight | w3 in flight       never more than `ahead`
    not asked                                                    w4 ... dropped by close()
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore, RangeSource, pins
from extentflow.storage.traffic import Traffic
from extentflow.transfer import Transfer

WINDOW_BYTES = 8 << 20
TAIL_BYTES = 64 << 10


class RangeReader:
    """The RangeSource port over any store. Holds no threads and no connections of its own.

    A stream has threads while it runs, one per window in flight; nothing survives it, so that a
    reader may be used before and after a fork. `linger_seconds` is how long closing a stream waits
    for the windows in flight; a request that hangs longer ends alone, at the store's own limits,
    on a daemon thread that keeps no process alive.
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
        self._traffic = Traffic()

    @property
    def version(self) -> ObjectVersion:
        """The pinned version."""
        return self._version

    @property
    def fetched_bytes(self) -> int:
        """Bytes the store returned to this reader, whether or not they were consumed."""
        return self._traffic.fetched_bytes

    def read(self, start: int, end: int) -> bytes:
        """Return exactly `[start, end)` in one request, on the caller's thread.

        Raises:
            ValueError: not a range of the object, or more than 64 MiB.
            StoreUnavailable: the store returned another number of bytes.
        """
        pins.check_request(self._version, start, end)
        self._traffic.asked()
        body = self._store.read(self._version, start, end)
        self._traffic.received(len(body))
        pins.check_length(self._version, start, end, body=body, source="the store")
        return body

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)` in windows, in order; see the port. Nothing for an empty range.

        Reading ahead begins with the first `next()`. The windows are the store's own bytes
        objects, never copied.

        Raises:
            ValueError: at the call: the range is not in the object, or a window is no positive
                number of at most 64 MiB.
        """
        window = self._window_bytes if window_bytes is None else window_bytes
        if not 0 <= start <= end <= self._version.size:
            where = pins.place(self._version, start, end)
            raise ValueError(f"{where} is not a range of {self._version.size} bytes")
        if not 0 < window <= pins.MAX_READ_BYTES:
            raise ValueError(f"a window of {window} bytes is not in [1, {pins.MAX_READ_BYTES}]")
        cuts = ((at, min(at + window, end)) for at in range(start, end, window))
        return self._windows(cuts)

    def _windows(self, cuts: Iterator[tuple[int, int]]) -> Iterator[bytes]:
        ahead = deque(self._begin(cut) for cut in itertools.islice(cuts, self._ahead))
        try:
            while ahead:
                arrived = [ahead.popleft().body()]
                ahead.extend(self._begin(cut) for cut in itertools.islice(cuts, 1))
                # Popped, so that only the consumer holds the window while it works on it.
                yield arrived.pop()
        finally:
            self._settle(ahead)

    def _begin(self, cut: tuple[int, int]) -> _Window:
        return _Window(lambda: self.read(*cut), pins.place(self._version, *cut))

    def _settle(self, ahead: deque[_Window]) -> None:
        for window in ahead:
            window.settle(self._linger_seconds / self._ahead)


def tail(
    source: RangeSource,
    start: int,
    *,
    first_bytes: int = TAIL_BYTES,
    most_bytes: int = WINDOW_BYTES,
) -> Iterator[bytes]:
    """Yield `[start, size)` in reads that begin small and double, without reading ahead.

    For the few bytes behind an extent's end that finish its last unit: the caller stops early.
    """
    wanted = first_bytes
    while start < source.version.size:
        end = min(start + wanted, source.version.size)
        yield source.read(start, end)
        start, wanted = end, min(2 * wanted, most_bytes)


class _Window:
    """One range being fetched on a thread of its own."""

    def __init__(self, fetch: Callable[[], bytes], where: str) -> None:
        self._fetch = fetch
        self._outcome: Future[bytes] = Future()
        self._thread = threading.Thread(target=self._run, name=f"read-ahead {where}", daemon=True)
        self._thread.start()

    def body(self) -> bytes:
        """Return the window's bytes, or raise what the fetch raised; waits for either."""
        self._thread.join()
        return self._outcome.result()

    def settle(self, seconds: float) -> None:
        """Wait for the thread's end, for so long at most; the body is dropped."""
        self._thread.join(seconds)

    def _run(self) -> None:
        with Transfer(self._outcome):
            self._outcome.set_result(self._fetch())
