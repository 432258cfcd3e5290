"""Write micro-batches as Parquet files in Hive partitions, exactly once, without a rename.

The folder's log, `_extentflow/log/`, is the truth. Its entries are numbered without a gap; each is
one object that is created only if its name does not exist, and holds the offsets of all topics.

    task     file ──> _extentflow/staged/ATTEMPT/day=2025-01-01/orders-0-12-40.parquet.staged
    driver   entry 8 (commit): offsets, columns, list of files ── the commit of the batch
    driver   each file ──move──> day=2025-01-01/orders-0-12-40.parquet ── readers see it
    driver   entry 9 (published): same offsets ── the files of entry 8 may be changed by others
             then batch 10

    start    newest entry is a commit ── move the files that are still staged, entry 9 (published)
             entry 10 (start): same offsets ── no older query can commit any more
             delete all that is staged

A row is in one file, whose name has the topic, the partition, and the first and the last offset of
the records in it. A file is readable only behind a commit that lists it. A crash before the commit
leaves staged files, which the next start deletes. A crash after it leaves files to move, which the
next start moves before anything else. A move is a copy, then the deletion of the staged object:
whole objects, so that a repeated move changes nothing, unless another program changed the copy
meanwhile. Behind a later entry no file is moved again, so that it may be compacted or deleted then.
Names of staged files end in `.staged`, in a folder that begins with `_`: readers of `*.parquet`
skip them.

The history of a folder does not decide where it continues if there are files without a log. The
same holds if the newest entry is a commit, and its files are neither staged nor in place. Then a
person states where the folder continues.

An older query fails when it commits, because the number of its next entry exists, or has nothing to
move that is not moved. Entries are never deleted: a number that was free again could be committed
by such a query. A batch becomes readable file by file; a reader that needs whole batches takes the
files of the log's commits.

A store that ignores `If-None-Match` gives no such guarantee to two queries at once.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from extentflow.columnar.schemas import described
from extentflow.engines.spark import noted_errors
from extentflow.errors import Conflict, CorruptRecord, Misconfigured, ObjectGone, UnreadableItem
from extentflow.export.lake.lake_rows import (
    FILES,
    DecodedRows,
    RowReader,
    buffered,
    listed,
    map_in_arrow,
)
from extentflow.export.lake.lake_target import (
    NO_IDS,
    Batch,
    Doubt,
    Offsets,
    TableState,
    TopicIds,
    WriteResult,
    advanced,
    offsets_text,
    read_offsets,
)
from extentflow.storage.folders import Folder, FolderOpener

log = logging.getLogger(__name__)

LOG: Final = "_extentflow/log/"
STAGED: Final = "_extentflow/staged/"
SUFFIX: Final = ".staged"
START, COMMIT, PUBLISHED = "start", "commit", "published"
VERSION: Final = 1
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
# Of a file or folder in the file systems of Linux.
LONGEST_NAME_BYTES: Final = 255
PARALLEL_MOVES: Final = 8
_NAME = re.compile(r"~?(.+)-(\d+)-\d+-(\d+)\.parquet")
# As Hive escapes names of partitions (FileUtils.java).
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the log: `files` are paths below the folder, of a COMMIT.

    `ids` are those that the topics of `offsets` had then; earlier releases stated none.
    """

    number: int
    kind: str
    attempt: str
    offsets: Offsets
    columns: pa.Schema | None
    partition_by: Sequence[str]
    files: Sequence[str] = ()
    rows: int = 0
    ids: TopicIds = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the entry as JSON."""
        columns = self.columns
        document = {
            "version": VERSION,
            "number": self.number,
            "kind": self.kind,
            "attempt": self.attempt,
            "offsets": json.loads(offsets_text(self.offsets)),
            "columns": None if columns is None else json.loads(described(columns)),
            "arrow": None if columns is None else base64.b64encode(columns.serialize()).decode(),
            "partition_by": list(self.partition_by),
            "files": list(self.files),
            "rows": self.rows,
            "topic_ids": dict(self.ids),
        }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def of(cls, name: str, content: bytes) -> Entry:
        """Return the entry that `to_bytes` wrote. Raises UnreadableItem."""
        try:
            found: dict[str, Any] = json.loads(content)
            if found["version"] != VERSION:
                raise UnreadableItem(
                    f"{name} has version {found['version']}, this program reads {VERSION}; use the"
                    " one that wrote it"
                )
            arrow = found["arrow"]
            columns = None
            if arrow is not None:
                columns = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(arrow)))
            return cls(
                number=found["number"],
                kind=found["kind"],
                attempt=found["attempt"],
                offsets=read_offsets(json.dumps(found["offsets"])),
                columns=columns,
                partition_by=tuple(found["partition_by"]),
                files=tuple(found["files"]),
                rows=found["rows"],
                ids=dict(found.get("topic_ids", {})),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowException) as exc:
            raise UnreadableItem(
                f"{name} is no entry of a lake's log: {exc!r}; restore it"
            ) from exc


@dataclass(frozen=True)
class ParquetFolder:
    """A folder of Parquet files, as a Target."""

    address: str
    opener: FolderOpener
    partition_by: Sequence[str] = ()
    run: str = field(default_factory=lambda: uuid4().hex[:12])

    spark: bool = False

    @property
    def where(self) -> str:
        """See `Target`."""
        return f"folder {self._folder.uri()}"

    @property
    def _folder(self) -> Folder:
        return self.opener(self.address)

    def open(
        self, topics: Sequence[str], stated: Offsets | None = None, ids: TopicIds = NO_IDS
    ) -> TableState:
        """See `Target`; writes an entry, so that no older query can commit any more."""
        if not self._folder.creates_once():
            log.warning(
                "%s: the store ignores If-None-Match: never let two queries write this folder at"
                " once, nothing but you prevents it",
                self.where,
            )
        entry = self._started(topics, stated, ids)
        for name in self._folder.names(STAGED):
            self._folder.delete(name)
        return TableState(entry.columns, entry.offsets, entry.number, ids=entry.ids)

    def _started(self, topics: Sequence[str], stated: Offsets | None, ids: TopicIds) -> Entry:
        """Publish the newest commit, and append an entry behind it."""
        while True:
            newest = self._newest()
            self._require_same_partitions(newest)
            offsets: Offsets = {} if newest is None else newest.offsets
            doubt = self._unlogged(topics) if newest is None else Doubt()
            if newest is not None and newest.kind == COMMIT:
                gone = self._move(newest)
                if gone and not self._is_newest(newest):
                    continue  # another query moved them
                if gone:
                    doubt = self._lost(newest, gone)
                elif not self._append(_published(newest)):
                    continue
                else:
                    newest = _published(newest)
            held = TableState(offsets=offsets, ids={} if newest is None else newest.ids)
            again = Doubt.of_ids(held, ids)
            self._require_new_names(again, stated)
            settled = doubt.joined(again).settled(self.where, stated)
            entry = Entry(
                number=1 if newest is None else newest.number + 1,
                kind=START,
                attempt=self.run,
                offsets={**offsets, **(settled or {})},
                columns=None if newest is None else newest.columns,
                partition_by=self.partition_by,
                ids=held.of_topics(ids).ids,
            )
            if self._append(entry):
                return entry

    def _require_new_names(self, again: Doubt, stated: Offsets | None) -> None:
        """Raise Conflict where files of topics that were created again would replace others."""
        ends = [
            (topic, one, end) for topic, parts in again.upper.items() for one, end in parts.items()
        ]
        said = stated or {}
        if any(said.get(topic, {}).get(one, 0) < end for topic, one, end in ends):
            raise Conflict(
                f"{self.where}: {again.why}. If they are the same records, state it once:"
                f" --continue-at '{offsets_text(again.upper)}'. If not, write the topic to another"
                " folder, because offsets name the files"
            )

    def _unlogged(self, topics: Sequence[str]) -> Doubt:
        """Return what a folder without a log may hold, by the names of its files."""
        names = [name for name in self._folder.names() if name.endswith(".parquet")]
        if not names:
            return Doubt()
        found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for name in names:
            parts = _NAME.fullmatch(name.rpartition("/")[2])
            if parts and parts[1] in found:
                ends, partition = found[parts[1]], int(parts[2])
                ends[partition] = max(ends.get(partition, 0), int(parts[3]) + 1)
        return Doubt(
            found,
            {topic: {} for topic in topics},
            f"it has Parquet files, such as {names[0]}, and no log in {LOG}, which states nothing"
            f" then. The names of its files state the offsets {offsets_text(found)}",
        )

    def _lost(self, commit: Entry, gone: Sequence[str]) -> Doubt:
        """Return what a commit added whose files are gone."""
        before = self._entry(commit.number - 1).offsets if commit.number > 1 else {}
        added = {topic: ends for topic, ends in commit.offsets.items() if before.get(topic) != ends}
        held = {topic: before.get(topic, {}) for topic in added}
        return Doubt(
            added,
            held,
            f"{len(gone)} files of entry {commit.number} of its log, such as {gone[0]}, are neither"
            " staged nor in place. They were compacted or deleted before the log had a later entry."
            f" The entry states the offsets {offsets_text(added)}, the one"
            f" before it {offsets_text(held)}",
        )

    def grow(self, columns: pa.Schema, state: TableState) -> TableState:
        """See `Target`; the next commit's entry records the columns."""
        for name in self.partition_by:
            if name not in columns.names:
                raise Misconfigured(
                    f"--partition-by {name}: there is no such column, only"
                    f" {', '.join(columns.names)}"
                )
            _require_nameable(columns.field(name))
        if len(set(self.partition_by)) == len(columns):
            raise Misconfigured("--partition-by: names all columns; files would have none left")
        return replace(state, columns=columns)

    def write(
        self,
        records: DataFrame,
        batch: Batch,
        state: TableState,
        reader: RowReader,
        confirm: Callable[[], None],
    ) -> WriteResult:
        """See `Target`."""
        attempt = f"{self.run}-{state.version + 1}-{uuid4().hex[:8]}"
        staging = Staging(
            address=self.address,
            opener=self.opener,
            partition_by=self.partition_by,
            attempt=attempt,
        )
        files = from_arrow_schema(FILES)
        staged = map_in_arrow(records, partial(_stage, reader, staging), files).collect()
        confirm()
        return self.commit({each.path: each.rows for each in staged}, batch, state, attempt)

    def commit(
        self, staged: Mapping[str, int], batch: Batch, state: TableState, attempt: str
    ) -> WriteResult:
        """Commit the staged files of an attempt, with the rows of each; move them then.

        Raises Conflict where another query started meanwhile.
        """
        entry = Entry(
            number=state.version + 1,
            kind=COMMIT,
            attempt=attempt,
            offsets=advanced(state.offsets, batch.end),
            columns=state.columns,
            partition_by=self.partition_by,
            files=sorted(staged),
            rows=sum(staged.values()),
            ids=state.ids,
        )
        is_committed = self._append(entry)
        gone = self._move(entry) if is_committed else []
        if gone and self._is_newest(entry):
            raise Conflict(
                f"{self.where}: {gone[0]}, a file of entry {entry.number} of its log, is neither"
                " staged nor in place: another program deleted it; start again, and state where to"
                " continue"
            )
        published = _published(entry)
        if not is_committed or gone or not self._append(published):
            raise Conflict(
                f"{self.where}: another query started to write this folder behind entry"
                f" {state.version} of its log; nothing is doubled, end one of the two"
            )
        behind = replace(state, offsets=entry.offsets, version=published.number)
        return WriteResult(behind, entry.rows)

    # -- the log -----------------------------------------------------------------------------------

    def _newest(self) -> Entry | None:
        name = max(self._folder.names(LOG), default=None)
        return None if name is None else self._read(name)

    def _is_newest(self, entry: Entry) -> bool:
        return max(self._folder.names(LOG)) == _entry_name(entry.number)

    def _entry(self, number: int) -> Entry:
        return self._read(_entry_name(number))

    def _read(self, name: str) -> Entry:
        try:
            content = self._folder.read(name)
        except ObjectGone as exc:
            lost = f"{self.where}: {name} was deleted meanwhile; restore it"
            raise UnreadableItem(lost) from exc
        return Entry.of(self._folder.uri(name), content)

    def _append(self, entry: Entry) -> bool:
        """Create an entry; return False where another query has created this number."""
        return self._folder.create(_entry_name(entry.number), entry.to_bytes())

    def _move(self, entry: Entry) -> list[str]:
        """Move the files of a commit to where readers find them; return those that are gone."""
        folder = self._folder

        def move(path: str) -> bool:
            try:
                folder.move(f"{STAGED}{entry.attempt}/{path}{SUFFIX}", path)
            except ObjectGone:
                return False
            return True

        with ThreadPoolExecutor(PARALLEL_MOVES) as pool:
            moved = pool.map(move, entry.files)
            return [path for path, done in zip(entry.files, moved, strict=True) if not done]

    def _require_same_partitions(self, newest: Entry | None) -> None:
        if newest is not None and tuple(newest.partition_by) != tuple(self.partition_by):
            before = ",".join(newest.partition_by)
            raise Misconfigured(
                f"--partition-by {','.join(self.partition_by) or '(none)'}: {self.where} is"
                f" partitioned by {before or 'nothing'}; write it so, or write to another folder"
            )


