"""A Java home whose JVMs of Spark start in half the CPU time, for tests that start many of them.

    python -m tests.support.quick_java FOLDER

writes FOLDER/home/bin/java, which starts the real Java, and FOLDER/spark.jsa, which holds Spark's
classes as a JVM has parsed and verified them. JVMs of Spark get the archive, and the first
compiler only, as our own command line gives it to Spark on one machine. A JVM whose class path is
not that of the archive starts without it. `use` gives this home to a process and its children.
"""

import os
import shutil
import sys
from pathlib import Path

from extentflow_local.stack.programs import java
from extentflow_local.stack.settings import LocalSettings

HOME = Path(__file__).parents[2] / "build" / "jvm" / "home"
ARCHIVE = "spark.jsa"
REAL = "jdk/java"  # a link of the name that processes shall have
# Without the folder of the configuration, if nothing is in it: the archive is of jars alone.
STARTER = """#!/bin/sh
real=$(dirname "$0")/{real}
case "$*" in
  *org.apache.spark.launcher.Main*) exec "$real" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@" ;;
  *org.apache.spark.*) ;;
  *) exec "$real" "$@" ;;
esac
for word; do
  shift
  case "$word" in
    *:*/conf:*/jars/\\*)
      before=${{word%%/conf:*}}
      [ "$(ls -A "${{before##*:}}/conf" 2>&-)" ] || word=${{before%:*}}:${{word#*/conf:}}
      ;;
  esac
  set -- "$@" "$word"
done
exec "$real" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds*=off {archive} "$@"
"""


def found_java() -> Path:
    """Return the Java that everything else here uses."""
    settings = LocalSettings.from_environment()
    return java(home=settings.java_home, search_path=settings.search_path).resolve()


def write(folder: Path) -> None:
    """Replace the home and the archive; writing them takes half a minute."""
    shutil.rmtree(folder, ignore_errors=True)
    programs = folder / "home" / "bin"
    programs.mkdir(parents=True)
    (programs / REAL).parent.mkdir()
    (programs / REAL).symlink_to(found_java())
    archive = folder / ARCHIVE
    _write_starter(programs, f"-XX:ArchiveClassesAtExit={archive}")
    os.environ["JAVA_HOME"] = str(folder / "home")
    _run_spark(folder / "work")
    if not archive.exists():
        raise SystemExit(f"the JVM of Spark wrote no {archive}")
    _write_starter(programs, f"-XX:SharedArchiveFile={archive}")
    shutil.rmtree(folder / "work")


def _write_starter(programs: Path, archive: str) -> None:
    path = programs / "java"
    path.write_text(STARTER.format(real=REAL, archive=archive))
    path.chmod(0o755)


def _run_spark(folder: Path) -> None:
    """Load the classes of a batch and of a streaming query, with Python workers."""
    # Imported here: the tests of a process that starts no Spark import this module too.
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from extentflow.engines.spark import local_context  # noqa: PLC0415

    session = SparkSession(local_context(2))
    rows = session.range(1_000).selectExpr("id", "id % 7 as k", "cast(id as string) as text")
    rows.groupBy("k").count().orderBy("k").collect()
    rows.write.parquet(str(folder / "rows"))
    session.sparkContext.parallelize(range(4), 2).map(lambda one: one).sum()
    stream = session.readStream.schema(rows.schema).parquet(str(folder / "rows"))
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "copy"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=300)


def use(home: Path = HOME) -> bool:
    """Give this process and its children the home, if it was written for the Java that is found."""
    real = home / "bin" / REAL
    if not (home.parent / ARCHIVE).exists() or real.resolve() != found_java():
        return False
    os.environ["JAVA_HOME"] = str(home)
    return True


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
