"""What `run` and `replay` print at their end: totals, what failed, and the next command."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, STOPPED, size
from extentflow.model import JobState

if TYPE_CHECKING:
    from extentflow.jobs.run import JobReport, RunReport

# More jobs are totals, and rows of those that failed.
SHOWN_JOBS = 20
SHOWN_ERRORS = 8
_EXTENTS_FAILED = re.compile(r"^\d+ of \d+ extents failed: ")
_ALIKE = " (and "


def show(report: RunReport, *, as_json: bool, command: str = "") -> None:
    """Print a report; end the command with another exit code than 0 unless every job is DONE.

    `command` is what delivers the same objects again; empty: `run` with the connector's name.
    """
    if as_json:
        output.print_json({**report.to_json(), "states": states(report.jobs)})
    elif report.jobs or not report.ok:
        _show_jobs(report)
        _show_rate(report)
    unsettled = [job for job in report.jobs if not job.settled]
    shown = unsettled[:SHOWN_ERRORS]
    lines = [_problem(job, stopped=report.stopped) for job in shown]
    # The cause of a job may be the error of one of its extents.
    said = "\n".join(lines)
    errors = [one for one in report.errors if one.partition(_ALIKE)[0] not in said]
    for line in (*lines, *errors[:SHOWN_ERRORS]):
        output.complain(line)
    if left := len(unsettled) - len(shown) + len(errors[SHOWN_ERRORS:]):
        output.note(f"and {left:,} more; `extentflow status` shows the jobs")
    for line in _next_commands(unsettled, report, command):
        output.note(line)
    if not report.ok:
        raise typer.Exit(STOPPED if report.stopped else INCOMPLETE)


def states(jobs: Sequence[JobReport]) -> dict[str, int]:
    """Return how many jobs are in each state."""
    return dict(Counter(job.state for job in jobs).most_common())


def by_state(counts: Mapping[str, int]) -> str:
    """Return how many jobs are in each state, in words."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.items())


def extents(job: JobReport) -> str:
    """Return how many of a job's extents are done, as `done/all`, and how many failed."""
    failed = f", {job.failed} failed" if job.failed else ""
    return f"{job.done}/{job.extents}{failed}"


def _show_jobs(report: RunReport) -> None:
    jobs: Sequence[JobReport] = report.jobs
    if len(jobs) > SHOWN_JOBS:
        output.say(f"{len(jobs):,} jobs: {by_state(states(jobs))}")
        jobs = [job for job in jobs if not job.settled][:SHOWN_JOBS]
    columns = ["job", "object", "state", "extents", "records", "bad"]
    columns += ["filtered"] if any(job.filtered for job in jobs) else []
    rows = [
        (job.job, job.uri, job.state, extents(job), job.records, job.bad, job.filtered)
        for job in jobs
    ]
    shown = ([f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows)
    if rows or not report.jobs:
        output.print_table(columns, (row[: len(columns)] for row in shown))


def _show_rate(report: RunReport) -> None:
    per_second = report.records_this_run / max(report.seconds, 1e-9)
    rate = f" ({per_second:,.0f}/s)" if report.records_this_run else ""
    peak = report.worker_peak_rss_bytes  # 0: a remote run, whose memory is not measured
    memory = f", worker memory at most {size(peak)}" if peak else ""
    output.err.print(
        f"{report.records_this_run:,} records in {output.duration(report.seconds)}{rate}{memory}",
        highlight=False,
    )


def _problem(job: JobReport, *, stopped: bool) -> str:
    """Return what is wrong with a job: its object, the cause, and how far it is."""
    cause = _EXTENTS_FAILED.sub("", job.reason).removeprefix(f"{job.uri}: ")
    where = "" if cause.startswith(job.uri) else f"{job.uri}: "
    done = f"{job.done} of {job.extents} extents are done"
    if job.state in (JobState.PLANNING, JobState.RUNNING):
        what = "interrupted" if stopped else "not finished"
        return "; ".join(filter(None, (f"{job.uri}: {what}: {done}", cause)))
    ended = f"job {job.job} is {job.state}"
    if job.extents and job.state != JobState.SUPERSEDED:
        ended += f", {done}"
    return f"{where}{cause}; {ended}" if cause else f"{where}{ended}"


def _next_commands(jobs: Sequence[JobReport], report: RunReport, command: str) -> Iterator[str]:
    """Yield what to do next, once for all jobs that ended alike. No line delivers twice unsaid."""
    alike: dict[str, list[JobReport]] = {}
    for job in jobs:
        alike.setdefault(job.state, []).append(job)
    if failed := alike.get(JobState.FAILED):
        job = failed[0]
        run = f"extentflow run -c {job.connector}"
        same = command or f"`{run}`"
        only = f"{command} with --failed" if command else f"`{run} --failed`"
        yield (
            f"correct the object, then {same} delivers its new version; or change the connector,"
            f" then {only} delivers only what failed (--dry-run shows it first)"
        )
        which = job.job if len(failed) == 1 else f"-c {job.connector}"
        yield f"if the cause has passed, `extentflow replay {which}` continues where it failed"
    if cancelled := alike.get(JobState.CANCELLED):
        job = cancelled[0]
        yield (
            f"`extentflow replay {job.job}` delivers the rest, `extentflow replay -c "
            f"{job.connector}` the rest of all such jobs; while the connector is paused or "
            f"stopped, first run `extentflow resume {job.connector}`"
        )
    opened = [*alike.get(JobState.PLANNING, ()), *alike.get(JobState.RUNNING, ())]
    if opened or (report.stopped and report.left_out):
        done, all_of = (sum(getattr(job, name) for job in opened) for name in ("done", "extents"))
        what = f"interrupted: {done:,} of {all_of:,} extents are done; " if report.stopped else ""
        yield f"{what}run the same command again to resume"
