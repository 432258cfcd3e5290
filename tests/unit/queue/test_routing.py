"""Who delivers a new job: the queue's functions, or a run of Spark; and what a run's end leaves."""

from dataclasses import replace

import pytest
from tests.support.golden import Golden
from tests.support.queued import Queued, ordinals

from extentflow.config.connector_keys import AUTO, LAMBDA, SPARK
from extentflow.engines.remote import Run, RunState, RunStatus
from extentflow.engines.submitted_runs import (
    CACHE_SECONDS,
    OnCompletion,
    RunOwnership,
    SubmittedRuns,
)
from extentflow.errors import Misconfigured, NotOffered, RunsUnavailable
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Job, JobState
from extentflow.queue import Backfill
from extentflow.queue.routing import JobRouter
from extentflow.testing.services import MemoryJobRuns

BODY = b"abcdefghij"


def registered(queued: Queued, body: bytes = BODY, key: str = "key") -> Job:
    """A job as the planner has it before anything of it is planned."""
    return queued.world.planner.register(queued.world.request(queued.world.put(body, key)))


def pass_a_minute(queued: Queued) -> None:
    """Let time pass, until what was heard of a run does not count any more."""
    queued.world.ticker.now += CACHE_SECONDS


def routing(
    queued: Queued, runs: MemoryJobRuns | None, threshold_bytes: int = 9, engine: str = AUTO
) -> JobRouter:
    started = None
    if runs is not None:
        started = SubmittedRuns(
            runs, queued.world.ledger, monotonic=queued.world.ticker.clock.monotonic
        )
    return JobRouter(queued.dispatch, started, threshold_bytes, lambda _job: engine)


class Counted(MemoryJobRuns):
    """Counts who asks where runs stand."""

    looks = 0

    def describe(self, run_id: str) -> RunStatus:
        self.looks += 1
        return super().describe(run_id)


class Refused(MemoryJobRuns):
    """A launcher that may not start runs."""

    def start(self, run: Run) -> str:
        raise Misconfigured(f"no permission to start {run.token}")


