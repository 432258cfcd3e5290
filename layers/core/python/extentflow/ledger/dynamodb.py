"""DynamoLedger: the ledger's port on one DynamoDB table, and the table's administration.

Tests: contracts/ledger.py, integration/test_ledger_dynamodb.py
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerDescription, LedgerOptions
from extentflow.ledger.dynamodb_calls import (
    JOBS_INDEX,
    Connect,
    DynamoCalls,
    DynamoItems,
    connect,
)
from extentflow.ledger.identity import adopt, identity
from extentflow.ledger.item_stores import stores_over
from extentflow.ledger.items import EXPIRY_ATTRIBUTE, bind
from extentflow.ledger.server_calls import RejectedRequest, retry_policy
from extentflow.retry import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        GlobalSecondaryIndexTypeDef,
        KeySchemaElementTypeDef,
        TableDescriptionTypeDef,
    )

Answer = TypeVar("Answer")

ACTIVE_WITHIN_SECONDS = 300.0
POLL_SECONDS = 0.1

KEY_SCHEMA: "list[KeySchemaElementTypeDef]" = [
    {"AttributeName": "pk", "KeyType": "HASH"},
    {"AttributeName": "sk", "KeyType": "RANGE"},
]
INDEX_KEY_SCHEMA: "list[KeySchemaElementTypeDef]" = [
    {"AttributeName": "listing", "KeyType": "HASH"},
    {"AttributeName": "created", "KeyType": "RANGE"},
]
# DynamoDB Local lacks backups.
UNKNOWN_OPERATION = "UnknownOperationException"


class DynamoLedger:
    """A `Ledger` for many processes. Connects at its first call, in the process that makes it."""

    def __init__(
        self,
        options: LedgerOptions,
        *,
        retry: RetryPolicy | None = None,
        connect: Connect = connect,
    ) -> None:
        calls = DynamoCalls(options, retry or retry_policy(options), connect)
        self._items = DynamoItems(calls)
        self.admin = DynamoAdmin(self._items)
        self.connectors, self.jobs, self.slots, self.extents, self.notes = stores_over(self._items)

    @cached_property
    def id(self) -> str:
        return identity(self._items, self.admin.place)

    def bind(self, app_id: str) -> str:
        return bind(self._items, app_id)

    def now(self) -> float:
        return self._items.now()


class DynamoAdmin:
    """A `LedgerAdmin` for one table.

    CloudFormation creates the table of a deployed stack; `create` is for every other installation.
    It leaves an existing table as it is, except that it enables missing safeguards.
    """

    def __init__(self, table: DynamoItems) -> None:
        self._items = table
        self._calls = table.calls
        self._name = table.table
        # Settings may give an ARN; the identity holds the name.
        self.place = table.table.rpartition("/")[2]

    def exists(self) -> bool:
        return _unless("ResourceNotFoundException", self._describe) is not None

    def create(self) -> tuple[str, ...]:
        # Several processes may create it at once, and all wait for the same table.
        if not self.exists():
            _unless("ResourceInUseException", self._create_table)
        table = self._await_active()
        # Checked first: expiry must not be enabled on a table that is not a ledger.
        if problems := list(self._problems(table)):
            raise Misconfigured(problems)
        self._enable(
            "enabling point-in-time recovery",
            self._has_recovery,
            lambda client: client.update_continuous_backups(
                TableName=self._name,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            ),
        )
        self._enable(
            "enabling expiry",
            self._has_expiry,
            lambda client: client.update_time_to_live(
                TableName=self._name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRY_ATTRIBUTE},
            ),
        )
        adopted = adopt(self._items, self.place)
        identity(self._items, self.place)
        return adopted

    def describe(self) -> LedgerDescription:
        table = self._describe()
        return LedgerDescription(
            status=table["TableStatus"],
            problems=tuple(self._problems(table)),
            recovery=_unless(UNKNOWN_OPERATION, self._has_recovery),
            expiry=_unless(UNKNOWN_OPERATION, self._has_expiry),
        )

    def _describe(self) -> "TableDescriptionTypeDef":
        return self._calls.call(
            "its description", lambda client: client.describe_table(TableName=self._name)
        )["Table"]

    def _create_table(self) -> None:
        index: GlobalSecondaryIndexTypeDef = {
            "IndexName": JOBS_INDEX,
            "KeySchema": INDEX_KEY_SCHEMA,
            # Listings return whole jobs without a read per job.
            "Projection": {"ProjectionType": "ALL"},
        }
        self._calls.call(
            "its creation",
            lambda client: client.create_table(
                TableName=self._name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": "pk", "AttributeType": "S"},
                    {"AttributeName": "sk", "AttributeType": "S"},
                    {"AttributeName": "listing", "AttributeType": "S"},
                    {"AttributeName": "created", "AttributeType": "N"},
                ],
                KeySchema=KEY_SCHEMA,
                GlobalSecondaryIndexes=[index],
            ),
        )

    def _await_active(self) -> "TableDescriptionTypeDef":
        clock = self._calls.retry.clock
        deadline = clock.monotonic() + ACTIVE_WITHIN_SECONDS
        while (table := self._describe())["TableStatus"] != "ACTIVE":
            if clock.monotonic() >= deadline:
                raise LedgerUnavailable(
                    f"{self._calls}: still {table['TableStatus']} after"
                    f" {ACTIVE_WITHIN_SECONDS:g} s; check it in the console, then try again"
                )
            clock.sleep(POLL_SECONDS)
        return table

    def _problems(self, table: "TableDescriptionTypeDef") -> Iterator[str]:
        if list(table["KeySchema"]) != KEY_SCHEMA:
            keys = ", ".join(element["AttributeName"] for element in table["KeySchema"])
            yield f"{self._calls}: not a ledger, its keys are {keys} instead of pk, sk"
        found = table.get("GlobalSecondaryIndexes", [])
        indexes = {index["IndexName"]: list(index["KeySchema"]) for index in found}
        if indexes.get(JOBS_INDEX) != INDEX_KEY_SCHEMA:
            yield f"{self._calls}: lacks the index {JOBS_INDEX!r} over listing, created"

    def _enable(
        self,
        subject: str,
        is_enabled: Callable[[], bool],
        request: "Callable[[DynamoDBClient], Mapping[str, object]]",
    ) -> None:
        if _unless(UNKNOWN_OPERATION, is_enabled) is not False:
            return
        try:
            self._calls.call(subject, request)
        except RejectedRequest:
            if not is_enabled():  # otherwise another process was faster
                raise

    def _has_recovery(self) -> bool:
        answer = self._calls.call(
            "its backups", lambda client: client.describe_continuous_backups(TableName=self._name)
        )
        backups = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
        return backups.get("PointInTimeRecoveryStatus") == "ENABLED"

    def _has_expiry(self) -> bool:
        answer = self._calls.call(
            "its expiry", lambda client: client.describe_time_to_live(TableName=self._name)
        )
        return answer["TimeToLiveDescription"].get("TimeToLiveStatus") in ("ENABLED", "ENABLING")


def _unless(code: str, call: Callable[[], Answer]) -> Answer | None:
    """Return what `call` returns; None when DynamoDB rejects it with `code`."""
    try:
        return call()
    except RejectedRequest as rejected:
        if rejected.code != code:
            raise
        return None
