"""`run_extent`: claim an extent, decode, convert, send, commit in transactions, complete.

    error                          effect on the extent
    StoreUnavailable,              abort, hand back, retry; after `retry_seconds` FAILED, or raised
    CredentialsUnavailable,        if the caller runs the extent again (`gives_up` False)
    RegistryUnavailable
    Fenced, SinkUnavailable,       return the attempt, drop the producer, claim again (Kafka states
    LedgerUnavailable              the position); after `retry_seconds` raised: the lease expires
    TopicLost                      likewise, if the topic exists; otherwise TopicAbsent is raised
    BatchTooLarge                  likewise, with the topics' current limits; counts as an attempt
    RecordsRejected                likewise, at once and with fewer records, until the record is
                                   found; it is then a bad record
    ProcessExhausted               abort, hand back (twice, if that fails for the same reason),
                                   retry; each time counts as an attempt
    ObjectChanged                  FAILED, and the job SUPERSEDED
    TooManyBadRecords,             FAILED, and the job FAILED: other extents are not started
    TopicReplaced
    other Permanent, CorruptRecord FAILED at the last committed position
    Misconfigured                  handed back and raised: it affects other extents, too

A claim without progress counts as an attempt; outages of broker, ledger or store never do.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.dead_letters import DeadLetters, not_tolerated
from extentflow.delivery.memory import peak_rss_bytes
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.rejections import Rejections
from extentflow.delivery.resume import PointLog
from extentflow.delivery.slots import FENCING, Busy, Closed, Final, Slots
from extentflow.errors import (
    BatchTooLarge,
    CorruptRecord,
    CredentialsUnavailable,
    Defect,
    ExtentflowError,
    Fenced,
    LedgerUnavailable,
    Misconfigured,
    ObjectChanged,
    Permanent,
    ProcessExhausted,
    ProducerSpent,
    RecordsRejected,
    RegistryUnavailable,
    Retryable,
    SinkUnavailable,
    StoreUnavailable,
    TooManyBadRecords,
    TopicAbsent,
    TopicLost,
    TopicReplaced,
    contain_defects,
    reason,
)
from extentflow.kafka import ProducerSettings, RejectedRecord
from extentflow.kafka.reading import created_again
from extentflow.ledger import Claim, Ledger, rules
from extentflow.model import Extent, JobState, Outcome, Receipt
from extentflow.retry import Clock
from extentflow.wording import after_outage, again_command, in_full

log = logging.getLogger(__name__)

BACK_OFF_SECONDS = 0.2
MAX_BACK_OFF_SECONDS = 5.0
TRANSACTION_GROWTH = 64
# From one transaction of a process to the next; the first one has `first_bytes`.
SIZE_GROWTH = 4
# From 64 MiB to 1 MiB in three failed commits, each of which takes half a minute.
FAILED_DIVISOR = 4
LEAST_BYTES = 64 << 10
# Of extents that an outage cost an attempt. A forgotten one keeps its used attempt.
MOST_OWED = 1_000

Chunks = Generator[ConvertedChunk, None, None]
# None: no chunk is ready yet.
PrefetchedChunks = Generator[ConvertedChunk | None, None, None]

# Times and ports in messages of clients.
_NUMBER = re.compile(r"\d+")
# Handed back instead of dropping the slot: it is sound, and nothing of Kafka failed.
_SOURCE_OUTAGES = (StoreUnavailable, CredentialsUnavailable, RegistryUnavailable)
_HANDED_BACK = (*_SOURCE_OUTAGES, ProcessExhausted)


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of one `run_extent` call: bytes of keys and values, seconds of wall time.

    The first transaction of a job in a process has `first_bytes`, so that consumers see records
    early. Each following one is TRANSACTION_GROWTH times larger, up to `transaction_bytes` and to
    what brokers take in `transaction_seconds` (`TransactionSize`). `gives_up`: an unavailable store
    fails the extent, because no engine runs it again.
    """

    transaction_bytes: int = 64 << 20
    first_bytes: int = 1 << 20
    transaction_seconds: float = 10.0
    attempts: int = 5
    retry_seconds: float = 120.0
    gives_up: bool = True


