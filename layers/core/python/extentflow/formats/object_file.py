"""Open an object as a file of which Arrow reads metadata, and blocks that are held.

Tests: unit/formats/arrow/test_arrow_format.py, unit/formats/orc/test_orc_format.py
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterable

from extentflow.storage import RangeSource

BLOCK_BYTES = 1 << 20
HELD_BLOCKS = 64


class ObjectFile(io.IOBase):
    """The object up to `end` as a file for Arrow, then `tail`.

    `held` are bytes of the object from `held_start` on; others are read in blocks. `check()`
    re-raises the exception of a failed read, which Arrow replaces.
    """

    def __init__(
        self, source: RangeSource, end: int, tail: bytes, held_start: int, held: bytes
    ) -> None:
        self._source = source
        self._end = end
        self._tail = tail
        self._held_start = held_start
        self._held = held
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0
        self._raised: BaseException | None = None

    def check(self) -> None:
        """Raise the exception of a read, if any."""
        if self._raised is not None:
            raise self._raised

    def hold(self, start: int, windows: Iterable[bytes]) -> None:
        """Hold the bytes of the object from `start` on, in place of those held before."""
        self._held = b""
        self._held_start, self._held = start, b"".join(windows)

    def readable(self) -> bool:
        """Return True: Arrow asks before it reads."""
        return True

    def seek(self, position: int, whence: int = 0) -> int:
        """Set the position, as files do."""
        size = self._end + len(self._tail)
        self._position = position + (0, self._position, size)[whence]
        return self._position

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end of the file."""
        start, self._position = self._position, self._position + size
        try:
            inside = self._object_bytes(start, min(start + size, self._end))
        except BaseException as exc:
            self._raised = self._raised or exc
            raise
        behind = max(0, start - self._end)
        return inside + self._tail[behind : max(0, start + size - self._end)]

    def _object_bytes(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        first = start - self._held_start
        if first >= 0 and end - self._held_start <= len(self._held):
            return self._held[first : end - self._held_start]
        numbers = range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        data = b"".join(map(self._block, numbers))
        first = start - numbers.start * BLOCK_BYTES
        return data[first : first + end - start]

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            start = number * BLOCK_BYTES
            end = min(start + BLOCK_BYTES, self._source.version.size)
            self._blocks[number] = self._source.read(start, end)
            if len(self._blocks) > HELD_BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[number]
