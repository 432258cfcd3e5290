"""What Arrow reads from Parquet, made exact: refused types, INT96, decimals, ENUM, VARIANT.

    refused by name    INTERVAL, values of a fixed length of many MiB, two columns of one name
    refused by value   an INT96 that its unit cannot hold, a decimal longer than its precision
    converted          ENUM to text, VARIANT to JSON

INT96 counts nanoseconds over a range that 64 bits of nanoseconds do not cover, and Arrow overflows
silently. So its columns are read again as seconds, which hold every value. Spark never writes
fractions of a microsecond, so that its files are read as microseconds; others as nanoseconds,
unless `parquet.int96.unit` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.arrays.batch_rows import without_rows
from extentflow.errors import UnsupportedType
from extentflow.formats.parquet.variants import variant_texts
from extentflow.model import ObjectVersion

# Rows by their ordinals in a batch, and why they are bad.
BadRows: TypeAlias = dict[int, str]

_RANGES = {"ns": "nanoseconds hold (1677 to 2262)", "us": "microseconds hold (290,000 years)"}
_INT96_FRACTION = "an INT96 timestamp has a fraction of a microsecond (parquet.int96.unit=us)"
_DECIMAL = "a decimal has more digits than the precision of its column"
# Spark's writer adds this key to the footer's metadata.
_SPARK = b"org.apache.spark.version"
_PER_SECOND = {"ns": 10**9, "us": 10**6}
# The usual limit of records.
LARGEST_FIXED_BYTES = 64 << 20

# -- refused by name -------------------------------------------------------------------------------


def require_exact(version: ObjectVersion, schema: pa.Schema, metadata: pq.FileMetaData) -> None:
    """Raise UnsupportedType for columns without an exact Arrow type, or two of one name."""
    if not schema.names and metadata.num_rows:
        raise UnsupportedType(f"{version.uri} has {metadata.num_rows} rows but no columns")
    for path in _duplicates(pa.struct(list(schema))):
        raise UnsupportedType(f"{version.uri} has two columns {path!r}; rename one of them")
    leaves = metadata.schema
    for leaf in range(metadata.num_columns):
        column = leaves.column(leaf)
        if "INTERVAL" in (column.logical_type.type, column.converted_type):
            raise UnsupportedType(
                f"{version.uri}: column {column.path!r} is a Parquet INTERVAL, which Arrow returns"
                " as bytes only; write it as months, days and milliseconds"
            )
        # Arrow allocates the values of a batch by this length, whatever the pages hold.
        if column.length > LARGEST_FIXED_BYTES:
            raise UnsupportedType(
                f"{version.uri}: column {column.path!r} has values of {column.length:,} bytes each,"
                f" more than {LARGEST_FIXED_BYTES:,}; write it as binary"
            )
    try:
        ExactColumns.of(schema, metadata)
    except UnsupportedType as exc:
        raise UnsupportedType(f"{version.uri}: {exc}") from exc


def _duplicates(parent: pa.DataType, path: str = "") -> Iterator[str]:
    # The paths of children of structs whose name is not unique among its siblings.
    seen: set[str] = set()
    for index in range(parent.num_fields):
        child = parent.field(index)
        where = f"{path}.{child.name}" if path else child.name
        if pa.types.is_struct(parent) and child.name in seen:
            yield where
        seen.add(child.name)
        yield from _duplicates(child.type, where)


# -- refused by value ------------------------------------------------------------------------------


def int96_passes(
    metadata: pq.FileMetaData, leaves: Sequence[int], chosen: str | None = None
) -> list[tuple[Sequence[int], str]]:
    """Return the leaf columns of each pass over the rows, and its unit of INT96 timestamps.

    After the pass that is delivered, INT96 columns are read again as seconds, and as nanoseconds
    if microseconds could lose a fraction.
    """
    is_sparks = _SPARK in (metadata.metadata or {})
    unit = chosen or ("us" if is_sparks else "ns")
    again = [leaf for leaf in leaves if metadata.schema.column(leaf).physical_type == "INT96"]
    if not again:
        return [(leaves, unit)]
    may_lose = unit == "us" and not is_sparks
    return [(leaves, unit), (again, "s"), *([(again, "ns")] if may_lose else [])]


def bad_int96_rows(unit: str, seconds: pa.RecordBatch, exact: pa.RecordBatch | None) -> BadRows:
    """Return the rows whose INT96 values `unit` cannot represent.

    `seconds` and `exact` (nanoseconds, which wrap) are the same columns and rows.
    """
    most = (2**63 - 1) // _PER_SECOND[unit] - 1

    def fits(array: pa.Array) -> bool:
        ends = pc.min_max(array.cast(pa.int64()))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        return low is None or (low >= -most and high <= most)

    far = dict.fromkeys(
        _unsound_rows(seconds, lambda rows: all(map(fits, _leaves(rows.columns)))),
        f"an INT96 timestamp lies outside what 64 bits of {_RANGES[unit]}",
    )
    if exact is None:
        return far
    names = [str(at) for at in range(2 * seconds.num_columns)]
    pair = pa.record_batch([*seconds.columns, *exact.columns], names)
    fractions = _unsound_rows(pair, _has_whole_microseconds)
    return dict.fromkeys(fractions, _INT96_FRACTION) | far


def _has_whole_microseconds(pair: pa.RecordBatch) -> bool:
    half = pair.num_columns // 2
    leaves = zip(_leaves(pair.columns[:half]), _leaves(pair.columns[half:]), strict=True)
    for seconds, nanoseconds in leaves:
        whole = seconds.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)
        wrapped = nanoseconds.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)
        # Modulo 2^64, as Arrow computed the nanoseconds: the rest is below a second.
        if ((wrapped - whole * np.uint64(10**9)) % np.uint64(1_000)).any():
            return False
    return True


def _leaves(arrays: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the values at the leaves of nested arrays, without what nulls hide."""
    for array in arrays:
        if pa.types.is_struct(array.type):
            yield from _leaves(array.flatten())
        elif pa.types.is_map(array.type):
            # Arrow's `flatten` has none of maps.
            yield from _leaves([_entries(array)[0]])
        elif pa.types.is_nested(array.type):
            yield from _leaves([array.flatten()])
        else:
            yield array


