"""The Spark engine: runs extents on the Python workers of any Spark cluster.

    driver      tasks ──parallelize──> one partition per task, or per slot
    executor    partition ──run_in_turn──> receipts ──accumulator──> driver
                error of the library ──note with class and message──> driver raises the same class

A Spark task returns only when its extents are final, or their connector is paused and no worker
holds them. So a speculative or retried copy waits for the original instead of overtaking it.

A cancelled or failed Spark job leaves Python workers running for up to 4 s, and a fenced worker
leases another slot. Such a run therefore ends its context first and settles the slots afterwards.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import as_file, files
from typing import Any, TypeVar
from uuid import uuid4
from zipimport import zipimporter

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from extentflow import errors
from extentflow.engines import CachedWorker, RunListener, Task, Worker, WorkerSpec, run_in_turn
from extentflow.engines.jvm_output import filtered_errors
from extentflow.errors import ExtentflowError, Misconfigured, Retryable
from extentflow.model import Receipt

log = logging.getLogger(__name__)

TASK_FAILURES = 4
POLL_SECONDS = 0.5
CANCEL_SECONDS = 0.2
# Executors on other machines end their Python workers within this time; slots are swept meanwhile.
LINGER_SECONDS = 3.0
SWEEP_SECONDS = 1.0
ERROR_NOTE = "extentflow-error: "
TRACE = "Traceback (most recent call last):"
JAVA_CLASS = re.compile(r"^:?\s*(?:[a-z]\w*\.)+[\w$]+(?:Exception|Error): ")
ABORTED = "Job aborted due to stage failure: "
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# This JVM only schedules: records stay in Python workers. It starts in half of the CPU time so.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# As in log4j2.properties.
QUERY_LOGGERS = [
    f"org.apache.spark.sql.execution.{name}" for name in ("streaming", "datasources", "python")
]

W = TypeVar("W", bound=CachedWorker)

_cached: tuple[int, WorkerSpec[Any], Any] | None = None
_tasks: tuple[int, int] = (0, 0)  # the process and how many tasks it has started


class QueryFailed(Retryable):
    """Spark ended the query; the message is its cause. The next query resumes its work."""


class SparkRunFailed(Retryable):
    """Spark gave up a task without an error of the library; run again to resume."""


class JvmEnded(Retryable):
    """Spark's JVM was killed, or ended by itself, while a command used it."""


@contextmanager
def spark_task(spec: WorkerSpec[W]) -> Iterator[W]:
    """Yield this process's worker to one Spark task; errors get a note for `typed_error`."""
    with noted_errors():
        yield cached_worker(spec)


@contextmanager
def noted_errors(nonce: str = "") -> Iterator[None]:
    """Add a note for `typed_error` to errors of the library, in a task's Python process.

    `nonce` is of letters and digits; the driver draws it where messages repeat data of users.
    """
    try:
        yield
    except ExtentflowError as exc:
        kind = next(cls for cls in type(exc).__mro__ if cls.__module__ == errors.__name__)
        note = json.dumps({"class": kind.__name__, "message": str(exc)})
        exc.add_note(f"{_error_note(nonce)}{note}")
        raise


def _error_note(nonce: str) -> str:
    return f"{ERROR_NOTE}{nonce} " if nonce else ERROR_NOTE


def cached_worker(spec: WorkerSpec[W]) -> W:
    """Return this process's worker for `spec`; another one is closed. Called once per task."""
    global _cached, _tasks  # noqa: PLW0603 - the process is the scope: Spark reuses it
    pid = os.getpid()
    if _cached is not None and _cached[:2] != (pid, spec):
        if _cached[0] == pid:
            _cached[2].close()
            gc.unfreeze()  # lets the collector free the closed worker
            _tasks = (0, 0)
        _cached = None  # stays empty if opening the next worker fails
    reduce_task_overhead()
    if _cached is None:
        _cached = (pid, spec, spec.open(spec.settings, f"{spec.run}/{uuid4().hex}"))
    worker: W = _cached[2]
    return worker


def reduce_task_overhead() -> None:
    """Avoid 0.2 s of CPU that PySpark spends around each later task of this process.

    Call it when a task starts. After each task PySpark collects garbage: objects of the first task
    are frozen, so that the collector skips them. Before each task it invalidates all import caches.
    Every importer of a package inside a zip file then reads the file's directory again. One
    importer per file is left; Python creates the others again on the next import.
    """
    global _tasks  # noqa: PLW0603 - as above
    pid = os.getpid()
    started = _tasks[1] if _tasks[0] == pid else 0
    _tasks = (pid, started + 1)
    if started == 1:
        gc.freeze()
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.prefix:
            sys.path_importer_cache.pop(path, None)


