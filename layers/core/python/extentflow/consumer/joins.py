"""Joins the topics of column groups: the batches of the same rows, by their ids.

    topic of the first group   b1  b2  b3        decides the order
    topic of another group     b2  b1  b3        b2 waits for b1
    joined                     b1  b2  b3        all columns

Producers write the groups of a batch in one transaction, so that all of them arrive. Those of
different producers may interleave differently in each topic.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from extentflow.consumer.batches import ConsumedBatch, Position
from extentflow.errors import CorruptRecord, Misconfigured

# Transactions end in all partitions at about the same time.
JOIN_SECONDS = 60.0
Place = tuple[str, int]


@dataclass(slots=True)
class _Follower:
    """A partition of a topic that follows: batches that wait, by id, and what was handled.

    `joined` are those that the caller has or gets next, in the leader's order. `begun` are ranges
    that were handled before this member read the partition from `next_offset`.
    """

    next_offset: int = 0
    begun: tuple[tuple[int, int], ...] = ()
    waiting: dict[str, deque[ConsumedBatch]] = field(default_factory=dict)
    joined: deque[ConsumedBatch] = field(default_factory=deque)
    handled: set[int] = field(default_factory=set)

    def add(self, batch: ConsumedBatch, of: str) -> None:
        # Several of one id where a delivery is at least once.
        self.waiting.setdefault(of, deque()).append(batch)
        self.next_offset = batch.offset + 1

    def join(self, of: str) -> None:
        same = self.waiting[of]
        self.joined.append(same.popleft())
        if not same:
            del self.waiting[of]

    def finish(self) -> None:
        self.handled.add(self.joined.popleft().offset)

    def position(self) -> Position:
        """Return where reading must continue: at the first batch that was not handled."""
        left = sorted(one.offset for same in (*self.waiting.values(), self.joined) for one in same)
        low = left[0] if left else self.next_offset
        self.handled = {offset for offset in self.handled if offset >= low}
        own = ((offset, offset) for offset in self.handled)
        ranges: list[tuple[int, int]] = []
        for first, last in sorted((*(one for one in self.begun if one[1] >= low), *own)):
            # Between batches that were handled are ends of transactions, unless a batch waits there
            # or was not read yet.
            if (
                ranges
                and first <= self.next_offset
                and bisect_left(left, first) == bisect_left(left, ranges[-1][1])
            ):
                ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
            else:
                ranges.append((max(first, low), last))
        return Position(low, done=tuple(ranges))


class GroupJoin:
    """Joins batches of several topics; those of the first one lead.

    `columns`: only these, in this order; None: all, and of a column in several groups the first.
    """

    def __init__(self, topics: Sequence[str], columns: Sequence[str] | None) -> None:
        if len(set(topics)) < 2:  # noqa: PLR2004 - a join
            raise Misconfigured("a join needs the topics of two or more column groups")
        self._leader, *self._followers = dict.fromkeys(topics)
        self._columns = columns
        self._heads: dict[int, deque[ConsumedBatch]] = {}
        self._of: dict[Place, _Follower] = {}
        self._waiting_since: dict[int, float] = {}
        self._yielded: dict[int, ConsumedBatch] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a batch waits for its other columns."""
        return any(self._heads.values())

    def begin(self, topic: str, partition: int, at: Position) -> None:
        """Note that a partition is read from a position on."""
        if topic != self._leader:
            self._of[topic, partition] = _Follower(at.offset, at.done)

    def add(self, batches: Sequence[ConsumedBatch]) -> list[ConsumedBatch]:
        """Return the joined batches of which all columns have arrived, in the leader's order."""
        for batch in batches:
            if batch.facts is None:
                raise CorruptRecord(
                    f"topic {batch.topic}[{batch.partition}] offset {batch.offset}: no columnar"
                    " value, so that there is nothing to join it by"
                )
            if batch.topic == self._leader:
                self._heads.setdefault(batch.partition, deque()).append(batch)
                continue
            follower = self._of.setdefault((batch.topic, batch.partition), _Follower())
            follower.add(batch, batch.facts.batch)
        return [joined for one in list(self._heads) for joined in self._complete(one)]

    def _complete(self, partition: int) -> list[ConsumedBatch]:
        heads = self._heads[partition]
        found: list[ConsumedBatch] = []
        while heads:
            if self._lacking(heads[0]):
                self._waiting_since.setdefault(partition, time.monotonic())
                return found
            self._waiting_since.pop(partition, None)
            followers = [self._of[topic, partition] for topic in self._followers]
            try:
                joined = self._joined(
                    heads[0], [each.waiting[_id(heads[0])][0] for each in followers]
                )
            except CorruptRecord:
                if found:  # it is raised behind what precedes it, and stays the next one
                    return found
                raise
            for each in followers:
                each.join(_id(heads[0]))
            heads.popleft()
            found.append(joined)
        return found

    def _lacking(self, head: ConsumedBatch) -> list[str]:
        """Return the topics from which the columns of a batch have not arrived."""
        nothing = _Follower()
        return [
            topic
            for topic in self._followers
            if _id(head) not in self._of.get((topic, head.partition), nothing).waiting
        ]

    def yielded(self, batch: ConsumedBatch) -> None:
        """Note that the caller gets a batch, and so has the one before it."""
        before = self._yielded.get(batch.partition)
        # The rest of the same one, where the caller left it.
        if before is not None and before.offset != batch.offset:
            self.finish(before)
        self._yielded[batch.partition] = batch

    def _joined(self, head: ConsumedBatch, others: Sequence[ConsumedBatch]) -> ConsumedBatch:
        columns: dict[str, pa.Array] = {}
        for part in (head, *others):
            rows = part.rows if part is head else part.rows.slice(head.row)
            if rows.num_rows != head.rows.num_rows:
                raise CorruptRecord(
                    f"topic {part.topic}[{part.partition}] offset {part.offset}: its batch has"
                    f" other rows than the one of topic {head.topic} at offset {head.offset}"
                )
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                columns.setdefault(name, column)
        if self._columns is not None:
            lacking = [name for name in self._columns if name not in columns]
            if lacking:
                raise CorruptRecord(
                    f"topic {head.topic}[{head.partition}] offset {head.offset}: no group has the"
                    f" column {', '.join(lacking)}"
                )
            columns = {name: columns[name] for name in self._columns}
        return replace(head, rows=pa.record_batch(columns))

    def finish(self, batch: ConsumedBatch) -> None:
        """Note that the caller has all rows of a batch."""
        if self._yielded.pop(batch.partition, None) is None:
            return
        for topic in self._followers:
            self._of[topic, batch.partition].finish()

    def positions(self, leading: Mapping[Place, Position]) -> dict[Place, Position]:
        """Return the positions of the topics that follow."""
        for batch in list(self._yielded.values()):
            if leading.get((batch.topic, batch.partition)) == batch.after(batch.rows.num_rows):
                self.finish(batch)
        partitions = {partition for topic, partition in leading if topic == self._leader}
        return {
            place: follower.position()
            for place, follower in self._of.items()
            if place[1] in partitions
        }

    def forget(self, places: set[Place]) -> None:
        """Drop what waits of partitions that another member has now."""
        for topic, partition in places:
            self._of.pop((topic, partition), None)
            if topic == self._leader:
                self._heads.pop(partition, None)
                self._yielded.pop(partition, None)
                self._waiting_since.pop(partition, None)

    def require_progress(self, now: float, *, ended: set[Place]) -> None:
        """Raise CorruptRecord for a batch whose other columns do not arrive.

        That is, their partitions were read to the end JOIN_SECONDS after it arrived.
        """
        for partition, since in self._waiting_since.items():
            head = self._heads[partition][0]
            lacking = self._lacking(head)
            if now - since > JOIN_SECONDS and all((one, partition) in ended for one in lacking):
                raise CorruptRecord(
                    f"topic {head.topic}[{partition}] offset {head.offset}: its columns of"
                    f" {', '.join(lacking)} are missing there; were they deleted by retention?"
                    " Read behind that offset, or without these topics"
                )


def _id(batch: ConsumedBatch) -> str:
    return "" if batch.facts is None else batch.facts.batch
