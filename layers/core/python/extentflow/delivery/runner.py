"""`run_extent`: the only place where data moves.

Owns: the loop claim -> decode -> convert -> send -> commit -> complete, and what each fault means
for the extent. Refuses to know: engines, vendors, formats, how ownership works.

    fault                          what happens
    StoreUnavailable               abort, hand back, try again; after `retry_seconds` FAILED, or
                                   raised where somebody comes again (`gives_up` False)
    Fenced, SinkUnavailable,       drop the producer, claim again (Kafka tells the position);
    LedgerUnavailable              after `retry_seconds` raised: the lease lets others go on
    ObjectChanged                  FAILED, the job SUPERSEDED
    other Permanent, CorruptRecord FAILED at the last committed position
    Misconfigured                  handed back, raised: it concerns more than this extent

An attempt is a claim that moved nothing and whose holder said nothing. What is away uses none up:
whoever saw that and claims again starts the count anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from random import Random

from extentflow.clock import Clock
from extentflow.delivery.deadletters import DeadLetters, describe
from extentflow.delivery.pipeline import ConvertedChunk, Pipeline
from extentflow.delivery.slots import Busy, Closed, Final, Slots
from extentflow.errors import (
    CorruptRecord,
    CredentialsUnavailable,
    LedgerUnavailable,
    Misconfigured,
    ObjectChanged,
    Permanent,
    Retryable,
    SinkUnavailable,
    StoreUnavailable,
    reason,
)
from extentflow.formats import BadRecord
from extentflow.ledger import Claim, Ledger
from extentflow.memory import peak_rss_bytes
from extentflow.model import Extent, JobState, Outcome, Receipt
from extentflow.sink import ProducerSettings, RejectedRecord

log = logging.getLogger(__name__)

BACK_OFF_SECONDS = 0.2
MAX_BACK_OFF_SECONDS = 5.0
TRANSACTION_GROWTH = 64

Chunks = Generator[ConvertedChunk, None, None]
# None: the next one is not there yet.
ChunksOrNothing = Generator[ConvertedChunk | None, None, None]


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Bounds of one `run_extent` call; bytes of payload, seconds of wall time.

    The first transaction after a claim has `first_bytes`, so that consumers see records early; each
    one after it is larger, up to `transaction_bytes`.
    `gives_up`: a store that stays away fails the extent, because nobody comes again.
    """

    transaction_bytes: int = 64 << 20
    first_bytes: int = 1 << 20
    transaction_seconds: float = 10.0
    attempts: int = 5
    retry_seconds: float = 120.0
    gives_up: bool = True


# What an extent is handed back for: it is the object's side that is away, not the slot's.
_HANDED_BACK = (StoreUnavailable, CredentialsUnavailable)
# What keeps a claim from being settled, so that claiming anew counts an attempt.
_OUTAGES = (SinkUnavailable, LedgerUnavailable, CredentialsUnavailable)


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """Everything `run_extent` needs besides the extent.

    `fetched_bytes` counts what this process has read from the store so far. `stopping` is asked
    between chunks: True commits and hands the extent back (a deadline, a signal).
    `open` builds the pipeline late, so that its faults count as the extent's. `ahead` may prepare
    chunks before they are asked for, and yield None while it waits for one: a store that is slow
    keeps nobody from committing or stopping.
    """

    open: Callable[[Extent], Pipeline]
    dead_letters: Callable[[Extent], DeadLetters]
    client: Callable[[Extent], ProducerSettings]
    slots: Slots
    ledger: Ledger
    limits: TransactionLimits
    clock: Clock
    random: Random
    ahead: Callable[[Chunks], ChunksOrNothing] = lambda chunks: chunks
    fetched_bytes: Callable[[], int] = lambda: 0
    stopping: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class _Totals:
    """The extent's totals: `position`, `records`, `bad` as committed, `sent_*` since then."""

    position: int
    records: int
    bad: int
    sent_records: int = 0
    sent_bad: int = 0
    sent_bytes: int = 0
    sent_position: int | None = None
    since: float = 0.0

    def committed(self) -> dict[str, int]:
        return {"position": self.position, "records": self.records, "bad": self.bad}

    def next(self) -> dict[str, int]:
        return {
            "position": self.position if self.sent_position is None else self.sent_position,
            "records": self.records + self.sent_records,
            "bad": self.bad + self.sent_bad,
        }

    def settle(self) -> None:
        """Take what was sent as committed."""
        after = self.next()
        self.position, self.records, self.bad = after["position"], after["records"], after["bad"]
        self.sent_records = self.sent_bad = self.sent_bytes = 0
        self.sent_position = None


