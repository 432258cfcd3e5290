"""Arrow IPC by pyarrow, against the tables that were written: no other reader is at hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from tests.laws.arrow_cases import DELTAS, growing, written
from tests.unit.formats.comparison.nasty import Nasty, Reader
from tests.unit.formats.comparison.parquet_files import NESTED, SCALARS, TEXTS, repeated
from tests.unit.formats.comparison.values import Plain, of_array

VIEWS = pa.table(
    {
        "views": repeated(TEXTS, pa.string_view()),
        "bytes": repeated([b"", b"\xff" * 30, None], pa.binary_view()),
        "large": repeated(TEXTS, pa.large_string()),
        "lists": repeated([[1, None], [], None], pa.large_list(pa.int8())),
        "fixed": repeated([[1, None], None, [2, 3]], pa.list_(pa.int8(), 2)),
        "coded": repeated(TEXTS, pa.string()).dictionary_encode(),
        "duration": repeated([0, -1, 2**62, None], pa.duration("ns")),
        "date64": repeated([0, -86_400_000, 253_402_214_400_000, None], pa.date64()),
        "wide": repeated([10**75, -(10**75), None], pa.decimal256(76, 0)),
    }
)


def as_written(table: pa.Table) -> Reader:
    """Return what was written."""

    def read(_body: bytes, _folder: Path, _schema: pa.Schema) -> Mapping[str, Sequence[Plain]]:
        return {name: of_array(table[name]) for name in table.column_names}

    return read


def files() -> Iterator[tuple[str, Callable[[], bytes], pa.Table]]:
    """Yield names, what writes a file or a stream, and tables."""
    for name, table in (("scalars", SCALARS), ("nested", NESTED), ("views", VIEWS)):
        for codec in (None, "lz4", "zstd"):
            for stream in (False, True):
                write = partial(written, table, 17, stream=stream, compression=codec)
                yield f"{name}-{codec}-{'stream' if stream else 'file'}", write, table
    yield "deltas", partial(written, growing(), 10, **DELTAS), growing()
    yield "batches-of-one", partial(written, NESTED, 1), NESTED


FILES = [
    Nasty(f"arrow-{name}", "arrow", write, as_written(table)) for name, write, table in files()
]
