"""Alternate competitors, and compute medians and ratios of their runs.

A round runs each competitor once; every other round is in the opposite order, because each
competitor affects the caches and disks that the next one uses. The first round is the warm-up. A
ratio is the median of the ratios within each round, so that other load on the machine affects both
sides. An even number of rounds has as many of either order.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
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
class Runs:
    """All runs by competitor, without the warm-up; equally many of each."""

    by_name: Mapping[str, Sequence[Run]]

    def rates(self) -> dict[str, int]:
        """Return the medians of rows per second."""
        return {name: round(statistics.median(_rates(runs))) for name, runs in self._all()}

    def costs(self) -> dict[str, float]:
        """Return the medians of CPU seconds per million rows."""
        costs = {name: [run.cost for run in runs] for name, runs in self._all()}
        return {name: round(statistics.median(found), 3) for name, found in costs.items()}

    def ratio(self, ours: str, theirs: str) -> float:
        """Return the ratio of the rates of `ours` and `theirs`."""
        return self._median(ours, theirs, lambda run: run.rate)

    def cost_ratio(self, ours: str, theirs: str) -> float:
        """Return the ratio of the CPU time per row of `ours` and `theirs`."""
        return self._median(ours, theirs, lambda run: run.cost)

    def peak_rss_bytes(self, names: Sequence[str]) -> int:
        """Return the largest peak of these competitors' workers."""
        return max(run.peak_rss_bytes for name in names for run in self.by_name[name])

    def spread(self) -> dict[str, list[int]]:
        """Return the least and the greatest rate of each competitor."""
        found = {name: _rates(runs) for name, runs in self._all()}
        return {name: [round(min(rates)), round(max(rates))] for name, rates in found.items()}

    def _all(self) -> Sequence[tuple[str, Sequence[Run]]]:
        return list(self.by_name.items())

    def _median(self, ours: str, theirs: str, of: Callable[[Run], float]) -> float:
        pairs = zip(self.by_name[ours], self.by_name[theirs], strict=True)
        return round(statistics.median(of(one) / of(other) for one, other in pairs), 3)


def alternate(competitors: Mapping[str, Callable[[], Run]], pairs: int, notify: Notify) -> Runs:
    """Run all competitors in alternating order, once as warm-up and then `pairs` times."""
    runs: dict[str, list[Run]] = {name: [] for name in competitors}
    names = list(competitors)
    for number in range(pairs + 1):
        for name in names[::-1] if number % 2 else names:
            run = competitors[name]()
            label = f"pair {number}" if number else "warm-up"
            notify(f"{label}: {name} {run.rate:,.0f} rows/s, {run.cost:.2f} CPU s per M rows")
            if number:
                runs[name].append(run)
    return Runs(runs)


def _rates(runs: Sequence[Run]) -> list[float]:
    return [run.rate for run in runs]
