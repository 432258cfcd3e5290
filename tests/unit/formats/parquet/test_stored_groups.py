"""Row groups that are cut out of files and joined: readable by Arrow, equal, refused if damaged."""

import io
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extentflow.formats import Chunk, FormatOptions, StoredRows
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.pages import page_header
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.parquet.stored_groups import (
    StoredFooter,
    Stream,
    longest_text,
    moved,
    sound_pages,
)
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource

CODECS = ("none", "snappy", "gzip", "lz4", "zstd", "brotli")
LARGE = 1 << 30
WORDS = pa.array([f"word {n % 7}" for n in range(100)])
TYPES: list[pa.DataType] = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_binary(),
    pa.binary(5),
    pa.date32(),
    pa.timestamp("ns", "UTC"),
    pa.timestamp("us"),
    pa.time64("ns"),
    pa.decimal128(20, 3),
    pa.decimal256(60, 3),
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.int32()),
    pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]),
    pa.map_(pa.string(), pa.int16()),
]


def random_nested(source: random.Random, kind: pa.DataType) -> Any:  # noqa: ANN401 - as below
    if pa.types.is_struct(kind):
        return {each.name: random_value(source, each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(key, random_value(source, kind.item_type)) for key in "abc"[: source.randrange(4)]]
    return [random_value(source, kind.value_type) for _ in range(source.randrange(4))]


SCALARS: dict[str, Callable[[random.Random], Any]] = {
    "string": lambda source: source.choice(["", "ä", "x" * 50, f"{source.random()}"]),
    "fixed_size_binary[5]": lambda source: source.randbytes(5),
    "large_binary": lambda source: source.randbytes(source.randrange(40)),
    "bool": lambda source: source.random() < 0.5,
    "float": lambda source: source.randrange(1000) / 4,
    "double": lambda source: source.randrange(1000) / 4,
}


def random_value(source: random.Random, kind: pa.DataType) -> Any:  # noqa: ANN401 - of any type
    """Return a value of a type, or a null."""
    if source.random() < 0.2:
        return None
    if pa.types.is_dictionary(kind):
        return source.choice(["red", "green", "blue"])
    if pa.types.is_nested(kind):
        return random_nested(source, kind)
    made = SCALARS.get(str(kind))
    return source.randrange(100) if made is None else made(source)


def random_table(source: random.Random, rows: int) -> pa.Table:
    kinds = source.sample(TYPES, source.randrange(1, 8))
    columns = {}
    for number, kind in enumerate(kinds):
        values = [random_value(source, kind) for _ in range(rows)]
        if pa.types.is_decimal(kind):
            array = pa.array(values, pa.int64()).cast(pa.decimal128(22, 3)).cast(kind)
        elif pa.types.is_temporal(kind):
            array = pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        else:
            array = pa.array(values, kind)
        columns[f"c{number} ä"] = array
    return pa.table(columns)


def written(table: pa.Table, group_rows: int, **options: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows, **options)
    return file.getvalue()


def options_of(source: random.Random) -> dict[str, Any]:
    return {
        "compression": source.choice(CODECS),
        "use_dictionary": source.choice([True, False]),
        "data_page_version": source.choice(["1.0", "2.0"]),
        "data_page_size": source.choice([64, 1 << 20]),
        "write_page_index": source.choice([True, False]),
        "write_page_checksum": source.choice([True, False]),
        "write_statistics": source.choice([True, False]),
    }


def stored_chunks(
    body: bytes,
    *,
    position: int = 0,
    most_bytes: int = LARGE,
    codec: str | None = None,
    **options: Any,  # noqa: ANN401 - fields
) -> list[Chunk | StoredRows]:
    source = MemorySource(body, window_bytes=100)
    extent = Extent("job", 0, "c", source.version, 0, len(body), "parquet")
    format_ = Parquet(FormatOptions(**options), Footers())
    return list(format_.decode_stored(source, extent, position, most_bytes=most_bytes, codec=codec))


def table_of(chunk: Chunk | StoredRows) -> pa.Table:
    if isinstance(chunk, StoredRows):
        return pq.read_table(io.BytesIO(chunk.value))
    return pa.Table.from_batches([chunk.batch])


@pytest.mark.parametrize("seed", range(60))
def test_cut_out_row_groups_are_files_with_the_same_rows_and_types(seed: int) -> None:
    source = random.Random(seed)
    table = random_table(source, 100)
    body = written(table, source.choice([7, 33, 100, 1000]), **options_of(source))
    whole = pq.read_table(io.BytesIO(body))

    chunks = stored_chunks(body)

    assert all(isinstance(chunk, StoredRows) for chunk in chunks)
    assert len(chunks) == pq.ParquetFile(io.BytesIO(body)).num_row_groups
    at = 0
    for chunk in chunks:
        found = table_of(chunk)
        assert found.equals(whole.slice(at, found.num_rows))
        assert found.schema.equals(whole.schema)
        assert list(chunk.locations) == list(range(at, at + found.num_rows))
        at += found.num_rows
        assert chunk.next_position == at
    assert at == table.num_rows


@pytest.mark.parametrize("seed", range(20))
def test_joined_row_groups_of_files_of_one_kind_are_one_file(seed: int) -> None:
    source = random.Random(seed)
    table, options = random_table(source, 90), options_of(source)
    values = [
        chunk.value
        for chunk in stored_chunks(written(table, 20, **options))
        if isinstance(chunk, StoredRows)
    ]
    footers = [StoredFooter.of_value(value) for value in values]
    assert len({footer.description for footer in footers}) == 1

    at, bodies, groups = 4, [], []
    for value, footer in zip(values, footers, strict=True):
        body = value[4 : -8 - int.from_bytes(value[-8:-4], "little")]
        groups.append(moved(footer.groups[0], at - 4))
        bodies.append(body)
        at += len(body)
    joined = b"".join([b"PAR1", *bodies, footers[0].with_groups(groups)])

    original = pq.ParquetFile(io.BytesIO(written(table, 20, **options)))
    with pq.ParquetFile(io.BytesIO(joined)) as file:
        assert file.num_row_groups == len(values) == 5
        assert file.read().equals(original.read())
        assert file.schema_arrow == original.schema_arrow
        assert [file.read_row_group(n).num_rows for n in range(5)] == [20, 20, 20, 20, 10]


def test_files_of_other_columns_have_another_description() -> None:
    described = {
        StoredFooter.of_value(written(pa.table(columns), 10)).description
        for columns in ({"a": [1]}, {"a": ["x"]}, {"b": [1]}, {"a": [1], "b": [1]})
    }

    assert len(described) == 4


@pytest.mark.parametrize("value", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\0\0PAR1", b"x" * 99])
def test_what_is_no_file_has_no_footer(value: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        StoredFooter.of_value(value)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "lz4"])
def test_row_groups_whose_few_bytes_hold_long_texts_are_decoded(
    codec: str, *, statistics: bool
) -> None:
    texts = pa.DictionaryArray.from_arrays(
        pa.array([n % 3 for n in range(20_000)], pa.int8()), pa.array([c * 20_000 for c in "abc"])
    )
    how: dict[str, Any] = {"compression": codec, "store_schema": False}

    (long, *_) = stored_chunks(
        written(pa.table({"s": texts}), 20_000, write_statistics=statistics, **how)
    )
    short = pa.table({"s": pa.array([f"text {n % 3}" for n in range(20_000)])})
    (other,) = stored_chunks(written(short, 20_000, write_statistics=statistics, **how))

    assert isinstance(long, Chunk)
    assert isinstance(other, StoredRows)


def test_row_groups_of_texts_as_differences_are_decoded() -> None:
    table = pa.table({"s": [f"text {n}" for n in range(100)]})
    how = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}

    chunks = stored_chunks(written(table, 100, **how))

    assert all(isinstance(chunk, Chunk) for chunk in chunks)


