"""Which lines of a starting JVM are shown."""

import subprocess
import sys
import time

import pytest

from extentflow.engines.jvm_output import filtered_errors

REPORTS = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    ":: loading settings :: url = jar:file:/ivy.jar",
    "org.apache.spark#spark-sql-kafka-0-10_2.13 added as a dependency",
    "\tfound org.apache.kafka#kafka-clients;3.9.0 in central",
    "\t|      default     |   11  |   0   |",
)
OTHERS = ("downloading https://maven.example/a.jar ...", "ERROR SparkContext: no memory")
PROGRAM = f"import sys; sys.stderr.write({chr(10).join((*REPORTS, *OTHERS))!r} + chr(10))"


def start(*, works: bool) -> None:
    with filtered_errors() as errors:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=errors, check=True, timeout=60)
        if not works:
            raise OSError("it does not start")


def test_reports_of_a_start_that_works_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    start(works=True)

    shown, until = "", time.monotonic() + 10
    while len(shown.splitlines()) < len(OTHERS) and time.monotonic() < until:
        shown += capfd.readouterr().err
    assert shown.splitlines() == list(OTHERS)


def test_all_lines_of_a_start_that_fails_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="does not start"):
        start(works=False)

    assert sorted(capfd.readouterr().err.splitlines()) == sorted((*REPORTS, *OTHERS))
