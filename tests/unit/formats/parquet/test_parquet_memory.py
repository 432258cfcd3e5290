"""Memory: bounded whatever a row group's size, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 1 << 20
COLUMNS = 8
ROWS = 100 * MIB // (8 * COLUMNS)
LIMIT_BYTES = 450 * MIB

# VmHWM and not ru_maxrss: the latter survives exec and would tell the peak of the test's process.
DECODE = """
import os, sys
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.model import Extent, ObjectVersion

class File:
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        self.version = ObjectVersion("b", path, None, "e", os.fstat(self.file).st_size)
    def read(self, start, end):
        return os.pread(self.file, end - start, start)

source = File(sys.argv[1])
extent = Extent("j", 0, "c", source.version, 0, source.version.size, "parquet")
chunks = Parquet(FormatOptions()).decode(source, extent, 0)
rows = sum(chunk.batch.num_rows for chunk in chunks)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, int(peak.split()[1]) * 1024)
"""


def _noise() -> pa.Table:
    """Return 100 MiB that hardly compress."""
    numbers = np.random.default_rng(3)
    return pa.table({f"c{i}": numbers.integers(0, 1 << 62, ROWS) for i in range(COLUMNS)})


def _peak_bytes(path: Path, rows: int) -> int:
    result = subprocess.run(
        [sys.executable, "-c", DECODE, str(path)],
        env={"PYTHONPATH": str(Path("layers/core/python").resolve())},
        capture_output=True,
        text=True,
        check=True,
    )
    decoded, peak = (int(value) for value in result.stdout.split())
    assert decoded == rows
    return peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' VmHWM")
def test_trap_t17_peak_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    table, peaks = _noise(), {}

    for groups in (25, 5, 1):
        path = tmp_path / f"{groups}.parquet"
        pq.write_table(table, path, row_group_size=ROWS // groups, use_dictionary=False)
        peaks[groups] = _peak_bytes(path, ROWS)

    assert max(peaks.values()) <= 1.15 * peaks[25], peaks
    assert max(peaks.values()) < LIMIT_BYTES


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' VmHWM")
@pytest.mark.long
@pytest.mark.parametrize(
    "dictionary", [pytest.param("dictionary", marks=pytest.mark.soak), "plain"]
)
def test_one_row_group_that_unpacks_to_a_gibibyte_is_streamed(
    dictionary: str, tmp_path: Path
) -> None:
    """What is in the file is small: the bound must hold for what its pages unpack to."""
    rows = 1 << 17
    numbers = np.random.default_rng(3)
    one = pa.table(
        {f"n{i}": numbers.integers(0, 1 << 20, rows) for i in range(4)}
        | {"text": [f"{n % 1000} some text that compresses well" for n in range(rows)]}
    )
    whole = pa.concat_tables([one] * (1024 * MIB // one.nbytes + 1))
    path = tmp_path / "one-group.parquet"
    options = {"compression": "zstd", "use_dictionary": dictionary == "dictionary"}
    pq.write_table(whole, path, row_group_size=whole.num_rows, **options)
    metadata = pq.read_metadata(path)
    assert (metadata.num_row_groups, whole.nbytes >= 1024 * MIB) == (1, True)

    assert _peak_bytes(path, whole.num_rows) < LIMIT_BYTES
