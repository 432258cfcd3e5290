"""What the table holds reads back as what was written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from extentflow.ledger import items
from extentflow.ledger.items import Value

NUMBERS = st.integers(-(10**37), 10**37) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Value] = st.recursive(
    NUMBERS | st.booleans() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_attributes_survive_the_wire(attributes: dict[str, Value]) -> None:
    assert items.item_from_wire(items.item_to_wire(attributes)) == attributes


def test_whole_numbers_come_back_as_integers() -> None:
    assert repr(items.from_wire({"N": "-30"})) == "-30"
    assert repr(items.from_wire({"N": "30.25"})) == "30.25"


def test_truth_is_not_a_number() -> None:
    assert items.to_wire(value=True) == {"BOOL": True}


@given(st.lists(st.integers(0, 99_999_999), unique=True, max_size=10))
def test_sort_keys_keep_the_order_of_ordinals_and_slots(numbers: list[int]) -> None:
    by_number = sorted(numbers)

    assert sorted(numbers, key=lambda number: items.extent_key("job", number)) == by_number
    assert sorted(numbers, key=lambda number: items.slot_key("cluster", number)) == by_number


def test_a_jobs_extents_are_counted_in_sixteen_shards() -> None:
    shards = {items.count_key("job", ordinal) for ordinal in range(100)}

    assert len(shards) == 16
    assert items.count_key("job", 3) == items.count_key("job", 19)
