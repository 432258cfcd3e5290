"""`extentflow status`: jobs, and one job's extents as a map.

Owns: this command. Refuses to know: how jobs come about.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from extentflow.cli import output
from extentflow.cli.options import AsJson
from extentflow.cli.runs import extents
from extentflow.engines.emr.submitted import run_of
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.jobs.preflight import rests
from extentflow.jobs.run import JobReport, known_job, report
from extentflow.ledger import ExtentItem, Ledger
from extentflow.ledger.causes import cause
from extentflow.model import ExtentState, Job, JobState
from extentflow.queue import Depth
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queues

MAP_CELLS = 400
SHOWN_ERRORS = 20
COLUMNS = ("job", "begun", "connector", "object", "state", "extents", "records", "bad")
NARROW_COLUMNS = ("job", "state", "extents", "records", "bad", "object")
WIDE = 120
MAP = {
    "DONE": ("█", "green"),
    "working": ("▓", "cyan"),
    "PENDING": ("·", "dim"),
    "FAILED": ("x", "red"),
}


def add_to(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(status)


def status(
    job: Annotated[str | None, typer.Argument(help="A job's id, or its beginning.")] = None,
    *,
    connector: Annotated[str | None, typer.Option("--connector", "-c")] = None,
    state: Annotated[str | None, typer.Option("--state", help="For example FAILED.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many jobs.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show jobs, newest first; or one job with the map of its extents and its errors."""
    runtime = Runtime.from_environment()
    if job is not None:
        _show_job(runtime, known_job(runtime.ledger, job), as_json=as_json)
        return
    found = nlargest(
        limit, runtime.ledger.jobs(connector, _state(state)), key=lambda job: job.created
    )
    reports = [report(runtime.ledger, each) for each in found]
    if not found and connector is not None:
        runtime.connectors.latest(connector)  # an unknown name is a mistake
    depths, silent = _depths(runtime)
    if as_json:
        output.print_json({"jobs": reports, "queues": depths})
    else:
        _show_depths(depths)
        _show_jobs(runtime.ledger, found, reports)
    if connector is not None and not as_json and (resting := rests(runtime.ledger, connector)):
        output.note(resting)
    for name, error in silent.items():
        output.complain(f"{name}: {error}")
    if silent:
        raise typer.Exit(1)


def _depths(runtime: Runtime) -> tuple[dict[str, Depth], dict[str, ExtentflowError]]:
    """Return the queues' depths, and why some do not tell theirs: the jobs are shown anyway."""
    depths: dict[str, Depth] = {}
    silent: dict[str, ExtentflowError] = {}
    for name, queue in queues(runtime.settings):
        try:
            depths[name] = queue.depth()
        except ExtentflowError as exc:
            silent[name] = exc
    return depths, silent


def _show_depths(depths: Mapping[str, Depth]) -> None:
    if depths:
        counts = [(name, one.waiting, one.hidden, one.delayed) for name, one in depths.items()]
        output.print_table(("queue", "waiting", "in work", "delayed"), counts)


def _show_jobs(ledger: Ledger, jobs: Sequence[Job], reports: Sequence[JobReport]) -> None:
    if not jobs:
        output.note("there are no such jobs; `extentflow run` begins them")
        return
    rows = [
        {
            "job": r.job,
            "begun": output.moment(job.created),
            "connector": r.connector,
            "object": r.uri,
            "state": r.state,
            "extents": extents(r),
            "records": f"{r.records:,}",
            "bad": r.bad,
        }
        for job, r in zip(jobs, reports, strict=True)
    ]
    columns = COLUMNS if output.out.width >= WIDE else NARROW_COLUMNS
    output.print_records(columns, rows)
    for job in islice((job for job in jobs if job.reason), SHOWN_ERRORS):
        output.note(f"{job.id}: {cause(ledger, job)}")


def _state(text: str | None) -> JobState | None:
    if text is None:
        return None
    try:
        return JobState(text.upper())
    except ValueError:
        raise Misconfigured(
            f"--state {text}: there is no such state; use one of {', '.join(JobState)}"
        ) from None


def _show_job(runtime: Runtime, job: Job, *, as_json: bool) -> None:
    summary = report(runtime.ledger, job)
    items = {item.ordinal: item for item in runtime.ledger.extents(job.id)}
    run = run_of(runtime.ledger, job.id)
    if as_json:
        found = {"job": summary, "plan": job.plan, "run": run, "extents": list(items.values())}
        output.print_json(found)
        return
    facts = [
        ("job", job.id),
        ("object", job.version.uri),
        ("begun", output.moment(job.created)),
        ("connector", f"{job.connector}, revision {job.revision}"),
        ("state", f"{job.state}{': ' + job.reason if job.reason else ''}"),
        *([("run", f"{run} of EMR Serverless")] if run else []),
        ("extents", f"{summary.done} done, {summary.failed} failed of {job.plan.count}"),
        ("records", f"{summary.records:,} and {summary.bad:,} bad"),
    ]
    output.print_table(("", ""), facts)
    output.out.print(extent_map(items, job.plan.count))
    if job.state.open and (resting := rests(runtime.ledger, job.connector)):
        output.note(resting)
    failed = (item for item in items.values() if item.state is ExtentState.FAILED)
    for item in islice(failed, SHOWN_ERRORS):
        output.complain(f"extent {item.ordinal}: {item.error}")


def extent_map(items: dict[int, ExtentItem], count: int) -> Text:
    """Return one cell per extent, or per run of extents where there are many."""
    text = Text()
    step = max(1, -(-count // MAP_CELLS))
    cells = list(_cells(items, count, step))
    for cell in cells:
        text.append(*MAP[cell])
    legend = ", ".join(f"{MAP[name][0]} {name.lower()}" for name in MAP if name in cells)
    text.append(f"   {legend}" if cells else "")
    text.append(f"; one cell is {step} extents" if step > 1 else "")
    return text


def _cells(items: dict[int, ExtentItem], count: int, step: int) -> Iterator[str]:
    """Yield the worst state of each run of extents: failed, working, pending, done."""
    for first in range(0, count, step):
        states = {_look(items.get(i)) for i in range(first, min(count, first + step))}
        yield next(s for s in ("FAILED", "working", "PENDING", "DONE") if s in states)


def _look(item: ExtentItem | None) -> str:
    if item is None:
        return "PENDING"
    return "working" if item.claim is not None else item.state.value
