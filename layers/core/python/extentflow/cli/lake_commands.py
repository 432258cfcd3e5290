"""`extentflow lake`: write topics to Parquet files or an Iceberg table on Spark, exactly once."""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, StoreSettings, expand_options
from extentflow.cli.output import STOPPED, AsJson, Cores, Master
from extentflow.errors import CorruptRecord, Misconfigured, Permanent
from extentflow.plugins import from_extra

if TYPE_CHECKING:
    from extentflow.config.column_lists import Schema
    from extentflow.config.registry import RegistryOptions
    from extentflow.export.lake.lake_options import ValueOptions
    from extentflow.export.lake.lake_query import LakeBatch, LakeService
    from extentflow.export.lake.lake_session import LakeAddress
    from extentflow.export.lake.lake_target import Offsets
    from extentflow.wiring import Runtime

# JSON values in an Arrow batch for Python; columnar ones have about a MiB each.
DOCUMENTS, COLUMNAR_VALUES = 10_000, 16
# Rows pass through this JVM, unlike that of other commands.
JAVA_OPTIONS = "-XX:-UsePerfData"
LOCAL = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}

Topics = Annotated[list[str], Argument(help="Topics with columnar values, or JSON with --schema.")]
Pairs = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Where rows go."""

    to: Annotated[
        str | None,
        Option("--to", help="Folder: s3a://bucket/prefix, or local. With --table: the warehouse."),
    ] = None
    table: Annotated[
        str | None,
        Option("--table", help="Iceberg table, as sales.orders (default: Parquet files)."),
    ] = None
    catalog: Annotated[
        str | None,
        Option("--catalog", help="Instead of --to: Iceberg catalog in Spark's settings (--conf)."),
    ] = None
    partition_by: Annotated[
        str | None,
        Option("--partition-by", help="Columns, as day,region; with --table also days(seen)."),
    ] = None
    settings: StoreSettings = None
    endpoint: Annotated[
        str | None, Option("--endpoint", metavar="URL", help="Short for --set aws.s3.endpoint=URL.")
    ] = None

    def address(self) -> LakeAddress:
        """Return the address of the target. Raises Misconfigured."""
        from extentflow.export.lake.lake_session import ENDPOINT, LakeAddress
        from extentflow.jobs.addresses import S3_SCHEMES
        from extentflow.services.addressed import parse_settings

        store = parse_settings(self.settings or ())
        if self.endpoint is not None and (self.to or "").startswith(S3_SCHEMES):
            if ENDPOINT in store:
                raise Misconfigured(f"--endpoint: says the same as --set {ENDPOINT}; keep one")
            store[ENDPOINT] = self.endpoint
        return LakeAddress(
            to=self.to,
            table=self.table,
            catalog=self.catalog,
            partition_by=self.partition_by,
            store=store,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How values become rows."""

    schema: Annotated[
        str | None,
        Option("--schema", help="Columns of JSON values, in the syntax of json.schema."),
    ] = None
    columns: Annotated[
        Pairs,
        Option("--column", help="Only this column of the rows; repeatable. Others need no key."),
    ] = None
    decrypt: Annotated[
        str | None,
        Option(
            "--keys",
            metavar="REFERENCE",
            help="Decrypt columns: where the secret with the master keys is, on the driver and on"
            " executors, as ${file:/path:key}, or aws-kms.",
        ),
    ] = None
    registry: Annotated[
        str | None,
        Option("--registry", metavar="URL", help="Schema registry of values in Avro or JSON."),
    ] = None
    registry_user: Annotated[
        str | None,
        Option(
            "--registry-user",
            metavar="REFERENCE",
            help="Where user:password of the registry is, on the driver and on executors.",
        ),
    ] = None

    def values(self) -> ValueOptions:
        """Return how values are decoded. Raises Misconfigured, also for a secret not found."""
        from extentflow.export.lake.lake_options import ValueOptions
        from extentflow.wiring.value_access import ProcessAccess

        found = ValueOptions(
            schema=_read_schema(self.schema),
            columns=tuple(dict.fromkeys(self.columns)) if self.columns else None,
            keys=self.decrypt,
            registry=_read_registry(self.registry, self.registry_user),
            access=ProcessAccess(),
        )
        found.open_keys()  # a secret that cannot be read ends the command here
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """When batches are written, what is read for them, and how they are reported."""

    once: Annotated[
        bool, Option("--once", help="Write what the topics hold when it begins, and end.")
    ] = False
    every: Annotated[
        float, Option("--every", min=0, help="Seconds from one batch to the next.")
    ] = 10.0
    max_offsets: Annotated[
        int | None,
        Option("--max-offsets-per-trigger", min=1, help="Most offsets of a batch (default: all)."),
    ] = None
    kafka_option: Annotated[
        Pairs,
        Option("--kafka-option", help="Of Spark's Kafka source, as kafka.security.protocol=SSL."),
    ] = None
    checkpoint: Annotated[
        str | None,
        Option(help="Folder of Spark's batch log; may be deleted (default: temporary)."),
    ] = None
    continue_at: Annotated[
        str | None,
        Option(
            "--continue-at",
            metavar="OFFSETS",
            help="Where topics continue if the target's history does not decide it, as"
            ' {"orders":{"0":120}}.',
        ),
    ] = None
    as_json: AsJson = False

    def stated_offsets(self) -> Offsets | None:
        """Return the offsets of --continue-at. Raises Misconfigured."""
        from extentflow.export.lake.lake_target import read_offsets

        if self.continue_at is None:
            return None
        try:
            return read_offsets(self.continue_at)
        except (ValueError, TypeError, AttributeError) as exc:
            raise Misconfigured(
                f"--continue-at {self.continue_at}: write offsets as JSON, a number for each"
                ' partition of each topic, as {"orders":{"0":120}}'
            ) from exc

    def source_options(self, runtime: Runtime) -> dict[str, str]:
        """Return the options of Spark's source. Raises Misconfigured where brokers need some."""
        options = _pairs("--kafka-option", self.kafka_option)
        if runtime.settings.kafka and not options:
            raise Misconfigured(
                f"kafka.{', kafka.'.join(runtime.settings.kafka)}: Spark's source takes the names"
                " of Java's client; repeat what connects to the brokers as --kafka-option, for"
                " example kafka.security.protocol=SASL_SSL"
            )
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """The session of Spark."""

    conf: Annotated[
        Pairs, Option("--conf", help="Setting of Spark, as name=value; repeatable.")
    ] = None
    jars: Annotated[
        str | None,
        Option(
            "--jars", help="Jars of Kafka's source and Iceberg, with commas (default: from Maven)."
        ),
    ] = None
    cores: Cores = None
    master: Master = None

    def open(self, where: LakeAddress) -> AbstractContextManager[Any]:
        """Open the session, which a target at an address needs."""
        from extentflow.export.lake.lake_session import local_settings
        from extentflow.spark.query import session

        iceberg = where.table is not None
        settings = {**LOCAL, **local_settings(self.jars, iceberg=iceberg, to=where.to or "")}
        settings |= _pairs("--conf", self.conf)
        debugs = logging.getLogger(__name__).isEnabledFor(logging.DEBUG)
        return session(
            self.master, self.cores, settings, java_options=JAVA_OPTIONS, filtered=not debugs
        )


