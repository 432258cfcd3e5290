"""What a slot's new owner does about what its predecessor left, in ledger and Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from tests.support.ownership import CLIENT, ONE, Scene

from extentflow.delivery.slots import Busy, Final
from extentflow.errors import LedgerUnavailable, ProgressUnknown
from extentflow.kafka import ProducerSettings, SlotProgress
from extentflow.ledger import JobProgress, SlotItem
from extentflow.ledger.extent_store import extent_key
from extentflow.ledger.items import Write
from extentflow.model import ExtentState
from extentflow.testing.broker import MemoryBroker, MemoryFence


def test_the_slot_of_a_dead_owner_is_settled_and_let_go() -> None:
    scene = Scene()
    extent, other = scene.extents(scene.job(b"abcdefgh"))
    dead, me = scene.of("dead"), scene.of("me")
    lost = scene.claim(dead, extent)
    me.complete(scene.claim(me, other), position=8, records=4, bad=0, filtered=0)
    scene.die_after_commit(dead, lost, 3)
    scene.outlast_the_lease()

    claim = scene.claim(me, extent)

    assert (claim.item.position, claim.item.records, claim.item.attempts) == (3, 3, 1)
    assert claim.mark.slot != lost.mark.slot
    assert scene.slot(lost.mark.slot) == SlotItem("memory", lost.mark.slot, epoch=2)
    assert scene.group(lost.mark.slot) == SlotProgress(epoch=2)


def test_uncommitted_work_of_a_dead_owner_counts_as_an_attempt() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    scene.claim(dead, extent)
    scene.send(dead, b"0", b"1")
    scene.outlast_the_lease()

    claim = scene.claim(scene.of("me", ONE), extent)

    assert (claim.item.position, claim.item.attempts) == (0, 2)
    assert scene.delivered() == []


def test_an_extent_finished_in_kafka_only_is_done_and_counted_once() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead")
    scene.die_while_completing(dead, scene.claim(dead, extent), 4)
    scene.outlast_the_lease()

    answer = scene.of("me").claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert scene.ledger.jobs.progress(extent.job) == JobProgress(done=1, records=4, bytes=4)


def test_progress_of_another_extent_means_no_commit_since_the_claim() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    dead = scene.of("dead", ONE)
    done = scene.claim(dead, first)
    scene.send(dead, b"0", b"1", b"2", b"3")
    dead.complete(done, position=4, records=4, bad=0, filtered=0)
    scene.claim(dead, second)
    scene.outlast_the_lease()

    claim = scene.claim(scene.of("me", ONE), second)

    assert scene.ledger.jobs.progress(first.job).done == 1
    assert (claim.item.position, claim.item.records, claim.item.attempts) == (0, 0, 2)


def test_progress_of_another_job_with_the_same_ordinal_is_ignored() -> None:
    scene = Scene()
    finished, extent = (scene.extents(scene.job(b"abcd", key))[0] for key in ("one", "other"))
    dead = scene.of("dead", ONE)
    dead.complete(scene.claim(dead, finished), position=4, records=4, bad=0, filtered=0)
    scene.claim(dead, extent)
    scene.outlast_the_lease()

    claim = scene.claim(scene.of("me", ONE), extent)

    assert (claim.item.position, claim.item.records, claim.item.attempts) == (0, 0, 2)


def test_extent_is_done_when_its_last_transaction_was_empty() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    claim = scene.claim(dead, extent)
    scene.deliver(dead, claim, 4)
    scene.ledger.refuse("complete")
    with pytest.raises(LedgerUnavailable):
        dead.complete(claim, position=4, records=4, bad=0, filtered=0)
    scene.outlast_the_lease()

    answer = scene.of("me", ONE).claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert scene.ledger.jobs.progress(extent.job) == JobProgress(done=1, records=4, bytes=4)


def test_completion_is_confirmed_before_the_slot_does_anything_else() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    scene.die_while_completing(slots, scene.claim(slots, first), 4)

    claim = scene.claim(slots, second)

    assert claim.mark.epoch == 2
    assert scene.ledger.extents.get(first.job, 0).state is ExtentState.DONE
    assert scene.ledger.jobs.progress(first.job).done == 1


def test_a_claim_of_any_earlier_epoch_is_settled() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    scene.die_after_commit(dead, scene.claim(dead, extent), 3)
    scene.outlast_the_lease()
    scene.ledger.refuse("settle")
    with pytest.raises(LedgerUnavailable):
        scene.of("died before it settled", ONE).claim(extent, CLIENT)
    scene.outlast_the_lease()

    claim = scene.claim(scene.of("me", ONE), extent)

    assert (claim.mark.epoch, claim.item.position) == (3, 3)


def test_a_proof_from_an_earlier_claim_never_moves_the_position_back() -> None:
    scene = Scene()
    extent = scene.extent()
    one, other = scene.of("one"), scene.of("other")
    early = scene.claim(one, extent)
    scene.deliver(one, early, 1)
    one.hand_back(early, position=1, records=1, bad=0, filtered=0, keep_attempt=False)
    later = scene.claim(other, extent)
    scene.deliver(other, later, 3)
    other.hand_back(later, position=3, records=3, bad=0, filtered=0, keep_attempt=False)
    last = scene.claim(one, extent)
    scene.outlast_the_lease()

    claim = scene.claim(scene.of("me"), extent)

    assert last.mark.epoch == early.mark.epoch
    assert (claim.item.position, claim.item.records) == (3, 3)


def test_a_missing_group_makes_progress_unknown() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    claim = scene.claim(dead, extent)
    scene.deliver(dead, claim, 1)
    scene.forget_group(0)
    scene.outlast_the_lease()

    answer = scene.of("me", ONE).claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert (answer.item.state, answer.item.position) == (ExtentState.FAILED, 1)
    assert answer.item.progress_unknown
    assert scene.ledger.jobs.progress(extent.job) == JobProgress(failed=1)


@pytest.mark.parametrize(
    ("guarantee", "state"),
    [("at_least_once", ExtentState.PENDING), ("exactly_once", ExtentState.FAILED)],
)
def test_a_mark_of_an_earlier_version_has_the_guarantee_of_its_connector(
    guarantee: str, state: ExtentState
) -> None:
    """Workers of earlier versions claim for at-least-once delivery without saying so."""
    scene = Scene()
    scene.ledger.connectors.put("c", {"delivery.guarantee": guarantee})
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    scene.claim(dead, extent)
    scene.forget_group(0)
    scene.outlast_the_lease()

    scene.of("me", ONE).evict("dead")

    item = scene.ledger.extents.get(extent.job, 0)
    assert (item.state, item.claim) == (state, None)


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_proof_of_another_epoch_makes_progress_unknown(epoch: int) -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    scene.claim(dead, extent)
    assert scene.claim(dead, extent).mark.epoch == 2
    scene.put_group(0, SlotProgress(epoch, extent.job, 0, position=2, records=2))
    scene.outlast_the_lease()

    answer = scene.of("me", ONE).claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert (answer.item.position, answer.item.progress_unknown) == (0, True)


def test_a_missing_group_matters_only_to_an_extent_in_work() -> None:
    scene = Scene()
    first, second = scene.extents(scene.job(b"abcdefgh"))
    slots = scene.of("me", ONE)
    slots.complete(scene.claim(slots, first), position=4, records=4, bad=0, filtered=0)
    slots.release()
    scene.forget_group(0)

    claim = scene.claim(slots, second)

    assert claim.item.attempts == 1
    assert scene.ledger.extents.get(first.job, 0).state is ExtentState.DONE


def test_accepted_duplicates_resume_at_the_ledgers_position() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    claim = scene.claim(dead, extent)
    scene.deliver(dead, claim, 1)
    scene.forget_group(0)
    scene.outlast_the_lease()
    slots = scene.of("me", ONE)
    slots.claim(extent, CLIENT)

    with pytest.raises(ProgressUnknown, match="accept-duplicates"):
        scene.ledger.extents.reopen(extent.job, 0)
    scene.ledger.extents.reopen(extent.job, 0, accept_duplicates=True)

    assert scene.claim(slots, extent).item.position == 1


@pytest.mark.parametrize(("slot", "epoch"), [(1, 1), (0, 2)])
def test_a_claim_that_is_not_the_predecessors_is_left_alone(slot: int, epoch: int) -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    item = scene.claim(dead, extent).item
    assert item.claim is not None
    foreign = replace(item, claim=replace(item.claim, slot=slot, epoch=epoch))
    stored = scene.ledger.items.get(extent_key(extent.job, 0))
    assert stored is not None
    mark = {**stored["claim"], "slot": slot, "epoch": epoch}
    scene.ledger.items.update("", Write(extent_key(extent.job, 0), sets={"claim": mark}))

    scene.of("driver", ONE).evict("dead")

    assert scene.ledger.extents.get(extent.job, 0) == foreign
    assert scene.slot(0) == SlotItem("memory", 0, epoch=2)


@dataclass(frozen=True)
class Foreign:
    """A broker on which another client wrote to the slots' groups."""

    broker: MemoryBroker

    @property
    def cluster(self) -> str:
        return self.broker.cluster

    def fence(self, identity: str, client: ProducerSettings) -> "ForeignFence":
        fence = self.broker.fence(identity, client)
        return ForeignFence(fence.log, fence.on_call, fence.identity, fence.epoch, client)

    def present_topics(self, names: Sequence[str]) -> Mapping[str, str]:
        return self.broker.present_topics(names)

    def first_offsets(self, topic: str) -> Mapping[int, int]:
        return self.broker.first_offsets(topic)

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        return self.broker.end_offsets(topic)


