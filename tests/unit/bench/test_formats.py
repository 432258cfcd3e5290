"""The case of formats: both ways of reading find the rows that were written, in every format."""

from pathlib import Path

import pyarrow as pa
import pytest
from bench.formats import SHAPES, WRITERS, orders
from bench.processes.formats import CHUNK_BYTES, columns, open_producer, rows

from extentflow.config.specs import FORMATS

ROWS = 1_500
TABLE = pa.Table.from_batches(orders(ROWS))


def test_every_format_is_measured() -> None:
    assert set(WRITERS) == set(FORMATS.names())


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_both_ways_find_all_records(name: str, tmp_path: Path) -> None:
    path = tmp_path / "object"
    WRITERS[name](path, TABLE)
    # A line for the header, and chunks of a file.
    wanted = {"text": ROWS + 1, "bytes": -(-path.stat().st_size // CHUNK_BYTES)}.get(name, ROWS)

    producer = open_producer()
    made, loop = columns(path, name, producer), rows(path, name, producer)

    assert (made[0], loop[0]) == (wanted, wanted)
    assert made[1] > ROWS


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_shapes_whose_memory_is_measured_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "object"
    SHAPES[name](path, 0.0)

    assert columns(path, "parquet", open_producer())[0] >= 100
