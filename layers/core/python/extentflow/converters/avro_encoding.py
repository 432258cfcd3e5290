"""Write Arrow columns in Avro's binary encoding, by the Arrow type and the Avro schema of each.

A writer is chosen once per column, for the schema that the registry holds. Where that differs from
the one that the Arrow type itself has, it is written as long as every value stays what it is:
fields in another order, null or not, wider numbers and units. All else is refused by name.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    RowErrors,
    corrupt_rows,
    fixed_width,
    require_limit,
    text_bytes,
    validity,
    value_offsets,
)
from extentflow.arrays.encodings import checked_text, is_binary, is_text, uuid
from extentflow.arrays.interleave import (
    WORD_BYTES,
    Blobs,
    Constant,
    Piece,
    Words,
    big_endian,
    fixed_words,
    join_rows,
    masked,
    taken,
    varints,
    with_lengths,
)
from extentflow.arrays.nested import (
    LISTS,
    distinct_values,
    flattened,
    list_bounds,
    map_entries,
    require_unique_keys,
    rows_of,
)
from extentflow.arrays.scalars import SECONDS_PER_DAY
from extentflow.converters.avro_schema import (
    UUID_BYTES,
    Field,
    Json,
    Schema,
    decimal_shape,
    plain_type,
)
from extentflow.converters.names import Names
from extentflow.errors import CorruptRecord, IncompatibleSchema

# True, or the rows whose values count: others lie in a parent that is null.
Rows: TypeAlias = Any
EVERY_ROW: Rows = True
# Returns the pieces of a column. Raises CorruptRecord for rows without such a value, by their
# ordinals in the array, and OffsetOverflowError. Rows that do not count may have any bytes.
Writer: TypeAlias = Callable[[pa.Array, Rows], list[Piece]]
_INT, _LONG = 32, 64
_MOST_FLOAT_BITS, _MOST_DOUBLE_BITS = 24, 53


@dataclass(frozen=True, slots=True)
class Target:
    """How columns become fields: the names, and the most bytes of one array."""

    names: Names
    limit_bytes: int


class _ColumnMismatch(Exception):  # noqa: N818 - becomes IncompatibleSchema with the column's name
    """A column cannot be written as the schema says."""


def record_writer(
    fields: Sequence[pa.Field], schema: Schema, path: str, target: Target
) -> Callable[[Sequence[pa.Array], Rows], list[Piece]]:
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
            parts.append((_default(one, before), "", None))

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
        return _encoded_writer(data_type, schema, path, target)
    if schema.kind == "union":
        return _union_writer(data_type, schema, path, target)
    try:
        return _required(_value_writer(data_type, schema, path, target))
    except _ColumnMismatch as exc:
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
    """Return the writer of values that are not null; _ColumnMismatch if the schema differs."""
    for recognises, build in _SCALARS:
        if recognises(data_type):
            return build(data_type, schema, target)
    if isinstance(data_type, LISTS) and schema.kind == "array" and schema.inner:
        items = column_writer(data_type.value_type, schema.inner, f"{path}[]", target)
        return _list_writer(items, target.limit_bytes)
    if types.is_struct(data_type) and schema.kind == "record":
        return _struct_writer(data_type, schema, path, target)
    if types.is_map(data_type):
        return _map_writer(data_type, schema, path, target)
    raise _ColumnMismatch


# -- nested ---------------------------------------------------------------------------------------


def _struct_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    fields = [data_type.field(index) for index in range(data_type.num_fields)]
    write = record_writer(fields, schema, path, target)
    # Unlike `field`, flattening makes a child null where its parent is.
    return lambda array, rows: write(array.flatten(), rows & validity(array))


def _list_writer(write_items: Writer, limit_bytes: int) -> Writer:
    def write(array: pa.Array, _rows: Rows) -> list[Piece]:
        bounds = list_bounds(array)
        values = flattened(array, bounds)
        require_limit(len(values) * WORD_BYTES, limit_bytes)
        with RowErrors() as errors, errors.collect("item: ", partial(rows_of, bounds)):
            items = join_rows(write_items(values, EVERY_ROW), len(values), limit_bytes)
        return _blocks(items, bounds)

    return write


def _blocks(items: pa.BinaryArray, bounds: NDArray[np.int64]) -> list[Piece]:
    """Return arrays and maps: one block of all items, and the end, which is an empty block."""
    counts = np.diff(bounds)
    offsets, data = value_offsets(items)[bounds].astype(np.int32), items.buffers()[2]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"") if data is None else data]
    joined = pa.Array.from_buffers(pa.binary(), len(counts), buffers)
    return [*masked(varints(counts), counts > 0), Blobs(joined), Constant(b"\0")]


def _map_writer(data_type: pa.MapType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of a map: a map if its keys are text, else an array of entries."""
    if schema.inner is None or schema.kind not in {"map", "array"}:
        raise _ColumnMismatch
    if schema.kind == "map" and is_text(plain_type(data_type.key_type)):
        keys = column_writer(data_type.key_type, Schema("string"), f"{path}.key", target)
        values = column_writer(data_type.item_type, schema.inner, f"{path}.value", target)
        write_entries = _entry_writer((keys, values))
    elif schema.kind == "array":
        key, value = (("key", data_type.key_type), ("value", data_type.item_type))
        write_entries = column_writer(pa.struct([key, value]), schema.inner, path, target)
    else:
        raise _ColumnMismatch
    write_lists = _list_writer(write_entries, target.limit_bytes)

    def write_map(array: pa.MapArray, rows: Rows) -> list[Piece]:
        lists = map_entries(array)
        if schema.kind == "map":
            require_unique_keys(lists, target.limit_bytes)
        return write_lists(lists, rows)

    return write_map


