"""`extentflow connectors`: put, list, show, delete, validate.

Owns: these commands. Refuses to know: what a key means; `connectors` does.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson
from extentflow.connectors import ConnectorConfig, load
from extentflow.errors import Misconfigured
from extentflow.ledger import ConnectorState, ConnectorVersion
from extentflow.wiring import Runtime, check_connector, parse_connector

NOTHING_STARTED = 2

app = typer.Typer(help="Declare which objects go to which topic, and how.", no_args_is_help=True)

File = Annotated[
    Path, typer.Argument(help=".properties, .json or .yaml file", exists=True, dir_okay=False)
]
Name = Annotated[str, typer.Argument(help="The connector's name")]


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
    if as_json:
        output.print_json({"valid": True, "problems": [], "name": config.name})
    else:
        output.out.print(f"{file}: connector {config.name} is valid", highlight=False, markup=False)


@app.command()
def put(file: File, *, as_json: AsJson = False) -> None:
    """Store a connector; jobs already planned keep the revision that they began with."""
    raw = load(file)
    config = check_connector(raw)
    ledger = Runtime.from_environment().ledger
    stored = ledger.put_connector(config.name, raw)
    if as_json:
        output.print_json({"name": stored.name, "revision": stored.revision})
    else:
        output.out.print(
            f"connector {stored.name} stored as revision {stored.revision}", highlight=False
        )
    for other in _alike(config, ledger.connectors()):
        output.note(
            f"connector {other.name} reads {_source(other.config)} into the same topic: what both "
            "read is delivered twice"
        )


@app.command("list")
def list_all(*, as_json: AsJson = False) -> None:
    """List the connectors."""
    ledger = Runtime.from_environment().ledger
    found = [(one, ledger.connector_state(one.name)) for one in ledger.connectors()]
    if as_json:
        output.print_json([_plain(version, state) for version, state in found])
        return
    rows = [
        (
            version.name,
            version.revision,
            state,
            version.config.get("topic", ""),
            _source(version.config),
        )
        for version, state in found
    ]
    output.print_table(("connector", "revision", "state", "topic", "reads"), rows)


@app.command()
def show(
    name: Name,
    *,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="Not the latest, but this one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a connector's configuration as it was stored (secrets are references)."""
    ledger = Runtime.from_environment().ledger
    found = ledger.connector(name, revision)
    if found is None:
        raise _unknown(name, revision)
    state = ledger.connector_state(name)
    if as_json:
        output.print_json(_plain(found, state))
        return
    output.out.print(f"# {found.name}, revision {found.revision}, {state}", highlight=False)
    for key, value in sorted(found.config.items()):
        output.out.print(f"{key}={value}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def delete(name: Name, *, as_json: AsJson = False) -> None:
    """Hide a connector from new jobs; what is planned goes on with its own revision."""
    if not Runtime.from_environment().ledger.delete_connector(name):
        raise _unknown(name, None)
    if as_json:
        output.print_json({"name": name, "deleted": True})
    else:
        output.out.print(f"connector {name} deleted", highlight=False)


def _alike(
    config: ConnectorConfig, stored: Iterable[ConnectorVersion]
) -> Iterator[ConnectorVersion]:
    """Yield other connectors that read some of the same objects into the same topic."""
    for one in stored:
        if one.name == config.name:
            continue
        try:
            other = parse_connector(one.config)
        except Misconfigured:  # of an older version of ours; whoever uses it is told
            continue
        nested = other.prefix.startswith(config.prefix) or config.prefix.startswith(other.prefix)
        same = (other.topic, other.bucket, other.endpoint) == (
            config.topic,
            config.bucket,
            config.endpoint,
        )
        if same and nested:
            yield one


def _unknown(name: str, revision: int | None) -> Misconfigured:
    which = f"revision {revision} of connector {name}" if revision else f"connector {name}"
    return Misconfigured(f"there is no {which}; see `extentflow connectors list`")


def _plain(version: ConnectorVersion, state: ConnectorState) -> dict[str, object]:
    return {
        "name": version.name,
        "revision": version.revision,
        "state": state,
        "config": version.config,
    }


def _source(config: Mapping[str, str]) -> str:
    """Return the address that a stored connector reads; revisions of any age are shown."""
    bucket = config.get("aws.s3.bucket.name") or config.get("s3.bucket.name")
    if bucket is None:
        return f"file://{config.get('directory', '')}"
    prefix = config.get("aws.s3.prefix") or config.get("directory") or ""
    return f"s3://{bucket}/{prefix}"
