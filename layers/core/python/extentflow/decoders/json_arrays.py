"""Turn Arrow arrays of what stands in JSON documents into arrays of the declared types.

stored      texts of dates, timestamps and base64; decimals wider than declared
delivered   what they mean; the type `json` is text

Tests: unit/decoders/test_json_columns.py
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.arrays.texts import cast_texts
from extentflow.decoders.json_values import UnfitValue

# From here on, a float64 may have rounded an integer.
_FLOAT_INTEGERS = float(1 << 53)
_ENTRY = ("key", "value")


def leaves(of: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of what is not divided, and of maps."""
    if pa.types.is_map(of):
        yield of
        yield from leaves(of.item_type)
    elif pa.types.is_list(of):
        yield from leaves(of.value_type)
    elif pa.types.is_struct(of):
        for field in of:
            yield from leaves(field.type)
    else:
        yield of


def stored_type(of: pa.DataType) -> pa.DataType:
    """Return the type of values as they stand in documents, before texts are read."""

    def stored(leaf: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(leaf):
            # Wide enough for what Arrow reads before it compares with the precision.
            return pa.decimal256(76, leaf.scale)
        return pa.string() if _is_text(leaf) or isinstance(leaf, pa.JsonType) else leaf

    return _mapped(of, stored)


def delivered_type(of: pa.DataType) -> pa.DataType:
    """Return the type of a column: JSON is text."""
    return _mapped(of, lambda leaf: pa.string() if isinstance(leaf, pa.JsonType) else leaf)


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_date(of) or pa.types.is_timestamp(of) or pa.types.is_binary(of))


def _mapped(of: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(of):
        return pa.struct([(field.name, _mapped(field.type, leaf)) for field in of])
    if pa.types.is_map(of):
        return pa.map_(pa.string(), _mapped(of.item_type, leaf))
    return pa.list_(_mapped(of.value_type, leaf)) if pa.types.is_list(of) else leaf(of)


def typed(values: pa.Array, wanted: pa.DataType, *, exact: bool) -> pa.Array:
    """Return stored values, which are not a slice, as what is delivered. UnfitValue if one fails.

    `exact`: so does an integer that a float64 may have rounded.
    """
    if pa.types.is_struct(wanted):
        return _struct(values, wanted, exact=exact)
    if pa.types.is_list(wanted):
        return _list(values, wanted, values.values, wanted.value_type, exact=exact)
    if pa.types.is_map(wanted):
        entries = pa.StructArray.from_arrays([values.keys, values.items], _ENTRY)
        of = pa.struct(list(zip(_ENTRY, (pa.string(), wanted.item_type), strict=True)))
        return _list(values, wanted, entries, of, exact=exact)
    if pa.types.is_floating(wanted):
        return _checked_floats(values, exact=exact and pa.types.is_float64(wanted))
    return _scalars(values, wanted)


def _scalars(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(wanted):
        return _narrowed(values, wanted)
    if pa.types.is_binary(wanted):
        return _decoded_base64(values)
    return _cast_times(values, wanted) if _is_text(wanted) else values


def _struct(values: pa.StructArray, wanted: pa.StructType, *, exact: bool) -> pa.Array:
    children = []
    # Flattened: null where the struct is, where a child may hold anything.
    for child, field in zip(values.flatten(), wanted, strict=True):
        try:
            children.append(typed(child, field.type, exact=exact))
        except UnfitValue as exc:
            exc.path.append(f".{field.name}")
            raise
    return _with_children(values, wanted, values.buffers()[:1], children)


def _list(
    values: pa.Array, wanted: pa.DataType, inner: pa.Array, of: pa.DataType, *, exact: bool
) -> pa.Array:
    try:
        child = typed(inner, of, exact=exact)
    except UnfitValue as exc:
        exc.path.append("[]")
        raise
    return _with_children(values, wanted, values.buffers()[:2], [child])


def _narrowed(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid as exc:
        raise UnfitValue(f"a number has more digits than {wanted}") from exc


def _with_children(
    values: pa.Array, wanted: pa.DataType, buffers: list[pa.Buffer], children: list[pa.Array]
) -> pa.Array:
    of = delivered_type(wanted)
    return pa.Array.from_buffers(of, len(values), buffers, values.null_count, children=children)


def _checked_floats(values: pa.Array, *, exact: bool) -> pa.Array:
    if not pc.all(pc.is_finite(values)).as_py() and len(values) > values.null_count:
        raise UnfitValue(f"a number is out of range of {values.type}")
    if exact and pc.any(pc.greater_equal(pc.abs(values), _FLOAT_INTEGERS)).as_py():
        raise UnfitValue("an integer may be rounded")
    return values


def _cast_times(texts: pa.StringArray, wanted: pa.DataType) -> pa.Array:
    values, reasons = cast_texts(texts, wanted)
    for reason in reasons.values():
        raise UnfitValue(reason)
    return values


def _decoded_base64(texts: pa.StringArray) -> pa.BinaryArray:
    try:
        found = [
            None if text is None else base64.b64decode(text, validate=True)
            for text in texts.to_pylist()
        ]
    except (binascii.Error, ValueError) as exc:
        raise UnfitValue(f"no base64: {exc}") from exc
    return pa.array(found, pa.binary())
