"""`extentflow plan`, `run` and `replay`, and `run` for a driver that spark-submit started."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.dead_letter_commands import replay_letters
from extentflow.cli.job_commands import redrive
from extentflow.cli.output import INCOMPLETE, AsJson, Cores, EngineName, Master, counted, size
from extentflow.cli.reports import SHOWN_JOBS, by_state, show
from extentflow.errors import Misconfigured
from extentflow.model import JobState

if TYPE_CHECKING:
    from extentflow.jobs.run import RunReport
    from extentflow.kafka.topic_admin import NewTopics
    from extentflow.services.addressed import AddressedConnector
    from extentflow.services.orders import MadeOrder, Order, Orders
    from extentflow.services.plans import FailedPlans, ObjectPlan, Plans
    from extentflow.services.runs import Runs

SHOWN_PROBLEMS = 20

Addresses = Annotated[
    list[str] | None, Argument(help="s3://bucket/key, prefix/ or glob (default: the connector's).")
]
ConnectorName = Annotated[str, Option("--connector", "-c", help="The connector to use.")]
Again = Annotated[
    bool,
    Option("--again", help="Deliver objects again in full, under the connector's latest revision."),
]
Failed = Annotated[
    bool,
    Option(
        "--failed",
        help="Deliver only objects whose jobs FAILED or are CANCELLED, under the connector's latest"
        " revision.",
    ),
]
ShownFirst = Annotated[
    bool,
    Option("--dry-run", help="Only show what would be delivered; nothing is registered or sent."),
]
RunAddresses = Annotated[
    list[str] | None,
    Argument(help="s3://bucket/key, prefix/ or glob (default: the connector's); or a file."),
]
RunConnector = Annotated[
    str | None, Option("--connector", "-c", help="The stored connector to use; or give --topic.")
]
Topic = Annotated[
    str | None, Option("--topic", help="Make a connector of the address, for this topic.")
]
Servers = Annotated[
    str | None,
    Option("--bootstrap-servers", help="Kafka brokers as host:port, in place of the setting."),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key of connectors, for one made with --topic; repeatable.",
    ),
]
CreateTopic = Annotated[
    list[str] | None,
    Option(
        "--create-topic",
        metavar="partitions=N",
        help="Create missing topics; also replication.factor=N and settings of topics.",
    ),
]
Save = Annotated[
    bool, Option("--save", help="With --topic: store the connector, for -c, stream and functions.")
]
RunEngine = Annotated[
    str | None,
    Option(
        "--engine",
        help="spark (default where it is installed; inline with --topic), inline: no Spark, or emr:"
        " on EMR Serverless.",
    ),
]
JobId = Annotated[str | None, Argument(help="A job's id, or its beginning; with --dlq optional.")]
OfConnector = Annotated[
    str | None, Option("--connector", "-c", help="All FAILED and CANCELLED jobs of this connector.")
]
FromDeadLetters = Annotated[
    bool, Option("--dlq", help="Send messages of the dead letter queues to the functions again.")
]
OfRecords = Annotated[
    bool,
    Option(
        "--dead-letters",
        help="With --connector: decode its dead letters of records again, and deliver them.",
    ),
]
Repairs = Annotated[
    Path | None,
    Option(
        "--repairs",
        exists=True,
        dir_okay=False,
        help="With --dead-letters: corrected records, as JSON lines of `extentflow dead-letters`.",
    ),
]
Since = Annotated[
    str | None, Option("--since", help="With --dlq: only messages dead-lettered since, as 2h, 3d.")
]
DryRun = Annotated[bool, Option("--dry-run", help="With --dlq: only show the messages.")]
Ordinal = Annotated[int | None, Option("--extent", min=0, help="Replay only this extent.")]
AcceptDuplicates = Annotated[
    bool,
    Option(
        "--accept-duplicates",
        help="Continue where Kafka has lost an extent's progress, or a later job has the object.",
    ),
]
IngestConnector = Annotated[
    str | None, Option("--connector", "-c", help="The connector to use; or give --job.")
]
IngestJob = Annotated[
    str | None, Option("--job", help="Deliver what this job has left, instead of finding objects.")
]


def plan(
    addresses: Addresses = None,
    *,
    connector: ConnectorName,
    cores: Cores = None,
    as_json: AsJson = False,
) -> None:
    """Show which objects there are, their jobs, and how the connector cuts them now.

    Nothing is written. An existing job keeps the plan of its own revision.
    """
    from extentflow.services.orders import Orders

    runs = _runs(creates=False)
    order = Orders.of(runs.runtime).stored(connector, addresses or ())
    _show_plans(runs.plan(order, cores=cores), as_json=as_json)


def _show_plans(found: "Plans", *, as_json: bool) -> None:
    if as_json:
        output.print_json([_plan_json(one) for one in found.objects])
    elif found.objects:
        columns = (
            "object",
            "format",
            "by",
            "compression",
            "size",
            "extents",
            "topic",
            "job",
            "state",
            "revision",
        )
        rest = attrgetter("topic", "job", "state", "revision")
        # What a run would deliver first.
        shown = sorted(found.objects, key=lambda one: one.state == JobState.DONE)[:SHOWN_JOBS]
        rows = [
            (
                one.version.uri,
                one.format,
                one.format_source,
                _compression(one),
                size(one.version.size),
                len(one.extents),
                *rest(one),
            )
            for one in shown
        ]
        output.print_table(columns, rows)
        if len(found.objects) > len(shown):
            output.say(_totals(found))
        for one in shown:
            if one.facts:
                output.note(f"{one.version.uri}: found {one.facts}")
    elif not found.problems:
        output.note(f"there is nothing to deliver below {found.source}")
    _show_problems(found.problems)


def _totals(found: "Plans") -> str:
    plans = found.objects
    states = Counter(one.state for one in plans)
    extents = sum(len(one.extents) for one in plans)
    without = " without a problem" if found.problems else ""
    return (
        f"{len(plans):,} objects{without}, {size(sum(one.version.size for one in plans))},"
        f" {counted(extents, 'extent')}: {by_state(states)}; {SHOWN_JOBS} shown, --json shows all"
    )


def _show_problems(problems: Sequence[str]) -> None:
    """Show what prevents a delivery, and end the command if there is anything."""
    for problem in problems[:SHOWN_PROBLEMS]:
        output.complain(problem)
    if more := len(problems[SHOWN_PROBLEMS:]):
        output.note(f"and {more:,} more problems; give fewer addresses to see them")
    if problems:
        raise typer.Exit(INCOMPLETE)


def _show_failed(found: "FailedPlans", *, as_json: bool) -> None:
    """Show what `--failed` would do with each object."""
    if as_json:
        output.print_json([one.to_json() for one in found.objects])
    elif found.objects:
        # First what is delivered a second time.
        shown = sorted(found.objects, key=lambda one: -one.again)[:SHOWN_JOBS]
        rows = [
            (
                one.version.uri,
                one.step.value,
                f"{one.before:,}",
                one.job.id if one.job else "",
                one.job.revision if one.job else "",
            )
            for one in shown
        ]
        output.print_table(("object", "what", "delivered before", "job", "revision"), rows)
        if len(found.objects) > len(shown):
            output.say(f"{len(found.objects):,} objects; {SHOWN_JOBS} shown, --json shows all")
        if again := sum(one.again for one in found.objects):
            output.note(f"records that were delivered before, and would be again: {again:,}")
        for one in shown:
            if one.job is not None and one.cause:
                output.note(f"{one.job.id}: {one.cause}")
    else:
        output.note("no object failed, or was cancelled, that can be delivered now")
    _show_problems(found.problems)


def _compression(one: "ObjectPlan") -> str:
    from extentflow.config.connector import BY_CONTENT

    by_content = one.compression_source == BY_CONTENT
    return f"{one.compression} (by {BY_CONTENT})" if by_content else one.compression


def _plan_json(one: "ObjectPlan") -> dict[str, object]:
    facts = asdict(one)
    del facts["version"]
    version = one.version
    return {"object": version.uri, "etag": version.etag, "bytes": version.size, **facts}


def run(
    addresses: RunAddresses = None,
    *,
    connector: RunConnector = None,
    topic: Topic = None,
    servers: Servers = None,
    settings: Settings = None,
    create_topic: CreateTopic = None,
    save: Save = False,
    engine: RunEngine = None,
    cores: Cores = None,
    master: Master = None,
    again: Again = False,
    failed: Failed = False,
    dry_run: ShownFirst = False,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka; exit code 0 only when every job is DONE.

    With --topic the command makes a connector of the address and its options.
    """
    from extentflow.services.addressed import make_connector, parse_settings
    from extentflow.services.orders import Orders
    from extentflow.services.run_control import EngineChoice
    from extentflow.wiring.extents import INLINE

    if (connector is None) == (topic is None):
        raise Misconfigured(
            "give --topic TOPIC, and the command makes a connector of the address, or --connector"
            " NAME, of `extentflow connectors list`; `extentflow run --help` shows the usage"
        )
    given = parse_settings(settings or ())
    topics = _new_topics(create_topic or ())
    direct = topic is not None and master is None
    name = INLINE if direct and engine is None else _engine(engine, master)
    choice = EngineChoice(name, cores, master)
    made = None if topic is None else make_connector(addresses or (), topic, given)
    if made is None and (given or save):
        raise Misconfigured(
            "--set and --save go with --topic; change a stored connector's file, then `extentflow"
            " connectors put FILE`"
        )
    if failed and (again or choice.remote):
        raise Misconfigured("--failed goes without --again, and with --engine spark or inline")
    if made is not None and choice.remote and not save:
        raise Misconfigured("--engine emr reads a stored connector: add --save to store it")
    runs = _runs({} if servers is None else {"bootstrap.servers": servers})
    where = runs.runtime.ledger_address
    if not where.chosen and where.path.exists():  # else its creation is reported
        output.note(f"ledger {where.path}, because no setting names one")
    orders = Orders.of(runs.runtime)
    if dry_run:
        first = orders.expect(made) if made else orders.stored(connector or "", addresses or ())
        _show_first(runs, first, topics, cores=cores, failed=failed, as_json=as_json)
        return
    order = _stored(orders, made, save=save) or orders.stored(connector or "", addresses or ())
    report = runs.run(order, engine=choice, again=again, failed=failed, topics=topics)
    if made is None:
        show(report, as_json=as_json, engine=engine or "")
        return
    if report.ok and report.records_this_run:
        output.note("the same command again delivers only what is new")
    if servers is not None and (report.records_this_run or not report.ok):
        output.note(f"`status` and `replay` need `export EXTENTFLOW_BOOTSTRAP_SERVERS={servers}`")
    # `replay` would start Spark where this command did not.
    show(
        report,
        as_json=as_json,
        command="the same command",
        connector=order.config.name,
        engine=choice.name,
    )


