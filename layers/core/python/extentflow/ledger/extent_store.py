"""Extents and slots of a ledger, over its items.

A transaction on an extent lists the extent first and its slot second: DynamoDB reports a failed
condition by its place. After a failed condition, a call first checks whether an earlier attempt of
its own took effect:

    claim                       the claim has its nonce
    complete, fail, hand_back   `last` has the nonce of the claim and the state that it left
    lease                       the slot has its owner and epoch + 1
    settle                      the slot has its epoch and works on nothing

Tests: contracts/ledger_extents.py, unit/ledger/test_stored_items.py
"""

import builtins
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Unpack

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import (
    Claim,
    ClaimMark,
    ExtentItem,
    JobProgress,
    Lease,
    Settlement,
    SlotItem,
    SlotStore,
    Totals,
    rules,
)
from extentflow.ledger.items import (
    Attr,
    Attributes,
    Condition,
    ConditionFailed,
    Fields,
    Items,
    Key,
    Stored,
    Value,
    Write,
    decoding,
    image,
    lay_out,
    race,
    read_fields,
    refusal,
)
from extentflow.ledger.job_store import (
    JOB,
    StoredJobs,
    count_change,
    job_key,
    job_of,
    reopening,
    require_last,
)
from extentflow.model import Extent, ExtentState, Job, JobState

log = logging.getLogger(__name__)

EXTENT_PLACE, SLOT_PLACE = 0, 1
EXTENT, SLOTS = "EXTENT#", "SLOTS#"
FEW_EXTENTS = 100  # of one job, read by their keys, with those of other jobs
OPEN_STATES = [state for state in JobState if state.open]
UNPINNED = Attr("topics").not_exists()

STATE_FIELDS: Fields = {
    "state": ExtentState,
    "position": int,
    "records": int,
    "bad": int,
    "filtered": int,
    "attempts": int,
    "error": str,
    "progress_unknown": bool,
}
FIELDS: Fields = {"start": int, "end": int, **STATE_FIELDS}
MARK_FIELDS: Fields = {"slot": int, "epoch": int, "nonce": str, "message": str}


