"""A consumer of topics, as a member of a consumer group.

assigned ──committed offset, row──> reading ──batch──> caller ──commit──> offset, row
    ^                                  │
    └──────── rebalance ───────────────┘  what was not committed is read again, by whom owns it

A position that is gone is an error until the caller accepts the gap; `group_starts` says where
partitions begin that have no committed offset.

Tests: unit/consumer/test_lost_positions.py, integration/test_topic_consumer.py
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from types import TracebackType
from typing import Any, Self, TypeVar

from extentflow.columnar import EXTENT, OBJECT
from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.consumer import joins
from extentflow.consumer.data_frames import as_dicts, pandas_conversion, polars_conversion
from extentflow.consumer.group_starts import (
    TopicOrigin,
    partitions_at_start,
    require_settings,
)
from extentflow.consumer.joins import GroupJoin
from extentflow.consumer.read_ends import ReadEnds
from extentflow.consumer.row_batches import ConsumedBatch, Position
from extentflow.consumer.topic_watch import Gap, TopicWatch
from extentflow.consumer.value_reader import FindSchema, ValueReader
from extentflow.errors import (
    ExtentflowError,
    Fenced,
    Misconfigured,
    PositionGone,
    SinkUnavailable,
)
from extentflow.formats.parquet.column_keys import KeyService, MasterKeys
from extentflow.kafka.producer import LOG
from extentflow.kafka.reading import (
    CommittedOffset,
    ConsumedRecord,
    Place,
    RecordReader,
    consumer_settings,
    created_again,
    position_gone,
)
from extentflow.kafka.record_headers import by_name
from extentflow.kafka.settings import Sign, Timeouts, client_settings, with_tokens
from extentflow.kafka.topic_admin import Admin

POLL_RECORDS = 10_000
POLL_SECONDS = 0.1
REQUEST_SECONDS = 30.0
Made = TypeVar("Made")


class TopicConsumer:
    """Reads rows of `topics` as a member of the consumer group `group`; used by one thread.

    `kafka` are librdkafka's settings: `bootstrap.servers`, security. Only committed records are
    read. `columns`: only these; of columnar values, no others are decoded. `schema`: the members of
    JSON values and their types, as `json.schema` of a connector has them; None: the values show
    them. `find_schema` returns schemas of a registry by their ids. With `join`, the topics are
    those of column groups of the same rows: a batch has the columns of all of them, and the first
    topic decides the order. `join_bytes` bounds the rows that wait for their other columns: each
    partition of a topic holds at most an equal share and one batch. `skip_incomplete` leaves out
    batches of which a topic does not have the columns; otherwise they are errors. `start`:
    `earliest` or `latest`, where the group has no offset; partitions that are added to a topic are
    read from their beginning. `keys` decrypt columns of columnar
    values: the master keys `id:base64, id:base64`, or a service such as
    `extentflow.aws.kms.AwsKms()`, one for the process.

    A context manager. All calls raise SinkUnavailable where brokers do not answer, and
    Misconfigured where settings or permissions are wrong. Those that read raise PositionGone where
    records were deleted before the group read them, or a topic was created again. They raise it
    until `accept_gap`, or until another member has the partition.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        topics: str | Sequence[str],
        *,
        group: str,
        columns: Sequence[str] | None = None,
        schema: str | None = None,
        find_schema: FindSchema | None = None,
        join: bool = False,
        join_bytes: int = joins.JOIN_BYTES,
        skip_incomplete: bool = False,
        start: str = "earliest",
        sign: Sign | None = None,
        keys: str | KeyService | None = None,
    ) -> None:
        topics = [topics] if isinstance(topics, str) else list(topics)
        require_settings(kafka, start)
        self._reader = ValueReader(
            columns,
            lenient=join,
            schema=None if schema is None else JSON_SCHEMA.read(schema),
            find_schema=find_schema,
            keys=MasterKeys.of(keys, "keys") if isinstance(keys, str) else keys,
        )
        self._join: GroupJoin | None = None
        if join:
            self._join = GroupJoin(
                topics, columns, most_bytes=join_bytes, skips_incomplete=skip_incomplete
            )
        self._kafka, self._sign, self._start = kafka, sign, start
        self._subject, self._group = f"topics {', '.join(topics)} for group {group}", group
        self._watch = TopicWatch(self._admin)
        self._next_offsets: dict[Place, int] = {}
        self._gone: dict[Place, Gap] = {}
        self._assigned: set[Place] = set()
        self._ended: set[Place] = set()
        self._reached: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._positions: dict[Place, Position] = {}
        self._ends = ReadEnds()
        self._starts: dict[Place, Position] = {}
        self._fetched: deque[tuple[str, list[ConsumedRecord]]] = deque()
        self._ready: deque[ConsumedBatch] = deque()
        self._sought = self._assignment = 0
        self._arrived = 0.0
        self._broken: ExtentflowError | None = None
        self._reopened: set[str] = set()
        self._kept_gaps: dict[Place, Gap] = {}
        self._topics = topics
        self._client = self._open_client()

    def _open_client(self) -> RecordReader:
        settings = consumer_settings(self._kafka, self._group)
        if self._join is not None:  # one member has the same partition of all topics
            settings["partition.assignment.strategy"] = "range"
        client = RecordReader(with_tokens(settings, self._sign), self._subject)
        client.subscribe(self._topics, self._assign, self._revoke)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. What was not committed is read again by its next member."""
        self._watch.close()
        self._client.close()

    def batches(
        self, *, until_end: bool = False, idle_seconds: float | None = None
    ) -> Iterator[ConsumedBatch]:
        """Yield batches of rows, in order within each partition.

        Ends never, unless `until_end`: when every assigned partition was read to its end; or after
        `idle_seconds` without a record. Raises CorruptRecord for a value that cannot be decoded:
        its message names the offset; nothing of it is skipped. AccessDenied, likewise, for
        encrypted columns without their keys; Misconfigured for one of `columns` that a value lacks,
        which stays the next one. Of a join, CorruptRecord also for a batch of which a
        topic does not have the columns: the message names it, and that topic.
        """
        self._arrived, known = time.monotonic(), False
        while True:
            while (batch := self._next(until_end=until_end)) is not None:
                self._arrived = time.monotonic()
                self.handled(batch, batch.rows.num_rows)
                self._ends.yielded(batch)
                if self._join is not None:
                    self._join.yielded(batch)
                yield batch
            waiting = self._join is not None and self._join.is_waiting
            if until_end and self._assigned and self._ended >= self._assigned and not waiting:
                return
            waited = time.monotonic() - self._arrived
            is_idle = idle_seconds is not None and waited > idle_seconds
            if not self._assigned and not known and (is_idle or waited > REQUEST_SECONDS):
                self._client.require_brokers(REQUEST_SECONDS)
                known = True
            if is_idle:
                return

    def rows(
        self, *, until_end: bool = False, idle_seconds: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict; after `commit`, reading continues behind the last one yielded.

        Ends and raises as `batches`, which are several times faster. Raises UnsupportedType for
        values that Python lacks, such as nanoseconds; their batch stays the next one.
        """
        for batch in self.batches(until_end=until_end, idle_seconds=idle_seconds):
            rows = self._converted(batch, as_dicts)
            count, sought = 0, self._sought
            try:
                for count, row in enumerate(rows, 1):
                    self.handled(batch, count)
                    yield row
                    if self._sought != sought:
                        break
            finally:
                # A loop that is left in a batch continues there.
                if count < batch.rows.num_rows and self._sought == sought:
                    self._ready.appendleft(batch.skip(count))

    def pandas(
        self, *, until_end: bool = False, idle_seconds: float | None = None
    ) -> Iterator[Any]:
        """Yield batches as frames of pandas, which must be installed; as `batches`.

        Raises UnsupportedType for values that pandas lacks; their batch stays the next one. The
        columns have Arrow's types (`pandas.ArrowDtype`): with those of NumPy, integers beside
        nulls become doubles, and the types of a column differ from batch to batch.
        """
        convert = pandas_conversion()
        for batch in self.batches(until_end=until_end, idle_seconds=idle_seconds):
            yield self._converted(batch, convert)

    def polars(
        self, *, until_end: bool = False, idle_seconds: float | None = None
    ) -> Iterator[Any]:
        """Yield batches as frames of Polars, which must be installed; as `batches`.

        Raises UnsupportedType for a column whose type Polars lacks; its batch stays the next one.
        """
        convert = polars_conversion()
        for batch in self.batches(until_end=until_end, idle_seconds=idle_seconds):
            yield self._converted(batch, convert)

    def _converted(self, batch: ConsumedBatch, convert: Callable[[ConsumedBatch], Made]) -> Made:
        """Return the rows of a batch in another form; after an error, it is the next one again."""
        try:
            return convert(batch)
        except BaseException:
            self.handled(batch, 0)
            self._ready.appendleft(batch)
            raise

    def handled(self, batch: ConsumedBatch, rows: int) -> None:
        """State that only the first `rows` rows of the batch yielded last are to be committed."""
        self._positions[batch.topic, batch.partition] = batch.after(rows)

    def commit(self) -> None:
        """Commit the positions behind what was yielded last, or `handled` states.

        Where nothing but markers of transactions follows, these are behind them: `read_ends`.

        Raises Fenced where the group gave the partitions to another member meanwhile.
        """
        if self._join is not None:
            if not self._fetched:
                self._pass_ends(self._join)
            positions = self._join.positions(self._positions)
        else:
            waiting = [(topic, run[0].partition) for topic, run in self._fetched]
            waiting += [(one.topic, one.partition) for one in self._ready]
            positions = self._ends.moved(self._positions, waiting)
        if self._watch.is_due(before_commit=True):
            self._find_other_topics()
        if positions:
            self._commit(positions)
        self._ends.committed(self._positions)

    def _commit(self, positions: Mapping[Place, Position]) -> None:
        """Commit positions, but none of a topic that was created again: it has none yet."""
        gaps = self._gone
        offsets = {
            place: (at.offset, self._watch.origins[place[0]].added_to(at.to_metadata()))
            for place, at in positions.items()
            if place not in gaps or not gaps[place].topic_id
        }
        if offsets:
            self._client.commit(offsets)

    def accept_gap(self, gap: PositionGone) -> None:
        """Continue behind records that are gone: at the first offset that the partition has now.

        `gap` is what a call of this consumer raised; other partitions raise errors of their own.
        The next `commit` commits the new position. Does nothing where another member has the
        partition now. The first gap of a topic that was created again is committed at once, and
        this member joins the group again: it reads again what was not committed of others. Raises
        Misconfigured for a joined topic that was created again.
        """
        place = gap.topic, gap.partition
        if place not in self._gone:
            return
        again = bool(self._gone[place].topic_id)
        if again and self._join is None and self._watch.origins[gap.topic].id not in self._reopened:
            self._join_again(place, Position(gap.first))
            return
        if self._join is None:
            self._begin(place, Position(gap.first))
            self._positions[place] = Position(gap.first)
        elif gap.first < gap.position:
            raise Misconfigured(
                f"{gap}: its batches cannot be joined with those of the topic before; read the"
                " topics by another group"
            )
        # What waits for its other columns in a join stays as it is.
        self._continue_behind(gap)

    def _join_again(self, place: Place, at: Position) -> None:
        """Commit a position in a topic that was created again, and read on by a new client.

        The client knows the epochs of the former topic's leaders. It ignores the leaders of the new
        topic, whose epochs are lower, and would fetch nothing for ever.
        """
        del self._gone[place]
        self._commit({place: at})
        self._reopened.add(self._watch.origins[place[0]].id)
        self._kept_gaps = dict(self._gone)
        self._revoke(list(self._assigned))
        self._client.close()
        self._fetched.clear()
        self._ready.clear()
        self._sought += 1
        self._client = self._open_client()

    def seek(self, uri: str, extent: str | None = None) -> bool:
        """Read from the first batch of an object (its URI), or of one extent (`start-end`), on.

        Reads the partitions that are assigned from their beginning for it; those without such a
        batch are then read from their end on. Of joined topics, the one that leads decides, and
        reading begins with what precedes the batch: it is joined again, and not yielded. Returns
        whether there is such a batch; if not, reading continues where it was. Raises PositionGone
        as the calls that read.
        """
        while True:
            self._await_assignment()
            self._require_positions()
            assignment = self._assignment
            bounds = self._bounds_of(self._assigned)
            before = {one: self._positions.get(one) or self._starts[one] for one in self._leading}
            begins = {place: Position(bounds[place][0]) for place in self._leading}
            found = self._places_of(uri, extent, begins)
            if self._assignment == assignment:
                break
        is_found = bool(found)
        for place in self._leading - found.keys():
            found[place] = Position(bounds[place][1]) if is_found else before[place]
        starts = dict(found) if self._join is None else self._replayed(found, bounds)
        self._read_from(starts)
        self._positions = found
        return is_found

    @property
    def _leading(self) -> set[Place]:
        """The partitions whose order counts: all, or those of the topic that leads."""
        join = self._join
        return {one for one in self._assigned if join is None or join.is_leader(one[0])}

    def _places_of(
        self, uri: str, extent: str | None, begins: Mapping[Place, Position]
    ) -> dict[Place, Position]:
        """Return the first batch of an object in each partition; incomplete after a rebalance."""
        assignment, found = self._assignment, dict[Place, Position]()
        self._read_from(begins)
        while self._assignment == assignment and not self._ended >= begins.keys():
            for place, record in self._messages(skips=True):
                stated = by_name(record.headers)
                is_of = stated.get(OBJECT) == uri.encode() and (
                    extent is None or stated.get(EXTENT) == extent.encode()
                )
                if is_of:
                    found.setdefault(place, Position(record.offset))
        return found

    def _replayed(
        self, leading: Mapping[Place, Position], bounds: Mapping[Place, tuple[int, int]]
    ) -> dict[Place, Position]:
        """Return positions from which all topics are joined up to those of the leader.

        Batches that other topics had before the leader was read, up to their bounds, may lack their
        parts there: these precede its first record.
        """
        found: dict[Place, Position] = {}
        for place in self._assigned:
            low, end = bounds[place]
            if place in leading:
                at = leading[place]
                done = ((low, at.offset - 1),) if at.offset > low else ()
                found[place] = Position(low, at.row, done)
            else:
                found[place] = Position(low, boundary=end)
        return found

    def _next(self, *, until_end: bool) -> ConsumedBatch | None:
        """Return the next batch; None: nothing has arrived. What is fetched outlives a loop."""
        found = self._complete()
        if found is None and not self._fetched:
            self._fetch(until_end=until_end)
        if found is None and self._fetched and self._watch.is_due():
            self._find_other_topics()
        while found is None and self._fetched:
            self._decode()
            found = self._complete()
        return found

    def _complete(self) -> ConsumedBatch | None:
        if self._ready:
            return self._ready.popleft()
        return None if self._join is None else self._join.take(time.monotonic())

    def _fetch(self, *, until_end: bool) -> None:
        self._require_positions()
        if self._join is not None:
            self._steer(self._join, until_end=until_end)
        records = [one for one in self._messages() if one[0] in self._assigned]
        if records:
            self._arrived = time.monotonic()
            self._watch.fetched()
        for (topic, _), part in groupby(records, lambda one: one[0]):
            runs = self._reader.runs([record for _, record in part])
            self._fetched.extend((topic, run) for run in runs)
        is_last = until_end and self._ended >= self._assigned
        if not records and self._ends.must_repeat(self._positions, is_last=is_last):
            with suppress(Fenced):  # the next member reads the markers again
                self.commit()

    def _decode(self) -> None:
        """Decode what was fetched first. A value that cannot be decoded stays the next one."""
        topic, run = self._fetched[0]
        place, join = (topic, run[0].partition), self._join
        if join is None or join.takes(*place, run[0].offset):
            found = [self._unread(one) for one in self._reader.read(topic, run)]
            left = [one for one in found if one is not None and one.rows.num_rows]
            if join is None:
                self._ready.extend(left)
            elif left:
                for one in left:
                    join.add(one, time.monotonic())
            else:
                join.leave_out(*place, run[0].offset)
        self._fetched.popleft()

    def _steer(self, join: GroupJoin, *, until_end: bool) -> None:
        """Decide about batches that wait; pause partitions, and read them again from elsewhere."""
        self._pass_ends(join)
        is_last = until_end and self._ended >= self._assigned - self._paused
        overdue = join.overdue(time.monotonic() - (0 if is_last else joins.JOIN_SECONDS))
        if missing := [place for place in overdue if place not in self._assigned]:
            topic, partition = missing[0]
            raise Misconfigured(
                f"{self._subject}: this member has no partition {partition} of topic {topic};"
                " topics of column groups need the same number of partitions"
            )
        join.settle(self._ends_of(overdue) if overdue else {})
        flow = join.flow()
        paused = flow.paused & self._assigned
        self._client.resume(self._paused - paused)
        self._client.pause(paused - self._paused)
        for place, offset in flow.rewound.items():
            self._client.seek(place, offset)
            self._next_offsets[place] = offset
            self._ended.discard(place)
        self._paused = set(paused)

    def _pass_ends(self, join: GroupJoin) -> None:
        for place in self._reached.keys() & self._assigned:
            join.reached(*place, self._reached[place])
        self._reached.clear()

    def _ends_of(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the ends of partitions, open transactions included."""
        if not places:
            return {}
        with self._admin() as admin:
            return admin.ends_of([*places])

    def _bounds_of(self, places: Collection[Place]) -> Mapping[Place, tuple[int, int]]:
        """Return the first offset of partitions, and the end of what is committed of them.

        By a client of its own: with the consumer's, each request waits for a fetch.
        """
        if not places:
            return {}
        with self._admin() as admin:
            return admin.bounds_of([*places])

    def _admin(self) -> Admin:
        return Admin(with_tokens(client_settings(self._kafka, {}), self._sign), Timeouts())

    def _unread(self, batch: ConsumedBatch) -> ConsumedBatch | None:
        """Return a batch without the rows that were handled before this member began."""
        start = self._starts.get((batch.topic, batch.partition))
        if start is None:
            return batch
        if start.has_done(batch.offset):
            return None
        # Other clients may have written a row that the batch does not have.
        begun = batch.facts is not None and batch.offset == start.resumes_at
        return batch.skip(start.row) if begun and start.row < batch.rows.num_rows else batch

    def _messages(self, *, skips: bool = False) -> list[tuple[Place, ConsumedRecord]]:
        """Return the next records; note partitions that were read to their end.

        `skips`: those that are deleted meanwhile need not be read.
        """
        self._require_positions()
        polled = self._client.poll(POLL_RECORDS, POLL_SECONDS)
        if self._broken is not None:
            # For good: what the group has committed is unknown to this member.
            raise type(self._broken)(str(self._broken))
        # A call that assigns partitions may return records of a topic that was created again.
        others = {place for place, one in self._gone.items() if one.topic_id}
        records = [one for one in polled.records if one[0] not in others]
        last = {place: record.offset for place, record in records}
        self._next_offsets |= {place: offset + 1 for place, offset in last.items()}
        # An error from before an assignment still arrives behind it: reading is further now.
        lost = {
            one: at for one, at in polled.lost.items() if at >= self._next_offsets.get(one, at + 1)
        }
        self._gone |= {place: Gap(offset) for place, offset in lost.items()}
        for gap in map(self._gap_at, lost):
            if skips or self._is_known(gap):
                self._continue_behind(gap)
        self._ended -= last.keys() | lost.keys()
        self._ended |= {one for one, end in polled.ended.items() if last.get(one, -1) < end}
        self._reached |= polled.ended
        self._ends.reached(polled.ended)
        return records

    def _require_positions(self) -> None:
        """Raise PositionGone for a partition whose next record is not there."""
        if self._watch.is_due():
            self._find_other_topics()
        for place in self._gone:
            raise self._gap_at(place)

    def _find_other_topics(self) -> None:
        """Note the partitions of topics that were created again; drop what was fetched of them."""
        others = self._watch.others({topic for topic, _ in self._assigned})
        for place in sorted(self._assigned):  # the new topic may have fewer partitions
            if (former := others.get(place[0])) is not None:
                self._gone[place] = Gap(self._next_offsets[place], former)
        if others:
            self._fetched = deque(one for one in self._fetched if one[0] not in others)

    def _gap_at(self, place: Place) -> PositionGone:
        gap, bounds = self._gone[place], self._bounds_of([place])[place]
        topic, partition = place
        remedy = f"`accept_gap` of the consumer continues group {self._group} at offset {bounds[0]}"
        if not gap.topic_id:
            return position_gone(place, gap.position, bounds, remedy)
        again = created_again(topic, gap.topic_id, self._watch.origins[topic].id)
        message = f"{again}; partition {partition} was read up to offset {gap.position}; {remedy}"
        return PositionGone(message, topic, partition, gap.position, bounds[0])

    def _is_known(self, gap: PositionGone) -> bool:
        """Whether all that is gone was read before; the join reports the batches that lack it."""
        join, is_behind = self._join, gap.first > gap.position
        return is_behind and join is not None and join.has_read(gap.topic, gap.partition, gap.first)

    def _continue_behind(self, gap: PositionGone) -> None:
        place = gap.topic, gap.partition
        if self._join is not None:
            self._join.pass_to(*place, gap.first)
        del self._gone[place]
        self._ended.discard(place)
        self._next_offsets[place] = gap.first
        # Others that are gone would be lost again, and their errors arrive after their acceptance.
        self._client.assign(
            {one: at for one, at in self._next_offsets.items() if one not in self._gone}
        )

    def _begin(self, place: Place, at: Position) -> None:
        self._starts[place] = at
        self._ends.begin(place, at)
        if self._join is not None:  # it leaves out what is done itself
            self._join.begin(*place, at)
            self._starts[place] = Position(at.resumes_at, at.row)

    def _read_from(self, places: Mapping[Place, Position]) -> None:
        """Continue at other positions; what was fetched is dropped."""
        self._ended.clear()
        self._reached.clear()
        self._fetched.clear()
        self._ready.clear()
        self._sought += 1
        if self._join is not None:
            self._join.forget(set(places))
        self._client.resume(self._paused)
        self._paused.clear()
        for place, at in places.items():
            self._begin(place, at)
        self._gone.clear()
        self._next_offsets = {place: at.offset for place, at in places.items()}
        self._client.assign(self._next_offsets)

    def _await_assignment(self) -> None:
        deadline = time.monotonic() + REQUEST_SECONDS
        while not self._assigned:
            # What arrives with the assignment is read again: `seek` follows.
            self._messages()
            if time.monotonic() > deadline:
                raise SinkUnavailable(f"{self._subject}: no partition is assigned")

    def _assign(self, places: Sequence[Place]) -> None:
        self._assignment += 1
        try:
            begins = self._begins(places)
        except Fenced as exc:
            # The group distributes its partitions again, and calls this again.
            LOG.debug("%s", exc)
            self._client.unassign()
            return
        except ExtentflowError as exc:
            # Without positions nothing may be read. The client would assign the partitions itself.
            self._client.unassign()
            self._broken = exc
            return
        self._assigned |= begins.keys()
        for place, at in begins.items():
            self._begin(place, at)
            if place in self._kept_gaps:
                self._gone[place] = self._kept_gaps.pop(place)
        self._next_offsets = {place: at.offset for place, at in begins.items()}
        self._client.assign(self._next_offsets)

    def _begins(self, places: Sequence[Place]) -> Mapping[Place, Position]:
        """Return where to begin partitions; note where the group began with their topics."""
        held = self._committed(places)
        fresh = [one for one in places if one not in held]
        with self._admin() as admin:
            ids = admin.topic_ids(sorted({topic for topic, _ in places}))
            added: set[Place] = set()
            for topic, found in ids.items():
                own = [one for place, one in held.items() if place[0] == topic]
                begun = partitions_at_start((one.metadata for one in own), without=0)
                new = [place for place in fresh if place[0] == topic]
                if new and self._start == "latest":
                    count = max(admin.partitions(topic), *(one + 1 for _, one in new))
                    every = self._committed([(topic, one) for one in range(count)]).values()
                    begun = partitions_at_start((one.metadata for one in every), without=count)
                    added |= {place for place in new if place[1] >= begun}
                self._watch.begin(topic, TopicOrigin(found, begun))
        self._ends.hold(held.keys())
        for place, one in held.items():
            origin = TopicOrigin.of(one.metadata)
            if origin.is_other(ids[place[0]]):
                self._gone[place] = Gap(one.offset, origin.id)
        starts = self._starts_of(fresh, added, held.keys())
        if starts and self._start == "latest":
            self._commit(starts)
        return starts | {
            place: Position.of(one.offset, one.metadata) for place, one in held.items()
        }

    def _committed(self, places: Sequence[Place]) -> dict[Place, CommittedOffset]:
        """Return the offsets that the group has of these partitions."""
        found = self._client.committed(places, REQUEST_SECONDS)
        for one in found:
            if one.error is not None:
                raise one.error
        return {one.place: one for one in found if one.offset >= 0}

    def _starts_of(
        self, fresh: Sequence[Place], added: Collection[Place], held: Collection[Place]
    ) -> dict[Place, Position]:
        """Return where to begin partitions that have no committed offset.

        With `latest`, a transaction of joined topics may be before the start of one topic and
        behind that of another one. Such a transaction has ended before all starts are known: so its
        batches are before the boundaries, the ends of the logs then.
        """
        is_latest = self._start == "latest"
        found = {
            place: Position(bounds[is_latest and place not in added])
            for place, bounds in self._bounds_of(fresh).items()
        }
        if self._join is None or not is_latest:
            return found
        others = {partition for _, partition in held}
        # Where a topic is new to the group, those that were read before lack its columns for long.
        together = [one for one in fresh if one[1] not in others and one not in added]
        for place, end in self._ends_of(together).items():
            found[place] = replace(found[place], boundary=end)
        return found

    def _revoke(self, places: Sequence[Place]) -> None:
        self._assignment += 1
        gone = set(places)
        self._assigned -= gone
        self._ended -= gone
        for held in (self._positions, self._starts, self._reached, self._next_offsets, self._gone):
            for place in gone:
                held.pop(place, None)
        self._ends.forget(gone)
        if self._join is not None:
            self._join.forget(gone)
        # A partition that comes back would be paused.
        self._client.resume(self._paused & gone)
        self._paused -= gone
