"""A `--once` run waits for the jobs open at its start, as long as they make progress."""

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.delivery.runner import fail_extent
from extentflow.kafka import ProducerSettings
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.spark.drain import MAX_IDLE_QUERIES, QUEUE_POLLS, DrainTracker
from extentflow.wiring.extents import delivery_context

MANY = 100


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def begun(runtime: MemoryRuntime, connector: str | None = None) -> DrainTracker:
    """Return a tracker of the open jobs after `QUEUE_POLLS` queries without progress."""
    backlog = DrainTracker(runtime.memory, connector, listing=None)
    for _ in range(QUEUE_POLLS):
        backlog.left(ended=0)
    return backlog


def queries_without_progress(backlog: DrainTracker) -> int:
    """Return how many queries without progress end the run."""
    return next(n for n in range(1, MANY) if not backlog.left(ended=0))


def test_without_open_jobs_the_run_ends_after_the_queue_polls(runtime: MemoryRuntime) -> None:
    backlog = DrainTracker(runtime.memory, None, listing=None)

    assert queries_without_progress(backlog) == QUEUE_POLLS


def test_later_arrivals_do_not_extend_a_run(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job())
    backlog = begun(runtime)
    runtime.planner().plan(runtime.job("c/later.txt", lines=MANY))

    assert backlog.left(ended=1)
    runtime.run(job, 0)

    assert not backlog.left(ended=1)


def test_the_run_waits_while_a_job_makes_progress(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job(lines=10))
    backlog = begun(runtime)

    for ordinal in range(9):
        runtime.run(job, ordinal)
        assert backlog.left(ended=1)
    runtime.run(job, 9)

    assert not backlog.left(ended=1)


