"""`extentflow plan`, `run` and `replay`, and `run` for a driver that spark-submit started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import EngineOptions, ServerOptions, expand_options
from extentflow.cli.output import AsJson, Cores
from extentflow.cli.plan_reports import show_plans
from extentflow.cli.run_reports import show
from extentflow.errors import Misconfigured

if TYPE_CHECKING:
    from extentflow.jobs.run import RunReport
    from extentflow.kafka.topic_admin import NewTopics
    from extentflow.services.addressed import AddressedConnector
    from extentflow.services.orders import Order, Orders
    from extentflow.services.plans import FailedPlans, Plans
    from extentflow.services.run_control import EngineChoice
    from extentflow.services.runs import Runs
    from extentflow.wiring import Runtime

Addresses = Annotated[
    list[str] | None, Argument(help="s3://bucket/key, prefix/ or glob (default: the connector's).")
]
ConnectorName = Annotated[str, Option("--connector", "-c", help="The connector to use.")]
Again = Annotated[
    bool,
    Option("--again", help="Deliver objects again in full, under the connector's latest revision."),
]
RunAddresses = Annotated[
    list[str] | None,
    Argument(help="s3://bucket/key, prefix/ or glob (default: the connector's); or a file."),
]
Topic = Annotated[
    str | None, Option("--topic", help="Make a connector of the address, for this topic.")
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key of connectors, for one made with --topic; repeatable.",
    ),
]
JobId = Annotated[str | None, Argument(help="A job's id, or its beginning.")]
SubmittedConnector = Annotated[
    str | None, Option("--connector", "-c", help="The connector to use; or give --job.")
]
SubmittedJob = Annotated[
    str | None, Option("--job", help="Deliver what this job has left, instead of finding objects.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorOptions:
    """The connector of a run: a stored one, or one that the command makes for a topic."""

    connector: Annotated[
        str | None,
        Option("--connector", "-c", help="The stored connector to use; or give --topic."),
    ] = None
    topic: Topic = None
    settings: Settings = None
    create_topic: Annotated[
        list[str] | None,
        Option(
            "--create-topic",
            metavar="partitions=N",
            help="Create missing topics; also replication.factor=N and settings of topics.",
        ),
    ] = None
    save: Annotated[
        bool,
        Option("--save", help="With --topic: store the connector, for -c, stream and functions."),
    ] = False

    def make(self, addresses: Sequence[str]) -> "AddressedConnector | None":
        """Return the connector that the command makes; None for a stored one."""
        from extentflow.services.addressed import make_connector, parse_settings

        given = parse_settings(self.settings or ())
        if self.topic is not None:
            return make_connector(addresses, self.topic, given)
        if given or self.save:
            raise Misconfigured(
                "--set and --save go with --topic; change a stored connector's file, then"
                " `extentflow connectors put FILE`"
            )
        return None

    def new_topics(self) -> "NewTopics | None":
        """Return what --create-topic says: NAME=VALUE, several separated by commas."""
        from extentflow.kafka.topic_admin import NewTopics

        if not self.create_topic:
            return None
        found: dict[str, str] = {}
        last = ""
        for piece in (piece for word in self.create_topic for piece in word.split(",")):
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
        return NewTopics.of(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """Which objects a run delivers, and whether it only shows them."""

    again: Again = False
    failed: Annotated[
        bool,
        Option(
            "--failed",
            help="Deliver only objects whose jobs FAILED or are CANCELLED, under the connector's"
            " latest revision.",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        Option(
            "--dry-run", help="Only show what would be delivered; nothing is registered or sent."
        ),
    ] = False

    def require_fitting(self, engine: "EngineChoice", *, unsaved: bool) -> None:
        """Raise Misconfigured where an engine cannot run the selection; `unsaved`: of --topic."""
        if self.failed and (self.again or engine.remote):
            raise Misconfigured("--failed goes without --again, and with --engine spark or inline")
        if unsaved and engine.remote:
            raise Misconfigured(
                f"--engine {engine.name} reads a stored connector: add --save to store it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Which jobs `replay` continues, and how much of them."""

    connector: Annotated[
        str | None,
        Option(
            "--connector",
            "-c",
            help="All FAILED, CANCELLED and interrupted jobs of this connector.",
        ),
    ] = None
    extent: Annotated[int | None, Option("--extent", min=0, help="Replay only this extent.")] = None
    accept_duplicates: Annotated[
        bool,
        Option(
            "--accept-duplicates",
            help="Continue where Kafka has lost an extent's progress, or a later job has the"
            " object.",
        ),
    ] = False

    def require_jobs(self, job: str | None, engine: str | None) -> None:
        """Raise Misconfigured unless the options name either one job or a connector's jobs."""
        from extentflow.engines import run_service

        if job is None and self.connector is None:
            raise Misconfigured(
                "Missing argument 'JOB', or --connector; `extentflow replay --help` shows the usage"
            )
        if self.connector is None:
            return
        if job is not None or self.extent is not None:
            raise Misconfigured("--connector goes without JOB and --extent")
        if engine is not None and run_service(engine) is not None:
            raise Misconfigured(
                "--connector goes with --engine spark or inline; a remote run takes one JOB"
            )


