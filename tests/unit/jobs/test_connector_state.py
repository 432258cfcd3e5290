"""Connector states are cached; an unavailable ledger pauses no connector."""

import pytest
from tests.support.memory_delivery import World

from extentflow.jobs.preflight import CACHE_SECONDS, ConnectorStateCache
from extentflow.ledger import ConnectorState

PAUSED_REASON = "connector c is PAUSED; continue it with `extentflow resume c`"


@pytest.fixture
def world() -> World:
    made = World()
    made.ledger.connectors.put("c", {})
    return made


def wanted(world: World) -> ConnectorStateCache:
    return ConnectorStateCache(world.ledger, world.ticker.read)


def test_an_answer_holds_for_a_few_seconds_for_each_connector(world: World) -> None:
    calls: list[str] = []
    world.ledger.on_call = calls.append
    asked = wanted(world)

    for _ in range(3):
        assert asked.skip_reason("c") == asked.skip_reason("d") == ""
    assert calls == ["connector_state"] * 2
    world.ledger.connectors.set_state("c", ConnectorState.PAUSED)
    assert asked.skip_reason("c") == ""

    world.ticker.sleep(CACHE_SECONDS)
    assert asked.skip_reason("c") == PAUSED_REASON
    world.ledger.connectors.set_state("c", ConnectorState.ENABLED)
    world.ticker.sleep(CACHE_SECONDS)
    assert asked.skip_reason("c") == ""


def test_a_ledger_that_does_not_say_is_no_pause_and_is_asked_as_seldom(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.ledger.connectors.set_state("c", ConnectorState.PAUSED)
    world.ledger.refuse("connector_state", times=1)
    asked = wanted(world)

    assert asked.skip_reason("c") == asked.skip_reason("c") == ""
    assert "connector c: state unknown" in caplog.text
    world.ticker.sleep(CACHE_SECONDS)
    assert asked.skip_reason("c") == PAUSED_REASON
