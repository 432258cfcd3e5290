"""A query's stop, told to its workers on other machines by a note in the ledger.

Owns: where the note is, how often workers look. Refuses to know: who stops, and why.
"""

import logging
from collections.abc import Callable

from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
KEEP_SECONDS = 86_400.0


def ask_to_stop(ledger: Ledger, run: str) -> None:
    """Let the workers of `run` commit what they sent, hand back, and begin nothing more."""
    ledger.remember(_note(run), {"stop": "true"}, keep_seconds=KEEP_SECONDS)


class Stop:
    """Whether the workers of `run` were asked to stop; looks once per second at most."""

    def __init__(self, ledger: Ledger, run: str, monotonic: Callable[[], float]) -> None:
        self._ledger = ledger
        self._run = run
        self._monotonic = monotonic
        self._next = float("-inf")
        self._asked = False

    def __call__(self) -> bool:
        """Return it; what cannot be known now is found by the next look."""
        now = self._monotonic()
        if not self._asked and now >= self._next:
            self._next = now + LOOK_SECONDS
            try:
                self._asked = self._ledger.recall(_note(self._run)) is not None
            except ExtentflowError as exc:
                log.warning("it is not known whether to stop: %s", exc)
        return self._asked


def _note(run: str) -> str:
    return f"stop#{run}"
