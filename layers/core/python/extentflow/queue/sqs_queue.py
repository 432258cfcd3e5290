"""The Queue port on SQS, or on any server with its API."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import TYPE_CHECKING, Final

from botocore.config import Config
from botocore.exceptions import ClientError

from extentflow.aws import (
    BATCH_BYTES,
    BatchSender,
    new_session,
    split_into_batches,
    translate_errors,
)
from extentflow.errors import Misconfigured, QueueUnavailable
from extentflow.queue import BATCH_MESSAGES, UNSENDABLE, Depth, Message
from extentflow.retry import Clock
from extentflow.work_context import outgoing_header

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef, SendMessageBatchRequestEntryTypeDef

log = logging.getLogger(__name__)

LONGEST_POLL_SECONDS = 20
LONGEST_HIDE_SECONDS = 43_200
LONGEST_DELAY_SECONDS = 39_600  # the limit above counts from when the message was received
REASON = "extentflow.reason"
REASON_TYPE = "String"
REASON_BYTES = 4_000
TRACE_HEADER: Final = "AWSTraceHeader"  # SQS does not count it as part of the message
SEND_TRIES = 5

# Also of entries that are said to be the sender's fault: throttling by KMS is.
PASSING_CODES = frozenset(
    {
        "InternalError",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "OverLimit",
        "RequestThrottled",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)
# The delivery is over: its time is up, or the message was deleted meanwhile.
STALE_CODES = frozenset(
    {"AWS.SimpleQueueService.MessageNotInflight", "MessageNotInflight", "ReceiptHandleIsInvalid"}
)
REMEDIES = dict.fromkeys(
    ("AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue", "QueueDoesNotExist"),
    "there is no such queue; correct its URL, or deploy the stack",
)


def connect(url: str) -> "SQSClient":
    """Return a client; without a region Misconfigured. The SDK's settings name the endpoint."""
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"},
        connect_timeout=3,
        read_timeout=LONGEST_POLL_SECONDS + 10,
    )
    with _translated(url, "connecting"):
        return new_session().client("sqs", region_name=_region(url), config=config)


class SqsQueue:
    """One SQS queue. Safe for use from several threads."""

    def __init__(
        self,
        url: str,
        client: "SQSClient | None" = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.url = url
        self._client = connect(url) if client is None else client
        self._sender = BatchSender(SEND_TRIES, clock, random)

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        """Send in batches; entries that SQS reports as failed are sent again, as `Queue.send`.

        A group makes a standard queue a fair queue: it does not order messages.
        """
        entries = [_entry(body, reason, group) for body in bodies]
        for batch in split_into_batches(entries, _size):
            if left := self._sender.send(batch, self._send):
                raise QueueUnavailable(f"{self.url}: {len(left)} messages were not accepted")

    def receive(
        self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0, most: int = BATCH_MESSAGES
    ) -> list[Message]:
        with _translated(self.url, "receiving"):
            answer = self._client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=most,
                WaitTimeSeconds=min(LONGEST_POLL_SECONDS, math.ceil(wait_seconds)),
                VisibilityTimeout=_whole(hide_seconds, LONGEST_HIDE_SECONDS),
                MessageSystemAttributeNames=[
                    "ApproximateReceiveCount",
                    "MessageGroupId",
                    "SentTimestamp",
                ],
                MessageAttributeNames=[REASON],
            )
        return [_message(found) for found in answer.get("Messages", [])]

    def delete(self, message: Message) -> None:
        with self._unless_stale("deleting", message):
            self._client.delete_message(QueueUrl=self.url, ReceiptHandle=message.handle)

    def delay(self, message: Message, seconds: float) -> None:
        with self._unless_stale("delaying", message):
            hidden = _whole(seconds, LONGEST_DELAY_SECONDS)
            self._client.change_message_visibility(
                QueueUrl=self.url, ReceiptHandle=message.handle, VisibilityTimeout=hidden
            )

    def depth(self) -> Depth:
        with _translated(self.url, "looking at its depth"):
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

    def _send(
        self, entries: "Sequence[SendMessageBatchRequestEntryTypeDef]"
    ) -> "list[SendMessageBatchRequestEntryTypeDef]":
        """Send one batch and return what was not accepted."""
        for number, entry in enumerate(entries):
            entry["Id"] = str(number)
        with _translated(self.url, "sending"):
            answer = self._client.send_message_batch(QueueUrl=self.url, Entries=entries)
        for failed in answer.get("Failed", []):
            if failed["SenderFault"] and failed["Code"] not in PASSING_CODES:
                why = f"{failed['Code']}: {failed.get('Message')}"
                raise Misconfigured(f"{self.url}: a message was refused, {why}")
            log.warning("%s: %s, sending again", self.url, failed["Code"])
        # An entry that the answer leaves out may not be stored; sending twice is harmless.
        accepted = {found["Id"] for found in answer.get("Successful", [])}
        return [entry for entry in entries if entry["Id"] not in accepted]

    @contextmanager
    def _unless_stale(self, doing: str, message: Message) -> Iterator[None]:
        """Ignore an expired receipt handle: the message is deleted or delivered again."""
        with _translated(self.url, doing):
            try:
                yield
            except ClientError as exc:
                if exc.response["Error"].get("Code", "") not in STALE_CODES:
                    raise
                log.warning("%s: %s message %s was too late", self.url, doing, message.id)


