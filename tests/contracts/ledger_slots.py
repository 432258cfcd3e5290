"""The ledger's contract for slots: lease, renew, settle, release."""

from dataclasses import replace

import pytest
from tests.contracts.ledger import EXTENT_BYTES, LEASE_SECONDS, LedgerUnderTest, Scene

from extentflow.errors import Conflict, Fenced
from extentflow.ledger import JobProgress, Lease, Settlement, SlotItem
from extentflow.model import ExtentState


class LeaseContract:
    def test_a_slot_without_an_item_is_free_with_epoch_zero(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)

        assert world.ledger.slots.get(scene.cluster, 5) == SlotItem(scene.cluster, 5)
        assert list(world.ledger.slots.list(scene.cluster)) == []

    def test_leasing_raises_the_epoch_and_names_the_owner(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        free = world.ledger.slots.get(scene.cluster, 5)
        before = world.ledger.now()

        taken = world.ledger.slots.lease(free, owner="me", lease_seconds=LEASE_SECONDS)

        assert taken == (Lease(scene.cluster, 5, 1, "me"), free)
        slot = world.elsewhere().slots.get(scene.cluster, 5)
        assert (slot.epoch, slot.owner, slot.working) == (1, "me", None)
        assert before + LEASE_SECONDS <= slot.until <= world.ledger.now() + LEASE_SECONDS

    def test_a_lease_returns_the_item_as_it_was_before(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(owner="old"), scene.extent(scene.job()))
        seen = scene.slot(claim.lease)

        taken = world.ledger.slots.lease(seen, owner="new", lease_seconds=LEASE_SECONDS)

        assert taken == (Lease(scene.cluster, 0, 2, "new"), seen)
        assert seen.working == (claim.extent.job, 0)

    def test_a_lease_returns_work_started_since_the_read(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease(owner="old")
        seen = scene.slot(lease)
        claim = scene.claim(lease, scene.extent(scene.job()))

        taken = world.ledger.slots.lease(seen, owner="new", lease_seconds=LEASE_SECONDS)

        assert taken is not None
        assert taken[1].working == (claim.extent.job, 0)

    def test_the_slower_of_two_workers_gets_no_lease(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        seen = world.ledger.slots.get(scene.cluster, 0)
        world.elsewhere().slots.lease(seen, owner="faster", lease_seconds=LEASE_SECONDS)

        assert world.ledger.slots.lease(seen, owner="slower", lease_seconds=LEASE_SECONDS) is None
        assert world.ledger.slots.get(scene.cluster, 0).owner == "faster"

    def test_the_owner_gets_no_lease_for_an_old_epoch(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        stale = scene.slot(scene.lease(owner="me"))
        for _ in range(2):
            scene.lease(owner="me")

        assert world.ledger.slots.lease(stale, owner="me", lease_seconds=LEASE_SECONDS) is None
        assert world.ledger.slots.get(scene.cluster, 0).epoch == 3

    def test_a_slot_released_since_it_was_read_is_not_taken(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease(owner="old")
        seen = scene.slot(lease)
        world.ledger.slots.release(lease)

        assert world.ledger.slots.lease(seen, owner="new", lease_seconds=LEASE_SECONDS) is None

    def test_the_owner_may_take_its_own_slot_again(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)

        assert [scene.lease(owner="me").epoch for _ in range(3)] == [1, 2, 3]

    def test_slots_are_listed_by_number_within_their_cluster(self, world: LedgerUnderTest) -> None:
        scene, other = Scene(world.ledger), Scene(world.ledger)
        for number in (10, 9, 100):
            scene.lease(number)
        other.lease(1)

        assert [slot.number for slot in world.ledger.slots.list(scene.cluster)] == [9, 10, 100]
        assert [slot.number for slot in world.ledger.slots.list(other.cluster)] == [1]

    def test_renewing_extends_the_lease(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        before = world.ledger.now()

        world.ledger.slots.renew(lease, lease_seconds=900)

        slot = scene.slot(lease)
        assert slot.until >= before + 900
        assert (slot.epoch, slot.owner) == (lease.epoch, lease.owner)

    def test_a_slot_that_was_taken_or_released_cannot_be_renewed(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        taken, released = scene.lease(0, owner="me"), scene.lease(1, owner="me")
        scene.lease(0, owner="me")
        world.ledger.slots.release(released)
        before = list(world.ledger.slots.list(scene.cluster))

        for lease in (taken, released):
            with pytest.raises(Fenced, match=f"slot {lease.number}"):
                world.ledger.slots.renew(lease, lease_seconds=900)

        assert list(world.ledger.slots.list(scene.cluster)) == before

    def test_a_slot_that_was_never_leased_cannot_be_renewed(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)

        with pytest.raises(Fenced):
            world.ledger.slots.renew(Lease(scene.cluster, 0, 1, "me"), lease_seconds=900)

        assert list(world.ledger.slots.list(scene.cluster)) == []

    def test_a_released_slot_is_free_and_keeps_its_epoch(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()

        world.ledger.slots.release(lease)

        assert scene.slot(lease) == SlotItem(scene.cluster, 0, epoch=1)
        assert scene.lease(owner="next").epoch == 2

    def test_releasing_twice_is_harmless(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()

        world.ledger.slots.release(lease)
        world.ledger.slots.release(lease)

        assert scene.slot(lease).owner == ""

    def test_a_slot_that_was_taken_is_not_released(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        old = scene.lease(owner="me")
        new = scene.lease(owner="me")
        before = scene.slot(new)

        world.ledger.slots.release(old)

        assert scene.slot(new) == before

    def test_a_slot_that_works_on_something_is_not_released(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        before = scene.slot(claim.lease)

        world.ledger.slots.release(claim.lease)

        assert scene.slot(claim.lease) == before

    def test_releasing_a_slot_that_was_never_leased_does_nothing(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)

        world.ledger.slots.release(Lease(scene.cluster, 0, 1, "me"))

        assert list(world.ledger.slots.list(scene.cluster)) == []


class SettleContract:
    def test_kafkas_progress_becomes_the_extents_position(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        successor = scene.lease(owner="successor")

        settled = world.ledger.slots.settle(successor, claim.item, Settlement(60, 50, 3))

        assert settled
        assert scene.item(claim.extent) == replace(
            claim.item, position=60, records=50, bad=3, attempts=0, claim=None
        )
        assert scene.slot(successor).working is None
        assert world.ledger.jobs.progress(claim.extent.job) == JobProgress()

    def test_a_predecessor_of_many_epochs_ago_is_settled(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        scene.lease(owner="died before settling")
        successor = scene.lease(owner="successor")

        assert world.ledger.slots.settle(successor, claim.item, Settlement(60, 50, 3))
        assert scene.item(claim.extent).position == 60

    def test_a_claim_without_progress_keeps_its_attempt(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        for _ in range(2):
            claim = scene.claim(scene.lease(), extent)
            world.ledger.slots.settle(scene.lease(), claim.item, Settlement(0, 0, 0))

        assert scene.item(extent).attempts == 2
        assert scene.item(extent).claim is None

    def test_a_finished_extent_is_done_and_counted(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))

        world.ledger.slots.settle(scene.lease(), claim.item, Settlement(100, 90, 4, done=True))

        item = scene.item(claim.extent)
        assert (item.state, item.position, item.claim) == (ExtentState.DONE, 100, None)
        assert world.ledger.jobs.progress(claim.extent.job) == JobProgress(
            done=1, records=90, bad=4, bytes=EXTENT_BYTES
        )

    def test_unknown_progress_fails_the_extent_at_the_ledgers_position(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        scene.advance(claim, 30)
        seen = scene.item(claim.extent)

        world.ledger.slots.settle(scene.lease(), seen, Settlement(0, 0, 0, unknown=True))

        item = scene.item(claim.extent)
        assert (item.state, item.position, item.records) == (ExtentState.FAILED, 30, 30)
        assert (item.progress_unknown, item.claim) == (True, None)
        assert "--accept-duplicates" in item.error
        assert world.ledger.jobs.progress(claim.extent.job) == JobProgress(failed=1)

    def test_settling_twice_counts_once(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        successor = scene.lease()
        finished = Settlement(100, 90, 4, done=True)

        answers = [world.ledger.slots.settle(successor, claim.item, finished) for _ in range(2)]

        assert answers == [True, True]
        assert world.ledger.jobs.progress(claim.extent.job).done == 1

    def test_without_an_extent_only_the_slot_is_cleared(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        successor = scene.lease()

        assert world.ledger.slots.settle(successor, None, None)

        assert scene.slot(successor).working is None
        assert scene.item(claim.extent) == claim.item

    def test_clearing_a_slot_that_works_on_nothing_is_harmless(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        before = scene.slot(lease)

        assert world.ledger.slots.settle(lease, None, None)

        assert scene.slot(lease) == before

    def test_settling_under_an_old_epoch_is_fenced(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        overtaken = scene.lease(owner="me")
        current = scene.lease(owner="me")

        with pytest.raises(Fenced):
            world.ledger.slots.settle(overtaken, claim.item, Settlement(60, 60, 0))

        assert scene.item(claim.extent) == claim.item
        assert scene.slot(current).working == (claim.extent.job, 0)

    def test_clearing_a_slot_under_an_old_epoch_is_fenced(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        overtaken = scene.lease(owner="me")
        current = scene.lease(owner="me")

        with pytest.raises(Fenced):
            world.ledger.slots.settle(overtaken, None, None)

        assert scene.slot(current).working == (claim.extent.job, 0)

    def test_an_extent_that_advanced_past_the_settlement_is_read_again(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        seen = scene.item(claim.extent)
        scene.advance(claim, 70)
        successor = scene.lease()

        assert not world.ledger.slots.settle(successor, seen, Settlement(60, 60, 0))

        assert scene.item(claim.extent).position == 70
        assert scene.item(claim.extent).claim == claim.mark
        assert scene.slot(successor).working == (claim.extent.job, 0)

    def test_a_settlement_behind_what_was_seen_is_a_conflict(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        scene.advance(claim, 70)

        with pytest.raises(Conflict, match="69"):
            world.ledger.slots.settle(
                scene.lease(), scene.item(claim.extent), Settlement(69, 69, 0)
            )

        assert scene.item(claim.extent).position == 70

    def test_a_claim_that_changed_since_it_was_read_is_read_again(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        old = scene.claim(lease, scene.extent(scene.job()))
        scene.hand_back(old, 10)
        current = scene.claim(lease, old.extent)
        successor = scene.lease()

        assert not world.ledger.slots.settle(successor, old.item, Settlement(60, 60, 0))

        assert scene.item(old.extent) == current.item
        assert scene.slot(successor).working == (old.extent.job, 0)

    def test_an_extent_completed_at_the_last_moment_is_not_settled(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        seen = scene.item(claim.extent)
        scene.complete(claim)

        world.ledger.slots.settle(scene.lease(), seen, Settlement(100, 100, 0, done=True))

        assert world.ledger.jobs.progress(claim.extent.job).done == 1
        assert scene.item(claim.extent).bad == 2
