"""Sends one DynamoDB request, retries it while that helps and translates its errors.

botocore's own retries are off. After a lost response its second attempt would meet the effect of
the first one and report a failed condition, as if another writer had been faster. Every write is
repeatable instead: it has conditions, and all attempts of one transaction share a
`ClientRequestToken`. A caller that gets `ConditionFailed` looks for its own nonce, owner or epoch
in the item as it was when the condition failed.

    response                                          becomes
    a condition failed                                ConditionFailed, with the items as they were
    conflict, throttling, 5xx, no or half a response  retried; LedgerUnavailable at the deadline
    no table, no permission, invalid                  RejectedRequest, names the table
"""

import logging
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from boto3.dynamodb import conditions
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws import NO_ANSWER, SERVER_ERROR, describe_sdk_error, new_session
from extentflow.errors import LedgerUnavailable
from extentflow.ledger import LedgerOptions
from extentflow.ledger.items import (
    LEDGER_KEY,
    Condition,
    ConditionFailed,
    Key,
    Returning,
    Stored,
    Value,
    Write,
    new_token,
)
from extentflow.ledger.server_calls import RejectedRequest, ServerClock, TransientFailure, retried
from extentflow.retry import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchGetItemOutputTypeDef

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Wire: TypeAlias = dict[str, Any]

JOBS_INDEX = "jobs"
DATE_SECONDS = 1.0  # the resolution of a Date header
_SERIALIZER, _DESERIALIZER = TypeSerializer(), TypeDeserializer()

BATCH_KEYS = 100  # the limit of BatchGetItem

PASSING_CODES = {
    "ContinuousBackupsUnavailableException",  # for some seconds after a table's creation
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflict",
    "TransactionConflictException",
    "TransactionInProgressException",
}
REFUSED_CODES = {"ConditionalCheckFailed", "ConditionalCheckFailedException"}
DENIED = "AccessDeniedException"
PERMISSION_CODES = {
    DENIED,
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
PERMISSION_REMEDY = (
    "allow it to these credentials; docs/command-line-policy.json has all that is needed"
)
CREDENTIALS_REMEDY = "renew or correct the credentials of this process"
REMEDIES = {
    "ResourceNotFoundException": "there is no such table; `extentflow init` creates it, in Python "
    "`Extentflow.init`, or correct ledger.url, or ledger.table",
    "NoRegionError": "no AWS region; set ledger.region, or region= in ledger.url, or"
    " AWS_DEFAULT_REGION or a profile's region",
}


def connect(options: LedgerOptions) -> "DynamoDBClient":
    """Create a client with the SDK's default credentials that does not retry by itself."""
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=options.connect_seconds,
        read_timeout=options.read_seconds,
        max_pool_connections=64,
    )
    return new_session().client(
        "dynamodb", region_name=options.region, endpoint_url=options.endpoint, config=config
    )


Connect: TypeAlias = "Callable[[LedgerOptions], DynamoDBClient]"


