"""`extentflow lake`: topics become Parquet folders and Iceberg tables, exactly once."""

import base64
import datetime as dt
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.support.columnar_delivery import create, make_topics
from tests.support.columnar_topics import Topics, Value, columnar
from tests.support.columnar_topics import rows_of as few_rows
from tests.support.delivery import Delivery, joined
from tests.support.real import run_here
from tests.support.real_tables import RealTable
from tests.support.spark import MARKS, end_jvm
from tests.support.table_histories import STEPS, ModelTable, TableHistory
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.config.registry import RegistryOptions
from extentflow.engines import spark as engine
from extentflow.errors import (
    AccessDenied,
    Conflict,
    CorruptRecord,
    IncompatibleSchema,
    Misconfigured,
    UnsupportedFormat,
)
from extentflow.export.lake import data_files, iceberg
from extentflow.export.lake.iceberg import IcebergTable, catalog_settings
from extentflow.export.lake.lake_options import ValueOptions
from extentflow.export.lake.lake_query import LakeBatch, LakeService, LakeTerms
from extentflow.export.lake.lake_session import as_uri
from extentflow.export.lake.lake_target import Offsets, TableState, Target, offsets_text
from extentflow.export.lake.parquet_folder import ParquetFolder
from extentflow.services.lakes import folder_opener, lake_cluster
from extentflow.storage.folders import FolderOpener
from extentflow.wiring.options import aws_kms
from extentflow.wiring.value_access import ProcessAccess
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.stack import Stack
from extentflow_local.stack.toolbox import toolbox

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = MARKS

ROOT = Path(__file__).parents[2]
ROWS = 3_000
variant = partial(pytest.param, marks=pytest.mark.variant)
# Iceberg's files are written by Python workers without partitions, and by Spark with them.
TARGETS = [
    pytest.param("parquet", id="parquet"),
    pytest.param("iceberg-workers", id="iceberg-workers"),
    variant("iceberg", id="iceberg"),
]
parquet_first = pytest.mark.parametrize(
    "lake", ["parquet", variant("iceberg-workers")], indirect=True
)
iceberg_first = pytest.mark.parametrize(
    "lake", ["iceberg-workers", variant("parquet")], indirect=True
)


def library(*components: str) -> str:
    """The jars of components, as `--jars` takes them."""
    tools = toolbox(LocalSettings.from_environment())
    return ",".join(str(jar) for one in components for jar in tools.library(one).glob("*.jar"))


@pytest.fixture(scope="module")
def jars() -> str:
    return library("spark-lake")


@pytest.fixture(scope="module")
def spark(jars: str) -> Iterator[SparkSession]:
    # Jars are those with which a JVM starts.
    end_jvm()
    settings = {"spark.jars": jars, "spark.sql.session.timeZone": "UTC"}
    session = SparkSession(engine.local_context(2, settings, java_options="-XX:-UsePerfData"))
    yield session
    session.stop()
    end_jvm()


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    return Delivery(stack, s3, bucket, unique)


def rows_of(first: int, count: int = ROWS) -> pa.Table:
    """Rows of many types, numbered from `first`."""
    numbers = range(first, first + count)
    day, moment = dt.date(2024, 2, 28), dt.datetime(2024, 2, 28, 23, 59, 59)  # noqa: DTZ001
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(one) / 100 for one in numbers], pa.decimal128(15, 2)),
            "large": pa.array([Decimal(10) ** 30 + one for one in numbers], pa.decimal128(38, 0)),
            "day": pa.array([day + dt.timedelta(days=one % 3) for one in numbers]),
            "seen": pa.array(
                [moment + dt.timedelta(milliseconds=one) for one in numbers], pa.timestamp("ms")
            ),
            "instant": pa.array(
                [moment + dt.timedelta(microseconds=one) for one in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "name": pa.array([None if one % 7 == 0 else f"näme {one}" for one in numbers]),
            "raw": pa.array([bytes([one % 256, 0]) for one in numbers], pa.binary()),
            "small": pa.array([one % 100 for one in numbers], pa.int16()),
            "ratio": pa.array([one / 3 for one in numbers], pa.float64()),
            "flag": pa.array([one % 2 == 0 for one in numbers]),
            "tags": pa.array([[f"t{one}", None][: one % 3] for one in numbers]),
            "at": pa.array(
                [{"x": one / 7, "y": None if one % 5 else "y"} for one in numbers],
                pa.struct([("x", pa.float64()), ("y", pa.string())]),
            ),
        }
    )


def as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=500)
    return sink.getvalue()


