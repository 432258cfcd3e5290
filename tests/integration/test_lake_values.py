"""`extentflow lake` reads values of JSON, of registries, encrypted ones, and those of groups."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.columnar_delivery import make_topics
from tests.support.columnar_topics import Topics, Value, columnar
from tests.support.columnar_topics import rows_of as few_rows
from tests.support.delivery import Delivery, joined
from tests.support.lakes import (
    ROWS,
    SECRET,
    Lake,
    Stale,
    as_parquet,
    expected,
    iceberg_first,
    lake_session,
    parquet_first,
    rows_of,
    send,
    send_cards,
    soak,
)
from tests.support.real import run_here
from tests.support.spark import MARKS

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.config.registry import RegistryOptions
from extentflow.errors import (
    AccessDenied,
    CorruptRecord,
    IncompatibleSchema,
    Misconfigured,
    UnsupportedFormat,
)
from extentflow.export.lake.lake_options import ValueOptions
from extentflow.export.lake.lake_target import TableState
from extentflow.wiring.value_access import ProcessAccess
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    pass

pytestmark = [*MARKS, pytest.mark.variant]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with lake_session() as session:
        yield session


DOCUMENTS = [
    {"id": one, "price": f"{one}.25", "day": "2024-02-29", "tags": ["a", None], "name": None}
    for one in range(ROWS)
]


SCHEMA = "id:int64, price:decimal(12,2), day:date, tags:list<string>, name:string"


@pytest.fixture
def cards(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Rows whose column `name` is encrypted in the topic."""
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")
    return send_cards(lake.delivery)


@iceberg_first
def test_encrypted_columns_are_written_with_keys(lake: Lake, cards: pa.Table) -> None:
    # Spark's workers run already, with the environment of before.
    secrets = lake.home / "keys.properties"
    secrets.write_text(f"cards=cards:{SECRET}\n")
    keys = ValueOptions(keys=f"${{file:{secrets}:cards}}", access=ProcessAccess())

    with pytest.raises(AccessDenied, match=r"offset \d+: encrypted columns: name \(.* cards\): "):
        lake.run()
    written = lake.run(values=keys)
    # A table that has its columns: the tasks find the value.
    send(lake.delivery, "plain", rows_of(500, 10))
    assert lake.run() == 10

    assert written == 500
    assert lake.rows() == expected(cards, rows_of(500, 10))


@parquet_first
def test_columns_that_are_not_asked_for_need_no_key(lake: Lake, cards: pa.Table) -> None:
    some = ("id", "day", "price")
    with pytest.raises(Misconfigured, match="--column nmae: no newest value"):
        lake.run(values=ValueOptions(columns=(*some, "nmae")))

    assert lake.run(values=ValueOptions(columns=some)) == 500

    assert lake.rows() == expected(cards.select(list(some)))
    with pytest.raises(Misconfigured, match="also has the columns price, in which further rows"):
        lake.run(values=ValueOptions(columns=("id", "day")))
    # All columns again, and no keys: what the tasks say.
    with pytest.raises(AccessDenied, match=r"topic .* offset \d+: encrypted columns: name "):
        lake.run(checkpoint=(lake.home / "again").as_uri(), target=restarted(lake))


def of_registry(registry: Stack, **options: Any) -> ValueOptions:  # noqa: ANN401
    address = registry.endpoint("registry")
    where = RegistryOptions(urls=(address,))
    return ValueOptions(registry=where, access=ProcessAccess(), **options)


def send_rows(lake: Lake, registry: Stack, label: str, table: pa.Table, converter: str) -> None:
    """Deliver a value per row, whose schema the registry has."""
    keys = {"schema.registry.url": registry.endpoint("registry"), "record.name": "com.acme.Order"}
    own = {f"value.converter.{name}": value for name, value in keys.items()}
    lake.delivery.connector({"value.converter": converter, **own})
    key = lake.delivery.put(f"{label}.parquet", as_parquet(table))
    assert lake.delivery.run(keys=[key]).ok


