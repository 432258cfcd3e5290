"""`extentflow stream`: deliver continuously on Spark, from the queue or by listing connectors."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from typer import Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, STOPPED, AsJson, Cores, Master, MetricsAddress
from extentflow.config.worker import OPTIONS
from extentflow.errors import Misconfigured
from extentflow.metric_table import (
    BAD_RECORDS,
    BYTES_READ,
    EXTENTS,
    EXTENTS_FAILED,
    EXTENTS_IN_WORK,
    EXTENTS_WAITING,
    FILTERED_RECORDS,
    RECORDS,
    TRIGGER_SECONDS,
    TRIGGERS,
)
from extentflow.plugins import from_extra
from extentflow.services.metrics import Metric, Metrics, serve_metrics

if TYPE_CHECKING:
    from extentflow.spark.query import TriggerResult
    from extentflow.spark.query_options import StreamOptions
    from extentflow.wiring import Runtime

HERE = ", or leave --master out"
NOWHERE = "noop"  # Spark's sink that keeps nothing
# Spark's formats that need a path.
FILES = frozenset({"avro", "csv", "json", "orc", "parquet", "text"})
UNANNOUNCED = " in that queue; --work listing also finds objects without a notification"
# Options of the data source and of this command, in the order of `_source_options`.
WRITTEN = {
    "work": "--work",
    "connector": "--connector",
    "max.extents.per.trigger": "--max-extents-per-trigger",
    "max.seconds.per.trigger": "--max-seconds-per-trigger",
    "listing.interval.seconds": "--listing-interval-seconds",
    "parallelism": "--cores",
}

# The field of a trigger that each metric is.
OBSERVED = {
    EXTENTS: "extents",
    EXTENTS_FAILED: "failed",
    RECORDS: "records",
    BAD_RECORDS: "bad",
    FILTERED_RECORDS: "filtered",
    BYTES_READ: "bytes_read",
    TRIGGER_SECONDS: "seconds",
    EXTENTS_WAITING: "waiting",
    EXTENTS_IN_WORK: "hidden",
}
METRICS = tuple(Metric.of(entry) for entry in (TRIGGERS, *OBSERVED))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """What a stream delivers."""

    work: Annotated[
        str,
        Option(
            "--work",
            help="queue: drain the extents queue. listing: find objects and open jobs. auto: the"
            " queue where extents.queue.url is set.",
        ),
    ] = "auto"
    connector: Annotated[
        str | None,
        Option("--connector", "-c", help="With --work listing: deliver only this one."),
    ] = None
    listing_interval: Annotated[
        float | None,
        Option(
            "--listing-interval-seconds",
            min=0,
            help="With --work listing: seconds between complete listings. Default: 60.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """When a trigger begins, and how much it takes on."""

    every: Annotated[
        float, Option("--every", min=0, help="Seconds from one trigger to the next.")
    ] = 1.0
    once: Annotated[
        bool, Option("--once", help="Deliver what is waiting when it begins, then end.")
    ] = False
    max_extents: Annotated[
        int | None, Option("--max-extents-per-trigger", min=1, help="Default: 1024.")
    ] = None
    max_seconds: Annotated[
        float | None,
        Option(
            "--max-seconds-per-trigger",
            min=1,
            help="Stop starting new extents after this many seconds per trigger. Default: 60.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and its batch log."""

    cores: Cores = None
    master: Master = None
    checkpoint: Annotated[
        str | None,
        Option(
            help="Folder of Spark's batch log, no progress: may be deleted (default: temporary)."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Where receipts, metrics and messages of a stream go."""

    receipts: Annotated[
        str, Option("--receipts", help="Spark format of kept receipts, as parquet.")
    ] = NOWHERE
    receipts_option: Annotated[
        list[str] | None,
        Option("--receipts-option", help="Its option, as path=s3a://shop/receipts."),
    ] = None
    metrics: MetricsAddress = None
    as_json: AsJson = False

    def sink_options(self) -> dict[str, str]:
        """Return the options of Spark's sink of receipts."""
        words = self.receipts_option or []
        pairs = dict(word.partition("=")[::2] for word in words)
        if "" in pairs or not all("=" in word for word in words):
            raise Misconfigured("--receipts-option is written as name=value")
        if pairs and self.receipts == NOWHERE:
            raise Misconfigured("--receipts-option goes with --receipts FORMAT, such as parquet")
        if self.receipts in FILES and "path" not in pairs:
            raise Misconfigured(f"--receipts {self.receipts} needs --receipts-option path=FOLDER")
        return pairs


@expand_options
def stream(
    *,
    work: WorkOptions,
    triggers: TriggerOptions,
    spark: SparkOptions,
    reports: ReportOptions,
    servers: ServerOptions,
) -> None:
    """Deliver continuously on Spark; SIGTERM ends it within five seconds.

    Exit code 0 when it was stopped; with --once when all waiting work is DONE.
    """
    from extentflow.cli.progress import signals_stop
    from extentflow.wiring.environments import use_running_servers
    from extentflow.wiring.extents import require_ledger_for

    with from_extra("spark", "`extentflow stream`"):
        from extentflow.spark.query import Service, Terms, session
    run, once = f"stream-{uuid4().hex[:12]}", triggers.once
    options = _source_options(work, triggers, spark) | servers.settings
    sink_options = reports.sink_options()
    if not servers.settings:
        use_running_servers(output.note)
    asked, runtime = _open(options | {"run": run}, once=once)
    require_ledger_for(spark.master, asked.settings, HERE)  # before it is connected to
    with (
        session(spark.master, spark.cores) as opened,
        TemporaryDirectory(prefix="extentflow-") as temporary,
    ):
        require_ledger_for(opened.sparkContext.master, asked.settings)
        options.setdefault("parallelism", str(opened.sparkContext.defaultParallelism))
        folder = spark.checkpoint or Path(temporary).as_uri()
        period = None if once else triggers.every
        terms = Terms(run, folder, period, options, reports.receipts, sink_options)
        service = Service(opened, runtime, terms)
        totals: Counter[str] = Counter()
        output.note(_begin(asked, once=once))
        observed = Metrics(METRICS)
        report = partial(_report, totals, observed, as_json=reports.as_json)
        with (
            serve_metrics(observed.text, reports.metrics) as url,
            signals_stop(service.stop) as stopped,
        ):
            if url:
                output.note(f"metrics for Prometheus: {url}")
            undone = service.run(report)
    # A stopped run leaves work on purpose: its exit code reports that.
    if once and stopped():
        raise typer.Exit(STOPPED)
    for line in undone:
        output.complain(line)
    if once:
        _end(asked, runtime, totals, undone=bool(undone))


def _source_options(
    work: WorkOptions, triggers: TriggerOptions, spark: SparkOptions
) -> dict[str, str]:
    """Return the options of the data source that were given."""
    values = (
        *(work.work, work.connector, triggers.max_extents, triggers.max_seconds),
        *(work.listing_interval, spark.cores),
    )
    given = zip(WRITTEN, values, strict=True)
    return {name: str(value) for name, value in given if value is not None}


def _open(options: dict[str, str], *, once: bool) -> tuple[StreamOptions, Runtime]:
    """Return checked options and a runtime whose ledger has the connector.

    Spark takes its time to start: a table or connector that is missing is reported before.
    """
    from extentflow.jobs.preflight import require_running
    from extentflow.spark.query_options import StreamOptions
    from extentflow.wiring import Runtime

    asked = StreamOptions.read(options, labels={**WRITTEN, **OPTIONS})
    runtime = Runtime(asked.settings, notify=output.note)
    runtime.require_app()
    if asked.connector is not None:
        runtime.connectors.latest(asked.connector)
        if once:
            require_running(runtime.ledger, asked.connector)
    return asked, runtime


def _end(asked: StreamOptions, runtime: Runtime, totals: Counter[str], *, undone: bool) -> None:
    """Report what `--once` left out; end the command with INCOMPLETE where work is not DONE."""
    from extentflow.jobs.preflight import skip_reason

    for name in runtime.ledger.connectors.names() if asked.connector is None else ():
        # Their objects were not listed, so nothing else would mention them.
        if reason := skip_reason(runtime.ledger, name):
            output.note(reason)
    if not totals["extents"] and not undone:
        output.note("nothing was waiting" + ("" if asked.listing else UNANNOUNCED))
    if undone or totals["failed"]:
        raise typer.Exit(INCOMPLETE)


def _begin(options: StreamOptions, *, once: bool) -> str:
    until = "until Ctrl-C or SIGTERM; --once ends when the work that waits now is done"
    until = "until the work that waits now is done" if once else until
    if not options.listing:
        return f"draining {options.settings.extents_queue_url}, {until}"
    whose = f"connector {options.connector}" if options.connector else "every connector"
    return f"listing {whose}: objects without a job, and open jobs, {until}"


def _report(
    totals: Counter[str], observed: Metrics, triggered: TriggerResult, *, as_json: bool
) -> None:
    totals.update(extents=triggered.extents, failed=triggered.failed)
    values: dict[str, float] = {
        entry.prometheus: getattr(triggered, field) for entry, field in OBSERVED.items()
    }
    observed.update({**values, TRIGGERS.prometheus: 1})
    if as_json:
        sys.stdout.write(output.json_text(triggered) + "\n")
        sys.stdout.flush()  # a program that reads a pipe waits for this line
        return
    failed = f", {triggered.failed} failed" if triggered.failed else ""
    left = f", {triggered.left} left: CANCELLED or SUPERSEDED" if triggered.left else ""
    if triggered.reason:
        output.complain(f"{triggered.reason}; `extentflow status` shows which jobs failed")
    output.out.print(
        f"trigger {triggered.batch}: {output.counted(triggered.extents, 'extent')}{failed}{left}, "
        f"{output.counted(triggered.records, 'record')} in {output.duration(triggered.seconds)}; "
        f"{triggered.waiting:,} {'was' if triggered.waiting == 1 else 'were'} waiting,"
        f" {triggered.hidden:,} in work",
        highlight=False,
    )
