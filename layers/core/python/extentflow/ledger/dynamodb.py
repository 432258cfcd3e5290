"""DynamoLedger: the ledger's port on one DynamoDB table.

failed condition   did an earlier attempt of this call succeed? Recognised by
claim              the nonce of the claim
complete, fail,    `last`: the nonce and the state that the claim ended with
hand_back
lease              owner and epoch + 1
settle             a slot of this epoch that works on nothing
delete             the token in `deleted`
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from heapq import merge
from itertools import islice, product

from extentflow.ledger import (
    Claim,
    ClaimMark,
    ConnectorState,
    ConnectorVersion,
    ExtentItem,
    JobProgress,
    Lease,
    LedgerOptions,
    Settlement,
    SlotItem,
    rules,
)
from extentflow.ledger import dynamodb_items as items
from extentflow.ledger.dynamodb_admin import DynamoAdmin
from extentflow.ledger.dynamodb_calls import (
    Connect,
    DynamoCalls,
    DynamoItems,
    Refused,
    connect,
    new_token,
    retry_policy,
)
from extentflow.ledger.dynamodb_items import Stored, Write
from extentflow.model import Extent, ExtentState, Job, JobState
from extentflow.retry import RetryPolicy


class DynamoLedger:
    """A `Ledger` for many processes. Connects at its first call, in the process that makes it.

    Its methods and those of its stores are documented in `extentflow.ledger`. `retry` and
    `connect` are for tests.
    """

    def __init__(
        self,
        options: LedgerOptions,
        *,
        retry: RetryPolicy | None = None,
        connect: Connect = connect,
    ) -> None:
        calls = DynamoCalls(options, retry or retry_policy(options), connect)
        self._items = DynamoItems(calls)
        self.admin = DynamoAdmin(self._items)
        self.connectors = _Connectors(self._items)
        self.jobs = _Jobs(self._items)
        self.slots = _Slots(self._items)
        self.extents = _Extents(self._items, self.slots)
        self.notes = _Notes(self._items)

    @cached_property
    def id(self) -> str:
        """The identity; the first process that uses a table created elsewhere writes it."""
        return self.admin.identity()

    def bind(self, app_id: str) -> str:
        """Bind the ledger to an `app.id`; the first one stays."""
        item = self._items.get(items.LEDGER_KEY) or {}
        if "app_id" not in item:
            item = self._items.store("binding the ledger to app.id", items.bind(app_id))
        bound: str = item["app_id"]
        return bound

    def now(self) -> float:
        """Return a lower bound of the server's clock."""
        return self._items.now()


class _Connectors:
    def __init__(self, table: DynamoItems) -> None:
        self._items = table
        self._revisions: dict[tuple[str, int], ConnectorVersion] = {}

    def put(self, name: str, config: Mapping[str, str]) -> ConnectorVersion:
        subject = f"storing connector {name}"

        def attempt() -> ConnectorVersion:
            shown = self._items.get(items.connector_key(name))
            latest = self._latest(name, shown) if shown else None
            if latest is None:
                latest = ConnectorVersion(name, 0)
            if shown and latest.config == config:
                if "deleted" in shown:
                    write = items.show_connector(name, latest=latest.revision)
                    self._items.update(subject, write)
                return latest
            following = ConnectorVersion(name, latest.revision + 1, dict(config))
            self._items.transact(subject, items.add_revision(following))
            return following

        return self._items.race(subject, attempt)

    def get(self, name: str, revision: int | None = None) -> ConnectorVersion | None:
        if revision is None:
            shown = self._items.get(items.connector_key(name))
            return self._latest(name, shown) if shown and "deleted" not in shown else None
        return self._revision(name, revision)

    def list(self) -> Iterator[ConnectorVersion]:
        for shown in self._items.query(items.CONNECTORS):
            if "deleted" not in shown and (latest := self._latest(shown["sk"], shown)):
                yield latest

    def names(self) -> Iterator[str]:
        return (shown["sk"] for shown in self._items.query(items.CONNECTORS))

    def delete(self, name: str) -> bool:
        token = new_token()
        write = items.hide_connector(name, token=token)
        try:
            self._items.update(f"deleting connector {name}", write)
        except Refused as refused:
            return (refused.images[0] or {}).get("deleted") == token
        return True

    def state(self, name: str) -> ConnectorState:
        shown = self._items.get(items.connector_key(name)) or {}
        return ConnectorState(shown.get("state", ConnectorState.RUNNING))

    def set_state(self, name: str, state: ConnectorState) -> bool:
        write = items.set_connector_state(name, state)
        try:
            self._items.update(f"setting connector {name} to {state}", write)
        except Refused:
            return False
        return True

    def _latest(self, name: str, shown: Stored) -> ConnectorVersion | None:
        return self._revision(name, int(shown["revision"]))

    def _revision(self, name: str, revision: int) -> ConnectorVersion | None:
        # A revision never changes, so a process reads it once.
        key = (name, revision)
        if key not in self._revisions:
            item = self._items.get(items.config_key(name, revision))
            if item is None:
                return None
            self._revisions[key] = items.connector_from_item(item)
        return self._revisions[key]


