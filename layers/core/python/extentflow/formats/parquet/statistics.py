"""The ranges of columns that a Parquet footer states, as far as they can be relied on.

Arrow reads statistics that are shorter than a value of their type with a C++ exception that ends
the process. So the footer's own bytes are checked first.

    FileMetaData   4 row groups > 1 chunks > 3 metadata > 12 statistics > 1, 2, 5, 6 bounds
                                           > 4 to 7 offsets and lengths of the page index
                   7 orders of columns > 1 that of their type
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.config.specs import ColumnRange, Ranges
from extentflow.formats.parquet.arrow_types import is_text_or_bytes
from extentflow.formats.parquet.compact_protocol import BINARY, I32, I64, LIST, STRUCT, CompactWalk

log = logging.getLogger(__name__)

_TIME_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}

# -- the footer's own bytes ------------------------------------------------------------------------

VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# The fields that lead to a chunk's statistics, and in these the least and the greatest value.
_ROW_GROUPS, _ORDERS, _CHUNKS, _METADATA, _STATISTICS = (4, LIST), (7, LIST), (1, LIST), 3, 12
_VALUES = frozenset({1, 2, 5, 6})
# Of a column chunk: offset and length of its offset index, and of its column index.
_PLACES = {4: 0, 5: 1, 6: 2, 7: 3}


# An offset in the object, and a length in bytes; 0, 0: there is none.
Place: TypeAlias = tuple[int, int]


class ChunkIndexes(NamedTuple):
    """Where the offset index and the column index of a column chunk are."""

    pages: Place
    bounds: Place


class IndexPlaces:
    """Where the page indexes of a file are, as its footer states; 32 bytes per column chunk.

    `ordered` are the leaf columns whose bounds are in the order of their type.
    """

    def __init__(self, groups: int, leaves: int) -> None:
        self._leaves = leaves
        self._places = array("q", bytes(groups * leaves * 8 * len(_PLACES)))
        self.ordered: frozenset[int] = frozenset()
        self._contradicted: dict[str, object] = {}

    def report_contradiction(self, why: object) -> None:
        """Log that a row group is read as a whole; only the first call of all threads does."""
        mine = object()
        if self._contradicted.setdefault("", mine) is mine:
            log.warning("%s; the row group is read as a whole, as others like it are", why)

    def of(self, group: int, leaf: int) -> ChunkIndexes:
        """Return where the indexes of a column chunk are."""
        at = (group * self._leaves + leaf) * len(_PLACES)
        pages, pages_length, bounds, bounds_length = self._places[at : at + len(_PLACES)]
        return ChunkIndexes((pages, pages_length), (bounds, bounds_length))

    def set(self, group: int, leaf: int, which: int, value: int) -> None:
        """Set a number by its ordinal among the four of a column chunk."""
        self._places[(group * self._leaves + leaf) * len(_PLACES) + which] = value


@dataclass(frozen=True, slots=True)
class PruningFacts:
    """What pruning needs of a footer's own bytes.

    `unreadable`: leaf columns with a least or greatest value that is no value of their type.
    """

    unreadable: frozenset[int]
    index: IndexPlaces | None


def pruning_facts(footer: bytes, metadata: pq.FileMetaData) -> PruningFacts:
    """Return the facts of a footer; all leaves are unreadable if it cannot be followed.

    `footer` begins with one that Arrow has parsed.
    """
    columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    sizes = [
        column.length
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        else VALUE_BYTES.get(column.physical_type)
        for column in columns
    ]
    walk = _FooterWalk(footer, sizes, metadata.num_row_groups)
    try:
        walk.file()
    except (IndexError, ValueError):
        return PruningFacts(frozenset(range(len(sizes))), None)
    return PruningFacts(frozenset(walk.unreadable), walk.index)


class _FooterWalk:
    """Walks through a footer; `sizes` are the bytes of values by leaf column, None: any number."""

    def __init__(self, data: bytes, sizes: Sequence[int | None], groups: int) -> None:
        self._walk = CompactWalk(data)
        self._sizes = sizes
        self._groups = groups
        self.unreadable: set[int] = set()
        self.index = IndexPlaces(groups, len(sizes))

    def file(self) -> None:
        """Walk through all row groups. Raises IndexError and ValueError."""
        walk = self._walk
        at = number = 0
        while head := walk.data[at]:
            number, at = walk.number(number, head, at + 1)
            if (number, head & 15) == _ROW_GROUPS:
                at = walk.each(at, self._row_group)
            elif (number, head & 15) == _ORDERS:
                ordered: set[int] = set()
                at = walk.each(at, partial(self._order, ordered))
                self.index.ordered = frozenset(ordered)
            else:
                at = walk.behind(head & 15, at)

    def _order(self, ordered: set[int], at: int, leaf: int) -> int:
        def of_type(at: int, _: int) -> int:
            ordered.add(leaf)
            return self._walk.behind(STRUCT, at)

        return self._walk.fields(at, (1, STRUCT), of_type)

    def _row_group(self, at: int, group: int) -> int:
        def chunk(at: int, leaf: int) -> int:
            return self._chunk(at, group, leaf)

        return self._walk.fields(at, _CHUNKS, lambda at, _: self._walk.each(at, chunk))

    def _chunk(self, at: int, group: int, leaf: int) -> int:
        def statistics(at: int, _: int) -> int:
            return self._values(at, leaf)

        walk, number = self._walk, 0
        while head := walk.data[at]:
            number, at = walk.number(number, head, at + 1)
            kind = head & 15
            if (number, kind) == (_METADATA, STRUCT):
                at = walk.fields(at, (_STATISTICS, STRUCT), statistics)
            elif number in _PLACES and kind in (I32, I64) and self._is_known(group, leaf):
                value, at = walk.i64(at)
                self.index.set(group, leaf, _PLACES[number], value)
            else:
                at = walk.behind(kind, at)
        return at + 1

    def _is_known(self, group: int, leaf: int) -> bool:
        # A list that is repeated counts as Arrow reads it, the last one.
        return group < self._groups and leaf < len(self._sizes)

    def _values(self, at: int, leaf: int) -> int:
        size, walk = self._sizes[leaf], self._walk
        number = 0
        while head := walk.data[at]:
            number, at = walk.number(number, head, at + 1)
            kind = head & 15
            if number in _VALUES and kind == BINARY:
                length, at = walk.varint(at)
                if size is not None and length != size:
                    self.unreadable.add(leaf)
                at += length
            else:
                at = walk.behind(kind, at)
        return at + 1


# -- ranges ----------------------------------------------------------------------------------------


def comparable_leaves(metadata: pq.FileMetaData, unreadable: frozenset[int]) -> dict[str, int]:
    """Return the leaf columns about which something may be known, by their paths."""
    columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    uses = Counter(column.path for column in columns)
    # Writers may count empty lists as nulls, so that nothing is known about a repeated field.
    return {
        column.path: leaf
        for leaf, column in enumerate(columns)
        if uses[column.path] == 1 and not column.max_repetition_level and leaf not in unreadable
    }


def column_ranges_of(
    schema: pa.Schema, metadata: pq.FileMetaData, unreadable: frozenset[int]
) -> Callable[[int], Ranges]:
    """Return what the statistics of a row group, by its ordinal, say about columns not nested.

    Nothing is known where an order of values is not certain: INT96, times, half floats, bytes,
    ENUM, and floats with NaN among their statistics. The same holds for statistics that contradict
    themselves, and for `unreadable` leaf columns. Text may be cut off: it is no value, but still a
    bound.
    """
    columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    leaves = comparable_leaves(metadata, unreadable)

    def of_group(group: int) -> Ranges:
        row_group = metadata.row_group(group)

        def known(name: str) -> ColumnRange | None:
            leaf = leaves.get(name)
            if leaf is None or schema.get_field_index(name) < 0:
                return None
            chunk, column = row_group.column(leaf), columns[leaf]
            # Otherwise, asking for its statistics ends the process, too.
            is_sound = chunk.physical_type == column.physical_type
            statistics = chunk.statistics if is_sound else None
            if statistics is None:
                return None
            nulls = statistics.null_count if statistics.has_null_count else None
            low, high = _bounds(schema.field(name).type, column, statistics)
            return ColumnRange(
                low=low,
                high=high,
                has_nulls=column.max_definition_level > 0 and nulls != 0,
                has_values=nulls != row_group.num_rows,
            )

        return known

    return of_group


def _bounds(data_type: pa.DataType, leaf: Any, statistics: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the least and the greatest value as scalars; None if these are unknown."""
    if not statistics.has_min_max:
        return None, None

    def values() -> list[Any]:
        return [statistics.min, statistics.max]

    def raw() -> list[Any]:
        # As stored: Python's dates hold neither all years nor nanoseconds.
        return [statistics.min_raw, statistics.max_raw]

    try:
        found = typed_bounds(data_type, leaf, values, raw)
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None, None
    # Neither NaN nor what is in another order than that of values.
    if found is None or not pc.less_equal(found[0], found[1]).as_py():
        return None, None
    return found[0], found[1]


