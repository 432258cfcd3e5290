"""Groups of columns: which columns each has, its topic, and what a schema does not allow."""

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.columnar import BatchFacts
from extentflow.columnar.groups import encoded_groups
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import decode
from extentflow.config.columnar import GROUPS
from extentflow.errors import UnsupportedType

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("text", pa.string())])
BATCH = pa.record_batch([pa.array([1, 2]), pa.array([1.5, None]), pa.array(["a", ""])], SCHEMA)


def columns_of(text: str, schema: pa.Schema = SCHEMA) -> dict[str, tuple[str, ...]]:
    made = encoded_groups(schema, GROUPS.read(text), "parquet", "none")
    return {one.group.name: one.columns for one in made}


def test_without_groups_all_columns_go_to_the_topic_itself() -> None:
    (made,) = encoded_groups(SCHEMA, (), "parquet", "none")

    assert made.columns == ("id", "price", "text")
    assert made.schema == identity(SCHEMA)
    assert made.topic("orders") == "orders"


def test_the_topic_of_a_group_is_that_of_the_rows_and_its_name() -> None:
    groups = GROUPS.read("a: id; b.c: *")

    made = encoded_groups(SCHEMA, groups, "parquet", "none")

    assert [one.topic("orders") for one in made] == ["orders.a", "orders.b.c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: id; b: *", {"a": ("id",), "b": ("price", "text")}),
        ("b: *; a: text", {"b": ("id", "price"), "a": ("text",)}),
        ("all: *", {"all": ("id", "price", "text")}),
        ("a: id, price; b: text", {"a": ("id", "price"), "b": ("text",)}),
        ("a: id, price; b: id, text", {"a": ("id", "price"), "b": ("id", "text")}),
        ("a: price, id; b: *", {"a": ("price", "id"), "b": ("text",)}),
    ],
)
def test_each_group_has_its_columns_in_the_order_written(
    text: str, expected: dict[str, tuple[str, ...]]
) -> None:
    found = columns_of(text)

    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_the_value_of_a_group_has_the_rows_of_its_columns(encoding: str) -> None:
    groups = GROUPS.read("a: text, id; b: id, price")

    made = encoded_groups(SCHEMA, groups, encoding, "none")

    for one in made:
        facts = BatchFacts(
            encoding=encoding,
            rows=2,
            schema=one.schema,
            batch="b",
            object="o",
            version="v",
            extent="0-1",
            first=0,
            last=1,
            unit="row",
        )
        rows = decode(one.value(BATCH), facts)
        assert rows == BATCH.select(list(one.columns))
        assert one.schema == identity(rows.schema)


def test_a_column_that_there_is_not_is_named_with_those_that_there_are(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="column cost"):
        columns_of("a: id, name; b: cost; c: *")


def test_columns_of_no_group_are_named(golden: Golden) -> None:
    with golden.raises(UnsupportedType):
        columns_of("a: id")


def test_a_group_of_the_others_needs_others(golden: Golden) -> None:
    with golden.raises(UnsupportedType):
        columns_of("a: id, price, text; b: *")


def test_a_column_of_a_type_that_the_encoding_lacks_is_named(golden: Golden) -> None:
    schema = SCHEMA.append(pa.field("every", pa.month_day_nano_interval()))

    with golden.raises(UnsupportedType, match="column every"):
        columns_of("a: id; b: *", schema)


def test_names_of_columns_may_have_the_characters_of_lists() -> None:
    schema = pa.schema([("a, b", pa.int64()), ("c: d", pa.int64()), ("*x", pa.int64())])

    assert columns_of('g: "a, b"; h: "c: d"; i: *', schema) == {
        "g": ("a, b",),
        "h": ("c: d",),
        "i": ("*x",),
    }


def test_rows_that_are_all_bad_go_to_the_dead_letter_queue() -> None:
    """Trap: the topic of no record was asked for, which groups do without, and never existed."""
    runtime = MemoryRuntime()
    for topic in ("orders.numbers", "orders.others", "dead"):
        runtime.cluster.create_topic(topic)
    runtime.put_connector(
        topic="orders",
        input__format="csv",
        csv__schema="id:int64,name:string",
        extent__bytes="1000",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name="dead",
        columnar__encoding="parquet",
        columnar__groups="numbers: id; others: *",
    )
    runtime.memory_store.put(BUCKET, "c/a.csv", b"id,name\nx,a\ny,b\n")
    config, revision = runtime.connectors.latest("c")
    version = runtime.memory_store.head(BUCKET, "c/a.csv")

    runtime.run(runtime.planner().register(runtime.requests.make(config, revision, version, 1)), 0)

    assert len(runtime.cluster.read_committed("dead")) == 2
    assert not runtime.cluster.read_committed("orders.numbers")
