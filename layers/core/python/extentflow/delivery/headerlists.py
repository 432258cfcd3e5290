"""Reads all headers of a record from one column: a list, a map, a struct, or text.

list<struct<key, value>>   names may repeat, values may be null
map                        likewise
struct                     a member per header; a null member is no header
[{"key":"a","value":"b"}]  text: JSON, also {"a":"b"}
YQ==:Yg==;                 text: names and values in base64, as Aiven's connectors write CSV

Tests: unit/delivery/test_backups.py
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import RowErrors, corrupt_rows
from extentflow.arrays.encodings import is_text, require_utf8
from extentflow.converters import Converter, open_converter, open_header_converter
from extentflow.errors import UnsupportedType
from extentflow.kafka.record_headers import HeaderLists

ReadHeaders: TypeAlias = Callable[[pa.Array], HeaderLists]

_KEY = "message.headers"
_ENTRY = pa.field("value", pa.binary())


def header_reader(column: pa.Field, chosen: str | None) -> ReadHeaders:
    """Return the function from a column's arrays to the headers of its rows.

    `chosen` is the `header.converter` of their values. A null row has no headers. The function
    raises CorruptRecord for rows whose headers cannot be read. Raises UnsupportedType for a column
    of another type.
    """
    data_type = column.type
    if types.is_null(data_type):
        # As Avro writes the headers of a topic that has none.
        return lambda array: HeaderLists.none(len(array))
    if types.is_struct(data_type):
        return _struct_reader(data_type, chosen)
    if is_text(data_type):
        return partial(_of_texts, open_converter(chosen or "bytes", pa.schema([_ENTRY])))
    value = _value_field(data_type)
    if value is None:
        raise UnsupportedType(
            f"{_KEY}=column:{column.name}: {data_type} holds no headers; it takes a list"
            " of structs of key and value, a map, a struct, or text"
        )
    return partial(_of_lists, open_header_converter(pa.schema([value]), "value", chosen))


def _value_field(data_type: pa.DataType) -> pa.Field | None:
    """Return the field `value` of the entries of a list or map; None: they are no headers."""
    if types.is_map(data_type):
        entry = _entry_of(data_type)
    elif types.is_list(data_type) or types.is_large_list(data_type):
        entry = data_type.value_type
    else:
        return None
    if not types.is_struct(entry) or sorted(one.name for one in entry) != ["key", "value"]:
        return None
    return entry.field("value") if is_text(entry.field("key").type) else None


def _entry_of(data_type: pa.MapType) -> pa.StructType:
    return pa.struct([("key", data_type.key_type), ("value", data_type.item_type)])


def _of_lists(converter: Converter, array: pa.Array) -> HeaderLists:
    lengths = np.diff(array.offsets.to_numpy()).astype(np.int64)
    if array.null_count:
        # What lies behind a null list is undefined.
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
        array = array.filter(array.is_valid())
    entries = array.cast(pa.list_(_entry_of(array.type))) if types.is_map(array.type) else array
    flat = entries.flatten()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def rows_of(found: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(offsets, found, side="right") - 1

    # Unlike `field`, flattening makes members null where their struct is.
    parts = dict(zip((one.name for one in flat.type), flat.flatten(), strict=True))
    names = parts["key"].cast(pa.string())
    batch = pa.record_batch([parts["value"]], ["value"])
    with RowErrors() as errors:
        with errors.collect(rows_of=rows_of):
            if names.null_count:
                nameless = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False))
                raise corrupt_rows(nameless, "a header without a name")
            require_utf8(names)
        with errors.collect(rows_of=rows_of):
            values = converter(batch)
    return HeaderLists(offsets, names, values)


def _struct_reader(data_type: pa.StructType, chosen: str | None) -> ReadHeaders:
    schema = pa.schema(list(data_type))
    converters = [open_header_converter(schema, one.name, chosen) for one in schema]

    def read(array: pa.StructArray) -> HeaderLists:
        batch = pa.RecordBatch.from_arrays(array.flatten(), schema=schema)
        found = HeaderLists.none(len(array))
        with RowErrors() as errors:
            for one, converter in zip(schema, converters, strict=True):
                with errors.collect(f"{one.name}: "):
                    values = converter(batch)
                    found = found.with_header(one.name, values, lacks_nulls=True)
        return found

    return read


def _of_texts(converter: Converter, array: pa.Array) -> HeaderLists:
    """Return the headers that texts state, row by row, as JSON or as Aiven's connectors do."""
    names: list[str] = []
    values: list[bytes | None] = []
    plain: list[bool] = []
    lengths: list[int] = []
    bad: dict[int, str] = {}
    for row, text in enumerate(array.to_pylist()):
        is_json = text is not None and text.lstrip()[:1] in ("[", "{")
        try:
            found = _json_headers(text) if is_json else _base64_headers(text or "")
        except (ValueError, RecursionError) as exc:
            bad[row] = str(exc) if isinstance(exc, _UnreadableError) else f"no headers: {exc}"
            found = []
        lengths.append(len(found))
        names += [name for name, _ in found]
        values += [value for _, value in found]
        plain += [not is_json] * len(found)
    with RowErrors() as errors:
        for row, why in bad.items():
            with errors.collect():
                raise corrupt_rows([row], why)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        given = pa.array(values, pa.binary())
        with errors.collect(rows_of=lambda rows: np.searchsorted(offsets, rows, side="right") - 1):
            # The other layout is decoded already.
            stated = pc.if_else(pa.array(plain, pa.bool_()), None, given)
            made = converter(pa.record_batch([stated], ["value"])).cast(pa.binary())
    return HeaderLists(
        offsets,
        pa.array(names, pa.string()),
        pc.if_else(pa.array(plain, pa.bool_()), given, made),
    )


