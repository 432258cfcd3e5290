"""`SUITE=start`: CPU time of the command line until it shows a help, against an empty program.

Both are new processes of one interpreter; the ratio contains the start of the interpreter itself.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from bench.pairs import Run, alternate
from bench.result import Result
from bench.stand import Terms

RUNS = 3
"""Processes of one run: a process is shorter than what disturbs it."""
COMMANDS = {
    "help": ("-m", "extentflow", "--help"),
    "version": ("-m", "extentflow", "--version"),
    "run help": ("-m", "extentflow", "run", "--help"),
    "python": ("-c", "pass"),
}


def measure(terms: Terms) -> Result:
    """Alternate the commands; a run counts one row per process."""
    runs = alternate(
        {name: _competitor(*words) for name, words in COMMANDS.items()}, terms.pairs, terms.notify
    )
    costs = {name: round(cost / 1e6, 3) for name, cost in runs.costs().items()}
    return Result(
        case="CPU seconds of a process that shows a help and ends",
        scale=terms.scale,
        pairs=terms.pairs,
        ratios={
            f"{name.replace(' ', '_')}_to_python": runs.cost_ratio(name, "python")
            for name in costs
            if name != "python"
        },
        figures={"cpu_seconds": costs},
    )


def _competitor(*words: str) -> Callable[[], Run]:
    def run() -> Run:
        started, cpu = time.monotonic(), 0.0
        for _ in range(RUNS):
            with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}")
            cpu += usage.ru_utime + usage.ru_stime
        return Run(RUNS, time.monotonic() - started, cpu)

    return run
