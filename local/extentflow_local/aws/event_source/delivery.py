"""The report of one invocation."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from extentflow_local.aws.event_source.execution import Outcome

log = logging.getLogger(__name__)

_LONGEST = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One invocation of `function`: ids of the messages in its batch, and of those that return.

    Both are empty for invocations by HTTP, time or an event.
    """

    function: str
    outcome: Outcome
    received: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


# Called on the invoking threads, after messages were deleted; must be fast.
Observe = Callable[[Delivery], None]


def write_down(delivery: Delivery) -> None:
    """Log one line, with the error if there is one."""
    outcome = delivery.outcome
    level, more = logging.INFO, ""
    if not outcome.ok:
        level, more = logging.WARNING, outcome.payload.decode("utf-8", "replace")[:_LONGEST]
    elif delivery.failed:
        level = logging.WARNING
        more = f"{len(delivery.failed)} of {len(delivery.received)} messages return to the queue"
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
