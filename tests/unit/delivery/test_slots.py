"""`Slots`, clause by clause of docs/exactly-once.md: taking, claiming, working, letting go.

What a predecessor left stands in `protocol/test_settling.py`. Time passes when a test says so.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import TOPIC
from tests.support.ownership import CLIENT, GRACE_SECONDS, LEASE_SECONDS, ONE, Scene

from extentflow.background import LeaseRenewer
from extentflow.delivery.slots import Busy, Closed, Final, SlotPolicy
from extentflow.errors import (
    Conflict,
    Fenced,
    LedgerUnavailable,
    Misconfigured,
    SinkUnavailable,
    TransactionsRefused,
)
from extentflow.kafka import ProducerSettings, Records, SlotProgress
from extentflow.ledger import Claim, SlotItem
from extentflow.model import ExtentState, JobState
from extentflow.retry import Clock
from extentflow.testing.broker import MemoryBroker, MemoryFence
from extentflow.testing.ledger import MemoryLedger

# -- acquiring ------------------------------------------------------------------------------------


def test_a_slot_is_leased_fenced_and_settled_before_an_extent_is_claimed() -> None:
    calls: list[str] = []
    scene = Scene(broker=MemoryBroker({TOPIC: 1}, on_call=calls.append))
    extent = scene.extent()
    scene.ledger.on_call = calls.append

    scene.claim(scene.of("me", ONE), extent)

    steps = [call for call in calls if call not in ("bind", "slot", "now", "job", "open")]
    assert steps == ["lease", "fence", "read", "settle", "mark", "extent", "claim"]


def test_taking_a_slot_raises_its_epoch_and_leaves_a_marker() -> None:
    scene = Scene()
    extent = scene.extent()

    claim = scene.claim(scene.of("me", ONE), extent)

    assert scene.slot(0) == SlotItem(
        "memory", 0, 1, "me", scene.ticker.now + LEASE_SECONDS, (extent.job, 0)
    )
    assert (claim.mark.slot, claim.mark.epoch) == (0, 1)
    assert scene.group(0) == SlotProgress(epoch=1)


def test_the_own_slot_is_taken_again_before_any_other() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", replace(ONE, count=100))
    first = scene.claim(slots, extent)
    slots.drop()

    again = scene.claim(slots, extent)

    assert (again.mark.slot, again.mark.epoch) == (first.mark.slot, 2)


def test_the_last_free_slot_is_found_among_many() -> None:
    scene = Scene()
    policy = replace(ONE, count=30)
    first, second = scene.extents(scene.job(b"abcdefgh"))
    free = 17
    for number in range(policy.count):
        if number != free:
            scene.ledger.slots.lease(scene.slot(number), owner="alive", lease_seconds=60)

    claim = scene.claim(scene.of("me", policy), first)
    second_answer = scene.of("another", policy).claim(second, CLIENT)

    assert claim.mark.slot == free
    assert isinstance(second_answer, Busy)


def test_without_a_free_slot_an_extent_is_busy_after_a_bounded_wait() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    scene.claim(scene.of("alive", ONE), first)
    started = scene.ticker.now

    answer = scene.of("waiting", ONE).claim(second, CLIENT)

    assert isinstance(answer, Busy)
    assert answer.reason == "no free slot"
    assert 0 < answer.retry_after_seconds <= LEASE_SECONDS
    assert 1 <= scene.ticker.now - started <= 2
    assert scene.ledger.extents.get(second.job, 1).state is ExtentState.PENDING


def test_a_slot_that_comes_free_within_the_wait_is_taken() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    scene.claim(scene.of("dead", ONE), first)
    patient = scene.of("patient", replace(ONE, wait_seconds=2 * LEASE_SECONDS))

    claim = scene.claim(patient, second)

    assert claim.mark.epoch == 2


def test_a_mark_without_an_answer_claims_nothing_and_the_next_try_succeeds() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    scene.broker.lose_commit_answer(committed=True)

    with pytest.raises(SinkUnavailable):
        slots.claim(extent, CLIENT)

    assert scene.ledger.extents.get(extent.job, 0).claim is None
    assert scene.claim(slots, extent).mark.epoch == 2


def test_a_producer_whose_slot_could_not_be_settled_is_closed() -> None:
    calls: list[str] = []
    scene = Scene(broker=MemoryBroker({TOPIC: 1}, on_call=calls.append))
    extent = scene.extent()
    scene.ledger.refuse("settle")

    with pytest.raises(LedgerUnavailable):
        scene.of("me", ONE).claim(extent, CLIENT)

    assert calls == ["fence", "read", "close"]


def test_a_lease_without_an_answer_costs_an_epoch_and_nothing_else() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    scene.ledger.lose_answer("lease")

    with pytest.raises(LedgerUnavailable):
        slots.claim(extent, CLIENT)

    assert scene.claim(slots, extent).mark.epoch == 2


def test_other_client_settings_make_a_new_producer_under_a_new_epoch() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, first)
    old = slots.sink
    slots.complete(claim, position=4, records=4, bad=0, filtered=0)

    other = slots.claim(second, ProducerSettings(producer={"linger.ms": "5"}))

    assert isinstance(other, Claim)
    assert (other.mark.slot, other.mark.epoch) == (0, 2)
    with pytest.raises(SinkUnavailable, match="closed"):
        old.send(Records(TOPIC, pa.array([b"late"], pa.binary())))


def test_the_same_client_settings_keep_producer_and_epoch() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    slots.complete(scene.claim(slots, first), position=4, records=4, bad=0, filtered=0)

    claim = slots.claim(second, ProducerSettings())

    assert isinstance(claim, Claim)
    assert claim.mark.epoch == 1


@pytest.mark.parametrize(("wall_seconds", "epoch"), [(299.0, 1), (301.0, 2), (-1.0, 2)])
def test_a_producer_idle_by_the_wall_clock_is_discarded(wall_seconds: float, epoch: int) -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    frozen = Clock(monotonic=lambda: 0.0, wall=scene.ticker.read, sleep=scene.ticker.sleep)
    slots = scene.of("frozen", replace(ONE, lease_seconds=1_000), clock=frozen)
    slots.complete(scene.claim(slots, first), position=4, records=4, bad=0, filtered=0)
    scene.ticker.now += wall_seconds

    claim = scene.claim(slots, second)

    assert claim.mark.epoch == epoch


def test_two_ledgers_on_one_broker_never_meet() -> None:
    scene, other = Scene(), Scene()
    other.broker, other.ledger = scene.broker, MemoryLedger("other", clock=other.ticker.read)
    slots, others = scene.of("me", ONE), other.of("me", ONE)
    claim = scene.claim(slots, scene.extent())
    scene.send(slots, b"0", b"1")
    theirs = other.claim(others, other.extent())

    slots.commit(claim, position=2, records=2, bad=0, filtered=0)
    others.commit(theirs, position=1, records=0, bad=0, filtered=0)

    assert scene.delivered() == [b"0", b"1"]
    assert scene.group(0) == SlotProgress(1, claim.extent.job, 0, 2, 2)


def test_slots_reject_to_work_in_a_forked_process() -> None:
    scene = Scene()
    extent, slots = scene.extent(), scene.of("me", ONE)

    child = os.fork()
    if not child:
        try:
            slots.claim(extent, CLIENT)
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7


# -- claiming -------------------------------------------------------------------------------------


def test_an_extent_of_a_live_worker_is_busy_for_the_rest_of_the_lease() -> None:
    scene = Scene()
    extent = scene.extent()
    scene.of("alive").claim(extent, CLIENT, message="message-1")
    scene.ticker.now += 1

    answer = scene.of("me").claim(extent, CLIENT)

    assert isinstance(answer, Busy)
    assert (answer.reason, answer.message) == ("held by alive", "message-1")
    rest = LEASE_SECONDS + GRACE_SECONDS - 1
    assert rest <= answer.retry_after_seconds <= rest + 0.5


@pytest.mark.parametrize(
    ("after", "answer"), [(GRACE_SECONDS, Busy), (GRACE_SECONDS + 0.01, Claim)]
)
def test_a_lease_is_respected_until_its_grace_is_over(after: float, answer: type) -> None:
    scene = Scene()
    extent = scene.extent()
    scene.claim(scene.of("slow"), extent)
    me = scene.of("me")
    scene.ticker.now += LEASE_SECONDS + after

    assert isinstance(me.claim(extent, CLIENT), answer)


def test_the_grace_never_exceeds_fifteen_seconds() -> None:
    graces = [SlotPolicy(lease_seconds=seconds).grace_seconds for seconds in (3, 60, 600)]

    assert graces == [0.75, 15, 15]


def test_a_final_extent_is_reported_as_the_ledger_has_it() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me")
    slots.complete(scene.claim(slots, extent), position=4, records=4, bad=0, filtered=0)

    answer = slots.claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert (answer.item.state, answer.item.position) == (ExtentState.DONE, 4)


def test_an_extent_of_a_closed_job_is_not_claimed() -> None:
    scene = Scene()
    extent = scene.extent()
    scene.ledger.jobs.end(extent.job, JobState.CANCELLED, "called off")

    answer = scene.of("me").claim(extent, CLIENT)

    assert isinstance(answer, Closed)
    assert answer.job.reason == "called off"


def test_an_unregistered_job_is_a_conflict() -> None:
    scene = Scene()
    stranger = replace(scene.extent(), job="no-such-job")

    with pytest.raises(Conflict, match="no-such-job"):
        scene.of("me").claim(stranger, CLIENT)


@pytest.mark.parametrize("held", [False, True])
def test_a_job_of_another_cluster_is_a_conflict_for_any_claim(*, held: bool) -> None:
    scene = Scene()
    extent = scene.extent()
    if held:
        scene.claim(scene.of("there", ONE), extent)
    elsewhere = Scene(broker=MemoryBroker({TOPIC: 1}, cluster="elsewhere"), ticker=scene.ticker)
    elsewhere.ledger = scene.ledger

    with pytest.raises(Conflict, match=r"cluster memory, .* elsewhere"):
        elsewhere.of("here", ONE).claim(extent, CLIENT)


def test_an_extent_of_another_object_than_its_jobs_is_rejected(golden: Golden) -> None:
    scene = Scene()
    extent = scene.extent()
    other = replace(extent, version=scene.put(b"ABCDEFGH", "other"))

    with golden.raises(Conflict, match="s3://bucket/other.*s3://bucket/key"):
        scene.of("me").claim(other, CLIENT)

    assert scene.ledger.extents.get(extent.job, 0).claim is None


def test_another_range_for_an_ordinal_is_a_conflict() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me")
    slots.hand_back(
        scene.claim(slots, extent), position=0, records=0, bad=0, filtered=0, keep_attempt=False
    )

    with pytest.raises(Conflict, match=r"\[0-4\)"):
        slots.claim(replace(extent, end=5), CLIENT)


def test_an_ordered_extent_waits_until_its_predecessor_is_done() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh", ordered=True))
    slots = scene.of("me")

    before = slots.claim(second, CLIENT)
    slots.complete(scene.claim(slots, first), position=4, records=4, bad=0, filtered=0)
    after = slots.claim(second, CLIENT)

    assert isinstance(before, Busy)
    assert "extent 0 is PENDING" in before.reason
    assert isinstance(after, Claim)


def test_an_ordered_extent_after_a_failed_one_closes_its_job() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh", ordered=True))
    slots = scene.of("me")
    slots.fail(
        scene.claim(slots, first), position=0, records=0, bad=0, filtered=0, error="bad line"
    )

    answer = slots.claim(second, CLIENT)

    assert isinstance(answer, Closed)
    assert answer.job.state is JobState.FAILED


def test_a_claim_without_a_response_does_not_block_the_slot() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    scene.ledger.lose_answer("claim")

    with pytest.raises(LedgerUnavailable):
        slots.claim(first, CLIENT)
    claim = scene.claim(slots, second)

    assert claim.mark.epoch == 2
    assert scene.ledger.extents.get(first.job, 0).claim is None
    assert scene.slot(0).working == (second.job, 1)


def test_an_extent_claimed_by_the_own_slot_is_settled_under_a_new_epoch() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    first = scene.claim(slots, extent)
    scene.deliver(slots, first, 2)

    second = scene.claim(slots, extent)

    assert (second.mark.epoch, second.item.position) == (2, 2)
    with pytest.raises(Fenced, match=r"s3://bucket/key\[0-4\)"):
        slots.commit(first, position=3, records=3, bad=0, filtered=0)
    assert scene.group(0) == SlotProgress(epoch=2)


def test_a_claimed_extent_is_settled_before_its_slot_takes_another() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    scene.deliver(slots, scene.claim(slots, first), 2)

    claim = scene.claim(slots, second)

    left = scene.ledger.extents.get(first.job, 0)
    assert claim.mark.epoch == 2
    assert (left.position, left.claim) == (2, None)


# -- working --------------------------------------------------------------------------------------


def test_a_zombie_commits_nothing() -> None:
    scene = Scene()
    extent = scene.extent()
    zombie, me = scene.of("zombie"), scene.of("me")
    lost = scene.claim(zombie, extent)
    scene.send(zombie, b"zombie")
    scene.outlast_the_lease()
    claim = scene.claim(me, extent)

    with pytest.raises(Fenced):
        zombie.commit(lost, position=1, records=1, bad=0, filtered=0)
    scene.deliver(me, claim, 4)

    assert scene.delivered() == [b"0", b"1", b"2", b"3"]


def test_every_commit_updates_the_ledger_and_renews_the_lease() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, extent)
    scene.ticker.now += 2

    scene.deliver(slots, claim, 3)

    item = scene.ledger.extents.get(extent.job, 0)
    assert (item.position, item.records, item.attempts) == (3, 3, 0)
    assert scene.slot(0).until == scene.ticker.now + LEASE_SECONDS
    assert scene.group(0) == SlotProgress(1, extent.job, 0, 3, 3)


class Later:
    """Writes of progress that a test lets happen, as a background thread may."""

    def __init__(self) -> None:
        self.writes: list[Callable[[], None]] = []

    def arrive(self) -> None:
        while self.writes:
            self.writes.pop(0)()


def test_a_commit_does_not_wait_for_the_ledger() -> None:
    scene, later = Scene(), Later()
    extent = scene.extent()
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = scene.claim(slots, extent)
    calls: list[str] = []
    scene.ledger.on_call = calls.append

    scene.deliver(slots, claim, 3)
    before = scene.ledger.extents.get(extent.job, 0).position
    later.arrive()

    assert calls == ["extent", "advance", "renew"]
    assert (before, scene.ledger.extents.get(extent.job, 0).position) == (0, 3)


@pytest.mark.parametrize("how", ["complete", "fail", "hand_back"])
@pytest.mark.parametrize("times", [1, 2])
def test_progress_that_arrives_after_the_end_of_its_claim_changes_nothing(
    how: str, times: int
) -> None:
    scene, later = Scene(), Later()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = scene.claim(slots, first)
    scene.deliver(slots, claim, 2)
    for _ in range(times - 1):
        slots.commit(claim, position=3, records=3, bad=0, filtered=0)
    begun = scene.ledger.extents.advance
    end: dict[str, Callable[..., None]] = {
        "complete": slots.complete,
        "fail": partial(slots.fail, error="why"),
        "hand_back": partial(slots.hand_back, keep_attempt=True),
    }

    end[how](claim, position=4, records=4, bad=0, filtered=0)
    ended = scene.ledger.extents.get(first.job, 0)
    later.arrive()
    with pytest.raises(Fenced):  # a request that was under way by then
        begun(claim, position=3, records=3, bad=0, filtered=0, lease_seconds=LEASE_SECONDS)

    assert scene.ledger.extents.get(first.job, 0) == ended
    assert scene.claim(slots, second).mark.epoch == 1


def test_progress_under_way_at_the_end_of_its_claim_does_not_cost_the_slot() -> None:
    scene, later = Scene(), Later()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = scene.claim(slots, first)
    scene.deliver(slots, claim, 2)
    ends = [lambda: slots.complete(claim, position=4, records=4, bad=0, filtered=0)]
    scene.ledger.on_call = lambda name: ends.pop()() if name == "advance" and ends else None

    later.arrive()

    assert scene.ledger.extents.get(first.job, 0).state is ExtentState.DONE
    assert scene.claim(slots, second).mark.epoch == 1


def test_progress_that_finds_the_slot_taken_ends_the_work_on_it() -> None:
    scene, later = Scene(), Later()
    extent = scene.extent()
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = scene.claim(slots, extent)
    scene.deliver(slots, claim, 2)
    scene.outlast_the_lease()
    assert scene.claim(scene.of("other", ONE), extent).item.position == 2

    later.arrive()

    with pytest.raises(Fenced, match="no longer owns"):
        slots.commit(claim, position=3, records=3, bad=0, filtered=0)


def test_older_progress_after_newer_is_ignored() -> None:
    scene, later = Scene(), Later()
    extent = scene.extent()
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = scene.claim(slots, extent)
    scene.deliver(slots, claim, 1)
    slots.commit(claim, position=2, records=2, bad=0, filtered=0)
    later.writes.reverse()

    later.arrive()
    slots.commit(claim, position=3, records=3, bad=0, filtered=0)

    assert scene.ledger.extents.get(extent.job, 0).position == 2


def test_an_unavailable_ledger_stops_no_commits() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, extent)
    scene.ledger.refuse("advance", times=2)

    for position in (1, 2, 3):
        scene.send(slots, b"%d" % position)
        slots.commit(claim, position=position, records=position, bad=0, filtered=0)

    assert scene.ledger.extents.get(extent.job, 0).position == 3


def test_at_least_once_waits_for_the_ledger_which_has_the_only_position() -> None:
    scene, later = Scene(), Later()
    extent = scene.extent()
    slots = scene.of("me", ONE, submit=later.writes.append)
    claim = slots.claim(extent, ProducerSettings(exactly_once=False))
    assert isinstance(claim, Claim)

    scene.deliver(slots, claim, 2)
    scene.ledger.refuse("advance")

    assert later.writes == []
    assert scene.ledger.extents.get(extent.job, 0).position == 2
    with pytest.raises(LedgerUnavailable):
        slots.commit(claim, position=3, records=3, bad=0, filtered=0)


def test_a_transaction_without_records_carries_the_position_too() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, extent)

    slots.complete(claim, position=4, records=0, bad=0, filtered=0)

    assert scene.group(0) == SlotProgress(1, extent.job, 0, 4, done=True)


def test_a_failed_extent_keeps_what_was_committed_and_frees_the_slot() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, first)
    scene.deliver(slots, claim, 2)

    slots.fail(claim, position=2, records=2, bad=0, filtered=0, error="bad line")

    item = scene.ledger.extents.get(first.job, 0)
    assert (item.state, item.position, item.error) == (ExtentState.FAILED, 2, "bad line")
    assert scene.claim(slots, second).mark.epoch == 1


def test_an_extent_handed_back_resumes_at_its_position_on_any_worker() -> None:
    scene = Scene()
    extent = scene.extent()
    one, other = scene.of("one"), scene.of("other")
    claim = scene.claim(one, extent)
    scene.deliver(one, claim, 2)

    one.hand_back(claim, position=2, records=2, bad=0, filtered=0, keep_attempt=False)

    assert scene.claim(other, extent).item.position == 2


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("how", ["fail", "hand_back"])
def test_a_release_without_a_response_is_settled_before_the_next_claim(
    how: str, *, happens: bool
) -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, first)
    (scene.ledger.lose_answer if happens else scene.ledger.refuse)(how)
    let_go: dict[str, Callable[..., None]] = {
        "fail": partial(slots.fail, error="why"),
        "hand_back": partial(slots.hand_back, keep_attempt=True),
    }

    with pytest.raises(LedgerUnavailable):
        let_go[how](claim, position=0, records=0, bad=0, filtered=0)
    after = scene.claim(slots, second)

    assert after.mark.epoch == 2
    assert scene.ledger.extents.get(first.job, 0).claim is None


@pytest.mark.parametrize("how", ["commit", "complete", "fail", "hand_back"])
def test_a_claim_is_worth_nothing_once_its_producer_was_dropped(how: str) -> None:
    scene = Scene()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, scene.extent())
    calls: dict[str, Callable[..., None]] = {
        "commit": slots.commit,
        "complete": slots.complete,
        "fail": partial(slots.fail, error="why"),
        "hand_back": partial(slots.hand_back, keep_attempt=True),
    }
    slots.drop()

    with pytest.raises(Fenced):
        calls[how](claim, position=1, records=1, bad=0, filtered=0)
    with pytest.raises(Fenced):
        _ = slots.sink


# -- keeping --------------------------------------------------------------------------------------


def test_the_keeper_renews_the_lease_of_an_extent_in_work() -> None:
    scene = Scene()
    slots = scene.of("me", ONE)
    scene.claim(slots, scene.extent())
    scene.ticker.now += 2

    slots.renew()

    assert scene.slot(0).until == scene.ticker.now + LEASE_SECONDS


def test_the_keeper_stops_when_the_extent_has_not_moved_for_too_long() -> None:
    scene = Scene()
    slots = scene.of("me", replace(ONE, stall_seconds=10))
    scene.claim(slots, scene.extent())
    scene.ticker.now += 10
    slots.renew()
    until = scene.slot(0).until
    scene.ticker.now += 0.1

    slots.renew()

    assert scene.slot(0).until == until == scene.ticker.now - 0.1 + LEASE_SECONDS


def test_a_commit_counts_as_moving() -> None:
    scene = Scene()
    slots = scene.of("me", replace(ONE, stall_seconds=10))
    claim = scene.claim(slots, scene.extent())
    scene.ticker.now += 10
    scene.deliver(slots, claim, 1)
    scene.ticker.now += 10

    slots.renew()

    assert scene.slot(0).until == scene.ticker.now + LEASE_SECONDS


def test_the_keeper_does_not_renew_a_slot_without_an_extent() -> None:
    scene = Scene()
    slots = scene.of("me", ONE)
    slots.complete(scene.claim(slots, scene.extent()), position=4, records=4, bad=0, filtered=0)
    until = scene.slot(0).until
    scene.ticker.now += 1

    slots.renew()

    assert scene.slot(0).until == until


def test_a_renewer_that_finds_the_slot_taken_stops_the_next_commit() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("slow", ONE)
    claim = scene.claim(slots, extent)
    scene.send(slots, b"0")
    scene.outlast_the_lease()
    scene.ledger.slots.lease(scene.slot(0), owner="faster", lease_seconds=LEASE_SECONDS)

    slots.renew()

    with pytest.raises(Fenced):
        slots.commit(claim, position=1, records=1, bad=0, filtered=0)
    assert scene.group(0) == SlotProgress(epoch=1)


def test_a_renewer_survives_an_unavailable_ledger() -> None:
    scene = Scene()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, scene.extent())
    scene.ledger.refuse("renew")

    slots.renew()

    slots.complete(claim, position=4, records=4, bad=0, filtered=0)
    assert scene.ledger.extents.get(claim.extent.job, 0).state is ExtentState.DONE


@pytest.mark.parametrize(
    "fault", [LedgerUnavailable("no answer"), Misconfigured("ExpiredToken"), MemoryError()]
)
def test_a_renewal_that_fails_keeps_a_sound_producer_and_is_repeated(fault: Exception) -> None:
    calls: list[str] = []
    scene = Scene(broker=MemoryBroker({TOPIC: 1}, on_call=calls.append))
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, scene.extent())
    faults, repeated = [fault], threading.Event()

    def fail_once(name: str) -> None:
        if name == "renew":
            if faults:
                raise faults.pop()
            repeated.set()

    scene.ledger.on_call = fail_once
    with LeaseRenewer(slots.renew, 0.001):
        assert repeated.wait(300)
    scene.deliver(slots, claim, 4)
    slots.complete(claim, position=4, records=4, bad=0, filtered=0)

    assert scene.delivered() == [b"0", b"1", b"2", b"3"]
    assert scene.ledger.extents.get(claim.extent.job, 0).state is ExtentState.DONE
    assert calls.count("fence") == 1
    assert "close" not in calls


# -- letting go -----------------------------------------------------------------------------------


def test_a_released_slot_is_free_at_once() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    slots.complete(scene.claim(slots, first), position=4, records=4, bad=0, filtered=0)

    slots.release()

    assert scene.slot(0).owner == ""
    assert scene.claim(scene.of("next", ONE), second).mark.epoch == 2


def test_a_slot_in_work_is_left_to_its_lease() -> None:
    scene = Scene()
    extent = scene.extent()
    slots = scene.of("me", ONE)
    claim = scene.claim(slots, extent)

    slots.release()

    assert scene.slot(0).owner == "me"
    assert scene.ledger.extents.get(extent.job, 0).claim == claim.mark


def test_a_slot_whose_release_is_not_answered_is_left_to_its_lease() -> None:
    scene = Scene()
    slots = scene.of("me", ONE)
    slots.complete(scene.claim(slots, scene.extent()), position=4, records=4, bad=0, filtered=0)
    scene.ledger.refuse("release")

    slots.release()

    assert scene.slot(0).owner == "me"


def test_evicting_settles_and_frees_the_slots_of_a_run_at_once() -> None:
    scene = Scene()
    policy = replace(ONE, count=3)
    extents = scene.extents(scene.job(b"abcdefghijkl"))
    owners = ["run-1/a", "run-1/b", "run-2/c"]
    workers = [scene.of(owner, policy) for owner in owners]
    claims = [scene.claim(w, e) for w, e in zip(workers, extents, strict=True)]
    for worker, claim in zip(workers, claims, strict=True):
        scene.die_after_commit(worker, claim, claim.item.position + 2)
    started = scene.ticker.now

    evicted = scene.of("driver", policy).evict("run-1/")

    assert (evicted, scene.ticker.now) == (2, started)
    left = [scene.ledger.extents.get(extent.job, extent.ordinal) for extent in extents]
    assert [item.position for item in left] == [2, 2, 0]
    assert [item.claim for item in left] == [None, None, claims[2].mark]
    assert sorted(slot.owner for slot in scene.ledger.slots.list("memory")) == ["", "", "run-2/c"]


def test_an_evicted_live_worker_is_fenced_and_can_lease_again() -> None:
    scene = Scene()
    extent = scene.extent()
    worker = scene.of("run/worker")
    claim = scene.claim(worker, extent)
    scene.send(worker, b"0")

    scene.of("driver").evict("run/")

    with pytest.raises(Fenced):
        worker.commit(claim, position=1, records=1, bad=0, filtered=0)
    assert scene.delivered() == []
    assert scene.claim(worker, extent).item.position == 0


def test_an_idle_slot_is_freed_in_the_ledger_and_its_owner_leases_again() -> None:
    scene = Scene()
    policy = replace(ONE, count=2)
    first, second = scene.extents(scene.job(b"abcdefgh"))
    worker = scene.of("run/idle", policy)
    worker.complete(scene.claim(worker, first), position=4, records=4, bad=0, filtered=0)
    asked: list[str] = []
    broker = MemoryBroker(on_call=asked.append)

    evicted = scene.of("driver", policy, broker=broker).evict("run/")

    (slot,) = scene.ledger.slots.list("memory")
    assert (evicted, slot.owner, slot.epoch, asked) == (1, "", 2, [])
    assert scene.claim(worker, second).mark.epoch in {1, 3}  # another slot, or this one again


def test_an_idle_owner_that_claims_meanwhile_is_fenced() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    worker = scene.of("run/idle", ONE)
    worker.complete(scene.claim(worker, first), position=4, records=4, bad=0, filtered=0)
    claims: list[Claim] = []
    before = scene.ledger.on_call

    def claim(name: str) -> None:
        if name == "lease" and not claims:
            scene.ledger.on_call = before
            claims.append(scene.claim(worker, second))
            scene.send(worker, b"4")

    scene.ledger.on_call = claim
    scene.of("driver", ONE).evict("run/")

    with pytest.raises(Fenced):
        worker.commit(claims[0], position=5, records=1, bad=0, filtered=0)
    assert scene.delivered() == []
    assert scene.ledger.extents.get(second.job, second.ordinal).claim is None
    assert scene.slot(0).owner == ""


def test_a_worker_does_not_evict_itself() -> None:
    scene = Scene()
    slots = scene.of("run/me", ONE)
    claim = scene.claim(slots, scene.extent())

    assert slots.evict("run/") == 0

    slots.complete(claim, position=4, records=4, bad=0, filtered=0)
    assert scene.slot(0).epoch == 1


def test_a_slot_that_another_worker_leased_meanwhile_is_skipped() -> None:
    scene = Scene()
    extent = scene.extent()
    scene.claim(scene.of("run/dead", ONE), extent)
    faster = scene.of("faster", ONE)

    def overtake() -> None:
        scene.outlast_the_lease()
        scene.claim(faster, extent)

    scene.of("driver", ONE, broker=scene.meanwhile("fence", overtake)).evict("run/")

    assert scene.slot(0).owner == "faster"
    assert scene.slot(0).working == (extent.job, 0)


# -- sweeping -------------------------------------------------------------------------------------


def test_sweeping_settles_what_the_dead_committed_and_frees_their_slots() -> None:
    scene = Scene()
    policy = replace(ONE, count=3)
    extents = scene.extents(scene.job(b"abcdefghijkl"))
    workers = [scene.of(owner, policy) for owner in ("a", "b", "c")]
    claims = [scene.claim(w, e) for w, e in zip(workers, extents, strict=True)]
    scene.die_after_commit(workers[0], claims[0], 2)
    scene.die_while_completing(workers[1], claims[1], 8)
    scene.outlast_the_lease()

    swept = list(scene.of("sweeper", policy).recover_expired())

    left = [scene.ledger.extents.get(extent.job, extent.ordinal) for extent in extents]
    assert sorted(slot.owner for slot in swept) == ["a", "b", "c"]
    assert [item.position for item in left] == [2, 8, 0]
    assert [item.claim for item in left] == [None] * 3
    assert [slot.owner for slot in scene.ledger.slots.list("memory")] == [""] * 3


def test_sweeping_completes_an_extent_whose_last_chunk_was_committed() -> None:
    scene = Scene()
    extent = scene.extent()
    worker = scene.of("dead", ONE)
    claim = scene.claim(worker, extent)
    scene.die_while_completing(worker, claim, 4)
    scene.outlast_the_lease()

    list(scene.of("sweeper", ONE).recover_expired())

    assert scene.ledger.extents.get(extent.job, 0).state is ExtentState.DONE
    assert scene.ledger.jobs.progress(extent.job).done == 1


@pytest.mark.parametrize(("after", "swept"), [(-0.1, 0), (0.1, 1)])
def test_sweeping_respects_a_lease_until_its_grace_is_over(after: float, swept: int) -> None:
    scene = Scene()
    scene.claim(scene.of("worker", ONE), scene.extent())
    scene.ticker.now += LEASE_SECONDS + GRACE_SECONDS + after

    assert len(list(scene.of("sweeper", ONE).recover_expired())) == swept


def test_sweeping_leaves_slots_alone_that_work_on_nothing() -> None:
    scene = Scene()
    worker = scene.of("idle", ONE)
    worker.complete(scene.claim(worker, scene.extent()), position=4, records=4, bad=0, filtered=0)
    scene.outlast_the_lease()

    assert list(scene.of("sweeper", ONE).recover_expired()) == []

    assert scene.slot(0).epoch == 1


def test_sweeping_continues_after_a_slot_that_another_worker_leased() -> None:
    scene, two = Scene(), replace(ONE, count=2)
    first, second = scene.extents(scene.job(b"abcdefgh"))
    for owner, extent in (("dead", first), ("as dead", second)):
        scene.claim(scene.of(owner, two), extent)
    scene.outlast_the_lease()
    faster = scene.of("faster", two)
    broker = scene.meanwhile(
        "fence",
        lambda: scene.ledger.slots.lease(
            scene.slot(0), owner=faster.owner, lease_seconds=LEASE_SECONDS
        ),
    )

    swept = list(scene.of("sweeper", two, broker=broker).recover_expired())

    assert [slot.number for slot in swept] == [1]
    assert scene.slot(0).owner == "faster"


class WithoutTransactions(MemoryBroker):
    """A cluster that refuses transactions."""

    def fence(self, identity: str, client: ProducerSettings) -> MemoryFence:
        if client.exactly_once:
            raise TransactionsRefused(f"slot {identity}: the brokers refuse transactions")
        return super().fence(identity, client)


def test_an_extent_of_at_least_once_is_recovered_on_a_cluster_without_transactions() -> None:
    scene, broker = Scene(), WithoutTransactions()
    extent = scene.extent()
    client = ProducerSettings(exactly_once=False)
    scene.of("dead", ONE, broker=broker).claim(extent, client)
    scene.outlast_the_lease()

    swept = list(scene.of("sweeper", ONE, broker=broker).recover_expired())

    assert [slot.owner for slot in swept] == ["dead"]
    assert scene.ledger.extents.get(extent.job, 0).claim is None
    with pytest.raises(TransactionsRefused):
        scene.of("sweeper", ONE, broker=broker).claim(extent, CLIENT)


def test_an_owner_of_exactly_once_is_fenced_before_its_extent_is_settled() -> None:
    """An answer that means "no transactions" may be wrong for a moment."""
    scene = Scene()
    extent = scene.extent()
    scene.claim(scene.of("dead", ONE), extent)
    scene.outlast_the_lease()
    sweeper = scene.of("sweeper", ONE, broker=WithoutTransactions())

    with pytest.raises(TransactionsRefused):
        list(sweeper.recover_expired())
    with pytest.raises(TransactionsRefused):
        sweeper.claim(extent, ProducerSettings(exactly_once=False))

    claim = scene.ledger.extents.get(extent.job, 0).claim
    assert claim is not None
    assert not claim.at_least_once


def test_a_sweep_that_was_cut_short_is_finished_by_the_next_one() -> None:
    scene = Scene()
    extent = scene.extent()
    scene.claim(scene.of("dead", ONE), extent)
    sweeper = scene.of("sweeper", ONE)
    scene.outlast_the_lease()
    scene.ledger.refuse("settle")
    with pytest.raises(LedgerUnavailable):
        list(sweeper.recover_expired())
    scene.outlast_the_lease()

    swept = list(sweeper.recover_expired())

    assert [slot.owner for slot in swept] == ["sweeper"]
    assert scene.ledger.extents.get(extent.job, 0).claim is None


def test_a_swept_live_worker_is_fenced_and_can_lease_again() -> None:
    scene = Scene()
    extent = scene.extent()
    worker = scene.of("frozen")
    claim = scene.claim(worker, extent)
    scene.send(worker, b"0")
    scene.outlast_the_lease()

    list(scene.of("sweeper").recover_expired())

    with pytest.raises(Fenced):
        worker.commit(claim, position=1, records=1, bad=0, filtered=0)
    assert scene.delivered() == []
    assert scene.claim(worker, extent).item.position == 0


def test_a_ledger_of_another_app_id_is_rejected_before_a_slot_is_taken(golden: Golden) -> None:
    """Its slots have other transactional ids, so no producer would be fenced."""
    scene = Scene()
    extent = scene.extent()
    scene.ledger.bind("other")
    before = list(scene.ledger.slots.list(scene.broker.cluster))

    with golden.raises(Misconfigured, match=r"app\.id=other.*app\.id=app"):
        scene.of("me", ONE).claim(extent, CLIENT)

    assert list(scene.ledger.slots.list(scene.broker.cluster)) == before
