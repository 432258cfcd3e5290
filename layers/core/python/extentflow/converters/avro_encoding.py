"""Write Arrow columns in Avro's binary encoding, by the Arrow type and the Avro schema of each.

A writer is chosen once per column, for the schema that the registry holds. That schema may differ
from the one of the Arrow type: fields in another order, null or not, wider numbers and units. Every
value stays what it is. All else is refused by name.

Tests: unit/converters/test_avro_converter.py
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from extentflow.arrays.buffers import RowErrors, corrupt_rows, validity
from extentflow.arrays.encodings import is_text, plain_type
from extentflow.arrays.interleave import Blobs, Constant, Piece, fixed_words, masked, varints
from extentflow.arrays.nested import LISTS, map_entries, require_unique_keys
from extentflow.converters.avro_defaults import default_bytes
from extentflow.converters.avro_scalars import ColumnMismatch, Target, scalar_writer
from extentflow.converters.avro_schema import Schema
from extentflow.converters.row_writers import (
    EVERY_ROW,
    Members,
    Rows,
    Writer,
    encoded_writer,
    entry_writer,
    write_items,
)
from extentflow.errors import IncompatibleSchema


def record_writer(fields: Sequence[pa.Field], schema: Schema, path: str, target: Target) -> Members:
    """Return the writer of columns as a record. IncompatibleSchema names what does not fit."""
    if schema.kind != "record":
        raise IncompatibleSchema(f"it is {schema}, and values are records; use another subject")
    before = f"{path}." if path else ""
    columns = dict(zip(target.names.fields([f.name for f in fields], path), fields, strict=True))
    known = {one.name for one in schema.fields}
    if extra := [columns[name].name for name in columns if name not in known]:
        raise IncompatibleSchema(
            f"it has no field for column '{before}{extra[0]}'; add the field, or drop the column"
            " by select or ReplaceField"
        )
    order = list(columns)
    parts: list[tuple[int | bytes, str, Writer | None]] = []
    for one in schema.fields:
        if one.name in columns:
            found = columns[one.name]
            write = column_writer(found.type, one.type, before + found.name, target)
            parts.append((order.index(one.name), f"{found.name}: ", write))
        else:
            parts.append((default_bytes(one, before), "", None))

    def write_record(arrays: Sequence[pa.Array], rows: Rows) -> list[Piece]:
        pieces: list[Piece] = []
        with RowErrors() as errors:
            for source, label, write in parts:
                if isinstance(source, bytes) or write is None:
                    pieces.append(Constant(bytes(source)))
                    continue
                with errors.collect(label):
                    pieces += write(arrays[source], rows)
        return pieces

    return write_record


def column_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of a column as the schema says. IncompatibleSchema names the column."""
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        values = column_writer(data_type.value_type, schema, path, target)
        return encoded_writer(values, lambda _: EVERY_ROW)
    if schema.kind == "union":
        return _union_writer(data_type, schema, path, target)
    try:
        return _required(_value_writer(data_type, schema, path, target))
    except ColumnMismatch as exc:
        raise IncompatibleSchema(
            f"column '{path}' has type {data_type}, which is no {schema} without loss; correct"
            " the schema, or cast the column"
        ) from exc


def _required(write: Writer) -> Writer:
    def write_required(array: pa.Array, rows: Rows) -> list[Piece]:
        if array.null_count and array.type != pa.null():
            nulls = ~validity(array) & rows
            if nulls.any():
                raise corrupt_rows(np.flatnonzero(nulls), "null, and its schema has no null")
        return write(array, rows)

    return write_required


def _union_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of a union: nulls as its null, values as the first branch that fits."""
    kinds = [branch.kind for branch in schema.branches]
    null = kinds.index("null") if "null" in kinds else None
    values: Writer | None = None
    chosen = null
    for index, branch in enumerate(schema.branches):
        if index == null and data_type != pa.null():
            continue
        try:
            values = column_writer(data_type, branch, path, target)
        except IncompatibleSchema:
            continue
        chosen = index
        break
    if values is None or chosen is None:
        raise IncompatibleSchema(
            f"column '{path}' has type {data_type}, which is none of {schema} without loss;"
            " correct the schema, or cast the column"
        )
    return _branch_writer(values, chosen, null)


def _branch_writer(write: Writer, chosen: int, null: int | None) -> Writer:
    number, none = 2 * chosen, 2 * (null or 0)

    def write_branch(array: pa.Array, rows: Rows) -> list[Piece]:
        if null is None or array.null_count == 0 or array.type == pa.null():
            return [Constant(bytes([number])), *write(array, rows)]
        valid = validity(array)
        branch = np.where(valid, np.uint64(number), np.uint64(none))
        return [fixed_words(branch, 1), *masked(write(array, valid & rows), valid)]

    return write_branch


def _value_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of values that are not null; ColumnMismatch if the schema differs."""
    if (write := scalar_writer(data_type, schema, target)) is not None:
        return write
    if isinstance(data_type, LISTS) and schema.kind == "array" and schema.inner:
        items = column_writer(data_type.value_type, schema.inner, f"{path}[]", target)
        return _list_writer(items, target.limit_bytes)
    if types.is_struct(data_type) and schema.kind == "record":
        return _struct_writer(data_type, schema, path, target)
    if types.is_map(data_type):
        return _map_writer(data_type, schema, path, target)
    raise ColumnMismatch


# -- nested ---------------------------------------------------------------------------------------


def _struct_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    write = record_writer(fields, schema, path, target)
    # Unlike `field`, flattening makes a child null where its parent is.
    return lambda array, rows: write(array.flatten(), rows & validity(array))


def _list_writer(items: Writer, limit_bytes: int) -> Writer:
    """Return the writer of arrays: one block of all items, and the end, which is an empty block."""

    def write(array: pa.Array, _rows: Rows) -> list[Piece]:
        lists, counts = write_items(array, lambda values: items(values, EVERY_ROW), limit_bytes)
        return [*masked(varints(counts), counts > 0), Blobs(lists), Constant(b"\0")]

    return write


def _map_writer(data_type: pa.MapType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of a map: a map if its keys are text, else an array of entries."""
    if schema.inner is None or schema.kind not in {"map", "array"}:
        raise ColumnMismatch
    if schema.kind == "map" and is_text(plain_type(data_type.key_type)):
        keys = column_writer(data_type.key_type, Schema("string"), f"{path}.key", target)
        values = column_writer(data_type.item_type, schema.inner, f"{path}.value", target)
        write_entries = entry_writer(keys, values)
    elif schema.kind == "array":
        key, value = (("key", data_type.key_type), ("value", data_type.item_type))
        write_entries = column_writer(pa.struct([key, value]), schema.inner, path, target)
    else:
        raise ColumnMismatch
    write_lists = _list_writer(write_entries, target.limit_bytes)

    def write_map(array: pa.MapArray, rows: Rows) -> list[Piece]:
        lists = map_entries(array)
        if schema.kind == "map":
            require_unique_keys(lists, target.limit_bytes)
        return write_lists(lists, rows)

    return write_map
