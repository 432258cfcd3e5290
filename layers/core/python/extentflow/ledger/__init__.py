"""The Ledger port: jobs, extents, slots, connectors and notes.

Adapters (`ledger.dynamodb*`, `testing.MemoryLedger`) implement it. How slots are chosen and settled
is left to `delivery`.

Every write is conditional, and repeating a call does no harm. A write whose response was lost is
recognised by its own epoch, owner or nonce, never assumed. Adapters retry conflicts and throttling
with full jitter for a bounded time and then raise LedgerUnavailable.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from extentflow.model import Extent, ExtentState, Job, JobState


@dataclass(frozen=True, slots=True)
class ClaimMark:
    """Who holds an extent: slot and epoch, a nonce per claim, the message that asked for it."""

    slot: int
    epoch: int
    nonce: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ExtentItem:
    """One extent as the ledger has it. `start` and `end` are -1 before the first claim."""

    job: str
    ordinal: int
    state: ExtentState = ExtentState.PENDING
    start: int = -1
    end: int = -1
    position: int = 0
    records: int = 0
    bad: int = 0
    attempts: int = 0
    claim: ClaimMark | None = None
    error: str = ""
    progress_unknown: bool = False


@dataclass(frozen=True, slots=True)
class SlotItem:
    """One slot as the ledger has it. Times are seconds since the epoch on the ledger's clock."""

    cluster: str
    number: int
    epoch: int = 0
    owner: str = ""
    until: float = 0.0
    working: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof that `owner` took slot `number` under `epoch`."""

    cluster: str
    number: int
    epoch: int
    owner: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Proof that a lease holds an extent; `item` is the extent as claimed."""

    lease: Lease
    extent: Extent
    mark: ClaimMark
    item: ExtentItem


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a slot's new owner found out about the extent its predecessor held.

    `unknown` True: Kafka no longer knows; the extent becomes FAILED with `progress_unknown`.
    Otherwise position, records and bad are totals of the extent, never behind the ledger's.
    """

    position: int
    records: int
    bad: int
    done: bool = False
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Exact sums over a job's counters: how many extents are DONE and FAILED.

    `records`, `bad` and `bytes` (lengths of ranges) are those of its DONE extents.
    """

    done: int = 0
    failed: int = 0
    records: int = 0
    bad: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorVersion:
    """One revision of a connector's configuration, as the user wrote it (no secrets resolved)."""

    name: str
    revision: int
    config: Mapping[str, str] = field(default_factory=dict)


