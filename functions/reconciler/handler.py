"""Reconciler: run by a schedule, mends what events, messages, planners and workers left undone.

What it does not get done in time, the next run goes on with.
"""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.reconciliation import Reconciliation, Report
from extentflow.wiring import Site
from extentflow.wiring.announcing import ANNOUNCING_SECONDS
from extentflow.wiring.functions import Deadline, open_reconciliation

# Enough for the step at hand; announcing to somebody who is away takes longest.
MARGIN_SECONDS = ANNOUNCING_SECONDS + 5.0

logger = Logger()
metrics = Metrics()
deadline = Deadline()


@cache
def reconciliation() -> Reconciliation:
    """Return the environment's reconciliation."""
    return open_reconciliation(
        Site.from_environment(), late=lambda: deadline.seconds_left() < MARGIN_SECONDS
    )


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - AWS's
    """Do one run; return what it did."""
    deadline.start(context.get_remaining_time_in_millis() / 1000)
    report = reconciliation().run()
    tell(report)
    return report.to_log()


def tell(report: Report) -> None:
    """Write the run's one log line, and its metrics."""
    logger.info("reconciliation", extra=report.to_log())
    metrics.add_metric("SlotsRecovered", MetricUnit.Count, report.slots_recovered)
    metrics.add_metric("JobsResumed", MetricUnit.Count, report.jobs_resumed)
    metrics.add_metric("JobsClosed", MetricUnit.Count, report.jobs_closed)
    metrics.add_metric("FailedJobs", MetricUnit.Count, report.jobs_failed)
    metrics.add_metric("StalledJobs", MetricUnit.Count, report.jobs_stalled)
    metrics.add_metric("MessagesResent", MetricUnit.Count, report.messages_resent)
    metrics.add_metric("KeysListed", MetricUnit.Count, report.keys_listed)
    metrics.add_metric("Jobs", MetricUnit.Count, report.jobs_new)
    metrics.add_metric("EndsAnnounced", MetricUnit.Count, report.ends_announced)
    metrics.add_metric("ReconciliationProblems", MetricUnit.Count, report.problems)
