"""Rows in the types of columnar values: exact, or bad records."""

import pyarrow as pa
import pytest

from extentflow.columnar.schemas import plain
from extentflow.columnar.values import to_plain
from extentflow.errors import CorruptRecord

MOST_SECONDS = (2**63 - 1) // 1000


def made_plain(**columns: pa.Array) -> pa.RecordBatch:
    batch = pa.record_batch(columns)
    return to_plain(batch, plain(batch.schema))


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_seconds_become_milliseconds_of_the_same_instant(zone: str | None) -> None:
    seconds = [0, None, -1, MOST_SECONDS, -MOST_SECONDS]

    found = made_plain(t=pa.array(seconds, pa.timestamp("s", zone))).column("t")

    assert found.type == pa.timestamp("ms", zone)
    expected = [None if each is None else each * 1000 for each in seconds]
    assert found.cast(pa.int64()).to_pylist() == expected


def test_seconds_of_a_day_and_days_in_milliseconds_are_exact() -> None:
    found = made_plain(
        clock=pa.array([0, None, 86_399], pa.time32("s")),
        day=pa.array([-86_400_000, None, 86_400_000], pa.date64()),
    )

    assert found.column("clock").cast(pa.int32()).to_pylist() == [0, None, 86_399_000]
    assert found.column("day").cast(pa.int32()).to_pylist() == [-1, None, 1]


@pytest.mark.parametrize("beyond", [MOST_SECONDS + 1, -MOST_SECONDS - 1, 2**63 - 1, -(2**63)])
def test_seconds_that_have_no_milliseconds_are_errors_of_their_rows(beyond: int) -> None:
    seconds = pa.array([1, beyond, None, 2, beyond], pa.timestamp("s"))

    with pytest.raises(CorruptRecord) as caught:
        made_plain(good=pa.array(range(5)), t=seconds)

    assert caught.value.rows == dict.fromkeys([1, 4], "t: has no exact value as timestamp[ms]")


def test_errors_of_several_columns_are_reported_together() -> None:
    beyond = 2**62

    with pytest.raises(CorruptRecord) as caught:
        made_plain(
            first=pa.array([1, beyond, 1, beyond], pa.timestamp("s")),
            second=pa.array([beyond, beyond, 1, None], pa.timestamp("s")),
        )

    assert {row: reason.split(":")[0] for row, reason in caught.value.rows.items()} == {
        0: "second",
        1: "first",
        3: "first",
    }


def test_errors_in_members_of_structs_are_errors_of_their_rows() -> None:
    kind = pa.struct([("t", pa.timestamp("s"))])

    with pytest.raises(CorruptRecord) as caught:
        made_plain(s=pa.array([{"t": 1}, {"t": 2**62}, None, {"t": None}], kind))

    assert list(caught.value.rows) == [1]


def test_slices_have_the_rows_of_the_slice() -> None:
    batch = pa.record_batch({"t": pa.array([2**62, 1, 2, 2**62, None], pa.timestamp("s"))})
    schema = plain(batch.schema)

    good = to_plain(batch.slice(1, 2), schema)
    with pytest.raises(CorruptRecord) as caught:
        to_plain(batch.slice(2, 3), schema)

    assert good.column("t").cast(pa.int64()).to_pylist() == [1000, 2000]
    assert list(caught.value.rows) == [1]


def test_columns_that_are_plain_are_not_copied() -> None:
    numbers = pa.array(range(100))

    found = made_plain(n=numbers).column("n")

    assert found.buffers()[1].address == numbers.buffers()[1].address


def test_no_rows_have_the_types_of_values() -> None:
    found = made_plain(t=pa.array([], pa.timestamp("s")), v=pa.array([], pa.string_view()))

    assert found.schema == pa.schema([("t", pa.timestamp("ms")), ("v", pa.string())])
    assert found.num_rows == 0


# -- texts -----------------------------------------------------------------------------------------

NO_UTF_8 = b"\xff\xfe"


def texts_of(*texts: bytes | None, kind: pa.DataType | None = None) -> pa.Array:
    """An array of texts as Arrow's readers make it: without a look at the bytes."""
    stored = pa.array(texts, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind or pa.string(), len(texts), stored.buffers())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_that_are_no_utf_8_are_errors_of_their_rows(kind: pa.DataType) -> None:
    with pytest.raises(CorruptRecord) as caught:
        made_plain(t=texts_of(b"a", NO_UTF_8, None, "ä".encode(), NO_UTF_8, kind=kind))

    assert caught.value.rows == dict.fromkeys([1, 4], "t: is no UTF-8 text")


def test_texts_in_lists_and_structs_are_looked_at_too() -> None:
    texts = texts_of(b"a", NO_UTF_8, b"b", b"c")
    lists = pa.ListArray.from_arrays([0, 1, 2, 4], texts)
    structs = pa.StructArray.from_arrays([texts_of(b"a", b"b", NO_UTF_8)], ["x"])

    for column, row in ((lists, 1), (structs, 2)):
        with pytest.raises(CorruptRecord) as caught:
            made_plain(column=column)
        assert list(caught.value.rows) == [row]
    # A slice has its own rows only.
    assert made_plain(column=lists.slice(2)).num_rows == 1
