"""The `parquet` format: row groups owned by the extent that holds their first byte.

Owns: cuts between row groups, positions, what becomes of row groups that Arrow cannot decode.
Refuses to know: footers (parquet_footer), bytes (parquet_ahead), Arrow's reader (parquet_rows).

    object    PAR1 | group 0 | group 1 | group 2 | footer | PAR1
    extents   [0 ............ )[ ........................ size)     planned, or cut anywhere else
    position                   0 ... rows of group 1 ... rows of group 2

Checksums of pages are verified where the writer left them. They do not cover page headers, and
without them a damaged page that still decompresses and decodes cannot be told from a sound one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import pyarrow as pa

from extentflow.errors import Conflict, CorruptObject
from extentflow.formats import BadRecord, Chunk, FormatOptions, register
from extentflow.formats.parquet_footer import MAGIC, Footer, Footers, RowGroup
from extentflow.formats.parquet_rows import GroupReader, Rows, Undecodable
from extentflow.formats.parquet_types import INT96_MISFIT
from extentflow.model import Extent
from extentflow.storage import RangeSource

__all__ = ["Parquet"]

NARROWING = 16
_process_footers = Footers()


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet objects; `place` is the row's ordinal in the object.

    A row group that cannot be decoded ends in a chunk without rows and with one bad record (raw
    None) for all rows from the first undecodable one on; decoding goes on with the next group.

    `readers` threads fetch ahead while an extent is decoded; with 0 every byte is fetched when it
    is needed, in the caller's thread.
    """

    options: FormatOptions
    footers: Footers = field(default=_process_footers, repr=False, compare=False)
    readers: int = 6
    splittable: bool = field(default=True, init=False)
    place: Literal["offset", "row"] = field(default="row", init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive row groups up to `target_bytes`: one request, rarely two.

        Raises as `Footers.get`.
        """
        if source.version.size == 0:
            return
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
            Conflict: `position` lies behind the extent's last row.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """
        if extent.start == extent.end:
            return
        footer = self.footers.get(source)
        groups = footer.owned(extent.start, extent.end)
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
        if todo:
            yield from _Decoding(self, source, footer, first_row).chunks(todo, row)


def _require_head(source: RangeSource) -> None:
    head = source.read(0, len(MAGIC))
    if head != MAGIC:
        raise CorruptObject(
            f"{source.version.uri}[0-{len(MAGIC)}) is {head!r}, not PAR1, although the object ends"
            " as Parquet; upload it again"
        )


@dataclass(frozen=True, slots=True)
class _Decoding:
    """One call of `decode`; `first_row` is the extent's, counted in the object."""

    format: Parquet
    source: RangeSource
    footer: Footer
    first_row: int

    def chunks(self, groups: list[RowGroup], row: int) -> Iterator[Chunk]:
        """Yield the rows of `groups` from `row` on, counted in the object."""
        with self._reader(groups, self.format.options.batch_rows) as reader:
            for group in groups:
                yield from self._group(reader, group, max(row, group.first_row))

    def _reader(self, groups: list[RowGroup], batch_rows: int) -> GroupReader:
        return GroupReader(
            self.source,
            self.footer,
            groups,
            batch_rows=batch_rows,
            window_bytes=self.format.options.window_bytes,
            readers=self.format.readers,
        )

    def _group(self, reader: GroupReader, group: RowGroup, row: int) -> Iterator[Chunk]:
        """Yield a row group's rows from `row` on, to the last one that can be decoded.

        A batch that fails is read again in ever smaller ones, down to single rows.
        """
        try:
            for rows in reader.read(group, row - group.first_row):
                yield self._chunk(row, rows)
                row += rows.batch.num_rows
        except Undecodable as exc:
            failure = exc
        else:
            return
        if failure.tried == 1:
            yield self._lost(group, row, failure, reader.schema)
            return
        with self._reader([group], max(1, failure.tried // NARROWING)) as narrower:
            yield from self._group(narrower, group, row)

    def _chunk(self, row: int, rows: Rows) -> Chunk:
        batch = rows.batch
        position = row + batch.num_rows - self.first_row
        if not rows.misfits:
            return Chunk(batch, position, range(row, row + batch.num_rows))
        bad = tuple(BadRecord(None, row + misfit, INT96_MISFIT) for misfit in rows.misfits)
        kept = _between(rows.misfits, batch.num_rows)
        places = [row + at for start, end in kept for at in range(start, end)]
        # From slices: Arrow's filter does not know every type.
        pieces = [batch.slice(start, end - start) for start, end in kept]
        return Chunk(pa.concat_batches([batch.slice(0, 0), *pieces]), position, places, bad)

    def _lost(self, group: RowGroup, row: int, why: Undecodable, schema: pa.Schema) -> Chunk:
        reason = (
            f"{self.source.version.uri}[{group.start}-{group.end}): rows {row}-{group.end_row - 1}"
            f" of row group {group.ordinal} are lost: {why}"
        )
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        bad = (BadRecord(None, row, reason),)
        return Chunk(nothing, group.end_row - self.first_row, range(0), bad)


def _between(rows: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return the ranges of `[0, count)` that lie between `rows`."""
    bounds = [-1, *rows, count]
    return [(left + 1, right) for left, right in pairwise(bounds) if left + 1 < right]


register("parquet", Parquet)
