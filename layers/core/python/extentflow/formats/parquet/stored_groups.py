"""Row groups as they are stored: cut out of a file, joined to a file, without decoding a page.

    file      PAR1 | group 0 | group 1 | group 2 | footer | PAR1
    cut out   PAR1 | group 1 | footer with its places moved | PAR1

What is stated beside the row groups (page indexes, bloom filters, metadata of writers other than
Arrow's schema) is left out. Field numbers are those of parquet.thrift.
"""

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from extentflow.formats import FormatOptions
from extentflow.formats.parquet.arrow_types import ExactColumns
from extentflow.formats.parquet.compact_protocol import I32, I64, LIST, STRUCT
from extentflow.formats.parquet.footer import MAGIC, ROW_GROUPS, Footer, RowGroup
from extentflow.formats.parquet.pages import (
    DICTIONARY_PAGE,
    MOST_HEADER_BYTES,
    OWN_HEADERS,
    PageHeader,
    page_header,
)
from extentflow.formats.parquet.thrift_tree import I16, Elements, Struct, read_struct, write_struct

# Larger ones take seconds to read here.
MOST_FOOTER_BYTES = 4 << 20
# By `columnar.encoding.compression`, as Arrow names them.
_CODECS = {
    "none": "UNCOMPRESSED",
    "gzip": "GZIP",
    "snappy": "SNAPPY",
    "lz4": "LZ4",
    "zstd": "ZSTD",
}
# Of the rows of a value: what a reader holds at once.
MOST_DECODED_BYTES = 256 << 20
# Of a column whose dictionary is not looked at.
LITTLE_DECODED_BYTES = 4 << 20
_NUMBER_BYTES = 16
# Type, Encoding, and by CompressionCodec the codecs of which Arrow unpacks a page alone.
_BYTE_ARRAY, _DELTA_BYTE_ARRAY = 6, 7
# ColumnMetaData, and SizeStatistics: the bytes that the texts have without encodings
_SIZE_STATISTICS, _TEXT_BYTES = 16, 1
_DECOMPRESSED = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_ARROW_SCHEMA = b"ARROW:schema"
# FileMetaData
_ROWS, _KEY_VALUES = 3, 5
# RowGroup
_COLUMNS, _GROUP_ROWS, _FILE_OFFSET, _ORDINAL = 1, 3, 5, 7
# FileMetaData and ColumnChunk: of files whose footer is in plain text, and pages are not.
_ENCRYPTION, _ENCRYPTED = 8, (8, 9)
# ColumnChunk; 4 to 7 place its page indexes
_OTHER_FILE, _CHUNK_OFFSET, _META_DATA, _INDEXES = 1, 2, 3, (4, 5, 6, 7)
# ColumnMetaData
_TYPE, _ENCODINGS, _CODEC, _STORED_BYTES, _PLACES, _BLOOM_FILTER = 1, 2, 4, 7, (9, 10, 11), (14, 15)
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_VALUES = 5
# Of PageHeader.
_CRC = 4
_HEADER = {1: I32, 2: I32, 3: I32, _CRC: I32}
_USUAL_HEADER_BYTES = 1024


