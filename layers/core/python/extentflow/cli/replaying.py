"""`extentflow replay`: what is over without being delivered goes on, here or by the functions.

Owns: the command, which jobs it means. Refuses to know: how a replay is done, how messages move.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson, Cores, EngineName, Master
from extentflow.cli.redriving import redrive_all
from extentflow.cli.runs import REMOTE, driving, note_older, require_reachable, show, subject
from extentflow.engines import Engine
from extentflow.engines.emr.submitted import OnCompletion
from extentflow.errors import Conflict, Misconfigured
from extentflow.jobs import preflight
from extentflow.jobs.planner import check_cluster
from extentflow.jobs.run import RunReport, known_job
from extentflow.jobs.run import report as report_of
from extentflow.model import Job, JobState
from extentflow.wiring import Runtime, open_engine

# Open ones only where a replay opened them, and did not get to its end.
REPLAYED = (JobState.FAILED, JobState.CANCELLED, JobState.PLANNING, JobState.RUNNING)

JobId = Annotated[
    str | None,
    typer.Argument(help="A job's id, or the beginning of one; with --dlq optional."),
]
OfConnector = Annotated[
    str | None,
    typer.Option("--connector", "-c", help="All FAILED and CANCELLED jobs of this connector."),
]
FromDeadLetters = Annotated[
    bool,
    typer.Option("--dlq", help="Send messages of the dead letter queues to the functions again."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="With --dlq: only what was given up since, for example 2h or 3d."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --dlq: only show what would go.")]
Ordinal = Annotated[int | None, typer.Option("--extent", min=0, help="Replay only this extent.")]
AcceptDuplicates = Annotated[
    bool,
    typer.Option("--accept-duplicates", help="Go on where Kafka forgot how far an extent was."),
]


def add_to(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(replay)


def replay(
    job: JobId = None,
    *,
    connector: OfConnector = None,
    extent: Ordinal = None,
    dlq: FromDeadLetters = False,
    since: Since = None,
    dry_run: DryRun = False,
    accept_duplicates: AcceptDuplicates = False,
    engine: EngineName = "spark",
    cores: Cores = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Run what failed again, from where it stopped, and what was cancelled: a job, or all."""
    if job is None and connector is None and not dlq:
        raise Misconfigured(
            "Missing argument 'JOB', or --connector; `extentflow replay --help` shows what there is"
        )
    if connector is not None and (job is not None or dlq or extent is not None):
        raise Misconfigured("--connector goes without JOB, --extent and --dlq")
    if connector is not None and engine == REMOTE:
        raise Misconfigured(
            "--connector goes with --engine spark or inline; a run elsewhere takes one JOB"
        )
    runtime = Runtime.from_environment()
    if dlq:
        redrive_all(runtime, job, since, dry_run=dry_run, as_json=as_json)
        return
    if since is not None or dry_run:
        raise Misconfigured("--since and --dry-run go with --dlq")
    if connector is not None:
        name = connector
        report = _replay_all(
            runtime,
            connector,
            engine,
            accept_duplicates=accept_duplicates,
            cores=cores,
            master=master,
        )
    else:
        found = known_job(runtime.ledger, job or "")
        if found.state is JobState.DONE and extent is None:
            _show_done(runtime, found, engine, as_json=as_json)
            return
        name = found.connector
        preflight.require_running(runtime.ledger, name)
        chosen = _engine_for(runtime, found, engine, cores=cores, master=master)
        with driving(runtime, engine, chosen) as run:
            report = run.replay(found, ordinal=extent, accept_duplicates=accept_duplicates)
    latest = runtime.ledger.connector(name)
    if latest is not None:
        note_older(report, latest.revision)
    show(report, as_json=as_json)


def go_on(job: str, *, engine: str, master: str | None, as_json: bool) -> None:
    """Deliver what a job has left; one that is over is only shown."""
    runtime = Runtime.from_environment()
    found = known_job(runtime.ledger, job)
    preflight.require_running(runtime.ledger, found.connector)
    chosen = _engine_for(runtime, found, engine, cores=None, master=master)
    with driving(runtime, engine, chosen) as run:
        report = run.go_on(found)
    show(report, as_json=as_json)


