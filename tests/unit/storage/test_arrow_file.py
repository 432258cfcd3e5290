"""A pinned object as Arrow's file."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extentflow.errors import ObjectChanged, StoreUnavailable
from extentflow.storage.arrow_file import ArrowFile
from extentflow.storage.ranges import RangeReader
from extentflow.testing.stores import Fault, FaultyStore, MemorySource, MemoryStore

BODY = bytes(range(256)) * 4


def parquet() -> bytes:
    table = pa.table(
        {
            "number": pa.array(range(4000), pa.int64()),
            "text": pa.array([f"row {n}" for n in range(4000)]),
            "list": pa.array([[n, n + 1] for n in range(4000)]),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=1000)
    return out.getvalue()


def test_it_reads_and_seeks_as_files_do() -> None:
    file, model = ArrowFile(MemorySource(BODY)), io.BytesIO(BODY)

    steps: tuple[Callable[[Any], object], ...] = (
        lambda f: f.read(10),
        lambda f: f.seek(5, io.SEEK_CUR),
        lambda f: f.read(0),
        lambda f: f.seek(-8, io.SEEK_END),
        lambda f: f.read(100),
        lambda f: f.read(1),
        lambda f: f.tell(),
        lambda f: f.seek(2000),
        lambda f: f.read(),
        lambda f: f.seek(1000),
        lambda f: f.read(),
    )
    for step in steps:
        assert step(file) == step(model)


def test_it_knows_its_size_and_kind() -> None:
    file = ArrowFile(MemorySource(BODY))

    assert file.size() == len(BODY)
    assert (file.readable(), file.seekable(), file.writable()) == (True, True, False)


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="s3://memory/object: position -1 is negative"):
        ArrowFile(MemorySource(BODY)).seek(-1)


def test_a_closed_file_refuses_reads() -> None:
    file = ArrowFile(MemorySource(BODY))

    file.close()

    assert file.closed
    with pytest.raises(ValueError, match="the file is closed"):
        file.read(1)


def test_each_read_is_one_request_for_just_that_range() -> None:
    source = MemorySource(BODY)
    file = ArrowFile(source)

    file.seek(100)
    file.read(50)

    assert source.reads == [(100, 150)]


@given(
    region=st.tuples(st.integers(0, 300), st.integers(0, 300)).map(sorted),
    window=st.integers(1, 50),
    reads=st.lists(st.tuples(st.integers(0, 310), st.integers(0, 120)), max_size=12),
)
@settings(deadline=None)
def test_reads_are_the_same_with_and_without_a_region(
    region: list[int], window: int, reads: list[tuple[int, int]]
) -> None:
    body = BODY[:300]
    file = ArrowFile(MemorySource(body))
    file.attach(region[0], region[1], window_bytes=window)

    for position, size in reads:
        file.seek(position)
        assert file.read(size) == body[position : position + size]


def test_a_region_is_fetched_once_however_it_is_read() -> None:
    source = MemorySource(BODY)
    file = ArrowFile(source)
    file.attach(100, 400, window_bytes=100)

    for position in (390, 100, 250, 199):
        file.seek(position)
        file.read(10)

    assert source.reads == [(100, 200), (200, 300), (300, 400)]


def test_a_region_is_fetched_no_further_than_it_is_read() -> None:
    source = MemorySource(BODY)
    file = ArrowFile(source)
    file.attach(100, 400, window_bytes=100)

    file.seek(100)
    file.read(10)

    assert source.reads == [(100, 200)]


def test_a_detached_region_is_no_longer_used() -> None:
    source = MemorySource(BODY)
    file = ArrowFile(source)
    file.attach(0, 100, window_bytes=100)
    file.read(10)

    file.detach()
    file.read(10)

    assert source.reads == [(0, 100), (10, 20)]


def test_a_read_inside_one_window_is_not_copied() -> None:
    class OneWindow(MemorySource):
        def read(self, start: int, end: int) -> bytes:
            del start, end
            return BODY

    file = ArrowFile(OneWindow(BODY, window_bytes=len(BODY)))
    file.attach(0, len(BODY))
    file.seek(100)

    view = file.read_buffer(50)

    assert isinstance(view, memoryview)
    assert view.obj is BODY


def test_a_fault_in_a_region_is_raised_and_never_taken_for_its_end() -> None:
    file = ArrowFile(MemorySource(BODY, faults={250: ObjectChanged("changed")}))
    file.attach(100, 400, window_bytes=100)
    file.seek(100)
    assert file.read(100) == BODY[100:200]

    with pytest.raises(ObjectChanged):
        file.read(100)

    file.seek(200)
    with pytest.raises(StoreUnavailable, match=r"object\[200-400\): an earlier window"):
        file.read(100)
    file.seek(100)
    assert file.read(100) == BODY[100:200]


def test_a_value_larger_than_any_request_is_read_in_windows() -> None:
    huge = bytes(65 << 20)
    source = MemorySource(huge, window_bytes=8 << 20)

    assert ArrowFile(source).read() == huge

    assert max(end - start for start, end in source.reads) == 8 << 20


def test_arrow_reads_parquet_through_it() -> None:
    body = parquet()
    file = pa.PythonFile(ArrowFile(MemorySource(body)), "r")

    with pq.ParquetFile(file) as read:
        table = read.read()

    assert table.equals(pq.read_table(io.BytesIO(body)))


@pytest.mark.parametrize("use_threads", [True, False])
def test_arrow_reads_an_attached_row_group_without_further_requests(*, use_threads: bool) -> None:
    body = parquet()
    store = MemoryStore()
    reader = RangeReader(store, store.put("bucket", "key", body), window_bytes=1000)
    file = ArrowFile(reader)
    with pq.ParquetFile(pa.PythonFile(file, "r")) as read:
        group = read.metadata.row_group(1)
        columns = [group.column(index) for index in range(group.num_columns)]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
        start = min(starts)
        end = max(at + c.total_compressed_size for at, c in zip(starts, columns, strict=True))
        before = reader.fetched_bytes

        file.attach(start, end)
        table = read.read_row_group(1, use_threads=use_threads)

    assert table.column("number").to_pylist() == list(range(1000, 2000))
    assert reader.fetched_bytes - before == end - start


@pytest.mark.parametrize("use_threads", [True, False])
def test_a_fault_keeps_its_type_on_its_way_through_arrow(*, use_threads: bool) -> None:
    body = parquet()
    store = MemoryStore()
    pinned = store.put("bucket", "key", body)
    faulty = FaultyStore(store, Fault("changed", touching=(4, 5000)))
    file = pa.PythonFile(ArrowFile(RangeReader(faulty, pinned)), "r")

    with pq.ParquetFile(file) as read, pytest.raises(ObjectChanged, match="by script"):
        read.read(use_threads=use_threads)


def test_trap_t12_an_object_replaced_under_an_open_parquet_file_raises() -> None:
    store = MemoryStore()
    body = parquet()
    reader = RangeReader(store, store.put("bucket", "key", body))
    with pq.ParquetFile(pa.PythonFile(ArrowFile(reader), "r")) as read:
        store.put("bucket", "key", body[::-1])

        with pytest.raises(ObjectChanged):
            read.read_row_group(0)


def test_the_version_is_the_sources() -> None:
    source = MemorySource(BODY)

    assert ArrowFile(MemorySource(BODY, version=replace(source.version, size=4))).size() == 4
