"""A function that runs every so often.

Owns: the rate, the event that EventBridge sends. Refuses to know: what the function does.
"""

import json
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from extentflow.clock import Clock
from extentflow_local.event_source.delivery import Delivery, Observe
from extentflow_local.event_source.deployment import Schedule
from extentflow_local.event_source.execution import Outcome


class Ticker:
    """Invokes at the schedule's rate, the first time after one interval, never twice at once."""

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
        """Begin to wait for the first interval's end."""
        self._thread.start()

    def stop(self) -> None:
        """Invoke no more."""
        self._stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until a running invocation is over, no longer than given."""
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
            # What a slow invocation missed is not made up for.
            due = max(due + every, self._clock.monotonic())


def event_of(schedule: Schedule, now: float) -> bytes:
    """Return what the function gets: the fixed payload, or EventBridge's own event."""
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
        # The scheduler's is a text, the rule's is none.
        "detail": "{}" if schedule.source == "aws.scheduler" else {},
    }
    return json.dumps(event).encode()
