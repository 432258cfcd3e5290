"""Decompress zstd (RFC 8878) in groups of frames, whose ends are points without a state.

Tests: unit/formats/compressed/test_resume_points.py
"""

from __future__ import annotations

from collections.abc import Iterator

from extentflow.formats import ResumePoint, ResumePoints
from extentflow.formats.compressed.frames import Corrupt, by_arrow

_ZSTD_FRAME, _SKIPPABLE_FRAMES = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
_ZSTD_DESCRIPTOR, _SKIPPABLE_HEADER, _ZSTD_BLOCK_HEADER, _ZSTD_RLE = 5, 8, 3, 1
# Frames are grouped until they have this share of `every_bytes`: a new decoder costs little then.
_ZSTD_GROUP_SHARE = 16
# Content sizes of two bytes are stored less 256 (RFC 8878, section 3.1.1.1.4).
_TWO_BYTES, _TWO_BYTE_OFFSET = 2, 256


class FrameGroups:
    """Groups of whole frames of at least `group_bytes`, as streams of pieces of their own.

    `read` is the offset behind the last piece of a group. Other bytes end the grouping, not the
    stream: Arrow reports them.
    """

    def __init__(self, pieces: Iterator[bytes], start: int, group_bytes: int) -> None:
        self._pieces = pieces
        self._group_bytes = group_bytes
        self._rest = b""
        self.read = start
        # What the next bytes are: `_skip` bytes of a body, then a header of which `_header` is
        # known. `_checksum` is None between frames; `_last`: the body ends its frame.
        self._skip = 0
        self._header = bytearray()
        self._checksum: int | None = None
        self._last = False
        self._lost = False

    def group(self) -> Iterator[bytes]:
        """Yield the pieces of the next group; nothing at the end of the stream."""
        size = 0
        while piece := self._rest or next(self._pieces, b""):
            end = self._frame_end(piece, self._group_bytes - size)
            self._rest = piece[end:]
            size, self.read = size + end, self.read + end
            yield piece[:end]
            within = self._header or self._skip or self._checksum is not None
            if self._rest or (size >= self._group_bytes and not within):
                return

    def _frame_end(self, piece: bytes, least: int) -> int:
        """Return where the first frame ends behind `least` bytes; else the piece's length."""
        at = 0
        while at < len(piece) and not self._lost:
            if self._skip:
                step = min(self._skip, len(piece) - at)
                self._skip, at = self._skip - step, at + step
            else:
                self._header.append(piece[at])
                at += 1
                self._read_header()
            if self._last and not self._skip:
                self._checksum, self._last = None, False
                if at >= least:
                    return at
        return len(piece)

    def _read_header(self) -> None:
        """Interpret a complete header of a frame or a block (RFC 8878, section 3.1)."""
        header = self._header
        if self._checksum is not None:
            if len(header) == _ZSTD_BLOCK_HEADER:
                block = int.from_bytes(header, "little")
                self._last = bool(block & 1)
                self._skip = 1 if (block >> 1) & 3 == _ZSTD_RLE else block >> 3
                self._skip += self._checksum if self._last else 0
                header.clear()
            return
        magic = int.from_bytes(header[:4], "little")
        if magic in _SKIPPABLE_FRAMES and len(header) == _SKIPPABLE_HEADER:
            self._skip, self._last = int.from_bytes(header[4:], "little"), True
            header.clear()
        elif magic == _ZSTD_FRAME and len(header) == _ZSTD_DESCRIPTOR:
            descriptor = header[-1]
            single, size_bytes, dictionary_bytes = _frame_fields(descriptor)
            self._skip = (not single) + size_bytes + dictionary_bytes
            self._checksum = 4 if descriptor >> 2 & 1 else 0
            header.clear()
        self._lost = len(header) > _SKIPPABLE_HEADER


def unzstd(
    pieces: Iterator[bytes], step_bytes: int, corrupt: Corrupt, points: ResumePoints | None
) -> Iterator[bytes]:
    """Yield the content of all frames in steps of at most `step_bytes`."""
    if points is None:
        yield from by_arrow("zstd", pieces, step_bytes, corrupt)
        return
    start = points.start or ResumePoint(0, 0)
    frames = FrameGroups(pieces, start.compressed, max(1, points.every_bytes // _ZSTD_GROUP_SHARE))
    content, before = start.content, -1
    while frames.read != before:
        before = frames.read
        if before > start.compressed and points.is_due(content):
            points.add(ResumePoint(content, before))
        for step in by_arrow("zstd", frames.group(), step_bytes, corrupt):
            content += len(step)
            points.content = content
            yield step


def behind_skippable(head: bytes) -> bytes:
    """Return `head` behind the skippable frames that pzstd and seekable formats begin with."""
    while int.from_bytes(head[:4], "little") in _SKIPPABLE_FRAMES:
        head = head[_SKIPPABLE_HEADER + int.from_bytes(head[4:_SKIPPABLE_HEADER], "little") :]
    return head


def stated_content(head: bytes) -> int:
    """Return the content size in the header of a zstd frame; 0 where it has none (RFC 8878)."""
    if int.from_bytes(head[:4], "little") != _ZSTD_FRAME or len(head) < _ZSTD_DESCRIPTOR:
        return 0
    single, size_bytes, dictionary_bytes = _frame_fields(head[_ZSTD_DESCRIPTOR - 1])
    start = _ZSTD_DESCRIPTOR + (not single) + dictionary_bytes
    stated = int.from_bytes(head[start : start + size_bytes], "little")
    return stated + _TWO_BYTE_OFFSET if size_bytes == _TWO_BYTES else stated


def _frame_fields(descriptor: int) -> tuple[int, int, int]:
    """Return whether a frame is a single segment, and the bytes of content size and dictionary."""
    single = descriptor >> 5 & 1
    return single, (single, 2, 4, 8)[descriptor >> 6], (0, 1, 2, 4)[descriptor & 3]
