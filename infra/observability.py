"""Alarms, with their thresholds and metrics; docs/operations.md says what to do about each."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.functions import METRICS_NAMESPACE
from infra.queues import WorkQueue

FAILED_JOBS = "FailedJobs"
STALLED_JOBS = "StalledJobs"
RUN_ENDED = "ReconciliationProblems"  # written by every completed invocation, usually as 0

WAITED_MINUTES = 15
PERIOD = Duration.minutes(5)
SILENCE = Duration.hours(1)


class Alarms(Construct):
    """One alarm per kind of failure, with a topic as action where the stage names one."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        queues: Sequence[tuple[str, WorkQueue]],
        topic_arn: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._topic = sns.Topic.from_topic_arn(self, "Topic", topic_arn) if topic_arn else None
        for name, queue in queues:
            self._waiting(name, queue.queue)
            self._dead(name, queue.dead)
        self._counted(
            FAILED_JOBS, ("planner", "worker", "reconciler"), "a job ended FAILED; see its reason"
        )
        self._counted(STALLED_JOBS, ("reconciler",), "a job makes no progress")
        self._silent("reconciler", RUN_ENDED)

    def _waiting(self, name: str, queue: sqs.IQueue) -> None:
        self._alarm(
            f"{name}Wait",
            queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum"),
            f"the oldest message of {name} is older than {WAITED_MINUTES} minutes",
            threshold=WAITED_MINUTES * 60,
        )

    def _dead(self, name: str, queue: sqs.IQueue) -> None:
        self._alarm(
            f"{name}Dead",
            queue.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum"),
            f"the dead letter queue of {name} holds messages; they are deleted after 14 days",
            threshold=0,
        )

    def _counted(self, metric: str, services: Sequence[str], meaning: str) -> None:
        """Alarm on a metric that several functions write, each under its own name."""
        written = {service: _written(service, metric, PERIOD, "Sum") for service in services}
        total = " + ".join(f"FILL({service}, 0)" for service in services)
        watched = cloudwatch.MathExpression(
            expression=total, using_metrics=dict(written), period=PERIOD, label=metric
        )
        self._alarm(metric, watched, meaning, threshold=0)

    def _silent(self, service: str, metric: str) -> None:
        """Alarm on missing data: the function must write the metric regularly."""
        written = _written(service, metric, SILENCE, "SampleCount")
        meaning = f"no invocation of the {service} completed within an hour"
        self._alarm(f"{service.capitalize()}Silent", written, meaning, threshold=1, least=True)

    def _alarm(
        self,
        alarm_id: str,
        metric: cloudwatch.IMetric,
        meaning: str,
        *,
        threshold: float,
        least: bool = False,
    ) -> None:
        """Create an alarm: above `threshold`, or, where that is the `least`, below it."""
        operator, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            self,
            alarm_id,
            alarm_description=f"extentflow: {meaning}",
            metric=metric,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=(
                operator.LESS_THAN_THRESHOLD if least else operator.GREATER_THAN_THRESHOLD
            ),
            treat_missing_data=missing.BREACHING if least else missing.NOT_BREACHING,
        )
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
            alarm.add_ok_action(actions.SnsAction(self._topic))


def _written(service: str, metric: str, period: Duration, statistic: str) -> cloudwatch.Metric:
    """Return a metric of one function, under its service name."""
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=metric,
        dimensions_map={"service": service},
        period=period,
        statistic=statistic,
    )
