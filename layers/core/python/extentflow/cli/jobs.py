"""`extentflow status`, `submit` and `replay --dlq`: jobs, and work for the deployed functions."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.opened import open_runtime
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.config.connector import AUTO
from extentflow.errors import Misconfigured
from extentflow.jobs.preflight import skip_reason
from extentflow.jobs.run import JobReport
from extentflow.ledger import ExtentItem
from extentflow.model import ExtentState, JobState
from extentflow.services.jobs import JobDetail, Jobs, job_of, require_engine
from extentflow.services.runs import RunControl
from extentflow.wiring.environments import other_ledger

MAP_CELLS = 400
SHOWN_ERRORS = 20
COLUMNS = ("job", "begun", "connector", "object", "state", "extents", "records", "bad", "filtered")
NARROW_COLUMNS = ("job", "state", "extents", "records", "bad", "filtered", "object")
WIDE = 120
MAP = {
    "DONE": ("█", "green"),
    "working": ("▓", "cyan"),
    "PENDING": ("·", "dim"),
    "FAILED": ("x", "red"),
}

JobId = Annotated[str | None, Argument(help="A job's id, or its beginning.")]
Connector = Annotated[str | None, Option("--connector", "-c")]
State = Annotated[JobState | None, Option("--state", case_sensitive=False, help="Only jobs in it.")]
Limit = Annotated[int, Option("--limit", min=1, help="At most so many jobs.")]
Addresses = Annotated[
    list[str] | None, Argument(help="s3://bucket/key; with --connector also a prefix/ or a glob.")
]
ExpandedBy = Annotated[
    str | None, Option("--connector", "-c", help="Expand prefixes and globs by this one.")
]
Event = Annotated[
    Path | None, Option("--event", exists=True, dir_okay=False, help="A notification as sent.")
]
Engine = Annotated[
    str,
    Option(
        "--engine",
        help="With --connector. lambda: announce each object. spark: one run of Spark for all. "
        "auto: Spark for more than spark.threshold.bytes in sum, where spark.application.id is set "
        "here and the connector's engine allows it.",
    ),
]


def status(
    job: JobId = None,
    *,
    connector: Connector = None,
    state: State = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show jobs, newest first; or one job with the map of its extents and its errors."""
    runtime = open_runtime(creates=False)
    jobs = Jobs(runtime)
    if job is not None:
        _show_job(jobs.get(job), as_json=as_json)
        return
    found = jobs.list(connector, state=state, limit=limit)
    queues = jobs.queue_depths()
    if as_json:
        output.print_json({"jobs": [one.report for one in found], "queues": queues.depths})
    else:
        if queues.depths:
            counts = [(name, d.waiting, d.hidden, d.delayed) for name, d in queues.depths.items()]
            output.print_table(("queue", "waiting", "in work", "delayed"), counts)
        _show_jobs(found, state)
        if not found and (elsewhere := other_ledger(runtime.ledger_address)):
            output.note(elsewhere)
        if connector is not None and (skipped := skip_reason(runtime.ledger, connector)):
            output.note(skipped)
    # Last, so that one unavailable queue hides neither jobs nor the other queues.
    for name, error in queues.unavailable.items():
        output.complain(f"{name}: {error}")
    if queues.unavailable:
        raise typer.Exit(INCOMPLETE)


def submit(
    addresses: Addresses = None,
    *,
    connector: ExpandedBy = None,
    event: Event = None,
    engine: Engine = AUTO,
    as_json: AsJson = False,
) -> None:
    """Announce objects to the planner, as a notification would; or give all to one run of Spark."""
    require_engine(engine, connector)
    if (event is None) == (not addresses and connector is None):
        raise Misconfigured("give addresses, or --connector, or a notification with --event")
    jobs = Jobs(open_runtime())
    if event is not None and connector is None:
        sent = jobs.submit_event(event.read_text(encoding="utf-8"), name=str(event))
    else:
        control = RunControl(notify=output.note)
        sent = jobs.submit(addresses or (), connector=connector, engine=engine, control=control)
    facts: dict[str, object] = {"submitted": sent.submitted}
    what = output.counted(sent.submitted, "object" if event is None else "notification")
    said = f"{what} submitted; `extentflow status` shows the jobs"
    if sent.backfill is not None:
        facts["backfill"] = sent.backfill
        said = (
            f"{output.counted(sent.submitted, 'object')} submitted as backfill {sent.backfill}, "
            "for one run of Spark; `extentflow status` shows their jobs"
        )
    output.show(facts, said, as_json=as_json)
    if sent.backfill is not None and not as_json:
        output.note(
            "a stage without Spark moves it to its dead letter queue, with that reason: "
            "`extentflow replay --dlq --dry-run` shows it"
        )
    if sent.skipped:
        output.note(sent.skipped)


