"""Wall time, monotonic time and sleeping as values that are passed in, so that tests control them.

The ledger's time is the server's (`Ledger.now`), never the local clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` and `wall` return seconds; `sleep` waits for seconds."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
