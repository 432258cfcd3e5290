"""Why a query ended, in one line: out of what Spark reports with traces of two languages."""

import re
from importlib.resources import files

import pytest

from extentflow.engines.spark import QUERY_LOGGERS
from extentflow.spark.query import _cause

AT = "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala)"
TRACE = 'Traceback (most recent call last):\n  File "worker.py", line 7, in main\n    process()\n'
QUERY = "\n=== Streaming Query ===\nIdentifier: stream-1 [id = 1, runId = 2]\nCurrent State: ACTIVE"
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
LOOK = "Failed when Python streaming data source perform latestOffset: "
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: "
)


MISTAKE = f"{TRACE}extentflow.errors.Misconfigured: there is no connector c SQLSTATE: 38000"
AWAY = f"PythonException: {TRACE}extentflow.errors.SinkUnavailable: no broker answers\n{AT}"
SINK = "[DATA_SOURCE_NOT_FOUND] Failed to find data source: nosuch."
NO_SINK = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nosuch."
NO_CLASS = f".\n: org.apache.spark.SparkClassNotFoundException: {NO_SINK} SQLSTATE: 42K02{AT}"
NO_SCHEME = '\n: org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for "x"'
SINKS = f"{TRACE}pyspark.errors.exceptions.captured.AnalysisException: {SINK} SQLSTATE: 42K02"


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (f"{FAILED}{LOOK}{MISTAKE} SQLSTATE: XXKST{QUERY}", "there is no connector c"),
        (f"{FAILED}{STAGE}Lost task 0.3: {AWAY}{QUERY}", "no broker answers"),
        (f"{FAILED}{LOOK}{TRACE}KeyError: 'look'\nSQLSTATE: 38000{QUERY}", "KeyError: 'look'"),
        (f"{FAILED}{SINKS}", SINK),
        (f"{STAGE}the executor is lost{AT}", f"{STAGE.partition(': ')[2]}the executor is lost"),
        (f"{FAILED}{TRACE}py4j.protocol.Py4JJavaError: An error occurred{NO_CLASS}", NO_SINK),
        (f"An error occurred while calling o105.start.{NO_SCHEME}{AT}", 'No FileSystem for "x"'),
        ("\nA checkpoint of another query\nmore", "A checkpoint of another query"),
        ("", "no reason is given"),
    ],
)
def test_the_line_that_says_most_is_told(report: str, told: str) -> None:
    assert _cause(report) == told


def test_a_driver_of_ours_keeps_to_itself_what_any_driver_does() -> None:
    given = (files("extentflow.engines") / "log4j2.properties").read_text()

    for name in QUERY_LOGGERS:
        (logger,) = re.findall(rf"^logger\.(\w+)\.name = {re.escape(name)}$", given, re.MULTILINE)
        assert f"logger.{logger}.level = off\n" in given
