"""The Queue port on SQS, or on any server with its API."""

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

from botocore.config import Config
from botocore.exceptions import ClientError

from extentflow.aws import BATCH_BYTES, BatchSender, new_session, split_into_batches
from extentflow.errors import Misconfigured, QueueUnavailable
from extentflow.queue import BATCH_MESSAGES, Depth, Message
from extentflow.retry import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        BatchResultErrorEntryTypeDef,
        MessageTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )
from botocore.exceptions import BotoCoreError

from extentflow.aws import NO_ANSWER, SERVER_ERROR, describe_sdk_error
from extentflow.errors import ExtentflowError

log = logging.getLogger(__name__)

LONGEST_POLL_SECONDS = 20
LONGEST_HIDE_SECONDS = 43_200
LONGEST_DELAY_SECONDS = 39_600  # the limit above counts from when the message was received
REASON = "extentflow.reason"
REASON_TYPE = "String"
REASON_BYTES = 4_000
SEND_TRIES = 5
_REFUSED_CHARACTERS = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def connect(url: str) -> "SQSClient":
    """Return a client for the queue at `url`; the endpoint comes from the SDK's own settings.

    Raises:
        Misconfigured: there is no region.
    """
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"},
        connect_timeout=3,
        read_timeout=LONGEST_POLL_SECONDS + 10,
    )
    with translated(url, "connecting"):
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
        self,
        *,
        wait_seconds: float = 0.0,
        hide_seconds: float = 30.0,
        most: int = BATCH_MESSAGES,
    ) -> list[Message]:
        """Poll once, as `Queue.receive`."""
        with translated(self.url, "receiving"):
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
        return [
            Message(
                id=found["MessageId"],
                body=found["Body"],
                handle=found["ReceiptHandle"],
                received=int(found.get("Attributes", {}).get("ApproximateReceiveCount", "1")),
                reason=_reason(found),
                sent=int(found.get("Attributes", {}).get("SentTimestamp", "0")) / 1000,
                group=found.get("Attributes", {}).get("MessageGroupId", ""),
            )
            for found in answer.get("Messages", [])
        ]

    def delete(self, message: Message) -> None:
        """See `Queue.delete`."""
        with self._unless_stale("deleting", message):
            self._client.delete_message(QueueUrl=self.url, ReceiptHandle=message.handle)

    def delay(self, message: Message, seconds: float) -> None:
        """See `Queue.delay`."""
        with self._unless_stale("delaying", message):
            self._client.change_message_visibility(
                QueueUrl=self.url,
                ReceiptHandle=message.handle,
                VisibilityTimeout=_whole(seconds, LONGEST_DELAY_SECONDS),
            )

    def depth(self) -> Depth:
        """See `Queue.depth`."""
        with translated(self.url, "looking at its depth"):
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
        numbered = {str(number): entry for number, entry in enumerate(entries)}
        for number, entry in numbered.items():
            entry["Id"] = number
        with translated(self.url, "sending"):
            answer = self._client.send_message_batch(
                QueueUrl=self.url, Entries=list(numbered.values())
            )
        for found in answer.get("Failed", []):
            self._check(found)
        # An entry that the answer leaves out may not be stored; sending twice is harmless.
        accepted = {found["Id"] for found in answer.get("Successful", [])}
        return [entry for number, entry in numbered.items() if number not in accepted]

    def _check(self, failed: "BatchResultErrorEntryTypeDef") -> None:
        """Raise where sending the entry again would change nothing."""
        if failed["SenderFault"] and failed["Code"] not in PASSING_CODES:
            raise Misconfigured(
                f"{self.url}: a message was refused, {failed['Code']}: {failed.get('Message')}"
            )
        log.warning("%s: %s, sending again", self.url, failed["Code"])

    @contextmanager
    def _unless_stale(self, doing: str, message: Message) -> Iterator[None]:
        """Ignore an expired receipt handle: the message is deleted or delivered again."""
        with translated(self.url, doing):
            try:
                yield
            except ClientError as exc:
                if code(exc) not in STALE_CODES:
                    raise
                log.warning("%s: %s message %s was too late", self.url, doing, message.id)


def _whole(seconds: float, most: int) -> int:
    """Return whole seconds, never fewer: a message must not come back too early."""
    return max(0, min(most, math.ceil(seconds)))


def _reason(found: "MessageTypeDef") -> str:
    attributes = found.get("MessageAttributes", {})
    return attributes[REASON].get("StringValue", "") if REASON in attributes else ""


def _entry(body: str, reason: str, group: str) -> "SendMessageBatchRequestEntryTypeDef":
    """Return one entry; its reason is cut to what fits beside the body."""
    entry: SendMessageBatchRequestEntryTypeDef = {"Id": "", "MessageBody": body}
    if group:
        entry["MessageGroupId"] = group
    room = BATCH_BYTES - _bytes(body) - len(REASON) - len(REASON_TYPE)
    kept = _REFUSED_CHARACTERS.sub(_escaped, reason).encode()[: max(0, min(REASON_BYTES, room))]
    if text := kept.decode(errors="ignore"):
        entry["MessageAttributes"] = {REASON: {"DataType": REASON_TYPE, "StringValue": text}}
    return entry


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


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


MISSING_CODES = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "NonExistentQueue",
        "QueueDoesNotExist",
    }
)
PERMISSION_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "KMS.AccessDeniedException",
        "KmsAccessDenied",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
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
    {
        "AWS.SimpleQueueService.MessageNotInflight",
        "MessageNotInflight",
        "ReceiptHandleIsInvalid",
    }
)


@contextmanager
def translated(url: str, doing: str) -> Iterator[None]:
    """Run one call on the queue at `url`; `doing` says in messages what for.

    Raises:
        QueueUnavailable: no usable answer, throttled, or an error of the server's.
        Misconfigured: no such queue, no credentials, no permission, or never to be accepted.
    """
    try:
        yield
    except ClientError as exc:
        raise _refused(url, doing, exc) from exc
    except NO_ANSWER as exc:
        raise QueueUnavailable(f"{url}: {doing}: {type(exc).__name__}: {exc}") from exc
    except BotoCoreError as exc:
        raise Misconfigured(f"{url}: {doing}: {describe_sdk_error(exc)}") from exc


def _refused(url: str, doing: str, error: ClientError) -> ExtentflowError:
    name = code(error)
    status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
    if name in MISSING_CODES:
        return Misconfigured(f"{url}: there is no such queue; correct its URL, or deploy the stack")
    if name in PERMISSION_CODES:
        return Misconfigured(
            f"{url}: {doing} was refused, {error}; check the credentials and the role's policy"
        )
    if name in PASSING_CODES or status >= SERVER_ERROR:
        return QueueUnavailable(f"{url}: {doing}: {error}")
    return Misconfigured(f"{url}: {doing} was refused, {error}")


def code(error: ClientError) -> str:
    """Return the server's own name for the reason."""
    return error.response["Error"].get("Code", "")
