"""`extentflow lake`: topics become Parquet folders and Iceberg tables, exactly once."""

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.support.columnar_delivery import create, make_topics
from tests.support.columnar_topics import Topics, columnar
from tests.support.delivery import Delivery
from tests.support.lakes import (
    ROWS,
    Lake,
    Stale,
    expected,
    iceberg_first,
    lake_session,
    parquet_first,
    rows_of,
    send,
    soak,
    variant,
)
from tests.support.spark import MARKS

from extentflow.errors import Conflict, IncompatibleSchema
from extentflow.export.lake import data_files, iceberg
from extentflow.export.lake.lake_query import LakeService
from extentflow.export.lake.lake_session import as_uri
from extentflow.export.lake.lake_target import TableState
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    pass

pytestmark = [*MARKS, pytest.mark.long]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with lake_session() as session:
        yield session


@pytest.mark.parametrize(
    ("lake", "encoding"),
    [
        ("parquet", "parquet"),
        variant("iceberg", "arrow"),
        soak("parquet", "arrow"),
        soak("iceberg", "parquet"),
    ],
    indirect=["lake"],
)
def test_all_rows_arrive_once_however_often_it_runs(lake: Lake, encoding: str) -> None:
    send(lake.delivery, "first", rows_of(0), encoding)

    assert lake.run() == ROWS
    assert lake.run() == 0
    shutil.rmtree(lake.home / lake.checkpoint)
    assert lake.run() == 0
    send(lake.delivery, "second", rows_of(ROWS), encoding)
    shutil.rmtree(lake.home / lake.checkpoint)

    assert lake.run() == ROWS
    assert lake.rows() == expected(rows_of(0), rows_of(ROWS))


@pytest.mark.variant
@parquet_first
def test_several_batches_continue_in_one_checkpoint(lake: Lake) -> None:
    send(lake.delivery, "first", rows_of(0))

    assert lake.run(most_offsets=3) == ROWS

    assert len(lake.reports) > 1
    assert lake.rows() == expected(rows_of(0))


@pytest.mark.variant
@pytest.mark.parametrize("lake", ["iceberg-workers", "parquet"], indirect=True)
def test_late_columns_are_added_and_older_rows_have_nulls(lake: Lake) -> None:
    late = rows_of(ROWS).append_column("extra", pa.array(["late"] * ROWS))
    send(lake.delivery, "first", rows_of(0))
    assert lake.run() == ROWS
    send(lake.delivery, "second", late)
    # Without a column that the table has, too.
    send(lake.delivery, "third", rows_of(2 * ROWS).drop_columns(["tags"]))

    assert lake.run() == 2 * ROWS

    fewer = rows_of(2 * ROWS).drop_columns(["tags"])
    assert lake.rows() == expected(rows_of(0), late, fewer)


@pytest.mark.variant
@iceberg_first
def test_a_wider_type_takes_the_place_of_a_narrower_one(lake: Lake) -> None:
    wide = rows_of(ROWS).set_column(8, "small", pa.array([2**40] * ROWS, pa.int64()))
    send(lake.delivery, "first", rows_of(0))
    assert lake.run() == ROWS
    send(lake.delivery, "second", wide)

    assert lake.run() == ROWS

    narrow = rows_of(0).set_column(8, "small", rows_of(0)["small"].cast(pa.int64()))
    assert lake.rows() == expected(narrow, wide)


@parquet_first
def test_another_type_is_refused_and_the_table_keeps_its_rows(lake: Lake) -> None:
    """Of a producer that settles no schemas: ours refuses such values before they are sent."""
    other = rows_of(ROWS).set_column(1, "price", pa.array(["1.00"] * ROWS))
    send(lake.delivery, "first", rows_of(0))
    lake.run()
    (batch,) = other.combine_chunks().to_batches()
    servers = lake.delivery.stack.endpoint("kafka")
    Topics(servers).write({lake.delivery.topic: [columnar(batch, batch="other")]})

    with pytest.raises(IncompatibleSchema, match=r"offset \d+: column price is string here"):
        lake.run()

    assert lake.rows() == expected(rows_of(0))