class ForeignFence(MemoryFence):
    def read(self) -> SlotProgress | None:
        raise ProgressUnknown("consumer group: another client wrote to extentflow.progress[0]")


def test_a_group_written_by_another_client_counts_as_missing() -> None:
    scene = Scene()
    extent = scene.extent()
    dead = scene.of("dead", ONE)
    scene.claim(dead, extent)
    scene.outlast_the_lease()
    slots = scene.of("me", ONE, broker=Foreign(scene.broker))

    answer = slots.claim(extent, CLIENT)

    assert isinstance(answer, Final)
    assert answer.item.progress_unknown
    assert scene.group(0) == SlotProgress(epoch=2)


@pytest.mark.parametrize("operation", ["fence", "read", "mark"])
def test_worker_that_lost_a_slot_leaves_its_new_owner_alone(operation: str) -> None:
    scene = Scene()
    extent = scene.extent()
    faster = scene.of("faster", ONE)

    def overtake() -> None:
        scene.outlast_the_lease()
        claim = scene.claim(faster, extent)
        scene.deliver(faster, claim, 2)

    impatient = replace(ONE, wait_seconds=0)
    slow = scene.of("slow", impatient, broker=scene.meanwhile(operation, overtake))

    answer = slow.claim(extent, CLIENT)
    again = scene.claim(faster, extent)

    assert isinstance(answer, Busy)
    assert (again.item.state, again.item.position) == (ExtentState.PENDING, 2)