class ConnectorState(enum.StrEnum):
    """What people want of a connector, as in Kafka Connect. STOPPED cancels what is open."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorStore(Protocol):
    """Connectors: their configuration revisions and their states."""

    def put(self, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        """Store the next revision; the same configuration again returns the latest revision.

        A deleted connector is shown again.
        """
        ...

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        """Return a revision (None: the latest that is not deleted)."""
        ...

    def list(self) -> Iterator[ConnectorVersion]:
        """Yield the latest revision of every connector that is not deleted, by name."""
        ...

    def names(self) -> Iterator[str]:
        """Yield the name of every connector there ever was: a deleted one may have open jobs."""
        ...

    def delete(self, name: str) -> bool:
        """Hide the connector from new jobs; revisions stay for the jobs that pinned them."""
        ...

    def state(self, name: str) -> ConnectorState:
        """Return what people want of a connector; RUNNING unless they said something else."""
        ...

    def set_state(self, name: str, state: ConnectorState) -> bool:
        """Say what is wanted of a connector; False when there is none of that name."""
        ...


class JobStore(Protocol):
    """Jobs, their counters, and whether their ends were published."""

    def register(self, job: Job) -> Job:
        """Store a new job, or return the one already stored under its id, untouched.

        A new job without a `created` time gets the ledger's.
        """
        ...

    def get(self, job_id: str) -> Job | None:
        """Return one job."""
        ...

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        """Return those of `job_ids` whose object needs no arrival any more.

        That is: a job is stored, and it is not SUPERSEDED (an arrival of its version would reopen
        it). Read in batches, however many they are; may lag behind writes.
        """
        ...

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        """Yield jobs, newest first within a connector and state; may lag behind writes."""
        ...

    def plan(self, job_id: str, *, count: int, cursor: int, complete: bool) -> Job:
        """Move a PLANNING job's cursor forwards; `complete` makes it RUNNING. Idempotent."""
        ...

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        """Bring an open job (PLANNING or RUNNING) to SUPERSEDED, CANCELLED or FAILED at once.

        A job that is already final is returned as it is.
        """
        ...

    def progress(self, job_id: str) -> JobProgress:
        """Sum the job's counters, strongly consistent."""
        ...

    def close(self, job_id: str) -> Job:
        """Make a RUNNING job DONE or FAILED when nothing is left to do; return it as it stands.

        Reads the job, then the counters, then updates conditional on RUNNING and on `reopened`
        as read. done = count -> DONE. done + failed = count -> FAILED. An ordered job is FAILED
        with its first failed extent. Never ends a job that is still PLANNING.
        """
        ...

    def resume(self, job_id: str) -> Job:
        """Open a FAILED, SUPERSEDED or CANCELLED job again; any other is returned as it is.

        It becomes PLANNING when its plan is not complete, RUNNING otherwise (`reopened` + 1).
        Its failed extents stay FAILED until `reopen`.
        """
        ...

    def unpublished(self, limit: int) -> Iterator[Job]:
        """Yield at most `limit` final jobs whose end was not announced, oldest first by connector.

        May lag behind writes. Reads only such jobs, however many there are of others.
        """
        ...

    def mark_published(self, job: Job) -> None:
        """Note that this end of a job, as given, was announced.

        Nothing where the job was reopened since: its next end is to be announced, too.
        """
        ...


class ExtentStore(Protocol):
    """Extents: claimed by a slot, advanced chunk by chunk, and ended."""

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        """Return one extent; one without an item is PENDING."""
        ...

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        """Yield the extents that have an item, by ordinal."""
        ...

    def claim(
        self,
        lease: Lease,
        extent: Extent,
        seen: ExtentItem,
        *,
        nonce: str,
        message: str = "",
        lease_seconds: float,
    ) -> Claim | None:
        """Claim an extent in one transaction; None when refused (the caller re-reads).

        Conditions: the job is PLANNING or RUNNING; the extent has no claim, is not final, and
        position and attempts (and existence) are as `seen`; the slot's epoch is the lease's and it
        is not working on anything. Effects: claim mark, attempts + 1, range stored at the first
        claim; slot.working, lease renewed.

        The same call again (same nonce) returns the claim it made. None also when the slot still
        works on something, for example on a claim of its own whose answer never came: a caller
        that finds the extent unclaimed and at `seen.position` reads the slot, and leases it again
        to settle it.

        Raises:
            Conflict: the ledger holds another range for this ordinal.
            Fenced: the slot's epoch is no longer the lease's; drop the producer at once.
        """
        ...

    def advance(
        self, claim: Claim, *, position: int, records: int, bad: int, lease_seconds: float
    ) -> None:
        """Record a committed chunk (totals of the extent), attempts back to 0; renew the lease.

        Conditional on the claim's mark and on position never going backwards. Two writes: the
        extent, then the lease.

        Raises:
            Fenced: the claim is no longer ours, or (the chunk is recorded) the slot was taken.
            Conflict: the claim is ours, but the ledger's position lies further on.
        """
        ...

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        """Make the extent DONE, add to its job's counters, clear slot.working: one transaction.

        Conditional on the claim's mark, on slot epoch, and on position not going backwards.
        Harmless when repeated: an extent that this claim's nonce already completed is success.

        Raises:
            Fenced: the claim is no longer ours.
            Conflict: the claim is ours, but the ledger's position lies further on.
        """
        ...

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        """Make the extent FAILED with its reason at the last confirmed position; failed + 1.

        A reason is cut to what a table can hold. Otherwise as `complete`.
        """
        ...

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        """Clear the claim at the last confirmed position; the extent stays PENDING.

        `keep_attempt` False gives the attempt back. Otherwise as `complete`, without counters.
        """
        ...

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        """Replay an extent; False when it is not FAILED.

        One transaction makes the extent PENDING (position kept, attempts 0, failed - 1) and its
        job, FAILED or SUPERSEDED or open, RUNNING (`reopened` + 1; PLANNING stays PLANNING).

        Raises:
            ProgressUnknown: the extent failed with `progress_unknown` and duplicates are not
                accepted.
            Conflict: the job is CANCELLED; resume it first.
        """
        ...


