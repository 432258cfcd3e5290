"""Waiting for conditions, and measuring how long the product takes on a machine that may stall.

A virtual machine can stall for seconds, and so can two cores that others use. What a test awaits
ends as soon as it holds, so its deadline is long and only ends tests that would hang. What a test
measures is `running_seconds`, which does not advance while the machine stalls.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

AWAITED_SECONDS = 300.0
"""How long tests await what must happen; below pytest's own timeout."""

_TICK_SECONDS = 0.05
# A thread that slept for a tick is scheduled within this time unless the machine stalls.
_MOST_SECONDS_PER_TICK = 0.25


class _RunningClock:
    """Counts the time in which a thread that does nothing but sleep was scheduled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._seconds = 0.0
        self._last = 0.0

    def seconds(self) -> float:
        with self._lock:
            if not self._started:
                self._started = True
                self._last = time.monotonic()
                threading.Thread(target=self._tick, name="running clock", daemon=True).start()
            return self._advance()

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_SECONDS)
            with self._lock:
                self._advance()

    def _advance(self) -> float:
        now = time.monotonic()
        self._seconds += min(now - self._last, _MOST_SECONDS_PER_TICK)
        self._last = now
        return self._seconds


running_seconds = _RunningClock().seconds
"""Like `time.monotonic`, but a stall of this process counts as a quarter of a second at most."""


def eventually(
    what: str,
    holds: Callable[[], Any],
    *,
    seconds: float = AWAITED_SECONDS,
    process: subprocess.Popen[str] | None = None,
    details: Callable[[], str] = str,
) -> Any:  # noqa: ANN401
    """Return the first true value of `holds`; fail early when `process` ends before.

    `details` returns more text for a failure, such as the output of processes.
    """
    deadline = running_seconds() + seconds
    while not (found := holds()):
        assert process is None or process.poll() is None, (
            f"the process ended before: {what}\n{details()}"
        )
        assert running_seconds() < deadline, f"not within {seconds:g} s: {what}\n{details()}"
        time.sleep(_TICK_SECONDS)
    return found
