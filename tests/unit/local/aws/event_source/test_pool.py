"""A function's environments: used again, replaced, bounded, all gone at the end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from extentflow_local.aws.event_source.execution import Outcome, Verdict
from extentflow_local.aws.event_source.pool import Pool

PATIENCE_SECONDS = 300


@dataclass(eq=False)
class Stand:
    """An environment whose invocations end as the event says, or when they are let go."""

    pid: int
    go: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    ended: str = ""

    def alive(self) -> bool:
        return not self.ended

    def invoke(self, event: bytes, trace: str = "") -> Outcome:  # noqa: ARG002 - as Pool calls it
        if event == b"wait":
            self.entered.set()
            assert self.go.wait(PATIENCE_SECONDS)
        if event == b"break":
            raise RuntimeError("a defect")
        verdict = (
            Verdict.DIED if self.ended else Verdict(event.decode().replace("wait", "returned"))
        )
        return Outcome(verdict, "request", self.pid, 0.0)

    def freeze(self) -> None:
        raise AssertionError("unexpected call")

    def kill(self) -> None:
        self.ended = self.ended or "killed"
        self.go.set()

    def stop(self) -> None:
        self.ended = self.ended or "stopped"


class Stands:
    """Starts stands and remembers them."""

    def __init__(self) -> None:
        self.started: list[Stand] = []
        self._changed = threading.Condition()

    def __call__(self) -> Stand:
        with self._changed:
            self.started.append(Stand(len(self.started) + 1))
            self._changed.notify_all()
            return self.started[-1]

    def until(self, count: int) -> list[Stand]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.started) >= count, PATIENCE_SECONDS)
            return list(self.started)


@pytest.fixture
def stands() -> Stands:
    return Stands()


def test_a_warm_environment_is_used_again(stands: Stands) -> None:
    pool = Pool(stands, 3)

    pids = [pool.invoke(event).pid for event in (b"returned", b"raised", b"returned")]

    assert pids == [1, 1, 1]


@pytest.mark.parametrize("event", [b"timed out", b"died", b"init failed"])
def test_an_environment_that_is_no_longer_good_is_replaced(stands: Stands, event: bytes) -> None:
    pool = Pool(stands, 1)

    first, second = pool.invoke(event), pool.invoke(b"returned")

    assert (first.pid, second.pid) == (1, 2)
    assert stands.started[0].ended == "killed"


def test_an_environment_that_died_while_idle_is_replaced(stands: Stands) -> None:
    pool = Pool(stands, 1)
    pool.invoke(b"returned")
    stands.started[0].kill()

    outcome = pool.invoke(b"returned")

    assert (outcome.pid, outcome.verdict) == (2, Verdict.RETURNED)


def test_a_defect_costs_the_environment_and_is_not_swallowed(stands: Stands) -> None:
    pool = Pool(stands, 1)

    with pytest.raises(RuntimeError, match="a defect"):
        pool.invoke(b"break")

    assert stands.started[0].ended == "killed"
    assert pool.invoke(b"returned").pid == 2


def test_there_are_never_more_than_allowed_and_who_waits_gets_the_next(stands: Stands) -> None:
    pool = Pool(stands, 2)

    with ThreadPoolExecutor(3) as callers:
        calls = [callers.submit(pool.invoke, b"wait") for _ in range(3)]
        first, second = stands.until(2)
        assert first.entered.wait(PATIENCE_SECONDS)
        assert second.entered.wait(PATIENCE_SECONDS)
        running = pool.pids()
        first.go.set()
        second.go.set()
        pids = sorted(call.result(PATIENCE_SECONDS).pid for call in calls)

    assert sorted(running) == [1, 2]
    assert len(stands.started) == 2
    assert set(pids) == {1, 2}


def test_closing_waits_for_those_at_work_and_stops_them_then(stands: Stands) -> None:
    pool = Pool(stands, 1)

    with ThreadPoolExecutor(2) as callers:
        call = callers.submit(pool.invoke, b"wait")
        (stand,) = stands.until(1)
        assert stand.entered.wait(PATIENCE_SECONDS)
        closing = callers.submit(pool.close, PATIENCE_SECONDS)
        stand.go.set()
        closing.result(PATIENCE_SECONDS)

    assert call.result().ok
    assert stand.ended == "stopped"


def test_closing_kills_those_that_are_late(stands: Stands) -> None:
    pool = Pool(stands, 1)

    with ThreadPoolExecutor(1) as callers:
        call = callers.submit(pool.invoke, b"wait")
        (stand,) = stands.until(1)
        assert stand.entered.wait(PATIENCE_SECONDS)
        pool.close(0)

    assert call.result().verdict is Verdict.DIED
    assert stand.ended == "killed"


def test_a_closed_pool_starts_nothing(stands: Stands) -> None:
    pool = Pool(stands, 1)
    pool.close(0)

    outcome = pool.invoke(b"returned")

    assert (outcome.verdict, stands.started) == (Verdict.DIED, [])
