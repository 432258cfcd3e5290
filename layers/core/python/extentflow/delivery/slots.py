"""Exclusive ownership of extents through slots: lease, fence, settle, mark, claim, commit, release.

The states of one slot:

    free ──lease──> leased ──fence──> fenced ──settle──> settled ──mark──> ready ──claim──> claimed
     ^                epoch + 1         old producer       the ledger       │ ^               │ ^ │
     │                                  is dead            follows Kafka    │ │               │ └─┘
     └──────────────────────────── release ─────────────────────────────────┘ └───────────────┘  │
                                                          complete | fail | hand back         commit

One round of `claim` (each "next round" reads the ledger again):

    own slot ──none is free──> Busy
       │
    extent item ──final──> Final
       │
       ├─ unclaimed ────────────> claim it ──> Claim | Closed | Busy (ordering) | next round
       ├─ claimed by our slot ──> drop the producer; next round (acquiring it again settles it)
       └─ claimed elsewhere ────> lease alive: Busy; lease expired: recover that slot, next round

Kafka decides: the `SlotProgress` in the slot's group states what was committed under which epoch,
and the ledger follows. Only the owner of a claim, or the worker that fenced the owner, releases it.
So progress in the ledger is a hint, which may arrive late or never. Calls that end a claim do not
wait for it: they clear the claim, on which every write of progress is conditional.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from operator import call
from random import Random
from typing import TypeAlias, Unpack

from extentflow.delivery.settlements import settlement_of
from extentflow.delivery.topic_identity import TopicIdentities
from extentflow.errors import (
    Conflict,
    ExtentflowError,
    Fenced,
    LedgerUnavailable,
    Misconfigured,
    ProgressUnknown,
    contain_defects,
)
from extentflow.kafka import Broker, Fence, ProducerSettings, Sink, SlotProgress
from extentflow.ledger import Claim, ExtentItem, Lease, Ledger, SlotItem, Totals
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.retry import Clock

log = logging.getLogger(__name__)

# Reads of one small item each, before a query that reads all slots.
RANDOM_TRIES = 4
MAX_GRACE_SECONDS = 15.0
CLAIM_ROUNDS = 100
# As connectors write it; `at_least_once` is no default.
GUARANTEE, AT_LEAST_ONCE = "delivery.guarantee", "at_least_once"
# Of a producer that only fences. The extent that was left may be delivered at least once, on a
# cluster without transactions.
FENCING = ProducerSettings(exactly_once=False)


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """How slots are used. `count` is `exactly.once.slots`.

    A producer that was idle for `idle_seconds` is replaced, because brokers close idle connections.
    One `claim` call waits up to `wait_seconds` for a slot.
    """

    count: int = 256
    lease_seconds: float = 60.0
    stall_seconds: float = 300.0
    idle_seconds: float = 300.0
    wait_seconds: float = 10.0

    @property
    def grace_seconds(self) -> float:
        """How long an expired lease is respected, so that clock skew fences no live worker."""
        return min(MAX_GRACE_SECONDS, self.lease_seconds / 4)


@dataclass(frozen=True, slots=True)
class Final:
    """The extent is DONE or FAILED."""

    item: ExtentItem


@dataclass(frozen=True, slots=True)
class Closed:
    """The job of the extent is no longer open, so its extents cannot be claimed."""

    job: Job


@dataclass(frozen=True, slots=True)
class Busy:
    """A live worker holds the extent, an earlier extent must finish first, or no slot is free."""

    retry_after_seconds: float
    reason: str
    message: str = ""


Answer: TypeAlias = Claim | Final | Closed | Busy


@dataclass(slots=True)
class _OwnedSlot:
    """The slot that this process leases, its producer and the claim in work.

    `in_doubt`: a commit or a write is not confirmed; only a settlement may write the extent.
    `position` is the last one that was, or may have been, committed. `reported`: the claim whose
    progress may be written; None as soon as a call ends it. `pinned` are the ids of topics that the
    job of the claim has pinned. `lost`: a renewal or a write of
    progress found that another worker has taken the slot.
    """

    lease: Lease
    sink: Sink
    client: ProducerSettings
    used_at: float
    claim: Claim | None = None
    reported: Claim | None = None
    position: int = 0
    pinned: Mapping[str, str] = field(default_factory=dict)
    moved_at: float = 0.0
    in_doubt: bool = False
    lost: threading.Event = field(default_factory=threading.Event)


def require_app(ledger: Ledger, app_id: str) -> None:
    """Bind the ledger to `app_id`, which is part of every transactional id but of no item.

    Misconfigured: it is bound to another one; the workers of the two would not fence each other.
    """
    bound = ledger.bind(app_id)
    if bound != app_id:
        raise Misconfigured(
            f"the ledger belongs to app.id={bound}, but this process has app.id={app_id}: "
            "exactly-once delivery would not hold between the two; set app.id to the ledger's, or "
            "ledger.url to another ledger"
        )


def _progress(claim: Claim, totals: Totals, *, done: bool) -> SlotProgress:
    extent = claim.extent
    return SlotProgress(claim.lease.epoch, extent.job, extent.ordinal, **totals, done=done)


def _not_owned(claim: Claim) -> Fenced:
    return Fenced(f"{claim.extent.uri}: this worker no longer owns the claim")


@dataclass(kw_only=True, eq=False, repr=False)
class Slots:
    """The ownership of one worker process on one Kafka cluster.

    Used by one thread (except `renew`) of the process that created it. `owner` is a new unique
    name; a fork or a restored snapshot must not inherit it. `submit` receives the writes of
    progress: it may run each one at once, later on another thread, or never if a newer one follows.
    """

    ledger: Ledger
    broker: Broker
    policy: SlotPolicy
    app_id: str
    owner: str
    clock: Clock
    random: Random
    submit: Callable[[Callable[[], None]], None] = call
    _topics: TopicIdentities = field(init=False)
    _bound: bool = field(default=False, init=False)
    _own: _OwnedSlot | None = field(default=None, init=False)
    # A claim of which `hand_back` could not finish the settlement; until the next claim.
    _unsettled: Claim | None = field(default=None, init=False)
    _last_number: int | None = field(default=None, init=False)
    _pid: int = field(default_factory=os.getpid, init=False)

    def __post_init__(self) -> None:
        self._topics = TopicIdentities(self.broker, self.clock)

    def claim(
        self,
        extent: Extent,
        client: ProducerSettings,
        *,
        message: str = "",
        topics: Collection[str] = (),
    ) -> Answer:
        """Claim the extent; recover it first if its claim belongs to a worker that died.

        The job pins the ids that `topics` have now, unless an earlier claim pinned ids.

        Raises:
            Conflict: another range or object, an unknown job, a job of another Kafka cluster.
            SinkUnavailable, LedgerUnavailable: call `claim` again; it settles a claim that was
                written and not confirmed.
        """
        if os.getpid() != self._pid:
            raise RuntimeError("Slots belong to another process; create new ones after a fork")
        self._unsettled = None
        for _ in range(CLAIM_ROUNDS):
            try:
                answer = self._try_claim(extent, client, message, topics)
            except Fenced as exc:
                log.info("%s: another worker took the slot during the claim: %s", extent.uri, exc)
                self.drop()
                continue
            if answer is not None:
                return answer
        return Busy(self.policy.lease_seconds, f"{extent.uri} changed owners {CLAIM_ROUNDS} times")

    def _try_claim(
        self, extent: Extent, client: ProducerSettings, message: str, topics: Collection[str]
    ) -> Answer | None:
        """Do one round of `claim`; None means: the ledger has changed, do another."""
        own = self._own_slot(client)
        if own is None:
            return Busy(self._jitter(self.policy.lease_seconds / 4), "no free slot")
        item = self.ledger.extents.get(extent.job, extent.ordinal)
        if item.state.final:
            return Final(item)
        job = self._require_job(extent)
        if item.claim is None:
            return self._claim_free(own, job, extent, item, message, topics=topics)
        if item.claim.slot == own.lease.number:
            self.drop()  # the next round acquires the slot again under a new epoch, and settles
            return None
        other = self.ledger.slots.get(self.broker.cluster, item.claim.slot)
        if not self._is_takeable(other):
            left = other.until + self.policy.grace_seconds - self.ledger.now()
            wait = max(0.1, left) + self.random.random() * 0.5
            return Busy(wait, f"held by {other.owner}", item.claim.message)
        self._recover(other)
        return None

    def _require_job(self, extent: Extent) -> Job:
        """Return the job of the extent, provided that cluster, object and range agree with it."""
        job = self.ledger.jobs.get(extent.job)
        if job is None:
            raise Conflict(
                f"{extent.uri}: the ledger has no job {extent.job}; plan the object again"
            )
        if job.cluster != self.broker.cluster:
            raise Conflict(
                f"{extent.uri}: job {job.id} belongs to Kafka cluster {job.cluster}, but this "
                f"worker produces to {self.broker.cluster}; set bootstrap.servers to the job's "
                "cluster"
            )
        # The plan of a RUNNING job is complete; a planner sends extents before it counts them.
        if extent.ordinal >= job.plan.count and job.state is JobState.RUNNING:
            raise Conflict(
                f"{extent.uri}: job {job.id} has {job.plan.count} extents, and none with number "
                f"{extent.ordinal}; delete the message"
            )
        if extent != job.extent(extent.ordinal, extent.start, extent.end):
            raise Conflict(
                f"{extent.uri}: job {job.id} of connector {job.connector} delivers "
                f"{job.version.uri} ({job.version.etag}, {job.format}) and no other object; "
                "delete the message"
            )
        return job

    def _claim_free(
        self,
        own: _OwnedSlot,
        job: Job,
        extent: Extent,
        item: ExtentItem,
        message: str,
        *,
        topics: Collection[str],
    ) -> Claim | Closed | Busy | None:
        """Claim an unclaimed extent through our slot; None if the ledger refused the claim."""
        if not job.state.open:
            return Closed(job)
        if job.ordered and extent.ordinal > 0:
            before = self.ledger.extents.get(job.id, extent.ordinal - 1)
            if before.state is ExtentState.FAILED:
                job = self.ledger.jobs.close(job.id)
            if not job.state.open:
                return Closed(job)
            if before.state is not ExtentState.DONE:
                return Busy(1.0, f"ordering=object: extent {before.ordinal} is {before.state}")
        pins = {} if job.topics else self._topics.ids(topics)
        # The claim may be written although its answer is lost. Until it is confirmed the slot is
        # not reused: acquiring it again (epoch + 1) settles what was written.
        own.in_doubt = True
        claim = self.ledger.extents.claim(
            own.lease,
            extent,
            item,
            # Identifies our own write after a lost response.
            nonce=f"{self.random.getrandbits(64):016x}",
            message=message,
            at_least_once=not own.client.exactly_once,
            topics=pins,
            lease_seconds=self.policy.lease_seconds,
        )
        own.in_doubt = False
        if claim is not None:
            own.claim, own.reported, own.position = claim, claim, claim.item.position
            own.pinned = job.topics or pins
            own.moved_at, own.used_at = self.clock.monotonic(), self.clock.wall()
        return claim

    def is_held(self, extent: Extent) -> bool:
        """Whether a live worker holds the extent; claims nothing. Raises LedgerUnavailable."""
        claim = self.ledger.extents.get(extent.job, extent.ordinal).claim
        if claim is None:
            return False
        return not self._is_takeable(self.ledger.slots.get(self.broker.cluster, claim.slot))

    @property
    def sink(self) -> Sink:
        """The sink of the slot that holds the current claim."""
        if self._own is None:
            raise Fenced("this worker owns no slot")
        return self._own.sink

    def commit(self, claim: Claim, **totals: Unpack[Totals]) -> None:
        """Commit the sent records with the new totals of the extent, then submit them as progress.

        Raises:
            Fenced, SinkUnavailable: call `drop`, then `claim` again; Kafka states whether the
                chunk was committed.
            LedgerUnavailable: likewise, only with at-least-once delivery. There the ledger has the
                only position, so it is written before this returns.
        """
        own = self._require_own(claim, totals["position"])
        # Until this returns: an error behind the commit must not lead to a hand-back before it.
        own.in_doubt, own.position = True, totals["position"]
        own.sink.commit(_progress(claim, totals, done=False))
        own.moved_at, own.used_at = self.clock.monotonic(), self.clock.wall()
        lease_seconds = self.policy.lease_seconds
        write = partial(self.ledger.extents.advance, claim, lease_seconds=lease_seconds, **totals)
        if claim.mark.at_least_once:
            write()
        else:
            self.submit(partial(self._report, own, claim, write))
        own.in_doubt = False

    @staticmethod
    def _report(own: _OwnedSlot, claim: Claim, write: Callable[[], None]) -> None:
        """Write progress, which may run late on another thread; the claim may have ended."""
        if own.reported is not claim:
            return
        try:
            write()
        except Fenced:
            # A call that has ended the claim meanwhile refuses this write, too.
            if own.reported is claim:
                own.lost.set()
        except Conflict as exc:
            log.debug("%s: newer progress came first: %s", claim.extent.uri, exc)
        except LedgerUnavailable as exc:
            # The next progress contains this one; otherwise a settlement reads it from Kafka.
            log.warning("%s: its progress is not in the ledger: %s", claim.extent.uri, exc)

    def changed_topics(self, claim: Claim, *, recent: bool = False) -> dict[str, tuple[str, str]]:
        """Return as `TopicIdentities.changed`, of the job of a claim; Fenced: it is not ours."""
        own = self._own
        if own is None or own.claim is not claim:
            raise _not_owned(claim)
        return self._topics.changed(own.pinned, recent=recent)

    def complete(
        self, claim: Claim, *, confirm: Callable[[], None] = lambda: None, **totals: Unpack[Totals]
    ) -> None:
        """Commit the last chunk (possibly empty) as done, then complete the extent. As `commit`.

        `confirm` is called between the two. What it raises leaves the extent to a settlement.
        """
        own = self._require_own(claim, totals["position"])
        # Kafka comes first: if the ledger misses the commit, the group offset still proves it.
        own.in_doubt, own.position, own.reported = True, totals["position"], None
        own.sink.commit(_progress(claim, totals, done=True))
        confirm()
        # Confirmed before any transaction for another extent, which would overwrite the only proof.
        self.ledger.extents.complete(claim, **totals)
        self._clear_claim(own)

    def fail(self, claim: Claim, *, error: str, **totals: Unpack[Totals]) -> None:
        """Fail the extent at its last committed position; call `sink.abort()` first."""
        own = self._require_own(claim, totals["position"])
        own.reported = None
        self.ledger.extents.fail(claim, error=error, **totals)
        self._clear_claim(own)

    def hand_back(self, claim: Claim, *, keep_attempt: bool, **totals: Unpack[Totals]) -> None:
        """Clear the claim at the last committed position; the extent stays pending.

        While the outcome of a commit is unknown, a settlement states the position: this takes the
        slot again, and frees it. So does a second call, if the first one failed.

        Raises:
            Fenced: another worker owns the slot, or this one works on another claim.
        """
        own, position = self._own, totals["position"]
        held = own if own is not None and own.claim is claim else None
        in_doubt = held is not None and (held.in_doubt or position < held.position)
        if in_doubt or self._unsettled is claim:
            if not keep_attempt:
                self.ledger.extents.return_attempt(claim)
            self._settle_claim(claim)
            return
        own = self._require_own(claim, position)
        own.reported = None
        self.ledger.extents.hand_back(claim, keep_attempt=keep_attempt, **totals)
        self._clear_claim(own)

    def _settle_claim(self, claim: Claim) -> None:
        """Drop the producer, then take, settle and free the slot that holds the claim."""
        self._unsettled = claim
        self.drop()
        slot = self.ledger.slots.get(claim.lease.cluster, claim.lease.number)
        ours = slot.owner == self.owner
        if slot.working == (claim.extent.job, claim.extent.ordinal):
            ours = ours and self._recover(slot)
        # A slot of ours without the extent: an earlier call, or a lost answer, ended the claim.
        if not ours:
            raise _not_owned(claim)
        self._unsettled = None

    def reset_attempts(self, claim: Claim) -> Claim:
        """Return the claim without the attempts that outages used up.

        Raises LedgerUnavailable, Fenced.
        """
        own, item = self._require_own(claim, claim.item.position), claim.item
        lease_seconds = self.policy.lease_seconds
        self.ledger.extents.advance(claim, lease_seconds=lease_seconds, **item.totals)
        # This claim counts again if it is handed back without progress.
        own.claim = own.reported = replace(claim, item=replace(item, attempts=1))
        return own.claim

    def renew(self) -> None:
        """Extend the lease while the claimed extent makes progress; runs on the renewal thread.

        The lease of an extent without progress for `stall_seconds` expires, so that another worker
        can take the extent over. An error never ends the renewals.
        """
        own = self._own
        if own is None or own.claim is None or own.lost.is_set():
            return
        if self.clock.monotonic() - own.moved_at > self.policy.stall_seconds:
            return
        try:
            with contain_defects(f"slot {own.lease.number}"):
                self.ledger.slots.renew(own.lease, lease_seconds=self.policy.lease_seconds)
        except Fenced:
            own.lost.set()
        except ExtentflowError as exc:
            # Whatever failed, the producer stays sound: the next renewal tries again, also after
            # the lease's end, and every write is conditional on the claim.
            log.warning("the lease of slot %d was not renewed: %s", own.lease.number, exc)

    def moved(self) -> None:
        """Count the claimed extent as moving, for `renew`, although nothing was committed."""
        if self._own is not None:
            self._own.moved_at = self.clock.monotonic()

    def _require_own(self, claim: Claim, position: int) -> _OwnedSlot:
        own = self._own
        if own is None or own.claim is not claim or own.lost.is_set():
            raise _not_owned(claim)
        if own.in_doubt or position < own.position:
            behind = f"position {position} lies behind {own.position}, which was committed"
            why = "its last commit is not settled" if own.in_doubt else behind
            raise Fenced(f"{claim.extent.uri}: {why}; only a settlement may write the extent now")
        return own

    def _clear_claim(self, own: _OwnedSlot) -> None:
        own.claim, own.reported, own.in_doubt = None, None, False
        own.used_at = self.clock.wall()

    def drop(self) -> None:
        """Close the producer. Lease and claim stay ours until the slot is acquired again."""
        own, self._own = self._own, None
        if own is not None:
            own.reported = None
            own.sink.close()

    def release(self) -> None:
        """Free the slot, unless an extent is claimed. Best effort: otherwise the lease expires."""
        own = self._own
        self.drop()
        self._last_number = None
        # A claim is released only by its owner or by the worker that fenced the owner: a claimed
        # slot stays leased until a settlement.
        if own is None or own.claim is not None:
            return
        try:
            self.ledger.slots.release(own.lease)
        except LedgerUnavailable as exc:
            log.warning("slot %d stays leased until its lease expires: %s", own.lease.number, exc)

    def evict(self, owner_prefix: str) -> int:
        """Take over, settle and free every slot of owners with this prefix; return their number.

        For an engine whose workers have ended, or must end: no lease has to expire first. A live
        worker is fenced; one with an idle slot, when it acquires a slot again.
        """
        slots = [s for s in self.ledger.slots.list(self.broker.cluster) if s.owner]
        evicted = [s for s in slots if s.owner.startswith(owner_prefix) and s.owner != self.owner]
        for slot in evicted:
            self._recover(slot)
        return len(evicted)

    def recover_expired(self) -> Iterator[SlotItem]:
        """Recover every slot whose lease expired during work; yield each slot once it is free.

        Leases count as expired after the grace time, also our own of an interrupted call. The next
        worker that needs a slot takes an expired one without an extent.
        """
        for slot in self.ledger.slots.list(self.broker.cluster):
            if slot.working is not None and self._is_expired(slot) and self._recover(slot):
                yield slot

    def _own_slot(self, client: ProducerSettings) -> _OwnedSlot | None:
        """Return a usable slot with these producer settings, acquired if necessary."""
        own = self._own
        if own is not None:
            # Wall time: a frozen environment stops the monotonic clock, but brokers close its idle
            # connections all the same.
            idle = self.clock.wall() - own.used_at
            fresh = 0 <= idle <= self.policy.idle_seconds and not own.lost.is_set()
            free = own.claim is None and not own.in_doubt
            if fresh and free and own.client == client:
                return own
            self.drop()
        self._own = self._acquire(client)
        return self._own

    def _acquire(self, client: ProducerSettings) -> _OwnedSlot | None:
        """Acquire a slot within `wait_seconds`; None if none is free (never an error)."""
        deadline = self.clock.monotonic() + self.policy.wait_seconds
        while True:
            for candidate in self._candidates():
                own = self._take(candidate, client)
                if own is not None:
                    return own
            if self.clock.monotonic() >= deadline:
                return None
            # Jittered, so that waiting workers do not query the slots at the same moment.
            self.clock.sleep(self._jitter(1.0))

    def _candidates(self) -> Iterator[SlotItem]:
        """Yield takeable slots: our last one, then up to four at random, then all of them."""
        cluster, count = self.broker.cluster, self.policy.count
        tries = [self.random.randrange(count) for _ in range(min(RANDOM_TRIES, count))]
        first = [] if self._last_number is None else [self._last_number]
        read = (self.ledger.slots.get(cluster, number) for number in first + tries)
        yield from filter(self._is_takeable, read)
        known = {slot.number: slot for slot in self.ledger.slots.list(cluster)}
        numbers = list(range(count))
        self.random.shuffle(numbers)
        listed = (known.get(number, SlotItem(cluster, number)) for number in numbers)
        yield from filter(self._is_takeable, listed)

    def _take(self, seen: SlotItem, client: ProducerSettings) -> _OwnedSlot | None:
        """Lease the slot and take it over; None if another worker was faster."""
        leased = self._lease(seen)
        if leased is None:
            return None
        lease, before = leased
        self._last_number = lease.number
        try:
            fence = self._take_over(lease, before, client)
        except Fenced as exc:
            log.info("slot %d was taken by another worker: %s", lease.number, exc)
            self._last_number = None
            return None
        return _OwnedSlot(lease, fence.open(), client, used_at=self.clock.wall())

    def _recover(self, slot: SlotItem) -> bool:
        """Take the slot, settle what its owner left, free it; False if another was faster."""
        leased = self._lease(slot)
        if leased is None:
            return False
        lease, before = leased
        try:
            # An owner without an extent has no open transaction and can claim nothing under its
            # old epoch: the new lease alone ends its ownership.
            if before.working is not None:
                self._take_over(lease, before, FENCING).close()
        except Fenced as exc:
            log.info("slot %d was taken by another worker: %s", slot.number, exc)
            return False
        self.ledger.slots.release(lease)
        return True

    def _lease(self, seen: SlotItem) -> tuple[Lease, SlotItem] | None:
        if not self._bound:
            require_app(self.ledger, self.app_id)
            self._bound = True
        return self.ledger.slots.lease(
            seen, owner=self.owner, lease_seconds=self.policy.lease_seconds
        )

    def _take_over(self, lease: Lease, before: SlotItem, client: ProducerSettings) -> Fence:
        """Fence the previous owner, settle its extent and mark our epoch; then slots may claim.

        The order matters: before the fence the offset may still change, and the marker overwrites
        the only proof of what the previous owner committed.
        """
        working = before.working
        if not client.exactly_once and working and not self._was_at_least_once(working):
            # Its transaction may be open: it is fenced also where at least once would do without.
            self._take_over(lease, before, ProducerSettings()).close()
            working = None
        identity = f"{self.app_id}.{self.ledger.id}.slot-{lease.number}"
        fence = self.broker.fence(identity, client)
        with ExitStack() as on_failure:
            on_failure.callback(fence.close)
            try:
                committed = fence.read()
            except ProgressUnknown as exc:
                log.warning("slot %d: treated as a missing consumer group: %s", lease.number, exc)
                committed = None
            self._settle(lease, working, committed)
            fence.mark(SlotProgress(epoch=lease.epoch))
            on_failure.pop_all()
        return fence

    def _settle(
        self, lease: Lease, working: tuple[str, int] | None, committed: SlotProgress | None
    ) -> None:
        """Update the ledger to what Kafka states about the extent of the previous owner.

        Writes even when there is nothing to settle, because the write is conditional on our epoch.
        We may have fenced a worker that leased the slot after us, and our marker must not
        overwrite what it committed. Raises Fenced if the lease is no longer ours.
        """
        if working is None:
            self.ledger.slots.settle(lease, None, None)
            return
        for _ in range(CLAIM_ROUNDS):
            item = self.ledger.extents.get(*working)
            settlement = settlement_of(lease, item, committed)
            if settlement is not None and settlement.unknown and self._is_at_least_once(item.job):
                settlement = replace(settlement, unknown=False)
            if settlement is not None and settlement.done and self._has_changed_topics(item.job):
                settlement = replace(settlement, done=False)  # the next claim ends the job
            if self.ledger.slots.settle(lease, item if settlement else None, settlement):
                return
        raise LedgerUnavailable(
            f"extent {working[1]} of job {working[0]} changed during {CLAIM_ROUNDS} settlements"
        )

    def _has_changed_topics(self, job_id: str) -> bool:
        job = self.ledger.jobs.get(job_id)
        return job is not None and bool(self._topics.changed(job.topics))

    def _was_at_least_once(self, working: tuple[str, int]) -> bool:
        claim = self.ledger.extents.get(*working).claim
        return (claim is not None and claim.at_least_once) or self._is_at_least_once(working[0])

    def _is_at_least_once(self, job_id: str) -> bool:
        """Whether the pinned revision says so; marks of workers before this version do not."""
        job = self.ledger.jobs.get(job_id)
        if job is None:
            return False
        version = self.ledger.connectors.get(job.connector, job.revision)
        return version is not None and version.config.get(GUARANTEE) == AT_LEAST_ONCE

    def _is_takeable(self, slot: SlotItem) -> bool:
        return slot.owner in ("", self.owner) or self._is_expired(slot)

    def _is_expired(self, slot: SlotItem) -> bool:
        # The ledger server's time, so that a worker's fast clock fences no live worker.
        return self.ledger.now() > slot.until + self.policy.grace_seconds

    def _jitter(self, seconds: float) -> float:
        return seconds * (0.5 + self.random.random() / 2)
