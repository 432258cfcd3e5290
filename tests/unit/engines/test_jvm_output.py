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
# Ivy asks a repository that this machine does not reach for each file, then another one.
DOWNLOADS = (
    ":::: WARNINGS",
    "\tHost repos.packages.example not found. url=https://repos.packages.example/c.jar",
    "Host repos.packages.example not found. url=https://repos.packages.example/a.pom",
    "You probably access the destination server through a proxy server that is not well",
    "Host repos.packages.example not found. url=https://repos.packages.example/b.pom",
    "downloading https://maven.example/a.jar ...",
    "\t[SUCCESSFUL ] org.example#a;1.0!a.jar (12ms)",
)
OTHERS = ("ERROR SparkContext: no memory",)
PROGRAM = (
    f"import sys; sys.stderr.write({chr(10).join((*REPORTS, *DOWNLOADS, *OTHERS))!r} + chr(10))"
)


def start(*, works: bool) -> None:
    with filtered_errors() as errors:
        subprocess.run([sys.executable, "-c", PROGRAM], stderr=errors, check=True, timeout=60)
        if not works:
            raise OSError("it does not start")


def test_reports_of_a_start_that_works_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    start(works=True)

    shown, until = "", time.monotonic() + 10
    while len(shown.splitlines()) <= len(OTHERS) and time.monotonic() < until:
        shown += capfd.readouterr().err
    downloads, *others = shown.splitlines()
    assert downloads.startswith("note: Spark's Ivy downloads packages")
    assert others == list(OTHERS)


def test_all_lines_of_a_start_that_fails_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="does not start"):
        start(works=False)

    shown = [one for one in capfd.readouterr().err.splitlines() if not one.startswith("note: ")]
    assert sorted(shown) == sorted((*REPORTS, *DOWNLOADS, *OTHERS))
