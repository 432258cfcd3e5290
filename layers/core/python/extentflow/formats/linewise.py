"""What every format of newline-delimited records has in common.

Owns: arithmetic plans, the walk from an extent to chunks, compression around it, the look at an
object's beginning that comes before its first record. Refuses to know: what a line means; a
`LineMeaning` says that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from extentflow.errors import Conflict, CorruptObject, Misconfigured
from extentflow.formats import BadRecord, Chunk, FormatOptions, magic
from extentflow.formats.compression import CODECS, decompressed
from extentflow.formats.lines import Indexes, LineBlock, Window, cut, owned_windows, streamed
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

__all__ = ["LineFormat", "LineMeaning", "LineReader", "Opening", "chunk", "without"]

_OPENING_BYTES = 4096
_OPENING_SHARE = 256
_GROWTH_LIMIT_BYTES = 1 << 20
_REMEMBERED_VERSIONS = 64
_ARROW_OFFSETS = 1 << 31


class Opening:
    """The beginning of an object, read no further than asked, in steps that double.

    The first step is 1/256 of the object, 264 to 4,096 bytes: enough for every signature and
    nearly every header, and next to nothing beside the object.
    """

    def __init__(self, source: RangeSource, *, compression: str, max_line_bytes: int) -> None:
        self.version = source.version
        raw = _doubling(source)
        self.head = next(raw, b"")
        self._max_line_bytes = max_line_bytes
        self._content: Iterator[bytes] = chain([self.head], raw)
        if compression != "none":
            self._content = decompressed(
                self._content, compression, step_bytes=magic.HEAD_BYTES, uri=self.version.uri
            )

    def content_head(self) -> bytes:
        """Return the first bytes of the content: magic.HEAD_BYTES, or all."""
        seen: list[bytes] = []
        for piece in self._content:
            seen.append(piece)
            if sum(map(len, seen)) >= magic.HEAD_BYTES:
                break
        self._content = chain(seen, self._content)
        return b"".join(seen)

    def lines(self) -> Iterator[LineBlock]:
        """Yield the content's lines from the start. To be called once."""
        return cut(_numbered(self._content), max_line_bytes=self._max_line_bytes)


def _doubling(source: RangeSource) -> Iterator[bytes]:
    size = source.version.size
    step = max(magic.HEAD_BYTES, min(_OPENING_BYTES, size // _OPENING_SHARE))
    at = 0
    while at < size:
        end = min(at + step, size)
        yield source.read(at, end)
        at, step = end, min(2 * step, _GROWTH_LIMIT_BYTES)


def _numbered(pieces: Iterator[bytes]) -> Iterator[Window]:
    at = 0
    for piece in pieces:
        yield at, piece
        at += len(piece)


def chunk(
    block: LineBlock, batch: pa.RecordBatch, lines: Indexes | None, bad: Mapping[int, str]
) -> Chunk:
    """Return a block's records: `lines` (None: all) made `batch`, `bad` says what became not.

    `bad` maps line numbers within the block to reasons.
    """
    records = (BadRecord(block.raw(line), block.place(line), bad[line]) for line in sorted(bad))
    return Chunk(batch, block.next_position, block.places(lines), (*block.bad, *records))


def without(block: LineBlock, dropped: Collection[int]) -> Indexes | None:
    """Return the block's lines that are not `dropped`; None where that is all of them."""
    if not dropped:
        return None
    return np.delete(np.arange(len(block)), np.fromiter(dropped, np.int64))


class LineReader(Protocol):
    """Turns lines of one object into records. Called for consecutive blocks, from any position."""

    def __call__(self, block: LineBlock) -> Chunk:
        """Return the block's records and bad records, `block.bad` among them."""
        ...


class LineMeaning(Protocol):
    """What a line is in one format under one connector's options."""

    def reader(self, opening: Opening) -> LineReader:
        """Return the reader for one object version; may read the opening (a header).

        Raises:
            UnsupportedFormat, CorruptObject: the object's beginning does not fit the options.
        """
        ...


class LineFormat:
    """A Format whose units are lines. Remembers the readers of the last object versions."""

    place: Literal["offset", "row"] = "offset"

    def __init__(self, name: str, options: FormatOptions, meaning: LineMeaning) -> None:
        _check(options)
        self.name = name
        self.splittable = options.compression == "none"
        self._options = options
        self._meaning = meaning
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
        windows = self._plain if self.splittable else self._unpacked
        blocks = cut(
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

    def _unpacked(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Window]:
        """Yield the content from `position` on; what stands before it is unpacked and dropped."""
        size = source.version.size
        if (extent.start, extent.end) != (0, size):
            raise Conflict(f"{extent.uri}: a compressed object has one extent, [0-{size})")
        step = self._options.window_bytes
        raw = (window for _, window in streamed(source, 0, size, step))
        content = decompressed(raw, self._options.compression, step_bytes=step, uri=extent.uri)
        end = 0
        for at, piece in _numbered(content):
            end = at + len(piece)
            if end > position:
                yield max(at, position), piece[max(0, position - at) :]
        if position > end:
            raise CorruptObject(f"{extent.uri}: unpacks to {end} bytes, was at byte {position}")

    def _reader(self, source: RangeSource) -> LineReader:
        known = self._readers.get(source.version)
        if known is not None:
            return known
        reader = self._meaning.reader(self._opening(source))
        self._readers[source.version] = reader
        if len(self._readers) > _REMEMBERED_VERSIONS:
            self._readers.popitem(last=False)
        return reader

    def _opening(self, source: RangeSource) -> Opening:
        """Look at the object's first bytes.

        Raises:
            UnsupportedFormat: they show another format or compression.
        """
        compression = self._options.compression
        opening = Opening(
            source, compression=compression, max_line_bytes=self._options.max_record_bytes
        )
        size = source.version.size
        tail = b""
        if compression == "none" and magic.needs_tail(opening.head):
            tail = source.read(max(0, size - magic.TAIL_BYTES), size)
        magic.refuse(
            source.version, opening.head, tail, expected=self.name, compression=compression
        )
        if compression != "none":
            magic.refuse_content(
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
        problems.append(f"file.compression.type={options.compression} is unknown; one of {known}")
    if min(options.window_bytes, options.batch_rows, options.max_record_bytes) < 1:
        problems.append("window, batch and record sizes are at least 1")
    if options.max_record_bytes + 2 * options.window_bytes >= _ARROW_OFFSETS:
        problems.append("one record and two windows must stay below 2 GiB together")
    if problems:
        raise Misconfigured(problems)
