"""Lambda's events for SQS batches, and partial batch responses.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageAttributeValueOutputTypeDef, MessageTypeDef


def event_of(messages: "Sequence[MessageTypeDef]", *, queue_arn: str) -> bytes:
    """Return the event of a batch, as JSON."""
    region = queue_arn.split(":")[3]
    records = [_record(message, queue_arn, region) for message in messages]
    return json.dumps({"Records": records}, ensure_ascii=False).encode()


def failed_of(payload: bytes, message_ids: Sequence[str]) -> set[str]:
    """Return the messages that a partial batch response leaves in the queue.

    These are all messages if the response is invalid or names an unknown message: no message is
    deleted that may not have been processed.
    """
    everything = set(message_ids)
    try:
        answer = json.loads(payload)
    except ValueError:
        return everything
    if answer is None or answer == "":
        return set()
    if not isinstance(answer, Mapping):
        return everything
    failures = answer.get("batchItemFailures")
    if failures is None:
        return set()
    if not isinstance(failures, list):
        return everything
    failed = {_identifier(failure) for failure in failures}
    return everything & failed if failed <= everything else everything


def _identifier(failure: object) -> str | None:
    name = failure.get("itemIdentifier") if isinstance(failure, Mapping) else None
    return name if isinstance(name, str) else None


def _record(message: "MessageTypeDef", queue_arn: str, region: str) -> dict[str, Any]:
    attributes = message.get("MessageAttributes", {})
    record: dict[str, Any] = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {name: _attribute(value) for name, value in attributes.items()},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region,
    }
    if "MD5OfMessageAttributes" in message:
        record["md5OfMessageAttributes"] = message["MD5OfMessageAttributes"]
    return record


def _attribute(value: "MessageAttributeValueOutputTypeDef") -> dict[str, Any]:
    found: dict[str, Any] = {
        "stringListValues": [],
        "binaryListValues": [],
        "dataType": value["DataType"],
    }
    if "StringValue" in value:
        found["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        found["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode("ascii")
    return found