def _replay_all(
    runtime: Runtime,
    connector: str,
    engine: str,
    *,
    accept_duplicates: bool,
    cores: int | None,
    master: str | None,
) -> RunReport:
    """Replay all jobs of a connector."""
    runtime.connectors.latest(connector)
    preflight.require_running(runtime.ledger, connector)
    runtime.require_app()
    found, refused = _fit(runtime, _all_of(runtime, connector))
    if refused and not found:
        raise Misconfigured(refused)
    if not found:
        output.note(f"connector {connector} has no job to replay")
        return RunReport(engine)
    bounds = [runtime.connectors.revision(connector, job.revision).max_tasks for job in found]
    chosen = open_engine(
        runtime,
        engine,
        cores=cores,
        master=master,
        max_tasks=min((most for most in bounds if most), default=None),
        say=output.note,
    )
    with driving(runtime, engine, chosen) as run:
        return run.replay_all(found, refused=refused, accept_duplicates=accept_duplicates)


def _all_of(runtime: Runtime, connector: str) -> list[Job]:
    """Return a connector's FAILED and CANCELLED jobs, and those that a replay opened and left.

    Not those that a later one of the same version follows: that one has delivered what they have
    left, or is about to.
    """
    planner = runtime.planner()
    listed = [job.id for state in REPLAYED for job in runtime.ledger.jobs(connector, state)]
    read = (runtime.ledger.job(job_id) for job_id in dict.fromkeys(listed))  # listings lag
    jobs = [job for job in read if job is not None and _is_left(job)]
    found = [job for job in jobs if not planner.is_followed(job)]
    if left := len(jobs) - len(found):
        output.note(
            f"{output.counted(left, 'job')} left out, because the object was begun again since; "
            "give the job's id to replay one all the same"
        )
    return found


def _is_left(job: Job) -> bool:
    return job.state in REPLAYED and (not job.state.open or job.reopened > 0)


def _fit(runtime: Runtime, jobs: Sequence[Job]) -> tuple[list[Job], list[str]]:
    """Return the jobs that can be delivered from here, and why the others cannot.

    They may pin different revisions, and clusters.
    """
    found: list[Job] = []
    refused: list[str] = []
    for revision in dict.fromkeys(job.revision for job in jobs):
        alike = [job for job in jobs if job.revision == revision]
        try:
            config = runtime.connectors.revision(alike[0].connector, revision)
            runtime.objects.store(config, revision)
            preflight.check(config, runtime.broker, [job.version for job in alike])
        except Misconfigured as exc:
            what = f"{output.counted(len(alike), 'job')} of revision {revision} left out"
            refused += [f"{what}: {problem}" for problem in exc.problems]
            continue
        for job in alike:
            try:
                check_cluster(job, runtime.broker.cluster)
            except Conflict as exc:
                refused.append(str(exc))
            else:
                found.append(job)
    return found, refused


def _show_done(runtime: Runtime, job: Job, engine: str, *, as_json: bool) -> None:
    output.note(
        f"job {job.id} is DONE, there is nothing to replay; `extentflow run --again` "
        "delivers its object a second time"
    )
    done = replace(report_of(runtime.ledger, job), delivered_before=True)
    show(RunReport(engine, jobs=(done,)), as_json=as_json)


def _engine_for(
    runtime: Runtime, job: Job, engine: str, *, cores: int | None, master: str | None
) -> Engine:
    """Return an engine for what a job has left, when everything is there that it needs."""
    runtime.require_app()
    config = runtime.connectors.revision(job.connector, job.revision)
    if engine == REMOTE:
        require_reachable(config, None)
    preflight.check(config, runtime.broker, [job.version])
    check_cluster(job, runtime.broker.cluster)
    return open_engine(
        runtime,
        engine,
        cores=cores,
        master=master,
        max_tasks=config.max_tasks,
        start_run=lambda started: started.begin_job(
            job, subject=subject(), then=OnCompletion.PERSON
        ),
        say=output.note,
    )
