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
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.arrays.batch_rows import no_rows
from extentflow.config.specs import OF_COLUMNS
from extentflow.errors import Conflict, CorruptObject, UnsupportedFormat, UnsupportedType
from extentflow.formats import (
    BadRecord,
    Chunk,
    FormatOptions,
    FormatSpec,
    cut_at_units,
    row_factor,
)
from extentflow.formats.lines import stream_windows
from extentflow.formats.magic import HEAD_BYTES, require_bytes, require_signature
from extentflow.formats.parquet.prefetch import ObjectFile
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

EXTENT_BYTES = 32 << 20
MAGIC = b"ARROW1"
# The footer is followed by its length in four bytes and the magic.
_FRAME_BYTES = 10
_TAIL_BYTES = 64 << 10
# A batch is held in memory as a whole, like every message.
LARGEST_MESSAGE_BYTES = 256 << 20
# A batch whose buffers are compressed, and all dictionaries, when they are unpacked.
LARGEST_UNPACKED_BYTES = 512 << 20
_CACHED_FOOTERS = 64
_DICTIONARIES, _BATCHES = 2, 3
# In the footer, a block is an offset, the length of its metadata, and that of its body.
_BLOCK = struct.Struct("<qi4xq")
# Fields of a message and of a record batch in Message.fbs, and kinds of messages.
_KIND, _HEADER = 1, 2
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_OF_DICTIONARY, _OF_BATCH = 2, 3
# Of a dictionary batch.
_ID, _DATA, _IS_DELTA = 0, 1, 2
# Of a schema in Schema.fbs, and of a field of it.
_FIELDS, _DICTIONARY, _CHILDREN = 1, 4, 5
_OFFSET_BYTES = 4
_BUFFER, _SIZE = struct.Struct("<qq"), struct.Struct("<q")
_CONTINUATION, _LENGTH_BYTES = b"\xff" * 4, 4
_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError)

# Types for which pyarrow has no class: it raises KeyError for their arrays.
_WITHOUT_CLASS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
# Arrow checks no scale; the text of a value has as many digits.
_LARGEST_SCALE = 1_000
# A view is a length, and either the value or where it is.
_VIEW = np.dtype([("length", np.int32), ("rest", np.void, 12)])

Buffer: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Block:
    """A record batch: bytes `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The batches of a file in file order; None for a stream."""

    batches: tuple[Block, ...] | None


def _blocks(footer: bytes, number: int) -> list[Block]:
    """Return a vector of blocks in the footer, a flatbuffer."""
    found = _structs(footer, _target(footer, 0), number, _BLOCK)
    return [Block(start, start + lead + body) for start, lead, body in found]


def _target(data: Buffer, at: int) -> int:
    """Return where the table or vector is whose offset is at `at`."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _place(data: Buffer, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is; 0 where the table has none."""
    (distance,) = struct.unpack_from("<i", data, table)
    vtable = table - distance
    # A vtable begins with its own size and the table's.
    slot = 4 + 2 * number
    if not 0 <= vtable < len(data):
        raise ValueError("a table without its fields")
    (size,) = struct.unpack_from("<H", data, vtable)
    (at,) = struct.unpack_from("<H", data, vtable + slot) if slot < size else (0,)
    return table + at if at else 0


def _structs(data: Buffer, table: int, number: int, kind: struct.Struct) -> list[tuple[int, ...]]:
    """Return a field of a flatbuffer's table that is a vector of structs."""
    return [kind.unpack_from(data, at) for at in _elements(data, table, number, kind.size)]


def _tables(data: Buffer, table: int, number: int) -> list[int]:
    """Return the places of the tables of a field that is a vector of them."""
    return [_target(data, at) for at in _elements(data, table, number, _OFFSET_BYTES)]


def _elements(data: Buffer, table: int, number: int, size: int) -> range:
    """Return where the elements are of a field of a flatbuffer's table that is a vector."""
    at = _place(data, table, number)
    if not at:
        return range(0)
    vector = _target(data, at)
    (count,) = struct.unpack_from("<I", data, vector)
    if count * size > len(data):
        raise ValueError("a vector that is longer than what holds it")
    return range(vector + 4, vector + 4 + size * count, size)


