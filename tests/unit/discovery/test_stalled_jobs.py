"""Stalled jobs are planned further, sent again or closed; other jobs are left alone."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from tests.support.memory_delivery import expected
from tests.support.queued import ordinals
from tests.support.reconciled import EVERY_SECONDS, PATIENCE, Reconciled

from extentflow.delivery.slots import Slots
from extentflow.discovery.stalled_jobs import (
    BACKLOG_FACTOR,
    LONGEST_WAIT_SECONDS,
    StallThresholds,
)
from extentflow.engines.remote import RunState, RunStatus
from extentflow.engines.submitted_runs import RunOwnership, SubmittedRuns
from extentflow.errors import LedgerUnavailable, ObjectGone, QueueUnavailable, StoreUnavailable
from extentflow.formats import Format
from extentflow.jobs.planner import PAGE_EXTENTS
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Job, JobState, Plan
from extentflow.storage import RangeSource
from extentflow.testing.services import MemoryJobRuns

BODY = b"abcdefghijkl"  # three extents
STALL_SECONDS = PATIENCE.stall_seconds
HOUR, DAY = 3_600.0, 86_400.0


@pytest.fixture
def reconciled() -> Reconciled:
    return Reconciled()


def _sent_more(reconciled: Reconciled, than: int) -> bool:
    return len(reconciled.queue.sent) > than


def pass_time(reconciled: Reconciled, seconds: float = EVERY_SECONDS + 1) -> None:
    reconciled.world.ticker.now += seconds


def claim(reconciled: Reconciled, job: Job, ordinal: int) -> tuple[Slots, Claim]:
    """Let a worker claim an extent, and hold it."""
    slots = reconciled.world.slots()
    claimed = slots.claim(reconciled.world.extents(job)[ordinal], ProducerSettings())
    assert isinstance(claimed, Claim)
    return slots, claimed


def complete(reconciled: Reconciled, job: Job, ordinal: int) -> None:
    """Complete an extent, and die before the job is looked at."""
    slots, claimed = claim(reconciled, job, ordinal)
    slots.complete(claimed, position=claimed.extent.end, records=4, bad=0, filtered=0)


def fail(reconciled: Reconciled, job: Job, ordinal: int) -> None:
    slots, claimed = claim(reconciled, job, ordinal)
    slots.fail(claimed, position=0, records=0, bad=0, filtered=0, error="bad bytes")


# -- the oldest ------------------------------------------------------------------------------------


def test_the_age_of_the_oldest_open_job_is_reported(reconciled: Reconciled) -> None:
    reconciled.registered("old", BODY)
    pass_time(reconciled, 100.0)
    reconciled.registered("new", BODY)
    pass_time(reconciled, 20.0)

    assert reconciled.run().oldest_open_seconds == pytest.approx(120.0, abs=1.0)


def test_without_an_open_job_of_a_running_connector_the_age_is_zero(reconciled: Reconciled) -> None:
    job = reconciled.registered("key", BODY)
    pass_time(reconciled, 100.0)
    reconciled.world.ledger.connectors.set_state(job.connector, ConnectorState.PAUSED)
    paused = reconciled.run()

    reconciled.world.ledger.jobs.end(job.id, JobState.CANCELLED, "a test")
    reconciled.world.ledger.connectors.set_state(job.connector, ConnectorState.ENABLED)
    ended = reconciled.run()
    reconciled.world.ledger.jobs.resume(job.id)
    replayed = reconciled.run()

    ages = [report.oldest_open_seconds for report in (paused, ended, replayed)]
    assert ages == [0.0, 0.0, 0.0]


# -- PLANNING -------------------------------------------------------------------------------------


def test_a_planner_killed_before_it_sends_only_delays_the_job(
    reconciled: Reconciled,
) -> None:
    job = reconciled.registered("key", BODY)
    pass_time(reconciled)

    report = reconciled.run()
    reconciled.work()

    assert (report.jobs_resumed, report.problems) == (1, 0)
    assert reconciled.state_of(job) is JobState.DONE
    assert reconciled.world.delivered() == expected(BODY)


def test_a_job_is_planned_on_from_its_cursor(reconciled: Reconciled) -> None:
    job = reconciled.registered("key", b"x" * 4 * (2 * PAGE_EXTENTS + 1))
    reconciled.dispatch.start(job, late=lambda: True)  # one page, then the planner is gone
    pass_time(reconciled)

    reconciled.run()

    assert ordinals(reconciled.queue.sent) == list(range(2 * PAGE_EXTENTS + 1))
    assert reconciled.state_of(job) is JobState.RUNNING


def test_a_job_that_was_just_registered_is_left_to_its_planner(reconciled: Reconciled) -> None:
    job = reconciled.registered("key")
    pass_time(reconciled, PATIENCE.grace_seconds - 1)

    report = reconciled.run()

    assert (report.jobs_resumed, reconciled.queue.sent) == (0, [])
    assert reconciled.state_of(job) is JobState.PLANNING


def test_a_plan_that_takes_several_runs_continues_with_each(reconciled: Reconciled) -> None:
    job = reconciled.registered("key", b"x" * 4 * PAGE_EXTENTS * 3)
    resumed = []

    for _ in range(3):
        pass_time(reconciled)
        sent = len(reconciled.queue.sent)
        late = partial(_sent_more, reconciled, sent)
        resumed.append(reconciled.run(late=late).jobs_resumed)

    assert resumed == [1, 1, 1]
    assert ordinals(reconciled.queue.sent) == list(range(3 * PAGE_EXTENTS))
    assert (
        reconciled.state_of(job) is JobState.PLANNING
    )  # its last page was sent, and no time was left
    pass_time(reconciled)
    reconciled.run()
    assert reconciled.state_of(job) is JobState.RUNNING
    assert len(reconciled.queue.sent) == 3 * PAGE_EXTENTS


def test_a_job_whose_cursor_moves_is_left_to_its_planner_until_it_stops(
    reconciled: Reconciled,
) -> None:
    job = reconciled.registered("key", b"x" * 4 * PAGE_EXTENTS * 5)
    pass_time(reconciled)
    reconciled.run(late=lambda: bool(reconciled.queue.sent))
    resumed = []
    for _ in range(2):
        reconciled.dispatch.start(reconciled.queued.now(job), late=lambda: True)
        pass_time(reconciled)
        resumed.append(reconciled.run().jobs_resumed)

    pass_time(reconciled)
    last = reconciled.run()

    assert resumed == [0, 0]
    assert last.jobs_resumed == 1
    assert ordinals(reconciled.queue.sent) == list(range(5 * PAGE_EXTENTS))


def test_an_object_that_cannot_be_planned_ends_its_own_job_only(reconciled: Reconciled) -> None:
    bad, good = reconciled.registered("bad"), reconciled.registered("good")

    def opened(job: Job) -> tuple[Format, RangeSource]:
        if job.id == bad.id:
            raise ObjectGone(job.version.uri)
        return reconciled._open(job)

    reconciled.open = opened
    pass_time(reconciled)

    report = reconciled.run()

    assert (report.jobs_failed, report.problems) == (1, 0)
    assert [reconciled.state_of(job) for job in (bad, good)] == [JobState.FAILED, JobState.RUNNING]


@pytest.mark.parametrize("error", [LedgerUnavailable("unavailable"), ZeroDivisionError("a defect")])
def test_trap_t09_a_job_that_makes_trouble_holds_up_no_other(
    reconciled: Reconciled, error: Exception
) -> None:
    jobs = [reconciled.registered(f"{number}") for number in range(3)]

    def opened(job: Job) -> tuple[Format, RangeSource]:
        if job.id == jobs[1].id:
            raise error
        return reconciled._open(job)

    reconciled.open = opened
    pass_time(reconciled)

    report = reconciled.run()

    assert (report.jobs_resumed, report.problems) == (2, 1)
    assert [reconciled.state_of(job) for job in jobs] == [
        JobState.RUNNING,
        JobState.PLANNING,
        JobState.RUNNING,
    ]


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_a_job_is_not_planned_while_its_connector_does_not_run(
    reconciled: Reconciled, state: ConnectorState
) -> None:
    job = reconciled.registered("key")
    reconciled.want(state)
    reconciled.run_for(HOUR)
    before = reconciled.state_of(job), list(reconciled.queue.sent)

    reconciled.want(ConnectorState.ENABLED)
    reconciled.run()

    assert before == (JobState.PLANNING, [])
    assert reconciled.state_of(job) is JobState.RUNNING


def test_jobs_of_a_deleted_connector_are_resumed(reconciled: Reconciled) -> None:
    job = reconciled.registered("key")
    reconciled.ledger.connectors.delete("c")
    pass_time(reconciled)

    reconciled.run()

    assert reconciled.state_of(job) is JobState.RUNNING


def test_a_job_of_another_cluster_is_closed_and_neither_planned_nor_sent(
    reconciled: Reconciled,
) -> None:
    foreign = replace(reconciled.registered("key"), id="foreign", cluster="another")
    stuck = reconciled.ledger.jobs.register(foreign)
    lost = reconciled.ledger.jobs.register(
        replace(foreign, id="lost", state=JobState.RUNNING, plan=Plan(target_bytes=4, count=2))
    )
    done = reconciled.ledger.jobs.register(replace(foreign, id="done", state=JobState.RUNNING))
    reconciled.ledger.jobs.end(
        reconciled.registered("key").id, JobState.CANCELLED, "only its values were needed"
    )

    report = reconciled.run_for(DAY)

    assert (reconciled.queue.sent, report.problems) == ([], 0)
    assert [reconciled.state_of(job) for job in (stuck, lost, done)] == [
        JobState.PLANNING,
        JobState.RUNNING,
        JobState.DONE,
    ]


# -- RUNNING: closing -----------------------------------------------------------------------------


def test_a_job_whose_last_worker_died_before_closing_it_is_closed(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    for ordinal in range(3):
        complete(reconciled, job, ordinal)

    report = reconciled.run()

    assert (report.jobs_closed, report.jobs_failed) == (1, 0)
    assert reconciled.state_of(job) is JobState.DONE


def test_a_job_that_nothing_is_left_of_but_failures_is_closed_as_failed(
    reconciled: Reconciled,
) -> None:
    job = reconciled.sent("key", BODY)
    complete(reconciled, job, 0)
    fail(reconciled, job, 1)
    fail(reconciled, job, 2)

    report = reconciled.run()

    assert (report.jobs_closed, report.jobs_failed) == (1, 1)
    assert reconciled.state_of(job) is JobState.FAILED


def test_a_job_whose_extents_are_not_all_final_is_never_ended(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    complete(reconciled, job, 0)
    fail(reconciled, job, 1)
    reconciled.lose_messages()

    report = reconciled.run_for(8 * DAY)

    assert (report.jobs_closed, reconciled.state_of(job)) == (0, JobState.RUNNING)


# -- RUNNING: lost messages -----------------------------------------------------------------------


def test_lost_messages_are_sent_again_and_every_record_arrives_once(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    complete(reconciled, job, 0)
    assert reconciled.lose_messages() == 3

    report = reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)
    reconciled.work()

    assert (report.messages_resent, report.problems) == (2, 0)
    assert ordinals(reconciled.queue.sent[3:]) == [1, 2]
    assert reconciled.state_of(job) is JobState.DONE
    assert sorted(reconciled.world.delivered()) == sorted(expected(BODY)[4:])


def test_nothing_is_sent_again_before_a_job_stood_still_for_long_enough(
    reconciled: Reconciled,
) -> None:
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    report = reconciled.run_for(STALL_SECONDS)

    assert (report.messages_resent, report.jobs_stalled) == (0, 0)


def test_patience_doubles_each_time_messages_were_sent_in_vain(reconciled: Reconciled) -> None:
    reconciled.sent("key")
    reconciled.lose_messages()
    moments = []

    for _ in range(int(DAY / EVERY_SECONDS)):
        pass_time(reconciled, EVERY_SECONDS)
        if reconciled.run().messages_resent:
            moments.append(reconciled.world.ticker.now)
        reconciled.lose_messages()

    between = [later - earlier for earlier, later in pairwise(moments)]
    assert between == [STALL_SECONDS * 2**power for power in range(1, 6)]


def test_a_job_that_moved_again_is_watched_as_if_it_had_never_stood_still(
    reconciled: Reconciled,
) -> None:
    job = reconciled.sent("key", BODY)
    reconciled.lose_messages()
    reconciled.run_for(DAY)
    reconciled.lose_messages()
    complete(reconciled, job, 0)

    report = reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)

    assert report.messages_resent == 2


def test_a_stalled_job_is_reported_in_every_run_until_it_moves(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    reconciled.lose_messages()
    reconciled.run_for(STALL_SECONDS + 2 * EVERY_SECONDS)

    stalled = [reconciled.run_for(EVERY_SECONDS).jobs_stalled for _ in range(5)]
    complete(reconciled, job, 0)

    assert stalled == [1] * 5
    assert reconciled.run_for(EVERY_SECONDS).jobs_stalled == 0


@pytest.mark.parametrize(
    ("ownership", "expected"), [(RunOwnership.OWN, 1), (RunOwnership.SHARED, 0)]
)
def test_jobs_of_a_spark_run_are_left_to_it(ownership: RunOwnership, expected: int) -> None:
    reconciled = Reconciled(ownership=lambda _job: ownership)
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    report = reconciled.run_for(2 * STALL_SECONDS)

    assert report.messages_resent == 0
    assert bool(report.jobs_stalled) == bool(expected)


@pytest.mark.parametrize("ownership", [RunOwnership.OWN, RunOwnership.SHARED])
def test_a_run_that_has_a_job_for_more_than_a_day_is_not_waited_for(
    ownership: RunOwnership,
) -> None:
    reconciled = Reconciled(ownership=lambda _job: ownership)
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    report = reconciled.run_for(DAY + 3 * EVERY_SECONDS)

    assert report.messages_resent == 3
    assert report.jobs_stalled > 0


def test_without_a_known_owner_the_stall_threshold_is_higher() -> None:
    reconciled = Reconciled(ownership=lambda _job: RunOwnership.UNKNOWN)
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    early = reconciled.run_for(BACKLOG_FACTOR * STALL_SECONDS)
    late = reconciled.run_for(3 * EVERY_SECONDS)

    assert (early.messages_resent, late.messages_resent) == (0, 3)


@pytest.mark.parametrize("ownership", [RunOwnership.OWN, RunOwnership.SHARED, RunOwnership.UNKNOWN])
def test_what_a_run_has_not_planned_yet_is_left_to_it(ownership: RunOwnership) -> None:
    reconciled = Reconciled(ownership=lambda _job: ownership)
    reconciled.registered("key", BODY)

    report = reconciled.run_for(4 * EVERY_SECONDS)
    reconciled.ownership = lambda _job: RunOwnership.NONE
    then = reconciled.run_for(2 * EVERY_SECONDS)

    assert (report.jobs_resumed, then.jobs_resumed) == (0, 1)


def test_the_rest_of_an_unreported_run_is_sent_once_at_once() -> None:
    reconciled = Reconciled(ownership=lambda _job: RunOwnership.GONE)
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    soon = reconciled.run_for(3 * EVERY_SECONDS)
    reconciled.lose_messages()
    then = reconciled.run_for(STALL_SECONDS)

    assert (soon.messages_resent, then.messages_resent) == (3, 0)


@pytest.mark.parametrize("planned", [False, True])
def test_a_stalled_job_that_functions_never_deliver_fails_with_the_reason(planned: bool) -> None:  # noqa: FBT001
    reconciled = Reconciled()
    job = reconciled.sent("key", BODY) if planned else reconciled.registered("key", BODY)
    reconciled.lose_messages()
    reconciled.queue.sent.clear()
    reconciled.refusal = lambda job: f"{job.version.uri}: one frame"

    report = reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)

    assert (report.jobs_failed, report.messages_resent, reconciled.queue.sent) == (1, 0, [])
    assert reconciled.queued.now(job).reason == f"{job.version.uri}: one frame"
    assert report.problems == 0


@pytest.mark.parametrize("planned", [False, True])
def test_a_stalled_job_that_functions_never_deliver_gets_a_run(planned: bool) -> None:  # noqa: FBT001
    reconciled = Reconciled()
    job = reconciled.sent("key", BODY) if planned else reconciled.registered("key", BODY)
    reconciled.lose_messages()
    reconciled.queue.sent.clear()
    reconciled.refusal, reconciled.spark = (
        lambda job: f"{job.version.uri}: one frame",
        MemoryJobRuns(),
    )

    reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)

    (run,) = reconciled.spark.started.values()
    assert run.arguments == ("--job", job.id, "--json")
    assert (reconciled.state_of(job), reconciled.queue.sent) == (JobState.RUNNING, [])


def test_a_stalled_job_that_the_planner_did_not_give_to_spark_gets_its_run() -> None:
    reconciled = Reconciled(spark=MemoryJobRuns())
    reconciled.registered("key", BODY)

    reconciled.run_for(2 * EVERY_SECONDS)

    assert reconciled.spark is not None
    assert (len(reconciled.spark.started), reconciled.queue.sent) == (1, [])


def test_an_object_only_for_spark_gets_another_run_after_one_that_ended() -> None:
    reconciled = Reconciled(
        spark=MemoryJobRuns(), refusal=lambda job: f"{job.version.uri}: one frame"
    )
    job = reconciled.registered("key", BODY)
    reconciled.run_for(2 * EVERY_SECONDS)
    assert reconciled.spark is not None
    for run_id in reconciled.spark.states:
        reconciled.spark.states[run_id] = RunStatus(RunState.FAILED)

    reconciled.run_for(3 * EVERY_SECONDS)

    assert (len(reconciled.spark.started), reconciled.queue.sent) == (2, [])
    assert reconciled.state_of(job) is JobState.RUNNING


def test_hours_without_the_service_of_runs_do_not_delay_a_stalled_job_further() -> None:
    reconciled = Reconciled()
    job = reconciled.sent("key", BODY)
    reconciled.lose_messages()
    reconciled.refusal, reconciled.spark = (
        lambda job: f"{job.version.uri}: one frame",
        MemoryJobRuns(),
    )
    reconciled.spark.failures = 1_000

    outage = reconciled.run_for(8 * HOUR)
    reconciled.spark.failures = 0
    reconciled.run_for(STALL_SECONDS + 2 * EVERY_SECONDS)

    assert outage.problems >= 8
    assert len(reconciled.spark.started) == 1
    assert reconciled.state_of(job) is JobState.RUNNING


def test_hours_without_the_state_of_its_run_do_not_delay_a_job_further() -> None:
    reconciled = Reconciled(
        spark=MemoryJobRuns(), refusal=lambda job: f"{job.version.uri}: one frame"
    )
    job = reconciled.registered("key", BODY)
    reconciled.run_for(2 * EVERY_SECONDS)
    assert reconciled.spark is not None
    for run_id in reconciled.spark.states:
        reconciled.spark.states[run_id] = RunStatus(RunState.FAILED)
    reconciled.spark.failures = 10_000

    outage = reconciled.run_for(24 * HOUR)
    reconciled.spark.failures = 0
    reconciled.run_for(2 * EVERY_SECONDS)

    assert outage.problems >= 3
    assert len(reconciled.spark.started) == 2
    assert reconciled.state_of(job) is JobState.RUNNING


@pytest.mark.parametrize("planned", [False, True])
def test_jobs_of_an_application_that_was_replaced_continue(planned: bool) -> None:  # noqa: FBT001
    reconciled = Reconciled(spark=MemoryJobRuns())
    job = reconciled.sent("key", BODY) if planned else reconciled.registered("key", BODY)
    reconciled.lose_messages()
    old = SubmittedRuns(MemoryJobRuns(), reconciled.ledger)
    if planned:
        old.begin_job(job)
    else:
        old.begin_shared("backfill", job.connector, [])

    reconciled.run_for(3 * EVERY_SECONDS)
    reconciled.work()

    if planned:
        assert reconciled.state_of(job) is JobState.DONE
    else:
        assert reconciled.spark is not None
        assert len(reconciled.spark.started) == 1


@pytest.mark.parametrize("service", ["queue", "store"])
def test_hours_without_queue_or_store_do_not_delay_a_stalled_job_further(service: str) -> None:
    reconciled = Reconciled()
    job = reconciled.sent("key", BODY)
    reconciled.lose_messages()
    is_out = True

    def fail_to_send(name: str) -> None:
        if is_out and service == "queue" and name == "send":
            raise QueueUnavailable("throttled")

    def fail_to_open(job: Job) -> tuple[Format, RangeSource]:
        if is_out and service == "store":
            raise StoreUnavailable("503")
        return reconciled._open(job)

    reconciled.queue.on_call, reconciled.open = fail_to_send, fail_to_open

    outage = reconciled.run_for(12 * HOUR)
    is_out = False
    reconciled.run_for(STALL_SECONDS + 2 * EVERY_SECONDS)
    reconciled.work()

    assert outage.problems >= 12
    assert outage.messages_resent == 0
    assert reconciled.state_of(job) is JobState.DONE


def test_failed_extents_are_never_sent_again_for_that_would_be_a_replay(
    reconciled: Reconciled,
) -> None:
    job = reconciled.sent("key", BODY)
    fail(reconciled, job, 1)
    reconciled.lose_messages()

    reconciled.run_for(DAY)

    assert set(ordinals(reconciled.queue.sent[3:])) == {0, 2}


def test_of_an_ordered_job_only_the_next_extent_is_sent_again(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY, ordered=True)
    complete(reconciled, job, 0)
    reconciled.lose_messages()

    reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)
    sent = ordinals(reconciled.queue.sent)
    reconciled.work()

    assert sent == [0, 1]
    assert reconciled.state_of(job) is JobState.DONE


# -- RUNNING: nothing is sent while there is progress ----------------------------------------------


def test_nothing_is_sent_again_while_extents_become_final(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", b"x" * 4 * 20)
    reconciled.lose_messages()
    resent = 0

    for ordinal in range(19):
        complete(reconciled, job, ordinal)
        resent += reconciled.run_for(STALL_SECONDS - EVERY_SECONDS).messages_resent

    assert resent == 0


def test_nothing_is_sent_again_while_a_claim_moves(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", b"x" * 4 * 20)
    reconciled.lose_messages()
    slots, held = claim(reconciled, job, 0)
    resent = 0

    for position in range(1, 4):
        for _ in range(2):
            pass_time(reconciled, EVERY_SECONDS)
            reconciled.ledger.slots.renew(held.lease, lease_seconds=3)
            resent += reconciled.run().messages_resent
        slots.commit(held, position=position, records=position, bad=0, filtered=0)
        resent += reconciled.run().messages_resent

    assert resent == 0
    assert reconciled.ledger.extents.get(job.id, 0).claim == held.mark


def test_a_claim_that_is_held_and_does_not_move_is_no_progress(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    reconciled.lose_messages()
    _, held = claim(reconciled, job, 0)
    reconciled.ledger.slots.renew(held.lease, lease_seconds=DAY)

    report = reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)

    assert report.messages_resent == 3  # the holder's own message absorbs the first


def test_messages_that_only_wait_are_not_doubled_for_a_long_time(reconciled: Reconciled) -> None:
    reconciled.sent("key", BODY)

    soon = reconciled.run_for(BACKLOG_FACTOR * STALL_SECONDS)
    late = reconciled.run_for(BACKLOG_FACTOR * STALL_SECONDS)

    assert (soon.messages_resent, late.messages_resent) == (0, 3)
    assert soon.jobs_stalled > 0


def test_doubled_messages_do_no_harm(reconciled: Reconciled) -> None:
    job = reconciled.sent("key", BODY)
    reconciled.run_for(2 * BACKLOG_FACTOR * STALL_SECONDS)
    assert len(reconciled.queue.messages) == 6

    reconciled.work()

    assert reconciled.state_of(job) is JobState.DONE
    assert sorted(reconciled.world.delivered()) == sorted(expected(BODY))
    assert reconciled.queued.reasons() == []


def test_a_queue_of_unknown_depth_counts_as_full(reconciled: Reconciled) -> None:
    reconciled.sent("key", BODY)
    reconciled.lose_messages()

    def on_call(name: str) -> None:
        if name == "depth":
            raise QueueUnavailable("not today")

    reconciled.queue.on_call = on_call

    report = reconciled.run_for(STALL_SECONDS + 3 * EVERY_SECONDS)

    assert (report.messages_resent, report.problems) == (0, 0)


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_a_pause_does_not_count_as_a_stall(reconciled: Reconciled, state: ConnectorState) -> None:
    reconciled.sent("key", BODY)
    reconciled.lose_messages()
    reconciled.run_for(HOUR / 4)
    reconciled.want(state)
    idle = reconciled.run_for(DAY)

    reconciled.want(ConnectorState.ENABLED)
    at_first = reconciled.run_for(STALL_SECONDS)
    then = reconciled.run_for(3 * EVERY_SECONDS)

    assert (idle.messages_resent, idle.jobs_stalled) == (0, 0)
    assert (at_first.messages_resent, then.messages_resent) == (0, 3)


def test_the_next_run_does_not_repeat_what_a_dead_one_sent(
    reconciled: Reconciled,
) -> None:
    reconciled.sent("key", BODY)
    reconciled.lose_messages()
    reconciled.run_for(STALL_SECONDS + EVERY_SECONDS)

    def on_answer(name: str) -> None:
        if name == "send":
            raise QueueUnavailable("the response was lost")

    reconciled.queue.on_answer = on_answer
    broken = reconciled.run_for(EVERY_SECONDS)
    reconciled.queue.on_answer = lambda _name: None
    reconciled.lose_messages()
    next_one = reconciled.run_for(EVERY_SECONDS)

    assert (broken.problems, len(reconciled.queue.sent)) == (1, 6)
    assert next_one.messages_resent == 0


# -- many jobs ------------------------------------------------------------------------------------


def test_with_little_time_every_job_gets_its_turn_over_several_runs(reconciled: Reconciled) -> None:
    jobs = [reconciled.registered(f"{number:02}") for number in range(20)]
    pass_time(reconciled)
    resumed = 0

    for _ in range(20):
        sent = len(reconciled.queue.sent)
        resumed += reconciled.run(late=partial(_sent_more, reconciled, sent + 4)).jobs_resumed

    assert {reconciled.state_of(job) for job in jobs} == {JobState.RUNNING}
    assert resumed >= 20


def test_jobs_that_keep_failing_do_not_keep_time_from_those_behind_them(
    reconciled: Reconciled,
) -> None:
    """Three may be tried per run, and the three that come first always fail."""
    jobs = [reconciled.registered(f"{number}") for number in range(9)]
    failing = {job.id for job in jobs[:3]}
    tried: set[str] = set()

    def opened(job: Job) -> tuple[Format, RangeSource]:
        tried.add(job.id)
        if job.id in failing:
            raise LedgerUnavailable("unavailable")
        return reconciled._open(job)

    reconciled.open = opened
    pass_time(reconciled)

    for _ in range(6):
        tried.clear()
        reconciled.run(late=lambda: len(tried) >= 3)

    assert [reconciled.state_of(job) for job in jobs] == [JobState.PLANNING] * 3 + [
        JobState.RUNNING
    ] * 6


def test_busy_connector_leaves_time_for_the_others(reconciled: Reconciled) -> None:
    """One job may be planned per run, and `a` has a new one each time."""
    tried: set[str] = set()

    def opened(job: Job) -> tuple[Format, RangeSource]:
        tried.add(job.id)
        return reconciled._open(job)

    for name in "abc":
        reconciled.connector(name, prefix=f"{name}/")
    quiet = [reconciled.registered(f"{name}/0", connector=name) for name in "bc"]
    reconciled.open = opened

    for number in range(30):
        reconciled.registered(f"a/{number}", connector="a")
        pass_time(reconciled)
        tried.clear()
        reconciled.run(late=lambda: bool(tried))

    assert {reconciled.state_of(job) for job in quiet} == {JobState.RUNNING}


# -- patience -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resent", "empty_queue", "seconds"),
    [
        (0, True, 900),
        (1, True, 1_800),
        (0, False, 7_200),
        (3, False, 57_600),
        (4, False, LONGEST_WAIT_SECONDS),
        (10_000, True, LONGEST_WAIT_SECONDS),
    ],
)
def test_patience_grows_and_is_bounded(resent: int, seconds: float, *, empty_queue: bool) -> None:
    assert StallThresholds().until_resent(resent, empty_queue=empty_queue) == seconds