@expand_options
def lake(
    topics: Topics,
    *,
    target: TargetOptions,
    decoding: DecodingOptions,
    batches: BatchOptions,
    spark: SessionOptions,
    servers: ServerOptions,
) -> None:
    """Write topics to Parquet files or an Iceberg table on Spark, exactly once.

    The target states up to which offsets it holds the topics: every start continues there. Runs
    until Ctrl-C or SIGTERM; --once ends when what the topics hold now is written. The next start
    writes a batch that is not committed. Exit code 1: start it again; 2: an option, the target or a
    value has to be corrected first.
    """
    from extentflow.cli.opening import open_runtime

    with from_extra("spark", "`extentflow lake`"):
        from extentflow.export.lake.lake_query import LakeService, LakeTerms
        from extentflow.export.lake.lake_session import as_uri, require_jars
        from extentflow.services.lakes import folder_opener, lake_cluster
    where = target.address()
    opener = folder_opener(where.store_settings())
    if found := where.problems(opener):
        raise Misconfigured(found)
    values, stated = decoding.values(), batches.stated_offsets()
    runtime = open_runtime(servers)
    options = batches.source_options(runtime)
    for topic in topics:  # before Spark takes its time to start
        runtime.topic(topic)
    with (
        spark.open(where) as session,
        TemporaryDirectory(prefix="extentflow-") as temporary,
    ):
        require_jars(session, iceberg=where.table is not None, to=where.to or "")
        terms = LakeTerms(
            topics=tuple(dict.fromkeys(topics)),
            checkpoint=as_uri(batches.checkpoint or temporary),
            every_seconds=None if batches.once else batches.every,
            kafka=options,
            values=values,
            most_offsets=batches.max_offsets,
            continue_at=stated,
            arrow_records=DOCUMENTS if values.schema or values.registry else COLUMNAR_VALUES,
        )
        table = where.open(session, opener)
        cluster = lake_cluster(runtime.settings, runtime.broker)
        _write(LakeService(session, table, terms, cluster), as_json=batches.as_json)


def _write(service: LakeService, *, as_json: bool) -> None:
    """Run a query until its end, Ctrl-C or SIGTERM."""
    from extentflow.cli.progress import signals_stop

    terms, once = service.terms, service.terms.every_seconds is None
    holds = "it holds" if len(terms.topics) == 1 else "they hold"
    until = f"until Ctrl-C or SIGTERM; --once ends when what {holds} now is written"
    until = f"until what {holds} now is written" if once else until
    output.note(f"writing {', '.join(terms.topics)} to {service.target.where}, {until}")
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
        sys.stdout.write(output.json_text(delivered) + "\n")
        sys.stdout.flush()  # a program that reads a pipe waits for this line
        return
    output.out.print(
        f"batch {delivered.batch}: {output.counted(delivered.rows, 'row')} in"
        f" {output.duration(delivered.seconds)}; the target holds {delivered.offsets}",
        highlight=False,
        markup=False,
    )
