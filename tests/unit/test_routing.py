"""Who delivers a new job: the queue's functions, or a run of Spark; and what a run's end leaves."""

import pytest
from tests.support.queued import Queued, ordinals

from extentflow.arrivals.backfill import Backfill
from extentflow.connectors.config import AUTO, LAMBDA, SPARK
from extentflow.engines.routing import Routing
from extentflow.engines.started import Hold, StartedRuns
from extentflow.errors import Misconfigured, NotOffered
from extentflow.model import Job, JobState
from extentflow.runs import Run, RunState, RunStatus
from extentflow.testing.runs import MemoryRuns

BODY = b"abcdefghij"


def registered(queued: Queued, body: bytes = BODY) -> Job:
    """A job as the planner has it before anything of it is planned."""
    return queued.world.planner.register(queued.world.intake(queued.world.put(body)))


def routing(
    queued: Queued, runs: MemoryRuns | None, threshold_bytes: int = 9, engine: str = AUTO
) -> Routing:
    started = None if runs is None else StartedRuns(runs, queued.world.ledger)
    return Routing(queued.dispatch, started, threshold_bytes, lambda _job: engine)


class Refused(MemoryRuns):
    """Nobody may start a run."""

    def start(self, run: Run) -> str:
        raise Misconfigured(f"no permission to start {run.token}")


def test_a_large_job_is_planned_and_given_to_a_run_and_nothing_to_the_queue() -> None:
    queued, runs = Queued(), MemoryRuns()

    job = routing(queued, runs).start(registered(queued))

    (run,) = runs.started.values()
    assert (job.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert (run.subject, run.number) == (job.id, 0)
    assert run.arguments == ("--job", job.id, "--json")


@pytest.mark.parametrize("threshold_bytes", [len(BODY), 1 << 40])
def test_up_to_the_threshold_the_queue_has_it(threshold_bytes: int) -> None:
    queued, runs = Queued(), MemoryRuns()

    routing(queued, runs, threshold_bytes).start(registered(queued))

    assert (runs.started, len(queued.queue.messages)) == ({}, 3)


def test_without_an_application_the_queue_has_everything() -> None:
    queued = Queued()

    routing(queued, None).start(registered(queued))

    assert len(queued.queue.messages) == 3


@pytest.mark.parametrize("unclear", [False, True])
def test_where_no_run_can_be_had_the_queue_has_it(unclear: bool) -> None:  # noqa: FBT001
    queued, runs = Queued(), MemoryRuns(unclear=unclear)
    runs.away = 1

    job = routing(queued, runs).start(registered(queued))

    assert job.state is JobState.RUNNING
    assert ordinals(queued.queue.sent) == [0, 1, 2]


def test_settings_that_are_wrong_hold_up_no_job() -> None:
    queued = Queued()

    routing(queued, Refused()).start(registered(queued))

    assert ordinals(queued.queue.sent) == [0, 1, 2]


def test_a_job_that_is_under_way_gets_no_second_run() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))

    again = route.start(job)

    assert (again.id, len(runs.started), queued.queue.messages) == (job.id, 1, [])


def test_what_a_dead_run_left_undone_goes_to_the_queue() -> None:
    queued, runs = Queued(), MemoryRuns()
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


def test_a_run_of_somebody_else_is_left_alone() -> None:
    queued = Queued()

    assert routing(queued, MemoryRuns()).ended("unknown", RunState.FAILED) == 0
    assert queued.queue.messages == []


@pytest.mark.parametrize(
    ("engine", "threshold_bytes", "by_run"),
    [(LAMBDA, 1, False), (SPARK, 1 << 40, True), (AUTO, 9, True), (AUTO, 10, False)],
)
def test_a_connector_may_want_one_engine_whatever_the_size(
    engine: str, threshold_bytes: int, *, by_run: bool
) -> None:
    queued, runs = Queued(), MemoryRuns()

    routing(queued, runs, threshold_bytes, engine).start(registered(queued))

    assert (len(runs.started), len(queued.queue.messages)) == ((1, 0) if by_run else (0, 3))


