"""The comparison of an exporter under retention finds what was planted, and nothing else."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.faults.exporting import ROWS, RetainedExport
from tests.support.columnar_topics import rows_of


def exporting(folder: Path, files: list[list[int]]) -> RetainedExport:
    """Return one whose topic has values 0 to 9 at these offsets; each file has some of them."""
    unused: Any = None
    made = RetainedExport(unused, folder, Random(1))
    made.committed = {ROWS * one: (0, one) for one in range(10)}
    made.reading.cuts, made.reading.gaps = {(0, 5)}, {(0, 3, 5)}
    target = folder / "files" / made.topic / "0"
    target.mkdir(parents=True)
    (target / ".passed-0-1").touch()
    for number, values in enumerate(files):
        with pq.ParquetWriter(target / f"{number}.parquet", rows_of(0, 1).schema) as writer:
            for one in values:
                writer.write_batch(rows_of(ROWS * one, ROWS * (one + 1)))
    return made


@pytest.mark.parametrize(
    ("files", "differences"),
    [
        ([[0, 1, 2], [5, 6, 7, 8, 9]], {}),
        ([[0, 1], [5, 6, 7, 8, 9]], {"missing": 1}),
        ([[0, 1, 2], [5, 6, 7, 8]], {"missing": 1}),
        ([[0, 1, 2], [2, 5, 6, 7, 8, 9]], {"duplicates": 1}),
        ([[0, 1, 2, 3], [5, 6, 7, 8, 9]], {"changed": 1}),
        ([[0, 1, 2], [5, 6, 7, 8, 9, 10]], {"foreign": 1}),
    ],
)
def test_each_record_is_in_the_files_once_or_in_a_gap_with_a_name(
    tmp_path: Path, files: list[list[int]], differences: dict[str, int]
) -> None:
    verdict = exporting(tmp_path, files).verdict()

    names = ("missing", "duplicates", "changed", "foreign")
    found = {name: getattr(verdict, name) for name in names}
    assert {name: count for name, count in found.items() if count} == differences


def test_an_exporter_that_does_not_end_is_missing_something(tmp_path: Path) -> None:
    made = exporting(tmp_path, [])
    made.stuck = "exit code 2"

    assert made.verdict().missing
