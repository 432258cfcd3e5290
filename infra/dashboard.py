"""The dashboard of a stage: alarms, throughput, lag, failures, and what costs money."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from extentflow.ledger.dynamodb_calls import JOBS_INDEX
from extentflow.metric_table import (
    BAD_RECORDS,
    BYTES_READ,
    CONNECTOR,
    EXTENT_SECONDS,
    EXTENTS_DELIVERED,
    EXTENTS_FAILED,
    FAILED_JOBS,
    FILTERED_RECORDS,
    JOBS,
    KEYS_LISTED,
    MESSAGES_DEAD,
    MESSAGES_RETURNED,
    OBJECTS_DELIVERED,
    OLDEST_JOB,
    PLANNER,
    PROBLEMS,
    RECONCILER,
    RECORDS,
    SERVICE,
    STALLED_JOBS,
    WORKER,
    MetricEntry,
)

from .alarms import Alarms
from .config import Stage
from .event_path import EventPath
from .functions import EventFunction
from .queues import WorkQueue
from .state import Ledger

PERIOD = Duration.minutes(5)
SPARE, HALF = 24, 12
ROWS = 6  # the height of a graph
GIB_MIB = 1_024
# The fields are those of the line that the worker writes for each attempt: a receipt's.
BY_CONNECTOR = (
    'filter message = "extent"',
    (
        "stats sum(records) as Records, sum(bad) as Bad, sum(bytes_read) as Bytes,"
        " count(*) as Attempts, sum(outcome = 'FAILED') as Failed, avg(seconds) as Seconds"
        " by connector"
    ),
    "sort Bytes desc",
)
OF_CONNECTORS: Mapping[str, Sequence[tuple[MetricEntry, str]]] = {
    "Connectors: records": [(RECORDS, "Sum"), (BAD_RECORDS, "Sum")],
    "Connectors: bytes read": [(BYTES_READ, "Sum")],
    "Connectors: objects, extents": [(OBJECTS_DELIVERED, "Sum"), (EXTENTS_DELIVERED, "Sum")],
    "Connectors: oldest open job, extents, seconds": [
        (OLDEST_JOB, "Maximum"),
        (EXTENT_SECONDS, "Average"),
    ],
    "Connectors: failures": [
        (FAILED_JOBS, "Sum"),
        (EXTENTS_FAILED, "Sum"),
        (MESSAGES_DEAD, "Sum"),
    ],
}


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
                self._connectors(measured=bool(stage.worker_settings().metrics_connectors)),
                self._cost(ledger),
            ],
        )

    def _throughput(self) -> list[cloudwatch.IWidget]:
        return [
            _graph(
                "Throughput: records",
                [
                    self._written(WORKER, metric)
                    for metric in (RECORDS, BAD_RECORDS, FILTERED_RECORDS)
                ],
            ),
            _graph(
                "Throughput: bytes read, jobs",
                [self._written(WORKER, BYTES_READ)],
                right=[
                    self._written(PLANNER, JOBS),
                    self._written(RECONCILER, JOBS, label="Jobs found by listing"),
                ],
            ),
        ]

    def _lag(self) -> list[cloudwatch.IWidget]:
        return [
            _graph(
                "Lag: oldest open job, oldest message, seconds",
                [
                    self._written(RECONCILER, OLDEST_JOB, "Maximum"),
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
        ours = [
            self._written(one, metric, label=f"{metric.name} of {one}")
            for metric in (FAILED_JOBS, MESSAGES_RETURNED)
            for one in metric.writers
        ]
        ours += [
            self._written(WORKER, EXTENTS_FAILED),
            self._written(WORKER, MESSAGES_DEAD),
            self._written(RECONCILER, STALLED_JOBS, "Maximum"),
            self._written(RECONCILER, PROBLEMS),
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

    def _connectors(self, *, measured: bool) -> list[cloudwatch.IWidget]:
        """Show each connector: from the logs, and where it has metrics of its own, as graphs."""
        widgets: list[cloudwatch.IWidget] = [
            cloudwatch.LogQueryWidget(
                title="Connectors: from the log of the worker",
                log_group_names=[self._event_path.worker.log_group_name],
                query_lines=list(BY_CONNECTOR),
                width=SPARE,
                height=ROWS,
            )
        ]
        if measured:
            widgets += [
                _graph(title, [self._each(metric, statistic) for metric, statistic in shown])
                for title, shown in OF_CONNECTORS.items()
            ]
        return widgets

    def _each(self, metric: MetricEntry, statistic: str) -> cloudwatch.IMetric:
        """Return a metric of all connectors, each a line of its own."""
        found = f'{{"{self._namespace}",{CONNECTOR}}} MetricName="{metric.name}"'
        return cloudwatch.MathExpression(
            expression=f"SEARCH('{found}', '{statistic}', {PERIOD.to_seconds():g})",
            using_metrics={},
            period=PERIOD,
            label=metric.name,
        )

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
        requests.append(self._written(RECONCILER, KEYS_LISTED))
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
        self, service: str, metric: MetricEntry, statistic: str = "Sum", *, label: str | None = None
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=self._namespace,
            metric_name=metric.name,
            dimensions_map={SERVICE: service},
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
