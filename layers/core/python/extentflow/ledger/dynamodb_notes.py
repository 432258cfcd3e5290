"""The notes of DynamoLedger: small facts that may be lost or stale without harm.

An expired note is ignored here, because DynamoDB removes it only days later.
"""

import math
from collections.abc import Mapping

from extentflow.ledger import dynamodb_writes as writes
from extentflow.ledger import items
from extentflow.ledger.dynamodb_items import DynamoItems
from extentflow.ledger.dynamodb_table import EXPIRY_ATTRIBUTE


class DynamoNotes:
    """Notes of the ledger's port."""

    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def recall(self, name: str) -> Mapping[str, str] | None:
        """Return what was remembered."""
        item = self._items.get(items.note_key(name))
        if item is None or item.get(EXPIRY_ATTRIBUTE, math.inf) <= self._items.now():
            return None
        facts: Mapping[str, str] = item["facts"]
        return facts

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        """Keep facts; saying them twice does no harm."""
        expires = None if keep_seconds is None else math.ceil(self._items.now() + keep_seconds)
        self._items.update(f"noting {name}", writes.note(name, facts, expires=expires))
