"""Read, check and cache Parquet footers.

    object   PAR1 | row group | row group | row group |        footer        | length | PAR1
    tail                                            [ 64 KiB, more of a huge object ........ )
    missing                             [ ......... ) only if the footer starts before the tail

A footer has no checksum. It is refused if it contradicts itself; a flipped bit that leaves it
consistent (in a decimal's scale, for example) is undetectable.
"""

from __future__ import annotations

import io
import struct
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.errors import UnsupportedFormat, UnsupportedType
from extentflow.formats.damage import corrupt_object, one_line
from extentflow.formats.magic import HEAD_BYTES, require_signature
from extentflow.formats.parquet.arrow_types import require_exact
from extentflow.formats.parquet.column_keys import (
    FOOTER_KEY,
    KEY_LIST,
    FileKeys,
    KeyUnavailableError,
)
from extentflow.formats.parquet.column_subsets import ColumnSubsets
from extentflow.formats.parquet.statistics import IndexPlaces, pruning_facts
from extentflow.formats.parquet.thrift_tree import Struct, read_struct
from extentflow.model import ObjectVersion
from extentflow.storage import RangeSource
from extentflow.storage.ranges import MAX_READ_BYTES
from extentflow.wording import shown_bytes


def selected_leaves(metadata: pq.FileMetaData, names: Sequence[str]) -> list[int]:
    """Return the leaf columns of the columns `names`; all if `names` is empty or lacks a column."""
    paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
    found: set[int] = set()
    for name in names:
        # A name that contains dots may select more than is wanted, never less.
        own = [at for at, path in enumerate(paths) if path == name or path.startswith(f"{name}.")]
        if not own:
            return list(range(len(paths)))
        found.update(own)
    return sorted(found) or list(range(len(paths)))


