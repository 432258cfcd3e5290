"""Parquet: planning by row groups, rows with their ordinals, every byte fetched once."""

import threading
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.laws.laws import Decoded, chunks, decoded, extent_of
from tests.laws.parquet_cases import ONE_COLUMN, wide_table, written

from extentflow.errors import Conflict, StoreUnavailable
from extentflow.formats import BATCH_BYTES, FORMATS, FormatOptions, open_format
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.model import ObjectVersion
from extentflow.testing.stores import MemorySource

KIB = 1 << 10
MIB = 1 << 20


class LockedSource(MemorySource):
    """A source that counts exactly, however many threads read."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body, window_bytes=8 * MIB)
        self._lock = threading.Lock()

    @property
    def fetched_bytes(self) -> int:
        return sum(end - start for start, end in self.reads)

    def read(self, start: int, end: int) -> bytes:
        with self._lock:
            return super().read(start, end)


def parquet(readers: int = 0, *, window_bytes: int = 8 * MIB, batch_rows: int = 65_536) -> Parquet:
    options = FormatOptions(window_bytes=window_bytes, batch_rows=batch_rows)
    return Parquet(options, Footers(), readers)


def noise(rows: int, columns: int) -> pa.Table:
    """Return columns that neither encoding nor compression makes smaller."""
    numbers = np.random.default_rng(7)
    return pa.table({f"c{i}": numbers.integers(0, 1 << 62, rows) for i in range(columns)})


def plain(table: pa.Table, group_rows: int) -> bytes:
    return written(table, row_group_size=group_rows, use_dictionary=False, data_page_size=4 * KIB)


def everything(fmt: Parquet, source: MemorySource) -> Decoded:
    return decoded(fmt, source, (0, source.version.size))


def test_parquet_is_registered_under_its_name() -> None:
    fmt = open_format("parquet", FormatOptions())

    assert "parquet" in FORMATS.names()
    assert (fmt.splittable, fmt.location_unit) == (True, "row")


def test_planning_costs_one_request_of_64_kib() -> None:
    body = plain(noise(50_000, 2), 5_000)
    source = MemorySource(body)

    list(parquet().plan(source, MIB))

    assert source.reads == [(len(body) - 64 * KIB, len(body))]


def test_a_footer_longer_than_the_tail_takes_one_more_request() -> None:
    body = written(noise(1_000, 300), row_group_size=125)
    footer_bytes = int.from_bytes(body[-8:-4], "little")
    source = MemorySource(body, window_bytes=16 * KIB)

    list(parquet().plan(source, MIB))

    assert footer_bytes > 2 * 64 * KIB
    assert source.reads == [
        (len(body) - 64 * KIB, len(body)),
        (len(body) - footer_bytes - 8, len(body) - 64 * KIB),
    ]


def test_extents_are_runs_of_row_groups_up_to_the_target() -> None:
    body = plain(noise(10_000, 2), 1_000)
    metadata = pq.read_metadata(pa.BufferReader(body))
    starts = [metadata.row_group(i).column(0).data_page_offset for i in range(10)]
    group_bytes = starts[2] - starts[1]

    ranges = list(parquet().plan(MemorySource(body), 3 * group_bytes + 100))

    assert ranges == list(pairwise([0, starts[3], starts[6], starts[9], len(body)]))


def test_a_row_group_larger_than_the_target_is_an_extent() -> None:
    body = plain(noise(3_000, 2), 1_000)

    assert len(list(parquet().plan(MemorySource(body), 1))) == 3


@pytest.mark.parametrize("table", [ONE_COLUMN.slice(0, 0), pa.table({})])
def test_trap_t19_a_file_without_rows_is_one_extent_without_records(table: pa.Table) -> None:
    source = MemorySource(written(table))

    assert list(parquet().plan(source, MIB)) == [(0, source.version.size)]
    assert everything(parquet(), source) == Decoded()


def test_empty_row_groups_are_passed_over() -> None:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, ONE_COLUMN.schema) as writer:
        for rows in (0, 2, 0, 0, 1, 0):
            writer.write_table(ONE_COLUMN.slice(0, rows))
    source = MemorySource(sink.getvalue().to_pybytes())

    result = everything(parquet(), source)

    assert result.rows == [{"a": 7}, {"a": 8}, {"a": 7}]
    assert result.locations == [0, 1, 2]


def test_trap_t07_a_row_group_belongs_to_the_extent_with_its_first_byte() -> None:
    """Trap: two workers read the same row group."""
    body = plain(noise(2_000, 1), 1_000)
    second = pq.read_metadata(pa.BufferReader(body)).row_group(1).column(0).data_page_offset
    fmt = parquet()

    before = decoded(fmt, MemorySource(body), (0, second + 1))
    behind = decoded(fmt, MemorySource(body), (second + 1, len(body)))

    assert (len(before.rows), len(behind.rows)) == (2_000, 0)


def test_locations_count_rows_of_the_object_and_positions_of_the_extent() -> None:
    body = plain(noise(3_000, 1), 1_000)
    second = pq.read_metadata(pa.BufferReader(body)).row_group(1).column(0).data_page_offset
    source = MemorySource(body)

    result = list(chunks(parquet(batch_rows=600), source, second, len(body), position=1_200))

    assert result[0].locations[0] == 2_200
    assert [chunk.next_position for chunk in result][-1] == 2_000
    assert sum(len(chunk.locations) for chunk in result) == 800


def test_resuming_behind_a_row_group_does_not_fetch_it() -> None:
    body = plain(noise(3_000, 1), 1_000)
    third = pq.read_metadata(pa.BufferReader(body)).row_group(2).column(0).data_page_offset
    fmt, source = parquet(), MemorySource(body)
    list(fmt.plan(source, MIB))
    source.reads.clear()

    list(chunks(fmt, source, 0, len(body), position=2_000))

    assert [start for start, _ in source.reads] == [0, third]


@pytest.mark.parametrize("position", [-1, 4])
def test_a_position_outside_the_extent_is_rejected(position: int) -> None:
    source = MemorySource(written(ONE_COLUMN))

    with pytest.raises(Conflict, match=r"s3://memory/object\[0-\d+\) has 3 rows"):
        list(parquet().decode(source, extent_of(source, 0, source.version.size), position))


def test_a_position_at_the_end_yields_nothing() -> None:
    source = MemorySource(written(ONE_COLUMN))

    assert not list(chunks(parquet(), source, 0, source.version.size, position=3))


BIG_GROUPS = plain(noise(60_000, 6), 30_000)
MANY_SMALL_GROUPS = plain(noise(20_000, 6), 40)
MIXED = plain(noise(120_000, 2), 3_000)
COUNTED = pytest.mark.parametrize(
    "body", [BIG_GROUPS, MANY_SMALL_GROUPS, MIXED], ids=["big", "many-small", "mixed"]
)


@COUNTED
@pytest.mark.parametrize("readers", [0, 3])
@pytest.mark.parametrize("window_bytes", [16 * KIB, 100 * KIB, 8 * MIB])
def test_every_byte_is_fetched_once_and_the_footer_once(
    body: bytes, readers: int, window_bytes: int
) -> None:
    fmt, source = parquet(readers, window_bytes=window_bytes), LockedSource(body)
    ranges = list(fmt.plan(source, 100 * KIB))

    for start, end in ranges:
        decoded(fmt, source, (start, end))

    footer_bytes = max(64 * KIB, int.from_bytes(body[-8:-4], "little") + 8)
    assert source.fetched_bytes <= 1.02 * len(body) + footer_bytes


@COUNTED
def test_small_column_chunks_and_row_groups_share_requests(body: bytes) -> None:
    source = LockedSource(body)

    everything(parquet(window_bytes=256 * KIB), source)

    assert len(source.reads) <= 4 + len(body) / (64 * KIB)


@COUNTED
def test_trap_t17_no_read_is_larger_than_a_window(body: bytes) -> None:
    fmt, source = parquet(2, window_bytes=70 * KIB), LockedSource(body)
    list(fmt.plan(source, MIB))
    source.reads.clear()

    everything(fmt, source)

    assert max(end - start for start, end in source.reads) <= 70 * KIB


class SlowConsumer(LockedSource):
    """A source that knows how far it was read beyond what was decoded."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.decoded_bytes = 0
        self.furthest = 0

    def read(self, start: int, end: int) -> bytes:
        data = super().read(start, end)
        self.furthest = max(self.furthest, self.fetched_bytes - self.decoded_bytes)
        return data


