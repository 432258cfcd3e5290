"""How `status` shows jobs: one table that fits the terminal, or one job with its extents.

Tests: unit/cli/test_job_commands.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rich.text import Text

from extentflow.cli import output
from extentflow.cli.run_reports import extents
from extentflow.errors import OBJECT_GONE
from extentflow.model import ExtentState, JobState
from extentflow.wording import is_lost, unavailable_service

if TYPE_CHECKING:
    from extentflow.ledger import ExtentItem
    from extentflow.model import Job
    from extentflow.services.jobs import JobDetail, JobList

MAP_CELLS = 400
SHOWN_ERRORS = 20
WATCH_SECONDS = 2.0
# The columns that fit a terminal of so many; a pipe gets the last ones.
LAYOUTS = {
    0: ("job", "state", "records", "object"),
    70: ("job", "state", "extents", "records", "object"),
    100: ("job", "begun", "state", "extents", "records", "bad", "took", "object"),
    160: (
        *("job", "begun", "connector", "state", "extents", "records", "bad", "filtered"),
        *("took", "rate", "size", "topic", "delivered by", "object"),
    ),
}
# Of jobs that failed: the same object has a later job, which is listed and counted itself.
LATER = "with a later job"
# Of open jobs: the ledger has no lease of a driver, only those of workers.
UNLESS_RUNNING = "unless a command plans, waits for a service or has just begun"
BETWEEN_EXTENTS = "a worker, of these or other jobs, may be between two extents; if none runs,"
SHORT_ID, LEAST_OBJECT = 10, 12
BETWEEN, BORDERS = 3, 2  # of a table's columns
MAP = {
    "DONE": ("█", "green"),
    "working": ("▓", "cyan"),
    "PENDING": ("·", "dim"),
    "FAILED": ("x", "red"),
}


class ChangingView(Protocol):
    """What is shown until it cannot change any more."""

    @property
    def open(self) -> bool:
        """Whether it can still change."""


Shown = TypeVar("Shown", bound=ChangingView)


@dataclass(frozen=True, slots=True)
class View(Generic[Shown]):
    """How something is shown: to people, to programs, and as one line of a pipe."""

    show: Callable[[Shown], object]
    to_json: Callable[[Shown], dict[str, Any]]
    line: Callable[[Shown], str]


def show_jobs(found: JobList, *, filtered: bool, watched: bool = False) -> None:
    """Print jobs, newest first, then their number by state, then what failed."""
    if not found.jobs:
        if watched:
            output.say(_totals(found))
        elif filtered:
            output.note("no job matches; `extentflow status` shows all jobs")
        else:
            output.note("there are no jobs; `extentflow run` starts them")
        return
    width = output.out.width
    columns = next(LAYOUTS[least] for least in sorted(LAYOUTS, reverse=True) if width >= least)
    unused = {
        *(() if any(one.report.filtered for one in found.jobs) else ("filtered",)),
        *(() if any(one.followed for one in found.jobs) else ("delivered by",)),
    }
    columns = tuple(column for column in columns if column not in unused)
    rows = [_row(one, brief=width < min(filter(None, LAYOUTS))) for one in found.jobs]
    _fit(rows, columns, width)
    heads = [f"begun ({_zone()})" if column == "begun" else column for column in columns]
    output.print_table(heads, ([row[column] for column in columns] for row in rows))
    output.say(_totals(found))
    for one in islice((one for one in found.jobs if one.cause), SHOWN_ERRORS):
        output.note(f"{one.job.id}: {one.cause}")
    for line in () if watched else _continuing(found):
        output.note(line)


def _continuing(found: JobList) -> Iterator[str]:
    """Yield, for each connector whose jobs were interrupted, the command that continues them."""
    for one in found.interrupted[:SHOWN_ERRORS]:
        command = "run" if one.stored else "replay"
        known = BETWEEN_EXTENTS if one.may_go_on else f"{UNLESS_RUNNING}, they were interrupted;"
        yield one.held or (
            f"connector {one.connector}: {output.counted(one.count, 'open job')}, no extent in work"
            f" now: {known} `extentflow {command} -c {one.connector}` continues them"
        )
    replaced = JobState.SUPERSEDED in found.undelivered
    if found.undelivered and (found.delivered or replaced) and not found.only_undelivered:
        yield "`extentflow status --undelivered` lists what is still to be delivered"


def show_job(found: JobDetail) -> None:
    """Print one job: facts, the map of its extents, its errors, and the next command."""
    job, report, items = found.job, found.report, found.extents
    rate = f", {_rate(found)}" if found.rate else ""
    facts = [
        ("job", job.id),
        ("object", job.version.uri),
        ("size", output.size(job.version.size)),
        ("begun", output.moment(job.created)),
        *([("ended", output.moment(job.ended))] if job.ended else []),
        ("took" if job.ended else "so far", output.duration(found.seconds) + rate),
        ("connector", f"{job.connector}, revision {job.revision}"),
        ("topic", found.topic),
        ("state", f"{job.state}{': ' + job.reason if job.reason else ''}"),
        *([("later job", _later(found.later))] if found.later else []),
        *([("newer version", f"delivered by job {found.newer.id}")] if found.newer else []),
        *([("remote run", found.run)] if found.run else []),
        ("extents", f"{report.done} done, {report.failed} failed of {job.plan.count}"),
        ("records", _counts(found)),
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
    if following := next_command(found):
        output.note(following)


def next_command(found: JobDetail) -> str:
    """Return what continues a job, "" where nothing does or need."""
    job = found.job
    if found.replayable and is_lost(job.reason):
        run = f"`extentflow run -c {job.connector} --again`"
        again = run if found.stored else "the same `run ADDRESS --topic` command with --again"
        return f"{again} delivers all its objects in full"
    if found.replayable:
        return _after_failure(found)
    if found.newer is not None and found.later is None:
        return f"where the object is this version again, `extentflow replay {job.id}` continues it"
    if found.later is not None and found.later.state is not JobState.DONE:
        return f"`extentflow status {found.later.id}` shows what continues that job"
    if job.state.open and found.active is False and not found.skipped and not found.queued:
        done = output.done_of(found.report.done, job.plan.count, "extent")
        known = BETWEEN_EXTENTS if found.may_go_on else f"{UNLESS_RUNNING}, it was interrupted;"
        return (
            f"{done}, and no extent is in work now: {known} the command that began it, or"
            f" `extentflow replay {job.id}`, delivers the rest"
        )
    return ""


def _after_failure(found: JobDetail) -> str:
    """Return what to do with a job that `replay` continues."""
    job = found.job
    errors = (one.error for one in found.extents.values() if one.state is ExtentState.FAILED)
    error = next(errors, "")
    if OBJECT_GONE in error or OBJECT_GONE in job.reason:
        return f"the object is gone: `extentflow dismiss {job.id}` closes the job"
    if service := unavailable_service(error):
        return f"when the {service} answers again, `extentflow replay {job.id}` continues it"
    corrected = "a corrected object is a new version, which the next run delivers"
    more = f"; {corrected}" if job.state is JobState.FAILED else ""
    more = f"{more}; {_changed(found)}" if found.newer is None else ""
    return f"`extentflow replay {job.id}` continues it, when the cause is removed{more}"


def _later(job: Job) -> str:
    return f"{job.id}, {job.state}, delivers the object"


def _changed(found: JobDetail) -> str:
    """Return what delivers a job's object after a change of its connector."""
    failed = f"`extentflow run -c {found.job.connector} --failed`"
    if found.stored:
        return f"after a change of the connector, {failed} delivers the whole object"
    return (
        "after a change of its settings, the same `run ADDRESS --topic` command with --failed"
        " delivers the whole object; where the connector was deleted, `extentflow connectors put"
        f" FILE`, then {failed}"
    )


