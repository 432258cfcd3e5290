"""The log of a folder of Parquet files, and the names of its partitions."""

import datetime as dt
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.support.folder_histories import FolderHistory
from tests.support.golden import Golden

from extentflow.cli.lake_commands import BatchOptions
from extentflow.errors import Conflict, CorruptRecord, Misconfigured, UnreadableItem
from extentflow.export.lake.lake_rows import DecodedRows
from extentflow.export.lake.lake_target import Batch, TableState
from extentflow.export.lake.parquet_folder import (
    COMMIT,
    LOG,
    PUBLISHED,
    STAGED,
    SUFFIX,
    Entry,
    ParquetFolder,
    _files,
)
from extentflow.storage.folders import Folder
from extentflow.storage.local_folder import LocalFolder
from extentflow.testing.folders import MemoryFolder
from extentflow.wiring.targets import open_folder

HISTORIES = int(os.environ.get("HISTORIES", "300"))
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.date32())])


def committed(number: int, attempt: str = "other", *files: str) -> Entry:
    return Entry(
        number=number,
        kind=COMMIT,
        attempt=attempt,
        offsets={"t": {0: 7}},
        columns=COLUMNS,
        partition_by=("day",),
        files=files,
        rows=1,
    )


def put(folder: Folder, entry: Entry) -> None:
    assert folder.create(f"{LOG}{entry.number:012}.json", entry.to_bytes())


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = committed(3, "a", "day=1/x.parquet")

    assert Entry.of("x", entry.to_bytes()) == entry


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 2}', b"[]"])
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableItem, match=r"log/1\.json"):
        Entry.of("log/1.json", content)


