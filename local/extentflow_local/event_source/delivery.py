"""What is told about each invocation.

Owns: the value. Refuses to know: who tells, who listens.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow_local.event_source.execution import Outcome

log = logging.getLogger(__name__)

_LONGEST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One invocation of `function`; ids of the messages in its batch, and of those that come back.

    Both are empty where HTTP, time or an event made it run.
    """

    function: str
    outcome: Outcome
    received: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


# Called from the threads that invoke, after messages were deleted; has to be quick.
Observe = Callable[[Delivery], None]


def write_down(delivery: Delivery) -> None:
    """Log one line, with what went wrong where something did."""
    outcome = delivery.outcome
    level, more = logging.INFO, ""
    if not outcome.ok:
        level, more = logging.WARNING, outcome.payload.decode("utf-8", "replace")[:_LONGEST]
    elif delivery.failed:
        level = logging.WARNING
        more = f"{len(delivery.failed)} of {len(delivery.received)} messages come back"
    log.log(
        level,
        "%s %s in %.2f s, process %d, request %s%s",
        delivery.function,
        outcome.verdict,
        outcome.seconds,
        outcome.pid,
        outcome.request_id,
        more and f": {more}",
    )