class SlotStore(Protocol):
    """Slots: leased by workers, and settled after a worker that lost its lease."""

    def get(self, cluster: str, number: int) -> SlotItem:
        """Return one slot; one without an item is free with epoch 0."""
        ...

    def list(self, cluster: str) -> Iterator[SlotItem]:
        """Yield the slots that have an item, by number."""
        ...

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        """Take a slot: epoch + 1, owner, lease until now + `lease_seconds`.

        Conditional on epoch and owner still being as `seen`; whether the slot may be taken (free,
        expired with grace, mine) is the caller's decision. Returns the lease and the item as it
        was before; None when another worker was faster. When the response to an own success was
        lost, the own owner and epoch + 1 are recognised.
        """
        ...

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        """Extend the lease. Raises Fenced when epoch or owner are no longer the lease's."""
        ...

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        """Write what the predecessor left, clear its claim and slot.working: one transaction.

        `seen` None (or `settlement` None): only slot.working is cleared. Conditions: slot.epoch is
        the lease's; the extent's claim is as `seen`; position never backwards. `done` and
        `unknown` change the counters as `complete` and `fail` do. A settlement that only clears
        the claim keeps `attempts` as it is unless the position moved (then 0).

        Returns False when the extent changed meanwhile (the caller re-reads). True when the
        extent changed and the slot works on nothing: an earlier, unanswered call settled it.

        Raises:
            Fenced: the slot was taken by another worker.
            Conflict: the settlement lies behind `seen.position`.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Make the slot free when it is still ours and works on nothing; otherwise do nothing."""
        ...


class NoteStore(Protocol):
    """Notes: facts that may be lost or outdated without harm."""

    def recall(self, name: str) -> Mapping[str, str] | None:
        """Return what was remembered under `name`; None where nothing was, or it has expired."""
        ...

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        """Keep a few facts under `name`, in place of those before: the last writer wins.

        For what may be lost or stale without harm: progress of scans, times of observations.
        `keep_seconds` None keeps them for good.
        """
        ...


class Ledger(Protocol):
    """Safe for use from several threads. All reads that decide anything are strongly consistent.

    Every method may raise LedgerUnavailable; `Misconfigured` where table or permission is missing.
    """

    @property
    def connectors(self) -> ConnectorStore:
        """Return the store of connectors."""
        ...

    @property
    def jobs(self) -> JobStore:
        """Return the store of jobs."""
        ...

    @property
    def extents(self) -> ExtentStore:
        """Return the store of extents."""
        ...

    @property
    def slots(self) -> SlotStore:
        """Return the store of slots."""
        ...

    @property
    def notes(self) -> NoteStore:
        """Return the store of notes."""
        ...

    @property
    def id(self) -> str:
        """Random id written when the table was created; part of every transactional id."""
        ...

    def bind(self, app_id: str) -> str:
        """Tie the ledger to an `app.id`, once for all; return the one that it is tied to.

        Slots and claims carry no `app.id`, and the transactional ids that they stand for do: under
        another one no producer would be fenced, and progress would be read from the wrong group.
        """
        ...

    def now(self) -> float:
        """Return seconds since the epoch on the *server's* clock.

        The last seen `Date` header, carried on by the local monotonic clock; makes a request when
        none was made for a minute.
        """
        ...
