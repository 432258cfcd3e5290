"""Lists of jobs; the map of a job's extents: one cell each, or the worst of several."""

import pytest
from tests.support.memory_runtime import MemoryRuntime

from extentflow.cli.jobs import MAP_CELLS, _show_job, _show_jobs, extent_map
from extentflow.ledger import ClaimMark, ExtentItem
from extentflow.model import ExtentState, JobState
from extentflow.services.jobs import Jobs

DONE, FAILED, PENDING = ExtentState.DONE, ExtentState.FAILED, ExtentState.PENDING
MARK = ClaimMark(slot=1, epoch=1, nonce="n")


def items(states: dict[int, ExtentState], *working: int) -> dict[int, ExtentItem]:
    found = {n: ExtentItem("job", n, state) for n, state in states.items()}
    return found | {n: ExtentItem("job", n, PENDING, claim=MARK) for n in working}


@pytest.mark.parametrize(
    ("state", "said"),
    [(None, "there are no jobs; `extentflow run`"), (JobState.FAILED, "no job is FAILED; ")],
)
def test_an_empty_list_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], state: JobState | None, said: str
) -> None:
    _show_jobs([], state)

    assert said in capsys.readouterr().err


def test_every_state_has_its_cell_and_an_extent_without_an_item_is_pending() -> None:
    shown = extent_map(items({0: DONE, 1: FAILED, 3: PENDING}, 2), count=5)

    assert shown.plain == "█x▓··   █ done, ▓ working, · pending, x failed"


def test_a_job_without_extents_has_an_empty_map() -> None:
    assert extent_map({}, count=0).plain == ""


def test_many_extents_share_cells_and_the_worst_state_shows() -> None:
    count = 3 * MAP_CELLS
    states = dict.fromkeys(range(count), DONE)

    shown = extent_map(items(states | {4: FAILED}, 8), count=count).plain

    cells, _, legend = shown.partition(" ")
    assert cells == "█x▓" + "█" * (MAP_CELLS - 3)
    assert legend.strip() == "█ done, ▓ working, x failed; one cell is 3 extents"


@pytest.mark.parametrize("count", [1, MAP_CELLS, MAP_CELLS + 1, 10_000, 1_000_000])
def test_a_map_never_has_more_cells_than_fit(count: int) -> None:
    cells = extent_map({}, count=count).plain.partition(" ")[0]

    assert 0 < len(cells) <= MAP_CELLS


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.SUPERSEDED])
def test_status_names_the_command_that_continues_a_job(
    state: JobState, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job("c/a.txt").id
    runtime.memory.jobs.end(job, state, "why")

    _show_job(Jobs(runtime).get(job), as_json=False)

    said = " ".join(capsys.readouterr().err.split())
    assert (f"`extentflow replay {job}` continues it" in said) is (state is JobState.FAILED)
