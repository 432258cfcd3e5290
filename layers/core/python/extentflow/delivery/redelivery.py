"""Decodes dead letters again and delivers what they hold, exactly once.

    dead letters of a partition ──decode──> records, or dead letters of the next attempt
                  └──> rows of objects ──^    │
           one transaction: these, and the offset behind the last dead letter read

Many dead letters are decoded before any is sent, in the order of their objects. No transaction is
open while objects are read, and each extent is decoded once for all its dead letters.

A dead letter without the bytes of its record states where its row is. The row is decoded again from
the pinned version of its object, as long as the connector decodes as the job did.

Each partition of the dead letter queue has a transactional id and a group, as slots have. Fencing
ends an earlier replay, and the group's offset is the only progress that counts. Kafka deletes
offsets of groups that are idle for long, so the ledger notes whether there are any.

Tests: unit/services/test_dead_letter_queues.py
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.dead_letters import ATTEMPT, DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.received_letters import DeadLetter, Repair, Repairs, digest_of
from extentflow.delivery.rejections import Rejections
from extentflow.delivery.replay_targets import ReplayTargets
from extentflow.delivery.rows import RowFinder
from extentflow.errors import (
    AccessDenied,
    BucketGone,
    CorruptObject,
    CorruptRecord,
    ExtentflowError,
    Misconfigured,
    NotOffered,
    ObjectArchived,
    ObjectChanged,
    ObjectGone,
    Permanent,
    ProducerSpent,
    ProgressUnknown,
    RecordsRejected,
    UnsupportedFormat,
    reason,
)
from extentflow.formats import BadRecord
from extentflow.kafka import Broker, ProducerSettings, Records, Sink, SlotProgress
from extentflow.kafka.reading import ConsumedRecord, created_again, is_another, position_gone
from extentflow.ledger.notes import NoteKind, NoteStore
from extentflow.model import Extent
from extentflow.retry import Clock
from extentflow.wording import again_command

log = logging.getLogger(__name__)

LETTERS_PER_TRANSACTION = 500
# What is decoded at once: more pass an extent less often, and need more memory.
LETTERS_AHEAD, BYTES_AHEAD = 2_000, 32 << 20
MOST_REASONS = 20
# Without versions, every replay ends so: the letter would return for ever.
_GONE = (
    "its record cannot be read again: `extentflow dead-letters --discard` discards the dead letter,"
    " or state its record in a file for --repairs"
)
# Errors of one dead letter, which the others do not share.
_OF_ONE_LETTER = (
    AccessDenied,
    CorruptObject,
    CorruptRecord,
    NotOffered,
    ObjectArchived,
    ObjectChanged,
    ObjectGone,
    UnsupportedFormat,
)


@dataclass(frozen=True, slots=True)
class LetterDecoder:
    """What one dead letter's record is decoded with.

    `unreadable`: why its row cannot be read from the object again; empty where it can.
    """

    extent: Extent
    location: int
    pipeline: Pipeline
    queue: DeadLetters
    client: ProducerSettings
    unreadable: str = ""


@dataclass(slots=True)
class RedeliveryResult:
    """What became of the dead letters of a replay.

    Records that are still bad (`bad`), and dead letters that cannot be decoded (`left`), were sent
    to the queue again. `reasons` has the first few of `left`, which offsets were deleted before a
    replay, and which topics lost its records. `kept` were sent to it again unread.
    """

    records: int = 0
    bad: int = 0
    discarded: int = 0
    filtered: int = 0
    left: int = 0
    kept: int = 0
    reasons: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ProgressNote:
    """What the ledger notes of a partition's progress; `open`: Kafka may know of more.

    `repairs` is the digest of those of the last replay; empty without any. `topic_id` is that of
    the queue, empty where it is not known.
    """

    position: int
    open: bool
    repairs: str
    topic_id: str


NOTED: NoteKind[_ProgressNote] = NoteKind(
    "deadletters#",
    lambda noted: {
        "position": str(noted.position),
        "open": str(int(noted.open)),
        "repairs": noted.repairs,
        "topic_id": noted.topic_id,
    },
    lambda facts: _ProgressNote(
        int(facts["position"]),
        facts["open"] == "1",
        facts.get("repairs", ""),
        facts.get("topic_id", ""),
    ),
)
# Of the topic that a replay read last, by the partition's first identity.
LAST: NoteKind[_ProgressNote] = NoteKind("deadletters-last#", NOTED.encode, NOTED.decode)


@dataclass(frozen=True, slots=True)
class _DecodedLetter:
    """What one dead letter's record became, and what it becomes if it is bad."""

    extent: Extent
    queue: DeadLetters
    made: ConvertedChunk

    @property
    def size_bytes(self) -> int:
        bad = sum(len(one.raw or b"") for one in self.made.bad)
        return self.made.payload_bytes + bad