class StoredSlots:
    """A `SlotStore`."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def get(self, cluster: str, number: int) -> SlotItem:
        item = self._items.get(slot_key(cluster, number))
        return _slot_from_item(item) if item else SlotItem(cluster, number)

    def list(self, cluster: str) -> Iterator[SlotItem]:
        return map(_slot_from_item, self._items.query(f"{SLOTS}{cluster}"))

    def lease(
        self, seen: SlotItem, *, owner: str, lease_seconds: float
    ) -> tuple[Lease, SlotItem] | None:
        lease = Lease(seen.cluster, seen.number, seen.epoch + 1, owner)
        is_as_seen = Attr("epoch").not_exists() & Attr("owner").not_exists()
        if seen.epoch:
            is_as_seen = Attr("epoch").eq(seen.epoch) & Attr("owner").eq(seen.owner)
        # On the server's clock: a worker whose clock runs fast must not take live leases.
        until = self._items.now() + lease_seconds
        content: Attributes = {"epoch": lease.epoch, "owner": owner, "until": until}
        write = Write(_key(lease), is_as_seen, content)
        try:
            before = self._items.update(f"leasing {lease}", write, returning="ALL_OLD")
        except ConditionFailed as refused:
            stored = refused.images[0]
            if stored is None or (stored["epoch"], stored["owner"]) != (lease.epoch, owner):
                return None
            # The slot may have started work between `seen` and the lease.
            return lease, replace(seen, working=_slot_from_item(stored).working)
        return lease, _slot_from_item(before) if before else seen

    def renew(self, lease: Lease, *, lease_seconds: float) -> None:
        until = self._items.now() + lease_seconds
        write = Write(_key(lease), _is_ours(lease), {"until": until})
        if refusal(self._items, f"renewing {lease}", write):
            raise rules.slot_taken(lease)

    def settle(self, lease: Lease, seen: ExtentItem | None, settlement: Settlement | None) -> bool:
        if seen is None or seen.claim is None or settlement is None:
            return self._clear(lease)
        after = rules.settled(seen, settlement)
        writes = _end_of_claim(lease, seen.claim, after, {})
        try:
            self._items.transact(f"settling {lease}", writes)
        except ConditionFailed as refused:
            stored = image(self._items, refused, SLOT_PLACE, _key(lease))
            return "working" not in _own_slot(stored, lease)
        return True

    def _clear(self, lease: Lease) -> bool:
        stored = _own_slot(self._items.get(_key(lease)), lease)
        if "working" not in stored:
            return True
        # The very claim that was read: a delayed request must not clear a later claim of the slot.
        works_on_it_still = Attr("working").eq(stored["working"])
        write = Write(_key(lease), _has_epoch(lease) & works_on_it_still, removes=("working",))
        refused = refusal(self._items, f"clearing {lease}", write)
        return refused is None or "working" not in _own_slot(refused.images[0], lease)

    def release(self, lease: Lease) -> None:
        works_on_nothing = Attr("working").not_exists()
        write = Write(_key(lease), _is_ours(lease) & works_on_nothing, {"owner": "", "until": 0.0})
        with suppress(ConditionFailed):  # taken, or it works on a claim that its next owner settles
            self._items.update(f"releasing {lease}", write)


def slot_key(cluster: str, number: int) -> Key:
    """Return the key of a slot; zero-padded, because sort keys are ordered as text."""
    return Key(f"{SLOTS}{cluster}", f"{number:08}")


def _slot_from_item(item: Stored) -> SlotItem:
    with decoding(item):
        working = item.get("working")
        return SlotItem(
            item["pk"].removeprefix(SLOTS),
            int(item["sk"]),
            working=(str(working["job"]), int(working["ordinal"])) if working else None,
            **read_fields(item, {"epoch": int, "owner": str, "until": float}),
        )


def _key(lease: Lease) -> Key:
    return slot_key(lease.cluster, lease.number)


def _own_slot(stored: Stored | None, lease: Lease) -> Stored:
    if stored is None or stored["epoch"] != lease.epoch:
        raise rules.slot_taken(lease)
    return stored


def _has_epoch(lease: Lease) -> Condition:
    return Attr("epoch").eq(lease.epoch)


def _is_ours(lease: Lease) -> Condition:
    # The epoch alone also matches a released slot, whose owner is empty.
    return _has_epoch(lease) & Attr("owner").eq(lease.owner)


class StoredExtents:
    """An `ExtentStore`."""

    def __init__(self, items: Items, jobs: StoredJobs, slots: SlotStore) -> None:
        self._items = items
        self._jobs = jobs
        self._slots = slots

    def get(self, job_id: str, ordinal: int) -> ExtentItem:
        return _extent(self._items.get(extent_key(job_id, ordinal)), job_id, ordinal)

    def list(self, job_id: str) -> Iterator[ExtentItem]:
        return map(_extent_from_item, self._items.query(f"{JOB}{job_id}", EXTENT))

    def list_many(self, jobs: Iterable[Job]) -> dict[str, builtins.list[ExtentItem]]:
        found: dict[str, builtins.list[ExtentItem]] = {}
        keys: builtins.list[Key] = []
        for job in jobs:
            few = job.plan.count <= FEW_EXTENTS
            found[job.id] = [] if few else [*self.list(job.id)]
            keys += (extent_key(job.id, ordinal) for ordinal in range(job.plan.count if few else 0))
        for item in map(_extent_from_item, self._items.get_many(keys)):
            found[item.job].append(item)
        return {job: sorted(items, key=attrgetter("ordinal")) for job, items in found.items()}

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
        rules.check_range(extent, seen)
        mark = ClaimMark(lease.number, lease.epoch, nonce, message, at_least_once)
        after = rules.claimed(seen, extent, mark)
        slot_works_on_nothing = Attr("working").not_exists()
        working: Attributes = {"job": extent.job, "ordinal": extent.ordinal, "nonce": nonce}
        slot: Attributes = {"working": working, "until": self._items.now() + lease_seconds}
        content = {**lay_out(after, FIELDS), "claim": _mark_to_item(mark)}
        is_open = Attr("state").is_in(OPEN_STATES)
        job = Write(job_key(extent.job), is_open)
        if topics:
            job = replace(job, condition=is_open & UNPINNED, sets={"topics": {**topics}})
        writes = (
            Write(extent_key(extent.job, extent.ordinal), _is_free(extent, seen), content),
            Write(_key(lease), _has_epoch(lease) & slot_works_on_nothing, slot),
            # A check in the same transaction: a job that ends now has no claim that starts later.
            job,
        )
        try:
            self._items.transact(f"claiming {extent.uri}", writes)
        except ConditionFailed as refused:
            item = self._refused_item(refused, extent)
            rules.check_range(extent, item)
            _own_slot(image(self._items, refused, SLOT_PLACE, _key(lease)), lease)
            return Claim(lease, extent, mark, item) if item.claim == mark else None
        return Claim(lease, extent, mark, after)

    def advance(self, claim: Claim, *, lease_seconds: float, **totals: Unpack[Totals]) -> None:
        self.record(claim, totals)
        # After the extent: a slot that was taken must not hide that the chunk is committed.
        try:
            self._slots.renew(claim.lease, lease_seconds=lease_seconds)
        except LedgerUnavailable as exc:
            # The chunk is recorded; the renewal thread extends the lease.
            log.warning("%s: the lease was not renewed: %s", claim.extent.uri, exc)

    def record(self, claim: Claim, totals: Totals) -> None:
        """Write the extent's part of `advance`."""
        extent, position = claim.extent, totals["position"]
        is_ours = _has_claim(claim.mark) & Attr("position").lte(position)
        content: Attributes = {
            "position": position,
            "records": totals["records"],
            "bad": totals["bad"],
            "filtered": totals["filtered"],
            "attempts": 0,
        }
        write = Write(extent_key(extent.job, extent.ordinal), is_ours, content)
        if refused := refusal(self._items, f"advancing {extent.uri} to {position}", write):
            raise rules.lost(self._refused_item(refused, extent), claim, position)

    def return_attempt(self, claim: Claim) -> None:
        attempts = claim.item.attempts
        write = Write(
            extent_key(claim.extent.job, claim.extent.ordinal),
            _has_claim(claim.mark) & Attr("attempts").eq(attempts),
            {"attempts": attempts - 1},
        )
        with suppress(
            ConditionFailed
        ):  # settled by another worker, or returned by an earlier request
            self._items.update(f"returning an attempt of {claim.extent.uri}", write)

    def complete(self, claim: Claim, **totals: Unpack[Totals]) -> None:
        self._finish("completing", claim, rules.completed(claim, **totals))

    def fail(self, claim: Claim, *, error: str, **totals: Unpack[Totals]) -> None:
        self._finish("failing", claim, rules.failed(claim, error=error, **totals))

    def hand_back(self, claim: Claim, *, keep_attempt: bool, **totals: Unpack[Totals]) -> None:
        after = rules.handed_back(claim, keep_attempt=keep_attempt, **totals)
        self._finish("handing back", claim, after)

    def _finish(self, verb: str, claim: Claim, after: ExtentItem) -> None:
        last: Attributes = {"nonce": claim.mark.nonce, "verdict": after.state}
        writes = _end_of_claim(claim.lease, claim.mark, after, {"last": last})
        try:
            self._items.transact(f"{verb} {claim.extent.uri}", writes)
        except ConditionFailed as refused:
            key = extent_key(after.job, after.ordinal)
            stored = image(self._items, refused, EXTENT_PLACE, key)
            if (stored or {}).get("last") != last:
                item = _extent(stored, after.job, after.ordinal)
                raise rules.lost(item, claim, after.position) from None

    def reopen(self, job_id: str, ordinal: int, *, accept_duplicates: bool = False) -> bool:
        subject = f"replaying extent {ordinal} of job {job_id}"

        def attempt() -> bool:
            item = self.get(job_id, ordinal)
            if item.state is not ExtentState.FAILED:
                return False
            rules.check_replay(item, accept_duplicates=accept_duplicates)
            job, planned = self._jobs.stored(job_id)
            rules.check_reopening(job, ordinal)
            # Another replay and failure may have come since the read, with unknown progress.
            is_failed = Attr("state").eq(ExtentState.FAILED)
            knowledge_as_read = Attr("progress_unknown").eq(item.progress_unknown)
            content = lay_out(rules.pending_again(item), STATE_FIELDS)
            writes = (
                Write(extent_key(job_id, ordinal), is_failed & knowledge_as_read, content),
                reopening(job, planned=planned, followed=accept_duplicates),
                *count_change(job_id, ordinal, JobProgress(failed=-1)),
            )
            try:
                self._items.transact(subject, writes)
            except ConditionFailed as refused:
                require_last(refused.images.get(1), job)
                raise
            return True

        return race(self._items, subject, attempt)

    def _refused_item(self, refused: ConditionFailed, extent: Extent) -> ExtentItem:
        key = extent_key(extent.job, extent.ordinal)
        return _extent(image(self._items, refused, EXTENT_PLACE, key), extent.job, extent.ordinal)


