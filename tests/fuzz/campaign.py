"""A campaign: processes that try inputs, what ended them, and the report."""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
from tests.fuzz.every import KNOWN
from tests.fuzz.targets import Target
from tests.fuzz.worker import NUMBER

HANGS_SECONDS = 30.0  # of its CPU, for one input
MOST_WAITED = 10  # times as long by the clock: it waits for something, or the machine is busy
POLL_SECONDS = 1.0
MOST_SAVED = 5  # inputs of one kind of finding
MOST_DEATHS = 200
# Arrow has the system's allocator, as in workers of the library, and that one returns what is
# freed, as the limit counts what is allocated, used or not.
ALLOCATORS = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_MMAP_THRESHOLD_": "262144"}
_STDERR_CHARACTERS = 4_000


def shares(inputs: int, names: list[str]) -> dict[str, int]:
    """Return how many inputs each target gets."""
    whole = sum(KNOWN[name].share for name in names)
    return {name: -(-inputs * KNOWN[name].share // whole) for name in names}


@dataclass
class Tally:
    """What came out of the inputs of one target."""

    target: Target
    seed: int
    folder: Path
    inputs: int = 0
    decodes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    saved: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest: int = -1
    peak_mib: int = 0

    def add(self, batch: dict[str, Any]) -> None:
        """Add a batch as a worker reports it."""
        self.outcomes.update(batch["outcomes"])
        self.decodes += batch["decodes"]
        self.inputs += sum(batch["outcomes"].values())
        self.cpu_seconds += batch["cpu_seconds"]
        self.peak_mib = max(self.peak_mib, batch["peak_mib"])
        if batch["slowest_ms"] > self.slowest_ms:
            self.slowest_ms, self.slowest = batch["slowest_ms"], batch["slowest"]
        for number, what, text in batch["found"]:
            self.find(number, what, text)

    def find(self, number: int, what: str, text: str) -> None:
        """Count a finding, and save its input."""
        self.found[what] += 1
        if self.found[what] > MOST_SAVED:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.target.name}-{self.seed}-{number}"
        path.write_bytes(self.target.input(self.seed, number))
        path.with_suffix(".txt").write_text(f"{what}\n\n{text}\n", errors="backslashreplace")
        self.saved.append(path.name)

    def report(self) -> dict[str, Any]:
        """Return the figures, JSON-ready."""
        return {
            "inputs": self.inputs,
            "decodes": self.decodes,
            "outcomes": dict(self.outcomes.most_common()),
            "found": dict(self.found.most_common()),
            "saved": self.saved,
            "cpu_seconds": round(self.cpu_seconds, 1),
            "slowest_ms": self.slowest_ms,
            "slowest": self.slowest,
            "peak_mib": self.peak_mib,
        }


@dataclass
class Supervisor:
    """Runs workers of one target until all its inputs were tried, however many of them die.

    With `decodes` it ends behind the batch with which there are so many.
    """

    tally: Tally
    count: int
    hangs_seconds: float = HANGS_SECONDS
    decodes: int | None = None
    _done: int = 0
    _skipped: list[int] = field(default_factory=list)

    def run(self) -> Tally:
        """Try every input."""
        with tempfile.TemporaryDirectory() as folder:
            while not self._is_finished():
                self._one_worker(Path(folder))
        return self.tally

    def _is_finished(self) -> bool:
        enough = self.decodes is not None and self.tally.decodes >= self.decodes
        return enough or self._done >= self.count or len(self._skipped) >= MOST_DEATHS

    def _one_worker(self, folder: Path) -> None:
        shared, errors = folder / "number", folder / "stderr"
        shared.write_bytes(NUMBER.pack(-1))
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                self._command(shared),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **ALLOCATORS},
            )
            assert process.stdout is not None
            hung = ended = False
            for line in _lines(process.stdout, lambda: self._hangs(shared, process.pid)):
                if line is None:
                    hung = True
                    process.kill()
                    break
                batch = json.loads(line)
                self.tally.add(batch)
                self._done = batch["next"]
                if self._done < self.count and self._is_finished():
                    ended = True
                    process.kill()
                    break
            process.stdout.close()
            code = process.wait()
        if code and not ended:
            (number,) = NUMBER.unpack(shared.read_bytes())
            text = errors.read_text(errors="replace")[-_STDERR_CHARACTERS:]
            # A Python error outside an input is the harness's own.
            if number < 0 or code == 1:
                raise RuntimeError(f"{self.tally.target.name}: the worker failed\n{text}")
            what = f"no answer for {self.hangs_seconds:g} s" if hung else f"exit code {code}"
            self.tally.find(number, f"FOUND: {what}", text)
            self._skipped.append(number)

    def _command(self, shared: Path) -> list[str]:
        name, seed = self.tally.target.name, str(self.tally.seed)
        skipped = ",".join(map(str, self._skipped))
        worker = ["--worker", str(shared), "--first", str(self._done), "--skip", skipped]
        limits = ["--inputs", str(self.count), "--seed", seed, "--target", name]
        return [sys.executable, "-m", "tests.fuzz", *limits, *worker]

    def _hangs(self, shared: Path, pid: int) -> Callable[[], bool]:
        """Return what says whether one input has taken too long: of the CPU, or by the clock."""
        worker = psutil.Process(pid)
        seen, since, used = -1, time.monotonic(), 0.0

        def hangs() -> bool:
            nonlocal seen, since, used
            (number,) = NUMBER.unpack(shared.read_bytes())
            times = worker.cpu_times()
            cpu = times.user + times.system
            if number != seen:
                seen, since, used = number, time.monotonic(), cpu
            waited = time.monotonic() - since > self.hangs_seconds * MOST_WAITED
            return number >= 0 and (cpu - used > self.hangs_seconds or waited)

        return hangs


def _lines(stream: IO[str], watch: Callable[[], Callable[[], bool]]) -> Iterator[str | None]:
    """Yield the lines of a pipe; None once `watch` says that its process hangs."""
    hangs = watch()
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(POLL_SECONDS):
                if hangs():
                    yield None
                continue
            data = os.read(stream.fileno(), 1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from (line.decode() for line in lines)


def campaign(
    inputs: int,
    seed: int,
    names: list[str],
    folder: Path,
    *,
    processes: int = 1,
    hangs_seconds: float = HANGS_SECONDS,
    decodes: int | None = None,
) -> dict[str, Any]:
    """Run a campaign; return its report, whose `found` is 0 only if nothing was found."""
    began = time.monotonic()
    supervisors = [
        Supervisor(Tally(KNOWN[name], seed, folder), count, hangs_seconds, decodes)
        for name, count in shares(inputs, names).items()
    ]
    reports: dict[str, Any] = {}
    with ThreadPoolExecutor(processes) as pool:
        for tally in pool.map(Supervisor.run, supervisors):
            reports[tally.target.name] = report = tally.report()
            shown = {key: value for key, value in report.items() if key != "saved"}
            sys.stdout.write(f"{tally.target.name}: {json.dumps(shown)}\n")
            sys.stdout.flush()
    return {
        "seed": seed,
        "inputs": sum(report["inputs"] for report in reports.values()),
        "found": sum(sum(report["found"].values()) for report in reports.values()),
        "seconds": round(time.monotonic() - began),
        "targets": reports,
    }
