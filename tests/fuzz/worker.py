"""A process that tries inputs of one target, and reports every batch on its output.

The number of an input is written to a mapped file before it is tried, so that the campaign finds
the one that ended the process.
"""

import faulthandler
import gc
import json
import logging
import mmap
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from pathlib import Path

from tests.fuzz.child import STATUS, limit_memory, memory_bytes
from tests.fuzz.every import KNOWN, TARGETS, outcome
from tests.fuzz.targets import TRIED, Target

BATCH = 1_000
_COLLECT_INPUTS = 100
_WARM_INPUTS = 20
NUMBER = struct.Struct("<q")
GROWTH_MIB = 512
# An input is slow that takes seconds, and thousands of times as long as the target's others.
SLOW_SECONDS, SLOW_RATIO = 5.0, 2_000


@dataclass(slots=True)
class Batch:
    """What came out of some inputs; `next` is the number of the first one behind them."""

    next: int
    decodes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    found: list[tuple[int, str, str]] = field(default_factory=list)
    cpu_seconds: float = 0.0
    slowest_ms: float = 0.0
    slowest: int = -1
    peak_mib: int = 0

    def line(self) -> str:
        """Return the batch as a line of JSON."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)})


class _Formatting(logging.Handler):
    """Formats every message, which may fail, and drops it."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


def peak_mib() -> int:
    """Return the largest resident memory of this process so far."""
    # Linux hands the parent's peak on to `getrusage` of a new program, and not to this.
    if STATUS.exists():
        return memory_bytes("VmHWM") >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20


@dataclass(slots=True)
class Trial:
    """Tries inputs one after the other, and measures each."""

    target: Target
    seed: int
    base_mib: int = 0
    count: int = 0
    seconds: float = 0.0

    def run(self, batch: Batch, number: int) -> None:
        """Try one input."""
        data = self.target.input(self.seed, number)
        before, decodes = time.process_time(), TRIED.decodes
        what, raised = outcome(self.target, data)
        seconds = time.process_time() - before
        batch.outcomes[what] += 1
        batch.decodes += TRIED.decodes - decodes
        if raised is not None:
            text = "".join(traceback.format_exception(raised))
            batch.found.append((number, what, text))
        mean = self.seconds / self.count if self.count else seconds
        if seconds > SLOW_SECONDS and seconds > SLOW_RATIO * mean:
            slow = f"FOUND: {seconds:.1f} s of CPU, {mean * 1e3:.2f} ms are usual"
            batch.found.append((number, slow, slow))
        self.count, self.seconds = self.count + 1, self.seconds + seconds
        if seconds * 1e3 > batch.slowest_ms:
            batch.slowest_ms, batch.slowest = round(seconds * 1e3, 1), number
        batch.cpu_seconds += seconds
        batch.peak_mib = peak_mib()
        if not self.base_mib:
            self.base_mib = batch.peak_mib
        if batch.peak_mib > self.base_mib + GROWTH_MIB:
            grown = f"FOUND: memory grew from {self.base_mib} to {batch.peak_mib} MiB"
            batch.found.append((number, grown, grown))
            self.base_mib = batch.peak_mib


def work(name: str, seed: int, numbers: range, skipped: Collection[int], shared: Path) -> None:
    """Try the inputs `numbers`, except those that ended an earlier process."""
    faulthandler.enable()
    root = logging.getLogger()
    root.handlers[:] = [_Formatting()]
    trial = Trial(KNOWN[name], seed)
    # Caches and lazy imports are no growth.
    if name in TARGETS:
        for number in range(-_WARM_INPUTS, 0):
            outcome(trial.target, trial.target.input(seed, number))
    trial.base_mib = peak_mib()
    limit_memory()
    with shared.open("r+b") as file, mmap.mmap(file.fileno(), NUMBER.size) as cell:
        for begin in numbers[::BATCH]:
            batch = Batch(min(begin + BATCH, numbers.stop))
            for number in range(begin, batch.next):
                if number not in skipped:
                    NUMBER.pack_into(cell, 0, number)
                    trial.run(batch, number)
                # Tracebacks refer to buffers, which the collector does not count.
                if not number % _COLLECT_INPUTS:
                    gc.collect()
            sys.stdout.write(f"{batch.line()}\n")
            sys.stdout.flush()
