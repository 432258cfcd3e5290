"""`extentflow lake`: write topics to Parquet files or an Iceberg table on Spark, exactly once."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.opened import open_runtime
from extentflow.cli.output import STOPPED, AsJson, Cores, Master
from extentflow.errors import Misconfigured
from extentflow.plugins import from_extra

if TYPE_CHECKING:
    from extentflow.config.columns import Schema
    from extentflow.spark.lake.service import Delivered

# The catalog that keeps tables below the folder of --to.
CATALOG = "extentflow_lake"
# JSON values in an Arrow batch for Python; columnar ones have about a MiB each.
DOCUMENTS, COLUMNAR_VALUES = 10_000, 16
# Rows pass through this JVM, unlike that of other commands.
JAVA_OPTIONS = "-XX:-UsePerfData"
LOCAL = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
_TABLE = re.compile(r"\w+(\.\w+)+")

Topics = Annotated[list[str], Argument(help="Topics with columnar values, or JSON with --schema.")]
To = Annotated[
    str | None,
    Option("--to", help="Folder: s3a://bucket/prefix, or local. With --table: the warehouse."),
]
Table = Annotated[
    str | None, Option("--table", help="Iceberg table, as sales.orders (default: Parquet files).")
]
Catalog = Annotated[
    str | None,
    Option("--catalog", help="Instead of --to: Iceberg catalog in Spark's settings (--conf)."),
]
PartitionBy = Annotated[
    str | None,
    Option("--partition-by", help="Columns, as day,region; with --table also days(seen)."),
]
JsonSchema = Annotated[
    str | None, Option("--schema", help="Columns of JSON values, in the syntax of json.schema.")
]
Every = Annotated[float, Option("--every", min=0, help="Seconds from one batch to the next.")]
Once = Annotated[bool, Option("--once", help="Write what the topics hold when it begins, and end.")]
MostOffsets = Annotated[
    int | None,
    Option("--max-offsets-per-trigger", min=1, help="Most offsets of a batch (default: all)."),
]
Endpoint = Annotated[
    str | None, Option("--endpoint", help="URL of an S3-compatible store (default: AWS).")
]
KafkaOptions = Annotated[
    list[str] | None,
    Option("--kafka-option", help="Of Spark's Kafka source, as kafka.security.protocol=SSL."),
]
Conf = Annotated[list[str] | None, Option("--conf", help="Setting of Spark, as name=value.")]
Jars = Annotated[
    str | None,
    Option("--jars", help="Jars of Kafka's source and Iceberg, with commas (default: from Maven)."),
]
Checkpoint = Annotated[
    str | None,
    Option(help="Folder of Spark's batch log; may be deleted (default: temporary)."),
]


def lake(
    topics: Topics,
    *,
    to: To = None,
    table: Table = None,
    catalog: Catalog = None,
    partition_by: PartitionBy = None,
    schema: JsonSchema = None,
    once: Once = False,
    every: Every = 10.0,
    max_offsets: MostOffsets = None,
    endpoint: Endpoint = None,
    kafka_option: KafkaOptions = None,
    conf: Conf = None,
    jars: Jars = None,
    cores: Cores = None,
    master: Master = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Write topics to Parquet files or an Iceberg table on Spark, exactly once.

    The target states up to which offsets it holds the topics: every start continues there. SIGTERM
    ends it; a batch that is not committed is written by the next start.
    """
    from extentflow.cli.progress import signals_stop

    with from_extra("spark", "`extentflow lake`"):
        from extentflow.spark.lake.service import LakeService, LakeTerms
        from extentflow.spark.lake.session import local_settings, require_jars
        from extentflow.spark.query import session
    _require_one_target(to, table, catalog)
    declared = _read_schema(schema)
    options = _pairs("--kafka-option", kafka_option)
    runtime = open_runtime()
    for topic in topics:  # before Spark takes its time to start
        runtime.topic(topic)
    settings = {**LOCAL, **local_settings(jars, iceberg=table is not None, to=to or "")}
    settings |= _pairs("--conf", conf)
    with (
        session(master, cores, settings, java_options=JAVA_OPTIONS) as spark,
        TemporaryDirectory(prefix="extentflow-") as temporary,
    ):
        require_jars(spark, iceberg=table is not None, to=to or "")
        target = _open_target(spark, to, table, catalog, partition_by, endpoint)
        terms = LakeTerms(
            topics=tuple(dict.fromkeys(topics)),
            checkpoint=_as_uri(checkpoint or temporary),
            every_seconds=None if once else every,
            kafka=options,
            declared=declared,
            most_offsets=max_offsets,
            arrow_records=COLUMNAR_VALUES if declared is None else DOCUMENTS,
        )
        service = LakeService(spark, target, terms, runtime)
        until = "until what they hold now is written" if once else "until Ctrl-C or SIGTERM"
        output.note(f"writing {', '.join(terms.topics)} to {target.where}, {until}")
        with signals_stop(service.stop) as stopped:
            service.run(partial(_report, as_json=as_json))
    if once and stopped():
        raise typer.Exit(STOPPED)


def _require_one_target(to: str | None, table: str | None, catalog: str | None) -> None:
    problems = []
    if (to is None) == (catalog is None):
        problems.append("give --to FOLDER, or --catalog NAME with --table")
    if catalog is not None and table is None:
        problems.append("--catalog goes with --table: it holds Iceberg tables")
    if table is not None and not _TABLE.fullmatch(table):
        problems.append(f"--table {table}: write namespace.table, of letters, digits and _")
    if problems:
        raise Misconfigured(problems)


def _open_target(
    spark: Any,  # noqa: ANN401 - pyspark is imported only where it is used
    to: str | None,
    table: str | None,
    catalog: str | None,
    partition_by: str | None,
    endpoint: str | None,
) -> Any:  # noqa: ANN401
    from extentflow.spark.lake.iceberg import IcebergTable, catalog_settings, split_partitions
    from extentflow.spark.lake.parquet import ParquetFolder

    parts = split_partitions(partition_by or "")
    if table is None:
        return ParquetFolder(to or "", parts, endpoint)
    if to is not None:
        for name, value in catalog_settings(CATALOG, _as_uri(to), endpoint).items():
            spark.conf.set(name, value)
    return IcebergTable(spark, f"{catalog or CATALOG}.{table}", parts)


def _as_uri(folder: str) -> str:
    """Return a folder as Hadoop's file systems name it."""
    if folder.startswith("s3://"):
        return f"s3a://{folder.removeprefix('s3://')}"
    return (
        folder
        if "://" in folder or folder.startswith("file:")
        else Path(folder).absolute().as_uri()
    )


def _read_schema(text: str | None) -> Schema | None:
    from extentflow.config.columns import JSON_SCHEMA

    if text is None:
        return None
    try:
        return JSON_SCHEMA.read(text)
    except ValueError as exc:
        raise Misconfigured(f"--schema {exc}") from exc


def _pairs(option: str, words: list[str] | None) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in words or ())
    if "" in pairs or not all("=" in word for word in words or ()):
        raise Misconfigured(f"{option} is written as name=value")
    return pairs


def _report(delivered: Delivered, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(asdict(delivered)) + "\n")
        sys.stdout.flush()  # a program that reads a pipe waits for this line
        return
    output.out.print(
        f"batch {delivered.batch}: {output.counted(delivered.rows, 'row')} in"
        f" {output.duration(delivered.seconds)}; the target holds {delivered.offsets}",
        highlight=False,
        markup=False,
    )
