"""Decode Parquet: row groups owned by the extent that contains their first byte.

    object    PAR1 | group 0 | group 1 | group 2 | footer | PAR1
    extents   [0 ............ )[ ........................ size)     planned, or cut anywhere else
    position                   0 ... rows of group 1 ... rows of group 2

Page checksums are verified if the writer stored them. They do not cover page headers; without them,
a damaged page that still decompresses and decodes is indistinguishable from a valid one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.config.specs import NO_OPTIONS, NoOptions
from extentflow.errors import Conflict, CorruptObject
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec
from extentflow.formats.parquet_footer import (
    INT96_OUT_OF_RANGE,
    MAGIC,
    Footer,
    Footers,
    RowGroup,
    int96_unit,
    out_of_range,
    unchecked_int96_leaves,
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
        options = {
            "metadata": metadata,
            "pre_buffer": False,
            "page_checksum_verification": True,
            "coerce_int96_timestamp_unit": unit,
        }
        self._whole = pq.ParquetFile(pa.PythonFile(file, mode="r"), **options)
        self._paged = pq.ParquetFile(
            pa.PythonFile(file, mode="r"), buffer_size=BUFFER_BYTES, **options
        )
        self._parquet = self._whole
        self.schema: pa.Schema = self._whole.schema_arrow
        self._group = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def open(self, group: int, *, whole: bool) -> None:
        """Move to a row group; `whole` states that its column chunks fit into one window."""
        self._parquet = self._whole if whole else self._paged
        self._file.open(group)
        self._group = group

    def close(self) -> None:
        """Release the bytes of the row group."""
        self._batches = None
        self._file.release_blocks()

    def next(self, rows: int) -> pa.RecordBatch:
        """Return the next rows, at most `rows`.

        Raises:
            UndecodableRows: Arrow cannot decode the bytes.
        """
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
        return batch


class RowGroupReader:
    """Reads `groups` in order, at most `batch_rows` rows at a time; a context manager."""

    def __init__(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        *,
        batch_rows: int,
        window_bytes: int,
        readers: int,
    ) -> None:
        metadata = footer.metadata
        every = range(metadata.num_columns)
        unchecked = unchecked_int96_leaves(metadata)
        self._ahead = BlockPrefetcher(
            source,
            (RowGroupRanges(group.ordinal, footer.chunks(group)) for group in groups),
            views=(every, unchecked) if unchecked else (every,),
            window_bytes=window_bytes,
            readers=readers,
        )
        unit = int96_unit(metadata)
        self._main = _ColumnReader(RowGroupFile(self._ahead), metadata, every, unit)
        self._readers = [self._main]
        if unchecked:
            file = RowGroupFile(self._ahead, view=1)
            self._readers.append(_ColumnReader(file, metadata, unchecked, "s"))
        self._window_bytes = window_bytes
        self._batch_rows = batch_rows
        row_bytes = max((group.row_bytes for group in groups), default=1)
        self._fitting_rows = max(1, min(_FIRST_ROWS, BATCH_BYTES // row_bytes))
        self.schema = self._main.schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.close()

    def read(self, group: RowGroup, skip: int) -> Iterator[DecodedRows]:
        """Yield the rows of a row group, starting with row `skip`.

        Raises:
            UndecodableRows: Arrow cannot decode the bytes.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """
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
        batch = self._main.next(min(self._fitting_rows, rows))
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
        """Yield runs of consecutive row groups up to `target_bytes`: one request, rarely two.

        Raises as `Footers.get`.
        """
        if source.version.size == 0:
            return
        # Cut where a row group begins: elsewhere, an extent could be without row groups.
        start = 0
        for _, group in pairwise(self.footers.get(source).groups):
            if group.end - start > target_bytes:
                yield start, group.start
                start = group.start
        yield start, source.version.size

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the row groups whose first byte lies in the extent.

        Raises:
            UnsupportedFormat, UnsupportedType, CorruptObject: as `Footers.get`.
            Conflict: `position` exceeds the number of rows in the extent.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """
        if extent.start == extent.end:
            return
        footer = self.footers.get(source)
        groups = footer.owned(extent.start, extent.end)
        # Planning reads only the end of the object; its start is checked once, by one extent.
        if groups and extent.start == 0:
            _require_head(source)
        first_row, end_row = (groups[0].first_row, groups[-1].end_row) if groups else (0, 0)
        if not 0 <= position <= end_row - first_row:
            raise Conflict(
                f"{extent.uri} has {end_row - first_row} rows, decoding was to resume at"
                f" {position}; was it planned for another version?"
            )
        row = first_row + position
        todo = [group for group in groups if group.end_row > row]
        if not todo:
            return
        decoder = _ExtentDecoder(self, source, footer, first_row)
        with decoder.open_groups(todo, self.options.batch_rows) as reader:
            for group in todo:
                yield from decoder.chunks(reader, group, max(row, group.first_row))


