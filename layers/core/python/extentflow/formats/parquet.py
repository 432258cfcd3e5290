"""Decode Parquet: row groups owned by the extent that contains their first byte.

    object    PAR1 | group 0 | group 1 | group 2 | footer | PAR1
    extents   [0 ............ )[ ........................ size)     planned, or cut anywhere else
    position                   0 ... rows of group 1 ... rows of group 2

Page checksums are verified if the writer stored them. They do not cover page headers; without them,
a damaged page that still decompresses and decodes is indistinguishable from a valid one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.errors import Conflict, CorruptObject
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, cut_at_units
from extentflow.formats.parquet_footer import (
    INT96_OUT_OF_RANGE,
    MAGIC,
    Footer,
    Footers,
    RowGroup,
    column_ranges,
    int96_passes,
    out_of_range,
    selected_leaves,
)
from extentflow.formats.parquet_prefetch import BlockPrefetcher, RowGroupFile, RowGroupRanges
from extentflow.model import Extent
from extentflow.storage import RangeSource

EXTENT_BYTES = 32 << 20
# Of Arrow's stream per column, for row groups that are larger than a window.
BUFFER_BYTES = 64 << 10
BATCH_BYTES = 4 << 20
# The first batch of a reader is small, as the width of its decoded rows is unknown; each further
# one may have 16 times as many rows.
_FIRST_ROWS = 256
_GROWTH = 16
# What Arrow raises for pages that it cannot decode.
_DECODE_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowIndexError,
    pa.ArrowKeyError,
    pa.ArrowTypeError,
    pa.ArrowCapacityError,
    OSError,
)


class UndecodableRows(Exception):  # noqa: N818 - an outcome, not a fault
    """Arrow cannot decode a row group.

    `tried` is the number of rows of the failed batch; 1 if a smaller batch would not help.
    """

    def __init__(self, message: str, tried: int) -> None:
        super().__init__(message)
        self.tried = tried


# Consecutive rows of one row group, and those of them with an INT96 value out of range.
DecodedRows: TypeAlias = tuple[pa.RecordBatch, list[int]]


class _ColumnReader:
    """Reads some leaf columns of the object through an Arrow reader of its own."""

    def __init__(
        self, file: RowGroupFile, metadata: pq.FileMetaData, leaves: Sequence[int], unit: str
    ) -> None:
        self._file = file
        self._leaves = leaves
        open_file = partial(
            pq.ParquetFile,
            metadata=metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=unit,
        )
        self._whole = open_file(pa.PythonFile(file, mode="r"))
        self._paged = open_file(pa.PythonFile(file, mode="r"), buffer_size=BUFFER_BYTES)
        self._parquet = self._whole
        self.schema: pa.Schema = self._whole.schema_arrow
        self._has_codes = any("dictionary<" in str(kind) for kind in self.schema.types)
        self._group = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def open(self, group: int, *, whole: bool) -> None:
        # `whole`: the column chunks of the row group fit into one window.
        self._parquet = self._whole if whole else self._paged
        self._file.open(group)
        self._group = group

    def close(self) -> None:
        self._batches = None
        self._file.release_blocks()

    def next(self, rows: int) -> pa.RecordBatch:
        # Also changes the next batches of an iterator that has begun.
        self._parquet.reader.set_batch_size(rows)
        if self._batches is None:
            self._batches = self._parquet.reader.iter_batches(
                rows, [self._group], column_indices=self._leaves, use_threads=False
            )
        try:
            batch = next(self._batches, None)
        except _DECODE_ERRORS as exc:
            # Arrow wraps an exception of the source; that one must not look like damage.
            self._file.check()
            raise UndecodableRows(" ".join(str(exc).split()), rows) from exc
        self._file.check()
        # The end of a row group before its last row is damage, not the end of the data.
        if not batch:
            raise UndecodableRows("its pages hold fewer rows than the footer says", rows)
        # Arrow does not check them, and some of its functions read beyond the dictionary.
        if self._has_codes and not all(map(_codes_are_valid, batch.columns)):
            raise UndecodableRows("a code lies outside its dictionary", rows)
        return batch


def _codes_are_valid(array: pa.Array) -> bool:
    """Whether the indices of dictionary arrays, at any depth, are within their dictionaries."""
    if pa.types.is_dictionary(array.type):
        ends = pc.min_max(array.indices)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        return low is None or (low >= 0 and high < len(array.dictionary))
    if pa.types.is_struct(array.type):
        return all(_codes_are_valid(array.field(i)) for i in range(array.type.num_fields))
    return not pa.types.is_nested(array.type) or _codes_are_valid(array.values)


class _RowGroupReader:
    """Reads `groups` in order, at most `batch_rows` rows at a time; must be closed."""

    def __init__(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        *,
        batch_rows: int,
        window_bytes: int,
        readers: int,
        select: Sequence[str] = (),
    ) -> None:
        metadata = footer.metadata
        wanted = selected_leaves(metadata, select)
        passes = int96_passes(metadata, wanted)
        ranges = ((group, column_ranges(metadata.row_group(group.ordinal))) for group in groups)
        self._ahead = BlockPrefetcher(
            source,
            (RowGroupRanges(group.ordinal, _needed(columns, wanted)) for group, columns in ranges),
            views=[leaves for leaves, _ in passes],
            window_bytes=window_bytes,
            readers=readers,
        )
        self._readers = [
            _ColumnReader(RowGroupFile(self._ahead, view), metadata, leaves, unit)
            for view, (leaves, unit) in enumerate(passes)
        ]
        self._window_bytes = window_bytes
        self._batch_rows = batch_rows
        row_bytes = max((group.row_bytes for group in groups), default=1)
        self._fitting_rows = max(1, min(_FIRST_ROWS, BATCH_BYTES // row_bytes))
        self.schema = _needed_schema(self._readers[0].schema, metadata, wanted)

    def close(self) -> None:
        self._ahead.close()

    def read(self, group: RowGroup, skip: int) -> Iterator[DecodedRows]:
        """Yield the rows of a row group from row `skip` on; UndecodableRows if Arrow fails."""
        whole = group.end - group.start <= self._window_bytes
        with ExitStack() as opened:
            for reader in self._readers:
                reader.open(group.ordinal, whole=whole)
                opened.callback(reader.close)
            at = 0
            while at < skip:
                # Pages have to be decoded from the start of their row group.
                try:
                    at += self._next(skip - at)[0].num_rows
                except UndecodableRows as exc:
                    # After a failure among rows delivered before, smaller batches fail, too.
                    raise UndecodableRows(str(exc), tried=1) from exc
            while at < group.rows:
                rows = self._next(min(self._batch_rows, group.rows - at))
                at += rows[0].num_rows
                yield rows

    def _next(self, rows: int) -> DecodedRows:
        batch = self._readers[0].next(min(self._fitting_rows, rows))
        fitting = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
        self._fitting_rows = max(1, min(fitting, self._fitting_rows * _GROWTH))
        found: list[int] = []
        # The INT96 columns are read a second time, as seconds, in step with the first.
        for reader in self._readers[1:]:
            seen = 0
            while seen < batch.num_rows:
                seconds = reader.next(batch.num_rows - seen)
                found += [seen + row for row in out_of_range(seconds)]
                seen += seconds.num_rows
        return batch, found


def _needed(ranges: Sequence[tuple[int, int]], wanted: Sequence[int]) -> Sequence[tuple[int, int]]:
    """Return the ranges of column chunks, empty for those that are not wanted."""
    if len(wanted) == len(ranges):
        return ranges
    keep = frozenset(wanted)
    return [each if leaf in keep else (each[0], each[0]) for leaf, each in enumerate(ranges)]


def _needed_schema(
    schema: pa.Schema, metadata: pq.FileMetaData, wanted: Sequence[int]
) -> pa.Schema:
    """Return the schema of batches of these leaf columns."""
    if len(wanted) == metadata.num_columns:
        return schema
    paths = [metadata.schema.column(leaf).path for leaf in wanted]

    def is_read(name: str) -> bool:
        return any(path == name or path.startswith(f"{name}.") for path in paths)

    return pa.schema([column for column in schema if is_read(column.name)])


# A batch that fails is read again in batches of a sixteenth, until a single row fails.
NARROWING = 16
# Shared by the extents of an object that one process decodes.
_process_footers = Footers()


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet objects; a location is the ordinal of a row in the object.

    A row group that cannot be decoded ends with a chunk without rows and with one bad record (raw
    None) for all rows from the first undecodable one on; decoding continues with the next group.

    `readers` threads prefetch while an extent is decoded; with 0, the caller's thread reads every
    byte when it is needed.
    """

    options: FormatOptions
    footers: Footers = field(default=_process_footers, repr=False, compare=False)
    readers: int = 6
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="row", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive row groups up to `target_bytes`: one request, rarely two."""
        if source.version.size == 0:
            return
        yield from cut_at_units(self.footers.get(source).groups, target_bytes, source.version.size)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the row groups whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` exceeds the rows of the extent.
        """
        if extent.start == extent.end:
            return
        footer = self.footers.get(source)
        groups = footer.owned(extent.start, extent.end)
        # Planning reads only the end of the object; its start is checked once, by one extent.
        if groups and extent.start == 0 and (head := source.read(0, len(MAGIC))) != MAGIC:
            raise CorruptObject(
                f"{source.version.uri}[0-{len(MAGIC)}) is {head!r}, not PAR1, although the object"
                " ends as Parquet; upload it again"
            )
        first_row, end_row = (groups[0].first_row, groups[-1].end_row) if groups else (0, 0)
        if not 0 <= position <= end_row - first_row:
            raise Conflict(
                f"{extent.uri} has {end_row - first_row} rows, decoding was to resume at"
                f" {position}; was it planned for another version?"
            )
        row = first_row + position
        todo = [group for group in groups if group.end_row > row]
        if todo:
            rows = {"row": row, "first_row": first_row, "batch_rows": self.options.batch_rows}
            yield from self._chunks(source, footer, todo, **rows)

    def _chunks(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        *,
        row: int,
        first_row: int,
        batch_rows: int,
    ) -> Iterator[Chunk]:
        # Both rows are ordinals in the object: where to start, and the extent's first row.
        sizes = {"batch_rows": batch_rows, "window_bytes": self.options.window_bytes}
        reader = _RowGroupReader(
            source, footer, groups, readers=self.readers, select=self.options.select, **sizes
        )
        with closing(reader):
            for group in groups:
                row = max(row, group.first_row)
                try:
                    for batch, dropped in reader.read(group, row - group.first_row):
                        yield _chunk(batch, dropped, row, first_row)
                        row += batch.num_rows
                    continue
                except UndecodableRows as exc:
                    failure = exc
                if failure.tried > 1:
                    rows = {"row": row, "first_row": first_row}
                    rows["batch_rows"] = max(1, failure.tried // NARROWING)
                    yield from self._chunks(source, footer, [group], **rows)
                    continue
                reason = (
                    f"{source.version.uri}[{group.start}-{group.end}): rows"
                    f" {row}-{group.end_row - 1} of row group {group.ordinal} are lost: {failure}"
                )
                # One bad record for all lost rows, without bytes: columns have none of their own.
                nothing = pa.RecordBatch.from_pylist([], schema=reader.schema)
                lost = (BadRecord(None, row, reason),)
                yield Chunk(nothing, group.end_row - first_row, range(0), lost)


def _chunk(batch: pa.RecordBatch, dropped: list[int], row: int, first_row: int) -> Chunk:
    position = row + batch.num_rows - first_row
    if not dropped:
        return Chunk(batch, position, range(row, row + batch.num_rows))
    bad = tuple(BadRecord(None, row + at, INT96_OUT_OF_RANGE) for at in dropped)
    bounds = [-1, *dropped, batch.num_rows]
    kept = [(left + 1, right) for left, right in pairwise(bounds) if left + 1 < right]
    locations = [row + at for start, end in kept for at in range(start, end)]
    # From slices: Arrow's filter does not support every type.
    pieces = [batch.slice(start, end - start) for start, end in kept]
    return Chunk(pa.concat_batches([batch.slice(0, 0), *pieces]), position, locations, bad)


PARQUET = FormatSpec(
    open=lambda options, _: Parquet(options),
    extensions=("parquet", "parq"),
    converters=("json", "string", "bytes"),
    compressible=False,
)
