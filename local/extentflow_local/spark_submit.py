"""`spark-submit` to a cluster on this machine; with the library in a zip, unless it is brought.

Owns: the zip, the command, what executors find in their environment. Refuses to know: what is
submitted, which cluster that is.
"""

import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from extentflow_local.ports import HOST
from extentflow_local.programs import spark_home

PACKAGE = "extentflow"


def library_zip(layer: Path, folder: Path) -> Path:
    """Write the library below `layer` as `--py-files` wants it; return where."""
    path = folder / f"{PACKAGE}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((layer / PACKAGE).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(layer))
    return path


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits programs to `master`. Drivers get `environment`; executors its AWS_* and PYTHONPATH.

    `conf` goes over what a machine of its own needs.
    """

    master: str
    library: Path
    environment: Mapping[str, str]
    conf: Mapping[str, str] = field(default_factory=dict)

    def submit(self, program: Path, *words: str, output: IO[str] | int) -> "Submission":
        """Start `spark-submit` with a program and its arguments, in a process group of its own."""
        shared = {
            name: value
            for name, value in self.environment.items()
            if name.startswith("AWS_") or name == "PYTHONPATH"
        }
        conf = {
            **{f"spark.executorEnv.{name}": value for name, value in shared.items()},
            **self.conf,
        }
        return submit(
            (program, *words),
            master=self.master,
            conf=conf,
            environment=self.environment,
            output=output,
            options=("--py-files", str(self.library)),
        )


@dataclass(frozen=True, slots=True)
class Submission:
    """A program that was submitted: spark-submit's JVM, and the Python process below it."""

    process: "subprocess.Popen[str]"
    program: Path

    def driver(self) -> psutil.Process | None:
        """Return the Python process that runs the program; None while, or when, there is none."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return None
        return next((one for one in below if self._is_driver(one)), None)

    def _is_driver(self, found: psutil.Process) -> bool:
        try:
            words = found.cmdline()
        except psutil.Error:  # another one of them, which has ended meanwhile
            return False
        return str(self.program) in words and not words[0].endswith("java")


def submit(
    command: Sequence[str | Path],
    *,
    master: str,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
    output: IO[str] | int,
    options: Sequence[str] = (),
    folder: Path | None = None,
) -> Submission:
    """Start `spark-submit` with a program and its arguments, in a process group of its own.

    Nobody gets more than `environment` (the driver, in `folder`) and `conf` say, apart from where
    Spark is. `conf` goes over what a machine of its own needs.
    """
    whole = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        **conf,
    }
    process = subprocess.Popen(
        [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", master, *options),
            *(word for key, value in whole.items() for word in ("--conf", f"{key}={value}")),
            *map(str, command),
        ],
        cwd=folder,
        env={"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": HOST, **environment},
        stdout=output,
        stderr=output,
        text=True,
        start_new_session=True,
    )
    return Submission(process, Path(command[0]))
