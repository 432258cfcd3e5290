"""Check batches whose buffers came from outside, so that Arrow's kernels read them safely.

Tests: unit/formats/arrow/test_arrow_format.py, unit/columnar/test_damaged_values.py
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.arrays.buffers import held_bytes

# A batch whose buffers are compressed, and all dictionaries, when they are unpacked.
LARGEST_UNPACKED_BYTES = 512 << 20
# A view is a length, and either the value or where it is.
_VIEW = np.dtype([("length", np.int32), ("rest", np.void, 12)])


def valid_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch that Arrow's kernels can read safely; `validate` leaves out views of nulls.

    Raises ArrowInvalid or ArrowIndexError.
    """
    try:
        rows.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        rows.validate()  # the sizes of buffers
        columns = [_without_hidden(column) for column in rows.columns]
        rows = pa.record_batch(columns, schema=rows.schema)
        rows.validate(full=True)
    for array in chain.from_iterable(_views(column) for column in rows.columns):
        # Arrow checks no view whose row is null, and its casts follow them.
        buffers = [None, *array.buffers()[1:]]
        whole = pa.Array.from_buffers(pa.binary_view(), len(array), buffers, offset=array.offset)
        whole.validate(full=True)
        words = np.frombuffer(buffers[1], _VIEW, array.offset + len(array))
        claimed = int(words["length"].sum(dtype=np.int64))
        if claimed > LARGEST_UNPACKED_BYTES:
            raise pa.ArrowInvalid(
                f"its views are of {claimed} bytes, extentflow reads up to"
                f" {LARGEST_UNPACKED_BYTES}; write smaller batches"
            )
    for column in filter(_repeats, rows.columns):
        if (shown := _shown_bytes(column)) > LARGEST_UNPACKED_BYTES:
            raise pa.ArrowInvalid(
                f"its views of lists, or its runs, are of {shown} bytes, extentflow reads up to"
                f" {LARGEST_UNPACKED_BYTES}; write smaller batches"
            )
    return rows


def _repeats(array: pa.Array) -> bool:
    """Whether an array may show values that it stores once: views of lists, and runs."""
    return any(name in str(array.type) for name in ("list_view", "run_end_encoded"))


def _shown_bytes(array: pa.Array) -> int:
    """Return about how many bytes an array has where each row has its own values."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _shown_bytes(array.storage)
    if pa.types.is_struct(kind):
        return sum(_shown_bytes(array.field(at)) for at in range(kind.num_fields))
    if pa.types.is_union(kind) or not kind.num_fields:
        return held_bytes(array)
    values, count = array.values, len(array)
    if not pa.types.is_run_end_encoded(kind):
        lengths = None if pa.types.is_map(kind) else pc.list_value_length(array)
        count = len(values) if lengths is None else pc.sum(lengths).as_py() or 0
    return _shown_bytes(values) * count // max(1, len(values))


def _without_hidden(array: pa.Array, hidden: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array without the indices of rows that an array above it makes null.

    Writers leave any index there, also where the dictionary is empty. `hidden` are these rows.
    """
    if pa.types.is_struct(array.type) and array.type.num_fields:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        hidden = nulls if hidden is None else hidden | nulls
        children = [
            _without_hidden(one, hidden) for one in map(array.field, range(array.type.num_fields))
        ]
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=pa.array(nulls))
    if array.type.num_fields == 1 and not pa.types.is_union(array.type):  # lists and maps
        fixed, below = pa.types.is_fixed_size_list(array.type), None
        if fixed and not array.offset:
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            below = np.repeat(nulls if hidden is None else hidden | nulls, array.type.list_size)
        values = _without_hidden(array.values, below)
        own = array.buffers()[: 1 if fixed else 2]
        return pa.Array.from_buffers(
            array.type, len(array), own, offset=array.offset, children=[values]
        )
    if pa.types.is_dictionary(array.type) and hidden is not None:
        shown = pc.if_else(hidden, None, array.indices)
        return pa.DictionaryArray.from_arrays(
            shown, array.dictionary, ordered=array.type.ordered, safe=False
        )
    return array


def _views(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays of views within an array."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _views(array.storage)
    elif pa.types.is_dictionary(kind):
        yield from _views(array.dictionary)
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for index in range(kind.num_fields):
            yield from _views(array.field(index))
    elif kind.num_fields:
        yield from _views(array.values)
    elif (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)) and len(array):
        yield array
