"""What the table holds reads back as what was written."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extentflow.ledger import JobProgress
from extentflow.ledger.dynamodb_calls import Value, item_from_wire, item_to_wire
from extentflow.ledger.dynamodb_extents import extent_key, slot_key
from extentflow.ledger.dynamodb_jobs import count_change

WHOLE = st.integers(-(10**37), 10**37)
# DynamoDB's own range; seconds and totals are far within.
FLOATS = st.floats(-1e125, 1e125).filter(lambda number: not 0 < abs(number) < 1e-110)
NESTED: st.SearchStrategy[Value] = st.recursive(
    WHOLE | st.booleans() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=3), FLOATS | NESTED, max_size=4))
def test_attributes_survive_the_wire(attributes: dict[str, Value]) -> None:
    stored = item_from_wire(item_to_wire(attributes))

    numbers = {name: float for name, value in attributes.items() if isinstance(value, float)}
    assert {name: numbers.get(name, _same)(value) for name, value in stored.items()} == attributes


def _same(value: object) -> object:
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [(-30, "-30"), (30.25, "30.25"), (0.0, "0.0"), (1_700_000_000.1, "1700000000.1")],
)
def test_a_number_is_stored_with_the_digits_that_python_shows(value: float, text: str) -> None:
    wire = item_to_wire({"number": value})

    assert wire == {"number": {"N": text}}
    assert item_from_wire(wire) == {"number": Decimal(text)}


def test_truth_is_not_a_number() -> None:
    assert item_to_wire({"ordered": True}) == {"ordered": {"BOOL": True}}


@given(st.lists(st.integers(0, 99_999_999), unique=True, max_size=10))
def test_sort_keys_keep_the_order_of_ordinals_and_slots(numbers: list[int]) -> None:
    by_number = sorted(numbers)

    assert sorted(numbers, key=lambda number: extent_key("job", number)) == by_number
    assert sorted(numbers, key=lambda number: slot_key("cluster", number)) == by_number


def test_a_jobs_extents_are_counted_in_sixteen_shards() -> None:
    def shard(ordinal: int) -> object:
        (write,) = count_change("job", ordinal, JobProgress(done=1))
        return write.key

    assert len({shard(ordinal) for ordinal in range(100)}) == 16
    assert shard(3) == shard(19)