def _show_first(
    runs: "Runs",
    order: "Order",
    topics: "NewTopics | None",
    *,
    cores: int | None,
    failed: bool,
    as_json: bool,
) -> None:
    """Show what a run would deliver; nothing is stored."""
    if failed:
        _show_failed(runs.failed(order, topics=topics), as_json=as_json)
    else:
        _show_plans(runs.plan(order, cores=cores, topics=topics), as_json=as_json)


def _stored(
    orders: "Orders", made: "AddressedConnector | None", *, save: bool
) -> "MadeOrder | None":
    """Store a connector that was made, and show what it is."""
    if made is None:
        return None
    order = orders.store(made, save=save, notify=output.note)
    name, keep = order.config.name, "" if order.stored else "; --save keeps it for `-c`"
    output.note(f"connector {name}, revision {order.revision}{keep}: {order.shown}")
    if save:
        output.note(
            f"stored: `extentflow run -c {name}` and `extentflow stream -c {name}` read"
            f" {order.reads}"
        )
    return order


def _engine(name: str | None, master: str | None) -> str:
    """Return the engine, reporting where Spark is not installed and none was named."""
    from extentflow.wiring.extents import INLINE, usual_engine

    usual = usual_engine(master)
    if name is None and usual == INLINE:
        output.note("on the cores of this machine, because extentflow[spark] is not installed")
    return name or usual


