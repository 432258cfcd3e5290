"""What the caller of a run chooses and observes: the engine, receipts, messages and its stop.

Tests: unit/services/test_runs.py
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from extentflow.engines import RunListener, run_service
from extentflow.jobs.run import Step
from extentflow.model import Extent, Receipt
from extentflow.wiring.extents import INLINE, require_engine

log = logging.getLogger(__name__)


class Counting(Protocol):
    """Opens the display of a number that grows: what is done, and to how many of what."""

    def __call__(
        self, what: str, of: str = "object"
    ) -> AbstractContextManager[Callable[[int], object]]:
        """Yield the function that receives the number."""


def uncounted(what: str, of: str = "object") -> AbstractContextManager[Callable[[int], object]]:
    """Display no number; see `Counting`."""
    _ = what, of
    return nullcontext(lambda _done: None)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine, its cores (None: all), and Spark's master (None: local)."""

    name: str = INLINE
    cores: int | None = None
    master: str | None = None

    def __post_init__(self) -> None:
        """Raise Misconfigured for an engine that does not exist, before anything is requested."""
        require_engine(self.name, self.master)

    @property
    def remote(self) -> bool:
        """Whether a service runs it on other machines."""
        return run_service(self.name) is not None


INLINE_HERE = EngineChoice()


@dataclass(frozen=True, slots=True)
class Listener:
    """Calls `callback` with each receipt."""

    callback: Callable[[Receipt], object] | None = None

    def on_extent(self, extent: Extent) -> None:
        """Ignore an extent that is about to run."""

    def on_receipt(self, receipt: Receipt) -> None:
        """Pass the receipt on."""
        if self.callback is not None:
            self.callback(receipt)


@dataclass(frozen=True, slots=True)
class RunControl:
    """How the caller of a run observes and stops it.

    `watch` opens the listener of extents and receipts when the run starts. `stop_on` receives the
    function that stops the run, and yields whether a stop was requested. `notify` receives one-line
    messages that are no errors, see `run_notes`. `step` is that of `JobRunner`. `counting` shows
    how many objects are listed or planned.
    """

    watch: Callable[[], AbstractContextManager[RunListener]] = lambda: nullcontext(Listener())
    stop_on: Callable[[Callable[[], None]], AbstractContextManager[Callable[[], bool]]] = (
        lambda _stop: nullcontext(lambda: False)
    )
    notify: Callable[[str], object] = log.info
    step: Step = lambda _what, _done: None
    counting: Counting = uncounted
