"""Batches as frames of pandas and Polars: every value exact, also beside nulls.

pandas is no requirement of development, because Spark takes other paths where it is installed: its
tests run where it is found.
"""

import datetime as dt
import sys
from collections.abc import Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from tests.support.columnar_topics import Value, columnar

from extentflow.consumer import TopicConsumer
from extentflow.consumer.row_batches import Position
from extentflow.errors import Misconfigured, UnsupportedType
from extentflow.kafka.reading import ConsumedRecord, Place

# Not a double.
LARGE = 2**53 + 1
INSTANT = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
POINT = pa.struct([("x", pa.int64()), ("names", pa.list_(pa.string()))])
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int64(), LARGE),
    "count": (pa.uint64(), 2**64 - 1),
    "small": (pa.int8(), -128),
    "flag": (pa.bool_(), True),
    "ratio": (pa.float64(), 0.1),
    "price": (pa.decimal128(15, 2), Decimal("1234567890123.45")),
    "total": (pa.decimal128(38, 0), Decimal("9" * 38)),
    "text": (pa.string(), "ü 🚀"),
    "empty": (pa.string(), ""),
    "bytes": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), dt.date(1, 1, 1)),
    "time": (pa.time64("us"), dt.time(23, 59, 59, 999_999)),
    "local": (pa.timestamp("us"), INSTANT.replace(tzinfo=None)),
    "instant": (pa.timestamp("us", "UTC"), INSTANT),
    "millis": (pa.timestamp("ms", "UTC"), INSTANT.replace(microsecond=999_000)),
    "tags": (pa.list_(pa.int64()), [LARGE, None]),
    "point": (POINT, {"x": LARGE, "names": ["a", None]}),
}
ROWS = pa.record_batch(
    {name: pa.array([value, None, value], kind) for name, (kind, value) in COLUMNS.items()}
)


class Fetched(TopicConsumer):
    """A consumer of these values, all of one partition."""

    def __init__(self, values: Sequence[Value], **options: Any) -> None:  # noqa: ANN401
        super().__init__({"bootstrap.servers": "127.0.0.1:1"}, ["t"], group="g", **options)
        self._assigned = {("t", 0)}
        self._values = list(values)

    def _messages(self, *, skips: bool = False) -> list[tuple[Place, ConsumedRecord]]:
        assert not skips
        found, self._values = self._values, []
        self._ended |= self._assigned
        return [
            (("t", 0), ConsumedRecord(0, offset, None, one.value, one.headers))
            for offset, one in enumerate(found)
        ]


def rows_in(frames: Sequence[pl.DataFrame]) -> list[dict[str, Any]]:
    return [row for one in frames for row in one.to_dicts()]


@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_frames_of_polars_have_every_value(encoding: str) -> None:
    with Fetched([columnar(ROWS, encoding=encoding)] * 2) as consumer:
        frames = list(consumer.polars(until_end=True))

    assert [type(one) for one in frames] == [pl.DataFrame] * 2
    assert rows_in(frames) == ROWS.to_pylist() * 2
    assert frames[0].schema["price"] == pl.Decimal(15, 2)
    assert frames[0].schema["instant"] == pl.Datetime("us", "UTC")
    assert frames[0].schema["id"] == pl.Int64


def test_columns_of_nulls_have_their_types_in_polars() -> None:
    nulls = pa.RecordBatch.from_pylist([{}, {}], ROWS.schema)

    with Fetched([columnar(ROWS), columnar(nulls)]) as consumer:
        first, second = consumer.polars(until_end=True)

    assert first.schema == second.schema
    assert second.null_count().row(0) == (2,) * len(COLUMNS)


def test_dictionaries_are_plain_columns_in_polars() -> None:
    coded = pa.record_batch({"id": [1, 2, 3], "text": pa.array(["a", None, "a"])})
    coded = coded.set_column(1, "text", coded.column("text").dictionary_encode())

    with Fetched([columnar(coded)]) as consumer:
        (frame,) = consumer.polars(until_end=True)

    assert frame.schema["text"] == pl.String
    assert frame["text"].to_list() == ["a", None, "a"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.timestamp("ns")),
        pa.array([2**60], pa.timestamp("us", "UTC")),
        pa.array([3_000_000], pa.date32()),
    ],
    ids=lambda column: str(column.type),
)
def test_values_that_python_lacks_are_an_error_and_no_row_is_handled(column: pa.Array) -> None:
    odd = pa.record_batch({"id": [7], "odd": column})

    with Fetched([columnar(odd.select(["id"])), columnar(odd)]) as consumer:
        rows = consumer.rows(until_end=True)
        assert next(rows) == {"id": 7}
        with pytest.raises(UnsupportedType, match=r"topic t\[0\] offset 1.*column odd: "):
            next(rows)
        assert consumer._positions["t", 0] == Position(1)
        (left,) = consumer.batches(until_end=True)
        assert left.rows == odd


