"""Read row groups through Arrow, whole or by pages, with the errors of pages that it cannot decode.

Arrow opens the object as a file of one row group at a time, whose bytes `prefetch` provides.

Tests: unit/formats/parquet/test_parquet_format.py, unit/formats/parquet/test_parquet_damage.py
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.formats import FormatOptions
from extentflow.formats.parquet.arrow_types import (
    BadRows,
    ExactColumns,
    bad_int96_rows,
    complete_leaves,
    int96_passes,
)
from extentflow.formats.parquet.footer import Footer, RowGroup, column_ranges, selected_leaves
from extentflow.formats.parquet.page_plans import PagePlan, PagePruning
from extentflow.formats.parquet.pages import page_limit_bytes
from extentflow.formats.parquet.prefetch import (
    BlockPrefetcher,
    PageContradiction,
    RowGroupFile,
    RowGroupRanges,
)
from extentflow.formats.parquet.row_runs import FIRST_ROWS, GROWTH, PageCursor, rows_of_runs
from extentflow.formats.parquet.statistics import column_ranges_of
from extentflow.storage import RangeSource
from extentflow.wording import format_bytes

# Of Arrow's stream per column, for row groups that are larger than a window.
BUFFER_BYTES = 64 << 10
# Sizes of pages are 32-bit numbers; who asks for more than twice that believes damaged lengths.
MOST_ALLOCATED_BYTES = 4 << 30
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

    `tried` is the number of rows of the failed batch. It is 1 if a smaller batch would not help, or
    could deliver rows of a damaged page.
    """

    def __init__(self, message: str, tried: int) -> None:
        super().__init__(message)
        self.tried = tried


class MisleadingIndex(Exception):  # noqa: N818 - an outcome, not a fault
    """A page contradicts the page index, by which no row of the row group was skipped before."""


# The exact ones of consecutive rows of one row group, and the others by their ordinals.
DecodedRows: TypeAlias = tuple[pa.RecordBatch, BadRows]
# What Arrow's messages hold when it refuses a page before it decodes any of its rows: those before
# the page are valid. Any other error comes after rows of the page, which may be wrong.
PAGE_REFUSED = (
    "CRC checksum",
    "Couldn't deserialize thrift",
    "Deserializing page header failed",
    "Invalid page header",
    "Data page too small for levels",
    "levels do not match num_values",
    "decompress",
    "Corrupt snappy",
)


