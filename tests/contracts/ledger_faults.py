"""The ledger's contract under lost responses and races: one effect, and the right result."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
from tests.contracts.ledger import (
    EXTENT_BYTES,
    LEASE_SECONDS,
    Answer,
    LedgerUnderTest,
    Scene,
    fresh,
    insist,
    unregistered,
)

from extentflow.ledger import Claim, JobProgress, Lease, Ledger, Settlement
from extentflow.model import ExtentState, JobState

THREADS = 32
EXTENTS_EACH = 2
ROUNDS = 4


def together(call: Callable[[int], Answer], count: int) -> list[Answer]:
    """Run `call(0..count-1)` in as many threads, started at the same moment."""
    barrier = Barrier(count)

    def run(number: int) -> Answer:
        barrier.wait()
        return call(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def at_once(calls: Sequence[Callable[[], object]]) -> None:
    together(lambda number: calls[number](), len(calls))


class LostResponseContract:
    def test_registering(self, world: LedgerUnderTest) -> None:
        job = unregistered(created=1.0)
        world.lose_answer("register")

        assert insist(lambda: world.ledger.jobs.register(job)) == job

    def test_planning(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).planning()
        world.lose_answer("plan")

        planned = insist(lambda: world.ledger.jobs.plan(job.id, count=1, cursor=9, complete=True))

        assert (planned.state, planned.plan.count) == (JobState.RUNNING, 1)

    def test_putting_a_connector(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        world.lose_answer("put_connector")

        stored = insist(lambda: world.ledger.connectors.put(name, {"format": "csv"}))

        assert stored.revision == 2
        assert world.ledger.connectors.get(name) == stored
        assert world.ledger.connectors.get(name, 3) is None

    def test_deleting_a_connector(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        world.lose_answer("delete_connector")

        insist(lambda: world.ledger.connectors.delete(name))

        assert world.ledger.connectors.get(name) is None

    def test_leasing(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        old = scene.claim(scene.lease(owner="old"), scene.extent(scene.job()))
        seen = scene.slot(old.lease)
        world.lose_answer("lease")

        taken = insist(
            lambda: world.ledger.slots.lease(seen, owner="me", lease_seconds=LEASE_SECONDS)
        )

        assert taken == (Lease(scene.cluster, 0, 2, "me"), seen)
        assert scene.slot(old.lease).epoch == 2

    def test_leasing_a_slot_that_started_work_after_it_was_read(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease(owner="old")
        seen = scene.slot(lease)
        scene.claim(lease, scene.extent(job := scene.job()))
        world.lose_answer("lease")

        taken = insist(
            lambda: world.ledger.slots.lease(seen, owner="me", lease_seconds=LEASE_SECONDS)
        )

        assert taken is not None
        assert taken[1].working == (job.id, 0)

    def test_renewing(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        world.lose_answer("renew")

        insist(lambda: world.ledger.slots.renew(lease, lease_seconds=900))

        assert scene.slot(lease).until > world.ledger.now() + 800

    def test_claiming(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        seen = scene.item(extent)
        world.lose_answer("claim")

        claim = insist(lambda: scene.try_claim(lease, extent, seen=seen, nonce="n1"))

        assert claim is not None
        assert claim.item == scene.item(extent)
        assert (claim.item.attempts, claim.mark.nonce) == (1, "n1")
        scene.complete(claim)

    def test_advancing(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        world.lose_answer("advance")

        insist(lambda: scene.advance(claim, 30))

        assert scene.item(claim.extent).position == 30

    @pytest.mark.parametrize(
        ("how", "state", "progress"),
        [
            (
                "complete",
                ExtentState.DONE,
                JobProgress(done=1, records=100, bad=2, bytes=EXTENT_BYTES),
            ),
            ("fail", ExtentState.FAILED, JobProgress(failed=1)),
            ("hand_back", ExtentState.PENDING, JobProgress()),
        ],
    )
    def test_finishing(
        self, world: LedgerUnderTest, how: str, state: ExtentState, progress: JobProgress
    ) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        finish: Callable[[Claim, int], None] = getattr(scene, how)
        world.lose_answer(how)

        insist(lambda: finish(claim, 100))

        item = scene.item(claim.extent)
        assert (item.state, item.position, item.claim) == (state, 100, None)
        assert world.ledger.jobs.progress(claim.extent.job) == progress
        assert scene.slot(claim.lease).working is None

    @pytest.mark.parametrize(
        "settlement",
        [
            Settlement(60, 60, 0),
            Settlement(100, 90, 4, done=True),
            Settlement(0, 0, 0, unknown=True),
        ],
    )
    def test_settling(self, world: LedgerUnderTest, settlement: Settlement) -> None:
        scene = Scene(world.ledger)
        claim = scene.claim(scene.lease(), scene.extent(scene.job()))
        successor = scene.lease()
        world.lose_answer("settle")

        settled = insist(lambda: world.ledger.slots.settle(successor, claim.item, settlement))

        assert settled
        assert scene.item(claim.extent).claim is None
        assert scene.item(claim.extent).position == settlement.position
        progress = world.ledger.jobs.progress(claim.extent.job)
        assert (progress.done, progress.failed) == (settlement.done, settlement.unknown)

    def test_clearing_a_slot(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        scene.claim(scene.lease(), scene.extent(scene.job()))
        successor = scene.lease()
        world.lose_answer("settle")

        assert insist(lambda: world.ledger.slots.settle(successor, None, None))
        assert scene.slot(successor).working is None

    def test_releasing(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        lease = scene.lease()
        world.lose_answer("release")

        insist(lambda: world.ledger.slots.release(lease))

        assert scene.slot(lease).owner == ""

    def test_ending(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job()
        world.lose_answer("end")

        ended = insist(lambda: world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "replaced"))

        assert (ended.state, ended.reason) == (JobState.SUPERSEDED, "replaced")

    def test_publishing(self, world: LedgerUnderTest) -> None:
        ended = world.ledger.jobs.end(
            Scene(world.ledger).job().id, JobState.CANCELLED, "called off"
        )
        world.lose_answer("mark_published")

        insist(lambda: world.ledger.jobs.mark_published(ended))

        found = world.ledger.jobs.get(ended.id)
        assert found is not None
        assert found.published

    def test_closing(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job(count=0)
        world.lose_answer("close")

        assert insist(lambda: world.ledger.jobs.close(job.id)).state is JobState.DONE

    def test_resuming(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job()
        world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")
        world.lose_answer("resume")

        resumed = insist(lambda: world.ledger.jobs.resume(job.id))

        assert (resumed.state, resumed.reopened) == (JobState.RUNNING, 1)

    def test_reopening(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        scene.failed(job)
        world.ledger.jobs.close(job.id)
        world.lose_answer("reopen")

        insist(lambda: world.ledger.extents.reopen(job.id, 0))

        reopened = world.ledger.jobs.get(job.id)
        assert reopened is not None
        assert (reopened.state, reopened.reopened) == (JobState.RUNNING, 1)
        assert world.ledger.jobs.progress(job.id) == JobProgress()
        assert world.ledger.extents.get(job.id, 0).state is ExtentState.PENDING


class RaceContract:
    """Threads represent workers; each has its own ledger object."""

    def test_counters_are_exact_under_many_workers(self, world: LedgerUnderTest) -> None:
        job = Scene(world.ledger).job(THREADS * EXTENTS_EACH)
        cluster = fresh("cluster")
        views = [world.ledger, world.elsewhere()]

        def work(number: int) -> None:
            scene = Scene(views[number % 2], cluster)
            lease = insist(lambda: scene.lease(number, owner=f"worker-{number}"))
            for ordinal in range(number, THREADS * EXTENTS_EACH, THREADS):
                extent = scene.extent(job, ordinal)
                claim = insist(lambda: scene.claim(lease, extent))  # noqa: B023 - called at once
                finish = scene.fail if ordinal % 8 == 0 else scene.complete
                insist(lambda: finish(claim, 50))  # noqa: B023 - called at once
                insist(lambda: scene.ledger.jobs.close(job.id))

        together(work, THREADS)

        failed = THREADS * EXTENTS_EACH // 8
        done = THREADS * EXTENTS_EACH - failed
        assert world.ledger.jobs.progress(job.id) == JobProgress(
            done=done, failed=failed, records=done * 50, bad=done * 2, bytes=done * EXTENT_BYTES
        )
        closed = world.ledger.jobs.get(job.id)
        assert closed is not None
        assert closed.state is JobState.FAILED

    def test_one_of_many_claims_wins(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        leases = [scene.lease(number) for number in range(16)]
        seen = scene.item(extent)

        claims = together(
            lambda number: insist(lambda: scene.try_claim(leases[number], extent, seen=seen)),
            len(leases),
        )

        (winner,) = [claim for claim in claims if claim]
        assert scene.item(extent) == winner.item
        working = [slot.number for slot in world.ledger.slots.list(scene.cluster) if slot.working]
        assert working == [winner.lease.number]

    def test_one_of_many_leases_wins(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        seen = world.ledger.slots.get(scene.cluster, 0)

        leases = together(
            lambda number: world.ledger.slots.lease(
                seen, owner=f"worker-{number}", lease_seconds=30
            ),
            16,
        )

        (winner,) = [taken[0] for taken in leases if taken]
        slot = world.ledger.slots.get(scene.cluster, 0)
        assert (slot.owner, slot.epoch) == (winner.owner, 1)

    def test_replay_and_close_never_leave_a_closed_job_with_open_work(
        self, world: LedgerUnderTest
    ) -> None:
        scene = Scene(world.ledger)

        for _ in range(ROUNDS):
            job = scene.job()
            scene.failed(job)
            close = partial(insist, partial(world.ledger.jobs.close, job.id))
            close_elsewhere = partial(insist, partial(world.elsewhere().jobs.close, job.id))
            replay = partial(insist, partial(world.ledger.extents.reopen, job.id, 0))
            calls: list[Callable[[], object]] = [close, close_elsewhere, replay]
            at_once(calls)

            left = world.ledger.jobs.get(job.id)
            assert left is not None
            assert (left.state, left.reopened) == (JobState.RUNNING, 1)
            assert world.ledger.jobs.progress(job.id) == JobProgress()

    def test_many_replays_of_one_extent_are_one(self, world: LedgerUnderTest) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        scene.failed(job)
        world.ledger.jobs.close(job.id)

        answers = together(lambda _: insist(lambda: world.ledger.extents.reopen(job.id, 0)), 8)

        assert sorted(answers) == [False] * 7 + [True]
        assert world.ledger.jobs.progress(job.id) == JobProgress()

    def test_revisions_put_at_once_are_numbered_without_a_gap(self, world: LedgerUnderTest) -> None:
        name = fresh("orders")
        views: list[Ledger] = [world.ledger, world.elsewhere()]

        versions = together(
            lambda number: insist(
                lambda: views[number % 2].connectors.put(name, {"topic": str(number // 2)})
            ),
            8,
        )

        latest = world.ledger.connectors.get(name)
        assert latest is not None
        assert latest.revision == max(version.revision for version in versions)
        assert {version.revision for version in versions} == set(range(1, latest.revision + 1))
        assert [world.ledger.connectors.get(name, v.revision) for v in versions] == versions
