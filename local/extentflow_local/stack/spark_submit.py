"""`spark-submit` to a cluster on this machine, with the library as a zip file."""

import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from extentflow_local.stack.ports import HOST
from extentflow_local.stack.programs import spark_home

PACKAGE = "extentflow"


def library_zip(layer: Path, folder: Path) -> Path:
    """Write the library below `layer` as a zip file for `--py-files`; return its path."""
    path = folder / f"{PACKAGE}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((layer / PACKAGE).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(layer))
    return path


@dataclass(frozen=True, slots=True)
class Submitter:
    """Submits programs to `master`. Drivers get `environment`; executors its AWS_* and PYTHONPATH.

    `conf` overrides the defaults for a single machine.
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
    """A submitted program: the JVM of spark-submit and its Python child process."""

    process: "subprocess.Popen[str]"
    program: Path

    def driver(self) -> psutil.Process | None:
        """Return the program's Python process; None before it starts and after it ended."""
        try:
            below = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return None
        return next((one for one in below if self._is_driver(one)), None)

    def _is_driver(self, found: psutil.Process) -> bool:
        try:
            words = found.cmdline()
        except psutil.Error:  # another child process, which has ended
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

    The driver (in `folder`) gets only `environment` and `conf`, and the path of Spark. `conf`
    overrides the defaults for a single machine.
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
