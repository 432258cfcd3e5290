"""Create a deployment's queues on the SQS server."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from extentflow_local.aws.event_source.deployment import Queue

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType


def create_queues(client: "SQSClient", queues: Iterable[Queue]) -> None:
    """Create the queues, dead letter queues first; existing ones stay unchanged."""
    for queue in sorted(queues, key=lambda one: one.redrive is not None):
        attributes = _attributes(queue)
        try:
            client.create_queue(QueueName=queue.name, Attributes=attributes)
        except client.exceptions.QueueNameExists:
            client.set_queue_attributes(QueueUrl=queue.url, Attributes=attributes)


def _attributes(queue: Queue) -> "Mapping[QueueAttributeNameType, str]":
    found: dict[QueueAttributeNameType, str] = {
        "DelaySeconds": str(queue.delay_seconds),
        "MessageRetentionPeriod": str(queue.retention_seconds),
        "ReceiveMessageWaitTimeSeconds": str(queue.wait_seconds),
        "VisibilityTimeout": str(queue.visibility_seconds),
    }
    if queue.redrive is not None:
        policy = {
            "deadLetterTargetArn": queue.redrive.arn,
            "maxReceiveCount": queue.redrive.most_receives,
        }
        found["RedrivePolicy"] = json.dumps(policy)
    return found