def extent_key(job_id: str, ordinal: int) -> Key:
    """Return the key of an extent; zero-padded, because sort keys are ordered as text."""
    return Key(f"{JOB}{job_id}", f"{EXTENT}{ordinal:08}")


def _extent_from_item(item: Stored) -> ExtentItem:
    with decoding(item):
        return ExtentItem(
            job=job_of(item),
            ordinal=int(item["sk"].removeprefix(EXTENT)),
            claim=_mark_from_item(item["claim"]) if "claim" in item else None,
            # Extents of earlier versions have no `filtered`.
            **read_fields({"filtered": 0, **item}, FIELDS),
        )


def _extent(stored: Stored | None, job_id: str, ordinal: int) -> ExtentItem:
    return _extent_from_item(stored) if stored else ExtentItem(job_id, ordinal)


def _is_free(extent: Extent, seen: ExtentItem) -> Condition:
    """Return the condition that an extent is unclaimed and as it was read."""
    if seen.start == rules.NO_RANGE:
        return Attr("pk").not_exists()
    is_unclaimed = Attr("claim").not_exists()
    is_pending = Attr("state").eq(ExtentState.PENDING) & Attr("state").eq(seen.state)
    position_as_seen = Attr("position").eq(seen.position)
    # A claim that came and went without progress shows in the attempts only.
    attempts_as_seen = Attr("attempts").eq(seen.attempts)
    range_as_ours = Attr("start").eq(extent.start) & Attr("end").eq(extent.end)
    return is_unclaimed & is_pending & position_as_seen & attempts_as_seen & range_as_ours


