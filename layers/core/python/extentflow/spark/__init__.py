"""extentflow as a data source of Spark 4: delivering objects is reading their receipts.

    from extentflow.spark import register

    register(spark)
    receipts = spark.read.format("extentflow").option("connector", "orders").load("s3://shop/in/")
    receipts.groupBy("state").sum("records").show()

Every query on `receipts` plans the objects on the driver, delivers on the executors what is not
delivered yet, and returns a row per extent. What is DONE is only reported: an action that is
executed twice, a task that Spark repeats or runs twice, delivers nothing twice. Rows of the objects
never pass through the JVM; only receipts do. `options` lists options, `receipts` columns.

`spark.readStream.format("extentflow").load()` does so continuously: it drains the extents queue, or
looks after connectors where there is no queue (`streaming`). Its checkpoint holds no progress.

Owns: making the source known to a session. Refuses to know: planning, delivering.
"""

from contextlib import suppress

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from extentflow.errors import Misconfigured
from extentflow.spark.includes import share_with_streams

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make `format("extentflow")` known to a session; once more is harmless.

    Executors need extentflow as well: installed there, or by `--py-files`, `spark.sparkContext
    .addPyFile`.

    Raises:
        Misconfigured: Spark before 4.0, which has no data sources in Python.
    """
    try:
        from extentflow.spark.source import ExtentflowSource  # noqa: PLC0415 - Spark 3.5 lacks it
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("pyspark"):
            raise
        raise Misconfigured(
            f"Spark {spark.version} has no data sources in Python, which came with 4.0; deliver "
            "with `extentflow run` or jobs/spark_ingest.py"
        ) from exc
    with suppress(PySparkAttributeError):  # Spark Connect has none, and ships files by itself
        share_with_streams(spark.sparkContext)
    spark.dataSource.register(ExtentflowSource)