def _unsound_rows(batch: pa.RecordBatch, is_sound: Callable[[pa.RecordBatch], bool]) -> list[int]:
    """Return the rows for which `is_sound` is false, by bisection."""
    if is_sound(batch):
        return []
    if batch.num_rows == 1:
        return [0]
    half = batch.num_rows // 2
    behind = _unsound_rows(batch.slice(half), is_sound)
    return _unsound_rows(batch.slice(0, half), is_sound) + [half + row for row in behind]


def _decimals_fit(batch: pa.RecordBatch) -> bool:
    return all(map(_decimal_fits, _leaves(batch.columns)))


def _decimal_fits(array: pa.Array) -> bool:
    if not pa.types.is_decimal(array.type):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# -- converted -------------------------------------------------------------------------------------

Convert: TypeAlias = Callable[[pa.Array], pa.Array]
# A type as it is delivered, and how an array becomes one; None: as it is.
Plan: TypeAlias = tuple[pa.DataType, Convert | None]


@dataclass(frozen=True, slots=True)
class ExactColumns:
    """Makes what Arrow read exact, in batches with some or all columns of `schema`.

    `schema` is that of the converted columns, `decimals` are the columns that have any.
    """

    schema: pa.Schema
    conversions: Mapping[str, Convert]
    decimals: frozenset[str]

    @classmethod
    def of(cls, schema: pa.Schema, metadata: pq.FileMetaData) -> ExactColumns:
        """Return what the columns of a file need. Raises UnsupportedType."""
        leaves = _Leaves(metadata)
        conversions: dict[str, Convert] = {}
        fields = []
        for column in schema:
            data_type, convert = _plan(column.type, leaves, column.name)
            fields.append(column if convert is None else column.with_type(data_type))
            if convert is not None:
                conversions[column.name] = convert
        decimals = frozenset(column.name for column in schema if _has_decimals(column.type))
        return cls(pa.schema(fields, schema.metadata), conversions, decimals)

    def __call__(
        self, batch: pa.RecordBatch, bad: BadRows, limit_bytes: int
    ) -> tuple[pa.RecordBatch, BadRows]:
        """Return the exact rows, and the bad ones: `bad`, and those without an exact value.

        A row of more than `limit_bytes` is bad.
        """
        bad = self._bad_decimals(batch) | bad
        if batch.nbytes > limit_bytes:
            large = _unsound_rows(batch, lambda rows: _value_bytes(rows) <= limit_bytes)
            bad |= dict.fromkeys(large, f"a row has more than record.max.bytes={limit_bytes}")
        try:
            return self._converted(without_rows(batch, bad)), bad
        except ValueError:
            found = _unsound_rows(batch, self._can_convert)
        bad = {row: self._problem(batch.slice(row, 1)) for row in found} | bad
        return self._converted(without_rows(batch, bad)), bad

    def _bad_decimals(self, batch: pa.RecordBatch) -> BadRows:
        chosen = [name for name in batch.schema.names if name in self.decimals]
        if not chosen:
            return {}
        return dict.fromkeys(_unsound_rows(batch.select(chosen), _decimals_fit), _DECIMAL)

    def _can_convert(self, rows: pa.RecordBatch) -> bool:
        return not self._problem(rows)

    def _problem(self, rows: pa.RecordBatch) -> str:
        try:
            self._converted(rows)
        except ValueError as exc:
            return str(exc)
        return ""

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for at, name in enumerate(batch.schema.names):
            if name in self.conversions:
                column = self.conversions[name](batch.column(at))
                batch = batch.set_column(at, self.schema.field(name), column)
        return batch