def _message(found: "MessageTypeDef") -> Message:
    system, own = found.get("Attributes", {}), found.get("MessageAttributes", {})
    return Message(
        id=found["MessageId"],
        body=found["Body"],
        handle=found["ReceiptHandle"],
        received=int(system.get("ApproximateReceiveCount", "1")),
        reason=own[REASON].get("StringValue", "") if REASON in own else "",
        sent=int(system.get("SentTimestamp", "0")) / 1000,
        group=system.get("MessageGroupId", ""),
    )


def _whole(seconds: float, most: int) -> int:
    """Return whole seconds, never fewer: a message must not come back too early."""
    return max(0, min(most, math.ceil(seconds)))


def _entry(body: str, reason: str, group: str) -> "SendMessageBatchRequestEntryTypeDef":
    """Return one entry; its reason is cut to what fits beside the body."""
    entry: SendMessageBatchRequestEntryTypeDef = {"Id": "", "MessageBody": body}
    if group:
        entry["MessageGroupId"] = group
    if (trace := outgoing_header()) is not None:
        entry["MessageSystemAttributes"] = {
            TRACE_HEADER: {"DataType": REASON_TYPE, "StringValue": trace}
        }
    room = BATCH_BYTES - _bytes(body) - len(REASON) - len(REASON_TYPE)
    sendable = UNSENDABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", reason)
    kept = sendable.encode()[: max(0, min(REASON_BYTES, room))]
    if text := kept.decode(errors="ignore"):
        entry["MessageAttributes"] = {REASON: {"DataType": REASON_TYPE, "StringValue": text}}
    return entry


def _size(entry: "SendMessageBatchRequestEntryTypeDef") -> int:
    """Return what SQS counts of an entry: the body, and names, types and values of attributes."""
    attributes = entry.get("MessageAttributes", {})
    return _bytes(entry["MessageBody"]) + sum(
        _bytes(name) + _bytes(value["DataType"]) + _bytes(value.get("StringValue", ""))
        for name, value in attributes.items()
    )


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _region(url: str) -> str | None:
    """Return the region that AWS's queue URLs name; None leaves it to the SDK's settings."""
    host = url.partition("//")[2].partition("/")[0]
    parts = host.split(".")
    return parts[1] if parts[0] == "sqs" and host.endswith((".amazonaws.com", ".cn")) else None


def _translated(url: str, doing: str) -> AbstractContextManager[None]:
    """Run one call on the queue at `url`; `doing` says in messages what for."""
    return translate_errors(
        f"{url}: {doing}",
        QueueUnavailable,
        transient=PASSING_CODES,
        remedies=REMEDIES,
        otherwise="check the credentials and the role's policy, or the queue's settings",
    )
