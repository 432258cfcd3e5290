"""One minute of a campaign, as `make chaos` plays it."""

import json
import os
import time
from pathlib import Path

import pytest
from tests.faults.campaign import Campaign

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.timeout(1_200)]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or time.time_ns() % 100_000)


def test_a_minute_of_faults_loses_doubles_and_changes_nothing(seed: int, tmp_path: Path) -> None:
    environment = dict(os.environ)
    campaign = Campaign(seed, 1.0, tmp_path)

    try:
        held = campaign.run()
    finally:
        os.environ.clear()
        os.environ.update(environment)

    report = campaign.report()
    assert held, json.dumps(report, indent=2)
    assert report["kills"] > 0
    assert report["other_faults"] > 0
    assert report["delivered"] >= report["expected"] > 0
