"""`make bench`: extentflow's throughput against baselines; each case writes its JSON.

Warm processes alternate on the same machine, so ratios are meaningful where absolute figures are
not.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console

from bench.stand import Terms
from bench.suite import ALIASES, ALL, CASES, chosen, run
from extentflow.wording import nearest

ROOT = Path.cwd()


def main() -> int:
    """Run the chosen cases; return 0 only if all of them succeed."""
    arguments = _arguments()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)
    started = time.monotonic()
    terms = Terms(
        ROOT,
        arguments.scale,
        arguments.pairs,
        lambda line: console.print(line, highlight=False, markup=False),
    )
    broken = run(chosen(arguments.suite), terms, console, Path("var", "bench"))
    took = time.monotonic() - started
    console.print(f"make bench: {took:.0f} s; {_ending(broken)}", highlight=False)
    return 1 if broken else 0


def _ending(broken: list[str]) -> str:
    return f"broken: {', '.join(broken)}" if broken else "every case has its figures in var/bench"


def _arguments() -> argparse.Namespace:
    names = [ALL, *CASES, *ALIASES]
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the amount of data")
    parser.add_argument("--pairs", type=int, default=6, help="runs that count")
    parser.add_argument("--suite", default=ALL, help=f"of {', '.join(names)}; several with commas")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suite.split(",") if name not in names]
    if unknown:
        known = ", ".join([ALL, *CASES])
        parser.error(
            f"SUITE={','.join(unknown)}: {nearest(unknown[0], [ALL, *CASES], f'give {known}')}"
        )
    if arguments.pairs < 1:
        parser.error(f"PAIRS={arguments.pairs}: give 1 or more")
    if arguments.scale <= 0:
        parser.error(f"SCALE={arguments.scale:g}: give more than 0")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
