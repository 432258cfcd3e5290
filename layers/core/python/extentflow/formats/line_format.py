"""Implement `Format` for newline-delimited records; a `LineDecoder` interprets the lines.

    object -> [decompress] -> windows -> lines of the extent -> LineReader -> chunks

Gzip (RFC 1952) and zstd (RFC 8878) objects are decompressed as one stream in constant memory. The
format `text`, one record per line in the column `value`, is the smallest decoder.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.config.specs import NO_OPTIONS, NoOptions
from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, magic
from extentflow.formats.lines import (
    Indexes,
    LineBlock,
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
_PIECE_BYTES = 64 << 10
# zlib reads the header and trailer of gzip if 16 is added to the size of the window.
_GZIP_MEMBER = 16 + zlib.MAX_WBITS


class ObjectHead:
    """The first bytes of an object, read on demand in steps that double.

    The first step is 1/256 of the object, between 264 and 4,096 bytes: enough for every signature
    and almost every header, and negligible compared to the object.
    """

    def __init__(self, source: RangeSource, expected: str, options: FormatOptions) -> None:
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
        self._content = content

    def lines(self) -> Iterator[LineBlock]:
        """Yield the lines of the content from the start. Call once."""
        return cut_lines(_with_offsets(self._content), max_line_bytes=self._max_line_bytes)


def _with_offsets(pieces: Iterable[bytes]) -> Iterator[Window]:
    at = 0
    for piece in pieces:
        yield at, piece
        at += len(piece)


def make_chunk(
    block: LineBlock, batch: pa.RecordBatch, lines: Indexes | None, bad: Mapping[int, str]
) -> Chunk:
    """Return the chunk of a block: `lines` (None: all) became `batch`.

    `bad` maps line numbers within the block to reasons.
    """
    records = (BadRecord(block.raw(line), block.location(line), bad[line]) for line in sorted(bad))
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

        Raises:
            UnsupportedFormat, CorruptObject: the first bytes do not match the options.
        """


class LineFormat:
    """A Format whose units are lines. Caches the readers of the latest object versions."""

    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None
    cut_version: int = 1

    def __init__(self, name: str, options: FormatOptions, decoder: LineDecoder) -> None:
        problems = []
        if options.compression not in ("none", *_CODECS):
            known = ", ".join(("none", *sorted(_CODECS)))
            problems.append(
                f"file.compression.type={options.compression} is unknown; set one of {known}"
            )
        if min(options.window_bytes, options.batch_rows, options.max_record_bytes) < 1:
            problems.append("window, batch and record sizes must be at least 1")
        # A block is the start of a line and one window, nearly two steps when decompressed.
        if options.max_record_bytes + 2 * options.window_bytes >= _ARROW_OFFSETS:
            problems.append("one record and two windows together must be smaller than 2 GiB")
        if problems:
            raise Misconfigured(problems)
        self.name = name
        # A compressed stream can only be read from its start.
        self.splittable = options.compression == "none"
        self._options = options
        self._decoder = decoder
        self._readers: OrderedDict[ObjectVersion, LineReader] = OrderedDict()

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield `[0, t), [t, 2t), ...` without reading; one range where compressed."""
        size = source.version.size
        step = max(1, target_bytes) if self.splittable else max(1, size)
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the records of the lines that `extent` owns; see `Format.decode`."""
        read = self._reader(source)
        options, limit = self._options, self._options.max_record_bytes
        if self.splittable:
            windows = owned_windows(
                source, extent, position, window_bytes=options.window_bytes, max_line_bytes=limit
            )
        else:
            windows = self._decompressed_windows(source, extent, position)
        for block in cut_lines(windows, max_line_bytes=limit):
            yield from map(read, block.parts(options.batch_rows))

    def _decompressed_windows(
        self, source: RangeSource, extent: Extent, position: int
    ) -> Iterator[Window]:
        """Yield the content from `position` on; decompresses and drops what precedes it."""
        size = source.version.size
        if (extent.start, extent.end) != (0, size):
            raise Conflict(f"{extent.uri}: a compressed object has one extent, [0-{size})")
        step = self._options.window_bytes
        raw = (window for _, window in stream_windows(source, 0, size, step))
        content = decompress(raw, self._options.compression, step_bytes=step, uri=extent.uri)
        end = 0
        for at, piece in _with_offsets(content):
            end = at + len(piece)
            if end > position:
                yield max(at, position), piece[max(0, position - at) :]
        # The end of the content is a valid position: its last line is done.
        if position > end:
            raise CorruptObject(
                f"{extent.uri}: decompresses to {end} bytes, decoding resumes at {position}"
            )

    def _reader(self, source: RangeSource) -> LineReader:
        # Kept per version, so that the extents of an object read its header once per process.
        known = self._readers.get(source.version)
        if known is None:
            known = self._decoder.reader(ObjectHead(source, self.name, self._options))
            self._readers[source.version] = known
            if len(self._readers) > _CACHED_READERS:
                self._readers.popitem(last=False)
        return known


