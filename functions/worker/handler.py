"""Worker: delivers the extent of one message of the extents queue.

Slot, producer, clients and footers live as long as the execution environment. Each claim checks
them again, because an environment may have been frozen for hours.
"""

import time
from dataclasses import asdict
from functools import cache
from typing import Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.aws.function_metrics import FunctionMetrics
from extentflow.aws.trace_segments import send_subsegment
from extentflow.metric_table import (
    BAD_RECORDS,
    BYTES_READ,
    EXTENT_SECONDS,
    EXTENTS_DELIVERED,
    EXTENTS_FAILED,
    FAILED_JOBS,
    FILTERED_RECORDS,
    MESSAGES_DEAD,
    MESSAGES_RETURNED,
    OBJECTS_DELIVERED,
    RECORDS,
)
from extentflow.model import Extent, JobState, Outcome, Receipt
from extentflow.queue import Message
from extentflow.queue.consumer import MessageDisposition, QueueWorker
from extentflow.wiring import Runtime
from extentflow.wiring.extents import prepare_process
from extentflow.wiring.functions import Deadline, measured_connectors, open_queue_worker
from extentflow.work_context import label_lines, traced

# Time to commit the sent records and hand the extent back, with a slow broker.
MARGIN_SECONDS = 25.0

logger = Logger()
label_lines(logger.registered_handler)
metrics = FunctionMetrics(measured_connectors)
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
@metrics.written()
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
    started = time.time()
    with traced(record.attributes.aws_trace_header):
        try:
            found = worker().handle(message)
        except Exception:  # the batch processor does not log it
            metrics.add({MESSAGES_RETURNED: 1})
            logger.exception("message %s is delivered again: unexpected error", message.id)
            raise
        count_message(found)
        if found.extent is not None:
            log_extent(found.extent, found.receipt, started)
    if found.again_seconds is not None:
        worker().queue.delay(message, found.again_seconds)
        raise Redelivered(f"message {message.id} is delivered again in {found.again_seconds:.0f} s")


def count_message(found: MessageDisposition) -> None:
    """Count what became of a message and its job."""
    ended = None if found.ended is None else found.ended.state
    counted = {
        MESSAGES_RETURNED: found.error,
        MESSAGES_DEAD: found.dead,
        FAILED_JOBS: ended is JobState.FAILED,
        OBJECTS_DELIVERED: ended is JobState.DONE,
    }
    metrics.add(counted, connector=found.extent.connector if found.extent else "")


def log_extent(extent: Extent, receipt: Receipt | None, started: float) -> None:
    """Write the log line and the metrics of an attempt, and find its trace by its object."""
    logger.set_correlation_id(extent.job)
    if receipt is not None:
        logger.info("extent", extra=_line(extent, receipt))
        counted = {
            RECORDS: receipt.records,
            BAD_RECORDS: receipt.bad,
            FILTERED_RECORDS: receipt.filtered,
            BYTES_READ: receipt.bytes_read,
            EXTENT_SECONDS: receipt.seconds,
            EXTENTS_DELIVERED: receipt.outcome is Outcome.DONE,
            EXTENTS_FAILED: receipt.outcome is Outcome.FAILED,
        }
        metrics.add(counted, connector=extent.connector)
    send_subsegment(
        "extent",
        started=started,
        failed=receipt is not None and receipt.outcome is Outcome.FAILED,
        connector=extent.connector,
        job=extent.job,
        extent=extent.ordinal,
        object=extent.version.uri,
    )


def _line(extent: Extent, receipt: Receipt) -> dict[str, object]:
    return {"connector": extent.connector, "extent": extent.ordinal, **asdict(receipt)}