@expand_options
def plan(
    addresses: Addresses = None,
    *,
    connector: ConnectorName,
    cores: Cores = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Show which objects there are, their jobs, and how the connector cuts them now.

    Nothing is written. An existing job keeps the plan of its own revision.
    """
    from extentflow.services.composition import open_orders

    runtime, open_runs = _open(servers, creates=False)
    order = open_orders(runtime).stored(connector, addresses or ())
    show_plans(open_runs().plan(order, cores=cores), as_json=as_json)


@expand_options
def run(
    addresses: RunAddresses = None,
    *,
    source: ConnectorOptions,
    engine: EngineOptions,
    selection: SelectionOptions,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka; exit code 0 only when every job is DONE.

    With --topic the command makes a connector of the address and its options.
    """
    from extentflow.services.composition import open_orders

    if source.connector is not None and source.topic is not None:
        raise Misconfigured(
            "--topic makes a connector, and --connector names a stored one: leave one of them out"
        )
    if source.connector is None and source.topic is None:
        raise Misconfigured(
            "give --topic TOPIC, and the command makes a connector of the address, or --connector"
            " NAME, of `extentflow connectors list`; `extentflow run --help` shows the usage"
        )
    topics, choice = source.new_topics(), _choice(engine)
    made = source.make(addresses or ())
    selection.require_fitting(choice, unsaved=made is not None and not source.save)
    runtime, open_runs = _open(servers)
    where = runtime.ledger_address
    if not where.chosen and where.path.exists():  # else its creation is reported
        output.note(f"ledger {where.path}, because no setting names one")
    orders, runs = open_orders(runtime), open_runs()
    # Messages about a lost job name its connector, which another command may have made.
    hidden = bool(addresses) and (selection.again or selection.failed)
    stored = partial(orders.stored, source.connector or "", addresses or (), deleted=hidden)
    if selection.dry_run:
        first = orders.expect(made) if made else stored()
        show_plans(_find_first(runs, first, selection, topics, engine.cores), as_json=as_json)
        return
    order = _store(orders, made, save=source.save) if made else stored()
    report = runs.run(
        order, engine=choice, again=selection.again, failed=selection.failed, topics=topics
    )
    if made is not None and report.ok and report.records_this_run:
        same = "the same command without --again" if selection.again else "the same command again"
        output.note(f"{same} delivers only what is new")
    if servers.words and (report.records_this_run or not report.ok):
        which = "`status` and `replay` need" if servers.ledger else "`replay` needs"
        output.note(f"{which} `{servers.words}`, too")
    command, own = ("the same command", order.config.name) if made else ("", "")
    show(report, as_json=as_json, command=command, connector=own, engine=engine.engine or "")


def _choice(given: EngineOptions) -> "EngineChoice":
    from extentflow.services.run_control import EngineChoice
    from extentflow.wiring.extents import chosen_engine

    return EngineChoice(chosen_engine(given.engine, given.master), given.cores, given.master)


def _find_first(
    runs: "Runs",
    order: "Order",
    selection: SelectionOptions,
    topics: "NewTopics | None",
    cores: int | None,
) -> "Plans | FailedPlans":
    """Return what a run would deliver; nothing is stored."""
    if selection.failed:
        return runs.failed(order, topics=topics)
    return runs.plan(order, cores=cores, again=selection.again, topics=topics)


def _store(orders: "Orders", made: "AddressedConnector", *, save: bool) -> "Order":
    """Store a connector that was made, and show what it is."""
    order = orders.store(made, save=save, notify=output.note)
    name, keep = order.config.name, "" if order.stored else "; --save keeps it for `-c`"
    output.note(f"connector {name}, revision {order.revision}{keep}: {order.shown}")
    if save:
        output.note(
            f"stored: `extentflow run -c {name}` and `extentflow stream -c {name}` read"
            f" {order.reads}"
        )
    return order


@expand_options
def replay(
    job: JobId = None,
    *,
    options: ReplayOptions,
    engine: EngineOptions,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Deliver the rest of FAILED, CANCELLED and interrupted jobs: of one, or of a connector."""
    options.require_jobs(job, engine.engine)
    choice = _choice(engine)
    runtime, open_runs = _open(servers)
    runs = open_runs()
    accept = options.accept_duplicates
    if options.connector is not None:
        result = runs.replay_all(options.connector, engine=choice, accept_duplicates=accept)
    else:
        result = runs.replay(
            job or "", engine=choice, extent=options.extent, accept_duplicates=accept
        )
    show(result, as_json=as_json, command=_made_by(runtime, result), engine=engine.engine or "")


def _made_by(runtime: "Runtime", result: "RunReport") -> str:
    """Return the command that delivers a replay's objects again, where `run -c` refuses to."""
    names = () if result.ok else {job.connector for job in result.jobs}
    stored = all(runtime.ledger.connectors.get(name) for name in names)
    return "" if stored else "the same `run ADDRESS --topic` command"


@expand_options
def deliver(
    addresses: Addresses = None,
    *,
    connector: SubmittedConnector = None,
    job: SubmittedJob = None,
    again: Again = False,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka on the executors of the submitted application."""
    from extentflow.services.composition import open_orders
    from extentflow.services.run_control import EngineChoice
    from extentflow.wiring.extents import SUBMITTED

    choice = EngineChoice("spark", master=SUBMITTED)  # spark-submit chose master and executors
    if job is not None:
        if addresses or connector or again:
            raise Misconfigured("--job goes without addresses, --connector and --again")
        _, open_runs = _open(servers)
        show(open_runs().resume(job, engine=choice), as_json=as_json)
    elif connector is None:
        raise Misconfigured("give --connector, or --job")
    else:
        runtime, open_runs = _open(servers)
        order = open_orders(runtime).stored(connector, addresses or ())
        show(open_runs().run(order, engine=choice, again=again), as_json=as_json)


def _open(servers: ServerOptions, *, creates: bool = True) -> "tuple[Runtime, Callable[[], Runs]]":
    """Return the clients of a command, and what opens the ledger for its runs."""
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import RunProgress, signals_stop
    from extentflow.services.composition import open_runs
    from extentflow.services.run_control import RunControl
    from extentflow.services.runs import committed_records

    runtime = open_runtime(servers, creates=creates)
    progress = RunProgress(output.err, lambda jobs: committed_records(runtime.ledger, jobs))
    control = RunControl(
        lambda: progress, signals_stop, output.note, progress.on_step, progress.counting
    )
    return runtime, partial(open_runs, runtime, control)