def _new_topics(words: Sequence[str]) -> "NewTopics | None":
    """Return what --create-topic says: NAME=VALUE, several separated by commas."""
    from extentflow.kafka.topic_admin import NewTopics

    found: dict[str, str] = {}
    last = ""
    for piece in (piece for word in words for piece in word.split(",")):
        name, equals, text = piece.partition("=")
        if equals:
            last = name.strip()
            found[last] = text.strip()
        elif last:
            found[last] += f",{piece.strip()}"  # a list, as of cleanup.policy
        else:
            raise Misconfigured(
                f"--create-topic {piece}: write partitions=8, and more of it as"
                " partitions=8,replication.factor=3,retention.ms=86400000"
            )
    if not words:
        return None
    counts = [found.pop(name, "-1") for name in ("partitions", "replication.factor")]
    if any(not re.fullmatch(r"-1|[1-9][0-9]{0,5}", count) for count in counts):
        raise Misconfigured("--create-topic: partitions and replication.factor are whole numbers")
    return NewTopics(int(counts[0]), int(counts[1]), found)


def replay(
    job: JobId = None,
    *,
    connector: OfConnector = None,
    extent: Ordinal = None,
    dlq: FromDeadLetters = False,
    since: Since = None,
    dry_run: DryRun = False,
    dead_letters: OfRecords = False,
    repairs: Repairs = None,
    accept_duplicates: AcceptDuplicates = False,
    engine: EngineName = None,
    cores: Cores = None,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Deliver the rest of FAILED and CANCELLED jobs: of one job, or of all of a connector."""
    from extentflow.services.run_control import EMR, EngineChoice

    if not dlq and (since is not None or dry_run):
        raise Misconfigured("--since and --dry-run go with --dlq")
    if repairs is not None and not dead_letters:
        raise Misconfigured("--repairs goes with --dead-letters")
    if dead_letters:
        if connector is None or job is not None or dlq or extent is not None:
            raise Misconfigured(
                "--dead-letters goes with --connector, without JOB, --dlq, --extent"
            )
        replay_letters(connector, repairs, accept_duplicates=accept_duplicates, as_json=as_json)
        return
    if job is None and connector is None and not dlq:
        raise Misconfigured(
            "Missing argument 'JOB', or --connector; `extentflow replay --help` shows the usage"
        )
    if connector is not None and (job is not None or dlq or extent is not None):
        raise Misconfigured("--connector goes without JOB, --extent and --dlq")
    if connector is not None and engine == EMR:
        raise Misconfigured(
            "--connector goes with --engine spark or inline; a run on EMR Serverless takes one JOB"
        )
    if dlq:
        redrive(job, since, dry_run=dry_run, as_json=as_json)
        return
    choice = EngineChoice(_engine(engine, master), cores, master)
    runs = _runs()
    if connector is not None:
        result = runs.replay_all(connector, engine=choice, accept_duplicates=accept_duplicates)
    else:
        result = runs.replay(
            job or "", engine=choice, extent=extent, accept_duplicates=accept_duplicates
        )
    show(result, as_json=as_json, command=_made_by(runs, result), engine=engine or "")


def _made_by(runs: "Runs", result: "RunReport") -> str:
    """Return the command that delivers a replay's objects again, where `run -c` refuses to."""
    names = () if result.ok else {job.connector for job in result.jobs}
    stored = all(runs.runtime.ledger.connectors.get(name) for name in names)
    return "" if stored else "the same `run ADDRESS --topic` command"


def ingest(
    addresses: Addresses = None,
    *,
    connector: IngestConnector = None,
    job: IngestJob = None,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka on the executors of the submitted application."""
    from extentflow.services.run_control import EngineChoice
    from extentflow.wiring.extents import SUBMITTED

    if job is not None:
        if addresses or connector or again:
            raise Misconfigured("--job goes without addresses, --connector and --again")
        choice = EngineChoice("spark", master=SUBMITTED)
        show(_runs().resume(job, engine=choice), as_json=as_json)
        return
    if connector is None:
        raise Misconfigured("give --connector, or --job")
    # spark-submit chose the master and the executors.
    run(addresses, connector=connector, master=SUBMITTED, again=again, as_json=as_json)


def _runs(given: Mapping[str, str] | None = None, *, creates: bool = True) -> "Runs":
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import RunProgress, signals_stop
    from extentflow.services.run_control import RunControl
    from extentflow.services.runs import Runs, committed_records

    runtime = open_runtime(given, creates=creates)
    progress = RunProgress(output.err, partial(committed_records, runtime))
    control = RunControl(
        lambda: progress, signals_stop, output.note, progress.on_step, progress.counting
    )
    return Runs(runtime, control)
