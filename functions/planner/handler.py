"""Planner: turns messages of the arrivals queue into jobs, and sends their extents.

Idempotent: job ids absorb duplicates, and an interrupted plan resumes at its cursor when the
message is delivered again.
"""

import os
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.discovery.admission import (
    AdmissionResult,
    ArrivalHandler,
    ArrivalPaused,
    ArrivalPending,
)
from extentflow.errors import ExtentflowError
from extentflow.model import JobState
from extentflow.wiring import Runtime
from extentflow.wiring.functions import Deadline, open_arrival_handler

# Enough to send one more page of extents and to remember it, even if one of the two has to wait.
MARGIN_SECONDS = 30.0
# A batch shares one deadline: its next message may wait for a store, a table and brokers.
BEGIN_SECONDS = 60.0

logger = Logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
deadline = Deadline()


@cache
def arrival_handler() -> ArrivalHandler:
    """Open the handler of this execution environment."""
    return open_arrival_handler(
        Runtime.from_environment(), late=lambda: deadline.seconds_left() < MARGIN_SECONDS
    )


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Process a batch of messages; each one succeeds or fails independently."""
    deadline.start(context.get_remaining_time_in_millis() / 1000)
    return process_partial_response(
        event=event, record_handler=process, processor=processor, context=context
    )


def process(record: SQSRecord) -> None:
    """Plan the objects of one message; after an error, the queue delivers it again.

    A message whose batch has too little time left is also delivered again, except the first one.
    """
    others = processor.success_messages or processor.fail_messages
    if others and deadline.seconds_left() < BEGIN_SECONDS:
        raise ArrivalPending(f"message {record.message_id}: its batch has too little time left")
    for received in take(record):
        metrics.add_metric("UnmatchedArrivals", MetricUnit.Count, received.unmatched)
        for job in received.jobs:
            logger.set_correlation_id(job.id)
            logger.info("job", extra={"state": job.state, "uri": job.version.uri})
            metrics.add_metric("Jobs", MetricUnit.Count, 1)
            # A redelivered arrival can belong to a job whose event is already published.
            failed = job.state is JobState.FAILED and not job.published
            count_failures("FailedJobs", failed)


def take(record: SQSRecord) -> list[AdmissionResult]:
    """Process one message; log and count an error that returns it to the queue."""
    count = int(record.attributes.approximate_receive_count)
    try:
        return arrival_handler().take(record.body, received=count)
    except Exception as exc:
        returned = not isinstance(exc, ArrivalPaused)  # what a person wanted rings no alarm
        count_failures("MessagesReturned", returned)
        expected = isinstance(exc, ExtentflowError)
        logger.warning(
            "message %s is delivered again: %r", record.message_id, exc, exc_info=not expected
        )
        raise


def count_failures(metric: str, count: int) -> None:
    """Count failures; those of a published version also by its number.

    A gradual deployment compares the versions.
    """
    metrics.add_metric(metric, MetricUnit.Count, count)
    version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
    if count and version != "$LATEST":
        with single_metric(name=metric, unit=MetricUnit.Count, value=count) as counted:
            counted.add_dimension("version", version)
