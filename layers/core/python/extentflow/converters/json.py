"""Convert rows to JSON objects on columns; docs/json.md lists the JSON form of each type."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.converters.buffers import (
    OFFSET_LIMIT_BYTES,
    Columns,
    convert_in_halves,
    require_limit,
    require_unique,
)
from extentflow.converters.concat import Piece, concat_pieces, enclose
from extentflow.converters.encodings import base64, checked_text, escape_json, is_binary, is_text
from extentflow.converters.nested import (
    EncodedWriter,
    EntryWriter,
    ListWriter,
    MapWriter,
    Members,
    StructWriter,
    Writer,
)
from extentflow.converters.scalars import TextForm, all_finite, text_form
from extentflow.converters.text_cache import TextCache
from extentflow.errors import UnsupportedType


@dataclass(frozen=True, slots=True)
class JsonRows:
    """Converts batches of one schema; made by `json_converter`."""

    columns: Columns
    members: Members
    limit_bytes: int

    def __call__(self, batch: pa.RecordBatch) -> pa.BinaryArray | pa.LargeBinaryArray:
        """Return one JSON object per row, in UTF-8, never null.

        Large where one array with 32-bit offsets could not hold the text of all rows.

        Raises:
            CorruptRecord: rows that hold what no JSON can say: all of them, by their ordinals.
        """
        return convert_in_halves(self._convert, batch)

    def _convert(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        pieces = self.members.pieces(self.columns.of(batch), "", batch.num_rows)
        return concat_pieces(pieces, self.limit_bytes).cast(pa.binary())


def json_converter(
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    limit_bytes: int = OFFSET_LIMIT_BYTES,
) -> JsonRows:
    """Return the converter of `columns` (None: all) to one JSON object per row.

    Raises:
        UnsupportedType: a column has no exact JSON form; names it, its type and the way out.
    """
    chosen = Columns.select(schema, columns)
    return JsonRows(chosen, _members(chosen.fields, "", limit_bytes), limit_bytes)


@dataclass(frozen=True, slots=True)
class ScalarWriter:
    """Writes what has a text form: bare where JSON has such values, else quoted."""

    form: TextForm
    limit_bytes: int
    dense: TextCache | None

    @classmethod
    def of(cls, form: TextForm, limit_bytes: int) -> Self:
        """Return a writer that looks values up where the form allows it."""
        dense = TextCache(form.ordinals, limit_bytes) if form.ordinals else None
        return cls(form, limit_bytes, dense)

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        require_limit(len(array) * self.form.width, self.limit_bytes)
        found = self.dense and self.dense.piece(
            array, lead, lambda values: self._piece(values, lead)
        )
        return (found or self._piece(array, lead),)

    def _piece(self, array: pa.Array, lead: str) -> Piece:
        text, form = self.form.render(array), self.form
        if form.number:
            return Piece(lead, text)
        return enclose(lead, f'"{form.prefix}', text, f'{form.suffix}"')


@dataclass(frozen=True, slots=True)
class FloatWriter:
    """Writes floats; what JSON has no number for is null."""

    finite: ScalarWriter

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        if not all_finite(array):
            array = pc.if_else(pc.is_finite(array), array, None)
        return self.finite(array, lead)


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Writes text, checked and escaped."""

    limit_bytes: int

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        text = checked_text(array, self.limit_bytes)
        return (enclose(lead, '"', escape_json(text, self.limit_bytes), '"'),)


@dataclass(frozen=True, slots=True)
class BytesWriter:
    """Writes bytes as base64."""

    limit_bytes: int

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        return (enclose(lead, '"', base64(array, self.limit_bytes), '"'),)


@dataclass(frozen=True, slots=True)
class ExtensionWriter:
    """Writes an extension type as its storage."""

    storage: Writer

    def __call__(self, array: pa.ExtensionArray, lead: str) -> Sequence[Piece]:
        """See Writer."""
        return self.storage(array.storage, lead)


def _writer(data_type: pa.DataType, path: str, limit_bytes: int) -> Writer:
    if is_text(data_type):
        return TextWriter(limit_bytes)
    if is_binary(data_type):
        return BytesWriter(limit_bytes)
    form = text_form(data_type)
    if form is not None:
        scalar = ScalarWriter.of(form, limit_bytes)
        return FloatWriter(scalar) if pa.types.is_floating(data_type) else scalar
    for recognises, build in _BUILDERS:
        if recognises(data_type):
            return build(data_type, path, limit_bytes)
    raise UnsupportedType(
        f"column '{path}' has type {data_type}, which has no exact JSON form; {_way_out(data_type)}"
    )


def _way_out(data_type: pa.DataType) -> str:
    if pa.types.is_union(data_type):
        return "write a struct with one nullable member per alternative instead"
    if pa.types.is_interval(data_type):
        return "write a duration, or whole months, days and nanoseconds as integers, instead"
    return "write its storage type, or text, instead"


def _members(fields: Sequence[pa.Field], path: str, limit_bytes: int) -> Members:
    names = tuple(field.name for field in fields)
    require_unique(names, f"members of column '{path}'" if path else "columns")
    before = f"{path}." if path else ""
    writers = (_writer(field.type, before + field.name, limit_bytes) for field in fields)
    return Members(names, tuple(writers))


def _struct(data_type: pa.StructType, path: str, limit_bytes: int) -> Writer:
    return StructWriter(_members(tuple(data_type), path, limit_bytes), limit_bytes)


def _list(data_type: pa.DataType, path: str, limit_bytes: int) -> Writer:
    return ListWriter(_writer(data_type.value_type, f"{path}[]", limit_bytes), limit_bytes)


def _map(data_type: pa.MapType, path: str, limit_bytes: int) -> Writer:
    key = _writer(data_type.key_type, f"{path}.key", limit_bytes)
    value = _writer(data_type.item_type, f"{path}.value", limit_bytes)
    if _names_members(data_type.key_type):
        return MapWriter(ListWriter(EntryWriter(key, value), limit_bytes, ("{", "}")), named=True)
    entry = StructWriter(Members(("key", "value"), (key, value)), limit_bytes)
    return MapWriter(ListWriter(entry, limit_bytes), named=False)


def _names_members(key_type: pa.DataType) -> bool:
    return is_text(key_type.value_type if pa.types.is_dictionary(key_type) else key_type)


def _encoded(data_type: pa.DataType, path: str, limit_bytes: int) -> Writer:
    return EncodedWriter(_writer(data_type.value_type, path, limit_bytes), limit_bytes)


def _extension(data_type: pa.DataType, path: str, limit_bytes: int) -> Writer:
    return ExtensionWriter(_writer(data_type.storage_type, path, limit_bytes))


def _is_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(data_type)
        or types.is_large_list(data_type)
        or types.is_fixed_size_list(data_type)
        or types.is_list_view(data_type)
        or types.is_large_list_view(data_type)
    )


def _is_json(data_type: pa.DataType) -> bool:
    return isinstance(data_type, pa.JsonType)


_Recognises = Callable[[pa.DataType], bool]
_Build = Callable[[pa.DataType, str, int], Writer]
_BUILDERS: tuple[tuple[_Recognises, _Build], ...] = (
    (pa.types.is_struct, _struct),
    (_is_list, _list),
    (pa.types.is_map, _map),
    (pa.types.is_dictionary, _encoded),
    (pa.types.is_run_end_encoded, _encoded),
    (_is_json, _extension),
)
