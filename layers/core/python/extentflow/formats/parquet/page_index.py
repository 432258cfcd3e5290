"""Read the page index of one column chunk: its offset index and its column index."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.config.specs import ColumnRange
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
from extentflow.formats.parquet.pages import IndexedPage
from extentflow.formats.parquet.statistics import VALUE_BYTES, typed_bounds

# Of a column chunk. A page has 20,000 rows or 1 MiB: these are enough for 32 GiB.
MOST_PAGES = 32_768
_UNORDERED, _ASCENDING, _DESCENDING = range(3)
_UNPACKED = {"BOOLEAN": "<?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}

Run: TypeAlias = tuple[int, int]


class ManyPagesError(Exception):
    """There are more pages than are looked at."""


class ContradictionError(Exception):
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

    Raises ContradictionError and ManyPagesError, and as `CompactWalk`.
    """
    places = _locations(data)
    if not places or places[0][0] < chunk[0]:
        raise ContradictionError("it has no page that its column chunk begins with")
    reached, row = places[0][0], -1
    for offset, size, first_row in places:
        if offset != reached or size <= 0:
            found = f"a page of {size} bytes at byte {offset}"
            raise ContradictionError(f"{found} does not begin where the one before it ends")
        # The first page begins at row 0.
        if not row < first_row < rows or (row < 0) != (first_row == 0):
            raise ContradictionError(f"a page begins at row {first_row}, behind row {row}")
        reached, row = offset + size, first_row
    if reached != chunk[1]:
        raise ContradictionError(f"its pages end at byte {reached}, its column chunk at {chunk[1]}")
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
        require_few(walk.elements(at, STRUCT)[0])
        places.clear()
        return walk.each(at, location)

    _require_end(data, walk.fields(0, (1, LIST), locations))
    return places


def require_few(count: int, most: int = MOST_PAGES) -> None:
    """Raise ManyPagesError for more than `most` pages."""
    if count > most:
        raise ManyPagesError


def _require_end(data: bytes, end: int) -> None:
    if end != len(data):
        raise ContradictionError(f"it has {len(data)} bytes, of which {end} are read")


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
        require_few(count)
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

    Raises ContradictionError and ManyPagesError.
    """
    index = _ColumnIndex(data)
    count = len(pages.offsets) - 1
    lists: list[Sequence[Any]] = [index.null_pages, index.least, index.greatest]
    if index.null_counts is not None:
        lists.append(index.null_counts)
    if any(len(each) != count for each in lists):
        lengths = " and ".join(str(len(each)) for each in lists)
        raise ContradictionError(f"it has {lengths} pages, the offset index has {count}")
    nullable = leaf.max_definition_level > 0
    has_nulls = [nullable] * count
    for page, (first, behind) in enumerate(pairwise(pages.rows)):
        nulls = None if index.null_counts is None else index.null_counts[page]
        most = behind - first if nullable else 0
        is_null = index.null_pages[page]
        if (is_null and not nullable) or (nulls is not None and not 0 <= nulls <= most):
            raise ContradictionError(f"page {page} of {behind - first} values has {nulls} nulls")
        if nulls is not None and is_null != (nulls == behind - first):
            raise ContradictionError(
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
        raise ContradictionError(f"it has the boundary order {order}")
    if order == _UNORDERED:
        return
    compare = pc.less_equal if order == _ASCENDING else pc.greater_equal
    for ends in (lows, highs):
        known = ends.filter(pa.array(is_known))
        if not pc.all(compare(known[:-1], known[1:])).as_py() and len(known) > 1:
            raise ContradictionError("its boundary order contradicts its bounds")
