"""Take nested columns apart: lists, maps, dictionaries and run-end-encoded columns.

Tests: unit/converters/test_json_nested.py
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import RowErrors, corrupt_rows, offsets_from_lengths, validity
from extentflow.arrays.concat import NULL
from extentflow.arrays.encodings import checked_text

LISTS = (
    pa.ListType,
    pa.LargeListType,
    pa.FixedSizeListType,
    pa.ListViewType,
    pa.LargeListViewType,
)


def flattened(lists: pa.Array, bounds: NDArray[np.int64]) -> pa.Array:
    """Return the values of lists, without what null slots and gaps between views may hide."""
    # Arrow creates no empty arrays of some types, such as structs with a UUID.
    return pc.list_flatten(lists) if bounds[-1] else lists.values.slice(0, 0)


def list_bounds(lists: pa.Array) -> NDArray[np.int64]:
    """Return where each list of any layout begins among its flattened values, and the end."""
    return offsets_from_lengths(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())


def rows_of(bounds: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[Any]:
    """Return the rows whose lists contain the items, by the bounds of the lists."""
    return np.searchsorted(bounds, items, side="right") - 1


def distinct_values(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values of a dictionary or run-end-encoded array, and each row's index in them."""
    if types.is_dictionary(array.type):
        return array.dictionary, array.indices
    # A slice keeps the run ends of the whole array.
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
    return array.values, pa.array(runs)


def map_entries(array: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs, each a key and a value."""
    # Not by a cast: Arrow's yields invalid arrays where a value is a list of the null type.
    fields = [array.type.key_field, array.type.item_field]
    # Not `keys` and `items`: from damaged pages, one of them may be longer than the entries.
    entries = array.values
    return pa.ListArray.from_arrays(
        pa.array(array.offsets.to_numpy()),
        pa.StructArray.from_arrays([entries.field(0), entries.field(1)], fields=fields),
        mask=pc.is_null(array) if array.null_count else None,
    )


def require_unique_keys(
    lists: pa.ListArray,
    limit_bytes: int,
    written: Callable[[pa.Array], pa.StringArray] | None = None,
) -> None:
    """Raise CorruptRecord for maps whose keys are not the names of distinct members.

    `written` returns the texts of keys that are no text, `null` for those that have none.
    """
    bounds = list_bounds(lists)
    counts = np.diff(bounds)
    several = len(counts) > 0 and counts.max() > 1
    keys = flattened(lists, bounds).flatten()[0]
    present, texts = present_rows(keys), None
    of_entries = partial(rows_of, bounds)
    with RowErrors() as errors:
        with errors.collect("key: ", of_entries):
            if written is not None:
                texts = written(keys)
                present = pc.not_equal(texts, NULL).to_numpy(zero_copy_only=False)
            elif several:
                texts = _plain_text(keys, limit_bytes)
        with errors.collect("", of_entries):
            if not np.all(present):
                raise corrupt_rows(np.flatnonzero(~present), "a key is null")
        if texts is None or not several:
            return
        codes = texts.dictionary_encode()
        indices = codes.indices.fill_null(0) if codes.indices.null_count else codes.indices
        rows = np.repeat(np.arange(len(counts)), counts)
        # One number per pair of row and key, so that equal neighbours are repeated keys.
        pairs = rows * len(codes.dictionary) + indices.to_numpy()
        pairs = np.sort(pairs if np.all(present) else pairs[present])
        repeated = pairs[1:][pairs[1:] == pairs[:-1]]
        with errors.collect():
            if len(repeated):
                found = np.unique(repeated // len(codes.dictionary))
                raise corrupt_rows(found, "a key is there twice")


def _plain_text(keys: pa.Array, limit_bytes: int) -> pa.StringArray:
    if types.is_dictionary(keys.type):
        return _plain_text(keys.dictionary, limit_bytes).take(keys.indices)
    return checked_text(keys, limit_bytes)


def present_rows(array: pa.Array) -> Any:  # noqa: ANN401 - as `validity`
    """Return True or the mask of the rows that have a value, in dictionaries and runs, too."""
    if not types.is_dictionary(array.type) and not types.is_run_end_encoded(array.type):
        return validity(array)
    values, indices = distinct_values(array)
    if not values.null_count and not indices.null_count:
        return True
    return pc.fill_null(pc.is_valid(values).take(indices), False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's


def require_values(fields: Sequence[pa.Field], arrays: Sequence[pa.Array]) -> None:
    """Raise CorruptRecord for rows with a null where a field is not nullable, at any depth."""
    with RowErrors() as errors:
        for one, array in zip(fields, arrays, strict=True):
            with errors.collect(f"{one.name}: "):
                _require(one, array)


def _require(one: pa.Field, array: pa.Array) -> None:
    # A NaN is another matter: it is null in JSON alone.
    if not one.nullable and not types.is_null(one.type):
        nulls = np.logical_not(np.broadcast_to(present_rows(array), len(array)))
        if nulls.any():
            raise corrupt_rows(np.flatnonzero(nulls), "null, and its column has no null")
    if not is_strict(one.type):
        return
    if types.is_struct(one.type):
        # A child is null where its parent is, which is no fault of the child's.
        rows = np.flatnonzero(validity(array)) if array.null_count else np.arange(len(array))
        kept = array.drop_null() if array.null_count else array
        with RowErrors() as errors, errors.collect("", lambda items: rows[items]):
            require_values(tuple(one.type), kept.flatten())
    else:
        lists = map_entries(array) if types.is_map(one.type) else array
        bounds = list_bounds(lists)
        with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
            _require(lists.type.value_field, flattened(lists, bounds))


def is_strict(data_type: pa.DataType) -> bool:
    """Return whether a nested type has a field, at any depth, that is not nullable."""
    if isinstance(data_type, LISTS):
        inner = [data_type.value_field]
    elif types.is_map(data_type):
        inner = [data_type.item_field]
    elif types.is_struct(data_type):
        inner = list(data_type)
    else:
        inner = []
    return any(not one.nullable or is_strict(one.type) for one in inner)
