"""`extentflow plan` and `run`: what moves data.

Owns: these commands, signals, the report of a run. Refuses to know: how an engine works.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Annotated, Any
from uuid import uuid4

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson, Cores, EngineName, Master
from extentflow.cli.progress import RunProgress
from extentflow.cli.signals import signals_stop
from extentflow.connectors import ConnectorConfig
from extentflow.connectors.sources import LOCAL_FILE
from extentflow.engines import Engine
from extentflow.engines.emr.submitted import OnCompletion
from extentflow.errors import CorruptRecord, Misconfigured, Permanent
from extentflow.jobs import preflight
from extentflow.jobs.addresses import Territory, select_all
from extentflow.jobs.planner import Intake, Planner
from extentflow.jobs.run import JobReport, Run, RunReport
from extentflow.model import JobState, ObjectVersion
from extentflow.queue.backfill import MOST_ADDRESSES
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.announcing import open_announcements
from extentflow.wiring.options import absent_elsewhere

INCOMPLETE = 1
STOPPED = 130
SHOWN_ERRORS = 8
NEW = "new"
HERE = "`extentflow run` with --engine spark or inline, on this machine"
REMOTE = "emr"

Addresses = Annotated[
    list[str] | None,
    typer.Argument(help="s3://bucket/key, prefix/ or glob (default: all of the connector's)."),
]
ConnectorName = Annotated[str, typer.Option("--connector", "-c", help="The connector to use.")]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Begin a second, full delivery of each object: under the connector's latest revision.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(plan)
    app.command()(run)


def plan(
    addresses: Addresses = None,
    *,
    connector: ConnectorName,
    cores: Cores = None,
    as_json: AsJson = False,
) -> None:
    """Show which objects there are, what became of them, and how the connector cuts them now.

    Nothing is written. A job that is there keeps the plan of the revision that it began with.
    """
    runtime = Runtime.from_environment()
    config, revision = runtime.connectors.latest(connector)
    planner = runtime.planner()
    plans: list[dict[str, Any]] = []
    unfit: list[str] = []
    for version in selected(runtime, config, revision, addresses):
        intake = runtime.request(config, revision, version, cores or os.cpu_count() or 1)
        try:
            job, extents = planner.dry_run(intake)
        except (Misconfigured, Permanent, CorruptRecord) as exc:
            unfit.append(str(exc))
            continue
        known = planner.newest(intake)
        plans.append(
            {
                "object": version.uri,
                "etag": version.etag,
                "bytes": version.size,
                "format": job.format,
                "topic": config.topic_for(version),
                "job": known.id if known else job.id,
                "state": known.state if known else NEW,
                "revision": known.revision if known else revision,
                "extent_bytes": job.plan.target_bytes,
                "extents": [[extent.start, extent.end] for extent in extents],
            }
        )
    if as_json:
        output.print_json(plans)
    elif plans:
        _show_plans(plans)
    elif not unfit:
        output.note(f"there is nothing to deliver below {_place(config)}")
    for problem in unfit:
        output.complain(problem)
    if unfit:
        raise typer.Exit(INCOMPLETE)


def run(
    addresses: Addresses = None,
    *,
    connector: ConnectorName,
    engine: EngineName = "spark",
    cores: Cores = None,
    master: Master = None,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka; exit code 0 only when every job is DONE."""
    runtime = Runtime.from_environment()
    config, revision = runtime.connectors.latest(connector)
    preflight.require_running(runtime.ledger, connector)
    if engine == REMOTE:
        require_reachable(config, addresses)
    runtime.require_app()
    versions = list(selected(runtime, config, revision, addresses))
    preflight.check(config, runtime.broker, versions)
    if not versions:
        output.note(f"there is nothing to deliver below {_place(config)}")
        show(RunReport(engine), as_json=as_json)
        return
    chosen = open_engine(
        runtime,
        engine,
        cores=cores,
        master=master,
        max_tasks=config.max_tasks,
        start_run=lambda started: started.begin_shared(
            subject(), connector, addresses or (), then=OnCompletion.PERSON
        ),
        say=output.note,
    )
    intakes: Iterator[Intake] = (
        runtime.request(config, revision, version, chosen.cores) for version in versions
    )
    if again and engine == REMOTE:
        intakes = _finished_first(runtime.planner(), intakes)
    with driving(runtime, engine, chosen) as driver:
        report = driver.ingest(intakes, again=again)
    note_older(report, revision)
    before = sum(job.delivered_before for job in report.jobs)
    if before:
        output.note(
            f"{before} of {len(report.jobs)} objects were delivered before and are left alone; "
            "--again delivers them a second time"
        )
    show(report, as_json=as_json)


def subject() -> str:
    """Return what a run of this shell is known by, and no other."""
    return f"shell-{uuid4().hex}"


def _finished_first(planner: Planner, intakes: Iterator[Intake]) -> Iterator[Intake]:
    """Yield what may be delivered a second time elsewhere: a run there takes the first up again."""
    for intake in intakes:
        known = planner.newest(intake)
        if known is not None and known.state.open and not known.generation:
            raise Misconfigured(
                f"{intake.version.uri}: job {known.id} is {known.state}; finish it without "
                "--again, or use --engine spark"
            )
        yield intake


