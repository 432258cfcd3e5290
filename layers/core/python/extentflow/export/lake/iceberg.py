"""Append micro-batches to an Iceberg table; the snapshots' summaries hold the offsets.

    snapshot 7          snapshot 8          snapshot 9 (compaction)      snapshot 10
    offsets {"t":{..}}  offsets {"t":{..}}  none: its parent's apply     offsets {"t":{..}}
                                                                          ^ rows and offsets at once

A batch is one commit, an overwrite that deletes nothing. Iceberg validates it against the snapshot
that the offsets were read from, also when Iceberg retries it. Rows that another writer added since
then are a conflict. Then the offsets are read again. If they are those
of before, another writer added unrelated rows and the batch is committed again; if not, another
query writes the same topics, and this one ends.

The tag `extentflow` refers to the newest of these snapshots, so that expiring snapshots keeps it.

Tests: unit/export/lake/test_lake_target.py, integration/test_lake.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from extentflow.errors import Conflict, Misconfigured
from extentflow.export.lake.data_files import DataFile, DataFolder, append
from extentflow.export.lake.lake_columns import in_spark
from extentflow.export.lake.lake_rows import RowReader, map_in_arrow, rows_in_arrow
from extentflow.export.lake.lake_target import (
    NO_OFFSETS,
    OFFSETS_KEY,
    Batch,
    Offsets,
    TableState,
    WriteResult,
    advanced,
    offsets_text,
    read_offsets,
)
from extentflow.storage.folders import FolderOpener

TAG: Final = "extentflow"
# In a summary beside the offsets: which attempt to write a batch committed it.
COMMIT_KEY: Final = "extentflow.commit"
ATTEMPTS: Final = 5
CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_TRANSFORM = re.compile(
    r"(years|months|days|hours)\(([^(),]+)\)|(bucket|truncate)\((\d+),([^(),]+)\)"
)
# Commits rows, with the offsets and the name of an attempt, on top of a snapshot.
_Append: TypeAlias = Callable[[Offsets, int | None, str], None]
_UNKNOWN = "CommitStateUnknownException"
_CONFLICTS = ("ValidationException", "CommitFailedException", _UNKNOWN)


def catalog_settings(
    catalog: str,
    warehouse: str,
    endpoint: str | None = None,
    *,
    region: str | None = None,
    path_style: bool | None = None,
) -> dict[str, str]:
    """Return Spark's settings of a catalog that keeps tables below a folder, a URI.

    `endpoint` is the URL of an S3-compatible store (None: AWS). Credentials are the environment's,
    and so is a region that is not given.
    """
    prefix = f"spark.sql.catalog.{catalog}"
    store = {}
    if endpoint is not None:
        store[f"{prefix}.hadoop.fs.s3a.endpoint"] = endpoint
        path_style = True if path_style is None else path_style
    if path_style is not None:
        store[f"{prefix}.hadoop.fs.s3a.path.style.access"] = str(path_style).lower()
    region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint is not None:
        # The SDK requires one; stores of others ignore it.
        store[f"{prefix}.hadoop.fs.s3a.endpoint.region"] = region or "us-east-1"
    return {
        prefix: CATALOG_CLASS,
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": warehouse,
        # Another program may change the table meanwhile.
        f"{prefix}.cache-enabled": "false",
        **store,
    }


def split_partitions(text: str) -> tuple[str, ...]:
    """Return the columns and transforms of `day,bucket(16,id)`."""
    found = re.findall(r"(?:[^,(]|\([^)]*\))+", text)
    return tuple(each.strip() for each in found if each.strip())


def transformed_column(text: str) -> str | None:
    """Return the column of a transform of Iceberg, as `days(seen)`; None: it is a column."""
    found = _TRANSFORM.fullmatch(text.replace(" ", ""))
    return None if found is None else found[2] or found[5]


@dataclass(frozen=True)
class IcebergTable:
    """A table of a catalog of Spark's session, as a Target; `name` is `catalog.namespace.table`.

    With an `opener`, Python workers write the data files where they can (`data_files`).
    """

    session: SparkSession
    name: str
    partition_by: Sequence[str] = ()
    opener: FolderOpener | None = None

    spark: bool = True

    @property
    def where(self) -> str:
        """See `Target`."""
        return f"Iceberg table {self.name}"

    def open(self) -> TableState:
        """See `Target`."""
        return self._state() if self._exists() else TableState()

    def grow(self, columns: pa.Schema, state: TableState) -> TableState:
        """See `Target`."""
        if state.columns is None:
            self._create(columns)
        else:
            self._alter(state.columns, columns)
        return self._state()

    def write(
        self, records: DataFrame, batch: Batch, state: TableState, reader: RowReader
    ) -> WriteResult:
        """See `Target`."""
        if state.columns is None:
            # The first record raises SchemaGrown; without one there is nothing to write.
            any_column = from_arrow_schema(pa.schema([("any", pa.int64())]))
            map_in_arrow(records, rows_in_arrow(reader), any_column).count()
            return WriteResult(state, 0)
        commit, drop = self._prepared(records, reader, state.columns)
        own, is_unknown = uuid4().hex, False
        for attempt in range(ATTEMPTS):
            try:
                commit(advanced(state.offsets, batch.end), state.version, own)
            except (PySparkException, Py4JError) as exc:
                if not any(each in str(exc) for each in _CONFLICTS):
                    raise
                is_unknown = is_unknown or _UNKNOWN in str(exc)
                found = self._state()
                # A commit whose outcome was unknown may be in the table.
                if self._commit_of(own) is None:
                    if attempt + 1 == ATTEMPTS or _own(found, batch) != _own(state, batch):
                        if not is_unknown:  # else the table may refer to the files
                            drop()
                        raise self._conflict(found, state, batch) from exc
                    state = replace(state, offsets=found.offsets, version=found.version)
                    continue
            return WriteResult(self._state(), self._tagged(own))
        raise AssertionError("the last attempt returns or raises")

    def _prepared(
        self, records: DataFrame, reader: RowReader, columns: pa.Schema
    ) -> tuple[_Append, Callable[[], None]]:
        """Return what commits the rows of records, and what drops them after a conflict."""
        if self.opener is not None:
            table = self._loaded()
            folder = DataFolder.of(self.session, table, columns, self.opener)
            if folder is not None:
                files = folder.write(records, reader)
                return partial(self._append, files), partial(folder.drop, files)
        kind = from_arrow_schema(columns, prefer_timestamp_ntz=True)
        rows = map_in_arrow(records, rows_in_arrow(reader), kind)
        return partial(self._insert, rows), lambda: None

    def _append(
        self, files: list[DataFile], offsets: Offsets, version: int | None, own: str
    ) -> None:
        """Commit data files on top of a snapshot, or of none."""
        summary = {OFFSETS_KEY: offsets_text(offsets), COMMIT_KEY: own}
        append(self.session, self._loaded(), files, version=version, summary=summary)

    def _insert(self, rows: DataFrame, offsets: Offsets, version: int | None, own: str) -> None:
        """Let Spark write rows, and commit them on top of a snapshot, or of none."""
        writer = (
            rows.writeTo(self.name)
            .option(f"snapshot-property.{OFFSETS_KEY}", offsets_text(offsets))
            .option(f"snapshot-property.{COMMIT_KEY}", own)
            .option("isolation-level", "serializable")
        )
        if version is not None:
            writer = writer.option("validate-from-snapshot-id", str(version))
        # Nothing is overwritten: unlike an append, an overwrite is validated when it commits.
        writer.overwrite(sql.lit(False))  # noqa: FBT003 - a column

    def _conflict(self, found: TableState, state: TableState, batch: Batch) -> Conflict:
        if _own(found, batch) == _own(state, batch):
            return Conflict(
                f"{self.where}: other writers committed {ATTEMPTS} times while a batch was written;"
                " the next start continues: let them pause, or let this query write smaller"
                " batches (--max-offsets-per-trigger)"
            )
        return Conflict(
            f"{self.where} holds these topics up to {offsets_text(_own(found, batch))} and held"
            f" them up to {offsets_text(_own(state, batch))}: another query writes them to this"
            " table; nothing is doubled, end one of the two"
        )

    # -- what the table holds ----------------------------------------------------------------------

    def _exists(self) -> bool:
        return bool(self.session.catalog.tableExists(self.name))

    def _loaded(self) -> Any:  # noqa: ANN401 - a Java object
        session = self.session
        jvm: Any = session._jvm  # noqa: SLF001 - there is no public way
        spark3 = jvm.org.apache.iceberg.spark.Spark3Util
        table = spark3.loadIcebergTable(session._jsparkSession, self.name)  # noqa: SLF001
        table.refresh()
        return table

    def _state(self) -> TableState:
        table = self._loaded()
        snapshot = table.currentSnapshot()
        version = None if snapshot is None else int(snapshot.snapshotId())
        columns = to_arrow_schema(self.session.table(self.name).schema)
        return TableState(in_spark(columns), self._offsets(table), version)

    def _offsets(self, table: Any) -> Offsets:  # noqa: ANN401
        snapshot = self._newest(table)
        return NO_OFFSETS if snapshot is None else read_offsets(snapshot.summary()[OFFSETS_KEY])

    def _newest(self, table: Any) -> Any:  # noqa: ANN401
        """Return the newest snapshot with offsets, of the table's and its ancestors, or None."""
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            if snapshot.summary().get(OFFSETS_KEY) is not None:
                return snapshot
            parent = snapshot.parentId()
            if parent is None:
                return None
            snapshot = table.snapshot(parent)
        # The ancestor has expired; the tag kept the one with offsets.
        tag = table.refs().get(TAG)
        return None if tag is None else table.snapshot(tag.snapshotId())

    def _commit_of(self, own: str) -> Any:  # noqa: ANN401
        """Return the snapshot that an attempt committed; None: it did not.

        Others may be behind it: of queries that write other topics.
        """
        table = self._loaded()
        snapshot = table.currentSnapshot()
        while snapshot is not None and snapshot.summary().get(COMMIT_KEY) != own:
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.snapshot(parent)
        return snapshot

    def _tagged(self, own: str) -> int:
        """Let the tag refer to the snapshot of an attempt; return how many rows it added."""
        snapshot = self._commit_of(own)
        if snapshot is None:
            return 0
        table = self._loaded()
        if self._newest(table).snapshotId() != snapshot.snapshotId():
            # Another query has written other topics behind it, and moves the tag.
            return int(snapshot.summary().get("added-records") or 0)
        snapshots = table.manageSnapshots()
        move = snapshots.createTag if table.refs().get(TAG) is None else snapshots.replaceTag
        move(TAG, snapshot.snapshotId()).commit()
        return int(snapshot.summary().get("added-records") or 0)

    # -- its columns -------------------------------------------------------------------------------

    def _create(self, columns: pa.Schema) -> None:
        parts = [self._partition(text, columns) for text in self.partition_by]
        namespace = self.name.rpartition(".")[0]
        catalog, _, below = namespace.partition(".")
        if below:
            self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{_quoted_path(below)}")
        partitioned = f" PARTITIONED BY ({', '.join(parts)})" if parts else ""
        ddl = _ddl(columns)
        self.session.sql(
            f"CREATE TABLE {catalog}.{_quoted_path(self.name.partition('.')[2])} ({ddl})"
            f" USING iceberg{partitioned} TBLPROPERTIES ('format-version'='2')"
        )

    def _partition(self, text: str, columns: pa.Schema) -> str:
        """Return a column, or a transform of one, as SQL."""
        found = _TRANSFORM.fullmatch(text.replace(" ", ""))
        column = transformed_column(text) or text
        if column not in columns.names:
            raise Misconfigured(
                f"--partition-by {text}: there is no column {column}, only"
                f" {', '.join(columns.names)}"
            )
        if found is None:
            return _quoted(column)
        if found[1]:
            return f"{found[1]}({_quoted(column)})"
        return f"{found[3]}({found[4]}, {_quoted(column)})"

    def _alter(self, before: pa.Schema, after: pa.Schema) -> None:
        """Add the columns that are new, then widen others; each is a commit of its own."""
        table = f"{self.name.partition('.')[0]}.{_quoted_path(self.name.partition('.')[2])}"
        if added := [each for each in after if each.name not in before.names]:
            self.session.sql(f"ALTER TABLE {table} ADD COLUMNS ({_ddl(pa.schema(added))})")
        for each in before:
            wider = after.field(each.name)
            if wider.type != each.type:
                kind = from_arrow_schema(pa.schema([wider]))[0].dataType.simpleString()
                self.session.sql(
                    f"ALTER TABLE {table} ALTER COLUMN {_quoted(each.name)} TYPE {kind}"
                )


def _own(state: TableState, batch: Batch) -> Offsets:
    """Return the offsets of a state of the topics of a batch."""
    return {topic: state.offsets.get(topic, {}) for topic in batch.end}


def _ddl(columns: pa.Schema) -> str:
    kind: StructType = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    return str(kind.toDDL())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted_path(path: str) -> str:
    return ".".join(_quoted(each) for each in path.split("."))
