"""The ledger's contract for extents: claim, advance, complete, fail, hand back."""

from dataclasses import replace

import pytest
from tests.contracts.ledger import EXTENT_BYTES, LEASE_SECONDS, LedgerUnderTest, Scene

from extentflow.errors import Conflict, Fenced
from extentflow.ledger import Claim, ClaimMark, ExtentItem, JobProgress, Settlement
from extentflow.model import ExtentState, JobState


class ClaimContract:
    def test_an_extent_without_an_item_is_pending(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job()

        assert world.ledger.extents.get(job.id, 7) == ExtentItem(job.id, 7)
        assert list(world.ledger.extents.list(job.id)) == []

    def test_a_claim_marks_the_extent_and_stores_its_range(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job(2), 1), scene.lease(3)

        claim = scene.try_claim(lease, extent, nonce="n1")

        mark = ClaimMark(slot=3, epoch=1, nonce="n1", message="message-1")
        item = ExtentItem(extent.job, 1, start=100, end=200, attempts=1, claim=mark)
        assert claim == Claim(lease, extent, mark, item)
        assert world.elsewhere().extents.get(extent.job, 1) == item

    def test_a_claim_occupies_the_slot_and_renews_its_lease(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        before = world.ledger.now()

        world.ledger.extents.claim(
            lease, extent, scene.item(extent), nonce="n1", lease_seconds=10 * LEASE_SECONDS
        )

        slot = scene.slot(lease)
        assert slot.working == (extent.job, 0)
        assert (slot.epoch, slot.owner) == (lease.epoch, lease.owner)
        assert slot.until >= before + 10 * LEASE_SECONDS

    def test_a_job_that_is_still_planning_can_be_worked_on(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)

        assert scene.try_claim(scene.lease(), scene.extent(scene.planning())) is not None

    def test_a_claim_without_progress_in_kafka_says_so(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())

        claim = world.ledger.extents.claim(
            scene.lease(),
            extent,
            scene.item(extent),
            nonce="n1",
            at_least_once=True,
            lease_seconds=LEASE_SECONDS,
        )

        assert claim is not None
        assert claim.mark.at_least_once
        assert world.elsewhere().extents.get(extent.job, 0).claim == claim.mark
        scene.complete(claim)

    def test_the_first_claim_of_a_job_pins_its_topics(self, world: LedgerUnderTest) -> None:
        """Of two workers that saw different topics, the second one reads what the first pinned."""
        scene = Scene(world.ledger)
        job = scene.job(count=2)

        def claim(ordinal: int, topics: dict[str, str]) -> Claim | None:
            extent = scene.extent(job, ordinal)
            item, nonce = scene.item(extent), f"n{ordinal}"
            return world.ledger.extents.claim(
                scene.lease(ordinal),
                extent,
                item,
                nonce=nonce,
                topics=topics,
                lease_seconds=LEASE_SECONDS,
            )

        first = claim(0, {"orders": "id-1", "dead": "id-2"})
        refused = claim(1, {"orders": "id-3"})
        found = world.elsewhere().jobs.get(job.id)
        second = claim(1, {})

        assert first is not None
        assert refused is None
        assert found is not None
        assert found.topics == {"orders": "id-1", "dead": "id-2"}
        assert second is not None
        for held in (first, second):
            scene.complete(held)
        closed = world.ledger.jobs.close(job.id)
        assert (closed.state, closed.topics) == (JobState.DONE, found.topics)

    def test_an_attempt_is_returned_once_and_the_claim_stays(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)

        for _ in range(2):
            world.ledger.extents.return_attempt(claim)

        assert scene.item(extent) == replace(claim.item, attempts=0)
        scene.complete(claim)
        assert scene.item(extent).state is ExtentState.DONE

    def test_an_attempt_of_another_claim_is_not_returned(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        ended = scene.claim(lease, extent)
        scene.hand_back(ended, 0)
        later = scene.claim(lease, extent)

        world.ledger.extents.return_attempt(ended)

        assert scene.item(extent) == later.item

    def test_a_claimed_extent_is_refused(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        held = scene.claim(scene.lease(0), extent)
        lease = scene.lease(1)

        assert scene.try_claim(lease, extent) is None

        assert scene.item(extent) == held.item
        assert scene.slot(lease).working is None

    def test_a_claim_made_since_it_was_read_refuses_the_first_claim(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        seen = scene.item(extent)
        held = scene.claim(scene.lease(0), extent)

        assert scene.try_claim(scene.lease(1), extent, seen=seen) is None
        assert scene.item(extent) == held.item

    def test_a_position_that_moved_since_it_was_read_refuses_the_claim(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent, first, second = scene.extent(scene.job()), scene.lease(0), scene.lease(1)
        scene.hand_back(scene.claim(first, extent), 10)
        stale = scene.item(extent)
        scene.hand_back(scene.claim(first, extent), 20)

        assert scene.try_claim(second, extent, seen=stale) is None
        assert scene.item(extent).claim is None

    def test_an_attempt_made_since_it_was_read_refuses_the_claim(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent, first, second = scene.extent(scene.job()), scene.lease(0), scene.lease(1)
        scene.hand_back(scene.claim(first, extent), 0)
        stale = scene.item(extent)
        scene.hand_back(scene.claim(first, extent), 0)

        assert scene.try_claim(second, extent, seen=stale) is None

    def test_an_item_that_appeared_since_it_was_read_refuses_the_claim(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent, first, second = scene.extent(scene.job()), scene.lease(0), scene.lease(1)
        unseen = scene.item(extent)
        scene.hand_back(scene.claim(first, extent), 0, keep_attempt=False)

        assert scene.try_claim(second, extent, seen=unseen) is None
        assert scene.try_claim(second, extent) is not None

    @pytest.mark.parametrize("how", ["complete", "fail"])
    def test_a_final_extent_is_refused(self, world: LedgerUnderTest, how: str) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        claim = scene.claim(lease, extent)
        {"complete": scene.complete, "fail": scene.fail}[how](claim, 50)

        assert scene.try_claim(lease, extent) is None
        assert scene.slot(lease).working is None

    def test_an_extent_replayed_since_it_was_read_as_failed_is_refused(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        scene.fail(scene.claim(lease, extent), 50)
        stale = scene.item(extent)
        world.ledger.extents.reopen(extent.job, 0)

        assert scene.try_claim(lease, extent, seen=stale) is None
        assert scene.claim(lease, extent).item.state is ExtentState.PENDING

    @pytest.mark.parametrize("state", [JobState.SUPERSEDED, JobState.CANCELLED, JobState.FAILED])
    def test_a_closed_job_is_refused(self, world: LedgerUnderTest, state: JobState) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        world.ledger.jobs.end(job.id, state, "why")

        assert scene.try_claim(scene.lease(), scene.extent(job)) is None
        assert list(world.ledger.extents.list(job.id)) == []

    def test_a_job_that_was_never_registered_is_refused(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        stranger = replace(scene.extent(scene.job()), job="no-such-job")

        assert scene.try_claim(scene.lease(), stranger) is None

    def test_a_slot_whose_epoch_moved_is_fenced_even_for_the_same_owner(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent, old = scene.extent(scene.job()), scene.lease(owner="me")
        scene.lease(owner="me")

        with pytest.raises(Fenced, match="slot 0"):
            scene.try_claim(old, extent)

        assert scene.item(extent).claim is None

    def test_a_slot_that_works_on_something_is_refused(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job, lease = scene.job(2), scene.lease()
        scene.claim(lease, scene.extent(job, 0))

        assert scene.try_claim(lease, scene.extent(job, 1)) is None
        assert scene.slot(lease).working == (job.id, 0)

    def test_the_same_claim_again_is_the_same_claim(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        seen = scene.item(extent)
        first = scene.try_claim(lease, extent, seen=seen, nonce="n1")

        again = scene.try_claim(lease, extent, seen=seen, nonce="n1")

        assert again == first
        assert scene.item(extent).attempts == 1

    def test_another_range_for_the_ordinal_is_a_conflict(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        unseen = scene.item(extent)
        scene.hand_back(scene.claim(lease, extent), 0)
        other = replace(extent, end=extent.end + 1)

        with pytest.raises(Conflict, match=r"\[0-101\)"):
            scene.try_claim(lease, other)
        with pytest.raises(Conflict, match=r"\[0-101\)"):
            scene.try_claim(lease, other, seen=unseen)
        with pytest.raises(Conflict, match=r"\[0-101\)"):
            scene.try_claim(lease, other, seen=replace(scene.item(extent), end=other.end))

        assert scene.item(extent).claim is None

    def test_each_claim_counts_an_attempt(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()

        for _ in range(3):
            scene.hand_back(scene.claim(lease, extent), 0)

        assert scene.item(extent).attempts == 3

    def test_extents_are_listed_by_ordinal(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job, lease = scene.job(1_000), scene.lease()
        for ordinal in (10, 9, 100):
            scene.complete(scene.claim(lease, scene.extent(job, ordinal)))

        assert [item.ordinal for item in world.ledger.extents.list(job.id)] == [9, 10, 100]


class AdvanceContract:
    def test_a_recorded_chunk_resets_the_attempts(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        scene.hand_back(scene.claim(lease, extent), 0)
        claim = scene.claim(lease, extent)

        scene.advance(claim, 30)

        assert scene.item(extent) == replace(claim.item, position=30, records=30, bad=1, attempts=0)

    def test_a_chunk_renews_the_lease(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        before = world.ledger.now()

        world.ledger.extents.advance(
            claim, position=1, records=1, bad=0, filtered=0, lease_seconds=900
        )

        assert scene.slot(claim.lease).until >= before + 900

    def test_the_same_chunk_twice_is_harmless(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)

        scene.advance(claim, 30)
        scene.advance(claim, 30)

        assert scene.item(extent).position == 30

    def test_a_chunk_never_moves_the_position_back(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        scene.advance(claim, 30)

        with pytest.raises(Conflict, match="29"):
            scene.advance(claim, 29)

        assert scene.item(extent).position == 30

    def test_a_claim_that_was_settled_is_fenced(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        world.ledger.slots.settle(scene.lease(), claim.item, Settlement(10, 10, 0))

        with pytest.raises(Fenced):
            scene.advance(claim, 20)

        assert scene.item(extent).position == 10

    def test_a_claim_of_another_nonce_is_fenced(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        old = scene.claim(lease, extent)
        scene.hand_back(old, 0)
        scene.claim(lease, extent)

        with pytest.raises(Fenced):
            scene.advance(old, 20)

        assert scene.item(extent).position == 0

    def test_a_slot_that_was_taken_is_fenced_but_the_commit_is_recorded(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        successor = scene.lease(owner="successor")

        with pytest.raises(Fenced):
            scene.advance(claim, 20)

        assert scene.item(extent).position == 20
        assert scene.slot(successor).owner == "successor"


class FinishContract:
    def test_a_completed_extent_is_done_and_counted(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        scene.advance(claim, 40)

        scene.complete(claim, 100)

        assert scene.item(extent) == replace(
            claim.item,
            state=ExtentState.DONE,
            position=100,
            records=100,
            bad=2,
            attempts=0,
            claim=None,
        )
        assert world.ledger.jobs.progress(extent.job) == JobProgress(
            done=1, records=100, bad=2, bytes=EXTENT_BYTES
        )

    def test_a_failed_extent_keeps_position_and_reason(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)

        scene.fail(claim, 40)

        item = scene.item(extent)
        assert (item.state, item.position, item.records) == (ExtentState.FAILED, 40, 40)
        assert (item.error, item.claim, item.progress_unknown) == ("bad line", None, False)
        assert world.ledger.jobs.progress(extent.job) == JobProgress(failed=1)

    def test_any_reason_can_fail_an_extent(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        error = "not UTF-8: \udcff " + 1_000_000 * "x"

        world.ledger.extents.fail(claim, position=0, records=0, bad=0, filtered=0, error=error)

        item = scene.item(extent)
        assert item.state is ExtentState.FAILED
        assert item.error.startswith("not UTF-8: \\udcff xxx")

    def test_an_extent_handed_back_is_pending_at_its_position(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)

        scene.hand_back(claim, 40)

        assert scene.item(extent) == replace(
            claim.item, position=40, records=40, bad=1, attempts=0, claim=None
        )
        assert world.ledger.jobs.progress(extent.job) == JobProgress()

    @pytest.mark.parametrize(("keep_attempt", "attempts"), [(True, 2), (False, 1)])
    def test_a_hand_back_without_progress_counts_as_an_attempt(
        self, world: LedgerUnderTest, *, keep_attempt: bool, attempts: int
    ) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        scene.hand_back(scene.claim(lease, extent), 0)

        scene.hand_back(scene.claim(lease, extent), 0, keep_attempt=keep_attempt)

        assert scene.item(extent).attempts == attempts

    def test_attempts_reset_by_progress_stay_at_zero(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        scene.advance(claim, 10)

        scene.hand_back(claim, 10, keep_attempt=False)

        assert scene.item(extent).attempts == 0

    @pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
    def test_finishing_frees_the_slot_for_the_next_extent(
        self, world: LedgerUnderTest, how: str
    ) -> None:
        scene = Scene(world.ledger)
        job, lease = scene.job(2), scene.lease()
        getattr(scene, how)(scene.claim(lease, scene.extent(job, 0)), 10)

        assert scene.slot(lease).working is None
        assert scene.try_claim(lease, scene.extent(job, 1)) is not None

    @pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
    def test_finishing_twice_counts_once(self, world: LedgerUnderTest, how: str) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        getattr(scene, how)(claim, 10)
        once = (scene.item(extent), world.ledger.jobs.progress(extent.job))

        getattr(scene, how)(claim, 10)

        assert (scene.item(extent), world.ledger.jobs.progress(extent.job)) == once

    def test_a_completion_is_recognised_after_the_slot_was_taken(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        scene.complete(claim)
        scene.lease(owner="successor")

        scene.complete(claim)

        assert world.ledger.jobs.progress(claim.extent.job).done == 1

    @pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
    def test_finishing_never_moves_the_position_back(
        self, world: LedgerUnderTest, how: str
    ) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        scene.advance(claim, 30)

        with pytest.raises(Conflict, match="29"):
            getattr(scene, how)(claim, 29)

        item = scene.item(extent)
        assert (item.state, item.position, item.claim) == (ExtentState.PENDING, 30, claim.mark)
        assert world.ledger.jobs.progress(extent.job) == JobProgress()

    @pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
    def test_finishing_under_an_old_epoch_is_fenced(self, world: LedgerUnderTest, how: str) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        successor = scene.lease()

        with pytest.raises(Fenced):
            getattr(scene, how)(claim, 100)

        assert scene.item(extent) == claim.item
        assert scene.slot(successor).working == (extent.job, 0)
        assert world.ledger.jobs.progress(extent.job) == JobProgress()

    @pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
    def test_finishing_with_another_claim_is_fenced(self, world: LedgerUnderTest, how: str) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        old = scene.claim(lease, extent)
        world.ledger.slots.settle(lease, old.item, Settlement(0, 0, 0))
        current = scene.claim(lease, extent)

        with pytest.raises(Fenced):
            getattr(scene, how)(old, 100)

        assert scene.item(extent) == current.item
        assert scene.slot(lease).working == (extent.job, 0)

    def test_a_claim_ends_in_one_way_only(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        claim = scene.claim(scene.lease(), extent)
        scene.complete(claim)

        with pytest.raises(Fenced):
            scene.fail(claim, 100)

        assert world.ledger.jobs.progress(extent.job) == JobProgress(
            done=1, records=100, bad=2, bytes=EXTENT_BYTES
        )

    def test_an_extent_can_be_completed_after_its_job_was_ended(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        claim = scene.claim(scene.lease(), scene.extent(job))
        world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        scene.complete(claim)

        assert world.ledger.jobs.progress(job.id).done == 1
