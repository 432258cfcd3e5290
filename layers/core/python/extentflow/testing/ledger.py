"""MemoryLedger: the ledger's contract in memory, for tests and for deterministic explorers.

Owns: jobs, extents, slots, connectors and notes of one process, and the places where a test may
step in. Refuses to know: time (the clock is passed in), sleeping, Kafka.

A test steps in at `on_call` (before an operation takes effect: switch to another worker, or raise
LedgerUnavailable) and at `on_answer` (after it took effect: raising there is a lost answer). Both
are called without the lock held, so a greenlet may switch away inside. `advance` takes effect in
two steps, as on the table: `advance`, then `renew`.
"""

import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import (
    Claim,
    ClaimMark,
    ConnectorState,
    ConnectorVersion,
    ExtentItem,
    JobProgress,
    Lease,
    Settlement,
    SlotItem,
    rules,
)
from extentflow.model import Extent, ExtentState, Job, JobState

Key: TypeAlias = tuple[str, int]


def _ignore(_name: str) -> None:
    """Step in nowhere."""


class MemoryLedger:
    """A `Ledger` whose operations are atomic, and that fails where a test says so."""

    def __init__(self, identity: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self.on_call: Callable[[str], None] = _ignore
        self.on_answer: Callable[[str], None] = _ignore
        self._identity = identity or secrets.token_hex(6)
        self._clock = clock
        self._app_id = ""
        self._lock = threading.Lock()
        self._away: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._jobs: dict[str, Job] = {}
        self._planned: set[str] = set()
        self._counts: dict[str, JobProgress] = {}
        self._extents: dict[Key, ExtentItem] = {}
        self._last: dict[Key, tuple[str, ExtentState]] = {}
        self._slots: dict[Key, SlotItem] = {}
        self._connectors: dict[str, list[ConnectorVersion]] = {}
        self._deleted: set[str] = set()
        self._wanted: dict[str, ConnectorState] = {}
        self._notes: dict[str, tuple[dict[str, str], float]] = {}

    # -- stepping in ----------------------------------------------------------------------------

    def lose_answer(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` take effect and raise LedgerUnavailable."""
        self._lost[name] += times

    def refuse(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` raise LedgerUnavailable without any effect."""
        self._away[name] += times

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        self.on_call(name)
        self._spend(self._away, name, "does not answer")
        with self._lock:
            yield
        self._spend(self._lost, name, "lost its answer")
        self.on_answer(name)

    def _spend(self, faults: Counter[str], name: str, what: str) -> None:
        with self._lock:
            left = faults[name]
            faults[name] = max(left - 1, 0)
        if left:
            raise LedgerUnavailable(f"ledger {self._identity}: {name} {what} (injected)")

    # -- identity and clock ---------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the ledger's identity."""
        return self._identity

    def bind(self, app_id: str) -> str:
        """Tie the ledger to an `app.id`."""
        with self._call("bind"):
            self._app_id = self._app_id or app_id
            return self._app_id

    def now(self) -> float:
        """Return the injected clock's time."""
        with self._call("now"):
            return self._clock()

    # -- connectors -----------------------------------------------------------------------------

    def put_connector(self, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        """Store the next revision, or return the latest when it says the same."""
        with self._call("put_connector"):
            revisions = self._connectors.setdefault(name, [])
            self._deleted.discard(name)
            if not revisions or revisions[-1].config != config:
                revisions.append(ConnectorVersion(name, len(revisions) + 1, dict(config)))
            return revisions[-1]

    def connector(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        """Return a revision, or the latest that is not deleted."""
        with self._call("connector"):
            if revision is None:
                return self._latest(name)
            revisions = self._connectors.get(name, [])
            return revisions[revision - 1] if 0 < revision <= len(revisions) else None

    def connectors(self) -> Iterator[ConnectorVersion]:
        """Return the latest revisions, by name."""
        with self._call("connectors"):
            latest = [self._latest(name) for name in sorted(self._connectors)]
        return (version for version in latest if version)

    def connector_names(self) -> Iterator[str]:
        """Return all names, those of deleted connectors included."""
        with self._call("connector_names"):
            return iter(sorted(self._connectors))

    def delete_connector(self, name: str) -> bool:
        """Hide the connector."""
        with self._call("delete_connector"):
            shown = self._latest(name) is not None
            if shown:
                self._deleted.add(name)
            return shown

    def connector_state(self, name: str) -> ConnectorState:
        """Return what is wanted of a connector."""
        with self._call("connector_state"):
            return self._wanted.get(name, ConnectorState.RUNNING)

    def set_connector_state(self, name: str, state: ConnectorState) -> bool:
        """Say what is wanted of a connector."""
        with self._call("set_connector_state"):
            known = name in self._connectors
            if known:
                self._wanted[name] = state
            return known

    def _latest(self, name: str) -> ConnectorVersion | None:
        revisions = self._connectors.get(name)
        return revisions[-1] if revisions and name not in self._deleted else None

    # -- jobs -----------------------------------------------------------------------------------

    def register(self, job: Job) -> Job:
        """Store a new job, or return the one already stored."""
        with self._call("register"):
            if job.state is not JobState.PLANNING:
                self._planned.add(job.id)
            return self._jobs.setdefault(job.id, replace(job, created=job.created or self._clock()))

    def job(self, job_id: str) -> Job | None:
        """Return one job."""
        with self._call("job"):
            return self._jobs.get(job_id)

    def known(self, job_ids: Iterable[str]) -> set[str]:
        """Return the ids under which a job is stored that is not SUPERSEDED."""
        with self._call("known"):
            found = [self._jobs[job_id] for job_id in job_ids if job_id in self._jobs]
        return {job.id for job in found if job.state is not JobState.SUPERSEDED}

    def jobs(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        """Return jobs, newest first within a connector and state."""
        with self._call("jobs"):
            found = [
                job
                for job in self._jobs.values()
                if connector in (None, job.connector) and state in (None, job.state)
            ]
        return iter(sorted(found, key=lambda job: (job.connector, job.state, -job.created)))

    def plan(self, job_id: str, *, count: int, cursor: int, complete: bool) -> Job:
        """Move a PLANNING job's cursor forwards."""
        with self._call("plan"):
            job = self._known(job_id)
            forwards = cursor >= job.plan.cursor and count >= job.plan.count
            if job.state is JobState.PLANNING and forwards:
                job = job.with_plan(replace(job.plan, count=count, cursor=cursor))
                if complete:
                    self._planned.add(job_id)
                    job = job.in_state(JobState.RUNNING)
            return self._keep(job)

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        """Bring an open job to an early end."""
        rules.check_ending(state)
        with self._call("end"):
            job = self._known(job_id)
            ended = job.in_state(state, rules.readable(reason), ended=self._clock())
            return self._keep(ended if job.state.open else job)

    def progress(self, job_id: str) -> JobProgress:
        """Return the job's counters."""
        with self._call("progress"):
            return self._counts.get(job_id, JobProgress())

    def close(self, job_id: str) -> Job:
        """End a RUNNING job that has nothing left to do."""
        with self._call("close"):
            job = self._known(job_id)
            verdict = rules.verdict(job, self._counts.get(job_id, JobProgress()))
            return self._keep(job.in_state(*verdict, ended=self._clock())) if verdict else job

    def resume(self, job_id: str) -> Job:
        """Open an ended job again."""
        with self._call("resume"):
            job = self._known(job_id)
            return self._reopen(job) if job.state in rules.ENDINGS else job

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        """Replay a FAILED extent."""
        with self._call("reopen"):
            item = self._extent(job_id, ordinal)
            if item.state is not ExtentState.FAILED:
                return False
            rules.check_replay(item, accept_duplicates=accept_duplicates)
            job = self._known(job_id)
            rules.check_reopening(job, ordinal)
            self._reopen(job)
            self._count(job_id, JobProgress(failed=-1))
            self._extents[job_id, ordinal] = rules.pending_again(item)
            return True

    def unannounced(self, limit: int) -> Iterator[Job]:
        """Return final jobs whose end was not announced, oldest first by connector."""
        with self._call("unannounced"):
            found = [job for job in self._jobs.values() if not (job.state.open or job.announced)]
        return iter(sorted(found, key=lambda job: (job.connector, job.created))[:limit])

    def announced(self, job: Job) -> None:
        """Note that this end of a job was announced."""
        rules.check_ended(job)
        with self._call("announced"):
            held = self._jobs.get(job.id)
            if held and (held.state, held.reopened) == (job.state, job.reopened):
                self._keep(replace(held, announced=True))

    def _known(self, job_id: str) -> Job:
        if job_id not in self._jobs:
            raise rules.unknown_job(job_id)
        return self._jobs[job_id]

    def _keep(self, job: Job) -> Job:
        self._jobs[job.id] = job
        return job

    def _reopen(self, job: Job) -> Job:
        return self._keep(rules.reopened(job, planned=job.id in self._planned))

    def _count(self, job_id: str, change: JobProgress) -> None:
        self._counts[job_id] = rules.total(self._counts.get(job_id, JobProgress()), change)

    # -- extents --------------------------------------------------------------------------------

    def extent(self, job_id: str, ordinal: int) -> ExtentItem:
        """Return one extent."""
        with self._call("extent"):
            return self._extent(job_id, ordinal)

    def extents(self, job_id: str) -> Iterator[ExtentItem]:
        """Return the extents that were ever claimed, by ordinal."""
        with self._call("extents"):
            found = [item for (job, _), item in sorted(self._extents.items()) if job == job_id]
        return iter(found)

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
        """Claim an extent; None when refused."""
        mark = ClaimMark(lease.number, lease.epoch, nonce, message)
        with self._call("claim"):
            item, slot = self._extent(extent.job, extent.ordinal), self._slot_of(lease)
            rules.check_range(extent, item)
            if slot.epoch != lease.epoch:
                raise rules.slot_taken(lease)
            if item.claim == mark:
                return Claim(lease, extent, mark, item)
            if slot.working or not self._claimable(item, seen):
                return None
            working = (extent.job, extent.ordinal)
            until = self._clock() + lease_seconds
            self._slots[lease.cluster, lease.number] = replace(slot, working=working, until=until)
            self._extents[working] = rules.claimed(item, extent, mark)
            return Claim(lease, extent, mark, self._extents[working])

    def _claimable(self, item: ExtentItem, seen: ExtentItem) -> bool:
        job = self._jobs.get(item.job)
        job_is_open = job is not None and job.state.open
        extent_is_free = item.claim is None and not item.state.final
        as_seen = rules.unchanged(item, seen)
        return job_is_open and extent_is_free and as_seen

    def advance(
        self, claim: Claim, *, position: int, records: int, bad: int, lease_seconds: float
    ) -> None:
        """Record a committed chunk, then renew the lease."""
        with self._call("advance"):
            item = self._held(claim, position)
            self._extents[item.job, item.ordinal] = replace(
                item, position=position, records=records, bad=bad, attempts=0
            )
        self.renew(claim.lease, lease_seconds=lease_seconds)

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        """Make the extent DONE and count it."""
        with self._call("complete"):
            self._finish(claim, rules.completed(claim, position=position, records=records, bad=bad))

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        """Make the extent FAILED and count it."""
        with self._call("fail"):
            self._finish(
                claim,
                rules.failed(claim, position=position, records=records, bad=bad, error=error),
            )

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        """Clear the claim; the extent stays PENDING."""
        with self._call("hand_back"):
            self._finish(
                claim,
                rules.handed_back(
                    claim, position=position, records=records, bad=bad, keep_attempt=keep_attempt
                ),
            )

    def _extent(self, job_id: str, ordinal: int) -> ExtentItem:
        return self._extents.get((job_id, ordinal), ExtentItem(job_id, ordinal))

    def _held(self, claim: Claim, position: int) -> ExtentItem:
        item = self._extent(claim.extent.job, claim.extent.ordinal)
        if item.claim != claim.mark:
            raise rules.claim_lost(claim)
        if position < item.position:
            raise rules.backwards(claim.extent.uri, item.position, position)
        return item

    def _finish(self, claim: Claim, after: ExtentItem) -> None:
        key = (after.job, after.ordinal)
        verdict = (claim.mark.nonce, after.state)
        if self._last.get(key) == verdict:
            return
        self._held(claim, after.position)
        slot = self._own(claim.lease)
        self._slots[slot.cluster, slot.number] = replace(slot, working=None)
        self._extents[key] = after
        self._last[key] = verdict
        self._count(after.job, rules.counted(after))

    # -- slots ----------------------------------------------------------------------------------

    def slot(self, cluster: str, number: int) -> SlotItem:
        """Return one slot."""
        with self._call("slot"):
            return self._slots.get((cluster, number), SlotItem(cluster, number))

    def slots(self, cluster: str) -> Iterator[SlotItem]:
        """Return the slots that were ever leased, by number."""
        with self._call("slots"):
            found = [slot for (name, _), slot in sorted(self._slots.items()) if name == cluster]
        return iter(found)

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        """Take a slot that is still as seen."""
        with self._call("lease"):
            key = (seen.cluster, seen.number)
            before = self._slots.get(key, SlotItem(*key))
            lease = Lease(seen.cluster, seen.number, seen.epoch + 1, owner)
            if (before.epoch, before.owner) == (lease.epoch, owner):
                return lease, replace(seen, working=before.working)
            if (before.epoch, before.owner) != (seen.epoch, seen.owner):
                return None
            until = self._clock() + lease_seconds
            self._slots[key] = replace(before, epoch=lease.epoch, owner=owner, until=until)
            return lease, before

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        """Extend the lease."""
        with self._call("renew"):
            slot = self._slot_of(lease)
            if (slot.epoch, slot.owner) != (lease.epoch, lease.owner):
                raise rules.slot_taken(lease)
            until = self._clock() + lease_seconds
            self._slots[lease.cluster, lease.number] = replace(slot, until=until)

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        """Write what the predecessor left, and clear its claim and the slot."""
        with self._call("settle"):
            slot = self._own(lease)
            if seen and seen.claim and settlement and not self._settle(seen, settlement):
                return slot.working is None
            self._slots[lease.cluster, lease.number] = replace(slot, working=None)
            return True

    def _settle(self, seen: ExtentItem, settlement: Settlement) -> bool:
        item, after = self._extent(seen.job, seen.ordinal), rules.settled(seen, settlement)
        if item.claim != seen.claim or item.position > after.position:
            return False
        self._extents[item.job, item.ordinal] = after
        self._count(item.job, rules.counted(after))
        return True

    def release(self, lease: Lease) -> None:
        """Make the slot free when it is ours and works on nothing."""
        with self._call("release"):
            slot = self._slot_of(lease)
            ours = (slot.epoch, slot.owner) == (lease.epoch, lease.owner)
            if ours and not slot.working:
                self._slots[lease.cluster, lease.number] = replace(slot, owner="", until=0.0)

    # -- notes ----------------------------------------------------------------------------------

    def recall(self, name: str) -> Mapping[str, str] | None:
        """Return what was remembered."""
        with self._call("recall"):
            facts, expires = self._notes.get(name, ({}, -math.inf))
            return dict(facts) if self._clock() < expires else None

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        """Keep facts."""
        with self._call("remember"):
            keep = math.inf if keep_seconds is None else keep_seconds
            self._notes[name] = (dict(facts), self._clock() + keep)

    # -- small facts ----------------------------------------------------------------------------

    def _slot_of(self, lease: Lease) -> SlotItem:
        return self._slots.get((lease.cluster, lease.number), SlotItem(lease.cluster, lease.number))

    def _own(self, lease: Lease) -> SlotItem:
        slot = self._slot_of(lease)
        if slot.epoch != lease.epoch:
            raise rules.slot_taken(lease)
        return slot