@dataclass(slots=True)
class _Tally:
    """What this call did, over all its tries.

    `outage`: the last try met broker, table or secrets away.
    """

    records: int = 0
    bad: int = 0
    moves: int = 0
    started: float = 0.0
    fetched_before: int = field(default=0)
    trouble: str = ""
    outage: bool = False


def run_extent(extent: Extent, work: DeliveryContext, *, message: str = "") -> Receipt:
    """Deliver one extent, exactly once, from wherever its position is; return what was done.

    Called by every engine. `message` identifies the queue message that asked for it.

    Raises:
        SinkUnavailable, LedgerUnavailable, Fenced: still so after `limits.retry_seconds` without
            progress; the extent stays claimed until its lease ends and can be run again.
        StoreUnavailable, CredentialsUnavailable: the same where `limits.gives_up` is False; the
            extent is handed back.
        Misconfigured, Conflict: the extent is as claimable as before.
    """
    tally = _Tally(started=work.clock.monotonic(), fetched_before=work.fetched_bytes())
    give_up, tries, moves = tally.started + work.limits.retry_seconds, 0, 0
    while True:
        out_of_time = work.clock.monotonic() >= give_up
        try:
            receipt = _try_extent(extent, work, message, tally, out_of_time=out_of_time)
            return _closing(receipt, work)
        except Retryable as exc:
            if not isinstance(exc, _HANDED_BACK):
                work.slots.drop()
                if out_of_time or work.stopping():
                    raise
            elif work.stopping():
                return _receipt(extent, work, tally, Outcome.HANDED_BACK, why=str(exc))
            elif out_of_time:
                raise
            tally.outage = isinstance(exc, _OUTAGES)
            log.warning("%s: %s; trying again", extent.uri, exc)
            tally.trouble = str(exc)
        if tally.moves > moves:
            moves, tries = tally.moves, 0
            give_up = work.clock.monotonic() + work.limits.retry_seconds
        tries += 1
        _pause(work, tries)


def fail_extent(extent: Extent, work: DeliveryContext, error: str) -> Receipt:
    """Fail an extent for a reason that lies outside its data (a defect of ours, a poison task).

    Claims it first, so that whatever its last holder committed is settled and kept; with settings
    that always work, because nothing is sent.
    """
    work.slots.drop()
    tally = _Tally(started=work.clock.monotonic(), fetched_before=work.fetched_bytes())
    claim = work.slots.claim(extent, ProducerSettings())
    if not isinstance(claim, Claim):
        return _unclaimed(claim, extent, work, tally)
    totals = _Totals(claim.item.position, claim.item.records, claim.item.bad)
    return _closing(_fail(claim, work, totals, tally, error), work)


def _closing(receipt: Receipt, work: DeliveryContext) -> Receipt:
    """Try to close the job of a final extent: no order of events may leave a job open."""
    if receipt.outcome in (Outcome.DONE, Outcome.FAILED):
        work.ledger.jobs.close(receipt.job)
    return receipt


def _pause(work: DeliveryContext, tries: int) -> None:
    """Sleep with full jitter, in slices short enough to notice `stopping`."""
    rest = work.random.random() * min(MAX_BACK_OFF_SECONDS, BACK_OFF_SECONDS * 2**tries)
    while rest > 0 and not work.stopping():
        work.clock.sleep(min(rest, 0.5))
        rest -= 0.5