class _UnreadableError(ValueError):
    """Text that states no headers; its message is the reason."""


class _Number(str):
    """A number of JSON, as it is written."""

    __slots__ = ()


def _json_headers(text: str) -> list[tuple[str, bytes | None]]:
    document = json.loads(
        text,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse,
        object_pairs_hook=_Members,
    )
    if isinstance(document, _Members):
        pairs = list(document)
    else:
        pairs = [_pair(entry) for entry in document]
    return [(_encodable(name), _value(value)) for name, value in pairs]


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object, in order, with repeated names."""


def _refuse(word: str) -> Any:  # noqa: ANN401 - as `json.loads` declares it
    raise _UnreadableError(f"{word} is no JSON")


def _pair(entry: object) -> tuple[str, Any]:
    members = dict(entry) if isinstance(entry, _Members) else {}
    name = members.get("key")
    if len(members) != 2 or "value" not in members or type(name) is not str:  # noqa: PLR2004
        raise _UnreadableError('a header is no {"key": text, "value": ...}')
    return name, members["value"]


def _encodable(name: str) -> str:
    name.encode()  # raises for a lone surrogate
    return name


def _value(value: Any) -> bytes | None:  # noqa: ANN401 - of JSON
    if value is None:
        return None
    return (value if isinstance(value, str) else _compact(value)).encode()


def _compact(value: Any) -> str:  # noqa: ANN401 - of JSON
    """Return the JSON of a value without whitespace, its numbers as they were written."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, _Members):
        members = (f"{_compact(name)}:{_compact(each)}" for name, each in value)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _base64_headers(text: str) -> list[tuple[str, bytes | None]]:
    if not text:
        return []
    if not text.endswith(";"):
        raise _UnreadableError(
            'no headers as [{"key":...,"value":...}], {...} or name:value; in base64'
        )
    found: list[tuple[str, bytes | None]] = []
    for entry in text[:-1].split(";"):
        name, colon, value = entry.partition(":")
        if not colon:
            raise _UnreadableError("a header is no name:value in base64")
        found.append((_decoded(name).decode(), _decoded(value)))
    return found


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise _UnreadableError(f"a header is no base64: {exc}") from exc
