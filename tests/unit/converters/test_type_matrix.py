"""Every Arrow type at every depth, through every converter and both columnar encodings.

A layer of nesting is around every leaf, two layers are around those leaves that have several
layouts. Values are compared with Python's, row by row; nothing here calls a converter or a cast to
find them. What no converter holds is refused by the name of its column.
"""

import base64
import datetime as dt
import io
import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.support.protobuf import decode as message_fields
from tests.support.protobuf import message_class
from tests.support.registry import RegistryDouble, registry_double

from extentflow.columnar import BatchFacts
from extentflow.columnar.schemas import plain
from extentflow.columnar.values import decode, encoder, to_plain
from extentflow.config.envelope import JsonOptions
from extentflow.config.registry import AvroOptions, JsonSchemaOptions, ProtobufOptions
from extentflow.converters import Converter, Destination, open_converter
from extentflow.errors import CorruptRecord, UnsupportedType

Value = Any
LONG = "longer than twelve bytes: ü🙂"


class Stranger(pa.ExtensionType):  # type: ignore[misc]
    """An extension type that extentflow has never seen."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "com.acme.stranger")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _text: bytes) -> "Stranger":
        return cls()


# -- leaves ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """A type that nests nothing, three values, and their forms in JSON and elsewhere."""

    kind: pa.DataType
    values: tuple[Value, ...]
    in_json: Callable[[Value], Value] = lambda value: value
    in_connect: Callable[[Value], Value] = lambda value: value
    in_avro: Callable[[Value], Value] = lambda value: value
    in_protobuf: Callable[[Value], Value] = lambda value: value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decimal_message(value: Decimal) -> Value:
    unscaled = int(value.scaleb(2))
    size = max(1, (unscaled.bit_length() + 8) // 8)
    return {"value": unscaled.to_bytes(size, "big", signed=True), "precision": 9, "scale": 2}


def _seconds(value: dt.datetime) -> int:
    return int(value.timestamp())


def _clock(value: dt.time) -> Value:
    return {"hours": value.hour, "minutes": value.minute, "seconds": value.second, "nanos": 0}


DAY = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
UUIDS = (uuid.UUID(int=1), uuid.UUID(int=0), uuid.UUID(int=2**128 - 1))
TEXTS = ("a", "", LONG)
BYTES = (b"\xff", b"", LONG.encode())
of_bytes = {"in_json": _base64, "in_connect": _base64}
of_uuids = {"in_json": str, "in_connect": str, "in_protobuf": str}
LEAVES = {
    "int32": Leaf(pa.int32(), (1, -(2**31), 0)),
    "uint64": Leaf(pa.uint64(), (1, 2**64 - 1, 0)),
    "float64": Leaf(pa.float64(), (0.5, -0.25, 3.0)),
    "bool": Leaf(pa.bool_(), (True, False, True)),
    "null": Leaf(pa.null(), (None, None, None)),
    "string": Leaf(pa.string(), TEXTS),
    "large_string": Leaf(pa.large_string(), TEXTS),
    "string_view": Leaf(pa.string_view(), TEXTS),
    "large_binary": Leaf(pa.large_binary(), BYTES, **of_bytes),
    "binary_view": Leaf(pa.binary_view(), BYTES, **of_bytes),
    "fixed_binary": Leaf(pa.binary(2), (b"\0\xff", b"ab", b"\n\0"), **of_bytes),
    "decimal": Leaf(
        pa.decimal128(9, 2),
        (Decimal("1.50"), Decimal("-9999999.99"), Decimal("0.00")),
        in_protobuf=_decimal_message,
    ),
    "seconds": Leaf(
        pa.timestamp("s", "UTC"),
        (DAY, DAY.replace(year=1969), DAY.replace(year=9999)),
        in_json=lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ"),
        in_connect=lambda value: _seconds(value) * 1000,
        in_protobuf=lambda value: {"seconds": _seconds(value), "nanos": 0},
    ),
    "date64": Leaf(
        pa.date64(),
        (DAY.date(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
        in_json=str,
        in_connect=lambda value: value.toordinal() - dt.date(1970, 1, 1).toordinal(),
        in_protobuf=lambda value: {"year": value.year, "month": value.month, "day": value.day},
    ),
    "time": Leaf(
        pa.time32("s"),
        (dt.time(1, 2, 3), dt.time(0), dt.time(23, 59, 59)),
        in_json=str,
        in_connect=lambda value: 1000 * (value.hour * 3600 + value.minute * 60 + value.second),
        in_protobuf=_clock,
    ),
    "uuid": Leaf(pa.uuid(), UUIDS, **of_uuids),
    "json": Leaf(pa.json_(), ("{}", "[1]", '"ü"')),
    "jsonview": Leaf(pa.json_(pa.string_view()), ("{}", '["longer than twelve"]', '"ü"')),
    "bool8": Leaf(pa.bool8(), (True, False, True)),
    "codes": Leaf(pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "coded_view": Leaf(pa.dictionary(pa.uint16(), pa.string_view()), TEXTS),
    "uuid_codes": Leaf(pa.dictionary(pa.int8(), pa.uuid()), UUIDS, **of_uuids),
    "runs": Leaf(pa.run_end_encoded(pa.int16(), pa.int64()), (1, 2, 3)),
    "run_view": Leaf(pa.run_end_encoded(pa.int32(), pa.string_view()), TEXTS),
    "code_runs": Leaf(
        pa.run_end_encoded(pa.int64(), pa.dictionary(pa.int8(), pa.binary_view())),
        BYTES,
        **of_bytes,
    ),
}
# Those of which layouts or nulls are odd: two layers are around them.
DEEP_LEAVES = ("int32", "null", "string_view", "seconds", "uuid", "coded_view", "run_view")
REFUSED = {
    "sparse_union": pa.sparse_union([pa.field("a", pa.int64()), pa.field("b", pa.string_view())]),
    "dense_union": pa.dense_union([pa.field("a", pa.int64())]),
    "interval": pa.month_day_nano_interval(),
    "stranger": Stranger(),
}

# -- layers ----------------------------------------------------------------------------------------


def _item(kind: pa.DataType) -> pa.Field:
    return pa.field("item", kind)


def _required(kind: pa.DataType) -> pa.Field:
    return pa.field("item", kind, nullable=False)


LAYERS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "list": lambda kind: pa.list_(_item(kind)),
    "large_list": lambda kind: pa.large_list(_item(kind)),
    "fixed_list": lambda kind: pa.list_(_item(kind), 2),
    "list_view": lambda kind: pa.list_view(_item(kind)),
    "large_list_view": lambda kind: pa.large_list_view(_item(kind)),
    "required_items": lambda kind: pa.list_view(_required(kind)),
    "map": lambda kind: pa.map_(pa.string_view(), _item(kind)),
    "struct": lambda kind: pa.struct([pa.field("m", kind), pa.field("n", pa.string_view())]),
    "required_member": lambda kind: pa.struct([pa.field("m", kind, nullable=False)]),
    "codes_of": lambda kind: pa.dictionary(pa.int8(), kind),
    "runs_of": lambda kind: pa.run_end_encoded(pa.int32(), kind),
}
# Dictionaries and runs of each other are leaves.
ENCODED = {"codes_of", "runs_of"}
STRICT = {"required_items", "required_member"}


def value_of(kind: pa.DataType, leaf: Leaf, seed: int) -> Value:  # noqa: PLR0911 - a case per layout
    """Return a value of a nested type that is not null, another one for each seed."""
    types = pa.types
    if kind == leaf.kind:
        return leaf.values[seed % 3]
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return value_of(kind.value_type, leaf, seed)
    if types.is_struct(kind):
        return {one.name: member_of(one, leaf, seed + at) for at, one in enumerate(kind)}
    if types.is_map(kind):
        return [(f"k{at}", member_of(kind.item_field, leaf, seed + at)) for at in range(seed % 3)]
    if types.is_string_view(kind):
        return TEXTS[seed % 3]
    if not hasattr(kind, "value_field"):
        return leaf.values[seed % 3]
    count = kind.list_size if types.is_fixed_size_list(kind) else seed % 4
    return [member_of(kind.value_field, leaf, seed + at) for at in range(count)]


def member_of(one: pa.Field, leaf: Leaf, seed: int) -> Value:
    is_null = one.nullable and seed % 4 == 3
    return None if is_null else value_of(one.type, leaf, seed)


def built(kind: pa.DataType, values: list[Value], leaf: Leaf) -> pa.Array:  # noqa: PLR0911 - a case per layout
    """Return values as an array whose nulls hide others, which begins within a larger one."""
    types = pa.types
    missing = pa.array([value is None for value in values], pa.bool_())
    if types.is_dictionary(kind):
        entries = [
            one for at, one in enumerate(values) if one is not None and one not in values[:at]
        ]
        codes = [None if one is None else entries.index(one) + 1 for one in values]
        # The first entry is one that no row has.
        inside = built(kind.value_type, [hidden(kind.value_type, leaf), *entries], leaf)
        return pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type), inside)
    if types.is_run_end_encoded(kind):
        starts = [at for at, one in enumerate(values) if not at or one != values[at - 1]]
        ends = pa.array([*starts[1:], len(values)] if values else [], kind.run_end_type)
        inside = built(kind.value_type, [values[at] for at in starts], leaf)
        return pa.RunEndEncodedArray.from_arrays(ends, inside)
    if types.is_null(kind):
        return pa.nulls(len(values))
    shown = [hidden(kind, leaf) if value is None else value for value in values]
    if types.is_struct(kind):
        children = [built(one.type, [row[one.name] for row in shown], leaf) for one in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=missing)
    if types.is_map(kind):
        pairs = [pair for row in shown for pair in row]
        bounds = pa.array([0, *itertools.accumulate(map(len, shown))], pa.int32())
        keys = built(kind.key_type, [key for key, _ in pairs], leaf)
        items = built(kind.item_type, [value for _, value in pairs], leaf)
        return pa.MapArray.from_arrays(bounds, keys, items, type=kind, mask=missing)
    if types.is_fixed_size_list(kind):
        items = built(kind.value_type, [item for row in shown for item in row], leaf)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=missing)
    if types.is_list(kind) or types.is_large_list(kind):
        wide = types.is_large_list(kind)
        bounds = pa.array([0, *itertools.accumulate(map(len, shown))], pa.int64())
        items = built(kind.value_type, [item for row in shown for item in row], leaf)
        made = pa.LargeListArray if wide else pa.ListArray
        bounds = bounds if wide else bounds.cast(pa.int32())
        return made.from_arrays(bounds, items, type=kind, mask=missing)
    if isinstance(kind, pa.ListViewType | pa.LargeListViewType):
        # Backwards, with a gap between two lists.
        gap = hidden(kind.value_type, leaf)
        items = [item for row in reversed(shown) for item in [*row, gap]]
        ends = list(itertools.accumulate(len(row) + 1 for row in reversed(shown)))[::-1]
        starts = [end - 1 - len(row) for end, row in zip(ends, shown, strict=True)]
        wide = isinstance(kind, pa.LargeListViewType)
        number = pa.int64() if wide else pa.int32()
        made = pa.LargeListViewArray if wide else pa.ListViewArray
        return made.from_arrays(
            pa.array(starts, number), pa.array(list(map(len, shown)), number),
            built(kind.value_type, items, leaf), type=kind, mask=missing,
        )  # fmt: skip
    return built_leaf(kind, values)


def built_leaf(kind: pa.DataType, values: list[Value]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        stored = [one.bytes if isinstance(one, uuid.UUID) else one for one in values]
        if isinstance(kind, pa.Bool8Type):
            stored = [None if one is None else int(one) for one in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))
    return pa.array(values, kind)


def hidden(kind: pa.DataType, leaf: Leaf) -> Value:
    """Return a value under a null, or one that no row has."""
    return value_of(kind, leaf, 2)


# -- cases -----------------------------------------------------------------------------------------

ROWS = 7


@dataclass(frozen=True)
class Column:
    """A column of a matrix: a type, its leaf and the value of each row."""

    name: str
    kind: pa.DataType
    leaf: Leaf
    values: tuple[Value, ...]

    @classmethod
    def of(cls, name: str, kind: pa.DataType, leaf: Leaf) -> "Column":
        values = [value_of(kind, leaf, seed) for seed in range(ROWS)]
        values[1] = values[5] = None
        return cls(name, kind, leaf, tuple(values))

    @cached_property
    def array(self) -> pa.Array:
        """The values as a slice, so that no buffer begins with the first row."""
        around = [value_of(self.kind, self.leaf, 3)]
        whole = built(self.kind, [*around, *self.values, *around], self.leaf)
        return whole.slice(1, len(self.values))


def batch_of(columns: list[Column]) -> pa.RecordBatch:
    return pa.record_batch({one.name: one.array for one in columns})


def decoded_type(kind: pa.DataType) -> pa.DataType:
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def wrapped(layers: tuple[str, ...], kind: pa.DataType) -> pa.DataType:
    for layer in layers:
        kind = LAYERS[layer](kind)
    return kind


ONE_LAYER = [(), *((layer,) for layer in LAYERS)]
THREE_LAYERS = [
    ("list_view", "map", "struct"),
    ("required_member", "list_view", "required_member"),
    ("map", "fixed_list", "large_list_view"),
    ("fixed_list", "list_view", "map"),
    ("runs_of", "struct", "list_view"),
    ("codes_of", "list_view", "struct"),
    ("large_list_view", "struct", "fixed_list"),
]
# The layers around the leaves of a batch, the first one the innermost.
Case = list[tuple[tuple[str, ...], tuple[str, ...]]]
MATRIX: dict[str, Case] = {
    "one": [(layers, tuple(LEAVES)) for layers in ONE_LAYER],
    "three": [(layers, DEEP_LEAVES) for layers in THREE_LAYERS],
    **{
        outer: [((inner, outer), DEEP_LEAVES) for inner in LAYERS if not {inner, outer} <= ENCODED]
        for outer in LAYERS
    },
}


@cache
def columns_of(case: str) -> list[Column]:
    """Return the columns of a case: each leaf within each of its layers."""
    found = []
    for layers, leaves in MATRIX[case]:
        for name in leaves:
            leaf = LEAVES[name]
            is_encoded = decoded_type(leaf.kind) != leaf.kind
            if is_encoded and layers and layers[0] in ENCODED:
                continue
            if name == "null" and layers and layers[0] in ENCODED | STRICT:
                continue
            called = "_".join((*layers, name))
            found.append(Column.of(called, wrapped(layers, leaf.kind), leaf))
    return found


def in_form(  # noqa: PLR0911 - a case per layout
    kind: pa.DataType, leaf: Leaf, value: Value, form: Callable[[Value], Value]
) -> Value:
    """Return a value with the leaf's form at every depth; maps of texts are objects."""
    types = pa.types
    if value is None:
        return None
    if kind == leaf.kind:
        return form(value)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return in_form(kind.value_type, leaf, value, form)
    if types.is_struct(kind):
        return {one.name: in_form(one.type, leaf, value[one.name], form) for one in kind}
    if types.is_map(kind):
        return {key: in_form(kind.item_type, leaf, item, form) for key, item in value}
    if types.is_string_view(kind):
        return value
    return [in_form(kind.value_type, leaf, item, form) for item in value]


