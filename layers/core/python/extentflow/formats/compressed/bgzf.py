"""Decompress BGZF, gzip in blocks of at most 64 KiB, from any extent of an object.

    object   |block 0 ..|block 1 ......|block 2 ...|end marker|
    extents  [0 ............. 14)[14 .......................)
    owned     blocks 0 and 1      block 2: the block's first byte decides

A line belongs to the extent that owns the block in which it begins. Positions and locations are
virtual offsets: the offset of a block, times 65,536, plus the offset in its content (Sequence
Alignment/Map specification, section 4.1).

The 64 KiB before an extent hold the start of a block. A header there leads to the next block, and
so on beyond the extent's start. Bytes that only look like a header lead nowhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from extentflow.errors import CorruptObject
from extentflow.formats.blocks import Block, BlockContent, BlockIndex, OwnedBlocks, from_offset
from extentflow.formats.lines import Window, stream_windows
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, WINDOW_BYTES, tail

_MAGIC = b"\x1f\x8b\x08\x04"
_FIXED_BYTES, _TRAILER_BYTES = 12, 8
_SUBFIELD = b"BC\x02\x00"
# The empty block at the end of every object.
END_MARKER = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
BLOCK_OFFSET_BITS = 16
# Of compressed bytes and of content.
MOST_BLOCK_BYTES = 1 << BLOCK_OFFSET_BITS
_MOST_PROBE_BYTES = 16 << 20


def corrupt(uri: str, reason: str) -> CorruptObject:
    """Return the error for an object that is no sound BGZF."""
    return CorruptObject(
        f"{uri}: bgzf: {reason}; replace the object, or set file.compression.type=gzip, which reads"
        " it in one extent"
    )


def begins_bgzf(head: bytes) -> bool:
    """Return whether an object that begins with these bytes begins as BGZF."""
    return bool(_stated_bytes(head, 0))


def content_windows(
    pieces: Iterable[bytes], block: int, index: BlockIndex, uri: str
) -> Iterator[Window]:
    """Yield the content of each block that is not empty, from the byte `block` of the object on."""
    for start, end, content in _blocks(iter(pieces), block, uri):
        offset = index.end
        index.add(start, end, len(content))
        if content:
            yield offset, content


def _blocks(pieces: Iterator[bytes], block: int, uri: str) -> Iterator[Block]:
    """Yield each block's offset, the next one's, and its content."""
    data, at = b"", 0
    for piece in pieces:
        data, at = data[at:] + piece, 0
        while size := _block_bytes(data, at, uri, block):
            if len(data) - at < size:
                break
            yield block, block + size, _inflate(data[at : at + size], uri, block)
            at += size
            block += size
    if at < len(data):
        raise corrupt(uri, f"truncated: the block at byte {block} has no end")


def _block_bytes(data: bytes, at: int, uri: str, block: int) -> int:
    """Return the size of the block that begins at `at`; 0 if its header has no end in `data`."""
    if len(data) - at < _FIXED_BYTES:
        return 0
    extra = int.from_bytes(data[at + 10 : at + _FIXED_BYTES], "little")
    if len(data) - at < _FIXED_BYTES + extra and data.startswith(_MAGIC, at):
        return 0
    size = _stated_bytes(data, at)
    if not size:
        raise corrupt(uri, f"no block begins at byte {block}: damaged, or other bytes follow")
    return size


def _stated_bytes(data: bytes, at: int) -> int:
    """Return the size in the whole header at `at`; 0 if there is none."""
    if not data.startswith(_MAGIC, at):
        return 0
    place = at + _FIXED_BYTES
    end = place + int.from_bytes(data[at + 10 : place], "little")
    if end > len(data):
        return 0
    while place + 4 <= end:
        if data.startswith(_SUBFIELD, place) and place + 6 <= end:
            size = int.from_bytes(data[place + 4 : place + 6], "little") + 1
            return size if size > end - at + _TRAILER_BYTES else 0
        place += 4 + int.from_bytes(data[place + 2 : place + 4], "little")
    return 0


def _inflate(block: bytes, uri: str, at: int) -> bytes:
    head = _FIXED_BYTES + int.from_bytes(block[10:_FIXED_BYTES], "little")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflater.decompress(block[head:-_TRAILER_BYTES], MOST_BLOCK_BYTES + 1)
    except zlib.error as exc:
        raise corrupt(uri, f"the block at byte {at} is damaged: {exc}") from exc
    checksum, size = (int.from_bytes(block[begin:][:4], "little") for begin in (-8, -4))
    whole = inflater.eof and not inflater.unused_data and len(content) <= MOST_BLOCK_BYTES
    if not whole or (zlib.crc32(content), len(content)) != (checksum, size):
        raise corrupt(uri, f"the block at byte {at} is damaged")
    return content


def first_block(source: RangeSource, start: int, context_bytes: int) -> tuple[int, bytes, bool]:
    """Return the first block at or after byte `start`, and `context_bytes` of content before it.

    Less content if the object has no more, or after 16 MiB of the object. The object's size if no
    block follows. The third value: whether the content is all there is before the block.
    """
    uri, size = source.version.uri, source.version.size
    before, behind = MOST_BLOCK_BYTES, 2 * MOST_BLOCK_BYTES
    while start > 0:
        low = max(0, start - before)
        data = source.read(low, min(size, start + behind))
        chains = _chains(data, low, size)
        if len(chains) > 1 and behind < _MOST_PROBE_BYTES and start + behind < size:
            behind *= 4
            continue
        if len(chains) != 1:
            found = "no block begins" if not chains else "blocks can begin at several places"
            raise corrupt(uri, f"{found} in the 64 KiB before byte {start}")
        (found_blocks,) = chains
        earlier = [block for block in found_blocks if block < start]
        context = b""
        while earlier and len(context) < context_bytes:
            block = earlier.pop()
            end = block - low + _stated_bytes(data, block - low)
            context = _inflate(data[block - low : end], uri, block) + context
        if len(context) >= context_bytes or low == 0 or before >= _MOST_PROBE_BYTES:
            first = next((block for block in found_blocks if block >= start), size)
            whole = low == 0 and not earlier and len(context) <= context_bytes
            return first, context[-context_bytes:], whole
        before *= 4
    return 0, b"", True


def _chains(data: bytes, low: int, size: int) -> list[list[int]]:
    """Return the offsets of blocks that lead from the first 64 KiB of `data` to its end.

    `data` begins at byte `low` of an object of `size` bytes.
    """
    chains: list[list[int]] = []
    known: set[int] = set()
    begin = 0 if low == 0 else data.find(_MAGIC, 0, MOST_BLOCK_BYTES + len(_MAGIC) - 1)
    while begin >= 0:
        blocks, at = [], begin
        while at + low not in known:
            stated = _stated_bytes(data, at) if at < len(data) else 0
            if not stated:
                break
            blocks.append(at + low)
            at += stated
        # The last header may have no end in `data`; one that is cut short in the object is damage.
        cut = low + len(data) < size and at + MOST_BLOCK_BYTES > len(data)
        partial = cut and data[at : at + len(_MAGIC)] == _MAGIC[: max(0, len(data) - at)]
        if at + low not in known and blocks and (at + low == size or at >= len(data) or partial):
            known.update(blocks)
            chains.append([*blocks, *([at + low] if at + low < size else [])])
        begin = -1 if low == 0 else data.find(_MAGIC, begin + 1, MOST_BLOCK_BYTES + 3)
    return chains


@dataclass(slots=True)
class BgzfContent(BlockContent):
    """The content of an extent of BGZF."""

    index: BlockIndex = field(default_factory=lambda: BlockIndex(BLOCK_OFFSET_BITS))

    def windows(
        self, context_bytes: int, *, window_bytes: int, most_behind: int
    ) -> Iterator[Window]:
        """Yield the owned content and what follows it, with context before it."""
        source, extent, context = self.source, self.extent, b""
        first, skipped = self.position >> BLOCK_OFFSET_BITS, self.position & (MOST_BLOCK_BYTES - 1)
        if not self.position:
            first, context, self.is_whole = first_block(source, extent.start, context_bytes)
        if first >= extent.end:
            return iter(())
        raw = stream_windows(source, first, extent.end, window_bytes)
        behind = tail(source, extent.end, first_bytes=TAIL_BYTES, most_bytes=WINDOW_BYTES)
        pieces = chain((window for _, window in raw), behind)
        # Content at offset 0 is that of the object's start, whose byte order mark is none of it.
        self.begin = first << BLOCK_OFFSET_BITS if self.position or context else 0
        self.has_context = bool(context)
        self.index.end = self.begin
        self.owned = OwnedBlocks(extent.end, self.index)
        windows = self.owned.windows(
            self._whole_blocks(pieces, first), least_bytes=window_bytes, most_behind=most_behind
        )
        if skipped:
            self.begin += skipped
            return self._from_position(windows)
        return _behind_context(context, windows) if context else windows

    def before(self, offset: int, context_bytes: int) -> tuple[bytes, bool]:
        """Return content of the blocks before the extent."""
        _, context, whole = first_block(self.source, self.extent.start, context_bytes)
        return context[: len(context) - (self.begin - offset)], whole

    def _whole_blocks(self, pieces: Iterator[bytes], first: int) -> Iterator[Block]:
        version, end = self.source.version, self.extent.end
        for block, following, content in _blocks(pieces, first, version.uri):
            if content and block < end and following == version.size:
                raise corrupt(version.uri, "truncated: the last block is not empty")
            yield block, following, content

    def _from_position(self, windows: Iterator[Window]) -> Iterator[Window]:
        offset, window = next(windows, (self.begin, b""))
        if self.begin - offset > len(window):
            uri = self.source.version.uri
            raise CorruptObject(f"{uri}: decoding resumes behind the content of a block")
        yield from from_offset(chain([(offset, window)], windows), self.begin)


def _behind_context(context: bytes, windows: Iterator[Window]) -> Iterator[Window]:
    """Yield windows, the first one with the context before it: its positions are known then."""
    for offset, window in islice(windows, 1):
        yield offset - len(context), context + window
    yield from windows
