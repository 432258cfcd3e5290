"""Transforms of the columns of values or keys: rename, drop, cast, mask, nest and flatten.

Each is computed on columns, never row by row. Columns are named exactly; a name that a batch lacks
is an error, because a transform that does nothing misleads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import (
    Columns,
    RowErrors,
    corrupt_record,
    extension_name,
    require_unique,
)
from extentflow.arrays.casts import (
    ArrayFunction,
    exact_cast,
    exact_scalar,
    failing_rows,
    local_times,
)
from extentflow.arrays.encodings import is_text
from extentflow.config.column_lists import CASTS, NAMES, RENAMES, Schema, arrow_type
from extentflow.config.specs import TransformSpec
from extentflow.config.table import key
from extentflow.config.types import EXACT, TEXT
from extentflow.errors import UnsupportedType
from extentflow.transforms import NO_KEY, Rows
from extentflow.wording import shown_bytes

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(slots=True)
class OnColumns:
    """A transform of one side's columns. `bind` returns the function for a schema."""

    bind: Callable[[pa.Schema], BatchFunction]
    on_key: bool
    _bound: tuple[pa.Schema, BatchFunction] | None = field(default=None, init=False)

    def __call__(self, rows: Rows) -> Rows:
        """Return the rows with the side's columns changed."""
        batch = rows.keys if self.on_key else rows.values
        if batch is None:
            raise UnsupportedType(NO_KEY)
        if self._bound is None or not self._bound[0].equals(batch.schema):
            self._bound = (batch.schema, self.bind(batch.schema))
        changed = self._bound[1](batch)
        return replace(rows, keys=changed) if self.on_key else replace(rows, values=changed)


def column_transform(
    bind: Callable[[pa.Schema, Any], BatchFunction],
) -> Callable[[Any, bool], OnColumns]:
    """Return what opens a transform of columns; `bind` takes a schema and the options."""

    def open_for(options: object, on_key: bool) -> OnColumns:  # noqa: FBT001 - of the specification
        return OnColumns(lambda schema: bind(schema, options), on_key)

    return open_for


