"""Whether a connector rests: asked seldom, and a ledger that is away pauses nobody."""

import pytest
from tests.support.world import World

from extentflow.delivery.connector_state import ASK_SECONDS, Wanted
from extentflow.ledger import ConnectorState

RESTS = "connector c is PAUSED; `extentflow resume c` lets it go on"


@pytest.fixture
def world() -> World:
    made = World()
    made.ledger.put_connector("c", {})
    return made


def wanted(world: World) -> Wanted:
    return Wanted(world.ledger, world.ticker.read)


def test_an_answer_holds_for_a_few_seconds_for_each_connector(world: World) -> None:
    calls: list[str] = []
    world.ledger.on_call = calls.append
    asked = wanted(world)

    for _ in range(3):
        assert asked.rests("c") == asked.rests("d") == ""
    assert calls == ["connector_state"] * 2
    world.ledger.set_connector_state("c", ConnectorState.PAUSED)
    assert asked.rests("c") == ""

    world.ticker.sleep(ASK_SECONDS)
    assert asked.rests("c") == RESTS
    world.ledger.set_connector_state("c", ConnectorState.RUNNING)
    world.ticker.sleep(ASK_SECONDS)
    assert asked.rests("c") == ""


def test_a_ledger_that_does_not_say_is_no_pause_and_is_asked_as_seldom(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.ledger.set_connector_state("c", ConnectorState.PAUSED)
    world.ledger.refuse("connector_state", times=1)
    asked = wanted(world)

    assert asked.rests("c") == asked.rests("c") == ""
    assert "whether connector c rests is not known now" in caplog.text
    world.ticker.sleep(ASK_SECONDS)
    assert asked.rests("c") == RESTS
