"""Append micro-batches to an Iceberg table; the snapshots' summaries hold the offsets.

    snapshot 7          snapshot 8          snapshot 9 (compaction)      snapshot 10
    offsets {"t":{..}}  offsets {"t":{..}}  none: its parent's apply     offsets {"t":{..}}
                                                                          ^ rows and offsets at once

A batch is one commit, an overwrite that deletes nothing. Iceberg validates it against the snapshot
that the offsets were read from, also when Iceberg retries it. Rows that another writer added since
then are a conflict. Then the offsets are read again. If they are those of before, another writer
added unrelated rows, and the batch is committed again. If not, this query ends: another one writes
the same topics, or the table was rolled back or replaced.

`snapshot_history` decides which offsets count. The tag `extentflow` refers to the newest of these
snapshots, so that expiring snapshots keeps it. Ancestors that expired are looked up in the former
metadata files that the table's metadata lists.

Tests: unit/export/lake/test_lake_target.py, integration/test_lake.py
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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

from extentflow.errors import Conflict, ExtentflowError, Misconfigured
from extentflow.export.lake.data_files import DataFile, DataFolder, append
from extentflow.export.lake.lake_columns import in_spark
from extentflow.export.lake.lake_rows import RowReader, map_in_arrow, rows_in_arrow
from extentflow.export.lake.lake_target import (
    NO_IDS,
    OFFSETS_KEY,
    Batch,
    Doubt,
    Offsets,
    TableState,
    TopicIds,
    WriteResult,
    advanced,
    offsets_text,
)
from extentflow.export.lake.snapshot_history import (
    Snapshot,
    commit_of,
    newest_statement,
    read_history,
    summary_of,
)
from extentflow.storage.folders import FolderOpener

log = logging.getLogger(__name__)

TAG: Final = "extentflow"
ATTEMPTS: Final = 5
CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_TRANSFORM = re.compile(
    r"(years|months|days|hours)\(([^(),]+)\)|(bucket|truncate)\((\d+),([^(),]+)\)"
)
# Commits rows, with a summary, on top of a snapshot.
_Append: TypeAlias = Callable[[dict[str, str], int | None], None]
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

    def open(
        self, topics: Sequence[str], stated: Offsets | None = None, ids: TopicIds = NO_IDS
    ) -> TableState:
        """See `Target`; what a person stated becomes a snapshot without rows."""
        if not self._exists():
            Doubt().settled(self.where, stated)
            return TableState().of_topics(ids)
        # First, because it adds a version of the metadata, with which the oldest one goes.
        self._keep_statement()
        state = self._state()
        doubt = _doubt(state, topics).joined(Doubt.of_ids(state, ids))
        offsets = doubt.settled(self.where, stated)
        if offsets is None:
            return state.of_topics(ids)
        self._state_offsets(state.of_topics(ids), offsets)
        self._keep_statement()
        return self._state().of_topics(ids)

    def grow(self, columns: pa.Schema, state: TableState) -> TableState:
        """See `Target`."""
        if state.columns is None:
            self._create(columns)
        else:
            self._alter(state.columns, columns)
        return self._state().of_topics(state.ids)

    def write(
        self,
        records: DataFrame,
        batch: Batch,
        state: TableState,
        reader: RowReader,
        confirm: Callable[[], None],
    ) -> WriteResult:
        """See `Target`."""
        if state.columns is None:
            # The first record raises SchemaGrown; without one there is nothing to write.
            any_column = from_arrow_schema(pa.schema([("any", pa.int64())]))
            map_in_arrow(records, rows_in_arrow(reader), any_column).count()
            return WriteResult(state, 0)
        commit, drop = self._prepared(records, reader, state.columns)
        try:
            confirm()
        except ExtentflowError:
            drop()
            raise
        own, is_unknown = uuid4().hex, False
        for attempt in range(ATTEMPTS):
            ends = _own(advanced(state.offsets, batch.end), batch)
            try:
                commit(summary_of(state, ends, own), state.version)
            except (PySparkException, Py4JError) as exc:
                if not any(each in str(exc) for each in _CONFLICTS):
                    raise
                is_unknown = is_unknown or _UNKNOWN in str(exc)
                found = self._state()
                # A commit whose outcome was unknown may be in the table.
                if commit_of(self._snapshots(), own) is None:
                    if attempt + 1 == ATTEMPTS or not _is_alike(found, state, batch):
                        if not is_unknown:  # else the table may refer to the files
                            drop()
                        raise self._conflict(found, state, batch) from exc
                    state = replace(found, columns=state.columns).of_topics(state.ids)
                    continue
            self._keep_statement()
            behind, snapshot = self._state(), commit_of(self._snapshots(), own)
            if snapshot is None or _own(behind.offsets, batch) != ends:
                raise self._conflict(behind, replace(state, offsets=ends), batch)
            behind = behind.of_topics(state.ids)
            return WriteResult(behind, int(snapshot.summary.get("added-records") or 0))
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

    def _append(self, files: list[DataFile], summary: dict[str, str], version: int | None) -> None:
        """Commit data files on top of a snapshot, or of none."""
        append(self.session, self._loaded(), files, version=version, summary=summary)

    def _insert(self, rows: DataFrame, summary: dict[str, str], version: int | None) -> None:
        """Let Spark write rows, and commit them on top of a snapshot, or of none."""
        writer = rows.writeTo(self.name).option("isolation-level", "serializable")
        for name, value in summary.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        if version is not None:
            writer = writer.option("validate-from-snapshot-id", str(version))
        # Nothing is overwritten: unlike an append, an overwrite is validated when it commits.
        writer.overwrite(sql.lit(False))  # noqa: FBT003 - a column

    def _conflict(self, found: TableState, state: TableState, batch: Batch) -> Conflict:
        if _is_alike(found, state, batch):
            return Conflict(
                f"{self.where}: other writers committed {ATTEMPTS} times while a batch was written;"
                " the next start continues: let them pause, or let this query write smaller"
                " batches (--max-offsets-per-trigger)"
            )
        held, before = (_own(one.offsets, batch) for one in (found, state))
        return Conflict(
            f"{self.where} holds these topics up to {offsets_text(held)} and held them up to"
            f" {offsets_text(before)}: another query writes them to this table, or the table was"
            " restored or replaced; nothing is doubled. End one of the two queries; the next start"
            " reads where the table continues"
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
        history = read_history(TableSnapshots(self.session, table))
        return TableState(in_spark(columns), history.offsets, version, history.doubts, history.ids)

    def _snapshots(self) -> TableSnapshots:
        return TableSnapshots(self.session, self._loaded())

    def _state_offsets(self, state: TableState, offsets: Offsets) -> None:
        """Commit offsets without rows."""
        empty = self._loaded().newAppend()
        for name, value in summary_of(state, offsets, uuid4().hex).items():
            empty.set(name, value)
        empty.commit()

    def _keep_statement(self) -> None:
        """Let the tag refer to a snapshot that states what is known of all topics.

        If another program committed while a batch was written, the batch's snapshot does not: it is
        repeated without rows.
        """
        for _ in range(ATTEMPTS):
            snapshots = self._snapshots()
            newest = newest_statement(snapshots)
            if newest is None:
                return
            if newest.repeats_others:
                _tag(snapshots.table, newest.number)
                return
            state = self._state()
            own = newest.stated(OFFSETS_KEY).keys() & state.offsets.keys()
            if not own:
                return
            self._state_offsets(state, {topic: state.offsets[topic] for topic in own})

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


@dataclass(frozen=True, slots=True)
class TableSnapshots:
    """The `Snapshots` of a Java table, with those that its former metadata files have."""

    session: SparkSession
    table: Any
    _former: dict[int, Snapshot] = field(default_factory=dict)
    _read: list[str] = field(default_factory=list)

    def current(self) -> Snapshot | None:
        """See `Snapshots`."""
        return _snapshot(self.table.currentSnapshot())

    def find(self, number: int) -> Snapshot | None:
        """See `Snapshots`."""
        found = _snapshot(self.table.snapshot(number))
        if found is not None or number in self._former:
            return found or self._former[number]
        for _ in self._read_former():
            if number in self._former:
                break
        return self._former.get(number)

    def known(self) -> list[Snapshot]:
        """See `Snapshots`."""
        for _ in self._read_former():
            pass
        found = self._former | self._listed(self.table.operations().current())
        return sorted(found.values(), key=lambda one: one.sequence, reverse=True)

    def _read_former(self) -> Iterator[None]:
        """Read the snapshots of former metadata files, the newest file first, one at a step."""
        listed = self.table.operations().current().previousFiles()
        for file in reversed([each.file() for each in listed]):
            if file in self._read:
                continue
            self._read.append(file)
            try:
                former = self._parser().read(self.table.io(), file)
            except Py4JError as exc:
                if "NotFoundException" not in str(exc):
                    raise
                log.info("%s was deleted; its snapshots are unknown", file)
                continue
            for number, found in self._listed(former).items():
                self._former.setdefault(number, found)
            yield

    def _listed(self, metadata: Any) -> dict[int, Snapshot]:  # noqa: ANN401 - a Java object
        # As one text, because each snapshot of many would be several calls of Java.
        listed = json.loads(self._parser().toJson(metadata)).get("snapshots", ())
        return {
            one["snapshot-id"]: Snapshot(
                one["snapshot-id"],
                one.get("parent-snapshot-id"),
                one.get("summary", {}),
                one.get("sequence-number", 0),
            )
            for one in listed
        }

    def _parser(self) -> Any:  # noqa: ANN401 - a Java class
        jvm: Any = self.session._jvm  # noqa: SLF001 - there is no public way
        return jvm.org.apache.iceberg.TableMetadataParser


def _snapshot(found: Any) -> Snapshot | None:  # noqa: ANN401 - a Java object
    if found is None:
        return None
    return Snapshot(found.snapshotId(), found.parentId(), found.summary(), found.sequenceNumber())


def _doubt(state: TableState, topics: Sequence[str]) -> Doubt:
    upper = {one: ends for one, ends in state.doubts.items() if one in topics}
    lower: Offsets = {one: {} for one in upper}
    return Doubt(
        upper,
        lower,
        "it was replaced or restored, or its snapshots expired. A snapshot states the offsets"
        f" {offsets_text(upper)}, and is not known to be an ancestor of the current snapshot"
        f" {state.version}, whose known ancestors state {offsets_text(lower)}",
    )


def _tag(table: Any, number: int) -> None:  # noqa: ANN401 - a Java object
    """Let the tag refer to a snapshot, unless that has expired."""
    tag = table.refs().get(TAG)
    if table.snapshot(number) is None or (tag is not None and tag.snapshotId() == number):
        return
    changes = table.manageSnapshots()
    (changes.createTag if tag is None else changes.replaceTag)(TAG, number).commit()


def _own(offsets: Offsets, batch: Batch) -> Offsets:
    """Return the offsets of the topics of a batch."""
    return {topic: offsets.get(topic, {}) for topic in batch.end}


def _is_alike(found: TableState, state: TableState, batch: Batch) -> bool:
    """Return whether two states hold the same of the topics of a batch."""
    same = _own(found.offsets, batch) == _own(state.offsets, batch)
    return same and not found.doubts.keys() & batch.end.keys()


def _ddl(columns: pa.Schema) -> str:
    kind: StructType = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    return str(kind.toDDL())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted_path(path: str) -> str:
    return ".".join(_quoted(each) for each in path.split("."))
