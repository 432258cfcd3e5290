"""extentflow as a data source of Spark 4: delivering objects is reading their receipts.

    from extentflow.spark import register

    register(spark)
    receipts = spark.read.format("extentflow").option("connector", "orders").load("s3://shop/in/")
    receipts.groupBy("state").sum("records").show()

Every query on `receipts` plans the objects on the driver, delivers on the executors what is not
delivered yet, and returns a row per extent. What is DONE is only reported: an action that is
executed twice, a task that Spark repeats or runs twice, delivers nothing twice. Rows of the objects
never pass through the JVM. `spark.readStream.format("extentflow").load()` does so continuously: it
drains the extents queue, or lists connectors if there is no queue.

The engine of `extentflow run --engine spark` is `engines.spark`. The programs for `spark-submit`
are in the project's folder `jobs/`, and the export to tables on Spark is `export.lake`.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from pyspark import SparkContext, SparkFiles
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from extentflow.errors import Misconfigured

__all__ = ["register"]

# Spark 4.0 runs the Python process that plans a stream in this folder below the application's files
# and never fills it (PythonStreamingSourceRunner.scala): modules of `--py-files` are missing there.
STREAMING_FOLDER = "streaming_job"


def register(spark: SparkSession) -> None:
    """Register `format("extentflow")`; idempotent. Executors need the library, too."""
    try:
        from extentflow.spark.source import ExtentflowSource  # noqa: PLC0415 - Spark 3.5 lacks it
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("pyspark"):
            raise
        raise Misconfigured(
            f"Spark {spark.version} has no data sources in Python, which came with 4.0; deliver "
            "with `extentflow run` or jobs/spark_deliver.py"
        ) from exc
    with suppress(PySparkAttributeError):  # Spark Connect has none, and ships files by itself
        _share_with_streams(spark.sparkContext)
    spark.dataSource.register(ExtentflowSource.of(spark.conf.get("spark.master", None)))


def _share_with_streams(sc: SparkContext) -> None:
    """Copy the Python files that the application has now to the folder of streaming queries."""
    root = Path(SparkFiles.getRootDirectory())
    names = sc._python_includes or ()  # noqa: SLF001 - there is no public way
    folder = root / STREAMING_FOLDER
    for file in [*(root / name for name in names if (root / name).is_file()), *root.glob("*.py")]:
        folder.mkdir(exist_ok=True)
        # Renamed into place, because a process may be importing the previous copy.
        half = folder / f".{uuid4().hex}"
        shutil.copy2(file, half)
        half.replace(folder / file.name)