def unreachable(config: ConnectorConfig) -> str | None:
    """Return why a run elsewhere could deliver nothing of a connector, and the way out."""
    if config.endpoint_type == LOCAL_FILE:
        return (
            f"connector {config.name} reads files of this machine, and a run of EMR Serverless is "
            f"on another one; use {HERE}"
        )
    absent = absent_elsewhere(config)
    return absent and f"{absent}, or use {HERE}"


def require_reachable(config: ConnectorConfig, addresses: Sequence[str] | None) -> None:
    """Raise where a run elsewhere could not do what is asked for."""
    if why := unreachable(config):
        raise Misconfigured(why)
    require_few(addresses or ())


def require_few(addresses: Sequence[str]) -> None:
    """Raise where a run's command line might not hold all addresses."""
    if len(addresses) > MOST_ADDRESSES:
        raise Misconfigured(
            f"{len(addresses)} addresses are more than one run takes ({MOST_ADDRESSES}); give a "
            "prefix or a glob"
        )


def _show_plans(plans: Sequence[Mapping[str, Any]]) -> None:
    columns = ("object", "format", "size", "extents", "topic", "job", "state", "revision")
    shown = (
        {**one, "size": output.size(one["bytes"]), "extents": len(one["extents"])} for one in plans
    )
    output.print_records(columns, shown)


def selected(
    runtime: Runtime, config: ConnectorConfig, revision: int, addresses: list[str] | None
) -> Iterator[ObjectVersion]:
    """Yield the pinned objects that the addresses mean, each once."""
    territory = Territory.of(config)
    hidden: set[str] = set()
    yield from select_all(
        runtime.objects.store(config, revision), territory, addresses or (), hidden.add
    )
    if hidden:
        output.note(
            f"{len(hidden)} objects are left out because a name begins with _ or . (for example "
            f"{territory.uri(min(hidden))}); give an object's own address to deliver it"
        )


@contextmanager
def driving(runtime: Runtime, name: str, engine: Engine) -> Iterator[Run]:
    """Yield a run on an engine: signals stop it, its progress is shown, ends of jobs are told."""
    with (
        closing(open_announcements(runtime)) as announcements,
        signals_stop(engine.stop) as stopped,
        RunProgress(output.err) as progress,
    ):
        yield Run(
            name,
            engine,
            runtime.planner(),
            runtime.ledger,
            progress,
            stopped,
            announcements.announce,
            runtime.undeliverable_reason,
        )


def show(report: RunReport, *, as_json: bool) -> None:
    """Print a report; end the command with another exit code than 0 unless every job is DONE."""
    if as_json:
        output.print_json(report.to_json())
    elif report.jobs or not report.ok:
        _show_table(report)
    for job in report.jobs:
        if job.state != JobState.DONE:
            output.complain(_remedy(job))
    for error in report.errors[:SHOWN_ERRORS]:
        output.complain(error)
    if len(report.errors) > SHOWN_ERRORS:
        rest = len(report.errors) - SHOWN_ERRORS
        output.note(f"and {rest} more errors; `extentflow status JOB` shows a job's")
    if not report.ok:
        raise typer.Exit(STOPPED if report.stopped else INCOMPLETE)


def _show_table(report: RunReport) -> None:
    rows = [
        (
            job.job,
            job.uri,
            job.state,
            extents(job),
            f"{job.records:,}",
            f"{job.bad:,}",
        )
        for job in report.jobs
    ]
    output.print_table(("job", "object", "state", "extents", "records", "bad"), rows)
    rate = report.records_this_run / max(report.seconds, 1e-9)
    peak = report.worker_peak_rss_bytes  # 0: nobody here knows
    memory = f", worker memory at most {output.size(peak)}" if peak else ""
    output.err.print(
        f"{report.records_this_run:,} records in {output.duration(report.seconds)} "
        f"({rate:,.0f}/s){memory}",
        highlight=False,
    )


def _place(config: ConnectorConfig) -> str:
    return Territory.of(config).uri(config.prefix)


def extents(job: JobReport) -> str:
    """Return how many of a job's extents are done, as `done/all`, and how many failed."""
    failed = f", {job.failed} failed" if job.failed else ""
    return f"{job.done}/{job.extents}{failed}"


def note_older(report: RunReport, revision: int) -> None:
    """Tell which jobs pin another revision of their connector than its latest, `revision`."""
    for job in report.jobs:
        if job.revision != revision:
            output.note(
                f"{job.uri}: job {job.job} has revision {job.revision} of connector "
                f"{job.connector}, which is at {revision} now; `run --again` begins a full "
                "delivery under that (what is delivered already comes twice)"
            )


def _remedy(report: JobReport) -> str:
    what = f"job {report.job} is {report.state}"
    reason = report.reason.removeprefix(f"{report.uri}: ")
    why = f"{report.uri}: {what}{f': {reason}' if reason else ''}"
    if report.state == JobState.SUPERSEDED:
        return f"{why}; run the address again to deliver the new version"
    if report.state == JobState.FAILED:
        return (
            f"{why}; mend the cause, then `extentflow replay {report.job}`. Where the object was "
            "replaced, run its address again; where the connector was changed, with --again"
        )
    if report.state == JobState.CANCELLED:
        return (
            f"{why}; `extentflow replay {report.job}` goes on, `extentflow replay -c "
            f"{report.connector}` with all such jobs; where the connector still rests, after "
            f"`extentflow resume {report.connector}`"
        )
    return f"{why}; the same command resumes it"
