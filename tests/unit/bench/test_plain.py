"""The program that ours is compared with does its work: both ways of making JSON are right."""

import datetime as dt
import json
from collections.abc import Callable, Iterable
from decimal import Decimal

import pyarrow as pa
import pytest
from bench.processes.plain import columns, rows

BATCH = pa.record_batch(
    {
        "key": pa.array([1, -2], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("-0.07")], pa.decimal128(15, 2)),
        "flag": pa.array(["A", 'say "hi" \\ there'], pa.string_view()),
        "shipped": pa.array([dt.date(1996, 3, 13), dt.date(1992, 1, 2)], pa.date32()),
    }
)


@pytest.mark.parametrize(
    ("write", "price"), [(rows, str), (columns, Decimal)], ids=["rows", "columns"]
)
def test_every_row_is_one_json_object_and_no_digit_is_lost(
    write: Callable[[pa.RecordBatch], Iterable[bytes]], price: Callable[[str], object]
) -> None:
    made = [json.loads(value, parse_float=Decimal) for value in write(BATCH)]

    assert made == [
        {"key": 1, "price": price("1.50"), "flag": "A", "shipped": "1996-03-13"},
        {
            "key": -2,
            "price": price("-0.07"),
            "flag": 'say "hi" \\ there',
            "shipped": "1992-01-02",
        },
    ]
