"""Decode Arrow IPC: record batches owned by the extent that contains their first byte.

    file      ARROW1 | schema | dictionaries | batch 0 | batch 1 | footer | length | ARROW1
    extents   [0 ............................ )[ ........................... size)
    stream    schema | dictionary | batch | dictionary | batch | end         one extent

The footer of a file lists where its batches are; dictionaries are read once per extent. A stream
has no footer, so the extent with its first byte owns all batches, and a resumed one reads it again.

A location is the byte offset of a batch times `row_factor`, plus the row within the batch. In a
stream, a batch's offset is that of the first message behind the previous batch. Every batch is
validated, as nothing in it is protected by a checksum.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from extentflow.arrays.batch_rows import no_rows
from extentflow.arrays.valid_batches import valid_batch
from extentflow.config.specs import OF_COLUMNS
from extentflow.errors import Conflict, CorruptObject, UnsupportedFormat
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, cut_at_units, row_factor
from extentflow.formats.arrow_messages import Block, Claims, footer_blocks
from extentflow.formats.damage import corrupt_object, one_line
from extentflow.formats.lines import stream_windows
from extentflow.formats.magic import HEAD_BYTES, require_bytes, require_signature
from extentflow.formats.object_file import ObjectFile
from extentflow.formats.readable_schemas import require_columns
from extentflow.formats.version_cache import VersionCache
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

EXTENT_BYTES = 32 << 20
MAGIC = b"ARROW1"
# The footer is followed by its length in four bytes and the magic.
_FRAME_BYTES = 10
_TAIL_BYTES = 64 << 10
# A batch is held in memory as a whole, like every message.
LARGEST_MESSAGE_BYTES = 256 << 20
_CONTINUATION, _LENGTH_BYTES = b"\xff" * 4, 4
_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError)


@dataclass(frozen=True, slots=True)
class Footer:
    """The batches of a file in file order; None for a stream."""

    batches: tuple[Block, ...] | None


def read_footer(source: RangeSource) -> Footer:
    """Read and check the footer: two requests, a third one where it is large.

    Raises:
        UnsupportedFormat: not Arrow IPC, or messages larger than what is held in memory.
        CorruptObject: the footer is truncated or contradicts itself.
    """
    version, size = source.version, source.version.size
    start = max(0, size - _TAIL_BYTES)
    tail = source.read(start, size)
    head = tail if not start else source.read(0, HEAD_BYTES)
    if not head.startswith(MAGIC):
        # A stream has no signature of its own; its schema is checked before the first record.
        require_signature(version, head[:HEAD_BYTES], tail, expected="arrow")
        return Footer(None)
    if not tail.endswith(MAGIC) or size < 2 * _FRAME_BYTES:
        raise corrupt_object(version, "begins as Arrow IPC but does not end with ARROW1")
    length = int.from_bytes(tail[-_FRAME_BYTES : -len(MAGIC)], "little")
    if length + _FRAME_BYTES + len(MAGIC) > size or length > LARGEST_MESSAGE_BYTES:
        raise corrupt_object(version, f"claims a footer of {length} bytes")
    first = size - length - _FRAME_BYTES
    if first < start:
        windows = stream_windows(source, first, size, _TAIL_BYTES << 7)
        tail = b"".join(data for _, data in windows)
        start = first
    footer = tail[first - start : len(tail) - _FRAME_BYTES]
    try:
        dictionaries, batches = footer_blocks(footer)
    except (ValueError, struct.error) as exc:
        raise corrupt_object(version, f"has an unreadable footer: {exc}", first) from exc
    reached = len(MAGIC)
    for block in batches:
        if not reached <= block.start < block.end <= first:
            raise corrupt_object(version, f"has a batch at [{block.start}-{block.end})", first)
        reached = block.end
    sizes = [block.end - block.start for block in batches]
    held = sum(max(0, block.end - block.start) for block in dictionaries)
    if max([held, *sizes]) > LARGEST_MESSAGE_BYTES:
        raise UnsupportedFormat(
            f"{version.uri} has a batch, or dictionaries, of {max([held, *sizes])} bytes,"
            f" extentflow reads up to {LARGEST_MESSAGE_BYTES}; write it with smaller batches"
        )
    return Footer(tuple(batches))


def _unreadable_message(version: ObjectVersion, start: int, exc: BaseException) -> CorruptObject:
    what = f"has an unreadable Arrow message: {one_line(exc)}"
    return corrupt_object(version, what, start)


class _MessageFile(ObjectFile):
    """The object as a file of which Arrow reads each message at once, and which checks them."""

    def __init__(self, source: RangeSource) -> None:
        super().__init__(source, source.version.size, b"", 0, b"")
        self._claims = Claims()

    def read(self, size: int) -> bytes:
        """Return as `ObjectFile`; ValueError for a message that unpacks to too much."""
        data = super().read(size)
        # The length of the metadata, behind the mark that older files do not have.
        start = _LENGTH_BYTES * (2 if data.startswith(_CONTINUATION) else 1)
        length = int.from_bytes(data[start - _LENGTH_BYTES : start], "little")
        if start + length < len(data):
            view = memoryview(data)
            self._claims.check(view[start : start + length], view[start + length :])
        return data


def _open_file(source: RangeSource) -> tuple[ObjectFile, pa.ipc.RecordBatchFileReader]:
    version = source.version
    file = _MessageFile(source)
    try:
        reader = pa.ipc.open_file(pa.PythonFile(file, mode="r"))
        require_columns(version, reader.schema)
    except _ERRORS as exc:
        file.check()
        raise corrupt_object(version, f"is unreadable: {one_line(exc)}") from exc
    return file, reader


class _StreamFile(io.IOBase):
    """The object from its start as a file that is read once, in windows."""

    def __init__(self, source: RangeSource, window_bytes: int) -> None:
        self._source = source
        self._windows = stream_windows(source, 0, source.version.size, window_bytes)
        self._data = b""
        self._next = 0
        self._raised: BaseException | None = None
        self._claims = Claims()
        # The previous read, and how many bytes the one before it had.
        self._previous, self._before = b"", 0
        self.at = 0

    def check(self) -> None:
        """Raise the exception of a read, if any."""
        if self._raised is not None:
            raise self._raised

    def readable(self) -> bool:
        """Return True: Arrow asks before it reads."""
        return True

    def read(self, size: int) -> bytes:
        """Return `size` bytes; fewer only at the end of the object.

        ValueError for a message that unpacks to too much.
        """
        try:
            data = self._next_bytes(min(size, self._source.version.size - self.at))
        except BaseException as exc:
            self._raised = self._raised or exc
            raise
        # Arrow reads the length of the metadata, the metadata, and the body.
        if self._before == _LENGTH_BYTES:
            self._claims.check(self._previous, data)
        self._before, self._previous = len(self._previous), data
        return data

    def _next_bytes(self, size: int) -> bytes:
        if size > LARGEST_MESSAGE_BYTES:
            raise UnsupportedFormat(
                f"{self._source.version.uri}: a message of {size} bytes at byte {self.at},"
                f" extentflow reads up to {LARGEST_MESSAGE_BYTES}; write smaller batches"
            )
        pieces: list[bytes | memoryview] = []
        while size:
            if self._next == len(self._data):
                (_, self._data), self._next = next(self._windows), 0
            piece = memoryview(self._data)[self._next : self._next + size]
            pieces.append(piece)
            self._next += len(piece)
            self.at += len(piece)
            size -= len(piece)
        return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class ArrowIpc:
    """Arrow IPC files and streams. `footers` are those of the latest object versions.

    A batch of a file that is damaged is one bad record; decoding continues with the next one. A
    damaged message of a stream fails the extent, as where the next one begins is unknown.
    """

    options: FormatOptions
    footers: VersionCache[Footer] = field(
        default_factory=lambda: VersionCache(read_footer), repr=False, compare=False
    )
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="offset", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive batches up to `target_bytes`; one range for a stream."""
        require_bytes(source.version, "Arrow IPC")
        batches = self.footers.get(source).batches or ()
        yield from cut_at_units(batches, target_bytes, source.version.size)

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns, from the footer of a file or the start of a stream."""
        is_file = self.footers.get(source).batches is not None
        _, reader = _open_file(source) if is_file else self._open_stream(source)
        return reader.schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the batches whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` is not one of this extent.
        """
        if extent.start == extent.end:
            return
        footer = self.footers.get(source)
        at, skip = divmod(position, row_factor(source.version.size))
        if footer.batches is not None:
            yield from self._from_file(source, extent, footer.batches, at, skip)
        elif extent.start == 0:
            yield from self._from_stream(source, at, skip)

    def _from_file(
        self, source: RangeSource, extent: Extent, batches: tuple[Block, ...], at: int, skip: int
    ) -> Iterator[Chunk]:
        todo = [
            (number, batch)
            for number, batch in enumerate(batches)
            if max(extent.start, at) <= batch.start < extent.end
        ]
        if skip and (not todo or todo[0][1].start != at):
            raise Conflict(f"{extent.uri} has no batch at byte {at}, where decoding was to resume")
        if not todo:
            return
        version = source.version
        file, reader = _open_file(source)
        for number, batch in todo:
            window = self.options.window_bytes
            file.hold(batch.start, source.stream(batch.start, batch.end, window_bytes=window))
            try:
                rows = reader.get_batch(number)
                rows = valid_batch(rows)
            except _ERRORS as exc:
                file.check()
                reason = (
                    f"{version.uri}[{batch.start}-{batch.end}): batch {number} is lost:"
                    f" {one_line(exc)}"
                )
                yield self._lost(reader.schema, source, batch, reason)
            else:
                yield from self._parts(source, rows, batch, skip)
            skip = 0

    def _from_stream(self, source: RangeSource, at: int, skip: int) -> Iterator[Chunk]:
        version, size = source.version, source.version.size
        file, reader = self._open_stream(source)
        start = 0
        try:
            while True:
                start = file.at
                try:
                    rows = reader.read_next_batch()
                except StopIteration:
                    break
                if file.at <= at:
                    continue
                batch = Block(start, file.at)
                try:
                    rows = valid_batch(rows)
                except (pa.ArrowInvalid, pa.ArrowIndexError) as exc:
                    where = f"{version.uri}[{start}-{file.at})"
                    reason = f"{where}: a record batch is lost: {one_line(exc)}"
                    yield self._lost(reader.schema, source, batch, reason)
                else:
                    yield from self._parts(source, rows, batch, skip)
                skip = 0
        except _ERRORS as exc:
            file.check()
            raise _unreadable_message(version, start, exc) from exc
        file.check()
        if file.at != size:
            raise corrupt_object(version, "has bytes behind the end of its stream", file.at)

    def _open_stream(
        self, source: RangeSource
    ) -> tuple[_StreamFile, pa.ipc.RecordBatchStreamReader]:
        file = _StreamFile(source, self.options.window_bytes)
        try:
            reader = pa.ipc.open_stream(pa.PythonFile(file, mode="r"))
            require_columns(source.version, reader.schema)
        except _ERRORS as exc:
            file.check()
            raise _unreadable_message(source.version, 0, exc) from exc
        return file, reader

    def _lost(self, schema: pa.Schema, source: RangeSource, batch: Block, reason: str) -> Chunk:
        factor = row_factor(source.version.size)
        lost = (BadRecord(None, batch.start * factor, reason),)
        return Chunk(no_rows(schema), batch.end * factor, range(0), lost)

    def _parts(
        self, source: RangeSource, rows: pa.RecordBatch, batch: Block, skip: int
    ) -> Iterator[Chunk]:
        factor, step = row_factor(source.version.size), self.options.batch_rows
        if rows.num_rows >= factor:
            raise UnsupportedFormat(
                f"{source.version.uri}[{batch.start}-{batch.end}): a batch of {rows.num_rows} rows,"
                f" extentflow reads up to {factor - 1} in an object of this size"
            )
        first = batch.start * factor
        for start in range(skip, rows.num_rows, step):
            end = min(start + step, rows.num_rows)
            position = first + end if end < rows.num_rows else batch.end * factor
            yield Chunk(rows.slice(start, end - start), position, range(first + start, first + end))


ARROW = FormatSpec(
    open=lambda options, _: ArrowIpc(options),
    extensions=("arrow", "arrows", "feather"),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    compressible=False,
)
