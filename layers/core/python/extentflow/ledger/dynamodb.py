"""DynamoLedger: the ledger's port on one DynamoDB table, and the table's administration.

Partition key, sort key, content:

    META             LEDGER              the ledger's identity
    CONNECTORS       <name>              latest revision, state, deleted or not
    CONNECTOR#<name> CONFIG#<8 digits>   one revision, never changed
    JOB#<id>         JOB                 the job
    JOB#<id>         COUNT#<0..15>       its counters, in 16 shards by ordinal
    JOB#<id>         EXTENT#<8 digits>   one extent, written by its first claim
    SLOTS#<cluster>  <8 digits>          one slot, written by its first lease
    NOTES            <name>              facts that may be lost without harm; some expire

tests/unit/ledger/test_stored_items.py holds an image of each.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from boto3.dynamodb.conditions import Attr

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerDescription, LedgerOptions
from extentflow.ledger.dynamodb_calls import (
    EXPIRY_ATTRIBUTE,
    JOBS_INDEX,
    LEDGER_KEY,
    Attributes,
    Connect,
    DynamoCalls,
    DynamoItems,
    Rejected,
    Write,
    connect,
    decoding,
    retry_policy,
)
from extentflow.ledger.dynamodb_extents import DynamoExtents, DynamoSlots
from extentflow.ledger.dynamodb_jobs import DynamoConnectors, DynamoJobs, DynamoNotes
from extentflow.model import JobState
from extentflow.retry import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import (
        GlobalSecondaryIndexTypeDef,
        KeySchemaElementTypeDef,
        TableDescriptionTypeDef,
    )

Answer = TypeVar("Answer")

IDENTITY_BYTES = 6
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
        self.connectors = DynamoConnectors(self._items)
        self.jobs = DynamoJobs(self._items)
        self.slots = DynamoSlots(self._items)
        self.extents = DynamoExtents(self._items, self.jobs, self.slots)
        self.notes = DynamoNotes(self._items)

    @cached_property
    def id(self) -> str:
        return self.admin.identity()

    def bind(self, app_id: str) -> str:
        return self._items.bind(app_id)

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
        self._own_name = table.table.rpartition("/")[2]

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
        adopted = self._adopt()
        self.identity()
        return adopted

    def identity(self) -> str:
        """Return the table's identity; the first caller writes it.

        Misconfigured: the table is a copy of another one, such as a restored backup. What was
        delivered after the copy is unknown in it, so nothing is delivered before `create`.
        """
        item = self._items.get(LEDGER_KEY) or {}
        if "id" not in item:
            content: Attributes = {"id": secrets.token_hex(IDENTITY_BYTES), "table": self._own_name}
            # Not "the item is new": `bind` may have written it.
            write = Write(LEDGER_KEY, Attr("id").not_exists(), content)
            item = self._items.store("writing the ledger's identity", write)
        # A ledger of an earlier version has no `table`; it gets the name at its first use.
        if "table" not in item:
            write = Write(LEDGER_KEY, Attr("table").not_exists(), {"table": self._own_name})
            item = self._items.store("writing the ledger's table", write)
        if item.get("table") != self._own_name:
            raise Misconfigured(
                f"{self._calls}: a copy of table {item.get('table')}, for example restored from a"
                " backup; what was delivered after the copy is unknown in it and would be"
                ' delivered again; read docs/operations.md, "Restore the table", then run'
                " `extentflow init` to use it"
            )
        with decoding(item):
            return str(item["id"])

    def _adopt(self) -> tuple[str, ...]:
        """Give a copied table an identity of its own; return what its operator must know.

        Under the old identity, a slot's group states progress of the original table's claims, and
        settlements would conclude from it that nothing was committed.
        """
        item = self._items.get(LEDGER_KEY) or {}
        if "id" not in item or item.get("table", self._own_name) == self._own_name:
            return ()
        is_as_read = Attr("id").eq(item["id"]) & Attr("table").eq(item["table"])
        content: Attributes = {"id": secrets.token_hex(IDENTITY_BYTES), "table": self._own_name}
        write = Write(LEDGER_KEY, is_as_read, {**content, "copied_from": item["id"]})
        self._items.store("adopting a copied table", write)
        jobs = DynamoJobs(self._items)
        count = sum(1 for state in JobState if state.open for _ in jobs.list(state=state))
        replay = "`extentflow replay JOB --accept-duplicates`"
        return (
            f"{self._own_name} is a copy of table {item['table']} and has a new ledger id",
            f"extents in work then become FAILED, progress unknown; {replay} continues them",
            f"{count} jobs are open: what was delivered of them after the copy is delivered again",
            "objects that were delivered after the copy are unknown, and are delivered again",
        )

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
        except Rejected:
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
    except Rejected as rejected:
        if rejected.code != code:
            raise
        return None
