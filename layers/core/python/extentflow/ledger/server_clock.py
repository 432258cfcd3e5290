"""Estimates the time of the ledger's servers from the `Date` headers of their responses.

A `Date` header is the server's time, truncated to whole seconds, when it wrote the response. When
the response is read, the server's clock therefore shows at least that time. Advanced by the local
monotonic clock, this stays a lower bound, late by less than a second plus the response's transit
time. Later responses only tighten it. Where the estimate ran ahead (a drifting local clock, servers
that differ), it falls back to the latest header.

    request sent       response                   estimate when sent >= date + 1 s: it runs ahead
      |--- request --->| date = floor(t)          estimate now < date: it is late
      |<-- response ---|                          else: keep it, it is tighter
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from extentflow.retry import Clock

RESOLUTION_SECONDS = 1.0
FRESH_SECONDS = 60.0


class _Anchor(NamedTuple):
    server: float
    monotonic: float


class ServerClock:
    """Lower bound of the server's clock. Threads may share it: its state is replaced as a whole."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor: _Anchor | None = None
        self._observed: tuple[float, float] | None = None

    def observe(self, headers: Mapping[str, str], *, sent_at: float) -> None:
        """Use a response's headers (lower-case names); the request was sent at `sent_at`."""
        try:
            server = parsedate_to_datetime(headers.get("date", "")).timestamp()
        except ValueError:
            return
        now = self._clock.monotonic()
        anchor = self._anchor
        late = anchor is None or _carried(anchor, now) < server
        ahead = anchor is not None and _carried(anchor, sent_at) >= server + RESOLUTION_SECONDS
        if late or ahead:
            self._anchor = _Anchor(server, now)
        self._observed = (now, self._clock.wall())

    def now(self) -> float | None:
        """Return the estimate; None when there was no response within the last minute."""
        if self._anchor is None or self._observed is None:
            return None
        monotonic = self._clock.monotonic()
        # The monotonic clock may stand still while a sandbox is frozen; the wall clock does not.
        age = max(monotonic - self._observed[0], self._clock.wall() - self._observed[1])
        return _carried(self._anchor, monotonic) if age < FRESH_SECONDS else None


def _carried(anchor: _Anchor, monotonic: float) -> float:
    return anchor.server + monotonic - anchor.monotonic
