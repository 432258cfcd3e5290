r"""Split the byte range of an extent into newline-terminated lines.

    object   a a a \n b b b b \n c c c \n
    extents  [0 ........ 7)[7 ......... 14)
    owned     a       b              c      b starts at 4: first extent, although it ends later

A byte order mark belongs to the line after it, so that byte 0 owns that line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, starmap

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.errors import StoreUnavailable
from extentflow.formats import BadRecord
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import TAIL_BYTES, tail

Indexes = NDArray[np.int64]
Window = tuple[int, bytes]

BOM = b"\xef\xbb\xbf"
NEWLINE = b"\n"
_LF, _CR = 10, 13
_ASCII_END = 0x80
# Bounds of the first read behind an extent: 1/128 of the extent, but at least 1 KiB.
_LEAST_TAIL_BYTES = 1024
_TAIL_SHARE = 128


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines as slices of one buffer.

    `data[0]` is byte `offset` of the object. Line i is `data[starts[i]:ends[i]]`, without its
    terminator (LF or CR LF); the next line starts after the terminator, at `stops[i]`.
    `next_position` is where decoding resumes after this block. `bad` are lines that are too long.
    """

    offset: int
    data: NDArray[np.uint8]
    starts: Indexes
    ends: Indexes
    stops: Indexes
    next_position: int
    bad: tuple[BadRecord, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, line: int) -> bytes:
        """Return the bytes of one line."""
        return self.data[self.starts[line] : self.ends[line]].tobytes()

    def location(self, line: int) -> int:
        """Return the byte offset of one line in the object."""
        return self.offset + int(self.starts[line])

    def locations(self, lines: Indexes | None = None) -> Sequence[int]:
        """Return the byte offsets of `lines` (ascending; None: all) as a view of int64."""
        starts = self.starts if lines is None else self.starts[lines]
        return (starts + self.offset).data

    def values(self, lines: Indexes | None = None) -> pa.BinaryArray:
        """Return `lines` (ascending; None: all) as an Arrow array: one copy, no Python objects."""
        chosen = slice(None) if lines is None else lines
        starts, ends = self.starts[chosen], self.ends[chosen]
        if not len(starts):
            return pa.array([], pa.binary())
        # Arrow's offsets have no gaps: an array over all bytes whose odd values are the gaps, of
        # which only the even ones are taken.
        edges = np.empty(2 * len(starts), np.int32)
        edges[0::2] = starts
        edges[1::2] = ends
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        with_gaps = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, buffers)
        return with_gaps.take(pa.array(np.arange(0, len(edges), 2, dtype=np.int32)))

    def text(self, lines: Indexes) -> NDArray[np.uint8]:
        """Return `lines` (ascending, at least one) with their terminators, concatenated."""
        gaps = np.flatnonzero(np.diff(lines) != 1) + 1
        if not len(gaps):
            return self.data[self.starts[lines[0]] : self.stops[lines[-1]]]
        # Lines that follow each other are copied as one slice.
        edges = ((self.starts[run[0]], self.stops[run[-1]]) for run in np.split(lines, gaps))
        return np.concatenate([self.data[start:stop] for start, stop in edges])

    def lines_at(self, positions: Indexes) -> Indexes:
        """Return the line of each position in `data`, -1 before the first line."""
        return np.searchsorted(self.starts, positions, side="right") - 1

    def parts(self, lines: int) -> Iterator[LineBlock]:
        """Return blocks of nearly equal size with at most `lines` lines each."""
        count = -(-len(self) // lines)
        if count <= 1:
            return iter((self,))
        return starmap(self.part, pairwise(len(self) * part // count for part in range(count + 1)))

    def part(self, first: int, last: int) -> LineBlock:
        """Return the block of lines `[first, last)`, at least one."""
        low = int(self.stops[first - 1]) if first else 0
        high = int(self.stops[last - 1])
        return LineBlock(
            offset=self.offset + low,
            data=self.data[low:high],
            starts=self.starts[first:last] - low,
            ends=self.ends[first:last] - low,
            stops=self.stops[first:last] - low,
            next_position=self.offset + high,
            bad=self.bad if first == 0 else (),
        )


def owned_windows(
    source: RangeSource, extent: Extent, position: int, *, window_bytes: int, max_line_bytes: int
) -> Iterator[Window]:
    """Yield the bytes of the lines whose first byte lies in `extent`, from `position` on.

    Windows are contiguous and carry their byte offset. An extent that does not start at 0 begins
    after the first newline at or after `start - 1`. Reads beyond `end` only to finish the last
    line: at first 64 KiB (less for small extents, at most a window), then doubling, up to
    `max_line_bytes`.
    StoreUnavailable if the source ends early without an error.
    """
    # A resume position is the start of a line. The start of an extent is one only if a newline
    # precedes it, so reading begins one byte earlier and continues behind the first newline.
    start, end = extent.start, extent.end
    if position > start or start == 0:
        windows = stream_windows(source, max(position, start), end, window_bytes)
    else:
        windows = _behind_newline(stream_windows(source, start - 1, end, window_bytes))
    last = NEWLINE
    for offset, window in windows:
        yield offset, window
        last = window[-1:]
    # The line that begins after this newline has its first byte in the next extent.
    if last == NEWLINE:
        return
    share = max(_LEAST_TAIL_BYTES, (end - start) // _TAIL_SHARE)
    at = end
    first_bytes, most_bytes = min(TAIL_BYTES, window_bytes, share), max(TAIL_BYTES, window_bytes)
    for piece in tail(source, at, first_bytes=first_bytes, most_bytes=most_bytes):
        behind = piece.find(NEWLINE) + 1
        yield at, piece[:behind] if behind else piece
        at += len(piece)
        # `cut_lines` reports a line that is too long; its end is not needed for that.
        if behind or at - end > max_line_bytes:
            return


def stream_windows(
    source: RangeSource, start: int, end: int, window_bytes: int
) -> Iterator[Window]:
    """Yield `[start, end)` in windows with their offsets; StoreUnavailable if it ends early."""
    if start >= end:
        return
    at = start
    for window in source.stream(start, end, window_bytes=window_bytes):
        if window:
            yield at, window
        at += len(window)
    # Never the end of the data: the missing bytes may contain records.
    if at != end:
        raise StoreUnavailable(
            f"{source.version.uri}[{start}-{end}): the stream ended at byte {at}; try again"
        )


def _behind_newline(windows: Iterator[Window]) -> Iterator[Window]:
    for offset, window in windows:
        behind = window.find(NEWLINE) + 1
        if behind:
            if behind < len(window):
                yield offset + behind, window[behind:]
            yield from windows


def cut_lines(windows: Iterable[Window], *, max_line_bytes: int) -> Iterator[LineBlock]:
    """Cut contiguous windows into blocks of whole lines; a final unterminated line counts.

    A block is one window plus the start of its first line, so a window and `max_line_bytes` bound
    memory. A line longer than `max_line_bytes` (without its LF) becomes a bad record without bytes,
    in a block of its own.
    """
    # The start of a line without its newline; its bytes are dropped once it is too long.
    start = size = 0
    pieces: list[bytes] = []
    for offset, window in windows:
        if not size:
            start = offset
        first, behind = window.find(NEWLINE) + 1, window.rfind(NEWLINE) + 1
        if behind:
            done = 0
            if size + first - 1 > max_line_bytes:
                done = first
                yield _too_long(start, offset + done, max_line_bytes)
                start, pieces = offset + done, []
            if done < behind:
                data = b"".join((*pieces, memoryview(window)[done:behind]))
                yield from _blocks(start, data, max_line_bytes)
            start, size, pieces = offset + behind, 0, []
        size += len(window) - behind
        pieces.append(window[behind:])
        if size > max_line_bytes:
            pieces.clear()
    if size > max_line_bytes:
        yield _too_long(start, start + size, max_line_bytes)
    elif size:
        yield from _blocks(start, b"".join(pieces), max_line_bytes)


def _blocks(offset: int, data: bytes, max_line_bytes: int) -> Iterator[LineBlock]:
    if offset == 0 and data == BOM:
        return  # a mark without a line behind it
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content == _LF)
    # The last line of the object may lack its LF.
    if not len(ends) or ends[-1] != len(content) - 1:
        ends = np.append(ends, len(content))
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))
    stops = np.minimum(ends + 1, len(content))
    starts = begins.copy()
    if offset == 0 and data.startswith(BOM):
        starts[0] = len(BOM)
    # A CR belongs to the terminator only before an LF; elsewhere it is content.
    before_lf = (ends > 0) & (ends < len(content)) & (content[ends - 1] == _CR)
    block = LineBlock(
        offset, content, starts, np.where(before_lf, ends - 1, ends), stops, offset + len(data)
    )
    first = 0
    for line in np.flatnonzero(ends - begins > max_line_bytes).tolist():
        if line > first:
            yield block.part(first, line)
        yield _too_long(offset + int(begins[line]), offset + int(stops[line]), max_line_bytes)
        first = line + 1
    if first < len(block):
        yield block.part(first, len(block))


def _too_long(location: int, next_position: int, max_line_bytes: int) -> LineBlock:
    none = np.empty(0, np.int64)
    reason = f"the line is longer than the {max_line_bytes} bytes that are allowed for one record"
    bad = BadRecord(raw=None, location=location, reason=reason)
    return LineBlock(location, np.empty(0, np.uint8), none, none, none, next_position, (bad,))


def invalid_utf8_lines(block: LineBlock) -> dict[int, str]:
    """Return the lines that are not UTF-8, each with its reason."""
    data = block.data
    if not len(block) or data.max() < _ASCII_END:
        return {}
    # Arrow validates in a cast, without creating Python text of the whole block.
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data)]
    with suppress(pa.ArrowInvalid):
        pa.BinaryArray.from_buffers(pa.binary(), 1, buffers).cast(pa.string())
        return {}
    # An LF is never part of a multi-byte character, so lines can be decoded one by one.
    suspects = np.unique(block.lines_at(np.flatnonzero(data >= _ASCII_END)))
    reasons: dict[int, str] = {}
    for line in suspects[suspects >= 0].tolist():  # -1: the byte order mark
        raw = block.raw(line)
        try:
            raw.decode()
        except UnicodeDecodeError as exc:
            location = block.location(line) + exc.start
            reasons[line] = f"not UTF-8: {exc.reason} (0x{raw[exc.start]:02x}) at byte {location}"
    return reasons
