"""Whether people let a connector rest, asked seldom enough to be asked before every extent.

Owns: how long an answer holds, what a ledger that is away means, how a rest is told. Refuses to
know: what becomes of a resting connector's extents.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import ConnectorState, Ledger

log = logging.getLogger(__name__)

CACHE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ConnectorStateCache:
    """What people want of connectors; the ledger is asked every CACHE_SECONDS for each, at most.

    One process's; safe from any thread.
    """

    ledger: Ledger
    monotonic: Callable[[], float]
    _known: dict[str, tuple[float, ConnectorState]] = field(default_factory=dict)

    def state(self, connector: str) -> ConnectorState:
        """Return what is wanted; RUNNING where the ledger does not say, for nobody paused it."""
        asked, known = self._known.get(connector, (float("-inf"), ConnectorState.RUNNING))
        now = self.monotonic()
        if now - asked < CACHE_SECONDS:
            return known
        try:
            state = self.ledger.connectors.state(connector)
        except LedgerUnavailable as exc:
            log.warning("whether connector %s rests is not known now: %s", connector, exc)
            state = ConnectorState.RUNNING
        self._known[connector] = (now, state)
        return state

    def skip_reason(self, connector: str) -> str:
        """Return that a person paused or stopped the connector, and how it goes on; else ""."""
        return explain_skip(connector, self.state(connector))


def explain_skip(connector: str, state: ConnectorState) -> str:
    """Return how a connector's rest is told; "" where it does not rest."""
    if state is ConnectorState.RUNNING:
        return ""
    return f"connector {connector} is {state}; continue it with `extentflow resume {connector}`"
