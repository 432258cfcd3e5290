"""The jars that `extentflow lake` needs in Spark's session, and a check that they are there."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession

from extentflow.errors import Misconfigured

# Of Spark 4.0, whose Hadoop is 3.4.1.
_KAFKA: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
_ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
_S3: Final = "org.apache.hadoop:hadoop-aws:3.4.1"
_CLASSES: Final = {
    _KAFKA: "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    _ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
    _S3: "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


def packages(*, iceberg: bool, to: str) -> list[str]:
    """Return the Maven coordinates of what a target needs; `to` is its folder, or empty."""
    s3 = iceberg and to.startswith(("s3a://", "s3://"))
    return [_KAFKA, *([_ICEBERG] if iceberg else []), *([_S3] if s3 else [])]


def local_settings(jars: str | None, *, iceberg: bool, to: str) -> dict[str, str]:
    """Return the settings of a session that starts here: `jars`, or what Spark's Ivy fetches."""
    if jars is not None:
        return {"spark.jars": jars}
    return {"spark.jars.packages": ",".join(packages(iceberg=iceberg, to=to))}


def require_jars(spark: SparkSession, *, iceberg: bool, to: str) -> None:
    """Raise Misconfigured that names the packages which the session lacks."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    lacking = []
    for package in packages(iceberg=iceberg, to=to):
        try:
            loader.loadClass(_CLASSES[package])
        except Py4JError:
            lacking.append(package)
    if lacking:
        raise Misconfigured(
            f"Spark's session lacks {', '.join(lacking)}; start it with --packages"
            f" {','.join(lacking)}, or with --jars"
        )
