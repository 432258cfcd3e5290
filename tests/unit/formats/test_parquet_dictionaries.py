"""Columns of text that stay coded by the small dictionaries with which they are stored."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extentflow.formats import FormatOptions
from extentflow.formats.parquet import DICTIONARY_BYTES, Parquet
from extentflow.formats.parquet_footer import Footers
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource

ROWS = 3_000
TABLE = pa.table(
    {
        "few": pa.array([None if n % 11 == 0 else f"w{n % 7}" for n in range(ROWS)]),
        "many": pa.array([f"text {n}" for n in range(ROWS)]),
        "view": pa.array([f"v{n % 3}" for n in range(ROWS)], pa.string_view()),
        "bytes": pa.array([b"%d" % (n % 3) for n in range(ROWS)], pa.binary()),
        "number": pa.array([n % 5 for n in range(ROWS)]),
        "list": pa.array([[f"x{n % 2}"] for n in range(ROWS)]),
        "a.b": pa.array([f"d{n % 2}" for n in range(ROWS)]),
    }
)


def decoded(
    table: pa.Table,
    *,
    dictionaries: bool = True,
    position: int = 0,
    **how: Any,  # noqa: ANN401
) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 1_000, **how})
    source = MemorySource(sink.getvalue())
    fmt = Parquet(FormatOptions(dictionaries=dictionaries, batch_rows=400), Footers())
    extent = Extent("job", 0, "c", source.version, 0, source.version.size, "parquet")
    chunks = list(fmt.decode(source, extent, position))
    assert not [bad for chunk in chunks for bad in chunk.bad]
    return pa.Table.from_batches([chunk.batch for chunk in chunks])


def coded(table: pa.Table) -> list[str]:
    return [each.name for each in table.schema if pa.types.is_dictionary(each.type)]


@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_texts_with_a_small_dictionary_stay_coded(version: str) -> None:
    found = decoded(TABLE, version=version)

    assert coded(found) == ["few", "view"]
    assert found.to_pylist() == TABLE.to_pylist()
    assert coded(decoded(TABLE, dictionaries=False)) == []


def test_decoding_resumes_within_a_row_group() -> None:
    found = decoded(TABLE, position=1_234)

    assert coded(found) == ["few", "view"]
    assert found.to_pylist() == TABLE.slice(1_234).to_pylist()


def test_a_column_whose_dictionary_is_large_in_one_row_group_is_plain() -> None:
    texts = [f"w{n % 7}" for n in range(2_000)] + [f"long text {n}" * 20 for n in range(1_000)]

    found = decoded(pa.table({"text": texts}), compression="none")

    assert coded(found) == []
    assert found["text"].to_pylist() == texts


def test_a_column_whose_writer_gave_its_dictionary_up_has_the_same_texts() -> None:
    texts = [f"w{n % 5}" for n in range(500)] + [f"other {n}" for n in range(2_500)]

    # A page of the dictionary's size limit; behind it pages are plain.
    found = decoded(
        pa.table({"text": texts}),
        dictionary_pagesize_limit=64,
        data_page_size=512,
        write_batch_size=100,
        row_group_size=ROWS,
    )

    assert found["text"].to_pylist() == texts


def test_a_column_without_a_dictionary_is_plain() -> None:
    found = decoded(TABLE, use_dictionary=["view"])

    assert coded(found) == ["view"]
    assert found.to_pylist() == TABLE.to_pylist()


def test_the_bound_is_of_the_stored_dictionary() -> None:
    texts = [f"{n % 600:06}" for n in range(ROWS)]
    size = 600 * (6 + 4)

    assert size > DICTIONARY_BYTES
    assert coded(decoded(pa.table({"text": texts}), compression="none")) == []
    assert coded(decoded(pa.table({"text": texts}), compression="zstd")) == ["text"]
