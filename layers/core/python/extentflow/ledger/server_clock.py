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

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

RESOLUTION_SECONDS = 1.0
FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The local clocks, and how to wait. `monotonic` may stand still while a sandbox is frozen."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class _Anchor:
    server: float
    monotonic: float


class ServerClock:
    """Lower bound of the server's clock. Threads may share it: its state is replaced as a whole."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._anchor: _Anchor | None = None
        self._heard: tuple[float, float] | None = None

    def heard(self, headers: Mapping[str, str], *, asked: float) -> None:
        """Take in an answer's headers (lower-case names); `asked` is when the request began."""
        server = _server_seconds(headers.get("date", ""))
        if server is None:
            return
        now = self._timing.monotonic()
        anchor = self._anchor
        late = anchor is None or _carried(anchor, now) < server
        ahead = anchor is not None and _carried(anchor, asked) >= server + RESOLUTION_SECONDS
        if late or ahead:
            self._anchor = _Anchor(server, now)
        self._heard = (now, self._timing.wall())

    def now(self) -> float | None:
        """Return the estimate; None when no answer came within the last minute."""
        if self._anchor is None or self._heard is None:
            return None
        monotonic = self._timing.monotonic()
        age = max(monotonic - self._heard[0], self._timing.wall() - self._heard[1])
        return _carried(self._anchor, monotonic) if age < FRESH_SECONDS else None


def _carried(anchor: _Anchor, monotonic: float) -> float:
    return anchor.server + monotonic - anchor.monotonic


def _server_seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
