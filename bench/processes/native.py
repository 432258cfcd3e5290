"""The baseline: Spark reads the Parquet file from local disk, `to_json`, Spark's own Kafka sink.

It guarantees at least once. Codec, linger, batch size and acks are the same as ours.
"""

import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from bench.process import serve
from bench.settings import CORES, KAFKA_OPTIONS
from extentflow_local.stack.toolbox import spark_kafka_jars


def main() -> None:
    """Process runs in one warm session."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("baseline")
        .config("spark.jars", ",".join(str(jar) for jar in spark_kafka_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.files.maxPartitionBytes", "64m")
        .getOrCreate()
    )
    serve(lambda request: _run(session, request))
    session.stop()


def _run(session: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    rows = session.read.parquet(request["path"]).select(F.to_json(F.struct("*")).alias("value"))
    writer = rows.write.format("kafka").option("topic", request["topic"])
    writer = writer.option("kafka.bootstrap.servers", request["bootstrap"])
    for name, value in KAFKA_OPTIONS.items():
        writer = writer.option(f"kafka.{name}", value)
    writer.save()
    return {"seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
