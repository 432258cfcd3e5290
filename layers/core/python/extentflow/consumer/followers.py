"""One partition of a topic in a join: how far it is read, what is held, and what is handled.

offsets   handled │ handled and unhandled ones │ handled by earlier members, or not read yet
                  low                          frontier

Of the unhandled ones, some are kept in memory, some are joined (the caller has them, or gets them
next), and some were evicted: these are read again.

Tests: unit/consumer/test_joins.py, unit/consumer/test_joined_topics.py
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from extentflow.arrays.buffers import held_bytes
from extentflow.consumer.row_batches import ConsumedBatch, Position


@dataclass(slots=True)
class Reading:
    """How far a partition is read, and whether it is paused.

    All before `passed` was read; `is_caught_up`: that is all that can be read now. From `rewind`
    on, records are dropped until the partition is read again from there. `end` is the end of its
    log, open transactions included, when it was last asked for. Batches before `boundary` may lack
    their parts in other topics: reading began there.
    """

    start: int = 0
    boundary: int = 0
    passed: int = 0
    frontier: int = 0
    held_bytes: int = 0
    is_caught_up: bool = False
    is_paused: bool = False
    rewind: int | None = None
    end: int | None = None

    @classmethod
    def at(cls, start: Position) -> "Reading":
        """Return that of a partition which is read from a position on."""
        return cls(start.offset, start.boundary, start.offset, start.offset)

    @property
    def is_at_end(self) -> bool:
        """Whether all was read that the log had when its end was last asked for."""
        return self.end is not None and self.passed >= self.end and self.rewind is None

    def boundary_at(self, offset: int) -> int:
        """Return the boundary of a position; 0 behind it."""
        return self.boundary if offset < self.boundary else 0

    def drops(self, offset: int, most_bytes: int, *, is_searched: bool) -> bool:
        """Whether a record is not taken now, because enough is held; it is read again later."""
        self.is_caught_up = False
        is_full = self.is_paused or self.held_bytes >= most_bytes
        if self.rewind is None and is_full and not is_searched:
            self.is_paused, self.rewind = True, offset
        return self.rewind is not None

    def pass_to(self, offset: int) -> None:
        """Note that all before an offset was read."""
        self.passed = max(self.passed, offset)
        self.frontier = max(self.frontier, offset)

    def regulate(self, most_bytes: int, *, is_searched: bool) -> int | None:
        """Pause the partition, or not; return the offset from which it is read again now."""
        if is_searched or self.held_bytes <= most_bytes // 2:
            self.is_paused = False
        elif self.held_bytes >= most_bytes:
            self.is_paused = True
        if self.is_paused or self.rewind is None:
            return None
        self.passed, self.rewind, self.is_caught_up = self.rewind, None, False
        return self.passed


@dataclass(slots=True)
class WaitingBatch:
    """A batch that waits, its id, and when it arrived."""

    batch: ConsumedBatch
    id: str
    arrived: float


@dataclass(slots=True)
class Follower:
    """A partition of a topic that follows.

    `begun` are ranges of offsets behind those that were read, which earlier members handled;
    `done_after` those between unhandled offsets, by the one before. Offsets before `decidable` were
    read before the end of the leader's log was asked for, and those of the leader before
    `leader_decidable` before the end of this one was. `searched_again` is the leader's batch for
    which evicted ones were read again.
    """

    reading: Reading
    begun: deque[tuple[int, int]] = field(default_factory=deque)
    kept: dict[int, WaitingBatch] = field(default_factory=dict)
    by_id: dict[str, dict[int, ConsumedBatch]] = field(default_factory=dict)
    joined: dict[int, None] = field(default_factory=dict)
    unhandled: list[int] = field(default_factory=list)
    done_after: dict[int, tuple[int, int]] = field(default_factory=dict)
    decidable: int = 0
    leader_decidable: int = 0
    searched_again: int = -1

    @classmethod
    def begin(cls, at: Position) -> "Follower":
        """Return that of a partition which is read from a position on."""
        return cls(Reading.at(at), deque(at.done))

    def takes(self, offset: int) -> bool:
        """Note that a record is read next; whether its batch is needed."""
        is_new = offset >= self.reading.frontier
        self.pass_to(offset)
        if self.begun and self.begun[0][0] <= offset:
            self.pass_to(self.begun[0][1] + 1)
            return False
        if is_new:
            self.unhandled.append(offset)
        self.reading.pass_to(offset + 1)
        return self._is_evicted(offset)

    def pass_to(self, offset: int) -> None:
        """Note that all before an offset was read."""
        # Evicted ones that are not read again were deleted by retention meanwhile.
        first = bisect_left(self.unhandled, self.reading.passed)
        behind = bisect_left(self.unhandled, offset)
        for gone in [one for one in self.unhandled[first:behind] if self._is_evicted(one)]:
            self.handle(gone)
        while self.begun and self.begun[0][1] < offset:
            self._add_done(len(self.unhandled), self.begun.popleft())
        self.reading.pass_to(offset)

    def add(self, batch: ConsumedBatch, of: str, now: float) -> None:
        """Keep a batch that `takes` needs."""
        self.kept[batch.offset] = WaitingBatch(batch, of, now)
        # Several of one id where a delivery is at least once.
        self.by_id.setdefault(of, {})[batch.offset] = batch
        self.reading.held_bytes += held_bytes(batch.rows)

    def evict(self, most_bytes: int, pinned: str) -> None:
        """Forget the oldest batches, but those of one id, while more than `most_bytes` are held."""
        while self.reading.held_bytes >= most_bytes:
            others = (one for one, kept in self.kept.items() if kept.id != pinned)
            if (oldest := next(others, None)) is None:
                return
            self._release(oldest)

    def join(self, of: str) -> None:
        """Note that the first batch of an id is joined."""
        offset = next(iter(self.by_id[of]))
        self._release(offset)
        self.joined[offset] = None

    def finish(self) -> None:
        """Note that the caller has all rows of the batch that was joined first."""
        offset = next(iter(self.joined))
        del self.joined[offset]
        self.handle(offset)

    def leave_out(self, offset: int) -> None:
        """Note that a batch that is kept is not joined."""
        self._release(offset)
        self.handle(offset)

    def handle(self, offset: int) -> None:
        """Note that a record is handled."""
        at = bisect_left(self.unhandled, offset)
        del self.unhandled[at]
        _, last = self.done_after.pop(offset, (offset, offset))
        self._add_done(at, (offset, last))

    @property
    def first_evicted(self) -> int | None:
        """The first offset that must be read again."""
        if len(self.unhandled) == len(self.kept) + len(self.joined):
            return None
        return next(one for one in self.unhandled if self._is_evicted(one))

    def undecided(self) -> Iterator[WaitingBatch]:
        """Yield the batches that wait and were read before the leader's end was asked for."""
        if self.unhandled and self.unhandled[0] < self.decidable:
            yield from [one for at, one in self.kept.items() if at < self.decidable]

    def awaits_leader_since(self, earliest: float) -> bool:
        """Whether a batch waits since then, for which the leader's end must be asked for."""
        if self.kept:
            offset, oldest = next(iter(self.kept.items()))
            return offset >= self.decidable and oldest.arrived <= earliest
        evicted = self.first_evicted
        return evicted is not None and evicted >= self.decidable

    def position(self) -> Position:
        """Return where reading must continue: at the first batch that was not handled."""
        low = self.unhandled[0] if self.unhandled else self.reading.frontier
        between = [done for _, done in sorted(self.done_after.items())]
        return Position(low, done=(*between, *self.begun), boundary=self.reading.boundary_at(low))

    def _is_evicted(self, offset: int) -> bool:
        at = bisect_left(self.unhandled, offset)
        is_unhandled = at < len(self.unhandled) and self.unhandled[at] == offset
        return is_unhandled and offset not in self.kept and offset not in self.joined

    def _release(self, offset: int) -> None:
        kept = self.kept.pop(offset)
        same = self.by_id[kept.id]
        del same[offset]
        if not same:
            del self.by_id[kept.id]
        self.reading.held_bytes -= held_bytes(kept.batch.rows)

    def _add_done(self, at: int, done: tuple[int, int]) -> None:
        """Note a range behind the unhandled offset before `at`; before the first, it needs none."""
        if at:
            before = self.unhandled[at - 1]
            first, last = self.done_after.get(before, done)
            self.done_after[before] = min(first, done[0]), max(last, done[1])
