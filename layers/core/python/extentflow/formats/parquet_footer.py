"""What a Parquet object's footer says: where its row groups lie and how many rows they hold.

Owns: fetching, checking and caching footers. Refuses to know: types (parquet_types), batches,
extents.

    object   PAR1 | row group | row group | row group |        footer        | length | PAR1
    tail                                            [ 64 KiB, more of a huge object ........ )
    missing                             [ ......... ) only where the footer begins before the tail

A footer carries no checksum of its own. It is refused where it contradicts itself; a flipped bit
that leaves it consistent (a decimal's scale, say) cannot be told from what the writer meant.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.errors import CorruptObject, UnsupportedFormat, UnsupportedType
from extentflow.formats.magic import HEAD_BYTES, refuse
from extentflow.formats.parquet_types import require_exact
from extentflow.model import ObjectVersion
from extentflow.storage import RangeSource
from extentflow.storage.pins import MAX_READ_BYTES

__all__ = ["MAGIC", "Footer", "Footers", "RowGroup", "read_footer"]

MAGIC = b"PAR1"
LEAST_TAIL_BYTES = 64 << 10
# A footer takes about 100 bytes per column chunk: of 16 columns and row groups of 128 MiB that is
# 1/80,000 of the object. What is asked for in vain costs less than a second request.
TAIL_SHARE = 1 << 16
MOST_TAIL_BYTES = 16 << 20
LARGEST_FOOTER_BYTES = 256 << 20
_ENCRYPTED_MAGIC = b"PARE"
_FRAME_BYTES = 8
_SIGNATURE_BYTES = 28
_DECRYPT = "decrypt it with its writer's tools first; encryption keys cannot be configured"


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group that holds rows: bytes `[start, end)`, rows `[first_row, first_row + rows)`.

    `row_bytes` is what one row takes before compression, as encoded.
    """

    ordinal: int
    start: int
    end: int
    first_row: int
    rows: int
    row_bytes: int

    @property
    def end_row(self) -> int:
        """The row behind the last one, counted in the object."""
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Footer:
    """A checked footer. `groups` are in file order, do not overlap and have at least one row."""

    metadata: pq.FileMetaData
    groups: tuple[RowGroup, ...]

    def owned(self, start: int, end: int) -> tuple[RowGroup, ...]:
        """Return the row groups whose first byte lies in `[start, end)`."""
        first = bisect_left(self.groups, start, key=_start)
        return self.groups[first : bisect_left(self.groups, end, key=_start)]

    def chunks(self, group: RowGroup) -> list[tuple[int, int]]:
        """Return the byte range of each column chunk of a row group, by leaf column."""
        return list(_chunks(self.metadata.row_group(group.ordinal)))


def _start(group: RowGroup) -> int:
    return group.start


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    footer: Footer | None = None

    @property
    def size_bytes(self) -> int:
        return self.footer.metadata.serialized_size if self.footer else 0


class Footers:
    """The footers a process has read, newest last; safe for threads, which share one read.

    Bounded by what the footers take in their objects (parsed, about ten times as much), but the
    newest is always kept.
    """

    def __init__(self, limit_bytes: int = 4 << 20, limit: int = 64) -> None:
        self._limit_bytes = limit_bytes
        self._limit = limit
        self._lock = threading.Lock()
        self._slots: OrderedDict[ObjectVersion, _Slot] = OrderedDict()

    def get(self, source: RangeSource) -> Footer:
        """Return the footer of the source's version. Raises as `read_footer`, and tries again."""
        with self._lock:
            slot = self._slots.setdefault(source.version, _Slot())
            self._slots.move_to_end(source.version)
        with slot.lock:
            if slot.footer is None:
                slot.footer = read_footer(source)
        with self._lock:
            self._evict()
        return slot.footer

    def _evict(self) -> None:
        held = sum(slot.size_bytes for slot in self._slots.values())
        while len(self._slots) > 1 and (held > self._limit_bytes or len(self._slots) > self._limit):
            _, slot = self._slots.popitem(last=False)
            held -= slot.size_bytes


