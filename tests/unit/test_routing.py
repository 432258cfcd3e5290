"""Who delivers a new job: the queue's functions, or a run of Spark; and what a run's end leaves."""

from dataclasses import replace

import pytest
from tests.support.queued import Queued, ordinals

from extentflow.engines.routing import Routing
from extentflow.errors import Misconfigured
from extentflow.model import Job, JobState
from extentflow.runs import Run
from extentflow.testing.runs import MemoryRuns

BODY = b"abcdefghij"


def registered(queued: Queued, body: bytes = BODY) -> Job:
    """A job as the planner has it before anything of it is planned."""
    return queued.world.planner.register(queued.world.intake(queued.world.put(body)))


def routing(queued: Queued, runs: MemoryRuns | None, threshold_bytes: int = 9) -> Routing:
    return Routing(queued.dispatch, runs, threshold_bytes)


class Refused(MemoryRuns):
    """Nobody may start a run."""

    def start(self, run: Run) -> str:
        raise Misconfigured(f"no permission to start {run.token}")


def test_a_large_job_is_planned_and_given_to_a_run_and_nothing_to_the_queue() -> None:
    queued, runs = Queued(), MemoryRuns()

    job = routing(queued, runs).start(registered(queued))

    (run,) = runs.started.values()
    assert (job.state, queued.queue.messages) == (JobState.RUNNING, [])
    assert (run.job, run.number) == (job.id, 0)
    assert run.arguments == ("--connector", "c", "--json", "s3://bucket/key")


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

    sent = route.ended("0" * 16)
    queued.drain(queued.worker())

    assert (sent, ordinals(queued.queue.sent)) == (2, [0, 1, 2])
    assert queued.now(job).state is JobState.DONE
    assert route.ended("0" * 16) == 0


def test_a_run_of_somebody_else_is_left_alone() -> None:
    queued = Queued()

    assert routing(queued, MemoryRuns()).ended("unknown") == 0
    assert queued.queue.messages == []


def test_a_job_that_is_planned_again_gets_a_run_with_another_token() -> None:
    first = Run(job="j", number=0, arguments=())

    assert first.token == replace(first, arguments=("--json",)).token
    assert first.token != replace(first, number=1).token
