"""What tests of `extentflow lake` share: the session, rows of many types, a target and its rows."""

import base64
import datetime as dt
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.delivery import Delivery
from tests.support.real import run_here
from tests.support.spark import end_jvm

from extentflow.engines import spark as engine
from extentflow.export.lake.iceberg import IcebergTable, catalog_settings
from extentflow.export.lake.lake_query import LakeBatch, LakeService, LakeTerms
from extentflow.export.lake.lake_session import as_uri
from extentflow.export.lake.lake_target import NO_IDS, Offsets, TableState, Target, TopicIds
from extentflow.export.lake.parquet_folder import ParquetFolder
from extentflow.services.lakes import folder_opener, lake_cluster
from extentflow.storage.folders import FolderOpener
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.toolbox import toolbox

ROWS = 3_000


variant = partial(pytest.param, marks=pytest.mark.variant)
soak = partial(pytest.param, marks=pytest.mark.soak)


# The batches of both go one way through Spark; what is a target's own has a test for each.
parquet_first = pytest.mark.parametrize("lake", ["parquet", soak("iceberg-workers")], indirect=True)


iceberg_first = pytest.mark.parametrize("lake", ["iceberg-workers", soak("parquet")], indirect=True)


def library(*components: str) -> str:
    """The jars of components, as `--jars` takes them."""
    tools = toolbox(LocalSettings.from_environment())
    return ",".join(str(jar) for one in components for jar in tools.library(one).glob("*.jar"))


@contextmanager
def lake_session() -> Iterator[SparkSession]:
    """Open a session in a JVM of its own: jars are those with which a JVM starts."""
    end_jvm()
    settings = {"spark.jars": library("spark-lake"), "spark.sql.session.timeZone": "UTC"}
    session = SparkSession(engine.local_context(2, settings, java_options="-XX:-UsePerfData"))
    yield session
    session.stop()
    end_jvm()


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
            lake_cluster(self.delivery.runtime.settings, self.delivery.runtime.broker),
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


def send(delivery: Delivery, label: str, table: pa.Table, encoding: str = "parquet") -> None:
    """Deliver rows to the topic as columnar values."""
    delivery.connector({"columnar.encoding": encoding})
    delivery.put(f"{label}.parquet", as_parquet(table))
    assert run_here(delivery).ok


class Stale:
    """A target as another query found it before."""

    def __init__(self, target: Target, state: TableState) -> None:
        self._target = target
        self._state = state

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._target, name)

    def open(
        self, _topics: Sequence[str], _stated: Offsets | None = None, _ids: TopicIds = NO_IDS
    ) -> TableState:
        return self._state


SECRET = base64.b64encode(b"a master key, 16").decode()


def send_cards(delivery: Delivery) -> pa.Table:
    """Deliver rows whose column `name` is encrypted; the environment's CARD_KEYS has the key."""
    rows = rows_of(0, 500)
    delivery.connector(
        {
            "columnar.encoding": "parquet",
            "columnar.encryption.columns": "name",
            "columnar.encryption.key": "cards",
            "columnar.encryption.key.list": "${env:CARD_KEYS}",
        }
    )
    key = delivery.put("cards.parquet", as_parquet(rows))
    assert delivery.run(keys=[key]).ok
    return rows
