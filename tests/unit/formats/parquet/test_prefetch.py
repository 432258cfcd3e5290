"""Fetching ahead: the order of need, who reads what, and how it ends."""

import threading
from collections.abc import Iterator

import pytest
from tests.laws.laws import extent_of
from tests.laws.parquet_cases import wide_table, written

from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.parquet.prefetch import (
    BlockPrefetcher,
    RowGroupFile,
    RowGroupRanges,
    cut_blocks,
)
from extentflow.testing.stores import MemorySource

BODY = bytes(range(200))
SECONDS = 20


def readers() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if thread.name.startswith("parquet "))


class Gated(MemorySource):
    """A source whose reader threads wait at a gate."""

    def __init__(self, body: bytes = BODY) -> None:
        super().__init__(body)
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def read(self, start: int, end: int) -> bytes:
        data = super().read(start, end)
        self.begun.release()
        if threading.current_thread().name.startswith("parquet "):
            assert self.gate.wait(SECONDS)
        return data


def ahead(
    source: MemorySource, *groups: RowGroupRanges, count: int = 0, window_bytes: int = 10
) -> BlockPrefetcher:
    columns = range(len(groups[0].ranges))
    return BlockPrefetcher(
        source, groups, views=[columns], window_bytes=window_bytes, readers=count
    )


def test_blocks_are_cut_in_the_order_in_which_rows_need_them() -> None:
    group = RowGroupRanges(0, [(0, 100), (100, 160), (160, 161), (161, 163)])

    blocks, _ = cut_blocks([group], window_bytes=40)

    assert [(block.start, block.end) for block in blocks] == [
        (0, 25),
        (100, 130),
        (160, 163),
        (25, 50),
        (50, 75),
        (130, 160),
        (75, 100),
    ]


def test_row_groups_that_fit_into_a_window_are_one_block() -> None:
    groups = [
        RowGroupRanges(n, [(n * 10, n * 10 + 4), (n * 10 + 4, n * 10 + 10)]) for n in range(4)
    ]

    blocks, chunk_blocks = cut_blocks(groups, window_bytes=40)

    assert [(block.start, block.end) for block in blocks] == [(0, 40)]
    assert len(chunk_blocks) == 8


def test_a_block_that_no_thread_has_started_is_read_by_the_scan() -> None:
    source = Gated()
    fetching = ahead(source, RowGroupRanges(0, [(0, 10), (10, 20)]), count=1)
    _, second = fetching.scans(0, 0)
    assert source.begun.acquire(timeout=SECONDS)

    data = fetching.data(second.blocks[0])

    assert data == BODY[10:20]
    source.gate.set()
    fetching.close()


def test_four_windows_are_held_and_a_release_fetches_one_more() -> None:
    source = Gated()
    source.gate.set()
    fetching = ahead(source, RowGroupRanges(0, [(0, 200)]), count=1)
    (scan,) = fetching.scans(0, 0)
    for _ in range(4):
        assert source.begun.acquire(timeout=SECONDS)
    assert not source.begun.acquire(timeout=0.05)

    fetching.data(scan.blocks[0])
    fetching.release(scan.blocks.popleft())

    assert source.begun.acquire(timeout=SECONDS)
    assert source.reads[-1] == (40, 50)
    fetching.close()


def test_a_file_serves_columns_side_by_side_and_each_byte_once() -> None:
    source = MemorySource(BODY)
    file = RowGroupFile(ahead(source, RowGroupRanges(0, [(0, 50), (50, 120)])))
    file.open(0)
    first, second = b"", b""

    for step in range(1, 21):
        file.seek(len(first))
        first += bytes(file.read(min(step, 50 - len(first))))
        file.seek(50 + len(second))
        second += bytes(file.read(min(step, 70 - len(second))))

    assert (first, second) == (BODY[:50], BODY[50:120])
    assert sum(end - start for start, end in source.reads) == 120


def test_what_no_chunk_covers_comes_from_the_source() -> None:
    file = RowGroupFile(ahead(MemorySource(BODY), RowGroupRanges(0, [(0, 10)])))
    file.open(0)

    file.seek(150)
    assert bytes(file.read(10)) == BODY[150:160]
    file.seek(-5, 2)
    assert bytes(file.read(10)) == BODY[-5:]
    assert file.tell() == len(BODY)


def test_closing_waits_for_reads_in_flight_and_begins_no_other() -> None:
    source = Gated()
    fetching = ahead(source, RowGroupRanges(0, [(n * 10, n * 10 + 10) for n in range(4)]), count=2)
    fetching.scans(0, 0)
    for _ in range(2):
        assert source.begun.acquire(timeout=SECONDS)
    closing = threading.Thread(target=fetching.close)

    closing.start()
    source.gate.set()
    closing.join()

    assert list(readers()) == []
    assert len(source.reads) == 2


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_closing_a_decoder_stops_its_reading(stop_after: int) -> None:
    pages = {"use_dictionary": False, "data_page_size": 2_000, "write_batch_size": 50}
    body = written(wide_table(20_000), row_group_size=9_000, **pages)
    fmt = Parquet(FormatOptions(window_bytes=16 << 10, batch_rows=100), Footers(), 3)
    source = MemorySource(body)
    decoder = fmt.decode(source, extent_of(source, 0, len(body)), 0)
    for _ in range(stop_after):
        next(decoder)

    decoder.close()  # type: ignore[attr-defined]

    assert list(readers()) == []
    assert sum(end - start for start, end in source.reads) < len(body) / 2
