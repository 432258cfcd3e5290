"""The Ledger port: jobs, extents, slots, connectors and notes.

Its stores are written once, over `items` that a database writes under conditions; `dynamodb` holds
them in a table. How slots are chosen and settled is left to `extentflow.delivery`.

Every write is conditional, and repeating a call does no harm. A write whose response was lost is
recognised by its own epoch, owner or nonce, never assumed. Adapters retry conflicts and throttling
with full jitter for a bounded time and then raise LedgerUnavailable.
"""

import builtins
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NotRequired, Protocol, TypedDict, Unpack

from extentflow import plugins
from extentflow.errors import Misconfigured
from extentflow.ledger.notes import NoteStore
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.plugins import Registry


class Totals(TypedDict):
    """What became of the records of an extent up to a position: delivered, bad, filtered."""

    position: int
    records: int
    bad: int
    filtered: int


@dataclass(frozen=True, slots=True)
class ClaimMark:
    """The holder of an extent: slot and epoch, a nonce per claim, the message that led to it.

    `at_least_once`: the holder stores no progress in Kafka; the ledger's position is the only one.
    """

    slot: int
    epoch: int
    nonce: str
    message: str = ""
    at_least_once: bool = False


@dataclass(frozen=True, slots=True)
class ExtentItem:
    """One extent as stored. `start` and `end` are -1 before the first claim."""

    job: str
    ordinal: int
    state: ExtentState = ExtentState.PENDING
    start: int = -1
    end: int = -1
    position: int = 0
    records: int = 0
    bad: int = 0
    filtered: int = 0
    attempts: int = 0
    claim: ClaimMark | None = None
    error: str = ""
    progress_unknown: bool = False

    @property
    def totals(self) -> Totals:
        """What became of its records so far."""
        return Totals(
            position=self.position, records=self.records, bad=self.bad, filtered=self.filtered
        )


@dataclass(frozen=True, slots=True)
class SlotItem:
    """One slot as stored. Times are seconds since the epoch on the ledger's clock."""

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

    def __str__(self) -> str:
        return f"slot {self.number} of cluster {self.cluster}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Proof that a lease holds an extent; `item` is the extent as claimed."""

    lease: Lease
    extent: Extent
    mark: ClaimMark
    item: ExtentItem


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a slot's new owner read from Kafka about the extent of its predecessor.

    `unknown`: Kafka no longer has the progress; the extent becomes FAILED, `progress_unknown`.
    Otherwise position, records, bad and filtered are totals of the extent, never behind the
    ledger's.
    """

    position: int
    records: int
    bad: int
    done: bool = False
    unknown: bool = False
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job's exact counters; all but `failed` are of its DONE extents, `bytes` those of ranges.

    `records` + `bad` + `filtered` is the number of records that were read.
    """

    done: int = 0
    failed: int = 0
    records: int = 0
    bad: int = 0
    filtered: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorVersion:
    """One revision of a connector's configuration, as the user wrote it (no secrets resolved)."""

    name: str
    revision: int
    config: Mapping[str, str] = field(default_factory=dict)


class ConnectorState(enum.StrEnum):
    """The requested state of a connector. STOPPED cancels open jobs.

    ENABLED permits delivery and does not say that any takes place: no process belongs to a
    connector, unlike RUNNING in Kafka Connect.
    """

    ENABLED = "ENABLED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class PlanStep(TypedDict):
    """How far a job is planned; `covered`: see `Plan`; `close` compares it with the delivery.

    `cut_version` is stored with the first extents.
    """

    count: int
    cursor: int
    complete: bool
    covered: NotRequired[int]
    cut_version: NotRequired[int | None]


class ConnectorStore(Protocol):
    """Connectors: their configuration revisions and their states."""

    def put(self, name: str, config: Mapping[str, str], *, listed: bool = True) -> ConnectorVersion:
        """Store the next revision, or return the latest if it is the same; undo a deletion.

        With `listed` False the connector is stored as a deleted one, which only jobs use; it stays
        listed if it is.
        """

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        """Return a revision (None: the latest that is not deleted)."""

    def list(self, *, deleted: bool = False) -> Iterator[ConnectorVersion]:
        """Yield the latest revision of every connector, by name; also `deleted` ones if asked."""

    def names(self) -> Iterator[str]:
        """Yield the names of all connectors; a deleted one may have open jobs."""

    def delete(self, name: str) -> bool:
        """Hide the connector from new jobs; revisions stay for the jobs that pinned them."""

    def state(self, name: str) -> ConnectorState:
        """Return the requested state of a connector; ENABLED when none was requested."""

    def set_state(self, name: str, state: ConnectorState) -> bool:
        """Request a state of a connector; False when there is none of that name."""


