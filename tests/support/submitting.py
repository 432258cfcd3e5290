"""Submit a driver whose interpreter has the requirements, but not the library, and end it."""

import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import eventually

from extentflow_local.stack.spark_submit import Submission, Submitter

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "core" / "python"
PACKAGES = sysconfig.get_path("purelib")
# As eager as it gets: a copy of every task that is not among the first.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "0.1",
}


def clean_python(folder: Path) -> Path:
    """Return an interpreter with our requirements but without our library: `-S` reads no .pth."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


def surroundings(python: Path) -> dict[str, str]:
    """Return what drivers find in their environment."""
    return {**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": str(python)}


@contextmanager
def submitted(submitter: Submitter, program: Path, *words: str, log: Path) -> Iterator[Submission]:
    """Yield a running submission; nothing of it is left behind."""
    with log.open("w") as output:
        found = submitter.submit(program, *words, output=output)
        try:
            yield found
        finally:
            if found.process.poll() is None:
                os.killpg(found.process.pid, signal.SIGKILL)
                found.process.wait()


def await_(what: str, holds: Callable[[], object], submission: Submission) -> None:
    """Wait until a condition holds, as long as what was submitted runs."""
    eventually(what, holds, process=submission.process)
