"""`spark-submit` to a cluster, with the library in a zip and nowhere else.

Owns: zip, interpreter, environment, the command. Refuses to know: what is submitted.
"""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from extentflow_local.programs import spark_home

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers" / "core" / "python" / "extentflow"
PACKAGES = sysconfig.get_path("purelib")


def library_zip(folder: Path) -> Path:
    """Return the library as `--py-files` wants it."""
    path = folder / "extentflow.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(LIBRARY.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(LIBRARY.parent))
    return path


def clean_python(folder: Path) -> Path:
    """Return an interpreter with our requirements but without our library: `-S` reads no .pth."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


def surroundings(python: Path) -> dict[str, str]:
    """Return what drivers find in their environment."""
    return {
        **os.environ,
        "PYTHONPATH": PACKAGES,
        "PYSPARK_PYTHON": str(python),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@dataclass(frozen=True)
class Submitter:
    """Submits programs to `master`; executors find the packages, and AWS where we do."""

    master: str
    library: Path
    environment: Mapping[str, str]
    conf: Mapping[str, str] = field(default_factory=dict)

    def submit(self, program: Path, *words: str, output: IO[str] | int) -> "subprocess.Popen[str]":
        """Start `spark-submit` with a program and its arguments, in a process group of its own."""
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executorEnv.PYTHONPATH": PACKAGES,
            **{
                f"spark.executorEnv.{name}": value
                for name, value in self.environment.items()
                if "AWS" in name
            },
            **self.conf,
        }
        return subprocess.Popen(
            [*self._command(conf), str(program), *words],
            env=dict(self.environment),
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )

    def _command(self, conf: Mapping[str, str]) -> Sequence[str]:
        words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        spark_submit = str(spark_home() / "bin" / "spark-submit")
        return [spark_submit, "--master", self.master, *words, "--py-files", str(self.library)]
