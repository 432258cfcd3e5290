"""Data files of Iceberg tables, written by the Python workers and committed by Iceberg's own API.

    task     rows in Arrow ──> DATA/topic-0-12-40-<uuid>.parquet, columns with the ids of the table
    driver   each file ──metrics of its footer──> DataFile ──OverwriteFiles, validated──> snapshot

Spark's writer would turn columns into rows, and these into columns again: half of the CPU time of a
batch. It still writes tables whose data files need more than this: partitions, a sort order,
required columns, or properties of files.

Tests: integration/test_lake.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from extentflow.engines.spark import noted_errors
from extentflow.errors import ExtentflowError
from extentflow.export.lake.lake_rows import (
    FILES,
    DecodedRows,
    RowReader,
    buffered,
    listed,
    map_in_arrow,
)
from extentflow.storage.folders import Folder, FolderOpener

# The size from which on a file is closed.
FILE_BYTES: Final = 128 << 20
_CODEC: Final = "write.parquet.compression-codec"
# Properties of tables that do not concern data files which are appended.
_OTHER_WRITES: Final = ("write.metadata.", "write.delete.", "write.update.", "write.merge.")
# The key by which Arrow writes and reads the ids of columns.
_ID: Final = "PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is no part of a table yet."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where workers write data files: a URI. `columns` have the ids of the table's columns."""

    address: str
    opener: FolderOpener
    columns: pa.Schema

    @classmethod
    def of(
        cls,
        session: SparkSession,
        table: Any,  # noqa: ANN401 - a Java object
        columns: pa.Schema,
        opener: FolderOpener,
    ) -> DataFolder | None:
        """Return the folder of an Iceberg table with these columns; None: Spark has to write."""
        properties: Mapping[str, str] = dict(table.properties())
        others = [
            name
            for name in properties
            if name.startswith("write.") and not name.startswith((*_OTHER_WRITES, _CODEC))
        ]
        plain = table.spec().isUnpartitioned() and table.sortOrder().isUnsorted()
        if not plain or others or properties.get(_CODEC, "zstd") != "zstd":
            return None
        jvm: Any = session._jvm  # noqa: SLF001 - there is no public way
        text: str = jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
        if 'required":true' in text:
            return None
        # As the table has it: a path of Hadoop is no URI, whose characters are escaped.
        address = str(table.locationProvider().newDataLocation("x")).removesuffix("/x")
        numbered = _numbered(pa.struct(list(columns)), json.loads(text))
        return cls(address, opener, pa.schema(list(numbered)))

    def open(self) -> Folder:
        """Return the folder, in this process."""
        return self.opener(self.address)

    def write(self, records: DataFrame, reader: RowReader) -> list[DataFile]:
        """Write the rows of records to data files, in tasks. Raises what these raise."""
        task = partial(_write, reader, self)
        made = map_in_arrow(records, task, from_arrow_schema(FILES)).collect()
        return [DataFile(each.path, each.rows, each.bytes) for each in made]

    def drop(self, files: list[DataFile]) -> None:
        """Delete files that are part of no table, where the store permits it."""
        folder = self.open()
        with suppress(ExtentflowError):
            for file in files:
                folder.delete(file.path.removeprefix(f"{self.address}/"))


def append(
    session: SparkSession,
    table: Any,  # noqa: ANN401 - a Java object
    files: list[DataFile],
    *,
    version: int | None,
    summary: Mapping[str, str],
) -> None:
    """Commit data files on top of a snapshot (None: of none), unless rows were added behind it.

    Raises Py4JError, with Iceberg's ValidationException where rows were added.
    """
    jvm: Any = session._jvm  # noqa: SLF001 - there is no public way
    iceberg = jvm.org.apache.iceberg
    wanted = iceberg.MetricsConfig.forTable(table)
    commit = table.newOverwrite()
    for file in files:
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(
            table.io().newInputFile(file.path), wanted
        )
        made = iceberg.DataFiles.builder(table.spec()).withPath(file.path).withFormat("parquet")
        commit.addFile(made.withFileSizeInBytes(file.size_bytes).withMetrics(metrics).build())
    for name, value in summary.items():
        commit.set(name, value)
    if version is not None:
        commit.validateFromSnapshot(version)
    # Nothing is overwritten: unlike an append, an overwrite is validated when it commits.
    everything = iceberg.expressions.Expressions.alwaysTrue()
    commit.conflictDetectionFilter(everything).validateNoConflictingData().commit()


def _numbered(kind: pa.DataType, stated: Any) -> pa.DataType:  # noqa: ANN401 - JSON
    """Return a type whose nested fields have the ids that Iceberg's schema states."""
    if types.is_struct(kind):
        fields = {one["name"]: one for one in stated["fields"]}
        return pa.struct(
            [_with_id(each, fields[each.name]["id"], fields[each.name]["type"]) for each in kind]
        )
    if types.is_list(kind):
        return pa.list_(_with_id(kind.value_field, stated["element-id"], stated["element"]))
    if types.is_map(kind):
        return pa.map_(
            _with_id(kind.key_field, stated["key-id"], stated["key"]),
            _with_id(kind.item_field, stated["value-id"], stated["value"]),
        )
    return kind


def _with_id(column: pa.Field, number: int, stated: Any) -> pa.Field:  # noqa: ANN401 - JSON
    kind = _numbered(column.type, stated)
    return pa.field(column.name, kind, column.nullable, metadata={_ID: str(number)})


# -- tasks -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written, in memory."""

    columns: pa.Schema
    first: DecodedRows
    sink: pa.BufferOutputStream = field(default_factory=pa.BufferOutputStream)
    rows: int = 0
    last: int = 0
    _writer: pq.ParquetWriter = field(init=False)

    def __post_init__(self) -> None:
        self._writer = pq.ParquetWriter(
            self.sink,
            self.columns,
            compression="zstd",
            store_schema=False,
            # As Iceberg has them: 32 or 64 bits where these suffice.
            store_decimal_as_integer=True,
        )

    def add(self, group: list[DecodedRows]) -> None:
        """Write a row group."""
        table = pa.Table.from_batches([one.rows for one in group])
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows
        self.last = group[-1].last

    def close(self) -> pa.Buffer:
        """Return the content."""
        self._writer.close()
        return self.sink.getvalue()

    @property
    def name(self) -> str:
        """A name that no other attempt has."""
        one = self.first
        return f"{one.topic}-{one.partition}-{one.first}-{self.last}-{uuid4().hex}.parquet"


def _write(
    reader: RowReader, where: DataFolder, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write files of the rows of records; yield path, rows and bytes of each."""
    with noted_errors(reader.nonce):
        folder = where.open()
        made: list[DataFile] = []
        try:
            for file in _files(reader.rows(batches), where.columns):
                name, content = file.name, file.close()
                folder.put(name, content.to_pybytes())
                made.append(DataFile(f"{where.address}/{name}", file.rows, content.size))
        except BaseException:
            where.drop(made)
            raise
    yield listed([(one.path, one.rows, one.size_bytes) for one in made])


def _files(decoded: Iterator[DecodedRows], columns: pa.Schema) -> Iterator[_OpenFile]:
    """Yield files with the rows, each before its end is written."""
    file: _OpenFile | None = None
    for group in buffered(decoded):
        file = file or _OpenFile(columns, group[0])
        file.add(group)
        if file.sink.tell() >= FILE_BYTES:
            yield file
            file = None
    if file is not None:
        yield file
