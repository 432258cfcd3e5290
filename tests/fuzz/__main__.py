"""`make fuzz`: damaged and hostile inputs of every kind, in bounded memory and time."""

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz.campaign import campaign
from tests.fuzz.every import KNOWN, OBJECTS, TARGETS, outcome
from tests.fuzz.worker import work

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run a campaign, or try one input again; return 0 only if nothing was found."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--decodes", type=int, help="so many for each target that decodes objects")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--target", choices=sorted(KNOWN), action="append")
    parser.add_argument("--only", type=int, help="try this number of the target again, or ...")
    parser.add_argument("--file", type=Path, help="... a saved input, in this process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--report", type=Path, default=ROOT / "var" / "fuzz.json")
    parser.add_argument("--folder", type=Path, default=ROOT / "var" / "fuzz", help="findings")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.target or list(OBJECTS if given.decodes else TARGETS)
    if given.worker:
        skipped = {int(number) for number in given.skip.split(",") if number}
        numbers = range(given.first, given.inputs)
        work(names[0], given.seed, numbers, skipped, given.worker)
        return 0
    if given.file or given.only is not None:
        target = KNOWN[names[0]]
        data = given.file.read_bytes() if given.file else target.input(given.seed, given.only)
        return _again(names[0], data)
    wanted = f"{given.decodes:,} decodes each" if given.decodes else f"{given.inputs:,} inputs"
    sys.stdout.write(f"seed {given.seed}, {wanted}\n")
    report = campaign(
        sys.maxsize if given.decodes else given.inputs,
        given.seed,
        names,
        given.folder.resolve(),
        processes=given.processes,
        decodes=given.decodes,
    )
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(json.dumps(report, indent=2) + "\n")
    verdict = "held" if not report["found"] else f"{report['found']} FOUND, see {given.folder}"
    sys.stdout.write(
        f"make fuzz: {report['inputs']:,} inputs in {report['seconds']} s: {verdict};"
        f" see {given.report}\n"
    )
    return 1 if report["found"] else 0


def _again(name: str, data: bytes) -> int:
    sys.stdout.write(f"{name}: {len(data)} bytes: {data[:2_000]!r}\n")
    what, raised = outcome(KNOWN[name], data)
    sys.stdout.write(f"{what}\n")
    if raised is not None:
        traceback.print_exception(raised)
    return 1 if raised is not None else 0


if __name__ == "__main__":
    sys.exit(main())
