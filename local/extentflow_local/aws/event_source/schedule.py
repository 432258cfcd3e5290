"""A scheduled function."""

import json
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from extentflow.retry import Clock
from extentflow_local.aws.event_source.delivery import Delivery, Observe
from extentflow_local.aws.event_source.deployment import Schedule
from extentflow_local.aws.event_source.execution import Outcome


class Ticker:
    """Invokes at the schedule's rate, first after one interval, never concurrently."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        invoke: Callable[[bytes], Outcome],
        observe: Observe,
        clock: Clock,
    ) -> None:
        self._schedule = schedule
        self._invoke = invoke
        self._observe = observe
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick, name=f"tick-{schedule.function}")

    def start(self) -> None:
        """Start the first interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop invoking."""
        self._stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until a running invocation has ended, for at most the given time."""
        self._thread.join(seconds)

    def trigger(self) -> Outcome:
        """Invoke now, on the calling thread."""
        outcome = self._invoke(event_of(self._schedule, self._clock.wall()))
        self._observe(Delivery(function=self._schedule.function, outcome=outcome))
        return outcome

    def _tick(self) -> None:
        every = self._schedule.every_seconds
        due = self._clock.monotonic() + every
        while not self._stopping.wait(max(0.0, due - self._clock.monotonic())):
            self.trigger()
            # Intervals that a slow invocation missed are skipped.
            due = max(due + every, self._clock.monotonic())


def event_of(schedule: Schedule, now: float) -> bytes:
    """Return the event: the fixed payload, or EventBridge's own."""
    if schedule.payload is not None:
        return schedule.payload.encode()
    _, _, _, region, account, _ = schedule.arn.split(":", 5)
    event = {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": "Scheduled Event",
        "source": schedule.source,
        "account": account,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "region": region,
        "resources": [schedule.arn],
        # EventBridge Scheduler's input is a string, that of a rule is not.
        "detail": "{}" if schedule.source == "aws.scheduler" else {},
    }
    return json.dumps(event).encode()