# The file ends with the footer's length in four bytes and the magic.
MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
_FRAME_BYTES = 8
# The field of FileMetaData in parquet.thrift.
ROW_GROUPS = 4
LEAST_TAIL_BYTES = 64 << 10
# A footer takes about 100 bytes per column chunk: of 16 columns and row groups of 128 MiB that is
# 1/80,000 of the object. Bytes read needlessly cost less than a second request.
TAIL_SHARE = 1 << 16
MOST_TAIL_BYTES = 16 << 20
MOST_FOOTERS = 64
LARGEST_FOOTER_BYTES = 256 << 20
# In Arrow's message, which does not name the column.
_NULLABLE_KEYS = "Map keys must be annotated as required"
# In Arrow's messages about keys. Such a file must not be read further: reading the metadata of a
# column that has another key ends the process.
_CRYPTO_WORDS = ("ecrypt", "crypto", "key length", "key metadata", "key material", "AAD")
# A signed footer in plain text is followed by a nonce of 12 bytes and a tag of 16 (AES GCM).
_SIGNATURE_BYTES = 28
_DECRYPT = (
    f"set {FOOTER_KEY} if all its columns have the key of the footer, {KEY_LIST} if master keys"
    " wrap its keys, or decrypt it with its writer's tools first"
)
_MOST_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group with rows: bytes `[start, end)`, rows `[first_row, first_row + rows)`.

    `row_bytes` is the encoded size of one row before compression.
    """

    ordinal: int
    start: int
    end: int
    first_row: int
    rows: int
    row_bytes: int

    @property
    def end_row(self) -> int:
        """The ordinal after the last row, counted in the object."""
        return self.first_row + self.rows


@dataclass(frozen=True)  # with a dictionary, for what is computed once
class Footer:
    """A checked footer. `groups` are in file order, do not overlap and have at least one row.

    Arrow must not be asked for the statistics of the leaf columns `unreadable`. `is_plain`: neither
    footer nor columns are encrypted. `index`: where the page indexes are, between the row groups
    and `end`, if the footer was read for pruning and is plain. `refused` are columns that Arrow
    cannot read, and why; the metadata is that of a file without them.
    """

    metadata: pq.FileMetaData
    groups: tuple[RowGroup, ...]
    unreadable: frozenset[int]
    is_plain: bool
    end: int
    index: IndexPlaces | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    def require(self, version: ObjectVersion, select: Sequence[str]) -> None:
        """Raise UnsupportedType if a column that is read has no exact type in Arrow."""
        for name, why in self.refused.items():
            read = [one for one in select if one == name or one.startswith(f"{name}.")]
            if read or not select:
                raise UnsupportedType(f"{version.uri}: {why}")

    @cached_property
    def tree(self) -> Struct:
        """All that the metadata states, to copy from; its row groups are bytes.

        Reading these takes milliseconds each thousand, and an extent needs only some of them.
        """
        sink = pa.BufferOutputStream()
        self.metadata.write_metadata_file(sink)
        framed = sink.getvalue().to_pybytes()
        return read_struct(framed, len(MAGIC), unread=frozenset((ROW_GROUPS,)))[0]

    def owned(self, start: int, end: int) -> tuple[RowGroup, ...]:
        """Return the row groups whose first byte lies in `[start, end)`."""
        by_start = attrgetter("start")
        first = bisect_left(self.groups, start, key=by_start)
        return self.groups[first : bisect_left(self.groups, end, key=by_start)]


@dataclass(slots=True)
class _CachedFooter:
    lock: threading.Lock = field(default_factory=threading.Lock)
    footer: Footer | None = None


class Footers:
    """The footers read by a process, newest last; thread-safe, concurrent calls share one read.

    Bounded by the size of the footers in their objects (about ten times as much in memory); the
    newest is always kept.
    """

    def __init__(self, limit_bytes: int = 4 << 20) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        # By the keys, too: a footer that was read with some decrypts the pages.
        self._slots: OrderedDict[tuple[ObjectVersion, FileKeys | None, bool], _CachedFooter] = (
            OrderedDict()
        )

    def get(
        self,
        source: RangeSource,
        keys: FileKeys | None = None,
        *,
        pruning: bool = False,
        select: Sequence[str] = (),
    ) -> Footer:
        """Return the footer of the source's version. Raises as `read_footer`."""
        held_as = source.version, keys, pruning
        with self._lock:
            slot = self._slots.setdefault(held_as, _CachedFooter())
            self._slots.move_to_end(held_as)
        # A lock per version, so that reading one footer delays only its own readers.
        with slot.lock:
            if slot.footer is None:
                slot.footer = _read_footer(source, keys, pruning=pruning)
        slot.footer.require(source.version, select)
        with self._lock:
            read = [held.footer for held in self._slots.values() if held.footer]
            held_bytes = sum(footer.metadata.serialized_size for footer in read)
            while len(self._slots) > 1 and (
                held_bytes > self._limit_bytes or len(self._slots) > MOST_FOOTERS
            ):
                _, oldest = self._slots.popitem(last=False)
                held_bytes -= oldest.footer.metadata.serialized_size if oldest.footer else 0
        return slot.footer


def read_footer(
    source: RangeSource,
    keys: FileKeys | None = None,
    *,
    pruning: bool = False,
    select: Sequence[str] = (),
) -> Footer:
    """Read and check the footer: one request, a second one if the footer exceeds the tail.

    `keys` decrypt the footer, and the pages that are read by its metadata. `pruning`: statistics
    are read; without it, all of them count as unreadable. `select`: the columns that are read; all
    if it is empty.

    Raises:
        UnsupportedFormat: not Parquet, encrypted with no or other keys, or compressed with a codec
            that Arrow lacks.
        UnsupportedType: a column that is read has no exact Arrow type, or two have one name.
        CorruptObject: the footer is truncated, unreadable or contradicts itself.
        ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
    """
    footer = _read_footer(source, keys, pruning=pruning)
    footer.require(source.version, select)
    return footer


