"""Parquet objects of any size, computed for `bench.synthetic`.

pyarrow writes one small row group, once. Its pages, each repeated, form the row groups; its
metadata, with other offsets, forms every row group's entry in the footer. All entries have the same
length (Thrift's integers may be padded), so footers can be computed by position too.

    object    PAR1 | group 0 | group 1 | ... | head, entry 0, entry 1, ..., tail | length | PAR1
    group     row: page, page, ... | second column: page, page, ... | ...
"""

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.formats.parquet.compact_protocol import I64, LIST, STRUCT
from extentflow.formats.parquet.thrift_tree import Elements, Struct, read_struct, write_struct

GROUP_BYTES = 128 << 20
COLUMNS = 16
PAGE_ROWS = 4096

_MAGIC = b"PAR1"
_LENGTH_BYTES = 4
_MOST_BYTES = 1 << 47  # what an offset in the footer has room for
# A number from here on has so many bytes in Thrift's compact protocol.
_PLACEHOLDER, _PLACEHOLDER_BYTES = 1 << 47, 7
_SPREAD = 2_654_435_761

# Fields by https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_CHUNKS, _GROUP_SIZE, _GROUP_ROWS, _GROUP_AT, _GROUP_PACKED, _GROUP_ORDINAL = 1, 2, 3, 5, 6, 7
_CHUNK_COLUMN = 3
_COLUMN_ROWS, _COLUMN_SIZE, _COLUMN_PACKED, _COLUMN_AT = 5, 6, 7, 9
_COLUMN_ENCODINGS, _ENCODING_PAGES, _COLUMN_HISTOGRAMS = 13, 3, 16


