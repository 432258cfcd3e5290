"""Publishers of job events: a Kafka topic, keyed by job id, and an EventBridge bus.

Tests: unit/jobs/test_publishers_eventbridge.py, unit/jobs/test_publishers_kafka.py
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
from botocore.config import Config

from extentflow.aws import (
    BATCH_BYTES,
    BatchSender,
    new_session,
    split_into_batches,
    translate_errors,
)
from extentflow.errors import BusUnavailable, ExtentflowError, Misconfigured
from extentflow.jobs.events import JobEvent
from extentflow.kafka import JOBS_TOPIC, Records, Sink, SlotProgress
from extentflow.retry import Clock

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

log = logging.getLogger(__name__)

SOURCE = "extentflow"
TIME_BYTES = 14  # what the service counts for an entry's time
TRIES = 3

PASSING_CODES = frozenset(
    {
        "InternalException",
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)
REMEDIES = {
    "AccessDeniedException": "allow events:PutEvents on the bus",
    "ResourceNotFoundException": "there is no such bus; correct event.bus, or create it",
}


def connect(bus: str) -> "EventBridgeClient":
    """Return a client for `bus`, a name or an ARN; without a region Misconfigured."""
    config = Config(
        retries={"total_max_attempts": 2, "mode": "standard"}, connect_timeout=2, read_timeout=4
    )
    # An ARN names its region; for a name, the SDK's settings do.
    region = bus.split(":")[3] if bus.startswith("arn:") else None
    with _translated(bus):
        return new_session().client("events", region_name=region, config=config)


class EventBridgeJobEvents:
    """`JobEventPublisher` over one bus; connects when first used."""

    def __init__(
        self,
        bus: str,
        client: "EventBridgeClient | None" = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.bus = bus
        self._client = client
        self._sender = BatchSender(TRIES, clock, random)

    def publish(self, events: Sequence[JobEvent]) -> None:
        for batch in split_into_batches([_entry(self.bus, event) for event in events], _size):
            if left := self._sender.send(batch, self._put):
                raise BusUnavailable(f"event bus {self.bus}: {len(left)} events not accepted")

    def close(self) -> None:
        self._client = None  # connections end with the client

    def _put(
        self, entries: "Sequence[PutEventsRequestEntryTypeDef]"
    ) -> "list[PutEventsRequestEntryTypeDef]":
        """Put one batch and return what was not accepted."""
        if self._client is None:
            self._client = connect(self.bus)
        with _translated(self.bus):
            answers = self._client.put_events(Entries=entries)["Entries"]
        failed = []
        for entry, answer in zip(entries, answers, strict=True):
            if code := answer.get("ErrorCode"):
                failed.append(entry)
                if code not in PASSING_CODES:
                    why = f"{code}: {answer.get('ErrorMessage', '')}"
                    raise Misconfigured(f"event bus {self.bus}: an event was refused, {why}")
                log.warning("event bus %s: %s, putting again", self.bus, code)
        return failed


def _translated(bus: str) -> AbstractContextManager[None]:
    return translate_errors(
        f"event bus {bus}", BusUnavailable, transient=PASSING_CODES, remedies=REMEDIES
    )


def _entry(bus: str, event: JobEvent) -> "PutEventsRequestEntryTypeDef":
    """Return one entry; the event's reason is cut to what fits."""
    while True:
        entry: PutEventsRequestEntryTypeDef = {
            "EventBusName": bus,
            "Source": SOURCE,
            "DetailType": f"extentflow Job {event.state}",
            "Time": event.moment,
            "Detail": event.to_text(),
        }
        if not event.reason or _size(entry) <= BATCH_BYTES:
            return entry
        event = replace(event, reason=event.reason[: len(event.reason) // 2])


def _size(entry: "PutEventsRequestEntryTypeDef") -> int:
    """Return what EventBridge counts of an entry: time, source, type and detail."""
    texts = (entry.get("Source", ""), entry.get("DetailType", ""), entry.get("Detail", ""))
    return TIME_BYTES + sum(len(text.encode()) for text in texts)


# Brokers close connections that are idle for ten minutes; an environment may have been frozen.
KAFKA_IDLE_SECONDS = 300.0


class KafkaJobEvents:
    """`JobEventPublisher` over a sink, which is opened when needed and dropped when it failed."""

    def __init__(self, open_sink: Callable[[], Sink], clock: Clock) -> None:
        self._open = open_sink
        self._clock = clock
        self._sink: Sink | None = None
        self._used = 0.0

    def publish(self, events: Sequence[JobEvent]) -> None:
        records = Records(
            JOBS_TOPIC,
            values=pa.array([event.to_text().encode() for event in events], pa.binary()),
            keys=pa.array([event.job.encode() for event in events], pa.binary()),
        )
        if not 0 <= self._clock.wall() - self._used <= KAFKA_IDLE_SECONDS:
            self.close()
        if self._sink is None:
            self._sink = self._open()
        sink = self._sink
        try:
            if refused := sink.send(records):
                raise Misconfigured(
                    f"topic {JOBS_TOPIC}: the event of job {events[refused[0].index].job} was"
                    f" refused, {refused[0].reason}; raise the topic's max.message.bytes"
                )
            sink.commit(SlotProgress(epoch=0))
        except ExtentflowError:
            self.close()
            raise
        self._used = self._clock.wall()

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._sink = None