class _Jobs:
    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def register(self, job: Job) -> Job:
        dated = replace(job, created=job.created or self._items.now())
        subject = f"registering job {job.id} of {job.version.uri}"
        return items.job_from_item(self._items.store(subject, items.register(dated)))

    def get(self, job_id: str) -> Job | None:
        item = self._items.get(items.job_key(job_id))
        return items.job_from_item(item) if item else None

    def find_registered(self, job_ids: Iterable[str]) -> set[str]:
        keys = [items.job_key(job_id) for job_id in set(job_ids)]
        return {
            items.job_of(found)
            for found in self._items.get_many(keys, ("pk", "state"))
            if found["state"] != JobState.SUPERSEDED
        }

    def list(self, connector: str | None = None, state: JobState | None = None) -> Iterator[Job]:
        states = sorted(JobState) if state is None else [state]
        pairs = self._pairs_in_index(states) if connector is None else product(states, [connector])
        for each, name in pairs:
            yield from map(items.job_from_item, self._listed(name, each))

    def plan(self, job_id: str, *, count: int, cursor: int, complete: bool) -> Job:
        job = _stored_job(self._items, job_id)[0]
        after = rules.planned(job, count=count, cursor=cursor, complete=complete)
        write = items.plan(after, complete=complete)
        return self._change(f"planning job {job_id}", job_id, write)

    def end(self, job_id: str, state: JobState, reason: str) -> Job:
        rules.check_ending(state)
        subject = f"ending job {job_id}"

        def attempt() -> Job:
            job = _stored_job(self._items, job_id)[0]
            after = rules.ended(job, state, reason, at=self._items.now())
            if job.state.open:
                self._items.update(subject, items.change(job, after))
            return after

        return self._items.race(subject, attempt)

    def progress(self, job_id: str) -> JobProgress:
        progress = JobProgress()
        for shard in self._items.query(items.job_partition(job_id), items.COUNT):
            progress = rules.total(progress, items.progress_from_item(shard))
        return progress

    def close(self, job_id: str) -> Job:
        # The job first: counters that are complete now stay complete until it is reopened, and
        # the condition on `reopened` refuses the write then.
        job = _stored_job(self._items, job_id)[0]
        if job.state is not JobState.RUNNING:
            return job
        verdict = rules.verdict(job, self.progress(job_id))
        if verdict is None:
            return job
        closed = job.in_state(*verdict, ended=self._items.now())
        return self._change(f"closing job {job_id}", job_id, items.change(job, closed))

    def resume(self, job_id: str) -> Job:
        job, planned = _stored_job(self._items, job_id)
        if job.state not in rules.ENDINGS:
            return job
        after = rules.reopened(job, planned=planned)
        return self._change(f"resuming job {job_id}", job_id, items.change(job, after))

    def unpublished(self, limit: int) -> Iterator[Job]:
        unpublished = (
            items.job_from_item(item)
            for name in (shown["sk"] for shown in self._items.query(items.CONNECTORS))
            for item in self._items.listed(items.unpublished_listing(name), oldest_first=True)
        )
        return islice(unpublished, limit)

    def mark_published(self, job: Job) -> None:
        rules.check_ended(job)
        with suppress(Refused):  # reopened since: its next end is published, too
            self._items.update(f"marking job {job.id} as published", items.publish(job))

    def _pairs_in_index(self, states: Iterable[JobState]) -> Iterator[tuple[JobState, str]]:
        held = set(self._items.listings())
        names = sorted({listing.partition("#")[2] for listing in held})
        for state, name in product(states, names):
            unpublished = not state.open and items.unpublished_listing(name) in held
            if unpublished or items.listing(name, state) in held:
                yield state, name

    def _listed(self, connector: str, state: JobState) -> Iterator[Stored]:
        listed = self._items.listed(items.listing(connector, state))
        if state.open:
            return listed
        # Jobs whose end is not published are in an index partition of their own, in any state.
        unpublished = self._items.listed(items.unpublished_listing(connector), state=state)
        return merge(listed, unpublished, key=lambda item: item["created"], reverse=True)

    def _change(self, subject: str, job_id: str, write: Write) -> Job:
        try:
            return items.job_from_item(self._items.update(subject, write, returning="ALL_NEW"))
        except Refused:
            return _stored_job(self._items, job_id)[0]


