"""The double of Runs keeps the contract: one token, one run."""

from dataclasses import replace

import pytest

from extentflow.engines.remote import Run, RunGone, RunState, RunStatus
from extentflow.errors import RunsUnavailable
from extentflow.testing.services import MemoryJobRuns

RUN = Run(subject="0123abcd", number=1, arguments=("-c", "orders"), timeout_minutes=720)


def test_a_repeated_start_is_the_run_that_began() -> None:
    runs = MemoryJobRuns()

    ids = [runs.start(run) for run in (RUN, replace(RUN, number=2), RUN)]

    assert ids[0] == ids[2] != ids[1]
    assert len(runs.started) == 2


@pytest.mark.parametrize("unclear", [False, True])
def test_a_start_that_failed_may_be_repeated_whether_it_began_or_not(*, unclear: bool) -> None:
    runs = MemoryJobRuns(unclear=unclear)
    runs.failures = 1

    with pytest.raises(RunsUnavailable):
        runs.start(RUN)

    assert len(runs.started) == unclear
    runs.start(RUN)
    assert list(runs.started.values()) == [RUN]


def test_cancel_ends_a_waiting_run_and_has_no_effect_on_an_ended_one() -> None:
    runs = MemoryJobRuns()
    first, second = runs.start(RUN), runs.start(replace(RUN, number=2))
    runs.states[second] = RunStatus(RunState.SUCCESS)

    before = runs.describe(first).state
    runs.cancel(first)
    runs.cancel(second)

    assert before is RunState.WAITING
    assert [runs.describe(one).state for one in (first, second)] == ["CANCELLED", "SUCCESS"]


def test_describing_a_run_that_was_never_started_is_an_error() -> None:
    with pytest.raises(RunGone, match="there is no run r1"):
        MemoryJobRuns().describe("r1")
