"""`make chaos`: break everything at random for minutes, and compare every record."""

import argparse
import json
import logging
import signal
import sys
import time
from pathlib import Path

from tests.faults.campaign import Campaign, write_report
from tests.faults.lanes import KINDS
from tests.faults.ledgers import LEDGERS
from tests.faults.rounds import FAULT_SECONDS

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run a campaign; return 0 only if nothing was lost, doubled, changed, stuck or misreported."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--ledger", choices=LEDGERS, default="dynamodb")
    parser.add_argument("--kills", type=int, default=0, help="end after so many, more frequent")
    names = [kind.name for kind in KINDS]
    parser.add_argument("--lanes", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--fault-seconds", type=float, default=FAULT_SECONDS)
    parser.add_argument("--report", type=Path, default=ROOT / "var" / "chaos.json")
    parser.add_argument("--folder", type=Path, help="artefacts; default: var/chaos/<seed>-<time>")
    parser.add_argument(
        "--keep", action="store_true", help="keep the artefacts of good rounds, too"
    )
    given = parser.parse_args()
    name = f"{given.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder = (given.folder or ROOT / "var" / "chaos" / name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # What the event source reports of every killed function.
    logging.basicConfig(filename=folder / "harness.log", level=logging.INFO)
    campaign = Campaign(
        given.seed,
        given.minutes,
        folder,
        brokers=given.brokers,
        ledger=given.ledger,
        kills=given.kills,
        fault_seconds=given.fault_seconds,
        kinds=tuple(kind for kind in KINDS if kind.name in given.lanes),
        keep=given.keep,
    )
    # In the background, too: the servers end with the campaign.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.stdout.write(f"seed {given.seed}, {given.minutes:g} minutes, artefacts in {folder}\n")
    ok = campaign.run()
    report = campaign.report()
    write_report(report, given.report)
    shown = {name: value for name, value in report.items() if name != "faults"}
    sys.stdout.write(f"{json.dumps(shown)}\n")
    sys.stdout.write(f"make chaos: {'held' if ok else 'BROKEN'}; see {given.report}\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
