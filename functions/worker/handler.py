"""Fan-out worker: delivers the extent that one message of the extents queue asks for.

Slot, producer, clients and footers live as long as the environment; claiming re-checks all of it,
because an environment may have been frozen for hours.
"""

from functools import cache
from typing import Any
from uuid import uuid4

from aws_lambda_powertools import Logger, Metrics
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

# Commits what was sent and hands the extent back: a slow broker has this long.
MARGIN_SECONDS = 25.0

logger = Logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
deadline = Deadline()


class ComesBack(Exception):  # noqa: N818 - an outcome
    """The message is not over; the queue delivers it again."""


@cache
def worker() -> QueueWorker:
    """Become a worker; its name is made at first use, never part of a snapshot."""
    prepare_process()
    return open_queue_worker(
        Runtime.from_environment(),
        f"lambda-{uuid4().hex}",
        seconds_left=deadline.seconds_left,
        margin_seconds=MARGIN_SECONDS,
    )


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    """Answer a batch of messages, each on its own."""
    deadline.start(context.get_remaining_time_in_millis() / 1000)
    return process_partial_response(
        event=event, record_handler=answer, processor=processor, context=context
    )


def answer(record: SQSRecord) -> None:
    """Deal with one message; raise when it has to come back."""
    message = Message(
        id=record.message_id,
        body=record.body,
        handle=record.receipt_handle,
        received=int(record.attributes.approximate_receive_count),
    )
    try:
        found = worker().handle(message)
    except Exception:  # the batch processor does not log it
        metrics.add_metric("MessagesReturned", MetricUnit.Count, 1)
        logger.exception("message %s comes back: unexpected error", message.id)
        raise
    if found.receipt is not None:
        tell(found.receipt)
    failed = found.ended is not None and found.ended.state is JobState.FAILED
    metrics.add_metric("FailedJobs", MetricUnit.Count, failed)
    if found.again_seconds is not None:
        worker().queue.delay(message, found.again_seconds)
        raise ComesBack(f"message {message.id} comes back in {found.again_seconds:.0f} s")


def tell(receipt: Receipt) -> None:
    """Write the extent's one log line, and its metrics."""
    logger.set_correlation_id(receipt.job)
    logger.info("extent", extra=receipt.to_log())
    metrics.add_metric("Records", MetricUnit.Count, receipt.records)
    metrics.add_metric("BadRecords", MetricUnit.Count, receipt.bad)
    metrics.add_metric("BytesRead", MetricUnit.Bytes, receipt.bytes_read)
    metrics.add_metric("ExtentSeconds", MetricUnit.Seconds, receipt.seconds)
    metrics.add_metric("ExtentsFailed", MetricUnit.Count, receipt.outcome is Outcome.FAILED)
