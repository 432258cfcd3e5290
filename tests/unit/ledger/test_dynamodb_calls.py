"""Which responses are retried, which are returned, and which the user must fix."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError
from mypy_boto3_dynamodb import DynamoDBClient
from tests.support.golden import Golden

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerOptions
from extentflow.ledger.dynamodb_calls import DynamoCalls
from extentflow.ledger.items import ConditionFailed
from extentflow.ledger.server_calls import RejectedRequest, retry_policy
from extentflow.retry import Clock, RetryPolicy

GOOD: dict[str, Any] = {"ResponseMetadata": {"HTTPHeaders": {}}}
WHERE = "http://127.0.0.1:1"
ITEM = {"pk": {"S": "a"}, "epoch": {"N": "7"}}


def error(code: str, status: int = 400, **more: object) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "says the server"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
        **more,
    }
    return ClientError(cast("Any", response), "UpdateItem")


def cancelled(*codes: str | None, items: Sequence[object] = ()) -> ClientError:
    reasons: list[dict[str, object]] = [{"Code": code or "None"} for code in codes]
    for reason, item in zip(reasons, items, strict=False):
        if item:
            reason["Item"] = item
    return error("TransactionCanceledException", CancellationReasons=reasons)


@dataclass
class Script:
    """Scripted responses, the last one repeated; only pauses advance the clock."""

    answers: Sequence[Exception | dict[str, Any]]
    chances: float = 0.5
    now: float = 0.0
    asked: int = 0
    connected: int = 0
    pauses: list[float] = field(default_factory=list)
    process: int = 1

    def calls(self, policy: RetryPolicy | None = None) -> DynamoCalls:
        options = LedgerOptions("orders-ledger", endpoint=WHERE)
        clock = Clock(lambda: self.now, lambda: self.now, self.sleep)
        policy = policy or retry_policy(options)
        retry = replace(policy, clock=clock, jitter=lambda: self.chances)
        return DynamoCalls(options, retry, self.connect, lambda: self.process)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def connect(self, _options: LedgerOptions) -> DynamoDBClient:
        self.connected += 1
        return cast("DynamoDBClient", object())

    def request(self, _client: object) -> dict[str, Any]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


PASSING = [
    error("ThrottlingException"),
    error("ProvisionedThroughputExceededException"),
    error("RequestLimitExceeded"),
    error("TransactionConflictException"),
    error("TransactionInProgressException"),
    error("InternalServerError", 500),
    error("a proxy's page", 502),
    cancelled("TransactionConflict", None),
    cancelled(None, "ThrottlingError"),
    cancelled("ProvisionedThroughputExceeded", "TransactionConflict"),
    EndpointConnectionError(endpoint_url=WHERE),
    ConnectionClosedError(endpoint_url=WHERE),
    ReadTimeoutError(endpoint_url=WHERE),
    CredentialRetrievalError(provider="p", error_msg="e"),
    ResponseParserError("half an answer"),
]


@pytest.mark.parametrize("passing", PASSING, ids=str)
def test_a_transient_error_is_retried(passing: Exception) -> None:
    script = Script([passing, passing, GOOD])

    assert script.calls().call("claiming x", script.request) == GOOD

    assert script.asked == 3


@pytest.mark.parametrize("passing", PASSING, ids=str)
def test_an_error_beyond_the_deadline_is_ledger_unavailable(passing: Exception) -> None:
    script = Script([passing])

    with pytest.raises(LedgerUnavailable, match=r"orders-ledger .*claiming x.*30 s") as raised:
        script.calls().call("claiming x", script.request)

    assert raised.value.__cause__ is passing
    assert 25 < script.now < 30


def test_with_zero_seconds_there_is_one_attempt() -> None:
    script = Script([error("ThrottlingException")])

    with pytest.raises(LedgerUnavailable):
        script.calls(RetryPolicy(total_seconds=0)).call("claiming x", script.request)

    assert (script.asked, script.pauses) == (1, [])


def test_pauses_double_up_to_the_longest() -> None:
    script = Script([error("ThrottlingException")] * 5 + [GOOD])

    calls = script.calls(RetryPolicy(first_pause_seconds=0.1, longest_pause_seconds=0.5))
    calls.call("claiming x", script.request)

    assert script.pauses == pytest.approx([0.05, 0.1, 0.2, 0.25, 0.25])


def test_a_failed_condition_carries_the_item() -> None:
    script = Script([error("ConditionalCheckFailedException", Item=ITEM)])

    with pytest.raises(ConditionFailed) as raised:
        script.calls().call("leasing", script.request)

    assert raised.value.images == {0: {"pk": "a", "epoch": 7}}
    assert script.asked == 1


def test_a_failed_condition_without_an_item_carries_none() -> None:
    script = Script([error("ConditionalCheckFailedException")])

    with pytest.raises(ConditionFailed) as raised:
        script.calls().call("renewing", script.request)

    assert raised.value.images == {0: None}


def test_failed_conditions_of_a_transaction_are_found_by_place() -> None:
    refusal = cancelled(
        None, "ConditionalCheckFailed", "ConditionalCheckFailed", items=(None, ITEM, None)
    )
    script = Script([refusal])

    with pytest.raises(ConditionFailed) as raised:
        script.calls().call("claiming x", script.request)

    assert raised.value.images == {1: {"pk": "a", "epoch": 7}, 2: None}


def test_a_failed_condition_beside_a_conflict_is_not_retried() -> None:
    script = Script([cancelled("TransactionConflict", "ConditionalCheckFailed")])

    with pytest.raises(ConditionFailed) as raised:
        script.calls().call("claiming x", script.request)

    assert raised.value.images == {1: None}


@pytest.mark.parametrize(
    ("invalid", "code"),
    [
        (cancelled(None, "ValidationError"), "ValidationError"),
        (cancelled("TransactionConflict", "ValidationError"), "ValidationError"),
        (error("ValidationException"), "ValidationException"),
    ],
)
def test_an_invalid_request_is_not_retried(invalid: ClientError, code: str) -> None:
    script = Script([invalid])

    with pytest.raises(RejectedRequest, match=r"orders-ledger.*claiming x") as raised:
        script.calls().call("claiming x", script.request)

    assert (raised.value.code, script.asked) == (code, 1)


def test_a_missing_table_is_named_with_its_remedy(golden: Golden) -> None:
    script = Script([error("ResourceNotFoundException")])

    with golden.raises(Misconfigured, match=f"orders-ledger.*{WHERE}"):
        script.calls().call("claiming x", script.request)


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"]
)
def test_a_missing_permission_is_named_with_its_remedy(code: str, golden: Golden) -> None:
    script = Script([error(code)])

    with golden.raises(Misconfigured, match=f"orders-ledger.*{code}"):
        script.calls().call("claiming x", script.request)


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (NoCredentialsError(), "no AWS credentials; set AWS_ACCESS_KEY_ID"),
        (NoRegionError(), "no AWS region; set ledger.region"),
    ],
    ids=str,
)
def test_a_client_that_cannot_be_created_names_the_setting(
    problem: BotoCoreError, advice: str
) -> None:
    script = Script([problem])

    with pytest.raises(Misconfigured, match=advice):
        script.calls().call("claiming x", script.request)


def test_a_long_outage_is_logged_once_and_a_short_one_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unavailable = EndpointConnectionError(endpoint_url=WHERE)
    short = Script([unavailable, unavailable, GOOD])
    long = Script([unavailable])

    short.calls().call("one", short.request)
    told_early = len(caplog.records)
    with pytest.raises(LedgerUnavailable):
        long.calls().call("two", long.request)

    assert told_early == 0
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "table orders-ledger (http"
    ]


def test_a_process_connects_once() -> None:
    script = Script([GOOD])
    calls = script.calls()

    calls.call("one", script.request)
    calls.call("two", script.request)

    assert script.connected == 1


def test_nothing_is_connected_before_the_first_call() -> None:
    script = Script([GOOD])

    script.calls()

    assert script.connected == 0


def test_a_forked_process_connects_for_itself() -> None:
    script = Script([GOOD])
    calls = script.calls()
    calls.call("in the parent", script.request)
    script.process = 2

    calls.call("in the child", script.request)

    assert script.connected == 2


@pytest.mark.parametrize("refused", [False, True])
def test_every_response_sets_the_servers_time(*, refused: bool) -> None:
    headers = {"HTTPHeaders": {"date": "Tue, 14 Nov 2023 22:13:20 GMT"}}
    answer = error("ConditionalCheckFailedException", ResponseMetadata=headers)
    script = Script([answer if refused else {"ResponseMetadata": headers}])
    calls = script.calls()

    if refused:
        with pytest.raises(ConditionFailed):
            calls.call("leasing", script.request)
    else:
        calls.call("leasing", script.request)

    assert calls.server_clock.now() == 1_700_000_000.0


@pytest.mark.parametrize("headers", [{}, {"date": ""}, {"date": "yesterday"}])
def test_a_response_without_a_date_sets_no_time(headers: dict[str, str]) -> None:
    script = Script([{"ResponseMetadata": {"HTTPHeaders": headers}}])
    calls = script.calls()

    calls.call("reading", script.request)

    assert calls.server_clock.now() is None