def test_the_matrix_has_every_leaf_in_every_layer() -> None:
    columns = [column for case in MATRIX for column in columns_of(case)]

    assert len(columns) > 1_000
    for column in columns:
        column.array.validate(full=True)


# -- converters ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


@dataclass(frozen=True)
class Opened:
    """A converter for the columns of a case, and the schema that it has registered."""

    convert: Converter
    registry: RegistryDouble
    topic: str

    @classmethod
    def of(cls, name: str, schema: pa.Schema, registry: RegistryDouble) -> "Opened":
        topic = f"{name}-{len(registry.subjects)}"
        urls = (registry.url,)
        options = {
            "json": None,
            "envelope": JsonOptions(schemas=True, decimals="NUMERIC"),
            "json-schema": JsonSchemaOptions(urls=urls),
            "avro": AvroOptions(urls=urls),
            "protobuf": ProtobufOptions(urls=urls),
        }[name]
        found = "json" if name == "envelope" else name
        convert = open_converter(found, schema, options=options, destination=Destination(topic))
        return cls(convert, registry, topic)

    @property
    def text(self) -> str:
        """The registered schema."""
        return self.registry.subjects[f"{self.topic}-value"][-1]


def json_rows(opened: Opened, batch: pa.RecordBatch) -> list[Value]:
    # With a registry, behind the id of the schema.
    texts = [row if row[:1] == b"{" else row[5:] for row in opened.convert(batch).to_pylist()]
    rows = [json.loads(text, parse_float=Decimal) for text in texts]
    return [row.get("payload", row) for row in rows]


