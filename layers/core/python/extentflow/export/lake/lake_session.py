"""The address of a target, and the jars of Spark's session that it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from extentflow.aws import configured_endpoint
from extentflow.errors import Misconfigured
from extentflow.export.lake.iceberg import (
    CATALOG_CLASS,
    IcebergTable,
    catalog_settings,
    split_partitions,
    transformed_column,
)
from extentflow.export.lake.lake_target import Target
from extentflow.export.lake.parquet_folder import ParquetFolder
from extentflow.jobs.addresses import S3_SCHEMES
from extentflow.wiring.folders import address_problem, open_folder

# For any Spark 4.0, whose Hadoop is 3.4.1.
_KAFKA: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
_ICEBERG: Final = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
_S3: Final = "org.apache.hadoop:hadoop-aws:3.4.1"
_CLASSES: Final = {
    _KAFKA: "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    _ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
    _S3: "org.apache.hadoop.fs.s3a.S3AFileSystem",
}

# The catalog that keeps tables below the folder of --to.
CATALOG: Final = "extentflow_lake"
_TABLE = re.compile(r"\w+(\.\w+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeAddress:
    """Where rows go, as the command was given it."""

    to: str | None
    table: str | None
    catalog: str | None
    partition_by: str | None
    endpoint: str | None

    def problems(self) -> list[str]:
        """Return a line for each option that is missing, or does not go with the others."""
        problems = []
        if (self.to is None) == (self.catalog is None):
            problems.append("give --to FOLDER, or --catalog NAME with --table")
        if self.to is not None and (problem := address_problem(self.to)):
            other = "; a warehouse elsewhere is one of --catalog" if self.table else ""
            problems.append(f"--to {problem}{other}")
        if self.catalog is not None and self.table is None:
            problems.append("--catalog goes with --table: it holds Iceberg tables")
        if self.table is not None and not _TABLE.fullmatch(self.table):
            problems.append(
                f"--table {self.table}: write namespace.table, of letters, digits and _"
            )
        if self.table is None:
            problems += [
                f"--partition-by {text}: transforms need --table, an Iceberg table; the folders of"
                " Parquet files are named after columns"
                for text in split_partitions(self.partition_by or "")
                if transformed_column(text)
            ]
        return problems

    def open(self, spark: SparkSession) -> Target:
        """Return the target, whose catalog the session gets where --to is a warehouse.

        Raises Misconfigured where the session's settings lack the catalog of --catalog.
        """
        parts, endpoint = split_partitions(self.partition_by or ""), self.store_endpoint()
        setting = f"spark.sql.catalog.{self.catalog}"
        if self.catalog is not None and spark.conf.get(setting, None) is None:
            raise Misconfigured(
                f"--catalog {self.catalog}: Spark's settings have no {setting}; give it and what"
                f" the catalog needs, as --conf {setting}={CATALOG_CLASS}"
            )
        if self.to is not None and self.to.startswith(S3_SCHEMES):
            open_folder(self.to, endpoint).require_bucket()
        if self.table is None:
            return ParquetFolder(self.to or "", parts, endpoint)
        if self.to is not None:
            settings = catalog_settings(CATALOG, as_uri(self.to), endpoint)
            for name, value in settings.items():
                spark.conf.set(name, value)
        # Of another catalog, it is not known how workers reach its store.
        return IcebergTable(
            spark,
            f"{self.catalog or CATALOG}.{self.table}",
            parts,
            by_workers=self.to is not None,
            endpoint=endpoint,
        )

    def store_endpoint(self) -> str | None:
        """Return the URL of the store in S3, for Java and for Python workers; None: AWS."""
        return self.endpoint or configured_endpoint("s3")


def as_uri(folder: str) -> str:
    """Return a folder as Hadoop's file systems name it."""
    if folder.startswith("s3://"):
        return f"s3a://{folder.removeprefix('s3://')}"
    if "://" in folder or folder.startswith("file:"):
        return folder
    # Not escaped, unlike a URI: Hadoop takes `%20` for three characters.
    return f"file://{Path(folder).absolute()}"


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
