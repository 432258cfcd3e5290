"""What the template's alarms do with the metrics of a deployment that fails, and of one that works.

`tests/integration/test_alarms.py` does the same with the metrics that the real functions write.
"""

from collections.abc import Iterable

import pytest
from tests.infra.conftest import Templates
from tests.support.alarms import LAMBDA, Alarm, Point, alarms, first_alarm

NAMESPACE = "extentflow/plain"
MINUTE, TEN_MINUTES = 60.0, 600.0
# Where an upload lies within CloudWatch's periods.
PHASES = range(0, 300, 23)
HIDDEN_SECONDS = 180.0


@pytest.fixture
def all_alarms(templates: Templates) -> list[Alarm]:
    return list(alarms(templates("plain").to_json()))


def written(service: str, metric: str, times: Iterable[float], value: float = 1.0) -> list[Point]:
    return [Point(NAMESPACE, metric, service, at, value) for at in times]


@pytest.mark.parametrize("service", ["planner", "worker"])
def test_the_only_message_of_a_first_upload_rings_within_ten_minutes(
    all_alarms: list[Alarm], service: str
) -> None:
    for phase in PHASES:
        returns = [phase + 20 + number * (HIDDEN_SECONDS + 20) for number in range(4)]

        rung = first_alarm(
            all_alarms,
            written(service, "MessagesReturned", returns),
            until=phase + TEN_MINUTES,
        )

        assert rung is not None
        assert rung[1] == "MessagesReturned"


@pytest.mark.parametrize("returned", [1.0, 100.0])
def test_a_brokers_restart_rings_nothing(all_alarms: list[Alarm], returned: float) -> None:
    for phase in PHASES:
        points = written("worker", "MessagesReturned", [phase, phase + MINUTE], returned)

        assert first_alarm(all_alarms, points, until=3_000.0) is None


def test_a_job_that_stays_open_rings_after_its_limit(all_alarms: list[Alarm]) -> None:
    ages = [(at, float(at)) for at in range(0, 7_200, 300)]
    points = [
        Point(NAMESPACE, "OldestOpenJobSeconds", "reconciler", at, age) for at, age in ages
    ] + written("reconciler", "ReconciliationProblems", range(0, 7_200, 300), 0.0)

    rung = first_alarm(all_alarms, points, until=7_200.0)

    assert rung is not None
    assert rung[1] == "OldestOpenJob"
    assert 3_600 < rung[0] <= 3_600 + 900


@pytest.mark.parametrize("metric", ["Errors", "Throttles", "RecursiveInvocationsDropped"])
def test_one_failed_invocation_rings_within_ten_minutes(
    all_alarms: list[Alarm], metric: str
) -> None:
    (alarm,) = (one for one in all_alarms if one.name == metric)

    for series in alarm.series:
        for phase in PHASES:
            point = Point(LAMBDA, metric, series.owner, float(phase), 1.0)
            assert first_alarm(all_alarms, [point], until=phase + TEN_MINUTES) is not None


def answered(
    all_alarms: list[Alarm], times: Iterable[float], *, requests: int, refused: int
) -> list[Point]:
    """Return the metrics of the API: as many requests at each time, and those that it refused."""
    (alarm,) = (one for one in all_alarms if one.name == "ReceiverRefuses")
    part, whole = alarm.series
    return [
        Point(series.namespace, series.metric, series.owner, at, value)
        for at in times
        for series, values in ((part, [float(refused)] * bool(refused)), (whole, [1.0] * requests))
        for value in values
    ]


@pytest.mark.parametrize(
    ("seconds", "requests", "refused", "within"),
    [
        (60, 10, 10, 1_200.0),  # a rotated key
        (600, 1, 1, 3_000.0),  # of a grid with few objects
        (60, 3, 2, 1_200.0),  # of the busier one of two grids
        (60, 2, 1, None),
    ],
)
def test_senders_that_are_refused_ring(
    all_alarms: list[Alarm], seconds: int, requests: int, refused: int, within: float | None
) -> None:
    times = map(float, range(0, 7_200, seconds))
    (alarm,) = (one for one in all_alarms if one.name == "ReceiverRefuses")

    rung = alarm.rings(
        answered(all_alarms, times, requests=requests, refused=refused), until=7_200.0
    )

    assert (rung is None) == (within is None)
    assert (rung or 0.0) <= (within or 0.0)


def test_a_scanner_of_addresses_rings_nothing(all_alarms: list[Alarm]) -> None:
    (alarm,) = (one for one in all_alarms if one.name == "ReceiverRefuses")
    visits = [100.0, 400.0, 9_000.0, 9_100.0]

    points = answered(all_alarms, visits, requests=50, refused=50)

    assert alarm.rings(points, until=14_400.0) is None


def test_a_deployment_that_works_rings_nothing(all_alarms: list[Alarm]) -> None:
    hours = 3_600.0 * 3
    every = range(0, int(hours), 300)
    points = [
        *written("reconciler", "ReconciliationProblems", every, 0.0),
        *written("reconciler", "OldestOpenJobSeconds", every, 120.0),
        *written("reconciler", "StalledJobs", every, 0.0),
        *written("worker", "MessagesReturned", every, 0.0),
        *written("worker", "FailedJobs", every, 0.0),
    ]

    assert first_alarm(all_alarms, points, until=hours) is None


def test_a_reconciler_that_never_completes_rings_after_an_hour(all_alarms: list[Alarm]) -> None:
    rung = first_alarm(all_alarms, [], until=7_200.0)

    assert rung is not None
    assert rung[1] == "ReconcilerSilent"