@pytest.mark.parametrize("body", [BIG_GROUPS, MIXED], ids=["big", "mixed"])
def test_reading_ahead_is_bounded(body: bytes) -> None:
    fmt, source = parquet(4, window_bytes=64 * KIB, batch_rows=500), SlowConsumer(body)
    list(fmt.plan(source, MIB))
    row_bytes = len(body) / pq.read_metadata(pa.BufferReader(body)).num_rows

    for chunk in chunks(fmt, source, 0, len(body)):
        source.decoded_bytes += round(chunk.batch.num_rows * row_bytes)

    # Four windows and the footer's tail; per column a block and Arrow's buffer.
    assert source.furthest <= (4 * 64 + 64 + 6 * (32 + 64)) * KIB
    assert source.furthest < len(body) / 2


def test_batches_have_at_most_the_requested_rows() -> None:
    source = MemorySource(written(wide_table(1_000), row_group_size=300))

    sizes = [c.batch.num_rows for c in chunks(parquet(batch_rows=70), source, 0, len(source._body))]

    assert max(sizes) == 70
    assert sum(sizes) == 1_000


def test_batches_of_wide_dictionary_encoded_rows_stay_small() -> None:
    text = [f"{n}" * 20_000 for n in range(4)]
    source = MemorySource(written(pa.table({"t": [text[n % 4] for n in range(4_000)]})))

    sizes = [chunk.batch.nbytes for chunk in chunks(parquet(), source, 0, source.version.size)]

    assert source.version.size < MIB
    assert sum(sizes) > 40 * MIB
    assert max(sizes) <= 2 * BATCH_BYTES


