"""`extentflow connectors`, `pause`, `resume` and `stop`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.opened import open_runtime
from extentflow.cli.output import NOTHING_STARTED, AsJson
from extentflow.config.files import load
from extentflow.errors import Misconfigured
from extentflow.services.connectors import COUNTED_JOBS, ConnectorChange, Connectors
from extentflow.wiring import check_connector
from extentflow.wiring.environments import other_ledger

app = typer.Typer(help="Declare which objects go to which topic, and how.", no_args_is_help=True)

File = Annotated[Path, Argument(help=".properties, .json or .yaml", exists=True, dir_okay=False)]
Name = Annotated[str, Argument(help="The connector's name.")]
Revision = Annotated[int | None, Option("--revision", min=1, help="This revision, not the latest.")]


@app.command()
def validate(file: File, *, as_json: AsJson = False) -> None:
    """Check a connector's file without storing it; all problems are shown at once."""
    try:
        config = check_connector(load(file))
    except Misconfigured as exc:
        if not as_json:
            raise
        output.print_json({"valid": False, "problems": exc.problems})
        raise typer.Exit(NOTHING_STARTED) from exc
    facts = {"valid": True, "problems": [], "name": config.name}
    output.show(facts, f"{file}: connector {config.name} is valid", as_json=as_json)


@app.command()
def put(file: File, *, as_json: AsJson = False) -> None:
    """Store a connector; jobs already planned keep their revision."""
    config = load(file)
    check_connector(config)  # before the ledger is reached
    stored = _connectors().put(config)
    facts = {"name": stored.name, "revision": stored.revision}
    said = f"connector {stored.name} stored as revision {stored.revision}"
    output.show(facts, said, as_json=as_json)
    for other in stored.overlapping:
        output.note(
            f"connector {other.name} reads {other.source} into the same topic: objects that both "
            "read are delivered twice"
        )


@app.command("list")
def list_all(*, as_json: AsJson = False) -> None:
    """List the connectors."""
    runtime = open_runtime(creates=False)
    found = Connectors(runtime.ledger).list()
    if not found and (elsewhere := other_ledger(runtime.ledger_address)):
        output.note(elsewhere)
    if as_json:
        output.print_json([asdict(one) for one in found])
        return
    rows = [(one.name, one.revision, one.state, one.topic, one.source) for one in found]
    output.print_table(("connector", "revision", "state", "topic", "reads"), rows)


@app.command()
def show(name: Name, *, revision: Revision = None, as_json: AsJson = False) -> None:
    """Show a connector's configuration as it was stored (secrets are references)."""
    found = _connectors(creates=False).get(name, revision)
    lines = [f"# {found.name}, revision {found.revision}, {found.state}"]
    lines += [f"{key}={value}" for key, value in sorted(found.config.items())]
    output.show(asdict(found), *lines, as_json=as_json)


@app.command()
def delete(name: Name, *, as_json: AsJson = False) -> None:
    """Hide a connector from new jobs; planned jobs continue with their own revision."""
    _connectors().delete(name)
    output.show({"name": name, "deleted": True}, f"connector {name} deleted", as_json=as_json)


def pause(connector: Name, *, as_json: AsJson = False) -> None:
    """Pause a connector: no new extents start; messages stay queued."""
    _show_change(_connectors().pause(connector), as_json=as_json)


def resume(connector: Name, *, as_json: AsJson = False) -> None:
    """Continue a paused or stopped connector; jobs that `stop` cancelled stay cancelled."""
    change = _connectors().resume(connector)
    _show_change(change, as_json=as_json)
    if change.cancelled_before:
        many = output.counted(change.cancelled_before, "job")
        many += " or more" if change.cancelled_before == COUNTED_JOBS else ""
        output.note(
            f"{many} of it CANCELLED before: `extentflow status -c {connector} --state CANCELLED` "
            f"shows them, `extentflow replay JOB` delivers the rest of one, `extentflow replay "
            f"-c {connector}` the rest of all, FAILED ones included"
        )


def stop(connector: Name, *, as_json: AsJson = False) -> None:
    """Cancel a connector's open jobs; committed records stay, new objects are ignored."""
    change = _connectors().stop(connector)
    _show_change(change, as_json=as_json, cancelled=change.cancelled)
    if not as_json:  # the JSON document names them
        output.say(f"{output.counted(len(change.cancelled), 'open job')} cancelled")


def _connectors(*, creates: bool = True) -> Connectors:
    return Connectors(open_runtime(creates=creates).ledger)


def _show_change(change: ConnectorChange, *, as_json: bool, **more: object) -> None:
    said = f"connector {change.name} is {change.state}"
    if change.deleted:
        said += "; it is deleted: only jobs that it planned before are concerned"
    output.show({"name": change.name, "state": change.state, **more}, said, as_json=as_json)