class TransactionSize:
    """The bytes that brokers take within one transaction's time; one per worker process.

    The client queues up to `queue.buffering.max.kbytes` at once, so sending alone does not show
    that brokers are slow. A transaction larger than they take in time would be aborted whole, and
    sent again.
    """

    def __init__(self) -> None:
        self._bytes = math.inf
        # That of the last commit, of which consumers have records.
        self.job = ""

    def limit(self, wanted_bytes: float) -> float:
        """Return the limit for a transaction that may have `wanted_bytes`."""
        return min(wanted_bytes, self._bytes)

    def committed(self, sent_bytes: int, seconds: float, target_seconds: float) -> None:
        """Adapt to a transaction that took `seconds` from its first record to its confirmation."""
        in_time = max(LEAST_BYTES, sent_bytes * target_seconds / max(seconds, 0.001))
        if seconds > target_seconds:
            self._bytes = in_time
            return
        # A small transaction says little: socket buffers, and networks with burst credits, take it
        # at once. So the size grows step by step.
        known = sent_bytes if self._bytes == math.inf else self._bytes
        self._bytes = max(known, min(in_time, known * SIZE_GROWTH))

    def failed(self, sent_bytes: int) -> None:
        """Never send as much again: brokers did not take it before the commit's timeout."""
        self._bytes = max(LEAST_BYTES, min(self._bytes, sent_bytes) / FAILED_DIVISOR)


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """Everything that `run_extent` needs besides the extent; one per worker process.

    `open` builds the pipeline late, so that its errors count as the extent's. `prefetch` may
    produce chunks ahead on a thread; it yields None while none is ready, so that a slow store
    delays neither a commit nor a stop. `stopping` is called between chunks: True commits and hands
    the extent back. `fetched_bytes` counts what the process has read. `expire_topics` makes
    `client` and `dead_letters` read the limits of topics again. `owed` are the extents of which an
    outage used up an attempt that is not returned yet. `topics` are those of records and of dead
    letters.
    """

    open: Callable[[Extent], Pipeline]
    dead_letters: Callable[[Extent], DeadLetters]
    client: Callable[[Extent], ProducerSettings]
    topics: Callable[[Extent], Collection[str]]
    slots: Slots
    ledger: Ledger
    limits: TransactionLimits
    clock: Clock
    random: Random
    prefetch: Callable[[Chunks], PrefetchedChunks] = lambda chunks: chunks
    stopping: Callable[[], bool] = lambda: False
    fetched_bytes: Callable[[], int] = lambda: 0
    expire_topics: Callable[[], None] = lambda: None
    size: TransactionSize = field(default_factory=TransactionSize)
    owed: deque[tuple[str, int]] = field(default_factory=lambda: deque(maxlen=MOST_OWED))


def run_extent(extent: Extent, context: DeliveryContext, *, message: str = "") -> Receipt:
    """Deliver one extent exactly once, from its committed position; return what this call did.

    Called by every engine. `message` is the id of the queue message that requested it.

    Raises:
        SinkUnavailable, LedgerUnavailable, Fenced: unavailable for `limits.retry_seconds` without
            progress; the extent stays claimed until its lease expires and can be run again.
        StoreUnavailable, CredentialsUnavailable, RegistryUnavailable: likewise where
            `limits.gives_up` is False; the extent is handed back.
        ProcessExhausted: where `limits.gives_up` is False; the extent is handed back at once.
        Misconfigured, Conflict: the extent can be claimed as before.
    """
    return _Call(extent, context).run(message)


def fail_extent(extent: Extent, context: DeliveryContext, error: str) -> Receipt:
    """Fail an extent for a reason outside its data (a defect of ours, a poison task).

    Claims it first, so that what its previous owner committed is settled and kept. The producer
    only fences: nothing is sent, and a wrong setting must not prevent the failure.
    """
    context.slots.drop()
    call = _Call(extent, context)
    claim = context.slots.claim(extent, FENCING)
    if isinstance(claim, Claim):
        return call.close_job(_ClaimedExtent(claim, call).fail(error))
    return call.unclaimed(claim)


