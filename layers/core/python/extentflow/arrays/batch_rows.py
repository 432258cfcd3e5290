"""Rows of record batches: none, all but some, and those of several batches in one order."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.arrays.spans import Indexes

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