@dataclass(slots=True)
class DynamoCalls:
    """Calls on one table. Threads share it; a forked process gets a client of its own."""

    options: LedgerOptions
    retry: RetryPolicy
    connect: Connect = connect
    pid: Callable[[], int] = os.getpid
    server_clock: ServerClock = field(init=False)
    _connected: "tuple[int, DynamoDBClient] | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.server_clock = ServerClock(self.retry.clock)

    def __str__(self) -> str:
        place = self.options.endpoint or self.options.region
        return f"table {self.options.table} ({place})" if place else f"table {self.options.table}"

    def call(self, subject: str, request: "Callable[[DynamoDBClient], Answer]") -> Answer:
        """Return the response to `request`; `subject` names the operation in messages.

        Raises ConditionFailed, RejectedRequest; LedgerUnavailable: a write may have taken effect.
        """
        return retried(self, subject, self.retry, lambda: self._try(subject, request))

    def _client(self) -> "DynamoDBClient":
        # Sockets are never inherited by a fork.
        pid = self.pid()
        if self._connected is None or self._connected[0] != pid:
            self._connected = (pid, self.connect(self.options))
        return self._connected[1]

    def _try(self, subject: str, request: "Callable[[DynamoDBClient], Answer]") -> Answer:
        sent_at = self.retry.clock.monotonic()
        try:
            answer = request(self._client())
        except ClientError as error:
            self._read_date(error.response, sent_at)
            raise self._translated(subject, error) from error
        except NO_ANSWER as error:
            raise TransientFailure(f"{type(error).__name__}: {error}") from error
        except BotoCoreError as error:
            cause = describe_sdk_error(error)
            raise self._rejected(subject, type(error).__name__, cause) from error
        self._read_date(answer, sent_at)
        return answer

    def _read_date(self, answer: Any, sent_at: float) -> None:  # noqa: ANN401 - any operation's response
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date", "")
        # A value that is no date says nothing of the server's clock.
        with suppress(ValueError):
            server = parsedate_to_datetime(date).timestamp()
            self.server_clock.observe(server, sent_at=sent_at, resolution_seconds=DATE_SECONDS)

    def _translated(self, subject: str, error: ClientError) -> Exception:
        response: dict[str, Any] = {**error.response}
        code, message = response["Error"].get("Code", ""), response["Error"].get("Message", "")
        if code == "TransactionCanceledException":
            return self._cancelled(subject, message, response["CancellationReasons"])
        if code in REFUSED_CODES:
            return ConditionFailed({0: _image(response)})
        status = response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code in PASSING_CODES or status >= SERVER_ERROR:
            return TransientFailure(f"{code}: {message}")
        return self._rejected(subject, code, message)

    def _cancelled(
        self, subject: str, message: str, reasons: Sequence[dict[str, Any]]
    ) -> Exception:
        codes = [reason.get("Code", "None") for reason in reasons]
        known = PASSING_CODES | REFUSED_CODES | {"None"}
        for code, reason in zip(codes, reasons, strict=True):
            if code not in known:
                return self._rejected(subject, code, reason.get("Message", message))
        # A failed condition decides even beside a conflict: a retry would fail it again.
        failed = [place for place, code in enumerate(codes) if code in REFUSED_CODES]
        images = {place: _image(reasons[place]) for place in failed}
        return (
            ConditionFailed(images)
            if images
            else TransientFailure(f"transaction cancelled: {codes}")
        )

    def _rejected(self, subject: str, code: str, message: str) -> RejectedRequest:
        if code in REMEDIES:
            return RejectedRequest(f"{self}: {REMEDIES[code]}", code=code)
        remedy = f"{self}: {subject} was refused, {code}: {message}"
        if code in PERMISSION_CODES:
            remedy += f"; {PERMISSION_REMEDY if code == DENIED else CREDENTIALS_REMEDY}"
        return RejectedRequest(remedy, code=code)


def _image(response: dict[str, Any]) -> Stored | None:
    return item_from_wire(response["Item"]) if response.get("Item") else None


def item_to_wire(attributes: Mapping[str, Value]) -> Wire:
    """Return attributes in DynamoDB's JSON."""
    return {
        # The SDK refuses floats; repr() keeps the digits that tables have always held.
        name: _SERIALIZER.serialize(Decimal(repr(value)) if isinstance(value, float) else value)
        for name, value in attributes.items()
    }


def item_from_wire(wire: Wire) -> Stored:
    """Return an item's attributes; numbers are Decimals until a field's type converts them."""
    return {name: _DESERIALIZER.deserialize(value) for name, value in wire.items()}


