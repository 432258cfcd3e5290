"""The calendar at its edges: where years stop having four digits, and where Arrow's ranges end."""

import pyarrow as pa
import pytest

from extentflow.converters.json_encoding import json_converter
from extentflow.errors import CorruptRecord

INT64 = (-(2**63), 2**63 - 1)
DAY_MS = 86_400_000


def texts(values: list[int | None], kind: pa.DataType) -> list[str | None]:
    storage = pa.int32() if kind.bit_width == 32 else pa.int64()
    batch = pa.record_batch({"v": pa.array(values, storage).cast(kind)})
    payloads = json_converter(batch.schema)(batch).to_pylist()
    written = [payload.decode().removeprefix('{"v":').removesuffix("}") for payload in payloads]
    return [None if text == "null" else text.strip('"') for text in written]


@pytest.mark.parametrize(("kind", "day"), [(pa.date32(), 1), (pa.date64(), DAY_MS)])
def test_years_have_four_digits_or_a_sign(kind: pa.DataType, day: int) -> None:
    days = [-719_529, -719_528, None, -719_162, -141_427, 0, 2_932_896, 2_932_897]

    dates = texts([None if value is None else value * day for value in days], kind)

    assert dates == [
        "-0001-12-31",
        "0000-01-01",
        None,
        "0001-01-01",
        "1582-10-15",
        "1970-01-01",
        "9999-12-31",
        "+10000-01-01",
    ]


def test_the_first_and_the_last_date32_are_written() -> None:
    assert texts([-(2**31), 2**31 - 1], pa.date32()) == ["-5877641-06-23", "+5881580-07-11"]


@pytest.mark.parametrize(("unit", "digits"), [("s", 0), ("ms", 3), ("us", 6)])
def test_timestamps_cross_the_edges_of_four_digit_years(unit: str, digits: int) -> None:
    tick = 10**digits
    first, last = -719_528 * 86_400 * tick, 2_932_897 * 86_400 * tick - 1
    nines, zeros = ("." + "9" * digits, "." + "0" * digits) if digits else ("", "")

    moments = texts([first - 1, first, None, last, last + 1], pa.timestamp(unit))

    assert moments == [
        f"-0001-12-31T23:59:59{nines}",
        f"0000-01-01T00:00:00{zeros}",
        None,
        f"9999-12-31T23:59:59{nines}",
        f"+10000-01-01T00:00:00{zeros}",
    ]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("s", ["-292277022657-01-27T08:29:52", "+292277026596-12-04T15:30:07"]),
        ("ms", ["-292275055-05-16T16:47:04.192", "+292278994-08-17T07:12:55.807"]),
        ("us", ["-290308-12-21T19:59:05.224192", "+294247-01-10T04:00:54.775807"]),
        ("ns", ["1677-09-21T00:12:43.145224192", "2262-04-11T23:47:16.854775807"]),
    ],
)
def test_the_first_and_the_last_timestamp_are_written(unit: str, expected: list[str]) -> None:
    assert texts([*INT64], pa.timestamp(unit)) == expected
    assert texts([*INT64], pa.timestamp(unit, "America/New_York")) == [f"{t}Z" for t in expected]


def test_the_first_and_the_last_duration_are_written() -> None:
    assert texts([*INT64], pa.duration("ns")) == [
        "PT-9223372036.854775808S",
        "PT9223372036.854775807S",
    ]


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_only_times_of_day_are_times(kind: pa.DataType) -> None:
    end = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]

    with pytest.raises(CorruptRecord) as caught:
        texts([0, -1, None, end - 1, end], kind)

    assert list(caught.value.rows) == [1, 4]


def test_a_date64_with_a_time_of_day_is_a_bad_row() -> None:
    with pytest.raises(CorruptRecord) as caught:
        texts([0, DAY_MS - 1, None, -DAY_MS], pa.date64())

    assert caught.value.rows == {1: "v: a date64 with a time of day"}
