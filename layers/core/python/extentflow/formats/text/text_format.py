"""Implement `Format` for delimiter-terminated records; a `LineDecoder` interprets the lines.

    object -> [decompress] -> windows -> lines of the extent -> as UTF-8 -> LineReader -> chunks

Compressed objects are decompressed as one stream. The format `text`, one record per line in the
column `value`, is the smallest decoder.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.arrays.spans import Indexes
from extentflow.config.connector import SPLIT_COMPRESSIONS
from extentflow.config.table import key
from extentflow.config.types import DELIMITER, or_word, whole
from extentflow.errors import Conflict, CorruptObject, Misconfigured, UnsupportedFormat
from extentflow.formats import (
    BadRecord,
    Chunk,
    FormatOptions,
    FormatSpec,
    ResumePoint,
    ResumePoints,
    cut_at_units,
    magic,
)
from extentflow.formats.blocks import BlockContent, BlockIndex
from extentflow.formats.compressed import bzip2_blocks
from extentflow.formats.compressed.bgzf import BLOCK_OFFSET_BITS, BgzfContent, content_windows
from extentflow.formats.compressed.bzip2_blocks import (
    FIRST_READ_BYTES,
    Bzip2Content,
    head_windows,
)
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
    Places,
    Window,
    behind_delimiter,
    cut_lines,
    invalid_utf8_lines,
    one_record,
    owned_windows,
    stream_windows,
    until_end,
    whole_delimiters,
)
from extentflow.formats.text.charsets import UTF_8, Charset, charset_of, decoded_windows, to_utf8
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.storage.ranges import tail

log = logging.getLogger(__name__)

# The bounds of the first step that ObjectHead describes, and of the steps that double.
_HEAD_STEP_BYTES = 4096
_HEAD_SHARE = 256
_GROWTH_LIMIT_BYTES = 1 << 20
_CACHED_READERS = 64
BGZF, SEEKABLE_ZSTD, BZIP2_BLOCKS = (
    "bgzf",
    SPLIT_COMPRESSIONS["zstd"],
    SPLIT_COMPRESSIONS["bzip2"],
)
_CUT = ("none", BGZF, SEEKABLE_ZSTD, BZIP2_BLOCKS)
# The offsets of Arrow's `binary` and `string` are signed 32-bit integers.
_ARROW_OFFSETS = 1 << 31
# A byte of another character set becomes at most three of UTF-8.
_UTF_8_GROWTH = 3


class ObjectHead:
    """The first bytes of an object, read on demand in steps that double.

    The first step is 1/256 of the object, between 264 and 4,096 bytes: enough for every signature
    and almost every header, and negligible compared to the object.
    """

    def __init__(
        self,
        source: RangeSource,
        expected: str,
        options: FormatOptions,
        delimiter: str | None = None,
        cutter: Callable[[ObjectHead], Cutter] | None = None,
    ) -> None:
        """Raise UnsupportedFormat if the first bytes show another kind of content."""
        version, compression = source.version, options.compression
        self.version = version
        self._max_line_bytes = options.max_record_bytes
        step = max(magic.HEAD_BYTES, min(_HEAD_STEP_BYTES, version.size // _HEAD_SHARE))
        if compression == BZIP2_BLOCKS:
            # Nothing is known before the first block ends.
            step = max(step, min(FIRST_READ_BYTES, version.size // _HEAD_SHARE))
        content = tail(source, 0, first_bytes=step, most_bytes=_GROWTH_LIMIT_BYTES)
        head, end = next(content, b""), b""
        if magic.needs_tail(head):
            end = source.read(max(0, version.size - magic.TAIL_BYTES), version.size)
        named = stream_codec(compression)
        magic.require_signature(version, head, end, expected=expected, compression=named)
        content = chain([head], content)
        windows = _with_offsets(content)
        self._places: Places | None = None
        if compression == BGZF:
            self._places = index = BlockIndex(BLOCK_OFFSET_BITS)
            windows = content_windows(content, 0, index, version.uri)
        elif compression == BZIP2_BLOCKS:
            self._places = index = BlockIndex(bzip2_blocks.BLOCK_OFFSET_BITS)
            windows = head_windows(content, index, version.uri)
        elif compression != "none":
            step = magic.HEAD_BYTES
            content = decompress(content, named, step_bytes=step, uri=version.uri)
            windows = _with_offsets(_growing(content))
        if compression != "none":
            # No step but the last is shorter than HEAD_BYTES; blocks may be.
            first = list(_head_windows(windows))
            head = b"".join(window for _, window in first)
            magic.require_content_signature(version, head, expected=expected, compression=named)
            windows = chain(first, windows)
        self.charset = charset_of(options.charset, head[: magic.HEAD_BYTES], version.uri)
        self.syntax = self.charset.syntax(delimiter)
        if compression == BGZF and (self.charset.unit > 1 or self.charset.stateful):
            raise UnsupportedFormat(
                f"{version.uri}: bgzf around {self.charset.codec} cannot be cut; set"
                " file.compression.type=gzip"
            )
        self.cutter = (cutter or LineCutter.of)(self)
        self._windows = windows

    def lines(self) -> Iterator[LineBlock]:
        """Yield the lines of the content from the start, as UTF-8. Call once.

        Ends with a line that is too long: only its beginning is read.
        """
        windows = self._windows
        if self.charset.stateful:
            content = (window for _, window in windows)
            windows = decoded_windows(content, self.charset, self.version.uri)
        limit = self._max_line_bytes
        bounded = _up_to_long_line(windows, self.syntax, limit)
        for block in self.cutter.cut(bounded, max_record_bytes=limit, places=self._places):
            yield to_utf8(block, self.charset, self.syntax)


def _growing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the first piece, then the others in windows whose size doubles."""
    size = 0
    gathered: list[bytes] = []
    wanted = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= wanted:
            yield b"".join(gathered)
            wanted = min(_GROWTH_LIMIT_BYTES, 2 * size)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _head_windows(windows: Iterator[Window]) -> Iterator[Window]:
    size = 0
    while size < magic.HEAD_BYTES and (window := next(windows, None)):
        size += len(window[1])
        yield window