def test_a_large_job_goes_to_a_spark_run_and_not_to_the_queue() -> None:
    queued, runs = Queued(), MemoryJobRuns()

    job = routing(queued, runs).start(registered(queued))

    (run,) = runs.started.values()
    assert (job.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert (run.subject, run.number) == (job.id, 0)
    assert run.arguments == ("--job", job.id, "--json")


@pytest.mark.parametrize("threshold_bytes", [len(BODY), 1 << 40])
def test_up_to_the_threshold_the_queue_has_it(threshold_bytes: int) -> None:
    queued, runs = Queued(), MemoryJobRuns()

    routing(queued, runs, threshold_bytes).start(registered(queued))

    assert (runs.started, len(queued.queue.messages)) == ({}, 3)


def test_without_an_application_the_queue_has_everything() -> None:
    queued = Queued()

    routing(queued, None).start(registered(queued))

    assert len(queued.queue.messages) == 3


@pytest.mark.parametrize("unclear", [False, True])
def test_where_no_run_can_be_had_the_queue_has_it(unclear: bool) -> None:  # noqa: FBT001
    queued, runs = Queued(), MemoryJobRuns(unclear=unclear)
    runs.failures = 1

    job = routing(queued, runs).start(registered(queued))

    assert job.state is JobState.RUNNING
    assert ordinals(queued.queue.sent) == [0, 1, 2]


@pytest.mark.parametrize("runs", [None, MemoryJobRuns(), Refused()])
def test_what_functions_can_never_deliver_goes_to_spark_or_fails_with_the_reason(
    runs: MemoryJobRuns | None,
) -> None:
    queued = Queued()
    route = replace(routing(queued, runs), refusal=lambda job: f"{job.version.uri}: one frame")

    job = route.start(registered(queued))

    assert queued.queue.messages == []
    if runs is not None and runs.started:
        assert job.state is JobState.RUNNING
        return
    assert job.state is JobState.FAILED
    assert job.reason.startswith(f"{job.version.uri}: one frame")
    assert ("no permission to start" in job.reason) is (runs is not None)


@pytest.mark.parametrize("unclear", [False, True])
def test_an_outage_of_the_service_of_runs_does_not_end_a_job_of_spark(unclear: bool) -> None:  # noqa: FBT001
    queued, runs = Queued(), MemoryJobRuns(unclear=unclear)
    route = replace(routing(queued, runs), refusal=lambda job: f"{job.version.uri}: one frame")
    job = registered(queued)
    runs.failures = 1

    with pytest.raises(RunsUnavailable):
        route.start(job)
    before = queued.now(job).state
    again = route.start(queued.now(job))
    route.start(queued.now(job))

    assert (before, again.state) == (JobState.RUNNING, JobState.RUNNING)
    assert (len(runs.started), queued.queue.messages) == (1, [])
    assert route.ownership(job) is RunOwnership.OWN


def test_a_job_that_a_worker_delivers_is_not_ended_for_want_of_a_run() -> None:
    queued = Queued()
    job = queued.world.planner.plan(registered(queued))
    slots = queued.world.slots()
    assert isinstance(slots.claim(queued.world.extents(job)[0], ProducerSettings()), Claim)
    route = replace(routing(queued, Refused()), refusal=lambda job: f"{job.version.uri}: one frame")

    sent = [route.resend(queued.now(job), stall="1")]
    held = queued.now(job).state
    slots.drop()
    queued.world.ticker.now += 3_600
    sent.append(route.resend(queued.now(job), stall="2"))

    assert (held, sent, queued.queue.messages) == (JobState.RUNNING, [0, 0], [])
    assert queued.now(job).state is JobState.FAILED


def test_what_a_run_left_of_an_object_that_functions_never_deliver_is_not_sent_to_them() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = replace(routing(queued, runs), refusal=lambda job: f"{job.version.uri}: one frame")
    job = route.start(registered(queued))
    runs.states["0" * 16] = RunStatus(RunState.FAILED)

    sent = route.ended("0" * 16, RunState.FAILED)
    pass_a_minute(queued)
    for _ in range(2):
        sent += route.resend(queued.now(job), stall="1")

    assert (sent, queued.queue.messages) == (0, [])
    assert [run.arguments for run in runs.started.values()] == [("--job", job.id, "--json")] * 2
    assert route.ownership(job) is RunOwnership.OWN


@pytest.mark.parametrize("runs", [None, MemoryJobRuns()])
def test_a_reopened_job_that_functions_never_deliver_is_not_sent_to_them(
    runs: MemoryJobRuns | None,
) -> None:
    queued = Queued()
    job = queued.world.planner.plan(registered(queued))
    queued.world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version came")
    reopened = queued.world.planner.replay(queued.now(job))
    route = replace(routing(queued, runs), refusal=lambda job: f"{job.version.uri}: one frame")

    again = route.start(reopened)

    assert (again.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert runs is None or len(runs.started) == 1


def test_settings_that_are_wrong_hold_up_no_job() -> None:
    queued = Queued()

    routing(queued, Refused()).start(registered(queued))

    assert ordinals(queued.queue.sent) == [0, 1, 2]


def test_a_job_that_is_under_way_gets_no_second_run() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))

    again = route.start(job)

    assert (again.id, len(runs.started), queued.queue.messages) == (job.id, 1, [])


def test_what_a_dead_run_left_undone_goes_to_the_queue() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    first = next(iter(queued.world.planner.extents(job)))
    queued.dispatch.resend(job, below=1)
    queued.drain(queued.worker())
    assert first.ordinal == 0

    sent = route.ended("0" * 16, RunState.FAILED)
    queued.drain(queued.worker())

    assert (sent, ordinals(queued.queue.sent)) == (2, [0, 1, 2])
    assert queued.now(job).state is JobState.DONE
    assert route.ended("0" * 16, RunState.FAILED) == 0


def test_a_run_of_another_program_is_ignored() -> None:
    queued = Queued()

    assert routing(queued, MemoryJobRuns()).ended("unknown", RunState.FAILED) == 0
    assert queued.queue.messages == []


