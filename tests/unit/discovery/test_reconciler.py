"""Whole runs: the dead's slots, parts in turn, whatever dies at whatever moment."""

from collections.abc import Iterator
from random import Random

import pytest
from tests.support.memory_delivery import expected
from tests.support.reconciled import EVERY_SECONDS, PATIENCE, Reconciled

from extentflow.delivery.slots import Slots
from extentflow.discovery.reconciler import PUBLISHED_AT_ONCE
from extentflow.discovery.report import Report, attempt_step, interleave
from extentflow.discovery.stalled_jobs import LONGEST_WAIT_SECONDS
from extentflow.errors import Fenced, LedgerUnavailable, SinkUnavailable
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim
from extentflow.model import ExtentState, Job, JobState
from extentflow.testing.broker import MemoryBroker

BODY = b"abcdefghijkl"  # three extents
OUTLASTS_THE_LEASE = 4.0


@pytest.fixture
def reconciled() -> Reconciled:
    return Reconciled()


def claim(reconciled: Reconciled, job: Job, ordinal: int = 0) -> tuple[Slots, Claim]:
    slots = reconciled.world.slots()
    claimed = slots.claim(reconciled.world.extents(job)[ordinal], ProducerSettings())
    assert isinstance(claimed, Claim)
    return slots, claimed


# -- slots ----------------------------------------------------------------------------------------


