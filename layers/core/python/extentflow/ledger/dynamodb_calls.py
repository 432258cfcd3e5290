"""Sends one DynamoDB request, retries it while that helps and translates its errors.

botocore's own retries are off: after a lost response its second attempt would meet the effect of
the first one and report a failed condition, and the two could not be distinguished. Every write is
repeatable instead: it has conditions, and all attempts of one transaction share a
`ClientRequestToken`. A caller that gets `Refused` looks for its own nonce, owner or epoch in the
item as it was when the condition failed.

    response                                          becomes
    a condition failed                                Refused, with the items as they were
    conflict, throttling, 5xx, no or half a response  retried; LedgerUnavailable at the deadline
    no table, no permission, invalid                  Rejected (a Misconfigured), names the table
"""

import logging
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.aws import new_session
from extentflow.aws.calls import NO_ANSWER, SERVER_ERROR
from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger.items import Stored, item_from_wire
from extentflow.ledger.server_clock import ServerClock, Timing

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Shorter outages are not logged.
SILENCE_SECONDS = 2.0

PASSING_CODES = frozenset(
    {
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
)
REFUSED_CODES = frozenset({"ConditionalCheckFailed", "ConditionalCheckFailedException"})
PERMISSION_CODES = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)
REMEDIES = {
    "ResourceNotFoundException": "there is no such table; `extentflow init` creates it, or correct "
    "ledger.table",
    "NoRegionError": "no AWS region; set ledger.region, AWS_DEFAULT_REGION or a profile's region",
    "NoCredentialsError": "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
    "AWS_PROFILE, or give this machine a role",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Which table, and where; None leaves region or endpoint to the environment's own settings."""

    table: str
    region: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        place = self.endpoint or self.region
        return f"table {self.table} ({place})" if place else f"table {self.table}"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one operation is tried, and how long one try may take.

    Pauses are drawn evenly from zero to a bound that doubles with every try (full jitter).
    """

    seconds: float = 30.0
    connect_seconds: float = 3.0
    read_seconds: float = 5.0
    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 2.0

    def pause(self, tried: int, chance: float) -> float:
        """Return how long to wait after `tried` failed tries; `chance` lies in [0, 1)."""
        bound = self.first_pause_seconds * 2.0 ** min(tried - 1, 30)
        return chance * min(bound, self.longest_pause_seconds)


class Refused(Exception):  # noqa: N818 - an outcome, and never seen outside of this room
    """A condition did not hold; nothing was written.

    `images` has the place of each write whose own condition failed, with its item at that moment
    (None: there was no item).
    """

    def __init__(self, images: dict[int, Stored | None]) -> None:
        self.images = images
        super().__init__(f"conditions of writes {sorted(images)} did not hold")


class Rejected(Misconfigured):
    """DynamoDB will never accept this request; `code` is its own name for the reason."""

    def __init__(self, problem: str, code: str = "") -> None:  # as pickle calls it
        self.code = code
        super().__init__(problem)


class Passing(Exception):  # noqa: N818
    """Another try may help; a request may raise it about an answer that left something out."""


def connect(address: Address, patience: Patience) -> "DynamoDBClient":
    """Create a client that does not retry by itself, from credentials of the usual chain."""
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=patience.connect_seconds,
        read_timeout=patience.read_seconds,
        max_pool_connections=64,
    )
    return new_session().client(
        "dynamodb", region_name=address.region, endpoint_url=address.endpoint, config=config
    )


Connect: TypeAlias = "Callable[[Address, Patience], DynamoDBClient]"


@dataclass(slots=True)
class DynamoCalls:
    """Makes calls on one table. Threads share it; a forked process gets a client of its own."""

    address: Address
    patience: Patience = field(default_factory=Patience)
    timing: Timing = field(default_factory=Timing)
    chance: Callable[[], float] = random.random
    connect: Connect = connect
    clock: ServerClock = field(init=False)
    pid: Callable[[], int] = os.getpid
    _made: "tuple[int, DynamoDBClient] | None" = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.clock = ServerClock(self.timing)

    def client(self) -> "DynamoDBClient":
        """Return this process's client; sockets are never inherited by a fork."""
        pid = self.pid()
        made = self._made
        if made is None or made[0] != pid:
            made = self._made = (pid, self.connect(self.address, self.patience))
        return made[1]

    def call(self, subject: str, request: "Callable[[DynamoDBClient], Answer]") -> Answer:
        """Return the answer to `request`; `subject` says in messages what was asked for.

        Raises:
            Refused: a condition did not hold.
            Rejected: as above.
            LedgerUnavailable: no usable answer in time; a write may have taken effect all the same.
        """
        began = self.timing.monotonic()
        deadline, warned = began + self.patience.seconds, False
        tried = 0
        while True:
            tried += 1
            try:
                return self._try(subject, request)
            except Passing as passing:
                pause = self.patience.pause(tried, self.chance())
                if self.timing.monotonic() + pause >= deadline:
                    raise self._unavailable(subject, passing, tried) from passing.__cause__
                if not warned and self.timing.monotonic() - began > SILENCE_SECONDS:
                    warned = True
                    rest = deadline - self.timing.monotonic()
                    log.warning("%s: %s; trying for %.0f s more", self.address, passing, rest)
                self.timing.sleep(pause)

    def _try(self, subject: str, request: "Callable[[DynamoDBClient], Answer]") -> Answer:
        asked = self.timing.monotonic()
        try:
            answer = request(self.client())
        except ClientError as error:
            self._heard(error.response, asked)
            raise self._sorted(subject, error) from error
        except NO_ANSWER as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        except BotoCoreError as error:
            raise self._rejected(subject, type(error).__name__, str(error)) from error
        self._heard(answer, asked)
        return answer

    def _heard(self, answer: Any, asked: float) -> None:  # noqa: ANN401 - any operation's answer
        self.clock.heard(answer["ResponseMetadata"].get("HTTPHeaders", {}), asked=asked)

    def _sorted(self, subject: str, error: ClientError) -> Exception:
        response: dict[str, Any] = {**error.response}
        code, message = response["Error"].get("Code", ""), response["Error"].get("Message", "")
        if code == "TransactionCanceledException":
            return self._cancelled(subject, message, response["CancellationReasons"])
        if code in REFUSED_CODES:
            return Refused({0: _image(response)})
        status = response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code in PASSING_CODES or status >= SERVER_ERROR:
            return Passing(f"{code}: {message}")
        return self._rejected(subject, code, message)

    def _cancelled(
        self, subject: str, message: str, reasons: Sequence[dict[str, Any]]
    ) -> Exception:
        codes = [reason.get("Code", "None") for reason in reasons]
        known = PASSING_CODES | REFUSED_CODES | {"None"}
        invalid = [place for place, code in enumerate(codes) if code not in known]
        if invalid:
            reason = reasons[invalid[0]]
            return self._rejected(subject, reason["Code"], reason.get("Message", message))
        images = {
            place: _image(reason)
            for place, reason in enumerate(reasons)
            if reason.get("Code") in REFUSED_CODES
        }
        return Refused(images) if images else Passing(f"transaction cancelled: {codes}")

    def _rejected(self, subject: str, code: str, message: str) -> Rejected:
        if code in REMEDIES:
            return Rejected(f"{self.address}: {REMEDIES[code]}", code=code)
        remedy = f"{self.address}: {subject} was refused, {code}: {message}"
        if code in PERMISSION_CODES:
            remedy += " - check credentials and permissions with `extentflow doctor`"
        return Rejected(remedy, code=code)

    def _unavailable(self, subject: str, passing: Passing, tried: int) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"{self.address}: {subject}: no usable answer within {self.patience.seconds:g} s,"
            f" {tried} tries; last: {passing}"
        )


def _image(response: dict[str, Any]) -> Stored | None:
    return item_from_wire(response["Item"]) if response.get("Item") else None
