"""Batches: all rows once and in order, in values that fit a topic, of about the size asked for."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.arrow_cases import union_without_rows_within, written
from tests.unit.columnar.test_values import facts

from extentflow.columnar import ENCODINGS
from extentflow.columnar.batches import BatchCutter, EncodedRows
from extentflow.columnar.groups import EncodedGroup, encoded_groups
from extentflow.columnar.values import decode
from extentflow.config.columnar import GROUPS, REST, ColumnGroup
from extentflow.errors import CorruptRecord

KIB = 1 << 10


@dataclass
class SizedRows:
    """An encoder whose values have `fixed` bytes, and as many for each row as its number states."""

    fixed: int = 0
    calls: list[int] = field(default_factory=list)

    def observe(self, rows: pa.RecordBatch) -> None:
        """Sizes depend on no other rows."""

    def __call__(self, batch: pa.RecordBatch) -> pa.Buffer:
        self.calls.append(batch.num_rows)
        sizes = [size or 0 for size in batch.column(0).to_pylist()]
        return pa.py_buffer(bytes(self.fixed + sum(sizes)))


def sized(encoder: SizedRows, target: int, limit: int) -> BatchCutter:
    group = EncodedGroup(ColumnGroup("", (REST,)), ("size",), encoder, "schema")
    return BatchCutter([group], target, limit)


def sizes_of(values: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch({"size": pa.array(values, pa.int64())})


def cutter(
    batch: pa.RecordBatch, target: int, limit: int, *, encoding: str = "arrow", groups: str = ""
) -> BatchCutter:
    found = GROUPS.read(groups) if groups else ()
    made = encoded_groups(batch.schema, found, encoding, "none")
    return BatchCutter(made, target, limit)


def texts(count: int, seed: int = 0, most: int = 200) -> pa.RecordBatch:
    """Return rows with texts of random letters and lengths."""
    rng = random.Random(seed)
    values = ["".join(rng.choices("abcdefghij", k=rng.randrange(most))) for _ in range(count)]
    return pa.record_batch({"id": pa.array(range(count)), "text": pa.array(values)})


def assert_complete(batch: pa.RecordBatch, parts: Sequence[EncodedRows], encoding: str) -> None:
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    read = [decode(part.values[0], facts(encoding, part.end - part.start)) for part in parts]
    assert pa.Table.from_batches(read) == pa.Table.from_batches([batch])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("target", [KIB, 4 * KIB, 1024 * KIB])
@pytest.mark.parametrize("limit", [4 * KIB, 16 * KIB])
def test_all_rows_are_in_values_within_the_limit_once_and_in_order(
    encoding: str, target: int, limit: int
) -> None:
    batch = texts(500)
    cut = cutter(batch, target, limit, encoding=encoding)

    for _ in range(2):
        parts = list(cut.cut(batch))

        assert max(part.values[0].size for part in parts) <= limit
        assert_complete(batch, parts, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_slice_of_rows_is_cut_like_rows_of_their_own(encoding: str) -> None:
    batch = texts(500).slice(123, 200)
    parts = list(cutter(batch, 4 * KIB, 8 * KIB, encoding=encoding).cut(batch))

    assert len(parts) > 1
    assert_complete(batch, parts, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_values_come_close_to_the_size_that_was_asked_for(encoding: str) -> None:
    batch = texts(2_000)
    cut = cutter(batch, 32 * KIB, 1024 * KIB, encoding=encoding)
    list(cut.cut(batch))

    found = [part.values[0].size for part in cut.cut(batch)]

    assert len(found) > 4
    assert all(16 * KIB < size < 40 * KIB for size in found)


def test_rows_are_divided_into_about_equal_parts() -> None:
    cut = sized(SizedRows(), 1000, 2000)
    batch = sizes_of([10] * 1010)
    list(cut.cut(batch))

    found = [part.end - part.start for part in cut.cut(batch)]

    # 101 rows more than fit into ten values of 100: eleven of 92, not ten and a small rest.
    assert len(found) == 11
    assert max(found) - min(found) <= 2


def test_a_batch_that_fits_is_one_value() -> None:
    batch = texts(100)

    (part,) = cutter(batch, 1024 * KIB, 1024 * KIB).cut(batch)

    assert (part.start, part.end) == (0, 100)


def test_a_union_that_takes_no_row_of_a_union_within_it_is_cut() -> None:
    """Trap: Arrow's `nbytes` of such an array ends the process."""
    table = pa.table({"u": union_without_rows_within()})
    batch = pa.ipc.open_file(written(table, 2)).get_batch(0)

    (value,) = cutter(batch, 64 * KIB, 64 * KIB).cut(batch)

    assert_complete(batch, [value], "arrow")


def test_no_rows_are_no_values() -> None:
    batch = texts(10).slice(3, 0)

    assert list(cutter(batch, KIB, KIB).cut(batch)) == []


def test_the_limit_holds_where_it_is_below_the_size_asked_for() -> None:
    parts = list(sized(SizedRows(), 10**6, 100).cut(sizes_of([10] * 200)))

    assert all(part.values[0].size <= 100 for part in parts)
    assert len(parts) <= 40


def test_a_row_of_exactly_the_limit_fits() -> None:
    parts = list(sized(SizedRows(), 100, 100).cut(sizes_of([1, 100, 1])))

    assert [(part.start, part.end) for part in parts] == [(0, 1), (1, 2), (2, 3)]


