"""Ownership of extents: lease a slot, fence its past, settle what it left, claim, commit, let go.

Owns: the protocol of docs/exactly-once.md, over ports only. Refuses to know: DynamoDB, librdkafka,
what a record is, who decides which extent comes next.

    free ──lease──> leased ──fence──> fenced ──read, settle──> settled ──mark──> ready
                                                                                  │ claim
         a worker that dies anywhere leaves everything to the next one's          v
         fence and settlement; whoever fences, releases                        working ─┐ commit*
                                                                                  │ <───┘
                                          ready <──complete | fail | hand_back────┘

Kafka decides: `SlotProgress` in the slot's group says what was committed under which epoch. The
ledger follows. A claim is released only by its owner or by whoever fenced its owner.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from extentflow.clock import Clock
from extentflow.errors import (
    Conflict,
    Fenced,
    LedgerUnavailable,
    Misconfigured,
    ProgressUnknown,
)
from extentflow.ledger import Claim, ExtentItem, Lease, Ledger, Settlement, SlotItem
from extentflow.model import Extent, ExtentState, Job
from extentflow.sink import Broker, Fence, ProducerSettings, Sink, SlotProgress

log = logging.getLogger(__name__)

RANDOM_TRIES = 4
MAX_GRACE_SECONDS = 15.0
CLAIM_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """How slots are used. `count` is `exactly.once.slots`; times are in seconds.

    `idle_seconds`: a producer unused for so long is thrown away, because brokers close idle
    connections. `wait_seconds`: how long one `claim` call waits for a free slot.
    """

    count: int = 256
    lease_seconds: float = 60.0
    stall_seconds: float = 300.0
    idle_seconds: float = 300.0
    wait_seconds: float = 10.0

    @property
    def grace_seconds(self) -> float:
        """How long after its end a lease is still respected, so that clock skew fences nobody."""
        return min(MAX_GRACE_SECONDS, self.lease_seconds / 4)


@dataclass(frozen=True, slots=True)
class Final:
    """The extent is DONE or FAILED; nothing is left to do."""

    item: ExtentItem


@dataclass(frozen=True, slots=True)
class Closed:
    """The extent's job is no longer open; nothing may be claimed."""

    job: Job


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody alive holds the extent (or its turn has not come, or no slot is free)."""

    retry_after_seconds: float
    reason: str
    message: str = ""


@dataclass(slots=True)
class _Hold:
    """The slot this process owns: proof, way to Kafka, and what it works on."""

    lease: Lease
    sink: Sink
    client: ProducerSettings
    used_at: float
    claim: Claim | None = None
    moved_at: float = 0.0
    in_doubt: bool = False
    lost: threading.Event = field(default_factory=threading.Event)


def require_app(ledger: Ledger, app_id: str) -> None:
    """Tie a ledger to `app_id`, which is part of every transactional id and of no item.

    Raises:
        Misconfigured: it belongs to another one, whose workers ours would not fence.
    """
    bound = ledger.bind(app_id)
    if bound != app_id:
        raise Misconfigured(
            f"this ledger's table belongs to app.id={bound}, and this process has app.id={app_id}: "
            "exactly once would not hold between the two; set the table's app.id, or name another "
            "ledger.table"
        )


class Slots:
    """One worker process's ownership on one Kafka cluster.

    Used by one thread (renewal apart), in the process that made it: `owner` is a fresh unique
    name that no fork or snapshot may inherit.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        broker: Broker,
        policy: SlotPolicy,
        app_id: str,
        owner: str,
        clock: Clock,
        random: Random,
    ) -> None:
        self.owner = owner
        self._ledger = ledger
        self._broker = broker
        self._policy = policy
        self._app_id = app_id
        self._bound = False
        self._clock = clock
        self._random = random
        self._hold: _Hold | None = None
        self._last_number: int | None = None
        self._pid = os.getpid()

    # -- claiming -------------------------------------------------------------------------------

    def claim(
        self, extent: Extent, client: ProducerSettings, *, message: str = ""
    ) -> Claim | Final | Closed | Busy:
        """Make the extent ours, recovering it from the dead if need be.

        Raises:
            Conflict: another range, an unknown job, a job of another Kafka cluster.
            SinkUnavailable, LedgerUnavailable: nothing was claimed, or `claim` will find out.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("slots were made in another process; a fork must make its own")
        for _ in range(CLAIM_ROUNDS):
            try:
                answer = self._try_claim(extent, client, message)
            except Fenced as exc:
                log.info("slot lost while claiming %s: %s", extent.uri, exc)
                self.drop()
                continue
            if answer is not None:
                return answer
        return Busy(self._policy.lease_seconds, f"{extent.uri} changed hands {CLAIM_ROUNDS} times")

    def _try_claim(
        self, extent: Extent, client: ProducerSettings, message: str
    ) -> Claim | Final | Closed | Busy | None:
        """Do one round; None asks for another."""
        hold = self._held(client)
        if hold is None:
            return Busy(self._jitter(self._policy.lease_seconds / 4), "no free slot")
        item = self._ledger.extents.get(extent.job, extent.ordinal)
        if item.state.final:
            return Final(item)
        job = self._job(extent)
        if item.claim is None:
            return self._claim_free(hold, job, extent, item, message)
        if item.claim.slot == hold.lease.number:
            self.drop()
            return None
        other = self._ledger.slots.get(self._broker.cluster, item.claim.slot)
        if not self._takeable(other):
            return Busy(self._rest(other), f"held by {other.owner}", item.claim.message)
        self._recover(other)
        return None

    def _job(self, extent: Extent) -> Job:
        """Return the extent's job when its slots are those of our cluster, its object the same."""
        job = self._ledger.jobs.get(extent.job)
        if job is None:
            raise Conflict(f"{extent.uri}: the ledger has no job {extent.job}; plan it again")
        if job.cluster != self._broker.cluster:
            raise Conflict(
                f"{extent.uri}: job {job.id} belongs to Kafka cluster {job.cluster}, this worker "
                f"produces to {self._broker.cluster}; point bootstrap.servers at the job's cluster"
            )
        if extent != job.extent(extent.ordinal, extent.start, extent.end):
            raise Conflict(
                f"{extent.uri}: job {job.id} of connector {job.connector} delivers "
                f"{job.version.uri} ({job.version.etag}, {job.format}) and nothing else; drop the "
                "message"
            )
        return job

    def _claim_free(
        self, hold: _Hold, job: Job, extent: Extent, item: ExtentItem, message: str
    ) -> Claim | Closed | Busy | None:
        if not job.state.open:
            return Closed(job)
        if job.ordered and extent.ordinal > 0:
            before = self._ledger.extents.get(job.id, extent.ordinal - 1)
            if before.state is ExtentState.FAILED:
                job = self._ledger.jobs.close(job.id)
            if not job.state.open:
                return Closed(job)
            if before.state is not ExtentState.DONE:
                return Busy(1.0, f"ordering=object: extent {before.ordinal} is {before.state}")
        hold.in_doubt = True  # until it is clear whether the slot works on the extent
        claim = self._ledger.extents.claim(
            hold.lease,
            extent,
            item,
            nonce=f"{self._random.getrandbits(64):016x}",
            message=message,
            lease_seconds=self._policy.lease_seconds,
        )
        hold.in_doubt = False
        if claim is not None:
            now = self._clock.monotonic()
            hold.claim, hold.moved_at, hold.used_at = claim, now, self._clock.wall()
        return claim

    def held(self, extent: Extent) -> bool:
        """Whether somebody alive works on the extent; nothing is claimed.

        Raises:
            LedgerUnavailable: ask again.
        """
        claim = self._ledger.extents.get(extent.job, extent.ordinal).claim
        return claim is not None and not self._takeable(
            self._ledger.slots.get(self._broker.cluster, claim.slot)
        )

    # -- working --------------------------------------------------------------------------------

    @property
    def sink(self) -> Sink:
        """The sink of the slot that holds the current claim."""
        if self._hold is None:
            raise Fenced("no slot is held")
        return self._hold.sink

    def commit(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        """Commit what was sent, with the extent's new totals; then tell the ledger.

        Raises:
            Fenced, SinkUnavailable, LedgerUnavailable: call `drop`, then `claim` again; Kafka
                knows whether the chunk counts.
        """
        hold = self._working(claim)
        hold.in_doubt = True  # until the ledger says what Kafka may know already
        hold.sink.commit(self._progress(claim, position, records, bad, done=False))
        self._ledger.extents.advance(
            claim,
            position=position,
            records=records,
            bad=bad,
            lease_seconds=self._policy.lease_seconds,
        )
        hold.in_doubt = False
        hold.moved_at, hold.used_at = self._clock.monotonic(), self._clock.wall()

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        """Commit the last chunk (possibly empty) as done, then complete the extent. As `commit`."""
        hold = self._working(claim)
        hold.in_doubt = True
        hold.sink.commit(self._progress(claim, position, records, bad, done=True))
        self._ledger.extents.complete(claim, position=position, records=records, bad=bad)
        self._freed(hold)

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        """Give the extent up at its last committed position; call `sink.abort()` before."""
        hold = self._working(claim)
        self._ledger.extents.fail(claim, position=position, records=records, bad=bad, error=error)
        self._freed(hold)

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        """Clear the claim at the last committed position; the extent stays pending."""
        hold = self._working(claim)
        self._ledger.extents.hand_back(
            claim, position=position, records=records, bad=bad, keep_attempt=keep_attempt
        )
        self._freed(hold)

    def renew(self) -> None:
        """Extend the lease of a slot whose extent moves; called by the keeper's thread.

        An extent that has not moved for `stall_seconds` keeps nobody from taking over.
        """
        hold = self._hold
        if hold is None or hold.claim is None or hold.lost.is_set():
            return
        if self._clock.monotonic() - hold.moved_at > self._policy.stall_seconds:
            return
        try:
            self._ledger.slots.renew(hold.lease, lease_seconds=self._policy.lease_seconds)
        except Fenced:
            hold.lost.set()
        except LedgerUnavailable as exc:
            log.warning("lease of slot %d not renewed: %s", hold.lease.number, exc)

    # -- letting go -----------------------------------------------------------------------------

    def drop(self) -> None:
        """Throw the producer away. The lease and a claim stay ours until acquired anew."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.sink.close()

    def release(self) -> None:
        """Let go of the slot for good, when no extent is claimed. The lease is the guarantee."""
        hold = self._hold
        self.drop()
        self._last_number = None
        if hold is None or hold.claim is not None:
            return
        try:
            self._ledger.slots.release(hold.lease)
        except LedgerUnavailable as exc:
            log.warning("slot %d stays leased until its lease ends: %s", hold.lease.number, exc)

    def evict(self, owner_prefix: str) -> int:
        """Take over every slot whose owner's name begins so, settle and free it; return how many.

        For an engine that knows its own workers to be gone (or wants them gone): fencing is safe
        whether they are or not, and nobody has to wait for a lease. Of an idle one only the ledger
        hears: its epoch is over, so that its owner has to take a slot anew, and is fenced then.
        """
        slots = [s for s in self._ledger.slots.list(self._broker.cluster) if s.owner]
        mine = [s for s in slots if s.owner.startswith(owner_prefix) and s.owner != self.owner]
        for slot in mine:
            self._recover(slot)
        return len(mine)

    def sweep(self) -> Iterator[SlotItem]:
        """Take over, settle and free the slots that the dead left at work; yield each when done.

        For whoever has no extent to claim. A slot is dead when its lease has ended, grace included
        (also under our own name: a sweep that was cut short); one that works on nothing may stay
        as it is, for whoever needs it takes it.
        """
        for slot in self._ledger.slots.list(self._broker.cluster):
            if slot.working is not None and self._ended(slot) and self._recover(slot):
                yield slot

    # -- acquiring ------------------------------------------------------------------------------

    def _held(self, client: ProducerSettings) -> _Hold | None:
        """Return a live slot with these client settings, acquiring one if need be."""
        hold = self._hold
        if hold is not None:
            idle = self._clock.wall() - hold.used_at
            fresh = 0 <= idle <= self._policy.idle_seconds and not hold.lost.is_set()
            free = hold.claim is None and not hold.in_doubt
            if fresh and free and hold.client == client:
                return hold
            self.drop()
        self._hold = self._acquire(client)
        return self._hold

    def _acquire(self, client: ProducerSettings) -> _Hold | None:
        give_up = self._clock.monotonic() + self._policy.wait_seconds
        while True:
            for seen in self._candidates():
                hold = self._take(seen, client)
                if hold is not None:
                    return hold
            if self._clock.monotonic() >= give_up:
                return None
            self._clock.sleep(self._jitter(1.0))

    def _candidates(self) -> Iterator[SlotItem]:
        """Yield slots that may be taken: the last own one, four at random, then all there are."""
        cluster, count = self._broker.cluster, self._policy.count
        tries = [self._random.randrange(count) for _ in range(min(RANDOM_TRIES, count))]
        first = [] if self._last_number is None else [self._last_number]
        for number in first + tries:
            slot = self._ledger.slots.get(cluster, number)
            if self._takeable(slot):
                yield slot
        known = {slot.number: slot for slot in self._ledger.slots.list(cluster)}
        numbers = list(range(count))
        self._random.shuffle(numbers)
        for number in numbers:
            slot = known.get(number, SlotItem(cluster, number))
            if self._takeable(slot):
                yield slot

    def _take(self, seen: SlotItem, client: ProducerSettings) -> _Hold | None:
        taken = self._lease(seen)
        if taken is None:
            return None
        lease, before = taken
        self._last_number = lease.number
        try:
            fence = self._take_over(lease, before, client)
        except Fenced as exc:
            log.info("slot %d was taken by somebody faster: %s", lease.number, exc)
            self._last_number = None
            return None
        return _Hold(lease, fence.open(), client, used_at=self._clock.wall())

    def _lease(self, seen: SlotItem) -> tuple[Lease, SlotItem] | None:
        if not self._bound:
            require_app(self._ledger, self._app_id)
            self._bound = True
        return self._ledger.slots.lease(
            seen, owner=self.owner, lease_seconds=self._policy.lease_seconds
        )

    def _take_over(self, lease: Lease, before: SlotItem, client: ProducerSettings) -> Fence:
        """Fence, read, settle, mark: only then may extents be claimed through the slot."""
        fence = self._broker.fence(self._identity(lease.number), client)
        try:
            left = self._left(fence)
            self._settle(lease, before.working, left)
            fence.mark(SlotProgress(epoch=lease.epoch))
        except BaseException:
            fence.close()
            raise
        return fence

    @staticmethod
    def _left(fence: Fence) -> SlotProgress | None:
        try:
            return fence.read()
        except ProgressUnknown as exc:
            log.warning("taken for a group that is gone: %s", exc)
            return None

    def _settle(
        self, lease: Lease, working: tuple[str, int] | None, left: SlotProgress | None
    ) -> None:
        """Bring the ledger to what Kafka says about the extent the predecessor worked on.

        Asks the ledger also where there is nothing to settle: we may have fenced somebody who
        leased the slot after us, and our marker must not overwrite what they committed.

        Raises:
            Fenced: the lease is no longer ours.
        """
        if working is None:
            self._ledger.slots.settle(lease, None, None)
            return
        for _ in range(CLAIM_ROUNDS):
            item = self._ledger.extents.get(*working)
            settlement = self._settlement(lease, item, left)
            seen = item if settlement is not None else None
            if self._ledger.slots.settle(lease, seen, settlement):
                return
        raise LedgerUnavailable(
            f"extent {working[1]} of job {working[0]} kept changing while it was settled"
        )

    @staticmethod
    def _settlement(lease: Lease, item: ExtentItem, left: SlotProgress | None) -> Settlement | None:
        """Return what the predecessor's claim came to; None when it had none (any more)."""
        mark = item.claim
        if mark is None or mark.slot != lease.number or mark.epoch >= lease.epoch:
            return None
        kept = Settlement(item.position, item.records, item.bad)
        if left is None or left.epoch != mark.epoch:
            return Settlement(item.position, item.records, item.bad, unknown=True)
        if (left.job, left.extent) != (item.job, item.ordinal):
            return kept
        if left.done or left.position > item.position:
            return Settlement(left.position, left.records, left.bad, done=left.done)
        return kept

    def _recover(self, slot: SlotItem) -> bool:
        """Take a slot only to settle what its owner left, then free it; False: lost a race."""
        taken = self._lease(slot)
        if taken is None:
            return False
        lease, before = taken
        try:
            # Who worked on nothing has no transaction open, and claims nothing under an old epoch.
            if before.working is not None:
                self._take_over(lease, before, ProducerSettings()).close()
        except Fenced as exc:
            log.info("slot %d was taken by somebody faster: %s", slot.number, exc)
            return False
        self._ledger.slots.release(lease)
        return True

    # -- small facts ----------------------------------------------------------------------------

    def _identity(self, number: int) -> str:
        return f"{self._app_id}.{self._ledger.id}.slot-{number}"

    def _takeable(self, slot: SlotItem) -> bool:
        return slot.owner in ("", self.owner) or self._ended(slot)

    def _ended(self, slot: SlotItem) -> bool:
        return self._ledger.now() > slot.until + self._policy.grace_seconds

    def _rest(self, slot: SlotItem) -> float:
        rest = slot.until + self._policy.grace_seconds - self._ledger.now()
        return max(0.1, rest) + self._random.random() * 0.5

    def _jitter(self, seconds: float) -> float:
        return seconds * (0.5 + self._random.random() / 2)

    def _working(self, claim: Claim) -> _Hold:
        hold = self._hold
        if hold is None or hold.claim is not claim or hold.lost.is_set():
            raise Fenced(f"{claim.extent.uri}: the claim is no longer ours")
        if hold.in_doubt:
            raise Fenced(
                f"{claim.extent.uri}: a commit is not in the ledger yet; only a settlement may "
                "write the extent now"
            )
        return hold

    def _freed(self, hold: _Hold) -> None:
        hold.claim, hold.used_at, hold.in_doubt = None, self._clock.wall(), False

    @staticmethod
    def _progress(
        claim: Claim, position: int, records: int, bad: int, *, done: bool
    ) -> SlotProgress:
        return SlotProgress(
            epoch=claim.lease.epoch,
            job=claim.extent.job,
            extent=claim.extent.ordinal,
            position=position,
            records=records,
            bad=bad,
            done=done,
        )
