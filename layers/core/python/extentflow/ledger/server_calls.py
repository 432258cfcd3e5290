"""What clients of a ledger's server share: retries of a request, and the server's clock.

Tests: unit/ledger/test_dynamodb_calls.py, unit/ledger/test_server_clock.py
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.ledger import LedgerOptions
from extentflow.retry import Clock, RetryPolicy

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

FRESH_SECONDS = 60.0  # how long an estimated time is used
SILENCE_SECONDS = 2.0  # shorter outages are not logged


class RejectedRequest(Misconfigured):
    """The server will never accept this request; `code` is its own name for the reason."""

    def __init__(self, problem: str, code: str = "") -> None:  # as pickle calls it
        self.code = code
        super().__init__(problem)


class TransientFailure(Exception):  # noqa: N818
    """Another try may help; a request may raise it about an answer that left something out."""


def retry_policy(options: LedgerOptions) -> RetryPolicy:
    """Return how an operation on the ledger is retried."""
    return RetryPolicy(
        total_seconds=options.retry_seconds, first_pause_seconds=0.05, longest_pause_seconds=2.0
    )


def retried(
    server: object, subject: str, retry: RetryPolicy, request: Callable[[], Answer]
) -> Answer:
    """Return the response to `request`, repeated while it raises TransientFailure.

    `server` and `subject`, the operation, stand in messages. LedgerUnavailable: a write may have
    taken effect.
    """
    monotonic = retry.clock.monotonic
    began, warned = monotonic(), False
    for attempt in retry.attempts():
        try:
            return request()
        except TransientFailure as exc:
            passing, tried = exc, attempt.number
        elapsed = monotonic() - began
        if not warned and SILENCE_SECONDS < elapsed < retry.total_seconds:
            warned = True
            rest = retry.total_seconds - elapsed
            log.warning("%s: %s; retrying for %.0f s more", server, passing, rest)
    raise LedgerUnavailable(
        f"{server}: {subject}: no usable response within {retry.total_seconds:g} s,"
        f" {tried} attempts; last: {passing}"
    ) from passing.__cause__


class ServerClock:
    """Lower bound of the server's clock, from the times in its responses. Thread-safe.

    A response states the server's time when it was written, perhaps truncated: when the response
    is read, the server's clock shows at least that time. Advanced by the local monotonic clock,
    this stays a lower bound, late by less than the resolution plus the response's transit time.
    Where the estimate ran ahead (a drifting local clock, servers that differ), it falls back to
    the latest response.

        request sent       response               estimate when sent >= date + 1 s: it runs ahead
          |--- request --->| date = floor(t)      estimate now < date: it is late
          |<-- response ---|                      else: keep it, it is tighter
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # What the server's clock shows beyond the local monotonic one.
        self._lead: float | None = None
        self._observed: tuple[float, float] | None = None

    def observe(self, server: float, *, sent_at: float, resolution_seconds: float = 0.0) -> None:
        """Use the time in a response; the request was sent at `sent_at` of the monotonic clock."""
        now = self._clock.monotonic()
        lead = self._lead
        late = lead is None or now + lead < server
        ahead = lead is not None and sent_at + lead >= server + resolution_seconds
        if late or ahead:
            self._lead = server - now
        self._observed = (now, self._clock.wall())

    def now(self) -> float | None:
        """Return the estimate; None when there was no response within the last minute."""
        if self._lead is None or self._observed is None:
            return None
        monotonic = self._clock.monotonic()
        # The monotonic clock may stop while a sandbox is frozen; the wall clock does not.
        age = max(monotonic - self._observed[0], self._clock.wall() - self._observed[1])
        return monotonic + self._lead if age < FRESH_SECONDS else None
