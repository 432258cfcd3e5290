"""`extentflow status` and `dismiss`: jobs; `submit` and `redrive`: work for the functions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli import status_reports as statuses
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.errors import Misconfigured
from extentflow.model import JobState

if TYPE_CHECKING:
    from extentflow.services.jobs import JobDetail, JobList

JobId = Annotated[str | None, Argument(help="A job's id, or its beginning.")]
DismissedJobs = Annotated[list[str] | None, Argument(help="Ids of jobs, or their beginnings.")]
DismissedConnector = Annotated[
    str | None,
    Option("--connector", "-c", help="All jobs of this connector whose objects were removed."),
]
Watched = Annotated[
    bool, Option("--watch", "-w", help="Show changes, from the first job on until all have ended.")
]
RedrivenJob = Annotated[
    str | None, Argument(help="Only messages of this job: its id, or its beginning.")
]
LettersSince = Annotated[
    str | None, Option("--since", help="Only messages dead-lettered since, as 2h, 3d.")
]
DryRun = Annotated[bool, Option("--dry-run", help="Only show the messages.")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListOptions:
    """Which jobs are listed."""

    connector: Annotated[
        str | None, Option("--connector", "-c", help="Only jobs of this connector.")
    ] = None
    state: Annotated[
        JobState | None, Option("--state", case_sensitive=False, help="Only jobs in it.")
    ] = None
    prefix: Annotated[
        str | None, Option("--prefix", help="Only of objects whose key, or address, begins so.")
    ] = None
    since: Annotated[
        str | None,
        Option("--since", help="Only jobs that began or ended since: 2h, 3d, 2026-11-26T08:00Z."),
    ] = None
    undelivered: Annotated[
        bool,
        Option(
            "--undelivered",
            help="Only open jobs, and others without their object, which no later job has.",
        ),
    ] = False
    limit: Annotated[int, Option("--limit", min=1, help="At most so many jobs.")] = 50


@expand_options
def status(
    job: JobId = None,
    *,
    listed: JobListOptions,
    watch: Watched = False,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Show jobs, newest first; or one job with the map of its extents and its errors."""
    from extentflow.cli.opening import open_runtime
    from extentflow.jobs.preflight import skip_reason
    from extentflow.services.composition import open_jobs, open_submissions
    from extentflow.services.jobs import JobFilter, parse_since
    from extentflow.wiring.environments import other_ledger

    runtime = open_runtime(servers, creates=False, brokers=False)
    if job is not None:
        _show_one(lambda: open_jobs(runtime).get(job), watch=watch, as_json=as_json)
        return
    since = parse_since(listed.since, runtime.clock.wall())
    chosen = JobFilter(
        listed.connector, listed.state, listed.prefix or "", since, listed.undelivered
    )

    def read() -> "JobList":
        return open_jobs(runtime).find(chosen, limit=listed.limit)

    view = statuses.view_jobs(filtered=chosen != JobFilter(), watched=watch)
    if watch:
        statuses.watch(read, view, as_json=as_json)
        return
    found, queues = read(), open_submissions(runtime).queue_depths()
    if as_json:
        output.print_json({**view.to_json(found), "queues": queues.depths})
    else:
        if queues.depths:
            counts = [(name, d.waiting, d.hidden, d.delayed) for name, d in queues.depths.items()]
            output.print_table(("queue", "waiting", "in work", "delayed"), counts)
        view.show(found)
        if not found.jobs and (elsewhere := other_ledger(runtime.ledger_address)):
            output.note(elsewhere)
        name = listed.connector
        named = {one.connector for one in found.interrupted}  # their notes say it
        if name and name not in named and (skipped := skip_reason(runtime.ledger, name)):
            output.note(skipped)
    # Last, so that one unavailable queue hides neither jobs nor the other queues.
    for name, error in queues.unavailable.items():
        output.complain(f"{name}: {error}")
    if queues.unavailable:
        raise typer.Exit(INCOMPLETE)


def _show_one(read: "Callable[[], JobDetail]", *, watch: bool, as_json: bool) -> None:
    view = statuses.view_job()
    if watch:
        statuses.watch(read, view, as_json=as_json)
    elif as_json:
        output.print_json(view.to_json(read()))
    else:
        view.show(read())


@expand_options
def dismiss(
    jobs: DismissedJobs = None,
    *,
    connector: DismissedConnector = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Close FAILED and CANCELLED jobs whose objects were removed: they become SUPERSEDED."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_dismissals

    if bool(jobs) == (connector is not None):
        raise Misconfigured(
            "give jobs, or --connector for all jobs of it whose objects were removed"
        )
    dismissals = open_dismissals(open_runtime(servers, creates=False, brokers=False))
    found = dismissals.dismiss(jobs) if jobs else dismissals.dismiss_all(connector or "")
    facts = {"dismissed": [job.id for job in found.jobs], "kept": list(found.kept)}
    now = ", now SUPERSEDED" if found.jobs else ""
    output.show(facts, f"{output.counted(len(found.jobs), 'job')} dismissed{now}", as_json=as_json)
    if found.kept:
        more = ", ..." if len(found.kept) > 1 else ""
        output.note(
            f"{output.counted(len(found.kept), 'object')} still there, whose jobs stay:"
            f" {found.kept[0]}{more}; `extentflow status -c {connector} --undelivered` shows them"
        )


@expand_options
def submit(
    addresses: Addresses = None,
    *,
    connector: ExpandedBy = None,
    event: Event = None,
    engine: Engine = "auto",
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Announce objects to the planner, as a notification would; or give all to one run of Spark."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_submissions
    from extentflow.services.run_control import RunControl
    from extentflow.services.submissions import require_engine

    require_engine(engine, connector)
    if (event is None) == (not addresses and connector is None):
        raise Misconfigured("give addresses, or --connector, or a notification with --event")
    submissions = open_submissions(open_runtime(servers))
    if event is not None and connector is None:
        sent = submissions.submit_event(event.read_text(encoding="utf-8"), name=str(event))
    else:
        control = RunControl(notify=output.note)
        sent = submissions.submit(
            addresses or (), connector=connector, engine=engine, control=control
        )
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
            "`extentflow redrive --dry-run` shows it"
        )
    for address in sent.unread:
        output.note(f"no connector reads {address}: it gets no job; `connectors put` stores one")
    if sent.unchecked:
        output.note(
            f"not known whether they exist: {', '.join(sent.unchecked)}; an object that does not"
            " exist gets no job"
        )
    if sent.skipped:
        output.note(sent.skipped)


@expand_options
def redrive(
    job: RedrivenJob = None,
    *,
    since: LettersSince = None,
    dry_run: DryRun = False,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Send messages of the dead letter queues to the functions again, or only show them."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_submissions
    from extentflow.services.submissions import job_of

    submissions = open_submissions(open_runtime(servers))
    found = submissions.redrive(job, since=since, dry_run=dry_run)
    if as_json:
        moved = [{"job": job_of(one), "reason": one.reason} for one in found.moved]
        output.print_json({"dry_run": dry_run, "moved": moved, "left": found.left})
        return
    if found.moved:
        rows = [(job_of(one) or "", output.moment(one.sent), one.reason) for one in found.moved]
        output.print_table(("job", "dead-lettered", "reason"), rows)
    what = "would be resent" if dry_run else "resent"
    output.say(f"{output.counted(len(found.moved), 'message')} {what}, {found.left} left")
