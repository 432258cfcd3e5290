"""Reads and writes items of the ledger's table: consistent reads, pages, one request each."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from extentflow.errors import LedgerUnavailable
from extentflow.ledger.dynamodb_calls import DynamoCalls, Passing, Refused
from extentflow.ledger.dynamodb_table import JOBS_INDEX
from extentflow.ledger.dynamodb_write import Write
from extentflow.ledger.items import (
    LEDGER_KEY,
    Attributes,
    Key,
    Stored,
    item_from_wire,
    item_to_wire,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        BatchGetItemOutputTypeDef,
        KeysAndAttributesTypeDef,
    )

Answer = TypeVar("Answer")
Returning: TypeAlias = Literal["NONE", "ALL_OLD", "ALL_NEW"]

ROUNDS = 100
BATCH_KEYS = 100  # as many as BatchGetItem takes


def _fresh_token() -> str:
    # From the operating system: a forked process never repeats its parent's tokens.
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class DynamoItems:
    """Items of one table, as plain values.

    Every read is strongly consistent, but the index's and those of several items at once.
    """

    calls: DynamoCalls
    token: Callable[[], str] = _fresh_token

    @property
    def table(self) -> str:
        """The table's name."""
        return self.calls.address.table

    def get(self, key: Key) -> Stored | None:
        """Return an item."""
        answer = self.calls.call(
            f"reading {key.pk}/{key.sk}",
            lambda client: client.get_item(
                TableName=self.table, Key=item_to_wire(key._asdict()), ConsistentRead=True
            ),
        )
        return item_from_wire(answer["Item"]) if answer.get("Item") else None

    def several(self, keys: Sequence[Key], attributes: Sequence[str]) -> Iterator[Stored]:
        """Yield some attributes of those items that exist, in no order; may lag behind writes.

        `keys` are all different.
        """
        for start in range(0, len(keys), BATCH_KEYS):
            wanted = [item_to_wire(key._asdict()) for key in keys[start : start + BATCH_KEYS]]
            yield from self._batch(wanted, attributes)

    def query(self, pk: str, prefix: str = "") -> Iterator[Stored]:
        """Yield the items of a partition whose sort key begins with `prefix`, in its order."""
        condition = "pk = :pk AND begins_with(sk, :sk)" if prefix else "pk = :pk"
        values = {":pk": pk, ":sk": prefix} if prefix else {":pk": pk}
        return self._pages(
            f"reading {pk}/{prefix}*",
            "query",
            KeyConditionExpression=condition,
            ExpressionAttributeValues=item_to_wire(values),
            ConsistentRead=True,
        )

    def listed(
        self, listing: str, *, state: str | None = None, oldest_first: bool = False
    ) -> Iterator[Stored]:
        """Yield the jobs of one index partition (and state), by age; may lag behind writes."""
        only: dict[str, Any] = {}
        values: Attributes = {":listing": listing}
        if state is not None:
            only = {"FilterExpression": "#state = :state"}
            only["ExpressionAttributeNames"] = {"#state": "state"}
            values[":state"] = state
        return self._pages(
            f"listing {listing}",
            "query",
            IndexName=JOBS_INDEX,
            KeyConditionExpression="listing = :listing",
            ExpressionAttributeValues=item_to_wire(values),
            ScanIndexForward=oldest_first,
            **only,
        )

    def listings(self) -> list[str]:
        """Return the index partitions that hold jobs, sorted; reads the whole index."""
        found = self._pages(
            "listing jobs", "scan", IndexName=JOBS_INDEX, ProjectionExpression="listing"
        )
        return sorted({item["listing"] for item in found})

    def update(self, subject: str, write: Write, *, returning: Returning = "NONE") -> Stored:
        """Apply one write; return the item as `returning` (ALL_OLD, ALL_NEW) says."""
        request = write.request(self.table)
        answer = self.calls.call(
            subject, lambda client: client.update_item(**request, ReturnValues=returning)
        )
        return item_from_wire(answer.get("Attributes", {}))

    def transact(self, subject: str, writes: Sequence[Write]) -> None:
        """Apply several writes, all or none; every try carries the same token."""
        entries = [_entry(write, self.table) for write in writes]
        token = self.token()
        self.calls.call(
            subject,
            lambda client: client.transact_write_items(
                TransactItems=entries, ClientRequestToken=token
            ),
        )

    def store(self, subject: str, write: Write) -> Stored:
        """Write an item that must not exist yet; return it, or the one that does."""
        try:
            return self.update(subject, write, returning="ALL_NEW")
        except Refused as refused:
            return self.image(refused, 0, write.key) or {}

    def image(self, refused: Refused, place: int, key: Key) -> Stored | None:
        """Return an item as it was when its write was refused; as it is now, if another was."""
        return refused.images[place] if place in refused.images else self.get(key)

    def race(self, subject: str, attempt: Callable[[], Answer]) -> Answer:
        """Let `attempt` read and write again when another writer was faster; give up at last."""
        for _ in range(ROUNDS):
            with suppress(Refused):
                return attempt()
        raise LedgerUnavailable(f"{self.calls.address}: {subject} lost {ROUNDS} races; try again")

    def now(self) -> float:
        """Return a lower bound of the server's clock; asks it when nothing came for a minute."""
        estimate = self.calls.clock.now()
        if estimate is None:
            self.get(LEDGER_KEY)
            estimate = self.calls.clock.now()
        if estimate is None:
            raise LedgerUnavailable(
                f"{self.calls.address}: answers carry no Date header; does a proxy remove it?"
            )
        return estimate

    def _batch(self, wanted: Sequence[Any], attributes: Sequence[str]) -> list[Stored]:
        names = {f"#{name}": name for name in attributes}
        found: list[Stored] = []
        rest = wanted

        def ask(client: "DynamoDBClient") -> "BatchGetItemOutputTypeDef":
            nonlocal rest
            request: KeysAndAttributesTypeDef = {
                "Keys": rest,
                "ProjectionExpression": ", ".join(names),
                "ExpressionAttributeNames": names,
            }
            answer = client.batch_get_item(RequestItems={self.table: request})
            found.extend(map(item_from_wire, answer["Responses"].get(self.table, [])))
            left = answer.get("UnprocessedKeys", {}).get(self.table)
            if left:
                rest = left["Keys"]
                raise Passing(f"{len(rest)} of {len(wanted)} keys were left for later")
            return answer

        self.calls.call(f"reading {len(wanted)} items", ask)
        return found

    def _pages(self, subject: str, operation: str, **request: Any) -> Iterator[Stored]:  # noqa: ANN401
        start: Mapping[str, Any] = {}
        while True:
            page = self._page(subject, operation, {**request, **start})
            yield from map(item_from_wire, page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _page(self, subject: str, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.calls.call(
            subject, lambda client: getattr(client, operation)(TableName=self.table, **request)
        )
        return answer


def _entry(write: Write, table: str) -> Any:  # noqa: ANN401 - a TypedDict of the client's stubs
    kind = "ConditionCheck" if write.checks_only else "Update"
    return {kind: write.request(table)}
