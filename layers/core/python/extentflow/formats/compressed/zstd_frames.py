"""Read the content of seekable zstd at any offset: frames, and a table of their sizes at the end.

    object   |frame 0 ..|frame 1 ......|frame 2 ...|table|
    extents  [0 ............. 14)[14 .................)
    content  [frames 0 and 1 + overlap)[.. frame 2)

An extent owns the content of the frames that begin in it, moved by `overlap_bytes`. So its frames
hold what a record needs that began before the extent.

The table is the last skippable frame (zstd's contrib/seekable_format). It is compared with itself
and with the object's size; each group of frames is compared with the content that the table states.
So a table is believed only as far as all extents together prove it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes
from extentflow.errors import CorruptObject
from extentflow.formats.compressed.compression import decompress
from extentflow.formats.lines import stream_windows
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, WINDOW_BYTES, tail

_TABLE_FRAME, _TABLE = 0x184D2A5E, 0x8F92EAB1
_HEADER = struct.Struct("<II")
# Frames, a descriptor, and the magic number.
_FOOTER = struct.Struct("<IBI")
FOOTER_BYTES = _FOOTER.size
_HAS_CHECKSUMS, _RESERVED = 0x80, 0x7C
_MOST_FRAMES, _MOST_CONTENT_BYTES = 1 << 27, 1 << 30
# The last bytes that are read at once: the whole table of up to 5,000 frames.
_END_BYTES = 64 << 10
# Frames are read in groups that begin in different units of so many overlaps, or of a share of the
# object: decoders are set up less often, and few numbers are kept.
GROUP_OVERLAPS = 4
_MOST_GROUPS = 1 << 16
_STEP_BYTES = 4 << 20
_LEAST_WINDOW_BYTES = 1 << 20
_WITHOUT_TABLE = "set file.compression.split=false, which does not use the table"


def corrupt(uri: str, reason: str) -> CorruptObject:
    """Return the error for an object whose seek table is wrong."""
    return CorruptObject(
        f"{uri}: zstd: the seek table {reason}; replace the object, or {_WITHOUT_TABLE}"
    )


def has_table(source: RangeSource) -> bool:
    """Return whether an object ends as a seek table does; reads its last bytes."""
    size = source.version.size
    return size > FOOTER_BYTES and _ends_with_table(source.read(size - FOOTER_BYTES, size))


def _ends_with_table(end: bytes) -> bool:
    if len(end) < FOOTER_BYTES:
        return False
    _, descriptor, magic = _FOOTER.unpack(end[-FOOTER_BYTES:])
    return magic == _TABLE and not descriptor & _RESERVED


@dataclass(frozen=True, slots=True, eq=False)
class FrameTable:
    """Where groups of frames begin in the object and in its content; the last entries are the ends.

    Both ascend: every group has content, and frames without any belong to the group before.
    """

    starts: list[int]
    contents: list[int]

    @classmethod
    def read(cls, source: RangeSource, group_bytes: int) -> FrameTable:
        """Read the table of an object. Raises CorruptObject if it contradicts itself or the object.

        A group begins where frames begin in different units of at least `group_bytes`.
        """
        version = source.version
        end = source.read(max(0, version.size - _END_BYTES), version.size)
        if not _ends_with_table(end):
            raise corrupt(version.uri, "is missing")
        frames, descriptor, _ = _FOOTER.unpack(end[-FOOTER_BYTES:])
        entry_bytes = 12 if descriptor & _HAS_CHECKSUMS else 8
        body_bytes = frames * entry_bytes + FOOTER_BYTES
        size = version.size - body_bytes - _HEADER.size
        if frames > _MOST_FRAMES or size < 0:
            raise corrupt(version.uri, f"states {frames} frames, more than the object can have")
        unit = max(group_bytes, -(-version.size // _MOST_GROUPS))
        groups = _Groups(version.uri, size, unit)
        pieces = _table_pieces(source, size, end)
        head = b""
        while len(head) < _HEADER.size:
            head += next(pieces)
        if _HEADER.unpack_from(head) != (_TABLE_FRAME, body_bytes):
            raise corrupt(version.uri, f"is no frame of its own at byte {size}")
        left = frames * entry_bytes
        data = head[_HEADER.size :]
        while left:
            used = min(left, len(data)) // entry_bytes * entry_bytes
            entries = np.frombuffer(data[:used], "<u4").reshape(-1, entry_bytes // 4)
            if used:
                groups.add(entries.astype(np.int64))
            left, data = left - used, data[used:]
            if left:
                data += next(pieces)
        return groups.table()

    def content_offset(self, byte: int, overlap_bytes: int) -> int:
        """Return where the content of extents that begin at a byte of the object begins."""
        group = bisect_left(self.starts, byte)
        if group >= len(self.starts) - 1:
            return self.contents[-1]
        found = self.contents[group]
        return min(self.contents[-1], found + overlap_bytes) if group else found

    def units(self) -> Iterator[FrameGroup]:
        """Yield the groups."""
        for number in range(len(self.starts) - 1):
            yield FrameGroup(self.starts[number], self.starts[number + 1])


@dataclass(frozen=True, slots=True)
class FrameGroup:
    """Whole frames at the bytes `[start, end)` of an object."""

    start: int
    end: int


class _Groups:
    """Adds up the entries of a table."""

    def __init__(self, uri: str, size: int, unit: int) -> None:
        self._uri, self._size, self._unit = uri, size, unit
        self._starts: list[int] = []
        self._contents: list[int] = []
        self._start = self._content = 0
        self._last = -1

    def add(self, entries: NDArray[np.int64]) -> None:
        """Add frames: their compressed sizes and those of their content."""
        sizes, contents = entries[:, 0], entries[:, 1]
        if contents.max() > _MOST_CONTENT_BYTES:
            raise corrupt(self._uri, f"states a frame of {contents.max()} bytes of content")
        if ((sizes == 0) & (contents > 0)).any():
            raise corrupt(self._uri, "states content of a frame without bytes")
        ends, content_ends = sizes.cumsum() + self._start, contents.cumsum() + self._content
        starts: Indexes = ends - sizes
        units = starts // self._unit
        is_first = np.diff(units, prepend=self._last) > 0
        self._starts += starts[is_first].tolist()
        self._contents += (content_ends - contents)[is_first].tolist()
        self._start, self._content = int(ends[-1]), int(content_ends[-1])
        self._last = int(units[-1])
        if self._start > self._size:
            raise self._wrong_size()

    def table(self) -> FrameTable:
        """Return the groups."""
        if self._start != self._size:
            raise self._wrong_size()
        if not self._content:
            raise corrupt(self._uri, "states no content")
        starts, contents = [*self._starts, self._start], [*self._contents, self._content]
        kept = [0]
        for group in range(1, len(self._starts)):
            if contents[kept[-1]] < contents[group] < contents[group + 1]:
                kept.append(group)
        kept.append(len(self._starts))
        return FrameTable([starts[one] for one in kept], [contents[one] for one in kept])

    def _wrong_size(self) -> CorruptObject:
        return corrupt(
            self._uri, f"states {self._start} bytes of frames or more, and it has {self._size}"
        )


def _table_pieces(source: RangeSource, start: int, end: bytes) -> Iterator[bytes]:
    """Yield the object's bytes from `start` on; `end` are the last ones."""
    known = source.version.size - len(end)
    if start < known:
        for _, window in stream_windows(source, start, known, WINDOW_BYTES):
            yield window
    yield end[max(0, start - known) :]


