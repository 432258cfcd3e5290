"""`extentflow connectors`: put, list, show, delete, validate.

Owns: these commands. Refuses to know: what a key means; `connectors` does.
"""

from pathlib import Path
from typing import Annotated

import typer

from extentflow.cli import output
from extentflow.cli.options import AsJson
from extentflow.connectors import load
from extentflow.errors import Misconfigured
from extentflow.wiring import Site, parse_connector

app = typer.Typer(help="Declare which objects go to which topic, and how.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help=".properties, .json or .yaml file", exists=True)]
Name = Annotated[str, typer.Argument(help="The connector's name")]


@app.command()
def validate(file: File) -> None:
    """Check a connector's file without storing it; all problems are shown at once."""
    config = parse_connector(load(file))
    output.out.print(f"{file}: connector {config.name} is valid", highlight=False)


@app.command()
def put(file: File, as_json: AsJson = False) -> None:  # noqa: FBT002 - an option
    """Store a connector; jobs already planned keep the revision that they began with."""
    raw = load(file)
    config = parse_connector(raw)
    stored = Site.from_environment().ledger.put_connector(config.name, raw)
    if as_json:
        output.print_json({"name": stored.name, "revision": stored.revision})
    else:
        output.out.print(
            f"connector {stored.name} stored as revision {stored.revision}", highlight=False
        )


@app.command("list")
def list_all(as_json: AsJson = False) -> None:  # noqa: FBT002 - an option
    """List the connectors."""
    found = list(Site.from_environment().ledger.connectors())
    if as_json:
        output.print_json(
            [_plain(version.name, version.revision, version.config) for version in found]
        )
        return
    rows = [
        (version.name, version.revision, version.config.get("topic", ""), _source(version.config))
        for version in found
    ]
    output.print_table(("connector", "revision", "topic", "reads"), rows)


@app.command()
def show(name: Name, revision: int | None = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show a connector's configuration as it was stored (secrets are references)."""
    found = Site.from_environment().ledger.connector(name, revision)
    if found is None:
        raise _unknown(name, revision)
    if as_json:
        output.print_json(_plain(found.name, found.revision, found.config))
        return
    output.out.print(f"# {found.name}, revision {found.revision}", highlight=False)
    for key, value in sorted(found.config.items()):
        output.out.print(f"{key}={value}", highlight=False, markup=False)


@app.command()
def delete(name: Name) -> None:
    """Hide a connector from new jobs; what is planned goes on with its own revision."""
    if not Site.from_environment().ledger.delete_connector(name):
        raise _unknown(name, None)
    output.out.print(f"connector {name} deleted", highlight=False)


def _unknown(name: str, revision: int | None) -> Misconfigured:
    which = f"revision {revision} of connector {name}" if revision else f"connector {name}"
    return Misconfigured(f"there is no {which}; see `extentflow connectors list`")


def _plain(name: str, revision: int, config: object) -> dict[str, object]:
    return {"name": name, "revision": revision, "config": config}


def _source(config: object) -> str:
    assert isinstance(config, dict)  # noqa: S101 - narrows a Mapping for display
    bucket = config.get("aws.s3.bucket.name") or config.get("s3.bucket.name")
    return (
        f"s3://{bucket}/{config.get('aws.s3.prefix', '')}"
        if bucket
        else config.get("directory", "")
    )