def avro_rows(opened: Opened, batch: pa.RecordBatch) -> list[Value]:
    schema = fastavro.parse_schema(json.loads(opened.text))
    rows = opened.convert(batch).to_pylist()
    return [fastavro.schemaless_reader(io.BytesIO(row[5:]), schema, None) for row in rows]


def protobuf_rows(opened: Opened, batch: pa.RecordBatch) -> list[Value]:
    kind = message_class(opened.text)
    # Behind the id and the place of the message in its file.
    found = [message_fields(kind, row[6:]) for row in opened.convert(batch).to_pylist()]
    return [{one.name: from_member(row[one.name], one) for one in batch.schema} for row in found]


def is_repeated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or hasattr(kind, "value_field")


def from_member(found: Value, one: pa.Field) -> Value:
    """Return the value of a member, without the messages that tell null from empty."""
    kind = decoded_type(one.type)
    if found is None:
        return None
    if is_repeated(kind) and one.nullable:
        found = found["entries" if pa.types.is_map(kind) else "items"]
    if pa.types.is_map(kind):
        return {key: from_element(item, kind.item_field) for key, item in found.items()}
    if is_repeated(kind):
        return [from_element(item, kind.value_field) for item in found]
    if pa.types.is_struct(kind):
        return {inner.name: from_member(found[inner.name], inner) for inner in kind}
    return found


