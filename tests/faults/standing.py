"""The standing query of a campaign: `extentflow stream` on a Spark cluster of two machines.

It drains the extents queue beside the worker functions; without functions it lists objects beside
the commands. A query that has ended, killed or by
itself, is submitted again at the next round that wants one.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.faults.commands import UNEXPECTED
from tests.faults.servers import Servers
from tests.support.submitting import LAYER, ROOT, clean_python, surroundings

from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.spark_submit import Submission, Submitter, library_zip

JOB = ROOT / "jobs" / "spark_stream.py"
HOSTS = ("127.0.0.1", "127.0.0.2")
# A stop may wait for one retry of an unavailable server, on a machine that others use.
STOP_SECONDS = 120.0
START_SECONDS = 120.0
BEGIN = ("draining ", "listing ")


@dataclass
class StandingQuery:
    """Starts, ends and watches the query. `killed`: this campaign ended the running one."""

    servers: Servers
    folder: Path
    codes: Counter[str] = field(default_factory=Counter)
    lies: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    submissions: int = 0
    killed: bool = False
    _cluster: SparkCluster | None = None
    _submitter: Submitter | None = None
    _submission: Submission | None = None
    _lost: set[int] = field(default_factory=set)

    def start(self) -> None:
        """Submit the query unless it runs, and bring lost machines back."""
        self.restore()
        if self.runs():
            return
        self._collect()
        self.submissions += 1
        self.killed = False
        with self._log().open("w") as output:
            self._submission = self._opened().submit(
                JOB,
                *self._work(),
                *("--every", "0.5", "--json", "--checkpoint"),
                (self.folder / f"checkpoint-{self.submissions}").as_uri(),
                output=output,
            )
        deadline = time.monotonic() + START_SECONDS
        while self.runs() and not self._began() and time.monotonic() < deadline:
            time.sleep(0.5)

    def runs(self) -> bool:
        """Return whether a submitted query has not ended."""
        return self._submission is not None and self._submission.process.poll() is None

    def stop(self) -> None:
        """End the query by SIGTERM as an operator does, and the cluster."""
        submission = self._submission
        if submission is not None and submission.process.poll() is None:
            driver = submission.driver()
            if driver is None:  # it has not started yet
                os.killpg(submission.process.pid, signal.SIGKILL)
                self.killed = True
            else:
                driver.send_signal(signal.SIGTERM)
            try:
                submission.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.lies.append(f"{self._log()}: runs {STOP_SECONDS:.0f} s after SIGTERM")
                os.killpg(submission.process.pid, signal.SIGKILL)
                submission.process.wait()
            code = submission.process.returncode
            if code != 0 and not self.killed and self._began():
                self.lies.append(f"{self._log()}: exit code {code} after SIGTERM, not 0")
        self._collect()
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    # -- processes ------------------------------------------------------------------------------

    def driver(self) -> list[psutil.Process]:
        """Return the driver's Python process."""
        found = None if self._submission is None else self._submission.driver()
        return [] if found is None else [found]

    def jvm(self) -> list[psutil.Process]:
        """Return the JVM of spark-submit."""
        if self._submission is None or self._submission.process.poll() is not None:
            return []
        return _processes([self._submission.process.pid])

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors."""
        return [] if self._cluster is None else _processes(self._cluster.executor_pids())

    def python_workers(self) -> list[psutil.Process]:
        """Return the processes in which tasks run."""
        return [] if self._cluster is None else _processes(self._cluster.python_worker_pids())

    def lose_machine(self, index: int) -> bool:
        """Kill a machine with its executors; it returns with `restore`."""
        if self._cluster is None or index in self._lost:
            return False
        self._cluster.kill_worker(index)
        self._lost.add(index)
        return True

    def restore(self) -> None:
        """Start lost machines again."""
        for index in sorted(self._lost):
            if self._cluster is not None:
                self._cluster.start_worker(index, HOSTS[index])
        self._lost.clear()

    def _work(self) -> tuple[str, ...]:
        if self.servers.path is not None:
            return ("--work", "queue")
        return ("--work", "listing", "--listing-interval-seconds", "3")

    def _opened(self) -> Submitter:
        if self._submitter is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._cluster = SparkCluster(self.folder / "cluster", hosts=HOSTS)
            self._cluster.start()
            environment = {
                **self.servers.delivery("stream").environment,
                **surroundings(clean_python(self.folder)),
            }
            if self.servers.path is not None:
                environment["AWS_ENDPOINT_URL_SQS"] = self.servers.path.proxy.endpoint
            library = library_zip(LAYER, self.folder)
            self._submitter = Submitter(self._cluster.master_url, library, environment)
        return self._submitter

    def _collect(self) -> None:
        """Note how the last query ended."""
        if self._submission is None:
            return
        self.codes[str(self._submission.process.wait())] += 1
        said = self._log().read_text(errors="replace")
        if not self.killed and any(mark in said for mark in UNEXPECTED):
            self.unexpected.append(str(self._log()))
        self._submission = None

    def _began(self) -> bool:
        """Return whether the query reported that it drains the queue."""
        said = self._log().read_text(errors="replace")
        return any(begin in said for begin in BEGIN)

    def _log(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"query-{self.submissions}.log"


def _processes(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found
