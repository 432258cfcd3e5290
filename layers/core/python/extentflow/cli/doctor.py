"""`extentflow init` and `extentflow doctor`: make what is missing, explain what is wrong.

Owns: these commands, the list of checks and their remedies. Refuses to know: how each fact is
found out; the rooms answer.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated
from uuid import uuid4

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson
from extentflow.config.worker import ARRAYS
from extentflow.connectors import ConnectorConfig
from extentflow.errors import (
    CredentialsUnavailable,
    ExtentflowError,
    Misconfigured,
    Retryable,
)
from extentflow.jobs.preflight import Topic, dead_letters_refused, records_refused
from extentflow.ledger import ConnectorState
from extentflow.queue import Queue
from extentflow.sink import ClientSettings, Progress
from extentflow.sink.layout import explain
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queues

CLOCK_SKEW_SECONDS = 5.0
INCOMPLETE = 1
OFFSETS_RETENTION = "offsets.retention.minutes"
DEFAULT_RETENTION_MINUTES = "10080"
MINUTES_OF_A_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result: `verdict` is ok, warning or problem; `remedy` is empty when ok."""

    check: str
    verdict: str
    fact: str
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(init)
    app.command()(doctor)


def init(*, as_json: AsJson = False) -> None:
    """Create the ledger table and the progress topic where they are missing."""
    runtime = Runtime.from_environment()
    existed = runtime.ledger.exists()
    runtime.ledger.create_table()
    runtime.require_app()
    runtime.broker.ensure_progress_topic()
    if as_json:
        output.print_json(
            {
                "table": runtime.settings.ledger_table,
                "created": not existed,
                "ledger": runtime.ledger.id,
                "cluster": runtime.broker.cluster,
            }
        )
        return
    what = "is there already" if existed else "created"
    output.out.print(
        f"ledger table {runtime.settings.ledger_table} {what} (id {runtime.ledger.id}); "
        f"progress topic is there on Kafka cluster {runtime.broker.cluster}",
        highlight=False,
    )


