"""Arrow IPC files and streams by pyarrow's writer, against the tables that were written."""

import io
from typing import Any

import pyarrow as pa
from tests.laws.laws import FormatCase, Sample
from tests.laws.parquet_cases import wide_table

from extentflow.formats.arrow.arrow_format import ArrowIpc


def written(table: pa.Table, rows: int, *, stream: bool = False, **options: Any) -> bytes:  # noqa: ANN401
    """Return the table as a file or stream, with batches of so many rows."""
    sink = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return sink.getvalue()


def sample(name: str, table: pa.Table, rows: int, **options: Any) -> Sample:  # noqa: ANN401
    """Return a file and what it holds; the locations are compared between cuts."""
    return Sample(name, written(table, rows, **options), table.to_pylist())


ONE_COLUMN = pa.table({"a": pa.array([7, None, 9], pa.int8())})


def growing() -> pa.Table:
    """Return batches whose dictionaries grow, which are written as deltas."""
    words = [f"word {n}" for n in range(9)]
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([0, end - 1], pa.int8()), pa.array(words[:end]))
        for end in (3, 6, 9)
    ]
    return pa.table({"d": pa.chunked_array(parts)})


WIDE = wide_table(3000)
DELTAS = {"emit_dictionary_deltas": True}
CASES = [
    FormatCase(
        "arrow",
        ArrowIpc,
        [sample("two-batches", ONE_COLUMN, 2)],
        [
            sample("zstd", WIDE, 250, compression="zstd"),
            sample("one-batch", WIDE, 1 << 20),
            sample("deltas", growing(), 10, **DELTAS),
        ],
        windows=(2, 64, 1 << 20),
    ),
    FormatCase(
        "arrow-stream",
        ArrowIpc,
        [sample("two-batches", ONE_COLUMN, 2, stream=True)],
        [
            sample("lz4", WIDE, 250, compression="lz4", stream=True),
            sample("deltas", growing(), 10, stream=True, **DELTAS),
        ],
        windows=(2, 64, 1 << 20),
    ),
]


def union_without_rows_within() -> pa.UnionArray:
    """Return two rows of a dense union, none of them in the dense union that it holds."""
    numbers, places = pa.array([1, 2]), pa.array([0, 1], pa.int32())
    within = pa.UnionArray.from_dense(pa.array([], pa.int8()), places[:0], [numbers])
    return pa.UnionArray.from_dense(pa.array([1, 1], pa.int8()), places, [within, numbers])
