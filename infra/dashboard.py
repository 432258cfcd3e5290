"""The dashboard of a stage: alarms, throughput, lag, failures, and what costs money."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from extentflow.ledger.dynamodb_calls import JOBS_INDEX

from .alarms import OLDEST_JOB, Alarms
from .config import Stage
from .event_path import EventPath
from .functions import EventFunction
from .queues import WorkQueue
from .state import Ledger

PERIOD = Duration.minutes(5)
SPARE, HALF = 24, 12
ROWS = 6  # the height of a graph
GIB_MIB = 1_024


class Dashboard(Construct):
    """One CloudWatch dashboard, named after the stack; docs/operations.md explains its graphs."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        queues: Sequence[tuple[str, WorkQueue]],
        ledger: Ledger,
        event_path: EventPath,
        alarms: Alarms,
    ) -> None:
        super().__init__(scope, construct_id)
        self._namespace = stage.metrics_namespace
        self._queues = queues
        self._event_path = event_path
        self._functions = (
            event_path.planner,
            event_path.worker,
            event_path.reconciler,
            *_receivers(event_path),
        )
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"extentflow-{stage.name}",
            default_interval=Duration.hours(3),
            widgets=[
                [
                    cloudwatch.AlarmStatusWidget(
                        title="Alarms", width=SPARE, height=4, alarms=alarms.all
                    )
                ],
                self._throughput(),
                self._lag(),
                self._failures(),
                self._cost(ledger),
            ],
        )

    def _throughput(self) -> list[cloudwatch.IWidget]:
        return [
            _graph(
                "Throughput: records",
                [
                    self._written("worker", name)
                    for name in ("Records", "BadRecords", "FilteredRecords")
                ],
            ),
            _graph(
                "Throughput: bytes read, jobs",
                [self._written("worker", "BytesRead")],
                right=[
                    self._written("planner", "Jobs"),
                    self._written("reconciler", "Jobs", label="Jobs found by listing"),
                ],
            ),
        ]

    def _lag(self) -> list[cloudwatch.IWidget]:
        return [
            _graph(
                "Lag: oldest open job, oldest message, seconds",
                [
                    self._written("reconciler", OLDEST_JOB, "Maximum"),
                    *(
                        queue.queue.metric_approximate_age_of_oldest_message(
                            period=PERIOD, statistic="Maximum", label=f"oldest of {name}"
                        )
                        for name, queue in self._queues
                    ),
                ],
            ),
            _graph(
                "Lag: messages waiting, in work",
                [
                    metric
                    for name, queue in self._queues
                    for metric in (
                        queue.queue.metric_approximate_number_of_messages_visible(
                            period=PERIOD, statistic="Maximum", label=f"{name} waiting"
                        ),
                        queue.queue.metric_approximate_number_of_messages_not_visible(
                            period=PERIOD, statistic="Maximum", label=f"{name} in work"
                        ),
                    )
                ],
            ),
        ]

    def _failures(self) -> list[cloudwatch.IWidget]:
        services = ("planner", "worker", "reconciler")
        ours = [self._written(one, "FailedJobs", label=f"FailedJobs of {one}") for one in services]
        ours += [
            self._written("worker", "ExtentsFailed"),
            self._written("planner", "MessagesReturned", label="MessagesReturned of planner"),
            self._written("worker", "MessagesReturned", label="MessagesReturned of worker"),
            self._written("reconciler", "StalledJobs", "Maximum"),
            self._written("reconciler", "ReconciliationProblems"),
        ]
        of_lambda = [
            function.function.metric(
                name, period=PERIOD, statistic="Sum", label=f"{name} of {function.node.id.lower()}"
            )
            for name in ("Errors", "Throttles")
            for function in self._functions
        ]
        dead = [
            queue.dead.metric_approximate_number_of_messages_visible(
                period=PERIOD, statistic="Maximum", label=f"{name} dead"
            )
            for name, queue in self._queues
        ]
        responses: list[cloudwatch.IMetric] = []
        if (endpoint := self._event_path.endpoint) is not None:
            responses = [endpoint.client_errors(PERIOD), endpoint.server_errors(PERIOD)]
        return [
            _graph("Failures: jobs, extents, messages", ours),
            _graph("Failures: functions, dead letters", [*of_lambda, *responses], right=dead),
        ]

    def _cost(self, ledger: Ledger) -> list[cloudwatch.IWidget]:
        compute = [self._gib_seconds(function) for function in self._functions]
        requests = [
            queue.queue.metric_number_of_messages_received(
                period=PERIOD, statistic="Sum", label=f"{name} received"
            )
            for name, queue in self._queues
        ]
        requests += [
            function.function.metric_invocations(
                period=PERIOD, statistic="Sum", label=f"invocations of {function.node.id.lower()}"
            )
            for function in self._functions
        ]
        requests.append(self._written("reconciler", "KeysListed"))
        units = [
            cloudwatch.Metric(
                namespace="AWS/DynamoDB",
                metric_name=metric,
                dimensions_map=dimensions,
                period=PERIOD,
                statistic="Sum",
                label=f"{metric.removeprefix('Consumed')} of {place}",
            )
            for metric in ("ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits")
            for place, dimensions in _places(ledger).items()
        ]
        return [
            _graph("Cost: Lambda, GiB seconds", compute),
            _graph("Cost: requests", requests),
            _graph("Cost: DynamoDB, capacity units", units, width=SPARE),
        ]

    def _gib_seconds(self, function: EventFunction) -> cloudwatch.IMetric:
        duration = function.function.metric_duration(period=PERIOD, statistic="Sum")
        name = function.node.id.lower()
        return cloudwatch.MathExpression(
            expression=f"{name} / 1000 * {function.memory_mib / GIB_MIB:g}",
            using_metrics={name: duration},
            period=PERIOD,
            label=name,
        )

    def _written(
        self, service: str, metric: str, statistic: str = "Sum", *, label: str | None = None
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=self._namespace,
            metric_name=metric,
            dimensions_map={"service": service},
            period=PERIOD,
            statistic=statistic,
            label=label,
        )


def _graph(
    title: str,
    left: Sequence[cloudwatch.IMetric],
    *,
    right: Sequence[cloudwatch.IMetric] = (),
    width: int = HALF,
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title, left=list(left), right=list(right), width=width, height=ROWS
    )


def _places(ledger: Ledger) -> Mapping[str, Mapping[str, str]]:
    """Return the dimensions of the table's own consumption, and of its index's."""
    table = {"TableName": ledger.table.table_name}
    return {"table": table, "index": {**table, "GlobalSecondaryIndexName": JOBS_INDEX}}


def _receivers(event_path: EventPath) -> tuple[EventFunction, ...]:
    return () if event_path.receiver is None else (event_path.receiver,)
