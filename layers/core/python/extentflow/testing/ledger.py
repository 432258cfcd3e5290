"""MemoryLedger: the Ledger port in memory, for tests and deterministic explorers.

Tests can intervene at two points: `on_call` runs before an operation takes effect (switch to
another worker, or raise LedgerUnavailable), and `on_answer` after it took effect (raising there is
a lost response). Both run without the lock held, so that a greenlet may switch inside them.
`advance` takes effect in two steps, as on the table: `advance`, then `renew`.
"""

import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
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
    LedgerDescription,
    Settlement,
    SlotItem,
    rules,
)
from extentflow.model import Extent, ExtentState, Job, JobState

Key: TypeAlias = tuple[str, int]


def _ignore(_name: str) -> None: ...


@dataclass
class _Table:
    """The stored state, under one lock."""

    hooks: "MemoryLedger"
    clock: Callable[[], float]
    identity: str
    app_id: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    refused: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    jobs: dict[str, Job] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)
    counts: dict[str, JobProgress] = field(default_factory=dict)
    extents: dict[Key, ExtentItem] = field(default_factory=dict)
    last: dict[Key, tuple[str, ExtentState]] = field(default_factory=dict)
    slots: dict[Key, SlotItem] = field(default_factory=dict)
    connectors: dict[str, list[ConnectorVersion]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    states: dict[str, ConnectorState] = field(default_factory=dict)
    notes: dict[str, tuple[dict[str, str], float]] = field(default_factory=dict)

    def known_job(self, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise rules.unknown_job(job_id)
        return self.jobs[job_id]

    def keep(self, job: Job) -> Job:
        self.jobs[job.id] = job
        return job

    def reopen(self, job: Job) -> Job:
        return self.keep(rules.reopened(job, planned=job.id in self.planned))

    def count(self, job_id: str, change: JobProgress) -> None:
        self.counts[job_id] = rules.total(self.counts.get(job_id, JobProgress()), change)

    def extent(self, job_id: str, ordinal: int) -> ExtentItem:
        return self.extents.get((job_id, ordinal), ExtentItem(job_id, ordinal))

    def slot(self, lease: Lease) -> SlotItem:
        return self.slots.get((lease.cluster, lease.number), SlotItem(lease.cluster, lease.number))

    def own_slot(self, lease: Lease) -> SlotItem:
        slot = self.slot(lease)
        if slot.epoch != lease.epoch:
            raise rules.slot_taken(lease)
        return slot

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Make one operation atomic, between the hooks and the injected faults."""
        # Hooks run without the lock: a greenlet that switches inside would deadlock the next one.
        self.hooks.on_call(name)
        self._spend(self.refused, name, "no response")
        with self.lock:
            yield
        self._spend(self.lost, name, "the response was lost")
        self.hooks.on_answer(name)

    def _spend(self, faults: Counter[str], name: str, what: str) -> None:
        with self.lock:
            left = faults[name]
            faults[name] = max(left - 1, 0)
        if left:
            raise LedgerUnavailable(f"ledger {self.identity}: {name}: {what} (injected)")


class _Connectors:
    def __init__(self, table: _Table) -> None:
        self._table = table

    def put(self, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        with self._table.call("put_connector"):
            revisions = self._table.connectors.setdefault(name, [])
            self._table.deleted.discard(name)
            if not revisions or revisions[-1].config != config:
                revisions.append(ConnectorVersion(name, len(revisions) + 1, dict(config)))
            return revisions[-1]

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        with self._table.call("connector"):
            if revision is None:
                return self._latest(name)
            revisions = self._table.connectors.get(name, [])
            return revisions[revision - 1] if 0 < revision <= len(revisions) else None

    def list(self) -> Iterator[ConnectorVersion]:
        with self._table.call("connectors"):
            latest = [self._latest(name) for name in sorted(self._table.connectors)]
        return (version for version in latest if version)

    def names(self) -> Iterator[str]:
        with self._table.call("connector_names"):
            return iter(sorted(self._table.connectors))

    def delete(self, name: str) -> bool:
        with self._table.call("delete_connector"):
            shown = self._latest(name) is not None
            if shown:
                self._table.deleted.add(name)
            return shown

    def state(self, name: str) -> ConnectorState:
        with self._table.call("connector_state"):
            return self._table.states.get(name, ConnectorState.RUNNING)

    def set_state(self, name: str, state: ConnectorState) -> bool:
        with self._table.call("set_connector_state"):
            known = name in self._table.connectors
            if known:
                self._table.states[name] = state
            return known

    def _latest(self, name: str) -> ConnectorVersion | None:
        revisions = self._table.connectors.get(name)
        return revisions[-1] if revisions and name not in self._table.deleted else None


class _Jobs:
    def __init__(self, table: _Table) -> None:
        self._table = table

    def register(self, job: Job) -> Job:
        with self._table.call("register"):
            if job.state is not JobState.PLANNING:
                self._table.planned.add(job.id)
            return self._table.jobs.setdefault(
                job.id, replace(job, created=job.created or self._table.clock())
            )

    def get(self, job_id: str) -> Job | None:
        with self._table.call("job"):
            return self._table.jobs.get(job_id)

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        with self._table.call("find_registered"):
            found = [self._table.jobs[job_id] for job_id in job_ids if job_id in self._table.jobs]
        return {job.id for job in found if job.state is not JobState.SUPERSEDED}

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        with self._table.call("jobs"):
            found = [
                job
                for job in self._table.jobs.values()
                if connector in (None, job.connector) and state in (None, job.state)
            ]
        return iter(sorted(found, key=lambda job: (job.connector, job.state, -job.created)))

    def plan(
        self,
        job_id: str,
        *,
        count: int,
        cursor: int,
        complete: bool,
        covered: int = -1,
        cut_version: int | None = None,
    ) -> Job:
        with self._table.call("plan"):
            job = self._table.known_job(job_id)
            after = rules.planned(
                job,
                count=count,
                cursor=cursor,
                complete=complete,
                covered=covered,
                cut_version=cut_version,
            )
            if after.state is JobState.RUNNING and job.state is JobState.PLANNING:
                self._table.planned.add(job_id)
            return self._table.keep(after)

    def pin_partition(self, job_id: str, partition: int) -> int:
        with self._table.call("pin_partition"):
            job = self._table.known_job(job_id)
            if job.partition < 0:
                job = self._table.keep(replace(job, partition=partition))
            return job.partition

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        rules.check_ending(state)
        with self._table.call("end"):
            job = self._table.known_job(job_id)
            return self._table.keep(rules.ended(job, state, reason, at=self._table.clock()))

    def progress(self, job_id: str) -> JobProgress:
        with self._table.call("progress"):
            return self._table.counts.get(job_id, JobProgress())

    def close(self, job_id: str) -> Job:
        with self._table.call("close"):
            job = self._table.known_job(job_id)
            verdict = rules.verdict(job, self._table.counts.get(job_id, JobProgress()))
            if verdict is None:
                return job
            return self._table.keep(job.in_state(*verdict, ended=self._table.clock()))

    def resume(self, job_id: str) -> Job:
        with self._table.call("resume"):
            job = self._table.known_job(job_id)
            return self._table.reopen(job) if job.state in rules.ENDINGS else job

    def unpublished(self, limit: int) -> Iterator[Job]:
        with self._table.call("unpublished"):
            found = [
                job for job in self._table.jobs.values() if not (job.state.open or job.announced)
            ]
        return iter(sorted(found, key=lambda job: (job.connector, job.created))[:limit])

    def mark_published(self, job: Job) -> None:
        rules.check_ended(job)
        with self._table.call("mark_published"):
            held = self._table.jobs.get(job.id)
            if held and (held.state, held.reopened) == (job.state, job.reopened):
                self._table.keep(replace(held, announced=True))


class _Slots:
    def __init__(self, table: _Table) -> None:
        self._table = table

    def get(self, cluster: str, number: int) -> SlotItem:
        with self._table.call("slot"):
            return self._table.slots.get((cluster, number), SlotItem(cluster, number))

    def list(self, cluster: str) -> Iterator[SlotItem]:
        with self._table.call("slots"):
            found = [
                slot for (name, _), slot in sorted(self._table.slots.items()) if name == cluster
            ]
        return iter(found)

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        with self._table.call("lease"):
            key = (seen.cluster, seen.number)
            before = self._table.slots.get(key, SlotItem(*key))
            lease = Lease(seen.cluster, seen.number, seen.epoch + 1, owner)
            if (before.epoch, before.owner) == (lease.epoch, owner):
                return lease, replace(seen, working=before.working)
            if (before.epoch, before.owner) != (seen.epoch, seen.owner):
                return None
            until = self._table.clock() + lease_seconds
            self._table.slots[key] = replace(before, epoch=lease.epoch, owner=owner, until=until)
            return lease, before

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        with self._table.call("renew"):
            slot = self._table.slot(lease)
            if (slot.epoch, slot.owner) != (lease.epoch, lease.owner):
                raise rules.slot_taken(lease)
            until = self._table.clock() + lease_seconds
            self._table.slots[lease.cluster, lease.number] = replace(slot, until=until)

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        with self._table.call("settle"):
            slot = self._table.own_slot(lease)
            if seen and seen.claim and settlement and not self._settle(seen, settlement):
                return slot.working is None
            self._table.slots[lease.cluster, lease.number] = replace(slot, working=None)
            return True

    def _settle(self, seen: ExtentItem, settlement: Settlement) -> bool:
        item, after = self._table.extent(seen.job, seen.ordinal), rules.settled(seen, settlement)
        if item.claim != seen.claim or item.position > after.position:
            return False
        self._table.extents[item.job, item.ordinal] = after
        self._table.count(item.job, rules.counted(after))
        return True

    def release(self, lease: Lease) -> None:
        with self._table.call("release"):
            slot = self._table.slot(lease)
            ours = (slot.epoch, slot.owner) == (lease.epoch, lease.owner)
            if ours and not slot.working:
                self._table.slots[lease.cluster, lease.number] = replace(slot, owner="", until=0.0)


class _Extents:
    def __init__(self, table: _Table, slots: _Slots) -> None:
        self._table = table
        self._slots = slots

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        with self._table.call("extent"):
            return self._table.extent(job_id, ordinal)

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        with self._table.call("extents"):
            found = [
                item for (job, _), item in sorted(self._table.extents.items()) if job == job_id
            ]
        return iter(found)

    def claim(
        self,
        lease: Lease,
        extent: Extent,
        seen: ExtentItem,
        *,
        nonce: str,
        message: str = "",
        at_least_once: bool = False,
        lease_seconds: float,
    ) -> Claim | None:
        mark = ClaimMark(lease.number, lease.epoch, nonce, message, at_least_once)
        with self._table.call("claim"):
            item, slot = self._table.extent(extent.job, extent.ordinal), self._table.slot(lease)
            rules.check_range(extent, item)
            if slot.epoch != lease.epoch:
                raise rules.slot_taken(lease)
            if item.claim == mark:
                return Claim(lease, extent, mark, item)
            if slot.working or not self._claimable(item, seen):
                return None
            working = (extent.job, extent.ordinal)
            until = self._table.clock() + lease_seconds
            self._table.slots[lease.cluster, lease.number] = replace(
                slot, working=working, until=until
            )
            self._table.extents[working] = rules.claimed(item, extent, mark)
            return Claim(lease, extent, mark, self._table.extents[working])

    def _claimable(self, item: ExtentItem, seen: ExtentItem) -> bool:
        job = self._table.jobs.get(item.job)
        job_is_open = job is not None and job.state.open
        extent_is_free = item.claim is None and not item.state.final
        as_seen = rules.unchanged(item, seen)
        return job_is_open and extent_is_free and as_seen

    def advance(
        self, claim: Claim, *, position: int, records: int, bad: int, lease_seconds: float
    ) -> None:
        with self._table.call("advance"):
            item = self._held(claim, position)
            self._table.extents[item.job, item.ordinal] = replace(
                item, position=position, records=records, bad=bad, attempts=0
            )
        with suppress(LedgerUnavailable):  # the chunk is recorded; as on the table
            self._slots.renew(claim.lease, lease_seconds=lease_seconds)

    def return_attempt(self, claim: Claim) -> None:
        with self._table.call("return_attempt"):
            item = self._table.extent(claim.extent.job, claim.extent.ordinal)
            if (item.claim, item.attempts) == (claim.mark, claim.item.attempts):
                self._table.extents[item.job, item.ordinal] = replace(
                    item, attempts=item.attempts - 1
                )

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        after = rules.completed(claim, position=position, records=records, bad=bad)
        self._finish("complete", claim, after)

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        after = rules.failed(claim, position=position, records=records, bad=bad, error=error)
        self._finish("fail", claim, after)

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        after = rules.handed_back(
            claim, position=position, records=records, bad=bad, keep_attempt=keep_attempt
        )
        self._finish("hand_back", claim, after)

    def _held(self, claim: Claim, position: int) -> ExtentItem:
        item = self._table.extent(claim.extent.job, claim.extent.ordinal)
        if item.claim != claim.mark or position < item.position:
            raise rules.lost(item, claim, position)
        return item

    def _finish(self, name: str, claim: Claim, after: ExtentItem) -> None:
        key = (after.job, after.ordinal)
        verdict = (claim.mark.nonce, after.state)
        with self._table.call(name):
            if self._table.last.get(key) == verdict:
                return
            self._held(claim, after.position)
            slot = self._table.own_slot(claim.lease)
            self._table.slots[slot.cluster, slot.number] = replace(slot, working=None)
            self._table.extents[key] = after
            self._table.last[key] = verdict
            self._table.count(after.job, rules.counted(after))

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        with self._table.call("reopen"):
            item = self._table.extent(job_id, ordinal)
            if item.state is not ExtentState.FAILED:
                return False
            rules.check_replay(item, accept_duplicates=accept_duplicates)
            job = self._table.known_job(job_id)
            rules.check_reopening(job, ordinal)
            self._table.reopen(job)
            self._table.count(job_id, JobProgress(failed=-1))
            self._table.extents[job_id, ordinal] = rules.pending_again(item)
            return True


class _Notes:
    def __init__(self, table: _Table) -> None:
        self._table = table

    def recall(self, name: str) -> Mapping[str, str] | None:
        with self._table.call("recall"):
            facts, expires = self._table.notes.get(name, ({}, -math.inf))
            return dict(facts) if self._table.clock() < expires else None

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        with self._table.call("remember"):
            keep = math.inf if keep_seconds is None else keep_seconds
            self._table.notes[name] = (dict(facts), self._table.clock() + keep)


class _Admin:
    def exists(self) -> bool:
        return True

    def create(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> LedgerDescription:
        return LedgerDescription("ACTIVE", (), recovery=None, expiry=True)


class MemoryLedger:
    """A `Ledger` with atomic operations and injected failures."""

    def __init__(self, identity: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self.on_call: Callable[[str], None] = _ignore
        self.on_answer: Callable[[str], None] = _ignore
        self.table = _Table(self, clock, identity or secrets.token_hex(6))
        self.connectors = _Connectors(self.table)
        self.jobs = _Jobs(self.table)
        self.slots = _Slots(self.table)
        self.extents = _Extents(self.table, self.slots)
        self.notes = _Notes(self.table)
        self.admin = _Admin()

    def lose_answer(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` take effect and raise LedgerUnavailable."""
        self.table.lost[name] += times

    def refuse(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` raise LedgerUnavailable without any effect."""
        self.table.refused[name] += times

    @property
    def id(self) -> str:
        """Return the ledger's identity."""
        return self.table.identity

    def bind(self, app_id: str) -> str:
        """Bind the ledger to an `app.id`; the first one stays."""
        with self.table.call("bind"):
            self.table.app_id = self.table.app_id or app_id
            return self.table.app_id

    def now(self) -> float:
        """Return the injected clock's time."""
        with self.table.call("now"):
            return self.table.clock()
