"""`extentflow lake` on tables that others replace, restore and write to."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.columnar_delivery import make_topics
from tests.support.columnar_topics import Topics, columnar
from tests.support.columnar_topics import rows_of as columnar_rows
from tests.support.delivery import Delivery
from tests.support.lakes import Lake, Stale, lake_session, rows_of, send, soak
from tests.support.real_tables import RealTable
from tests.support.spark import MARKS
from tests.support.table_histories import STEPS, ModelTable, TableHistory

from extentflow.errors import Conflict, Misconfigured
from extentflow.export.lake.iceberg import catalog_settings
from extentflow.export.lake.lake_session import as_uri
from extentflow.export.lake.lake_target import offsets_text

if TYPE_CHECKING:
    pass

pytestmark = [*MARKS, pytest.mark.variant]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with lake_session() as session:
        yield session


def iceberg_name(spark: SparkSession, home: Path, label: str) -> str:
    """Return the name of a table in a catalog of its own."""
    for name, value in catalog_settings(label, as_uri(str(home))).items():
        spark.conf.set(name, value)
    return f"{label}.shop.orders"


@pytest.mark.parametrize("seed", [0, soak(442), soak(1156)])  # these draw doubts
def test_real_tables_behave_as_the_model_of_their_histories(
    spark: SparkSession, tmp_path: Path, unique: str, seed: int
) -> None:
    model = TableHistory(ModelTable(), Random(seed))
    name = iceberg_name(spark, tmp_path, f"history_{unique}".replace("-", "_"))
    real = TableHistory(RealTable(spark, name), Random(seed))

    # Iceberg picks only what it calls an append, which the model does not tell.
    model.run(25, only=STEPS - {"pick"})
    real.run(25, only=STEPS - {"pick"})

    assert real.trace == model.trace


def test_a_replaced_table_continues_where_a_person_states(
    delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(delivery, spark, "iceberg-workers", tmp_path)
    send(delivery, "first", rows_of(0, 10))
    lake.run()
    held = lake.target.open(()).offsets
    name = f"lake_{delivery.name}.shop.orders"
    spark.sql(f"CREATE OR REPLACE TABLE {name} USING iceberg AS SELECT * FROM {name}")  # noqa: S608
    send(delivery, "second", rows_of(10, 10))
    lake.checkpoint = "new"

    with pytest.raises(Conflict, match=rf"--continue-at '{re.escape(offsets_text(held))}'"):
        lake.run()
    with pytest.raises(Misconfigured, match="has no offset 1000"):
        lake.run(continue_at={delivery.topic: {0: 1000}})
    assert lake.run(continue_at=held) == 10
    with pytest.raises(Misconfigured, match="leave the option out"):
        lake.run(continue_at=held)

    found = spark.table(name).select("id").collect()
    assert sorted(row.id for row in found) == [*range(20)]


@pytest.mark.parametrize("kind", [soak("iceberg-workers"), "iceberg"])
def test_a_restored_table_gets_its_rows_again(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Another program appends, and the snapshots expire that state its offsets."""
    lake = Lake(delivery, spark, kind, tmp_path)
    send(delivery, "first", rows_of(0, 10))
    lake.run()
    target: Any = lake.target
    restored = target._loaded().currentSnapshot().snapshotId()
    send(delivery, "second", rows_of(10, 10))
    lake.run()
    target._loaded().manageSnapshots().rollbackTo(restored).commit()
    name = f"lake_{delivery.name}.shop.orders"
    spark.table(name).where("id = 0").writeTo(name).append()
    expire = target._loaded().expireSnapshots().retainLast(1)
    expire.expireOlderThan(2**62).cleanExpiredFiles(False).commit()  # noqa: FBT003 - Java's
    lake.checkpoint = "new"

    assert lake.run() == 10

    found = spark.table(name).select("id").collect()
    assert sorted(row.id for row in found) == [0, *range(20)]


@pytest.mark.parametrize("kind", ["iceberg-workers", "parquet"])
def test_a_topic_that_was_created_again_with_as_many_records_is_refused(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = Lake(delivery, spark, kind, tmp_path)
    topics = Topics(delivery.settings.bootstrap_servers)
    topics.create_again(delivery.topic)  # with one partition
    topics.write({delivery.topic: [columnar(numbered(0, 10))]})
    assert lake.run() == 10
    before = topics.id_of(delivery.topic)
    topics.create_again(delivery.topic)
    topics.write({delivery.topic: [columnar(numbered(10, 20))]})
    after = topics.id_of(delivery.topic)

    for checkpoint in ("checkpoint", "new"):
        lake.checkpoint = checkpoint
        said = re.escape(f"{before}, and is {after} now")
        with pytest.raises(Conflict, match=f"{said}.*--continue-at"):
            lake.run()
    if kind == "parquet":
        with pytest.raises(Conflict, match="another folder"):
            lake.run(continue_at={delivery.topic: {}})
        return
    assert lake.run(continue_at={delivery.topic: {}}) == 10
    assert lake.run() == 0
    assert [row["id"] for row in lake.rows()] == [*range(20)]


@dataclass
class CreatingAgain:
    """A target whose topic is created again before a batch of it is read."""

    target: Any
    create_again: Callable[[], None]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.target, name)

    def write(self, *given: Any) -> Any:  # noqa: ANN401
        self.create_again()
        return self.target.write(*given)


@pytest.mark.parametrize("kind", ["iceberg-workers", "parquet"])
def test_a_topic_that_is_created_again_during_a_query_is_not_committed(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    lake = Lake(delivery, spark, kind, tmp_path)
    topics = Topics(delivery.settings.bootstrap_servers)
    topics.create_again(delivery.topic)  # with one partition
    topics.write({delivery.topic: [columnar(numbered(0, 10))]})
    assert lake.run() == 10
    topics.write({delivery.topic: [columnar(numbered(10, 20))]})

    def create_again() -> None:
        topics.create_again(delivery.topic)
        for start in (20, 30):
            topics.write({delivery.topic: [columnar(numbered(start, start + 10))]})

    with pytest.raises(Conflict, match=r"was created again.*Nothing of the new topic is written"):
        lake.run(CreatingAgain(lake.target, create_again))

    assert [row["id"] for row in lake.rows()] == [*range(10)]
    with pytest.raises(Conflict, match="--continue-at"):
        lake.run()


def numbered(start: int, end: int) -> pa.RecordBatch:
    """Return rows with the column by which folders are partitioned."""
    day = pa.array([date(2024, 2, 28)] * (end - start), pa.date32())
    return columnar_rows(start, end).append_column("day", day)


@pytest.mark.parametrize("kind", ["iceberg-workers", soak("iceberg")])
def test_queries_of_different_topics_keep_the_offsets_of_each_other(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """One commits offsets without rows while the other writes a batch."""
    lake = Lake(delivery, spark, kind, tmp_path)
    own, (other,) = delivery.topic, make_topics(delivery, ["other"])
    send(delivery, "first", rows_of(0, 10))
    lake.run()
    target: Any = lake.target
    state = target.open((own,))
    for end in (5, 62):
        target._state_offsets(target.open((other,)), {other: {0: end}})
        if end == 5:
            stale: Any = Stale(target, target.open((own,)))
    send(delivery, "second", rows_of(10, 10))

    assert lake.run(stale) == 10

    found = target.open((own, other)).offsets
    assert found[other] == {0: 62}
    assert sum(found[own].values()) > sum(state.offsets[own].values())
