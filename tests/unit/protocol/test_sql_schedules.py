"""The explorers' schedules over the items of a SQL ledger, in place of those in memory."""

from pathlib import Path

import pytest
from tests.support.explore import CRASH, PAUSE, SWITCH
from tests.support.explore_world import Scenario, explore_all, explore_some
from tests.support.scenarios import RANDOM_SCENARIOS
from tests.support.sql_items import SqlWorld

from extentflow.model import ExtentState

SEEDS = 1


def test_random_schedules_on_sqlite_break_no_promise(tmp_path: Path) -> None:
    items = SqlWorld(str(tmp_path))

    for scenario in RANDOM_SCENARIOS.values():
        findings = explore_some(scenario, range(SEEDS), 0.1, items)

        assert findings.schedules == SEEDS
        assert findings.operations["settle"]


@pytest.mark.exhaustive
def test_every_schedule_of_two_workers_on_sqlite_delivers_every_record_once(
    tmp_path: Path,
) -> None:
    scenario = Scenario({SWITCH: 1, PAUSE: 1, CRASH: 1}, most=1)

    findings = explore_all(scenario, SqlWorld(str(tmp_path)))

    assert findings.schedules > 50
    assert set(findings.outcomes) == {ExtentState.DONE}
    assert findings.operations["settle"]
