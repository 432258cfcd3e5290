"""Who hears of ends of jobs: the topic of the runtime's cluster, and the bus of its settings.

Owns: which announcers a runtime has, how much time they may need. Refuses to know: events.
"""

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from extentflow.errors import Retryable
from extentflow.jobs.events import Announcements, Announcer
from extentflow.jobs.publish_eventbridge import EventBridgeAnnouncer
from extentflow.jobs.publish_kafka import KafkaAnnouncer
from extentflow.wiring.runtime import Runtime

Told = TypeVar("Told")

# What announcing takes at most, broker and bus both being away.
ANNOUNCING_SECONDS = 40.0


class Late(Retryable):
    """Too little time is left to begin."""


def open_announcements(runtime: Runtime) -> Announcements:
    """Return what announces ends of jobs; nothing is connected before the first of them."""
    announcers: list[Announcer] = [KafkaAnnouncer(runtime.open_event_sink, runtime.clock)]
    if (bus := runtime.settings.event_bus) is not None:
        announcers.append(EventBridgeAnnouncer(bus, clock=runtime.clock, random=runtime.random))
    return Announcements(runtime.ledger, announcers, runtime.connectors.topic_of)


def sweep_announcements(runtime: Runtime, limit: int) -> int:
    """Announce at most `limit` ends that nobody was told of yet; return how many were told.

    Raises:
        Retryable, Misconfigured: an announcer or the ledger is away or refuses; what was told is
            marked, the rest is left to the next sweep.
    """
    with closing(open_announcements(runtime)) as announcements:
        return announcements.sweep(limit)


def unless_late(
    late: Callable[[], bool], announce: Callable[[Told], object]
) -> Callable[[Told], None]:
    """Return an announcing of ends that is not begun when it is `late`: whoever sweeps does it.

    A message that a worker answered and did not delete for lack of time would come again.
    """

    def told(ended: Told) -> None:
        if late():
            raise Late("too little time is left")
        announce(ended)

    return told