def _require_head(source: RangeSource) -> None:
    head = source.read(0, len(MAGIC))
    if head != MAGIC:
        raise CorruptObject(
            f"{source.version.uri}[0-{len(MAGIC)}) is {head!r}, not PAR1, although the object ends"
            " as Parquet; upload it again"
        )


@dataclass(frozen=True, slots=True)
class _ExtentDecoder:
    """One call of `decode`; `first_row` is the ordinal of the extent's first row in the object."""

    format: Parquet
    source: RangeSource
    footer: Footer
    first_row: int

    def open_groups(self, groups: list[RowGroup], batch_rows: int) -> RowGroupReader:
        return RowGroupReader(
            self.source,
            self.footer,
            groups,
            batch_rows=batch_rows,
            window_bytes=self.format.options.window_bytes,
            readers=self.format.readers,
        )

    def chunks(self, reader: RowGroupReader, group: RowGroup, row: int) -> Iterator[Chunk]:
        try:
            for batch, dropped in reader.read(group, row - group.first_row):
                yield self._chunk(row, batch, dropped)
                row += batch.num_rows
        except UndecodableRows as exc:
            failure = exc
        else:
            return
        if failure.tried > 1:
            with self.open_groups([group], max(1, failure.tried // NARROWING)) as narrower:
                yield from self.chunks(narrower, group, row)
            return
        reason = (
            f"{self.source.version.uri}[{group.start}-{group.end}): rows {row}-{group.end_row - 1}"
            f" of row group {group.ordinal} are lost: {failure}"
        )
        # One bad record for all lost rows, without bytes: a row of columns has none of its own.
        nothing = pa.RecordBatch.from_pylist([], schema=reader.schema)
        position = group.end_row - self.first_row
        yield Chunk(nothing, position, range(0), (BadRecord(None, row, reason),))

    def _chunk(self, row: int, batch: pa.RecordBatch, dropped: list[int]) -> Chunk:
        position = row + batch.num_rows - self.first_row
        if not dropped:
            return Chunk(batch, position, range(row, row + batch.num_rows))
        bad = tuple(BadRecord(None, row + at, INT96_OUT_OF_RANGE) for at in dropped)
        bounds = [-1, *dropped, batch.num_rows]
        kept = [(left + 1, right) for left, right in pairwise(bounds) if left + 1 < right]
        locations = [row + at for start, end in kept for at in range(start, end)]
        # From slices: Arrow's filter does not support every type.
        pieces = [batch.slice(start, end - start) for start, end in kept]
        return Chunk(pa.concat_batches([batch.slice(0, 0), *pieces]), position, locations, bad)


def open_parquet(options: FormatOptions, _own: NoOptions = NO_OPTIONS) -> Parquet:
    """Return the format `parquet`."""
    return Parquet(options)


PARQUET = FormatSpec(
    open=open_parquet,
    extensions=("parquet",),
    converters=("json", "string", "bytes"),
    compressible=False,
)
