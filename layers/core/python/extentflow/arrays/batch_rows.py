"""Rows of record batches: none, some, all but some, and those of several batches in one order.

Tests: unit/delivery/test_rows.py, unit/consumer/test_row_batches.py
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.arrays.spans import Indexes

# The words of a view (a length and a prefix, or where the text is), which move with their row.
_VIEW = np.dtype((np.void, 16))
# The lines that became rows, ascending, and these rows.
Table: TypeAlias = tuple[Indexes, pa.RecordBatch]


def merge_tables(tables: Sequence[Table]) -> Table:
    """Return the rows of tables, at least one, in the order of their lines."""
    filled = [table for table in tables if len(table[0])]
    if len(filled) < 2:  # noqa: PLR2004 - nothing to merge
        return filled[0] if filled else tables[0]
    lines = np.concatenate([lines for lines, _ in filled])
    batch = pa.concat_batches([batch for _, batch in filled])
    order = np.argsort(lines)
    # In the order of the object, as locations must increase.
    if (order[1:] > order[:-1]).all():
        return lines, batch
    return lines[order], batch.take(pa.array(order))


def without_rows(batch: pa.RecordBatch, rows: Collection[int]) -> pa.RecordBatch:
    """Return the batch without some rows."""
    if not rows:
        return batch
    bounds = [-1, *sorted(rows), batch.num_rows]
    # Slices, because Arrow's filter kernel does not support every type (string_view).
    kept = [
        batch.slice(left + 1, right - left - 1)
        for left, right in pairwise(bounds)
        if left + 1 < right
    ]
    return pa.concat_batches(kept) if kept else batch.slice(0, 0)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.record_batch([_no_values(column.type) for column in schema], schema)


def _no_values(kind: pa.DataType) -> pa.Array:
    # Arrow makes no empty arrays of nested extension types, and of nested run-end encoded ones it
    # makes `nulls` that are not valid.
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _no_values(kind.storage_type))
    if pa.types.is_run_end_encoded(kind):
        ends = pa.nulls(0, kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, _no_values(kind.value_type))
    if not kind.num_fields:
        return pa.nulls(0, kind)
    children = [_no_values(kind.field(at).type) for at in range(kind.num_fields)]
    # No bitmap, and offsets that begin with the one zero that even empty lists have.
    buffers = [None, *[pa.py_buffer(bytes(8))] * (kind.num_buffers - 1)]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


def take_rows(batch: pa.RecordBatch, rows: Indexes) -> pa.RecordBatch:
    """Return the rows with these ordinals, in that order, whatever the types of the columns."""
    if not batch.num_columns:
        # Only a column can count rows.
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays([], fields=[]))
    indices = pa.array(rows)
    columns = [_take(column, rows, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _take(array: pa.Array, rows: Indexes, indices: pa.Int64Array) -> pa.Array:
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return _take_views(array, rows)
    try:
        return array.take(indices)
    except pa.ArrowNotImplementedError:
        # Nested views, for example: runs of neighbours are slices, which every type has.
        if not len(rows):
            return array.slice(0, 0)
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        runs = np.split(rows, breaks)
        return pa.concat_arrays([array.slice(int(run[0]), len(run)) for run in runs])


def _take_views(array: pa.Array, rows: Indexes) -> pa.Array:
    """Return views of the same texts; Arrow's `take` has none of views."""
    _, views, *data = array.buffers()
    bitmap = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)[rows]
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if views is None or not len(rows):
        return array.slice(0, 0)
    words = np.frombuffer(views, _VIEW, array.offset + len(array))[array.offset :]
    taken = pa.py_buffer(np.ascontiguousarray(words[rows]))
    return pa.Array.from_buffers(array.type, len(rows), [bitmap, taken, *data])