def with_columns(
    schema: pa.Schema, functions: Mapping[int, tuple[pa.Field, ArrayFunction]]
) -> BatchFunction:
    """Return the function that replaces columns, by index, and keeps all others."""
    fields = [functions[at][0] if at in functions else each for at, each in enumerate(schema)]
    changed = pa.schema(fields)

    def apply(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = list(batch.columns)
        with RowErrors() as errors:
            for at, (new, function) in functions.items():
                with errors.collect(f"column '{new.name}': "):
                    arrays[at] = function(arrays[at])
        return pa.RecordBatch.from_arrays(arrays, schema=changed)

    return apply


# -- ReplaceField ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceFieldOptions:
    """The keys of ReplaceField."""

    include: tuple[str, ...] = key(NAMES, "Keep only these columns, in this order.", default=())
    exclude: tuple[str, ...] = key(NAMES, "Drop these columns.", default=())
    renames: tuple[tuple[str, str], ...] = key(
        RENAMES, "`old:new,old:new`, after `include` and `exclude`.", default=()
    )


def _replace_field(schema: pa.Schema, options: ReplaceFieldOptions) -> BatchFunction:
    dropped = Columns.select(schema, options.exclude).indices
    chosen = Columns.select(schema, options.include).indices if options.include else None
    order = range(len(schema)) if chosen is None else chosen
    kept = [at for at in order if at not in dropped]
    if not kept:
        raise UnsupportedType("it drops all columns; keep at least one")
    new = dict(options.renames)
    known = [schema.field(at).name for at in kept]
    for old in new:
        if old not in known:
            raise UnsupportedType(f"renames: there is no column '{old}' among those it keeps")
    renamed = [new.get(name, name) for name in known]
    require_unique(renamed, "columns")
    return lambda batch: pa.RecordBatch.from_arrays(
        [batch.column(at) for at in kept],
        schema=pa.schema(
            [schema.field(at).with_name(name) for at, name in zip(kept, renamed, strict=True)]
        ),
    )


# -- Cast ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CastOptions:
    """The keys of Cast."""

    spec: Schema = key(
        CASTS, "`column:type,column:type`; types as in `csv.schema`, and `boolean`.", required=True
    )


def _cast(schema: pa.Schema, options: CastOptions) -> BatchFunction:
    names = [name for name, _ in options.spec]
    indices = Columns.select(schema, names).indices
    functions = {}
    for at, (name, target) in zip(indices, options.spec, strict=True):
        function = caster(name, schema.field(at).type, arrow_type(target))
        # Without the name of an extension type: the values are no longer of it.
        made = schema.field(at).with_type(arrow_type(target)).remove_metadata()
        functions[at] = (made, function)
    return with_columns(schema, functions)


def caster(name: str, source: pa.DataType, target: pa.DataType) -> ArrayFunction:
    """Return the exact cast between two types; a value that would change is a bad record.

    Text is written as the converter `string` writes it. UnsupportedType where there is no cast.
    """
    if types.is_date(target):
        require_zone(name, source)
    try:
        cast = exact_cast(source, target)
    except pa.ArrowNotImplementedError as exc:
        remedy = "leave it" if target == pa.string() else "cast it to string first, or leave it"
        raise UnsupportedType(
            f"column '{name}' has type {source}, which cannot become {target}; {remedy}"
        ) from exc
    return lambda array: each_or_bad(array, cast, f"is no {target}")


def each_or_bad(array: pa.Array, function: ArrayFunction, complaint: str) -> pa.Array:
    """Return `function(array)`; if it fails, raise CorruptRecord with the rows that fail alone."""
    try:
        return function(array)
    except (pa.ArrowInvalid, OverflowError):
        rows = failing_rows(array, function)
    if rows:
        raise corrupt_record({row: f"{shown_value(array[row])} {complaint}" for row in rows})
    return function(array)


def require_zone(name: str, source: pa.DataType) -> None:
    """Raise UnsupportedType for a timestamp whose zone does not exist here."""
    if types.is_dictionary(source):
        require_zone(name, source.value_type)
    if isinstance(source, pa.BaseExtensionType):
        require_zone(name, source.storage_type)
    if not types.is_timestamp(source) or source.tz is None:
        return
    try:
        local_times(pa.array([0], source))
    except pa.ArrowInvalid as exc:
        raise UnsupportedType(
            f"column '{name}' has type {source}, whose zone does not exist here; cast it to"
            f" timestamp({source.unit}) first, which is UTC"
        ) from exc


def shown_value(value: pa.Scalar) -> str:
    """Return the beginning of a value for a message."""
    found: object
    try:
        found = value.as_py()
    except UnicodeDecodeError:
        found = value.as_buffer().to_pybytes()
    except (ValueError, OverflowError):  # Python has no such instant
        found = value.value
    text = shown_bytes(found) if isinstance(found, bytes) else repr(found)
    return text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004 - of a message


# -- MaskField -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFieldOptions:
    """The keys of MaskField."""

    fields: tuple[str, ...] = key(NAMES, "The columns whose values are replaced.", required=True)
    replacement: str | None = key(
        EXACT,
        "The value instead, for text and numbers. A null stays null.",
        shown="empty text, 0, false, the beginning of 1970",
    )


def _mask_field(schema: pa.Schema, options: MaskFieldOptions) -> BatchFunction:
    functions = {}
    for at in Columns.select(schema, options.fields).indices:
        value = _masked(schema.field(at), options.replacement)
        functions[at] = (schema.field(at).with_type(value.type), partial(_replaced, value))
    return with_columns(schema, functions)


def _replaced(value: pa.Scalar, array: pa.Array) -> pa.Array:
    if not array.null_count:
        return pa.repeat(value, len(array))
    return pc.if_else(array.is_valid(), value, pa.scalar(None, value.type))


def _masked(column: pa.Field, replacement: str | None) -> pa.Scalar:
    data_type = column.type
    if types.is_dictionary(data_type):
        data_type = data_type.value_type
    if is_text(data_type):
        return pa.scalar(replacement or "", pa.string())
    if types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type):
        try:
            return exact_scalar(replacement or "0", data_type)
        except pa.ArrowInvalid as exc:
            raise UnsupportedType(
                f"replacement: {replacement!r} is no value of column '{column.name}', whose type"
                f" is {data_type}"
            ) from exc
    if replacement is None and types.is_boolean(data_type):
        return pa.scalar(False)  # noqa: FBT003 - a value
    if replacement is None and types.is_binary(data_type):
        return pa.scalar(b"", data_type)
    if replacement is None and types.is_temporal(data_type) and not types.is_interval(data_type):
        return pa.scalar(0, data_type)
    raise UnsupportedType(
        f"column '{column.name}' has type {data_type}, for which there is no such mask; drop it"
        " with ReplaceField"
    )