def test_the_longest_text_of_a_dictionary_is_found() -> None:
    texts = [b"", b"abc", b"x" * 300, b"y"]
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)

    assert longest_text(memoryview(data), 4) == 300
    with pytest.raises(ValueError, match="early"):
        longest_text(memoryview(data[:-1]), 4)


def bytes_of_group(body: bytes) -> tuple[StoredFooter, int, bytes]:
    """Return footer, start and bytes of the only row group."""
    end = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    return StoredFooter.of_value(body), 4, body[4:end]


def bytes_of_pages(body: bytes) -> list[int]:
    """Return the offsets of bytes of pages in the only row group, without those of headers."""
    footer, start, data = bytes_of_group(body)
    found: list[int] = []
    for chunk in footer.groups[0].structs(1):
        meta = chunk.get(3)
        first = min(place for place in (meta.get(9), meta.get(11)) if place)
        at = first - start
        while at < first - start + meta.get(7):
            header = page_header(data[at : at + 500])
            at += header.size
            found += range(at, at + header.stored)
            at += header.stored
    return found


CHECKED = {"write_page_checksum": True}
WAYS = list(itertools.product(["none", "snappy", "zstd"], ["1.0", "2.0"]))
FLIPPED = pa.table({"n": pa.array(range(100)), "w": WORDS})