@pytest.mark.parametrize(
    ("engine", "threshold_bytes", "by_run"),
    [(LAMBDA, 1, False), (SPARK, 1 << 40, True), (AUTO, 9, True), (AUTO, 10, False)],
)
def test_a_connector_may_want_one_engine_whatever_the_size(
    engine: str, threshold_bytes: int, *, by_run: bool
) -> None:
    queued, runs = Queued(), MemoryJobRuns()

    routing(queued, runs, threshold_bytes, engine).start(registered(queued))

    assert (len(runs.started), len(queued.queue.messages)) == ((1, 0) if by_run else (0, 3))


def test_a_large_job_that_is_reopened_gets_another_run() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    queued.world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version came")

    again = route.start(queued.world.planner.replay(queued.now(job)))

    assert (again.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert [run.number for run in runs.started.values()] == [0, 1]


# -- which run has a job --------------------------------------------------------------------------


def test_a_run_owns_its_job_until_its_end_is_reported() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))

    held = [route.ownership(job)]
    runs.states["0" * 16] = RunStatus(RunState.FAILED)
    pass_a_minute(queued)
    held.append(route.ownership(job))
    route.ended("0" * 16, RunState.FAILED)
    held.append(route.ownership(job))

    assert held == [RunOwnership.OWN, RunOwnership.GONE, RunOwnership.NONE]


def test_the_owner_is_unknown_while_a_runs_state_is_unknown() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    runs.failures = 1

    held = [route.ownership(job), route.ownership(job)]  # the second sends no request
    pass_a_minute(queued)

    assert held == [RunOwnership.UNKNOWN, RunOwnership.UNKNOWN]
    assert route.ownership(job) is RunOwnership.OWN


def test_a_look_at_many_jobs_asks_about_their_run_once() -> None:
    queued, runs = Queued(), Counted()
    route = routing(queued, runs)
    route.backfill(WANTED)
    jobs = [registered(queued, BODY, f"in/{number}") for number in range(5)]

    assert {route.ownership(job) for job in jobs} == {RunOwnership.SHARED}
    assert runs.looks == 1


def test_a_late_end_event_does_not_release_a_later_runs_job() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    queued.world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version came")
    job = route.start(queued.world.planner.replay(queued.now(job)))

    sent = route.ended("0" * 16, RunState.CANCELLED)

    assert (sent, queued.queue.messages) == (0, [])
    assert route.ownership(job) is RunOwnership.OWN


# -- backfills ------------------------------------------------------------------------------------

WANTED = Backfill("b1", "c", ("s3://bucket/in/", "s3://bucket/*.csv"))


def test_a_backfill_is_one_run_however_often_it_is_asked_for() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)

    route.backfill(WANTED)
    route.backfill(WANTED)

    (run,) = runs.started.values()
    assert (run.subject, run.number) == ("b1", 0)
    assert run.arguments == ("--connector", "c", "--json", *WANTED.addresses)


def test_only_the_jobs_below_a_backfills_addresses_wait_for_its_run() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    within, globbed, outside = (registered(queued, BODY, key) for key in ("in/a", "b.csv", "out/a"))
    elsewhere = Backfill("b2", "c", ("s3://bucket/out/",))

    before = route.ownership(within)
    route.backfill(replace(WANTED, addresses=("s3://bucket/in/", "s3://bucket/b*.csv")))
    during = [route.ownership(job) for job in (within, globbed, outside)]
    route.backfill(elsewhere)
    with_another = [route.ownership(job) for job in (within, outside)]
    route.ended(f"{1:016x}", RunState.SUCCESS)
    after_it = [route.ownership(job) for job in (within, outside)]
    route.ended("0" * 16, RunState.SUCCESS)

    assert before is RunOwnership.NONE
    assert during == [RunOwnership.SHARED, RunOwnership.SHARED, RunOwnership.NONE]
    assert with_another == [RunOwnership.SHARED, RunOwnership.SHARED]
    assert after_it == [RunOwnership.SHARED, RunOwnership.NONE]
    assert route.ownership(within) is RunOwnership.NONE


def test_an_unreported_end_of_a_backfills_run_is_detected() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)
    runs.states["0" * 16] = RunStatus(RunState.FAILED)

    assert route.ownership(registered(queued, key="in/a")) is RunOwnership.NONE


