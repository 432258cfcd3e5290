"""The address of a target, and the jars of Spark's session that it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from extentflow.aws import configured_endpoint
from extentflow.config.store_access import StoreAccess
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
from extentflow.storage.folders import FolderOpener

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
ENDPOINT: Final = "aws.s3.endpoint"
_JAVA_KEYS: Final = (ENDPOINT, "aws.s3.region", "aws.s3.path.style.access.enabled")
_TABLE = re.compile(r"\w+(\.\w+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeAddress:
    """Where rows go, as the command was given it; `store` has keys of connectors for S3."""

    to: str | None
    table: str | None = None
    catalog: str | None = None
    partition_by: str | None = None
    store: Mapping[str, str] = field(default_factory=dict)

    def problems(self, opener: FolderOpener) -> list[str]:
        """Return a line for each option that is missing, or does not go with the others."""
        problems = []
        if (self.to is None) == (self.catalog is None):
            problems.append("give --to FOLDER, or --catalog NAME with --table")
        if self.to is not None:
            try:
                opener(self.to)
            except Misconfigured as exc:
                is_elsewhere = self.table and not self.to.startswith(S3_SCHEMES)
                other = "; a warehouse elsewhere is one of --catalog" if is_elsewhere else ""
                problems += [f"{one}{other}" for one in exc.problems]
        if self.catalog is not None and self.table is None:
            problems.append("--catalog goes with --table: it holds Iceberg tables")
        if self.table is not None and not _TABLE.fullmatch(self.table):
            problems.append(
                f"--table {self.table}: write namespace.table, of letters, digits and _"
            )
        if self.catalog is not None and self.store:
            problems.append(
                f"--set {', '.join(self.store)}: Spark's settings of --catalog state how its store"
                " is reached"
            )
        if self.table is not None and (keys := self.store.keys() - _JAVA_KEYS):
            problems.append(
                f"--set {', '.join(sorted(keys))}: not with --table, whose metadata Java writes;"
                f" only {', '.join(_JAVA_KEYS)}"
            )
        if self.table is None:
            problems += [
                f"--partition-by {text}: transforms need --table, an Iceberg table; the folders of"
                " Parquet files are named after columns"
                for text in split_partitions(self.partition_by or "")
                if transformed_column(text)
            ]
        return problems

    def open(self, spark: SparkSession, opener: FolderOpener) -> Target:
        """Return the target, whose catalog the session gets where --to is a warehouse.

        `opener` opens folders, in this process and in workers. Raises Misconfigured where the
        session's settings lack the catalog of --catalog.
        """
        parts = split_partitions(self.partition_by or "")
        setting = f"spark.sql.catalog.{self.catalog}"
        if self.catalog is not None and spark.conf.get(setting, None) is None:
            raise Misconfigured(
                f"--catalog {self.catalog}: Spark's settings have no {setting}; give it and what"
                f" the catalog needs, as --conf {setting}={CATALOG_CLASS}"
            )
        if self.to is not None:
            opener(self.to).require_bucket()
        if self.table is None:
            return ParquetFolder(self.to or "", opener, parts)
        if self.to is not None:
            access = StoreAccess.of(self.store)
            settings = catalog_settings(
                CATALOG,
                as_uri(self.to),
                self.store_endpoint(),
                region=access.region,
                path_style=access.path_style,
            )
            for name, value in settings.items():
                spark.conf.set(name, value)
        # Of another catalog, it is not known how workers reach its store.
        workers = opener if self.to is not None else None
        return IcebergTable(spark, f"{self.catalog or CATALOG}.{self.table}", parts, workers)

    def store_endpoint(self) -> str | None:
        """Return the URL of the store in S3, for Java and for Python workers; None: AWS."""
        return self.store.get(ENDPOINT) or configured_endpoint("s3")

    def store_settings(self) -> dict[str, str]:
        """Return the keys of connectors with which Python reaches the store."""
        endpoint = self.store_endpoint()
        if endpoint is None or self.to is None or not self.to.startswith(S3_SCHEMES):
            return dict(self.store)
        return {**self.store, ENDPOINT: endpoint}


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
