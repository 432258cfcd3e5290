"""What `run` and `replay` print at their end: totals, what failed, and the next command.

Tests: unit/cli/test_run_commands.py
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, STOPPED, size
from extentflow.errors import OBJECT_GONE
from extentflow.model import JobState
from extentflow.wording import is_bad_record, is_lost, unavailable_service

if TYPE_CHECKING:
    from extentflow.jobs.run import JobReport, RunReport

# More jobs are totals, and rows of those that failed.
SHOWN_JOBS = 20
SHOWN_ERRORS = 8
_EXTENTS_FAILED = re.compile(r"^\d+ of \d+ extents? failed: ")
_ALIKE = " (and "


@dataclass(frozen=True, slots=True)
class _CommandParts:
    """What the next commands repeat of the one that ended; see `show`."""

    command: str
    connector: str
    engine: str

    @property
    def engine_option(self) -> str:
        return f" --engine {self.engine}" if self.engine else ""

    @property
    def local_engine_option(self) -> str:
        """The option for commands that a remote run does not take."""
        from extentflow.engines import run_service

        return "" if run_service(self.engine) is not None else self.engine_option

    def replay(self, jobs: Sequence[JobReport]) -> str:
        """Return the command that continues jobs of one connector."""
        if len(jobs) == 1:
            return f"`extentflow replay {jobs[0].job}{self.engine_option}`"
        return f"`extentflow replay -c {jobs[0].connector}{self.local_engine_option}`"


def show(
    report: RunReport, *, as_json: bool, command: str = "", connector: str = "", engine: str = ""
) -> None:
    """Print a report; end the command with another exit code than 0 unless every job is DONE.

    `command` is what delivers the same objects again; empty: `run` with the connector's name.
    `connector` is the one that the command made, whose jobs --failed delivers; empty: that of each
    job. `engine` is what commands that continue the jobs repeat; empty: the usual one.
    """
    if as_json:
        output.print_json({**report.to_json(), "states": states(report.jobs)})
    elif report.jobs or not report.ok:
        _show_jobs(report)
        _show_rate(report)
    unsettled = _unsettled(report)
    problems = _grouped(unsettled)
    shown = problems[:SHOWN_ERRORS]
    lines = [_problem(alike, stopped=report.stopped) for alike in shown]
    # The cause of a job may be the error of one of its extents.
    said = "\n".join(lines)
    errors = [one for one in report.errors if one.partition(_ALIKE)[0] not in said]
    for line in (*lines, *errors[:SHOWN_ERRORS]):
        output.complain(line)
    rest = sum(len(alike) for alike in problems[SHOWN_ERRORS:])
    if left := rest + len(errors[SHOWN_ERRORS:]):
        output.note(f"and {left:,} more; `extentflow status` shows the jobs")
    for line in _next_commands(report, _CommandParts(command, connector, engine)):
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


def _unsettled(report: RunReport) -> list[JobReport]:
    """Return the jobs to show that are not DONE; first those that do not continue by themselves.

    Of many that an interrupt left open, the totals say enough.
    """
    found = sorted((job for job in report.jobs if not job.settled), key=_is_open)
    counted = report.stopped and len(report.jobs) > SHOWN_JOBS
    return [job for job in found if not (counted and _is_open(job))]


def _is_open(job: JobReport) -> bool:
    return JobState(job.state).open


def _show_jobs(report: RunReport) -> None:
    jobs: Sequence[JobReport] = report.jobs
    if len(jobs) > SHOWN_JOBS:
        output.say(f"{len(jobs):,} jobs: {by_state(states(jobs))}")
        jobs = [job for job in jobs if job.state == JobState.FAILED][:SHOWN_JOBS]
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
    rate = f" ({per_second:,.0f}/s)" if per_second >= 1 else ""
    # Tasks that Spark cancels do not report what they committed.
    least = "at least " if report.stopped and report.records_this_run else ""
    peak = report.worker_peak_rss_bytes  # 0: a remote run, whose memory is not measured
    memory = f", worker memory at most {size(peak)}" if peak else ""
    output.err.print(
        f"{least}{output.counted(report.records_this_run, 'record')} in"
        f" {output.duration(report.seconds)}{rate}{memory}",
        highlight=False,
    )


def _grouped(jobs: Sequence[JobReport]) -> list[list[JobReport]]:
    """Return jobs that ended alike together: a state and a cause that names no object."""
    found: dict[tuple[str, str], list[JobReport]] = {}
    for job in jobs:
        own = job.uri if job.uri in job.reason or not job.reason else ""
        found.setdefault((job.state, own or job.reason), []).append(job)
    return list(found.values())


def _problem(alike: Sequence[JobReport], *, stopped: bool) -> str:
    """Return what is wrong with jobs: the first object, the cause, and how far it is."""
    job = alike[0]
    more = f" (and {output.counted(len(alike) - 1, 'more object')} alike)" if alike[1:] else ""
    return _own_problem(job, stopped=stopped, counts=not more) + more


def _own_problem(job: JobReport, *, stopped: bool, counts: bool) -> str:
    cause = _EXTENTS_FAILED.sub("", job.reason).removeprefix(f"{job.uri}: ")
    where = "" if cause.startswith(job.uri) else f"{job.uri}: "
    done = output.done_of(job.done, job.extents, "extent")
    if _is_open(job):
        what = "interrupted" if stopped else "not finished"
        return "; ".join(filter(None, (f"{job.uri}: {what}: {done}", cause)))
    ended = f"job {job.job} is {job.state}"
    if job.untried:
        ended += " since an earlier run, and was not tried again"
    if counts and job.extents and job.state != JobState.SUPERSEDED:
        ended += f", {done}"
    return f"{where}{cause}; {ended}" if cause else f"{where}{ended}"


def _next_commands(report: RunReport, given: _CommandParts) -> Iterator[str]:
    """Yield what to do next, once for all jobs that ended alike. No line delivers twice unsaid."""
    jobs = [job for job in report.jobs if not job.settled]
    for name, failed in _by_connector(jobs, JobState.FAILED):
        own = given.connector in ("", name)
        outages = [job for job in failed if unavailable_service(job.reason)]
        lost = [job for job in failed if is_lost(job.reason)]
        gone = [job for job in failed if OBJECT_GONE in job.reason and job not in outages]
        others = [job for job in failed if job not in (*outages, *lost, *gone)]
        if lost:
            again = f"`extentflow run -c {name} --again{given.local_engine_option}`"
            again = f"{given.command} with --again" if given.command and own else again
            yield (
                f"{again} delivers all its objects in full, and what topics already have a second"
                " time; records of other objects are gone with the former topic, too"
            )
        if outages:
            yield (
                f"when the {unavailable_service(outages[0].reason)} answers again,"
                f" {given.replay(outages)} continues where it failed"
            )
        if gone:
            what = gone[0].job if len(gone) == 1 else f"-c {name}"
            yield (
                f"of objects that are gone, `extentflow dismiss {what}` closes the jobs; one that"
                " is stored again is delivered by the next run"
            )
        if others:
            yield from (_after_failure if own else _after_failure_elsewhere)(others, given)
    for name, cancelled in _by_connector(jobs, JobState.CANCELLED):
        yield (
            f"`extentflow replay {cancelled[0].job}{given.engine_option}` delivers the rest,"
            f" `extentflow replay -c {name}{given.local_engine_option}` the rest of all such jobs;"
            f" after a change of the connector, {_only_failed(name, given)} delivers these objects"
            " in full"
        )
        yield f"while the connector is paused or stopped, first run `extentflow resume {name}`"
    opened = [job for job in jobs if _is_open(job)]
    if opened or (report.stopped and report.left_out):
        done, all_of = (sum(getattr(job, name) for job in opened) for name in ("done", "extents"))
        done_of = output.done_of(done, all_of, "extent")
        if len(report.jobs) > 1:
            over = len(report.jobs) - len(opened)
            done_of = f"{output.counted(over, 'job')} ended, {len(opened):,} open" + (
                f", of which {done_of}" if all_of else ""
            )
        what = f"interrupted: {done_of}; " if report.stopped else ""
        resumed = {job.connector: f"`extentflow resume {job.connector}`" for job in opened}
        held = {job.connector for job in opened if resumed[job.connector] in job.reason}
        first = " and ".join(resumed[name] for name in sorted(held))
        first = f"{first}, then " if first else ""
        yield f"{what}{first}run the same command again to resume"


def _by_connector(
    jobs: Sequence[JobReport], state: JobState
) -> Iterable[tuple[str, list[JobReport]]]:
    """Return the jobs in a state, of each connector."""
    found: dict[str, list[JobReport]] = {}
    for job in jobs:
        if job.state == state:
            found.setdefault(job.connector, []).append(job)
    return found.items()


def _after_failure(failed: Sequence[JobReport], given: _CommandParts) -> Iterator[str]:
    if all(job.untried for job in failed):
        yield (
            f"{_only_failed(failed[0].connector, given)} delivers what failed before, under the"
            " settings of now (--dry-run shows it first)"
        )
        return
    run = f"extentflow run -c {failed[0].connector}"
    same = given.command or f"`{run}{given.engine_option}`"
    only = _only_failed(failed[0].connector, given)
    by = ""
    if any(is_bad_record(job.reason) for job in failed):
        by = (
            " (errors.tolerance and errors.deadletterqueue.topic.name keep bad records aside, and"
            " --create-topic creates that topic)"
        )
    yield (
        f"correct the object, then {same} delivers its new version; or change the connector{by},"
        f" then {only} delivers only what failed (--dry-run shows it first)"
    )
    if records := sum(job.records for job in failed):
        yield (
            f"both deliver these objects in full, and {output.counted(records, 'record')} of them"
            f" {'is' if records == 1 else 'are'} in the topic already"
        )
    if not all(is_bad_record(job.reason) for job in failed):
        yield f"if the cause has passed, {given.replay(failed)} continues where it failed"


def _only_failed(connector: str, given: _CommandParts) -> str:
    if given.command:
        return f"{given.command} with --failed"
    return f"`extentflow run -c {connector} --failed{given.local_engine_option}`"


def _after_failure_elsewhere(failed: Sequence[JobReport], given: _CommandParts) -> Iterator[str]:
    """Yield what continues jobs that a command of another address began: --failed leaves them."""
    more = f", and {len(failed) - 1:,} more" if len(failed) > 1 else ""
    yield (
        f"connector {failed[0].connector} began {failed[0].uri}{more}: {given.replay(failed)}"
        f" continues where it failed, if the cause has passed; or correct the object, then"
        f" {given.command} delivers its new version"
    )