@dataclass(frozen=True, slots=True)
class FrameSource:
    """The content of an object as a RangeSource, for an extent that ends at byte `end`.

    Bytes of the object behind that are read in small steps. CorruptObject where frames and table
    differ.
    """

    source: RangeSource
    table: FrameTable
    end: int

    @property
    def version(self) -> ObjectVersion:
        """The object's version, with the size of its content."""
        return replace(self.source.version, size=self.table.contents[-1])

    def read(self, start: int, end: int) -> bytes:
        """Return the content `[start, end)`."""
        return b"".join(self.stream(start, end, window_bytes=end - start))

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield the content `[start, end)` in windows of about `window_bytes`."""
        window_bytes = window_bytes or WINDOW_BYTES
        held: list[bytes] = []
        size, at = 0, start
        for piece in self._pieces(start, end, window_bytes):
            part = piece[: end - at]
            held.append(part)
            size, at = size + len(part), at + len(part)
            if size >= min(window_bytes, _LEAST_WINDOW_BYTES):
                yield b"".join(held)
                held, size = [], 0
            if at >= end:
                break
        if size:
            yield b"".join(held)

    def _pieces(self, start: int, end: int, window_bytes: int) -> Iterator[bytes]:
        """Yield the content from `start` on up to the end of the group that holds `end`."""
        starts, contents = self.table.starts, self.table.contents
        first, last = bisect_right(contents, start) - 1, bisect_left(contents, end)
        raw = self._raw(starts[first], starts[last], window_bytes)
        rest = b""
        for group in range(first, last):
            left, skipped = starts[group + 1] - starts[group], start - contents[group]
            compressed = _LimitedPieces(raw, rest, left)
            for piece in self._group(group, compressed, window_bytes):
                yield piece[max(0, skipped) :]
                skipped -= len(piece)
            rest = compressed.rest

    def _raw(self, start: int, end: int, window_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of the object from `start` on, up to `end` at least."""
        own = max(start, min(end, self.end))
        for _, window in stream_windows(self.source, start, own, window_bytes):
            yield window
        first, most = min(TAIL_BYTES, window_bytes), max(TAIL_BYTES, window_bytes)
        if own < end:
            yield from tail(self.source, own, first_bytes=first, most_bytes=most)

    def _group(self, group: int, compressed: Iterator[bytes], window_bytes: int) -> Iterator[bytes]:
        """Yield the content of a group, whose last piece is yielded when all of it was compared."""
        contents, starts = self.table.contents, self.table.starts
        stated, size = contents[group + 1] - contents[group], starts[group + 1] - starts[group]
        uri = f"{self.source.version.uri}[{starts[group]}-{starts[group + 1]})"
        behind = starts[group] >= self.end
        if behind or max(stated, size) > window_bytes:
            step = min(window_bytes, TAIL_BYTES if behind else _STEP_BYTES)
            yield from _streamed(compressed, stated, step, uri)
            return
        data = b"".join(compressed)
        try:
            yield pa.Codec("zstd").decompress(data, stated, asbytes=True)
        except (OSError, pa.ArrowInvalid) as exc:
            reason = f"{uri}: zstd: {stated} bytes of content are stated: {exc}"
            raise _damaged(reason) from exc


