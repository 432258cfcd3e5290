"""`make exhaustive`: drives Slots and run_extent through random schedules until enough states.

With LEDGER=sqlite or postgresql the ledger's items are in that database, otherwise in memory.

A state is a point at which an event may happen, reached by a sequence of answers that no earlier
schedule of the same task gave. Any broken promise ends the exploration with the schedule.
"""

import argparse
import logging
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.support.explore import Dice, Event
from tests.support.explore_world import Findings, NewItems, Scenario, explore_with
from tests.support.scenarios import RANDOM_SCENARIOS
from tests.support.sql_items import SqlWorld

from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.stack import Stack

PROBABILITIES = (0.02, 0.05, 0.1, 0.2, 0.4)
SCHEDULES_PER_TASK = 250
SQL_SCHEDULES_PER_TASK = 10
LEDGERS = ("memory", "sqlite", "postgresql")


@dataclass(slots=True)
class Counting(Dice):
    """Dice that add every sequence of answers to `seen`."""

    seen: set[int] = field(default_factory=set)
    path: int = 0

    def pick(self, events: Sequence[Event]) -> int:
        answer = Dice.pick(self, events)
        self.path = hash((self.path, answer))
        self.seen.add(self.path)
        return answer


def explore(
    scenario: Scenario, seeds: range, items: NewItems | None = None
) -> tuple[int, Findings]:
    """Run one task's schedules; return how many states they reached, and what happened."""
    logging.disable(logging.ERROR)  # thousands of injected outages
    seen: set[int] = set()
    dice = (
        Counting(Random(seed), PROBABILITIES[seed % len(PROBABILITIES)], seed, seen)
        for seed in seeds
    )
    findings = explore_with(scenario, dice, items)
    return len(seen), findings


def _tasks(seed: int, schedules: int) -> Iterator[tuple[Scenario, range]]:
    while True:
        for scenario in RANDOM_SCENARIOS.values():
            yield scenario, range(seed, seed + schedules)
        seed += schedules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ledger", choices=LEDGERS, default="memory")
    wanted = parser.parse_args()
    with opened(wanted.ledger) as items:
        return _explore(wanted, items)


@contextmanager
def opened(name: str) -> Iterator[NewItems | None]:
    """Yield where the ledgers' items are: in memory, or in a database that ends with this."""
    if name == "memory":
        yield None
        return
    with TemporaryDirectory(prefix="explored-") as folder:
        if name == "sqlite":
            yield SqlWorld(folder)
            return
        service = Postgres()
        with Stack(Path(folder), services=[service], free_ports=True) as stack:
            stack.up()
            yield SqlWorld(stack.endpoint("postgres"))
        shutil.rmtree(service.home(Path(folder) / "var" / "postgres"), ignore_errors=True)


def _explore(wanted: argparse.Namespace, items: NewItems | None) -> int:
    started = time.monotonic()
    states, schedules = 0, 0
    events: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    tasks = _tasks(
        wanted.seed * 1_000_000_000, SCHEDULES_PER_TASK if items is None else SQL_SCHEDULES_PER_TASK
    )
    with ProcessPoolExecutor(wanted.processes) as pool:
        while states < wanted.states:
            wave = [pool.submit(explore, *next(tasks), items) for _ in range(4 * wanted.processes)]
            for task in wave:
                reached, findings = task.result()
                states, schedules = states + reached, schedules + findings.schedules
                events.update(findings.events)
                outcomes.update(state.value for state in findings.outcomes.elements())
            print(f"{states:>12,} states, {schedules:,} schedules", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    print(f"{states:,} states in {schedules:,} schedules, {seconds:.0f} s; none breaks a promise")
    print("events:  ", ", ".join(f"{kind} {count:,}" for kind, count in sorted(events.items())))
    print("extents: ", ", ".join(f"{kind} {count:,}" for kind, count in sorted(outcomes.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
