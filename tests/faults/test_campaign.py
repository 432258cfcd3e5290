"""A campaign of a minute, as `make chaos` plays it, and shorter ones on the other ledgers."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.campaign import Campaign
from tests.faults.lanes import KINDS
from tests.faults.ledgers import LedgerName

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or time.time_ns() % 100_000)


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    environment = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.spark
def test_a_minute_of_faults_loses_doubles_and_changes_nothing(seed: int, tmp_path: Path) -> None:
    campaign = Campaign(seed, 1.0, tmp_path)

    held = campaign.run()

    report = campaign.report()
    assert held, json.dumps(report, indent=2)
    assert report["kills"] > 0
    assert report["other_faults"] > 0
    assert report["delivered"] >= report["expected"] > 0


@pytest.mark.parametrize("ledger", ["sqlite", "postgresql"])
def test_seconds_of_faults_on_a_sql_ledger_lose_double_and_change_nothing(
    seed: int, tmp_path: Path, ledger: LedgerName
) -> None:
    two = tuple(kind for kind in KINDS if kind.name in {"keyed", "ordered"})
    campaign = Campaign(
        seed, 0.0, tmp_path, fault_seconds=5.0, ledger=ledger, kills=1, kinds=two, cluster=False
    )

    assert_held_with_kills(campaign)


def test_seconds_of_faults_lose_double_and_change_no_columnar_row(
    seed: int, tmp_path: Path
) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == "columnar")
    three = (kind, kind, kind)  # each with an encoding, groups and keys of its own
    campaign = Campaign(
        seed,
        0.0,
        tmp_path,
        fault_seconds=10.0,
        ledger="sqlite",
        kills=1,
        kinds=three,
        cluster=False,
    )

    assert_held_with_kills(campaign)


def assert_held_with_kills(campaign: Campaign) -> None:
    held = campaign.run()

    report = campaign.report()
    assert held, json.dumps(report, indent=2)
    assert report["kills"] > 0
    assert report["delivered"] >= report["expected"] > 0