def _published(commit: Entry) -> Entry:
    """Return the entry that states that the files of a commit are in place."""
    return replace(commit, number=commit.number + 1, kind=PUBLISHED, files=(), rows=0)


def _entry_name(number: int) -> str:
    return f"{LOG}{number:012}.json"


# -- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where the files of one attempt to write a batch go, until its commit."""

    address: str
    opener: FolderOpener
    partition_by: Sequence[str]
    attempt: str


def _stage(
    reader: RowReader, staging: Staging, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Stage files of the rows of records; yield their paths, rows and bytes."""
    with noted_errors(reader.nonce):
        folder = staging.opener(staging.address)
        for run in buffered(reader.rows(batches)):
            made = list(_files(run, staging.partition_by))
            for path, content, _ in made:
                folder.put(f"{STAGED}{staging.attempt}/{path}{SUFFIX}", content.to_pybytes())
            yield listed([(path, count, content.size) for path, content, count in made])


def _files(
    run: Sequence[DecodedRows], partition_by: Sequence[str]
) -> Iterator[tuple[str, pa.Buffer, int]]:
    """Yield path, content and rows of the files of a run, one for each partition."""
    first, last = run[0], run[-1]
    # Readers of folders skip names that begin so; no topic has a tilde.
    hidden = "~" if first.topic.startswith(("_", ".")) else ""
    name = f"{hidden}{first.topic}-{first.partition}-{first.first}-{last.last}.parquet"
    table = pa.Table.from_batches([one.rows for one in run])
    where = f"topic {first.topic}[{first.partition}] offset {first.first}-{last.last}"
    for folder, rows in _by_partition(table, partition_by, where):
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        yield f"{folder}{name}", sink.getvalue(), rows.num_rows


def _by_partition(
    table: pa.Table, partition_by: Sequence[str], where: str
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition without its columns, and its folder, `a=1/b=2/`."""
    if not partition_by:
        yield "", table
        return
    codes = np.zeros(table.num_rows, np.int64)
    folders = [""]
    for name in partition_by:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        names = [_partition_folder(name, value, where) for value in encoded.dictionary]
        pairs = codes * len(names) + encoded.indices.to_numpy(zero_copy_only=False)
        # Numbered again by the pairs that there are, because products of many columns overflow.
        used, codes = np.unique(pairs, return_inverse=True)
        folders = [folders[pair // len(names)] + names[pair % len(names)] for pair in used.tolist()]
    rest = table.drop_columns(list(partition_by))
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(folders) + 1))
    for index, folder in enumerate(folders):
        yield folder, rest.take(pa.array(order[bounds[index] : bounds[index + 1]]))


def _partition_folder(name: str, value: pa.Scalar, where: str) -> str:
    text = NULL_PARTITION
    if value.is_valid:
        text = str(pc.cast(value, pa.string()))
        if text in ("", NULL_PARTITION):
            raise CorruptRecord(
                f"{where}: column {name} is {text!r}, which Hive's partitions cannot tell from"
                " null; partition by another column"
            )
    folder = f"{_escaped(name)}={_escaped(text)}"
    if len(folder.encode()) > LONGEST_NAME_BYTES:
        raise CorruptRecord(
            f"{where}: column {name} has {len(text):,} characters, and the name of a folder has at"
            f" most {LONGEST_NAME_BYTES} bytes; partition by another column"
        )
    return f"{folder}/"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


def _require_nameable(column: pa.Field) -> None:
    """Raise Misconfigured for a column whose values have no single text."""
    kind = column.type
    if types.is_integer(kind) or types.is_string(kind) or types.is_date32(kind):
        return
    if not types.is_boolean(kind):
        raise Misconfigured(
            f"--partition-by {column.name}: it is {kind}; Parquet folders are partitioned by"
            " integers, strings, dates and booleans"
        )
