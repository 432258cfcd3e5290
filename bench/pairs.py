"""Competitors in turn, and what remains of their laps: medians, and ratios pair by pair.

Owns: the order of laps, the arithmetic. Refuses to know: what runs.

A lap is everybody once, every other one in the opposite order, because whoever is next meets what
the one before left to servers and disks; the first only warms up. A ratio is the median of the
ratios within each lap, so that what else the machine does falls on both sides. An even number of
laps has as many of either order.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lap:
    """One run of one competitor: rows delivered, wall and CPU seconds, its workers' peak memory."""

    rows: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int = 0

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def cost(self) -> float:
        """CPU seconds per million rows."""
        return self.cpu_seconds / self.rows * 1e6


@dataclass(frozen=True, slots=True)
class Laps:
    """All laps by competitor, warm-up apart; equally many of each."""

    by_name: Mapping[str, Sequence[Lap]]

    def rates(self) -> dict[str, int]:
        """Return the medians of rows per second."""
        return {name: round(statistics.median(_rates(laps))) for name, laps in self._all()}

    def costs(self) -> dict[str, float]:
        """Return the medians of CPU seconds per million rows."""
        costs = {name: [lap.cost for lap in laps] for name, laps in self._all()}
        return {name: round(statistics.median(found), 3) for name, found in costs.items()}

    def ratio(self, ours: str, theirs: str) -> float:
        """Return how many times as fast `ours` is as `theirs`."""
        return self._median(ours, theirs, lambda lap: lap.rate)

    def cost_ratio(self, ours: str, theirs: str) -> float:
        """Return how many times the CPU time of `theirs` a row costs `ours`."""
        return self._median(ours, theirs, lambda lap: lap.cost)

    def peak_rss_bytes(self, names: Sequence[str]) -> int:
        """Return the largest peak of these competitors' workers."""
        return max(lap.peak_rss_bytes for name in names for lap in self.by_name[name])

    def spread(self) -> dict[str, list[int]]:
        """Return the least and the greatest rate of each competitor."""
        found = {name: _rates(laps) for name, laps in self._all()}
        return {name: [round(min(rates)), round(max(rates))] for name, rates in found.items()}

    def _all(self) -> Sequence[tuple[str, Sequence[Lap]]]:
        return list(self.by_name.items())

    def _median(self, ours: str, theirs: str, of: Callable[[Lap], float]) -> float:
        pairs = zip(self.by_name[ours], self.by_name[theirs], strict=True)
        return round(statistics.median(of(one) / of(other) for one, other in pairs), 3)


def alternate(competitors: Mapping[str, Callable[[], Lap]], pairs: int, notify: Notify) -> Laps:
    """Run everybody in turn and back, once to warm up and then `pairs` times."""
    laps: dict[str, list[Lap]] = {name: [] for name in competitors}
    names = list(competitors)
    for number in range(pairs + 1):
        for name in names[::-1] if number % 2 else names:
            lap = competitors[name]()
            label = f"pair {number}" if number else "warm-up"
            notify(f"{label}: {name} {lap.rate:,.0f} rows/s, {lap.cost:.2f} CPU s per M rows")
            if number:
                laps[name].append(lap)
    return Laps(laps)


def _rates(laps: Sequence[Lap]) -> list[float]:
    return [lap.rate for lap in laps]
