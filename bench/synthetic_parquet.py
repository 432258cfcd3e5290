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

from bench.thrift import FIXED_BYTES, Fixed, Kind, Struct, Writer, decode
from bench.thrift import Sequence as List

GROUP_BYTES = 128 << 20
COLUMNS = 16
PAGE_ROWS = 4096

_MAGIC = b"PAR1"
_LENGTH_BYTES = 4
_MOST_BYTES = 1 << 47  # what an offset in the footer has room for
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
    MB; extentflow reads footers of up to 256 MiB, which is about 20 TB in such row groups.

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
        head, tail = Writer(), Writer()
        rows = {_FILE_ROWS: (Kind.I64, self.rows)}
        head.fields({n: of for n, of in written.items() if n < _FILE_ROWS} | rows)
        head.header(_FILE_GROUPS, Kind.LIST, last=_FILE_ROWS)
        head.sequence_header(Kind.STRUCT, self.groups)
        tail.fields({n: of for n, of in written.items() if n > _FILE_GROUPS}, last=_FILE_GROUPS)
        tail.data.append(0)
        (group,) = written[_FILE_GROUPS][1].elements
        entries = _Entries(self._group(group), self.group_bytes)
        size = self.groups * entries.length
        return _constant(head.data), _Part(size, entries.read), _constant(tail.data)

    def _group(self, written: Struct) -> Writer:
        """Return the first row group's entry: the written one, for `pages` pages."""
        chunks = written[_GROUP_CHUNKS][1].elements
        moved = [
            chunk | {_CHUNK_COLUMN: (Kind.STRUCT, self._column(chunk[_CHUNK_COLUMN][1], start))}
            for chunk, start in zip(chunks, self._starts, strict=True)
        ]
        entry = Writer()
        group = self._repeated(written, _GROUP_SIZE, _GROUP_ROWS, _GROUP_PACKED)
        group[_GROUP_CHUNKS] = (Kind.LIST, List(Kind.STRUCT, moved))
        group[_GROUP_AT] = (Kind.I64, Fixed(len(_MAGIC)))
        group.pop(_GROUP_ORDINAL, None)  # 16 bits, and the same in every entry
        entry.struct(group)
        return entry

    def _column(self, written: Struct, start: int) -> Struct:
        column = self._repeated(written, _COLUMN_ROWS, _COLUMN_SIZE, _COLUMN_PACKED)
        column[_COLUMN_AT] = (Kind.I64, Fixed(len(_MAGIC) + start))
        encodings = [
            self._repeated(of, _ENCODING_PAGES) for of in written[_COLUMN_ENCODINGS][1].elements
        ]
        column[_COLUMN_ENCODINGS] = (Kind.LIST, List(Kind.STRUCT, encodings))
        column.pop(_COLUMN_HISTOGRAMS, None)
        return column

    def _repeated(self, written: Struct, *counts: int) -> Struct:
        """Return a copy of a struct with `counts` for all pages."""
        changed: Struct = {n: (written[n][0], written[n][1] * self._pages) for n in counts}
        return written | changed


@dataclass(frozen=True, slots=True)
class _Part:
    """Contiguous bytes of an object; `read` takes a range of them."""

    size: int
    read: Callable[[int, int], bytes]


def _constant(data: bytes | bytearray) -> _Part:
    held = bytes(data)
    return _Part(len(held), lambda start, end: held[start:end])


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

    def __init__(self, first: Writer, group_bytes: int) -> None:
        self.length = len(first.data)
        self._first = np.frombuffer(bytes(first.data), np.uint8)
        self._places = np.array([place for place, _ in first.fixed])
        self._offsets = np.array([offset for _, offset in first.fixed], np.int64)
        self._group_bytes = group_bytes

    def read(self, start: int, end: int) -> bytes:
        """Return `[start, end)` of all entries."""
        first, last = start // self.length, -(-end // self.length)
        entries = np.tile(self._first, (last - first, 1))
        groups = np.arange(first, last, dtype=np.int64)[:, np.newaxis]
        zigzag = (groups * self._group_bytes + self._offsets) << 1
        for byte in range(FIXED_BYTES):
            more = 0x80 if byte < FIXED_BYTES - 1 else 0
            entries[:, self._places + byte] = zigzag >> 7 * byte & 0x7F | more
        from_ = first * self.length
        return entries.reshape(-1)[start - from_ : end - from_].tobytes()


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
    return tuple(pages), decode(data[-frame - length : -frame])


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
