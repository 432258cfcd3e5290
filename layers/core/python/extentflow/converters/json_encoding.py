"""Convert rows to JSON objects on columns; docs/json.md lists the JSON form of each type.

A writer per column, chosen once per schema, turns the column into pieces of text. Children of
nested types are written first, as whole columns, and assembled by offset arithmetic. Rows are never
iterated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import (
    MAX_TEXT_BYTES,
    RowErrors,
    convert_in_halves,
    corrupt_record,
    require_limit,
    require_unique,
    text_bytes,
)
from extentflow.arrays.concat import Piece, TextCache, concat_pieces, enclose, take_texts
from extentflow.arrays.encodings import (
    base64,
    checked_text,
    escape_json,
    is_binary,
    is_text,
    no_exact_form,
)
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.arrays.nested import (
    LISTS,
    distinct_values,
    flattened,
    list_bounds,
    map_entries,
    require_unique_keys,
    rows_of,
)
from extentflow.arrays.scalars import Forms, TextForm, all_finite, text_form
from extentflow.converters import Converter
from extentflow.errors import CorruptRecord

# Writes the values of one type: called with an array and a lead, it returns pieces that together
# read the lead and the value's JSON, row by row. Raises CorruptRecord for values without a JSON
# form, by their ordinals in the array, and OffsetOverflowError.
Writer: TypeAlias = Callable[[pa.Array, str], Sequence[Piece]]


def _is_name(data_type: pa.DataType) -> bool:
    return is_text(data_type.value_type if types.is_dictionary(data_type) else data_type)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How JSON is written: at most `limit_bytes`, scalars in their `forms`, maps as objects or not.

    A map is an object if `is_name` accepts the type of its keys, else a list of entries. `pairs`:
    an entry is `[key, value]`, not an object with these members, and no key is there twice.
    """

    limit_bytes: int
    forms: Forms = text_form
    is_name: Callable[[pa.DataType], bool] = _is_name
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The members of JSON objects: one name and one writer per column."""

    names: tuple[str, ...]
    writers: tuple[Writer, ...]

    def pieces(self, columns: Sequence[pa.Array], lead: str, rows: int) -> list[Piece]:
        """Return the pieces of one object per row; every member is there, null or not.

        Raises one CorruptRecord for all columns, whose reasons name the members.
        """
        if not columns:  # the rows of a struct without members, which no column counts
            return [Piece(lead, pa.repeat(pa.scalar("{}", pa.string()), rows))]
        pieces: list[Piece] = []
        before = lead + "{"
        with RowErrors() as errors:
            for name, write, column in zip(self.names, self.writers, columns, strict=True):
                with errors.collect(f"{name}: "):
                    pieces += write(column, f"{before}{orjson.dumps(name).decode()}:")
                before = ","
        # A tail, as the last value may be several pieces.
        pieces[-1] = replace(pieces[-1], tail=pieces[-1].tail + "}")
        return pieces


def json_converter(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, limit_bytes: int = MAX_TEXT_BYTES
) -> Converter:
    """Return the converter of `columns` (None: all) to one JSON object per row, never null.

    UnsupportedType names a column without an exact JSON form, its type and what to do.
    """
    chosen = ConvertedColumns.select(schema, columns)
    return partial(convert_in_halves, json_rows(chosen, Dialect(limit_bytes)))


def json_rows(
    chosen: ConvertedColumns, dialect: Dialect, opening: str = "", closing: str = ""
) -> Callable[[pa.RecordBatch], pa.BinaryArray]:
    """Return what writes a batch as one JSON object per row, or raises OffsetOverflowError.

    `opening` and `closing` surround every object.
    """
    members = _members(chosen.fields, "", dialect)

    def write(batch: pa.RecordBatch) -> pa.BinaryArray:
        pieces = members.pieces(chosen.of(batch), "", batch.num_rows)
        # Not as the lead of a column, which texts that are kept begin with.
        pieces[0] = replace(pieces[0], lead=opening + pieces[0].lead)
        pieces[-1] = replace(pieces[-1], tail=pieces[-1].tail + closing)
        return concat_pieces(pieces, dialect.limit_bytes).cast(pa.binary())

    return write


def _members(fields: Sequence[pa.Field], path: str, dialect: Dialect) -> Members:
    names = tuple(field.name for field in fields)
    # JSON permits repeated names, but parsers keep different ones of them (RFC 8259, section 4).
    require_unique(names, f"members of column '{path}'" if path else "columns")
    before = f"{path}." if path else ""
    writers = (_writer(field.type, before + field.name, dialect) for field in fields)
    return Members(names, tuple(writers))


def _writer(data_type: pa.DataType, path: str, dialect: Dialect) -> Writer:
    form = dialect.forms(data_type)
    if form is not None:
        write = scalar_writer(form, dialect.limit_bytes)
        return _finite_writer(write) if types.is_floating(data_type) else write
    for recognises, build in _BUILDERS:
        if recognises(data_type):
            return build(data_type, path, dialect)
    raise no_exact_form(path, data_type, "JSON form")


def scalar_writer(form: TextForm, limit_bytes: int) -> Writer:
    """Return the writer of a type with a text form: bare where JSON has such values, else quoted.

    Takes the texts from a table where the form has ordinals and the values are few.
    """
    cache = TextCache(form.ordinals, limit_bytes) if form.ordinals else None

    def render(array: pa.Array, lead: str) -> Piece:
        text = form.render(array)
        if form.number:
            return Piece(lead, text)
        return enclose(lead, f'"{form.prefix}', text, f'{form.suffix}"')

    def write(array: pa.Array, lead: str) -> Sequence[Piece]:
        require_limit(len(array) * form.width, limit_bytes)
        taken = cache and cache.piece(array, lead, lambda values: render(values, lead))
        return (taken or render(array, lead),)

    return write


def _finite_writer(write_finite: Writer) -> Writer:
    def write(array: pa.Array, lead: str) -> Sequence[Piece]:
        # JSON has no NaN and no infinities (RFC 8259, section 6): they are null.
        if not all_finite(array):
            array = pc.if_else(pc.is_finite(array), array, None)
        return write_finite(array, lead)

    return write


def _text_writer(_: pa.DataType, _path: str, dialect: Dialect) -> Writer:
    limit_bytes = dialect.limit_bytes

    def write(array: pa.Array, lead: str) -> Sequence[Piece]:
        text = checked_text(array, limit_bytes)
        return (enclose(lead, '"', escape_json(text, limit_bytes), '"'),)

    return write


def _bytes_writer(_: pa.DataType, _path: str, dialect: Dialect) -> Writer:
    return lambda array, lead: (enclose(lead, '"', base64(array, dialect.limit_bytes), '"'),)


def _object_writer(members: Members, limit_bytes: int) -> Writer:
    def write(array: pa.StructArray, lead: str) -> Sequence[Piece]:
        # Unlike `field`, flattening makes a child null where its parent is.
        columns = array.flatten()
        if array.null_count == 0:
            return members.pieces(columns, lead, len(array))
        text = concat_pieces(members.pieces(columns, "", len(array)), limit_bytes)
        return (Piece(lead, pc.if_else(pc.is_valid(array), text, None)),)

    return write


def _items_writer(
    write_items: Writer, limit_bytes: int, opening: str = "[", closing: str = "]"
) -> Writer:
    def write(array: pa.Array, lead: str) -> Sequence[Piece]:
        bounds = list_bounds(array)
        values = flattened(array, bounds)
        require_limit(len(values), limit_bytes)
        with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
            text = concat_pieces(write_items(values, ""), limit_bytes)
        # The join adds at most one comma per item.
        require_limit(text_bytes(text) + len(values), limit_bytes)
        offsets = pa.array(bounds.astype(np.int32))
        lists = pa.ListArray.from_arrays(
            offsets, text, mask=pc.is_null(array) if array.null_count else None
        )
        return (enclose(lead, opening, pc.binary_join(lists, ","), closing),)

    return write


def _map_writer(data_type: pa.MapType, path: str, dialect: Dialect) -> Writer:
    """Return the writer of a map: an object, or a list of entries."""
    limit_bytes, has_names = dialect.limit_bytes, dialect.is_name(data_type.key_type)
    key = _writer(data_type.key_type, f"{path}.key", dialect)
    value = _writer(data_type.item_type, f"{path}.value", dialect)
    if has_names:
        write_entries = _items_writer(_entry_writer(key, value), limit_bytes, "{", "}")
    elif dialect.pairs:
        write_entries = _items_writer(_pair_writer(key, value), limit_bytes)
    else:
        entry = _object_writer(Members(("key", "value"), (key, value)), limit_bytes)
        write_entries = _items_writer(entry, limit_bytes)

    def written(keys: pa.Array) -> pa.StringArray:
        return concat_pieces(key(keys, ""), limit_bytes)

    def write(array: pa.MapArray, lead: str) -> Sequence[Piece]:
        lists = map_entries(array)
        with RowErrors() as errors:
            if has_names or dialect.pairs:
                with errors.collect():
                    require_unique_keys(lists, limit_bytes, written if dialect.pairs else None)
            with errors.collect():
                pieces = write_entries(lists, lead)
        return pieces

    return write


def _pair_writer(write_key: Writer, write_value: Writer) -> Writer:
    write_entries = _entry_writer(write_key, write_value, ",")

    def write(array: pa.StructArray, lead: str) -> Sequence[Piece]:
        *pieces, last = write_entries(array, lead + "[")
        return [*pieces, replace(last, tail=last.tail + "]")]

    return write


def _entry_writer(write_key: Writer, write_value: Writer, between: str = ":") -> Writer:
    def write(array: pa.StructArray, lead: str) -> Sequence[Piece]:
        keys, values = array.flatten()
        pieces: list[Piece] = []
        with RowErrors() as errors:
            with errors.collect():
                pieces += write_key(keys, lead)
            with errors.collect():
                pieces += write_value(values, between)
        return pieces

    return write


def _encoded_writer(data_type: pa.DataType, path: str, dialect: Dialect) -> Writer:
    """Return the writer of dictionary and run-end-encoded arrays: each distinct value once."""
    write_values, limit_bytes = _writer(data_type.value_type, path, dialect), dialect.limit_bytes

    def write(array: pa.Array, lead: str) -> Sequence[Piece]:
        values, indices = distinct_values(array)
        entries = _write_entries(write_values, values, indices, lead)
        texts = concat_pieces(entries, limit_bytes)
        return (Piece("", take_texts(texts, lead, indices, limit_bytes)),)

    return write


def _write_entries(
    write_values: Writer, values: pa.Array, indices: pa.Array, lead: str
) -> Sequence[Piece]:
    try:
        return write_values(values, lead)
    except CorruptRecord as exc:
        bad = exc
    # A dictionary may hold entries that no row uses, such as those of a slice's neighbours.
    used = pc.fill_null(indices.cast(pa.int64()), -1).to_numpy()
    rows = np.flatnonzero(np.isin(used, list(bad.rows)))
    if len(rows):
        raise corrupt_record({int(row): bad.rows[int(used[row])] for row in rows}) from bad
    # No row refers to the bad entries, so that null can replace them.
    parts = []
    start = 0
    for entry in bad.rows:
        parts += [values.slice(start, entry - start), pa.nulls(1, values.type)]
        start = entry + 1
    return write_values(pa.concat_arrays([*parts, values.slice(start)]), lead)


def _storage_writer(data_type: pa.DataType, path: str, dialect: Dialect) -> Writer:
    write_storage = _writer(data_type.storage_type, path, dialect)
    return lambda array, lead: write_storage(array.storage, lead)


_Build: TypeAlias = Callable[[pa.DataType, str, Dialect], Writer]
_BUILDERS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (is_text, _text_writer),
    (is_binary, _bytes_writer),
    (
        types.is_struct,
        lambda struct, path, dialect: _object_writer(
            _members(tuple(struct), path, dialect), dialect.limit_bytes
        ),
    ),
    (
        lambda data_type: isinstance(data_type, LISTS),
        lambda lists, path, dialect: _items_writer(
            _writer(lists.value_type, f"{path}[]", dialect), dialect.limit_bytes
        ),
    ),
    (types.is_map, _map_writer),
    (types.is_dictionary, _encoded_writer),
    (types.is_run_end_encoded, _encoded_writer),
    (lambda data_type: isinstance(data_type, pa.JsonType), _storage_writer),
)
