"""`make demo-events`: uploads become records in Kafka; failures are fixed and replayed."""

import sys
from collections import Counter
from typing import Any

from rich.table import Table

from demo.eventpath import EventPath, Upload, await_that, event_path
from demo.eventrows import Watcher, as_csv, as_gzip, as_half_a_gzip, as_json_lines, compare
from demo.feeds import Feed, Numbers
from demo.frame import ROOT, Demo, Outcome, console, ended, show_topics

OBJECTS = 20
ROWS = 5_000
ENDED = ("DONE", "FAILED", "SUPERSEDED", "CANCELLED")


def _tell(run: str, objects: int) -> Outcome:
    console.rule("stack, template, functions")
    with event_path(ROOT, run, console.print, uploads=True) as path:
        feeds = _feeds(path, run)
        summary = _story(path, feeds, Numbers(ROWS), objects)
        console.rule("reading the topics back with read_committed")
        found = [
            compare(path.rig.kafka, one.name, one.expected, one.tolerated) for one in feeds.values()
        ]
    return Outcome(summary, found)


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


def _story(
    path: EventPath, feeds: dict[str, Feed], numbers: Numbers, objects: int
) -> dict[str, Any]:
    """Upload, cause failures, fix them; return the counts."""
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
    # An extent becomes FAILED shortly before its message reaches the dead letter queue.
    await_that("all queues are empty", path.is_drained)
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
    """Warm up the functions with one upload, then time another."""
    console.rule("from upload to the first record")
    path.await_jobs([feed.upload(numbers.take(), as_json_lines)], ["DONE"])
    timed = numbers.take()
    with Watcher(path.rig.kafka, feed.name) as watcher:
        return watcher.seconds_to_first_record(timed, lambda: feed.upload(timed, as_json_lines))


def _mend_topic(path: EventPath, feed: Feed, orphan: Upload) -> None:
    """Remove a cause outside: the same version is delivered, by the same job."""
    console.rule("the missing topic is created, and its job is replayed")
    feed.create_topic()
    path.replay(orphan.job)
    path.await_jobs([orphan], ["DONE"])
    console.print(f"job {orphan.job} delivered the pinned version {orphan.version.etag}")


def _mend_object(path: EventPath, feed: Feed, broken: Upload, numbers: Numbers) -> None:
    """Upload a corrected object under the same key; what is left of the old one is replayed."""
    console.rule("the corrupt object is corrected, and the old job is replayed")
    corrected = feed.upload(numbers.take(), as_gzip, label="day")
    path.await_jobs([corrected], ["DONE"])
    console.print(f"job {corrected.job} delivered the corrected object")
    path.replay()
    path.await_jobs([broken], ["SUPERSEDED"])
    console.print(f"job {broken.job} is SUPERSEDED")
    await_that("all queues are empty", path.is_drained)


def _show(outcome: Outcome) -> None:
    show_topics(outcome.found)
    table = Table("", "", show_header=False)
    for name, value in outcome.summary.items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    console.print(table)


DEMO = Demo("demo-events", __doc__, OBJECTS, 2, _tell, _show, dead_letters="dlq_after_replay")

if __name__ == "__main__":
    sys.exit(ended(DEMO.target, DEMO.main))
