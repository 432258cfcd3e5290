"""Damaged Parquet: lost rows are reported, the others are read; store errors are not damage."""

import base64
import random
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.laws.laws import Decoded, chunks, decoded
from tests.laws.parquet_bytes import (
    BYTE_ARRAY,
    INT32,
    INT64,
    MAP,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    UTF8,
    Column,
    Element,
    parquet_file,
)
from tests.laws.parquet_cases import wide_table, written

from extentflow.errors import (
    AccessDenied,
    ExtentflowError,
    ObjectChanged,
    ObjectGone,
    StoreUnavailable,
)
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.testing.stores import MemorySource

ROWS, GROUP_ROWS = 1_000, 250
TABLE = wide_table(ROWS)
BODY = written(
    TABLE,
    row_group_size=GROUP_ROWS,
    data_page_size=400,
    write_batch_size=10,
    compression="snappy",
    write_page_checksum=True,
)
METADATA = pq.read_metadata(pa.BufferReader(BODY))
TEXT = 1
# Where a page's header cannot be: a page begins with it, and pages are longer than that.
HEADER_BYTES = 60


def parquet(batch_rows: int = 65_536, window_bytes: int = 8 << 20, readers: int = 0) -> Parquet:
    options = FormatOptions(batch_rows=batch_rows, window_bytes=window_bytes)
    return Parquet(options, Footers(), readers)


def chunk_range(group: int, leaf: int, metadata: pq.FileMetaData = METADATA) -> tuple[int, int]:
    column = metadata.row_group(group).column(leaf)
    start = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
    return start, start + column.total_compressed_size


def flipped(body: bytes, position: int, mask: int = 0x10) -> bytes:
    return body[:position] + bytes([body[position] ^ mask]) + body[position + 1 :]


def read(body: bytes, batch_rows: int = 65_536, window_bytes: int = 8 << 20) -> Decoded:
    return decoded(parquet(batch_rows, window_bytes), MemorySource(body), (0, len(body)))


GROUP_START, GROUP_END = chunk_range(2, 0)[0], chunk_range(2, METADATA.num_columns - 1)[1]
DAMAGED = flipped(BODY, chunk_range(2, TEXT)[1] - 5)


def test_trap_t08_a_damaged_page_loses_the_rows_behind_it_and_says_which() -> None:
    result = read(DAMAGED)

    ((location, raw, reason),) = result.bad
    assert raw is None
    assert 2 * GROUP_ROWS < location < 3 * GROUP_ROWS
    assert f"s3://memory/object[{GROUP_START}-{GROUP_END})" in reason
    assert f"rows {location}-{3 * GROUP_ROWS - 1} of row group 2 are lost" in reason
    assert "CRC checksum" in reason


# A struct of one member that is always null, as a version of Polars writes it.
NULL_MEMBER = base64.b64decode(
    "UEFSMRUGFQQVFlwVAhUCFQIVABUEFQARAAADAii1L/0gAAEAABUCGSUABhkoBnN0cnVjdAVmaWVsZBUMFgIWMBZC"
    "JggAGRwWCBVCFgAAABUEGTxIBHJvb3QVAgA1AhgGc3RydWN0FQIAFQIlAhgFZmllbGRsvAAAABYCGRwZHCZKHBUC"
    "GSUABhkoBnN0cnVjdAVmaWVsZBUMFgIWMBZCJggAFooBFRQAFjAWAiYIFkIUAAAZHBgMQVJST1c6c2NoZW1hGPQB"
    "Ly8vLy82OEFBQUFFQUFBQTh2Ly8veFFBQUFBRUFBRUFBQUFLQUFzQUNBQUtBQVFBK1AvLy93d0FBQUFJQUFnQUFB"
    "QUVBQUVBQUFBRUFBQUE3UC8vLzJ3QUFBQmdBQUFBR0FBQUFBRU5BQUFRQUJJQUJBQVFBQkVBQ0FBQUFBd0FBUUFB"
    "QUFRQUFBRHMvLy8vTEFBQUFDQUFBQUFZQUFBQUFRRUFBQkFBRWdBRUFCQUFFUUFJQUFBQURBQUFBQUFBL1AvLy93"
    "UUFCQUFGQUFBQVptbGxiR1FBQUFEOC8vLy9CQUFFQUFZQUFBQnpkSEoxWTNRQQAYBlBvbGFycxkcHAAAAHoBAABQ"
    "QVIx"
)


