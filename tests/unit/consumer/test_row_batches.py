"""Rows as dicts: the values of Arrow's own conversion."""

import math
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.unit.columnar.test_values import ARRAYS, batch_of

from extentflow.consumer.row_batches import dicts
from extentflow.errors import UnsupportedType

DAYS = [date.min.toordinal(), date(1970, 1, 1).toordinal(), date.max.toordinal()]
EDGES = pa.array([day - DAYS[1] for day in DAYS] + [None], pa.int32()).cast(pa.date32())


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - of any column
    """Equal and of one type; NaN is itself."""
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("array", [*ARRAYS, EDGES], ids=lambda array: str(array.type))
def test_rows_have_the_values_of_to_pylist_or_its_error(array: pa.Array, golden: Golden) -> None:
    batch = batch_of(c=array, n=list(range(len(array))))
    try:
        expected = batch.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        with golden.raises(UnsupportedType, match="column c"):
            dicts(batch)
        return

    found = list(dicts(batch))

    assert [row["n"] for row in found] == list(range(len(array)))
    assert all(same(one["c"], other["c"]) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_instants_without_a_zone_are_datetimes(unit: str) -> None:
    seen = datetime(2026, 11, 27, 12, 30)  # noqa: DTZ001 - it has no zone

    assert list(dicts(batch_of(t=pa.array([seen, None], pa.timestamp(unit))))) == [
        {"t": seen},
        {"t": None},
    ]


def test_rows_without_columns_are_empty() -> None:
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))

    assert list(dicts(rows)) == [{}, {}]