def _run_partition(
    spec: WorkerSpec[Worker],
    receipts: Any,  # noqa: ANN401 - pyspark's accumulator has no types
    shares: Iterator[tuple[Task, ...]],
) -> None:
    with spark_task(spec) as worker:
        for task in (task for share in shares for task in share):
            for receipt in run_in_turn(task.extents, worker.run):
                receipts.add([receipt])


def local_context(
    cores: int,
    settings: Mapping[str, str] | None = None,
    *,
    java_options: str = QUICK,
    filtered: bool = False,
) -> SparkContext:
    """Return a context on this machine; `local[N,4]` retries the task of a dead Python worker.

    `settings` are Spark's, over those of a local context; `java_options` are the JVM's. `filtered`:
    its standard error is without the reports of a start that works.
    """
    # From a zipped library the properties are a temporary file, needed until the JVM has read it.
    with as_file(files("extentflow.engines") / "log4j2.properties") as log4j:
        ours = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"{java_options} -Dlog4j2.configurationFile={log4j.as_uri()}",
        }
        # Set while the JVM starts; child processes that start later do without.
        missing = {name: text for name, text in ours.items() if name not in os.environ}
        os.environ.update(missing)
        try:
            master = f"local[{cores},{TASK_FAILURES}]"
            return context(master, {**LOCAL, **(settings or {})}, filtered=filtered)
        finally:
            for name in missing:
                os.environ.pop(name, None)


def silence_query_logs(sc: SparkContext) -> None:
    """Turn off Spark's log of failed queries, whose cause our message names, on any driver."""
    log4j = sc._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    for name in QUERY_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


def context(
    master: str | None, settings: dict[str, str], *, filtered: bool = False
) -> SparkContext:
    """Return the running context, or a new one; `master` None: spark-submit chooses it.

    Raises JvmEnded where the JVM was killed, and Misconfigured where it does not start.
    """
    conf = SparkConf().setAppName("extentflow").setAll(list(settings.items()))
    if master is not None:
        conf = conf.setMaster(master)
    try:
        return _started_context(conf, filtered=filtered)
    except (Py4JError, PySparkException, OSError) as exc:
        code = _start_code(exc)
        ended = _ended_jvm(code, "while it started") if code and _signal_of(code) else jvm_end()
        if ended:
            _forget_context()
            raise ended from exc
        where = master or "the master given to spark-submit"
        _, _, java = str(exc).partition("\n: ")  # py4j puts Java's message before its stack trace
        cause = (java or str(exc)).strip().partition("\n")[0] or type(exc).__name__
        check = "check the address, and that its master runs and can be reached from here"
        if where.startswith("local"):
            check = "check JAVA_HOME and the settings of Spark; its output is above"
        raise Misconfigured(f"Spark does not start on {where}: {cause}; {check}") from exc


def _started_context(conf: SparkConf, *, filtered: bool, again: bool = False) -> SparkContext:
    """Start a JVM; a second one where the first ended with an exit code before it answered.

    Because a script of the start that is killed ends with 1, as it does for a wrong setting.
    """
    try:
        with _defer_interrupt():
            if filtered and SparkContext._gateway is None:  # noqa: SLF001 - there is no public way
                return _filtered_context(conf)
            return SparkContext.getOrCreate(conf)
    except PySparkException as exc:
        code = _start_code(exc)
        if again or code is None or _signal_of(code):
            raise
        log.warning("Spark's JVM ended with exit code %d while it started; starting another", code)
    return _started_context(conf, filtered=filtered, again=True)


def _filtered_context(conf: SparkConf) -> SparkContext:
    with filtered_errors() as errors:
        gateway = launch_gateway(conf, {"stderr": errors})  # type: ignore[no-untyped-call]
        return SparkContext(conf=conf, gateway=gateway)


