"""extentflow's data source in one warm session on Spark local[2], as in a notebook."""

import time
from typing import Any

from pyspark.sql import SparkSession

from bench.process import serve
from bench.settings import CORES
from extentflow.engines.spark import local_context
from extentflow.spark import register
from extentflow.wiring import Runtime


def main() -> None:
    """Process reads of one object each, which is new to this connector."""
    runtime = Runtime.from_environment()
    spark = SparkSession(local_context(CORES))
    register(spark)
    serve(lambda request: _read(spark, runtime, request))


def _read(spark: SparkSession, runtime: Runtime, request: dict[str, Any]) -> dict[str, Any]:
    config, _ = runtime.connectors.latest(request["connector"])
    started = time.perf_counter()
    source = spark.read.format("extentflow").option("connector", config.name)
    rows = source.load(f"s3://{config.bucket}/{request['key']}").collect()
    return {
        "seconds": time.perf_counter() - started,
        "records": sum(row.records for row in rows),
        "bytes_read": sum(row.bytes for row in rows),
    }


if __name__ == "__main__":
    main()