def update_request(write: Write, table: str) -> dict[str, Any]:
    """Return a write as the parameters of UpdateItem."""
    changed = {**write.sets, **write.adds}
    # Placeholders for all names: many attributes are reserved words, such as `state`.
    names = {f"#{each}": each for each in (*changed, *write.removes)}
    values: dict[str, Value] = {f":{each}": value for each, value in changed.items()}
    clauses = {
        "SET": [f"#{each} = :{each}" for each in write.sets],
        "REMOVE": [f"#{each}" for each in write.removes],
        "ADD": [f"#{each} :{each}" for each in write.adds],
    }
    request: dict[str, Any] = {
        "TableName": table,
        "Key": item_to_wire(write.key._asdict()),
        # A caller recognises its own earlier write in the item that failed the condition.
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if write.condition is not None:
        built = conditions.ConditionExpressionBuilder().build_expression(_sdk(write.condition))
        request["ConditionExpression"] = built.condition_expression
        names |= built.attribute_name_placeholders
        values |= built.attribute_value_placeholders
    if update := [f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts]:
        request["UpdateExpression"] = " ".join(update)
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = item_to_wire(values)
    return request


def _transaction_entry(write: Write, table: str) -> dict[str, Any]:
    return {"Update" if write.changes else "ConditionCheck": update_request(write, table)}


def _sdk(condition: Condition) -> conditions.ConditionBase:
    """Return a condition as the SDK builds expressions of it."""
    if condition.operator in ("and", "or"):
        join = operator.and_ if condition.operator == "and" else operator.or_
        return reduce(join, map(_sdk, condition.operands))
    name, *values = condition.operands
    attribute = conditions.Attr(name)
    builders: dict[str, Callable[..., conditions.ConditionBase]] = {
        "exists": attribute.exists,
        "missing": attribute.not_exists,
        "=": attribute.eq,
        "<=": attribute.lte,
        "in": attribute.is_in,
    }
    return builders[condition.operator](*values)


@dataclass(frozen=True, slots=True)
class DynamoItems:
    """The `Items` of one table. The index and `get_many` may lag behind writes."""

    calls: DynamoCalls

    def __str__(self) -> str:
        return str(self.calls)

    @property
    def table(self) -> str:
        """The table's name."""
        return self.calls.options.table

    def get(self, key: Key) -> Stored | None:
        """Return an item."""
        wire = item_to_wire(key._asdict())
        answer: Any = self.calls.call(
            f"reading {key.pk}/{key.sk}",
            lambda client: client.get_item(TableName=self.table, Key=wire, ConsistentRead=True),
        )
        return _image(answer)

    def get_many(self, keys: Sequence[Key], attributes: Sequence[str] = ()) -> Iterator[Stored]:
        """Yield the items that exist, or some of their attributes, in any order."""
        wires = [item_to_wire(key._asdict()) for key in keys]
        for start in range(0, len(keys), BATCH_KEYS):
            yield from self._batch(wires[start : start + BATCH_KEYS], attributes)

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
        """Yield the jobs of one index partition (and state), by age."""
        request: dict[str, Any] = {
            "KeyConditionExpression": "listing = :listing",
            "ExpressionAttributeValues": item_to_wire({":listing": listing}),
            "ScanIndexForward": oldest_first,
        }
        if state is not None:
            request["FilterExpression"] = "#state = :state"
            request["ExpressionAttributeNames"] = {"#state": "state"}
            request["ExpressionAttributeValues"] |= item_to_wire({":state": state})
        return self._pages(f"listing {listing}", "query", IndexName=JOBS_INDEX, **request)

    def listings(self) -> list[str]:
        """Return the index partitions that contain jobs, sorted; reads the whole index."""
        found = self._pages(
            "listing jobs", "scan", IndexName=JOBS_INDEX, ProjectionExpression="listing"
        )
        return sorted({str(item["listing"]) for item in found})

    def update(self, subject: str, write: Write, *, returning: Returning = "NONE") -> Stored:
        """Apply one write; return the item as `returning` (ALL_OLD, ALL_NEW) says."""
        request = update_request(write, self.table)
        answer = self.calls.call(
            subject, lambda client: client.update_item(**request, ReturnValues=returning)
        )
        return item_from_wire(answer.get("Attributes", {}))

    def transact(self, subject: str, writes: Sequence[Write]) -> None:
        """Apply all writes or none."""
        entries: Any = [_transaction_entry(write, self.table) for write in writes]
        # One token for all attempts: a retry after a lost response succeeds without a second
        # effect. Never derived from names: for ten minutes, a later transaction with the same
        # token would report success without checking its conditions.
        token = new_token()
        self.calls.call(
            subject,
            lambda client: client.transact_write_items(
                TransactItems=entries, ClientRequestToken=token
            ),
        )

    def now(self) -> float:
        """Return a lower bound of the server's clock; sends a request if none was for a minute."""
        estimate = self.calls.server_clock.now()
        if estimate is None:
            self.get(LEDGER_KEY)
            estimate = self.calls.server_clock.now()
        if estimate is None:
            raise LedgerUnavailable(
                f"{self.calls}: responses have no Date header; check whether a proxy removes it"
            )
        return estimate

    def _batch(self, wanted: Sequence[Any], attributes: Sequence[str]) -> list[Stored]:
        names = {f"#{name}": name for name in attributes}
        shape: dict[str, Any] = {}
        if names:
            shape = {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}
        found: list[Stored] = []
        rest = wanted

        def ask(client: "DynamoDBClient") -> "BatchGetItemOutputTypeDef":
            nonlocal rest
            request: Any = {self.table: {"Keys": rest, **shape}}
            answer = client.batch_get_item(RequestItems=request)
            found.extend(map(item_from_wire, answer["Responses"].get(self.table, [])))
            if left := answer.get("UnprocessedKeys", {}).get(self.table):
                rest = left["Keys"]
                raise TransientFailure(f"{len(rest)} of {len(wanted)} keys were not processed")
            return answer

        self.calls.call(f"reading {len(wanted)} items", ask)
        return found

    def _pages(self, subject: str, operation: str, **request: Any) -> Iterator[Stored]:  # noqa: ANN401
        while True:
            page: dict[str, Any] = self.calls.call(
                subject, lambda client: getattr(client, operation)(TableName=self.table, **request)
            )
            yield from map(item_from_wire, page["Items"])
            # A page ends at 1 MB, filtered items included; an empty page may have a successor.
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
