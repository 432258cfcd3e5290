"""What Parquet promises beyond the laws of every format: threads, faults anywhere, damage."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded
from tests.laws.parquet_cases import wide_table, written

from extentflow.errors import StoreUnavailable
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.parquet.row_group_reader import PAGE_REFUSED
from extentflow.testing.stores import MemorySource

ROWS, GROUP = 2_000, 300
TABLE = wide_table(ROWS)
BODY = written(
    TABLE,
    row_group_size=GROUP,
    data_page_size=700,
    write_batch_size=16,
    compression="zstd",
    write_page_checksum=True,
)
TABLE_ROWS = TABLE.to_pylist()
METADATA = pq.read_metadata(pa.BufferReader(BODY))
FOOTER_BYTES = int.from_bytes(BODY[-8:-4], "little") + 8
PAGES_END = len(BODY) - FOOTER_BYTES
VERSION = MemorySource(BODY).version
SIZES = st.tuples(st.integers(50, 20_000), st.integers(1, 700), st.sampled_from([0, 1, 3]))


def _cuts(end: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(1, end - 1), max_size=6).map(sorted)


def _parquet(footers: Footers, sizes: tuple[int, int, int]) -> Parquet:
    window_bytes, batch_rows, readers = sizes
    options = FormatOptions(window_bytes=window_bytes, batch_rows=batch_rows)
    return Parquet(options, footers, readers)


def _known() -> Footers:
    """Return footers that hold the object's already, so that faults meet pages only."""
    footers = Footers()
    footers.get(MemorySource(BODY))
    return footers


@given(sizes=SIZES, cuts=_cuts(len(BODY)))
@settings(max_examples=12, deadline=None)
def test_any_partition_windows_batches_and_readers_yield_the_table(
    sizes: tuple[int, int, int], cuts: list[int]
) -> None:
    result = decoded(_parquet(_known(), sizes), MemorySource(BODY), [0, *cuts, len(BODY)])

    assert result.locations == list(range(ROWS))
    assert result.rows == TABLE_ROWS


@given(sizes=SIZES, position=st.integers(4, PAGES_END - 1))
@settings(max_examples=60, deadline=None)
def test_a_fault_at_any_byte_surfaces_on_every_thread(
    sizes: tuple[int, int, int], position: int
) -> None:
    fault = StoreUnavailable(f"injected at byte {position}")
    source = MemorySource(BODY, faults={position: fault}, version=VERSION)

    with pytest.raises(StoreUnavailable) as caught:
        decoded(_parquet(_known(), sizes), source, (0, len(BODY)))

    assert caught.value is fault


@pytest.mark.long
@given(
    sizes=SIZES,
    others=SIZES,
    cuts=_cuts(len(BODY)),
    position=st.integers(4, PAGES_END - 1),
    bit=st.integers(0, 7),
)
@settings(max_examples=25, deadline=None)
def test_damage_loses_the_same_rows_however_the_object_is_cut_and_read(
    sizes: tuple[int, int, int],
    others: tuple[int, int, int],
    cuts: list[int],
    position: int,
    bit: int,
) -> None:
    body = bytearray(BODY)
    body[position] ^= 1 << bit
    source = MemorySource(bytes(body))

    whole = decoded(_parquet(Footers(), sizes), source, (0, len(body)))
    parts = decoded(_parquet(Footers(), others), source, [0, *cuts, len(body)])

    reasons = [reason for _, _, reason in [*whole.bad, *parts.bad]]
    if all(any(part in reason for part in PAGE_REFUSED) for reason in reasons):
        assert parts == whole
    else:
        # A header that claims other pages: how much is lost before it depends on the batches.
        for result in (whole, parts):
            assert _rows_and_losses(result) == list(range(len(TABLE_ROWS)))


def _rows_and_losses(result: Decoded) -> list[int]:
    """Return the ordinals of all rows that are delivered, or lost with the rest of their group."""
    lost = [
        row
        for location, _, _ in result.bad
        for row in range(location, min(len(TABLE_ROWS), (location // GROUP + 1) * GROUP))
    ]
    return sorted([*result.locations, *lost])
