"""Lay columns out as Arrow's functions and the converters read them, at every depth.

    string_view, binary_view       ->  string, binary
    list_view, large_list_view     ->  list, large_list
    run_end_encoded                ->  its values
    extension types over these     ->  the same over the other layout

Arrow 26.0 has no `take`, `filter` or `if_else` of views and runs, and its casts make wrong values
of views of lists. Only the rows that an array shows are read: what lies under nulls, and between
views, is left out.

Every type and depth: unit/converters/test_type_matrix.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    MAX_TEXT_BYTES,
    Columns,
    RowErrors,
    extension_name,
    require_limit,
    text_bytes,
    validity,
)
from extentflow.arrays.nested import (
    LISTS,
    distinct_values,
    list_bounds,
    map_entries,
    rows_of,
)
from extentflow.errors import UnsupportedType

# Returns an array without nested layouts in a type of the same values.
LeafCast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
# Extension types of which every converter has a form.
_KNOWN = frozenset({"arrow.uuid", "arrow.json", "arrow.bool8"})


# -- types -----------------------------------------------------------------------------------------


def common_type(kind: pa.DataType) -> pa.DataType:  # noqa: PLR0911 - a case per layout
    """Return the type that holds the values of `kind` in the common layout; often `kind` itself."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if types.is_run_end_encoded(kind):
        return common_type(kind.value_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, common_type(kind.value_type), kind.ordered)
    if isinstance(kind, pa.JsonType):
        return pa.json_(common_type(kind.storage_type))
    if types.is_struct(kind):
        return pa.struct([common_field(one) for one in kind])
    if types.is_map(kind):
        key, item = common_field(kind.key_field), common_field(kind.item_field)
        return pa.map_(key, item, kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(common_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(common_field(kind.value_field))
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(common_field(kind.value_field))
    return kind


def common_field(one: pa.Field) -> pa.Field:
    """Return a field of the same name, nullability and metadata with the `common_type`."""
    kind = common_type(one.type)
    return one if kind == one.type else one.with_type(kind)


def require_known(one: pa.Field, path: str, *, canonical: bool = False) -> None:
    """Raise UnsupportedType for an extension type without a form of its own, at any depth.

    A process that has not registered a type sees its storage, and its name beside the field. Both
    are refused, so that every process gives the same answer. `canonical`: Arrow's own types pass,
    which every process has.
    """
    name = extension_name(one)
    # Those of Python's class were registered by a program.
    is_arrows = isinstance(one.type, pa.BaseExtensionType) and not isinstance(
        one.type, pa.ExtensionType
    )
    if name and name not in _KNOWN and not (canonical and is_arrows):
        raise UnsupportedType(
            f"column '{path}' has the extension type {name}, which no converter writes; write"
            " its storage type instead, convert it by a Cast transform, or leave it out by select"
        )
    for inner, label in _inner_fields(one.type):
        require_known(inner, path + label, canonical=canonical)


def _inner_fields(kind: pa.DataType) -> list[tuple[pa.Field, str]]:
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return [(pa.field("", kind.value_type), "")]
    if types.is_map(kind):
        return [(kind.key_field, ".key"), (kind.item_field, ".value")]
    if isinstance(kind, LISTS):
        return [(kind.value_field, "[]")]
    children = (kind.field(at) for at in range(kind.num_fields))
    return [(child, f".{child.name}") for child in children]


# -- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConvertedColumns:
    """The columns of a converter: their fields and arrays in the common layout."""

    fields: tuple[pa.Field, ...]
    chosen: Columns

    @classmethod
    def select(cls, schema: pa.Schema, names: Sequence[str] | None) -> Self:
        """Return the columns or members called `names` in that order; all columns if None.

        Raises UnsupportedType as `Columns.select` and `require_known`.
        """
        chosen = Columns.select(schema, names, nested=True)
        for one in chosen.fields:
            require_known(one, one.name)
        return cls(tuple(map(common_field, chosen.fields)), chosen)

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the arrays of the batch, which are copied only where their layout is another.

        Raises as `Columns.of`, and OffsetOverflowError.
        """
        arrays = self.chosen.of(batch)
        return [
            laid_out(array, one.type, _cast) for array, one in zip(arrays, self.fields, strict=True)
        ]


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type in _PLAIN:
        require_limit(text_bytes(array), MAX_TEXT_BYTES)
    return array.cast(target)


# -- arrays ----------------------------------------------------------------------------------------


def laid_out(array: pa.Array, target: pa.DataType, cast: LeafCast) -> pa.Array:
    """Return the values of an array as `target`, which nests the same types in any layout.

    `cast` converts what is not nested. A CorruptRecord of it is raised for the rows of `array`.
    """
    kind = array.type
    if kind == target:
        return array
    if types.is_dictionary(kind) and types.is_dictionary(target):
        changed = laid_out(array.dictionary, target.value_type, cast)
        return pa.DictionaryArray.from_arrays(array.indices, changed, ordered=target.ordered)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return laid_out(_row_values(array), target, cast)
    if isinstance(target, pa.BaseExtensionType) and isinstance(kind, pa.BaseExtensionType):
        storage = laid_out(array.storage, target.storage_type, cast)
        return pa.ExtensionArray.from_storage(target, storage)
    for recognises, nested in _NESTED:
        if recognises(kind):
            return nested(array, target, cast)
    return cast(array, target)


def _row_values(array: pa.Array) -> pa.Array:
    """Return the value of each row of a dictionary or of runs, in the common layout."""
    values, indices = distinct_values(array)
    # Entries that no row has may have no exact value as the target: these are left out here.
    plain = laid_out(values, common_type(values.type), _cast)
    if types.is_string(plain.type) or types.is_binary(plain.type):
        require_limit(pc.sum(pc.binary_length(plain).take(indices)).as_py() or 0, MAX_TEXT_BYTES)
    return plain.take(indices)


def _of_struct(array: pa.StructArray, target: pa.DataType, cast: LeafCast) -> pa.Array:
    # Unlike `field`, flattening makes a member null where its struct is.
    members = array.flatten()
    with RowErrors() as errors:
        made = []
        for member, one in zip(members, target, strict=True):
            with errors.collect(f"{one.name}: "):
                made.append(laid_out(member, one.type, cast))
    return pa.Array.from_buffers(target, len(array), [_bitmap(array)], children=made)


def _of_list(array: pa.Array, target: pa.DataType, cast: LeafCast) -> pa.Array:
    is_map = types.is_map(array.type)
    lists = map_entries(array) if is_map else array
    label = "" if is_map else "item: "
    bounds, values = _shown_items(lists)
    with RowErrors() as errors, errors.collect(label, partial(rows_of, bounds)):
        items = laid_out(values, target.field(0).type, cast)
    offsets = pa.py_buffer(bounds if types.is_large_list(target) else bounds.astype(np.int32))
    return pa.Array.from_buffers(target, len(array), [_bitmap(array), offsets], children=[items])


def _shown_items(lists: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return where each list begins among the items that lists show, and these items.

    What several lists share is there several times. In the common layout, except where the items
    lie side by side.
    """
    bounds = list_bounds(lists)
    count = int(bounds[-1])
    require_limit(count, MAX_TEXT_BYTES)
    if types.is_fixed_size_list(lists.type):
        starts = (np.arange(len(lists)) + lists.offset) * lists.type.list_size
    else:
        starts = lists.offsets.to_numpy()[: len(lists)].astype(np.int64)
    lengths = np.diff(bounds)
    # Lists without items begin anywhere.
    filled = lengths > 0
    starts, lengths, first = starts[filled], lengths[filled], bounds[:-1][filled]
    if not count:
        return bounds, lists.values.slice(0, 0)
    if np.array_equal(starts - starts[0], first):
        return bounds, lists.values.slice(int(starts[0]), count)
    low, high = int(starts.min()), int((starts + lengths).max())
    values = lists.values.slice(low, high - low)
    plain = laid_out(values, common_type(values.type), _cast)
    # Not `list_flatten`, which has no runs and no empty lists of some types.
    places = np.arange(count) + np.repeat(starts - low - first, lengths)
    return bounds, plain.take(pa.array(places))


def _of_fixed_list(array: pa.Array, target: pa.DataType, cast: LeafCast) -> pa.Array:
    bounds, values = _shown_items(array)
    with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
        items = laid_out(values, target.value_type, cast)
    if array.null_count:
        # Nulls have items, too.
        places = bounds[:-1, np.newaxis] + np.arange(target.list_size)
        hidden = np.repeat(~validity(array), target.list_size)
        items = items.take(pa.array(places.reshape(-1), mask=hidden))
    return pa.Array.from_buffers(target, len(array), [_bitmap(array)], children=[items])


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity of an array that begins in its first bit; None where nothing is null."""
    if array.null_count == 0:
        return None
    return pa.py_buffer(np.packbits(validity(array), bitorder="little"))


_NESTED: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType, LeafCast], pa.Array]], ...
] = (
    (types.is_struct, _of_struct),
    (types.is_fixed_size_list, _of_fixed_list),
    (lambda kind: types.is_map(kind) or isinstance(kind, LISTS), _of_list),
)
