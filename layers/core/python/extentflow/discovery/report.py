"""The report of a reconciliation; a failed step affects only itself.

Tests: unit/discovery/test_reconciler.py
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from extentflow.errors import ExtentflowError, contain_defects, reason

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What one run, or one step, did. `problems` counts failed steps.

    `jobs_failed` became FAILED in this run, `jobs_done` DONE; `jobs_stalled` currently make no
    progress; `listings_finished` names connectors. `oldest_open_seconds` is the age of the oldest
    open job of a running connector, 0 if there is none; a sum has the greater one. `by_connector`
    has the part of each connector for which something was done or found.
    """

    slots_recovered: int = 0
    jobs_resumed: int = 0
    jobs_closed: int = 0
    jobs_stalled: int = 0
    jobs_failed: int = 0
    messages_resent: int = 0
    keys_listed: int = 0
    jobs_new: int = 0
    ends_published: int = 0
    listings_finished: tuple[str, ...] = ()
    problems: int = 0
    oldest_open_seconds: float = 0.0
    jobs_done: int = 0
    by_connector: Mapping[str, Report] = field(default_factory=dict, hash=False)

    def __add__(self, other: Report) -> Report:
        """Return the sum of both."""
        total = Report(**{name: getattr(self, name) + getattr(other, name) for name in _SUMMED})
        oldest = max(self.oldest_open_seconds, other.oldest_open_seconds)
        parts = dict(self.by_connector)
        for name, part in other.by_connector.items():
            parts[name] = parts[name] + part if name in parts else part
        return replace(total, oldest_open_seconds=oldest, by_connector=parts)

    def of(self, connector: str) -> Report:
        """Return this as a report about one connector."""
        return self if self == _OVER else replace(self, by_connector={connector: self})

    def to_log(self) -> dict[str, Any]:
        """Return the fields of the run's log line; connectors have lines of their own."""
        return {name: getattr(self, name) for name in _SUMMED}


_SUMMED = [one.name for one in fields(Report) if one.name != "by_connector"]
_OVER = Report()


def attempt_step(
    what: str, step: Callable[[], Report], *, on_failure: Callable[[str], object] = lambda _: None
) -> Report:
    """Return a step's report; a failure, or a defect, is logged, counted, passed to `on_failure`.

    The next run repeats the step; the steps after it follow all the same.
    """
    try:
        with contain_defects(what):
            return step()
    except ExtentflowError as exc:
        log.warning("%s: %s", what, exc)
        on_failure(reason(exc))
    return Report(problems=1)


def interleave(parts: Mapping[str, Iterator[Report]]) -> Iterator[Report]:
    """Yield one step of each part in turn, until all have ended; one that raises ends."""
    turns = deque(parts.items())
    while turns:
        what, steps = turns.popleft()
        step = attempt_step(what, partial(next, steps, _OVER))
        if step is not _OVER:
            yield step
            turns.append((what, steps))
