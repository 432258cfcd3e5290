"""Reconciler: a scheduled function that finds missed objects and resumes stalled jobs and slots.

The next run continues where the time of this one ended. It also receives the events of Spark runs
that ended.
"""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.discovery.reconciler import Reconciler
from extentflow.discovery.report import Report
from extentflow.engines.remote import RunState
from extentflow.queue.routing import JobRouter
from extentflow.wiring import Runtime
from extentflow.wiring.functions import (
    PUBLISHING_SECONDS,
    Deadline,
    open_job_router,
    open_reconciler,
)

# Enough for the current step; publishing to an unavailable event bus takes longest.
MARGIN_SECONDS = PUBLISHING_SECONDS + 5.0
RUNS = "aws.emr-serverless"

logger = Logger()
metrics = Metrics()
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
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Reconcile once and return the report; for the end of a Spark run, process that run only."""
    deadline.start(context.get_remaining_time_in_millis() / 1000)
    if event.get("source") == RUNS:
        return run_ended(event["detail"]["jobRunId"], RunState(event["detail"]["state"]))
    report = reconciler().run()
    log_report(report)
    return report.to_log()


def run_ended(run: str, state: RunState) -> dict[str, Any]:
    """Queue the remaining extents of a Spark run, or start the next run of a backfill."""
    sent = job_router().ended(run, state, late=lambda: deadline.seconds_left() < MARGIN_SECONDS)
    logger.info("run ended", extra={"run": run, "state": state, "messages_resent": sent})
    metrics.add_metric("MessagesResent", MetricUnit.Count, sent)
    return {"run": run, "messages_resent": sent}


def log_report(report: Report) -> None:
    """Write the run's one log line and its metrics."""
    logger.info("reconciliation", extra=report.to_log())
    metrics.add_metric("SlotsRecovered", MetricUnit.Count, report.slots_recovered)
    metrics.add_metric("JobsResumed", MetricUnit.Count, report.jobs_resumed)
    metrics.add_metric("JobsClosed", MetricUnit.Count, report.jobs_closed)
    metrics.add_metric("FailedJobs", MetricUnit.Count, report.jobs_failed)
    metrics.add_metric("StalledJobs", MetricUnit.Count, report.jobs_stalled)
    metrics.add_metric("MessagesResent", MetricUnit.Count, report.messages_resent)
    metrics.add_metric("KeysListed", MetricUnit.Count, report.keys_listed)
    metrics.add_metric("Jobs", MetricUnit.Count, report.jobs_new)
    metrics.add_metric("EndsPublished", MetricUnit.Count, report.ends_published)
    metrics.add_metric("OldestOpenJobSeconds", MetricUnit.Seconds, report.oldest_open_seconds)
    metrics.add_metric("ReconciliationProblems", MetricUnit.Count, report.problems)
