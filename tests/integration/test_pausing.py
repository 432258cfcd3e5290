"""A pause reaches a run under way: extents in work end, the run ends, a resume loses nothing."""

import json

import pytest
from tests.integration.conftest import Deliver
from tests.integration.faultproxy import FaultProxy
from tests.support.delivery import SLOW_LINES
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.ledger import ConnectorState


@pytest.mark.spark
@pytest.mark.long
def test_a_pause_ends_a_run_and_the_same_command_resumes_it_later(
    deliver: Deliver, s3_proxy: FaultProxy
) -> None:
    delivery = deliver()
    name = delivery.connector_name
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "8KiB"})
    with delivery.start("spark") as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        delivery.runtime.ledger.connectors.set_state(name, ConnectorState.PAUSED)
        output, errors = process.communicate(timeout=AWAITED_SECONDS)
    (left,) = json.loads(output)["jobs"]
    attempts = [item.attempts for item in delivery.items()]
    leftovers, owned = delivery.leftovers(), delivery.owned()
    s3_proxy.clear()
    delivery.runtime.ledger.connectors.set_state(name, ConnectorState.ENABLED)
    finished = delivery.finish("inline")

    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    assert (left["state"], left["failed"]) == ("RUNNING", 0)
    assert 0 < left["done"] < left["extents"]
    paused = f"connector {name} is PAUSED; continue it with `extentflow resume {name}`"
    assert left["reason"] == paused
    assert paused in errors
    assert "run the same command again to resume" in errors
    assert set(attempts) <= {0}  # no extent that was started failed
    assert leftovers == owned == []
    assert finished["ok"]
    assert sorted(delivery.values()) == sorted(SLOW_LINES)
