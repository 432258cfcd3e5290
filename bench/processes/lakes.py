"""Streaming queries that write topics to tables in one warm session of Spark.

A request has `topic`, `way` (lake, from_json), `table` (iceberg, parquet), `to`, the folder of all
tables, and `name`, a table that is not there. `from_json` is the query that a competent user
writes: Spark's Kafka source, `from_json` with the declared columns, and Spark's own sink of that
table. Both read committed records once, up to the ends of the topic.
"""

import os
import sys
import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from bench.process import serve
from bench.settings import CORES
from extentflow.cli.lake_commands import COLUMNAR_VALUES, JAVA_OPTIONS, LOCAL
from extentflow.export.lake.iceberg import catalog_settings
from extentflow.export.lake.lake_query import LakeService, LakeTerms
from extentflow.export.lake.lake_session import CATALOG, LakeAddress, as_uri
from extentflow.services.lakes import lake_cluster
from extentflow.spark.query import session as open_session
from extentflow.wiring import Runtime
from extentflow.wiring.targets import open_folder

NAMESPACE = "bench"


def _lake(spark: SparkSession, runtime: Runtime, request: dict[str, Any], checkpoint: str) -> int:
    to, name = request["to"], request["name"]
    is_iceberg = request["table"] == "iceberg"
    where = LakeAddress(
        to=to if is_iceberg else f"{to}/{NAMESPACE}/{name}",
        table=f"{NAMESPACE}.{name}" if is_iceberg else None,
    )
    terms = LakeTerms(
        topics=(request["topic"],),
        checkpoint=as_uri(checkpoint),
        every_seconds=None,
        arrow_records=COLUMNAR_VALUES,
    )
    rows = 0

    def count(delivered: Any) -> None:  # noqa: ANN401 - its rows are all that is needed
        nonlocal rows
        rows += delivered.rows

    LakeService(
        spark, where.open(spark, open_folder), terms, lake_cluster(runtime.settings, runtime.broker)
    ).run(count)
    return rows


def _from_json(
    spark: SparkSession, runtime: Runtime, request: dict[str, Any], checkpoint: str
) -> int:
    source = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": runtime.settings.bootstrap_servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": request["topic"],
            "startingOffsets": "earliest",
        }
    )
    columns = request["columns"]
    rows = source.load().select(
        sql.from_json(sql.col("value").cast("string"), columns).alias("row")
    )
    writer = rows.select("row.*").writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", as_uri(checkpoint))
    if request["table"] == "parquet":
        to = f"{request['to']}/{NAMESPACE}/{request['name']}"
        query = writer.option("compression", "zstd").format("parquet").start(to)
    else:
        for name, value in catalog_settings(CATALOG, as_uri(request["to"])).items():
            spark.conf.set(name, value)
        name = f"{CATALOG}.{NAMESPACE}.{request['name']}"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}")
        spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
        query = writer.format("iceberg").toTable(name)
    query.awaitTermination()
    return sum(int(one["numInputRows"]) for one in query.recentProgress)


def main() -> None:
    """Process runs in one warm session."""
    runtime = Runtime.from_environment()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {**LOCAL, "spark.jars": sys.argv[1], "spark.ui.enabled": "false"}
    with ExitStack() as opened:
        spark = opened.enter_context(open_session(None, CORES, settings, java_options=JAVA_OPTIONS))

        def run(request: dict[str, Any]) -> dict[str, Any]:
            way = _lake if request["way"] == "lake" else _from_json
            with TemporaryDirectory(prefix="extentflow-") as checkpoint:
                started = time.perf_counter()
                rows = way(spark, runtime, request, checkpoint)
                return {"rows": rows, "seconds": time.perf_counter() - started}

        serve(run)


if __name__ == "__main__":
    main()