class _Call:
    """One `run_extent` call: its retries, and what they did together."""

    def __init__(self, extent: Extent, context: DeliveryContext) -> None:
        self.extent = extent
        self.context = context
        self.records = self.bad = self.filtered = self.commits = 0
        self.last_error, self.topic_lost = "", False
        self.claim: Claim | None = None  # of the last try
        self.rejections = Rejections()
        self._key = (extent.job, extent.ordinal)
        # Attempts of earlier tries, also of earlier calls, were used up by outages.
        self.attempt_owed = self._key in context.owed
        self._started = context.clock.monotonic()
        self._fetched_before = context.fetched_bytes()

    def run(self, message: str) -> Receipt:
        """Try until the extent has an outcome or an outage lasts for `retry_seconds`."""
        try:
            receipt = self._run(message)
        except Retryable as exc:
            self._record_debt(exc)
            raise
        if receipt.outcome not in (Outcome.BUSY, Outcome.HANDED_BACK):
            self.attempt_owed = False
        self._record_debt(None)
        return receipt

    def _record_debt(self, error: Retryable | None) -> None:
        """Return an attempt that is still owed; the next call of this process makes up for it."""
        owed = self.context.owed
        if self._key in owed:
            owed.remove(self._key)
        if not self.attempt_owed:
            return
        # A settlement may have cleared the claim and kept the attempt: the debt stays.
        owed.append(self._key)
        # A ledger that has failed for `retry_seconds` would fail again.
        unavailable = isinstance(error, LedgerUnavailable) or self.context.stopping()
        if self.claim is None or unavailable:
            return
        try:
            with contain_defects(self.extent.uri):
                self.context.ledger.extents.return_attempt(self.claim)
        except (LedgerUnavailable, ProcessExhausted) as exc:
            log.warning("%s: an outage used up an attempt: %s", self.extent.uri, exc)

    def _run(self, message: str) -> Receipt:
        context, retry_seconds = self.context, self.context.limits.retry_seconds
        deadline, failures, commits = self._started + retry_seconds, 0, 0
        while True:
            out_of_time = context.clock.monotonic() >= deadline
            try:
                return self.close_job(self._try(message, out_of_time=out_of_time))
            except Defect:
                raise  # the caller fails the extent
            except Retryable as exc:
                is_answer = isinstance(exc, RecordsRejected)
                self._require_retry(exc, out_of_time=out_of_time and not is_answer)
                if isinstance(exc, _HANDED_BACK) and context.stopping():
                    return self.receipt(Outcome.HANDED_BACK, reason=str(exc))
                if isinstance(exc, BatchTooLarge | TopicLost):
                    context.expire_topics()
                self.topic_lost = isinstance(exc, TopicLost)
                left = deadline - context.clock.monotonic()
                self._log_retry(exc, max(0.0, left))
                if is_answer:  # of brokers that work, and the next one says more
                    deadline = context.clock.monotonic() + retry_seconds
                    continue
            if self.commits > commits:  # progress restarts the clock and the back-off
                commits, failures = self.commits, 0
                deadline = context.clock.monotonic() + retry_seconds
            failures += 1
            self._pause(failures)

    def _log_retry(self, exc: Retryable, seconds: float) -> None:
        """Log why a try is repeated: once for errors in a row that differ in numbers only."""
        alike = _NUMBER.sub("#", self.last_error) == _NUMBER.sub("#", str(exc))
        self.last_error = str(exc)
        if not alike:
            level = logging.INFO if isinstance(exc, ProducerSpent) else logging.WARNING
            said = str(exc).removeprefix(f"{self.extent.uri}: ")
            log.log(level, "%s: %s; retrying for up to %.0f s", self.extent.uri, said, seconds)

    def _require_retry(self, exc: Retryable, *, out_of_time: bool) -> None:
        """Raise the error of a try unless another one may follow in this call."""
        # A claim without an answer may have been written.
        self.attempt_owed |= isinstance(exc, LedgerUnavailable)
        stopping = self.context.stopping()
        if not isinstance(exc, _HANDED_BACK):
            # The outcome of a commit may be unknown: a new epoch's settlement resolves it.
            self.context.slots.drop()
            if stopping:
                raise exc
        elif stopping:
            return
        # Attempts bound the retries of an exhausted process; another may have the resources.
        if isinstance(exc, ProcessExhausted):
            out_of_time = not self.context.limits.gives_up
        if out_of_time:
            raise exc

    def _try(self, message: str, *, out_of_time: bool) -> Receipt:
        try:
            client = self.context.client(self.extent)
        except TopicAbsent as exc:
            raise (self._deleted(exc) if self.topic_lost else exc) from exc
        topics = self.context.topics(self.extent)
        answer = self.context.slots.claim(self.extent, client, message=message, topics=topics)
        self.claim = answer if isinstance(answer, Claim) else None
        if isinstance(answer, Claim):
            return _ClaimedExtent(answer, self).run(out_of_time=out_of_time)
        return self.unclaimed(answer)

    def _deleted(self, error: TopicAbsent) -> TopicAbsent:
        """Return the error for a topic that was there when the job began."""
        what, _, _ = str(error).partition(";")
        command = again_command(self.extent.version.address, self.extent.connector)
        return TopicAbsent(
            f"{self.extent.uri}: {what}: it was deleted during the delivery, and what was committed"
            " to it is gone with it. Create it, and deliver the object from its beginning with"
            f" {command}"
        )

    def _pause(self, failures: int) -> None:
        """Sleep, in slices short enough to react to `stopping`."""
        bound = min(MAX_BACK_OFF_SECONDS, BACK_OFF_SECONDS * 2**failures)
        # Full jitter: workers that lost the same broker do not reconnect at the same moment.
        left = self.context.random.random() * bound
        while left > 0 and not self.context.stopping():
            self.context.clock.sleep(min(left, 0.5))
            left -= 0.5

    def unclaimed(self, answer: Final | Closed | Busy) -> Receipt:
        """Return the receipt of an extent that could not be claimed."""
        if isinstance(answer, Busy):
            busy = self.receipt(Outcome.BUSY, reason=answer.reason)
            wait_seconds = answer.retry_after_seconds
            return replace(busy, retry_after_seconds=wait_seconds, holder=answer.message)
        if isinstance(answer, Closed):
            closed = f"job is {answer.job.state}: {answer.job.reason}"
            return self.receipt(Outcome.JOB_CLOSED, reason=closed)
        item = answer.item
        return self.receipt(Outcome(item.state.value), reason=item.error, position=item.position)

    def close_job(self, receipt: Receipt) -> Receipt:
        """Try to close the job after a final extent, so that no order of events leaves it open."""
        if receipt.outcome in (Outcome.DONE, Outcome.FAILED):
            self.context.ledger.jobs.close(receipt.job)
        return receipt

    def receipt(self, outcome: Outcome, *, reason: str = "", position: int = 0) -> Receipt:
        """Return what this call has done so far."""
        return Receipt(
            job=self.extent.job,
            ordinal=self.extent.ordinal,
            uri=self.extent.uri,
            outcome=outcome,
            position=position,
            records=self.records,
            bad=self.bad,
            filtered=self.filtered,
            bytes_read=self.context.fetched_bytes() - self._fetched_before,
            seconds=self.context.clock.monotonic() - self._started,
            peak_rss_bytes=peak_rss_bytes(),
            reason=reason,
            worker=self.context.slots.owner,
        )