def test_jobs_without_progress_stay_open_whatever_else_is_delivered(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(runtime.job())
    backlog = begun(runtime)

    going_on = [backlog.left(ended=5) for _ in range(MAX_IDLE_QUERIES + 1)]

    assert going_on == [True] * MAX_IDLE_QUERIES + [False]


def test_jobs_that_only_other_workers_advance_do_not_extend_a_run(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job(lines=10))
    backlog = begun(runtime)

    for ordinal in range(MAX_IDLE_QUERIES - 1):
        runtime.run(job, ordinal)
        assert backlog.left(ended=0)
    runtime.run(job, MAX_IDLE_QUERIES)

    assert not backlog.left(ended=0)


def test_other_connectors_jobs_are_none_of_a_run_for_one(runtime: MemoryRuntime) -> None:
    runtime.put_connector("d")
    runtime.job("d/a.txt", connector="d")
    backlog = DrainTracker(runtime.memory, "c", listing=None)

    assert queries_without_progress(backlog) == QUEUE_POLLS


def test_a_table_outage_is_tolerated_for_a_while(
    runtime: MemoryRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.job()
    backlog = begun(runtime)
    runtime.memory.refuse("jobs", times=MANY)

    assert queries_without_progress(backlog) == MAX_IDLE_QUERIES
    assert "cannot read the remaining work" in caplog.text
    assert backlog.undone()[0].startswith("cannot read the remaining work: ")


# -- what is left ---------------------------------------------------------------------------------


def test_finished_jobs_are_not_reported(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job())
    backlog = begun(runtime)
    runtime.run(job, 0)

    assert not backlog.left(ended=1)
    assert backlog.undone() == []


def test_jobs_that_stay_are_counted_by_connector_and_with_the_reason(
    runtime: MemoryRuntime,
    golden: Golden,
) -> None:
    runtime.put_connector("d")
    runtime.job("c/a.txt")
    runtime.job("c/b.txt")
    runtime.job("d/a.txt", connector="d")
    runtime.memory.connectors.set_state("d", ConnectorState.PAUSED)
    backlog = begun(runtime)

    queries_without_progress(backlog)

    left, paused = backlog.undone()
    golden(left)
    assert "connector c" in left
    golden(paused)
    assert "connector d" in paused


def test_a_job_that_ended_after_the_last_query_is_not_reported(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job())
    backlog = begun(runtime)
    queries_without_progress(backlog)
    runtime.run(job, 0)

    assert backlog.undone() == []


def test_a_table_outage_at_the_end_is_no_success(runtime: MemoryRuntime) -> None:
    backlog = begun(runtime)
    runtime.memory.refuse("jobs")

    (undone,) = backlog.undone()

    assert undone.startswith("cannot read the remaining work: ")


def test_only_a_new_job_that_cannot_be_cut_is_reported(
    runtime: MemoryRuntime,
) -> None:
    older = runtime.job("c/older.txt")
    runtime.memory.jobs.end(older.id, JobState.FAILED, "bad bytes")
    runtime.ticker.now += 1
    backlog = DrainTracker(runtime.memory, None, listing=None)
    newer = runtime.job("c/newer.txt")
    runtime.memory.jobs.end(newer.id, JobState.FAILED, "no footer")
    queries_without_progress(backlog)

    (line,) = backlog.undone()

    assert line.endswith(f"job {newer.id} of {newer.version.uri} is FAILED: no footer")


# -- what others end ------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_tracked_job_that_another_run_ended_is_reported(
    runtime: MemoryRuntime, state: JobState
) -> None:
    runtime.planner().plan(job := runtime.job())
    runtime.ticker.now += 1
    backlog = begun(runtime)
    runtime.memory.jobs.end(job.id, state, "by another run")

    assert not backlog.left(ended=0)
    (line,) = backlog.undone()

    assert line.endswith(f"job {job.id} of {job.version.uri} is {state}: by another run")


def test_an_old_job_that_failed_before_the_first_scan_is_reported(runtime: MemoryRuntime) -> None:
    job = runtime.job()
    runtime.ticker.now += 1
    backlog = DrainTracker(runtime.memory, None, listing=None)
    runtime.memory.jobs.end(job.id, JobState.FAILED, "no footer")
    queries_without_progress(backlog)

    (line,) = backlog.undone()

    assert line.endswith("is FAILED: no footer")


def test_a_superseded_job_is_not_reported(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job())
    backlog = begun(runtime)
    runtime.memory.jobs.end(job.id, JobState.SUPERSEDED, "replaced")

    assert not backlog.left(ended=0)
    assert backlog.undone() == []


@pytest.mark.parametrize("looks", range(1, QUEUE_POLLS + 2))
def test_a_list_that_lags_behind_lets_no_open_job_be_forgotten(
    runtime: MemoryRuntime, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    runtime.planner().plan(job := runtime.job())
    backlog = DrainTracker(runtime.memory, None, listing=None)
    for _ in range(looks - 1):
        backlog.left(ended=0)
    with monkeypatch.context() as lagging:
        lagging.setattr(runtime.memory.jobs, "list", lambda *_: iter(()))
        backlog.left(ended=0)
    for _ in range(QUEUE_POLLS):
        backlog.left(ended=0)

    (line,) = backlog.undone()

    assert line.startswith(f"connector {job.connector}: 1 job is not over")


# -- why something is left ------------------------------------------------------------------------


def test_claimed_extents_are_reported_with_their_lease_end(runtime: MemoryRuntime) -> None:
    runtime.planner().plan(job := runtime.job(lines=2))
    (extent, _) = runtime.planner().extents(job)
    runtime.slots("dead-1").claim(extent, ProducerSettings())
    backlog = begun(runtime)
    queries_without_progress(backlog)

    (line,) = backlog.undone()

    assert (
        "1 job is not over: workers hold 1 of their extents, and if they died, for up to " in line
    )


def test_a_failed_job_is_reported_with_its_first_extents_reason(
    runtime: MemoryRuntime,
    golden: Golden,
) -> None:
    runtime.planner().plan(job := runtime.job(lines=2))
    backlog = begun(runtime)
    work = delivery_context(runtime, runtime.slots("worker-1"))
    for extent in runtime.planner().extents(job):
        fail_extent(extent, work, f"line {extent.ordinal} is odd")
    queries_without_progress(backlog)

    (line,) = backlog.undone()

    golden(line)