# -- Flatten, HoistField, ExtractField -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FlattenOptions:
    """The keys of Flatten."""

    delimiter: str = key(EXACT, "Stands between the names of a struct and its member.", default=".")


def _flatten(schema: pa.Schema, options: FlattenOptions) -> BatchFunction:
    fields: list[pa.Field] = []
    paths: list[tuple[int, ...]] = []
    for at, column in enumerate(schema):
        for path, leaf in _leaves(column, options.delimiter):
            fields.append(leaf)
            paths.append((at, *path))
    _require_some(fields)
    require_unique([each.name for each in fields], "columns")
    flat = pa.schema(fields)
    return lambda batch: pa.RecordBatch.from_arrays(
        [_follow(batch.column(at), path) for at, *path in paths], schema=flat
    )


def _require_some(fields: Sequence[pa.Field]) -> None:
    # Only a column can count rows.
    if not fields:
        raise UnsupportedType("it leaves no columns, because the structs have no members")


def _leaves(column: pa.Field, delimiter: str) -> Iterator[tuple[tuple[int, ...], pa.Field]]:
    if not types.is_struct(column.type) or extension_name(column):
        yield (), column
        return
    for at in range(column.type.num_fields):
        member = column.type.field(at)
        named = member.with_name(f"{column.name}{delimiter}{member.name}")
        # A member is null where its struct is.
        for path, leaf in _leaves(named, delimiter):
            yield (at, *path), leaf.with_nullable(leaf.nullable or column.nullable)


def _follow(array: pa.Array, path: Sequence[int]) -> pa.Array:
    for at in path:
        array = array.flatten()[at]
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class HoistFieldOptions:
    """The keys of HoistField."""

    field: str = key(TEXT, "The column that holds all others as members.", required=True)


def _hoist_field(schema: pa.Schema, options: HoistFieldOptions) -> BatchFunction:
    whole = pa.schema([pa.field(options.field, pa.struct(list(schema)), nullable=False)])
    return lambda batch: pa.RecordBatch.from_arrays([batch.to_struct_array()], schema=whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractFieldOptions:
    """The keys of ExtractField."""

    field: tuple[str, ...] = key(
        NAMES, "The column to keep: its members where it is a struct, else itself.", required=True
    )


def _extract_field(schema: pa.Schema, options: ExtractFieldOptions) -> BatchFunction:
    (at,) = Columns.select(schema, options.field).indices
    column = schema.field(at)
    if not types.is_struct(column.type) or extension_name(column):
        only = pa.schema([column])
        return lambda batch: pa.RecordBatch.from_arrays([batch.column(at)], schema=only)
    members = [column.type.field(index) for index in range(column.type.num_fields)]
    _require_some(members)
    inner = pa.schema([each.with_nullable(each.nullable or column.nullable) for each in members])
    return lambda batch: pa.RecordBatch.from_arrays(batch.column(at).flatten(), schema=inner)


def _extract_problem(options: ExtractFieldOptions) -> str | None:
    return "field: names several columns; write one" if len(options.field) > 1 else None


def _replace_problem(options: ReplaceFieldOptions) -> str | None:
    if not (options.include or options.exclude or options.renames):
        return "changes nothing; write include, exclude or renames"
    return None


REPLACE_FIELD = TransformSpec(
    open=column_transform(_replace_field), options=ReplaceFieldOptions, problem=_replace_problem
)
CAST = TransformSpec(open=column_transform(_cast), options=CastOptions)
MASK_FIELD = TransformSpec(open=column_transform(_mask_field), options=MaskFieldOptions)
FLATTEN = TransformSpec(open=column_transform(_flatten), options=FlattenOptions)
HOIST_FIELD = TransformSpec(open=column_transform(_hoist_field), options=HoistFieldOptions)
EXTRACT_FIELD = TransformSpec(
    open=column_transform(_extract_field), options=ExtractFieldOptions, problem=_extract_problem
)
