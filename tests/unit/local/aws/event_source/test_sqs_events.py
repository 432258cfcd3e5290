"""Messages as functions get them, and what functions say about them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from extentflow_local.aws.event_source.sqs_events import event_of, failed_of

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

ARN = "arn:aws:sqs:eu-central-1:111122223333:arrivals"
EVENT_FILE = Path(__file__).parents[5] / "events" / "sqs-aws-s3.json"


def message(**more: Any) -> "MessageTypeDef":  # noqa: ANN401 - members of a message
    return {
        "MessageId": "id-1",
        "ReceiptHandle": "handle",
        "Body": "späße",
        "MD5OfBody": "md5",
        "Attributes": {"ApproximateReceiveCount": "2", "SentTimestamp": "1795169699102"},
        **more,  # type: ignore[typeddict-item]
    }


def test_a_record_has_the_shape_that_lambda_gives_it() -> None:
    expected = json.loads(EVENT_FILE.read_text())["Records"][0]

    (record,) = json.loads(event_of([message()], queue_arn=ARN))["Records"]

    assert record.keys() == expected.keys()
    assert record == {
        "messageId": "id-1",
        "receiptHandle": "handle",
        "body": "späße",
        "attributes": {"ApproximateReceiveCount": "2", "SentTimestamp": "1795169699102"},
        "messageAttributes": {},
        "md5OfBody": "md5",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN,
        "awsRegion": "eu-central-1",
    }


def test_message_attributes_are_written_as_lambda_writes_them() -> None:
    given = {
        "why": {"DataType": "String", "StringValue": "too large"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }

    event = event_of([message(MessageAttributes=given, MD5OfMessageAttributes="m")], queue_arn=ARN)

    (record,) = json.loads(event)["Records"]
    empty: dict[str, list[str]] = {"stringListValues": [], "binaryListValues": []}
    assert record["messageAttributes"] == {
        "why": {"dataType": "String", "stringValue": "too large", **empty},
        "raw": {"dataType": "Binary", "binaryValue": "AP8=", **empty},
    }
    assert record["md5OfMessageAttributes"] == "m"


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("null", set()),
        ('""', set()),
        ("{}", set()),
        ('{"batchItemFailures": null}', set()),
        ('{"batchItemFailures": []}', set()),
        ('{"batchItemFailures": [{"itemIdentifier": "b"}]}', {"b"}),
        ('{"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "a"}]}', {"a"}),
        # Such a response does not prove that any message was processed.
        ("not json", {"a", "b"}),
        ('"text"', {"a", "b"}),
        ("[]", {"a", "b"}),
        ('{"batchItemFailures": "b"}', {"a", "b"}),
        ('{"batchItemFailures": ["b"]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": ""}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": null}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": ["b"]}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"id": "b"}]}', {"a", "b"}),
        ('{"batchItemFailures": [{"itemIdentifier": "c"}]}', {"a", "b"}),
    ],
)
def test_partial_batch_responses_follow_lambdas_rules(answer: str, failed: set[str]) -> None:
    assert failed_of(answer.encode(), ["a", "b"]) == failed