@pytest.mark.parametrize(
    ("lake", "converter"),
    [
        ("iceberg-workers", "avro"),
        soak("parquet", "json-schema"),
        soak("iceberg-workers", "json-schema"),
        soak("parquet", "avro"),
    ],
    indirect=["lake"],
)
def test_values_of_a_registry_have_the_columns_of_their_schema(
    lake: Lake, registry: Stack, converter: str
) -> None:
    """With a column that comes later."""
    values = of_registry(registry)
    first, late = rows_of(0, 500), rows_of(500, 500).append_column("extra", pa.array(["x"] * 500))
    send_rows(lake, registry, "first", first, converter)
    before = lake.run(values=values, arrow_records=100)
    send_rows(lake, registry, "late", late, converter)

    with pytest.raises(
        UnsupportedFormat, match=r"offset \d+: a value with the schema \d+ of a reg"
    ):
        lake.run()
    after = lake.run(values=values, arrow_records=100, checkpoint=(lake.home / "new").as_uri())

    assert (before, after) == (500, 500)
    assert lake.rows() == expected(first, late)


@iceberg_first
def test_a_registered_column_that_the_table_cannot_hold_is_refused(
    lake: Lake, registry: Stack
) -> None:
    values = of_registry(registry)
    send_rows(lake, registry, "first", rows_of(0, 10), "avro")
    send(lake.delivery, "columnar", rows_of(10, 10))
    assert lake.run(values=values) == 20
    assert lake.rows() == expected(rows_of(0, 20))
    table = pa.table({"id": [1], "price": ["text"]})
    send_rows(lake, registry, "other", table, "avro")

    with pytest.raises(
        IncompatibleSchema, match=r"offset \d+, schema \d+ \(.*-value version \d\): column price is"
    ):
        lake.run(values=values)


def restarted(lake: Lake) -> Any:  # noqa: ANN401
    """Return the target as if it held nothing of the topic yet."""
    target = lake.target
    state = target.open(())
    return Stale(target, TableState(state.columns, {}, state.version))


@parquet_first
def test_json_values_are_read_with_a_declared_schema(lake: Lake) -> None:
    lake.delivery.connector({"input.format": "text", "value.converter": "bytes"})
    lake.delivery.put("all.txt", joined(json.dumps(one).encode() for one in DOCUMENTS))
    assert run_here(lake.delivery).ok

    written = lake.run(values=ValueOptions(schema=JSON_SCHEMA.read(SCHEMA)), arrow_records=1000)

    assert written == ROWS
    assert lake.rows() == [
        {**one, "price": Decimal(str(one["price"])), "day": dt.date(2024, 2, 29)}
        for one in DOCUMENTS
    ]


def test_other_values_are_refused(delivery: Delivery, spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(delivery, spark, "parquet", tmp_path, partition_by=())
    delivery.connector({"input.format": "text", "value.converter": "bytes"})
    delivery.put("one.txt", b'{"id": "x"}')
    assert run_here(delivery).ok
    place = rf"topic {delivery.topic}\[\d\] offset \d+: .*"

    with pytest.raises(UnsupportedFormat, match=f"{place}give --schema|give --schema"):
        lake.run()
    with pytest.raises(CorruptRecord, match=f"{place}id"):
        lake.run(values=ValueOptions(schema=JSON_SCHEMA.read("id:int64")))


def test_old_and_new_values_of_a_topic_are_all_rows(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(delivery, spark, "parquet", tmp_path, partition_by=())
    old = [Value(n % 4, b'{"id":%d,"text":"row %d"}' % (n, n)) for n in range(20)]
    new = [columnar(few_rows(20, 30)), columnar(few_rows(30, 40), 1, encoding="parquet")]
    servers = delivery.settings.bootstrap_servers
    Topics(servers).write({delivery.topic: [*old, *new, Value(0, b'{"id":40,"text":"row 40"}')]})

    assert lake.run(values=ValueOptions(schema=JSON_SCHEMA.read("id:int64, text:string"))) == 41
    assert lake.rows() == few_rows(0, 41).to_pylist()


def test_a_column_group_is_a_table_of_its_own(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    topics = make_topics(delivery, ["ids", "days"])
    delivery.put("rows.parquet", as_parquet(rows_of(0, 100)))
    groups = {"columnar.encoding": "arrow", "columnar.groups": "ids: *; days: id, day"}
    delivery.topic = topics[0].removesuffix(".ids")
    delivery.connector(groups)
    assert run_here(delivery).ok
    lake = Lake(delivery, spark, "parquet", tmp_path)

    assert lake.run(topics=(topics[1],)) == 100
    assert lake.rows() == rows_of(0, 100).select(["id", "day"]).to_pylist()
    both = Lake(delivery, spark, "parquet", tmp_path / "both")
    with pytest.raises(Misconfigured, match="columns of the same rows"):
        both.run(topics=tuple(topics))
