"""Spark sessions of this process: marks of their tests, and how their Python workers end."""

import signal
from typing import Any

import psutil
import pytest
from pyspark import SparkContext

MARKS = [
    pytest.mark.spark,
    # PySpark leaves the socket that `collect` reads rows from to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def kill_python_workers() -> int:
    """End the processes in which Spark's tasks run; their daemon starts others."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            if parent and "pyspark.daemon" in parent.cmdline():
                process.send_signal(signal.SIGKILL)
                killed += 1
        except psutil.NoSuchProcess:
            continue
    return killed


def end_jvm() -> None:
    """End this process's JVM, without a context, so that the next one starts with its own jars."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    assert SparkContext._active_spark_context is None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None
