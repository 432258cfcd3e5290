"""SqsQueue: the contract over an emulation of SQS; batches, failures and refusals over scripts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, cast

import boto3
import moto.sqs.models
import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)
from moto import mock_aws
from tests.contracts.queue import MissingQueueContract, QueueContract
from tests.support.memory_delivery import Ticker

from extentflow.aws import BATCH_BYTES, BATCH_ENTRIES
from extentflow.errors import ExtentflowError, Misconfigured, QueueUnavailable
from extentflow.queue import Message
from extentflow.queue.sqs_queue import (
    REASON,
    REASON_BYTES,
    SEND_TRIES,
    SqsQueue,
    connect,
)
from extentflow.work_context import INVOCATION, traced

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/extents"
REGION = "eu-central-1"
NUMBERS = count()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


# -- the contract ---------------------------------------------------------------------------------


@dataclass
class EmulatedPlace:
    """SQS in this process, on a clock that a test moves; every look at it takes a millisecond."""

    client: "SQSClient"
    ticker: Ticker = field(default_factory=Ticker)
    patience_seconds: float = 0.0

    def queue(self) -> SqsQueue:
        created = self.client.create_queue(QueueName=f"queue-{next(NUMBERS)}")
        return SqsQueue(created["QueueUrl"], self.client)

    def pass_seconds(self, seconds: float) -> None:
        self.ticker.sleep(seconds)

    def now(self) -> float:
        self.ticker.sleep(0.001)
        return self.ticker.now


@pytest.fixture(scope="module")
def emulation() -> Iterator["SQSClient"]:
    with mock_aws():
        yield boto3.client("sqs", region_name=REGION)


@pytest.fixture
def emulated(emulation: "SQSClient", monkeypatch: pytest.MonkeyPatch) -> EmulatedPlace:
    place = EmulatedPlace(emulation)
    monkeypatch.setattr(moto.sqs.models, "unix_time_millis", lambda: place.now() * 1000)
    monkeypatch.setattr(moto.sqs.models, "unix_time", place.now)
    return place


class TestSqsQueue(QueueContract):
    @pytest.fixture
    def place(self, emulated: EmulatedPlace) -> EmulatedPlace:
        return emulated


class TestMissing(MissingQueueContract):
    @pytest.fixture
    def missing(self, emulated: EmulatedPlace) -> SqsQueue:
        return SqsQueue(URL, emulated.client)


# -- traces ---------------------------------------------------------------------------------------

OWN_TRACE = "Root=1-2-own;Parent=53995c3f42cd8ad8;Sampled=1"


def sent_with(client: "SQSClient") -> list[str | None]:
    """Collect the trace header of each request to SQS from now on."""
    headers: list[str | None] = []

    def seen(request: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        header = request.headers.get("X-Amzn-Trace-Id")
        headers.append(header.decode() if isinstance(header, bytes) else header)

    client.meta.events.register("before-send.sqs.SendMessageBatch", seen)
    return headers


def test_a_functions_messages_carry_the_trace_of_its_invocation(
    emulated: EmulatedPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK writes it to the request, and SQS keeps it with each message."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "planner")
    monkeypatch.setenv(INVOCATION, OWN_TRACE)
    headers = sent_with(emulated.client)

    with traced(None):
        emulated.queue().send(["a"])

    assert headers == [OWN_TRACE]


# -- batches --------------------------------------------------------------------------------------


@dataclass
class Script:
    """A client that answers as written; then everything succeeds. Pauses take no time."""

    answers: list[Exception | dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    ticker: Ticker = field(default_factory=Ticker)

    def queue(self) -> SqsQueue:
        return SqsQueue(URL, cast("SQSClient", self), clock=self.ticker.clock, random=Random(1))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any operation
        def call(**request: Any) -> dict[str, Any]:  # noqa: ANN401
            self.asked.append((name, json.loads(json.dumps(request))))
            answer = self.answers.pop(0) if self.answers else {}
            if isinstance(answer, Exception):
                raise answer
            failed = {found["Id"] for found in answer.get("Failed", [])}
            stored = [entry for entry in request.get("Entries", []) if entry["Id"] not in failed]
            return {"Successful": [{"Id": entry["Id"]} for entry in stored], **answer}

        return call

    @property
    def batches(self) -> list[list[str]]:
        """The bodies of each batch that was sent."""
        return [
            [entry["MessageBody"] for entry in request["Entries"]]
            for name, request in self.asked
            if name == "send_message_batch"
        ]


def failed(*numbers: int, code: str = "InternalError", fault: bool = False) -> dict[str, Any]:
    found = [
        {"Id": str(number), "SenderFault": fault, "Code": code, "Message": "says the server"}
        for number in numbers
    ]
    return {"Failed": found}


def test_messages_that_another_one_caused_carry_on_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attribute goes over the header of the request."""
    monkeypatch.setenv(INVOCATION, OWN_TRACE)
    script = Script()

    with traced("Root=1-1-planner;Sampled=1"):
        script.queue().send(["a", "b"])

    ((_, request),) = script.asked
    given = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-1-planner;Sampled=1"}}
    assert [entry["MessageSystemAttributes"] for entry in request["Entries"]] == [given] * 2


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([1], [1]),
        ([1] * 10, [10]),
        ([1] * 11, [10, 1]),
        ([1] * 25, [10, 10, 5]),
        ([BATCH_BYTES], [1]),
        ([BATCH_BYTES, 1], [1, 1]),
        ([BATCH_BYTES // 2, BATCH_BYTES // 2], [2]),
        ([BATCH_BYTES // 2, BATCH_BYTES // 2, 1], [2, 1]),
        ([100_000] * 5, [2, 2, 1]),
    ],
)
def test_messages_go_in_batches_of_ten_and_of_the_bytes_that_sqs_takes(
    sizes: Sequence[int], batches: Sequence[int]
) -> None:
    script = Script()
    bodies = ["x" * size for size in sizes]

    script.queue().send(bodies)

    assert [len(batch) for batch in script.batches] == batches
    assert [body for batch in script.batches for body in batch] == bodies


def size_of(request: Mapping[str, Any]) -> int:
    """What SQS counts of a batch."""
    return sum(
        len(entry["MessageBody"].encode())
        + sum(
            len(name.encode()) + len(value["DataType"]) + len(value["StringValue"].encode())
            for name, value in entry.get("MessageAttributes", {}).items()
        )
        for entry in request["Entries"]
    )


@pytest.mark.parametrize("letter", ["x", "ü", "☃", "\U0001f600"])
@pytest.mark.parametrize("length", [10, 20_000, 60_000])
def test_bytes_count_and_not_characters_reasons_included(letter: str, length: int) -> None:
    script = Script()

    script.queue().send([letter * length] * 30, reason=letter * 5_000)

    for _, request in script.asked:
        assert size_of(request) <= BATCH_BYTES
        assert len(request["Entries"]) <= BATCH_ENTRIES
        for entry in request["Entries"]:
            reason = entry["MessageAttributes"][REASON]["StringValue"]
            assert REASON_BYTES - 4 < len(reason.encode()) <= REASON_BYTES


@pytest.mark.parametrize("left", [0, 10, 22, 23, 24, 500])
def test_a_reason_takes_no_more_than_the_body_leaves(left: int) -> None:
    script = Script()

    script.queue().send(["x" * (BATCH_BYTES - left)], reason="y" * 5_000)

    ((_, request),) = script.asked
    named = len(REASON) + len("String")
    assert size_of(request) == BATCH_BYTES - (left if left <= named else 0)


def test_an_entry_that_failed_is_sent_again_and_alone() -> None:
    script = Script([failed(1, 3), failed(0)])

    script.queue().send(["a", "b", "c", "d"])

    assert script.batches == [["a", "b", "c", "d"], ["b", "d"], ["b"]]
    assert script.ticker.now > Ticker().now


def test_an_entry_that_the_answer_leaves_out_is_sent_again() -> None:
    script = Script([{"Successful": [{"Id": "0"}, {"Id": "2"}]}])

    script.queue().send(["a", "b", "c"])

    assert script.batches == [["a", "b", "c"], ["b"]]


def test_the_reason_goes_along_when_an_entry_is_sent_again() -> None:
    script = Script([failed(0)])

    script.queue().send(["a"], reason="because")

    entries = [request["Entries"][0] for _, request in script.asked]
    assert entries[0] == entries[1]
    assert entries[1]["MessageAttributes"][REASON]["StringValue"] == "because"


def test_entries_that_keep_failing_are_an_unavailable_queue() -> None:
    script = Script([failed(1), *[failed(0)] * SEND_TRIES])

    with pytest.raises(QueueUnavailable, match="1 messages were not accepted"):
        script.queue().send(["a", "b"])

    assert len(script.batches) == SEND_TRIES


def test_later_batches_go_out_after_an_earlier_one_was_accepted_at_last() -> None:
    script = Script([failed(9), {}, {}])

    script.queue().send([str(number) for number in range(12)])

    assert script.batches == [[str(n) for n in range(10)], ["9"], ["10", "11"]]


def test_a_message_that_is_rejected_for_good_is_not_sent_again() -> None:
    script = Script([failed(0, code="InvalidMessageContents", fault=True)])

    with pytest.raises(Misconfigured, match="InvalidMessageContents: says the server"):
        script.queue().send(["a"])

    assert len(script.batches) == 1


def test_throttling_by_kms_is_no_fault_of_the_sender() -> None:
    script = Script([failed(0, code="KmsThrottled", fault=True)])

    script.queue().send(["a"])

    assert script.batches == [["a"], ["a"]]


# -- refusals -------------------------------------------------------------------------------------


def error(code: str, status: int = 400) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "says the server"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(cast("Any", response), "AnyOperation")


MESSAGE = Message("id", "body", "handle")
CALLS = ["send", "receive", "delete", "delay", "depth"]


def call(queue: SqsQueue, name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "send": (["a"],),
        "delete": (MESSAGE,),
        "delay": (MESSAGE, 5),
    }
    getattr(queue, name)(*arguments.get(name, ()))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (error("AWS.SimpleQueueService.NonExistentQueue"), Misconfigured, "no such queue"),
        (error("QueueDoesNotExist"), Misconfigured, "no such queue"),
        (error("AccessDenied", 403), Misconfigured, "credentials and the role's policy"),
        (error("AccessDeniedException"), Misconfigured, "credentials and the role's policy"),
        (error("InvalidClientTokenId", 403), Misconfigured, "credentials and the role's policy"),
        (error("ExpiredToken", 403), Misconfigured, "credentials and the role's policy"),
        (error("KmsAccessDenied"), Misconfigured, "credentials and the role's policy"),
        (NoCredentialsError(), Misconfigured, "AWS_PROFILE"),
        (ParamValidationError(report="odd"), Misconfigured, "odd"),
        (error("InvalidParameterValue"), Misconfigured, "InvalidParameterValue"),
        (error("RequestThrottled", 403), QueueUnavailable, "RequestThrottled"),
        (error("ThrottlingException"), QueueUnavailable, "ThrottlingException"),
        (error("OverLimit", 403), QueueUnavailable, "OverLimit"),
        (error("InternalFailure", 500), QueueUnavailable, "InternalFailure"),
        (error("a proxy's page", 502), QueueUnavailable, "a proxy's page"),
        (EndpointConnectionError(endpoint_url=URL), QueueUnavailable, "EndpointConnectionError"),
        (ConnectTimeoutError(endpoint_url=URL), QueueUnavailable, "ConnectTimeoutError"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, Exception) else None,
)
def test_every_error_is_translated_and_names_the_queue(
    name: str, raised: Exception, kind: type[ExtentflowError], says: str
) -> None:
    script = Script([raised])

    with pytest.raises(kind, match=says) as caught:
        call(script.queue(), name)

    assert str(caught.value).startswith(URL)
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("name", ["delete", "delay"])
@pytest.mark.parametrize(
    "code",
    ["ReceiptHandleIsInvalid", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"],
)
def test_an_expired_delivery_is_reported_and_no_error(
    name: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([error(code)])

    call(script.queue(), name)

    assert "message id was too late" in caplog.text


def test_an_endpoint_without_response_is_an_unavailable_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(QueueUnavailable, match=r"amazonaws\.com/123456789012/extents: receiving"):
        SqsQueue(URL).receive()


# -- the client -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://sqs.eu-central-1.amazonaws.com/1/q", "eu-central-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/q", "cn-north-1"),
        ("http://127.0.0.1:9324/000000000000/q", "us-west-2"),
        ("https://sqs.example.com/q", "us-west-2"),
    ],
)
def test_the_region_is_the_urls_or_the_environments(
    url: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")

    assert connect(url).meta.region_name == region


def test_a_url_without_a_region_asks_for_one() -> None:
    wanted = r"http://127\.0\.0\.1:9324/0/q: connecting: no AWS region; set"
    with pytest.raises(Misconfigured, match=wanted):
        SqsQueue("http://127.0.0.1:9324/0/q")


@pytest.mark.parametrize(
    ("seconds", "asked"), [(0, 0), (0.2, 1), (1.0, 1), (19.5, 20), (20, 20), (3600, 20)]
)
def test_a_poll_waits_as_long_as_sqs_allows(seconds: float, asked: int) -> None:
    script = Script()

    script.queue().receive(wait_seconds=seconds)

    assert script.asked[0][1]["WaitTimeSeconds"] == asked


@pytest.mark.parametrize(
    ("seconds", "asked"), [(-1, 0), (0, 0), (0.2, 1), (180, 180), (39_600, 39_600), (1e9, 43_200)]
)
def test_messages_are_hidden_for_whole_seconds_that_sqs_allows(seconds: float, asked: int) -> None:
    script = Script()
    queue = script.queue()

    queue.receive(hide_seconds=seconds)
    queue.delay(MESSAGE, seconds)

    hidden, delayed = (request["VisibilityTimeout"] for _, request in script.asked)
    assert hidden == asked
    assert delayed == min(asked, 39_600)  # an hour after it was received that is possible, too


def test_what_a_server_leaves_out_is_taken_for_a_first_delivery() -> None:
    script = Script([{"Messages": [{"MessageId": "m", "Body": "b", "ReceiptHandle": "h"}]}, {}])

    assert list(script.queue().receive()) == [Message("m", "b", "h", 1, "", 0.0)]
    assert list(script.queue().receive()) == []
