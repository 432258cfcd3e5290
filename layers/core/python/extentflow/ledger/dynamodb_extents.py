"""The operations of DynamoLedger for workers: extents and slots.

After a failed condition, the caller first checks whether its own earlier attempt succeeded: a claim
is recognised by its nonce, a finished claim by `last`, a lease by owner and epoch + 1, a settlement
by a slot of this owner that holds no extent.
"""

from collections.abc import Iterator
from dataclasses import replace

from extentflow.ledger import (
    Claim,
    ClaimMark,
    ExtentItem,
    Lease,
    Settlement,
    SlotItem,
    items,
    rules,
)
from extentflow.ledger import dynamodb_writes as writes
from extentflow.ledger.dynamodb_calls import Refused
from extentflow.ledger.dynamodb_items import DynamoItems
from extentflow.ledger.dynamodb_jobs import known_job
from extentflow.ledger.dynamodb_writes import EXTENT, SLOT
from extentflow.ledger.items import Stored
from extentflow.model import Extent, ExtentState


class DynamoSlots:
    """Slots of the ledger's port."""

    def __init__(self, table: DynamoItems) -> None:
        self._items = table

    def get(self, cluster: str, number: int) -> SlotItem:
        """Return one slot."""
        item = self._items.get(items.slot_key(cluster, number))
        return items.slot_from_item(item) if item else SlotItem(cluster, number)

    def list(self, cluster: str) -> Iterator[SlotItem]:
        """Yield the slots that were ever leased, by number."""
        return map(items.slot_from_item, self._items.query(items.slot_partition(cluster)))

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        """Take a slot that is still as seen."""
        lease = Lease(seen.cluster, seen.number, seen.epoch + 1, owner)
        write = writes.lease(seen, owner=owner, until=self._items.now() + lease_seconds)
        subject = f"leasing slot {seen.number} of cluster {seen.cluster}"
        try:
            before = self._items.update(subject, write, returning="ALL_OLD")
        except Refused as refused:
            return _own_lease(refused, lease, seen)
        return lease, items.slot_from_item(before) if before else seen

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        """Extend the lease."""
        write = writes.renew(lease, until=self._items.now() + lease_seconds)
        try:
            self._items.update(f"renewing {_name(lease)}", write)
        except Refused:
            raise rules.slot_taken(lease) from None

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        """Write what the predecessor left, and clear its claim and the slot."""
        if seen is None or seen.claim is None or settlement is None:
            return self._clear(lease)
        after = rules.settled(seen, settlement)
        try:
            self._items.transact(f"settling {_name(lease)}", writes.settle(lease, seen, after))
        except Refused as refused:
            return "working" not in self.check_epoch(refused, lease)
        return True

    def _clear(self, lease: Lease) -> bool:
        key = items.slot_key(lease.cluster, lease.number)
        stored = _own_slot(self._items.get(key), lease)
        if "working" not in stored:
            return True
        try:
            self._items.update(f"clearing {_name(lease)}", writes.clear(lease, stored["working"]))
        except Refused as refused:
            return "working" not in _own_slot(refused.images[0], lease)
        return True

    def release(self, lease: Lease) -> None:
        """Make the slot free when it is ours and works on nothing."""
        try:
            self._items.update(f"releasing {_name(lease)}", writes.release(lease))
        except Refused:
            return  # taken, or at work: its next owner will see to it

    def check_epoch(self, refused: Refused, lease: Lease) -> Stored:
        """Return the slot of a refused transaction when it is still ours."""
        key = items.slot_key(lease.cluster, lease.number)
        return _own_slot(self._items.image(refused, SLOT, key), lease)