def _streamed(compressed: Iterator[bytes], stated: int, step: int, uri: str) -> Iterator[bytes]:
    pieces = decompress(compressed, "zstd", step_bytes=step, uri=uri)
    size, held = 0, b""
    while True:
        try:
            piece = next(pieces, b"")
        except CorruptObject as exc:
            raise _damaged(str(exc)) from exc
        size += len(piece)
        if not piece or size > stated:
            break
        if held:
            yield held
        held = piece
    if size != stated:
        held_or_more = f"{size} or more" if size > stated else f"{size}"
        raise corrupt(uri, f"states {stated} bytes of content, and there are {held_or_more}")
    yield held


def _damaged(reason: str) -> CorruptObject:
    return CorruptObject(
        f"{reason}; replace the object; if only its seek table is wrong, {_WITHOUT_TABLE}"
    )


class _LimitedPieces:
    """The first `left` bytes of pieces; `rest` is what follows them in the last piece."""

    def __init__(self, pieces: Iterator[bytes], rest: bytes, left: int) -> None:
        self._pieces = pieces
        self._left = left
        self.rest = rest

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._left:
            raise StopIteration
        piece = self.rest or next(self._pieces)
        taken, self.rest = piece[: self._left], piece[self._left :]
        self._left -= len(taken)
        return taken


def content_of(
    source: RangeSource, table: FrameTable, extent: Extent, overlap_bytes: int
) -> tuple[FrameSource, Extent]:
    """Return the content of an object, and the extent of it that belongs to an extent."""
    start = table.content_offset(extent.start, overlap_bytes)
    end = table.content_offset(extent.end, overlap_bytes)
    first = bisect_left(table.starts, extent.end)
    return (
        FrameSource(source, table, table.starts[min(first, len(table.starts) - 1)]),
        replace(extent, start=start, end=end),
    )