@pytest.mark.parametrize("lake", ["parquet", variant("iceberg-workers")], indirect=True)
def test_the_older_of_two_queries_is_refused(lake: Lake) -> None:
    send(lake.delivery, "first", rows_of(0, 10))
    lake.run()
    older = lake.target
    stale: Any = Stale(older, older.open(()))
    send(lake.delivery, "second", rows_of(10, 10))
    lake.checkpoint = "other"
    lake.run()
    lake.checkpoint = "third"

    with pytest.raises(Conflict, match="another query"):
        lake.run(stale)

    assert lake.rows() == expected(rows_of(0, 20))


def test_other_writers_of_an_iceberg_table_only_delay_a_batch(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(delivery, spark, "iceberg", tmp_path)
    send(delivery, "first", rows_of(0, 10))
    lake.run()
    target = lake.target
    stale: Any = Stale(target, target.open(()))
    name = f"lake_{delivery.name}.shop.orders"
    spark.table(name).where("id = 0").writeTo(name).append()
    send(delivery, "second", rows_of(10, 10))

    lake.run(stale)

    assert lake.rows() == expected(rows_of(0, 20), rows_of(0, 1))


@pytest.mark.variant
def test_spark_reads_what_workers_wrote_by_the_ids_of_columns(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(delivery, spark, "iceberg-workers", tmp_path)
    kind = pa.map_(pa.string(), pa.struct([("z", pa.decimal128(20, 3))]))
    marks = [[(f"k{one}", {"z": Decimal(one)})] if one % 2 else None for one in range(10)]
    sent = rows_of(0, 10).append_column("marks", pa.array(marks, kind))
    send(delivery, "first", sent)
    assert lake.run() == 10
    name = f"lake_{delivery.name}.shop.orders"
    stated = {one["name"] for one in sent.to_pylist()}

    # Without ids, files are read by names, and the renamed columns would be null.
    for column in ("price", "at", "tags", "marks"):
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN {column} TO {column}_2")
    rows = spark.table(name).orderBy("id").collect()
    bounds = spark.table(f"{name}.files").select("readable_metrics.id.*").collect()

    assert [row.price_2 for row in rows] == sent["price"].to_pylist()
    assert [row.large for row in rows] == sent["large"].to_pylist()
    assert [row.at_2.asDict() for row in rows] == sent["at"].to_pylist()
    assert [row.tags_2 for row in rows] == sent["tags"].to_pylist()
    assert [row.day for row in rows] == sent["day"].to_pylist()
    assert {row.name for row in rows} == stated
    found = [
        {k: v.asDict() for k, v in row.marks_2.items()} if row.marks_2 else None for row in rows
    ]
    assert found == [None if one is None else dict(one) for one in marks]
    assert min(row.lower_bound for row in bounds) == 0
    assert max(row.upper_bound for row in bounds) == 9


@pytest.mark.variant
def test_a_commit_whose_outcome_was_unknown_is_found_behind_that_of_another_query(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(delivery, spark, "iceberg-workers", tmp_path)
    send(delivery, "first", rows_of(0, 10))
    assert lake.run() == 10
    own, (other,) = delivery.topic, make_topics(delivery, ["other"])
    delivery.topic = other
    send(delivery, "other", rows_of(100, 10))
    delivery.topic = own
    send(delivery, "second", rows_of(10, 10))
    commit, calls = data_files.append, 0

    def lost(*given: Any, **named: Any) -> None:  # noqa: ANN401
        nonlocal calls
        commit(*given, **named)
        calls += 1
        if calls == 1:
            lake.run(topics=(other,), checkpoint=(tmp_path / "other").as_uri())
            raise Py4JError("org.apache.iceberg.exceptions.CommitStateUnknownException: lost")

    monkeypatch.setattr(iceberg, "append", lost)

    assert lake.run() == 20  # those of the other query too

    assert calls == 2
    found = spark.table(f"lake_{delivery.name}.shop.orders").select("id").collect()
    assert sorted(row.id for row in found) == [*range(20), *range(100, 110)]
    assert lake.run(checkpoint=(tmp_path / "again").as_uri()) == 0


@pytest.mark.variant
def test_folders_of_any_name_hold_tables(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    home = tmp_path / "a space" / "50%20" / "a#b" / "a?b" / "ü+"
    home.mkdir(parents=True)
    lake = Lake(delivery, spark, "iceberg-workers", home)
    send(delivery, "first", rows_of(0, 10))

    assert lake.run(checkpoint=as_uri(str(home / "checkpoint"))) == 10

    found = spark.table(f"lake_{delivery.name}.shop.orders").select("id").collect()
    assert sorted(row.id for row in found) == [*range(10)]


@pytest.mark.variant
def test_files_of_topics_that_begin_with_an_underscore_are_visible(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    hidden = f"_{delivery.name}"
    delivery.topic = hidden
    create(delivery, hidden)
    send(delivery, "first", rows_of(0, 10))
    lake = Lake(delivery, spark, "parquet", tmp_path, partition_by=())

    assert lake.run(topics=(hidden,)) == 10
    assert spark.read.parquet(lake.address).count() == 10


@pytest.mark.variant
def test_expired_snapshots_keep_the_one_with_offsets(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(delivery, spark, "iceberg", tmp_path)
    send(delivery, "first", rows_of(0, 10))
    lake.run()
    target: Any = lake.target
    name = f"lake_{delivery.name}.shop.orders"
    spark.table(name).where("id = 0").writeTo(name).append()
    spark.table(name).where("id = 1").writeTo(name).append()
    expire = target._loaded().expireSnapshots().retainLast(1)
    expire.expireOlderThan(2**62).cleanExpiredFiles(False).commit()  # noqa: FBT003 - Java's
    assert spark.table(f"{name}.snapshots").count() == 2  # the current one, and the tag's
    lake.checkpoint = "other"

    assert lake.run() == 0


@pytest.mark.variant
@iceberg_first
def test_the_first_record_gives_the_columns_where_a_topic_was_empty(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lake.delivery.topic
    assert lake.run() == 0
    # As in a query that runs on: the columns were looked for when there were none.
    monkeypatch.setattr(LakeService, "_create", lambda _service: None)
    send(lake.delivery, "first", rows_of(0, 10))

    assert lake.run() == 10
    assert lake.rows() == expected(rows_of(0, 10))


@parquet_first
def test_a_topic_that_was_created_again_is_refused(lake: Lake) -> None:
    send(lake.delivery, "first", rows_of(0, 10))
    ahead = {lake.delivery.topic: {0: 1_000}}
    stale: Any = Stale(lake.target, TableState(pa.schema([]), ahead, None))

    with pytest.raises(Conflict, match=r"\[0\] up to offset 1000, and the topic ends at \d+"):
        lake.run(stale)


@pytest.mark.parametrize(
    "lake", ["iceberg-workers", soak("iceberg"), soak("parquet")], indirect=True
)
def test_a_checkpoint_ahead_of_the_table_is_refused(lake: Lake) -> None:
    send(lake.delivery, "first", rows_of(0, 10))
    lake.run()
    shutil.rmtree(lake.home / "lake")
    send(lake.delivery, "second", rows_of(10, 10))
    lake.run(checkpoint=(lake.home / "new").as_uri(), most_offsets=1)
    state = lake.target.open(())
    first = {lake.delivery.topic: dict.fromkeys(state.offsets[lake.delivery.topic], 0)}
    stale: Any = Stale(lake.target, TableState(state.columns, first, state.version))

    with pytest.raises(Conflict, match="checkpoint"):
        lake.run(stale)


@pytest.mark.variant
def test_a_folder_of_a_bucket_holds_the_same_rows(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, stack: Stack
) -> None:
    address = f"s3a://{delivery.bucket}/{delivery.name}-lake"
    lake = Lake(
        delivery, spark, "parquet", tmp_path, endpoint=stack.endpoint("s3"), address=address
    )
    send(delivery, "first", rows_of(0))

    assert lake.run() == ROWS
    assert lake.run() == 0
    assert lake.rows() == expected(rows_of(0))
    assert list(lake.opener(address).names("_extentflow/staged/")) == []