def test_a_start_moves_what_is_committed_and_deletes_what_is_not(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.put(f"{STAGED}mine/day=1/a.parquet{SUFFIX}", b"a")
    folder.put("day=1/moved.parquet", b"b")
    folder.put(f"{STAGED}lost/day=1/c.parquet{SUFFIX}", b"c")
    put(folder, committed(1, "mine", "day=1/a.parquet", "day=1/moved.parquet"))

    state = ParquetFolder(str(tmp_path), open_folder, ("day",)).open(("t",))

    assert state == TableState(COLUMNS, {"t": {0: 7}}, 3)
    names = [name for name in folder.names("") if not name.startswith(LOG)]
    assert names == ["day=1/a.parquet", "day=1/moved.parquet"]


def test_an_older_query_cannot_append_behind_a_start(tmp_path: Path) -> None:
    older = ParquetFolder(str(tmp_path), open_folder, ("day",))
    state = older.open(("t",))
    ParquetFolder(str(tmp_path), open_folder, ("day",)).open(("t",))

    assert not older._append(committed(state.version + 1))


def test_a_repeated_request_finds_its_own_entry(tmp_path: Path) -> None:
    folder = ParquetFolder(str(tmp_path), open_folder, ("day",))
    entry = committed(1)

    assert folder._append(entry)
    assert folder._append(entry)


def test_other_partitions_than_before_are_refused(tmp_path: Path) -> None:
    ParquetFolder(str(tmp_path), open_folder, ("day",)).open(("t",))

    with pytest.raises(Misconfigured, match="is partitioned by day"):
        ParquetFolder(str(tmp_path), open_folder, ("id",)).open(("t",))


@pytest.mark.parametrize("by_copy", [False, True])
def test_files_of_a_published_batch_may_be_compacted(by_copy: bool) -> None:  # noqa: FBT001
    files = MemoryFolder(moves_by_copy=by_copy)
    target = ParquetFolder("x", lambda _: files)
    state = target.open(("t",))
    files.put(f"{STAGED}one/t-0-0-9.parquet{SUFFIX}", b"rows")
    target.commit({"t-0-0-9.parquet": 10}, Batch({}, {"t": {0: 10}}), state, "one")

    files.move("t-0-0-9.parquet", "compacted.parquet")

    for _ in range(2):
        assert target.open(("t",)).offsets == {"t": {0: 10}}
    assert [name for name in files.names() if not name.startswith(LOG)] == ["compacted.parquet"]


def test_files_that_were_compacted_too_early_need_a_person(golden: Golden) -> None:
    """The query was killed before the entry that permits it."""
    files = MemoryFolder()
    target = ParquetFolder("x", lambda _: files, ("day",))
    put(files, committed(1, "one", "day=1/t-0-0-6.parquet"))

    with golden.raises(Conflict, match=r'entry 1.*--continue-at \'{"t":{"0":7}}') as raised:
        target.open(("t",))
    all_of_them, _none = re.findall("--continue-at '([^']+)'", str(raised.value))
    given = BatchOptions(continue_at=all_of_them).stated_offsets()

    assert target.open(("t",), given).offsets == {"t": {0: 7}}
    with golden.raises(Misconfigured, match="--continue-at"):
        target.open(("t",), {"t": {0: 7}})


def test_a_topic_that_was_created_again_is_refused_by_its_id(golden: Golden) -> None:
    files = MemoryFolder()
    target = ParquetFolder("x", lambda _: files, ("day",))
    put(files, replace(committed(1), kind=PUBLISHED, ids={"t": "A"}))

    with golden.raises(Conflict, match=r'A, and is B now.*--continue-at \'{"t":{"0":7}}'):
        target.open(("t",), None, {"t": "B"})
    for less in ({}, {0: 6}):
        with pytest.raises(Conflict, match="another folder"):
            target.open(("t",), {"t": less}, {"t": "B"})

    state = target.open(("t",), {"t": {0: 7}}, {"t": "B"})
    assert (state.offsets, state.ids) == ({"t": {0: 7}}, {"t": "B"})
    assert target.open(("t",), None, {"t": "B"}).offsets == {"t": {0: 7}}


def test_a_folder_of_an_earlier_release_takes_the_id_that_its_topic_has() -> None:
    files = MemoryFolder()
    target = ParquetFolder("x", lambda _: files, ("day",))
    document = json.loads(replace(committed(1), kind=PUBLISHED).to_bytes())
    del document["topic_ids"]
    files.create(f"{LOG}{1:012}.json", json.dumps(document).encode())

    assert target.open(("t",), None, {"t": "A"}).ids == {"t": "A"}
    # Brokers that have no ids prove nothing, and the one that is known stays.
    assert target.open(("t",), None, {"t": ""}).ids == {"t": "A"}


def test_files_without_a_log_need_a_person(golden: Golden) -> None:
    """Another program replaced the folder, and its log."""
    files = MemoryFolder({"t-0-0-6.parquet": b"", "t-0-7-9.parquet": b"", "other.parquet": b""})
    target = ParquetFolder("x", lambda _: files)

    with golden.raises(Conflict, match=r'--continue-at \'{"t":{"0":10}}'):
        target.open(("t",))

    assert target.open(("t",), {"t": {}}).offsets == {"t": {}}


@pytest.mark.parametrize("by_copy", [False, True])
def test_every_history_of_a_folder_is_continued_right(by_copy: bool) -> None:  # noqa: FBT001
    killed = 0

    for seed in range(HISTORIES):
        history = FolderHistory(Random(seed), by_copy=by_copy)
        history.run(30)
        killed += history.killed

    assert killed > HISTORIES


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (pa.schema([("id", pa.int64())]), "no such column"),
        (pa.schema([("id", pa.int64()), ("day", pa.float64())]), "it is double"),
        (pa.schema([("day", pa.date32())]), "names all columns"),
    ],
)
def test_columns_that_name_no_partition_are_refused(
    tmp_path: Path, columns: pa.Schema, said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        ParquetFolder(str(tmp_path), open_folder, ("day",)).grow(columns, TableState())


def rows(**columns: pa.Array) -> DecodedRows:
    return DecodedRows("t", 1, 5, 9, pa.record_batch(columns))


def test_each_partition_gets_its_rows_in_order() -> None:
    run = [
        rows(
            id=pa.array([1, 2, 3, 4]),
            day=pa.array([dt.date(2024, 1, 2), None, dt.date(2024, 1, 2), dt.date(2024, 1, 1)]),
            name=pa.array(["a/b", "a/b", "x", "x"]),
        )
    ]

    found = {path: count for path, _, count in _files(run, ("day", "name"))}

    assert found == {
        "day=2024-01-02/name=a%2Fb/t-1-5-9.parquet": 1,
        "day=__HIVE_DEFAULT_PARTITION__/name=a%2Fb/t-1-5-9.parquet": 1,
        "day=2024-01-02/name=x/t-1-5-9.parquet": 1,
        "day=2024-01-01/name=x/t-1-5-9.parquet": 1,
    }


def test_an_empty_string_names_no_partition() -> None:
    run = [rows(id=pa.array([1]), name=pa.array([""]))]

    with pytest.raises(CorruptRecord, match=r"t\[1\] offset 5-9: column name is ''"):
        list(_files(run, ("name",)))


def test_a_text_that_is_too_long_for_a_folder_names_no_partition(golden: Golden) -> None:
    longest, longer = ([rows(id=pa.array([1]), name=pa.array(["x" * size]))] for size in (250, 251))

    assert len(list(_files(longest, ("name",)))) == 1
    with golden.raises(CorruptRecord, match="5-9.*column name.*251"):
        list(_files(longer, ("name",)))
