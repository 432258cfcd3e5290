"""Retries with exponential back-off, full jitter and a deadline on the monotonic clock."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from extentflow.errors import Retryable

T = TypeVar("T")

log = logging.getLogger(__name__)

# A call that is retried for longer logs its error.
SILENT_SECONDS = 3.0
# 2**32 exceeds every cap on a pause; a larger exponent would only overflow the float.
_LARGEST_EXPONENT = 32


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as values that are passed in, so that tests control it; all in seconds.

    The ledger's time is the server's (`Ledger.now`), never the local clock.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: its number, from 1, and the seconds left until the deadline when it starts."""

    number: int
    remaining_seconds: float


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failing call is retried and how its attempts are spaced.

    The pause after attempt n is a random share of `first_pause_seconds * 2**(n - 1)`, capped at
    `longest_pause_seconds` (full jitter: clients that failed together do not return together).
    No attempt starts later than `total_seconds` after the first one; the client's own timeout
    bounds a running attempt.

    `attempts_block` is for calls that wait by themselves and take a timeout. The time of an attempt
    counts towards the pause, and the last pause is cut so that an attempt starts at the deadline.
    `jitter` returns a float in [0, 1).
    """

    total_seconds: float = 60.0
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 5.0
    attempts_block: bool = False
    clock: Clock = field(default_factory=Clock)
    jitter: Callable[[], float] = random.random

    def within(self, seconds: float | None) -> RetryPolicy:
        """Return this policy with `total_seconds` reduced to `seconds`; None changes nothing."""
        if seconds is None or seconds >= self.total_seconds:
            return self
        return replace(self, total_seconds=seconds)

    def pause_seconds(self, attempt: int) -> float:
        """Return a random pause after attempt number `attempt`, counted from 1."""
        bound = self.first_pause_seconds * 2.0 ** min(attempt - 1, _LARGEST_EXPONENT)
        return self.jitter() * min(self.longest_pause_seconds, bound)

    def attempts(self) -> Iterator[Attempt]:
        """Yield at least one attempt, and pause between attempts, until the deadline.

        The caller leaves the loop when an attempt succeeds; the end of the loop means: give up.
        """
        monotonic = self.clock.monotonic
        deadline = monotonic() + self.total_seconds
        for number in itertools.count(1):
            started = monotonic()
            yield Attempt(number, deadline - started)
            now = monotonic()
            pause = self.pause_seconds(number)
            if self.attempts_block:
                if now >= deadline:
                    return
                pause = max(0.0, min(pause, deadline - now) - (now - started))
            elif now + pause > deadline:
                return
            self.clock.sleep(pause)

    def call(self, function: Callable[[], T]) -> T:
        """Call `function` until it returns, raises another error than Retryable, or time is up.

        Then raises the last Retryable, with the number of attempts and the time they took.
        """
        started = self.clock.monotonic()
        said = False
        for attempt in self.attempts():
            try:
                return function()
            except Retryable as exc:
                last, number = exc, attempt.number
            waited = self.total_seconds - attempt.remaining_seconds
            if not said and waited >= SILENT_SECONDS:
                said = True
                log.warning("%s; retrying for up to %.0f s", last, self.total_seconds)
        seconds = self.clock.monotonic() - started
        raise type(last)(f"{last}; gave up after {number} attempts in {seconds:.1f} s") from last