def _stored_job(table: DynamoItems, job_id: str) -> tuple[Job, bool]:
    """Return a job, and whether its plan is complete; raises Conflict without a job."""
    item = table.get(items.job_key(job_id))
    if item is None:
        raise rules.unknown_job(job_id)
    return items.job_from_item(item), item["planned"]


class _Slots:
    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def get(self, cluster: str, number: int) -> SlotItem:
        item = self._items.get(items.slot_key(cluster, number))
        return items.slot_from_item(item) if item else SlotItem(cluster, number)

    def list(self, cluster: str) -> Iterator[SlotItem]:
        return map(items.slot_from_item, self._items.query(items.slot_partition(cluster)))

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        lease = Lease(seen.cluster, seen.number, seen.epoch + 1, owner)
        write = items.lease(seen, owner=owner, until=self._items.now() + lease_seconds)
        try:
            before = self._items.update(f"leasing {_name(lease)}", write, returning="ALL_OLD")
        except Refused as refused:
            stored = refused.images[0]
            if stored is None or (stored["epoch"], stored["owner"]) != (lease.epoch, owner):
                return None
            # The slot may have started work between `seen` and the lease.
            return lease, replace(seen, working=items.slot_from_item(stored).working)
        return lease, items.slot_from_item(before) if before else seen

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        write = items.renew(lease, until=self._items.now() + lease_seconds)
        try:
            self._items.update(f"renewing {_name(lease)}", write)
        except Refused:
            raise rules.slot_taken(lease) from None

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        if seen is None or seen.claim is None or settlement is None:
            return self._clear(lease)
        after = rules.settled(seen, settlement)
        try:
            self._items.transact(f"settling {_name(lease)}", items.settle(lease, seen, after))
        except Refused as refused:
            return "working" not in self.check_epoch(refused, lease)
        return True

    def _clear(self, lease: Lease) -> bool:
        key = items.slot_key(lease.cluster, lease.number)
        stored = _own_slot(self._items.get(key), lease)
        if "working" not in stored:
            return True
        try:
            self._items.update(f"clearing {_name(lease)}", items.clear(lease, stored["working"]))
        except Refused as refused:
            return "working" not in _own_slot(refused.images[0], lease)
        return True

    def release(self, lease: Lease) -> None:
        with suppress(Refused):  # taken, or it works on a claim that its next owner settles
            self._items.update(f"releasing {_name(lease)}", items.release(lease))

    def check_epoch(self, refused: Refused, lease: Lease) -> Stored:
        """Return the slot of a refused transaction; raises Fenced when its epoch is another."""
        key = items.slot_key(lease.cluster, lease.number)
        return _own_slot(self._items.image(refused, items.SLOT_PLACE, key), lease)


def _own_slot(stored: Stored | None, lease: Lease) -> Stored:
    if stored is None or stored["epoch"] != lease.epoch:
        raise rules.slot_taken(lease)
    return stored


