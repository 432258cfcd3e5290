"""Casts keep values exact: what Arrow rounds, cuts off or misreads is a bad record."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from extentflow.config.column_lists import arrow_type
from extentflow.errors import CorruptRecord, UnsupportedType
from extentflow.transforms.columns import caster

INFINITY = float("inf")
BERLIN = "Europe/Berlin"
NIGHT = datetime(2024, 1, 2, tzinfo=UTC)


def cast(array: pa.Array, target: str) -> pa.Array:
    return caster("a", array.type, arrow_type(target))(array)


def made(values: list[Any], source: pa.DataType, target: str) -> list[Any]:
    found: list[Any] = cast(pa.array(values, source), target).to_pylist()
    return found


@pytest.mark.parametrize(
    "source", [pa.decimal64(10, 2), pa.decimal128(10, 2), pa.decimal256(50, 2)], ids=str
)
def test_decimals_become_the_nearest_floats(source: pa.DataType) -> None:
    numbers = [f"{whole}.{cent:02}" for whole in (0, 7, 82, -4096, 99_999) for cent in range(100)]
    values = [*map(Decimal, numbers), None]

    assert made(values, source, "float64") == [*map(float, numbers), None]
    assert cast(pa.array(values, source), "float32").equals(
        pa.array([*map(float, numbers), None], pa.float64()).cast(pa.float32())
    )


def test_decimals_with_a_negative_scale_become_floats() -> None:
    assert made([Decimal("1.2E+4"), Decimal(0)], pa.decimal128(5, -3), "float64") == [12_000.0, 0.0]


def test_integers_of_decimals_beyond_53_bits_become_the_nearest_floats() -> None:
    assert made([Decimal(2**53 + 1)], pa.decimal128(38, 0), "float64") == [float(2**53)]


@pytest.mark.parametrize(
    ("values", "source", "target", "bad"),
    [
        (["1", "0x1F", "0X1f"], pa.string(), "int64", [1, 2]),
        (["0xff"], pa.large_string(), "int8", [0]),
        (["0xff"], pa.string_view(), "uint8", [0]),
        ([b"1", b"0x1F"], pa.binary(), "int64", [1]),
        (["1", "0x1F"], pa.json_(), "int64", [1]),
        (["1e308", "1e999", "-1e999"], pa.string(), "float64", [1, 2]),
        (["3.4028235e38", "3.4028236e38"], pa.string(), "float32", [1]),
        ([1e300, 1.5, -1e39], pa.float64(), "float32", [0, 2]),
        ([Decimal(10) ** 50, Decimal(1)], pa.decimal256(60, 0), "float32", [0]),
        ([1.25, 1.5, 1.005], pa.float64(), "decimal(10,1)", [0, 2]),
        ([INFINITY, float("nan"), 1e300], pa.float64(), "decimal(10,1)", [0, 1, 2]),
        ([5, 10**8], pa.int64(), "decimal(10,2)", [1]),
        (
            [NIGHT, NIGHT + timedelta(seconds=1)],
            pa.timestamp("ms"),
            "date",
            [1],
        ),
        ([2**53, 2**53 + 1], pa.int64(), "float64", [1]),
        ([NIGHT + timedelta(microseconds=1)], pa.timestamp("us"), "timestamp(ms)", [0]),
        ([Decimal("1.50"), Decimal("1.55")], pa.decimal128(10, 2), "decimal(10,1)", [1]),
    ],
)
def test_values_that_would_change_are_bad_records(
    values: list[Any], source: pa.DataType, target: str, bad: list[int]
) -> None:
    with pytest.raises(CorruptRecord) as caught:
        made(values, source, target)

    assert list(caught.value.rows) == bad
    kept = [value for row, value in enumerate(values) if row not in bad]
    assert len(made(kept, source, target)) == len(kept)


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        (["inf", "-Infinity", None], pa.string(), "float64", [INFINITY, -INFINITY, None]),
        ([INFINITY, -INFINITY, None], pa.float64(), "float32", [INFINITY, -INFINITY, None]),
        ([0.1, None], pa.float64(), "decimal(38,20)", [Decimal("0.1"), None]),
        ([0.1], pa.float16(), "decimal(2,1)", [Decimal("0.1")]),
        ([1e15], pa.float64(), "decimal(20,2)", [Decimal("1E+15")]),
        ([-5, None], pa.int64(), "decimal(3,2)", [Decimal("-5.00"), None]),
        ([0, 2, None], pa.int64(), "bool", [False, True, None]),
        ([1e-50], pa.float64(), "float32", [0.0]),
    ],
)
def test_other_values_stay(
    values: list[Any], source: pa.DataType, target: str, expected: list[Any]
) -> None:
    assert made(values, source, target) == expected


def test_a_midnight_of_the_columns_zone_is_a_date() -> None:
    midnight = datetime(2024, 1, 2, tzinfo=ZoneInfo(BERLIN))
    array = pa.array([midnight], pa.timestamp("s", BERLIN))

    assert cast(array, "date").to_pylist() == [date(2024, 1, 2)]
    with pytest.raises(CorruptRecord):
        made([midnight.astimezone(UTC)], pa.timestamp("s", "UTC"), "date")


def test_dictionaries_are_cast_as_their_values() -> None:
    prices = pa.array([Decimal("82.71"), None, Decimal("82.71")], pa.decimal128(10, 2))
    texts = pa.array(["1", "0x1F", "1"]).dictionary_encode()

    assert cast(prices.dictionary_encode(), "float64").to_pylist() == [82.71, None, 82.71]
    with pytest.raises(CorruptRecord) as caught:
        cast(texts, "int32")
    assert list(caught.value.rows) == [1]


def test_a_uuid_is_no_number() -> None:
    with pytest.raises(UnsupportedType, match="cannot become int64"):
        caster("a", pa.uuid(), pa.int64())
