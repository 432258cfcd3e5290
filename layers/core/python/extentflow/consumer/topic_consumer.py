"""A consumer of topics, as a member of a consumer group.

assigned ──committed offset, row──> reading ──batch──> caller ──commit──> offset, row
    ^                                  │
    └──────── rebalance ───────────────┘  what was not committed is read again, by whom owns it

Tests: unit/consumer/test_loops.py, integration/test_topic_consumer.py
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import TracebackType
from typing import Any, Self, TypeVar

from extentflow.columnar import EXTENT, OBJECT
from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.consumer import joins
from extentflow.consumer.data_frames import as_dicts, pandas_conversion, polars_conversion
from extentflow.consumer.joins import GroupJoin
from extentflow.consumer.row_batches import ConsumedBatch, Position
from extentflow.consumer.value_reader import FindSchema, ValueReader
from extentflow.errors import (
    ExtentflowError,
    Misconfigured,
    SinkUnavailable,
)
from extentflow.formats.parquet.column_keys import KeyService, MasterKeys
from extentflow.kafka.reading import (
    CommittedOffset,
    ConsumedRecord,
    Place,
    RecordReader,
    consumer_settings,
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
    `earliest` or `latest`, where the group has no offset. `keys` decrypt columns of columnar
    values: the master keys `id:base64, id:base64`, or a service such as
    `extentflow.aws.kms.AwsKms()`, one for the process.

    A context manager. All calls raise SinkUnavailable where brokers do not answer, and
    Misconfigured where settings or permissions are wrong.
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
        self._subject = f"topics {', '.join(topics)} for group {group}"
        self._assigned: set[Place] = set()
        self._ended: set[Place] = set()
        self._reached: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._positions: dict[Place, Position] = {}
        self._starts: dict[Place, Position] = {}
        self._fetched: deque[tuple[str, list[ConsumedRecord]]] = deque()
        self._ready: deque[ConsumedBatch] = deque()
        self._sought = self._assignment = 0
        self._arrived = 0.0
        self._broken: ExtentflowError | None = None
        settings = {**consumer_settings(kafka, group), "auto.offset.reset": start}
        if join:  # one member has the same partition of all topics
            settings["partition.assignment.strategy"] = "range"
        self._client = RecordReader(with_tokens(settings, sign), self._subject)
        self._client.subscribe(topics, self._assign, self._revoke)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group. What was not committed is read again by its next member."""
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

        Raises Fenced where the group gave the partitions to another member meanwhile.
        """
        positions: Mapping[Place, Position] = self._positions
        if self._join is not None:
            positions = self._join.positions(self._positions)
        if positions:
            self._client.commit(
                {one: (at.offset, at.to_metadata()) for one, at in positions.items()}
            )

    def seek(self, uri: str, extent: str | None = None) -> bool:
        """Read from the first batch of an object (its URI), or of one extent (`start-end`), on.

        Reads the partitions that are assigned from their beginning for it; those without such a
        batch are then read from their end on. Of joined topics, the one that leads decides, and
        reading begins with what precedes the batch: it is joined again, and not yielded. Returns
        whether there is such a batch; if not, reading continues where it was.
        """
        while True:
            self._await_assignment()
            assignment = self._assignment
            bounds = self._bounds_of(self._assigned)
            before = {place: self._continues_at(place, *bounds[place]) for place in self._leading}
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

    def _continues_at(self, place: Place, low: int, high: int) -> Position:
        """Return where reading of a partition continues, which may not have begun."""
        begin = low if self._start == "earliest" else high
        return self._positions.get(place) or self._starts.get(place) or Position(begin)

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
            for place, record in self._messages():
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
        while found is None and self._fetched:
            self._decode()
            found = self._complete()
        return found

    def _complete(self) -> ConsumedBatch | None:
        if self._ready:
            return self._ready.popleft()
        return None if self._join is None else self._join.take(time.monotonic())

    def _fetch(self, *, until_end: bool) -> None:
        if self._join is not None:
            self._steer(self._join, until_end=until_end)
        records = [one for one in self._messages() if one[0] in self._assigned]
        if records:
            self._arrived = time.monotonic()
        for (topic, _), part in groupby(records, lambda one: one[0]):
            runs = self._reader.runs([record for _, record in part])
            self._fetched.extend((topic, run) for run in runs)

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
        for place in self._reached.keys() & self._assigned:
            join.reached(*place, self._reached[place])
        self._reached.clear()
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
            self._ended.discard(place)
        self._paused = set(paused)

    def _ends_of(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the ends of partitions, open transactions included."""
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

    def _messages(self) -> list[tuple[Place, ConsumedRecord]]:
        """Return the next records; note partitions that were read to their end."""
        polled = self._client.poll(POLL_RECORDS, POLL_SECONDS)
        if self._broken is not None:
            # For good: what the group has committed is unknown to this member.
            raise type(self._broken)(str(self._broken))
        last = {place: record.offset for place, record in polled.records}
        self._ended -= last.keys()
        self._ended |= {one for one, end in polled.ended.items() if last.get(one, -1) < end}
        self._reached |= polled.ended
        return polled.records

    def _begin(self, place: Place, at: Position) -> None:
        self._starts[place] = at
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
        self._client.assign({place: at.offset for place, at in places.items()})

    def _await_assignment(self) -> None:
        deadline = time.monotonic() + REQUEST_SECONDS
        while not self._assigned:
            # What arrives with the assignment is read again: `seek` follows.
            self._messages()
            if time.monotonic() > deadline:
                raise SinkUnavailable(f"{self._subject}: no partition is assigned")

    def _assign(self, places: Sequence[Place]) -> None:
        self._assignment += 1
        starts: Mapping[Place, Position] = {}
        try:
            committed = self._client.committed(places, REQUEST_SECONDS)
            if self._join is not None:
                starts = self._start_together(committed)
        except ExtentflowError as exc:
            # Without positions nothing may be read. The client would assign the partitions itself.
            self._client.unassign()
            self._broken = exc
            return
        begins: dict[Place, int] = {}
        for one in committed:
            place = one.place
            self._broken = one.error or self._broken
            self._assigned.add(place)
            begins[place] = one.offset
            if one.offset >= 0:
                self._begin(place, Position.of(one.offset, one.metadata))
            elif place in starts:
                self._begin(place, starts[place])
                begins[place] = starts[place].offset
        self._client.assign(begins)

    def _start_together(self, committed: Sequence[CommittedOffset]) -> Mapping[Place, Position]:
        """Return where to begin partitions of joined topics that have no committed offset.

        With `latest`, a transaction may be before the start of one topic and behind that of
        another one. Such a transaction has ended before all starts are known: so its batches are
        before the boundaries, the ends of the logs then.
        """
        fresh = [one.place for one in committed if one.offset < 0]
        at = 1 if self._start == "latest" else 0
        found = {place: Position(one[at]) for place, one in self._bounds_of(fresh).items()}
        others = {one.place[1] for one in committed if one.offset >= 0}
        # Where a topic is new to the group, those that were read before lack its columns for long.
        together = [place for place in fresh if place[1] not in others]
        if self._start == "latest" and together:
            for place, end in self._ends_of(together).items():
                found[place] = replace(found[place], boundary=end)
        return found

    def _revoke(self, places: Sequence[Place]) -> None:
        self._assignment += 1
        gone = set(places)
        self._assigned -= gone
        self._ended -= gone
        for held in (self._positions, self._starts, self._reached):
            for place in gone:
                held.pop(place, None)
        if self._join is not None:
            self._join.forget(gone)
        # A partition that comes back would be paused.
        self._client.resume(self._paused & gone)
        self._paused -= gone