@dataclass(frozen=True, slots=True)
class StoredFooter:
    """The footer of a plain Parquet file, of which parts are written again.

    In the tree, row groups can be bytes.
    """

    tree: Struct

    @classmethod
    def of(cls, footer: Footer) -> "StoredFooter | None":
        """Return the footer of an object; None where it is too large."""
        if footer.metadata.serialized_size > MOST_FOOTER_BYTES:
            return None
        return cls(_without_extras(_copied(footer.tree)))

    @classmethod
    def of_value(cls, value: bytes | memoryview) -> "StoredFooter":
        """Return the footer of a whole file. ValueError, IndexError: it is none."""
        length = int.from_bytes(value[-8:-4], "little")
        if bytes(value[-4:]) != MAGIC or length + 12 > len(value):
            raise ValueError("no Parquet file in plain text")
        tree, _ = read_struct(bytes(value[-8 - length : -8]))
        return cls(_without_extras(tree))

    @property
    def groups(self) -> list[Struct]:
        """The row groups."""
        return [_read_group(each) for each in self.tree.structs(ROW_GROUPS)]

    def group(self, ordinal: int) -> Struct:
        """Return one row group."""
        return _read_group(self.tree.structs(ROW_GROUPS)[ordinal])

    @property
    def description(self) -> bytes:
        """What files must share so that their row groups can be in one file: all but the groups."""
        tree = Struct(dict(self.tree.fields))
        tree.drop(_ROWS, ROW_GROUPS)
        return write_struct(tree)

    @property
    def is_encrypted(self) -> bool:
        """Whether columns are encrypted: then keys and signature are for this file alone."""
        return self.tree.get(_ENCRYPTION) is not None

    @property
    def rows(self) -> int:
        """How many rows the row groups have. ValueError: the footer contradicts itself."""
        stated: int = self.tree.get(_ROWS)
        if stated != sum(group.get(_GROUP_ROWS) for group in self.groups):
            raise ValueError(f"{stated} rows, and its row groups have others")
        return stated

    def data_range(self, end: int) -> tuple[int, int]:
        """Return the bytes `[start, end)` of the file in which all column chunks are.

        ValueError: some are encrypted, in another file, or not between the magic and `end`, where
        the footer begins; or there are none.
        """
        chunks = [chunk for group in self.groups for chunk in group.structs(_COLUMNS)]
        if self.is_encrypted:
            raise ValueError("encrypted")
        places = []
        for chunk in chunks:
            if any(chunk.get(number) is not None for number in _ENCRYPTED):
                raise ValueError("an encrypted column")
            if chunk.get(_OTHER_FILE) is not None:
                raise ValueError("a column in another file")
            places.append(_chunk_range(_meta(chunk)))
        if not places:
            raise ValueError("no columns")
        first, last = min(place[0] for place in places), max(place[1] for place in places)
        if not len(MAGIC) <= first < last <= end or any(at >= to for at, to in places):
            raise ValueError(f"columns at [{first}-{last}), and a footer at {end}")
        return first, last

    def with_groups(self, groups: Sequence[Struct]) -> bytes:
        """Return a footer with these row groups, its length and the magic."""
        written = [written_group(group, ordinal) for ordinal, group in enumerate(groups)]
        return self.with_written(written, sum(group.get(_GROUP_ROWS) for group in groups))

    def with_written(self, groups: Sequence[bytes], rows: int) -> bytes:
        """Return a footer with row groups of `written_group`, which have so many rows together."""
        tree = Struct(dict(self.tree.fields))
        tree.set(_ROWS, I64, rows)
        tree.set(ROW_GROUPS, LIST, Elements(STRUCT, list(groups)))
        footer = write_struct(tree)
        return footer + len(footer).to_bytes(4, "little") + MAGIC

    def cut_out(self, group: int, start: int) -> bytes:
        """Return the footer of a file with a single row group, which begins behind the magic.

        `start` is where it begins in this file.
        """
        return self.with_groups([moved(self.group(group), len(MAGIC) - start)])


def written_group(group: Struct, ordinal: int) -> bytes:
    """Return the bytes of a row group, the one with that ordinal of its file."""
    group.set(_ORDINAL, I16, ordinal)
    return write_struct(group)


def moved(group: Struct, distance: int) -> Struct:
    """Return a row group `distance` bytes further on in another file."""
    copied = _copied(group)
    chunks = [_copied(chunk) for chunk in group.structs(_COLUMNS)]
    for chunk in chunks:
        chunk.set(_META_DATA, STRUCT, _copied(_meta(chunk)))
    copied.set(_COLUMNS, LIST, Elements(STRUCT, chunks))
    return move(copied, distance)


def _copied(struct: Struct) -> Struct:
    return Struct(dict(struct.fields))