@pytest.mark.parametrize(("codec", "version"), WAYS)
def test_every_flipped_byte_of_a_page_with_a_checksum_is_found(codec: str, version: str) -> None:
    body = written(FLIPPED, 100, compression=codec, data_page_version=version, **CHECKED)
    footer, start, data = bytes_of_group(body)
    assert sound_pages(footer.groups[0], memoryview(data), start)

    for at in bytes_of_pages(body):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        assert not sound_pages(footer.groups[0], memoryview(bytes(damaged)), start), at


@pytest.mark.parametrize(("codec", "version"), WAYS)
def test_what_has_a_damaged_header_is_never_read_as_other_rows(codec: str, version: str) -> None:
    """Checksums do not cover headers: a reader may refuse what passed."""
    body = written(FLIPPED, 100, compression=codec, data_page_version=version, **CHECKED)
    footer, start, data = bytes_of_group(body)
    headers = sorted(set(range(len(data))) - set(bytes_of_pages(body)))
    wrong = []

    for at, bit in itertools.product(headers, range(8)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << bit
        if not sound_pages(footer.groups[0], memoryview(bytes(damaged)), start):
            continue
        file = io.BytesIO(body[:start] + damaged + body[start + len(data) :])
        with suppress(pa.ArrowException, OSError):
            if not pq.ParquetFile(file).read().equals(FLIPPED):
                wrong.append((at, bit))

    assert wrong == []


@pytest.mark.parametrize("cut", [1, 2, 10, 100])
def test_a_chunk_that_ends_too_early_is_not_sound(cut: int) -> None:
    footer, start, data = bytes_of_group(written(pa.table({"n": list(range(100))}), 100))

    assert not sound_pages(footer.groups[0], memoryview(data[:-cut]), start)
    assert not sound_pages(footer.groups[0], memoryview(data), start + 1)


def test_a_damaged_row_group_is_decoded_and_reported_as_decoding_reports_it() -> None:
    source = random.Random(1)
    table = pa.table({"n": pa.array([source.getrandbits(60) for _ in range(300)])})
    body = bytearray(written(table, 100, compression="none", use_dictionary=False, **CHECKED))
    second = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(1).column(0)
    body[second.data_page_offset + second.total_compressed_size - 9] ^= 4
    damaged = MemorySource(bytes(body))
    extent = Extent("job", 0, "c", damaged.version, 0, len(body), "parquet")

    decoded = list(Parquet(FormatOptions(), Footers()).decode(damaged, extent, 0))
    passed = stored_chunks(bytes(body))

    (reported,) = [bad for chunk in decoded for bad in chunk.bad]
    assert "CRC checksum" in reported.reason
    assert [isinstance(chunk, StoredRows) for chunk in passed] == [True, False, True]
    assert isinstance(passed[1], Chunk)
    assert passed[1].bad == (reported,)
    assert passed[1].batch.num_rows == 0
    assert [chunk.next_position for chunk in passed] == [100, 200, 300]
    assert table_of(passed[0]).equals(table.slice(0, 100))
    assert table_of(passed[2]).equals(table.slice(200))


def test_only_row_groups_that_fit_are_passed_on() -> None:
    source = random.Random(3)
    noise = pa.table({"b": pa.array([source.randbytes(50 + 40 * (n // 50)) for n in range(200)])})
    body = written(noise, 50, compression="none", use_dictionary=False)
    sizes = [len(c.value) for c in stored_chunks(body) if isinstance(c, StoredRows)]
    assert sizes == sorted(sizes)

    for most in (sizes[0] - 1, *sizes):
        chunks = stored_chunks(body, most_bytes=most)

        passed = [chunk for chunk in chunks if isinstance(chunk, StoredRows)]
        assert len(passed) == sum(size <= most for size in sizes)
        assert all(len(chunk.value) <= most for chunk in passed)
        assert pa.concat_tables(map(table_of, chunks)).equals(noise)
        ends = [chunk.next_position for chunk in chunks]
        assert ends == sorted(ends)
        assert ends[-1] == 200


@pytest.mark.parametrize("position", range(0, 90, 7))
def test_reading_continues_within_a_row_group(position: int) -> None:
    table = pa.table({"n": list(range(90))})
    body = written(table, 30)

    chunks = stored_chunks(body, position=position)

    assert pa.concat_tables(map(table_of, chunks)).equals(table.slice(position))
    assert sum(isinstance(chunk, StoredRows) for chunk in chunks) == (90 - position) // 30


@pytest.mark.parametrize("codec", [each for each in CODECS if each != "brotli"])
def test_with_a_codec_only_row_groups_that_have_it_are_passed_on(codec: str) -> None:
    table = pa.table({"n": list(range(90))})

    for own in CODECS:
        chunks = stored_chunks(written(table, 30, compression=own), codec=codec)
        assert all(isinstance(chunk, StoredRows) == (own == codec) for chunk in chunks), own
        assert pa.concat_tables(map(table_of, chunks)).equals(table)


@pytest.mark.parametrize("options", [{"select": ("n",)}, {"excludes": lambda _ranges: False}])
def test_what_drops_columns_or_rows_is_decoded(options: dict[str, Any]) -> None:
    body = written(pa.table({"n": list(range(9)), "m": list(range(9))}), 3)

    assert not any(isinstance(chunk, StoredRows) for chunk in stored_chunks(body, **options))


def test_int96_timestamps_are_decoded() -> None:
    table = pa.table({"t": pa.array([0, 1, None], pa.timestamp("ns"))})
    body = written(table, 3, use_deprecated_int96_timestamps=True)

    assert not any(isinstance(chunk, StoredRows) for chunk in stored_chunks(body))


def test_a_row_group_without_rows_is_passed_over() -> None:
    file, table = io.BytesIO(), pa.table({"n": [1, 2]})
    with pq.ParquetWriter(file, table.schema) as writer:
        for part in (table.slice(0, 0), table, table.slice(0, 0), table, table.slice(0, 0)):
            writer.write_table(part, row_group_size=10)

    chunks = stored_chunks(file.getvalue())

    assert [table_of(chunk).num_rows for chunk in chunks] == [2, 2]
    assert [chunk.next_position for chunk in chunks] == [2, 4]


@pytest.mark.parametrize("seed", range(30))
def test_a_stream_takes_ranges_across_windows(seed: int) -> None:
    source = random.Random(seed)
    data = source.randbytes(300)
    window = source.choice([1, 2, 7, 300])
    start = source.randrange(50)
    stream = Stream((data[at : at + window] for at in range(start, 300, window)), start)

    at = start
    while at < 300:
        first = min(300, at + source.randrange(20))
        end = min(300, first + source.randrange(1, 60))
        assert stream.take(first, end) == data[first:end]
        at = end
    stream.close()