def _try_extent(
    extent: Extent, work: DeliveryContext, message: str, tally: _Tally, *, out_of_time: bool
) -> Receipt:
    answer = work.slots.claim(extent, work.client(extent), message=message)
    if isinstance(answer, Claim):
        return _deliver_claimed(answer, work, tally, out_of_time=out_of_time)
    return _unclaimed(answer, extent, work, tally)


def _unclaimed(
    answer: Final | Closed | Busy, extent: Extent, work: DeliveryContext, tally: _Tally
) -> Receipt:
    """Say why there was nothing to claim."""
    if isinstance(answer, Busy):
        receipt = _receipt(extent, work, tally, Outcome.BUSY, why=answer.reason)
        return replace(
            receipt, retry_after_seconds=answer.retry_after_seconds, holder=answer.message
        )
    if isinstance(answer, Closed):
        closed = f"job is {answer.job.state}: {answer.job.reason}"
        return _receipt(extent, work, tally, Outcome.JOB_CLOSED, why=closed)
    item = answer.item
    receipt = _receipt(extent, work, tally, Outcome(item.state.value), why=item.error)
    return replace(receipt, position=item.position)


def _deliver_claimed(
    claim: Claim, work: DeliveryContext, tally: _Tally, *, out_of_time: bool
) -> Receipt:
    """Deliver a claimed extent; every way out leaves the claim settled or raises Retryable."""
    extent, item = claim.extent, claim.item
    totals = _Totals(item.position, item.records, item.bad)
    if item.attempts > work.limits.attempts and not tally.outage:
        error = f"{extent.uri}: gave up after {item.attempts - 1} attempts without progress"
        error += f"; the last one: {tally.trouble}" if tally.trouble else ""
        return _fail(claim, work, totals, tally, error)
    try:
        if tally.outage and item.attempts > 1:
            work.slots.commit(claim, **totals.committed())  # no records; attempts back to 0
        return _deliver(claim, work, totals, tally)
    except _HANDED_BACK as exc:
        work.slots.sink.abort()
        if out_of_time and work.limits.gives_up:
            return _fail(
                claim, work, totals, tally, f"{reason(exc)}; replay the job when it is back"
            )
        work.slots.hand_back(claim, **totals.committed(), keep_attempt=False)
        raise
    except Misconfigured:
        work.slots.sink.abort()
        work.slots.hand_back(claim, **totals.committed(), keep_attempt=False)
        raise
    except (Permanent, CorruptRecord) as exc:
        work.slots.sink.abort()
        if isinstance(exc, ObjectChanged):  # before the extent is final and nobody comes again
            work.ledger.jobs.end(extent.job, JobState.SUPERSEDED, _superseded(exc))
        return _fail(claim, work, totals, tally, reason(exc))


def _deliver(claim: Claim, work: DeliveryContext, totals: _Totals, tally: _Tally) -> Receipt:
    extent = claim.extent
    dead_letters = work.dead_letters(extent)
    most_bytes = min(work.limits.first_bytes, work.limits.transaction_bytes)
    chunks = work.ahead(work.open(extent).prepare(extent, totals.position))
    with closing(chunks):
        for prepared in chunks:
            if prepared is not None:
                if prepared.bad and dead_letters.topic is None:
                    _commit(claim, work, totals, tally)
                    raise CorruptRecord(
                        describe(extent, prepared.bad[0], dead_letters.location_unit)
                    )
                _send(claim, prepared, work, totals, dead_letters)
            if _is_due(work, totals, most_bytes):
                _commit(claim, work, totals, tally)
                most_bytes = min(most_bytes * TRANSACTION_GROWTH, work.limits.transaction_bytes)
            if work.stopping():
                return _hand_back(claim, work, totals, tally)
    done = totals.next()
    work.slots.complete(claim, **done)
    _count(tally, totals)
    return replace(_receipt(extent, work, tally, Outcome.DONE), position=done["position"])


