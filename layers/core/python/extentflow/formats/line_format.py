"""Implement `Format` for delimiter-terminated records; a `LineDecoder` interprets the lines.

    object -> [decompress] -> windows -> lines of the extent -> as UTF-8 -> LineReader -> chunks

Compressed objects are decompressed as one stream. The format `text`, one record per line in the
column `value`, is the smallest decoder.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.config.table import key
from extentflow.config.types import DELIMITER, or_word, whole
from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import (
    BadRecord,
    Chunk,
    FormatOptions,
    FormatSpec,
    ResumePoint,
    ResumePoints,
    magic,
)
from extentflow.formats.charsets import UTF_8, Charset, charset_of, decoded_windows, to_utf8
from extentflow.formats.compression import CODECS, can_resume, decompress
from extentflow.formats.lines import (
    Indexes,
    LineBlock,
    LineSyntax,
    Window,
    cut_lines,
    invalid_utf8_lines,
    owned_windows,
    stream_windows,
)
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.storage.ranges import tail

# The bounds of the first step that ObjectHead describes, and of the steps that double.
_HEAD_STEP_BYTES = 4096
_HEAD_SHARE = 256
_GROWTH_LIMIT_BYTES = 1 << 20
_CACHED_READERS = 64
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
    ) -> None:
        """Raise UnsupportedFormat if the first bytes show another kind of content."""
        version, compression = source.version, options.compression
        self.version = version
        self._max_line_bytes = options.max_record_bytes
        step = max(magic.HEAD_BYTES, min(_HEAD_STEP_BYTES, version.size // _HEAD_SHARE))
        content = tail(source, 0, first_bytes=step, most_bytes=_GROWTH_LIMIT_BYTES)
        head, end = next(content, b""), b""
        if compression == "none" and magic.needs_tail(head):
            end = source.read(max(0, version.size - magic.TAIL_BYTES), version.size)
        magic.require_signature(version, head, end, expected=expected, compression=compression)
        content = chain([head], content)
        if compression != "none":
            step = magic.HEAD_BYTES
            content = decompress(content, compression, step_bytes=step, uri=version.uri)
            # No step of `decompress` but the last is shorter than HEAD_BYTES.
            head = next(content, b"")
            magic.require_content_signature(
                version, head, expected=expected, compression=compression
            )
            content = chain([head], content)
        self.charset = charset_of(options.charset, head[: magic.HEAD_BYTES], version.uri)
        self.syntax = self.charset.syntax(delimiter)
        self._content = content

    def lines(self) -> Iterator[LineBlock]:
        """Yield the lines of the content from the start, as UTF-8. Call once."""
        windows = _with_offsets(self._content)
        if self.charset.stateful:
            windows = decoded_windows(self._content, self.charset)
        limit = self._max_line_bytes
        for block in cut_lines(windows, max_line_bytes=limit, syntax=self.syntax):
            yield to_utf8(block, self.charset, self.syntax)


def _with_offsets(pieces: Iterable[bytes], at: int = 0) -> Iterator[Window]:
    for piece in pieces:
        yield at, piece
        at += len(piece)


def make_chunk(
    block: LineBlock, batch: pa.RecordBatch, lines: Indexes | None, bad: Mapping[int, str]
) -> Chunk:
    """Return the chunk of a block: `lines` (None: all) became `batch`; `bad`: reasons by line."""
    records = (
        BadRecord(block.object_bytes(line), block.location(line), bad[line]) for line in sorted(bad)
    )
    return Chunk(batch, block.next_position, block.locations(lines), (*block.bad, *records))


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
    cut_version: int = 1

    def __init__(
        self,
        name: str,
        options: FormatOptions,
        decoder: LineDecoder,
        *,
        delimiter: str | None = None,
        as_utf8: bool = True,
    ) -> None:
        """`delimiter` None: LF or CR LF. `as_utf8` False: lines stay in the object's charset."""
        problems = []
        compression, known = options.compression, ("none", *sorted(CODECS))
        if compression not in known:
            one_of = f"set one of {', '.join(known)}"
            problems.append(f"file.compression.type={compression} is unknown; {one_of}")
        if min(options.window_bytes, options.batch_rows, options.max_record_bytes) < 1:
            problems.append("window, batch and record sizes must be at least 1")
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
        self.splittable = options.compression == "none" and not charset.stateful
        self._options = options
        self._decoder = decoder
        self._delimiter = delimiter
        self._as_utf8 = as_utf8
        self._opened: OrderedDict[ObjectVersion, _OpenedObject] = OrderedDict()

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield `[0, t), [t, 2t), ...` without reading; one range where compressed."""
        size = source.version.size
        step = max(1, target_bytes) if self.splittable else max(1, size)
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the records of the lines that `extent` owns; see `Format.decode`."""
        return self.decode_from(source, extent, position, ResumePoints())

    def decode_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Chunk]:
        """Yield as `decode`; where compressed, from a point on, see `ResumableFormat`."""
        opened = self._open(source)
        options, limit = self._options, self._options.max_record_bytes
        if self.splittable:
            windows = owned_windows(
                source,
                extent,
                position,
                window_bytes=options.window_bytes,
                max_line_bytes=limit,
                syntax=opened.syntax,
            )
        else:
            windows = self._stream_from(source, extent, position, points)
        for block in cut_lines(windows, max_line_bytes=limit, syntax=opened.syntax):
            for part in block.parts(options.batch_rows):
                yield opened.read(
                    to_utf8(part, opened.charset, opened.syntax) if self._as_utf8 else part
                )

    def _stream_from(
        self, source: RangeSource, extent: Extent, position: int, points: ResumePoints
    ) -> Iterator[Window]:
        """Yield the content from `position` on; decompresses and drops what precedes it."""
        codec, charset = self._options.compression, self._open(source).charset
        if not can_resume(codec) or charset.stateful:
            points = ResumePoints()
        start = points.start or ResumePoint(0, 0)
        size = source.version.size
        if (extent.start, extent.end) != (0, size):
            raise Conflict(f"{extent.uri}: an object that cannot be cut has one extent, [0-{size})")
        step = self._options.window_bytes
        windows = stream_windows(source, start.compressed, size, step)
        content: Iterator[bytes] = (window for _, window in windows)
        if codec != "none":
            content = decompress(content, codec, step_bytes=step, uri=extent.uri, points=points)
        if charset.stateful:
            windows = decoded_windows(content, charset)
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
            head = ObjectHead(source, self.name, self._options, self._delimiter)
            known = _OpenedObject(head.charset, head.syntax, self._decoder.reader(head))
            self._opened[source.version] = known
            if len(self._opened) > _CACHED_READERS:
                self._opened.popitem(last=False)
        return known


@dataclass(frozen=True, slots=True)
class _OpenedObject:
    """What the start of one object version shows."""

    charset: Charset
    syntax: LineSyntax
    read: LineReader


_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The keys `text.*`."""

    delimiter: str | None = key(
        or_word("newline", DELIMITER),
        r"What ends a record; `newline` is LF or CR LF. Escapes: `\n`, `\r`, `\t`, `\0`, `\\`,"
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
        if block.offset < begin:
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
        count = len(block) or len(block.bad)
        if lines <= count:
            return block.stop(lines - 1) if len(block) else block.next_position
        lines -= count
    return sys.maxsize if lines else 0


TEXT = FormatSpec(
    open=open_text,
    options=TextOptions,
    extensions=("txt", "text", "log"),
    converters=("string", "bytes"),
    raw=True,
    has_columns=False,
)
