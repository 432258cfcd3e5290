"""A real Iceberg table, changed as `tests.support.table_histories` changes its model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from tests.support.table_histories import Rows

from extentflow.export.lake.iceberg import TAG, IcebergTable, TableSnapshots
from extentflow.export.lake.snapshot_history import Snapshot

COLUMNS = "topic string, at bigint"


@dataclass
class RealTable:
    """A table of a catalog of the session; `name` is `catalog.namespace.table`."""

    session: SparkSession
    name: str

    def __post_init__(self) -> None:
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
        self.session.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING iceberg"
            " TBLPROPERTIES ('format-version'='2')"
        )

    @property
    def _table(self) -> Any:  # noqa: ANN401 - a Java object
        return IcebergTable(self.session, self.name)._loaded()

    @property
    def snapshots(self) -> TableSnapshots:
        return TableSnapshots(self.session, self._table)

    def kept(self) -> list[Snapshot]:
        kept = {each.snapshotId() for each in self._table.snapshots()}
        return [one for one in reversed(self.snapshots.known()) if one.number in kept]

    def rows(self) -> Rows:
        return Counter((row.topic, row.at) for row in self.session.table(self.name).collect())

    def commit(self, rows: list[tuple[str, int]], summary: dict[str, str], base: int | None) -> str:
        writer = self._frame(rows).writeTo(self.name).option("isolation-level", "serializable")
        for name, value in summary.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        if base is not None:
            writer = writer.option("validate-from-snapshot-id", str(base))
        try:
            writer.overwrite(sql.lit(False))  # noqa: FBT003 - a column
        except (PySparkException, Py4JError) as exc:
            if "ValidationException" not in str(exc):
                raise
            return "conflict"
        return "done"

    def state(self, summary: dict[str, str]) -> None:
        empty = self._table.newAppend()
        for name, value in summary.items():
            empty.set(name, value)
        empty.commit()

    def tag(self, number: int) -> None:
        table = self._table
        changes = table.manageSnapshots()
        has_one = table.refs().get(TAG) is not None
        (changes.replaceTag if has_one else changes.createTag)(TAG, number).commit()

    def append(self, rows: list[tuple[str, int]]) -> None:
        self._frame(rows).writeTo(self.name).append()

    def compact(self) -> None:
        jvm: Any = self.session._jvm
        actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get()
        actions.rewriteDataFiles(self._table).option("rewrite-all", "true").execute()

    def return_to(self, number: int) -> None:
        self._table.manageSnapshots().setCurrentSnapshot(number).commit()

    def expire(self, retained: int) -> None:
        expire = self._table.expireSnapshots().retainLast(retained)
        expire.expireOlderThan(2**62).cleanExpiredFiles(False).commit()  # noqa: FBT003 - Java's

    def replace(self, *, with_rows: bool) -> None:
        where = "" if with_rows else " WHERE false"
        self.session.sql(
            f"CREATE OR REPLACE TABLE {self.name} USING iceberg TBLPROPERTIES"  # noqa: S608
            f" ('format-version'='2') AS SELECT * FROM {self.name}{where}"
        )

    def clear(self) -> None:
        self.session.sql(
            f"CREATE OR REPLACE TABLE {self.name} ({COLUMNS}) USING iceberg"
            " TBLPROPERTIES ('format-version'='2')"
        )

    def pick(self, number: int) -> None:
        self._table.manageSnapshots().cherrypick(number).commit()

    def _frame(self, rows: list[tuple[str, int]]) -> Any:  # noqa: ANN401
        return self.session.createDataFrame(rows, COLUMNS).coalesce(1)
