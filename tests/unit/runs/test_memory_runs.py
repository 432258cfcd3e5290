"""The double of Runs keeps the contract: one token, one run."""

from dataclasses import replace

import pytest

from extentflow.errors import RunsUnavailable
from extentflow.runs import Run
from extentflow.testing.runs import MemoryRuns

RUN = Run(job="0123abcd", number=1, arguments=("-c", "orders"))


def test_a_repeated_start_is_the_run_that_began() -> None:
    runs = MemoryRuns()

    ids = [runs.start(run) for run in (RUN, replace(RUN, number=2), RUN)]

    assert ids[0] == ids[2] != ids[1]
    assert len(runs.started) == 2


@pytest.mark.parametrize("unclear", [False, True])
def test_a_start_that_failed_may_be_repeated_whether_it_began_or_not(*, unclear: bool) -> None:
    runs = MemoryRuns(unclear=unclear)
    runs.away = 1

    with pytest.raises(RunsUnavailable):
        runs.start(RUN)

    assert len(runs.started) == unclear
    runs.start(RUN)
    assert list(runs.started.values()) == [RUN]
