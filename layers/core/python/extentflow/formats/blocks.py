"""Yield the content that an extent owns of an object in compressed blocks, and map it to positions.

    object   |block 0 ..|block 1 ......|block 2 ...|
    extents  [0 ............. 14)[14 ..............)
    owned     blocks 0 and 1      block 2: the block's first byte decides

A position is the byte where a block begins, times a power of two, plus the offset in its content.
With an overlap, the content that an extent owns begins and ends so many bytes later. So its blocks
hold what a record needs that began before the extent.

Tests: unit/formats/compressed/test_bgzf.py, unit/formats/compressed/test_bzip2_blocks.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from extentflow.arrays.spans import Indexes
from extentflow.formats.lines import Window
from extentflow.model import Extent
from extentflow.storage import RangeSource

UNKNOWN_END = 1 << 62

# The byte where a block begins, the one where the next one begins, and the content.
Block: TypeAlias = tuple[int, int, bytes]


@dataclass(slots=True)
class BlockIndex:
    """Maps offsets of the content that was read to positions; `lines.Places`.

    Offsets count the content from the first block that was read, from `end` on at first. `bits` are
    those of a position that hold the offset in a block.
    """

    bits: int
    next_block: int = 0
    end: int = 0
    _offsets: array[int] = field(default_factory=lambda: array("q"))
    _positions: array[int] = field(default_factory=lambda: array("q"))

    def add(self, block: int, next_block: int, content_bytes: int) -> None:
        """Append a block at the object's byte `block`."""
        if content_bytes:
            self._offsets.append(self.end)
            self._positions.append(block << self.bits)
        self.end += content_bytes
        self.next_block = next_block

    def place(self, offset: int) -> int:
        """Return the position of an offset."""
        if offset >= self.end:
            return self.next_block << self.bits
        block = bisect_right(self._offsets, offset) - 1
        return self._positions[block] + offset - self._offsets[block]

    def offset(self, position: int) -> int:
        """Return the offset of a position within a block that was added."""
        block = bisect_right(self._positions, position) - 1
        return self._offsets[block] + position - self._positions[block]

    def places(self, offsets: Indexes) -> Indexes:
        """Return the positions of ascending offsets."""
        if not len(offsets):
            return offsets
        first = bisect_right(self._offsets, int(offsets[0])) - 1
        last = bisect_right(self._offsets, int(offsets[-1]))
        starts = np.array(self._offsets[first:last], np.int64)
        shifts = np.array(self._positions[first:last], np.int64) - starts
        return offsets + shifts[np.searchsorted(starts, offsets, side="right") - 1]


@dataclass(slots=True)
class OwnedBlocks:
    """The blocks of an extent that ends at byte `end`, and those behind it.

    `owned_end` is the end of its content in `index`; it is set before the window that reaches it
    is yielded.
    """

    end: int
    index: BlockIndex
    overlap_bytes: int = 0
    owned_end: int = UNKNOWN_END

    def windows(
        self, blocks: Iterator[Block], *, least_bytes: int, most_behind: int
    ) -> Iterator[Window]:
        """Yield the owned content in windows of about `least_bytes`, then the blocks behind it.

        Stops after `most_behind` bytes behind.
        """
        index, offset = self.index, self.index.end
        held: list[bytes] = []
        for block, following, content in blocks:
            if block >= self.end and self.owned_end == UNKNOWN_END:
                self.owned_end = index.end + self.overlap_bytes
            if content and index.end - offset >= least_bytes and block < self.end:
                yield offset, b"".join(held)
                offset, held = index.end, []
            index.add(block, following, len(content))
            held.append(content)
            if following < self.end:
                continue
            if block < self.end:
                self.owned_end = index.end + self.overlap_bytes
            if index.end > offset:
                yield offset, b"".join(held)
                offset, held = index.end, []
            if offset - self.owned_end > most_behind:
                return


@dataclass(slots=True)
class BlockContent(ABC):
    """The content of an extent's blocks from `position` on, and what surrounds it.

    `index` has the positions of offsets in the content. `begin` is the offset of the first owned
    byte of content. `has_context`: windows begin before it, so that the first owned record has to
    be found; `is_whole`: with the object's content. All three are set before the first window is
    yielded, and so is `owned`.
    """

    source: RangeSource
    extent: Extent
    position: int
    index: BlockIndex
    begin: int = 0
    has_context: bool = False
    is_whole: bool = False
    owned: OwnedBlocks | None = None

    def end(self) -> int:
        """Return where the owned content ends; UNKNOWN_END before the window that reaches it."""
        return self.owned.owned_end if self.owned is not None else UNKNOWN_END

    @abstractmethod
    def windows(
        self, context_bytes: int, *, window_bytes: int, most_behind: int
    ) -> Iterator[Window]:
        """Yield the owned content, then up to `most_behind` bytes of what follows it.

        The first window begins with up to `context_bytes`, or more, of what precedes the content.
        """

    @abstractmethod
    def before(self, offset: int, context_bytes: int) -> tuple[bytes, bool]:
        """Return what precedes `offset`, from about `context_bytes` before `begin` on.

        `offset` is where the first window began. Also whether that is all of it.
        """


def from_offset(windows: Iterator[Window], begin: int) -> Iterator[Window]:
    """Yield what `windows`, which reach `begin` with the first one, hold from there on."""
    offset, window = next(windows, (begin, b""))
    if begin - offset < len(window):
        yield begin, window[begin - offset :]
    yield from windows
