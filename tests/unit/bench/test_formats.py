"""The case of formats: both ways of reading find the rows that were written, in every format."""

from pathlib import Path

import pyarrow as pa
import pytest
from bench.formats import SHAPES, WRITERS, measured, orders
from bench.processes.formats import CHUNK_BYTES, columns, open_producer, rows
from bench.result import Result

from extentflow.config.specs import FORMATS

ROWS = 1_500
TABLE = pa.Table.from_batches(orders(ROWS))


def test_the_page_has_a_row_for_each_format_that_was_measured() -> None:
    figures = {
        "rows_per_second": 1_234,
        "megabytes_per_second": 5.6,
        "cpu_seconds_per_gigabyte": 7.8,
        "peak_rss_bytes": 9 << 20,
        "to_row_by_row": 3.44,
    }

    result = Result(case="c", scale=1.0, figures={"formats": {"orc": figures}}).to_json({})

    assert measured({"formats": result}).endswith("| `orc` | 1,234 | 5.6 | 7.8 | 9 MiB | 3.4 |")
    assert measured({}) == "Not recorded yet."


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
