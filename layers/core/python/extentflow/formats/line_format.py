"""Implement `Format` for newline-delimited records; a `LineDecoder` interprets the lines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import BadRecord, Chunk, FormatOptions, magic
from extentflow.formats.compression import CODECS, decompress
from extentflow.formats.lines import (
    Indexes,
    LineBlock,
    Window,
    cut_lines,
    owned_windows,
    stream_windows,
)
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

__all__ = ["LineDecoder", "LineFormat", "LineReader", "ObjectHead", "lines_except", "make_chunk"]

_HEAD_STEP_BYTES = 4096
_HEAD_SHARE = 256
_GROWTH_LIMIT_BYTES = 1 << 20
_CACHED_READERS = 64
_ARROW_OFFSETS = 1 << 31


class ObjectHead:
    """The first bytes of an object, read on demand in steps that double.

    The first step is 1/256 of the object, between 264 and 4,096 bytes: enough for every signature
    and almost every header, and negligible compared to the object.
    """

    def __init__(self, source: RangeSource, *, compression: str, max_line_bytes: int) -> None:
        self.version = source.version
        raw = _read_doubling(source)
        self.head = next(raw, b"")
        self._max_line_bytes = max_line_bytes
        self._content: Iterator[bytes] = chain([self.head], raw)
        if compression != "none":
            self._content = decompress(
                self._content, compression, step_bytes=magic.HEAD_BYTES, uri=self.version.uri
            )

    def content_head(self) -> bytes:
        """Return the first magic.HEAD_BYTES of the content, or all of it if shorter."""
        seen: list[bytes] = []
        for piece in self._content:
            seen.append(piece)
            if sum(map(len, seen)) >= magic.HEAD_BYTES:
                break
        self._content = chain(seen, self._content)
        return b"".join(seen)

    def lines(self) -> Iterator[LineBlock]:
        """Yield the lines of the content from the start. Call once."""
        return cut_lines(_with_offsets(self._content), max_line_bytes=self._max_line_bytes)


def _read_doubling(source: RangeSource) -> Iterator[bytes]:
    size = source.version.size
    step = max(magic.HEAD_BYTES, min(_HEAD_STEP_BYTES, size // _HEAD_SHARE))
    at = 0
    while at < size:
        end = min(at + step, size)
        yield source.read(at, end)
        at, step = end, min(2 * step, _GROWTH_LIMIT_BYTES)


def _with_offsets(pieces: Iterator[bytes]) -> Iterator[Window]:
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


class LineReader(Protocol):
    """Turns lines of one object into records; called for consecutive blocks from any position."""

    def __call__(self, block: LineBlock) -> Chunk:
        """Return the records and bad records of the block, including `block.bad`."""
        ...


class LineDecoder(Protocol):
    """The meaning of a line in one format under the options of one connector."""

    def reader(self, opening: ObjectHead) -> LineReader:
        """Return the reader for one object version; may read `head` (for a header).

        Raises:
            UnsupportedFormat, CorruptObject: the first bytes do not match the options.
        """
        ...


class LineFormat:
    """A Format whose units are lines. Caches the readers of the latest object versions."""

    location_unit: Literal["offset", "row"] = "offset"
    extent_bytes: int | None = None

    def __init__(self, name: str, options: FormatOptions, decoder: LineDecoder) -> None:
        _check(options)
        self.name = name
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
        windows = self._plain if self.splittable else self._decompressed_windows
        blocks = cut_lines(
            windows(source, extent, position), max_line_bytes=self._options.max_record_bytes
        )
        for block in blocks:
            for part in block.parts(self._options.batch_rows):
                yield read(part)

    def _plain(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Window]:
        return owned_windows(
            source,
            extent,
            position,
            window_bytes=self._options.window_bytes,
            max_line_bytes=self._options.max_record_bytes,
        )

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
        if position > end:
            raise CorruptObject(
                f"{extent.uri}: decompresses to {end} bytes, decoding resumes at {position}"
            )

    def _reader(self, source: RangeSource) -> LineReader:
        known = self._readers.get(source.version)
        if known is not None:
            return known
        reader = self._decoder.reader(self._read_head(source))
        self._readers[source.version] = reader
        if len(self._readers) > _CACHED_READERS:
            self._readers.popitem(last=False)
        return reader

    def _read_head(self, source: RangeSource) -> ObjectHead:
        """Read the first bytes of the object.

        Raises:
            UnsupportedFormat: they show another format or compression.
        """
        compression = self._options.compression
        opening = ObjectHead(
            source, compression=compression, max_line_bytes=self._options.max_record_bytes
        )
        size = source.version.size
        tail = b""
        if compression == "none" and magic.needs_tail(opening.head):
            tail = source.read(max(0, size - magic.TAIL_BYTES), size)
        magic.require_signature(
            source.version, opening.head, tail, expected=self.name, compression=compression
        )
        if compression != "none":
            magic.require_content_signature(
                source.version,
                opening.content_head(),
                expected=self.name,
                compression=compression,
            )
        return opening


def _check(options: FormatOptions) -> None:
    problems = []
    if options.compression not in ("none", *CODECS):
        known = ", ".join(("none", *sorted(CODECS)))
        problems.append(
            f"file.compression.type={options.compression} is unknown; set one of {known}"
        )
    if min(options.window_bytes, options.batch_rows, options.max_record_bytes) < 1:
        problems.append("window, batch and record sizes must be at least 1")
    if options.max_record_bytes + 2 * options.window_bytes >= _ARROW_OFFSETS:
        problems.append("one record and two windows together must be smaller than 2 GiB")
    if problems:
        raise Misconfigured(problems)