def test_a_large_job_that_is_reopened_gets_another_run() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    queued.world.ledger.end(job.id, JobState.SUPERSEDED, "another version came")

    again = route.start(queued.world.planner.replay(queued.now(job)))

    assert (again.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert [run.number for run in runs.started.values()] == [0, 1]


# -- which run has a job --------------------------------------------------------------------------


def test_a_run_has_its_job_until_it_ends_and_its_end_is_told() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))

    held = [route.hold(job)]
    runs.states["0" * 16] = RunStatus(RunState.FAILED)
    held.append(route.hold(job))
    route.ended("0" * 16, RunState.FAILED)
    held.append(route.hold(job))

    assert held == [Hold.OWN, Hold.GONE, Hold.NOBODY]


def test_while_nobody_says_where_runs_stand_nobody_has_a_job() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    runs.away = 1

    assert [route.hold(job), route.hold(job)] == [Hold.NOBODY, Hold.OWN]


def test_an_end_that_is_told_late_does_not_take_a_later_runs_job_away() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = route.start(registered(queued))
    queued.world.ledger.end(job.id, JobState.SUPERSEDED, "another version came")
    job = route.start(queued.world.planner.replay(queued.now(job)))

    route.ended("0" * 16, RunState.CANCELLED)

    assert route.hold(job) is Hold.OWN


# -- backfills ------------------------------------------------------------------------------------

WANTED = Backfill("b1", "c", ("s3://bucket/in/", "s3://bucket/*.csv"))


def test_a_backfill_is_one_run_however_often_it_is_asked_for() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)

    route.backfill(WANTED)
    route.backfill(WANTED)

    (run,) = runs.started.values()
    assert (run.subject, run.number) == ("b1", 0)
    assert run.arguments == ("--connector", "c", "--json", *WANTED.addresses)


def test_the_jobs_of_a_backfills_connector_wait_for_its_run() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    job = registered(queued)

    held = [route.hold(job)]
    route.backfill(WANTED)
    held.append(route.hold(job))
    route.ended("0" * 16, RunState.SUCCESS)
    held.append(route.hold(job))

    assert held == [Hold.NOBODY, Hold.SHARED, Hold.NOBODY]


def test_the_end_of_a_backfills_run_that_nobody_told_is_found_out() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)
    runs.states["0" * 16] = RunStatus(RunState.FAILED)

    assert route.hold(registered(queued)) is Hold.NOBODY
    runs.away = 1  # nobody asks any more
    assert route.hold(registered(queued)) is Hold.NOBODY
    assert runs.away == 1


def test_a_backfill_whose_run_failed_gets_one_more_and_then_no_other() -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)

    route.ended("0" * 16, RunState.FAILED)
    route.ended("0" * 16, RunState.FAILED)
    second = f"{1:016x}"
    held = route.hold(registered(queued))
    route.ended(second, RunState.FAILED)

    assert [(run.subject, run.number) for run in runs.started.values()] == [("b1", 0), ("b1", 1)]
    assert len({run.arguments for run in runs.started.values()}) == 1
    assert held is Hold.SHARED
    assert route.hold(registered(queued)) is Hold.NOBODY


@pytest.mark.parametrize("state", [RunState.SUCCESS, RunState.CANCELLED])
def test_a_backfill_that_is_over_or_was_cancelled_gets_no_other_run(state: RunState) -> None:
    queued, runs = Queued(), MemoryRuns()
    route = routing(queued, runs)
    route.backfill(WANTED)

    route.ended("0" * 16, state)

    assert len(runs.started) == 1


def test_without_spark_a_backfill_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        NotOffered, match=r"backfill b1 of connector c wants Spark.*--engine lambda"
    ):
        routing(Queued(), None).backfill(WANTED)
