"""All metrics of functions and commands: name, unit, meaning and dimensions, in one table.

    BadRecords                      in CloudWatch, written by functions; the name in this table
    extentflow_bad_records_total    for Prometheus, of commands and of the local stack
    total-records-skipped           in Kafka Connect, where it counts the same

Functions, alarms, dashboard and commands take names from here, and docs/operations.md lists them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

SERVICE, CONNECTOR, VERSION = "service", "connector", "version"
PLANNER, WORKER, RECONCILER, RECEIVER = "planner", "worker", "reconciler", "receiver"
STREAM = "stream"  # the command

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Unit(enum.StrEnum):
    """The units, as CloudWatch writes them."""

    COUNT = "Count"
    BYTES = "Bytes"
    SECONDS = "Seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEntry:
    """One metric. `writers` are functions and commands.

    Every metric of a function has the dimension `service`. With `per_connector` it also exists with
    the dimension `connector`, of the connectors in `metrics.connectors`; with `per_version` also
    with `service` and `version`, for the alarms of a gradual deployment. A `gauge` is the state at
    the end of a run, any other one a sum of what happened. `connect` is Kafka Connect's name.
    """

    name: str
    meaning: str
    writers: tuple[str, ...]
    unit: Unit = Unit.COUNT
    gauge: bool = False
    per_connector: bool = False
    per_version: bool = False
    connect: str = ""

    @property
    def prometheus(self) -> str:
        """The name for Prometheus; counters end in `_total`."""
        written = f"extentflow_{_WORD.sub('_', self.name).lower()}"
        return written if self.gauge else f"{written}_total"


JOBS: Final = MetricEntry(
    name="Jobs",
    meaning="jobs that were registered, or found again",
    writers=(PLANNER, RECONCILER),
    per_connector=True,
)
OBJECTS_DELIVERED: Final = MetricEntry(
    name="ObjectsDelivered",
    meaning="jobs that ended DONE in a function",
    writers=(PLANNER, WORKER, RECONCILER),
    per_connector=True,
)
FAILED_JOBS: Final = MetricEntry(
    name="FailedJobs",
    meaning="jobs that ended FAILED in a function",
    writers=(PLANNER, WORKER, RECONCILER),
    per_connector=True,
    per_version=True,
)
MESSAGES_RETURNED: Final = MetricEntry(
    name="MessagesReturned",
    meaning="messages that returned to their queue because of an error",
    writers=(PLANNER, WORKER),
    per_version=True,
)
MESSAGES_DEAD: Final = MetricEntry(
    name="MessagesDeadLettered",
    meaning="messages of extents that were moved to the dead letter queue",
    writers=(WORKER,),
    per_connector=True,
)
UNMATCHED_ARRIVALS: Final = MetricEntry(
    name="UnmatchedArrivals",
    meaning="announced objects that no connector reads",
    writers=(PLANNER,),
)
RECORDS: Final = MetricEntry(
    name="Records",
    meaning="records committed to Kafka",
    writers=(WORKER, STREAM),
    per_connector=True,
    connect="source-record-write-total",
)
BAD_RECORDS: Final = MetricEntry(
    name="BadRecords",
    meaning="bad records, which became dead letters or were left out",
    writers=(WORKER, STREAM),
    per_connector=True,
    connect="total-records-skipped",
)
FILTERED_RECORDS: Final = MetricEntry(
    name="FilteredRecords",
    meaning="records that transforms removed",
    writers=(WORKER, STREAM),
    per_connector=True,
)
BYTES_READ: Final = MetricEntry(
    name="BytesRead",
    meaning="bytes read from object stores",
    writers=(WORKER, STREAM),
    unit=Unit.BYTES,
    per_connector=True,
)
EXTENT_SECONDS: Final = MetricEntry(
    name="ExtentSeconds",
    meaning="duration of an attempt to deliver an extent",
    writers=(WORKER,),
    unit=Unit.SECONDS,
    per_connector=True,
)
EXTENTS_DELIVERED: Final = MetricEntry(
    name="ExtentsDelivered",
    meaning="extents that became DONE",
    writers=(WORKER,),
    per_connector=True,
)
EXTENTS_FAILED: Final = MetricEntry(
    name="ExtentsFailed",
    meaning="extents that became FAILED",
    writers=(WORKER, STREAM),
    per_connector=True,
)
SLOTS_RECOVERED: Final = MetricEntry(
    name="SlotsRecovered",
    meaning="slots of dead workers that were settled",
    writers=(RECONCILER,),
)
JOBS_RESUMED: Final = MetricEntry(
    name="JobsResumed",
    meaning="jobs without progress that were planned on, or sent again",
    writers=(RECONCILER,),
)
JOBS_CLOSED: Final = MetricEntry(
    name="JobsClosed",
    meaning="jobs that ended by their counters",
    writers=(RECONCILER,),
)
STALLED_JOBS: Final = MetricEntry(
    name="StalledJobs",
    meaning="jobs that make no progress",
    writers=(RECONCILER,),
    gauge=True,
    per_connector=True,
)
MESSAGES_RESENT: Final = MetricEntry(
    name="MessagesResent",
    meaning="messages of extents that were sent again",
    writers=(RECONCILER,),
)
KEYS_LISTED: Final = MetricEntry(
    name="KeysListed",
    meaning="keys that listings returned",
    writers=(RECONCILER,),
)
ENDS_PUBLISHED: Final = MetricEntry(
    name="EndsPublished",
    meaning="events of jobs that were published late",
    writers=(RECONCILER,),
)
OLDEST_JOB: Final = MetricEntry(
    name="OldestOpenJobSeconds",
    meaning="age of the oldest open job of a running connector",
    writers=(RECONCILER,),
    unit=Unit.SECONDS,
    gauge=True,
    per_connector=True,
)
PROBLEMS: Final = MetricEntry(
    name="ReconciliationProblems",
    meaning="steps of the reconciler that failed; every completed run writes it",
    writers=(RECONCILER,),
)
STATUS_2XX: Final = MetricEntry(
    name="Status2xx",
    meaning="requests whose notification is stored, and probes",
    writers=(RECEIVER,),
)
STATUS_4XX: Final = MetricEntry(
    name="Status4xx",
    meaning="requests that were refused",
    writers=(RECEIVER,),
)
STATUS_5XX: Final = MetricEntry(
    name="Status5xx",
    meaning="requests that the sender repeats",
    writers=(RECEIVER,),
    per_version=True,
)
TRIGGERS: Final = MetricEntry(
    name="Triggers",
    meaning="triggers that ended",
    writers=(STREAM,),
)
EXTENTS: Final = MetricEntry(
    name="Extents",
    meaning="extents that became final",
    writers=(STREAM,),
)
TRIGGER_SECONDS: Final = MetricEntry(
    name="TriggerSeconds",
    meaning="seconds that triggers took",
    writers=(STREAM,),
    unit=Unit.SECONDS,
)
EXTENTS_WAITING: Final = MetricEntry(
    name="ExtentsWaiting",
    meaning="extents that waited at the last trigger",
    writers=(STREAM,),
    gauge=True,
)
EXTENTS_IN_WORK: Final = MetricEntry(
    name="ExtentsInWork",
    meaning="extents in work at the last trigger",
    writers=(STREAM,),
    gauge=True,
)

TABLE: Final = {one.name: one for one in tuple(globals().values()) if isinstance(one, MetricEntry)}
"""Every metric, by its name."""

BY_STATUS: Final = {2: STATUS_2XX, 4: STATUS_4XX, 5: STATUS_5XX}
"""The receiver's metrics, by the first digit of the status."""