def read_footer(source: RangeSource) -> Footer:
    """Fetch and check the footer: one request, mostly two where it is longer than the tail.

    Raises:
        UnsupportedFormat: no Parquet, encrypted, or compressed by a codec that Arrow lacks.
        UnsupportedType: a column without an exact Arrow type, or two columns of one name.
        CorruptObject: the footer is cut off, unreadable or contradicts itself.
        ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
    """
    version = source.version
    wanted = max(LEAST_TAIL_BYTES, min(version.size // TAIL_SHARE, MOST_TAIL_BYTES))
    tail = source.read(max(0, version.size - wanted), version.size)
    _require_magic(source, tail)
    length = int.from_bytes(tail[-_FRAME_BYTES:-4], "little")
    if length + _FRAME_BYTES + len(MAGIC) > version.size or length > LARGEST_FOOTER_BYTES:
        raise _corrupt(version, f"claims a footer of {length} bytes")
    metadata = _parse(version, _whole(source, tail, length), length)
    reader = _open(version, pa.PythonFile(_Probe(version.size), mode="r"), metadata)
    require_exact(version, reader.schema_arrow, metadata)
    return Footer(metadata, tuple(_groups(version, reader, metadata, version.size - length)))


def _require_magic(source: RangeSource, tail: bytes) -> None:
    version = source.version
    if tail.endswith(MAGIC) and len(tail) >= len(MAGIC) + _FRAME_BYTES:
        return
    if tail.endswith(_ENCRYPTED_MAGIC):
        raise UnsupportedFormat(f"{version.uri} is an encrypted Parquet file; {_DECRYPT}")
    head = source.read(0, min(HEAD_BYTES, version.size))
    refuse(version, head, tail, expected="parquet")
    if head.startswith(MAGIC):
        raise _corrupt(version, "begins as Parquet but does not end with PAR1")
    raise UnsupportedFormat(
        f"{version.uri} is no Parquet file (it ends with {tail[-4:]!r}, not with PAR1);"
        " set input.format to what it is"
    )


def _whole(source: RangeSource, tail: bytes, length: int) -> bytes:
    """Return the footer with its frame, fetching what the tail does not hold."""
    start = source.version.size - length - _FRAME_BYTES
    reached = source.version.size - len(tail)
    if start < reached:
        window = min(reached - start, MAX_READ_BYTES)
        return b"".join([*source.stream(start, reached, window_bytes=window), tail])
    return tail[start - reached :]


def _parse(version: ObjectVersion, framed: bytes, length: int) -> pq.FileMetaData:
    metadata = _open(version, pa.BufferReader(framed)).metadata
    unread = length - metadata.serialized_size
    if unread == _SIGNATURE_BYTES:
        # Looking at an encrypted column's metadata would abort the process.
        raise UnsupportedFormat(f"{version.uri} has encrypted columns; {_DECRYPT}")
    if unread:
        raise _corrupt(version, f"has {unread} bytes in its footer that belong to nothing")
    return metadata


class _NothingToReadError(Exception):
    """Raised instead of reading: everything that needs no bytes went well."""


class _Probe:
    """A file of which only the metadata may be looked at."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        raise _NothingToReadError(size)

    def close(self) -> None:
        pass


def _open(
    version: ObjectVersion, file: pa.NativeFile, metadata: pq.FileMetaData | None = None
) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, metadata=metadata, pre_buffer=False, buffer_size=1)
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedType(f"{version.uri}: {_line(exc)}; leave that column out") from exc
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        raise _corrupt(version, f"has an unreadable footer: {_line(exc)}") from exc


def _groups(
    version: ObjectVersion, reader: pq.ParquetFile, metadata: pq.FileMetaData, footer_start: int
) -> Iterator[RowGroup]:
    row, reached = 0, len(MAGIC)
    for ordinal in range(metadata.num_row_groups):
        group = metadata.row_group(ordinal)
        if group.num_rows < 0 or group.num_columns != metadata.num_columns:
            raise _corrupt(version, f"has {group.num_rows} rows in row group {ordinal}")
        if group.num_rows == 0:
            continue
        _require_sound_chunks(version, reader, ordinal)
        chunks = list(_chunks(group))
        start, end = min(chunks)[0], max(end for _, end in chunks)
        if not reached <= start < end <= footer_start:
            raise _corrupt(
                version,
                f"has row group {ordinal} at [{start}-{end}), outside [{reached}-{footer_start})",
            )
        row_bytes = max(1, group.total_byte_size // group.num_rows)
        yield RowGroup(ordinal, start, end, row, group.num_rows, row_bytes)
        row, reached = row + group.num_rows, end
    if row != metadata.num_rows:
        raise _corrupt(version, f"counts {metadata.num_rows} rows, its row groups {row}")


def _require_sound_chunks(version: ObjectVersion, reader: pq.ParquetFile, ordinal: int) -> None:
    """Let Arrow look at every column chunk's metadata where it may still raise.

    Behind `RowGroupMetaData.column` nothing catches what C++ throws: there, inconsistent metadata
    ends the process.
    """
    try:
        next(reader.reader.iter_batches(1, [ordinal], use_threads=False), None)
    except _NothingToReadError:
        pass
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedFormat(f"{version.uri}: row group {ordinal}: {_line(exc)}") from exc
    except (pa.ArrowException, OSError) as exc:
        raise _corrupt(version, f"has a broken row group {ordinal}: {_line(exc)}") from exc
    chunk = reader.metadata.row_group(ordinal).column(0)
    if chunk.file_path:
        raise UnsupportedFormat(
            f"{version.uri} is a summary of other files ({chunk.file_path!r}); ingest those"
        )


def _chunks(group: pq.RowGroupMetaData) -> Iterator[tuple[int, int]]:
    """Yield where the column chunks lie, by the rule of Arrow's `ComputeColumnChunkRange`."""
    for index in range(group.num_columns):
        chunk = group.column(index)
        start = chunk.data_page_offset
        dictionary = chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        yield start, start + chunk.total_compressed_size


def _corrupt(version: ObjectVersion, what: str) -> CorruptObject:
    return CorruptObject(
        f"{version.uri}[0-{version.size}) {what}; upload it again, or remove it if it is no Parquet"
    )


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split())
