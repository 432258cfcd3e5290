"""Damaged and hostile values are corrupt records, and never another error or other rows."""

import random
import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.columnar_records import as_arrow, as_parquet
from tests.support.golden import Golden
from tests.unit.columnar.test_values import batch_of, facts, value_of

from extentflow.columnar import ENCODINGS, values
from extentflow.columnar.values import _whole, decode, encoder
from extentflow.errors import CorruptRecord

ROWS = 50
BATCH = batch_of(
    n=list(range(ROWS)),
    t=[None if row % 7 == 0 else "x" * (row % 5) for row in range(ROWS)],
    l=[[row] * (row % 3) for row in range(ROWS)],
    s=[{"a": row, "b": str(row)} for row in range(ROWS)],
)
VALUES = {
    (encoding, compression): value_of(BATCH, encoding, compression).to_pybytes()
    for encoding in ENCODINGS
    for compression in ("none", "zstd")
}
# As programs write it that know dictionaries, ours among them.
VALUES["arrow", "dictionaries"] = as_arrow(
    pa.table(BATCH).set_column(1, "t", BATCH["t"].dictionary_encode())
)
# What ends a stream in Arrow's format: without it, its end is the end of the bytes.
END_OF_STREAM_BYTES = 8


@pytest.mark.parametrize(("encoding", "compression"), VALUES)
def test_no_part_of_a_value_is_a_value(encoding: str, compression: str) -> None:
    value = VALUES[encoding, compression]
    spare = END_OF_STREAM_BYTES if encoding == "arrow" else 0

    for length in range(len(value) - spare):
        with pytest.raises(CorruptRecord, match="batch job-0-0 "):
            decode(value[:length], facts(encoding, ROWS))


def test_a_stream_that_lacks_only_its_end_has_all_rows() -> None:
    value = VALUES["arrow", "none"][:-END_OF_STREAM_BYTES]

    assert decode(value, facts("arrow", ROWS)) == BATCH


@pytest.mark.parametrize(("encoding", "compression"), VALUES)
def test_the_end_of_a_value_is_no_value(encoding: str, compression: str) -> None:
    value = VALUES[encoding, compression]

    for start in range(1, len(value), 37):
        with pytest.raises(CorruptRecord):
            decode(value[start:], facts(encoding, ROWS))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"PAR1",
        b"PAR1PAR1",
        b"\xff\xff\xff\xff" * 4,
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
        b"PAR1" + b"\xff" * 8 + b"\xff\xff\xff\x7fPAR1",
        b'{"a": 1}',
        bytes(4096),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_bytes_that_are_no_value_are_a_corrupt_record(
    encoding: str, value: bytes, golden: Golden
) -> None:
    with golden.raises(CorruptRecord, match=f"{encoding}"):
        decode(value, facts(encoding, 1))


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_random_bytes_are_a_corrupt_record(encoding: str, seed: int) -> None:
    rng = random.Random(seed)
    value = rng.randbytes(rng.randrange(1, 500))

    for each in (value, b"PAR1" + value + b"PAR1"):
        with pytest.raises(CorruptRecord):
            decode(each, facts(encoding, 1))


@pytest.mark.parametrize(("encoding", "compression"), VALUES)
def test_a_value_of_the_other_encoding_is_a_corrupt_record(
    encoding: str, compression: str, golden: Golden
) -> None:
    (other,) = set(ENCODINGS) - {encoding}

    with golden.raises(CorruptRecord, match=f"{other}"):
        decode(VALUES[encoding, compression], facts(other, ROWS))


@pytest.mark.parametrize("columns", [None, ["n"]])
@pytest.mark.parametrize("rows", [1, ROWS - 1, ROWS + 1, 2**31 - 1])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_number_of_rows_that_contradicts_the_value_is_reported(
    encoding: str, rows: int, columns: list[str] | None, golden: Golden
) -> None:
    with golden.raises(CorruptRecord, match=f"{ROWS}.*{rows}"):
        decode(VALUES[encoding, "none"], facts(encoding, rows), columns)


def test_a_stream_of_no_batch_has_no_rows(golden: Golden) -> None:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, BATCH.schema).close()

    with golden.raises(CorruptRecord):
        decode(sink.getvalue(), facts("arrow", 1))