@contextmanager
def _defer_interrupt() -> Iterator[None]:
    """Delay the first Ctrl-C until the JVM has started: an interrupted start leaves it running."""
    before, thread = signal.getsignal(signal.SIGINT), threading.current_thread()
    if thread is not threading.main_thread() or before in (None, signal.SIG_IGN):
        yield
        return
    interrupted = False

    def wait(_number: int, _frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is wait:  # a new context has installed its own handler
            signal.signal(signal.SIGINT, before)
    if interrupted:
        raise KeyboardInterrupt


def is_running() -> bool:
    """Whether this process already has a context, which the engine then does not own."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - there is no public way


@contextmanager
def jvm_calls() -> Iterator[None]:
    """Raise JvmEnded for errors of calls, by py4j or the operating system, to an ended JVM."""
    try:
        yield
    except (Py4JError, OSError) as exc:
        if ended := jvm_end():
            raise ended from exc
        raise


def jvm_end() -> JvmEnded | None:
    """Return the error of a JVM that was started and does not answer any more, else None."""
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way
    if gateway is None:
        return None
    try:
        gateway.jvm.java.lang.System.currentTimeMillis()
    except (Py4JError, OSError) as exc:
        log.debug("the JVM does not answer: %s", exc)
    else:
        return None
    code = None
    if (process := getattr(gateway, "proc", None)) is not None:  # None under spark-submit
        with suppress(subprocess.TimeoutExpired):
            code = process.wait(LINGER_SECONDS)
    return _ended_jvm(code)


def _start_code(exc: Exception) -> int | None:
    """Return the exit code of a JVM that ended before it answered, else None."""
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        process = frame.f_locals.get("proc")  # PySpark keeps it to itself until then
        if isinstance(process, subprocess.Popen):
            if process.stdin is not None:
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                return process.wait(LINGER_SECONDS)
    return None


def _signal_of(code: int) -> int:
    """Return the signal that ended a process, 0 for none; shells and JVMs report 128 + signal."""
    return -code if code < 0 else max(0, code - 128)


def _ended_jvm(code: int | None, when: str = "") -> JvmEnded:
    how = ""
    if code is not None:
        number = _signal_of(code)
        how = f"by signal {number}" if number else f"with exit code {code}"
    words = " ".join(filter(None, ("Spark's JVM ended", how, when)))
    return JvmEnded(f"{words}; committed records stay, and the same command continues the work")


def _forget_context() -> None:
    """Let the next context of this process start a JVM, instead of calling the one that ended."""
    with SparkContext._lock:  # noqa: SLF001 - PySpark keeps both for ever
        SparkContext._active_spark_context = None  # noqa: SLF001
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


class _Receipts(AccumulatorParam[list[Receipt]]):
    def zero(self, value: list[Receipt]) -> list[Receipt]:  # noqa: ARG002 - Spark's signature
        return []

    def addInPlace(self, value1: list[Receipt], value2: list[Receipt]) -> list[Receipt]:  # noqa: N802
        value1.extend(value2)
        return value1


class SparkEngine:
    """Runs at most `max_tasks` at once; a stopped or failed run ends a context that is `owned`."""

    def __init__(
        self,
        spec: WorkerSpec[Worker],
        sc: SparkContext,
        *,
        max_tasks: int,
        evict: Callable[[str], int],
        owned: bool = True,
    ) -> None:
        self._spec = spec
        self._sc = sc
        self._max_tasks = max_tasks
        self._evict = evict
        self._owned = owned
        self._stopping, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._complete = True

    @property
    def cores(self) -> int:
        try:
            with jvm_calls():
                return max(1, min(int(self._sc.defaultParallelism), self._max_tasks))
        except JvmEnded:
            self._complete = False
            raise

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        self._idle.clear()  # before `stopping` is read, so that `stop` never misses a job
        try:
            if tasks and not self._stopping.is_set():
                self._run(tasks, listener)
        finally:
            self._idle.set()

    def _run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        receipts = self._sc.accumulator([], _Receipts())
        over = threading.Event()
        reporter = threading.Thread(target=_report, args=(receipts, over, listener), daemon=True)
        reporter.start()
        self._complete = False
        try:
            self._sc.setJobGroup(self._spec.run, "extentflow")
            # A partition per task lets no core idle while another has tasks queued, and needs a
            # slot per core: executors of a cluster register late, come and go, so that only a local
            # master's `defaultParallelism` says how many cores there will be.
            enough = self._is_local() and int(self._sc.defaultParallelism) <= self._max_tasks
            shares = deal(tasks, len(tasks) if enough else min(len(tasks), self._max_tasks))
            rdd = self._sc.parallelize(shares, len(shares))
            rdd.foreachPartition(partial(_run_partition, self._spec, receipts))
            self._complete = True
        except (Py4JError, OSError) as exc:
            if not self._stopping.is_set():
                lost = f"Spark gave up a task: {last_cause(str(exc)) or exc!r}"
                raise (typed_error(str(exc)) or jvm_end() or SparkRunFailed(lost)) from exc
        finally:
            over.set()
            reporter.join()

    def _is_local(self) -> bool:
        return str(self._sc.master).startswith("local")

    def stop(self) -> None:
        """Cancel the tasks, as `Engine.stop`; `close` fences and settles their slots."""
        self._stopping.set()
        threading.Thread(target=self._cancel, daemon=True).start()

    def close(self) -> None:
        """Take over the slots of this run's workers, so that no claim waits for a lease to end."""
        alone = self._owned and self._is_local()  # read before the context ends
        if self._owned and not self._complete:
            self._end_context()
        self._evict(self._spec.run)
        if self._complete or alone:
            return
        # A fenced worker leases another slot while it runs: fence until no slot is leased again.
        until = time.monotonic() + LINGER_SECONDS
        while time.monotonic() < until:
            time.sleep(SWEEP_SECONDS)
            if not self._evict(self._spec.run):
                return

    def _cancel(self) -> None:  # repeatedly, because the job may be about to start
        with suppress(Py4JError, OSError):  # the same signal has ended the JVM
            while not self._idle.is_set():
                self._sc.cancelJobGroup(self._spec.run)
                self._idle.wait(CANCEL_SECONDS)

    def _end_context(self) -> None:
        """End executors and their Python workers; a local context has none left afterwards."""
        jvm = getattr(self._sc._gateway, "proc", None)  # noqa: SLF001 - None under spark-submit
        try:
            self._sc.setLogLevel("OFF")  # hides errors of tasks whose executor ends
            self._sc.stop()
        except (Py4JError, OSError) as exc:
            log.debug("the JVM has ended, and its workers with it: %s", exc)
            if jvm is not None:
                with suppress(subprocess.TimeoutExpired):
                    jvm.wait(LINGER_SECONDS)
            if jvm_end():
                _forget_context()


def _report(receipts: Any, over: threading.Event, listener: RunListener) -> None:  # noqa: ANN401
    """Pass new receipts to the listener while the job runs, and the last ones after its end."""
    reported, last = 0, False
    while not last:
        last = over.wait(POLL_SECONDS)
        for receipt in receipts.value[reported : (count := len(receipts.value))]:
            listener.on_receipt(receipt)
        reported = count


def deal(tasks: Sequence[Task], parts: int) -> list[tuple[Task, ...]]:
    """Deal tasks, the largest first, in turn: each partition begins with one of the largest."""
    return [tuple(tasks[first::parts]) for first in range(parts)]


def typed_error(text: str, nonce: str = "") -> ExtentflowError | None:
    """Return the last error of the library in Spark's report, or its nearest superclass.

    Only one with the `nonce` that `noted_errors` had: the report repeats messages, and a line in
    one of them may look like a note.
    """
    notes = re.findall(rf"^\s*{_error_note(nonce)}(\{{.*\}})", text, re.MULTILINE)
    if not notes:
        return None
    note = json.loads(notes[-1])
    error: ExtentflowError = getattr(errors, note["class"])(note["message"])
    return error


def last_cause(text: str) -> str:
    """Return a Python trace's last line out of Spark's report, else Spark's own reason."""
    _, _, trace = text.partition(TRACE)
    lines = trace.partition("\n\tat ")[0].splitlines()
    python = [one for one in lines if one.strip() and not one.lstrip().startswith(ERROR_NOTE)]
    spark = [line.rpartition(ABORTED)[2] for line in text.splitlines() if ABORTED in line]
    return next(iter([*python[-1:], *spark]), "")


def failure_cause(text: str) -> str:
    """Return what says most of a report: our own error, Python's, Java's, else its first line."""
    text = re.sub(r"\s*SQLSTATE: \w+", "", text.partition("\n=== Streaming Query ===")[0])
    ours = re.findall(r"(?:extentflow|pyspark)\.errors\.[\w.]+: (.+)", text)
    java = re.findall(r"^: (.+)", text, re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = next(filter(None, [*ours[-1:], last_cause(text), *java[:1], *lines]), "")
    return JAVA_CLASS.sub("", cause) or "no reason is given"


def java_cause(text: str) -> str:
    """Return the cause of a report on one call of Java: its first and its innermost error."""
    cause = failure_cause(text)
    inner = re.findall(r"^Caused by: (.+)", text, re.MULTILINE)
    innermost = JAVA_CLASS.sub("", inner[-1]) if inner else ""
    return cause if innermost in cause else f"{cause}: {innermost}"
