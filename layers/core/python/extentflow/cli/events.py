"""`extentflow submit`, `pause`, `resume` and `stop`: the event path from the command line.

Owns: these commands. Refuses to know: what the functions make of them.
"""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson
from extentflow.cli.runs import require_reachable, selected, unreachable
from extentflow.config.wording import either, nearest
from extentflow.connectors import ConnectorConfig
from extentflow.connectors.config import AUTO, ENGINES, LAMBDA, SPARK
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import news_of
from extentflow.errors import Misconfigured
from extentflow.jobs.preflight import rests
from extentflow.ledger import ConnectorState
from extentflow.model import JobState, ObjectVersion
from extentflow.queue import Queue
from extentflow.queue.backfill import MOST_ADDRESSES, Backfill
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queue

COUNTED = 1_000

Name = Annotated[str, typer.Argument(help="The connector's name.")]
Addresses = Annotated[
    list[str] | None,
    typer.Argument(help="s3://bucket/key; with --connector also a prefix/ or a glob."),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="With --connector. lambda: announce each object. spark: one run of Spark for all. "
        "auto: Spark for more than spark.threshold.bytes in sum, where spark.application.id is set "
        "here and the connector's engine allows it.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add this module's commands."""
    for command in (submit, pause, resume, stop):
        app.command()(command)


def submit(
    addresses: Addresses = None,
    *,
    connector: Annotated[
        str | None, typer.Option("--connector", "-c", help="Expand prefixes and globs by this one.")
    ] = None,
    event: Annotated[
        Path | None,
        typer.Option(
            "--event", exists=True, dir_okay=False, help="A notification, as it was sent."
        ),
    ] = None,
    engine: Engine = AUTO,
    as_json: AsJson = False,
) -> None:
    """Announce objects to the planner, as a notification would; or give all to one run of Spark."""
    if engine not in ENGINES:
        raise Misconfigured(f"--engine {engine}: write {either(ENGINES)}")
    if engine == SPARK and connector is None:
        raise Misconfigured("--engine spark goes with --connector")
    if (event is None) == (not addresses and connector is None):
        raise Misconfigured("give addresses, or --connector, or a notification with --event")
    runtime = Runtime.from_environment()
    if connector is None:
        named = [_bucket_and_key(address) for address in addresses or ()]
        bodies = _documents(event) if event else [_body(*one) for one in named]
        _send(_arrivals(runtime), bodies, as_json=as_json)
        return
    config, revision = runtime.connectors.latest(connector)
    if engine == SPARK:
        require_reachable(config, addresses)
    arrivals = _arrivals(runtime)
    versions = list(selected(runtime, config, revision, addresses))
    few = len(addresses or ()) <= MOST_ADDRESSES
    if versions and (few or engine == SPARK) and _by_one_run(runtime, config, versions, engine):
        backfill = _backfill(config, addresses or ())
        arrivals.send([json.dumps(backfill.to_message(), separators=(",", ":"))])
        _tell_backfill(backfill, len(versions), as_json=as_json)
    else:
        bodies = [_body(one.bucket, one.key, one.version_id) for one in versions]
        _send(arrivals, bodies, as_json=as_json)
    if resting := rests(runtime.ledger, connector):
        output.note(resting)


def _arrivals(runtime: Runtime) -> Queue:
    try:
        return queue(runtime.settings, "arrivals_queue_url")
    except Misconfigured as exc:
        raise Misconfigured(
            f"{exc}; on this machine `extentflow serve` makes queues, and `extentflow stack --env` "
            "names them. Without queues, `extentflow run` delivers"
        ) from exc


def _send(arrivals: Queue, bodies: Sequence[str], *, as_json: bool) -> None:
    arrivals.send(bodies)
    if as_json:
        output.print_json({"submitted": len(bodies)})
    else:
        output.out.print(f"{len(bodies)} submitted; `extentflow status` shows their jobs")


def _by_one_run(
    runtime: Runtime, config: ConnectorConfig, versions: Sequence[ObjectVersion], engine: str
) -> bool:
    """Whether all objects go to one run of Spark."""
    if engine != AUTO:
        return engine == SPARK
    if (
        runtime.settings.spark_application_id is None
        or config.engine == LAMBDA
        or len(versions) == 1
    ):
        return False
    if unreachable(config):
        return False
    total = sum(version.size for version in versions)
    return config.engine == SPARK or total > runtime.settings.spark_threshold_bytes


def _backfill(config: ConnectorConfig, addresses: Sequence[str]) -> Backfill:
    require_reachable(config, addresses)
    return Backfill(uuid4().hex, config.name, tuple(addresses))


def _tell_backfill(backfill: Backfill, objects: int, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"submitted": objects, "backfill": backfill.id})
        return
    output.out.print(
        f"{output.counted(objects, 'object')} submitted as backfill {backfill.id}, for one run of "
        "Spark; `extentflow status` shows their jobs",
        highlight=False,
    )
    output.note(
        "a stage without Spark puts it into its dead letter queue, with that reason: `extentflow "
        "replay --dlq --dry-run` shows it"
    )