def test_a_backfill_whose_run_failed_gets_one_more_and_then_no_other() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)
    job = registered(queued, key="in/a")

    route.ended("0" * 16, RunState.FAILED)
    route.ended("0" * 16, RunState.FAILED)
    second = f"{1:016x}"
    held = route.ownership(job)
    route.ended(second, RunState.FAILED)

    assert [(run.subject, run.number) for run in runs.started.values()] == [("b1", 0), ("b1", 1)]
    assert len({run.arguments for run in runs.started.values()}) == 1
    assert held is RunOwnership.SHARED
    assert route.ownership(job) is RunOwnership.NONE


def test_a_backfill_that_no_run_can_deliver_any_more_gets_no_other_run() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)
    registered(queued, key="in/a")
    changed = replace(route, absent=lambda connector: f"connector {connector}: secret=${{env:X}}")

    changed.ended("0" * 16, RunState.FAILED)

    assert len(runs.started) == 1
    with pytest.raises(NotOffered, match=r"backfill b2: connector c: secret="):
        changed.backfill(replace(WANTED, id="b2"))


def test_a_backfill_whose_driver_died_before_it_made_a_job_gets_one_more() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    older = registered(queued, key="in/older")
    queued.world.ledger.jobs.end(older.id, JobState.FAILED, "bad bytes")
    queued.world.ticker.now += 1
    route = routing(queued, runs)
    route.backfill(WANTED)

    route.ended("0" * 16, RunState.FAILED)

    assert len(runs.started) == 2


def test_a_backfill_without_open_jobs_of_its_own_gets_no_other_run() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    route.backfill(replace(WANTED, addresses=("s3://bucket/in/",)))
    queued.world.ticker.now += 1
    bad, other = registered(queued, key="in/bad"), registered(queued, key="out/other")
    queued.world.ledger.jobs.end(bad.id, JobState.FAILED, "bad bytes")

    route.ended("0" * 16, RunState.FAILED)

    assert len(runs.started) == 1
    assert queued.now(other).state.open


@pytest.mark.parametrize("state", [ConnectorState.PAUSED, ConnectorState.STOPPED])
def test_a_backfill_of_a_paused_connector_gets_no_other_run(state: ConnectorState) -> None:
    queued, runs = Queued(), MemoryJobRuns()
    queued.world.ledger.connectors.put("c", {})
    route = routing(queued, runs)
    route.backfill(WANTED)
    registered(queued, key="in/a")
    assert queued.world.ledger.connectors.set_state("c", state)

    route.ended("0" * 16, RunState.FAILED)

    assert len(runs.started) == 1


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED])
def test_what_a_shells_run_left_is_the_shells(state: RunState) -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    assert route.started is not None
    job = queued.world.planner.plan(registered(queued, key="in/a"))
    shared = route.started.begin_shared("shell-1", "c", ["s3://bucket/"], then=OnCompletion.PERSON)
    held = [route.ownership(job)]
    own = route.started.begin_job(job, subject="shell-2", then=OnCompletion.PERSON)
    held.append(route.ownership(job))

    sent = [route.ended(run, state) for run in (shared, own)]

    assert held == [RunOwnership.SHARED, RunOwnership.OWN]
    assert (sent, len(runs.started), queued.queue.messages) == ([0, 0], 2, [])
    assert route.ownership(job) is RunOwnership.NONE


def test_a_started_run_whose_note_fails_continues() -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    queued.world.ledger.refuse("remember", times=100)

    job = route.start(registered(queued))

    assert (len(runs.started), queued.queue.messages) == (1, [])
    assert route.ownership(job) is RunOwnership.NONE


@pytest.mark.parametrize("state", [RunState.SUCCESS, RunState.CANCELLED])
def test_a_backfill_that_is_over_or_was_cancelled_gets_no_other_run(state: RunState) -> None:
    queued, runs = Queued(), MemoryJobRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)

    route.ended("0" * 16, state)

    assert len(runs.started) == 1


def test_without_spark_a_backfill_is_rejected_with_a_remedy(golden: Golden) -> None:
    with golden.raises(NotOffered, match="b1.*connector c.*--engine"):
        routing(Queued(), None).backfill(WANTED)
