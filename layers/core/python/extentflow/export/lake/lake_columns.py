"""The columns of a lake table: which types it can hold, and how they may grow.

rows of a value ──`normal`──> comparable types ──`merged`──> the table's columns, wider or longer
                                                          └> IncompatibleSchema: column, types
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.errors import IncompatibleSchema, UnsupportedType

Leaf = Callable[[pa.DataType], pa.DataType]

_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Types that Spark holds as they are; others below, or not at all.
_SPARK: Final = frozenset(
    {pa.bool_(), *_INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32()}
)
# Spark has a wider type with all values of these.
_SPARK_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
# Types of the same values, with more room.
_LARGE: Final = {(pa.large_string(), pa.string()), (pa.large_binary(), pa.binary())}
# Columns that Iceberg itself gives each table (MetadataColumns): Spark reads no others of the name.
_ICEBERG_NAMES: Final = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
        "_last_updated_sequence_number",
    }
)
NOT_IN_SPARK = (
    "Spark holds no uint64, half-precision float, time of day, duration, interval, decimal256,"
    " union, null type, or timestamp in nanoseconds"
)


class _NotHeldError(Exception):
    """The table has no type for `args[0]`."""


def normal(kind: pa.DataType, leaf: Leaf = lambda kind: kind) -> pa.DataType:
    """Return a type whose nested parts are nullable and named alike, with `leaf` of the others."""
    if isinstance(kind, pa.ExtensionType | pa.BaseExtensionType):
        return normal(kind.storage_type, leaf)
    if types.is_dictionary(kind):
        return normal(kind.value_type, leaf)
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, normal(each.type, leaf)) for each in kind])
    if types.is_map(kind):
        return pa.map_(normal(kind.key_type, leaf), normal(kind.item_type, leaf))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", normal(kind.value_type, leaf)))
    return leaf(kind)


def in_parquet(schema: pa.Schema) -> pa.Schema:
    """Return the columns of Parquet files for columns of values: the same types.

    Raises UnsupportedType that names every column that Parquet cannot hold.
    """
    fields, problems = [], []
    for each in schema:
        try:
            fields.append((each.name, normal(each.type, _parquet_leaf)))
        except _NotHeldError as exc:
            problems.append(f"column {each.name}: Parquet cannot hold {exc.args[0]} ({each.type})")
    if problems:
        raise UnsupportedType(
            f"{'; '.join(problems)}; change the type where the topic is filled, by a Cast transform"
        )
    return pa.schema(fields)


def _parquet_leaf(kind: pa.DataType) -> pa.DataType:
    if types.is_interval(kind) or types.is_union(kind) or types.is_run_end_encoded(kind):
        raise _NotHeldError(kind)
    return kind


def in_spark(schema: pa.Schema) -> pa.Schema:
    """Return the columns with which Spark holds the same values.

    Unsigned integers become the next wider signed ones, timestamps have microseconds.

    Raises UnsupportedType that names every column that Spark cannot hold, columns whose names
    differ in case only, and those of Iceberg.
    """
    fields, problems = [], []
    for each in schema:
        try:
            fields.append((each.name, normal(each.type, _spark_leaf)))
        except _NotHeldError as exc:
            problems.append(f"column {each.name}: Spark cannot hold {exc.args[0]} ({each.type})")
    lower = [each.name.lower() for each in schema]
    if twice := sorted({name for name in lower if lower.count(name) > 1}):
        problems.append(f"columns {', '.join(twice)}: Spark does not distinguish case in names")
    if reserved := sorted(_ICEBERG_NAMES.intersection(lower)):
        problems.append(f"columns {', '.join(reserved)}: Iceberg has its own of these names")
    if problems:
        raise UnsupportedType(
            f"{'; '.join(problems)}; {NOT_IN_SPARK}; write Parquet files (without --table), or"
            " change the type where the topic is filled, by a Cast transform"
        )
    return pa.schema(fields)


def _spark_leaf(kind: pa.DataType) -> pa.DataType:
    if kind in _SPARK or types.is_decimal128(kind):
        return kind
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", "UTC" if kind.tz else None)
    wider = _SPARK_WIDER.get(kind)
    if wider is None:
        raise _NotHeldError(kind)
    return wider


def merged(known: pa.Schema, found: pa.Schema, where: str) -> pa.Schema:
    """Return the columns of `known`, widened where `found` needs it, then those only in `found`.

    Raises IncompatibleSchema for a column with another type that neither holds all values of the
    other; `where` begins the message.
    """
    fields = {each.name: each.type for each in known}
    problems = []
    for each in found:
        before = fields.get(each.name, each.type)
        wider = _wider(before, each.type)
        if wider is None:
            problems.append(f"column {each.name} is {each.type} here and {before} in the table")
        fields[each.name] = wider or before
    if problems:
        raise IncompatibleSchema(
            f"{where}: {'; '.join(problems)}; only a wider integer, float or decimal can take the"
            " place of a type. Write this topic to another table, or change the type by a Cast"
            " transform where the topic is filled"
        )
    return pa.schema(list(fields.items()))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return which of two types holds all values of both; None: neither."""
    if one == other or _holds(one, other):
        return one
    return other if _holds(other, one) else None


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    if types.is_decimal128(wide) and types.is_decimal128(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    if (wide, narrow) in _LARGE:
        return True
    if wide in _INTEGERS and narrow in _INTEGERS:
        return _INTEGERS.index(wide) >= _INTEGERS.index(narrow)
    return bool(wide == pa.float64() and narrow == pa.float32())


def fitted(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of a table, whose types hold theirs; null where they lack one.

    Raises ArrowInvalid where a value changes, which `merged` and `in_spark` exclude.
    """
    arrays = []
    for each in columns:
        index = rows.schema.get_field_index(each.name)
        column = pa.nulls(rows.num_rows, each.type) if index < 0 else rows.column(index)
        arrays.append(column if column.type == each.type else pc.cast(column, each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