def test_values_of_other_writers_are_read_whole() -> None:
    """Two batches, two row groups: the rows are theirs, as one batch."""
    stream, file = pa.BufferOutputStream(), pa.BufferOutputStream()
    table = pa.Table.from_batches([BATCH])
    with pa.ipc.new_stream(stream, BATCH.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    pq.write_table(table, file, row_group_size=30)

    assert decode(stream.getvalue(), facts("arrow", ROWS)) == BATCH
    assert decode(file.getvalue(), facts("parquet", ROWS)) == BATCH


def test_types_of_other_writers_become_plain() -> None:
    kinds = {"v": pa.array(["a"], pa.string_view()), "t": pa.array([7], pa.timestamp("s"))}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.record_batch(kinds).schema) as writer:
        writer.write_batch(pa.record_batch(kinds))

    found = decode(sink.getvalue(), facts("arrow", 1))

    assert found.schema == pa.schema([("v", pa.string()), ("t", pa.timestamp("ms"))])
    assert found.column("t").cast(pa.int64()).to_pylist() == [7000]


def test_instants_of_other_writers_that_milliseconds_lack_are_a_corrupt_record(
    golden: Golden,
) -> None:
    batch = batch_of(t=pa.array([2**62], pa.timestamp("s")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)

    with golden.raises(CorruptRecord):
        decode(sink.getvalue(), facts("arrow", 1))


def damaged(value: bytes, seed: int) -> Iterator[bytes]:
    """Yield the value with flipped bits, with other bytes, and with bytes of another place."""
    rng = random.Random(seed)
    for _ in range(100):
        changed = bytearray(value)
        at, source = rng.randrange(len(value)), rng.randrange(len(value))
        kind = rng.randrange(3)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + 8] = rng.randbytes(8)
        else:
            changed[at : at + 4] = value[source : source + 4]
        yield bytes(changed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("encoding", "compression"), VALUES)
def test_damage_is_a_corrupt_record_or_leaves_the_number_of_rows(
    encoding: str, compression: str, seed: int
) -> None:
    """Kafka's checksums find the damage that leaves a value readable."""
    rejected = 0
    for value in damaged(VALUES[encoding, compression], seed):
        try:
            found = decode(value, facts(encoding, ROWS))
        except CorruptRecord:
            rejected += 1
        else:
            assert found.num_rows == ROWS

    assert rejected > 10


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_that_is_no_utf_8_is_no_value(encoding: str, golden: Golden) -> None:
    stored = pa.array([b"a", b"\xff"], pa.binary())
    rows = pa.record_batch({"t": pa.Array.from_buffers(pa.string(), 2, stored.buffers())})

    with golden.raises(CorruptRecord, match="batch job-0-0"):
        decode(encoder(encoding, "none", rows.schema)(rows), facts(encoding, 2))


@pytest.mark.parametrize("index", [-1, 2, 127])
def test_an_index_without_an_entry_is_a_corrupt_record(index: int) -> None:
    indices = pa.array([0, index], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)

    with pytest.raises(CorruptRecord, match="out of bounds"):
        decode(as_arrow(pa.table({"t": column})), facts("arrow", 2))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize(
    "view",
    [struct.pack("<i12s", -5, b"a"), struct.pack("<i4sii", 2_000_000_000, b"aaaa", 7, 0)],
    ids=["negative", "elsewhere"],
)
def test_a_view_of_a_null_is_not_followed(kind: pa.DataType, view: bytes) -> None:
    """Arrow's validation leaves it out, and its cast ended the process."""
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(struct.pack("<i12s", 1, b"a") + view)]
    rows = pa.table({"t": pa.Array.from_buffers(kind, 2, buffers)})

    with pytest.raises(CorruptRecord, match="View at slot 1"):
        decode(as_arrow(rows), facts("arrow", 2))


@pytest.mark.long
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_few_bytes_that_are_more_rows_than_memory_holds_are_an_error(
    encoding: str, golden: Golden
) -> None:
    rows, text = 3_000, "x" * (1 << 20)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int16()), pa.array([text]))
    table = pa.table({"t": column})
    value = (
        as_arrow(table, compression="zstd")
        if encoding == "arrow"
        else as_parquet(table, compression="zstd", store_schema=False)
    )
    assert len(value) < 10_000

    with golden.raises(CorruptRecord, match="1,073,741,824"):
        decode(value, facts(encoding, rows))


def test_a_value_is_read_in_steps_where_it_may_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(t=[f"text {row % 7}" for row in range(500)], n=list(range(500)))
    monkeypatch.setattr(values, "_LARGE_BYTES", 0)
    monkeypatch.setattr(values, "_STEP_BYTES", 10_000)
    value = as_parquet(pa.table(batch))

    assert decode(value, facts("parquet", 500)) == batch
    assert decode(value, facts("parquet", 500), ["n"]) == batch.select(["n"])


def test_rows_that_are_no_single_batch_are_an_error_and_never_fewer() -> None:
    parts = pa.chunked_array([["a", "b"], ["c"]])

    with pytest.raises(CorruptRecord, match="more than 2 GiB"):
        _whole(pa.table({"t": parts}), 3, facts("parquet", 3))
