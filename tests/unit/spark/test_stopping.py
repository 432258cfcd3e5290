"""A stop that is told by the ledger: asked for rarely, never lost."""

from collections import Counter
from collections.abc import Mapping

from extentflow.errors import LedgerUnavailable
from extentflow.spark.stopping import LOOK_SECONDS, Stop, ask_to_stop
from extentflow.testing.ledger import MemoryLedger


class Watched(MemoryLedger):
    """Counts its looks, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: Counter[str] = Counter()
        self.absent = False

    def recall(self, name: str) -> Mapping[str, str] | None:
        self.looks[name] += 1
        if self.absent:
            raise LedgerUnavailable("as the test wants it")
        return super().recall(name)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_workers_of_the_run_are_told_and_nobody_else() -> None:
    ledger, now = Watched(), Time()
    ours, others = Stop(ledger, "ours", now), Stop(ledger, "others", now)
    ask_to_stop(ledger, "ours")

    assert (ours(), others()) == (True, False)


def test_the_ledger_is_asked_once_per_second_at_most_and_never_again_after_a_yes() -> None:
    ledger, now = Watched(), Time()
    stop = Stop(ledger, "run", now)

    assert [stop() for _ in range(100)] == [False] * 100
    assert ledger.looks.total() == 1
    now.now += LOOK_SECONDS
    ask_to_stop(ledger, "run")
    assert [stop() for _ in range(100)] == [True] * 100
    now.now += LOOK_SECONDS
    assert stop()
    assert ledger.looks.total() == 2


def test_a_ledger_that_is_away_stops_nobody() -> None:
    ledger, now = Watched(), Time()
    stop = Stop(ledger, "run", now)
    ask_to_stop(ledger, "run")
    ledger.absent = True

    assert not stop()
    ledger.absent = False
    assert not stop()
    now.now += LOOK_SECONDS
    assert stop()
