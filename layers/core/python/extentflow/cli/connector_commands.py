"""`extentflow connectors`, `pause`, `resume` and `stop`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.commands import OnceCommand
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import NOTHING_STARTED, AsJson
from extentflow.errors import Misconfigured

if TYPE_CHECKING:
    from extentflow.services.connectors import Connector, ConnectorChange, Connectors

app = typer.Typer(help="Declare which objects go to which topic, and how.", no_args_is_help=True)

Files = Annotated[
    list[Path],
    Argument(help=".properties, .json or .yaml; - is the standard input, .properties or JSON."),
]
Name = Annotated[str, Argument(help="The connector's name.")]
Every = Annotated[
    bool,
    Option("--all", help="Also those that `run --topic` made without --save, and deleted ones."),
]
Revision = Annotated[int | None, Option("--revision", min=1, help="This revision, not the latest.")]

NOT_STORED = "not stored (`extentflow run --topic` made it, or it was deleted)"


@app.command(cls=OnceCommand)
def validate(files: Files, *, as_json: AsJson = False) -> None:
    """Check connectors' files without storing them; all problems are shown at once."""
    try:
        checked = _checked(files)
    except Misconfigured as exc:
        if not as_json:
            raise
        output.print_json({"valid": False, "problems": exc.problems})
        raise typer.Exit(NOTHING_STARTED) from exc
    names = [config["name"] for config in checked]
    said = [f"{file}: connector {name} is valid" for file, name in zip(files, names, strict=True)]
    facts = {"valid": True, "problems": [], "name": names[0]}
    if len(names) > 1:
        facts = {"valid": True, "problems": [], "names": names}
    output.show(facts, *said, as_json=as_json)


