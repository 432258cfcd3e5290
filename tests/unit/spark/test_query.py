"""How a query is stopped; why one ended, in a line out of what Spark reports in two languages."""

import re
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar, cast

import pytest
from tests.support.memory_delivery import Ticker

from extentflow.engines.spark import QUERY_LOGGERS, failure_cause, java_cause
from extentflow.errors import LedgerUnavailable
from extentflow.spark import query
from extentflow.spark.query import (
    HAND_BACK_SECONDS,
    POLL_SECONDS,
    Service,
    Terms,
)
from extentflow.testing.ledger import MemoryLedger
from extentflow.wiring.options import BRIEF_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from extentflow.wiring import Runtime

AT = "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala)"
TRACE = 'Traceback (most recent call last):\n  File "worker.py", line 7, in main\n    process()\n'
QUERY = "\n=== Streaming Query ===\nIdentifier: stream-1 [id = 1, runId = 2]\nCurrent State: ACTIVE"
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
LOOK = "Failed when Python streaming data source perform latestOffset: "
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: "
)


MISTAKE = f"{TRACE}extentflow.errors.Misconfigured: there is no connector c SQLSTATE: 38000"
UNAVAILABLE = f"PythonException: {TRACE}extentflow.errors.SinkUnavailable: no broker answers\n{AT}"
SINK = "[DATA_SOURCE_NOT_FOUND] Failed to find data source: nosuch."
NO_SINK = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nosuch."
NO_CLASS = f".\n: org.apache.spark.SparkClassNotFoundException: {NO_SINK} SQLSTATE: 42K02{AT}"
NO_SCHEME = '\n: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for "x"'
SINKS = f"{TRACE}pyspark.errors.exceptions.captured.AnalysisException: {SINK} SQLSTATE: 42K02"


@pytest.mark.parametrize(
    ("report", "cause"),
    [
        (f"{FAILED}{LOOK}{MISTAKE} SQLSTATE: XXKST{QUERY}", "there is no connector c"),
        (f"{FAILED}{STAGE}Lost task 0.3: {UNAVAILABLE}{QUERY}", "no broker answers"),
        (f"{FAILED}{LOOK}{TRACE}KeyError: 'look'\nSQLSTATE: 38000{QUERY}", "KeyError: 'look'"),
        (f"{FAILED}{SINKS}", SINK),
        (f"{STAGE}the executor is lost{AT}", f"{STAGE.partition(': ')[2]}the executor is lost"),
        (f"{FAILED}{TRACE}py4j.protocol.Py4JJavaError: An error occurred{NO_CLASS}", NO_SINK),
        (f"An error occurred while calling o105.start.{NO_SCHEME}{AT}", 'No FileSystem for "x"'),
        ("\nA checkpoint of another query\nmore", "A checkpoint of another query"),
        ("", "no reason is given"),
    ],
)
def test_the_most_specific_line_is_the_cause(report: str, cause: str) -> None:
    assert failure_cause(report) == cause


def test_a_call_of_java_is_reported_by_its_first_and_its_innermost_error() -> None:
    report = (
        f"An error occurred while calling o9.tableExists.\n: org.x.RuntimeIOException: No table{AT}"
        f"\nCaused by: java.io.IOException: b: {AT}\nCaused by: java.net.SocketException: no"
    )

    assert java_cause(report) == "No table: no"
    assert java_cause(f"calling o9.\n: org.x.RuntimeIOException: No table{AT}") == "No table"


def test_a_driver_of_ours_keeps_to_itself_what_any_driver_does() -> None:
    given = (files("extentflow.engines") / "log4j2.properties").read_text()

    for name in QUERY_LOGGERS:
        (logger,) = re.findall(rf"^logger\.(\w+)\.name = {re.escape(name)}$", given, re.MULTILINE)
        assert f"logger.{logger}.level = off\n" in given


# -- stopping -------------------------------------------------------------------------------------


class Hung:
    """A query whose tasks never end by themselves."""

    status: ClassVar = {"isTriggerActive": True}
    isActive = True  # noqa: N815 - Spark's
    lastProgress = None  # noqa: N815 - Spark's
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


class Asked(MemoryLedger):
    """Counts requests to stop workers; if `unavailable`, it does not answer, which takes time."""

    def __init__(self, ticker: Ticker, *, unavailable: bool) -> None:
        super().__init__(clock=ticker.read)
        self.asked = 0
        self._ticker = ticker
        self._silent = unavailable
        self.on_call = self._count

    def _count(self, name: str) -> None:
        assert name == "remember"
        self.asked += 1
        if self._silent:
            self._ticker.sleep(BRIEF_SECONDS)
            raise LedgerUnavailable("no answer")


@pytest.mark.parametrize(
    ("unavailable", "seconds"), [(False, HAND_BACK_SECONDS), (True, BRIEF_SECONDS)]
)
def test_a_stop_asks_once_and_waits_only_for_workers_that_can_have_heard(
    monkeypatch: pytest.MonkeyPatch, *, unavailable: bool, seconds: float
) -> None:
    ticker, hung, evicted = Ticker(), Hung(), list[str]()
    ledger = Asked(ticker, unavailable=unavailable)
    runtime = SimpleNamespace(brief_ledger=ledger, evict=evicted.append)
    clock = SimpleNamespace(monotonic=ticker.read, sleep=ticker.sleep)
    monkeypatch.setattr(query, "register", lambda _spark: None)
    monkeypatch.setattr(query, "time", clock)
    monkeypatch.setattr(Service, "_start", lambda _self: hung)
    service = Service(cast("SparkSession", None), cast("Runtime", runtime), Terms("r", "c", 1.0))
    began = ticker.now

    service.stop()
    undone = service.run(lambda _trigger: None)

    assert undone == []
    assert (ledger.asked, hung.stopped, evicted) == (1, 1, ["r/"])
    assert ticker.now - began == pytest.approx(seconds, abs=2 * POLL_SECONDS)
