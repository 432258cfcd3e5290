"""Decompress bzip2, whose blocks begin at any bit, from any extent of an object.

    object   |BZh9|block 0 ....|block 1 ........|end|BZh9|block 2 ...|end|
    extents  [0 ........ 13)[13 ...................................)
    owned     block 0            blocks 1 and 2: the byte in which a block begins decides

A block begins with the digits of pi, its end is the beginning of the next one or the digits of the
square root of pi, which end a stream. Either can be within a block by chance. So a block is what
lies between two such marks and decompresses to content with the stored CRC-32.

The content that an extent owns begins `overlap_bytes` behind its first block and ends as many bytes
behind the first block of the next extent. Only a file that was made to mislead has a block within
another one. The extent that begins between the two could take it for a block, and so could CSV,
which reads back. So every extent refuses the blocks that hold another one, with the one in which it
ends.
"""

from __future__ import annotations

import bz2
import functools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from extentflow.errors import CorruptObject
from extentflow.formats.blocks import Block, BlockContent, BlockIndex, OwnedBlocks, from_offset
from extentflow.formats.lines import Window, stream_windows
from extentflow.storage.ranges import WINDOW_BYTES, tail

_BLOCK, _END = 0x314159265359, 0x177245385090
_MARK_BITS, _CRC_BITS = 48, 32
_LEAST_BLOCK_BITS = _MARK_BITS + _CRC_BITS
# The signature of a stream and its level, which is the size of its blocks in 100 kB.
_HEADER_BYTES = 4
_HEADERS = tuple(b"BZh%d" % level for level in range(1, 10))
_LARGEST = _HEADERS[-1]
# A block has up to 900,001 symbols of up to 20 bits, and tables.
_MOST_BLOCK_BITS = 8 * (4 << 20)
# Four equal bytes and a count stand for up to 259: 900,000 bytes become up to 46.6 MB.
BLOCK_OFFSET_BITS = 26
# Positions have 63 bits.
MOST_OBJECT_BYTES = 1 << (63 - BLOCK_OFFSET_BITS)
# A mark is within a block by chance once in 2^48 bits.
_MOST_FALSE_MARKS = 3
_MOST_FALSE_BLOCKS = 16
# So many bytes are searched for marks at once, which bounds how many there are.
_PIECE_BYTES = 1 << 20
# What holds most blocks of 900 kB of text.
FIRST_READ_BYTES = 256 << 10
_BACK_BYTES, _BACK_GROWTH = 1 << 20, 4
# Of content that is not the object's start; divisible by every code unit.
_BASE = 1 << 40

# The bit where a mark begins, and whether it begins a block.
Mark: TypeAlias = tuple[int, bool]


def corrupt(uri: str, reason: str) -> CorruptObject:
    """Return the error for an object that is no sound bzip2."""
    return CorruptObject(
        f"{uri}: bzip2: {reason}; replace the object, or set file.compression.split=false, which"
        " reads it in one extent up to the damage"
    )


@functools.cache
def _words() -> tuple[NDArray[np.uint8], NDArray[np.uint16], list[tuple[int, bool]]]:
    """Return tables that find marks by the first two aligned words of 16 bits within them.

    Return a code by the first word (0: none), and the second word by the code. Also, by the code,
    how many bits of the mark precede the first word, and whether it begins a block.
    """
    codes = np.zeros(1 << 16, np.uint8)
    seconds, marks = [0], [(0, False)]
    for mark in (_BLOCK, _END):
        for before in range(16):
            first, second = (mark >> (32 - before - at) & 0xFFFF for at in (0, 16))
            codes[_swapped(first)] = len(marks)
            seconds.append(_swapped(second))
            marks.append((before, mark == _BLOCK))
    return codes, np.array(seconds, np.uint16), marks


def _swapped(word: int) -> int:
    return word >> 8 | (word & 0xFF) << 8


def marks_in(data: bytes) -> list[Mark]:
    """Return the marks that lie within `data`, in order."""
    codes, seconds, kinds = _words()
    found: list[Mark] = []
    # The last word may begin with the last byte.
    words = np.frombuffer(data + bytes(2 + len(data) % 2), "<u2")
    seen = codes[words[:-1]]
    places = np.flatnonzero(seen)
    places = places[words[places + 1] == seconds[seen[places]]]
    for place in places.tolist():
        before, is_block = kinds[seen[place]]
        bit = 16 * place - before
        if _is_mark(data, bit, _BLOCK if is_block else _END):
            found.append((bit, is_block))
    return found


