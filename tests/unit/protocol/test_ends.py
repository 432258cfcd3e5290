"""A job closes with its last extent, in each way an extent can end."""

import pytest
from tests.support.memory_delivery import World

from extentflow.delivery.runner import fail_extent, run_extent
from extentflow.errors import LedgerUnavailable
from extentflow.ledger import Claim
from extentflow.model import ExtentState, JobState, Outcome


def state(world: World, job_id: str) -> JobState:
    job = world.ledger.jobs.get(job_id)
    assert job is not None
    return job.state


def test_the_last_extent_closes_its_job() -> None:
    world = World()
    job = world.job(b"abcdefgh")
    first, last = world.extents(job)
    work = world.worker()

    run_extent(first, work)
    before = state(world, job.id)
    run_extent(last, work)

    assert (before, state(world, job.id)) == (JobState.RUNNING, JobState.DONE)


def test_a_failed_extent_closes_its_job() -> None:
    world = World()
    job = world.job(b"ab!d")

    run_extent(world.extents(job)[0], world.worker())

    assert state(world, job.id) is JobState.FAILED


def test_a_defect_closes_its_job() -> None:
    world = World()
    job = world.job(b"abcd")

    fail_extent(world.extents(job)[0], world.worker(), "a defect")

    assert state(world, job.id) is JobState.FAILED


def test_next_worker_of_an_extent_closes_a_job_left_open() -> None:
    world = World()
    job = world.job(b"abcd")
    (extent,) = world.extents(job)
    slots = world.slots()
    claim = slots.claim(extent, world.worker().client(extent))
    assert isinstance(claim, Claim)
    slots.complete(claim, position=4, records=4, bad=0, filtered=0)
    before = state(world, job.id)

    run_extent(extent, world.worker())

    assert (before, state(world, job.id)) == (JobState.RUNNING, JobState.DONE)


@pytest.mark.parametrize("call", ["complete", "close"])
def test_a_job_is_closed_although_an_answer_was_lost(call: str) -> None:
    world = World()
    job = world.job(b"abcd")
    world.ledger.lose_answer(call)

    receipt = run_extent(world.extents(job)[0], world.worker())

    assert receipt.outcome is Outcome.DONE
    assert state(world, job.id) is JobState.DONE


def test_failed_extent_of_an_ordered_job_blocks_no_worker() -> None:
    world = World()
    job = world.job(b"ab!defgh", ordered=True)
    first, second = world.extents(job)
    work = world.worker()

    outcomes = [run_extent(extent, work).outcome for extent in (first, second)]

    assert outcomes == [Outcome.FAILED, Outcome.JOB_CLOSED]
    assert state(world, job.id) is JobState.FAILED
    assert world.ledger.extents.get(job.id, 1).state is ExtentState.PENDING


@pytest.mark.parametrize("call", ["end", "fail"])
@pytest.mark.parametrize("happens", [True, False])
def test_a_replaced_object_supersedes_its_job_although_an_answer_was_lost(
    call: str, *, happens: bool
) -> None:
    world = World()
    job = world.job(b"aaaa")
    (extent,) = world.extents(job)
    world.put(b"bbbb")
    (world.ledger.lose_answer if happens else world.ledger.refuse)(call)

    run_extent(extent, world.worker())

    assert state(world, job.id) is JobState.SUPERSEDED
    assert world.ledger.extents.get(job.id, 0).claim is None
    assert world.delivered() == []


def test_slot_is_released_when_the_ledger_is_unavailable_on_failure() -> None:
    world = World()
    first, second = world.extents(world.job(b"abcdefgh"))
    work = world.worker()
    world.ledger.lose_answer("claim")

    with pytest.raises(LedgerUnavailable):
        fail_extent(first, work, "a defect")
    receipt = run_extent(second, work)

    assert receipt.outcome is Outcome.DONE