class JobStore(Protocol):
    """Jobs, their counters, and whether their ends were published.

    `find_registered`, `get_many`, `list`, `progress_of` and `unpublished` may lag behind writes.
    """

    def register(self, job: Job) -> Job:
        """Store a job, by default as created now, unless its id has one; return the stored one."""

    def follow(self, before: Job, job: Job) -> Job | None:
        """Register the next generation of an object as `register`, and let `before` be followed.

        None if `before` changed since it was read: it was reopened or ended, maybe by another
        command. A job that is followed is not resumed, so that an object has one open generation.
        """

    def get(self, job_id: str) -> Job | None:
        """Return one job."""

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        """Return the ids that have a job, but no SUPERSEDED one, which an arrival reopens."""

    def get_many(self, job_ids: Iterable[str]) -> Iterator[Job]:
        """Yield those of the jobs that exist, in any order, each once; few requests for many."""

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        """Yield jobs, newest first within a connector and state."""

    def plan(self, job_id: str, **step: Unpack[PlanStep]) -> Job:
        """Move a PLANNING job's cursor forwards; `complete` makes it RUNNING. Idempotent.

        A job with extents of another `cut_version` is returned unchanged.
        """

    def pin_partition(self, job_id: str, partition: int) -> int:
        """Store the partition of an ordered job unless it has one; return the stored one."""

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        """Make an open job SUPERSEDED, CANCELLED or FAILED; return any other as it is.

        One that is to be CANCELLED and has no extent left ends as `close` says.
        """

    def dismiss(self, job_id: str, reason: str) -> Job:
        """Make a FAILED or CANCELLED job SUPERSEDED, and replace the reason of a SUPERSEDED one.

        Return any other as it is.
        """

    def progress(self, job_id: str) -> JobProgress:
        """Sum the job's counters, strongly consistent."""

    def progress_of(self, jobs: Iterable[Job]) -> dict[str, JobProgress]:
        """Sum the counters of jobs, by id; few requests for many. `jobs` are as stored."""

    def close(self, job_id: str) -> Job:
        """Make a RUNNING job DONE or FAILED when no extent is left; return its current state.

        An ordered job is FAILED with its first failed extent. A CANCELLED job becomes DONE when all
        of its extents are. Conditional on the state and on `reopened` as read.
        """

    def resume(self, job_id: str, *, accept_duplicates: bool = False) -> Job:
        """Open a FAILED, SUPERSEDED or CANCELLED job again; any other is returned as it is.

        It becomes PLANNING when its plan is not complete, RUNNING otherwise (`reopened` + 1).
        Its failed extents stay FAILED. Raises Conflict for a job that is followed, unless
        duplicates are accepted.
        """

    def unpublished(self, limit: int) -> Iterator[Job]:
        """Yield `limit` final jobs with unpublished ends, oldest first by connector."""

    def mark_published(self, job: Job) -> None:
        """Mark this end of a job as published; no effect if the job was reopened since."""


