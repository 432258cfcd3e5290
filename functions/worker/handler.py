"""Worker: delivers the extent of one message of the extents queue.

Slot, producer, clients and footers live as long as the execution environment. Each claim checks
them again, because an environment may have been frozen for hours.
"""

import os
from dataclasses import asdict
from functools import cache
from typing import Any
from uuid import uuid4

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

from extentflow.model import JobState, Outcome, Receipt
from extentflow.queue import Message
from extentflow.queue.consumer import QueueWorker
from extentflow.wiring import Runtime
from extentflow.wiring.extents import prepare_process
from extentflow.wiring.functions import Deadline, open_queue_worker

# Time to commit the sent records and hand the extent back, with a slow broker.
MARGIN_SECONDS = 25.0

logger = Logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
deadline = Deadline()


class Redelivered(Exception):  # noqa: N818 - an outcome
    """The extent is not final; the queue delivers the message again."""


@cache
def worker() -> QueueWorker:
    """Open the worker of this execution environment."""
    prepare_process()
    runtime = Runtime.from_environment()
    return open_queue_worker(
        runtime,
        # Made at first use: environments restored from one snapshot would share an earlier name.
        runtime.slots(f"lambda-{uuid4().hex}"),
        seconds_left=deadline.seconds_left,
        margin_seconds=MARGIN_SECONDS,
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
    """Process one message.

    Raises:
        Redelivered: the extent is not final, so the queue must deliver the message again.
    """
    message = Message(
        id=record.message_id,
        body=record.body,
        handle=record.receipt_handle,
        received=int(record.attributes.approximate_receive_count),
    )
    try:
        found = worker().handle(message)
    except Exception:  # the batch processor does not log it
        count_failures("MessagesReturned", 1)
        logger.exception("message %s is delivered again: unexpected error", message.id)
        raise
    count_failures("MessagesReturned", found.error)
    if found.receipt is not None:
        log_receipt(found.receipt)
    failed = found.ended is not None and found.ended.state is JobState.FAILED
    count_failures("FailedJobs", failed)
    if found.again_seconds is not None:
        worker().queue.delay(message, found.again_seconds)
        raise Redelivered(f"message {message.id} is delivered again in {found.again_seconds:.0f} s")


def log_receipt(receipt: Receipt) -> None:
    """Write the extent's one log line and its metrics."""
    logger.set_correlation_id(receipt.job)
    logger.info("extent", extra=asdict(receipt))
    metrics.add_metric("Records", MetricUnit.Count, receipt.records)
    metrics.add_metric("BadRecords", MetricUnit.Count, receipt.bad)
    metrics.add_metric("FilteredRecords", MetricUnit.Count, receipt.filtered)
    metrics.add_metric("BytesRead", MetricUnit.Bytes, receipt.bytes_read)
    metrics.add_metric("ExtentSeconds", MetricUnit.Seconds, receipt.seconds)
    metrics.add_metric("ExtentsFailed", MetricUnit.Count, receipt.outcome is Outcome.FAILED)


def count_failures(metric: str, count: int) -> None:
    """Count failures; those of a published version also by its number.

    A gradual deployment compares the versions.
    """
    metrics.add_metric(metric, MetricUnit.Count, count)
    version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
    if count and version != "$LATEST":
        with single_metric(name=metric, unit=MetricUnit.Count, value=count) as counted:
            counted.add_dimension("version", version)
