"""Layouts: values of nested types, nulls that hide others, and extension types without a form."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.chains import chain, convert
from tests.unit.converters.test_type_matrix import Stranger

from extentflow.arrays.buffers import OffsetOverflowError
from extentflow.arrays.layouts import (
    ConvertedColumns,
    common_field,
    common_type,
    laid_out,
    require_known,
)
from extentflow.columnar.schemas import plain
from extentflow.columnar.values import to_plain
from extentflow.converters import open_converter
from extentflow.errors import CorruptRecord, UnsupportedType

STRANGER = r"com\.acme\.stranger"


def common(array: pa.Array) -> pa.Array:
    return laid_out(array, common_type(array.type), pc.cast)


def test_columns_of_a_common_layout_are_not_copied() -> None:
    batch = pa.record_batch({"t": ["a", None], "l": [[1], []]})

    texts, lists = ConvertedColumns.select(batch.schema, None).of(batch)

    assert texts.buffers()[2].address == batch["t"].buffers()[2].address
    assert lists.values.buffers()[1].address == batch["l"].values.buffers()[1].address


def test_fields_keep_what_is_not_their_layout() -> None:
    field = pa.field("a", pa.list_view(pa.string_view()), nullable=False, metadata={"k": "v"})

    made = common_field(field)

    assert made.equals(
        pa.field("a", pa.list_(pa.string()), nullable=False, metadata={"k": "v"}),
        check_metadata=True,
    )


def test_views_that_share_items_and_overlap_have_their_own() -> None:
    items = pa.array(["a", "b", None, "d"], pa.string_view())
    views = pa.ListViewArray.from_arrays([2, 0, 0, 1], [2, 3, 0, 2], items)

    assert common(views).to_pylist() == [[None, "d"], ["a", "b", None], [], ["b", None]]


def test_views_of_more_items_than_offsets_count_are_refused_unread() -> None:
    length, rows = 1 << 20, 1 << 12
    starts, sizes = np.zeros(rows, np.int32), np.full(rows, length, np.int32)
    views = pa.ListViewArray.from_arrays(
        pa.array(starts), pa.array(sizes), pa.nulls(length, pa.int8())
    )

    with pytest.raises(OffsetOverflowError):
        common(views)
    batch = pa.record_batch({"v": views})
    with pytest.raises(CorruptRecord, match="more than 2 GiB"):
        to_plain(batch, plain(batch.schema))


def test_errors_of_items_are_those_of_their_rows() -> None:
    kind = pa.map_(pa.string(), pa.list_view(pa.timestamp("s")))
    array = pa.array([[("a", [1])], None, [("a", []), ("b", [2, 2**62])], [("c", None)]], kind)
    batch = pa.record_batch({"m": array})

    with pytest.raises(CorruptRecord) as caught:
        to_plain(batch, plain(batch.schema))

    assert list(caught.value.rows) == [2]


@pytest.mark.parametrize("nullable", [True, False])
def test_a_value_under_a_null_needs_no_exact_form(nullable: bool) -> None:  # noqa: FBT001
    child = pa.array([1, 2**62, 3], pa.timestamp("s"))
    field = pa.field("t", child.type, nullable=nullable)
    structs = pa.StructArray.from_arrays(
        [child], fields=[field], mask=pa.array([False, True, False])
    )
    batch = pa.record_batch({"s": structs})

    found = to_plain(batch, plain(batch.schema)).column("s").to_pylist()

    assert found[1] is None
    assert [row["t"] for row in found[::2]] == child.take([0, 2]).to_pylist()


# -- extension types -------------------------------------------------------------------------------


@pytest.fixture
def registered() -> Iterator[pa.DataType]:
    kind = Stranger()
    pa.register_extension_type(kind)
    yield kind
    pa.unregister_extension_type(kind.extension_name)


@contextmanager
def without(kind: pa.ExtensionType) -> Iterator[None]:
    """Make this process one that has not registered a type."""
    pa.unregister_extension_type(kind.extension_name)
    try:
        yield
    finally:
        pa.register_extension_type(kind)


def read_again(schema: pa.Schema) -> pa.Schema:
    """Return a schema as it is read now."""
    return pa.ipc.read_schema(schema.serialize())


@pytest.mark.parametrize(
    ("around", "path"),
    [
        (lambda kind: kind, "'c'"),
        (pa.list_, "'c[]'"),
        (lambda kind: pa.map_(pa.string(), pa.list_view(kind)), "'c.value[]'"),
        (lambda kind: pa.struct([("m", kind)]), "'c.m'"),
    ],
    ids=["column", "list", "map", "struct"],
)
def test_an_unknown_extension_type_is_refused_alike_in_every_process(
    around: type, path: str, registered: pa.ExtensionType
) -> None:
    schema = pa.schema([pa.field("good", pa.int64()), pa.field("c", around(registered))])
    with without(registered):
        unregistered = read_again(schema)
    assert unregistered.field("c").type != schema.field("c").type

    messages = []
    for one in (schema, unregistered):
        with pytest.raises(UnsupportedType, match=STRANGER) as caught:
            open_converter("json", one)
        messages.append(str(caught.value))
        with pytest.raises(UnsupportedType, match=STRANGER):
            require_known(one.field("c"), "c", canonical=True)

    assert path in messages[0]
    assert messages[0] == messages[1]
    for one in (schema, unregistered):
        open_converter("json", one, ["good"])


def test_a_cast_makes_an_unknown_extension_type_its_storage(registered: pa.ExtensionType) -> None:
    stored = pa.array([1, None])
    table = pa.table({"c": pa.ExtensionArray.from_storage(registered, stored)})
    config = chain(a={"type": "Cast", "spec": "c:int64"})

    known = convert(table, config).values
    with without(registered):
        unknown = convert(pa.table([stored], read_again(table.schema)), config).values

    assert known == unknown == [{"c": 1}, {"c": None}]


@pytest.mark.parametrize("name", ["string", "bytes", "base64", "json"])
def test_every_converter_refuses_unknown_extension_types(
    name: str, registered: pa.ExtensionType
) -> None:
    schema = pa.schema([pa.field("c", registered)])

    with without(registered):
        unregistered = read_again(schema)

    for one in (schema, unregistered):
        with pytest.raises(UnsupportedType, match=STRANGER):
            open_converter(name, one)


def test_arrows_own_extension_types_pass_where_values_are_arrows() -> None:
    tensor = pa.field("t", pa.fixed_shape_tensor(pa.int8(), [2]))

    require_known(tensor, "t", canonical=True)
    with pytest.raises(UnsupportedType, match="fixed_shape_tensor"):
        require_known(tensor, "t")
