"""What a reconciliation did, step by step and in sum; a step that fails costs only itself.

Owns: the report, whose turn it is, the one place where a step's error is told instead of raised.
Refuses to know: what steps do.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from extentflow.errors import ExtentflowError, reason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What was done in one run (or one step of it). `problems` counts steps that failed.

    `jobs_failed` ended FAILED in this run, `jobs_stalled` is how many make no progress at present;
    `listings_finished` names connectors.
    """

    slots_recovered: int = 0
    jobs_resumed: int = 0
    jobs_closed: int = 0
    jobs_stalled: int = 0
    jobs_failed: int = 0
    messages_resent: int = 0
    keys_listed: int = 0
    jobs_new: int = 0
    ends_announced: int = 0
    listings_finished: tuple[str, ...] = ()
    problems: int = 0

    def __add__(self, other: Report) -> Report:
        """Return what both did."""
        names = [field.name for field in fields(self)]
        return Report(*(getattr(self, name) + getattr(other, name) for name in names))

    def to_log(self) -> dict[str, Any]:
        """Return the fields of the one log line that a run gets."""
        return asdict(self)


PROBLEM = Report(problems=1)
_OVER = Report()


def nobody(_why: str) -> None:
    """Hear why a step failed, where the log is enough."""


def attempt_step(
    what: str, step: Callable[[], Report], *, told: Callable[[str], object] = nobody
) -> Report:
    """Return what a step did; one that fails is told, counted, and holds up no other.

    Whatever failed is met again by the next run. So is a defect of ours: it must not keep the
    reconciler from everything that comes after it. `told` hears why, besides the log.
    """
    try:
        return step()
    except ExtentflowError as exc:
        log.warning("%s: %s", what, exc)
        told(reason(exc))
    except Exception as exc:
        log.exception("%s: unexpected error", what)
        told(f"unexpected error: {type(exc).__name__}: {exc}")
    return PROBLEM


def interleave(parts: Mapping[str, Iterator[Report]]) -> Iterator[Report]:
    """Yield a step of each part after the other, until all parts are over.

    A part that raises has a problem, and is over.
    """
    turns = deque(parts.items())
    while turns:
        what, steps = turns.popleft()
        step = attempt_step(what, partial(next, steps, _OVER))
        if step is not _OVER:
            yield step
            turns.append((what, steps))
