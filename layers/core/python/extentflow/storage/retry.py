"""How long a store goes on asking.

Owns: full-jitter back-off, capped per pause and bounded in total. Refuses to know: what was asked,
and every error other than StoreUnavailable.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from extentflow.errors import StoreUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Full-jitter back-off: pause n is a random share of `first_seconds * 2**n`, capped.

    No attempt begins later than `total_seconds` after the first one; an attempt under way is
    bounded by the client's own time-outs. `clock`, `sleep` and `chance` (a float in [0, 1)) are
    arguments, so that tests need no time.
    """

    total_seconds: float = 60.0
    cap_seconds: float = 5.0
    first_seconds: float = 0.1
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random

    def within(self, seconds: float | None) -> Patience:
        """Return a patience that ends after `seconds`, where that is sooner."""
        if seconds is None or seconds >= self.total_seconds:
            return self
        return replace(self, total_seconds=seconds)

    def retried(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it returns, raises something else, or time runs out.

        Raises:
            StoreUnavailable: the last one, with the number of attempts and the time they took.
        """
        begun = self.clock()
        for number in itertools.count(1):
            try:
                return attempt()
            except StoreUnavailable as exc:
                pause = self._pause(number)
                waited = self.clock() - begun
                if waited + pause > self.total_seconds:
                    raise StoreUnavailable(
                        f"{exc}; gave up after {number} attempts in {waited:.1f} s"
                    ) from exc
            self.sleep(pause)
        raise AssertionError("itertools.count() ended")

    def _pause(self, number: int) -> float:
        # 2**32 is beyond any cap; a larger exponent would only overflow the float.
        ceiling = self.first_seconds * 2.0 ** min(number - 1, 32)
        return self.chance() * min(self.cap_seconds, ceiling)
