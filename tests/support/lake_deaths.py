"""`extentflow lake` whose driver, Python and JVM, is killed at a point of its first batch.

    python -m tests.support.lake_deaths POINT TOPIC... OPTIONS

staged      files are written, the commit is not
logged      the commit is in the folder's log, its files are not moved
committed   the target has the batch, Spark's checkpoint does not
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from extentflow.cli import run_alone
from extentflow.cli.lake_commands import lake
from extentflow.export.lake.iceberg import IcebergTable
from extentflow.export.lake.lake_query import LakeService
from extentflow.export.lake.parquet_folder import COMMIT, Entry, ParquetFolder


def die() -> None:
    gateway: Any = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def die_now(*_given: object) -> None:
    die()


def die_staged() -> None:
    append = ParquetFolder._append

    def dying(folder: ParquetFolder, entry: Entry) -> bool:
        if entry.kind == COMMIT:
            die()
        return append(folder, entry)

    ParquetFolder._append = dying  # type: ignore[assignment, method-assign]
    IcebergTable._append = die_now  # type: ignore[assignment, method-assign]


def die_logged() -> None:
    def dying(_folder: ParquetFolder, _entry: Entry) -> None:
        die()

    ParquetFolder._move = dying  # type: ignore[assignment, method-assign]


def die_committed() -> None:
    deliver = LakeService._deliver

    def dying(*given: Any) -> None:  # noqa: ANN401
        deliver(*given)
        die()

    LakeService._deliver = dying  # type: ignore[assignment, method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "staged": die_staged,
    "logged": die_logged,
    "committed": die_committed,
}

if __name__ == "__main__":
    POINTS[sys.argv.pop(1)]()
    run_alone(lake)