def typed_bounds(
    data_type: pa.DataType,
    leaf: Any,  # noqa: ANN401
    values: Callable[[], list[Any]],
    raw: Callable[[], list[Any]],
) -> pa.Array | None:
    """Return bounds of a column as an array of its type; None if their order is not certain.

    `values` returns them as text or floats, `raw` as they are stored. Raises ArrowInvalid for
    bounds that the type does not hold.
    """
    data_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if is_text_or_bytes(data_type) and leaf.logical_type.type == "STRING":
        return pa.array(values(), pa.string())
    if pa.types.is_floating(data_type) and not pa.types.is_float16(data_type):
        return pa.array(values(), data_type)
    if pa.types.is_timestamp(data_type) and not _is_stored_as(data_type, leaf):
        return None
    stored = {"BOOLEAN": pa.bool_(), "INT32": pa.int32(), "INT64": pa.int64()}
    if leaf.physical_type not in stored:
        return None
    array = pa.array(raw(), stored[leaf.physical_type])
    if pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type):
        return array.view(data_type)
    if pa.types.is_unsigned_integer(data_type):
        array = array.view(pa.uint32() if leaf.physical_type == "INT32" else pa.uint64())
    is_read = pa.types.is_integer(data_type) or pa.types.is_boolean(data_type)
    return array.cast(data_type) if is_read else None


def _is_stored_as(data_type: pa.TimestampType, leaf: Any) -> bool:  # noqa: ANN401
    logical = orjson.loads(leaf.logical_type.to_json())
    return _TIME_UNITS.get(logical.get("timeUnit", "")) == str(data_type.unit)
