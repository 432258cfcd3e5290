"""Computed objects read like stored ones."""

import io
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq
import pytest
from bench.synthetic import DIGITS, Content, Lines, SyntheticStore
from bench.synthetic_parquet import ParquetRows
from hypothesis import given
from hypothesis import strategies as st

from extentflow.errors import BucketGone, ObjectChanged, ObjectGone
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import ListedObject
from extentflow.storage.ranges import MAX_READ_BYTES, RangeReader

TB = 10**12


class View(io.RawIOBase):
    """An object as a file that can be sought."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._content.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        end = min(self._at + len(buffer), self._content.size)
        body = self._content.read(self._at, end) if end > self._at else b""
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def opened(content: Content) -> pq.ParquetFile:
    return pq.ParquetFile(View(content))


def small_parquet() -> ParquetRows:
    return ParquetRows(groups=4, pages=3, columns=4, page_rows=5)


# -- text -----------------------------------------------------------------------------------------


@given(data=st.data(), line_bytes=st.integers(DIGITS + 2, 80))
def test_text_is_the_same_however_it_is_cut(data: st.DataObject, line_bytes: int) -> None:
    size = data.draw(st.integers(line_bytes, 3_000 * line_bytes))
    lines = Lines(size, line_bytes)
    cuts = sorted({0, size, *data.draw(st.lists(st.integers(1, size - 1), max_size=5))})

    pieces = [lines.read(start, end) for start, end in pairwise(cuts)]

    assert b"".join(pieces) == lines.read(0, size)


@given(data=st.data(), line_bytes=st.integers(DIGITS + 2, 80))
def test_every_line_says_which_one_it_is_whatever_the_size(
    data: st.DataObject, line_bytes: int
) -> None:
    size = data.draw(st.integers(line_bytes, 3_000 * line_bytes))
    lines = Lines(size, line_bytes)

    *found, rest = lines.read(0, size).split(b"\n")

    assert rest == b""
    assert [int(line[:DIGITS]) for line in found] == list(range(lines.count))
    assert {len(line) + 1 for line in found[:-1]} <= {line_bytes}
    assert len(found[-1]) + 1 == line_bytes + size % line_bytes


def test_a_line_far_out_is_found_by_arithmetic() -> None:
    lines = Lines(50 * TB)
    number = 49 * TB // lines.line_bytes

    line = lines.read(number * lines.line_bytes, (number + 1) * lines.line_bytes)

    assert int(line[:DIGITS]) == number
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_the_last_line_of_a_large_object_is_its_last() -> None:
    lines = Lines(50 * TB + 7)

    tail = lines.read(lines.size - lines.line_bytes - 7, lines.size)

    assert int(tail[:DIGITS]) == lines.count - 1
    assert tail.endswith(b"\n")
    assert tail.count(b"\n") == 1


@pytest.mark.parametrize(("size", "line_bytes"), [(99, 100), (100, DIGITS + 1), (10**18, 100)])
def test_lines_that_could_not_be_numbered_are_rejected(size: int, line_bytes: int) -> None:
    with pytest.raises(ValueError, match="lines"):
        Lines(size, line_bytes)


# -- Parquet --------------------------------------------------------------------------------------


def test_pyarrow_reads_every_row_of_a_parquet_object_back() -> None:
    content = small_parquet()

    table = opened(content).read()

    assert content.rows == 4 * 3 * 5
    assert table["row"].to_pylist() == list(range(content.rows))
    page = table.slice(0, 5).drop_columns(["row"])
    for start in range(0, content.rows, 5):
        assert table.slice(start, 5).drop_columns(["row"]).equals(page)


@given(data=st.data())
def test_parquet_is_the_same_however_it_is_cut(data: st.DataObject) -> None:
    content = small_parquet()
    size = content.size
    cuts = sorted({0, size, *data.draw(st.lists(st.integers(1, size - 1), max_size=8))})

    pieces = [content.read(start, end) for start, end in pairwise(cuts)]

    assert b"".join(pieces) == content.read(0, size)


def test_the_extents_of_a_parquet_object_hold_every_row_once() -> None:
    content = small_parquet()
    store = SyntheticStore("bucket", {"a.parquet": content})
    source = RangeReader(store, store.head("bucket", "a.parquet"))
    parquet = Parquet(FormatOptions(batch_rows=7), readers=0)

    cuts = list(parquet.plan(source, 1))
    extents = [
        Extent("job", ordinal, "c", source.version, start, end, "parquet")
        for ordinal, (start, end) in enumerate(cuts)
    ]
    rows = [
        row
        for extent in extents
        for chunk in parquet.decode(source, extent, 0)
        for row in chunk.batch.column("row").to_pylist()
    ]

    assert len(extents) == content.groups
    assert rows == list(range(content.rows))


def test_the_statistics_of_a_parquet_object_are_true() -> None:
    content = small_parquet()
    file = opened(content)
    table = file.read()

    for group in range(content.groups):
        column = file.metadata.row_group(group).column(2)
        values = table.column(2).slice(group * content.group_rows, content.group_rows).to_pylist()
        assert column.num_values == len(values)
        assert (column.statistics.min, column.statistics.max) == (min(values), max(values))


def test_rows_at_the_end_of_a_terabyte_of_parquet_can_be_read() -> None:
    content = ParquetRows.of_size(TB, columns=2)

    file = opened(content)
    last = file.read_row_group(content.groups - 1, columns=["row"])["row"]

    assert content.size == pytest.approx(TB, rel=0.001)
    assert file.metadata.num_rows == content.rows
    assert last[0].as_py() == content.rows - content.group_rows
    assert last[-1].as_py() == content.rows - 1


def test_an_object_beyond_the_offset_range_is_rejected() -> None:
    with pytest.raises(ValueError, match="offsets"):
        ParquetRows.of_size(200 * TB)


# -- the store ------------------------------------------------------------------------------------


def store_of(**objects: Content) -> SyntheticStore:
    return SyntheticStore("bucket", objects, page_keys=2)


def test_an_object_is_pinned_and_read_and_both_are_counted() -> None:
    store = store_of(a=Lines(50 * TB))

    version = store.head("bucket", "a")
    body = store.read(version, 0, DIGITS)

    assert version.size == 50 * TB
    assert body == b"0" * DIGITS
    assert (store.requests, store.fetched_bytes) == (2, DIGITS)


def test_the_same_content_has_the_same_pin_and_another_one_has_another() -> None:
    pins = {
        store_of(a=content).head("bucket", "a")
        for content in (Lines(1_000), Lines(1_000), Lines(1_001), Lines(1_000, 50))
    }

    assert len(pins) == 3
    assert len({version.etag for version in pins}) == 3


def test_what_is_not_there_is_gone() -> None:
    store = store_of(a=Lines(1_000))

    with pytest.raises(BucketGone):
        store.head("other", "a")
    with pytest.raises(BucketGone):
        list(store.list("other"))
    with pytest.raises(ObjectGone, match="no such key"):
        store.head("bucket", "b")
    with pytest.raises(ObjectGone, match="no such version"):
        store.head("bucket", "a", "v1")


def test_a_pin_of_other_content_is_rejected() -> None:
    old = store_of(a=Lines(1_000)).head("bucket", "a")
    store = store_of(a=Lines(1_001))

    with pytest.raises(ObjectChanged, match=r"s3://bucket/a\[0-10\)"):
        store.read(old, 0, 10)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 5), (0, TB + 1), (0, MAX_READ_BYTES + 1)])
def test_an_invalid_range_is_rejected(start: int, end: int) -> None:
    store = store_of(a=Lines(TB))

    with pytest.raises(ValueError, match=r"s3://bucket/a\["):
        store.read(store.head("bucket", "a"), start, end)


def test_listings_have_every_key_below_a_prefix_page_by_page() -> None:
    content = Lines(1_000)
    store = store_of(**{"x/b": content, "x/a": content, "y": content, "x/c": content})

    pages = list(store.pages("bucket", "x/"))
    behind = list(store.pages("bucket", "x/", token=pages[0].token))

    assert [[version.key for version in page.versions] for page in pages] == [
        ["x/a", "x/b"],
        ["x/c"],
    ]
    assert behind == pages[1:]
    assert pages[1].token is None
    pinned = store.head("bucket", "y")
    assert list(store.list("bucket", "y")) == [ListedObject("bucket", "y", pinned.etag, 1_000)]
    assert isinstance(pinned, ObjectVersion)