def _up_to_long_line(
    windows: Iterator[Window], syntax: LineSyntax, max_line_bytes: int
) -> Iterator[Window]:
    """Yield windows up to the one in which a line exceeds its limit."""
    start: int | None = None
    for offset, window in whole_delimiters(windows, syntax):
        yield offset, window
        _, behind = syntax.span(window)
        if behind or start is None:
            start = offset + behind
        if offset + len(window) - start > max_line_bytes:
            return


def _with_offsets(pieces: Iterable[bytes], at: int = 0) -> Iterator[Window]:
    for piece in pieces:
        yield at, piece
        at += len(piece)


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


class Cutter(Protocol):
    """Cuts content into blocks of lines, or of records that may have several lines."""

    def cut(
        self, windows: Iterator[Window], *, max_record_bytes: int, places: Places | None = None
    ) -> Iterator[LineBlock]:
        """Yield what contiguous `windows`, the first of which begins with a line, hold."""

    def owned(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        window_bytes: int,
        max_record_bytes: int,
    ) -> Iterator[LineBlock]:
        """Yield what begins in `extent`, from `position` on; see `Format.decode`."""

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield what begins in the content of an extent's blocks."""


@dataclass(frozen=True, slots=True)
class LineCutter:
    """The Cutter of lines."""

    syntax: LineSyntax

    @classmethod
    def of(cls, head: ObjectHead) -> LineCutter:
        """Return the cutter of an object's lines."""
        return cls(head.syntax)

    def cut(
        self, windows: Iterator[Window], *, max_record_bytes: int, places: Places | None = None
    ) -> Iterator[LineBlock]:
        """Yield the lines of `windows`."""
        return cut_lines(
            windows, max_line_bytes=max_record_bytes, syntax=self.syntax, places=places
        )

    def owned(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        window_bytes: int,
        max_record_bytes: int,
    ) -> Iterator[LineBlock]:
        """Yield the lines that begin in `extent`."""
        windows = owned_windows(
            source,
            extent,
            position,
            window_bytes=window_bytes,
            max_line_bytes=max_record_bytes,
            syntax=self.syntax,
        )
        return self.cut(windows, max_record_bytes=max_record_bytes)

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield the lines that begin in the content of an extent's blocks."""
        windows = content.windows(
            len(self.syntax.delimiter), window_bytes=window_bytes, most_behind=max_record_bytes
        )
        found = next(windows, None)
        if found is not None and content.has_context:
            windows = behind_delimiter(chain([found], windows), self.syntax, content.begin)
            found = next(windows, None)
        # A line that begins behind the extent's blocks is another extent's.
        if found is None or found[0] >= content.end():
            return
        windows = until_end(chain([found], windows), self.syntax, content.end)
        yield from self.cut(windows, max_record_bytes=max_record_bytes, places=content.index)


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
        self._opened: OrderedDict[ObjectVersion, _OpenedObject] = OrderedDict()
        self._tables: OrderedDict[ObjectVersion, FrameTable] = OrderedDict()

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield `[0, t), [t, 2t), ...`; one range where the object is not cut.

        Reads the seek table of zstd, and the first block of bzip2 that would be cut.
        """
        size, step = source.version.size, max(1, target_bytes)
        if self._options.compression != "none":
            magic.require_bytes(source.version, self._stream_codec)
        if self._options.compression == SEEKABLE_ZSTD and self.splittable:
            yield from cut_at_units(self._table(source).units(), step, size)
            return
        if not self.splittable or (step < size and not self._can_cut(source)):
            step = max(1, size)
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def _can_cut(self, source: RangeSource) -> bool:
        """Whether an object is cut; otherwise it has one extent."""
        # Where a code unit begins in a block of bzip2 is not known.
        in_blocks = self.splittable and self._options.compression == BZIP2_BLOCKS
        return self._open(source).charset.unit == 1 if in_blocks else self.splittable

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the records of the lines that `extent` owns; see `Format.decode`."""
        return self.decode_from(source, extent, position, ResumePoints())

    def decode_record(
        self, source: RangeSource, extent: Extent, raw: bytes, location: int
    ) -> Chunk:
        """Return the chunk of one record; see `RecordFormat`."""
        del extent
        opened = self._open(source)
        if opened.charset == UTF_8 or not self._as_utf8:
            return opened.read(one_record(raw, location))
        try:
            text = raw.decode(opened.charset.codec).encode()
        except UnicodeError as exc:
            block = replace(one_record(b"", location), starts=_NONE, ends=_NONE, stops=_NONE)
            bad = BadRecord(raw, location, f"no text in {opened.charset.codec}: {exc}")
            return opened.read(replace(block, bad=(bad,)))
        block = one_record(text, location, original=raw)
        return opened.read(replace(block, charset=opened.charset.codec))

    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        """Yield as `decode`; where compressed, from a point on, see `ResumableFormat`."""
        opened = self._open(source)
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
                table, overlap = self._table(source), options.overlap_bytes
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
        codec, charset = self._stream_codec, self._open(source).charset
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
            windows = _with_offsets(content, start.content)
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

    def _open(self, source: RangeSource) -> _OpenedObject:
        # Kept per version, so that the extents of an object read its header once per process.
        known = self._opened.get(source.version)
        if known is None:
            head = ObjectHead(source, self.name, self._options, self._delimiter, self._cutter)
            known = _OpenedObject(
                head.charset, head.syntax, head.cutter, self._decoder.reader(head)
            )
            self._opened[source.version] = known
            if len(self._opened) > _CACHED_READERS:
                self._opened.popitem(last=False)
        return known

    def _table(self, source: RangeSource) -> FrameTable:
        known = self._tables.get(source.version)
        if known is None:
            known = FrameTable.read(source, GROUP_OVERLAPS * self._options.overlap_bytes)
            self._tables[source.version] = known
            if len(self._tables) > _CACHED_READERS:
                self._tables.popitem(last=False)
        return known


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


