"""Alarms, with their thresholds and metrics; docs/operations.md says what to do about each."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from extentflow.metric_table import (
    FAILED_JOBS,
    MESSAGES_RETURNED,
    OLDEST_JOB,
    PROBLEMS,
    SERVICE,
    STALLED_JOBS,
    MetricEntry,
)

from .config import Stage
from .event_path import EventPath
from .findings import explain
from .functions import EventFunction
from .queues import WorkQueue

WAITED_MINUTES = 15
PERIOD = Duration.minutes(5)
SILENCE = Duration.hours(1)
# Where a permission or a network path is missing, the only message of a first upload returns every
# three minutes to the planner: a number of returns within five minutes would never be reached. A
# broker's restart returns messages within a minute or two.
RETURNS_WITHIN_MINUTES, RETURNS_IN_MINUTES = 10, 3
# A scanner of addresses is refused, too, but comes and goes. A sender with a wrong key keeps
# sending, some of them a few times an hour.
REFUSED_PERCENT, REFUSED_WITHIN_PERIODS, REFUSED_IN_PERIODS = 50, 12, 3


class Alarms(Construct):
    """One alarm per kind of failure.

    `all` of them notify the stage's topic, or one that is created here.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        queues: Sequence[tuple[str, WorkQueue]],
        event_path: EventPath,
    ) -> None:
        super().__init__(scope, construct_id)
        self._namespace = stage.metrics_namespace
        self.all: list[cloudwatch.IAlarm] = []
        self._topic = self._notified(stage)
        for name, queue in queues:
            self._waiting(name, queue.queue)
            self._dead(name, queue.dead)
        self._counted(FAILED_JOBS, "a job ended FAILED; see its reason")
        self._counted(STALLED_JOBS, "a job makes no progress")
        self._counted(
            MESSAGES_RETURNED,
            "messages return to their queues because of errors, such as a missing permission",
            period=Duration.minutes(1),
            periods=RETURNS_WITHIN_MINUTES,
            breaching=RETURNS_IN_MINUTES,
        )
        self._counted(PROBLEMS, "the reconciler could not check everything", periods=2)
        self._silent("reconciler", PROBLEMS)
        self._alarm(
            "OldestOpenJob",
            self._written("reconciler", OLDEST_JOB, PERIOD, "Maximum"),
            f"a job has been open for more than {stage.oldest_job_minutes} minutes",
            threshold=stage.oldest_job_minutes * 60,
        )
        functions = [event_path.planner, event_path.worker, event_path.reconciler]
        self._invocations("Errors", functions, "a function raised, timed out or ran out of memory")
        self._invocations("Throttles", functions, "the account's Lambda concurrency is used up")
        self._invocations(
            "RecursiveInvocationsDropped", functions, "Lambda dropped messages as a recursive loop"
        )
        if event_path.endpoint is not None:
            self._alarm(
                "ReceiverFails",
                event_path.endpoint.server_errors(PERIOD),
                "notifications are answered 5xx; their senders repeat them",
                threshold=0,
            )
            self._alarm(
                "ReceiverRefuses",
                share(
                    "Refused notifications, percent",
                    event_path.endpoint.client_errors(PERIOD),
                    event_path.endpoint.requests(PERIOD),
                ),
                "most notifications are answered 4xx: a key, a clock, or a flood",
                threshold=REFUSED_PERCENT,
                periods=REFUSED_WITHIN_PERIODS,
                breaching=REFUSED_IN_PERIODS,
            )

    def _notified(self, stage: Stage) -> sns.ITopic:
        if stage.alarm_topic_arn is not None:
            return sns.Topic.from_topic_arn(self, "Topic", stage.alarm_topic_arn)
        key_arn = stage.kms_key_arn
        topic = sns.Topic(
            self,
            "Topic",
            display_name=f"extentflow {stage.name}",
            enforce_ssl=True,
            master_key=kms.Key.from_key_arn(self, "Key", key_arn) if key_arn else None,
        )
        # A topic with a policy of its own no longer admits the account's alarms by itself.
        account = {"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
        alarms = iam.ServicePrincipal("cloudwatch.amazonaws.com", conditions=account)
        topic.grant_publish(alarms)
        if key_arn is None:
            explain(
                topic,
                "AwsSolutions-SNS2",
                "alarms contain no records, and CloudWatch cannot use the key that AWS manages",
            )
        if stage.alarm_email is not None:
            topic.add_subscription(subscriptions.EmailSubscription(stage.alarm_email))
        return topic

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

    def _counted(
        self,
        metric: MetricEntry,
        meaning: str,
        *,
        period: Duration = PERIOD,
        periods: int = 1,
        breaching: int | None = None,
    ) -> None:
        """Alarm on the sum of a metric over all functions that write it."""
        written = {one: self._written(one, metric, period, "Sum") for one in metric.writers}
        self._alarm(
            metric.name,
            total(metric.name, written, period),
            meaning,
            threshold=0,
            periods=periods,
            breaching=breaching,
        )

    def _invocations(self, metric: str, functions: Sequence[EventFunction], meaning: str) -> None:
        """Alarm on a metric that Lambda writes for each function."""
        written = {
            function.node.id.lower(): function.function.metric(
                metric, period=PERIOD, statistic="Sum"
            )
            for function in functions
        }
        self._alarm(metric, total(metric, written, PERIOD), meaning, threshold=0)

    def _silent(self, service: str, metric: MetricEntry) -> None:
        """Alarm on missing data: the function must write the metric regularly."""
        written = self._written(service, metric, SILENCE, "SampleCount")
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
        periods: int = 1,
        breaching: int | None = None,
    ) -> None:
        """Create an alarm: above `threshold`, or, where that is the `least`, below it.

        It rings when `breaching` of the last `periods` are so; None means all of them.
        """
        operator, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            self,
            alarm_id,
            alarm_description=f"extentflow: {meaning}",
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=breaching,
            comparison_operator=(
                operator.LESS_THAN_THRESHOLD if least else operator.GREATER_THAN_THRESHOLD
            ),
            treat_missing_data=missing.BREACHING if least else missing.NOT_BREACHING,
        )
        self.all.append(alarm)
        alarm.add_alarm_action(actions.SnsAction(self._topic))
        alarm.add_ok_action(actions.SnsAction(self._topic))

    def _written(
        self, service: str, metric: MetricEntry, period: Duration, statistic: str
    ) -> cloudwatch.Metric:
        """Return a metric of one function, under its service name."""
        return cloudwatch.Metric(
            namespace=self._namespace,
            metric_name=metric.name,
            dimensions_map={SERVICE: service},
            period=period,
            statistic=statistic,
        )


def share(
    label: str, part: cloudwatch.IMetric, whole: cloudwatch.IMetric
) -> cloudwatch.MathExpression:
    """Return the percentage of `whole` that is `part`; without data where there is no `whole`."""
    return cloudwatch.MathExpression(
        expression="100 * FILL(part, 0) / whole",
        using_metrics={"part": part, "whole": whole},
        period=PERIOD,
        label=label,
    )


def total(
    label: str, metrics: Mapping[str, cloudwatch.IMetric], period: Duration
) -> cloudwatch.MathExpression:
    """Return the sum of metrics, in which one without data counts as 0."""
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({name}, 0)" for name in metrics),
        using_metrics=dict(metrics),
        period=period,
        label=label,
    )