class ParquetRows:
    """`groups` row groups of `pages` pages per column; the column `row` contains row numbers.

    The others are int64, double and string in turn, Snappy, with statistics; their values repeat
    from page to page.

    The footer limits the size of an object, because readers parse it as a whole: about 100 bytes
    for each column of each row group. 1 TB in row groups of 128 MiB and 16 columns has one of 11
    MB. extentflow reads footers of up to 256 MiB, which is about 20 TB in such row groups.

    Raises:
        ValueError: offsets of 2^47 bytes and more.
    """

    def __init__(
        self, *, groups: int, pages: int, columns: int = COLUMNS, page_rows: int = PAGE_ROWS
    ) -> None:
        self.groups = groups
        self.group_rows = pages * page_rows
        writer = pa.__version__
        self.identity = f"ParquetRows({groups=}, {pages=}, {columns=}, {page_rows=}, {writer=})"
        self._pages = pages
        self._page_rows = page_rows
        self._page_of, metadata = _written(columns, page_rows)
        lengths = (pages * len(page) for page in self._page_of)
        *self._starts, self.group_bytes = accumulate(lengths, initial=0)
        if groups * self.group_bytes >= _MOST_BYTES:
            raise ValueError(f"{self.identity} has offsets beyond {_MOST_BYTES}")
        footer = self._footer(metadata)
        length = sum(part.size for part in footer)
        self._parts = (
            _constant(_MAGIC),
            _Part(groups * self.group_bytes, self._read_groups),
            *footer,
            _constant(length.to_bytes(_LENGTH_BYTES, "little") + _MAGIC),
        )
        self.size = sum(part.size for part in self._parts)

    @classmethod
    def of_size(cls, size: int, *, group_bytes: int = GROUP_BYTES, **shape: int) -> Self:
        """Return an object of about `size` bytes in row groups of about `group_bytes`."""
        pages = max(1, group_bytes // cls(groups=1, pages=1, **shape).group_bytes)
        one = cls(groups=1, pages=pages, **shape)
        return cls(groups=max(1, size // one.group_bytes), pages=pages, **shape)

    @property
    def rows(self) -> int:
        """Number of rows; they are numbered from 0."""
        return self.groups * self.group_rows

    def read(self, start: int, end: int) -> bytes:
        """See `bench.synthetic.Content`."""
        return b"".join(_read(self._parts, start, end))

    def _read_groups(self, start: int, end: int) -> bytes:
        return b"".join(self._pieces(start, end))

    def _pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield `[start, end)` of the row groups, page by page."""
        at = start
        while at < end:
            group, within = divmod(at, self.group_bytes)
            column = bisect_right(self._starts, within) - 1
            page = self._page_of[column]
            ordinal, offset = divmod(within - self._starts[column], len(page))
            if column == 0:
                page = self._numbered(page, group * self._pages + ordinal)
            piece = page[offset : offset + end - at]
            yield piece
            at += len(piece)

    def _numbered(self, page: bytes, ordinal: int) -> bytes:
        """Return a page of the column `row`: the written header, with other numbers."""
        first = ordinal * self._page_rows
        numbers = np.arange(first, first + self._page_rows, dtype="<i8").tobytes()
        return page[: -len(numbers)] + numbers

    def _footer(self, written: Struct) -> tuple["_Part", ...]:
        (group,) = written.structs(_FILE_GROUPS)
        fields = written.fields | {
            _FILE_ROWS: (I64, self.rows),
            _FILE_GROUPS: (LIST, Elements(STRUCT, [b""] * self.groups)),
        }
        before = {number: of for number, of in fields.items() if number <= _FILE_GROUPS}
        head = write_struct(Struct(before))[:-1]  # without the stop
        tail = write_struct(Struct(fields))[len(head) :]
        entries = _Entries(*self._group(group), self.group_bytes)
        size = self.groups * entries.length
        return _constant(head), _Part(size, entries.read), _constant(tail)

    def _group(self, written: Struct) -> tuple[bytes, list[int]]:
        """Return the first row group's entry, for `pages` pages, and the offsets in it.

        The offsets are numbers from _PLACEHOLDER on, in their order.
        """
        offsets = [len(_MAGIC), *(len(_MAGIC) + start for start in self._starts)]
        columns = [
            self._column(chunk.get(_CHUNK_COLUMN), _PLACEHOLDER + ordinal)
            for ordinal, chunk in enumerate(written.structs(_GROUP_CHUNKS), 1)
        ]
        moved = [
            Struct(chunk.fields | {_CHUNK_COLUMN: (STRUCT, column)})
            for chunk, column in zip(written.structs(_GROUP_CHUNKS), columns, strict=True)
        ]
        group = self._repeated(written, _GROUP_SIZE, _GROUP_ROWS, _GROUP_PACKED)
        group.set(_GROUP_CHUNKS, LIST, Elements(STRUCT, moved))
        group.set(_GROUP_AT, I64, _PLACEHOLDER)
        group.drop(_GROUP_ORDINAL)  # 16 bits, and the same in every entry
        return write_struct(group), offsets

    def _column(self, written: Struct, offset: int) -> Struct:
        column = self._repeated(written, _COLUMN_ROWS, _COLUMN_SIZE, _COLUMN_PACKED)
        column.set(_COLUMN_AT, I64, offset)
        encodings = [
            self._repeated(of, _ENCODING_PAGES) for of in written.structs(_COLUMN_ENCODINGS)
        ]
        column.set(_COLUMN_ENCODINGS, LIST, Elements(STRUCT, encodings))
        column.drop(_COLUMN_HISTOGRAMS)
        return column

    def _repeated(self, written: Struct, *counts: int) -> Struct:
        """Return a copy of a struct with `counts` for all pages."""
        changed = {n: (written.fields[n][0], written.get(n) * self._pages) for n in counts}
        return Struct(written.fields | changed)


@dataclass(frozen=True, slots=True)
class _Part:
    """Contiguous bytes of an object; `read` takes a range of them."""

    size: int
    read: Callable[[int, int], bytes]


def _constant(data: bytes) -> _Part:
    return _Part(len(data), lambda start, end: data[start:end])


def _read(parts: Sequence[_Part], start: int, end: int) -> Iterator[bytes]:
    """Yield `[start, end)` of consecutive parts."""
    at = 0
    for part in parts:
        low, high = max(start, at), min(end, at + part.size)
        if low < high:
            yield part.read(low - at, high - at)
        at += part.size


class _Entries:
    """The row groups' entries in the footer: the first one with offsets `group_bytes` apart."""

    def __init__(self, first: bytes, offsets: Sequence[int], group_bytes: int) -> None:
        self.length = len(first)
        self._first = np.frombuffer(first, np.uint8)
        marks = (_number(_PLACEHOLDER + ordinal) for ordinal in range(len(offsets)))
        self._places = np.array([first.index(mark) for mark in marks])
        self._offsets = np.array(offsets, np.int64)
        self._group_bytes = group_bytes

    def read(self, start: int, end: int) -> bytes:
        """Return `[start, end)` of all entries."""
        first, last = start // self.length, -(-end // self.length)
        entries = np.tile(self._first, (last - first, 1))
        groups = np.arange(first, last, dtype=np.int64)[:, np.newaxis]
        zigzag = (groups * self._group_bytes + self._offsets) << 1
        for byte in range(_PLACEHOLDER_BYTES):
            more = 0x80 if byte < _PLACEHOLDER_BYTES - 1 else 0
            entries[:, self._places + byte] = zigzag >> 7 * byte & 0x7F | more
        from_ = first * self.length
        return entries.reshape(-1)[start - from_ : end - from_].tobytes()


def _number(value: int) -> bytes:
    """Return how a number is written: a struct without its field's header and its stop."""
    return write_struct(Struct({1: (I64, value)}))[1:-1]


@cache
def _written(columns: int, rows: int) -> tuple[tuple[bytes, ...], Struct]:
    """Return the single page of every column, as pyarrow writes it, and the file's metadata."""
    table = _table(columns, rows)
    others = table.column_names[1:]
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression={"row": "NONE"} | dict.fromkeys(others, "SNAPPY"),
        use_dictionary=False,
        write_statistics=others,
        max_rows_per_page=rows,
    )
    data = sink.getvalue()
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    chunks = [group.column(column) for column in range(columns)]
    pages = [
        data[one.data_page_offset : one.data_page_offset + one.total_compressed_size]
        for one in chunks
    ]
    frame = len(_MAGIC) + _LENGTH_BYTES
    length = int.from_bytes(data[-frame : -len(_MAGIC)], "little")
    return tuple(pages), read_struct(data[-frame - length : -frame])[0]


def _table(columns: int, rows: int) -> pa.Table:
    numbers = np.arange(rows, dtype=np.int64)
    arrays: list[Any] = [pa.array(numbers)]
    for column in range(1, columns):
        spread = numbers * _SPREAD * column % 2**32
        kinds = (spread / 100, [f"{number:08x}" for number in spread.tolist()], spread)
        arrays.append(pa.array(kinds[column % len(kinds)]))
    names = ["row", *(f"column_{column}" for column in range(1, columns))]
    fields = [
        pa.field(name, array.type, nullable=False)
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
