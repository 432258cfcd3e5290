"""`make demo-events`: uploads become records in Kafka; what failed is mended and replayed.

Owns: the story that is told, its summary. Refuses to know: how anything in it is done.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.eventpath import EventPath, Upload, await_that, event_path
from demo.eventrows import (
    Found,
    Watcher,
    as_csv,
    as_gzip,
    as_half_a_gzip,
    as_json_lines,
    compare,
)
from demo.feeds import Feed, Numbers
from demo.rig import CommandError
from extentflow.errors import ExtentflowError
from extentflow_local.errors import LocalStackError

ROOT = Path.cwd()
OBJECTS = 20
ROWS = 5_000
ENDED = ("DONE", "FAILED", "SUPERSEDED", "CANCELLED")
console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)


def main() -> int:
    """Run the demo; 0 only when every row arrived once and no dead letter is left."""
    scale = _arguments().scale
    started = time.monotonic()
    run = time.strftime("%Y%m%d-%H%M%S")
    console.rule("stack, template, functions")
    with event_path(ROOT, run, console.print, uploads=True) as path:
        feeds = _feeds(path, run)
        summary = _tell(path, feeds, Numbers(ROWS), max(2, round(OBJECTS * scale)))
        console.rule("reading the topics back with read_committed")
        found = [
            compare(path.rig.kafka, one.name, one.expected, one.tolerated) for one in feeds.values()
        ]
    summary |= {
        "records": sum(one.records for one in found),
        "duplicates": sum(one.duplicates for one in found),
        "missing": sum(one.missing for one in found),
        "foreign": sum(one.foreign for one in found),
    }
    file = ROOT / "var" / "demo" / "events.json"
    file.write_text(json.dumps(summary, indent=2) + "\n")
    _show(found, summary)
    ok = not any(summary[name] for name in ("duplicates", "missing", "foreign", "dlq_after_replay"))
    word = "every record exactly once" if ok else "[red]something is wrong, see above[/red]"
    seconds = time.monotonic() - started
    console.print(f"make demo-events: {word}; {seconds:.0f} s; {file.relative_to(ROOT)}")
    console.print("the stack still runs; `.venv/bin/extentflow down` (or `make clean`) stops it")
    return 0 if ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo-events", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help=f"times {OBJECTS} objects")
    return parser.parse_args()


def _feeds(path: EventPath, run: str) -> dict[str, Feed]:
    suffixes = {"lines": "jsonl", "tables": "csv", "orphans": "jsonl", "archives": "jsonl.gz"}
    feeds = {
        label: Feed(path, f"events-{label}-{run}", suffix) for label, suffix in suffixes.items()
    }
    for label, feed in feeds.items():
        if label == "orphans":
            feed.declare(**{"extent.bytes": "64KiB"})  # several extents, several dead letters
        else:
            feed.declare()
            feed.create_topic()
    return feeds


def _tell(
    path: EventPath, feeds: dict[str, Feed], numbers: Numbers, objects: int
) -> dict[str, Any]:
    """Upload, break, mend; return what can be counted on the way."""
    lines, tables = feeds["lines"], feeds["tables"]
    seconds = _first_record(path, lines, numbers)
    console.rule(f"{objects} objects, and two that cannot be delivered")
    for number in range(objects):
        if number % 2:
            tables.upload(numbers.take(), as_csv)
        else:
            lines.upload(numbers.take(), as_json_lines)
    orphan = feeds["orphans"].upload(numbers.take(), as_json_lines)
    broken = feeds["archives"].upload_corrupt(numbers.take(), as_half_a_gzip, label="day")
    path.await_jobs([*lines.uploads, *tables.uploads], ["DONE"])
    path.await_jobs([orphan, broken], ["FAILED"])
    # An extent is FAILED a moment before its message is a dead letter.
    await_that("all queues are at rest", path.at_rest)
    poisoned = path.in_dead_letter_queues()
    failed = Counter(job["state"] for job in path.jobs().values())["FAILED"]
    for message in path.replay("--dry-run"):
        console.print(f"dead letter of job {message['job']}: {message['reason']}", highlight=False)
    _mend_topic(path, feeds["orphans"], orphan)
    _mend_object(path, feeds["archives"], broken, numbers)
    states = Counter(job["state"] for job in path.jobs().values())
    return {
        "uploaded": sum(len(one.uploads) for one in feeds.values()),
        "jobs_done": states["DONE"],
        "jobs_failed": states["FAILED"],
        "jobs_superseded": states["SUPERSEDED"],
        "jobs_failed_before_replay": failed,
        "dlq_after_poison": poisoned,
        "dlq_after_replay": path.in_dead_letter_queues(),
        "seconds_upload_to_first_record": round(seconds, 3),
    }


def _first_record(path: EventPath, feed: Feed, numbers: Numbers) -> float:
    """Warm the functions with one upload, then time another."""
    console.rule("from upload to the first record")
    path.await_jobs([feed.upload(numbers.take(), as_json_lines)], ["DONE"])
    timed = numbers.take()
    with Watcher(path.rig.kafka, feed.name) as watcher:
        return watcher.seconds_to_first_record(timed, lambda: feed.upload(timed, as_json_lines))


def _mend_topic(path: EventPath, feed: Feed, orphan: Upload) -> None:
    """Remove a cause outside: the same version is delivered, by the same job."""
    console.rule("the missing topic is created, its job replayed")
    feed.create_topic()
    path.replay(orphan.job)
    path.await_jobs([orphan], ["DONE"])
    console.print(f"job {orphan.job} delivered the pinned version {orphan.version.etag}")


def _mend_object(path: EventPath, feed: Feed, broken: Upload, numbers: Numbers) -> None:
    """Upload a corrected object under the same key; what is left of the old one is replayed."""
    console.rule("the corrupt object is corrected, the old one replayed")
    corrected = feed.upload(numbers.take(), as_gzip, label="day")
    path.await_jobs([corrected], ["DONE"])
    console.print(f"job {corrected.job} delivered the corrected object")
    path.replay()
    path.await_jobs([broken], ["SUPERSEDED"])
    console.print(f"job {broken.job} is SUPERSEDED")
    await_that("all queues are at rest", path.at_rest)


def _show(found: list[Found], summary: dict[str, Any]) -> None:
    topics = Table("topic", "rows expected", "records", "duplicates", "missing")
    for one in found:
        counts = (one.expected, one.records, one.duplicates, one.missing)
        topics.add_row(one.topic, *(f"{count:,}" for count in counts))
    console.print(topics)
    table = Table("", "", show_header=False)
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    console.print(table)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ExtentflowError, LocalStackError, CommandError) as exc:
        console.print(f"[red]{exc}[/red]")
        sys.exit(1)
