"""Finds the records that brokers reject: a whole batch is rejected, with no word about the record.

    transaction of n records ──rejected──> n / 2 ──rejected──> n / 4 ... 1: this record is bad
                                             └──committed──> twice as many, up to n

So a transaction of a million records is sent about 20 times, each time with half of the records,
and what is committed meanwhile stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from extentflow.errors import RecordsRejected


@dataclass(slots=True)
class Rejections:
    """What is known of one extent's rejected records; one per `run_extent` call.

    `found` has the locations of bad rows, with their reasons. `letters` is why the dead letter
    queue rejects dead letters; empty where it does not. No transaction has more than `usual_units`.
    """

    found: dict[int, str] = field(default_factory=dict)
    letters: str = ""
    usual_units: float = math.inf
    _most: float = math.inf
    _first: int = 0

    @property
    def is_searching(self) -> bool:
        """Whether each transaction has `most_units` only."""
        return self._most < math.inf

    def most_units(self) -> float:
        """Return how many units (`ConvertedChunk.units`) a transaction may have."""
        return min(self._most, self.usual_units)

    def rejected(self, error: RecordsRejected, units: int, rows: Sequence[int]) -> None:
        """Use a rejected transaction with so many units, whose last one has these rows."""
        self._first = max(self._first, units)
        self._most = max(1, units // 2)
        if units == 1:
            self.found |= dict.fromkeys(map(int, rows), error.why)

    def committed(self) -> None:
        """Use a committed transaction: the next one may have twice as many units."""
        self._most *= 2
        if self._most >= self._first:
            self._most, self._first = math.inf, 0
