"""`extentflow stream`: deliver continuously on Spark, from the queue or by listing connectors."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer
from typer import Option

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, STOPPED, AsJson, Cores, Master, MetricsAddress
from extentflow.errors import Misconfigured
from extentflow.plugins import from_extra
from extentflow.services.metrics import Metric, Metrics, serve_metrics

if TYPE_CHECKING:
    from extentflow.spark.query import TriggerResult
    from extentflow.spark.query_options import StreamOptions

HERE = ", or leave --master out"
NOWHERE = "noop"  # Spark's sink that keeps nothing
# Spark's formats that need a path.
FILES = frozenset({"avro", "csv", "json", "orc", "parquet", "text"})
UNANNOUNCED = " in that queue; --work listing also finds objects without a notification"
# Options of the data source and of this command, in the order of `stream`'s values for them.
WRITTEN = {
    "work": "--work",
    "connector": "--connector",
    "max.extents.per.trigger": "--max-extents-per-trigger",
    "max.seconds.per.trigger": "--max-seconds-per-trigger",
    "listing.interval.seconds": "--listing-interval-seconds",
    "parallelism": "--cores",
}

# Names of metrics, without their prefix, and the field of a trigger that each is.
OBSERVED = {
    "extents_total": "extents",
    "extents_failed_total": "failed",
    "records_total": "records",
    "bad_records_total": "bad",
    "filtered_records_total": "filtered",
    "bytes_read_total": "bytes_read",
    "trigger_seconds_total": "seconds",
    "extents_waiting": "waiting",
    "extents_in_work": "hidden",
}
METRICS = (
    Metric("extentflow_triggers_total", "counter", "Triggers that ended."),
    Metric("extentflow_extents_total", "counter", "Extents that became final."),
    Metric("extentflow_extents_failed_total", "counter", "Extents that became FAILED."),
    Metric("extentflow_records_total", "counter", "Records committed to Kafka."),
    Metric("extentflow_bad_records_total", "counter", "Bad records."),
    Metric("extentflow_filtered_records_total", "counter", "Records that transforms removed."),
    Metric("extentflow_bytes_read_total", "counter", "Bytes read from object stores."),
    Metric("extentflow_trigger_seconds_total", "counter", "Seconds that triggers took."),
    Metric("extentflow_extents_waiting", "gauge", "Extents that waited at the last trigger."),
    Metric("extentflow_extents_in_work", "gauge", "Extents in work at the last trigger."),
)

Work = Annotated[
    str,
    Option(
        "--work",
        help="queue: drain the extents queue. listing: find objects and open jobs. auto: the queue "
        "where extents.queue.url is set.",
    ),
]
OneConnector = Annotated[
    str | None, Option("--connector", "-c", help="With --work listing: deliver only this one.")
]
Every = Annotated[float, Option("--every", min=0, help="Seconds from one trigger to the next.")]
Once = Annotated[bool, Option("--once", help="Deliver what is waiting when it begins, then end.")]
Most = Annotated[int | None, Option("--max-extents-per-trigger", min=1, help="Default: 1024.")]
MostSeconds = Annotated[
    float | None,
    Option(
        "--max-seconds-per-trigger",
        min=1,
        help="Stop starting new extents after this many seconds per trigger. Default: 60.",
    ),
]
Interval = Annotated[
    float | None,
    Option(
        "--listing-interval-seconds",
        min=0,
        help="With --work listing: seconds between complete listings. Default: 60.",
    ),
]
Checkpoint = Annotated[
    str | None,
    Option(help="Folder of Spark's batch log, no progress: may be deleted (default: temporary)."),
]
Receipts = Annotated[str, Option("--receipts", help="Spark format of kept receipts, as parquet.")]
ReceiptsOptions = Annotated[
    list[str] | None, Option("--receipts-option", help="Its option, as path=s3a://shop/receipts.")
]


def stream(
    *,
    work: Work = "auto",
    connector: OneConnector = None,
    every: Every = 1.0,
    once: Once = False,
    max_extents: Most = None,
    max_seconds: MostSeconds = None,
    listing_interval: Interval = None,
    cores: Cores = None,
    master: Master = None,
    checkpoint: Checkpoint = None,
    receipts: Receipts = NOWHERE,
    receipts_option: ReceiptsOptions = None,
    metrics: MetricsAddress = None,
    as_json: AsJson = False,
) -> None:
    """Deliver continuously on Spark; SIGTERM ends it within five seconds.

    Exit code 0 when it was stopped; with --once when all waiting work is DONE.
    """
    from extentflow.cli.progress import signals_stop
    from extentflow.jobs.preflight import require_running, skip_reason
    from extentflow.wiring import Runtime
    from extentflow.wiring.environments import use_running_servers
    from extentflow.wiring.extents import require_ledger_for

    with from_extra("spark", "`extentflow stream`"):
        from extentflow.spark.query import Service, Terms, session
        from extentflow.spark.query_options import StreamOptions
    run = f"stream-{uuid4().hex[:12]}"
    values = (work, connector, max_extents, max_seconds, listing_interval, cores)
    given = zip(WRITTEN, values, strict=True)
    options = {name: str(value) for name, value in given if value is not None}
    sink_options = _sink_options(receipts, receipts_option or [])
    use_running_servers(output.note)
    asked = StreamOptions.read({**options, "run": run}, labels=WRITTEN)
    runtime = Runtime(asked.settings, notify=output.note)
    # Spark takes its time to start: a table or connector that is missing is reported before.
    runtime.require_app()
    if connector is not None:
        runtime.connectors.latest(connector)
        if once:
            require_running(runtime.ledger, connector)
    require_ledger_for(master, asked.settings, HERE)  # before it is connected to
    with session(master, cores) as spark, TemporaryDirectory(prefix="extentflow-") as temporary:
        require_ledger_for(spark.sparkContext.master, asked.settings)
        options.setdefault("parallelism", str(spark.sparkContext.defaultParallelism))
        folder, period = checkpoint or Path(temporary).as_uri(), None if once else every
        terms = Terms(run, folder, period, options, receipts, sink_options)
        service = Service(spark, runtime, terms)
        totals: Counter[str] = Counter()
        output.note(_begin(asked, once=once))
        observed = Metrics(METRICS)
        report = partial(_report, totals, observed, as_json=as_json)
        with (
            serve_metrics(observed.text, metrics) as url,
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
    for name in runtime.ledger.connectors.names() if once and connector is None else ():
        # Their objects were not listed, so nothing else would mention them.
        if reason := skip_reason(runtime.ledger, name):
            output.note(reason)
    if once and not totals["extents"] and not undone:
        output.note("nothing was waiting" + ("" if asked.listing else UNANNOUNCED))
    if once and (undone or totals["failed"]):
        raise typer.Exit(INCOMPLETE)


def _begin(options: StreamOptions, *, once: bool) -> str:
    until = "until the work that waits now is done" if once else "until Ctrl-C or SIGTERM"
    if not options.listing:
        return f"draining {options.settings.extents_queue_url}, {until}"
    whose = f"connector {options.connector}" if options.connector else "every connector"
    return f"listing {whose}: objects without a job, and open jobs, {until}"


def _sink_options(receipts: str, words: list[str]) -> dict[str, str]:
    pairs = dict(word.partition("=")[::2] for word in words)
    if "" in pairs or not all("=" in word for word in words):
        raise Misconfigured("--receipts-option is written as name=value")
    if pairs and receipts == NOWHERE:
        raise Misconfigured("--receipts-option goes with --receipts FORMAT, such as parquet")
    if receipts in FILES and "path" not in pairs:
        raise Misconfigured(f"--receipts {receipts} needs --receipts-option path=FOLDER")
    return pairs


def _report(
    totals: Counter[str], observed: Metrics, triggered: TriggerResult, *, as_json: bool
) -> None:
    totals.update(extents=triggered.extents, failed=triggered.failed)
    values: dict[str, float] = {
        f"extentflow_{name}": getattr(triggered, field) for name, field in OBSERVED.items()
    }
    observed.update({**values, "extentflow_triggers_total": 1})
    if as_json:
        sys.stdout.write(json.dumps(asdict(triggered)) + "\n")
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