def _name(lease: Lease) -> str:
    return f"slot {lease.number} of cluster {lease.cluster}"


class _Extents:
    def __init__(self, table: DynamoItems, slots: _Slots) -> None:
        self._items = table
        self._slots = slots

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        stored = self._items.get(items.extent_key(job_id, ordinal))
        return items.extent_from_item(stored) if stored else ExtentItem(job_id, ordinal)

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        stored = self._items.query(items.job_partition(job_id), items.EXTENT)
        return map(items.extent_from_item, stored)

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
        rules.check_range(extent, seen)
        mark = ClaimMark(lease.number, lease.epoch, nonce, message)
        after = rules.claimed(seen, extent, mark)
        until = self._items.now() + lease_seconds
        writes = items.claim(lease, extent, seen, after, until=until)
        try:
            self._items.transact(f"claiming {extent.uri}", writes)
        except Refused as refused:
            item = self._refused_item(refused, extent.job, extent.ordinal)
            rules.check_range(extent, item)
            self._slots.check_epoch(refused, lease)
            return Claim(lease, extent, mark, item) if item.claim == mark else None
        return Claim(lease, extent, mark, after)

    def advance(
        self, claim: Claim, *, position: int, records: int, bad: int, lease_seconds: float
    ) -> None:
        write = items.advance(claim, position=position, records=records, bad=bad)
        try:
            self._items.update(f"advancing {claim.extent.uri} to {position}", write)
        except Refused as refused:
            item = self._refused_item(refused, claim.extent.job, claim.extent.ordinal)
            raise rules.lost(item, claim, position) from None
        self._slots.renew(claim.lease, lease_seconds=lease_seconds)

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        after = rules.completed(claim, position=position, records=records, bad=bad)
        self._finish("completing", claim, after)

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        after = rules.failed(claim, position=position, records=records, bad=bad, error=error)
        self._finish("failing", claim, after)

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        after = rules.handed_back(
            claim, position=position, records=records, bad=bad, keep_attempt=keep_attempt
        )
        self._finish("handing back", claim, after)

    def _finish(self, verb: str, claim: Claim, after: ExtentItem) -> None:
        try:
            self._items.transact(f"{verb} {claim.extent.uri}", items.finish(claim, after))
        except Refused as refused:
            key = items.extent_key(after.job, after.ordinal)
            stored = self._items.image(refused, items.EXTENT_PLACE, key) or {}
            expected = {"nonce": claim.mark.nonce, "verdict": after.state}
            if stored.get("last") != expected:
                item = self._refused_item(refused, after.job, after.ordinal)
                raise rules.lost(item, claim, after.position) from None

    def _refused_item(self, refused: Refused, job_id: str, ordinal: int) -> ExtentItem:
        key = items.extent_key(job_id, ordinal)
        stored = self._items.image(refused, items.EXTENT_PLACE, key)
        return items.extent_from_item(stored) if stored else ExtentItem(job_id, ordinal)

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        subject = f"replaying extent {ordinal} of job {job_id}"

        def attempt() -> bool:
            item = self.get(job_id, ordinal)
            if item.state is not ExtentState.FAILED:
                return False
            rules.check_replay(item, accept_duplicates=accept_duplicates)
            job, planned = _stored_job(self._items, job_id)
            rules.check_reopening(job, ordinal)
            after = rules.reopened(job, planned=planned)
            self._items.transact(subject, items.reopen(job, after, item))
            return True

        return self._items.race(subject, attempt)


class _Notes:
    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def recall(self, name: str) -> Mapping[str, str] | None:
        item = self._items.get(items.note_key(name))
        # DynamoDB deletes expired items only days later.
        if item is None or item.get(items.EXPIRY_ATTRIBUTE, math.inf) <= self._items.now():
            return None
        facts: Mapping[str, str] = item["facts"]
        return facts

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        expires = None if keep_seconds is None else math.ceil(self._items.now() + keep_seconds)
        self._items.update(f"writing note {name}", items.note(name, facts, expires=expires))
