"""Parquet files by pyarrow's writer, against the tables that were written."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.laws.laws import FormatCase, Sample, chunks

from extentflow.config.specs import Ranges
from extentflow.formats import BadRecord, Format, FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.testing.stores import MemorySource


def written(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - the writer's own
    """Return the table as a Parquet file, as small as the writer makes it."""
    sink = io.BytesIO()
    small = {"compression": "none", "write_statistics": False, "store_schema": False}
    pq.write_table(table, sink, **(small | options))
    return sink.getvalue()


def read_rows(
    body: bytes, batch_rows: int = 3, select: tuple[str, ...] = ()
) -> tuple[pa.Table, list[BadRecord]]:
    """Return what is delivered of a file, and its bad records."""
    fmt = Parquet(FormatOptions(batch_rows=batch_rows, select=select), Footers(), 0)
    result = list(chunks(fmt, MemorySource(body), 0, len(body)))
    bad = [record for chunk in result for record in chunk.bad]
    return pa.Table.from_batches([chunk.batch for chunk in result]), bad


def sample(name: str, table: pa.Table, **options: Any) -> Sample:  # noqa: ANN401
    """Return a file and what it holds."""
    return Sample(name, written(table, **options), table.to_pylist(), range(table.num_rows))


def wide_table(rows: int) -> pa.Table:
    """Return flat and nested columns with nulls, and text that differs in every row."""
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "text": [None if n % 7 == 0 else f"text {n}" for n in range(rows)],
            "few": [f"value {n % 5}" for n in range(rows)],
            "list": pa.array([None if n % 5 == 0 else [n] * (n % 4) for n in range(rows)]),
            "struct": [{"a": n, "b": None if n % 3 else {"c": str(n)}} for n in range(rows)],
        }
    )


def _opened(readers: int) -> Callable[[FormatOptions], Format]:
    return lambda options: Parquet(options, Footers(), readers)


ONE_COLUMN = pa.table({"a": pa.array([7, 8, 9], pa.int8())})
LISTS = pa.table({"l": pa.array([["x"], None, []], pa.list_(pa.string()))})
SMALL = [
    sample("two-groups", ONE_COLUMN, row_group_size=2, use_dictionary=False),
    sample("lists", LISTS, use_dictionary=False),
]
LARGE = [
    sample(
        "many-groups",
        wide_table(4000),
        row_group_size=130,
        data_page_size=512,
        write_batch_size=16,
        compression="zstd",
        write_page_checksum=True,
        store_schema=True,
    ),
    sample("one-group", wide_table(6000), data_page_size=2048, data_page_version="2.0"),
]

# -- with a filter that skips pages ----------------------------------------------------------------

PAGE_ROWS = 16


def paged_table(rows: int) -> pa.Table:
    """Return flat columns; `page` is the ordinal of a page of 16 rows."""
    return pa.table(
        {
            "page": pa.array([n // PAGE_ROWS for n in range(rows)], pa.int32()),
            "n": pa.array([n * 7919 % 65_536 for n in range(rows)], pa.int64()),
            "text": [None if n % 7 == 0 else f"text {n}" * (n % 5) for n in range(rows)],
            "few": pa.array([f"value {n % 5}" for n in range(rows)]).dictionary_encode(),
            "none": pa.nulls(rows, pa.float64()),
            "flag": [None if n % 3 == 0 else n % 2 == 0 for n in range(rows)],
        }
    )


def _is_odd_page(ranges: Ranges) -> bool:
    known = ranges("page")
    if known is None or known.low is None or known.low != known.high:
        return False
    return bool(known.low.as_py() % 2)


def _paged(name: str, rows: int, **options: Any) -> Sample:  # noqa: ANN401
    table = paged_table(rows)
    # A page ends with each batch of the writer; but pages of text have several.
    small = {"data_page_size": 200, "write_batch_size": PAGE_ROWS, "store_schema": True}
    body = written(table, write_page_index=True, write_statistics=True, **(small | options))
    kept = [row for row in range(rows) if row // PAGE_ROWS % 2 == 0]
    return Sample(name, body, table.take(kept).to_pylist(), kept)


PAGED = [
    _paged(
        "pages-sorted",
        1_600,
        row_group_size=PAGE_ROWS * 25,
        use_dictionary=["few"],
        data_page_size=1,
        compression="zstd",
        write_page_checksum=True,
    ),
    _paged("pages-v2", 1_000, data_page_version="2.0", data_page_size=1, compression="snappy"),
]


def _opened_by_pages(options: FormatOptions) -> Format:
    return Parquet(options, Footers(), 0, gap_bytes=0)


CASES = [
    FormatCase("parquet", _opened(readers=0), SMALL, LARGE),
    FormatCase("parquet-ahead", _opened(readers=2), [], LARGE),
    FormatCase(
        "parquet-pages",
        _opened_by_pages,
        [],
        PAGED,
        FormatOptions(excludes=_is_odd_page),
    ),
]
