"""The columns of columnar values: one form for each, its identity, and which may follow which.

columns of an object ──plain──> columns of values ──identity──> 3f0a...
"""

import hashlib
import json

import pyarrow as pa
from pyarrow import types

IDENTITY_CHARACTERS = 16
_OTHERWISE = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): pa.time32("ms"),
    pa.date64(): pa.date32(),
}


def plain(schema: pa.Schema) -> pa.Schema:
    """Return columns as values have them: nullable, without metadata, of plain types.

    So objects of different writers have the same schema where they have the same columns, and
    readers need not know Arrow's newer layouts.
    """
    return pa.schema([pa.field(each.name, plain_type(each.type)) for each in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values have in place of `kind`: one that Parquet holds, too.

    Without views, runs and dictionaries, and with nullable members.
    """
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.JsonType):
        return pa.json_(plain_type(kind.storage_type))
    if types.is_nested(kind):
        return _nested(kind)
    # Parquet has neither seconds nor milliseconds of days.
    if types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    return _OTHERWISE.get(kind, kind)


def _nested(kind: pa.DataType) -> pa.DataType:
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_item(kind), kind.list_size)
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_item(kind))
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_plain_item(kind))
    return kind


def _plain_item(kind: pa.DataType) -> pa.Field:
    # Arrow calls the items of a list `item`, Parquet `element`; both become the same.
    return pa.field("element", plain_type(kind.value_type))


def described(schema: pa.Schema) -> str:
    """Return a schema as a JSON list of names and types, in the order of the columns.

    Types are Arrow's names for them; of nested types, objects such as {"list": "int64"}.
    """
    found = [[each.name, _description(each.type)] for each in schema]
    return json.dumps(found, separators=(",", ":"))


def _description(kind: pa.DataType) -> object:
    if types.is_struct(kind):
        return {"struct": [[each.name, _description(each.type)] for each in kind]}
    if types.is_map(kind):
        return {"map": [_description(kind.key_type), _description(kind.item_type)]}
    if types.is_fixed_size_list(kind):
        return {"list": _description(kind.value_type), "size": kind.list_size}
    if types.is_list(kind):
        return {"list": _description(kind.value_type)}
    if types.is_large_list(kind):
        return {"large_list": _description(kind.value_type)}
    return str(kind)


def identity(schema: pa.Schema) -> str:
    """Return what identifies a schema: the first digits of the SHA-256 of its description."""
    return hashlib.sha256(described(schema).encode()).hexdigest()[:IDENTITY_CHARACTERS]