def move(found: Struct, distance: int) -> Struct:
    """Move a row group `distance` bytes further on, and return it."""
    if found.get(_FILE_OFFSET):
        found.set(_FILE_OFFSET, I64, found.get(_FILE_OFFSET) + distance)
    for chunk in found.structs(_COLUMNS):
        if chunk.get(_CHUNK_OFFSET):
            chunk.set(_CHUNK_OFFSET, I64, chunk.get(_CHUNK_OFFSET) + distance)
        meta = _meta(chunk)
        for number in _PLACES:
            if meta.get(number):
                meta.set(number, I64, meta.get(number) + distance)
    return found


def sound_pages(group: Struct, data: memoryview, start: int) -> bool:
    """Whether the pages of each column chunk follow each other, and have their checksums.

    Also whether its rows are surely no more than MOST_DECODED_BYTES. Dictionaries and differences
    hold any number of long texts in a few bytes, and a reader of the value decodes all of them.
    `data` are the bytes of the row group, which begins at `start` of its file.
    """
    decoded = 0
    for chunk in group.structs(_COLUMNS):
        meta = _meta(chunk)
        first, last = _chunk_range(meta)
        at, end = first - start, last - start
        if not 0 <= at < end <= len(data):
            return False
        size = _decoded_bytes(data[at:end], meta)
        if size is None:
            return False
        decoded += size
    return decoded <= MOST_DECODED_BYTES


def _decoded_bytes(chunk: memoryview, meta: Struct) -> int | None:
    """Return the most bytes that the values of a column chunk have; None: its pages are unsound."""
    values: int = meta.get(_VALUES)
    encodings = meta.get(_ENCODINGS)
    if _DELTA_BYTE_ARRAY in encodings.values:
        return None
    at = found = unpacked = longest = 0
    while at < len(chunk):
        try:
            header = _header(chunk, at)
            fields = read_struct(chunk, at)[0].fields
        except (IndexError, ValueError):
            return None
        # As the format has them: nothing behind the header says that a flag in it is damaged.
        if {number: kind for number, (kind, _) in fields.items()} | {_CRC: I32} != {
            **_HEADER,
            OWN_HEADERS.get(header.kind, 0): STRUCT,
        }:
            return None
        crc = fields[_CRC][1] if _CRC in fields else None
        at += header.size
        page = chunk[at : at + header.stored]
        if not 0 <= header.stored == len(page):
            return None
        if crc is not None and crc & 0xFFFFFFFF != zlib.crc32(page):
            return None
        if header.kind == DICTIONARY_PAGE:
            longest = max(longest, _longest(page, header, meta, values))
        else:
            found += header.values or 0
            unpacked += header.unpacked
        at += header.stored
    return unpacked + values * max(longest, _NUMBER_BYTES) if found == values else None


def _longest(page: memoryview, header: PageHeader, meta: Struct, values: int) -> int:
    """Return the most bytes of an entry of a dictionary, or the mean of all values if stated."""
    count = max(1, header.values or 0)
    if meta.get(_TYPE) != _BYTE_ARRAY:
        return header.unpacked // count
    sizes = meta.get(_SIZE_STATISTICS)
    if isinstance(sizes, Struct) and sizes.get(_TEXT_BYTES) is not None:
        stated: int = sizes.get(_TEXT_BYTES)
        return math.ceil(stated / max(1, values))
    if header.unpacked * values <= LITTLE_DECODED_BYTES:
        return header.unpacked
    codec = _DECOMPRESSED.get(meta.get(_CODEC))
    if codec is None:
        return header.unpacked
    try:
        data = page if not codec else pa.Codec(codec).decompress(page, header.unpacked)
        return longest_text(memoryview(data), count)
    except (pa.ArrowException, OSError, ValueError):
        return header.unpacked


def longest_text(data: memoryview, count: int) -> int:
    """Return the most bytes of one of so many texts, each behind its length in four bytes.

    ValueError: there are fewer.
    """
    at = longest = 0
    for _ in range(count):
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4 + size
        longest = max(longest, size)
    if at > len(data):
        raise ValueError("the dictionary ends early")
    return longest


def _header(chunk: memoryview, at: int) -> PageHeader:
    try:
        return page_header(bytes(chunk[at : at + _USUAL_HEADER_BYTES]))
    except IndexError:
        return page_header(bytes(chunk[at : at + MOST_HEADER_BYTES]))


