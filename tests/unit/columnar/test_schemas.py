"""The columns of columnar values: one form for each, whatever the object's writer chose."""

import pyarrow as pa
import pytest

from extentflow.columnar.schemas import IDENTITY_CHARACTERS, described, identity, plain, plain_type

MS, S = pa.timestamp("ms"), pa.timestamp("s")
REPLACED = [
    (pa.string_view(), pa.string()),
    (pa.binary_view(), pa.binary()),
    (pa.time32("s"), pa.time32("ms")),
    (pa.date64(), pa.date32()),
    (S, MS),
    (pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ms", "Europe/Berlin")),
    (pa.list_view(pa.int8()), pa.list_(pa.field("element", pa.int8()))),
    (pa.large_list_view(pa.int8()), pa.large_list(pa.field("element", pa.int8()))),
    (pa.list_(S), pa.list_(pa.field("element", MS))),
    (pa.large_list(pa.string_view()), pa.large_list(pa.field("element", pa.string()))),
    (pa.list_(pa.date64(), 3), pa.list_(pa.field("element", pa.date32()), 3)),
    (pa.map_(pa.string_view(), S), pa.map_(pa.string(), MS)),
    (pa.dictionary(pa.int8(), pa.string_view()), pa.string()),
    (pa.list_(pa.dictionary(pa.int8(), S)), pa.list_(pa.field("element", MS))),
    (
        pa.struct([("a", pa.list_(pa.struct([("b", S)]))), ("c", pa.map_(S, pa.date64()))]),
        pa.struct(
            [
                ("a", pa.list_(pa.field("element", pa.struct([("b", MS)])))),
                ("c", pa.map_(MS, pa.date32())),
            ]
        ),
    ),
]
KEPT = [
    pa.null(),
    pa.bool_(),
    pa.uint64(),
    pa.float16(),
    pa.decimal128(38, 10),
    pa.decimal256(76, 0),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("us"),
    pa.time64("ns"),
    pa.time32("ms"),
    pa.date32(),
    pa.duration("s"),
    pa.string(),
    pa.large_string(),
    pa.large_binary(),
    pa.binary(16),
    pa.json_(),
    pa.uuid(),
]


@pytest.mark.parametrize(("kind", "expected"), REPLACED, ids=str)
def test_types_that_parquet_or_older_readers_lack_are_replaced(
    kind: pa.DataType, expected: pa.DataType
) -> None:
    found = plain_type(kind)

    assert found.equals(expected, check_metadata=True)
    assert str(found) == str(expected)


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_all_other_types_are_kept(kind: pa.DataType) -> None:
    assert plain_type(kind) == kind


@pytest.mark.parametrize("kind", [kind for kind, _ in REPLACED], ids=str)
def test_a_plain_type_stays_as_it_is(kind: pa.DataType) -> None:
    found = plain_type(kind)

    assert str(plain_type(found)) == str(found)


def test_columns_keep_their_names_and_order() -> None:
    schema = pa.schema([("b", pa.int64()), ("a", S), ("", pa.string())])

    assert plain(schema) == pa.schema([("b", pa.int64()), ("a", MS), ("", pa.string())])


def test_columns_and_their_members_become_nullable() -> None:
    member = pa.field("m", pa.int64(), nullable=False)
    item = pa.field("item", pa.int64(), nullable=False)
    schema = pa.schema(
        [
            pa.field("s", pa.struct([member]), nullable=False),
            pa.field("l", pa.list_(item), nullable=False),
        ]
    )

    found = plain(schema)

    assert [each.nullable for each in found] == [True, True]
    assert found.field("s").type.field(0).nullable
    assert found.field("l").type.value_field.nullable


def test_metadata_of_the_writer_is_removed_at_every_level() -> None:
    noted = {b"PARQUET:field_id": b"7"}
    inner = pa.struct([pa.field("m", pa.int64(), metadata=noted)])
    listed = pa.list_(pa.field("item", inner, metadata=noted))
    schema = pa.schema([pa.field("c", listed, metadata=noted)], metadata={b"pandas": b"{}"})

    found = plain(schema)

    column = found.field("c")
    assert found.metadata is None
    assert column.metadata is None
    assert column.type.value_field.metadata is None
    assert column.type.value_type.field(0).metadata is None


def test_the_description_is_a_json_list_of_names_and_types() -> None:
    schema = plain(pa.schema([('a "b"', pa.int64()), ("l", pa.list_(pa.string_view()))]))

    assert described(schema) == '[["a \\"b\\"","int64"],["l",{"list":"string"}]]'


def test_the_identity_of_a_schema_never_changes() -> None:
    """Consumers compare it with those that other versions wrote."""
    schema = plain(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))

    assert identity(schema) == "4a8b4d6095e45706"


def test_the_identity_has_sixteen_hexadecimal_digits() -> None:
    found = identity(pa.schema([("a", pa.int64())]))

    assert len(found) == IDENTITY_CHARACTERS == 16
    assert set(found) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "same",
    [
        pa.schema([("l", pa.list_(pa.field("element", pa.int64()))), ("s", pa.string())]),
        pa.schema([("l", pa.list_view(pa.int64())), ("s", pa.string_view())]),
        pa.schema(
            [
                pa.field("l", pa.list_(pa.int64()), nullable=False, metadata={b"a": b"b"}),
                pa.field("s", pa.string(), nullable=False),
            ],
            metadata={b"pandas": b"{}"},
        ),
    ],
    ids=["name-of-items", "views", "nullability-and-metadata"],
)
def test_the_identity_does_not_depend_on_the_writer(same: pa.Schema) -> None:
    usual = pa.schema([("l", pa.list_(pa.int64())), ("s", pa.string())])

    assert identity(plain(same)) == identity(plain(usual))


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([("a", pa.int64()), ("c", pa.string())]),
        pa.schema([("b", pa.string()), ("a", pa.int64())]),
        pa.schema([("a", pa.int32()), ("b", pa.string())]),
        pa.schema([("a", pa.int64())]),
        pa.schema([("a", pa.int64()), ("b", pa.large_string())]),
        pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.null())]),
    ],
    ids=["name", "order", "type", "fewer", "large", "more"],
)
def test_the_identity_changes_with_names_order_and_types(other: pa.Schema) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])

    assert identity(other) != identity(schema)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.list_(pa.int64()), pa.list_(pa.int64(), 2)),
    ],
    ids=str,
)
def test_the_identity_changes_with_parameters_of_types(
    one: pa.DataType, other: pa.DataType
) -> None:
    first, second = (identity(plain(pa.schema([("c", kind)]))) for kind in (one, other))

    assert first != second