class ExtentStore(Protocol):
    """Extents: claimed by a slot, advanced chunk by chunk, and ended."""

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        """Return one extent; one without an item is PENDING."""

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        """Yield the extents that have an item, by ordinal."""

    def list_many(self, jobs: Iterable[Job]) -> dict[str, builtins.list[ExtentItem]]:
        """Return the extents of jobs that have an item, by job and ordinal; may lag behind writes.

        Few requests for many jobs, and one or more for each job of many extents.
        """

    def claim(
        self,
        lease: Lease,
        extent: Extent,
        seen: ExtentItem,
        *,
        nonce: str,
        message: str = "",
        at_least_once: bool = False,
        topics: Mapping[str, str] | None = None,
        lease_seconds: float,
    ) -> Claim | None:
        """Claim an extent in one transaction; None when refused (the caller re-reads).

        Conditions: the job is open; the extent is not final, has no claim, and is as `seen`. The
        slot has the lease's epoch and works on nothing. Effects: claim mark, attempts + 1, range
        stored at the first claim; slot.working, lease renewed. With `topics`, the job pins these
        ids, on the condition that it has pinned none.

        The same call again (same nonce) returns the claim it made. None also when the slot works
        on something, such as a claim whose response was lost: leasing it again settles that.

        Conflict: the ledger holds another range for this ordinal. Fenced: the slot was taken.
        """

    def advance(self, claim: Claim, *, lease_seconds: float, **totals: Unpack[Totals]) -> None:
        """Record a committed chunk, attempts back to 0; then renew the lease in a second write.

        Also called from a background thread, perhaps after the claim has ended. Conditional on
        the claim's mark and on position not going backwards. The lease stays as it is when the
        ledger is unavailable by then.

        Fenced: the claim is no longer ours, or (the chunk is recorded) the slot was taken.
        Conflict: the claim is ours, but the ledger's position lies further on.
        """

    def return_attempt(self, claim: Claim) -> None:
        """Give back the attempt of a claim that stays; no effect unless it is as when claimed."""

    def complete(self, claim: Claim, **totals: Unpack[Totals]) -> None:
        """Make the extent DONE, add to its job's counters, clear slot.working: one transaction.

        Conditional on the claim's mark, on the slot's epoch, and on position not going backwards.
        Harmless when repeated: the claim's nonce identifies an earlier completion. Fenced: the
        claim is no longer ours. Conflict: it is, but the ledger's position lies further on.
        """

    def fail(self, claim: Claim, *, error: str, **totals: Unpack[Totals]) -> None:
        """Make the extent FAILED at the last confirmed position, as `complete`; cut long errors."""

    def hand_back(self, claim: Claim, *, keep_attempt: bool, **totals: Unpack[Totals]) -> None:
        """Clear the claim at the last confirmed position; the extent stays PENDING.

        `keep_attempt` False gives the attempt back. Otherwise as `complete`, without counters.
        """

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        """Replay an extent; False when it is not FAILED.

        One transaction makes the extent PENDING (position kept, attempts 0, failed - 1) and its
        job, FAILED or SUPERSEDED or open, RUNNING (`reopened` + 1; PLANNING stays PLANNING).

        ProgressUnknown: the extent has `progress_unknown`, and duplicates are not accepted.
        Conflict: the job is CANCELLED; resume it first.
        """


class SlotStore(Protocol):
    """Slots: leased by workers, and settled after a worker that lost its lease."""

    def get(self, cluster: str, number: int) -> SlotItem:
        """Return one slot; one without an item is free with epoch 0."""

    def list(self, cluster: str) -> Iterator[SlotItem]:
        """Yield the slots that have an item, by number."""

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        """Take a slot: epoch + 1, owner, lease until now + `lease_seconds`.

        Conditional on epoch and owner as `seen`; the caller decides whether the slot may be taken.
        Returns the lease and the item as it was before; None when another worker was faster. After
        a lost response, owner and epoch + 1 identify the caller's own lease.
        """

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        """Extend the lease. Raises Fenced when epoch or owner are no longer the lease's."""

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        """Write the predecessor's progress, clear its claim and slot.working: one transaction.

        `seen` None (or `settlement` None): only slot.working is cleared. Conditions: slot.epoch is
        the lease's; the extent's claim is as `seen`; position never backwards. `done` and
        `unknown` change the counters as `complete` and `fail` do. `attempts` stays unless the
        position moves (then 0).

        Returns False when the extent changed meanwhile (the caller re-reads). True when the
        extent changed and the slot works on nothing: an earlier, unanswered call settled it.

        Fenced: another worker took the slot. Conflict: it lies behind `seen.position`.
        """

    def release(self, lease: Lease) -> None:
        """Free the slot if it is ours and works on nothing; otherwise do nothing."""


@dataclass(frozen=True, slots=True)
class LedgerDescription:
    """What `extentflow doctor` shows: `problems` of the layout, `recovery` to any point in time.

    `expiry`: the server deletes expired notes. None: the server lacks the feature.
    """

    status: str
    problems: tuple[str, ...]
    recovery: bool | None
    expiry: bool | None