_Corrupt: TypeAlias = Callable[[str], CorruptObject]


def decompress(
    compressed: Iterable[bytes], codec: str, *, step_bytes: int, uri: str
) -> Iterator[bytes]:
    """Yield the content of `compressed` in order, in pieces of at least `step_bytes`.

    Only the last piece may be shorter, and no piece reaches twice `step_bytes`. `codec` is gzip or
    zstd. Errors of the input propagate unchanged.

    Raises:
        CorruptObject: truncated, damaged, or followed by other bytes; names `uri`.
    """

    def corrupt(reason: str) -> CorruptObject:
        return CorruptObject(f"{uri}: {codec}: {reason}; replace the object, then run it again")

    # Small pieces in, bounded steps out: a highly compressed object needs no more memory.
    pieces = (
        piece[start : start + _PIECE_BYTES]
        for piece in compressed
        for start in range(0, len(piece), _PIECE_BYTES)
    )
    gathered: list[bytes] = []
    size = 0
    for step in _CODECS[codec](pieces, step_bytes, corrupt):
        gathered.append(step)
        size += len(step)
        if size >= step_bytes:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


def _gunzip(pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt) -> Iterator[bytes]:
    rest = next(pieces, b"")
    # A gzip file is a series of members (RFC 1952, section 2.2); zlib decodes one at a time.
    while rest:
        member = zlib.decompressobj(_GZIP_MEMBER)
        while not member.eof:
            try:
                step = member.decompress(rest, step_bytes)
            except zlib.error as exc:
                raise corrupt(f"damaged, or other bytes follow the last member: {exc}") from exc
            if step:
                yield step
            rest = member.unconsumed_tail
            if not rest and not member.eof:
                rest = next(pieces, b"")
                # Without this check, a truncated object would look like a shorter one.
                if not rest:
                    raise corrupt("truncated: the last member has no end")
        # gzip(1) and tapes allow zeros after a member.
        rest = member.unused_data.lstrip(b"\0")
        while not rest and (piece := next(pieces, b"")):
            rest = piece.lstrip(b"\0")


class _Readable:
    """A file for Arrow over pieces of bytes; `reading` is True while the input is read."""

    closed = False

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.reading = False
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self.reading = True
            self._rest = next(self._pieces, b"")
            self.reading = False
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def close(self) -> None:
        # Arrow calls it when the stream is destroyed and prints an error if it does not exist.
        pass


def _decompress_zstd(
    pieces: Iterator[bytes], step_bytes: int, corrupt: _Corrupt
) -> Iterator[bytes]:
    readable = _Readable(pieces)
    stream = pa.CompressedInputStream(pa.PythonFile(readable, mode="r"), "zstd")
    while True:
        try:
            step = bytes(stream.read(step_bytes))
        except OSError as exc:
            # An OSError of the input, such as a reset connection, passes through Arrow unchanged.
            if readable.reading:
                raise
            # Arrow's message for a damaged or truncated frame.
            raise corrupt(str(exc)) from exc
        if not step:
            return
        yield step


# They yield the content in steps of at most `step_bytes`.
_CODECS = {"gzip": _gunzip, "zstd": _decompress_zstd}

_BINARY = pa.schema([("value", pa.binary())])
_STRING = pa.schema([("value", pa.string())])


def open_text(options: FormatOptions, _own: NoOptions = NO_OPTIONS) -> LineFormat:
    """Return the format `text`: one column, `value`; an empty line is an empty record.

    With `validate_text`, values are strings and a line that is not UTF-8 is a bad record; without
    it, values are binary and not checked.
    """
    return LineFormat("text", options, _TextDecoder(validate=options.validate_text))


class _TextDecoder:
    def __init__(self, *, validate: bool) -> None:
        self._validate = validate

    def reader(self, _head: ObjectHead) -> LineReader:
        return self._read

    def _read(self, block: LineBlock) -> Chunk:
        if not self._validate:
            return make_chunk(block, pa.record_batch([block.values()], schema=_BINARY), None, {})
        bad = invalid_utf8_lines(block)
        lines = lines_except(block, bad)
        # A view, as the bytes are known to be UTF-8: a cast would validate them again.
        values = block.values(lines).view(pa.string())
        return make_chunk(block, pa.record_batch([values], schema=_STRING), lines, bad)


TEXT = FormatSpec(
    open=open_text,
    extensions=("txt", "text", "log"),
    converters=("string", "bytes"),
    raw=True,
    has_columns=False,
)
