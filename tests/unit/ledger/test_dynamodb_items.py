"""Items of the table: their wire form, their keys, and reads of several items at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mypy_boto3_dynamodb import DynamoDBClient

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import JobProgress, LedgerOptions
from extentflow.ledger.dynamodb_calls import (
    DynamoCalls,
    DynamoItems,
    item_from_wire,
    item_to_wire,
)
from extentflow.ledger.extent_store import extent_key, slot_key
from extentflow.ledger.items import Key, Value
from extentflow.ledger.job_store import count_change
from extentflow.ledger.server_calls import retry_policy
from extentflow.retry import Clock

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


# -- several items at once ------------------------------------------------------------------------


TABLE = "ledger"


@dataclass
class Sparing:
    """A table that processes at most `most` keys of a batch."""

    most: int
    now: float = 0.0
    asked: list[int] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def batch_get_item(self, *, RequestItems: dict[str, dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - AWS's
        request = RequestItems[TABLE]
        self.requests.append(request)
        self.asked.append(len(request["Keys"]))
        left = request["Keys"][self.most :]
        return {
            "Responses": {TABLE: request["Keys"][: self.most]},
            "UnprocessedKeys": {TABLE: {**request, "Keys": left}} if left else {},
            "ResponseMetadata": {"HTTPHeaders": {}},
        }

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def items(self) -> DynamoItems:
        clock = Clock(lambda: self.now, lambda: self.now, self.sleep)
        options = LedgerOptions(TABLE)
        retry = replace(retry_policy(options), clock=clock, jitter=lambda: 0.5)
        client = cast("DynamoDBClient", self)
        return DynamoItems(DynamoCalls(options, retry, lambda _: client))


def keys(count: int) -> Sequence[Key]:
    return [Key(f"JOB#{number}", "JOB") for number in range(count)]


def test_two_hundred_and_fifty_items_are_three_requests() -> None:
    table = Sparing(most=100)

    found = list(table.items().get_many(keys(250), ("pk", "state")))

    assert [item["pk"] for item in found] == [key.pk for key in keys(250)]
    assert table.asked == [100, 100, 50]


def test_unprocessed_keys_are_requested_again() -> None:
    table = Sparing(most=40)

    found = list(table.items().get_many(keys(100), ("pk", "state")))

    assert [item["pk"] for item in found] == [key.pk for key in keys(100)]
    assert table.asked == [100, 60, 20]
    assert table.now > 0


def test_only_the_attributes_asked_for_are_read() -> None:
    table = Sparing(most=100)

    list(table.items().get_many(keys(1), ("pk", "state")))

    (request,) = table.requests
    assert request["ProjectionExpression"] == "#pk, #state"
    assert request["ExpressionAttributeNames"] == {"#pk": "pk", "#state": "state"}


def test_a_table_that_processes_no_key_is_unavailable() -> None:
    table = Sparing(most=0)

    with pytest.raises(LedgerUnavailable, match=r"reading 3 items: .* 3 of 3 keys"):
        list(table.items().get_many(keys(3), ("pk",)))

    assert 25 < table.now < 30
