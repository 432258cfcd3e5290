"""The ranges of columns that a Parquet footer states, as far as they can be relied on.

Arrow reads statistics that are shorter than a value of their type with a C++ exception that ends
the process. So the footer's own bytes are checked first.

    FileMetaData   4 row groups > 1 chunks > 3 metadata > 12 statistics > 1, 2, 5, 6 bounds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.config.specs import ColumnRange, Ranges
from extentflow.formats.parquet_thrift import BINARY, LIST, STRUCT, CompactWalk
from extentflow.formats.parquet_types import is_text_or_bytes

_TIME_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}

# -- which statistics Arrow may read ---------------------------------------------------------------

_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# The fields that lead to a chunk's statistics, and in these the least and the greatest value.
_ROW_GROUPS, _CHUNKS, _METADATA, _STATISTICS = (4, LIST), (1, LIST), (3, STRUCT), (12, STRUCT)
_VALUES = frozenset({1, 2, 5, 6})


def unreadable_statistics(footer: bytes, schema: pq.ParquetSchema) -> frozenset[int]:
    """Return the leaf columns with a least or greatest value that is no value of their type.

    `footer` begins with one that Arrow has parsed. All leaves, if it cannot be followed.
    """
    columns = [schema.column(leaf) for leaf in range(len(schema))]
    sizes = [
        column.length
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        else _VALUE_BYTES.get(column.physical_type)
        for column in columns
    ]
    walk = _FooterWalk(footer, sizes)
    try:
        walk.file()
    except (IndexError, ValueError):
        return frozenset(range(len(sizes)))
    return frozenset(walk.unreadable)


class _FooterWalk:
    """Walks through a footer; `sizes` are the bytes of values by leaf column, None: any number."""

    def __init__(self, data: bytes, sizes: Sequence[int | None]) -> None:
        self._walk = CompactWalk(data)
        self._sizes = sizes
        self.unreadable: set[int] = set()

    def file(self) -> None:
        """Walk through all row groups. Raises IndexError and ValueError."""
        self._walk.fields(0, _ROW_GROUPS, lambda at, _: self._walk.each(at, self._row_group))

    def _row_group(self, at: int, _: int) -> int:
        return self._walk.fields(at, _CHUNKS, lambda at, _: self._walk.each(at, self._chunk))

    def _chunk(self, at: int, leaf: int) -> int:
        def statistics(at: int, _: int) -> int:
            return self._values(at, leaf)

        def metadata(at: int, _: int) -> int:
            return self._walk.fields(at, _STATISTICS, statistics)

        return self._walk.fields(at, _METADATA, metadata)

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


def column_ranges_of(
    schema: pa.Schema, metadata: pq.FileMetaData, unreadable: frozenset[int]
) -> Callable[[int], Ranges]:
    """Return what the statistics of a row group, by its ordinal, say about columns not nested.

    Nothing where an order of values is not certain: INT96, times, half floats, bytes, ENUM, and
    floats with NaN among their statistics; nothing either where statistics contradict themselves,
    and about `unreadable` leaf columns. Text may be cut off: it is no value, but still a bound.
    """
    columns = [metadata.schema.column(leaf) for leaf in range(metadata.num_columns)]
    uses = Counter(column.path for column in columns)
    # Writers may count empty lists as nulls, so that nothing is known about a repeated field.
    leaves = {
        column.path: leaf
        for leaf, column in enumerate(columns)
        if uses[column.path] == 1 and not column.max_repetition_level and leaf not in unreadable
    }

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
    data_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if not statistics.has_min_max or leaf.physical_type == "INT96":
        return None, None
    try:
        found = _stated_bounds(data_type, leaf, statistics)
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None, None
    # Neither NaN nor what is in another order than that of values.
    if found is None or not pc.less_equal(found[0], found[1]).as_py():
        return None, None
    return found[0], found[1]


def _stated_bounds(data_type: pa.DataType, leaf: Any, statistics: Any) -> pa.Array | None:  # noqa: ANN401
    if is_text_or_bytes(data_type) and leaf.logical_type.type == "STRING":
        return pa.array([statistics.min, statistics.max], pa.string())
    if pa.types.is_floating(data_type) and not pa.types.is_float16(data_type):
        return pa.array([statistics.min, statistics.max], data_type)
    if pa.types.is_timestamp(data_type) and not _is_stored_as(data_type, leaf):
        return None
    stored = {"BOOLEAN": pa.bool_(), "INT32": pa.int32(), "INT64": pa.int64()}
    if leaf.physical_type not in stored:
        return None
    # As stored: Python's dates hold neither all years nor nanoseconds.
    raw = pa.array([statistics.min_raw, statistics.max_raw], stored[leaf.physical_type])
    if pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type):
        return raw.view(data_type)
    if pa.types.is_unsigned_integer(data_type):
        raw = raw.view(pa.uint32() if leaf.physical_type == "INT32" else pa.uint64())
    is_read = pa.types.is_integer(data_type) or pa.types.is_boolean(data_type)
    return raw.cast(data_type) if is_read else None


def _is_stored_as(data_type: pa.TimestampType, leaf: Any) -> bool:  # noqa: ANN401
    logical = orjson.loads(leaf.logical_type.to_json())
    return _TIME_UNITS.get(logical.get("timeUnit", "")) == str(data_type.unit)
