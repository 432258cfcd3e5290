"""Ends of jobs on a topic, one record per event, keyed by job id.

Owns: what a record is, how long a producer is kept. Refuses to know: librdkafka, slots; the sink is
an idempotent producer of its own.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from extentflow.clock import Clock
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.jobs.events import JobEvent
from extentflow.sink import JOBS_TOPIC, Records, Sink, SlotProgress

# Brokers close connections that are idle for ten minutes; an environment may have been frozen.
IDLE_SECONDS = 300.0
NO_PROGRESS = SlotProgress(epoch=0)


class KafkaAnnouncer:
    """`Announcer` over a sink, which is opened when needed and dropped when it failed."""

    def __init__(self, open_sink: Callable[[], Sink], clock: Clock) -> None:
        self._open = open_sink
        self._clock = clock
        self._sink: Sink | None = None
        self._used = 0.0

    def announce(self, events: Sequence[JobEvent]) -> None:
        """Return when brokers acknowledged every event, as `Announcer.announce`."""
        records = Records(
            JOBS_TOPIC,
            values=pa.array([event.to_text().encode() for event in events], pa.binary()),
            keys=pa.array([event.job.encode() for event in events], pa.binary()),
        )
        sink = self._ready()
        try:
            if refused := sink.send(records):
                raise Misconfigured(
                    f"topic {JOBS_TOPIC}: the event of job {events[refused[0].index].job} was"
                    f" refused, {refused[0].reason}; raise the topic's max.message.bytes"
                )
            sink.commit(NO_PROGRESS)
        except ExtentflowError:
            self.close()
            raise
        self._used = self._clock.wall()

    def close(self) -> None:
        """Drop the producer, as `Announcer.close`."""
        if self._sink is not None:
            self._sink.close()
        self._sink = None

    def _ready(self) -> Sink:
        if not 0 <= self._clock.wall() - self._used <= IDLE_SECONDS:
            self.close()
        if self._sink is None:
            self._sink = self._open()
        return self._sink
