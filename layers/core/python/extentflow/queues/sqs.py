"""SQS behind the Queue port: AWS's, or any server that speaks its API.

Owns: the client, batches, retries, the translation of botocore's errors. Refuses to know: what a
message says.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extentflow.errors import Misconfigured, QueueUnavailable
from extentflow.queues import Depth, Message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef, SendMessageBatchRequestEntryTypeDef

log = logging.getLogger(__name__)

BATCH_MESSAGES = 10
BATCH_BYTES = 256 << 10  # what every server takes
MOST_DELAY_SECONDS = 43_200
REASON = "extentflow.reason"
REASON_LIMIT = 4_000
SEND_TRIES = 5
MISSING_CODES = frozenset(
    {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NonExistentQueue"}
)
REFUSED_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "KMS.AccessDeniedException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


def connect(url: str) -> "SQSClient":
    """Return a client for the queue at `url`; the endpoint comes from the SDK's own settings."""
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"},
        connect_timeout=3,
        read_timeout=30,  # a long poll waits for up to 20 s
    )
    return boto3.session.Session().client("sqs", region_name=_region(url), config=config)


class SqsQueue:
    """One SQS queue."""

    def __init__(self, url: str, client: "SQSClient | None" = None) -> None:
        self.url = url
        self._client = connect(url) if client is None else client

    def send(self, bodies: Sequence[str], *, reason: str = "") -> None:
        """Send in batches; entries that SQS reports as failed are sent again, as `Queue.send`."""
        for batch in _batches(bodies):
            waiting = list(batch)
            for _ in range(SEND_TRIES):
                waiting = self._send(waiting, reason)
                if not waiting:
                    break
            else:
                raise QueueUnavailable(f"{self.url}: {len(waiting)} messages were not accepted")

    def receive(self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0) -> list[Message]:
        """Poll once, as `Queue.receive`."""
        with self._translated("receiving"):
            answer = self._client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=BATCH_MESSAGES,
                WaitTimeSeconds=min(20, round(wait_seconds)),
                VisibilityTimeout=round(hide_seconds),
                MessageSystemAttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
                MessageAttributeNames=[REASON],
            )
        return [
            Message(
                id=found["MessageId"],
                body=found["Body"],
                handle=found["ReceiptHandle"],
                received=int(found.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
                reason=_reason(found),
                sent=int(found.get("Attributes", {}).get("SentTimestamp", "0")) / 1000,
            )
            for found in answer.get("Messages", [])
        ]

    def delete(self, message: Message) -> None:
        """See `Queue.delete`."""
        with self._translated("deleting"):
            self._client.delete_message(QueueUrl=self.url, ReceiptHandle=message.handle)

    def delay(self, message: Message, seconds: float) -> None:
        """See `Queue.delay`."""
        with self._translated("delaying"):
            self._client.change_message_visibility(
                QueueUrl=self.url,
                ReceiptHandle=message.handle,
                VisibilityTimeout=max(0, min(MOST_DELAY_SECONDS, round(seconds))),
            )

    def depth(self) -> Depth:
        """See `Queue.depth`."""
        with self._translated("looking at its depth"):
            found = self._client.get_queue_attributes(
                QueueUrl=self.url,
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                    "ApproximateNumberOfMessagesDelayed",
                ],
            )["Attributes"]
        return Depth(
            waiting=int(found.get("ApproximateNumberOfMessages", "0")),
            hidden=int(found.get("ApproximateNumberOfMessagesNotVisible", "0")),
            delayed=int(found.get("ApproximateNumberOfMessagesDelayed", "0")),
        )

    def _send(self, bodies: Sequence[str], reason: str) -> list[str]:
        """Send one batch and return what was not accepted."""
        entries = [_entry(number, body, reason) for number, body in enumerate(bodies)]
        with self._translated("sending"):
            answer = self._client.send_message_batch(QueueUrl=self.url, Entries=entries)
        failed = answer.get("Failed", [])
        for entry in failed:
            if entry["SenderFault"]:
                raise Misconfigured(
                    f"{self.url}: a message was refused, {entry['Code']}: {entry.get('Message')}"
                )
            log.warning("%s: %s, sending again", self.url, entry["Code"])
        return [bodies[int(entry["Id"])] for entry in failed]

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ClientError as exc:
            code = exc.response["Error"].get("Code", "")
            if code in MISSING_CODES:
                raise Misconfigured(
                    f"{self.url}: there is no such queue; correct its URL, or deploy the stack"
                ) from exc
            if code in REFUSED_CODES:
                raise Misconfigured(f"{self.url}: {doing} was refused, {exc}") from exc
            raise QueueUnavailable(f"{self.url}: {doing}: {exc}") from exc
        except BotoCoreError as exc:
            raise QueueUnavailable(f"{self.url}: {doing}: {type(exc).__name__}: {exc}") from exc


def _reason(found: "MessageTypeDef") -> str:
    attributes = found.get("MessageAttributes", {})
    return attributes[REASON].get("StringValue", "") if REASON in attributes else ""


def _entry(number: int, body: str, reason: str) -> "SendMessageBatchRequestEntryTypeDef":
    entry: SendMessageBatchRequestEntryTypeDef = {"Id": str(number), "MessageBody": body}
    if reason:
        text = reason[:REASON_LIMIT]
        entry["MessageAttributes"] = {REASON: {"DataType": "String", "StringValue": text}}
    return entry


def _batches(bodies: Sequence[str]) -> Iterator[list[str]]:
    """Yield batches that SQS takes: ten messages, and no more bytes than one message may have."""
    batch: list[str] = []
    size = 0
    for body in bodies:
        length = len(body.encode()) + REASON_LIMIT
        if batch and (len(batch) == BATCH_MESSAGES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield batch


def _region(url: str) -> str | None:
    """Return the region that AWS's queue URLs name; None leaves it to the SDK's settings."""
    host = url.partition("//")[2].partition("/")[0]
    parts = host.split(".")
    return parts[1] if parts[0] == "sqs" and host.endswith((".amazonaws.com", ".cn")) else None