def expected(*tables: pa.Table) -> list[dict[str, Any]]:
    whole = pa.concat_tables(tables, promote_options="default")
    return sorted(whole.to_pylist(), key=lambda row: row["id"])


@dataclass
class Lake:
    """One target, which a test fills from one topic."""

    delivery: Delivery
    spark: Any  # the session; None: only commands write
    kind: str
    home: Path
    checkpoint: str = "checkpoint"
    partition_by: tuple[str, ...] = ("day",)
    endpoint: str | None = None
    address: str = ""
    reports: list[LakeBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.address = self.address or str(self.home / "lake")
        if self.kind == "iceberg-workers":
            self.partition_by = ()

    @property
    def opener(self) -> FolderOpener:
        return folder_opener({} if self.endpoint is None else {"aws.s3.endpoint": self.endpoint})

    @property
    def target(self) -> Target:
        if self.kind == "parquet":
            return ParquetFolder(self.address, self.opener, self.partition_by)
        catalog = f"lake_{self.delivery.name}"
        for name, value in catalog_settings(catalog, as_uri(str(self.home / "lake"))).items():
            self.spark.conf.set(name, value)
        name = f"{catalog}.shop.orders"
        return IcebergTable(self.spark, name, self.partition_by, self.opener)

    def run(self, target: Target | None = None, **changes: Any) -> int:  # noqa: ANN401
        """Write what the topic holds; return how many rows that were."""
        usual: dict[str, Any] = {
            "topics": (self.delivery.topic,),
            "checkpoint": (self.home / self.checkpoint).as_uri(),
            "every_seconds": None,
            **changes,
        }
        before = len(self.reports)
        service = LakeService(
            self.spark,
            target or self.target,
            LakeTerms(**usual),
            lake_cluster(self.delivery.runtime),
        )
        service.run(self.reports.append)
        return sum(one.rows for one in self.reports[before:])

    def rows(self) -> list[dict[str, Any]]:
        """Every row of every file, as a reader of files finds them."""
        return sorted(self.table().to_pylist(), key=lambda row: row["id"])

    def table(self) -> pa.Table:
        if self.kind == "parquet":
            folder = self.opener(self.address)
            names = [name for name in folder.names() if name.endswith(".parquet")]
            read = [self._partitioned(name, folder.read(name)) for name in names]
        else:
            name = f"lake_{self.delivery.name}.shop.orders"
            found = self.spark.table(f"{name}.files").select("file_path").collect()
            paths = [row.file_path.removeprefix("file:") for row in found]
            read = [pq.ParquetFile(path).read() for path in paths]
        plain = [table.replace_schema_metadata() for table in read]
        return pa.concat_tables(plain, promote_options="permissive")

    def _partitioned(self, name: str, content: bytes) -> pa.Table:
        table = pq.ParquetFile(pa.BufferReader(content)).read()
        for part in name.split("/")[:-1]:
            column, _, text = part.partition("=")
            value = dt.date.fromisoformat(text)
            table = table.append_column(column, pa.array([value] * len(table)))
        return table

    def words(self, jars: str) -> list[str]:
        """The words of `extentflow lake` for this target."""
        table = [] if self.kind == "parquet" else ["--table", "shop.orders"]
        return [
            *(self.delivery.topic, "--to", self.address, *table, "--jars", jars, "--json"),
            *(["--partition-by", ",".join(self.partition_by)] if self.partition_by else []),
            *("--cores", "2"),
            *("--checkpoint", str(self.home / self.checkpoint)),
        ]


@pytest.fixture(params=TARGETS)
def lake(
    request: pytest.FixtureRequest, delivery: Delivery, spark: SparkSession, tmp_path: Path
) -> Lake:
    return Lake(delivery, spark, request.param, tmp_path)


def send(delivery: Delivery, label: str, table: pa.Table, encoding: str = "parquet") -> None:
    """Deliver rows to the topic as columnar values."""
    delivery.connector({"columnar.encoding": encoding})
    delivery.put(f"{label}.parquet", as_parquet(table))
    assert run_here(delivery).ok


@pytest.mark.parametrize(
    ("lake", "encoding"),
    [
        ("parquet", "parquet"),
        ("iceberg", "arrow"),
        variant("parquet", "arrow"),
        variant("iceberg", "parquet"),
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


@parquet_first
def test_several_batches_continue_in_one_checkpoint(lake: Lake) -> None:
    send(lake.delivery, "first", rows_of(0))

    assert lake.run(most_offsets=3) == ROWS

    assert len(lake.reports) > 1
    assert lake.rows() == expected(rows_of(0))


@iceberg_first
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
@parquet_first
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


class Stale:
    """A target as another query found it before."""

    def __init__(self, target: Target, state: TableState) -> None:
        self._target = target
        self._state = state

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._target, name)

    def open(self, _topics: Sequence[str], _stated: Offsets | None = None) -> TableState:
        return self._state


@parquet_first
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


@pytest.mark.long
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
@pytest.mark.parametrize("folder", ["a space", "50%20", "a#b", "a?b", "ü+"])
def test_folders_of_any_name_hold_tables(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    home = tmp_path / folder
    home.mkdir()
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


@pytest.mark.long
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


DOCUMENTS = [
    {"id": one, "price": f"{one}.25", "day": "2024-02-29", "tags": ["a", None], "name": None}
    for one in range(ROWS)
]
SCHEMA = "id:int64, price:decimal(12,2), day:date, tags:list<string>, name:string"


SECRET = base64.b64encode(b"a master key, 16").decode()


@pytest.fixture
def cards(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Rows whose column `name` is encrypted in the topic."""
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")
    rows = rows_of(0, 500)
    lake.delivery.connector(
        {
            "columnar.encoding": "parquet",
            "columnar.encryption.columns": "name",
            "columnar.encryption.key": "cards",
            "columnar.encryption.key.list": "${env:CARD_KEYS}",
        }
    )
    key = lake.delivery.put("cards.parquet", as_parquet(rows))
    assert lake.delivery.run(keys=[key]).ok
    return rows


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
        variant("parquet", "json-schema"),
        variant("iceberg-workers", "json-schema"),
        variant("parquet", "avro"),
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


@pytest.mark.variant
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


@pytest.mark.parametrize(
    ("line", "declared", "error", "said"),
    [
        (b'{"id": 1}', None, UnsupportedFormat, "give --schema"),
        (b'{"id": "x"}', "id:int64", CorruptRecord, r"offset \d+: .*id"),
        (b"\0\0\0\0\1x", "id:int64", UnsupportedFormat, "schema 1 of a registry; .*--registry"),
    ],
)
def test_other_values_are_refused(  # noqa: PLR0917 - fixtures
    delivery: Delivery,
    spark: SparkSession,
    tmp_path: Path,
    line: bytes,
    declared: str | None,
    error: type[Exception],
    said: str,
) -> None:
    lake = Lake(delivery, spark, "parquet", tmp_path, partition_by=())
    delivery.connector({"input.format": "text", "value.converter": "bytes"})
    delivery.put("one.txt", line)
    assert run_here(delivery).ok

    with pytest.raises(error, match=rf"topic {delivery.topic}\[\d\] offset \d+: .*{said}|{said}"):
        lake.run(values=ValueOptions(schema=JSON_SCHEMA.read(declared) if declared else None))


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


@pytest.mark.variant
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


# -- as programs -----------------------------------------------------------------------------------


def completed(delivery: Delivery, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a module of Python to its end."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=delivery.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=AWAITED_SECONDS,
    )


@pytest.mark.long
def test_keys_of_kms_decrypt_what_they_encrypted(
    delivery: Delivery, aws: Stack, jars: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", aws.endpoint("aws"))
    kms: Any = boto3.client("kms", endpoint_url=aws.endpoint("aws"))
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    aws_kms.cache_clear()
    keys = {"columns": "name", "key": arn}
    own = {f"columnar.encryption.{name}": value for name, value in keys.items()}
    delivery.connector({"columnar.encoding": "parquet", **own})
    key = delivery.put("cards.parquet", as_parquet(rows_of(0, 100)))
    assert delivery.run(keys=[key]).ok
    lake = Lake(delivery, None, "parquet", tmp_path)
    words = [*lake.words(jars), "--once"]

    denied = completed(delivery, "extentflow", "lake", *words)
    read = completed(delivery, "extentflow", "lake", *words, "--keys", "aws-kms")

    assert denied.returncode == 2, denied.stderr
    assert f"encrypted columns: name (master key {arn})" in denied.stderr
    assert read.returncode == 0, read.stderr
    assert lake.rows() == expected(rows_of(0, 100))


@pytest.mark.long
def test_no_file_of_spark_has_a_key(lake: Lake, cards: pa.Table, jars: str) -> None:
    """Of a command with an event log, which the environment's variables give the keys."""
    events = lake.home / "events"
    events.mkdir()
    shown = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    logged = [f"--conf=spark.eventLog.{name}={value}" for name, value in shown.items()]
    words = [*lake.words(jars), "--once", "--keys", "${env:CARD_KEYS}", *logged]

    ended = completed(lake.delivery, "extentflow", "lake", *words)

    assert ended.returncode == 0, ended.stderr
    assert '"rows": 500' in ended.stdout
    if lake.kind != "parquet":
        lake.target.open(())  # the session has the catalog then
    assert lake.rows() == expected(cards)
    files = [path for path in lake.home.rglob("*") if path.is_file()]
    assert any("events" in str(path) for path in files)
    assert any("checkpoint" in str(path) for path in files)
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in ended.stdout + ended.stderr


@pytest.mark.archive
@pytest.mark.parametrize("by", ["option", "variable"])
def test_an_iceberg_table_in_a_bucket_holds_the_same_rows(
    delivery: Delivery, stack: Stack, s3: "S3Client", monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    endpoint = ("--endpoint", stack.endpoint("s3")) if by == "option" else ()
    if by == "variable":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", stack.endpoint("s3"))
    send(delivery, "first", rows_of(0))
    warehouse = f"s3a://{delivery.bucket}/{delivery.name}-lake"
    words = [
        *("lake", delivery.topic, "--to", warehouse, "--table", "shop.orders", "--once", "--json"),
        *(*endpoint, "--jars", library("spark-lake", "spark-s3a")),
    ]

    runs = [completed(delivery, "extentflow", *words) for _ in range(2)]

    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    listed = s3.list_objects_v2(Bucket=delivery.bucket, Prefix=f"{delivery.name}-lake/")
    keys = [each["Key"] for each in listed["Contents"] if each["Key"].endswith(".parquet")]
    bodies = [s3.get_object(Bucket=delivery.bucket, Key=key)["Body"].read() for key in keys]
    tables = [pq.ParquetFile(pa.BufferReader(body)).read() for body in bodies]
    plain = [table.replace_schema_metadata() for table in tables]
    rows = pa.concat_tables(plain, promote_options="permissive").to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == expected(rows_of(0))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("iceberg", "committed"),
        ("iceberg-workers", "committed"),
        ("iceberg-workers", "staged"),
        ("parquet", "staged"),
        ("parquet", "logged"),
        ("parquet", "committed"),
    ],
)
def test_a_killed_driver_loses_and_doubles_nothing(  # noqa: PLR0917 - fixtures
    delivery: Delivery, spark: SparkSession, tmp_path: Path, jars: str, kind: str, point: str
) -> None:
    lake = Lake(delivery, spark, kind, tmp_path)
    send(delivery, "first", rows_of(0))
    words = [*lake.words(jars), "--once"]

    died = completed(delivery, "tests.support.lake_deaths", point, *words)
    killed = [name for name in (tmp_path / "checkpoint" / "offsets").iterdir() if name.suffix == ""]
    send(delivery, "second", rows_of(ROWS))
    again = completed(delivery, "extentflow", "lake", *words)

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert killed  # Spark had begun the batch
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]"))[2:]
    assert again.returncode == 0, again.stderr
    assert lake.target.open(()).columns is not None  # the session has the catalog then
    assert lake.rows() == expected(rows_of(0), rows_of(ROWS))


@pytest.mark.long
def test_a_running_query_ends_at_a_signal(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, jars: str
) -> None:
    lake = Lake(delivery, spark, "parquet", tmp_path)
    send(delivery, "first", rows_of(0))
    output = tmp_path / "output"

    with output.open("w") as file:
        words = [sys.executable, "-m", "extentflow", "lake", *lake.words(jars), "--every", "0.5"]
        process = subprocess.Popen(
            words, env=delivery.environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            eventually("a batch is written", lambda: '"rows": 3000' in output.read_text())
            send(delivery, "second", rows_of(ROWS))
            eventually("two are", lambda: output.read_text().count('"rows": ') >= 2)
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=60)
        finally:
            process.kill()

    assert code == 0, output.read_text()
    assert lake.run() >= 0
    assert lake.rows() == expected(rows_of(0), rows_of(ROWS))


# -- what others do to a table ---------------------------------------------------------------------


def iceberg_name(spark: SparkSession, home: Path, label: str) -> str:
    """Return the name of a table in a catalog of its own."""
    for name, value in catalog_settings(label, as_uri(str(home))).items():
        spark.conf.set(name, value)
    return f"{label}.shop.orders"


@pytest.mark.variant
@pytest.mark.parametrize("seed", [0, 442, 1156])  # these draw doubts
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


@pytest.mark.variant
@pytest.mark.parametrize("kind", ["iceberg-workers", "iceberg"])
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


@pytest.mark.variant
@pytest.mark.parametrize("kind", ["iceberg-workers", "iceberg"])
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
