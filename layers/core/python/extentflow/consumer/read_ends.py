"""Positions behind what follows the last rows of a partition, and has none.

offsets   rows │ markers of transactions, aborted records, tombstones │ end that was read
               ^ position behind the rows                             ^ position that is committed

A position among these would be gone once retention deletes them, although nothing was missed. So a
position behind all rows that the caller has moves to the end that was read. A loop that commits
after each batch does so before the end is read: then the consumer repeats that commit.

Tests: unit/consumer/test_lost_positions.py
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from extentflow.consumer.row_batches import ConsumedBatch, Position
from extentflow.kafka.reading import Place

# A busy topic has an end behind each transaction; only that of an idle one has to be committed.
REPEAT_SECONDS = 5.0


@dataclass(slots=True)
class ReadEnds:
    """The ends that a member has read. `repeat_seconds`: between commits that it repeats."""

    repeat_seconds: float = REPEAT_SECONDS
    _behind: dict[Place, Position] = field(default_factory=dict)
    _ends: dict[Place, int] = field(default_factory=dict)
    _held: set[Place] = field(default_factory=set)
    _committed: Mapping[Place, Position] | None = None
    _is_new: bool = False
    _repeated: float = -math.inf

    def hold(self, places: Collection[Place]) -> None:
        """Note partitions of which the group has offsets."""
        self._held |= set(places)
        if self._held and self._committed is None:
            self._committed = {}

    def begin(self, place: Place, at: Position) -> None:
        """Note where a partition is read from, now or again."""
        self._behind[place] = at
        self._ends.pop(place, None)

    def yielded(self, batch: ConsumedBatch) -> None:
        """Note that the caller gets a batch."""
        self._behind[batch.topic, batch.partition] = batch.after(batch.rows.num_rows)

    def reached(self, ends: Mapping[Place, int]) -> None:
        """Note that all before these ends was fetched."""
        self._is_new |= any(self._ends.get(place) != end for place, end in ends.items())
        self._ends |= ends

    def forget(self, places: Collection[Place]) -> None:
        """Drop partitions that another member has now."""
        for place in places:
            self._behind.pop(place, None)
            self._ends.pop(place, None)
        self._held -= set(places)
        self._committed = None

    def moved(
        self, positions: Mapping[Place, Position], waiting: Collection[Place]
    ) -> dict[Place, Position]:
        """Return positions, those behind all rows at the end that was read.

        Also of partitions without rows, where the group has offsets of them. Partitions that are
        `waiting` have rows that the caller does not have yet.
        """
        found = {one: at for one, at in self._behind.items() if one in self._held} | {**positions}
        for place in self._ends.keys() & found.keys() - set(waiting):
            at, end = found[place], self._ends[place]
            if at == self._behind[place] and end > at.offset:
                found[place] = Position(end)
        is_moved = {one for one, at in found.items() if at != self._behind.get(one)}
        return {one: at for one, at in found.items() if one in positions or one in is_moved}

    def committed(self, positions: Mapping[Place, Position]) -> None:
        """Note that the caller commits, with these positions behind what it has."""
        self._held |= positions.keys()
        self._committed, self._is_new = dict(positions), False

    def must_repeat(self, positions: Mapping[Place, Position], *, is_last: bool) -> bool:
        """Return whether an end was read since a commit of these positions.

        Now and then, unless `is_last`: the caller reads no further.
        """
        now = time.monotonic()
        is_due = is_last or now - self._repeated >= self.repeat_seconds
        if not (self._is_new and is_due and positions == self._committed):
            return False
        self._repeated = now
        return True
