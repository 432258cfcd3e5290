"""Runs a delivery as processes, whose workers are killed at random points, until it is done."""

import random
import subprocess
from contextlib import suppress

import psutil
from tests.support.delivery import Delivery
from tests.support.waiting import AWAITED_SECONDS, eventually

MOST_RUNS = 20
INCOMPLETE = 1


def deliver_despite_deaths(delivery: Delivery, *, seed: int, deaths: int) -> int:
    """Kill `deaths` workers (kill -9) at random positions; return how many died.

    Runs again until a run ends well.
    """
    source, died = random.Random(seed), 0
    for _ in range(MOST_RUNS):
        process = delivery.start("inline")
        try:
            while died < deaths and _kill_one(delivery, process, source):
                died += 1
            output, errors = process.communicate(timeout=AWAITED_SECONDS)
        finally:
            delivery.kill_started()
        assert process.returncode in (0, INCOMPLETE), errors
        if process.returncode == 0:
            return died
    raise AssertionError(f"not done after {MOST_RUNS} runs: {output}")


def _kill_one(delivery: Delivery, process: subprocess.Popen[str], source: random.Random) -> bool:
    """Kill a worker when a random share more is committed; False: the run ended before."""
    wanted = _committed(delivery) + source.randrange(1, 6)

    def is_due() -> bool:
        return process.poll() is not None or _committed(delivery) >= wanted

    eventually("more is committed", is_due)
    if process.poll() is not None:
        return False
    with suppress(psutil.NoSuchProcess):
        workers = [
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if "spawn_main" in " ".join(one.cmdline())
        ]
        if workers:
            source.choice(sorted(workers, key=lambda one: one.pid)).kill()
            return True
    return process.poll() is None


def _committed(delivery: Delivery) -> int:
    """Return how many transactions are committed, at least: those that the ledger states."""
    return sum(item.position > 0 for item in delivery.items())
