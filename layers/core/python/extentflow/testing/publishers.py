"""MemoryJobEvents: a publisher of job events in memory."""

from collections.abc import Sequence

from extentflow.errors import BusUnavailable
from extentflow.jobs.events import JobEvent


class MemoryJobEvents:
    """A `JobEventPublisher` that keeps events; the next `failures` calls raise BusUnavailable."""

    def __init__(self) -> None:
        self.failures = 0
        self.closed = False
        self.events: list[JobEvent] = []

    def publish(self, events: Sequence[JobEvent]) -> None:
        """Keep the events, as `JobEventPublisher.publish`."""
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("the publisher is unavailable, as the test requires")
        self.closed = False
        self.events += events

    def close(self) -> None:
        """Note the call, as `JobEventPublisher.close`."""
        self.closed = True