def test_columns_that_cannot_be_decoded_are_named() -> None:
    start, end = chunk_range(2, TEXT)
    damaged = flipped(flipped(BODY, (start + end) // 2), sum(chunk_range(2, 0)) // 2)

    for body, names in [
        (flipped(BODY, (start + end) // 2), repr(METADATA.schema.column(TEXT).path)),
        (damaged, ", ".join(repr(METADATA.schema.column(leaf).path) for leaf in (0, TEXT))),
        (NULL_MEMBER, "'struct.field'"),
    ]:
        ((_, _, reason),) = read(body).bad
        assert reason.endswith(f"(column {names}; select can leave it out)")


def test_trap_t08_everything_but_the_lost_rows_is_delivered() -> None:
    result = read(DAMAGED)

    lost = range(result.bad[0][0], 3 * GROUP_ROWS)
    kept = [row for row in range(ROWS) if row not in lost]
    assert result.locations == kept
    assert result.rows == TABLE.take(kept).to_pylist()


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 64, 249, 250])
@pytest.mark.parametrize("window_bytes", [500, 8 << 20])
def test_which_rows_are_lost_does_not_depend_on_batches(batch_rows: int, window_bytes: int) -> None:
    assert read(DAMAGED, batch_rows, window_bytes) == read(DAMAGED)


def test_decoding_resumes_at_every_position_of_a_damaged_object() -> None:
    source, whole = MemorySource(DAMAGED), read(DAMAGED)

    done = Decoded()
    for chunk in chunks(parquet(batch_rows=40), source, 0, len(DAMAGED)):
        done.add(chunk)
        joined = Decoded([*done.rows], [*done.locations], [*done.bad])
        for rest in chunks(parquet(90), source, 0, len(DAMAGED), position=chunk.next_position):
            joined.add(rest)

        assert joined == whole


def test_a_position_among_lost_rows_loses_the_rest_of_them() -> None:
    lost = read(DAMAGED).bad[0][0]

    first = next(chunks(parquet(), MemorySource(DAMAGED), 0, len(DAMAGED), position=lost + 5))

    assert [bad.location for bad in first.bad] == [lost + 5]
    assert first.next_position == 3 * GROUP_ROWS


def test_decoding_continues_after_a_damaged_row_group() -> None:
    result = list(chunks(parquet(), MemorySource(DAMAGED), 0, len(DAMAGED)))

    ((location, lost),) = [(n, chunk) for n, chunk in enumerate(result) if chunk.bad]
    assert lost.next_position == 3 * GROUP_ROWS
    assert lost.batch.num_rows == 0
    assert lost.batch.schema == result[0].batch.schema
    assert result[location + 1].locations[0] == 3 * GROUP_ROWS


@pytest.mark.parametrize("size", [1 << 30, 16 << 30])
def test_lengths_beyond_those_of_pages_are_damage_and_no_lack_of_memory(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> Iterator[pa.RecordBatch]:
        yield from map(_refused, [size])

    monkeypatch.setattr("extentflow.formats.parquet.row_group_reader.ColumnReader._iterate", asked)

    if size == 1 << 30:
        with pytest.raises(pa.ArrowMemoryError):
            decoded(Parquet(FormatOptions()), MemorySource(BODY), (0, len(BODY)))
        return
    result = decoded(Parquet(FormatOptions()), MemorySource(BODY), (0, len(BODY)))
    assert result.rows == []
    assert len(result.bad) == ROWS // GROUP_ROWS
    assert all("its lengths need 16.0 GiB of memory" in reason for _, _, reason in result.bad)


def _refused(size: int) -> pa.RecordBatch:
    raise pa.ArrowMemoryError(f"malloc of size {size} failed")


def test_every_damaged_row_group_is_a_bad_record_of_its_own() -> None:
    body = BODY
    for group in range(4):
        body = flipped(body, chunk_range(group, TEXT)[0] + HEADER_BYTES)

    result = read(body)

    assert [location for location, _, _ in result.bad] == [0, 250, 500, 750]
    assert result.rows == []


def test_a_row_group_with_fewer_rows_than_in_the_footer_is_damaged() -> None:
    shorter = written(wide_table(249))
    footer = BODY[-8 - int.from_bytes(BODY[-8:-4], "little") :]
    assert len(shorter) < len(BODY) - len(footer)

    # Another file's pages under this footer.
    body = shorter[: len(shorter) // 2].ljust(len(BODY) - len(footer), b"\0") + footer
    result = read(body)

    assert len(result.bad) == 4


@pytest.mark.parametrize("seed", range(8))
def test_no_flipped_bit_in_a_page_with_a_checksum_makes_a_wrong_row(seed: int) -> None:
    chance = random.Random(seed)
    rows = TABLE.to_pylist()
    one_page = written(TABLE, row_group_size=GROUP_ROWS, write_page_checksum=True)
    metadata = pq.read_metadata(pa.BufferReader(one_page))
    for _ in range(25):
        leaf, group = chance.randrange(metadata.num_columns), chance.randrange(4)
        start = metadata.row_group(group).column(leaf).data_page_offset + HEADER_BYTES
        _, end = chunk_range(group, leaf, metadata)
        position = chance.randrange(min(start, end - 1), end)

        result = read(flipped(one_page, position, 1 << chance.randrange(8)))

        assert result.rows == [rows[location] for location in result.locations]


def _every_row_is_accounted_for(result: Decoded) -> bool:
    lost = {
        row
        for location, _, _ in result.bad
        for row in range(location, -(-(location + 1) // 250) * 250)
    }
    return sorted([*result.locations, *lost]) == list(range(ROWS))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("checksums", [True, False])
def test_under_any_damage_every_row_is_delivered_or_reported_lost(
    seed: int,
    checksums: bool,  # noqa: FBT001
) -> None:
    chance = random.Random(seed)
    body = written(
        TABLE.drop_columns(["text", "few", "struct"]),
        row_group_size=GROUP_ROWS,
        data_page_size=400,
        write_page_checksum=checksums,
        data_page_version=chance.choice(["1.0", "2.0"]),
        compression=chance.choice(["none", "snappy", "zstd"]),
    )
    for _ in range(60):
        damaged = flipped(body, chance.randrange(len(body)), 1 << chance.randrange(8))
        try:
            result = read(damaged, batch_rows=chance.choice([16, 100, 1_000]))
        except ExtentflowError:
            continue

        assert _every_row_is_accounted_for(result)


# A page that holds 91 of the 100 values that its header claims, and its chunk and the footer too.
SHORT = {
    "required": (Element("x", REQUIRED, INT64), INT64, [*range(91)], []),
    "optional": (Element("x", OPTIONAL, INT64), INT64, [*range(91)], [1] * 100),
    "bytes": (Element("x", REQUIRED, BYTE_ARRAY), BYTE_ARRAY, [b"abc"] * 91, []),
}


@pytest.mark.parametrize("name", sorted(SHORT))
def test_no_row_of_a_page_that_turned_out_to_be_damaged_is_delivered(name: str) -> None:
    """Trap: smaller and smaller batches delivered the 91 values that such a page holds."""
    element, physical, values, levels = SHORT[name]
    short = Column(["x"], physical, values, levels, claimed=100)
    other = Column(["n"], INT64, list(range(100)))
    body = parquet_file([element, Element("n", REQUIRED, INT64)], [short, other], 100)

    result = read(body)

    assert result.rows == []
    assert [location for location, _, _ in result.bad] == [0]


MAP_ELEMENTS = [
    Element("m", OPTIONAL, children=1, converted=MAP),
    Element("map", REPEATED, children=2),
    Element("key", REQUIRED, BYTE_ARRAY, converted=UTF8),
    Element("value", OPTIONAL, INT32),
]


def test_columns_of_a_map_that_do_not_match_are_lost_rows() -> None:
    """Trap: such arrays ended the process (SIGABRT) when their children were taken."""
    keys = Column(["m", "map", "key"], BYTE_ARRAY, [b"a", b"b", b"c"], [2, 2, 2], [0, 1, 0])
    values = Column(["m", "map", "value"], INT32, [5], [3, 2], [0, 0])

    result = read(parquet_file(MAP_ELEMENTS, [keys, values], 2))

    assert result.rows == []
    assert "length smaller than expected" in result.bad[0][2]


class Failing(MemorySource):
    """A source whose reads inside `[start, end)` raise `fault`, once the footer was read."""

    def __init__(self, body: bytes, start: int, end: int, fault: BaseException) -> None:
        super().__init__(body)
        self._span = range(start, end)
        self._first_error = fault

    def read(self, start: int, end: int) -> bytes:
        if self.reads and self._span.start < end and start < self._span.stop:
            raise self._first_error
        return super().read(start, end)


FAULTS = [
    StoreUnavailable("unavailable"),
    ObjectChanged("another ETag"),
    ObjectGone("no such key"),
    AccessDenied("refused"),
    ConnectionResetError("an OSError, as Arrow's own"),
    ValueError("as ArrowInvalid"),
    MemoryError("out of memory"),
    KeyboardInterrupt(),
    SystemExit(143),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("readers", [0, 2])
@pytest.mark.parametrize("window_bytes", [700, 1 << 20])
def test_trap_t08_a_fault_of_the_source_surfaces_unchanged(
    fault: BaseException, readers: int, window_bytes: int
) -> None:
    source = Failing(BODY, *chunk_range(1, TEXT), fault)
    fmt = parquet(60, window_bytes, readers)

    with pytest.raises(type(fault)) as caught:
        decoded(fmt, source, (0, len(BODY)))

    assert caught.value is fault


def _collect(fmt: Parquet, source: MemorySource, done: Decoded) -> None:
    for chunk in chunks(fmt, source, 0, source.version.size):
        done.add(chunk)


@pytest.mark.parametrize("window_bytes", [700, 5_000])
def test_rows_before_a_fault_are_delivered(window_bytes: int) -> None:
    source = Failing(BODY, *chunk_range(1, TEXT), StoreUnavailable("unavailable"))
    done = Decoded()

    with pytest.raises(StoreUnavailable):
        _collect(parquet(60, window_bytes), source, done)

    assert done.locations == list(range(len(done.locations)))
    assert done.bad == []
    assert len(done.locations) >= 200
