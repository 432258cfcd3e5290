"""How long the sink waits for brokers, and how it spaces its attempts.

Owns: every bound of the sink, the back-off. Refuses to know: what is attempted. Time and
randomness are passed in.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from extentflow.clock import Clock

SLICE_SECONDS = 2.0  # one blocking call; between two of them signals are served
LEAST_SECONDS = 0.1  # a last attempt of a few milliseconds could only time out
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds in seconds, and the clock and randomness they are measured with."""

    request_seconds: float = 10.0
    topic_seconds: float = 3.0
    fence_seconds: float = 60.0
    read_seconds: float = 60.0
    commit_seconds: float = 60.0
    abort_seconds: float = 5.0
    clock: Clock = field(default_factory=Clock)
    random: Random = field(default_factory=Random)

    def attempts(self, seconds: float) -> Iterator[float]:
        """Yield the seconds that the next attempt may take, until `seconds` are over.

        Always yields once. Between attempts it pauses with full jitter, doubling up to a second;
        the time an attempt itself took counts as pause.
        """
        end = self.clock.monotonic() + seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = self.clock.monotonic()
            yield min(SLICE_SECONDS, max(end - began, LEAST_SECONDS))
            now = self.clock.monotonic()
            if now >= end:
                return
            self.clock.sleep(max(0.0, min(pause * self.random.random(), end - now) - (now - began)))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
