"""A streaming query on a Spark cluster of two machines, one of which is lost and replaced."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from demo.eventpath import PROJECT, await_that
from demo.eventrows import as_csv, as_json_lines
from demo.feeds import Feed, Numbers, Site
from demo.frame import ROOT, Outcome, console, show_topics
from demo.rig import CommandError
from extentflow.model import JobState
from extentflow.wiring import Runtime
from extentflow_local.aws.project import Project
from extentflow_local.stack.ports import HOST
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.spark_submit import Submission, Submitter, library_zip

OBJECTS = 24
ROWS = 200_000
EXTENT = "2MiB"
JOB = PROJECT / "jobs" / "spark_stream.py"
STOP_SECONDS = 60.0


@dataclass(slots=True)
class Query:
    """A submitted query; `log` has Spark's messages, and a line of JSON per trigger.

    One that Spark ends is submitted again, `most_restarts` times at most, as a supervisor does:
    on a busy machine Spark waits too briefly for its Python processes.
    """

    submit: Callable[[], Submission]
    log: Path
    most_restarts: int = 3
    restarts: int = 0
    submission: Submission = field(init=False)

    def __post_init__(self) -> None:
        self.submission = self.submit()

    def triggers(self) -> list[dict[str, Any]]:
        """Return the reports of its triggers so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"batch"')]

    def keep_running(self) -> None:
        """Submit it again if it has ended. Raises CommandError: it did so too often."""
        if (code := self.submission.process.poll()) is None:
            return
        if self.restarts == self.most_restarts:
            raise CommandError(f"the query ended unexpectedly with {code}; see {self.log}")
        self.restarts += 1
        console.print(f"the query ended with {code}, and is submitted again")
        self.submission = self.submit()

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


@contextmanager
def submitted_query(
    environment: Mapping[str, str], cluster: SparkCluster, work: Path, *words: str
) -> Iterator[Query]:
    """Yield the submitted query; no process is left afterwards."""
    environment = {
        **environment,
        "PYSPARK_PYTHON": sys.executable,
        # What a lost machine held is free again after one or two leases: twenty seconds here.
        "EXTENTFLOW_LEASE_SECONDS": "10",
    }
    submitter = Submitter(
        cluster.master_url, library_zip(Project(PROJECT).layer, work), environment
    )
    log = work / "driver.log"
    console.print(f"spark-submit writes its log to {log.relative_to(ROOT)}")
    with log.open("w") as output:
        submit = partial(submitter.submit, JOB, "--every", "1", "--json", *words, output=output)
        query = Query(submit, log)
        try:
            yield query
        finally:
            submission = query.submission
            if submission.process.poll() is None:
                driver = submission.driver()
                if driver is not None:
                    driver.kill()
                submission.process.kill()
                submission.process.wait()


def two_feeds(path: Site, run: str) -> list[Feed]:
    """Return connectors with topics of their own: JSON lines, and CSV."""
    feeds = [
        Feed(path, f"stream-lines-{run}", "jsonl"),
        Feed(path, f"stream-rows-{run}", "csv"),
    ]
    for feed in feeds:
        feed.create_topic()
    return feeds


def upload(feeds: list[Feed], numbers: Numbers, objects: int) -> None:
    """Upload objects to both in turn."""
    lines, rows = feeds
    for number in range(objects):
        if number % 2:
            rows.upload(numbers.take(), as_csv)
        else:
            lines.upload(numbers.take(), as_json_lines)


@dataclass(frozen=True, slots=True)
class Story:
    """Delivers while a machine is lost and replaced. `at_loss` is called with the number done."""

    environment: Mapping[str, str]
    cluster: SparkCluster
    query: Query
    feeds: list[Feed]

    def run_story(
        self, objects: int, at_loss: Callable[[int], object] = lambda _done: None
    ) -> dict[str, Any]:
        """Lose a machine midway, get it back; return what can be counted on the way."""
        os.environ.update(self.environment)  # no other source of credentials
        runtime = Runtime.from_environment()
        self._await(runtime, "the query has started, and delivered a first object", 1)
        began = time.monotonic()
        self._await(runtime, "a quarter of the objects is delivered", objects // 4)
        self.cluster.kill_worker(0)
        before = self._done(runtime)
        console.print(f"killed one of two Spark machines; {before} of {objects} objects were done")
        at_loss(before)
        self._await(runtime, "the remaining machine continues", min(before + 1, objects))
        self.cluster.start_worker(0, HOST)
        self._await(runtime, "all objects are delivered", objects)
        seconds = time.monotonic() - began
        await_that("the query reported it", lambda: any(self._told()))
        stopped = self.query.stop()
        return {
            "uploaded": sum(len(one.uploads) for one in self.feeds),
            "jobs_done": self._done(runtime),
            "workers_killed": 1,
            "done_before_the_kill": before,
            "query_restarts": self.query.restarts,
            "triggers": len(self.query.triggers()),
            "extents_told": sum(self._told()),
            "seconds": round(seconds, 1),
            "seconds_to_stop": round(stopped, 2),
        }

    def _await(self, runtime: Runtime, what: str, done: int) -> None:
        def holds() -> bool:
            self.query.keep_running()
            return self._done(runtime) >= done

        try:
            await_that(what, holds)
        except CommandError as exc:
            raise CommandError(
                f"{exc}; {self._done(runtime)} are; {self.query.log} says more"
            ) from exc

    def _done(self, runtime: Runtime) -> int:
        """Count objects that are delivered; by the ledger, for a command would take seconds."""
        jobs = runtime.ledger.jobs
        return sum(1 for feed in self.feeds for _ in jobs.list(feed.name, JobState.DONE))

    def _told(self) -> list[int]:
        return [one["extents"] for one in self.query.triggers()]


def show(outcome: Outcome) -> None:
    """Show the topics, and what happened."""
    show_topics(outcome.found)
    summary = outcome.summary
    console.print(
        f"{summary['uploaded']} objects, one machine of two killed after "
        f"{summary['done_before_the_kill']}; {summary['triggers']} triggers; stopped within "
        f"{summary['seconds_to_stop']} s; dead letters {summary['dead_letters']}",
        highlight=False,
    )