_NONE = np.empty(0, np.int64)
_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The keys `text.*`."""

    delimiter: str | None = key(
        or_word("newline", DELIMITER),
        r"What ends a record; `newline` is LF or CR LF. Its end is not its beginning (`|~;`, not"
        r" `|~|`): several in a row could be cut anywhere. Escapes: `\n`, `\r`, `\t`, `\0`, `\\`,"
        r" `\x1e`, `\u2028`.",
        shown="newline",
    )
    header_lines: int = key(whole(0, 10_000), "Lines at an object's start to skip.", default=0)


def open_text(options: FormatOptions, own: TextOptions = TextOptions()) -> LineFormat:
    """Return the format `text`: one column, `value`; an empty line is an empty record.

    With `validate_text`, values are strings and a line that is no text is a bad record; without it,
    values are binary, as in the object, and not checked.
    """
    decoder = _TextDecoder(validate=options.validate_text, header_lines=own.header_lines)
    return LineFormat(
        "text", options, decoder, delimiter=own.delimiter, as_utf8=options.validate_text
    )


class _TextDecoder:
    def __init__(self, *, validate: bool, header_lines: int) -> None:
        self._validate = validate
        self._header_lines = header_lines

    def reader(self, head: ObjectHead) -> LineReader:
        return partial(self._read, _offset_behind(head, self._header_lines))

    def _read(self, begin: int, block: LineBlock) -> Chunk:
        header: set[int] = set()
        if begin and (not len(block) or block.location(0) < begin):
            header = set(np.flatnonzero(block.offsets() < begin).tolist())
            block = replace(block, bad=tuple(bad for bad in block.bad if bad.location >= begin))
        bad = invalid_utf8_lines(block) if self._validate else {}
        bad = {line: reason for line, reason in bad.items() if line not in header}
        lines = lines_except(block, bad.keys() | header)
        values = block.values(lines)
        if not self._validate:
            return make_chunk(block, pa.record_batch([values], schema=_BINARY), lines, bad)
        # A view, as the bytes are known to be UTF-8: a cast would validate them again.
        batch = pa.record_batch([values.view(pa.string())], schema=_STRING)
        return make_chunk(block, batch, lines, bad)


def _offset_behind(head: ObjectHead, lines: int) -> int:
    """Return the offset behind the first `lines` lines."""
    for block in head.lines() if lines else ():
        if block.bad:
            where = f"{head.version.uri}: a line of the header, at byte {block.bad[0].location}"
            raise CorruptObject(f"{where}: {block.bad[0].reason}; set record.max.bytes")
        if lines <= len(block):
            return block.stop(lines - 1)
        lines -= len(block)
    return sys.maxsize if lines else 0


TEXT = FormatSpec(
    open=open_text,
    splits_compressed=True,
    options=TextOptions,
    extensions=("txt", "text", "log"),
    converters=("string", "bytes", "base64"),
    raw=True,
    has_columns=False,
)