def _read_footer(source: RangeSource, keys: FileKeys | None, *, pruning: bool) -> Footer:
    version = source.version
    wanted = max(LEAST_TAIL_BYTES, min(version.size // TAIL_SHARE, MOST_TAIL_BYTES))
    tail = source.read(max(0, version.size - wanted), version.size)
    _require_magic(source, tail, keys)
    length = int.from_bytes(tail[-_FRAME_BYTES:-4], "little")
    if length + _FRAME_BYTES + len(MAGIC) > version.size or length > LARGEST_FOOTER_BYTES:
        raise corrupt_object(version, f"claims a footer of {length} bytes")
    framed = _framed_footer(source, tail, length)
    refused: dict[str, str] = {}
    try:
        metadata, reader = _opened(version, framed, keys)
    except UnsupportedType as exc:
        if not framed.endswith(MAGIC):
            raise
        framed, refused = _without_refused(version, framed, exc)
        metadata, reader = _opened(version, framed, None)
    groups = tuple(_groups(version, reader, metadata, version.size - length, keys))
    is_plain = framed.endswith(MAGIC) and metadata.serialized_size == len(framed) - _FRAME_BYTES
    end = version.size - length - _FRAME_BYTES
    if pruning and is_plain:
        facts = pruning_facts(framed, metadata)
        return Footer(metadata, groups, facts.unreadable, is_plain, end, facts.index, refused)
    # Encrypted ones have been authenticated.
    unreadable = frozenset() if pruning else frozenset(range(metadata.num_columns))
    return Footer(metadata, groups, unreadable, is_plain, end, None, refused)


def _opened(
    version: ObjectVersion, framed: bytes, keys: FileKeys | None
) -> tuple[pq.FileMetaData, pq.ParquetFile]:
    """Return what Arrow reads of a footer. Raises as `read_footer`."""
    metadata = _read_metadata(version, framed, keys)
    # A file without bytes: Arrow checks the schema and the row groups before it reads a page.
    file = pa.PythonFile(_MetadataOnlyFile(version.size), mode="r")
    reader = _open(version, file, metadata, keys=keys)
    require_exact(version, reader.schema_arrow, metadata)
    return metadata, reader


def _without_refused(
    version: ObjectVersion, framed: bytes, exc: UnsupportedType
) -> tuple[bytes, dict[str, str]]:
    """Return the footer without the columns that Arrow refuses, and why, by their names.

    Raises `exc` where that leaves none, or is not about single columns.
    """

    def opened(footer: bytes) -> Exception | None:
        try:
            _opened(version, footer, None)
        except UnsupportedType as why:
            return why
        return None

    try:
        subsets = ColumnSubsets(framed)
        refused = subsets.unreadable(opened)
        kept = [at for at in range(subsets.columns) if at not in refused]
        if not refused or (kept and opened(subsets.framed(kept))):
            raise exc
        reasons = {
            subsets.name(at): _reason(version, subsets.name(at), refused[at]) for at in refused
        }
        if not kept:
            raise UnsupportedType(f"{version.uri}: {next(iter(reasons.values()))}") from exc
        return subsets.framed(kept), reasons
    except (IndexError, ValueError, OSError, struct.error, pa.ArrowException) as damage:
        raise corrupt_object(version, f"has an unreadable footer: {one_line(damage)}") from damage


def _reason(version: ObjectVersion, name: str, exc: Exception) -> str:
    why = one_line(exc, _MOST_MESSAGE_CHARACTERS)
    why = why.removeprefix(version.uri).removeprefix(":").strip()
    named = why if repr(name)[:-1] in why else f"column {name!r}: {why}"
    way_out = "" if ";" in named else "; write it as another type"
    return f"{named}{way_out}, or leave the column out by select"


def _require_magic(source: RangeSource, tail: bytes, keys: FileKeys | None) -> None:
    version = source.version
    is_readable = tail.endswith(MAGIC) or (keys is not None and tail.endswith(ENCRYPTED_MAGIC))
    if is_readable and len(tail) >= len(MAGIC) + _FRAME_BYTES:
        return
    if tail.endswith(ENCRYPTED_MAGIC):
        raise UnsupportedFormat(f"{version.uri} is an encrypted Parquet file; {_DECRYPT}")
    head = source.read(0, min(HEAD_BYTES, version.size))
    require_signature(version, head, tail, expected="parquet")
    if head.startswith(MAGIC):
        raise corrupt_object(version, "begins as Parquet but does not end with PAR1")
    raise UnsupportedFormat(
        f"{version.uri} is not a Parquet file (it ends with {shown_bytes(tail[-4:])}, not with"
        " PAR1); set input.format to its format"
    )


def _framed_footer(source: RangeSource, tail: bytes, length: int) -> bytes:
    size = source.version.size
    start, reached = size - length - _FRAME_BYTES, size - len(tail)
    if start >= reached:
        return tail[start - reached :]
    # What precedes the tail takes a second request.
    window = min(reached - start, MAX_READ_BYTES)
    return b"".join([*source.stream(start, reached, window_bytes=window), tail])


def _read_metadata(version: ObjectVersion, framed: bytes, keys: FileKeys | None) -> pq.FileMetaData:
    length = len(framed) - _FRAME_BYTES
    metadata = _open(version, pa.BufferReader(framed), keys=keys).metadata
    unread = length - metadata.serialized_size
    if framed.endswith(ENCRYPTED_MAGIC) or (unread == _SIGNATURE_BYTES and keys is not None):
        # Arrow has decrypted the footer, or verified its signature.
        return metadata
    if unread == _SIGNATURE_BYTES:
        # Reading an encrypted column's metadata would abort the process.
        raise UnsupportedFormat(f"{version.uri} has encrypted columns; {_DECRYPT}")
    if unread:
        raise corrupt_object(version, f"has {unread} unexpected bytes in its footer")
    return metadata


class _NothingToReadError(Exception):
    """Raised instead of reading: all steps that need no bytes succeeded."""


class _MetadataOnlyFile(io.IOBase):
    """A file that only provides metadata."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int) -> bytes:
        raise _NothingToReadError(size)


def _open(
    version: ObjectVersion,
    file: pa.NativeFile,
    metadata: pq.FileMetaData | None = None,
    *,
    keys: FileKeys | None = None,
) -> pq.ParquetFile:
    # With metadata, there is nothing to decrypt.
    decryption = keys.properties() if keys is not None and metadata is None else None
    try:
        return pq.ParquetFile(
            file,
            metadata=metadata,
            pre_buffer=False,
            buffer_size=1,
            decryption_properties=decryption,
        )
    except KeyUnavailableError as exc:
        raise _cannot_decrypt(version, exc, keys) from exc
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedType(
            f"{version.uri}: {one_line(exc, _MOST_MESSAGE_CHARACTERS)}; write it as another type"
        ) from exc
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        # These two are about members of a wrapped key.
        about_keys = isinstance(exc, (pa.ArrowKeyError, pa.ArrowTypeError))
        if about_keys or any(word in str(exc) for word in _CRYPTO_WORDS):
            raise _cannot_decrypt(version, exc, keys) from exc
        if _NULLABLE_KEYS in str(exc):
            raise UnsupportedType(
                f"{version.uri} has a map whose keys are optional; write them as required"
            ) from exc
        raise corrupt_object(
            version, f"has an unreadable footer: {one_line(exc, _MOST_MESSAGE_CHARACTERS)}"
        ) from exc


def _groups(
    version: ObjectVersion,
    reader: pq.ParquetFile,
    metadata: pq.FileMetaData,
    footer_start: int,
    keys: FileKeys | None,
) -> Iterator[RowGroup]:
    row, reached = 0, len(MAGIC)
    columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    flat = [leaf for leaf, column in enumerate(columns) if not column.max_repetition_level]
    for ordinal in range(metadata.num_row_groups):
        group = metadata.row_group(ordinal)
        if group.num_rows < 0 or group.num_columns != metadata.num_columns:
            raise corrupt_object(version, f"has {group.num_rows} rows in row group {ordinal}")
        # Without rows there is nothing to own: no extent needs the group's bytes.
        if group.num_rows == 0:
            continue
        _require_sound_chunks(version, reader, ordinal, keys)
        # Outside lists and maps, each row has one value: otherwise, columns would shift.
        counts = {leaf: group.column(leaf).num_values for leaf in flat}
        if wrong := [leaf for leaf, count in counts.items() if count != group.num_rows]:
            path, count = columns[wrong[0]].path, counts[wrong[0]]
            found = f"{count} values in column {path!r} of the {group.num_rows} rows"
            raise corrupt_object(version, f"has {found} of row group {ordinal}")
        chunks = column_ranges(group)
        start, end = min(chunks)[0], max(end for _, end in chunks)
        if not reached <= start < end <= footer_start:
            outside = f"outside [{reached}-{footer_start})"
            raise corrupt_object(version, f"has row group {ordinal} at [{start}-{end}), {outside}")
        # Before compression, for the first batch; wider rows make smaller batches.
        row_bytes = max(1, group.total_byte_size // group.num_rows)
        yield RowGroup(ordinal, start, end, row, group.num_rows, row_bytes)
        row, reached = row + group.num_rows, end
    # Old versions of Rust's writer stated none; columns outside lists show that the groups agree.
    is_unstated = metadata.num_rows == 0 and bool(flat)
    if row != metadata.num_rows and not is_unstated:
        rows = metadata.num_rows
        raise corrupt_object(version, f"states {rows} rows, but its row groups contain {row}")


def _require_sound_chunks(
    version: ObjectVersion, reader: pq.ParquetFile, ordinal: int, keys: FileKeys | None
) -> None:
    # Arrow checks the metadata of every column chunk before it reads the first page, and decrypts
    # it: without the key of a column, nothing must ask for its metadata.
    try:
        next(reader.reader.iter_batches(1, [ordinal], use_threads=False), None)
    except _NothingToReadError:
        pass
    except KeyUnavailableError as exc:
        raise _cannot_decrypt(version, exc, keys) from exc
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedFormat(
            f"{version.uri}: row group {ordinal}: {one_line(exc, _MOST_MESSAGE_CHARACTERS)}"
        ) from exc
    except (pa.ArrowException, OSError) as exc:
        if any(word in str(exc) for word in _CRYPTO_WORDS):
            raise _cannot_decrypt(version, exc, keys) from exc
        raise corrupt_object(
            version, f"has a broken row group {ordinal}: {one_line(exc, _MOST_MESSAGE_CHARACTERS)}"
        ) from exc
    # A summary file (`_metadata`) names the file of each chunk.
    chunk = reader.metadata.row_group(ordinal).column(0)
    if chunk.file_path:
        raise UnsupportedFormat(
            f"{version.uri} only describes other files ({chunk.file_path!r}); ingest them"
        )


def column_ranges(group: pq.RowGroupMetaData) -> list[tuple[int, int]]:
    """Return the byte range of each column chunk, as Arrow's `ComputeColumnChunkRange`."""
    ranges = []
    for index in range(group.num_columns):
        chunk = group.column(index)
        # The dictionary page precedes the data pages; an offset of 0 means that there is none.
        start = chunk.data_page_offset
        dictionary = chunk.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        ranges.append((start, start + chunk.total_compressed_size))
    return ranges


def _cannot_decrypt(
    version: ObjectVersion, exc: BaseException, keys: FileKeys | None
) -> UnsupportedFormat:
    if keys is None:
        return UnsupportedFormat(
            f"{version.uri} is encrypted: {one_line(exc, _MOST_MESSAGE_CHARACTERS)}; {_DECRYPT}"
        )
    rule = "all its columns must have the key of the footer, and this must be the one"
    if keys.setting == KEY_LIST:
        rule = "list the master keys of its footer and of all its columns, each with its id"
    return UnsupportedFormat(
        f"{version.uri} cannot be decrypted with {keys.setting}:"
        f" {one_line(exc, _MOST_MESSAGE_CHARACTERS)}; {rule}"
    )
