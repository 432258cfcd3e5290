"""A model of members that read the topics of column groups, crash and resume, without a broker.

`Topics` hold the batches; `Member` does with a `GroupJoin` what `TopicConsumer` does, a random step
at a time. What it yields counts when it commits, as with a sink that stores rows and positions
together.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from extentflow.columnar import BatchFacts
from extentflow.consumer import ConsumedBatch, Position
from extentflow.consumer.joins import GroupJoin

Place = tuple[str, int]


class Crash(Exception):  # noqa: N818 - no error
    """The end of a member."""


def facts_of(batch: str, rows: int) -> BatchFacts:
    return BatchFacts(
        encoding="arrow",
        rows=rows,
        schema="s",
        batch=batch,
        object="s3://b/k",
        version="v",
        extent="0-9",
        first=0,
        last=rows - 1,
        unit="row",
    )


def batch_of(
    topic: str, batch: str, offset: int, *, rows: int = 3, partition: int = 0, column: str = ""
) -> ConsumedBatch:
    """Return a batch whose one column is called as its topic, unless `column` is given."""
    values = [f"{batch}/{row}" for row in range(rows)]
    columns = pa.record_batch({column or topic: pa.array(values, pa.string())})
    return ConsumedBatch(topic, partition, columns, offset, facts=facts_of(batch, rows))


@dataclass
class Topics:
    """Batches by topic and partition; those of each partition are the same in each topic."""

    names: Sequence[str]
    batches: Mapping[Place, Sequence[ConsumedBatch]]

    @classmethod
    def made(
        cls, source: random.Random, *, topics: int, partitions: int, count: int, displaced: int
    ) -> "Topics":
        """Return random topics; `displaced` is how far batches stand from the leader's order."""
        names = [f"t{number}" for number in range(topics)]
        batches: dict[Place, Sequence[ConsumedBatch]] = {}
        for partition in range(partitions):
            sizes = {f"{partition}-{one}": source.randrange(1, 5) for one in range(count)}
            for topic in names:
                place_of = {one: at + source.uniform(0, displaced) for at, one in enumerate(sizes)}
                order = sorted(sizes, key=place_of.__getitem__)
                offset, found = source.randrange(3), []
                for one in order:
                    found.append(batch_of(topic, one, offset, rows=sizes[one], partition=partition))
                    # Transactions leave gaps.
                    offset += source.choice([1, 1, 1, 2, 5])
                batches[topic, partition] = found
        return cls(names, batches)

    @property
    def truth(self) -> dict[int, list[str]]:
        """The rows of each partition in the leader's order."""
        leader = self.names[0]
        return {
            partition: [row for one in found for row in one.rows.column(0).to_pylist()]
            for (topic, partition), found in self.batches.items()
            if topic == leader
        }

    def ends(self, place: Place) -> int:
        """Return the offset behind the last batch."""
        return self.batches[place][-1].offset + 1


@dataclass
class Committed:
    """What survives members: positions, and the rows that were stored with them."""

    positions: dict[Place, Position] = field(default_factory=dict)
    rows: dict[int, list[str]] = field(default_factory=dict)
    longest_metadata: int = 0

    def position(self, place: Place) -> Position:
        """Return a position as it comes back from the broker."""
        at = self.positions.get(place, Position(0))
        return Position.of(at.offset, at.to_metadata())


class Member:
    """One member of the group, until it ends or crashes."""

    def __init__(self, topics: Topics, committed: Committed, source: random.Random) -> None:
        self._topics, self._committed, self._random = topics, committed, source
        self._join = GroupJoin(topics.names, None)
        self._starts = {place: committed.position(place) for place in topics.batches}
        for (topic, partition), at in self._starts.items():
            self._join.begin(topic, partition, at)
        self._next = {place: at.offset for place, at in self._starts.items()}
        self._positions: dict[Place, Position] = {}
        self._pending: dict[int, list[str]] = {}

    def read(self, *, crash: float, commit: float) -> None:
        """Read to the end; raise Crash with a probability for each batch."""
        while left := [place for place in self._next if self._fetched(place, 1)]:
            place = self._random.choice(left)
            fetched = self._fetched(place, self._random.choice([1, 1, 2, 10]))
            self._next[place] = fetched[-1].offset + 1
            unread = [one for each in fetched if (one := self._unread(each)) is not None]
            for batch in self._join.add(unread):
                self._positions[batch.topic, batch.partition] = batch.after(batch.rows.num_rows)
                self._join.yielded(batch)
                self._handle(batch, commit)
                if self._random.random() < crash:
                    raise Crash
                self._join.finish(batch)
            if self._random.random() < commit:
                self.commit()
        self.commit()

    def _handle(self, batch: ConsumedBatch, commit: float) -> None:
        """Take the rows of a batch, perhaps in parts with a commit between them."""
        parts = [tuple(row.values()) for row in batch.rows.to_pylist()]
        assert all(len(set(row)) == 1 for row in parts), "columns of different rows"
        assert all(len(row) == len(self._topics.names) for row in parts)
        rows = [row[0] for row in parts]
        taken = 0
        if self._random.random() < commit:
            taken = self._random.randrange(len(rows) + 1)
            self._take(batch.partition, rows[:taken])
            self._positions[batch.topic, batch.partition] = batch.after(taken)
            self.commit()
        self._take(batch.partition, rows[taken:])
        self._positions[batch.topic, batch.partition] = batch.after(len(rows))
        if self._random.random() < commit:
            self.commit()

    def _take(self, partition: int, rows: Sequence[str]) -> None:
        self._pending.setdefault(partition, []).extend(rows)

    def commit(self) -> None:
        """Store the positions, and what was taken up to them."""
        positions = {**self._positions, **self._join.positions(self._positions)}
        self._committed.positions.update(positions)
        metadata = [len(at.to_metadata()) for at in positions.values()]
        self._committed.longest_metadata = max([self._committed.longest_metadata, *metadata])
        for partition, rows in self._pending.items():
            self._committed.rows.setdefault(partition, []).extend(rows)
        self._pending = {}

    def _fetched(self, place: Place, most: int) -> Sequence[ConsumedBatch]:
        return [one for one in self._topics.batches[place] if one.offset >= self._next[place]][
            :most
        ]

    def _unread(self, batch: ConsumedBatch) -> ConsumedBatch | None:
        start = self._starts[batch.topic, batch.partition]
        if start.has_done(batch.offset):
            return None
        return batch.skip(start.row) if batch.offset == start.offset and start.row else batch
