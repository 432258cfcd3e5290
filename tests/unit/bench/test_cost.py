"""Costs follow from recorded rates and list prices, and a case may be missing."""

import pytest
from bench.cost import PAYLOADS, PRICES, measured, million_objects, terabyte
from bench.report import RECORDED, read

TEXT, PARQUET = PAYLOADS


@pytest.mark.parametrize(("payload", "low", "high"), [(TEXT, 5, 8), (PARQUET, 30, 45)])
def test_traffic_between_zones_dominates(payload: object, low: float, high: float) -> None:
    assert payload in PAYLOADS
    rows = read(RECORDED)
    for one in PAYLOADS:
        if one is payload:
            cost = terabyte(one, rows[one.case]["rows_per_second"][one.rate])
            assert low < cost.parts["between zones"] < high
            assert cost.parts["between zones"] > cost.total / 2


def test_a_worker_twice_as_fast_costs_half_the_compute() -> None:
    slow, fast = terabyte(TEXT, 100_000.0), terabyte(TEXT, 200_000.0)

    requests = 1e12 / TEXT.extent_bytes / 1e6 * PRICES.lambda_million_requests
    assert slow.parts["Lambda"] - requests == pytest.approx(2 * (fast.parts["Lambda"] - requests))
    assert slow.parts["between zones"] == fast.parts["between zones"]


def test_small_objects_cost_by_their_number() -> None:
    small = read(RECORDED)["small-objects"]

    assert 30 < million_objects(small).total < 60


def test_a_case_that_was_not_recorded_is_left_out() -> None:
    text = measured({"lines": read(RECORDED)["lines"]})

    assert "1 TB of text" in text
    assert "Parquet" not in text