def _without_extras(tree: Struct) -> Struct:
    kept = [one for one in tree.structs(_KEY_VALUES) if one.get(1) == _ARROW_SCHEMA]
    tree.drop(_KEY_VALUES)
    if kept:
        tree.set(_KEY_VALUES, LIST, Elements(STRUCT, kept))
    for group in tree.structs(ROW_GROUPS):
        if isinstance(group, Struct):
            _drop_extras(group)
    return tree


def _read_group(stored: Struct | bytes) -> Struct:
    return stored if isinstance(stored, Struct) else _drop_extras(read_struct(stored)[0])


def _drop_extras(group: Struct) -> Struct:
    for chunk in group.structs(_COLUMNS):
        chunk.drop(*_INDEXES)
        _meta(chunk).drop(*_BLOOM_FILTER)
    return group


def _chunk_range(meta: Struct) -> tuple[int, int]:
    """Return the bytes `[start, end)` of a column chunk, as its metadata states them."""
    first: int = meta.get(_DATA_PAGE)
    dictionary = meta.get(_DICTIONARY_PAGE)
    if dictionary and dictionary < first:
        first = dictionary
    return first, first + meta.get(_STORED_BYTES)


def _meta(chunk: Struct) -> Struct:
    found = chunk.get(_META_DATA)
    if not isinstance(found, Struct):
        raise ValueError("a column chunk without metadata")  # noqa: TRY004 - of damaged bytes
    return found


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """The row groups of an object that can be passed on as they are stored; rows of `schema`."""

    footer: Footer
    stored: StoredFooter
    schema: pa.Schema
    max_record_bytes: int

    @classmethod
    def of(cls, footer: Footer, options: FormatOptions) -> "StoredGroups | None":
        """Return them; None where decoding changes columns or drops rows, or files are encrypted.

        That is also where timestamps are INT96, of which not all are exact.
        """
        metadata = footer.metadata
        columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
        if not footer.is_plain or options.select or options.excludes is not None:
            return None
        if any(column.physical_type == "INT96" for column in columns):
            return None
        schema = metadata.schema.to_arrow_schema()
        stored = StoredFooter.of(footer)
        if stored is None or ExactColumns.of(schema, metadata).conversions:
            return None
        return cls(footer, stored, schema, options.max_record_bytes)

    def footer_of(self, group: RowGroup, codec: str | None, most_bytes: int) -> bytes:
        """Return the footer of a file of that row group; empty where that is above `most_bytes`.

        Also where another `codec` compresses a column (None: any may), or a row may be longer than
        records may be.
        """
        found = self.footer.metadata.row_group(group.ordinal)
        codecs = {found.column(leaf).compression for leaf in range(found.num_columns)}
        if codec is not None and codecs != {_CODECS[codec]}:
            return b""
        size = group.end - group.start
        if size > most_bytes or found.total_byte_size > self.max_record_bytes:
            return b""
        behind = self.stored.cut_out(group.ordinal, group.start)
        return behind if len(MAGIC) + size + len(behind) <= most_bytes else b""

    def is_sound(self, group: RowGroup, data: bytes) -> bool:
        """Whether the pages of a row group are complete; see `sound_pages`."""
        return sound_pages(self.stored.group(group.ordinal), memoryview(data), group.start)


class Stream:
    """Takes ranges in order from windows of bytes that begin at `start`. Must be closed."""

    def __init__(self, windows: Generator[bytes, None, None], start: int) -> None:
        self._windows = windows
        self._at = start
        self._held = b""

    def close(self) -> None:
        """Drop what was not taken."""
        self._windows.close()

    def take(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`, which are not before those taken last."""
        parts: list[bytes] = []
        while self._at < end:
            if not self._held:
                self._held = next(self._windows)
            first = max(0, start - self._at)
            part = self._held[first : end - self._at]
            used = min(len(self._held), end - self._at)
            parts.append(part)
            self._held, self._at = self._held[used:], self._at + used
        return b"".join(parts)
