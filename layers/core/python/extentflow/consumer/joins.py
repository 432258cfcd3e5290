"""Joins the topics of column groups: the batches of the same rows, by their ids.

    topic of the first group   b1  b2  b3        leads: decides the order
    topic of another group     b2  b1  b3        follows: b2 waits for b1
    joined                     b1  b2  b3        all columns

Producers write the groups of a batch in one transaction, to the same partition of each topic. Those
of different producers may interleave differently in each topic.

What waits is bounded. A partition that holds too much is paused, unless the leader's next batch
needs it: then its oldest batches are evicted, and read again later.

A batch is incomplete when another topic does not have its part. That is certain when that topic was
read up to the end that its log had after the batch arrived, open transactions included. The batch's
transaction was committed by then, so that the part would be before that end.

What is handled of a topic that follows is stated by ranges of offsets. Where they do not fit into
the metadata of an offset, an earlier state is committed for which they did, and the leader's
progress. The leader's batches since that state are read and joined again, and not yielded again.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from extentflow.arrays.buffers import held_bytes
from extentflow.consumer.followers import Follower, Reading
from extentflow.consumer.row_batches import ConsumedBatch, Position
from extentflow.errors import CorruptRecord, Misconfigured
from extentflow.kafka.producer import LOG

JOIN_BYTES = 256 << 20
# The default of brokers, `offset.metadata.max.bytes`, without what states the topic's origin.
METADATA_BYTES = 4096 - 64
# A batch that waits so long is looked for; until then its part is usually on its way.
JOIN_SECONDS = 5.0
Place = tuple[str, int]
_START = Position(0)


@dataclass(frozen=True, slots=True)
class Flow:
    """What is to be read next: which partitions are paused, and which are read from where."""

    paused: frozenset[Place]
    rewound: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A batch without its part in another topic, which was read from `start` to `end`."""

    batch: ConsumedBatch
    topic: str
    start: int
    end: int

    def __str__(self) -> str:
        batch = self.batch
        return (
            f"{batch.place}: batch {_id(batch)} has"
            f" no part in topic {self.topic}, whose partition {batch.partition} was read from"
            f" offset {self.start} to {self.end}, its end: retention deleted the part, or reading"
            " began behind it"
        )