def from_element(found: Value, one: pa.Field) -> Value:
    if one.nullable or is_repeated(decoded_type(one.type)):
        return from_member(found["value"], one)
    return from_member(found, one)


READERS = {
    "json": (json_rows, "in_json"),
    "envelope": (json_rows, "in_connect"),
    "json-schema": (json_rows, "in_json"),
    "avro": (avro_rows, "in_avro"),
    "protobuf": (protobuf_rows, "in_protobuf"),
}
# Protocol Buffers has no type for values that are always null.
WITHOUT_FORM = {"protobuf": {pa.null()}}


@pytest.mark.parametrize("case", MATRIX)
@pytest.mark.parametrize("name", READERS)
def test_rows(name: str, case: str, registry: RegistryDouble) -> None:
    columns = [one for one in columns_of(case) if one.leaf.kind not in WITHOUT_FORM.get(name, ())]
    batch = batch_of(columns)
    read, form = READERS[name]

    found = read(Opened.of(name, batch.schema, registry), batch)

    assert_same(found, columns, lambda leaf: getattr(leaf, form))


def assert_same(
    found: list[Value], columns: list[Column], form: Callable[[Leaf], Callable[[Value], Value]]
) -> None:
    for column in columns:
        of_leaf = form(column.leaf)
        expected = [in_form(column.kind, column.leaf, one, of_leaf) for one in column.values]
        assert [row[column.name] for row in found] == expected, column.kind