class DynamoExtents:
    """Extents of the ledger's port."""

    def __init__(self, table: DynamoItems, slots: DynamoSlots) -> None:
        self._items = table
        self._slots = slots

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        """Return one extent."""
        return _extent(self._items.get(items.extent_key(job_id, ordinal)), job_id, ordinal)

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        """Yield the extents that were ever claimed, by ordinal."""
        return map(
            items.extent_from_item, self._items.query(items.job_partition(job_id), items.EXTENT)
        )

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
        rules.check_range(extent, seen)
        mark = ClaimMark(lease.number, lease.epoch, nonce, message)
        after = rules.claimed(seen, extent, mark)
        until = self._items.now() + lease_seconds
        transaction = writes.claim(lease, extent, seen, after, until=until)
        try:
            self._items.transact(f"claiming {extent.uri}", transaction)
        except Refused as refused:
            return self._refused_claim(refused, lease, extent, mark)
        return Claim(lease, extent, mark, after)

    def _refused_claim(
        self, refused: Refused, lease: Lease, extent: Extent, mark: ClaimMark
    ) -> Claim | None:
        key = items.extent_key(extent.job, extent.ordinal)
        item = _extent(self._items.image(refused, EXTENT, key), extent.job, extent.ordinal)
        rules.check_range(extent, item)
        self._slots.check_epoch(refused, lease)
        return Claim(lease, extent, mark, item) if item.claim == mark else None

    def advance(
        self, claim: Claim, *, position: int, records: int, bad: int, lease_seconds: float
    ) -> None:
        """Record a committed chunk, then renew the lease."""
        write = writes.advance(claim, position=position, records=records, bad=bad)
        try:
            self._items.update(f"advancing {claim.extent.uri} to {position}", write)
        except Refused as refused:
            raise self._lost(refused, claim, position) from None
        self._slots.renew(claim.lease, lease_seconds=lease_seconds)

    def complete(self, claim: Claim, *, position: int, records: int, bad: int) -> None:
        """Make the extent DONE and count it."""
        after = rules.completed(claim, position=position, records=records, bad=bad)
        self._finish(f"completing {claim.extent.uri}", claim, after)

    def fail(self, claim: Claim, *, position: int, records: int, bad: int, error: str) -> None:
        """Make the extent FAILED and count it."""
        after = rules.failed(claim, position=position, records=records, bad=bad, error=error)
        self._finish(f"failing {claim.extent.uri}", claim, after)

    def hand_back(
        self, claim: Claim, *, position: int, records: int, bad: int, keep_attempt: bool
    ) -> None:
        """Clear the claim; the extent stays PENDING."""
        after = rules.handed_back(
            claim, position=position, records=records, bad=bad, keep_attempt=keep_attempt
        )
        self._finish(f"handing back {claim.extent.uri}", claim, after)

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        """Replay a FAILED extent."""
        subject = f"replaying extent {ordinal} of job {job_id}"

        def attempt() -> bool:
            stored = self._items.get(items.extent_key(job_id, ordinal))
            if stored is None or stored["state"] != ExtentState.FAILED:
                return False
            item = items.extent_from_item(stored)
            rules.check_replay(item, accept_duplicates=accept_duplicates)
            job, planned = known_job(self._items, job_id)
            rules.check_reopening(job, ordinal)
            after = rules.reopened(job, planned=planned)
            self._items.transact(subject, writes.reopen(job, after, item))
            return True

        return self._items.race(subject, attempt)

    def _finish(self, subject: str, claim: Claim, after: ExtentItem) -> None:
        try:
            self._items.transact(subject, writes.finish(claim, after))
        except Refused as refused:
            key = items.extent_key(after.job, after.ordinal)
            stored = self._items.image(refused, EXTENT, key) or {}
            if items.last_verdict(stored) != (claim.mark.nonce, after.state):
                raise self._lost(refused, claim, after.position) from None

    def _lost(self, refused: Refused, claim: Claim, position: int) -> Exception:
        """Say which condition of a claim's owner did not hold."""
        job_id, ordinal = claim.extent.job, claim.extent.ordinal
        stored = self._items.image(refused, EXTENT, items.extent_key(job_id, ordinal))
        item = _extent(stored, job_id, ordinal)
        if item.claim == claim.mark and item.position > position:
            return rules.backwards(claim.extent.uri, item.position, position)
        return rules.claim_lost(claim)


def _own_slot(stored: Stored | None, lease: Lease) -> Stored:
    if stored is None or stored["epoch"] != lease.epoch:
        raise rules.slot_taken(lease)
    return stored


def _own_lease(refused: Refused, lease: Lease, seen: SlotItem) -> tuple[Lease, SlotItem] | None:
    stored = refused.images[0]
    if stored is None or (stored["epoch"], stored["owner"]) != (lease.epoch, lease.owner):
        return None
    return lease, replace(seen, working=items.slot_from_item(stored).working)


def _extent(stored: Stored | None, job_id: str, ordinal: int) -> ExtentItem:
    return items.extent_from_item(stored) if stored else ExtentItem(job_id, ordinal)


def _name(lease: Lease) -> str:
    return f"slot {lease.number} of cluster {lease.cluster}"