def test_a_conversion_to_pandas_that_fails_leaves_its_batch_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Arrow looks for more of pandas than this.
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(ArrowDtype=None))

    with Fetched([columnar(ROWS)]) as consumer:
        with pytest.raises((ImportError, AttributeError)):
            next(consumer.pandas(until_end=True))
        assert consumer._positions["t", 0] == Position(0)
        (left,) = consumer.batches(until_end=True)
        assert left.rows == ROWS


def test_a_frame_of_polars_has_the_rest_of_a_batch_that_rows_left() -> None:
    with Fetched([columnar(ROWS)]) as consumer:
        next(consumer.rows(until_end=True))
        (frame,) = consumer.polars(until_end=True)

    assert rows_in([frame]) == ROWS.slice(1).to_pylist()


@pytest.mark.parametrize(
    ("column", "encoding"),
    [
        (pa.array([Decimal("9" * 76)], pa.decimal256(76, 0)), "parquet"),
        (pa.array([[Decimal("9" * 76)]], pa.list_(pa.decimal256(76, 0))), "arrow"),
        (pa.array([0], pa.timestamp("us", "+05:30")), "arrow"),
    ],
    ids=["decimal of 76 digits", "list of such", "zone of hours"],
)
def test_a_type_that_polars_lacks_is_an_error_that_skips_nothing(
    column: pa.Array, encoding: str
) -> None:
    odd = pa.record_batch({"id": [7], "odd": column})
    values = [columnar(odd.select(["id"])), columnar(odd, encoding=encoding)]

    with Fetched(values) as consumer:
        frames = consumer.polars(until_end=True)
        assert rows_in([next(frames)]) == [{"id": 7}]
        with pytest.raises(UnsupportedType, match=r"topic t\[0\] offset 1.*odd: "):
            next(frames)
        with pytest.raises(UnsupportedType):
            next(consumer.polars(until_end=True))
        (left,) = consumer.batches(until_end=True)
        assert left.rows.to_pylist() == odd.to_pylist()
    with Fetched(values[1:], columns=["id"]) as consumer:
        assert rows_in(list(consumer.polars(until_end=True))) == [{"id": 7}]


def test_a_column_that_a_value_lacks_is_an_error_that_skips_nothing() -> None:
    rows = pa.record_batch({"id": [7], "price": [1.5]})

    for value in (columnar(rows), Value(0, b'{"id":7,"price":1.5}')):
        with Fetched([value], columns=["price", "text"]) as consumer:
            for _ in range(2):
                with pytest.raises(Misconfigured, match=r"t\[0\] offset 0.*: no column text;"):
                    next(consumer.batches(until_end=True))


@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_frames_of_pandas_have_every_value(encoding: str) -> None:
    pandas = pytest.importorskip("pandas")

    with Fetched([columnar(ROWS, encoding=encoding)] * 2) as consumer:
        frames = list(consumer.pandas(until_end=True))

    assert [pa.Table.from_pandas(one, ROWS.schema).to_pylist() for one in frames] == [
        ROWS.to_pylist()
    ] * 2
    assert frames[0]["id"].tolist() == [LARGE, pandas.NA, LARGE]
    assert frames[0]["price"].dtype == pandas.ArrowDtype(pa.decimal128(15, 2))


def test_columns_of_nulls_have_their_types_in_pandas() -> None:
    pytest.importorskip("pandas")
    nulls = pa.RecordBatch.from_pylist([{}, {}], ROWS.schema)

    with Fetched([columnar(ROWS), columnar(nulls)]) as consumer:
        first, second = consumer.pandas(until_end=True)

    assert first.dtypes.to_dict() == second.dtypes.to_dict()
    assert second.isna().all(axis=None)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_missing_is_an_error_before_anything_is_read(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Fetched([columnar(ROWS)]) as consumer:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(Misconfigured, match=f"pip install '{package}'"):
                next(getattr(consumer, package)(until_end=True))
        (batch,) = consumer.batches(until_end=True)

    assert batch.rows.num_rows == ROWS.num_rows