@app.command(cls=OnceCommand)
@expand_options
def put(files: Files, *, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Store connectors, none where one is wrong; jobs already planned keep their revision.

    Storing delivers nothing. Exit code 2 where a bucket does not exist.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_connectors
    from extentflow.wiring.options import absent_here

    checked = _checked(files)  # all of them, before the ledger is reached
    runtime = open_runtime(servers, brokers=False)
    stored = open_connectors(runtime).put_all(checked)
    facts = [{"name": one.name, "revision": one.revision, "state": one.state} for one in stored]
    functions = runtime.settings.arrivals_queue_url is not None
    said = [_describe_stored(one, functions=functions) for one in stored]
    output.show(facts[0] if len(files) == 1 else facts, *said, as_json=as_json)
    for one in stored:
        if lacking := absent_here(one.config):
            output.note(
                f"connector {one.name}: {', '.join(lacking)}: not set here; set the variable where"
                " the connector delivers"
            )
        if one.unchecked:
            output.note(f"connector {one.name}: its objects were not read here: {one.unchecked}")
        for other in one.overlapping:
            output.note(
                f"connector {other.name} reads {other.source} into the same topic: objects that "
                "both read are delivered twice"
            )
        for other in one.earlier:
            output.note(
                f"connector {other.name}, which {other.command} made or which was deleted,"
                " delivered from there into the same topic:"
                f" `extentflow run -c {one.name}` delivers those objects a second time"
            )


def _describe_stored(one: "Connector", *, functions: bool) -> str:
    """Return what was stored, and what delivers it; `functions`: settings name their queue."""
    from extentflow.ledger import ConnectorState

    stored = "unchanged: it stays" if one.unchanged else "stored as"
    said = f"connector {one.name} {stored} revision {one.revision}, {one.state}"
    if one.state is not ConnectorState.ENABLED:
        return f"{said}: nothing is delivered; continue it with `extentflow resume {one.name}`"
    return (
        f"{said}, which delivers nothing by itself: `extentflow run -c {one.name}` delivers what"
        f" is there, `extentflow stream -c {one.name}` also what comes"
        + (", and so do the deployed functions" if functions else "")
    )


def _checked(files: Sequence[Path]) -> list[dict[str, str]]:
    """Return the connectors of files. Raises Misconfigured with the problems of all of them."""
    from extentflow.config.files import load
    from extentflow.wiring import check_connector

    found: list[dict[str, str]] = []
    problems: list[str] = []
    for file in files:
        try:
            config = load(file)
            check_connector(config)
        except Misconfigured as exc:
            several = f"{file}: " if len(files) > 1 else ""
            problems += (
                problem if problem.startswith(str(file)) else f"{several}{problem}"
                for problem in exc.problems
            )
        else:
            found.append(config)
    names = [config["name"] for config in found]
    twice = {name for name in names if names.count(name) > 1}
    problems += (f"connector {name} is in several files; keep one" for name in sorted(twice))
    if problems:
        raise Misconfigured(problems)
    return found


@app.command("list", cls=OnceCommand)
@expand_options
def list_all(*, every: Every = False, servers: ServerOptions, as_json: AsJson = False) -> None:
    """List the connectors, and how many of their jobs are open or in work now.

    ENABLED permits delivery: a job is in work only while a command, a query or a function delivers.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.services.connectors import Connectors
    from extentflow.wiring.environments import other_ledger

    runtime = open_runtime(servers, creates=False, brokers=False)
    known = Connectors(runtime.ledger).list(every=True)
    found = [one for one in known if one.stored or every]
    if not known and (elsewhere := other_ledger(runtime.ledger_address)):
        output.note(elsewhere)
    if as_json:
        output.print_json([_facts(one) for one in found])
        return
    show_connectors(found, left_out=len(known) - len(found))


@app.command(cls=OnceCommand)
@expand_options
def show(
    name: Name, *, revision: Revision = None, servers: ServerOptions, as_json: AsJson = False
) -> None:
    """Show a connector's configuration as it was stored (secrets are references)."""
    found = _connectors(servers, creates=False).get(name, revision, every=True)
    stored = "" if found.stored else f", {NOT_STORED}"
    lines = [f"# {found.name}, revision {found.revision}, {found.state}{stored}", f"# {now(found)}"]
    lines += [f"{key}={output.printable(value)}" for key, value in sorted(found.config.items())]
    output.show(_facts(found), *lines, as_json=as_json)


def _facts(found: "Connector") -> dict[str, object]:
    return {
        "name": found.name,
        "revision": found.revision,
        "state": found.state,
        "config": found.config,
        "stored": found.stored,
        "open_jobs": found.open_jobs,
        "jobs_in_work": found.jobs_in_work,
    }


@app.command(cls=OnceCommand)
@expand_options
def delete(name: Name, *, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Hide a connector from new jobs; planned jobs continue with their own revision."""
    _connectors(servers).delete(name)
    output.show({"name": name, "deleted": True}, f"connector {name} deleted", as_json=as_json)


@expand_options
def pause(connector: Name, *, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Pause a connector: no new extents start; messages stay queued."""
    _show_change(_connectors(servers).pause(connector), as_json=as_json)


@expand_options
def resume(connector: Name, *, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Continue a paused or stopped connector; jobs that `stop` cancelled stay cancelled."""
    from extentflow.services.connectors import COUNTED_JOBS

    change = _connectors(servers).resume(connector)
    _show_change(change, as_json=as_json)
    if change.cancelled_before:
        many = output.counted(change.cancelled_before, "job")
        many += " or more" if change.cancelled_before == COUNTED_JOBS else ""
        output.note(
            f"{many} of it CANCELLED before: `extentflow status -c {connector} --state CANCELLED` "
            f"shows them, `extentflow replay -c {connector}` delivers the rest of all, FAILED ones "
            f"included; {_after_change(connector)}"
        )


@expand_options
def stop(connector: Name, *, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Cancel a connector's open jobs; committed records stay, new objects are ignored."""
    # Many jobs take a while.
    began = partial(output.note, f"cancelling the open jobs of connector {connector}")
    change = _connectors(servers).stop(connector, began)
    _show_change(change, as_json=as_json, cancelled=change.cancelled)
    if not as_json:  # the JSON document names them
        output.say(f"{output.counted(len(change.cancelled), 'open job')} cancelled")
        if change.cancelled:
            output.note(
                f"after `extentflow resume {connector}`, `extentflow replay -c {connector}`"
                f" delivers the rest; {_after_change(connector)}"
            )


def show_connectors(found: "Sequence[Connector]", *, left_out: int = 0) -> None:
    """Print connectors as a table; `left_out` counts those that are not stored."""
    heads = ["connector", "revision", "state", "now", "topic", "reads"]
    rows = [[one.name, one.revision, one.state, now(one), one.topic, one.source] for one in found]
    if not all(one.stored for one in found):
        heads.insert(2, "stored")
        for row, one in zip(rows, found, strict=True):
            row.insert(2, "yes" if one.stored else "no")
    output.print_table(heads, rows)
    if left_out:
        output.note(
            f"{output.counted(left_out, 'connector')} not stored, which `extentflow run --topic`"
            " made or which were deleted: `extentflow connectors list --all` shows them, too"
        )


def now(one: "Connector") -> str:
    """Return whether a connector is delivered now, as far as the ledger records it."""
    if not one.open_jobs:
        return "no open job"
    working = f"{one.jobs_in_work:,} in work" if one.jobs_in_work else "no extent in work now"
    return f"{output.counted(one.open_jobs, 'open job')}, {working}"


def _after_change(connector: str) -> str:
    return (
        f"after a change of the connector, `extentflow run -c {connector} --failed` delivers these"
        " objects in full"
    )


def _connectors(servers: ServerOptions, *, creates: bool = True) -> "Connectors":
    from extentflow.cli.opening import open_runtime
    from extentflow.services.connectors import Connectors

    return Connectors(open_runtime(servers, creates=creates, brokers=False).ledger)


def _show_change(change: "ConnectorChange", *, as_json: bool, **more: object) -> None:
    said = f"connector {change.name} is {change.state}"
    if change.deleted:
        said += f"; it is {NOT_STORED}: its jobs and later runs under this name are concerned"
    output.show({"name": change.name, "state": change.state, **more}, said, as_json=as_json)
