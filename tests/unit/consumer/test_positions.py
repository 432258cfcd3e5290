"""Positions between rows: what is committed leads back to the same row; parts of batches."""

import json
import random

import pyarrow as pa
import pytest

from extentflow.columnar import BatchFacts
from extentflow.consumer import ConsumedBatch, Position

FACTS = BatchFacts(
    encoding="arrow",
    rows=10,
    schema="s",
    batch="b",
    object="s3://b/k",
    version="v",
    extent="0-9",
    first=0,
    last=9,
    unit="row",
)
# What the broker takes as metadata of an offset (`offset.metadata.max.bytes`).
MOST_METADATA_BYTES = 4096


def numbers(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, end), pa.int64())})


def columnar(rows: int = 10, row: int = 0) -> ConsumedBatch:
    return ConsumedBatch("t", 0, numbers(row, rows), 100, row, facts=FACTS)


def of_records(offsets: list[int]) -> ConsumedBatch:
    return ConsumedBatch("t", 0, numbers(0, len(offsets)), offsets[0], offsets=offsets)


@pytest.mark.parametrize("seed", range(50))
def test_a_position_is_read_as_it_was_written(seed: int) -> None:
    source = random.Random(seed)
    offset = source.choice([0, 7, 2**62])
    done = sorted(source.sample(range(offset, offset + 1000), source.randrange(4)))
    ranges = tuple((first, first + source.randrange(3)) for first in done)
    boundary = source.choice([0, offset + 57])
    position = Position(offset, source.choice([0, 1, 2**31]), ranges, boundary)

    assert Position.of(offset, position.to_metadata()) == position


def test_the_start_of_a_record_needs_no_metadata() -> None:
    assert Position(7).to_metadata() == ""
    assert Position.of(7, "") == Position.of(7, None) == Position(7)


@pytest.mark.parametrize(
    "metadata",
    [
        "x",
        "null",
        "7",
        "[1]",
        '"row"',
        "{}",
        '{"row":-1}',
        '{"row":1.5}',
        '{"row":true}',
        '{"row":"3"}',
        '{"row":null}',
        '{"row":NaN}',
        '{"row":1e3}',
        '{"done":7}',
        '{"done":[-1]}',
        '{"done":[null]}',
        '{"done":[[1]]}',
        '{"row":2,"done":{"a":1}}',
        '{"row":2,"done":"AQ=="}',
        '{"row":2,"done":"AQ"}',
        '{"row":2,"done":"//////////////8BAA=="}',
        '{"row":2,"boundary":"3"}',
        '{"row":3,"done":["x"]}',
        '{"other":"client"}',
        "\0\xff",
        "[" * MOST_METADATA_BYTES,
        '{"a":' * 800,
        "1" * MOST_METADATA_BYTES,
        json.dumps({"row": 10**30}),
    ],
)
def test_metadata_of_other_clients_means_the_start_of_the_record(metadata: str) -> None:
    assert Position.of(7, metadata) == Position(7)


@pytest.mark.parametrize("seed", range(50))
def test_damaged_metadata_is_read_without_an_error(seed: int) -> None:
    source = random.Random(seed)
    whole = bytearray(Position(5, 3, ((7, 7), (9, 12), (400, 400))).to_metadata().encode())
    for _ in range(source.randrange(1, 4)):
        whole[source.randrange(len(whole))] = source.randrange(32, 127)

    found = Position.of(5, bytes(whole).decode())

    assert found.offset == 5
    assert found.row >= 0
    assert all(5 <= first <= last for first, last in found.done)


@pytest.mark.parametrize("batch", [columnar(), columnar(row=3), of_records([4, 5, 9, 20])])
def test_what_is_skipped_and_what_is_left_are_the_batch(batch: ConsumedBatch) -> None:
    count = batch.rows.num_rows

    for rows in range(count + 1):
        left = batch.skip(rows)

        assert left.rows.equals(batch.rows.slice(rows))
        assert left.after(0) == batch.after(rows)
        assert left.after(left.rows.num_rows) == batch.after(count)
        for more in range(count - rows + 1):
            assert left.skip(more).rows.equals(batch.skip(rows + more).rows)
            assert left.after(more) == batch.after(rows + more)


def test_positions_in_a_batch_ascend() -> None:
    for batch in (columnar(), columnar(row=3), of_records([4, 5, 9, 20])):
        positions = [batch.after(rows) for rows in range(batch.rows.num_rows + 1)]

        assert positions == sorted(set(positions))


def test_the_position_behind_a_record_is_the_next_offset() -> None:
    assert columnar().after(10) == Position(101)
    assert columnar().after(9) == Position(100, 9)
    assert columnar(row=3).after(6) == Position(100, 9)
    assert of_records([4, 5, 9]).after(2) == Position(6)
    assert of_records([4, 5, 9]).after(3) == Position(10)


def test_a_slice_keeps_what_else_is_known_of_the_batch() -> None:
    left = columnar().skip(4)

    assert (left.topic, left.partition, left.offset, left.row) == ("t", 0, 100, 4)
    assert left.facts is FACTS
    assert left.skip(0) is left