def facts_of(encoding: str, rows: int) -> BatchFacts:
    return BatchFacts(
        encoding=encoding, rows=rows, schema="0" * 16, batch="job-0-0", object="s3://b/k",
        version="v", extent="0-1", first=0, last=rows - 1, unit="row",
    )  # fmt: skip


@pytest.mark.parametrize("case", MATRIX)
@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_columnar(encoding: str, case: str) -> None:
    columns = columns_of(case)
    batch = batch_of(columns)
    schema = plain(batch.schema)
    encode = encoder(encoding, "none", schema)
    rows = to_plain(batch, schema)
    rows.validate(full=True)
    encode.observe(rows)

    found = decode(encode(rows), facts_of(encoding, ROWS))

    for column in columns:
        assert found.column(column.name).to_pylist() == list(column.values), column.kind


# -- nulls where there is none ---------------------------------------------------------------------


def with_nulls(kind: pa.DataType, leaf: Leaf) -> tuple[list[Value], list[int]]:
    """Return rows of a type with required members, and those with a null in one of these."""
    good = [value_of(kind, leaf, seed) for seed in range(4)]
    odd = with_null(kind)
    return [good[0], odd, None, good[3], odd, good[1]], [1, 4]


def with_null(kind: pa.DataType) -> Value:
    if pa.types.is_struct(kind):
        return {one.name: with_null(one.type) if is_nested(one.type) else None for one in kind}
    if pa.types.is_map(kind):
        return [("k", with_null(kind.item_type))]
    inner = kind.value_type
    return [with_null(inner) if is_nested(inner) else None]


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) or is_repeated(kind)


STRICT_CASES = [
    (*inner, *outer)
    for inner in (("required_member",), ("required_items",))
    for outer in ((), ("struct",), ("list",), ("list_view",), ("map",), ("list_view", "struct"))
]


