"""Reconciler: a scheduled function that finds missed objects and resumes stalled jobs and slots.

The next run continues where the time of this one ended. It also receives the events of Spark runs
that ended.
"""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.aws.function_metrics import FunctionMetrics
from extentflow.discovery.reconciler import Reconciler
from extentflow.discovery.report import Report
from extentflow.engines.remote import RunState
from extentflow.metric_table import (
    ENDS_PUBLISHED,
    FAILED_JOBS,
    JOBS,
    JOBS_CLOSED,
    JOBS_RESUMED,
    KEYS_LISTED,
    MESSAGES_RESENT,
    OBJECTS_DELIVERED,
    OLDEST_JOB,
    PROBLEMS,
    SLOTS_RECOVERED,
    STALLED_JOBS,
    MetricEntry,
)
from extentflow.queue.routing import JobRouter
from extentflow.wiring import Runtime
from extentflow.wiring.functions import (
    PUBLISHING_SECONDS,
    Deadline,
    measured_connectors,
    open_job_router,
    open_reconciler,
)
from extentflow.work_context import label_lines, traced, working_on

# Enough for the current step; publishing to an unavailable event bus takes longest.
MARGIN_SECONDS = PUBLISHING_SECONDS + 5.0
RUNS = "aws.emr-serverless"

logger = Logger()
label_lines(logger.registered_handler)
metrics = FunctionMetrics(measured_connectors)
deadline = Deadline()


@cache
def runtime() -> Runtime:
    """Open the clients of this execution environment."""
    return Runtime.from_environment()


@cache
def reconciler() -> Reconciler:
    """Open the reconciler of this execution environment."""
    return open_reconciler(runtime(), late=lambda: deadline.seconds_left() < MARGIN_SECONDS)


@cache
def job_router() -> JobRouter:
    """Open the router that maps Spark runs to their jobs."""
    return open_job_router(runtime())


@logger.inject_lambda_context
@metrics.written()
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Reconcile once and return the report; for the end of a Spark run, process that run only."""
    deadline.start(context.get_remaining_time_in_millis() / 1000)
    with traced(None):
        if event.get("source") == RUNS:
            return run_ended(event["detail"]["jobRunId"], RunState(event["detail"]["state"]))
        report = reconciler().run()
        log_report(report)
        return report.to_log()


def run_ended(run: str, state: RunState) -> dict[str, Any]:
    """Queue the remaining extents of a Spark run, or start the next run of a backfill."""
    sent = job_router().ended(run, state, late=lambda: deadline.seconds_left() < MARGIN_SECONDS)
    logger.info("run ended", extra={"run": run, "state": state, "messages_resent": sent})
    metrics.add({MESSAGES_RESENT: sent})
    return {"run": run, "messages_resent": sent}


def log_report(report: Report) -> None:
    """Write the run's log line and metrics, and those of each connector that has any."""
    logger.info("reconciliation", extra=report.to_log())
    metrics.add(values_of(report))
    for name, part in report.by_connector.items():
        with working_on(connector=name):
            done = {field: value for field, value in part.to_log().items() if value}
            logger.info("reconciliation of a connector", extra=done)
        metrics.add(values_of(part), connector=name, total=False)


def values_of(report: Report) -> dict[MetricEntry, float]:
    """Return what a report says, by metric."""
    return {
        SLOTS_RECOVERED: report.slots_recovered,
        JOBS_RESUMED: report.jobs_resumed,
        JOBS_CLOSED: report.jobs_closed,
        FAILED_JOBS: report.jobs_failed,
        OBJECTS_DELIVERED: report.jobs_done,
        STALLED_JOBS: report.jobs_stalled,
        MESSAGES_RESENT: report.messages_resent,
        KEYS_LISTED: report.keys_listed,
        JOBS: report.jobs_new,
        ENDS_PUBLISHED: report.ends_published,
        OLDEST_JOB: report.oldest_open_seconds,
        PROBLEMS: report.problems,
    }