def _entry_writer(writers: Sequence[Writer]) -> Writer:
    def write(array: pa.StructArray, rows: Rows) -> list[Piece]:
        pieces: list[Piece] = []
        with RowErrors() as errors:
            for write_part, part in zip(writers, array.flatten(), strict=True):
                with errors.collect():
                    pieces += write_part(part, rows)
        return pieces

    return write


def _encoded_writer(data_type: pa.DataType, schema: Schema, path: str, target: Target) -> Writer:
    """Return the writer of dictionary and run-end-encoded arrays: each distinct value once."""
    write_values = column_writer(data_type.value_type, schema, path, target)

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        values, indices = distinct_values(array)
        if indices.null_count or len(values) == 0:
            # A null is a value, too.
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
            indices = pc.fill_null(indices.cast(pa.int64()), len(values) - 1)
        try:
            return taken(write_values(values, EVERY_ROW), indices.to_numpy())
        except CorruptRecord:
            # A dictionary may hold entries that no row uses.
            return write_values(values.take(indices), rows)

    return write


# -- scalars --------------------------------------------------------------------------------------


def numbers(array: pa.Array) -> NDArray[np.int64]:
    """Return the integers that a fixed-width array holds; null slots are undefined."""
    data_type = array.type
    width = data_type.bit_width // 8
    signed = not types.is_unsigned_integer(data_type)
    values = fixed_width(array, np.dtype(f"{'i' if signed else 'u'}{width}"))
    return values.astype(np.int64, copy=False)