@pytest.mark.parametrize("layers", STRICT_CASES, ids="-".join)
@pytest.mark.parametrize("name", READERS)
def test_nulls_where_there_is_none_are_bad_rows(
    name: str, layers: tuple[str, ...], registry: RegistryDouble
) -> None:
    leaves = [LEAVES[one] for one in DEEP_LEAVES if one != "null"]
    kinds = [wrapped(layers, leaf.kind) for leaf in leaves]
    rows = [with_nulls(kind, leaf) for kind, leaf in zip(kinds, leaves, strict=True)]
    columns = [
        Column(f"c{at}", kind, leaf, tuple(values))
        for at, (kind, leaf, (values, _)) in enumerate(zip(kinds, leaves, rows, strict=True))
    ]
    read, form = READERS[name]
    for column in columns:
        batch = batch_of([column])
        opened = Opened.of(name, batch.schema, registry)

        if name == "json":
            # Without a schema, nothing excludes a null.
            assert_same(read(opened, batch), [column], lambda leaf: getattr(leaf, form))
            continue
        with pytest.raises(CorruptRecord) as caught:
            opened.convert(batch)
        assert list(caught.value.rows) == [1, 4]
        good = replace(column, values=tuple(column.values[at] for at in (0, 2, 3, 5)))
        found = read(opened, batch_of([good]))
        assert_same(found, [good], lambda leaf: getattr(leaf, form))


# -- refused ---------------------------------------------------------------------------------------

PATHS = {
    (): "'c'",
    ("list_view",): "'c[]'",
    ("map",): "'c.value'",
    ("struct", "large_list_view"): "'c[].m'",
    ("required_member", "map", "struct"): "'c.m.value.m'",
    ("codes_of",): "'c'",
}


@pytest.mark.parametrize("layers", PATHS, ids=lambda layers: "-".join(layers) or "column")
@pytest.mark.parametrize("kind", REFUSED)
def test_types_without_a_form_are_refused_by_their_column(
    kind: str, layers: tuple[str, ...], registry: RegistryDouble
) -> None:
    schema = pa.schema({"fine": pa.int8(), "c": wrapped(layers, REFUSED[kind])})
    for name in READERS:
        with pytest.raises(UnsupportedType) as caught:
            Opened.of(name, schema, registry)
        assert PATHS[layers] in str(caught.value)


@pytest.mark.parametrize("layers", PATHS, ids=lambda layers: "-".join(layers) or "column")
@pytest.mark.parametrize("kind", ["sparse_union", "dense_union", "interval"])
@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_columnar_values_hold_such_types_exactly_or_refuse_their_column(
    encoding: str, kind: str, layers: tuple[str, ...]
) -> None:
    rows = {
        "sparse_union": pa.UnionArray.from_sparse(
            pa.array([0, 1, 1], pa.int8()), [pa.array([1, 2, 3]), pa.array(TEXTS, pa.string_view())]
        ),
        "dense_union": pa.UnionArray.from_dense(
            pa.array([0, 0, 0], pa.int8()), pa.array([0, 1, 2], pa.int32()), [pa.array([1, 2, 3])]
        ),
        "interval": pa.array([(1, 2, 3), (4, 5, 6), None], pa.month_day_nano_interval()),
    }[kind]
    array = around(rows, layers)
    batch = pa.record_batch({"fine": pa.array([1, 2, 3], pa.int8()), "c": array})
    schema = plain(batch.schema)

    try:
        encode = encoder(encoding, "none", schema)
        value = encode(to_plain(batch, schema))
    except UnsupportedType as exc:
        assert "column c: " in str(exc)  # noqa: PT017 - one of two outcomes
        return
    assert encoding == "arrow"
    assert decode(value, facts_of(encoding, 3)).column("c").to_pylist() == array.to_pylist()


def around(array: pa.Array, layers: tuple[str, ...]) -> pa.Array:
    """Return an array with each value within layers, which have one member or item."""
    for layer in layers:
        kind = LAYERS[layer](array.type)
        numbers = pa.array(range(len(array)), pa.int32())
        if pa.types.is_struct(kind):
            texts = pa.array(TEXTS[: len(array)], pa.string_view())
            array = pa.StructArray.from_arrays([array, texts][: len(kind)], fields=list(kind))
        elif pa.types.is_map(kind):
            bounds = pa.array(range(len(array) + 1), pa.int32())
            keys = pa.array(["k"] * len(array), pa.string_view())
            array = pa.MapArray.from_arrays(bounds, keys, array, type=kind)
        elif pa.types.is_dictionary(kind):
            array = pa.DictionaryArray.from_arrays(numbers.cast(pa.int8()), array)
        else:
            wide = isinstance(kind, pa.LargeListViewType)
            made = pa.LargeListViewArray if wide else pa.ListViewArray
            number = pa.int64() if wide else pa.int32()
            ones = pa.array([1] * len(array), number)
            array = made.from_arrays(numbers.cast(number), ones, array, type=kind)
    return array
