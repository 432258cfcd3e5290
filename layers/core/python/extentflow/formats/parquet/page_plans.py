"""Find the pages of a row group that hold rows which may pass a filter, by its page index.

    column index   nulls, least and greatest value of each page   -> the rows that may pass
    offset index   place, size and first row of each page         -> the pages that hold them

    rows           0 ............................................. group.rows
    column a       |   page 0   |   page 1   |   page 2   |        excludes page 0 and page 2
    runs                        [ may pass  )                      of all columns together
    column b       | page 0  | page 1  | page 2  | page 3  |       pages 1 and 2 are read

An index that contradicts itself or the footer is not used: its row group is read as a whole. Known
writers make such ones. A page that contradicts it while it is read shows that rows before it may
have been skipped wrongly. An index that is wrong within these limits loses rows, as statistics in
the footer do. If the first rows of pages are wrong, and only skipped pages would show it, values of
different rows are combined. The reason is that a page states how many values it has, but not at
which row it begins. Headers of skipped pages are not read, as each would take a request.

Tests: unit/formats/parquet/test_page_index.py
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from extentflow.config.specs import ColumnRange, Ranges
from extentflow.formats.parquet.footer import MAGIC, Footer, RowGroup, column_ranges
from extentflow.formats.parquet.page_index import (
    ContradictionError,
    ManyPagesError,
    PageRanges,
    Pages,
    Run,
    read_pages,
    read_ranges,
    require_few,
)
from extentflow.formats.parquet.pages import IndexedPage
from extentflow.formats.parquet.prefetch import RowGroupRanges
from extentflow.formats.parquet.statistics import (
    ChunkIndexes,
    Place,
    column_ranges_of,
    comparable_leaves,
)
from extentflow.storage import RangeSource

# Of all columns of a row group: about 600,000 pages.
LARGEST_INDEX_BYTES = 8 << 20
# Of runs by columns, so that looking for pages takes no longer than reading them.
MOST_LOOKUPS = 1 << 20
# Reading by pages costs more per byte: it must save at least this part of a row group's bytes.
LEAST_SAVED_SHARE = 8
# Planning takes as long for a page as reading some KiB: on average, pages of the columns that are
# read must have this part of `gap_bytes` (4 KiB of 256), and the indexes this part of the bytes.
PLANNED_SHARE = 64


def _is_small(places: Mapping[int, ChunkIndexes], compared: Iterable[int], most_bytes: int) -> bool:
    lengths = [each.pages[1] for each in places.values()]
    lengths += [places[leaf].bounds[1] for leaf in compared]
    return sum(max(0, length) for length in lengths) <= min(most_bytes, LARGEST_INDEX_BYTES)


@dataclass(frozen=True, slots=True)
class PagePlan:
    """The rows of a row group that may pass, in runs, and the pages by leaf column."""

    group: RowGroup
    leaves: int
    runs: tuple[Run, ...]
    pages: Mapping[int, Pages]

    def kept_rows(self, leaf: int) -> list[Run]:
        """Return the rows that are read of a column: those of whole pages, in runs."""
        kept: list[Run] = []
        for first, behind in self._kept_pages(leaf):
            if first < behind:
                start, end = self.pages[leaf].rows[first], self.pages[leaf].rows[behind]
                if kept and kept[-1][1] == start:
                    start = kept.pop()[0]
                kept.append((start, end))
        return kept

    def parts(self) -> list[RowGroupRanges]:
        """Return the bytes to fetch, in the order of need: dictionaries, then one run each."""
        found: list[dict[int, tuple[tuple[int, int], list[IndexedPage]]]] = [
            {} for _ in range(len(self.runs) + 1)
        ]
        for leaf, pages in self.pages.items():
            dictionary = IndexedPage(pages.offsets[0] - pages.start, None)
            is_due = dictionary.size > 0
            for part, (first, behind) in enumerate(self._kept_pages(leaf), start=1):
                if first == behind:
                    continue
                start, indexed = pages.offsets[first], list(pages.indexed(first, behind))
                if is_due and first:
                    found[0][leaf] = ((pages.start, pages.offsets[0]), [dictionary])
                elif is_due:
                    start, indexed = pages.start, [dictionary, *indexed]
                is_due = False
                found[part][leaf] = ((start, pages.offsets[behind]), indexed)
        return [self._part(part, each) for part, each in enumerate(filter(None, found))]

    def _kept_pages(self, leaf: int) -> Iterator[tuple[int, int]]:
        """Yield the pages that each run adds to those before it."""
        reached = 0
        for run in self.runs:
            first, behind = self.pages[leaf].holding(run)
            yield min(behind, max(first, reached)), behind
            reached = behind

    def _part(
        self, part: int, found: Mapping[int, tuple[tuple[int, int], list[IndexedPage]]]
    ) -> RowGroupRanges:
        nothing = min(span[0] for span, _ in found.values())
        ranges = [(nothing, nothing)] * self.leaves
        for leaf, (span, _) in found.items():
            ranges[leaf] = span
        indexed = {leaf: pages for leaf, (_, pages) in found.items()}
        return RowGroupRanges(self.group.ordinal, ranges, part, indexed)


class PagePruning:
    """Plans which pages of row groups are read; made for the extents of one object.

    `schema` has the columns of the leaf columns `wanted`, none of them nested. `excludes` is that
    of `FormatOptions`, and `ranges_of` returns what the statistics of a row group say. Pages are
    skipped where that saves more than `gap_bytes`, in one piece and of a row group.
    """

    def __init__(
        self,
        source: RangeSource,
        footer: Footer,
        columns: tuple[pa.Schema, Sequence[int]],
        excludes: Callable[[Ranges], bool],
        gap_bytes: int,
    ) -> None:
        self._source = source
        self._footer = footer
        self._schema, self._wanted = columns
        self._excludes = excludes
        self._ranges_of = column_ranges_of(self._schema, footer.metadata, footer.unreadable)
        self._gap_bytes = gap_bytes
        asked: dict[str, None] = {}

        def nothing_is_known(name: str) -> None:
            asked[name] = None

        excludes(nothing_is_known)
        leaves = comparable_leaves(footer.metadata, footer.unreadable)
        self._compared = {
            name: leaves[name] for name in asked if leaves.get(name) in frozenset(self._wanted)
        }

    def plan(self, group: RowGroup) -> PagePlan | None:
        """Return how a row group is read; None: as a whole.

        That is so where skipping saves too little, and where an index contradicts itself or the
        footer, which is logged once for an object.
        """
        metadata = self._footer.metadata
        all_chunks = column_ranges(metadata.row_group(group.ordinal))
        chunks = {leaf: all_chunks[leaf] for leaf in self._wanted}
        size = sum(end - start for start, end in chunks.values())
        least = max(self._gap_bytes, size // LEAST_SAVED_SHARE)
        places = self._places(group) if size > least else {}
        compared = {
            name: leaf
            for name, leaf in self._compared.items()
            if places and places[leaf].bounds != (0, 0)
        }
        most_bytes = size // PLANNED_SHARE if self._gap_bytes else LARGEST_INDEX_BYTES
        if not compared or not _is_small(places, compared.values(), most_bytes):
            return None
        most_pages = PLANNED_SHARE * size // self._gap_bytes if self._gap_bytes else size
        reading = _IndexReading(
            self._source, self._footer, self._schema, group, chunks, self._gap_bytes
        )
        try:
            pages, ranges = reading.compared(compared, places)
            require_few(sum(map(len, pages.values())), most_pages)
            runs = self._passing(group, {name: pages[compared[name]] for name in compared}, ranges)
            if len(runs) * len(self._wanted) > MOST_LOOKUPS:
                return None
            if runs and runs != [(0, group.rows)]:
                others = [leaf for leaf in self._wanted if leaf not in pages]
                pages |= reading.pages(others, places)
                runs = self._merged(runs, pages.values())
        except ManyPagesError:
            return None
        except ContradictionError as exc:
            if self._footer.index is not None:
                self._footer.index.report_contradiction(exc)
            return None
        kept = sum(each.bytes_read(runs) for each in pages.values()) if runs else 0
        if runs == [(0, group.rows)] or size - kept < least:
            return None
        return PagePlan(group, metadata.num_columns, tuple(runs), pages)

    def _places(self, group: RowGroup) -> dict[int, ChunkIndexes]:
        """Return where the indexes are, by leaf column; empty unless all have an offset index."""
        index = self._footer.index
        if index is None:
            return {}
        places = {leaf: index.of(group.ordinal, leaf) for leaf in self._wanted}
        return {} if any(each.pages == (0, 0) for each in places.values()) else places

    def _passing(
        self,
        group: RowGroup,
        pages: Mapping[str, Pages],
        ranges: Mapping[str, PageRanges],
    ) -> list[Run]:
        """Return the rows that may pass, in runs that do not touch each other."""
        known_of_group = self._ranges_of(group.ordinal)
        runs: list[Run] = []
        for run in pairwise(sorted({row for each in pages.values() for row in each.rows})):

            def known(name: str, run: Run = run) -> ColumnRange | None:
                if name in pages:
                    return ranges[name].of(pages[name].holding(run)[0])
                return known_of_group(name)

            if self._excludes(known):
                continue
            if runs and runs[-1][1] == run[0]:
                runs[-1] = (runs[-1][0], run[1])
            else:
                runs.append(run)
        return runs

    def _merged(self, runs: Sequence[Run], pages: Collection[Pages]) -> list[Run]:
        """Return runs between which more than `gap_bytes` are skipped."""
        merged = [runs[0]]
        for run in runs[1:]:
            gap = (merged[-1][1], run[0])
            if sum(each.bytes_within(gap) for each in pages) > self._gap_bytes:
                merged.append(run)
            else:
                merged[-1] = (merged[-1][0], run[1])
        return merged


@dataclass(frozen=True, slots=True)
class _IndexReading:
    """Reads indexes of one row group, whose column chunks are `chunks` by leaf column.

    Raises ManyPagesError, and ContradictionError with the place of the index.
    """

    source: RangeSource
    footer: Footer
    schema: pa.Schema
    group: RowGroup
    chunks: Mapping[int, tuple[int, int]]
    gap_bytes: int

    def compared(
        self, leaves: Mapping[str, int], places: Mapping[int, ChunkIndexes]
    ) -> tuple[dict[int, Pages], dict[str, PageRanges]]:
        """Return the pages of columns by leaf column, and what is known about each by name."""
        wanted = [places[leaf].pages for leaf in leaves.values()]
        wanted += [places[leaf].bounds for leaf in leaves.values()]
        found = self._read(wanted)
        pages = {leaf: self._pages(leaf, places, found) for leaf in leaves.values()}
        ranges = {}
        for name, leaf in leaves.items():
            place, index = places[leaf].bounds, self.footer.index
            column = self.footer.metadata.schema.column(leaf)
            with self._located("column index", column.path, place):
                ranges[name] = read_ranges(
                    found[place],
                    pages[leaf],
                    self.schema.field(name).type,
                    column,
                    is_ordered=index is not None and leaf in index.ordered,
                )
        return pages, ranges

    def pages(self, leaves: Sequence[int], places: Mapping[int, ChunkIndexes]) -> dict[int, Pages]:
        """Return the pages of columns by leaf column."""
        found = self._read([places[leaf].pages for leaf in leaves])
        return {leaf: self._pages(leaf, places, found) for leaf in leaves}

    def _pages(
        self,
        leaf: int,
        places: Mapping[int, ChunkIndexes],
        found: Mapping[Place, bytes],
    ) -> Pages:
        place, path = places[leaf].pages, self.footer.metadata.schema.column(leaf).path
        with self._located("offset index", path, place):
            return read_pages(found[place], self.chunks[leaf], self.group.rows)

    def _read(self, places: Collection[Place]) -> dict[Place, bytes]:
        """Return the bytes of indexes; those that are near each other take one request."""
        found: dict[Place, bytes] = {}
        reached, near = 0, list[Place]()
        for place in sorted(places):
            offset, length = place
            if length <= 0 or offset < len(MAGIC) or offset + length > self.footer.end:
                where = f"[{offset}-{offset + length})"
                raise ContradictionError(
                    f"{self.source.version.uri}[0-{self.source.version.size}) has a page index at"
                    f" {where}, outside [{len(MAGIC)}-{self.footer.end})"
                )
            is_far = offset > reached + self.gap_bytes
            if near and (is_far or offset + length > near[0][0] + LARGEST_INDEX_BYTES):
                found |= self._read_near(near, reached)
                near = []
            near.append(place)
            reached = max(reached, offset + length)
        return found | self._read_near(near, reached) if near else found

    def _read_near(self, places: Sequence[Place], end: int) -> dict[Place, bytes]:
        start = places[0][0]
        data = self.source.read(start, end)
        return {(at, size): data[at - start : at - start + size] for at, size in places}

    @contextmanager
    def _located(self, what: str, path: str, place: Place) -> Iterator[None]:
        try:
            yield
        except (ContradictionError, IndexError, ValueError, KeyError, RecursionError) as exc:
            where = f"{self.source.version.uri}[{place[0]}-{sum(place)})"
            reason = str(exc) if isinstance(exc, ContradictionError) else "it cannot be read"
            raise ContradictionError(
                f"{where}: the {what} of column {path!r} in row group {self.group.ordinal} is"
                f" not used: {reason}"
            ) from exc
