"""Planner: turns messages of the arrivals queue into jobs, and sends their extents.

Idempotent: job ids absorb duplicates, and an interrupted plan resumes at its cursor when the
message is delivered again.
"""

import time
from functools import cache
from typing import Any

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
from extentflow.discovery.admission import (
    AdmissionResult,
    ArrivalHandler,
    ArrivalPaused,
    ArrivalPending,
)
from extentflow.errors import ExtentflowError
from extentflow.metric_table import (
    FAILED_JOBS,
    JOBS,
    MESSAGES_RETURNED,
    OBJECTS_DELIVERED,
    UNMATCHED_ARRIVALS,
)
from extentflow.model import Job, JobState
from extentflow.wiring import Runtime
from extentflow.wiring.functions import Deadline, measured_connectors, open_arrival_handler
from extentflow.work_context import label_lines, traced, working_on

# Enough to send one more page of extents and to remember it, even if one of the two has to wait.
MARGIN_SECONDS = 30.0
# A batch shares one deadline: its next message may wait for a store, a table and brokers.
BEGIN_SECONDS = 60.0

logger = Logger()
label_lines(logger.registered_handler)
metrics = FunctionMetrics(measured_connectors)
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
deadline = Deadline()


@cache
def arrival_handler() -> ArrivalHandler:
    """Open the handler of this execution environment."""
    return open_arrival_handler(
        Runtime.from_environment(), late=lambda: deadline.seconds_left() < MARGIN_SECONDS
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
    """Plan the objects of one message; after an error, the queue delivers it again.

    A message whose batch has too little time left is also delivered again, except the first one.
    """
    others = processor.success_messages or processor.fail_messages
    if others and deadline.seconds_left() < BEGIN_SECONDS:
        raise ArrivalPending(f"message {record.message_id}: its batch has too little time left")
    started = time.time()
    with traced(record.attributes.aws_trace_header):
        for received in take(record):
            metrics.add({UNMATCHED_ARRIVALS: received.unmatched})
            for job in received.jobs:
                log_job(job, started)


def log_job(job: Job, started: float) -> None:
    """Write the log line and the metrics of one job, and find its trace by its object."""
    logger.set_correlation_id(job.id)
    with working_on(connector=job.connector, job=job.id):
        logger.info("job", extra={"state": job.state, "uri": job.version.uri})
    # A redelivered arrival can belong to a job whose event is already published.
    ended = None if job.published else job.state
    counted = {
        JOBS: 1,
        FAILED_JOBS: ended is JobState.FAILED,
        OBJECTS_DELIVERED: ended is JobState.DONE,
    }
    metrics.add(counted, connector=job.connector)
    send_subsegment(
        "object",
        started=started,
        failed=ended is JobState.FAILED,
        connector=job.connector,
        job=job.id,
        object=job.version.uri,
    )


def take(record: SQSRecord) -> list[AdmissionResult]:
    """Process one message; log and count an error that returns it to the queue."""
    count = int(record.attributes.approximate_receive_count)
    try:
        return arrival_handler().take(record.body, received=count)
    except Exception as exc:
        # What a person wanted rings no alarm.
        metrics.add({MESSAGES_RETURNED: not isinstance(exc, ArrivalPaused)})
        expected = isinstance(exc, ExtentflowError)
        logger.warning(
            "message %s is delivered again: %r", record.message_id, exc, exc_info=not expected
        )
        raise