def _is_mark(data: bytes, bit: int, mark: int) -> bool:
    first, shift = bit >> 3, bit & 7
    around = data[max(0, first) : first + 7]
    if bit < 0 or 8 * len(around) < shift + _MARK_BITS:
        return False
    value = int.from_bytes(around.ljust(7, b"\0"), "big")
    return value >> (8 - shift) & ((1 << _MARK_BITS) - 1) == mark


def _content(data: bytes, begin: int, end: int) -> bytes | None:
    """Return the content of the block at the bits `[begin, end)`; None if there is none."""
    # A stream of this block: the header, the bits from a byte on, the end, and the CRC of all
    # blocks, which is that of the only one.
    first, shift = begin >> 3, begin & 7
    raw = np.frombuffer(data[first : (end >> 3) + 1], np.uint8)
    whole, rest = divmod(end - begin, 8)
    bits = _shifted(raw, shift).tobytes() if shift else raw.tobytes()
    last = int(bits[whole]) >> (8 - rest) if rest else 0
    crc = int.from_bytes(bits[6:10], "big")
    size = rest + _MARK_BITS + _CRC_BITS
    padding = -size % 8
    trailer = ((last << _MARK_BITS | _END) << _CRC_BITS | crc) << padding
    stream = bz2.BZ2Decompressor()
    try:
        content = stream.decompress(
            b"".join((_LARGEST, bits[:whole], trailer.to_bytes((size + padding) // 8, "big")))
        )
    except OSError:  # no block, or another checksum
        return None
    return content if stream.eof and not stream.unused_data else None


def _shifted(raw: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    result = raw << np.uint8(bits)
    result[:-1] |= raw[1:] >> np.uint8(8 - bits)
    return result


class BlockReader:
    """Reads the blocks in the bytes of an object from the byte `base` on, in constant memory."""

    def __init__(self, pieces: Iterable[bytes], base: int, uri: str) -> None:
        self._pieces = (
            piece[at : at + _PIECE_BYTES]
            for piece in pieces
            for at in range(0, len(piece), _PIECE_BYTES)
        )
        self._uri = uri
        # The bytes from `_base` on, and the marks in them; the first `_searched` bits hold no more.
        self._data, self._base = b"", base
        self._marks: deque[Mark] = deque()
        # The checksum of the stream so far; None where its start was not read.
        self._checksum: int | None = None

    def first_bit(self) -> int | None:
        """Return where the first block begins, at an object's start; None if there is none."""
        return self._behind_header(self._base)

    def bit_at(self, byte: int) -> int:
        """Return where the block begins whose first bit is in a byte, as positions have it."""
        found = self._mark(8 * byte, 8 * byte + 8 + _MARK_BITS)
        if found is None or found[0] >= 8 * byte + 8 or not found[1]:
            raise CorruptObject(f"{self._uri}: decoding resumes at byte {byte}: no block begins")
        return found[0]

    def search(self, begin: int, end: int) -> int | None:
        """Return the first bit in `[begin, end)` at which a block begins; None if there is none."""
        false = 0
        while found := self._searched(begin, end):
            begin, is_block = found
            if is_block and self._decode(begin) is not None:
                return begin
            false += is_block
            if false > _MOST_FALSE_BLOCKS:
                raise corrupt(
                    self._uri, f"{false} blocks up to byte {begin >> 3} cannot be decompressed"
                )
            begin += 1
        return None

    def _searched(self, begin: int, end: int) -> Mark | None:
        """Return the first mark in `[begin, end)`; drops what precedes it."""
        while begin < end:
            step = min(end, max(begin, 8 * self._base) + 8 * _PIECE_BYTES)
            if found := self._mark(begin, step + _MARK_BITS - 1):
                self._drop(found[0])
                return found if found[0] < end else None
            self._drop(step)
            begin = step
        return None

    def blocks(self, bit: int | None) -> Iterator[Block]:
        """Yield the blocks from the one that begins at a bit on; None: there is none.

        CorruptObject if one of them holds another one, with which reading could begin as well.
        """
        while bit is not None:
            self._drop(bit)
            found = self._decode(bit)
            if found is None:
                raise corrupt(self._uri, self._damage(bit))
            content, end, is_block = found
            self._refuse_misleading(bit, end)
            self._add_to_checksum(self._bits(bit + _MARK_BITS, _CRC_BITS))
            following = end if is_block else self._behind_stream(end)
            at_end = self._base + len(self._data)
            yield bit >> 3, at_end if following is None else following >> 3, content
            bit = following

    def _decode(self, bit: int) -> tuple[bytes, int, bool] | None:
        """Return the content of the block at a bit, where it ends, and whether with a block.

        None if there is no block.
        """
        end = bit + _LEAST_BLOCK_BITS
        for _ in range(_MOST_FALSE_MARKS):
            found = self._mark(end, bit + _MOST_BLOCK_BITS)
            if found is None:
                return None
            end, is_block = found
            offset = 8 * self._base
            content = _content(self._data, bit - offset, end - offset)
            if content is not None:
                return content, end, is_block
            end += 1
        return None

    def _damage(self, bit: int) -> str:
        if self._mark(bit + _LEAST_BLOCK_BITS, bit + _MOST_BLOCK_BITS) is None:
            return f"truncated: the block at byte {bit >> 3} has no end"
        return f"the block at byte {bit >> 3} is damaged"

    def _refuse_misleading(self, begin: int, end: int) -> None:
        for at, is_block in [*self._marks]:
            if is_block and begin < at < end and self._decode(at) is not None:
                raise corrupt(
                    self._uri,
                    f"the block that ends at byte {end >> 3} holds another one, at byte {at >> 3},"
                    " which a reader that begins between them cannot tell from it",
                )

    def _add_to_checksum(self, checksum: int) -> None:
        if self._checksum is not None:
            before = self._checksum << 1 | self._checksum >> 31
            self._checksum = (before & 0xFFFFFFFF) ^ checksum

    def _behind_stream(self, end: int) -> int | None:
        """Return where the block behind the end of a stream begins; None: the object ends."""
        self._fill(end + _MARK_BITS + _CRC_BITS)
        stated = self._bits(end + _MARK_BITS, _CRC_BITS)
        if self._checksum is not None and stated != self._checksum:
            raise corrupt(self._uri, f"the checksum of the stream that ends at byte {end >> 3}")
        return self._behind_header((end + _MARK_BITS + _CRC_BITS + 7) >> 3)

    def _behind_header(self, byte: int) -> int | None:
        """Return where the first block behind the header at a byte begins; skips empty streams."""
        size = _HEADER_BYTES + _MARK_BITS // 8
        while True:
            self._drop(8 * byte)
            self._fill(8 * (byte + size), require=False)
            head = self._data[byte - self._base :][:size]
            if not head:
                return None
            if head[:_HEADER_BYTES] not in _HEADERS:
                raise corrupt(self._uri, f"damaged, or other bytes follow at byte {byte}")
            self._checksum = 0
            mark = int.from_bytes(head[_HEADER_BYTES:], "big")
            if len(head) == size and mark == _BLOCK:
                return 8 * (byte + _HEADER_BYTES)
            self._fill(8 * (byte + size) + _CRC_BITS)
            if mark != _END or self._bits(8 * (byte + size), _CRC_BITS):
                raise corrupt(self._uri, f"the stream at byte {byte} is damaged")
            byte += size + _CRC_BITS // 8

    def _bits(self, bit: int, count: int) -> int:
        first = (bit >> 3) - self._base
        last = first + ((bit & 7) + count + 7) // 8
        value = int.from_bytes(self._data[first:last], "big")
        return value >> (-(bit + count) % 8) & ((1 << count) - 1)

    def _mark(self, begin: int, limit: int) -> Mark | None:
        """Return the first mark from bit `begin` on; None if there is none up to `limit`."""
        while True:
            for found in self._marks:
                if found[0] >= begin:
                    return found if found[0] < limit else None
            if 8 * (self._base + len(self._data)) >= limit or not self._read_more():
                return None

    def _fill(self, bit: int, *, require: bool = True) -> None:
        """Read up to a bit."""
        while 8 * (self._base + len(self._data)) < bit:
            if not self._read_more():
                if require:
                    raise corrupt(self._uri, "truncated: the last stream has no end")
                return

    def _read_more(self) -> bool:
        piece = next(self._pieces, b"")
        if not piece:
            return False
        # The last bits that can begin no mark which was found before.
        known = max(0, 8 * len(self._data) - _MARK_BITS + 1)
        self._data = self._data + piece if self._data else piece
        start, offset = known >> 3, 8 * self._base
        for bit, is_block in marks_in(self._data[start:] if start else self._data):
            if bit + 8 * start >= known:
                self._marks.append((offset + 8 * start + bit, is_block))
        return True

    def _drop(self, bit: int) -> None:
        """Drop the bytes and marks before a bit."""
        while self._marks and self._marks[0][0] < bit:
            self._marks.popleft()
        # Not at every block: the rest of a window is copied.
        used = min((bit >> 3) - self._base, len(self._data))
        if used > len(self._data) // 2:
            self._data, self._base = self._data[used:], self._base + used


def head_windows(pieces: Iterable[bytes], index: BlockIndex, uri: str) -> Iterator[Window]:
    """Yield the content of each block of an object from its start on, and add it to `index`."""
    reader = BlockReader(pieces, 0, uri)
    for block, following, content in reader.blocks(reader.first_bit()):
        offset = index.end
        index.add(block, following, len(content))
        yield offset, content


@dataclass(slots=True)
class Bzip2Content(BlockContent):
    """The content of an extent of bzip2."""

    index: BlockIndex = field(default_factory=lambda: BlockIndex(BLOCK_OFFSET_BITS))
    overlap_bytes: int = 0
    _first: int = -1

    def windows(
        self,
        context_bytes: int,  # noqa: ARG002 - the overlap is the context
        *,
        window_bytes: int,
        most_behind: int,
    ) -> Iterator[Window]:
        """Yield the owned content and what follows it, with the overlap before it."""
        extent = self.extent
        if extent.start == extent.end:
            return  # what begins there is owned by the extent that begins there, too
        block = self.position >> BLOCK_OFFSET_BITS
        # Behind the extent, content is owned up to an offset from the first block there.
        start = extent.start if not self.position else min(block, extent.end)
        reader = BlockReader(self._pieces(start, window_bytes), start, extent.uri)
        if start == 0:
            first = reader.first_bit()
        elif self.position and block < extent.end:
            first = reader.bit_at(block)
        else:
            first = reader.search(8 * start, 8 * (extent.end if not self.position else block + 1))
        if first is None:
            if self.position and block < self.source.version.size:
                raise CorruptObject(f"{extent.uri}: decoding resumes where no block begins")
            return
        self.has_context = start > 0 and not self.position
        self.index.end = _BASE if start else 0
        self.begin = self.index.end + (self.overlap_bytes if self.has_context else 0)
        self._first = first >> 3
        self.owned = OwnedBlocks(extent.end, self.index, self.overlap_bytes)
        windows = self.owned.windows(
            reader.blocks(first),
            least_bytes=window_bytes,
            most_behind=most_behind,
        )
        yield from self._from_position(windows) if self.position else windows

    def before(self, offset: int, context_bytes: int) -> tuple[bytes, bool]:
        """Return content of the blocks before the extent."""
        # The blocks before the extent end where its windows began; what is asked for first may be
        # less than the overlap.
        wanted = max(context_bytes - (self.begin - _BASE), context_bytes // 2)
        if offset > _BASE:
            return b"", False
        back = _BACK_BYTES
        while True:
            low = max(0, self.extent.start - back)
            found, whole = self._content_before(low, wanted)
            if len(found) >= wanted or low == 0:
                whole = whole and len(found) <= wanted
                found = found[-wanted:]
                return found[: len(found) - (_BASE - offset)], whole
            back *= _BACK_GROWTH

    def _content_before(self, low: int, wanted: int) -> tuple[bytes, bool]:
        """Return content from byte `low` on up to the extent's first block, its end at least."""
        uri = self.extent.uri
        reader = BlockReader(self._pieces(low, WINDOW_BYTES), low, uri)
        bit = reader.first_bit() if low == 0 else reader.search(8 * low, 8 * self._first)
        held: deque[bytes] = deque()
        size = read = 0
        for block, following, content in reader.blocks(bit):
            if block >= self._first:
                break
            held.append(content)
            size, read = size + len(content), read + len(content)
            while size - len(held[0]) >= wanted:
                size -= len(held.popleft())
            if following >= self._first:
                if following > self._first:
                    raise corrupt(uri, f"no block begins at byte {self._first}")
                break
        return b"".join(held), low == 0 and read == size

    def _from_position(self, windows: Iterator[Window]) -> Iterator[Window]:
        for offset, window in windows:
            if self.index.next_block << BLOCK_OFFSET_BITS <= self.position:
                continue
            self.begin = self.index.offset(self.position)
            if self.begin >= self.index.end:
                raise CorruptObject(f"{self.extent.uri}: decoding resumes behind a block's content")
            yield from from_offset(chain([(offset, window)], windows), self.begin)

    def _pieces(self, start: int, window_bytes: int) -> Iterator[bytes]:
        end = max(start, self.extent.end)
        owned = stream_windows(self.source, start, end, window_bytes)
        behind = tail(
            self.source,
            end,
            first_bytes=min(FIRST_READ_BYTES, max(window_bytes, 1)),
            most_bytes=max(FIRST_READ_BYTES, window_bytes),
        )
        return chain((window for _, window in owned), behind)
