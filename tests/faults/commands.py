"""Commands of a round: run again and again as an operator would, and checked for their exit codes.

exit 0          every object that was there before and is there after has a DONE job
exit 2          nothing was started: no extent was claimed, nothing committed
anything else   1, 130, or killed by this campaign
"""

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
from tests.faults.lanes import Lane

from extentflow.cli import INCOMPLETE, NOTHING_STARTED, STOPPED
from extentflow.model import JobState

# A command that takes longer hangs: its own limits are the leases and retries of seconds.
COMMAND_SECONDS = 300
UNEXPECTED = (
    "Traceback (most recent call last)",
    "unexpected ",
    "Assertion ",
    "Fatal Python error",
    "Segmentation fault",
)
MARKS = {"inline": "spawn_main", "spark": "pyspark.daemon"}


@dataclass
class Findings:
    """What commands did, and what they did wrong."""

    lies: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)


@dataclass
class Operator:
    """Repeats a lane's command on one engine: until `over`, then until the lane is settled."""

    lane: Lane
    engine: str
    logs: Path
    over: threading.Event
    findings: Findings
    environment: dict[str, str]
    # Set while anything else may start work of this lane.
    joined: threading.Event
    given_up: threading.Event
    process: "subprocess.Popen[str] | None" = None
    started_at: float = 0.0
    runs: int = 0
    orphaned: bool = False

    def go(self, deadline: float) -> None:
        """Run until the campaign's faults are over and the lane is settled, or until `deadline`."""
        while time.monotonic() < deadline and not self.given_up.is_set():
            over = self.over.is_set()
            code = self.run("run", self.lane.delivery.address, "--connector")
            if over and not self.lane.unsettled():
                return
            if code != 0 or over:
                self.run("replay", "--connector")

    def run(self, *words: str) -> int:
        """Run a command for the lane's connector, and check its exit code."""
        self.runs += 1
        log = self.logs / f"{self.lane.kind.name}-{self.engine}-{id(self) % 1000}-{self.runs}"
        before, touched = self.lane.current(), self._touched()
        with log.with_suffix(".json").open("w") as output, log.with_suffix(".log").open("w") as err:
            self.process = self._start([*words, self.lane.connector], output, err)
            self.started_at = time.monotonic()
            try:
                code = self.process.wait(timeout=COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                self.findings.hung.append(f"{log}: runs for {COMMAND_SECONDS} s")
                self.process.kill()
                code = self.process.wait()
        self.findings.codes[str(code)] += 1
        self._check(words, code, before, log)
        if code == NOTHING_STARTED and not self.orphaned:
            after = self._touched()
            if after != touched and not self.joined.is_set():
                self._lie(log, f"exit code 2, but {after - touched} more jobs and extents")
        # Workers of a killed driver continue for a moment.
        self.orphaned = code < 0
        return code

    def _start(
        self, words: Sequence[str], output: IO[str], errors: IO[str]
    ) -> "subprocess.Popen[str]":
        return self.lane.delivery.start(
            self.engine, *words, output=output, errors=errors, environment=self.environment
        )

    def _touched(self) -> int:
        """Count jobs and extents in the ledger: registering and claiming add to them."""
        ledger = self.lane.servers.direct.ledger
        return sum(1 + len(list(ledger.extents.list(job.id))) for job in self.lane.jobs())

    def _check(self, words: Sequence[str], code: int, before: Sequence[object], log: Path) -> None:
        said = log.with_suffix(".log").read_text(errors="replace")
        if any(mark in said for mark in UNEXPECTED):
            self.findings.unexpected.append(f"{log}.log")
        if code < 0 and code not in {-signal.SIGKILL, -signal.SIGTERM}:
            self.findings.unexpected.append(f"{log}.log: ended by signal {-code}")
        if code not in {0, INCOMPLETE, NOTHING_STARTED, STOPPED} and code >= 0:
            self._lie(log, f"undocumented exit code {code}")
        if code != 0:
            return
        try:
            jobs = {
                one["job"]
                for one in json.loads(log.with_suffix(".json").read_text())["jobs"]
                if not (one["earlier"] and one["state"] == JobState.SUPERSEDED)
            }
        except (ValueError, KeyError):
            self._lie(log, "exit code 0 without a report")
            return
        stayed = [one for one in self.lane.current() if one in before]
        if words[0] == "run":
            jobs |= {one.upload.job for one in stayed}
        for job in jobs:
            found = self.lane.servers.direct.ledger.jobs.get(job)
            state = "missing" if found is None else str(found.state)
            if state != JobState.DONE:
                self._lie(log, f"exit code 0, but job {job} is {state}")

    def _lie(self, log: Path, what: str) -> None:
        self.findings.lies.append(f"{log}: {what}")

    # -- processes ------------------------------------------------------------------------------

    def driver(self) -> psutil.Process | None:
        """Return the command's process while it runs."""
        process = self.process
        if process is None or process.poll() is not None:
            return None
        try:
            return psutil.Process(process.pid)
        except psutil.NoSuchProcess:
            return None

    def workers(self) -> list[psutil.Process]:
        """Return its worker processes."""
        found = [one for one in self._below() if MARKS[self.engine] in line_of(one)]
        if self.engine == "inline":
            return found
        return [one for one in found if MARKS["spark"] in line_of(parent_of(one))]

    def jvm(self) -> list[psutil.Process]:
        """Return the JVM of Spark's driver."""
        return [one for one in self._below() if "SparkSubmit" in line_of(one)]

    def _below(self) -> list[psutil.Process]:
        driver = self.driver()
        try:
            return [] if driver is None else driver.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def line_of(process: psutil.Process | None) -> str:
    """Return a process's command line; empty once it has ended."""
    try:
        return "" if process is None else " ".join(process.cmdline())
    except psutil.Error:
        return ""


def parent_of(process: psutil.Process) -> psutil.Process | None:
    """Return a process's parent; None once it has ended."""
    try:
        return process.parent()
    except psutil.Error:
        return None