def stated_rows(metadata: Buffer) -> int:
    """Return how many rows the metadata of a record batch's message states.

    Raises ValueError and struct.error for damaged metadata.
    """
    rows = _place(metadata, _header(metadata), _ROWS)
    return int(_SIZE.unpack_from(metadata, rows)[0]) if rows else 0


def stated_dictionary(metadata: Buffer) -> tuple[int, bool]:
    """Return the id that a dictionary's message states, and whether it adds to one before it.

    Raises ValueError and struct.error for damaged metadata.
    """
    dictionary = _header(metadata)
    own, delta = (_place(metadata, dictionary, number) for number in (_ID, _IS_DELTA))
    (number,) = _SIZE.unpack_from(metadata, own) if own else (0,)
    return int(number), bool(delta and metadata[delta])


def expected_dictionaries(metadata: Buffer) -> set[int]:
    """Return the ids of all dictionaries that the message of a schema refers to.

    Raises ValueError and struct.error for damaged metadata.
    """
    left, seen, found = _tables(metadata, _header(metadata), _FIELDS), set[int](), set[int]()
    while left:
        column = left.pop()
        if column in seen:
            raise ValueError("a column that stands twice in its schema")
        seen.add(column)
        if encoding := _place(metadata, column, _DICTIONARY):
            own = _place(metadata, _target(metadata, encoding), 0)
            found.add(int(_SIZE.unpack_from(metadata, own)[0]) if own else 0)
        left += _tables(metadata, column, _CHILDREN)
    return found


def _header(metadata: Buffer) -> int:
    """Return where the header of a message is: its schema, dictionary or record batch."""
    header = _place(metadata, _target(metadata, 0), _HEADER)
    if not header:
        raise ValueError("a message without a header")
    return _target(metadata, header)


class _Claims:
    """What messages say that they unpack to: Arrow allocates it before it unpacks anything."""

    def __init__(self) -> None:
        self._dictionaries: dict[int, int] = {}

    def check(self, metadata: Buffer, body: Buffer) -> None:
        """Raise ValueError for a message, or dictionaries, of more than `LARGEST_UNPACKED_BYTES`.

        Arrow reports metadata that cannot be read.
        """
        try:
            claimed = self._claimed(metadata, body)
        except (struct.error, IndexError, ValueError):
            return
        if claimed > LARGEST_UNPACKED_BYTES:
            raise ValueError(
                f"it unpacks to {claimed} bytes, extentflow reads up to {LARGEST_UNPACKED_BYTES};"
                " write smaller batches"
            )

    def _claimed(self, metadata: Buffer, body: Buffer) -> int:
        message = _target(metadata, 0)
        kind, header = (_place(metadata, message, number) for number in (_KIND, _HEADER))
        if not kind or not header or metadata[kind] not in (_OF_DICTIONARY, _OF_BATCH):
            return 0
        batch = dictionary = _target(metadata, header)
        if metadata[kind] == _OF_BATCH:
            return _unpacked_bytes(metadata, batch, body)
        data = _place(metadata, dictionary, _DATA)
        claimed = _unpacked_bytes(metadata, _target(metadata, data), body) if data else 0
        number, adds = stated_dictionary(metadata)
        if adds:
            claimed += self._dictionaries.get(number, 0)
        self._dictionaries[number] = claimed
        return sum(self._dictionaries.values())