# None: it is discarded. A text says why it stays. A repair: it stays unread.
_Outcome: TypeAlias = _DecodedLetter | Repair | str | None


@dataclass(frozen=True, slots=True)
class Redelivery:
    """The replay of one connector's dead letters.

    `identity` begins the transactional ids. `topic_id` is that of the queue, empty where brokers
    have no ids. `read` yields the committed records of a partition from
    one offset to another. `open_letter` returns what a dead letter's record is decoded with, or
    raises Permanent. `others` is the repair of letters without one. `rows` reads records from
    objects again. A transaction ends with the first dead letter that is sent after
    `transaction_seconds`.
    """

    connector: str
    topic: str
    identity: str
    broker: Broker
    notes: NoteStore
    read: Callable[[int, int, int], Iterable[list[ConsumedRecord]]]
    open_letter: Callable[[DeadLetter], LetterDecoder]
    targets: ReplayTargets
    rows: RowFinder = field(default_factory=RowFinder)
    clock: Clock = field(default_factory=Clock)
    transaction_seconds: float = 10.0
    letters_ahead: int = LETTERS_AHEAD
    bytes_ahead: int = BYTES_AHEAD
    others: Repair | None = None
    topic_id: str = ""

    def identity_of(self, partition: int) -> str:
        """Return the transactional id and group of a partition.

        Of a queue that was created again, another one than of its former topic, whose position
        says nothing about it.
        """
        first = self._first_identity_of(partition)
        noted = NOTED.read(self.notes, first)
        former = noted is not None and is_another(noted.topic_id, self.topic_id)
        return f"{first}.{self.topic_id}" if former else first

    def _first_identity_of(self, partition: int) -> str:
        return f"{self.identity}.{self.connector}.{self.topic}.{partition}"

    def unread(self, partition: int) -> int:
        """Return the offset that the ledger notes, without asking Kafka: the listing begins there.

        A replay that was killed may have gone further.
        """
        noted = NOTED.read(self.notes, self.identity_of(partition))
        return 0 if noted is None else noted.position

    def ends(self) -> Mapping[int, int]:
        """Return where each partition of the queue ends now."""
        return self.broker.end_offsets(self.topic)

    def letters(self, partition: int, position: int, end: int) -> Generator[DeadLetter, None, None]:
        """Yield the connector's dead letters of a partition from an offset to another.

        Those that the topic has now. Raises PositionGone where some are deleted before they were
        read, and for a topic that ends before `position`.
        """
        first = self.broker.first_offsets(self.topic).get(partition, 0)
        if position > end:
            remedy = "set errors.deadletterqueue.topic.name to another topic"
            raise position_gone((self.topic, partition), position, (first, end), remedy)
        begin = max(position, first)
        for batch in self.read(partition, begin, end):
            for record in batch:
                letter = DeadLetter.of(record)
                if record.offset >= begin and letter.connector == self.connector:
                    yield letter

    def run(
        self,
        repairs: Repairs,
        found: RedeliveryResult,
        *,
        partitions: Collection[int] | None = None,
        accept_duplicates: bool = False,
        letters_per_transaction: int = LETTERS_PER_TRANSACTION,
    ) -> None:
        """Replay the dead letters of partitions (None: all) that were not yet; add to `found`.

        None of those that are sent meanwhile, by the replay itself or by others. Raises Retryable
        where the same call continues later, ProgressUnknown where Kafka lost the progress, and
        Misconfigured, also for repairs of other places than these.
        """
        ends, digest = self.ends(), digest_of(repairs)
        firsts = self.broker.first_offsets(self.topic)
        self._require_places(repairs, ends, digest)
        found.reasons.extend(self.targets.replaced())
        for partition in sorted(ends if partitions is None else partitions):
            unread = self.unread(partition)
            if (behind := firsts.get(partition, 0)) > unread:
                found.reasons.append(
                    f"topic {self.topic}[{partition}]: the offsets {unread} to {behind - 1} were"
                    " deleted; dead letters there that no replay had passed are lost"
                )
            found.reasons.extend(self._former(partition))
            letters = self.letters(partition, unread, ends[partition])
            first = next(letters, None)
            letters.close()
            place = (partition, ends[partition])
            rejections = Rejections(usual_units=letters_per_transaction)
            while first is not None:
                try:
                    self._replay(
                        place,
                        self._client(first),
                        (repairs, digest),
                        found,
                        rejections=rejections,
                        accept_duplicates=accept_duplicates,
                    )
                except RecordsRejected as exc:
                    # The queue would reject the letter again.
                    if rejections.letters:
                        raise CorruptRecord(f"topic {self.topic}: {exc.why}") from exc
                    log.info("topic %s: %s; sending fewer at once", self.topic, exc)
                except ProducerSpent as exc:
                    log.info("topic %s: %s", self.topic, exc)
                else:
                    break
            if self.topic_id:
                read = self._note(ends[partition], digest)
                LAST.write(self.notes, self._first_identity_of(partition), read)
        found.reasons.extend(self.targets.replaced())

    def _note(self, position: int, repairs: str, *, open: bool = False) -> _ProgressNote:  # noqa: A002
        return _ProgressNote(position, open, repairs, self.topic_id)

    def _former(self, partition: int) -> Iterator[str]:
        """Yield what the first replay of a queue that was created again has to say."""
        first = self._first_identity_of(partition)
        noted = LAST.read(self.notes, first) or NOTED.read(self.notes, first)
        if noted is not None and is_another(noted.topic_id, self.topic_id):
            yield (
                f"{created_again(f'{self.topic}[{partition}]', noted.topic_id, self.topic_id)};"
                f" any dead letters of the former topic from offset {noted.position} on are lost"
            )

    def _replay(
        self,
        place: tuple[int, int],
        client: ProducerSettings,
        stated: tuple[Repairs, str],
        found: RedeliveryResult,
        *,
        rejections: Rejections,
        accept_duplicates: bool,
    ) -> None:
        """Replay one partition up to an offset; RecordsRejected: again, by what is then known."""
        (partition, end), (repairs, digest) = place, stated
        identity = self.identity_of(partition)
        fence = self.broker.fence(identity, client)
        try:
            position = self._position(identity, fence.read(), accept_duplicates=accept_duplicates)
            self._require_ahead(partition, position, stated)
            # From now on no offset in Kafka means that it was lost.
            fence.mark(self._progress(partition, position, found))
            NOTED.write(self.notes, identity, self._note(position, digest, open=True))
            sink = fence.open()
        except BaseException:
            fence.close()
            raise
        with closing(sink), closing(self.rows):
            last = self._deliver(sink, (partition, position, end), repairs, found, rejections)
        NOTED.write(self.notes, identity, self._note(last, digest))

    def _require_places(self, repairs: Repairs, ends: Mapping[int, int], digest: str) -> None:
        """Raise Misconfigured, before anything is sent, unless each repair has its dead letter.

        One that is ignored would deliver a record that it discards: a letter that went back to the
        queue has a new place.
        """
        unmatched, problems = set(repairs), []
        for partition in sorted({partition for partition, _ in repairs}):
            begin = self.unread(partition)
            if self._passed_with(partition, digest):
                unmatched -= {at for at in unmatched if at[0] == partition and at[1] < begin}
            with closing(self.letters(partition, begin, ends.get(partition, 0))) as letters:
                for letter in letters:
                    at = (partition, letter.offset)
                    unmatched.discard(at)
                    if at in repairs and repairs[at].row and not letter.is_row:
                        problems.append(
                            f'{letter}: its line says "row": true, but it is no row of an object;'
                            ' write its record, or "discard": true, or remove the line'
                        )
        problems += self._unmatched(unmatched)
        if problems:
            raise Misconfigured(problems)

    def _passed_with(self, partition: int, digest: str) -> bool:
        """Whether the last replay of a partition had the same repairs, and so applied them."""
        noted = NOTED.read(self.notes, self.identity_of(partition))
        return noted is not None and noted.repairs == digest

    def _require_ahead(
        self,
        partition: int,
        position: int,
        stated: tuple[Repairs, str],
    ) -> None:
        """Raise Misconfigured for repairs behind the position, before the partition sends anything.

        Another replay was interrupted there. The ledger then notes the position: listings begin
        at it.
        """
        repairs, digest = stated
        passed = [at for at in repairs if at[0] == partition and at[1] < position]
        if passed and not self._passed_with(partition, digest):
            identity = self.identity_of(partition)
            noted = NOTED.read(self.notes, identity) or self._note(0, "", open=True)
            NOTED.write(self.notes, identity, replace(noted, position=position, open=True))
            raise Misconfigured(self._unmatched(passed))

    def _unmatched(self, places: Collection[tuple[int, int]]) -> list[str]:
        shown = [
            f"a repair of {partition}/{offset}: connector {self.connector} has no such dead"
            " letter to replay. A dead letter that went back to the queue has a new place;"
            f" `extentflow dead-letters -c {self.connector} --json` lists them"
            for partition, offset in sorted(places)[:MOST_REASONS]
        ]
        more = len(places) - len(shown)
        return [*shown, f"{more} more such repairs"] if more else shown

    def _position(
        self, identity: str, committed: SlotProgress | None, *, accept_duplicates: bool
    ) -> int:
        """Return the offset to continue at: that of Kafka, unless it is known to have none."""
        noted = NOTED.read(self.notes, identity)
        if committed is not None:
            return max(committed.position, 0 if noted is None else noted.position)
        if noted is None:
            return 0
        if noted.open and not accept_duplicates:
            raise ProgressUnknown(
                f"topic {self.topic}: Kafka has no offset of group {identity}, and a replay of dead"
                f" letters was interrupted behind offset {noted.position}; --accept-duplicates"
                " continues there, and may deliver some of them twice"
            )
        return noted.position

    def _client(self, first: DeadLetter) -> ProducerSettings:
        try:
            return self.open_letter(first).client
        except Permanent:
            return ProducerSettings()

    def _deliver(
        self,
        sink: Sink,
        place: tuple[int, int, int],
        repairs: Repairs,
        found: RedeliveryResult,
        rejections: Rejections,
    ) -> int:
        """Deliver a partition from an offset to another; return the one behind the last letter."""
        (partition, position, end), pending, begun = place, 0, 0.0
        counted = replace(found, reasons=[*found.reasons])
        for decoded in self._batches(self.letters(partition, position, end), repairs):
            # Emptied as it is sent, so that two of them are never in memory.
            while decoded:
                letter, outcome = decoded.popleft()
                if not pending:
                    begun = self.clock.monotonic()
                position, pending = letter.offset + 1, pending + 1
                with self._narrowing(rejections, pending, letter):
                    self._send(
                        sink,
                        letter,
                        repairs.get((partition, letter.offset), self.others),
                        rejections.found.get(letter.offset, outcome),
                        counted,
                    )
                    late = self.clock.monotonic() - begun >= self.transaction_seconds
                    # Also before objects are read again.
                    if late or not decoded or pending >= rejections.most_units():
                        self._commit(sink, partition, position, counted, found)
                        rejections.committed()
                        pending = 0
        return position

    @contextmanager
    def _narrowing(self, rejections: Rejections, letters: int, last: DeadLetter) -> Iterator[None]:
        """Use the rejection of a transaction with so many letters, up to the last one."""
        try:
            yield
        except RecordsRejected as exc:
            if exc.topic == self.topic:
                rejections.letters = exc.why
            rejections.rejected(exc, letters, [last.offset])
            raise

    def _batches(
        self,
        letters: Generator[DeadLetter, None, None],
        repairs: Repairs,
    ) -> Generator[deque[tuple[DeadLetter, _Outcome]], None, None]:
        """Yield letters in their order, decoded; no more at once than memory takes."""
        with closing(letters):
            waiting: list[DeadLetter] = []
            ended = False
            while True:
                held = sum(len(one.raw or b"") for one in waiting)
                while not ended and len(waiting) < self.letters_ahead and held < self.bytes_ahead:
                    following = next(letters, None)
                    if following is None:
                        ended = True
                    else:
                        waiting.append(following)
                        held += len(following.raw or b"")
                if not waiting:
                    return
                decoded, failed = self._decoded(waiting, repairs)
                waiting = waiting[len(decoded) :]
                if decoded:
                    yield decoded
                if failed is not None:
                    raise failed

    def _decoded(
        self, letters: list[DeadLetter], repairs: Repairs
    ) -> tuple[deque[tuple[DeadLetter, _Outcome]], ExtentflowError | None]:
        """Return the first of the letters, decoded: all of them, unless they are too large.

        An error that is not one letter's own ends them; it is returned where it is that of the
        letter behind them.
        """
        outcomes: dict[int, _Outcome] = {}
        failed: dict[int, ExtentflowError] = {}
        size, count = 0, len(letters)
        for place in sorted(range(count), key=lambda at: _in_object(letters[at])):
            if place >= count:
                continue
            letter = letters[place]
            try:
                outcome = self._outcome(
                    letter, repairs.get((letter.partition, letter.offset), self.others)
                )
            except Permanent as exc:
                count, failed[place] = place, exc
                continue
            except ExtentflowError as exc:  # the others would most likely wait for the same
                count = next(at for at in range(count) if at not in outcomes)
                failed[count] = exc
                break
            outcomes[place] = outcome
            size += _size(outcome)
            while size > self.bytes_ahead and count > 1:
                count = (count + 1) // 2
                outcomes = {at: one for at, one in outcomes.items() if at < count}
                size = sum(map(_size, outcomes.values()))
        return deque((letters[at], outcomes[at]) for at in range(count)), failed.get(count)

    def _outcome(self, letter: DeadLetter, repair: Repair | None) -> _Outcome:
        if repair is not None and repair.raw is None and not repair.row:
            return repair if repair.keeps else None
        try:
            opened, made = self._converted(letter, _bytes_of(letter, repair))
        except _OF_ONE_LETTER as exc:
            gone = isinstance(exc, ObjectChanged | ObjectGone) and not isinstance(exc, BucketGone)
            return f"{reason(exc)}; {_GONE}" if gone else reason(exc)
        return _DecodedLetter(
            opened.extent, replace(opened.queue, attempt=letter.attempt + 1), made
        )

    def _progress(self, partition: int, position: int, found: RedeliveryResult) -> SlotProgress:
        what = f"dead letters of {self.connector}"
        return SlotProgress(
            epoch=0,
            job=what,
            extent=partition,
            position=position,
            records=found.records,
            bad=found.bad,
        )

    def _commit(
        self,
        sink: Sink,
        partition: int,
        position: int,
        counted: RedeliveryResult,
        found: RedeliveryResult,
    ) -> None:
        sink.commit(self._progress(partition, position, counted))
        found.records, found.bad = counted.records, counted.bad
        found.discarded, found.filtered = counted.discarded, counted.filtered
        found.left, found.reasons = counted.left, [*counted.reasons]
        found.kept = counted.kept

    def _send(
        self,
        sink: Sink,
        letter: DeadLetter,
        repair: Repair | None,
        outcome: _Outcome,
        counted: RedeliveryResult,
    ) -> None:
        """Send what one dead letter holds, in the open transaction."""
        if outcome is None:
            counted.discarded += 1
            return
        if isinstance(outcome, str):
            self._return(sink, letter, outcome, counted)
            return
        if isinstance(outcome, Repair):
            self._send_again(sink, letter, letter.attempt)
            counted.kept += 1
            return
        made, raw = outcome.made, _bytes_of(letter, repair)
        rejected = []
        for records, places in made.by_topic():
            self.targets.pin(records.topic)
            sent = sink.send(records)
            rejected += [replace(one, index=places[one.index]) for one in sent]
        bad = [
            # A record with bytes keeps them, whatever rejects it now: they may be a repair.
            one if raw is None else BadRecord(raw, one.location, one.reason)
            for one in made.bad_with(rejected)
        ]
        if bad:
            outcome.queue.send(sink, outcome.extent, bad)
        counted.records += made.rows - len(rejected)
        counted.filtered += made.filtered
        counted.bad += len(bad)
        if not (made.rows or bad or made.filtered):
            self._return(sink, letter, "its bytes hold no record", counted)

    def _converted(
        self, letter: DeadLetter, raw: bytes | None
    ) -> tuple[LetterDecoder, ConvertedChunk]:
        if raw:
            opened = self.open_letter(letter)
            return opened, opened.pipeline.convert_record(opened.extent, raw, opened.location)
        if raw == b"":
            raise CorruptRecord(f"its bytes hold no record, as there are none; {_remedy(letter)}")
        if letter.is_row:
            opened = self.open_letter(letter)
            if opened.unreadable:
                raise NotOffered(opened.unreadable)
            chunk = self.rows.find(opened.pipeline, opened.extent, opened.location)
            return opened, opened.pipeline.convert_chunk(opened.extent, chunk)
        raise CorruptRecord(f"it has no bytes, because {letter.lacks_bytes}; {_remedy(letter)}")

    def _return(self, sink: Sink, letter: DeadLetter, why: str, counted: RedeliveryResult) -> None:
        """Send a dead letter that cannot be decoded to the queue again, as it is."""
        counted.left += 1
        if len(counted.reasons) < MOST_REASONS:
            counted.reasons.append(f"{letter}: {why}")
        self._send_again(sink, letter, letter.attempt + 1)

    def _send_again(self, sink: Sink, letter: DeadLetter, attempt: int) -> None:
        headers = {**letter.headers, ATTEMPT: str(attempt).encode()}
        value = pa.array([letter.raw], pa.large_binary())
        if rejected := sink.send(Records(self.topic, value, headers=[list(headers.items())])):
            raise CorruptRecord(
                f"{letter} of topic {self.topic} cannot be sent to it again: {rejected[0].reason};"
                " raise max.message.bytes of this topic and of the connector's, or discard the"
                " dead letter"
            )


def _remedy(letter: DeadLetter) -> str:
    address, connector = letter.text("extentflow.object"), letter.connector
    return (
        "state its record in a file for --repairs, or correct the object and deliver it again with"
        f" {again_command(address or 'ADDRESS', connector or 'NAME')}"
    )


def _bytes_of(letter: DeadLetter, repair: Repair | None) -> bytes | None:
    """Return the bytes of a dead letter's record; None: it has none, or is read from its object."""
    if repair is not None and not repair.row:
        return repair.raw
    return None if letter.is_row else letter.raw


def _in_object(letter: DeadLetter) -> tuple[str, int, int, int, int]:
    """Return the key that sorts dead letters as their objects hold them."""
    try:
        return letter.job, *letter.place
    except ValueError:
        return letter.job, -1, 0, 0, 0


def _size(outcome: _Outcome) -> int:
    return outcome.size_bytes if isinstance(outcome, _DecodedLetter) else 0