def _is_due(work: DeliveryContext, totals: _Totals, most_bytes: int) -> bool:
    """Whether the open transaction has been large, or open, for long enough."""
    if totals.sent_position is None:
        return False
    elapsed = work.clock.monotonic() - totals.since
    return totals.sent_bytes >= most_bytes or elapsed >= work.limits.transaction_seconds


def _send(
    claim: Claim,
    prepared: ConvertedChunk,
    work: DeliveryContext,
    totals: _Totals,
    dead_letters: DeadLetters,
) -> None:
    """Send a chunk's records and dead letters into the open transaction."""
    if totals.sent_position is None:
        totals.since = work.clock.monotonic()
    refused = work.slots.sink.send(prepared.records)
    bad = list(prepared.bad) + [_refused(prepared, refusal) for refusal in refused]
    if bad:
        _bury(claim, bad, work, dead_letters)
    totals.sent_records += len(prepared.records.values) - len(refused)
    totals.sent_bad += len(bad)
    totals.sent_bytes += prepared.payload_bytes
    totals.sent_position = prepared.next_position


def _refused(prepared: ConvertedChunk, refusal: RejectedRecord) -> BadRecord:
    raw = prepared.records.values[refusal.index].as_py()
    return BadRecord(raw, int(prepared.locations[refusal.index]), refusal.reason)


def _bury(
    claim: Claim, bad: list[BadRecord], work: DeliveryContext, dead_letters: DeadLetters
) -> None:
    """Send dead letters; one that is too large goes without its bytes, with its location."""
    refused = work.slots.sink.send(dead_letters.records(claim.extent, bad))
    if not refused:
        return
    large = [bad[refusal.index] for refusal in refused]
    again = work.slots.sink.send(dead_letters.records(claim.extent, large, raw=False))
    if again:
        raise CorruptRecord(
            f"{describe(claim.extent, large[again[0].index], dead_letters.location_unit)}; "
            "and the dead "
            f"letter queue refused it: {again[0].reason}"
        )


def _commit(claim: Claim, work: DeliveryContext, totals: _Totals, tally: _Tally) -> None:
    if totals.sent_position is None:
        return
    if totals.next() == totals.committed():  # chunks that lead nowhere are no progress
        work.slots.sink.abort()
    else:
        work.slots.commit(claim, **totals.next())
        _count(tally, totals)
    totals.settle()


def _count(tally: _Tally, totals: _Totals) -> None:
    tally.records += totals.sent_records
    tally.bad += totals.sent_bad
    tally.moves += 1


def _hand_back(claim: Claim, work: DeliveryContext, totals: _Totals, tally: _Tally) -> Receipt:
    _commit(claim, work, totals, tally)
    work.slots.hand_back(claim, **totals.committed(), keep_attempt=tally.moves == 0)
    receipt = _receipt(
        claim.extent, work, tally, Outcome.HANDED_BACK, why="stopped before the next chunk"
    )
    return replace(receipt, position=totals.position)


def _fail(
    claim: Claim, work: DeliveryContext, totals: _Totals, tally: _Tally, error: str
) -> Receipt:
    work.slots.fail(claim, **totals.committed(), error=error)
    receipt = _receipt(claim.extent, work, tally, Outcome.FAILED, why=error)
    return replace(receipt, position=totals.position)


def _superseded(exc: ObjectChanged) -> str:
    return f"{exc}; records of the old version that were committed stay in the topic"


def _receipt(
    extent: Extent, work: DeliveryContext, tally: _Tally, outcome: Outcome, *, why: str = ""
) -> Receipt:
    return Receipt(
        job=extent.job,
        ordinal=extent.ordinal,
        uri=extent.uri,
        outcome=outcome,
        records=tally.records,
        bad=tally.bad,
        bytes_read=work.fetched_bytes() - tally.fetched_before,
        seconds=work.clock.monotonic() - tally.started,
        peak_rss_bytes=peak_rss_bytes(),
        reason=why,
        worker=work.slots.owner,
    )