def _unpacked_bytes(metadata: Buffer, batch: int, body: Buffer) -> int:
    """Return the size of a record batch's buffers, each of which begins with its own."""
    if not _place(metadata, batch, _COMPRESSION):
        return len(body)
    buffers = _structs(metadata, batch, _BUFFERS, _BUFFER)
    last = len(body) - _SIZE.size
    starts = [start for start, length in buffers if length >= _SIZE.size and 0 <= start <= last]
    # -1 stands for a buffer that is not compressed.
    return len(body) + sum(max(0, int(_SIZE.unpack_from(body, start)[0])) for start in starts)


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
        raise _corrupt(version, 0, size, "begins as Arrow IPC but does not end with ARROW1")
    length = int.from_bytes(tail[-_FRAME_BYTES : -len(MAGIC)], "little")
    if length + _FRAME_BYTES + len(MAGIC) > size or length > LARGEST_MESSAGE_BYTES:
        raise _corrupt(version, 0, size, f"claims a footer of {length} bytes")
    first = size - length - _FRAME_BYTES
    if first < start:
        windows = stream_windows(source, first, size, _TAIL_BYTES << 7)
        tail = b"".join(data for _, data in windows)
        start = first
    footer = tail[first - start : len(tail) - _FRAME_BYTES]
    try:
        dictionaries, batches = _blocks(footer, _DICTIONARIES), _blocks(footer, _BATCHES)
    except (ValueError, struct.error) as exc:
        raise _corrupt(version, first, size, f"has an unreadable footer: {exc}") from exc
    reached = len(MAGIC)
    for block in batches:
        if not reached <= block.start < block.end <= first:
            raise _corrupt(version, first, size, f"has a batch at [{block.start}-{block.end})")
        reached = block.end
    sizes = [block.end - block.start for block in batches]
    held = sum(max(0, block.end - block.start) for block in dictionaries)
    if max([held, *sizes]) > LARGEST_MESSAGE_BYTES:
        raise UnsupportedFormat(
            f"{version.uri} has a batch, or dictionaries, of {max([held, *sizes])} bytes,"
            f" extentflow reads up to {LARGEST_MESSAGE_BYTES}; write it with smaller batches"
        )
    return Footer(tuple(batches))


def _corrupt(version: ObjectVersion, start: int, end: int, what: str) -> CorruptObject:
    return CorruptObject(f"{version.uri}[{start}-{end}) {what}; upload it again, or remove it")


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


def _unreadable_message(version: ObjectVersion, start: int, exc: BaseException) -> CorruptObject:
    what = f"has an unreadable Arrow message: {_one_line(exc)}"
    return _corrupt(version, start, version.size, what)


class _MessageFile(ObjectFile):
    """The object as a file of which Arrow reads each message at once, and which checks them."""

    def __init__(self, source: RangeSource) -> None:
        super().__init__(source, source.version.size, b"", 0, b"")
        self._claims = _Claims()

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
        raise _corrupt(version, 0, version.size, f"is unreadable: {_one_line(exc)}") from exc
    return file, reader


class _StreamFile(io.IOBase):
    """The object from its start as a file that is read once, in windows."""

    def __init__(self, source: RangeSource, window_bytes: int) -> None:
        self._source = source
        self._windows = stream_windows(source, 0, source.version.size, window_bytes)
        self._data = b""
        self._next = 0
        self._raised: BaseException | None = None
        self._claims = _Claims()
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


def require_columns(version: ObjectVersion, schema: pa.Schema) -> None:
    """Raise UnsupportedType for a schema without columns, with two of one name, or odd types.

    ValueError for types that contradict themselves, and for names that are not UTF-8, also of
    members of structs.
    """
    names = schema.names
    if not names:
        raise UnsupportedType(f"{version.uri} has no columns")
    if len(set(names)) < len(names):
        raise UnsupportedType(f"{version.uri} has two columns of one name; rename one of them")
    types = list(schema.types)
    while types:
        parent = types.pop()
        _require_readable(version, parent)
        fields = [parent.field(index) for index in range(parent.num_fields)]
        # Arrow decodes a name when it is asked for it.
        types += [each.type for each in fields if each.name is not None]
        if pa.types.is_dictionary(parent):
            types.append(parent.value_type)
        elif isinstance(parent, pa.BaseExtensionType):
            types.append(parent.storage_type)


def _require_readable(version: ObjectVersion, kind: pa.DataType) -> None:
    if kind.id in _WITHOUT_CLASS:
        raise UnsupportedType(
            f"{version.uri} has a column of type {kind}, which pyarrow does not read; write"
            " month_day_nano_interval, or numbers"
        )
    if pa.types.is_decimal(kind) and abs(kind.scale) > _LARGEST_SCALE:
        raise UnsupportedType(
            f"{version.uri} has a column of type {kind}; extentflow reads scales of up to"
            f" {_LARGEST_SCALE} digits"
        )
    if pa.types.is_fixed_size_list(kind) and kind.list_size < 0:
        raise ValueError(f"lists of {kind.list_size} values")
    if pa.types.is_timestamp(kind):
        _ = kind.tz  # decoded when it is asked for, too


