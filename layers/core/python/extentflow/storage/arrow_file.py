"""A pinned object as the file that Arrow's readers want.

Owns: the file position, one streamed region whose windows answer reads without a request. Refuses
to know: Parquet, or any other format; which region is worth streaming.
"""

from __future__ import annotations

import io
import threading
from bisect import bisect_right
from collections.abc import Iterator

from extentflow.errors import StoreUnavailable
from extentflow.storage import RangeSource, pins


class ArrowFile:
    """A read-only, seekable Python file over a RangeSource; wrap it in `pa.PythonFile(file, "r")`.

    Reads are `source.read` requests, apart from those inside the attached region, which wait for
    the region's stream. Arrow takes `read_buffer` where it may, so that nothing is copied unless
    a read crosses windows. Arrow locks between `seek` and `read`; so must any other caller with
    several threads.
    """

    mode = "rb"

    def __init__(self, source: RangeSource) -> None:
        self._source = source
        self._position = 0
        self._closed = False
        self._region: _Region | None = None

    def attach(self, start: int, end: int, *, window_bytes: int | None = None) -> None:
        """Serve reads inside `[start, end)` from one read-ahead stream; replaces any other region.

        The region's windows stay in memory until `detach`, the next `attach` or `close`: attach
        what is about to be read completely and fits, such as one row group.
        """
        self.detach()
        arriving = self._source.stream(start, end, window_bytes=window_bytes)
        self._region = _Region(arriving, self._source, start, end)

    def detach(self) -> None:
        """Drop the region, and cancel what of it was not yet requested."""
        region, self._region = self._region, None
        if region is not None:
            region.close()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes from the current position; fewer only at the object's end."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int = -1) -> bytes | memoryview:
        """Return the same without a copy; what Arrow calls where it can keep the buffer."""
        self._check_open()
        rest = self.size() - self._position
        wanted = rest if size < 0 else min(size, rest)
        if wanted <= 0:
            return b""
        start, self._position = self._position, self._position + wanted
        return self._bytes(start, start + wanted)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; return it. Beyond the end there is nothing to read."""
        self._check_open()
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}
        position = origins[whence] + offset
        if position < 0:
            raise ValueError(f"{self._source.version.uri}: position {position} is negative")
        self._position = position
        return position

    def tell(self) -> int:
        """Return the position."""
        self._check_open()
        return self._position

    def size(self) -> int:
        """Return the object's size in bytes."""
        return self._source.version.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Drop the region and refuse further reads; the source stays usable."""
        self.detach()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._source.version.uri}: the file is closed")

    def _bytes(self, start: int, end: int) -> bytes | memoryview:
        if self._region is not None and self._region.covers(start, end):
            return self._region.read(start, end)
        if end - start <= pins.MAX_READ_BYTES:
            return self._source.read(start, end)
        # One value of Arrow's that is larger than any request of ours: a huge page.
        return _joined(self._source.stream(start, end), end - start)


class _Region:
    """A streamed range whose windows stay readable by position."""

    def __init__(
        self, arriving: Iterator[bytes], source: RangeSource, start: int, end: int
    ) -> None:
        self._arriving = arriving
        self._source = source
        self._start = start
        self._end = end
        self._until = start
        self._starts: list[int] = []
        self._windows: list[bytes] = []
        self._lock = threading.Lock()

    def covers(self, start: int, end: int) -> bool:
        return self._start <= start and end <= self._end

    def read(self, start: int, end: int) -> memoryview:
        with self._lock:
            while self._until < end:
                self._take()
        first = bisect_right(self._starts, start) - 1
        offset = start - self._starts[first]
        wanted = end - start
        window = memoryview(self._windows[first])
        if offset + wanted <= len(window):
            return window[offset : offset + wanted]
        last = bisect_right(self._starts, end - 1)
        pieces = [memoryview(body) for body in self._windows[first:last]]
        pieces[0] = pieces[0][offset:]
        pieces[-1] = pieces[-1][: end - self._starts[last - 1]]
        return _joined(iter(pieces), wanted)

    def close(self) -> None:
        close = getattr(self._arriving, "close", None)
        if close is not None:
            close()

    def _take(self) -> None:
        window = next(self._arriving, None)
        if window is None:
            # A stream that raised once is over; that must not look like the end of the object.
            where = pins.place(self._source.version, self._until, self._end)
            raise StoreUnavailable(f"{where}: an earlier window of this region failed; read again")
        self._starts.append(self._until)
        self._windows.append(window)
        self._until += len(window)


def _joined(pieces: Iterator[bytes] | Iterator[memoryview], size: int) -> memoryview:
    """Copy once, into a buffer that was allocated once."""
    whole = memoryview(bytearray(size))
    at = 0
    for piece in pieces:
        whole[at : at + len(piece)] = piece
        at += len(piece)
    return whole
