"""Campaigns of one round, as `make chaos` plays them, on each kind of ledger."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.campaign import Campaign
from tests.faults.lanes import KINDS
from tests.faults.ledgers import LedgerName
from tests.support import quick_java

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or time.time_ns() % 100_000)


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    environment = dict(os.environ)
    quick_java.use()
    yield
    os.environ.clear()
    os.environ.update(environment)


ORDINARY = {"keyed", "ordered", "tolerant", "small", "lines", "columnar"}


@pytest.mark.spark
@pytest.mark.parametrize("minutes", [0.0, pytest.param(1.0, marks=pytest.mark.soak)])
def test_rounds_of_faults_lose_double_and_change_nothing(
    seed: int, tmp_path: Path, minutes: float
) -> None:
    # `make chaos` draws of all connectors. One round has those that ordinary deliveries have.
    kinds = KINDS if minutes else tuple(kind for kind in KINDS if kind.name in ORDINARY)
    campaign = Campaign(seed, minutes, tmp_path, kills=1, kinds=kinds)

    held = campaign.run()

    report = campaign.report()
    assert held, json.dumps(report, indent=2)
    assert report["kills"] > 0
    assert report["other_faults"] > 0
    assert report["delivered"] >= report["expected"] > 0


@pytest.mark.parametrize("ledger", [pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"])
def test_seconds_of_faults_on_a_sql_ledger_lose_double_and_change_nothing(
    seed: int, tmp_path: Path, ledger: LedgerName
) -> None:
    two = tuple(kind for kind in KINDS if kind.name in {"keyed", "ordered"})
    campaign = Campaign(
        seed, 0.0, tmp_path, fault_seconds=10.0, ledger=ledger, kills=1, kinds=two, cluster=False
    )

    assert_held_with_kills(campaign)


@pytest.mark.soak
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