def redrive(job: str | None, since: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Send messages of the dead letter queues to the functions again, or only show them."""
    runtime = open_runtime()
    found = Jobs(runtime).redrive(job, since=since, dry_run=dry_run)
    if as_json:
        moved = [{"job": job_of(one), "reason": one.reason} for one in found.moved]
        output.print_json({"dry_run": dry_run, "moved": moved, "left": found.left})
        return
    if found.moved:
        rows = [(job_of(one) or "", output.moment(one.sent), one.reason) for one in found.moved]
        output.print_table(("job", "dead-lettered", "reason"), rows)
    what = "would be resent" if dry_run else "resent"
    output.say(f"{output.counted(len(found.moved), 'message')} {what}, {found.left} left")


def _show_jobs(jobs: list[JobDetail], state: JobState | None) -> None:
    if not jobs:
        output.note(
            "there are no jobs; `extentflow run` starts them"
            if state is None
            else f"no job is {state}; `extentflow status` shows all jobs"
        )
        return
    fitting = COLUMNS if output.out.width >= WIDE else NARROW_COLUMNS
    filtered = any(one.report.filtered for one in jobs)
    columns = [column for column in fitting if filtered or column != "filtered"]
    rows = [
        {
            "job": one.job.id,
            "begun": output.moment(one.job.created),
            "connector": one.job.connector,
            "object": one.report.uri,
            "state": one.report.state,
            "extents": extents(one.report),
            "records": f"{one.report.records:,}",
            "bad": f"{one.report.bad:,}",
            "filtered": f"{one.report.filtered:,}",
        }
        for one in jobs
    ]
    output.print_table(columns, ([row[column] for column in columns] for row in rows))
    for one in islice((one for one in jobs if one.cause), SHOWN_ERRORS):
        output.note(f"{one.job.id}: {one.cause}")


def _show_job(found: JobDetail, *, as_json: bool) -> None:
    job, report, items = found.job, found.report, found.extents
    if as_json:
        output.print_json(
            {
                "job": report,
                "plan": job.plan,
                "run": found.run,
                "completion": found.completion,
                "extents": list(items.values()),
            }
        )
        return
    facts = [
        ("job", job.id),
        ("object", job.version.uri),
        ("begun", output.moment(job.created)),
        ("connector", f"{job.connector}, revision {job.revision}"),
        ("state", f"{job.state}{': ' + job.reason if job.reason else ''}"),
        *([("run", f"{found.run} of EMR Serverless")] if found.run else []),
        ("extents", f"{report.done} done, {report.failed} failed of {job.plan.count}"),
        ("records", counts(report)),
    ]
    output.print_table(("", ""), facts)
    output.out.print(extent_map(items, job.plan.count))
    if found.skipped:
        output.note(found.skipped)
    if found.completion:
        output.complain(found.completion)
    failed = (item for item in items.values() if item.state is ExtentState.FAILED)
    for item in islice(failed, SHOWN_ERRORS):
        output.complain(f"extent {item.ordinal}: {item.error}")
    if found.replayable:
        output.note(f"`extentflow replay {job.id}` continues it, when the cause is removed")


def counts(job: JobReport) -> str:
    """Return what became of the records of a job."""
    filtered = f", {job.filtered:,} filtered" if job.filtered else ""
    return f"{job.records:,} and {job.bad:,} bad{filtered}"


def extents(job: JobReport) -> str:
    """Return how many of a job's extents are done, as `done/all`, and how many failed."""
    failed = f", {job.failed} failed" if job.failed else ""
    return f"{job.done}/{job.extents}{failed}"


def extent_map(items: dict[int, ExtentItem], count: int) -> Text:
    """Return one cell per extent, or per range of extents where there are many."""
    text = Text()
    step = max(1, -(-count // MAP_CELLS))
    cells = []
    for first in range(0, count, step):
        found = [items.get(ordinal) for ordinal in range(first, min(count, first + step))]
        states = {
            "PENDING" if item is None else "working" if item.claim is not None else item.state.value
            for item in found
        }
        # The worst one, because a cell of a large job stands for thousands of extents.
        cells.append(next(s for s in ("FAILED", "working", "PENDING", "DONE") if s in states))
    for cell in cells:
        text.append(*MAP[cell])
    legend = ", ".join(f"{MAP[name][0]} {name.lower()}" for name in MAP if name in cells)
    text.append(f"   {legend}" if cells else "")
    text.append(f"; one cell is {step} extents" if step > 1 else "")
    return text
