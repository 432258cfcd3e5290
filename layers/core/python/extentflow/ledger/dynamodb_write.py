"""One conditional write and its DynamoDB expressions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from extentflow.ledger.items import Key, Value, item_to_wire


@dataclass(frozen=True, slots=True)
class Write:
    """Set, remove and add attributes of one item if `condition` holds; just check it otherwise."""

    key: Key
    condition: ConditionBase | None = None
    sets: Mapping[str, Value] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    adds: Mapping[str, int] = field(default_factory=dict)

    @property
    def checks_only(self) -> bool:
        """Whether nothing is changed."""
        return not (self.sets or self.removes or self.adds)

    def request(self, table: str) -> dict[str, Any]:
        """Return the parameters of UpdateItem, or of its entry in TransactWriteItems."""
        names: dict[str, str] = {}
        values: dict[str, Value] = {}
        request: dict[str, Any] = {
            "TableName": table,
            "Key": item_to_wire(self.key._asdict()),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if self.condition is not None:
            built = ConditionExpressionBuilder().build_expression(self.condition)
            request["ConditionExpression"] = built.condition_expression
            names |= built.attribute_name_placeholders
            values |= built.attribute_value_placeholders
        if not self.checks_only:
            request["UpdateExpression"] = self._update(names, values)
        if names:
            request["ExpressionAttributeNames"] = names
        if values:
            request["ExpressionAttributeValues"] = item_to_wire(values)
        return request

    def _update(self, names: dict[str, str], values: dict[str, Value]) -> str:
        def name(attribute: str) -> str:
            names[f"#{attribute}"] = attribute
            return f"#{attribute}"

        def value(attribute: str, content: Value) -> str:
            values[f":{attribute}"] = content
            return f":{attribute}"

        clauses = {
            "SET": [f"{name(each)} = {value(each, to)}" for each, to in self.sets.items()],
            "REMOVE": [name(each) for each in self.removes],
            "ADD": [f"{name(each)} {value(each, by)}" for each, by in self.adds.items()],
        }
        return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts)