def test_rows_above_the_limit_are_reported_all_at_once_by_their_ordinals() -> None:
    made: list[EncodedRows] = []

    with pytest.raises(CorruptRecord, match="above the 100 bytes") as caught:
        made.extend(sized(SizedRows(), 100, 100).cut(sizes_of([5, 101, 5, 5, 5000, 5, 101])))

    assert all(part.values[0].size <= 100 for part in made)
    assert list(caught.value.rows) == [1, 4, 6]
    assert "raise max.message.bytes" in caught.value.rows[4]


@given(
    sizes=st.lists(st.integers(0, 60) | st.sampled_from([0, 99, 100, 101, 5000]), max_size=60),
    fixed=st.integers(0, 40),
    target=st.integers(1, 200),
)
def test_rows_are_rejected_only_where_their_value_alone_is_too_large(
    sizes: list[int], fixed: int, target: int
) -> None:
    cut = sized(SizedRows(fixed), target, 100)
    too_large = [row for row, size in enumerate(sizes) if fixed + size > 100]
    rejected: list[int] = []

    try:
        list(cut.cut(sizes_of(sizes)))
    except CorruptRecord as exc:
        rejected = list(exc.rows)
    rest = [size for row, size in enumerate(sizes) if row not in rejected]
    parts = list(cut.cut(sizes_of(rest)))

    assert rejected == too_large
    assert [row for part in parts for row in range(part.start, part.end)] == list(range(len(rest)))
    assert all(part.values[0].size <= 100 for part in parts)


def test_a_lower_limit_holds_from_the_next_rows_on() -> None:
    batch, cut = texts(300), cutter(texts(300), 16 * KIB, 16 * KIB)
    largest = []

    for limit in (16 * KIB, 4 * KIB, 16 * KIB):
        cut.limit_bytes = limit
        parts = list(cut.cut(batch))
        assert_complete(batch, parts, "arrow")
        largest.append(max(part.values[0].size for part in parts))

    assert largest[1] <= 4 * KIB
    assert largest[0] > 4 * KIB
    assert largest[2] > 4 * KIB


def test_values_have_many_rows_again_after_a_row_that_compresses_badly() -> None:
    batch = sizes_of([900] * 20 + [1] * 10_000)
    cut = sized(SizedRows(), 1000, 1000)
    list(cut.cut(batch))

    found = [part.end - part.start for part in cut.cut(sizes_of([1] * 10_000))]

    assert sum(found) == 10_000
    assert len(found) < 40


def test_each_value_takes_few_attempts() -> None:
    encoder = SizedRows(fixed=50)
    cut = sized(encoder, 1000, 1000)

    parts = list(cut.cut(sizes_of([10] * 5_000)))

    assert len(encoder.calls) <= len(parts) + 10


# -- groups of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_largest_value_of_the_groups_decides(encoding: str) -> None:
    batch = texts(500)
    cut = cutter(batch, 8 * KIB, 12 * KIB, encoding=encoding, groups="ids: id; texts: text")
    list(cut.cut(batch))

    parts = list(cut.cut(batch))

    small, large = ([part.values[at].size for part in parts] for at in (0, 1))
    assert max(large) <= 12 * KIB
    assert min(large) > 4 * KIB
    assert max(small) < min(large)


def test_each_group_has_its_columns_of_the_same_rows() -> None:
    batch = texts(100)

    parts = list(cutter(batch, 2 * KIB, 4 * KIB, groups="t: text, id; ids: id").cut(batch))

    assert len(parts) > 1
    for part in parts:
        rows = part.end - part.start
        first, second = (decode(value, facts("arrow", rows)) for value in part.values)
        expected = batch.slice(part.start, rows)
        assert first == expected.select(["text", "id"])
        assert second == expected.select(["id"])


def test_a_row_that_is_too_large_in_one_group_is_rejected() -> None:
    batch = pa.record_batch({"id": pa.array([1, 2, 3]), "text": pa.array(["", "x" * 9000, ""])})

    with pytest.raises(CorruptRecord) as caught:
        list(cutter(batch, 4 * KIB, 4 * KIB, groups="ids: id; texts: text").cut(batch))

    assert list(caught.value.rows) == [1]


# -- wide schemas ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_batches_of_a_thousand_columns_keep_their_size(encoding: str) -> None:
    """What a value needs for each column, whatever its rows, does not count as size of rows."""
    rng, rows = random.Random(0), 300
    columns = [pa.array(rng.choices(range(10**6), k=rows)) for _ in range(1000)]
    batch = pa.record_batch(columns, names=[f"column_{at}" for at in range(1000)])
    cut = cutter(batch, 1024 * KIB, 1024 * KIB, encoding=encoding)

    counts = [len([*cut.cut(part)]) for part in [batch, batch, batch.slice(0, 3), batch]]

    assert counts[1] <= 6
    assert counts[2] == 1
    assert counts[3] <= 6


def test_a_value_has_as_many_rows_as_fit_beside_what_is_fixed() -> None:
    cut = sized(SizedRows(fixed=900), 1000, 1000)
    batch = sizes_of([1] * 1000)
    list(cut.cut(batch))

    found = [part.end - part.start for part in cut.cut(batch)]

    # 901 are fixed, those of a single row: 99 are left.
    assert len(found) == 11
    assert min(found) == 90
