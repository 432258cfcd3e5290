"""Implement `Format` for delimiter-terminated records; a `LineDecoder` interprets the lines.

    object -> [decompress] -> windows -> lines of the extent -> as UTF-8 -> LineReader -> chunks

Compressed objects are decompressed as one stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.arrays.spans import Indexes
from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import (
    BadRecord,
    Chunk,
    FormatOptions,
    ResumePoint,
    ResumePoints,
    cut_at_units,
    magic,
)
from extentflow.formats.blocks import BlockContent
from extentflow.formats.compressed.bgzf import BgzfContent
from extentflow.formats.compressed.bzip2_blocks import Bzip2Content
from extentflow.formats.compressed.compression import (
    CODECS,
    can_resume,
    decompress,
    is_usable,
    stream_codec,
)
from extentflow.formats.compressed.zstd_frames import GROUP_OVERLAPS, FrameTable, content_of
from extentflow.formats.lines import (
    LineBlock,
    LineSyntax,
    Window,
    no_lines,
    one_record,
    stream_windows,
)
from extentflow.formats.text.charsets import UTF_8, Charset, decoded_windows, to_utf8
from extentflow.formats.text.object_head import (
    BGZF,
    BZIP2_BLOCKS,
    SEEKABLE_ZSTD,
    Cutter,
    ObjectHead,
    with_offsets,
)
from extentflow.formats.version_cache import VersionCache
from extentflow.model import Extent
from extentflow.storage import RangeSource

log = logging.getLogger(__name__)

_CUT = ("none", BGZF, SEEKABLE_ZSTD, BZIP2_BLOCKS)
# The offsets of Arrow's `binary` and `string` are signed 32-bit integers.
_ARROW_OFFSETS = 1 << 31
# A byte of another character set becomes at most three of UTF-8.
_UTF_8_GROWTH = 3


def make_chunk(
    block: LineBlock, batch: pa.RecordBatch, lines: Indexes | None, bad: Mapping[int, str]
) -> Chunk:
    """Return the chunk of a block: `lines` (None: all) became `batch`; `bad`: reasons by line."""
    records = [
        BadRecord(block.object_bytes(line), block.location(line), bad[line]) for line in sorted(bad)
    ]
    if block.bad:
        records = sorted((*block.bad, *records), key=lambda record: record.location)
    return Chunk(batch, block.next_position, block.locations(lines), tuple(records))


def lines_except(block: LineBlock, dropped: Collection[int]) -> Indexes | None:
    """Return the lines of the block that are not `dropped`; None for all lines."""
    if not dropped:
        return None
    return np.delete(np.arange(len(block)), np.fromiter(dropped, np.int64))


# Turns lines of one object into records and bad records, including `block.bad`; called for
# consecutive blocks from any position.
LineReader: TypeAlias = Callable[[LineBlock], Chunk]


class LineDecoder(Protocol):
    """The meaning of a line in one format under the options of one connector."""

    def reader(self, head: ObjectHead) -> LineReader:
        """Return the reader for one object version; may read `head` (for a header).

        UnsupportedFormat or CorruptObject if the first bytes do not match the options.
        """


class LineFormat:
    """A Format whose units are lines. Caches the readers of the latest object versions."""

    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None

    def __init__(
        self,
        name: str,
        options: FormatOptions,
        decoder: LineDecoder,
        *,
        delimiter: str | None = None,
        as_utf8: bool = True,
        cutter: Callable[[ObjectHead], Cutter] | None = None,
        cut_version: int = 1,
    ) -> None:
        """`delimiter` None: LF or CR LF. `as_utf8` False: lines stay in the object's charset.

        `cutter` returns what cuts an object (None: into lines).
        """
        problems = []
        compression, known = options.compression, ("none", *sorted(CODECS))
        if compression not in known:
            one_of = f"set one of {', '.join(known)}"
            problems.append(f"file.compression.type={compression} is unknown; {one_of}")
        sizes = (options.window_bytes, options.batch_rows, options.max_record_bytes)
        if min(*sizes, options.overlap_bytes) < 1:
            problems.append("window, batch, record and overlap sizes must be at least 1")
        if len((delimiter or "").encode()) > options.overlap_bytes:
            problems.append(f"text.delimiter is longer than {options.overlap_bytes} bytes")
        charset = UTF_8 if options.charset is None else Charset.named(options.charset)
        # A block is the start of a line and one window, nearly two steps when decompressed.
        most = options.max_record_bytes + 2 * options.window_bytes
        if (most if charset == UTF_8 else _UTF_8_GROWTH * most) >= _ARROW_OFFSETS:
            problems.append("one record and two windows together must be smaller than 2 GiB")
        if problems:
            raise Misconfigured(problems)
        if charset.codec not in ("utf-16", "utf-32"):
            charset.syntax(delimiter)
        self.name = name
        # A compressed stream can only be read from its start.
        self.splittable = compression in _CUT and not charset.stateful
        self._stream_codec = stream_codec(compression)
        self._options = options
        self._decoder = decoder
        self._delimiter = delimiter
        self._as_utf8 = as_utf8
        self._cutter = cutter
        self.cut_version = cut_version
        # The extents of an object read its header once per process.
        self._opened = VersionCache(self._open_object)
        self._tables = VersionCache(self._read_table)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield `[0, t), [t, 2t), ...`; one range where the object is not cut.

        Reads the seek table of zstd, and the first block of bzip2 that would be cut.
        """
        size, step = source.version.size, max(1, target_bytes)
        if self._options.compression != "none":
            magic.require_bytes(source.version, self._stream_codec)
        if self._options.compression == SEEKABLE_ZSTD and self.splittable:
            yield from cut_at_units(self._tables.get(source).units(), step, size)
            return
        if not self.splittable or (step < size and not self._can_cut(source)):
            step = max(1, size)
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def _can_cut(self, source: RangeSource) -> bool:
        """Whether an object is cut; otherwise it has one extent."""
        # Where a code unit begins in a block of bzip2 is not known.
        in_blocks = self.splittable and self._options.compression == BZIP2_BLOCKS
        return self._opened.get(source).charset.unit == 1 if in_blocks else self.splittable

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the records of the lines that `extent` owns; see `Format.decode`."""
        return self.decode_from(source, extent, position, ResumePoints())

    def decode_record(
        self, source: RangeSource, extent: Extent, raw: bytes, location: int
    ) -> Chunk:
        """Return the chunk of one record; see `RecordFormat`."""
        del extent
        opened = self._opened.get(source)
        if opened.charset == UTF_8 or not self._as_utf8:
            return opened.read(one_record(raw, location))
        try:
            text = raw.decode(opened.charset.codec).encode()
        except UnicodeError as exc:
            bad = BadRecord(raw, location, f"no text in {opened.charset.codec}: {exc}")
            return opened.read(no_lines(location, location, bad))
        block = one_record(text, location, original=raw)
        return opened.read(replace(block, charset=opened.charset.codec))

    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        """Yield as `decode`; where compressed, from a point on, see `ResumableFormat`."""
        opened = self._opened.get(source)
        options, limit = self._options, self._options.max_record_bytes
        content = self._block_content(source, extent, position)
        if not self.splittable:
            windows = self._stream_from(source, extent, position, points)
            blocks = opened.cutter.cut(windows, max_record_bytes=limit)
        elif content is not None:
            blocks = opened.cutter.owned_in_blocks(
                content, window_bytes=options.window_bytes, max_record_bytes=limit
            )
        else:
            if options.compression == SEEKABLE_ZSTD:
                table, overlap = self._tables.get(source), options.overlap_bytes
                source, extent = content_of(source, table, extent, overlap)
            window = options.window_bytes
            blocks = opened.cutter.owned(
                source, extent, position, window_bytes=window, max_record_bytes=limit
            )
        for block in blocks:
            for part in block.parts(options.batch_rows):
                yield opened.read(
                    to_utf8(part, opened.charset, opened.syntax) if self._as_utf8 else part
                )

    def _block_content(
        self, source: RangeSource, extent: Extent, position: int
    ) -> BlockContent | None:
        if self._options.compression == BGZF:
            return BgzfContent(source, extent, position)
        if self._options.compression == BZIP2_BLOCKS:
            if not self._can_cut(source):
                _require_whole(extent)
            overlap_bytes = self._options.overlap_bytes
            return Bzip2Content(source, extent, position, overlap_bytes=overlap_bytes)
        return None

    def _stream_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Window]:
        """Yield the content from `position` on; decompresses and drops what precedes it."""
        codec, charset = self._stream_codec, self._opened.get(source).charset
        size = source.version.size
        # A point is a hint: one that another version or a defect stored must not fail the extent.
        if points.start is not None and not is_usable(points.start, codec, size):
            log.warning("%s: its resume point is not used: damaged", extent.uri)
            points.discard_start()
        if not can_resume(codec) or charset.stateful:
            points = ResumePoints()
        start = points.start or ResumePoint(0, 0)
        _require_whole(extent)
        step = self._options.window_bytes
        windows = stream_windows(source, start.compressed, size, step)
        content: Iterator[bytes] = (window for _, window in windows)
        if codec != "none":
            content = decompress(content, codec, step_bytes=step, uri=extent.uri, points=points)
        if charset.stateful:
            windows = decoded_windows(content, charset, extent.uri)
        else:
            windows = with_offsets(content, start.content)
        end = start.content
        for at, piece in windows:
            end = at + len(piece)
            if end > position:
                yield max(at, position), piece[max(0, position - at) :]
        # The end of the content is a valid position: its last line is done.
        if position > end:
            raise CorruptObject(
                f"{extent.uri}: decompresses to {end} bytes, decoding resumes at {position}"
            )

    def _open_object(self, source: RangeSource) -> _OpenedObject:
        head = ObjectHead(source, self.name, self._options, self._delimiter, self._cutter)
        return _OpenedObject(head.charset, head.syntax, head.cutter, self._decoder.reader(head))

    def _read_table(self, source: RangeSource) -> FrameTable:
        return FrameTable.read(source, GROUP_OVERLAPS * self._options.overlap_bytes)


def _require_whole(extent: Extent) -> None:
    size = extent.version.size
    if (extent.start, extent.end) != (0, size):
        raise Conflict(f"{extent.uri}: an object that cannot be cut has one extent, [0-{size})")


@dataclass(frozen=True, slots=True)
class _OpenedObject:
    """What the start of one object version shows."""

    charset: Charset
    syntax: LineSyntax
    cutter: Cutter
    read: LineReader
