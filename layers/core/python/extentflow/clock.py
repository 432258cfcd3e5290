"""Time as a value that is passed in, so that tests own it.

Owns: the four ways in which code here may ask for time. Refuses to know: the ledger's clock,
which is the server's (`Ledger.now`).
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
