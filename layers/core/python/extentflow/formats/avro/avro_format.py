"""Decode Avro object container files: blocks owned by the extent that contains their first byte.

    object    Obj 1 | metadata | marker | block | marker | block | marker | block | marker
    block                                 count, size, records (compressed)
    extents   [0 ........................... )[ .................. )[ ......... size)
    owned                                block                  block | block

An extent finds its first block behind the first marker that ends in it. A block that cannot be
decoded is lost as a whole, with one bad record; where the next block begins is stated by its size.

Writers draw the marker at random, so that no block contains it. One that is not random, such as
zeros, may be part of a block, where an extent would take it for a marker: such an object has one
extent. A block that contains a random marker was made to mislead. The extent that owns the block
was not misled itself, and fails.

A location is the byte offset of a block times `row_factor`, plus the row within the block. It is a
position, too, so decoding resumes at a block without reading those before it.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa

from extentflow.arrays.batch_rows import no_rows
from extentflow.config.specs import OF_COLUMNS
from extentflow.decoders.avro_columns import record_starts
from extentflow.decoders.avro_content import Content, DamagedBlock
from extentflow.decoders.avro_nodes import Record
from extentflow.decoders.avro_writer_schema import parse_schema
from extentflow.errors import Conflict, CorruptObject, UnsupportedFormat
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, row_factor
from extentflow.formats.damage import corrupt_object, one_line
from extentflow.formats.lines import stream_windows
from extentflow.formats.magic import HEAD_BYTES, require_bytes, require_signature
from extentflow.formats.version_cache import VersionCache
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import tail
from extentflow.wording import again_command, shown_bytes

MAGIC = b"Obj\x01"
MARKER_BYTES = 16
# Schemas of hundreds of columns have some 50 KB.
LARGEST_HEADER_BYTES = 8 << 20
_FIRST_HEADER_BYTES = 4096
# 16 random bytes have fewer distinct ones with a probability of 10^-12.
_RANDOM_BYTES = 8
# Blocks are decoded side by side, so many of them at once are faster.
GROUP_WINDOWS = 2
GROUP_BATCHES = 8
_WIDEST_VARINT = 10


# -- container -------------------------------------------------------------------------------------

# Returns the content of a block, or raises DamagedBlock, or an error of the codec's library.
Codec: TypeAlias = Callable[[bytes, int], bytes]


def _stored(body: bytes, _limit: int) -> bytes:
    return body


def _unpacked(open_stream: Callable[[int], Any]) -> Codec:
    """Return the codec of a library of Python's; `open_stream` takes the most bytes of content."""

    def unpack(body: bytes, limit: int) -> bytes:
        stream = open_stream(limit)
        content: bytes = stream.decompress(body, limit + 1)
        if not stream.eof and len(content) <= limit:
            raise DamagedBlock("its compressed content is incomplete")
        return content

    return unpack