@dataclass(slots=True)
class _PartitionJoin:
    """One partition of all topics.

    Of the leader, `heads` wait, and batches before `replayed_to` were handled by earlier members.
    Until then, it `is_replaying`. Of batches in `without`, other topics may still have parts.
    `begun` is where it was read from. `behind` is the position behind the last batch that is no
    head any more; `lifts` lead from such positions behind batches that were left out.
    `fitting` are the last positions that fitted into metadata, the leader's first.
    """

    leader: str
    followers: dict[str, Follower]
    reading: Reading = field(default_factory=Reading)
    heads: deque[ConsumedBatch] = field(default_factory=deque)
    begun: Position = _START
    behind: Position = _START
    replayed_to: int = 0
    is_replaying: bool = False
    without: set[str] = field(default_factory=set)
    stuck_since: float | None = None
    yielded: ConsumedBatch | None = None
    lifts: dict[Position, Position] = field(default_factory=dict)
    fitting: tuple[Position, dict[str, Position]] = field(default_factory=lambda: (_START, {}))

    def begin(self, topic: str, at: Position) -> None:
        leading, others = self.fitting
        if topic != self.leader:
            self.followers[topic] = Follower.begin(at)
            self.fitting = leading, {**others, topic: at}
            return
        self.reading = Reading.at(at)
        self.replayed_to = at.resumes_at
        self.begun = self.behind = Position(at.resumes_at, at.row)
        self.is_replaying = self.replayed_to > at.offset
        self.fitting = Position(at.offset) if self.is_replaying else self.begun, others

    def readings(self) -> Iterator[tuple[str, Reading]]:
        yield self.leader, self.reading
        yield from ((topic, follower.reading) for topic, follower in self.followers.items())

    def lacking(self) -> list[str]:
        """Return the topics from which the columns of the leader's next batch have not arrived."""
        if not self.heads:
            return []
        of = _id(self.heads[0])
        return [topic for topic, follower in self.followers.items() if of not in follower.by_id]

    def takes(self, topic: str, offset: int, most_bytes: int) -> bool:
        searched = topic in self.lacking()
        reading = dict(self.readings())[topic]
        if reading.drops(offset, most_bytes, is_searched=searched):
            return False
        if topic != self.leader:
            return self.followers[topic].takes(offset)
        reading.pass_to(offset + 1)
        return True

    def add(self, batch: ConsumedBatch, most_bytes: int, now: float) -> None:
        if batch.topic == self.leader:
            self.heads.append(batch)
            self.reading.held_bytes += held_bytes(batch.rows)
            return
        follower = self.followers[batch.topic]
        if _id(batch) in self.without:
            follower.handle(batch.offset)
            return
        if batch.topic in self.lacking():
            follower.evict(most_bytes, _id(self.heads[0]))
        follower.add(batch, _id(batch), now)

    def take(self, now: float) -> tuple[ConsumedBatch, list[ConsumedBatch]] | None:
        """Return the leader's next batch, which stays, and its parts; None: not all are there."""
        if not self.heads:
            return None
        if self.lacking():
            self.stuck_since = now if self.stuck_since is None else self.stuck_since
            return None
        of = _id(self.heads[0])
        return self.heads[0], [
            next(iter(one.by_id[of].values())) for one in self.followers.values()
        ]

    def advance(self) -> bool:
        """Note that the leader's next batch is joined; whether it is yielded."""
        head = self._next_head()
        for follower in self.followers.values():
            follower.join(_id(head))
        if head.offset >= self.replayed_to:
            self.is_replaying = False
            return True
        for follower in self.followers.values():
            follower.finish()
        return False

    def _next_head(self) -> ConsumedBatch:
        head = self.heads.popleft()
        self.reading.held_bytes -= held_bytes(head.rows)
        # What is replayed precedes it.
        self.behind = max(self.behind, head.after(head.rows.num_rows))
        self.stuck_since = None
        return head

    def finish(self) -> None:
        if self.yielded is None:
            return
        self.yielded = None
        for follower in self.followers.values():
            follower.finish()

    @property
    def is_waiting(self) -> bool:
        left = any(one.kept or one.first_evicted is not None for one in self.followers.values())
        dropped = any(reading.rewind is not None for _, reading in self.readings())
        return bool(self.heads) or left or dropped

    # -- what is read -----------------------------------------------------------------------------

    def flow(self, most_bytes: int) -> Iterator[tuple[str, bool, int | None]]:
        """Yield of each topic whether it is paused, and from where it is read again now."""
        searched = self.lacking()
        for follower in self.followers.values():
            is_idle = not self.heads and self.reading.is_at_end
            low = follower.reading.held_bytes <= most_bytes // 2
            if is_idle and low and follower.reading.rewind is None:
                follower.reading.rewind = follower.first_evicted
        for topic, reading in self.readings():
            rewound = reading.regulate(most_bytes, is_searched=topic in searched)
            yield topic, reading.is_paused, rewound

    def reached(self, topic: str, offset: int) -> None:
        """Note the end of a partition, as far as it can be read."""
        reading = dict(self.readings())[topic]
        if reading.rewind is not None:
            return
        reading.is_caught_up = True
        self.pass_to(topic, offset)

    def pass_to(self, topic: str, offset: int) -> None:
        if topic == self.leader:
            self.reading.pass_to(offset)
        else:
            self.followers[topic].pass_to(offset)

    # -- batches that are incomplete --------------------------------------------------------------

    def overdue(self, earliest: float) -> Iterator[str]:
        """Yield the topics whose ends must be asked for: batches wait for them since then.

        Or the part may be among evicted ones: these are read again where it is nowhere else.
        """
        is_long = self.stuck_since is not None and self.stuck_since <= earliest
        for topic in self.lacking():
            follower = self.followers[topic]
            is_evicted = follower.reading.is_caught_up and follower.first_evicted is not None
            is_asked = self.heads[0].offset < follower.leader_decidable
            if (is_long or is_evicted) and not is_asked:
                yield topic
        if any(one.awaits_leader_since(earliest) for one in self.followers.values()):
            yield self.leader

    def ended(self, topic: str, end: int) -> None:
        """Note the end of a topic's log, which was asked for now."""
        dict(self.readings())[topic].end = end
        if topic != self.leader:
            self.followers[topic].leader_decidable = self.reading.frontier
            return
        for follower in self.followers.values():
            follower.decidable = follower.reading.frontier

    def incomplete(self) -> Incomplete | None:
        """Return a batch that is certainly incomplete."""
        for topic in self.lacking():
            head, follower = self.heads[0], self.followers[topic]
            reading = follower.reading
            if head.offset >= follower.leader_decidable or not reading.is_at_end:
                continue
            evicted = follower.first_evicted
            if evicted is None or follower.searched_again == head.offset:
                return Incomplete(head, topic, reading.start, reading.end or 0)
            follower.searched_again, reading.rewind = head.offset, evicted
        if not self.reading.is_at_end:
            return None
        for follower in self.followers.values():
            here = {_id(one) for one in self.heads}
            for kept in follower.undecided():
                if kept.id not in here:
                    reading = self.reading
                    return Incomplete(kept.batch, self.leader, reading.start, reading.end or 0)
        return None

    def is_before_boundary(self, batch: ConsumedBatch) -> bool:
        # What is replayed was handled, or is left out because reading begins behind it.
        is_replayed = batch.topic == self.leader and batch.offset < self.replayed_to
        return is_replayed or batch.offset < dict(self.readings())[batch.topic].boundary

    def leave_out(self, batch: ConsumedBatch) -> None:
        if batch.topic != self.leader:
            self.followers[batch.topic].leave_out(batch.offset)
            return
        for topic in self.followers.keys() - set(self.lacking()):
            follower = self.followers[topic]
            follower.leave_out(next(iter(follower.by_id[_id(batch)])))
        self.without.add(_id(batch))
        before = self.behind
        self._next_head()
        if self.behind != before:
            self.lifts[before] = self.behind

    # -- positions --------------------------------------------------------------------------------

    def positions(self, leading: Position | None, metadata_bytes: int) -> dict[str, Position]:
        """Return positions to commit where the leader's is `leading`; None: nothing is yielded."""
        before = self.yielded
        if before is not None and leading == before.after(before.rows.num_rows):
            self.finish()
        at = self.begun if leading is None else leading
        self.lifts = {one: behind for one, behind in self.lifts.items() if one >= at}
        while at in self.lifts:
            at = self.lifts[at]
        is_done = at == self.behind and not self.heads and self.yielded is None
        if is_done and self.reading.is_caught_up and not self.is_replaying:
            at = max(at, Position(self.reading.frontier))  # markers of transactions follow
        if leading is None and at == self.begun:
            return {}
        others = {topic: follower.position() for topic, follower in self.followers.items()}
        does_fit = all(len(one.to_metadata()) <= metadata_bytes for one in others.values())
        if does_fit and not self.is_replaying:
            self.fitting = at, others
        else:
            first, others = self.fitting
            if at.offset > first.offset:
                at = Position(first.offset, at.row, ((first.offset, at.offset - 1),))
        return {self.leader: replace(at, boundary=self.reading.boundary_at(at.offset)), **others}


