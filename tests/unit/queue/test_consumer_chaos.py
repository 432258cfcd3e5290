"""Queue workers that die, freeze, and get their messages twice and in any order."""

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.support.explore import CRASH, PAUSE, SWITCH
from tests.support.queue_schedules import (
    LOSE,
    LOST,
    REFUSE,
    STOP,
    UNAVAILABLE,
    UNKNOWN,
    Play,
    Script,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("extentflow")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)


def played(play: Play) -> Counter[str]:
    """Run a play; one that fails tells its schedule."""
    try:
        play.run()
    except Exception as exc:
        exc.add_note(f"{play.seed=} {play.probability=}\n" + "\n".join(play.stage.trace))
        raise
    return play.events


@pytest.mark.parametrize(
    "probability",
    [
        pytest.param(0.02, marks=pytest.mark.variant),
        0.1,
        pytest.param(0.3, marks=pytest.mark.variant),
    ],
)
def test_every_record_arrives_once_and_every_job_ends_under_any_faults(
    probability: float,
) -> None:
    events: Counter[str] = Counter()

    for seed in range(60):
        events += played(Play(seed, probability))

    assert set(events) == {SWITCH, PAUSE, CRASH, LOSE, REFUSE, UNKNOWN, UNAVAILABLE, LOST, STOP}


def test_one_slot_for_everybody_is_enough() -> None:
    for seed in range(40):
        played(Play(seed, 0.1, Script(bodies=(b"abcd|efgh", b">klmn|op"), slots=1)))


def test_without_any_event_nothing_is_dead_but_what_is_bad() -> None:
    play = Play(0, 0.0)

    events = played(play)

    assert not events
    assert len(play.queued.dead.messages) >= 1