def _zstandard(body: bytes, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
        # `read` loses the memory that it has allocated when it raises.
        content: bytes = stream.read_buffer(limit + 1).to_pybytes()
    return content


def _snappy(body: bytes, limit: int) -> bytes:
    # The content is followed by its CRC32, and preceded by its length.
    packed, checksum = body[:-4], body[-4:]
    length, _ = _varint(packed, 0)
    if length > limit:
        return bytes(limit + 1)
    content = pa.decompress(packed, decompressed_size=length, codec="snappy", asbytes=True)
    if zlib.crc32(content).to_bytes(4, "big") != checksum:
        raise DamagedBlock("the checksum of its content differs")
    return bytes(content)


CODECS: Mapping[bytes, Codec] = {
    b"null": _stored,
    b"deflate": _unpacked(lambda _: zlib.decompressobj(-zlib.MAX_WBITS)),
    b"snappy": _snappy,
    b"zstandard": _zstandard,
    b"bzip2": _unpacked(lambda _: bz2.BZ2Decompressor()),
    b"xz": _unpacked(lambda limit: lzma.LZMADecompressor(memlimit=2 * limit + (64 << 20))),
}
# What the libraries raise for content that they cannot decompress.
_CODEC_ERRORS = (zlib.error, OSError, lzma.LZMAError, pa.ArrowException, EOFError, ValueError)


class _TooShortError(Exception):
    """More bytes are needed."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, without sign, and the place behind it."""
    bits = shift = 0
    for place in range(at, min(len(data), at + _WIDEST_VARINT)):
        bits |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
            return bits, place + 1
        shift += 7
    if len(data) < at + _WIDEST_VARINT:
        raise _TooShortError
    raise DamagedBlock("a number has more than 64 bits")


def _long(data: bytes, at: int) -> tuple[int, int]:
    bits, at = _varint(data, at)
    return (bits >> 1) ^ -(bits & 1), at


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: `end` is the byte behind it, where the first block begins."""

    record: Record
    schema: pa.Schema
    codec: Codec
    marker: bytes
    end: int


def _parse_metadata(data: bytes) -> tuple[dict[bytes, bytes], bytes, int]:
    """Return the metadata, the marker and the end of a header; _TooShortError for a part of it."""
    entries: dict[bytes, bytes] = {}
    at = len(MAGIC)
    while True:
        count, at = _long(data, at)
        if count < 0:
            _, at = _long(data, at)
        if not count:
            break
        for _ in range(abs(count)):
            pair = []
            for _part in range(2):
                length, at = _long(data, at)
                if not 0 <= length <= LARGEST_HEADER_BYTES:
                    raise DamagedBlock(f"an entry of {length} bytes")
                if len(data) < at + length:
                    raise _TooShortError
                pair.append(data[at : at + length])
                at += length
            entries[pair[0]] = pair[1]
    if len(data) < at + MARKER_BYTES:
        raise _TooShortError
    return entries, data[at : at + MARKER_BYTES], at + MARKER_BYTES


def read_header(source: RangeSource) -> Header:
    """Read and check the header: one request, more where the schema is large.

    Raises:
        UnsupportedFormat: not Avro, or an unknown codec.
        UnsupportedType: a column without an Arrow type.
        CorruptObject: the header is truncated or contradicts itself.
    """
    version, uri = source.version, source.version.uri
    data = b""
    for piece in tail(source, 0, first_bytes=max(HEAD_BYTES, _FIRST_HEADER_BYTES)):
        if not data:
            require_signature(version, piece[:HEAD_BYTES], expected="avro")
            if not piece.startswith(MAGIC):
                raise UnsupportedFormat(
                    f"{uri} is not an Avro file (it begins with {shown_bytes(piece[:4])}, not with"
                    " Obj and 1); set input.format to its format"
                )
        data += piece
        try:
            entries, marker, end = _parse_metadata(data)
        except _TooShortError:
            if len(data) < LARGEST_HEADER_BYTES:
                continue
            break
        except DamagedBlock as exc:
            raise corrupt_object(
                version, f"has a header that is damaged: {exc}", end=len(data)
            ) from exc
        name = entries.get(b"avro.codec", b"null")
        if name not in CODECS:
            known = ", ".join(codec.decode() for codec in CODECS)
            raise UnsupportedFormat(
                f"{uri} is compressed with {shown_bytes(name)}, extentflow reads {known}; write it"
                " again"
            )
        record = parse_schema(entries.get(b"avro.schema", b""), uri)
        return Header(record, pa.schema([*record.arrow]), CODECS[name], marker, end)
    raise corrupt_object(version, "has a header that does not end", end=len(data))


@dataclass(frozen=True, slots=True)
class Block:
    """A block from the byte `start` to the byte `end`, behind its marker.

    `body` is compressed at first. `damage` says why it cannot be decompressed.
    """

    start: int
    end: int
    rows: int
    body: bytes
    damage: str = ""


class _Blocks:
    """The blocks of an extent from a byte on, read in windows."""

    def __init__(
        self, source: RangeSource, extent: Extent, header: Header, options: FormatOptions
    ) -> None:
        self._version = source.version
        self._source = source
        self._extent = extent
        self._header = header
        self._options = options
        # Bytes that were read; the next one of them is at byte `_at` of the object.
        self._data = b""
        self._next_byte = 0
        self._at = 0

    def from_byte(self, at: int, *, search: bool) -> Iterator[Block]:
        """Yield the blocks from `at` on; `search`: behind the first marker from there on."""
        end, window = self._extent.end, self._options.window_bytes
        self._at = at
        behind = tail(self._source, end, first_bytes=min(64 << 10, window), most_bytes=window)
        inside = stream_windows(self._source, at, end, window)
        self._windows = chain((data for _, data in inside), behind)
        if search and not self._find_marker():
            return
        while self._at < end:
            yield self._next()

    def _find_marker(self) -> bool:
        marker = self._header.marker
        while True:
            found = self._data.find(marker, self._next_byte)
            if found >= 0:
                self._pass(found + MARKER_BYTES - self._next_byte)
                return True
            self._pass(max(0, len(self._data) - self._next_byte - MARKER_BYTES + 1))
            # A marker that ends behind the extent precedes a block of another extent.
            if self._at + MARKER_BYTES >= self._extent.end or not self._fill(MARKER_BYTES):
                return False

    def _next(self) -> Block:
        start = self._at
        self._fill(2 * _WIDEST_VARINT)
        try:
            rows, at = _long(self._data, self._next_byte)
            size, at = _long(self._data, at)
        except (_TooShortError, DamagedBlock) as exc:
            raise self._lost(start, "does not begin with two numbers") from exc
        lead = at - self._next_byte
        end = start + lead + size + MARKER_BYTES
        if rows < 0 or size < 0 or end > self._version.size:
            raise self._lost(start, f"states {rows} records in {size} bytes")
        if size > self._options.max_record_bytes:
            raise UnsupportedFormat(
                f"{self._version.uri}[{start}-{end}): an Avro block of {size} bytes, extentflow"
                f" reads up to {self._options.max_record_bytes}; write it with smaller blocks"
            )
        self._fill(lead + size + MARKER_BYTES)
        at = self._next_byte + lead
        body = self._data[at : at + size]
        if self._data[at + size : at + size + MARKER_BYTES] != self._header.marker:
            raise self._lost(start, f"is not followed by the marker at byte {end - MARKER_BYTES}")
        raw = self._data[self._next_byte : self._next_byte + end - start]
        if end >= self._extent.end and self._misleads(start, raw):
            raise CorruptObject(
                f"{self._version.uri}[{start}-{end}): an Avro block contains the object's marker,"
                " so that later extents may have delivered parts of it as records. Write the object"
                " again with a random marker, or deliver it as one extent: set extent.bytes to"
                f" {self._version.size} and use {again_command(self._version.address)}"
            )
        self._pass(lead + size + MARKER_BYTES)
        return Block(start, end, rows, body)

    def _misleads(self, start: int, raw: bytes) -> bool:
        """Whether a later extent finds a marker before the end of this block, its extent's last."""
        marker = self._header.marker
        # The marker in front of the block, too: it may overlap with one that is none.
        text, origin = marker + raw, start - MARKER_BYTES
        first = max(1, self._extent.end - MARKER_BYTES - origin)
        return 0 <= text.find(marker, first) < len(text) - MARKER_BYTES

    def _fill(self, count: int) -> bool:
        """Read until `count` bytes are there; False if the object ends before."""
        held = len(self._data) - self._next_byte
        if held >= count:
            return True
        pieces: list[bytes | memoryview] = [memoryview(self._data)[self._next_byte :]]
        while held < count and (piece := next(self._windows, None)) is not None:
            pieces.append(piece)
            held += len(piece)
        self._data, self._next_byte = b"".join(pieces), 0
        return held >= count

    def _pass(self, count: int) -> None:
        self._next_byte += count
        self._at += count

    def _lost(self, start: int, what: str) -> CorruptObject:
        return corrupt_object(self._version, f"has an Avro block that {what}", start)


# -- format ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Avro:
    """Avro object container files. `headers` are those of the latest object versions."""

    options: FormatOptions
    headers: VersionCache[Header] = field(
        default_factory=lambda: VersionCache(read_header), repr=False, compare=False
    )
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="offset", init=False)
    extent_bytes: int | None = field(default=None, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield `[0, t), [t, 2t), ...`; reads the header, to refuse an object before it is cut.

        An object whose marker is not random is one extent.
        """
        size = source.version.size
        require_bytes(source.version, "Avro")
        is_random = len(set(self.headers.get(source).marker)) >= _RANDOM_BYTES
        step = max(1, target_bytes) if is_random else size
        for start in range(0, size, step):
            yield start, min(start + step, size)

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns, from the header."""
        return self.headers.get(source).schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the blocks whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` is not one of this extent.
        """
        if extent.start == extent.end:
            return
        header = self.headers.get(source)
        factor = row_factor(source.version.size)
        at, skip = divmod(position, factor)
        search = not position and extent.start >= header.end
        if not position:
            # The marker in front of the first block may begin before the extent.
            at = extent.start - MARKER_BYTES if search else header.end
        if at >= extent.end:
            return
        if position and at < max(header.end, extent.start):
            raise Conflict(f"{extent.uri}: decoding was to resume at {position}, which precedes it")
        blocks = _Blocks(source, extent, header, self.options).from_byte(at, search=search)
        for group in self._groups(extent, header, blocks, factor):
            if skip and skip >= group[0].rows:
                raise Conflict(
                    f"{extent.uri} has {group[0].rows} records in the block at byte {at}, decoding"
                    f" was to resume at record {skip}; was it planned for another version?"
                )
            yield from self._chunks(extent, header, group, factor, skip)
            skip = 0

    def _groups(
        self, extent: Extent, header: Header, blocks: Iterator[Block], factor: int
    ) -> Iterator[list[Block]]:
        """Yield consecutive decompressed blocks that are decoded together; none without rows.

        A block that cannot be decompressed is a group of its own.
        """
        group: list[Block] = []
        rows = size = 0
        for packed in blocks:
            if packed.rows >= factor:
                raise UnsupportedFormat(
                    f"{extent.version.uri}[{packed.start}-{packed.end}): an Avro block of"
                    f" {packed.rows} records, extentflow reads up to {factor - 1} in an object of"
                    " this size; write it with smaller blocks"
                )
            if not packed.rows and not packed.body:
                continue
            block = _decompressed(packed, header.codec, self.options.max_record_bytes)
            if not block.rows and not block.damage:
                if not block.body:
                    continue
                block = replace(block, damage="it has bytes, and states no record")
            if group and block.damage:
                yield group
                group, rows, size = [], 0, 0
            group.append(block)
            rows, size = rows + block.rows, size + len(block.body)
            full = size >= GROUP_WINDOWS * self.options.window_bytes
            if full or block.damage or rows >= GROUP_BATCHES * self.options.batch_rows:
                yield group
                group, rows, size = [], 0, 0
        if group:
            yield group

    def _chunks(
        self, extent: Extent, header: Header, group: Sequence[Block], factor: int, skip: int
    ) -> Iterator[Chunk]:
        """Yield the rows of blocks from row `skip` on; a damaged block is one bad record."""
        try:
            batch = _decode(header, group, skip)
        except DamagedBlock as exc:
            if len(group) > 1:
                for block in group:
                    yield from self._chunks(extent, header, [block], factor, skip)
                    skip = 0
                return
            (block,) = group
            where = f"{extent.version.uri}[{block.start}-{block.end})"
            reason = f"{where}: an Avro block of {block.rows} records is lost: {exc}"
            lost = BadRecord(None, block.start * factor, reason)
            yield Chunk(no_rows(header.schema), block.end * factor, range(0), (lost,))
            return
        rows = [np.arange(block.rows) + block.start * factor for block in group]
        locations = np.concatenate(rows)[skip:]
        step = self.options.batch_rows
        for first in range(0, len(locations), step):
            behind = first + step
            last = behind >= len(locations)
            position = group[-1].end * factor if last else int(locations[behind])
            places = cast("Sequence[int]", locations[first:behind])
            yield Chunk(batch.slice(first, step), position, places)


def _decompressed(block: Block, codec: Codec, limit: int) -> Block:
    try:
        content = codec(block.body, limit)
    except DamagedBlock as exc:
        return replace(block, damage=str(exc))
    except _TooShortError:
        return replace(block, damage="its compressed content is incomplete")
    except _CODEC_ERRORS as exc:
        return replace(block, damage=f"it cannot be decompressed: {one_line(exc)}")
    if len(content) > limit:
        return replace(block, damage=f"its content is larger than {limit} bytes")
    return replace(block, body=content)


def _decode(header: Header, group: Sequence[Block], skip: int) -> pa.RecordBatch:
    if group[0].damage:
        raise DamagedBlock(group[0].damage)
    content = Content([block.body for block in group])
    ends = np.cumsum([len(block.body) for block in group])
    begins = ends - [len(block.body) for block in group]
    counts = np.array([block.rows for block in group])
    starts = record_starts(content, header.record, begins, ends, counts)
    columns, _ = header.record.columns(content, starts[skip:])
    return pa.RecordBatch.from_arrays(columns, schema=header.schema)


AVRO = FormatSpec(
    open=lambda options, _: Avro(options),
    extensions=("avro",),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    compressible=False,
)
