"""A campaign: rounds until its time is over, and the report."""

import json
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.commands import UNEXPECTED
from tests.faults.console import Console
from tests.faults.lanes import KINDS, Kind
from tests.faults.ledgers import LedgerName
from tests.faults.objects import Numbers
from tests.faults.rounds import FAULT_SECONDS, Result, Round
from tests.faults.servers import Servers, open_servers
from tests.faults.standing import StandingQuery
from tests.support.eventpath import EventPath

# A round is verified while the next ones are played.
MOST_UNVERIFIED = 2
# Of a campaign that ends after a number of kills.
WORKER_KILL_WEIGHT = 5.0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass
class Campaign:
    """Plays rounds on one set of servers; artefacts of broken rounds stay below `folder`.

    It ends after `minutes`, and not before `kills` processes were killed; then kills of workers
    are more frequent than usual. Without `cluster` Spark takes no part.
    """

    seed: int
    minutes: float
    folder: Path
    fault_seconds: float = FAULT_SECONDS
    brokers: int = 1
    ledger: LedgerName = "dynamodb"
    kills: int = 0
    kinds: Sequence[Kind] = KINDS
    cluster: bool = True
    keep: bool = False
    say: Callable[[str], None] = _say
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    standing: StandingQuery | None = None
    defects: list[str] = field(default_factory=list)

    def run(self) -> bool:
        """Run to the end; return whether the guarantees held in every round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        where = self.folder / "servers"
        with (
            open_servers(where, brokers=self.brokers, ledger=self.ledger) as servers,
            ThreadPoolExecutor(1) as verifier,
        ):
            console = Console(servers.stack.toolbox, servers.bootstrap, self.folder / "console")
            standing = StandingQuery(servers, self.folder / "query")
            numbers = Numbers(self.folder / "objects", Random(self.seed))
            began = time.monotonic()
            waiting: deque[tuple[Round, Future[None]]] = deque()
            try:
                while time.monotonic() - began < 60 * self.minutes or self._killed() < self.kills:
                    current, result = self._play(servers, numbers, standing)
                    waiting.append((current, verifier.submit(current.verify, result, console)))
                    while waiting and (len(waiting) > MOST_UNVERIFIED or waiting[0][1].done()):
                        self._close(*waiting.popleft())
            finally:
                standing.stop()
            while waiting:
                self._close(*waiting.popleft())
            self.standing = standing
            self.defects = [] if servers.path is None else defects(servers.path)
            for line in standing.lies:
                self.say(f"standing query: {line}")
            self.seconds = time.monotonic() - began
        held = all(one.ok for one in self.results) and not standing.lies
        if held and not self.keep and not any(self.folder.glob("round-*")):
            shutil.rmtree(self.folder)
        return held

    def _killed(self) -> int:
        return sum(one.kills for one in self.results)

    def _play(
        self, servers: Servers, numbers: Numbers, standing: StandingQuery
    ) -> tuple[Round, Result]:
        number = len(self.results) + 1
        random = Random(f"{self.seed}-{number}")
        spark = random.random() < 0.3 and self.cluster
        wanted = (random.random() < 0.5 or standing.runs()) and self.cluster
        current = Round(
            number,
            servers,
            self.folder / f"round-{number:03}",
            random,
            numbers,
            spark=spark,
            # A cluster of several machines cannot use a file of one of them.
            standing=standing if self.ledger != "sqlite" and wanted else None,
            fault_seconds=self.fault_seconds,
            worker_kill_weight=WORKER_KILL_WEIGHT if self.kills else 1.0,
            kinds=self.kinds,
        )
        result = current.play()
        self.results.append(result)
        return current, result

    def _close(self, current: Round, verified: Future[None]) -> None:
        verified.result()
        result = self.results[current.number - 1]
        self.say(result.line())
        details = [
            *result.verdict.samples,
            *result.stuck,
            *result.lost,
            *result.findings.lies,
            *result.findings.hung,
            *(f"unexpected error: {one}" for one in result.findings.unexpected),
            *(f"still running: {one}" for one in result.orphans),
        ]
        for line in details:
            self.say(f"    {line}")
        if details:
            (current.folder / "found.txt").write_text("\n".join(details) + "\n")
        if result.ok:
            current.clean_up()
        if not details and not self.keep:
            shutil.rmtree(current.folder)
            for lane in current.lanes:
                for version in lane.versions:
                    # Of uploads of equal bytes, there is one file.
                    version.written.path.unlink(missing_ok=True)

    def report(self) -> dict[str, Any]:
        """Return the figures of all rounds."""
        faults: Counter[str] = sum((one.faults for one in self.results), Counter())
        codes: Counter[str] = sum((one.findings.codes for one in self.results), Counter())
        jobs: Counter[str] = sum((one.jobs for one in self.results), Counter())

        retained: Counter[str] = sum((one.retained for one in self.results), Counter())

        def total(name: str) -> int:
            return sum(int(getattr(one.verdict, name)) for one in self.results)

        kills = self._killed()
        return {
            "seed": self.seed,
            "brokers": self.brokers,
            "ledger": self.ledger,
            "seconds": round(self.seconds),
            "rounds": len(self.results),
            "broken_rounds": [one.number for one in self.results if not one.ok],
            "kills": kills,
            "other_faults": faults.total() - kills,
            "faults": dict(sorted(faults.items())),
            "requests_hit": sum(one.hits for one in self.results),
            "objects": sum(one.objects for one in self.results),
            "expected": total("expected"),
            "delivered": total("delivered"),
            "duplicates": total("duplicates"),
            "missing": total("missing"),
            "changed": total("changed"),
            "foreign": total("foreign"),
            "misplaced": total("misplaced"),
            "miscounted": total("miscounted"),
            "stuck": sum(len(one.stuck) for one in self.results),
            "uploads_lost": [line for one in self.results for line in one.lost],
            "readers": dict(retained),
            "exit_codes": dict(sorted(codes.items())),
            "query_exit_codes": {} if self.standing is None else dict(self.standing.codes),
            "exit_codes_that_lied": [
                *(line for one in self.results for line in one.findings.lies),
                *([] if self.standing is None else self.standing.lies),
            ],
            "hung_commands": [line for one in self.results for line in one.findings.hung],
            "unexpected_errors": [
                *(line for one in self.results for line in one.findings.unexpected),
                *([] if self.standing is None else self.standing.unexpected),
                *self.defects,
            ],
            "processes_left": [line for one in self.results for line in one.orphans],
            "jobs": dict(sorted(jobs.items())),
        }


def defects(path: EventPath) -> list[str]:
    """Return the lines of the functions' logs that a fault does not explain."""
    return [
        f"{function}: {line[:500]}"
        for function in ("planner", "worker", "reconciler")
        for line in path.output(function).splitlines()
        if any(mark in line for mark in UNEXPECTED)
    ]


def write_report(report: dict[str, Any], path: Path) -> None:
    """Write a report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