def doctor(
    *,
    connector: Annotated[
        str | None, typer.Option("--connector", "-c", help="Check this one's objects and topics.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check credentials, table, clock, broker, transactions, topics, buckets; say what to do."""
    findings = list(_examine(Runtime.from_environment(), connector))
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    else:
        show(findings, terminal=output.out.is_terminal)
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(INCOMPLETE)


def show(findings: Sequence[Finding], *, terminal: bool) -> None:
    """Print findings: a table where somebody looks, elsewhere a line per check, however long."""
    if terminal:
        rows = [(f.check, f.verdict, f.fact, f.remedy) for f in findings]
        output.print_table(("check", "", "fact", "what to do"), rows)
        return
    for found in findings:
        said = "; ".join(filter(None, (found.fact, found.remedy)))
        line = " ".join(f"{found.check}: {found.verdict}: {said}".split())
        output.out.print(line, highlight=False, markup=False, soft_wrap=True)


def _examine(runtime: Runtime, connector: str | None) -> Iterator[Finding]:
    table = _table(runtime)
    yield table
    if table.verdict != "problem":
        yield _clock(runtime)
    broker = credentials(runtime)
    yield broker
    if broker.verdict == "ok":
        broker = _try("Kafka cluster", lambda: runtime.broker.cluster)
        yield broker
    if broker.verdict == "ok":
        yield _try("progress topic", lambda: _progress_topic(runtime))
        yield _try("transactions", lambda: _transaction(runtime))
        wanted = runtime.settings.sink_enqueue == ARRAYS
        yield Finding("records", "ok", f"exactly once: queued as {explain(wanted=wanted)}")
    if broker.verdict == "ok" and table.verdict != "problem":
        yield slots(runtime)
        yield retention(runtime)
    yield from _queues(runtime)
    if connector is not None and table.verdict != "problem":
        yield from _connector(runtime, connector, broker=broker.verdict == "ok")


def _try(check: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", ask())
    except ExtentflowError as exc:
        return trouble(check, exc)


def trouble(check: str, exc: ExtentflowError) -> Finding:
    """Return an error as a finding; messages say what happened first, then what to do."""
    if isinstance(exc, CredentialsUnavailable):
        remedy = "find out why this machine cannot reach what keeps its secrets and credentials"
        return Finding(check, "problem", str(exc), remedy)
    if isinstance(exc, Retryable):
        return Finding(check, "problem", str(exc), "start it, or correct its address")
    problems = exc.problems if isinstance(exc, Misconfigured) else (str(exc),)
    facts, remedies = zip(*(_halves(problem) for problem in problems), strict=True)
    return Finding(check, "problem", "; ".join(facts), "; ".join(filter(None, remedies)))


def _halves(problem: str) -> tuple[str, str]:
    fact, _, remedy = problem.partition("; ")
    return fact, remedy


def _table(runtime: Runtime) -> Finding:
    try:
        fact, table = (
            f"{runtime.settings.ledger_table}, id {runtime.ledger.id}",
            runtime.ledger.describe(),
        )
        runtime.require_app()
    except ExtentflowError as exc:
        return trouble("ledger table", exc)
    if table.problems:
        return Finding("ledger table", "problem", "; ".join(table.problems), "name another table")
    if table.recovery is False:
        remedy = "switch point-in-time recovery on: the table remembers what was delivered"
        return Finding("ledger table", "warning", fact, remedy)
    return Finding("ledger table", "ok", fact)


def _queues(runtime: Runtime) -> Iterator[Finding]:
    for name, queue in queues(runtime.settings):
        yield _try(name, partial(_waiting, queue))


def _waiting(queue: Queue) -> str:
    return f"{queue.depth().waiting} messages wait"


def _clock(runtime: Runtime) -> Finding:
    skew = time.time() - runtime.ledger.now()
    fact = f"{skew:+.0f} s against the ledger's server"
    if abs(skew) <= CLOCK_SKEW_SECONDS:
        return Finding("clock", "ok", fact)
    remedy = "leases use the server's clock, but signatures need yours: synchronise it (NTP)"
    return Finding("clock", "warning", fact, remedy)


def credentials(runtime: Runtime) -> Finding:
    """Say what brokers are shown, and whether it can be had."""
    return _try("broker credentials", runtime.broker.proof)


def _progress_topic(runtime: Runtime) -> str:
    runtime.broker.ensure_progress_topic()
    return "is there"


def _transaction(runtime: Runtime) -> str:
    """Commit one empty transaction under a throw-away identity."""
    started = time.monotonic()
    identity = f"{runtime.settings.app_id}.doctor-{uuid4().hex[:8]}"
    fence = runtime.broker.fence(identity, ClientSettings())
    try:
        fence.mark(Progress(epoch=1))
    finally:
        fence.close()
    return f"committed one in {time.monotonic() - started:.1f} s"


def slots(runtime: Runtime) -> Finding:
    """Count the slots that are in use, and those that were left with an extent."""
    now = runtime.ledger.now()
    taken = [slot for slot in runtime.ledger.slots(runtime.broker.cluster) if slot.owner]
    alive = [slot for slot in taken if slot.until >= now]
    stuck = [slot for slot in taken if slot.until < now and slot.working is not None]
    fact = f"{len(alive)} in use of {runtime.settings.exactly_once_slots}"
    if not stuck:
        return Finding("slots", "ok", fact)
    fact += f", {len(stuck)} left behind with an extent"
    return Finding("slots", "warning", fact, "run the jobs again; the next worker takes them over")


def retention(runtime: Runtime) -> Finding:
    """Compare how long Kafka remembers progress with how long ago the oldest extent was left."""
    check = "offset retention"
    try:
        minutes = int(runtime.broker.config().get(OFFSETS_RETENTION, DEFAULT_RETENTION_MINUTES))
    except ExtentflowError as exc:
        remedy = "allow DescribeConfigs on the cluster to see it; nothing else needs that"
        return Finding(check, "warning", str(exc), remedy)
    fact = f"Kafka remembers a slot's progress for {minutes / MINUTES_OF_A_DAY:g} days"
    now = runtime.ledger.now()
    every = runtime.ledger.slots(runtime.broker.cluster)
    age = now - min((slot.until for slot in every if slot.working is not None), default=now)
    if age < minutes * 60 / 2:
        return Finding(check, "ok", fact)
    fact += f", and an extent was left {age / MINUTES_OF_A_DAY / 60:.1f} days ago"
    if age < minutes * 60:
        return Finding(check, "warning", fact, "run its job again before Kafka forgets")
    remedy = "run its job again; where progress is unknown, decide about --accept-duplicates"
    return Finding(check, "problem", fact, remedy)


def _connector(runtime: Runtime, name: str, *, broker: bool) -> Iterator[Finding]:
    try:
        config, revision = runtime.connectors.latest(name)
    except Misconfigured as exc:
        yield trouble("connector", exc)
        return
    state = runtime.ledger.connector_state(name)
    fact = f"{name}, revision {revision}"
    if state is ConnectorState.RUNNING:
        yield Finding("connector", "ok", fact)
    else:
        yield Finding("connector", "warning", f"{fact}, {state}", f"`extentflow resume {name}`")
    yield _try("objects", lambda: _first_object(runtime, config, revision))
    if not broker:
        return
    yield from topics(runtime, config)


def _first_object(runtime: Runtime, config: ConnectorConfig, revision: int) -> str:
    store = runtime.objects.store(config, revision)
    first = next(iter(store.list(config.bucket, config.prefix)), None)
    if first is None:
        return f"the bucket {config.bucket} can be listed; nothing is below {config.prefix!r}"
    version = store.head(first.bucket, first.key)
    if version.size:
        store.read(version, 0, 1)
    versioned = "versioned" if version.version_id else "unversioned: replaced objects supersede"
    return f"{version.uri} can be read; the bucket is {versioned}"


def topics(runtime: Runtime, config: ConnectorConfig) -> Iterator[Finding]:
    """Yield what there is to say of a connector's topics, as far as they are known by name."""
    if "{" not in config.topic:
        yield _topic(runtime, "topic", config.topic, lambda topic: records_refused(config, topic))
    queue = config.dead_letter_topic
    if queue is not None:
        yield _topic(runtime, "dead letter topic", queue, dead_letters_refused)


def _topic(
    runtime: Runtime, check: str, name: str, refused: Callable[[Topic], str | None]
) -> Finding:
    try:
        facts = runtime.topic(name)
        if problem := refused(facts):
            raise Misconfigured(problem)
    except ExtentflowError as exc:
        return trouble(check, exc)
    limit = output.size(facts.max_message_bytes)
    fact = f"{name}: {facts.partitions} partitions, records up to {limit}"
    if not facts.compacted:
        return Finding(check, "ok", fact)
    remedy = "only the last record of each key stays; where all count, set cleanup.policy=delete"
    return Finding(check, "warning", f"{fact}, compacted", remedy)
