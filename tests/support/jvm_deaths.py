"""Runs Spark engines whose JVM is killed, in a process of their own, and prints what each raised.

One context follows another, as `deliver` called again in a notebook.
"""

import json
import os
import signal
import sys

from tests.support.local_engine import RecordingListener
from tests.support.workers import RUN, extent, receipt

from extentflow.engines import Task, WorkerSpec
from extentflow.engines.spark import SparkEngine, local_context
from extentflow.errors import ExtentflowError
from extentflow.model import Extent, Outcome, Receipt
from extentflow.spark.query import session

Settings = dict[str, str]


class Worker:
    """Kills the JVM that its settings name, or delivers."""

    def __init__(self, settings: Settings, owner: str) -> None:
        self._settings = settings
        self._owner = owner

    def run(self, extent: Extent) -> Receipt:
        if self._settings:
            os.kill(int(self._settings["jvm"]), signal.SIGKILL)
        return receipt(extent, Outcome.DONE, self._owner)

    def stop(self) -> None:
        """Nothing is in progress."""

    def close(self) -> None:
        """Holds nothing."""


def kill_during(step: str) -> None:
    """Kill the JVM during one step of a run, or during none."""
    context = local_context(1)
    pid = context._gateway.proc.pid  # type: ignore[union-attr]
    spec = WorkerSpec(Worker, {"jvm": str(pid)} if step == "task" else {}, RUN)
    engine = SparkEngine(spec, context, max_tasks=1, evict=lambda _owner: 0)
    try:
        if step == "planning":
            os.kill(pid, signal.SIGKILL)
        assert engine.cores == 1
        listener = RecordingListener()
        engine.run([Task((extent(),))], listener)
        assert [one.outcome for one in listener.receipts] == [Outcome.DONE]
    finally:
        engine.close()


def kill_in_session() -> None:
    """Kill the JVM of a streaming command between two calls."""
    with session(None, 1) as spark:
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)  # type: ignore[union-attr]
        spark.range(1).collect()


def main() -> None:
    """Print the class and message of each error; the last run delivers."""
    for step in ("planning", "task", "none", "session"):
        said = ["", ""]
        try:
            if step == "session":
                kill_in_session()
            else:
                kill_during(step)
        except ExtentflowError as exc:
            said = [type(exc).__name__, str(exc)]
        sys.stdout.write(json.dumps([step, *said]) + "\n")


if __name__ == "__main__":
    main()