class GroupJoin:
    """Joins batches of several topics; those of the first one lead.

    `columns`: only these, in this order; None: all, and of a column in several groups the first.
    Each partition of a topic holds at most an equal share of `most_bytes` of rows, and one batch.
    Incomplete batches raise CorruptRecord, unless `skips_incomplete`. Metadata of offsets has at
    most `metadata_bytes`.
    """

    def __init__(
        self,
        topics: Sequence[str],
        columns: Sequence[str] | None,
        *,
        most_bytes: int = JOIN_BYTES,
        skips_incomplete: bool = False,
    ) -> None:
        if len(set(topics)) < 2:  # noqa: PLR2004 - a join
            raise Misconfigured("a join needs the topics of two or more column groups")
        self._leader, *self._followers = dict.fromkeys(topics)
        self._columns = columns
        self._most_bytes = most_bytes
        self._skips = skips_incomplete
        self.metadata_bytes = METADATA_BYTES
        self._parts: dict[int, _PartitionJoin] = {}
        # Partitions of which a batch may be complete now.
        self._changed: dict[int, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a batch waits for its other columns, or is to be read again."""
        return any(part.is_waiting for part in self._parts.values())

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows wait."""
        readings = (one for part in self._parts.values() for _, one in part.readings())
        return sum(reading.held_bytes for reading in readings)

    def is_leader(self, topic: str) -> bool:
        """Whether the order of a topic is that of the batches."""
        return topic == self._leader

    def begin(self, topic: str, partition: int, at: Position) -> None:
        """Note that a partition is read from a position on."""
        self._part(partition).begin(topic, at)

    def has_read(self, topic: str, partition: int, offset: int) -> bool:
        """Whether all records before an offset were read, though some are to be read again."""
        return offset <= dict(self._part(partition).readings())[topic].frontier

    def pass_to(self, topic: str, partition: int, offset: int) -> None:
        """Note that records before an offset that were not read are gone."""
        self._part(partition).pass_to(topic, offset)

    def takes(self, topic: str, partition: int, offset: int) -> bool:
        """Note that a record is read next; whether its batch is needed now: to be called once."""
        return self._part(partition).takes(topic, offset, self._share)

    def add(self, batch: ConsumedBatch, now: float) -> None:
        """Add a batch that `takes` needs; `now` in seconds. Raises CorruptRecord for other rows."""
        if batch.facts is None:
            raise CorruptRecord(
                f"{batch.place}: no columnar value, so that there is nothing to join it by"
            )
        self._part(batch.partition).add(batch, self._share, now)
        self._changed[batch.partition] = None

    def leave_out(self, topic: str, partition: int, offset: int) -> None:
        """Note that a record that `takes` needs has no rows."""
        if topic != self._leader:
            self._part(partition).followers[topic].handle(offset)

    def take(self, now: float) -> ConsumedBatch | None:
        """Return the next batch of which all columns have arrived, in the leader's order.

        Raises CorruptRecord where its parts do not fit together; then it stays the next one.
        """
        while self._changed:
            partition = next(iter(self._changed))
            part = self._parts[partition]
            found = part.take(now)
            if found is None:
                del self._changed[partition]
                continue
            joined = self._joined(*found)
            if part.advance():
                return joined
        return None

    def _joined(self, head: ConsumedBatch, others: Sequence[ConsumedBatch]) -> ConsumedBatch:
        columns: dict[str, pa.Array] = {}
        for part in (head, *others):
            rows = part.rows if part is head else part.rows.slice(head.row)
            if rows.num_rows != head.rows.num_rows:
                raise CorruptRecord(
                    f"{part.place}: its batch has"
                    f" other rows than the one of topic {head.topic} at offset {head.offset}"
                )
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                columns.setdefault(name, column)
        if self._columns is not None:
            lacking = [name for name in self._columns if name not in columns]
            if lacking:
                raise CorruptRecord(f"{head.place}: no group has the column {', '.join(lacking)}")
            columns = {name: columns[name] for name in self._columns}
        return replace(head, rows=pa.record_batch(columns))

    def yielded(self, batch: ConsumedBatch) -> None:
        """Note that the caller gets a batch, and so has the one before it."""
        part = self._parts[batch.partition]
        # The rest of the same one, where the caller left it.
        if part.yielded is not None and part.yielded.offset != batch.offset:
            part.finish()
        part.yielded = batch

    def positions(self, leading: Mapping[Place, Position]) -> dict[Place, Position]:
        """Return the positions of all topics; `leading` are those behind what was handled."""
        found: dict[Place, Position] = {}
        for number, part in self._parts.items():
            at = leading.get((self._leader, number))
            positions = part.positions(at, self.metadata_bytes)
            found |= {(topic, number): one for topic, one in positions.items()}
        return found

    def forget(self, places: set[Place]) -> None:
        """Drop partitions that another member has now, or that are read from elsewhere."""
        for _, partition in places:
            self._parts.pop(partition, None)
            self._changed.pop(partition, None)

    def flow(self) -> Flow:
        """Return what is to be read next; the caller does so before it reads on."""
        paused: set[Place] = set()
        rewound: dict[Place, int] = {}
        for number, part in self._parts.items():
            for topic, is_paused, offset in part.flow(self._share):
                if is_paused:
                    paused.add((topic, number))
                if offset is not None:
                    rewound[topic, number] = offset
        return Flow(frozenset(paused), rewound)

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Note that all committed records before an offset, which is the end, were read."""
        self._part(partition).reached(topic, offset)

    def overdue(self, earliest: float) -> list[Place]:
        """Return the partitions for which batches wait since `earliest`, in seconds.

        The caller passes the ends of their logs to `settle`.
        """
        return [
            (topic, number)
            for number, part in self._parts.items()
            for topic in part.overdue(earliest)
        ]

    def settle(self, ends: Mapping[Place, int]) -> None:
        """Decide about batches that wait; `ends` of logs were asked for now.

        Raises CorruptRecord for one that is incomplete, or leaves it out.
        """
        for (topic, partition), end in ends.items():
            self._parts[partition].ended(topic, end)
        for number, part in self._parts.items():
            while (found := part.incomplete()) is not None:
                if not part.is_before_boundary(found.batch):
                    if not self._skips:
                        raise CorruptRecord(
                            f"{found}; skip_incomplete=True leaves such batches out, and a consumer"
                            " of one of the topics reads what it has"
                        )
                    LOG.warning("%s; left out", found)
                part.leave_out(found.batch)
                self._changed[number] = None

    @property
    def _share(self) -> int:
        topics = 1 + len(self._followers)
        return max(1, self._most_bytes // (topics * max(1, len(self._parts))))

    def _part(self, partition: int) -> _PartitionJoin:
        if partition not in self._parts:
            part = _PartitionJoin(self._leader, {})
            for topic in self._followers:
                part.begin(topic, _START)
            self._parts[partition] = part
        return self._parts[partition]


def _id(batch: ConsumedBatch) -> str:
    return "" if batch.facts is None else batch.facts.batch