def _integers(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    bits = data_type.bit_width
    # An unsigned one needs a sign bit more.
    needed = bits + 1 if types.is_unsigned_integer(data_type) else bits
    if schema.kind in {"int", "long"} and not schema.logical:
        if needed <= (_INT if schema.kind == "int" else _LONG):
            return lambda array, _rows: varints(numbers(array))
    elif schema.kind == "double" and bits <= _MOST_DOUBLE_BITS:
        return lambda array, _rows: _doubles(numbers(array).astype(np.float64))
    elif schema.kind == "float" and bits <= _MOST_FLOAT_BITS:
        return lambda array, _rows: _singles(numbers(array).astype(np.float32))
    raise _ColumnMismatch


def _doubles(values: NDArray[np.float64]) -> list[Piece]:
    return [fixed_words(values.view(np.uint64), 8)]


def _singles(values: NDArray[np.float32]) -> list[Piece]:
    return [fixed_words(values.view(np.uint32).astype(np.uint64), 4)]


def _floats(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    if schema.kind == "double":
        return lambda array, _rows: _doubles(
            fixed_width(array, dtype).astype(np.float64, copy=False)
        )
    if schema.kind == "float" and dtype.itemsize <= np.dtype(np.float32).itemsize:
        return lambda array, _rows: _singles(fixed_width(array, dtype).astype(np.float32))
    raise _ColumnMismatch


def _booleans(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "boolean":
        raise _ColumnMismatch
    return lambda array, _rows: [
        fixed_words(numbers(array.cast(pa.bool_()).cast(pa.uint8())).view(np.uint64), 1)
    ]


def _nulls(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "null":
        raise _ColumnMismatch
    return lambda _array, _rows: []


_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LOGICAL_TICKS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def _dates(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    if (schema.kind, schema.logical) != ("int", "date"):
        raise _ColumnMismatch
    if types.is_date32(data_type):
        return lambda array, _rows: varints(numbers(array))

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        # Arrow's format asks for whole days in a date64; nothing makes an array hold to it.
        days, rest = np.divmod(numbers(array), SECONDS_PER_DAY * 1_000)
        _reject((rest != 0) & rows & validity(array), "a date64 with a time of day")
        return varints(days)

    return write


def _times(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    if (schema.kind, schema.logical) not in {("int", "time-millis"), ("long", "time-micros")}:
        raise _ColumnMismatch
    least, most = _TICKS[data_type.unit], _LOGICAL_TICKS[schema.logical.removeprefix("time-")]
    if most < least and data_type.unit != "ns":
        raise _ColumnMismatch
    per_day = SECONDS_PER_DAY * least

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        ticks, counted = numbers(array), rows & validity(array)
        odd = ((ticks < 0) | (ticks >= per_day)) & counted
        _reject(odd, f"not a time of day, counted in {data_type.unit}")
        if most >= least:
            return varints(ticks * (most // least))
        ticks, rest = np.divmod(ticks, least // most)
        _reject((rest != 0) & counted, "nanoseconds, and Avro has times in microseconds")
        return varints(ticks)

    return write


def _timestamps(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    local = "local-" if data_type.tz is None else ""
    start = f"{local}timestamp-"
    if not schema.logical.startswith(start):
        raise _ColumnMismatch
    least, most = _TICKS[data_type.unit], _LOGICAL_TICKS[schema.logical.removeprefix(start)]
    if most < least:
        raise _ColumnMismatch
    factor = most // least

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        ticks = numbers(array)
        if factor > 1:
            bound = (2**63 - 1) // factor
            odd = ((ticks > bound) | (ticks < -bound)) & rows & validity(array)
            _reject(odd, f"an instant beyond {schema.logical}")
        return varints(ticks * factor)

    return write


def _reject(odd: Any, reason: str) -> None:  # noqa: ANN401 - a mask
    if odd.any():
        raise corrupt_rows(np.flatnonzero(odd), reason)


def _durations(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind != "long" or schema.logical:
        raise _ColumnMismatch
    return lambda array, _rows: varints(numbers(array))


def _decimals(data_type: pa.DataType, schema: Schema, _: Target) -> Writer:
    precision, scale = decimal_shape(data_type)
    fits = schema.logical == "decimal" and schema.scale == scale
    if not fits or schema.precision < precision:
        raise _ColumnMismatch
    fixed = schema.size if schema.kind == "fixed" else 0

    def write(array: pa.Array, _rows: Rows) -> list[Piece]:
        words = decimal_words(array)
        sign = (words[0] >> np.uint64(63)).astype(np.bool_)
        if types.is_uint64(array.type):
            words = [np.zeros(len(array), np.uint64), *words]
            sign = np.zeros(len(array), np.bool_)
        if fixed:
            return _sign_extended(words, sign, fixed)
        return _sized(big_endian(words, sign))

    return write


def decimal_words(array: pa.Array) -> list[NDArray[np.uint64]]:
    """Return the 64-bit words of unscaled values, the most significant one first."""
    if types.is_uint64(array.type):
        return [fixed_width(array, np.dtype(np.uint64))]
    data_type = array.type
    if data_type.scale < 0:
        array = array.cast(pa.decimal256(*decimal_shape(data_type)))
    elif data_type.bit_width < _LONG:
        return [fixed_width(array, np.dtype(np.int32)).astype(np.int64).view(np.uint64)]
    count = array.type.bit_width // _LONG
    if count == 1:
        return [fixed_width(array, np.dtype(np.uint64))]
    words = fixed_width(array, np.dtype((np.uint64, count)))
    return [np.ascontiguousarray(words[:, place]) for place in reversed(range(count))]


def _sized(pieces: list[Piece]) -> list[Piece]:
    """Return pieces of few bytes with their length in front."""
    total = np.sum([piece.lengths for piece in pieces if isinstance(piece, Words)], axis=0)
    return [fixed_words(2 * total.astype(np.uint64), 1), *pieces]


def _sign_extended(
    words: list[NDArray[np.uint64]], sign: NDArray[np.bool_], size: int
) -> list[Piece]:
    """Return two's complement numbers of `size` bytes, most significant byte first."""
    fill = np.where(sign, np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0))
    count, rest = divmod(size, WORD_BYTES)
    while len(words) < count + bool(rest):
        words = [fill, *words]
    words = words[len(words) - count - bool(rest) :]
    made: list[Piece] = []
    if rest:
        unused = np.uint64(8 * (WORD_BYTES - rest))
        made.append(fixed_words(words[0].byteswap() >> unused, rest))
    return [*made, *(fixed_words(word.byteswap(), WORD_BYTES) for word in words[bool(rest) :])]


# -- text and bytes -------------------------------------------------------------------------------


def _texts(_: pa.DataType, schema: Schema, target: Target) -> Writer:
    limit = target.limit_bytes
    if schema.kind == "enum":
        return _enum_writer(schema, limit)
    if schema.kind == "string" and not schema.logical:
        return lambda array, _rows: _with_lengths(checked_text(array, limit).cast(pa.binary()))
    if schema.kind == "bytes" and not schema.logical:
        return lambda array, _rows: _with_lengths(_binary(array, limit))
    raise _ColumnMismatch


def _bytes(_: pa.DataType, schema: Schema, target: Target) -> Writer:
    if schema.kind != "bytes" or schema.logical:
        raise _ColumnMismatch
    return lambda array, _rows: _with_lengths(_binary(array, target.limit_bytes))


def _binary(array: pa.Array, limit_bytes: int) -> pa.BinaryArray:
    require_limit(text_bytes(array), limit_bytes)
    return array.cast(pa.binary())


def _fixed(data_type: pa.DataType, schema: Schema, target: Target) -> Writer:
    size, limit = data_type.byte_width, target.limit_bytes

    def binary(array: pa.Array) -> pa.BinaryArray:
        require_limit(len(array) * size, limit)
        return array.cast(pa.binary())

    if schema.kind == "fixed" and schema.size == size and not schema.logical:
        return lambda array, _rows: [Blobs(binary(array))]
    if schema.kind == "bytes" and not schema.logical:
        return lambda array, _rows: _with_lengths(binary(array))
    raise _ColumnMismatch


def _uuids(_: pa.DataType, schema: Schema, __: Target) -> Writer:
    if schema.kind == "string":
        return lambda array, _rows: _with_lengths(uuid(array.storage).cast(pa.binary()))
    if schema.kind == "fixed" and schema.size == UUID_BYTES and schema.logical != "decimal":
        return lambda array, _rows: [Blobs(array.storage.cast(pa.binary()))]
    raise _ColumnMismatch


def _enum_writer(schema: Schema, limit_bytes: int) -> Writer:
    symbols = pa.array(schema.symbols, pa.string())

    def write(array: pa.Array, rows: Rows) -> list[Piece]:
        found = pc.index_in(checked_text(array, limit_bytes), symbols)
        unknown = pc.is_null(found).to_numpy(zero_copy_only=False) & rows & validity(array)
        _reject(unknown, f"none of the symbols of {schema.name}")
        return varints(pc.fill_null(found, 0).to_numpy().astype(np.int64))

    return write


def _with_lengths(values: pa.BinaryArray) -> list[Piece]:
    return with_lengths(values, varints)


_Build: TypeAlias = Callable[[pa.DataType, Schema, Target], Writer]
_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (types.is_null, _nulls),
    (types.is_boolean, _booleans),
    (types.is_uint64, _decimals),
    (types.is_integer, _integers),
    (types.is_floating, _floats),
    (types.is_decimal, _decimals),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_timestamp, _timestamps),
    (types.is_duration, _durations),
    (is_text, _texts),
    (types.is_fixed_size_binary, _fixed),
    (is_binary, _bytes),
    (lambda kind: isinstance(kind, pa.UuidType), _uuids),
    (lambda kind: isinstance(kind, pa.Bool8Type), _booleans),
    (
        lambda kind: isinstance(kind, pa.JsonType),
        lambda kind, schema, target: _storage(_texts(kind.storage_type, schema, target)),
    ),
)


def _storage(write: Writer) -> Writer:
    return lambda array, rows: write(array.storage, rows)


# -- defaults -------------------------------------------------------------------------------------


def _default(one: Field, before: str) -> bytes:
    """Return a field's default as it is written in every record."""
    name = f"{before}{one.name}"
    if not one.has_default:
        raise IncompatibleSchema(
            f"its field '{name}' has no column and no default; add the column, or a default"
        )
    try:
        return _encoded(one.type, one.default)
    except (ValueError, KeyError, RecursionError, struct.error, OverflowError) as exc:
        raise IncompatibleSchema(
            f"the default {json.dumps(one.default)} of its field '{name}' is no {one.type};"
            " correct it"
        ) from exc


def _encoded(schema: Schema, value: Json) -> bytes:
    """Return a value as JSON defaults have it, in Avro's encoding; ValueError where it has none."""
    if schema.kind == "union":
        # The default is that of the first branch, or since Avro 1.12 of any.
        for index, branch in enumerate(schema.branches):
            with suppress(ValueError, struct.error, OverflowError):
                return _varint(index) + _encoded(branch, value)
        raise ValueError("no branch has this value")
    of_type, write = _DEFAULTS[schema.kind]
    if type(value) not in of_type:
        raise ValueError("JSON of another type")
    return write(schema, value)


def _default_record(schema: Schema, value: Mapping[str, Json]) -> bytes:
    made = []
    for one in schema.fields:
        if one.name not in value and not one.has_default:
            raise ValueError(f"its member '{one.name}' is missing")
        made.append(_encoded(one.type, value.get(one.name, one.default)))
    return b"".join(made)


def _default_block(items: Sequence[bytes]) -> bytes:
    """Return an array or a map: a block of all items, and the empty one that ends it."""
    return (_varint(len(items)) + b"".join(items) if items else b"") + b"\0"


def _default_items(schema: Schema, value: Sequence[Json]) -> bytes:
    inner = cast("Schema", schema.inner)
    return _default_block([_encoded(inner, one) for one in value])


def _default_entries(schema: Schema, value: Mapping[str, Json]) -> bytes:
    inner = cast("Schema", schema.inner)
    entries = (_with_length(name.encode()) + _encoded(inner, one) for name, one in value.items())
    return _default_block([*entries])


def _default_fixed(schema: Schema, value: str) -> bytes:
    data = value.encode("latin-1")
    if len(data) != schema.size:
        raise ValueError(f"{len(data)} bytes")
    return data


def _default_integer(bits: int, value: int) -> bytes:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"more than {bits} bits")
    return _varint(value)


# By kind: the types of JSON that a default has, and how it is written.
_DEFAULTS: Mapping[str, tuple[tuple[type, ...], Callable[[Schema, Json], bytes]]] = {
    "null": ((type(None),), lambda _, __: b""),
    "boolean": ((bool,), lambda _, value: bytes([value])),
    "int": ((int,), lambda _, value: _default_integer(32, value)),
    "long": ((int,), lambda _, value: _default_integer(64, value)),
    "float": ((int, float), lambda _, value: struct.pack("<f", value)),
    "double": ((int, float), lambda _, value: struct.pack("<d", value)),
    "string": ((str,), lambda _, value: _with_length(value.encode())),
    "bytes": ((str,), lambda _, value: _with_length(value.encode("latin-1"))),
    "fixed": ((str,), _default_fixed),
    "enum": ((str,), lambda schema, value: _varint(schema.symbols.index(value))),
    "array": ((list,), _default_items),
    "map": ((dict,), _default_entries),
    "record": ((dict,), _default_record),
}


def _varint(number: int) -> bytes:
    bits, made = (number << 1) ^ (number >> 63), bytearray()
    while bits > 0x7F:  # noqa: PLR2004 - seven bits per byte
        made.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*made, bits])


def _with_length(data: bytes) -> bytes:
    return _varint(len(data)) + data