class _ClaimedExtent:
    """The delivery of a claimed extent; every exit ends the claim or raises Retryable.

    `_committed` are the totals of the last commit, `_sent` include the open transaction, which is
    open while `_sent_bytes` is not None.
    """

    def __init__(self, claim: Claim, call: _Call) -> None:
        self._claim = claim
        self._call = call
        self._context = call.context
        self._slots = call.context.slots
        self._committed = claim.item.totals
        self._sent = self._committed.copy()
        self._sent_bytes: int | None = None
        self._sending_bytes = 0  # of the chunk that was sent last
        self._sent_units, self._sent_rows = 0, list[int]()
        self._opened_at = 0.0
        self._producer_ended = False
        self._handed_back = False
        self._points: PointLog | None = None
        self._most_bad: int | None = None
        self._queue: str | None = None

    def run(self, *, out_of_time: bool) -> Receipt:
        """Deliver the extent, or apply the table of errors at the top of this module."""
        try:
            with contain_defects(self._call.extent.uri):
                return self._run(out_of_time=out_of_time)
        except ProcessExhausted:
            # Also where the error came while another one was handled.
            if not self._handed_back:
                self._hand_back(keep_attempt=True)
            raise
        finally:
            if self._producer_ended:
                self._slots.drop()

    def _run(self, *, out_of_time: bool) -> Receipt:
        call, item, limits = self._call, self._claim.item, self._context.limits
        if item.attempts > limits.attempts and not call.attempt_owed:
            tried = f"{item.attempts - 1} attempts without progress"
            last = f"; the last one: {call.last_error}" if call.last_error else ""
            return self.fail(f"{call.extent.uri}: gave up after {tried}{last}")
        try:
            if call.attempt_owed:
                if item.attempts > 1:
                    self._claim = call.claim = self._slots.reset_attempts(self._claim)
                call.attempt_owed = False
            with contain_defects(call.extent.uri):
                return self._deliver()
        except (SinkUnavailable, LedgerUnavailable, Fenced) as exc:
            if isinstance(exc, RecordsRejected):
                self._narrow(exc)
            self._return_attempt(exc)
            raise
        except _SOURCE_OUTAGES as exc:
            if out_of_time and limits.gives_up:
                self._abort()
                what = "registry" if isinstance(exc, RegistryUnavailable) else "store"
                return self.fail(f"{reason(exc)}; {after_outage(what)}")
            self._hand_back(keep_attempt=False)
            raise
        except Misconfigured:
            self._hand_back(keep_attempt=False)
            raise
        except (Permanent, CorruptRecord, Defect) as exc:
            self._abort()
            self._end_job(exc)  # before the extent is final: no engine runs a final extent again
            return self.fail(reason(exc))

    def _end_job(self, error: ExtentflowError) -> None:
        """End the job where an error of one extent is one of the whole job."""
        jobs, job = self._context.ledger.jobs, self._call.extent.job
        if isinstance(error, ObjectChanged):
            kept = "records of the old version that were committed stay in the topic"
            jobs.end(job, JobState.SUPERSEDED, f"{error}; {kept}")
        elif isinstance(error, TooManyBadRecords | TopicReplaced):
            jobs.end(job, JobState.FAILED, str(error))

    def _narrow(self, error: RecordsRejected) -> None:
        """Find out from a rejected transaction which record it is, or send fewer the next time."""
        rejections = self._call.rejections
        if self._sent_units and (not error.topic or error.topic != self._queue):
            rejections.rejected(error, self._sent_units, self._sent_rows)
        else:
            rejections.letters = error.why

    def _return_attempt(self, error: Retryable) -> None:
        """Return the attempt that an outage used up; Fenced may be a transaction that timed out."""
        if isinstance(error, BatchTooLarge):
            return  # no outage; where the current limits do not help, the attempts end
        is_outage = not isinstance(error, LedgerUnavailable | RecordsRejected)
        if self._sent_bytes is not None and is_outage:
            # An error soon after the begin, with nothing sent, says nothing about the size.
            slow = self._elapsed() >= self._context.limits.transaction_seconds
            if tried := self._sent_bytes or (self._sending_bytes if slow else 0):
                self._context.size.failed(tried)
        if isinstance(error, LedgerUnavailable):
            return  # the same call makes up for it after the next claim
        try:
            self._repeat_once(self._context.ledger.extents.return_attempt)
        except (LedgerUnavailable, ProcessExhausted) as exc:
            self._call.attempt_owed = True
            log.warning("%s: an outage used up an attempt: %s", self._call.extent.uri, exc)

    def fail(self, error: str) -> Receipt:
        """Fail the extent at its last committed position."""
        self._slots.fail(self._claim, **self._committed, error=error)
        return self._receipt(Outcome.FAILED, error)

    def _receipt(self, outcome: Outcome, reason: str = "") -> Receipt:
        return self._call.receipt(outcome, reason=reason, position=self._committed["position"])

    def _deliver(self) -> Receipt:
        extent, context = self._call.extent, self._context
        dead_letters, rejections = context.dead_letters(extent), self._call.rejections
        self._most_bad, self._queue = dead_letters.most_records, dead_letters.topic
        self._require_same_topics(recent=True)
        if rejections.letters:
            raise CorruptRecord(
                f"{extent.uri}: its dead letters are rejected: {rejections.letters}"
            )
        largest = context.limits.transaction_bytes
        is_new = context.size.job != extent.job
        wanted_bytes = min(context.limits.first_bytes, largest) if is_new else largest
        pipeline, position = self._open(rejections.found), self._committed["position"]
        if pipeline.resumable:
            self._points = PointLog.open(context.ledger.notes, extent, position)
            converted = pipeline.convert(extent, position, self._points.points)
        else:
            converted = pipeline.convert(extent, position)
        chunks = context.prefetch(converted)
        with closing(chunks):
            for chunk in self._parts(chunks):
                if chunk is not None:
                    if chunk.bad and dead_letters.topic is None:
                        self._commit()  # the good records before the bad one are delivered
                        dead_letters.report(extent, chunk.bad[:1])
                        unit = dead_letters.location_unit
                        raise not_tolerated(extent, chunk.bad[0], unit)
                    self._send(chunk, dead_letters)
                if self._is_due(context.size.limit(wanted_bytes)):
                    self._commit()
                    wanted_bytes = min(wanted_bytes * TRANSACTION_GROWTH, largest)
                if self._points and self._points.save(self._committed["position"]):
                    self._slots.moved()  # also while it reads what was delivered before
                if context.stopping():
                    return self._stop()
        self._require_tolerated()
        self._slots.complete(self._claim, confirm=self._require_same_topics, **self._sent)
        self._count_commit()
        return self._receipt(Outcome.DONE)

    def _open(self, rejected: Mapping[int, str]) -> Pipeline:
        """Open the pipeline, without the records that brokers rejected."""
        pipeline = self._context.open(self._call.extent)
        return replace(pipeline, rejected=rejected) if rejected else pipeline

    def _parts(self, chunks: PrefetchedChunks) -> PrefetchedChunks:
        """Yield chunks, those larger than brokers take in a transaction's time in parts."""
        for chunk in chunks:
            if chunk is None:
                yield None
            else:
                for part in chunk.split(self._context.size.limit(math.inf)):
                    yield from part.parts(self._call.rejections.most_units)

    def _is_due(self, limit_bytes: float) -> bool:
        """Whether the open transaction is large enough, or has been open for long enough."""
        if self._sent_bytes is None:
            return False
        if self._call.rejections.is_searching:
            return True
        seconds = self._context.limits.transaction_seconds
        return self._sent_bytes >= limit_bytes or self._elapsed() >= seconds

    def _elapsed(self) -> float:
        return self._context.clock.monotonic() - self._opened_at

    def _send(self, chunk: ConvertedChunk, dead_letters: DeadLetters) -> None:
        """Send records and dead letters of a chunk in the open transaction."""
        # The timer starts with the first record, like the broker's transaction timeout.
        if self._sent_bytes is None:
            self._sent_bytes, self._opened_at = 0, self._context.clock.monotonic()
        self._sending_bytes = chunk.payload_bytes
        self._sent_units += chunk.units
        if chunk.units == 1:
            self._sent_rows = list(chunk.locations)
        rejected: list[RejectedRecord] = []
        for records, places in chunk.by_topic():
            found = self._slots.sink.send(records)
            rejected += [replace(record, index=places[record.index]) for record in found]
        bad = chunk.bad_with(rejected)
        if bad:
            dead_letters.send(self._slots.sink, self._call.extent, bad)
        self._sent["records"] += chunk.rows - len(rejected)
        self._sent["bad"] += len(bad)
        self._sent["filtered"] += chunk.filtered
        self._sent["position"] = chunk.next_position
        self._sent_bytes += self._sending_bytes

    def _commit(self) -> None:
        """Commit the open transaction, if any."""
        if self._sent_bytes is None:
            return
        if self._sent == self._committed:
            # Chunks without records that do not advance: committing them would count as progress.
            self._slots.sink.abort()
        else:
            self._require_tolerated()
            self._require_same_topics(recent=True)
            self._slots.commit(self._claim, **self._sent)
            self._count_commit()
        self._sent_bytes = None

    def _require_same_topics(self, *, recent: bool = False) -> None:
        """Raise where a topic was created again since the job's first claim: records are gone.

        Dead letters that were never written are not missed.
        """
        changed = self._slots.changed_topics(self._claim, recent=recent)
        extent = self._call.extent
        jobs, bad = self._context.ledger.jobs, self._sent["bad"]
        if self._queue in changed and not (bad or jobs.progress(extent.job).bad):
            del changed[self._queue]
        for topic, (before, now) in changed.items():
            if not now:
                raise TopicLost.of(topic)
            what = created_again(topic, before, now)
            job = extent.job
            if topic == self._queue:
                lost = f"dead letters that job {job} committed to the former topic, if any, are"
                rest = "the topics of its records are the same"
            else:
                lost = f"what job {job} committed to the former topic is"
                rest = "the present one may have the rest of its records"
            raise TopicReplaced(
                f"{extent.uri}: {what}; {lost} gone, and {rest}"
                f"{in_full(extent.version.address, extent.connector)}"
            )

    def _require_tolerated(self) -> None:
        """Raise TooManyBadRecords before a commit with which the job would have too many.

        Counts the job's DONE extents and this one; `rules.verdict` counts all of them at the end.
        """
        bad, most = self._sent["bad"], self._most_bad
        if most is None or bad == self._committed["bad"]:
            return
        extent = self._call.extent
        total = bad + self._context.ledger.jobs.progress(extent.job).bad
        if total > most:
            raise TooManyBadRecords(f"{extent.uri}: {rules.too_many_bad_records(total, most)}")

    def _count_commit(self) -> None:
        self._call.records += self._sent["records"] - self._committed["records"]
        self._call.bad += self._sent["bad"] - self._committed["bad"]
        self._call.filtered += self._sent["filtered"] - self._committed["filtered"]
        self._call.commits += 1
        self._call.rejections.committed()
        self._sent_units = 0
        self._context.size.job = self._call.extent.job
        self._committed = self._sent.copy()
        if self._sent_bytes:
            target_seconds = self._context.limits.transaction_seconds
            self._context.size.committed(self._sent_bytes, self._elapsed(), target_seconds)

    def _stop(self) -> Receipt:
        self._commit()
        # Without progress the claim counts as an attempt: no extent circulates for ever. A resume
        # point is progress: the next call starts there.
        resumes = self._points is not None and self._points.saved > 0
        self._hand_back(keep_attempt=self._call.commits == 0 and not resumes)
        return self._receipt(Outcome.HANDED_BACK, "stopped before the next chunk")

    def _abort(self) -> None:
        """Discard the open transaction before the extent is handed back or fails."""
        try:
            self._slots.sink.abort()
        except ExtentflowError as exc:
            # A producer that has ended never commits what it sent: the claim can be cleared.
            self._producer_ended = True
            log.info("%s: the producer is dropped: %s", self._call.extent.uri, exc)

    def _hand_back(self, *, keep_attempt: bool) -> None:
        self._abort()  # records of an open transaction lie after the position that is handed back
        hand_back = partial(self._slots.hand_back, keep_attempt=keep_attempt, **self._committed)
        try:
            self._repeat_once(hand_back)
        except ProcessExhausted as exc:
            # The error that led here says more. The slot is settled before its next use.
            log.warning("%s stays claimed until it is settled: %s", self._call.extent.uri, exc)
        self._handed_back = True

    def _repeat_once(self, write: Callable[[Claim], None]) -> None:
        """Write to the ledger, twice if the process lacks resources the first time."""
        uri = self._call.extent.uri
        try:
            with contain_defects(uri):
                write(self._claim)
        except ProcessExhausted:
            # The failed try has freed its own memory and files by now.
            with contain_defects(uri):
                write(self._claim)