def test_every_chunk_has_the_schema_of_the_first() -> None:
    source = MemorySource(written(wide_table(1_000), row_group_size=300, store_schema=True))

    schemas = {c.batch.schema for c in chunks(parquet(), source, 0, source.version.size)}

    assert len(schemas) == 1


def test_footers_are_read_once_for_all_threads_and_formats() -> None:
    source, footers = LockedSource(written(ONE_COLUMN)), Footers()
    formats = [Parquet(FormatOptions(), footers, 0) for _ in range(8)]
    threads = [threading.Thread(target=list, args=(fmt.plan(source, 1),)) for fmt in formats]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(source.reads) == 1


def test_a_footer_that_could_not_be_read_is_read_again() -> None:
    body, footers = written(ONE_COLUMN), Footers()
    version = MemorySource(body).version
    fault = StoreUnavailable("once")

    with pytest.raises(StoreUnavailable):
        footers.get(MemorySource(body, faults={0: fault}))

    assert len(footers.get(MemorySource(body, version=version)).groups) == 1


def test_the_oldest_footers_are_evicted() -> None:
    body, footers = written(ONE_COLUMN), Footers(limit_bytes=1)
    sources = [
        MemorySource(body, version=ObjectVersion("b", f"{n}", None, "e", len(body)))
        for n in range(3)
    ]

    for source in (*sources, sources[0], sources[0]):
        footers.get(source)

    assert [len(source.reads) for source in sources] == [2, 1, 1]


def test_files_of_2013_whose_chunks_are_longer_than_they_say_are_read() -> None:
    body = written(wide_table(2_000), row_group_size=700, use_dictionary=False)
    old = body.replace(b"parquet-cpp-arrow version 26.0.1", b"parquet-mr version 1.2.8 (build)")
    assert old != body
    for window_bytes in (500, 20_000, MIB):
        source = MemorySource(old)

        result = everything(parquet(window_bytes=window_bytes), source)

        assert result.rows == wide_table(2_000).to_pylist()
        fetched = sum(end - start for start, end in source.reads)
        assert fetched <= len(old) + 64 * KIB + 100 * 3 * 6


# -- columns that are not needed -------------------------------------------------------------------


def selecting(
    table: pa.Table, names: tuple[str, ...], window_bytes: int = 8 << 20
) -> tuple[pa.Table, int]:
    """The rows of an object of which only `names` are needed, and how many bytes were read."""
    file = pa.BufferOutputStream()
    pq.write_table(table, file, row_group_size=1_000, compression="none", use_dictionary=False)
    source = MemorySource(file.getvalue().to_pybytes())
    options = FormatOptions(select=names, window_bytes=window_bytes)
    whole = extent_of(source, 0, source.version.size)
    found = [chunk.batch for chunk in Parquet(options, readers=0).decode(source, whole, 0)]
    return pa.Table.from_batches(found), sum(end - start for start, end in source.reads)


WIDE = pa.table(
    {
        "a": pa.array(range(3_000), pa.int64()),
        "wide": pa.array([f"{row:0900}" for row in range(3_000)]),
        "s": [{"x": row, "y": [str(row)]} for row in range(3_000)],
        "s.x": pa.array(range(3_000), pa.int16()),
    }
)


@pytest.mark.parametrize("window_bytes", [4_096, 8 << 20])
def test_only_needed_columns_are_read(window_bytes: int) -> None:
    rows, fetched = selecting(WIDE, ("a", "s"), window_bytes=window_bytes)
    _, everything = selecting(WIDE, (), window_bytes=window_bytes)

    assert rows.select(["a", "s"]) == WIDE.select(["a", "s"])
    assert "wide" not in rows.schema.names
    assert fetched < everything / 5


def test_all_columns_are_read_if_one_is_missing() -> None:
    rows, _ = selecting(WIDE, ("a", "nope"))

    assert rows == WIDE