def _end_of_claim(
    lease: Lease, mark: ClaimMark, after: ExtentItem, more: Mapping[str, Value]
) -> tuple[Write, ...]:
    # One transaction, so that a slot that works on nothing has no claim and counters are exact.
    return (
        Write(
            extent_key(after.job, after.ordinal),
            _has_claim(mark) & Attr("position").lte(after.position),
            {**lay_out(after, STATE_FIELDS), **more},
            ("claim",),
        ),
        Write(_key(lease), _has_epoch(lease), removes=("working",)),
        *count_change(after.job, after.ordinal, rules.counted(after)),
    )


def _has_claim(mark: ClaimMark) -> Condition:
    # The whole mark, nonce included: a slot may claim an extent twice under one epoch.
    return Attr("claim").eq(_mark_to_item(mark))


def _mark_to_item(mark: ClaimMark) -> Attributes:
    # Claims of exactly-once delivery stay as earlier versions wrote them, which conditions compare.
    more: Attributes = {"at_least_once": True} if mark.at_least_once else {}
    return {**lay_out(mark, MARK_FIELDS), **more}


def _mark_from_item(item: Stored) -> ClaimMark:
    at_least_once = bool(item.get("at_least_once", False))
    return ClaimMark(**read_fields(item, MARK_FIELDS), at_least_once=at_least_once)