def test_a_dead_worker_without_a_commit_leaves_its_extent_pending(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    claim(reconciled, job)
    reconciled.world.ticker.now += OUTLASTS_THE_LEASE

    report = reconciled.run()

    item = reconciled.ledger.extents.get(job.id, 0)
    assert (report.slots_recovered, report.problems) == (1, 0)
    assert (item.claim, item.position, item.state) == (None, 0, ExtentState.PENDING)


def test_a_dead_workers_extent_continues_at_the_position_in_kafka(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    slots, held = claim(reconciled, job)
    reconciled.ledger.refuse("advance")
    slots.commit(held, position=2, records=2, bad=0, filtered=0)
    assert reconciled.ledger.extents.get(job.id, 0).position == 0
    reconciled.world.ticker.now += OUTLASTS_THE_LEASE

    report = reconciled.run()

    item = reconciled.ledger.extents.get(job.id, 0)
    assert report.slots_recovered == 1
    assert (item.claim, item.position, item.state) == (None, 2, ExtentState.PENDING)


def test_the_job_of_a_worker_that_died_after_its_last_commit_is_closed(
    reconciled: Reconciled,
) -> None:
    job = reconciled.sent("key", b"abcd")
    slots, held = claim(reconciled, job)
    reconciled.ledger.refuse("complete")
    with pytest.raises(LedgerUnavailable):
        slots.complete(held, position=4, records=4, bad=0, filtered=0)
    reconciled.world.ticker.now += OUTLASTS_THE_LEASE

    report = reconciled.run() + reconciled.run()

    assert (report.slots_recovered, report.jobs_closed) == (1, 1)
    assert reconciled.state_of(job) is JobState.DONE


def test_the_living_keep_their_slots(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", b"abcd")
    slots, held = claim(reconciled, job)

    report = reconciled.run()

    assert report.slots_recovered == 0
    slots.complete(held, position=4, records=4, bad=0, filtered=0)


def test_a_frozen_worker_commits_nothing_after_its_slot_is_recovered(
    reconciled: Reconciled,
) -> None:
    job = reconciled.sent("key", b"abcd")
    slots, held = claim(reconciled, job)
    reconciled.world.ticker.now += OUTLASTS_THE_LEASE
    reconciled.run()

    with pytest.raises(Fenced):
        slots.commit(held, position=2, records=2, bad=0, filtered=0)

    reconciled.work()
    assert reconciled.state_of(job) is JobState.DONE
    assert reconciled.world.delivered() == expected(b"abcd")


# -- job events -----------------------------------------------------------------------------------


def test_unpublished_ends_are_published_once(reconciled: Reconciled) -> None:
    published_late = [
        reconciled.sent(f"{number:03}", b"abcd") for number in range(PUBLISHED_AT_ONCE + 5)
    ]
    reconciled.work()
    closed_now = reconciled.sent("closed", b"abcd")
    slots, held = claim(reconciled, closed_now)
    slots.complete(held, position=4, records=4, bad=0, filtered=0)

    first, second = reconciled.run(), reconciled.run()

    expected_jobs = sorted(job.id for job in [*published_late, closed_now])
    assert sorted(event.job for event in reconciled.publisher.events) == expected_jobs
    assert (first.ends_published, second.ends_published) == (PUBLISHED_AT_ONCE + 6, 0)


def test_an_unavailable_publisher_costs_one_step_and_is_retried(reconciled: Reconciled) -> None:
    reconciled.sent("key", b"abcd")
    reconciled.work()
    reconciled.put("lost")
    reconciled.publisher.failures = 1

    unavailable, back = reconciled.run(), reconciled.run()

    assert (unavailable.problems, unavailable.ends_published, unavailable.jobs_new) == (1, 0, 1)
    assert (back.problems, back.ends_published) == (0, 1)


# -- a step that fails ----------------------------------------------------------------------------


def test_an_unavailable_broker_delays_only_steps_that_need_it(reconciled: Reconciled) -> None:
    open_job, done = reconciled.registered("open"), reconciled.sent("done", b"abcd")
    dead = reconciled.sent("dead", b"abcd")
    slots, held = claim(reconciled, done)
    slots.complete(held, position=4, records=4, bad=0, filtered=0)
    claim(reconciled, dead)
    reconciled.world.ticker.now += EVERY_SECONDS + 1

    def on_call(name: str) -> None:
        if name == "fence":
            raise SinkUnavailable("unavailable")

    unavailable = MemoryBroker(on_call=on_call)
    unavailable._log = reconciled.world.broker._log
    reconciled.world.broker = unavailable

    report = reconciled.run()

    assert (report.problems, report.slots_recovered) == (1, 0)
    assert (report.jobs_resumed, report.jobs_closed) == (1, 1)
    assert [reconciled.state_of(job) for job in (open_job, done)] == [
        JobState.RUNNING,
        JobState.DONE,
    ]


def test_an_unavailable_ledger_is_reported_and_not_raised(reconciled: Reconciled) -> None:
    for name in ("slots", "connectors", "connector_names"):
        reconciled.ledger.refuse(name)

    report = reconciled.run()

    assert report.problems == 3


def test_a_run_without_time_does_nothing(reconciled: Reconciled) -> None:
    reconciled.registered("key")
    reconciled.put("another")
    reconciled.world.ticker.now += EVERY_SECONDS + 1

    report = reconciled.run(late=lambda: True)

    assert report == Report()
    assert reconciled.queue.sent == []


def test_an_unexpected_error_is_a_problem_of_its_step_only() -> None:
    def broken() -> Report:
        raise ZeroDivisionError("a defect")

    assert attempt_step("dividing", broken) == Report(problems=1)


def test_parts_take_turns_and_one_that_raises_is_over() -> None:
    def steps(amount: int, count: int, *, then: Exception | None = None) -> Iterator[Report]:
        yield from [Report(keys_listed=amount)] * count
        if then:
            raise then

    parts = {
        "a": steps(1, 2, then=LedgerUnavailable("unavailable")),
        "b": steps(2, 4),
        "c": steps(3, 1),
    }

    yielded = [step.keys_listed or "problem" for step in interleave(parts)]

    assert yielded == [1, 2, 3, 1, 2, "problem", 2, 2]


def test_reports_are_summed_field_by_field() -> None:
    one = Report(1, 2, 3, 4, 5, 6, 7, 8, 9, ("a",), 10)

    assert one + one == Report(2, 4, 6, 8, 10, 12, 14, 16, 18, ("a", "a"), 20)
    assert (one + Report()).to_log()["listings_finished"] == ("a",)
    aged = Report(oldest_open_seconds=5.0) + Report(oldest_open_seconds=3.0)
    assert aged.oldest_open_seconds == 5.0


# -- whatever dies --------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone; nothing of it runs any more."""


def killed_within(reconciled: Reconciled, random: Random) -> None:
    """Do a run that is killed before some operation of the ledger or the queue, or not at all."""
    left = [random.randrange(60)]

    def on_call(_name: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    reconciled.ledger.on_call = reconciled.queue.on_call = on_call
    try:
        reconciled.run()
    except Killed:
        pass
    finally:
        reconciled.ledger.on_call = reconciled.queue.on_call = lambda _name: None


@pytest.mark.parametrize("seed", range(30))
def test_every_record_arrives_once_despite_losses_and_kills(
    reconciled: Reconciled, seed: int
) -> None:
    """Events and messages get lost, planners, workers and reconcilers die, over and over."""
    random = Random(seed)
    bodies: dict[str, bytes] = {}
    for number in range(8):
        key, body = f"{random.randrange(100):02}-{number}", bytes([97 + number]) * (4 * number + 1)
        bodies[key] = body
        happens = random.choice(["event lost", "planner died", "messages lost", "worker died"])
        if happens == "event lost":
            reconciled.put(key, body)
        elif happens == "planner died":
            reconciled.registered(key, body)
        else:
            job = reconciled.sent(key, body)
            if happens == "worker died":
                slots, held = claim(reconciled, job)
                if random.random() < 0.5:
                    reconciled.ledger.refuse("advance")
                    slots.commit(held, position=0, records=0, bad=0, filtered=0)
            reconciled.lose_messages()
        reconciled.world.ticker.now += random.choice([1.0, PATIENCE.grace_seconds])
        killed_within(reconciled, random)

    for _ in range(40):
        reconciled.world.ticker.now += EVERY_SECONDS
        killed_within(reconciled, random)
        if random.random() < 0.3:
            reconciled.lose_messages()
        if random.random() < 0.3:
            reconciled.work()
    calm_until = reconciled.world.ticker.now + LONGEST_WAIT_SECONDS
    while (
        set(reconciled.states().values()) != {JobState.DONE}
        and reconciled.world.ticker.now < calm_until
    ):
        reconciled.run_for(EVERY_SECONDS)
        reconciled.work()

    assert reconciled.states() == dict.fromkeys(bodies, JobState.DONE)
    records = [record for body in bodies.values() for record in expected(body)]
    assert sorted(reconciled.world.delivered()) == sorted(records)
    assert reconciled.queued.reasons() == []