def complete_leaves(metadata: pq.FileMetaData, leaves: Sequence[int]) -> list[int]:
    """Return leaf columns, and all others of columns that are converted and have one of them.

    A VARIANT is one value without members, and a struct with an ENUM is made of all its members.
    """
    found = set(leaves)
    if not any("." in metadata.schema.column(leaf).path for leaf in found):
        return sorted(found)
    schema = metadata.schema.to_arrow_schema()
    converted, end = ExactColumns.of(schema, metadata).conversions, 0
    for column in schema:
        own = range(end, end + _leaf_count(column.type))
        end = own.stop
        if column.name in converted and not found.isdisjoint(own):
            found.update(own)
    return sorted(found)


def _value_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of all values, of which views and dictionaries may share some."""
    total = 0
    for leaf in _leaves(batch.columns):
        storage = leaf.storage if isinstance(leaf, pa.ExtensionArray) else leaf
        data_type = storage.type
        if pa.types.is_dictionary(data_type):
            storage, data_type = storage.dictionary_decode(), data_type.value_type
        if is_text_or_bytes(data_type):
            total += pc.sum(pc.binary_length(storage.cast(pa.large_binary()))).as_py() or 0
        else:
            total += storage.nbytes
    return total


def is_text_or_bytes(data_type: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for text or bytes of any length."""
    kinds = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return str(data_type) in kinds


def _has_decimals(data_type: pa.DataType) -> bool:
    children = (data_type.field(at).type for at in range(data_type.num_fields))
    return bool(pa.types.is_decimal(data_type)) or any(map(_has_decimals, children))


