"""The Spark engine: the same extents on Python workers of any Spark cluster.

Owns: the session, one Spark task per extentflow task, progress over accumulators. Refuses to
know: what a worker does. Rows never pass through the JVM: tasks go out, receipts come back.

A Spark task returns only when its extents are final, or their connector rests and nobody works on
them, so that a speculative or retried copy can wait for the original instead of overtaking it. A
worker lives as long as its Python process.

A cancelled or failed Spark job leaves Python workers behind for up to 4 s, and one that is fenced
claims anew. So such a run ends the context first, and only then are the workers' slots settled.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import as_file, files

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException

from extentflow.engines import RunListener, Task, Worker, WorkerSpec, run_in_turn
from extentflow.engines.resident import resident
from extentflow.errors import ExtentflowError, Misconfigured, Permanent, Retryable
from extentflow.model import Receipt

log = logging.getLogger(__name__)

TASK_FAILURES = 4
POLL_SECONDS = 0.5
CANCEL_SECONDS = 0.2
# How long executors on other machines are given to end their Python workers, and to be looked at.
LINGER_SECONDS = 3.0
LOOK_SECONDS = 1.0
TRACE = "Traceback (most recent call last):"
ABORTED = "Job aborted due to stage failure: "
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# As in log4j2.properties.
QUERY_LOGGERS = [
    f"org.apache.spark.sql.execution.{name}" for name in ("streaming", "datasources", "python")
]
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkRunFailed(Retryable):
    """Spark gave a task up; the message is its last Python error. Run again to resume."""


class _Receipts(AccumulatorParam[list[Receipt]]):
    """Collects receipts on the driver while tasks finish."""

    def zero(self, value: list[Receipt]) -> list[Receipt]:  # noqa: ARG002 - Spark's signature
        return []

    def addInPlace(self, value1: list[Receipt], value2: list[Receipt]) -> list[Receipt]:  # noqa: N802
        value1.extend(value2)
        return value1


def local_context(cores: int, extra: dict[str, str] | None = None) -> SparkContext:
    """Return a context on this machine; `local[N,4]` so that a dead Python worker is retried."""
    settings = {**QUIET, **LOOPBACK, **(extra or {})}
    # Out of a zipped library it is a file only as long as the JVM needs to read it.
    with as_file(files("extentflow.engines") / "log4j2.properties") as log4j:
        ours = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        }
        with _environment(ours):
            return context(f"local[{cores},{TASK_FAILURES}]", settings)


def quiet(sc: SparkContext) -> None:
    """Let a driver whose log is not ours to set up keep its traces of failed queries to itself.

    What they come to is in our own message. What it says of lost tasks and executors stays.
    """
    log4j = sc._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    for name in QUERY_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that nobody has set, as long as the JVM needs to start.

    What else this process starts, another Spark perhaps, has none of them.
    """
    missing = {name: text for name, text in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def context(master: str | None, settings: dict[str, str]) -> SparkContext:
    """Return the running context, or a new one; `master` None leaves it to spark-submit.

    Raises:
        Misconfigured: Spark does not start there.
    """
    conf = SparkConf().setAppName("extentflow").setAll(list(settings.items()))
    if master is not None:
        conf = conf.setMaster(master)
    try:
        with _put_off():
            return SparkContext.getOrCreate(conf)
    except (Py4JError, PySparkException, OSError) as exc:
        where = master or "the master that spark-submit was given"
        raise Misconfigured(
            f"Spark does not start on {where}: {_cause(exc)}; check the address, and that its "
            "master runs and can be reached from here"
        ) from exc


@contextmanager
def _put_off() -> Iterator[None]:
    """Let Ctrl-C wait until the JVM has started: one that nobody hears from any more never ends.

    A second one does not wait.
    """
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or before in (None, signal.SIG_IGN):
        yield
        return
    asked = False

    def wait(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is wait:  # a context has put its own there
            signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def is_running() -> bool:
    """Whether this process has a context already, which then is somebody else's."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - there is no other way


class SparkEngine:
    """Runs tasks on a SparkContext's executors; `evict(run)` settles what workers left behind.

    `most` bounds the tasks at once: a task without a slot would only wait. `owned` contexts end
    with a run that was stopped or failed; somebody else's goes on.
    """

    def __init__(
        self,
        spec: WorkerSpec[Worker],
        sc: SparkContext,
        *,
        most: int,
        evict: Callable[[str], int],
        owned: bool = True,
    ) -> None:
        self._spec = spec
        self._sc = sc
        self._most = most
        self._evict = evict
        self._owned = owned
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._whole = True

    @property
    def cores(self) -> int:
        """Parallel tasks: what the cluster offers, at most `most`."""
        return max(1, min(int(self._sc.defaultParallelism), self._most))

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        """See `Engine.run`."""
        if not tasks:
            return
        self._idle.clear()  # before the look at `stopping`, so that `stop` misses no job
        try:
            if not self._stopping.is_set():
                self._run(tasks, watch)
        finally:
            self._idle.set()

    def _run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        receipts = self._sc.accumulator([], _Receipts())
        over = threading.Event()
        watcher = threading.Thread(target=_follow, args=(receipts, over, watch), daemon=True)
        watcher.start()
        self._whole = False
        try:
            self._sc.setJobGroup(self._spec.run, "extentflow")
            shares = deal(tasks, self._partitions(len(tasks)))
            rdd = self._sc.parallelize(shares, len(shares))
            rdd.foreachPartition(partial(_run_partition, self._spec, receipts))
            self._whole = True
        except (Py4JError, OSError) as exc:
            if not self._stopping.is_set():
                raise _translated(exc) from exc
        finally:
            over.set()
            watcher.join()

    def _partitions(self, tasks: int) -> int:
        """Return into how many partitions so many tasks go; `most` may run at once.

        One each, so that no core waits for another's, where cores cannot become more than `most`:
        those of a local master, which are there from the start. Elsewhere executors register late,
        come and go, and `defaultParallelism` tells nothing of those to come.
        """
        fixed = str(self._sc.master).startswith("local")
        if fixed and int(self._sc.defaultParallelism) <= self._most:
            return tasks
        return min(tasks, self._most)

    def stop(self) -> None:
        """See `Engine.stop`: cancel the tasks; `close` fences and settles what they held."""
        self._stopping.set()
        threading.Thread(target=self._cancel, daemon=True).start()

    def close(self) -> None:
        """Take over the slots of this run's workers, so that nobody waits for their leases."""
        if self._whole:
            self._evict(self._spec.run)
            return
        alone = self._owned and str(self._sc.master).startswith("local")
        if self._owned:
            self._end_context()
        self._evict(self._spec.run)
        if not alone:
            self._evict_until_quiet()

    def _cancel(self) -> None:
        """Cancel again and again: the job may be about to start."""
        with suppress(Py4JError, OSError):  # the JVM got the signal, too, and is gone
            while not self._idle.is_set():
                self._sc.cancelJobGroup(self._spec.run)
                self._idle.wait(CANCEL_SECONDS)

    def _end_context(self) -> None:
        """End executors and their Python workers; a local context has none left afterwards."""
        jvm = getattr(self._sc._gateway, "proc", None)  # noqa: SLF001 - spark-submit's is not ours
        try:
            self._sc.setLogLevel("OFF")  # what tasks say when their executor goes away
            self._sc.stop()
        except (Py4JError, OSError) as exc:
            log.debug("the JVM got the signal, too, and its workers end with it: %s", exc)
            if jvm is not None:
                with suppress(subprocess.TimeoutExpired):
                    jvm.wait(LINGER_SECONDS)

    def _evict_until_quiet(self) -> None:
        """Fence until no worker comes back: a fenced one claims anew as long as it lives."""
        until = time.monotonic() + LINGER_SECONDS
        while time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            if not self._evict(self._spec.run):
                return


def _follow(receipts: object, over: threading.Event, watch: RunListener) -> None:
    seen = 0
    last = False
    while not last:
        last = over.wait(POLL_SECONDS)
        values: list[Receipt] = receipts.value  # type: ignore[attr-defined]
        for receipt in values[seen : (count := len(values))]:
            watch.on_receipt(receipt)
        seen = count


def deal(tasks: Sequence[Task], parts: int) -> list[tuple[Task, ...]]:
    """Deal tasks, the largest first, in turn: each partition begins with one of the largest."""
    return [tuple(tasks[first::parts]) for first in range(parts)]


def _run_partition(
    spec: WorkerSpec[Worker], receipts: object, shares: Iterator[tuple[Task, ...]]
) -> None:
    """Run on an executor, in a Python worker: every extent of every task, one after the other."""
    worker = resident(spec)
    for task in (task for share in shares for task in share):
        for receipt in run_in_turn(task.extents, worker.run):
            receipts.add([receipt])  # type: ignore[attr-defined]


def _translated(exc: Exception) -> ExtentflowError:
    """Return our own error out of Spark's report of a failed task."""
    text = str(exc)
    found = re.findall(r"extentflow\.errors\.(\w+): (.+)", text)
    if found:
        kind, message = found[-1]
        permanent = kind in {cls.__name__ for cls in Permanent.__subclasses__()}
        return Permanent(message) if permanent else SparkRunFailed(message)
    return SparkRunFailed(f"Spark gave up: {told(text) or repr(exc)}")


def _cause(exc: Exception) -> str:
    """Return what Java says happened, without its trace."""
    _, _, java = str(exc).partition("\n: ")
    return (java or str(exc)).strip().partition("\n")[0] or type(exc).__name__


def told(text: str) -> str:
    """Return the line that says most: the last one of a Python trace, else Spark's own reason."""
    _, _, trace = text.partition(TRACE)
    python = [line for line in trace.partition("\n\tat ")[0].splitlines() if line.strip()]
    spark = [line.rpartition(ABORTED)[2] for line in text.splitlines() if ABORTED in line]
    return next(iter([*python[-1:], *spark]), "")
