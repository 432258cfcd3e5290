"""Creates and describes the ledger's table.

CloudFormation creates the table of a deployed stack; `create` is for every other site. It leaves an
existing table as it is, except that it switches missing safeguards on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger.dynamodb_calls import DynamoCalls, Rejected

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import KeySchemaElementTypeDef, TableDescriptionTypeDef

Answer = TypeVar("Answer")

Request = Callable[["DynamoDBClient"], Mapping[str, object]]

JOBS_INDEX = "jobs"
EXPIRY_ATTRIBUTE = "expires"
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
UNKNOWN_HERE = frozenset({"UnknownOperationException"})


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What `doctor` shows. None: this server lacks the feature, as DynamoDB Local does."""

    status: str
    problems: tuple[str, ...]
    recovery: bool | None
    expiry: bool | None


def exists(calls: DynamoCalls) -> bool:
    """Whether the table is there, in whatever state."""
    try:
        _table(calls)
    except Rejected as rejected:
        if rejected.code != "ResourceNotFoundException":
            raise
        return False
    return True


def create(calls: DynamoCalls) -> None:
    """Create the table unless it exists, wait until it can be used, switch its safeguards on.

    Raises:
        Misconfigured: a permission is missing, or the name belongs to a table of another shape.
        LedgerUnavailable: the table did not become active in time.
    """
    if not exists(calls):
        _create(calls)
    table = _await_active(calls)
    if problems := list(_problems(calls, table)):
        raise Misconfigured(problems)
    _switch_on(calls, _recovery, "switching point-in-time recovery on", _recovery_on(calls))
    _switch_on(calls, _expiry, "switching expiry on", _expiry_on(calls))


def describe(calls: DynamoCalls) -> TableDescription:
    """Return the table's state and everything about its shape that does not fit.

    Raises:
        Misconfigured: there is no such table, or no permission to look.
    """
    table = _table(calls)
    return TableDescription(
        status=table["TableStatus"],
        problems=tuple(_problems(calls, table)),
        recovery=_optional(lambda: _recovery(calls), UNKNOWN_HERE),
        expiry=_optional(lambda: _expiry(calls), UNKNOWN_HERE),
    )


def _optional(ask: Callable[[], Answer], harmless: frozenset[str]) -> Answer | None:
    try:
        return ask()
    except Rejected as rejected:
        if rejected.code not in harmless:
            raise
        return None


def _switch_on(
    calls: DynamoCalls, is_on: Callable[[DynamoCalls], bool], subject: str, request: Request
) -> None:
    if _optional(lambda: is_on(calls), UNKNOWN_HERE) is not False:
        return
    try:
        calls.call(subject, request)
    except Rejected:
        if not is_on(calls):  # otherwise another process was faster
            raise


def _table(calls: DynamoCalls) -> "TableDescriptionTypeDef":
    name = calls.address.table
    return calls.call("its description", lambda client: client.describe_table(TableName=name))[
        "Table"
    ]


def _create(calls: DynamoCalls) -> None:
    _optional(
        lambda: calls.call(
            "its creation",
            lambda client: client.create_table(
                TableName=calls.address.table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": "pk", "AttributeType": "S"},
                    {"AttributeName": "sk", "AttributeType": "S"},
                    {"AttributeName": "listing", "AttributeType": "S"},
                    {"AttributeName": "created", "AttributeType": "N"},
                ],
                KeySchema=KEY_SCHEMA,
                GlobalSecondaryIndexes=[
                    {
                        "IndexName": JOBS_INDEX,
                        "KeySchema": INDEX_KEY_SCHEMA,
                        "Projection": {"ProjectionType": "ALL"},
                    }
                ],
            ),
        ),
        frozenset({"ResourceInUseException"}),  # another process was faster
    )


def _await_active(calls: DynamoCalls) -> "TableDescriptionTypeDef":
    deadline = calls.timing.monotonic() + ACTIVE_WITHIN_SECONDS
    while (table := _table(calls))["TableStatus"] != "ACTIVE":
        if calls.timing.monotonic() >= deadline:
            raise LedgerUnavailable(
                f"{calls.address}: still {table['TableStatus']} after {ACTIVE_WITHIN_SECONDS:g} s;"
                " look at it in the console, then try again"
            )
        calls.timing.sleep(POLL_SECONDS)
    return table


def _problems(calls: DynamoCalls, table: "TableDescriptionTypeDef") -> Iterator[str]:
    if list(table["KeySchema"]) != KEY_SCHEMA:
        keys = _names(table["KeySchema"])
        yield f"{calls.address}: not a ledger, its keys are {keys} instead of pk, sk"
    indexes = {
        index["IndexName"]: index["KeySchema"] for index in table.get("GlobalSecondaryIndexes", [])
    }
    if list(indexes.get(JOBS_INDEX, [])) != INDEX_KEY_SCHEMA:
        yield f"{calls.address}: lacks the index {JOBS_INDEX!r} over listing, created"


def _names(schema: "Iterable[KeySchemaElementTypeDef]") -> str:
    return ", ".join(element["AttributeName"] for element in schema)


def _recovery_on(calls: DynamoCalls) -> Request:
    return lambda client: client.update_continuous_backups(
        TableName=calls.address.table,
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
    )


def _expiry_on(calls: DynamoCalls) -> Request:
    return lambda client: client.update_time_to_live(
        TableName=calls.address.table,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRY_ATTRIBUTE},
    )


def _recovery(calls: DynamoCalls) -> bool:
    name = calls.address.table
    answer = calls.call(
        "its backups", lambda client: client.describe_continuous_backups(TableName=name)
    )
    backups = answer["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription", {})
    return backups.get("PointInTimeRecoveryStatus") == "ENABLED"


def _expiry(calls: DynamoCalls) -> bool:
    name = calls.address.table
    answer = calls.call("its expiry", lambda client: client.describe_time_to_live(TableName=name))
    return answer["TimeToLiveDescription"].get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