def _documents(event: Path) -> list[str]:
    """Return a notification as a message, when it announces something."""
    document = event.read_text(encoding="utf-8")
    news = news_of(document)
    problems = [str(unreadable) for unreadable in news.unreadable]
    if not problems and not news.arrivals:
        problems = [f"{event} announces no object: {[*news.ignored, *news.tests]}"]
    if problems:
        raise Misconfigured(problems)
    return [document]


def _body(bucket: str, key: str, version_id: str | None = None) -> str:
    arrival = Arrival(bucket, key, Dialect.COMMAND, version_id=version_id)
    return json.dumps(arrival.to_message(), separators=(",", ":"))


def _bucket_and_key(address: str) -> tuple[str, str]:
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in {"s3", "s3a"} or not bucket or not key or key.endswith("/"):
        raise Misconfigured(
            f"{address} is no object's address; write s3://bucket/key, or give --connector to "
            "submit all below a prefix"
        )
    return bucket, key


def pause(connector: Name, *, as_json: AsJson = False) -> None:
    """Let a connector rest: nothing new is claimed, arrivals and extents wait in their queues."""
    _change(connector, ConnectorState.PAUSED, as_json=as_json)


def resume(connector: Name, *, as_json: AsJson = False) -> None:
    """Let a paused or stopped connector go on; jobs that `stop` cancelled stay so."""
    runtime = _change(connector, ConnectorState.RUNNING, as_json=as_json)
    cancelled = sum(1 for _ in islice(runtime.ledger.jobs(connector, JobState.CANCELLED), COUNTED))
    if cancelled:
        many = (
            f"{COUNTED} jobs or more" if cancelled == COUNTED else output.counted(cancelled, "job")
        )
        output.note(
            f"{many} of it CANCELLED before: `extentflow status -c {connector} --state CANCELLED` "
            f"shows which, `extentflow replay JOB` delivers what one has left, `extentflow replay "
            f"-c {connector}` what all and those that FAILED have"
        )


def stop(connector: Name, *, as_json: AsJson = False) -> None:
    """Cancel a connector's open jobs; what is committed stays, new arrivals are left alone."""
    runtime = _want(connector, ConnectorState.STOPPED)
    why = f"connector {connector} was stopped"
    ended = [
        runtime.ledger.end(job.id, JobState.CANCELLED, why)
        for state in (JobState.PLANNING, JobState.RUNNING)
        for job in list(runtime.ledger.jobs(connector, state))
    ]
    cancelled = [job.id for job in ended if job.state is JobState.CANCELLED]
    if as_json:
        state = ConnectorState.STOPPED
        output.print_json({"name": connector, "state": state, "cancelled": cancelled})
        return
    _say(runtime, connector, ConnectorState.STOPPED)
    output.out.print(f"{output.counted(len(cancelled), 'open job')} cancelled", highlight=False)


def _change(connector: str, state: ConnectorState, *, as_json: bool) -> Runtime:
    runtime = _want(connector, state)
    if as_json:
        output.print_json({"name": connector, "state": state})
    else:
        _say(runtime, connector, state)
    return runtime


def _want(connector: str, state: ConnectorState) -> Runtime:
    runtime = Runtime.from_environment()
    if not runtime.ledger.set_connector_state(connector, state):
        near = nearest(
            connector, runtime.ledger.connector_names(), "see `extentflow connectors list`"
        )
        raise Misconfigured(f"there is no connector {connector}; {near}")
    return runtime


def _say(runtime: Runtime, connector: str, state: ConnectorState) -> None:
    deleted = runtime.ledger.connector(connector) is None
    about = "; it is deleted: this is about jobs that it began before" if deleted else ""
    output.out.print(f"connector {connector} is {state}{about}", highlight=False)