def valid_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that Arrow's kernels can read safely; `validate` leaves out views of nulls.

    Raises ArrowInvalid or ArrowIndexError.
    """
    try:
        rows.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        rows.validate()  # the sizes of buffers
        columns = [_without_hidden(column) for column in rows.columns]
        rows = pa.record_batch(columns, schema=rows.schema)
        rows.validate(full=True)
    for array in chain.from_iterable(_views(column) for column in rows.columns):
        # Arrow checks no view whose row is null, and its casts follow them.
        buffers = [None, *array.buffers()[1:]]
        whole = pa.Array.from_buffers(pa.binary_view(), len(array), buffers, offset=array.offset)
        whole.validate(full=True)
        words = np.frombuffer(buffers[1], _VIEW, array.offset + len(array))
        claimed = int(words["length"].sum(dtype=np.int64))
        if claimed > LARGEST_UNPACKED_BYTES:
            raise pa.ArrowInvalid(
                f"its views are of {claimed} bytes, extentflow reads up to"
                f" {LARGEST_UNPACKED_BYTES}; write smaller batches"
            )
    return rows


def _without_hidden(array: pa.Array, hidden: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array without the indices of rows that an array above it makes null.

    Writers leave any index there, also where the dictionary is empty. `hidden` are these rows.
    """
    if pa.types.is_struct(array.type) and array.type.num_fields:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        hidden = nulls if hidden is None else hidden | nulls
        children = [
            _without_hidden(one, hidden) for one in map(array.field, range(array.type.num_fields))
        ]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=pa.array(nulls))
    if array.type.num_fields == 1:  # lists and maps
        fixed, below = pa.types.is_fixed_size_list(array.type), None
        if fixed and not array.offset:
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            below = np.repeat(nulls if hidden is None else hidden | nulls, array.type.list_size)
        values = _without_hidden(array.values, below)
        own = array.buffers()[: 1 if fixed else 2]
        return pa.Array.from_buffers(
            array.type, len(array), own, offset=array.offset, children=[values]
        )
    if pa.types.is_dictionary(array.type) and hidden is not None:
        shown = pc.if_else(hidden, None, array.indices)
        return pa.DictionaryArray.from_arrays(
            shown, array.dictionary, ordered=array.type.ordered, safe=False
        )
    return array


def _views(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of views within an array."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _views(array.storage)
    elif pa.types.is_dictionary(kind):
        yield from _views(array.dictionary)
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for index in range(kind.num_fields):
            yield from _views(array.field(index))
    elif kind.num_fields:
        yield from _views(array.values)
    elif (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)) and len(array):
        yield array


@dataclass(frozen=True, slots=True)
class ArrowIpc:
    """Arrow IPC files and streams. `footers` are those of the latest object versions.

    A batch of a file that is damaged is one bad record; decoding continues with the next one. A
    damaged message of a stream fails the extent, as where the next one begins is unknown.
    """

    options: FormatOptions
    footers: OrderedDict[ObjectVersion, Footer] = field(
        default_factory=OrderedDict, repr=False, compare=False
    )
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="offset", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive batches up to `target_bytes`; one range for a stream."""
        require_bytes(source.version, "Arrow IPC")
        batches = self._footer(source).batches or ()
        yield from cut_at_units(batches, target_bytes, source.version.size)

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns, from the footer of a file or the start of a stream."""
        is_file = self._footer(source).batches is not None
        _, reader = _open_file(source) if is_file else self._open_stream(source)
        return reader.schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the batches whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` is not one of this extent.
        """
        if extent.start == extent.end:
            return
        footer = self._footer(source)
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
                    f" {_one_line(exc)}"
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
                    reason = f"{where}: a record batch is lost: {_one_line(exc)}"
                    yield self._lost(reader.schema, source, batch, reason)
                else:
                    yield from self._parts(source, rows, batch, skip)
                skip = 0
        except _ERRORS as exc:
            file.check()
            raise _unreadable_message(version, start, exc) from exc
        file.check()
        if file.at != size:
            raise _corrupt(version, file.at, size, "has bytes behind the end of its stream")

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

    def _footer(self, source: RangeSource) -> Footer:
        known = self.footers.get(source.version)
        if known is None:
            known = self.footers[source.version] = read_footer(source)
            while len(self.footers) > _CACHED_FOOTERS:
                self.footers.popitem(last=False)
        return known


ARROW = FormatSpec(
    open=lambda options, _: ArrowIpc(options),
    extensions=("arrow", "arrows", "feather"),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    compressible=False,
)
