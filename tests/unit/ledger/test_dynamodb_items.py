"""Reading several items at once, where a server leaves some of them for later."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from extentflow.clock import Clock
from extentflow.errors import LedgerUnavailable
from extentflow.ledger import LedgerOptions
from extentflow.ledger.dynamodb_calls import DynamoCalls, DynamoItems, Key, retry_policy

TABLE = "ledger"


@dataclass
class Sparing:
    """A table that answers `most` keys of a batch and leaves the others unprocessed."""

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


def test_what_was_left_for_later_is_asked_again_until_nothing_is_left() -> None:
    table = Sparing(most=40)

    found = list(table.items().get_many(keys(100), ("pk", "state")))

    assert [item["pk"] for item in found] == [key.pk for key in keys(100)]
    assert table.asked == [100, 60, 20]
    assert table.now > 0


def test_only_the_wanted_attributes_are_asked_for_also_where_a_word_is_reserved() -> None:
    table = Sparing(most=100)

    list(table.items().get_many(keys(1), ("pk", "state")))

    (request,) = table.requests
    assert request["ProjectionExpression"] == "#pk, #state"
    assert request["ExpressionAttributeNames"] == {"#pk": "pk", "#state": "state"}


def test_a_table_that_leaves_everything_for_later_is_given_up_in_time() -> None:
    table = Sparing(most=0)

    with pytest.raises(LedgerUnavailable, match=r"reading 3 items: .* 3 of 3 keys"):
        list(table.items().get_many(keys(3), ("pk",)))

    assert 25 < table.now < 30