class LedgerAdmin(Protocol):
    """Creates and describes the table, or the tables, of a ledger; not part of the data path."""

    def exists(self) -> bool:
        """Return whether the ledger was created, complete or not."""

    def create(self) -> tuple[str, ...]:
        """Create what is missing and wait until it can be used; idempotent.

        A copy of another ledger, such as a restored backup, becomes a ledger of its own; the
        sentences that are returned say what its operator must know. Misconfigured: a permission is
        missing, or the name belongs to something else.
        """

    def describe(self) -> LedgerDescription:
        """Return the ledger's status; Misconfigured without a ledger, or without permission."""


class Ledger(Protocol):
    """Safe for use from several threads. All reads that decide anything are strongly consistent.

    Every method may raise LedgerUnavailable; Misconfigured where table or permission is missing.
    """

    @property
    def connectors(self) -> ConnectorStore: ...  # noqa: D102
    @property
    def jobs(self) -> JobStore: ...  # noqa: D102
    @property
    def extents(self) -> ExtentStore: ...  # noqa: D102
    @property
    def slots(self) -> SlotStore: ...  # noqa: D102
    @property
    def notes(self) -> NoteStore: ...  # noqa: D102
    @property
    def admin(self) -> LedgerAdmin: ...  # noqa: D102

    @property
    def id(self) -> str:
        """Random id written when the table was created; part of every transactional id."""

    def bind(self, app_id: str) -> str:
        """Bind the ledger to an `app.id`, once; return the one to which it is bound.

        Transactional ids contain it: under another one no producer would be fenced, and progress
        would be read from the wrong group.
        """

    def now(self) -> float:
        """Return a lower bound of the *server's* clock, in seconds; may send a request."""


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """How to reach a ledger; `retry_seconds` bounds an operation, the others one request.

    `url` selects the ledger; without one it is DynamoDB, for which `table`, `endpoint` (None: the
    region's) and `region` (None: the SDK's own) are. `password` returns the current one; with
    `refresh` it bypasses caches.
    """

    table: str = ""
    endpoint: str | None = None
    region: str | None = None
    retry_seconds: float = 30.0
    connect_seconds: float = 3.0
    read_seconds: float = 5.0
    url: str = ""
    password: "Password | None" = None


class Password(Protocol):
    """Looks up a password when a connection is opened."""

    def __call__(self, *, refresh: bool = False) -> str:
        """Return it. Raises CredentialsUnavailable, or Misconfigured where there is none."""


# The ledgers by name. The scheme of `LedgerOptions.url` selects one.
LEDGERS: Registry[Callable[[LedgerOptions], Ledger]] = Registry(plugins.LEDGERS, "ledger")
DEFAULT_LEDGER = "dynamodb"
EXTRA = (
    f"`pip install 'sqlalchemy>=2.1,<2.2' '{plugins.EXTRAS['postgres']}'` installs it; for"
    " functions and remote runs add what requirements/ledger.in and postgres.in list to"
    " requirements/plugins.in (docs/extending.md)"
)


def open_ledger(options: LedgerOptions) -> Ledger:
    """Return the ledger of the URL's scheme; no request is sent before its first call.

    Misconfigured: there is no ledger for the scheme, or its package cannot be loaded.
    """
    name = options.url.partition("://")[0] or DEFAULT_LEDGER
    try:
        return LEDGERS.get(name)(options)
    except Misconfigured as exc:
        if not (LEDGERS.is_built_in(name) and isinstance(exc.__cause__, ModuleNotFoundError)):
            raise
        raise Misconfigured(f"ledger.url: {name}:// needs {exc.__cause__.name}; {EXTRA}") from exc
    except KeyError:
        known = ", ".join(LEDGERS.names())
        raise Misconfigured(
            f"ledger.url: no ledger {name!r} is installed, only {known};"
            " correct the URL, or install the package that provides it"
        ) from None


def last_stored(connectors: ConnectorStore, name: str) -> ConnectorVersion | None:
    """Return the latest revision of a connector, also of one that is not listed; None: no such."""
    return next((one for one in connectors.list(deleted=True) if one.name == name), None)
