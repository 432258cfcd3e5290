"""Schedules of several workers, driving the real `Slots` and `run_extent` over the doubles.

Each test runs every schedule within its rations, or one per seed. At every operation of ledger
and broker another worker may go on, or something may befall the one at hand; `explore_world` says
what and checks each outcome: every record once and in order, nothing lost, counters exact, no
claim left, FAILED only where Kafka really forgot, and always an end.

A failing test prints the schedule, and the answers that repeat it. What takes long is marked
`exhaustive`, which `make rest` runs, or `soak`.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.explore import CRASH, PAUSE, SWITCH
from tests.support.explore_world import (
    ARRIVE,
    DELAY,
    DENY,
    EXPIRE,
    FORGET,
    LATE,
    LOSE,
    OUTAGE,
    REFUSE,
    RESTORE,
    STOP,
    UNKNOWN,
    Scenario,
    explore_all,
    explore_some,
)
from tests.support.scenarios import RANDOM_SCENARIOS

from extentflow.ledger import Claim, Totals
from extentflow.ledger.extent_store import StoredExtents, extent_key
from extentflow.ledger.items import Write
from extentflow.model import ExtentState

EXHAUSTIVE = pytest.mark.exhaustive
ENDS = {PAUSE: 1, CRASH: 1}
UNREST = {SWITCH: 1, **ENDS}
ANSWERS = {LOSE: 1, REFUSE: 1, DENY: 1, UNKNOWN: 1, EXPIRE: 1, CRASH: 1}
ONE_EXTENT = b"abc"
# Random schedules have such jobs, too.
RATIONS = pytest.mark.parametrize(
    ("rations", "schedules"),
    [
        pytest.param(ENDS, 350, marks=EXHAUSTIVE),
        pytest.param(UNREST, 900, marks=pytest.mark.soak),
    ],
)


@pytest.mark.parametrize(
    ("scenario", "schedules"),
    [
        pytest.param(
            Scenario(UNREST, most=2),
            1_300,
            id="two workers, slots and extents",
            marks=EXHAUSTIVE,
        ),
        pytest.param(
            Scenario(UNREST, most=3),
            6_000,
            id="two workers, slots and extents, three events",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({CRASH: 2, PAUSE: 1}, most=3, body=ONE_EXTENT),
            1_000,
            id="one extent and two crashes",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario(ENDS, most=2, body=ONE_EXTENT, workers=3, slots=1),
            800,
            id="three workers and one slot",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario(UNREST, most=2, body=ONE_EXTENT, workers=3, slots=1),
            1_800,
            id="three workers that take turns and one slot",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({STOP: 1, **ENDS}, most=2, body=ONE_EXTENT),
            900,
            id="a worker is asked to stop",
            marks=EXHAUSTIVE,
        ),
        pytest.param(
            Scenario({STOP: 1, **ENDS}, most=2),
            1_300,
            id="a worker with two extents is asked to stop",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario(ANSWERS, most=2, body=ONE_EXTENT, workers=1),
            2_200,
            id="answers are missing",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario(ANSWERS, most=2, body=ONE_EXTENT),
            3_000,
            id="answers are missing while others wait",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({OUTAGE: 1, CRASH: 1, SWITCH: 1}, most=2, body=b"abcde", extent_bytes=5),
            350,
            id="the store is unavailable and a worker dies",
        ),
        pytest.param(
            Scenario({OUTAGE: 2, CRASH: 1, SWITCH: 1}, most=3, body=b"abcde", extent_bytes=5),
            1_300,
            id="the store is unavailable twice and a worker dies",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({DELAY: 1, ARRIVE: 1, PAUSE: 1}, most=2, body=ONE_EXTENT),
            300,
            id="requests arrive late",
        ),
        pytest.param(
            Scenario({DELAY: 1, ARRIVE: 1, PAUSE: 1}, most=3, body=ONE_EXTENT),
            2_000,
            id="requests arrive late while others work",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({LATE: 2, ARRIVE: 1, **ENDS}, most=2, body=b"abcde", extent_bytes=5),
            300,
            id="progress arrives late or never",
            marks=EXHAUSTIVE,
        ),
        pytest.param(
            Scenario({LATE: 2, ARRIVE: 2, **ENDS}, most=4, body=b"abcde", extent_bytes=5),
            12_000,
            id="progress arrives late, in any order, or never",
            marks=pytest.mark.soak,
        ),
        pytest.param(
            Scenario({LATE: 1, ARRIVE: 1, PAUSE: 1, STOP: 1}, most=2, body=ONE_EXTENT),
            400,
            id="progress arrives late while a worker stops",
        ),
        pytest.param(
            Scenario({SWITCH: 2, CRASH: 1}, most=3, body=ONE_EXTENT, workers=1, evicted=True),
            300,
            id="a driver takes the slots of its workers",
            marks=EXHAUSTIVE,
        ),
    ],
)
def test_every_record_arrives_once(scenario: Scenario, schedules: int) -> None:
    findings = explore_all(scenario)

    assert findings.schedules > schedules
    assert set(findings.outcomes) == {ExtentState.DONE}
    assert set(findings.events) == set(scenario.rations)
    assert findings.operations["settle"]


def test_late_progress_without_conditions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconditional(store: Any, claim: Claim, totals: Totals) -> None:  # noqa: ANN401
        key = extent_key(claim.extent.job, claim.extent.ordinal)
        store._items.update("", Write(key, sets={**totals, "attempts": 0}))  # type: ignore[dict-item]

    monkeypatch.setattr(StoredExtents, "record", unconditional)

    with pytest.raises(AssertionError):
        explore_all(Scenario({LATE: 1}, most=1, body=b"abcde", extent_bytes=5))


@pytest.mark.parametrize(
    ("scenario", "schedules"),
    [
        pytest.param(
            Scenario({FORGET: 1, RESTORE: 1, PAUSE: 1, CRASH: 1}, most=2, body=ONE_EXTENT),
            500,
            id="and a worker dies or pauses",
            marks=EXHAUSTIVE,
        ),
        pytest.param(
            Scenario({FORGET: 1, RESTORE: 1, CRASH: 2}, most=3, body=ONE_EXTENT, slots=1),
            800,
            id="and two workers die",
            marks=EXHAUSTIVE,
        ),
    ],
)
def test_extent_fails_when_its_consumer_group_expired(scenario: Scenario, schedules: int) -> None:
    findings = explore_all(scenario)

    assert findings.schedules > schedules
    assert set(findings.outcomes) == {ExtentState.DONE, ExtentState.FAILED}


@RATIONS
def test_an_ordered_jobs_records_arrive_in_order(
    rations: Mapping[str, int], schedules: int
) -> None:
    findings = explore_all(Scenario(rations, most=2, ordered=True))

    assert findings.schedules > schedules
    assert set(findings.outcomes) == {ExtentState.DONE}


@pytest.mark.parametrize(
    ("rations", "schedules"), [(ENDS, 500), pytest.param(UNREST, 700, marks=pytest.mark.soak)]
)
def test_a_bad_record_ends_an_ordered_job_and_keeps_what_came_before(
    rations: Mapping[str, int], schedules: int
) -> None:
    findings = explore_all(Scenario({**rations, LOSE: 1}, most=2, ordered=True, body=b"ab!def"))

    assert findings.schedules > schedules
    assert set(findings.outcomes) == {ExtentState.FAILED, ExtentState.PENDING}


@RATIONS
def test_at_least_once_loses_nothing(rations: Mapping[str, int], schedules: int) -> None:
    findings = explore_all(Scenario(rations, most=2, exactly_once=False))

    assert findings.schedules > schedules
    assert set(findings.outcomes) == {ExtentState.DONE}


@pytest.mark.parametrize(
    "scenario",
    RANDOM_SCENARIOS.values(),
    ids=RANDOM_SCENARIOS.keys(),
)
@pytest.mark.parametrize("probability", [0.05, 0.2])
@pytest.mark.parametrize(
    "seeds",
    [
        range(30),
        pytest.param(range(30, 60), marks=EXHAUSTIVE),
        pytest.param(range(60, 500), marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_no_record_is_lost_or_duplicated_in_any_schedule(
    scenario: Scenario, seeds: range, probability: float
) -> None:
    findings = explore_some(scenario, seeds, probability)

    assert findings.schedules == len(seeds)
    assert findings.events.keys() >= {SWITCH, PAUSE, CRASH, LOSE, REFUSE, DELAY, UNKNOWN, STOP}
