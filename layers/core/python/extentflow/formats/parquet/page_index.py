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
the footer do. If the first rows of pages are wrong, and only skipped pages would show it, it
combines values of different rows: a page states how many values it has, but not at which row it
begins, and the headers of skipped pages are not read, as each would take a request.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.config.specs import ColumnRange, Ranges
from extentflow.formats.parquet.compact_protocol import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    CompactWalk,
)
from extentflow.formats.parquet.footer import MAGIC, Footer, RowGroup, column_ranges
from extentflow.formats.parquet.pages import IndexedPage
from extentflow.formats.parquet.prefetch import RowGroupRanges
from extentflow.formats.parquet.statistics import (
    VALUE_BYTES,
    ChunkIndexes,
    Place,
    column_ranges_of,
    comparable_leaves,
    typed_bounds,
)
from extentflow.storage import RangeSource

# Of a column chunk. A page has 20,000 rows or 1 MiB: these are enough for 32 GiB.
MOST_PAGES = 32_768
# Of all columns of a row group: about 600,000 pages.
LARGEST_INDEX_BYTES = 8 << 20
# Of runs by columns, so that looking for pages takes no longer than reading them.
MOST_LOOKUPS = 1 << 20
# Reading by pages costs more per byte: it must save at least this part of a row group's bytes.
LEAST_SAVED_SHARE = 8
# Planning takes as long for a page as reading some KiB: on average, pages of the columns that are
# read must have this part of `gap_bytes` (4 KiB of 256), and the indexes this part of the bytes.
PLANNED_SHARE = 64
_UNORDERED, _ASCENDING, _DESCENDING = range(3)
_UNPACKED = {"BOOLEAN": "<?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}

Run: TypeAlias = tuple[int, int]


class _ManyPagesError(Exception):
    """There are more pages than are looked at."""


class _ContradictionError(Exception):
    """An index contradicts itself or the footer, or cannot be read."""


# -- one offset index ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of one column chunk, which begins at `start`, perhaps with a dictionary.

    Page i has the bytes `[offsets[i], offsets[i + 1])` of the object and the rows
    `[rows[i], rows[i + 1])` of the row group.
    """

    start: int
    offsets: array[int]
    rows: array[int]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def holding(self, run: Run) -> Run:
        """Return the first page that holds rows of a run, and the one behind the last."""
        return bisect_right(self.rows, run[0]) - 1, bisect_left(self.rows, run[1])

    def bytes_within(self, run: Run) -> int:
        """Return the size of the pages that hold no other rows."""
        first, behind = bisect_left(self.rows, run[0]), bisect_right(self.rows, run[1]) - 1
        return self.offsets[behind] - self.offsets[first] if first < behind else 0

    def bytes_read(self, runs: Sequence[Run]) -> int:
        """Return how many bytes hold the rows of these runs, the dictionary included."""
        total, reached = self.offsets[0] - self.start, 0
        for run in runs:
            first, behind = self.holding(run)
            total += self.offsets[behind] - self.offsets[min(behind, max(first, reached))]
            reached = behind
        return total

    def indexed(self, first: int, behind: int) -> Iterator[IndexedPage]:
        """Yield what a page's header has to state, of some pages."""
        for page in range(first, behind):
            size = self.offsets[page + 1] - self.offsets[page]
            yield IndexedPage(size, self.rows[page + 1] - self.rows[page])


def read_pages(data: bytes, chunk: tuple[int, int], rows: int) -> Pages:
    """Return the pages of a column chunk, bytes `chunk`, by its offset index.

    Raises _ContradictionError and _ManyPagesError, and as `CompactWalk`.
    """
    places = _locations(data)
    if not places or places[0][0] < chunk[0]:
        raise _ContradictionError("it has no page that its column chunk begins with")
    reached, row = places[0][0], -1
    for offset, size, first_row in places:
        if offset != reached or size <= 0:
            found = f"a page of {size} bytes at byte {offset}"
            raise _ContradictionError(f"{found} does not begin where the one before it ends")
        # The first page begins at row 0.
        if not row < first_row < rows or (row < 0) != (first_row == 0):
            raise _ContradictionError(f"a page begins at row {first_row}, behind row {row}")
        reached, row = offset + size, first_row
    if reached != chunk[1]:
        raise _ContradictionError(
            f"its pages end at byte {reached}, its column chunk at {chunk[1]}"
        )
    offsets = array("q", (offset for offset, _, _ in places))
    first_rows = array("q", (first for _, _, first in places))
    offsets.append(reached)
    first_rows.append(rows)
    return Pages(chunk[0], offsets, first_rows)


def _locations(data: bytes) -> list[tuple[int, int, int]]:
    """Return the offset, the size and the first row of each page."""
    walk = CompactWalk(data)
    places: list[tuple[int, int, int]] = []

    def location(at: int, _: int) -> int:
        found = {1: 0, 2: 0, 3: 0}
        number = 0
        while head := data[at]:
            number, at = walk.number(number, head, at + 1)
            if number in found and head & 15 in (I32, I64):
                found[number], at = walk.i64(at)
            else:
                at = walk.behind(head & 15, at)
        places.append((found[1], found[2], found[3]))
        return at + 1

    def locations(at: int, _: int) -> int:
        _require_few(walk.elements(at, STRUCT)[0])
        places.clear()
        return walk.each(at, location)

    _require_end(data, walk.fields(0, (1, LIST), locations))
    return places


def _require_few(count: int, most: int = MOST_PAGES) -> None:
    if count > most:
        raise _ManyPagesError


def _require_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise _ContradictionError(f"it has {len(data)} bytes, of which {end} are read")


# -- one column index ------------------------------------------------------------------------------


class _ColumnIndex:
    """The lists of a column index, one element per page, as they are stored."""

    def __init__(self, data: bytes) -> None:
        self._walk = walk = CompactWalk(data)
        self.null_pages: list[bool] = []
        self.least: list[bytes] = []
        self.greatest: list[bytes] = []
        self.null_counts: list[int] | None = None
        self.order = -1
        at = number = 0
        while head := data[at]:
            number, at = walk.number(number, head, at + 1)
            match number, head & 15:
                case 1, 9:
                    flags, at = self._list(at, (TRUE, FALSE), lambda at: (data[at], at + 1))
                    self.null_pages = [flag == TRUE for flag in flags]
                case 2, 9:
                    self.least, at = self._list(at, (BINARY,), walk.binary)
                case 3, 9:
                    self.greatest, at = self._list(at, (BINARY,), walk.binary)
                case 4, 5:
                    self.order, at = walk.i32(at)
                case 5, 9:
                    self.null_counts, at = self._list(at, (I64,), walk.i64)
                case _, kind:
                    at = walk.behind(kind, at)
        _require_end(data, at + 1)

    def _list(
        self, at: int, kinds: tuple[int, ...], element: Callable[[int], tuple[Any, int]]
    ) -> tuple[list[Any], int]:
        count, at = self._walk.elements(at, *kinds)
        _require_few(count)
        found = []
        for _ in range(count):
            value, at = element(at)
            found.append(value)
        return found, at


@dataclass(frozen=True, slots=True)
class PageRanges:
    """What a column index says about each page; `lows` and `highs` count where `is_known`."""

    lows: pa.Array
    highs: pa.Array
    is_known: Sequence[bool]
    has_nulls: Sequence[bool]
    null_pages: Sequence[bool]

    def of(self, page: int) -> ColumnRange:
        """Return the range of a page."""
        return ColumnRange(
            low=self.lows[page] if self.is_known[page] else None,
            high=self.highs[page] if self.is_known[page] else None,
            has_nulls=self.has_nulls[page],
            has_values=not self.null_pages[page],
        )


def read_ranges(
    data: bytes,
    pages: Pages,
    data_type: pa.DataType,
    leaf: Any,  # noqa: ANN401 - pyarrow has no name for it
    *,
    is_ordered: bool,
) -> PageRanges:
    """Return what a column index says about each page; `leaf` is the column in the schema.

    Raises _ContradictionError and _ManyPagesError.
    """
    index = _ColumnIndex(data)
    count = len(pages.offsets) - 1
    lists: list[Sequence[Any]] = [index.null_pages, index.least, index.greatest]
    if index.null_counts is not None:
        lists.append(index.null_counts)
    if any(len(each) != count for each in lists):
        lengths = " and ".join(str(len(each)) for each in lists)
        raise _ContradictionError(f"it has {lengths} pages, the offset index has {count}")
    nullable = leaf.max_definition_level > 0
    has_nulls = [nullable] * count
    for page, (first, behind) in enumerate(pairwise(pages.rows)):
        nulls = None if index.null_counts is None else index.null_counts[page]
        most = behind - first if nullable else 0
        is_null = index.null_pages[page]
        if (is_null and not nullable) or (nulls is not None and not 0 <= nulls <= most):
            raise _ContradictionError(f"page {page} of {behind - first} values has {nulls} nulls")
        if nulls is not None and is_null != (nulls == behind - first):
            raise _ContradictionError(
                f"page {page} has {nulls} nulls, but is {'' if is_null else 'not '}a page of nulls"
            )
        has_nulls[page] = nullable and nulls != 0
    found = _bounds(index, data_type, leaf) if is_ordered else None
    if found is None:
        found = pa.nulls(count), pa.nulls(count), [False] * count
    else:
        _require_order(index.order, *found)
    return PageRanges(*found, has_nulls, index.null_pages)


def _bounds(
    index: _ColumnIndex,
    data_type: pa.DataType,
    leaf: Any,  # noqa: ANN401
) -> tuple[pa.Array, pa.Array, list[bool]] | None:
    """Return the bounds of all pages, and which are known; None if their order is not certain."""

    def of(stored: Sequence[bytes]) -> pa.Array | None:
        kept = [None if null else value for null, value in zip(index.null_pages, stored)]  # noqa: B905
        return typed_bounds(
            data_type, leaf, lambda: _values(kept, leaf), lambda: _values(kept, leaf)
        )

    try:
        lows, highs = of(index.least), of(index.greatest)
    except pa.ArrowInvalid:
        return None
    if lows is None or highs is None:
        return None
    # Neither NaN nor what is in another order than that of values.
    return lows, highs, pc.less_equal(lows, highs).fill_null(False).to_pylist()  # noqa: FBT003


def _values(stored: Sequence[bytes | None], leaf: Any) -> list[Any]:  # noqa: ANN401
    """Return stored values as Python's; None for those that are no values of the type."""
    if leaf.physical_type not in _UNPACKED:
        return [_text(value) for value in stored]
    size, packed = VALUE_BYTES[leaf.physical_type], struct.Struct(_UNPACKED[leaf.physical_type])
    return [
        packed.unpack(value)[0] if value is not None and len(value) == size else None
        for value in stored
    ]


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _require_order(order: int, lows: pa.Array, highs: pa.Array, is_known: Sequence[bool]) -> None:
    if order not in (_UNORDERED, _ASCENDING, _DESCENDING):
        raise _ContradictionError(f"it has the boundary order {order}")
    if order == _UNORDERED:
        return
    compare = pc.less_equal if order == _ASCENDING else pc.greater_equal
    for ends in (lows, highs):
        known = ends.filter(pa.array(is_known))
        if not pc.all(compare(known[:-1], known[1:])).as_py() and len(known) > 1:
            raise _ContradictionError("its boundary order contradicts its bounds")


# -- all indexes of a row group --------------------------------------------------------------------


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
            _require_few(sum(map(len, pages.values())), most_pages)
            runs = self._passing(group, {name: pages[compared[name]] for name in compared}, ranges)
            if len(runs) * len(self._wanted) > MOST_LOOKUPS:
                return None
            if runs and runs != [(0, group.rows)]:
                others = [leaf for leaf in self._wanted if leaf not in pages]
                pages |= reading.pages(others, places)
                runs = self._merged(runs, pages.values())
        except _ManyPagesError:
            return None
        except _ContradictionError as exc:
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

    Raises _ManyPagesError, and _ContradictionError with the place of the index.
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
                raise _ContradictionError(
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
        except (_ContradictionError, IndexError, ValueError, KeyError, RecursionError) as exc:
            where = f"{self.source.version.uri}[{place[0]}-{sum(place)})"
            reason = str(exc) if isinstance(exc, _ContradictionError) else "it cannot be read"
            raise _ContradictionError(
                f"{where}: the {what} of column {path!r} in row group {self.group.ordinal} is"
                f" not used: {reason}"
            ) from exc
