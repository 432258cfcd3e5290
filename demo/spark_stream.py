"""`make demo-spark-stream`: uploads become records through a streaming query on a Spark cluster.

S3 server ──> notifier ──> planner function ──> extents queue ──> Spark query ──> Kafka
one of its two machines is killed
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.eventpath import PROJECT, EventPath, await_that, event_path
from demo.eventrows import as_csv, as_json_lines, compare
from demo.feeds import Feed, Numbers
from demo.frame import ROOT, Demo, Outcome, console, ended, show_topics
from demo.rig import CommandError
from extentflow.model import JobState
from extentflow.wiring import Runtime
from extentflow_local.ports import HOST
from extentflow_local.project import Project
from extentflow_local.spark_cluster import SparkCluster
from extentflow_local.spark_submit import Submission, Submitter, library_zip

OBJECTS = 24
ROWS = 200_000
EXTENT = "2MiB"
JOB = PROJECT / "jobs" / "spark_stream.py"
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Query:
    """A submitted query; `log` has Spark's messages, and a line of JSON per trigger."""

    submission: Submission
    log: Path

    def triggers(self) -> list[dict[str, Any]]:
        """Return the reports of its triggers so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"batch"')]

    def stop(self) -> float:
        """Stop it with a signal; return the seconds that took.

        Raises:
            CommandError: it had ended before, or failed.
        """
        driver = self.submission.driver()
        if driver is None:
            raise CommandError(f"the query ended unexpectedly; see {self.log}")
        began = time.monotonic()
        driver.send_signal(signal.SIGTERM)
        driver.wait(STOP_SECONDS)
        seconds = time.monotonic() - began
        code = self.submission.process.wait(STOP_SECONDS)
        if code != 0:
            raise CommandError(f"the query ended with {code}; see {self.log}")
        return seconds


def _tell(run: str, objects: int) -> Outcome:
    work = ROOT / "var" / "demo" / "spark-stream" / run
    work.mkdir(parents=True)
    console.rule("stack, template, planner")
    with event_path(ROOT, run, console.print, uploads=True, workers=False) as path:
        feeds = [
            Feed(path, f"stream-lines-{run}", "jsonl"),
            Feed(path, f"stream-rows-{run}", "csv"),
        ]
        for feed in feeds:
            feed.declare(**{"extent.bytes": EXTENT})
            feed.create_topic()
        console.rule(f"{objects} objects, planned, without a worker")
        _upload(feeds, objects)
        console.rule("a Spark cluster of two machines, and the query")
        with SparkCluster(work / "cluster") as cluster, _query(path, cluster, work) as query:
            summary = _Story(path, cluster, query, feeds).run_story(objects)
        console.rule("reading the topics back with read_committed")
        found = [compare(path.rig.kafka, one.name, one.expected, []) for one in feeds]
    return Outcome(summary, found)


def _upload(feeds: list[Feed], objects: int) -> None:
    lines, rows = feeds
    numbers = Numbers(ROWS)
    for number in range(objects):
        if number % 2:
            rows.upload(numbers.take(), as_csv)
        else:
            lines.upload(numbers.take(), as_json_lines)


@contextmanager
def _query(path: EventPath, cluster: SparkCluster, work: Path) -> Iterator[Query]:
    """Yield the submitted query; no process is left afterwards."""
    environment = {
        **path.rig.environment,
        "PYSPARK_PYTHON": sys.executable,
        # Messages of a lost machine are visible again after two leases: twenty seconds here.
        "EXTENTFLOW_LEASE_SECONDS": "10",
    }
    submitter = Submitter(
        cluster.master_url, library_zip(Project(PROJECT).layer, work), environment
    )
    log = work / "driver.log"
    console.print(f"spark-submit writes its log to {log.relative_to(ROOT)}")
    with log.open("w") as output:
        submission = submitter.submit(JOB, "--every", "1", "--json", output=output)
        try:
            yield Query(submission, log)
        finally:
            if submission.process.poll() is None:
                driver = submission.driver()
                if driver is not None:
                    driver.kill()
                submission.process.kill()
                submission.process.wait()


class _Story:
    """Uploads while a machine is lost and replaced."""

    def __init__(
        self, path: EventPath, cluster: SparkCluster, query: Query, feeds: list[Feed]
    ) -> None:
        self._path = path
        self._cluster = cluster
        self._query = query
        self._feeds = feeds
        os.environ.update(path.rig.environment)  # no other source of credentials
        self._ledger = Runtime.from_environment().ledger

    def run_story(self, objects: int) -> dict[str, Any]:
        """Lose a machine midway, get it back; return what can be counted on the way."""
        self._await("the query has started, and delivered a first object", 1)
        began = time.monotonic()
        self._await("a quarter of the objects is delivered", objects // 4)
        self._cluster.kill_worker(0)
        before = self._done()
        console.print(f"killed one of two Spark machines; {before} of {objects} objects were done")
        self._await("the remaining machine continues", min(before + 1, objects))
        self._cluster.start_worker(0, HOST)
        self._await("all objects are delivered", objects)
        seconds = time.monotonic() - began
        await_that("the query reported it", lambda: any(self._told()))
        stopped = self._query.stop()
        return {
            "uploaded": sum(len(one.uploads) for one in self._feeds),
            "jobs_done": self._done(),
            "workers_killed": 1,
            "done_before_the_kill": before,
            "triggers": len(self._query.triggers()),
            "extents_told": sum(self._told()),
            "seconds": round(seconds, 1),
            "seconds_to_stop": round(stopped, 2),
            "dead_letters": self._path.in_dead_letter_queues(),
        }

    def _await(self, what: str, done: int) -> None:
        try:
            await_that(what, lambda: self._done() >= done)
        except CommandError as exc:
            raise CommandError(f"{exc}; {self._done()} are; {self._query.log} says more") from exc

    def _done(self) -> int:
        """Count objects that are delivered; by the ledger, for a command would take seconds."""
        return sum(
            1 for feed in self._feeds for _ in self._ledger.jobs.list(feed.name, JobState.DONE)
        )

    def _told(self) -> list[int]:
        return [one["extents"] for one in self._query.triggers()]


def _show(outcome: Outcome) -> None:
    show_topics(outcome.found)
    summary = outcome.summary
    console.print(
        f"{summary['uploaded']} objects, one machine of two killed after "
        f"{summary['done_before_the_kill']}; {summary['triggers']} triggers; stopped within "
        f"{summary['seconds_to_stop']} s; dead letters {summary['dead_letters']}",
        highlight=False,
    )


DEMO = Demo("demo-spark-stream", __doc__, OBJECTS, 4, _tell, _show, dead_letters="dead_letters")

if __name__ == "__main__":
    sys.exit(ended(DEMO.target, DEMO.main))
