"""A cached view of connector states: whether users paused or stopped a connector."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import ConnectorState, Ledger

log = logging.getLogger(__name__)

CACHE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ConnectorStateCache:
    """Connector states of one process, read at most every CACHE_SECONDS. Safe from any thread."""

    ledger: Ledger
    monotonic: Callable[[], float]
    _cached: dict[str, tuple[float, ConnectorState]] = field(default_factory=dict)

    def state(self, connector: str) -> ConnectorState:
        """Return the state; RUNNING while the ledger is unavailable, which pauses no connector."""
        read_at, state = self._cached.get(connector, (float("-inf"), ConnectorState.RUNNING))
        now = self.monotonic()
        if now - read_at < CACHE_SECONDS:
            return state
        try:
            state = self.ledger.connectors.state(connector)
        except LedgerUnavailable as exc:
            log.warning("connector %s: state unknown, RUNNING is assumed: %s", connector, exc)
            state = ConnectorState.RUNNING
        self._cached[connector] = (now, state)
        return state

    def skip_reason(self, connector: str) -> str:
        """Return why extents of the connector must not start, and the remedy; "" if they may."""
        return explain_skip(connector, self.state(connector))


def explain_skip(connector: str, state: ConnectorState) -> str:
    """Return that a connector is paused or stopped and how to resume it; "" if it is running."""
    if state is ConnectorState.RUNNING:
        return ""
    return f"connector {connector} is {state}; continue it with `extentflow resume {connector}`"