class ColumnReader:
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
        """Move to a row group; `whole`: its column chunks fit into one window."""
        self._parquet = self._whole if whole else self._paged
        self._file.open(group)
        self._group = group

    def open_pages(
        self, plan: PagePlan, *, first_rows: int, batch_rows: int, batch_bytes: int
    ) -> list[PageCursor]:
        """Return a cursor for each column, over the pages that are read of it."""
        group, leaves = plan.group.ordinal, plan.pages
        self._parquet, self._group = self._paged, group
        starts = {leaf: pages.start for leaf, pages in leaves.items()}
        self._file.open_parts(group, len(plan.parts()), starts)

        def cursor(leaf: int) -> PageCursor:
            # Each column has an iterator of its own, as its pages begin with other rows.
            batches: list[Iterator[pa.RecordBatch]] = []

            def take(rows: int) -> pa.RecordBatch:
                if not batches:
                    batches.append(self._iterate([leaf], rows))
                return self._next_of(batches[0], rows)

            return PageCursor(
                take,
                plan.kept_rows(leaf),
                first_rows=first_rows,
                batch_rows=batch_rows,
                batch_bytes=batch_bytes,
            )

        return [cursor(leaf) for leaf in self._leaves]

    def close(self) -> None:
        """Release the row group."""
        self._batches = None
        self._file.release_blocks()

    def next(self, rows: int) -> pa.RecordBatch:
        """Return the next rows of the row group, at most so many. Raises UndecodableRows."""
        if self._batches is None:
            self._batches = self._iterate(self._leaves, rows)
        return self._next_of(self._batches, rows)

    def _iterate(self, leaves: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        # The size of the first batch; `_next_of` changes that of the others.
        found: Iterator[pa.RecordBatch] = self._parquet.reader.iter_batches(
            rows, [self._group], column_indices=leaves, use_threads=False
        )
        return found

    def _next_of(self, batches: Iterator[pa.RecordBatch], rows: int) -> pa.RecordBatch:
        # Also changes the next batches of an iterator that has begun.
        self._parquet.reader.set_batch_size(rows)
        try:
            batch = next(batches, None)
            if batch:
                # Lengths and offsets of nested columns contradict each other in damaged pages.
                batch.validate()
        except pa.ArrowMemoryError as exc:
            self._file.check()
            asked = re.search(r"of size (\d+)", str(exc))
            if asked is None or int(asked[1]) <= MOST_ALLOCATED_BYTES:
                raise
            needed = format_bytes(int(asked[1]))
            raise UndecodableRows(f"its lengths need {needed} of memory", 1) from exc
        except _DECODE_ERRORS as exc:
            # Arrow wraps an exception of the source; that one must not look like damage.
            self._file.check()
            message = " ".join(str(exc).split())
            refused = any(part in message for part in PAGE_REFUSED)
            if refused:
                message = self._file.refused or message
            narrower = refused or isinstance(exc, pa.ArrowCapacityError)
            raise UndecodableRows(message, rows if narrower else 1) from exc
        self._file.check()
        # The end of a row group before its last row is damage, not the end of the data.
        if not batch:
            raise UndecodableRows("its pages hold fewer rows than the footer says", 1)
        # Arrow does not check them, and some of its functions read beyond the dictionary.
        if self._has_codes and not all(map(_codes_are_valid, batch.columns)):
            raise UndecodableRows("a code lies outside its dictionary", 1)
        return batch

    def next_rows(self, rows: int) -> pa.RecordBatch:
        """Return exactly so many rows."""
        batches: list[pa.RecordBatch] = []
        while rows:
            batches.append(self.next(rows))
            rows -= batches[-1].num_rows
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _codes_are_valid(array: pa.Array) -> bool:
    """Whether the indices of dictionary arrays, at any depth, are within their dictionaries."""
    if pa.types.is_dictionary(array.type):
        ends = pc.min_max(array.indices)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        return low is None or (low >= 0 and high < len(array.dictionary))
    if pa.types.is_struct(array.type):
        return all(_codes_are_valid(array.field(i)) for i in range(array.type.num_fields))
    return not pa.types.is_nested(array.type) or _codes_are_valid(array.values)


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How row groups are read: `readers` and `gap_bytes` as in `Parquet`.

    `by_pages`: pages that a filter excludes may be skipped by the page index.
    """

    options: FormatOptions
    readers: int
    gap_bytes: int
    int96_unit: str | None
    batch_rows: int
    by_pages: bool


class RowGroupReader:
    """Reads `groups` in order, at most `batch_rows` rows at a time; must be closed."""

    def __init__(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        settings: ReadSettings,
    ) -> None:
        metadata, options = footer.metadata, settings.options
        wanted = selected_leaves(metadata, options.select)
        if len(wanted) < metadata.num_columns:
            wanted = complete_leaves(metadata, wanted)
        passes = int96_passes(metadata, wanted, settings.int96_unit)
        limit_bytes = page_limit_bytes(options.max_record_bytes)
        self._ahead = BlockPrefetcher(
            source,
            # Evaluated when the first row group is opened.
            self._ranges(groups, metadata, wanted),
            views=[leaves for leaves, _ in passes],
            window_bytes=options.window_bytes,
            readers=settings.readers,
            page_limit_bytes=limit_bytes if footer.is_plain else None,
            gap_bytes=settings.gap_bytes,
        )
        self._readers = [
            ColumnReader(RowGroupFile(self._ahead, view), metadata, leaves, unit)
            for view, (leaves, unit) in enumerate(passes)
        ]
        self._unit = passes[0][1]
        self._window_bytes = options.window_bytes
        self._limit_bytes = options.max_record_bytes
        self._batch_rows = settings.batch_rows
        self._batch_bytes = options.batch_bytes
        row_bytes = max((group.row_bytes for group in groups), default=1)
        self._fitting_rows = max(1, min(FIRST_ROWS, self._batch_bytes // row_bytes))
        self._exact = ExactColumns.of(self._readers[0].schema, metadata)
        self.schema = _needed_schema(self._exact.schema, metadata, wanted)
        self._excluded: frozenset[int] = frozenset()
        self._pruning: PagePruning | None = None
        self._plans: dict[int, PagePlan | None] = {}
        self._exclude(source, footer, groups, wanted, settings)

    def _exclude(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        wanted: Sequence[int],
        settings: ReadSettings,
    ) -> None:
        """Find the row groups that no row passes, and how pages of the others are found."""
        metadata, excludes = footer.metadata, settings.options.excludes
        if excludes is None:
            return
        ranges_of = column_ranges_of(self.schema, metadata, footer.unreadable)
        ordinals = (group.ordinal for group in groups)
        self._excluded = frozenset(each for each in ordinals if excludes(ranges_of(each)))
        stored = _needed_schema(self._readers[0].schema, metadata, wanted)
        if settings.by_pages and _has_own_pages(stored, len(wanted), len(self._readers)):
            columns = (self.schema, wanted)
            self._pruning = PagePruning(source, footer, columns, excludes, settings.gap_bytes)

    def close(self) -> None:
        """Drop the bytes that were fetched."""
        self._ahead.close()

    def _ranges(
        self, groups: Sequence[RowGroup], metadata: pq.FileMetaData, wanted: Sequence[int]
    ) -> Iterator[RowGroupRanges]:
        """Yield what is fetched of the row groups that are read."""
        for group in groups:
            if group.ordinal in self._excluded:
                continue
            if (plan := self.plan(group)) is not None:
                yield from plan.parts()
                continue
            columns = column_ranges(metadata.row_group(group.ordinal))
            yield RowGroupRanges(group.ordinal, _needed(columns, wanted))

    def plan(self, group: RowGroup) -> PagePlan | None:
        """Return which pages of a row group are read; None: all."""
        if self._pruning is None:
            return None
        if group.ordinal not in self._plans:
            self._plans[group.ordinal] = self._pruning.plan(group)
        return self._plans[group.ordinal]

    def read(self, group: RowGroup, skip: int) -> Iterator[DecodedRows | int]:
        """Yield the rows of a row group from row `skip` on, as a number where they are excluded.

        Raises UndecodableRows if Arrow fails; if a page is not the one in the index,
        MisleadingIndex before rows are skipped by it, and PageContradiction after that.
        """
        if group.ordinal in self._excluded:
            yield group.rows - skip
        elif (plan := self.plan(group)) is not None:
            yield from self._read_pages(group, plan, skip)
        else:
            yield from self._read_whole(group, skip)
        self._plans.pop(group.ordinal, None)

    def _read_pages(
        self, group: RowGroup, plan: PagePlan, skip: int
    ) -> Iterator[DecodedRows | int]:
        """Read the pages of a plan, those before row `skip`, too.

        Batches depend on the row group alone, wherever a read resumes. So each read of the row
        group finds a page that contradicts the index at the same row. None continues with an index
        that another one refused.
        """
        at, has_skipped = 0, False
        self._fitting_rows = max(1, min(FIRST_ROWS, self._batch_bytes // group.row_bytes))
        with ExitStack() as opened:
            cursors = []
            if plan.runs:
                cursors = self._readers[0].open_pages(
                    plan,
                    first_rows=self._fitting_rows,
                    batch_rows=self._batch_rows,
                    batch_bytes=self._batch_bytes,
                )
                opened.callback(self._readers[0].close)

            def most_rows() -> int:
                return min(self._batch_rows, self._fitting_rows)

            try:
                for row, batch in rows_of_runs(cursors, plan.runs, most_rows):
                    has_skipped = has_skipped or at < row
                    if max(at, skip) < row:
                        yield row - max(at, skip)
                    at = row + batch.num_rows
                    self._fit(batch)
                    if skip < at:
                        if row < skip:
                            batch = batch.slice(skip - row)  # noqa: PLW2901
                        yield self._exact(batch, {}, self._limit_bytes)
            except PageContradiction as exc:
                if has_skipped:
                    raise
                # From the first page on, the bytes were those that are read without an index.
                raise MisleadingIndex(str(exc.__cause__)) from exc
            if at < group.rows:
                yield group.rows - max(at, skip)

    def _read_whole(self, group: RowGroup, skip: int) -> Iterator[DecodedRows]:
        whole = group.end - group.start <= self._window_bytes
        with ExitStack() as opened:
            for reader in self._readers:
                reader.open(group.ordinal, whole=whole)
                opened.callback(reader.close)
            at = 0
            while at < skip:
                # Pages have to be decoded from the start of their row group.
                try:
                    at += row_count(self._next(skip - at))
                except UndecodableRows as exc:
                    # After a failure among rows delivered before, smaller batches fail, too.
                    raise UndecodableRows(str(exc), tried=1) from exc
            while at < group.rows:
                rows = self._next(min(self._batch_rows, group.rows - at))
                at += row_count(rows)
                yield rows

    def _next(self, rows: int) -> DecodedRows:
        batch = self._readers[0].next(min(self._fitting_rows, rows))
        bad: BadRows = {}
        # The INT96 columns are read again, in step with the first reader.
        again = [reader.next_rows(batch.num_rows) for reader in self._readers[1:]]
        if again:
            bad = bad_int96_rows(self._unit, again[0], again[1] if len(again) > 1 else None)
        self._fit(batch)
        return self._exact(batch, bad, self._limit_bytes)

    def _fit(self, batch: pa.RecordBatch) -> None:
        fitting = self._batch_bytes * batch.num_rows // max(1, batch.nbytes)
        self._fitting_rows = max(1, min(fitting, self._fitting_rows * GROWTH))


def row_count(rows: DecodedRows) -> int:
    """Return how many rows were decoded, the bad ones included."""
    batch, bad = rows
    return int(batch.num_rows) + len(bad)


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


def _has_own_pages(stored: pa.Schema, leaves: int, passes: int) -> bool:
    """Whether each column is one leaf column that is read once, so that its pages are its rows."""
    kinds = [
        column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
        for column in stored
    ]
    return passes == 1 and len(kinds) == leaves and not any(map(pa.types.is_nested, kinds))
