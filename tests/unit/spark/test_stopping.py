"""A stop that is told by the ledger: asked for rarely, never lost."""

from extentflow.spark.stopping import LOOK_SECONDS, Stop, ask_to_stop
from extentflow.testing.ledger import MemoryLedger


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_workers_of_the_run_are_told_and_nobody_else() -> None:
    ledger, now = MemoryLedger(), Time()
    ours, others = Stop(ledger, "ours", now), Stop(ledger, "others", now)
    ask_to_stop(ledger, "ours")

    assert (ours(), others()) == (True, False)


def test_the_ledger_is_asked_once_per_second_at_most_and_never_again_after_a_yes() -> None:
    ledger, now = MemoryLedger(), Time()
    stop = Stop(ledger, "run", now)
    looks: list[str] = []
    ledger.on_call = looks.append

    assert [stop() for _ in range(100)] == [False] * 100
    assert looks == ["recall"]
    now.now += LOOK_SECONDS
    ask_to_stop(ledger, "run")
    assert [stop() for _ in range(100)] == [True] * 100
    now.now += LOOK_SECONDS
    assert stop()
    assert looks == ["recall", "remember", "recall"]


def test_a_ledger_that_is_away_stops_nobody() -> None:
    ledger, now = MemoryLedger(), Time()
    stop = Stop(ledger, "run", now)
    ask_to_stop(ledger, "run")
    ledger.refuse("recall")

    assert not stop()
    assert not stop()
    now.now += LOOK_SECONDS
    assert stop()
