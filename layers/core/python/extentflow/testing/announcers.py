"""MemoryAnnouncer: the Announcer contract in memory.

Owns: what was announced. Refuses to know: what events say.
"""

from collections.abc import Sequence

from extentflow.errors import BusUnavailable
from extentflow.jobs.events import JobEvent


class MemoryAnnouncer:
    """An `Announcer`; `away` counts calls that are still to fail, `events` what was accepted."""

    def __init__(self) -> None:
        self.away = 0
        self.closed = False
        self.events: list[JobEvent] = []

    def announce(self, events: Sequence[JobEvent]) -> None:
        """See `Announcer.announce`."""
        if self.away:
            self.away -= 1
            raise BusUnavailable("the announcer is away, as the test wants it")
        self.closed = False
        self.events += events

    def close(self) -> None:
        """See `Announcer.close`."""
        self.closed = True