class _Leaves:
    """The leaf columns of a file in their order, which is that of the leaves of its Arrow types."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self._schema = metadata.schema
        self._next = 0

    @cached_property
    def _variants(self) -> frozenset[str]:
        # Only for files with structs: a wide schema takes long to print.
        return _variant_paths(self._schema)

    def take(self) -> Any:  # noqa: ANN401 - pyarrow has no name for it
        self._next += 1
        return self._schema.column(self._next - 1)

    def is_variant(self, data_type: pa.DataType) -> bool:
        """Whether a struct that begins at the next leaf is a VARIANT."""
        at = data_type.get_field_index("metadata")
        if at < 0 or data_type.field(at).type.num_fields:
            return False
        leaf = self._next + sum(_leaf_count(data_type.field(each).type) for each in range(at))
        if leaf >= len(self._schema):
            return False
        group, _, _ = self._schema.column(leaf).path.rpartition(".")
        return group in self._variants


_GROUP = re.compile(r"( *)\w+ group field_id=-?[0-9]+ (.*) \{")
_VARIANT = re.compile(r"(.*) \(Variant(?:\([0-9]+\))?\)")


def _variant_paths(schema: pq.ParquetSchema) -> frozenset[str]:
    """Return the paths of groups that are VARIANTs, which pyarrow only prints."""
    found, path = set(), [""]
    for line in str(schema).splitlines():
        if match := _GROUP.fullmatch(line):
            depth = len(match[1]) // 2
            variant = _VARIANT.fullmatch(match[2])
            name = variant[1] if variant else re.sub(r" \([A-Za-z]+\)$", "", match[2])
            # The root, at depth 0, is not part of a path.
            path[depth:] = [name]
            if variant:
                found.add(".".join(path[1:]))
    return frozenset(found)


def _plan(data_type: pa.DataType, leaves: _Leaves, path: str) -> Plan:
    """Return how one type of a column is delivered; takes its leaves."""
    if pa.types.is_struct(data_type) and not data_type.num_fields:
        return data_type, None
    if not data_type.num_fields or isinstance(data_type, pa.BaseExtensionType):
        leaf = leaves.take()
        is_enum = "ENUM" in (leaf.logical_type.type, leaf.converted_type)
        if is_enum and pa.types.is_binary(data_type):
            # Not checked here: a text that is not UTF-8 makes a bad record in the converter.
            return pa.string(), lambda array: array.view(pa.string())
        return data_type, None
    if pa.types.is_struct(data_type) and leaves.is_variant(data_type):
        return _variant_plan(data_type, leaves, path)
    children = [data_type.field(at) for at in range(data_type.num_fields)]
    plans = [_plan(child.type, leaves, f"{path}.{child.name}") for child in children]
    if all(convert is None for _, convert in plans):
        return data_type, None
    fields = [child.with_type(plan[0]) for child, plan in zip(children, plans, strict=True)]
    return _nested_plan(data_type, fields, [convert or _as_it_is for _, convert in plans], path)


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


def _variant_plan(data_type: pa.DataType, leaves: _Leaves, path: str) -> Plan:
    convert = variant_texts(data_type, path)
    for _ in range(_leaf_count(data_type)):
        leaves.take()

    def to_json(array: pa.StructArray) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.json_(), pa.array(convert(array), pa.string()))

    return pa.json_(), to_json


def _leaf_count(data_type: pa.DataType) -> int:
    """Return how many leaf columns of Parquet a type has."""
    is_nested = data_type.num_fields or pa.types.is_struct(data_type)
    if isinstance(data_type, pa.BaseExtensionType) or not is_nested:
        return 1
    return sum(_leaf_count(data_type.field(at).type) for at in range(data_type.num_fields))


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values of a slice of lists or maps, and where each row begins among them."""
    offsets = array.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    return array.values.slice(first, last - first), pa.array(offsets - first)


def _nested_plan(
    data_type: pa.DataType, fields: Sequence[pa.Field], converts: Sequence[Convert], path: str
) -> Plan:
    def mask(array: pa.Array) -> pa.Array | None:
        return array.is_null() if array.null_count else None

    if pa.types.is_struct(data_type):

        def of_struct(array: pa.StructArray) -> pa.StructArray:
            members = [each(array.field(at)) for at, each in enumerate(converts)]
            return pa.StructArray.from_arrays(members, fields=fields, mask=mask(array))

        return pa.struct(fields), of_struct
    if pa.types.is_list(data_type):

        def of_list(array: pa.ListArray) -> pa.ListArray:
            values, offsets = _entries(array)
            items = converts[0](values)
            return pa.ListArray.from_arrays(offsets, items, pa.list_(fields[0]), mask=mask(array))

        return pa.list_(fields[0]), of_list
    if pa.types.is_map(data_type):
        key, item = (fields[0].type.field(at) for at in range(2))

        def of_map(array: pa.MapArray) -> pa.MapArray:
            values, offsets = _entries(array)
            entries, made = converts[0](values), pa.map_(key, item)
            keys, items = entries.field(0), entries.field(1)
            return pa.MapArray.from_arrays(offsets, keys, items, made, mask=mask(array))

        return pa.map_(key, item), of_map
    raise UnsupportedType(f"column {path!r} has an ENUM or VARIANT in {data_type}; write a list")
