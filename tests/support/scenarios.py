"""The scenarios of random schedules: every kind of event, with different workers and slots."""

from collections.abc import Mapping

from tests.support.explore import CRASH, PAUSE, SWITCH
from tests.support.explore_world import (
    ARRIVE,
    BEAT,
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
)

EVERYTHING = {
    SWITCH: 30,
    PAUSE: 4,
    CRASH: 2,
    LOSE: 4,
    REFUSE: 4,
    DENY: 2,
    DELAY: 3,
    LATE: 4,
    ARRIVE: 4,
    UNKNOWN: 3,
    EXPIRE: 2,
    OUTAGE: 2,
    STOP: 2,
    BEAT: 5,
}
FORGETTING = {**EVERYTHING, FORGET: 2, RESTORE: 1}

RANDOM_SCENARIOS: Mapping[str, Scenario] = {
    "two workers, slots and extents": Scenario(EVERYTHING, most=100),
    "scarce": Scenario(EVERYTHING, most=100, workers=3, body=b"abcdefghi"),
    "one slot": Scenario(EVERYTHING, most=100, workers=3, slots=1),
    "a driver evicts": Scenario(EVERYTHING, most=100, evicted=True),
    "ordered": Scenario(EVERYTHING, most=100, ordered=True, body=b"abcdefghi"),
    "a bad record": Scenario(EVERYTHING, most=100, body=b"ab!def"),
    "at least once": Scenario(EVERYTHING, most=100, exactly_once=False),
    "a forgetful broker": Scenario(FORGETTING, most=100),
}