def watch(
    read: Callable[[], Shown],
    view: View[Shown],
    *,
    as_json: bool,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Show what `read` returns whenever it changes, until every job of it has ended.

    A terminal is redrawn; a pipe gets a line, with `as_json` a document on a line.
    """
    before = ""
    while True:
        found = read()
        if as_json:
            text = output.json_text(view.to_json(found))
        elif output.out.is_terminal:
            with output.out.capture() as captured:
                view.show(found)
            text = captured.get()
        else:
            text = view.line(found)
        if text != before:
            if output.out.is_terminal and not as_json:
                output.out.clear()
            sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
            sys.stdout.flush()  # a program that reads a pipe waits for this line
        before = text
        if not found.open:
            return
        sleep(WATCH_SECONDS)


def jobs_json(found: JobList) -> dict[str, Any]:
    """Return JSON-ready values; times are in UTC."""
    return {
        "jobs": [one.to_json() for one in found.jobs],
        "states": dict(found.states),
        "matching": found.matching,
        "delivered_since": dict(found.delivered),
        "undelivered": dict(found.undelivered),
        "interrupted": {one.connector: one.count for one in found.interrupted if not one.may_go_on},
    }


def job_json(found: JobDetail) -> dict[str, Any]:
    """Return JSON-ready values; times are in UTC."""
    return {
        "job": found.to_json(),
        "plan": found.job.plan,
        "run": found.run,
        "completion": found.completion,
        "later": found.later and {"job": found.later.id, "state": found.later.state},
        "newer_version": found.newer and {"job": found.newer.id, "state": found.newer.state},
        "extents": list(found.extents.values()),
        "next": next_command(found),
    }


def view_jobs(*, filtered: bool, watched: bool = False) -> View[JobList]:
    """Return the view of a list of jobs."""
    return View(partial(show_jobs, filtered=filtered, watched=watched), jobs_json, _totals)


def view_job() -> View[JobDetail]:
    """Return the view of one job."""
    return View(show_job, job_json, _line)


def _row(one: JobDetail, *, brief: bool) -> dict[str, str]:
    job, report = one.job, one.report
    return {
        "job": job.id[:SHORT_ID] if brief else job.id,
        "begun": output.local_time(job.created),
        "connector": job.connector,
        "object": report.uri,
        "state": f"{report.state}, delivered since" if one.followed else str(report.state),
        "extents": extents(report),
        "records": f"{report.records:,}",
        "bad": f"{report.bad:,}",
        "filtered": f"{report.filtered:,}",
        "took": output.duration(one.seconds),
        "rate": _rate(one),
        "size": output.size(job.version.size),
        "topic": one.topic,
        "delivered by": one.delivered_by,
    }


def _fit(rows: Sequence[dict[str, str]], columns: Sequence[str], width: int) -> None:
    """Shorten objects in the middle, so that a row is a line: their beginning and end say which."""
    widest = {c: max(len(c) + 9 * (c == "begun"), *(len(row[c]) for row in rows)) for c in columns}
    rest = width - BORDERS - sum(widest[c] + BETWEEN for c in columns if c != "object")
    for row in rows:
        row["object"] = shortened(row["object"], max(LEAST_OBJECT, rest))


def shortened(text: str, width: int) -> str:
    """Return a text without its middle, where it is longer than `width`."""
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def _totals(found: JobList) -> str:
    if not found.states:
        return "no job matches yet"
    many = ", ".join(_counted(found, state, count) for state, count in found.states.items())
    shown = len(found.jobs)
    if shown < found.matching:
        many += f"; {shown:,} of {found.matching:,} shown, the newest (--limit shows more)"
    return f"{output.counted(found.matching, 'job')}: {many}"


def _counted(found: JobList, state: str, count: int) -> str:
    """Return how many jobs are in a state, and of these how many objects are delivered or not."""
    delivered, left = found.delivered.get(state, 0), found.undelivered.get(state, 0)
    text = f"{count:,} {state}"
    if state == JobState.SUPERSEDED and left:
        return f"{text} ({left:,} with an undelivered later version)"
    if state not in (JobState.FAILED, JobState.CANCELLED) or left == count:
        return text
    rest = count - delivered - left
    parts = ((delivered, "delivered since"), (left, "undelivered"), (rest, LATER))
    return f"{text} ({', '.join(f'{many:,} {what}' for many, what in parts if many)})"


def _line(found: JobDetail) -> str:
    noun = "extent" if found.report.extents == 1 else "extents"
    return f"{found.job.state}: {extents(found.report)} {noun}, {_counts(found)}"


def _counts(found: JobDetail) -> str:
    report = found.report
    filtered = f", {report.filtered:,} filtered" if report.filtered else ""
    return f"{report.records:,} and {report.bad:,} bad{filtered}"


def _rate(found: JobDetail) -> str:
    least = 10  # below, a digit behind the point says more than 0
    return f"{found.rate:,.{0 if found.rate >= least else 1}f} records/s" if found.rate else ""


def _zone() -> str:
    return time.strftime("%z")


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
