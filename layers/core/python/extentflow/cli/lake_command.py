"""`extentflow lake`: write topics to Parquet files or an Iceberg table on Spark, exactly once."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.output import STOPPED, AsJson, Cores, Master
from extentflow.errors import CorruptRecord, Misconfigured, Permanent
from extentflow.plugins import from_extra

if TYPE_CHECKING:
    from extentflow.config.column_lists import Schema
    from extentflow.config.registry import RegistryOptions
    from extentflow.export.lake.lake_query import LakeBatch

# JSON values in an Arrow batch for Python; columnar ones have about a MiB each.
DOCUMENTS, COLUMNAR_VALUES = 10_000, 16
# Rows pass through this JVM, unlike that of other commands.
JAVA_OPTIONS = "-XX:-UsePerfData"
LOCAL = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}

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
Columns = Annotated[
    list[str] | None,
    Option("--column", help="Only this column of the rows; repeatable. Others need no key."),
]
Decrypt = Annotated[
    str | None,
    Option(
        "--keys",
        metavar="REFERENCE",
        help="Decrypt columns: where the secret with the master keys is, on the driver and on"
        " executors, as ${file:/path:key}, or aws-kms.",
    ),
]
RegistryUrl = Annotated[
    str | None,
    Option("--registry", metavar="URL", help="Schema registry of values in Avro or JSON."),
]
RegistryUser = Annotated[
    str | None,
    Option(
        "--registry-user",
        metavar="REFERENCE",
        help="Where user:password of the registry is, on the driver and on executors.",
    ),
]
Every = Annotated[float, Option("--every", min=0, help="Seconds from one batch to the next.")]
Once = Annotated[bool, Option("--once", help="Write what the topics hold when it begins, and end.")]
MostOffsets = Annotated[
    int | None,
    Option("--max-offsets-per-trigger", min=1, help="Most offsets of a batch (default: all)."),
]
Endpoint = Annotated[
    str | None,
    Option(
        "--endpoint", help="URL of an S3-compatible store (default: the environment's, else AWS)."
    ),
]
KafkaOptions = Annotated[
    list[str] | None,
    Option("--kafka-option", help="Of Spark's Kafka source, as kafka.security.protocol=SSL."),
]
Conf = Annotated[
    list[str] | None, Option("--conf", help="Setting of Spark, as name=value; repeatable.")
]
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
    columns: Columns = None,
    decrypt: Decrypt = None,
    registry: RegistryUrl = None,
    registry_user: RegistryUser = None,
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
    ends it; a batch that is not committed is written by the next start. Exit code 1: start it
    again; 2: an option, the target or a value has to be corrected first.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import signals_stop

    with from_extra("spark", "`extentflow lake`"):
        from extentflow.export.lake.lake_options import ValueOptions
        from extentflow.export.lake.lake_query import LakeService, LakeTerms
        from extentflow.export.lake.lake_session import (
            LakeAddress,
            as_uri,
            local_settings,
            require_jars,
        )
        from extentflow.spark.query import session
    where = LakeAddress(
        to=to, table=table, catalog=catalog, partition_by=partition_by, endpoint=endpoint
    )
    if found := where.problems():
        raise Misconfigured(found)
    values = ValueOptions(
        schema=_read_schema(schema),
        columns=tuple(dict.fromkeys(columns)) if columns else None,
        keys=decrypt,
        registry=_read_registry(registry, registry_user),
    )
    values.open_keys()  # a secret that cannot be read ends the command here
    options = _pairs("--kafka-option", kafka_option)
    runtime = open_runtime()
    if runtime.settings.kafka and not options:
        raise Misconfigured(
            f"kafka.{', kafka.'.join(runtime.settings.kafka)}: Spark's source takes the names of"
            " Java's client; repeat what connects to the brokers as --kafka-option, for example"
            " kafka.security.protocol=SASL_SSL"
        )
    for topic in topics:  # before Spark takes its time to start
        runtime.topic(topic)
    settings = {**LOCAL, **local_settings(jars, iceberg=table is not None, to=to or "")}
    settings |= _pairs("--conf", conf)
    debugs = logging.getLogger(__name__).isEnabledFor(logging.DEBUG)
    with (
        session(master, cores, settings, java_options=JAVA_OPTIONS, filtered=not debugs) as spark,
        TemporaryDirectory(prefix="extentflow-") as temporary,
    ):
        require_jars(spark, iceberg=table is not None, to=to or "")
        target = where.open(spark)
        terms = LakeTerms(
            topics=tuple(dict.fromkeys(topics)),
            checkpoint=as_uri(checkpoint or temporary),
            every_seconds=None if once else every,
            kafka=options,
            values=values,
            most_offsets=max_offsets,
            arrow_records=DOCUMENTS if values.schema or values.registry else COLUMNAR_VALUES,
        )
        service = LakeService(spark, target, terms, runtime)
        holds = "it holds" if len(terms.topics) == 1 else "they hold"
        until = f"until what {holds} now is written" if once else "until Ctrl-C or SIGTERM"
        output.note(f"writing {', '.join(terms.topics)} to {target.where}, {until}")
        with signals_stop(service.stop) as stopped:
            try:
                service.run(partial(_report, as_json=as_json))
            except CorruptRecord as exc:
                # Exit code 2: no start reads it.
                raise Permanent(str(exc)) from exc
    if once and stopped():
        raise typer.Exit(STOPPED)


def _read_schema(text: str | None) -> Schema | None:
    from extentflow.config.column_lists import JSON_SCHEMA

    if text is None:
        return None
    try:
        return JSON_SCHEMA.read(text)
    except ValueError as exc:
        raise Misconfigured(f"--schema {exc}") from exc


def _read_registry(url: str | None, user: str | None) -> RegistryOptions | None:
    from extentflow.config.registry import RegistryOptions
    from extentflow.config.table import Table, declared

    if url is None:
        if user is not None:
            raise Misconfigured("--registry-user: goes with --registry, the registry's address")
        return None
    address, secret = "schema.registry.url", "basic.auth.user.info"
    given = {address: url} | ({} if user is None else {secret: user})
    labels = {address: "--registry", secret: "--registry-user"}
    read = Table(tuple(declared(RegistryOptions))).read(given, labels=labels)
    if read.problems:
        raise Misconfigured(read.problems)
    return RegistryOptions(urls=read.values[address], user_info=read.values[secret])


def _pairs(option: str, words: list[str] | None) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in words or ())
    if "" in pairs or not all("=" in word for word in words or ()):
        raise Misconfigured(f"{option} is written as name=value")
    return pairs


def _report(delivered: LakeBatch, *, as_json: bool) -> None:
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
