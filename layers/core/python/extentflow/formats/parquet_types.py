"""Which Parquet columns Arrow hands over exactly.

Owns: refusing columns that Arrow would give another meaning, INT96 timestamps. Refuses to know:
bytes, row groups, what a converter makes of a type.

INT96 counts nanoseconds over a range that 64 bits of nanoseconds do not cover, and Arrow wraps
around silently. Spark never writes parts of a microsecond, so its files are read as microseconds;
others as nanoseconds, and their INT96 columns a second time as seconds, to see what did not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from extentflow.errors import UnsupportedType
from extentflow.model import ObjectVersion

__all__ = ["INT96_MISFIT", "doubtful_leaves", "int96_unit", "misfits", "require_exact"]

INT96_MISFIT = "an INT96 timestamp lies outside what 64 bits of nanoseconds hold (1677 to 2262)"
_SPARK = b"org.apache.spark.version"
_EARLIEST_SECOND = -(2**63 // 10**9)
_LATEST_SECOND = 2**63 // 10**9 - 1


def require_exact(version: ObjectVersion, schema: pa.Schema, metadata: pq.FileMetaData) -> None:
    """Refuse columns that would lose something on their way through Arrow.

    Raises:
        UnsupportedType: names the column and what to do.
    """
    if not schema.names and metadata.num_rows:
        raise UnsupportedType(f"{version.uri} has {metadata.num_rows} rows but no columns")
    for path in _duplicates(pa.struct(list(schema))):
        raise UnsupportedType(f"{version.uri} has two columns {path!r}; rename one of them")
    leaves = metadata.schema
    for leaf in range(metadata.num_columns):
        column = leaves.column(leaf)
        if "INTERVAL" in (column.logical_type.type, column.converted_type):
            raise UnsupportedType(
                f"{version.uri}: column {column.path!r} is a Parquet INTERVAL, for which Arrow has"
                " bytes only; write it as months, days and milliseconds"
            )


def int96_unit(metadata: pq.FileMetaData) -> str:
    """Return the unit in which INT96 timestamps are read."""
    return "us" if _by_spark(metadata) else "ns"


def doubtful_leaves(metadata: pq.FileMetaData) -> list[int]:
    """Return the leaf columns whose values must be seen as seconds, too."""
    leaves = metadata.schema
    every = range(0 if _by_spark(metadata) else metadata.num_columns)
    return [leaf for leaf in every if leaves.column(leaf).physical_type == "INT96"]


def misfits(seconds: pa.RecordBatch) -> list[int]:
    """Return the rows with a timestamp that nanoseconds cannot hold, by halving."""
    if all(_fits(column) for column in seconds.columns):
        return []
    if seconds.num_rows == 1:
        return [0]
    half = seconds.num_rows // 2
    behind = misfits(seconds.slice(half))
    return misfits(seconds.slice(0, half)) + [half + row for row in behind]


def _by_spark(metadata: pq.FileMetaData) -> bool:
    return _SPARK in (metadata.metadata or {})


def _duplicates(parent: pa.DataType, path: str = "") -> Iterator[str]:
    """Yield the paths of a struct's children that share their name with a sibling."""
    seen: set[str] = set()
    for index in range(parent.num_fields):
        child = parent.field(index)
        where = f"{path}.{child.name}" if path else child.name
        if pa.types.is_struct(parent) and child.name in seen:
            yield where
        seen.add(child.name)
        yield from _duplicates(child.type, where)


def _fits(array: pa.Array) -> bool:
    """Whether all timestamps at the leaves of an array, given in seconds, fit nanoseconds."""
    if pa.types.is_struct(array.type):
        return all(_fits(child) for child in array.flatten())
    if pa.types.is_nested(array.type):
        return _fits(array.flatten())
    if not pa.types.is_timestamp(array.type):
        return True
    ends = pc.min_max(array.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is None or (low >= _EARLIEST_SECOND and high <= _LATEST_SECOND)
