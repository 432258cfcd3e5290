"""The commands `up`, `down`, `stack` and `serve`, which extend the main command line."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from extentflow.cli import output
from extentflow_local.errors import ServiceFailed
from extentflow_local.serve import queues_of, serve
from extentflow_local.settings import LocalSettings

if TYPE_CHECKING:
    from extentflow_local.stack import Stack

app = typer.Typer(no_args_is_help=True)

_Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVICE", help="kafka, s3, dynamodb, sqs, aws; by default all."),
]
_Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Root directory; data goes to var/ below it. Default: here."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


_KAFKA_PORT = typer.Option(min=1, max=65_535, help="Kafka's port; takes the next one too.")
_S3_PORT = typer.Option(min=1, max=65_535, help="The S3 server's port; takes the next seven too.")
_DYNAMODB_PORT = typer.Option(min=1, max=65_535, help="DynamoDB's port.")
_SQS_PORT = typer.Option(min=1, max=65_535, help="The SQS server's port.")
_AWS_PORT = typer.Option(min=1, max=65_535, help="The port of Secrets Manager and EventBridge.")


@app.command()
def up(
    names: _Names = None,
    *,
    directory: _Directory = None,
    kafka_port: Annotated[int | None, _KAFKA_PORT] = None,
    s3_port: Annotated[int | None, _S3_PORT] = None,
    dynamodb_port: Annotated[int | None, _DYNAMODB_PORT] = None,
    sqs_port: Annotated[int | None, _SQS_PORT] = None,
    aws_port: Annotated[int | None, _AWS_PORT] = None,
    as_json: _Json = False,
) -> None:
    """Start Kafka and the servers that replace AWS on this machine. Idempotent."""
    asked = {
        "kafka": kafka_port,
        "s3": s3_port,
        "dynamodb": dynamodb_port,
        "sqs": sqs_port,
        "aws": aws_port,
    }
    ports = {name: port for name, port in asked.items() if port is not None}
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    stack = _stack(directory, ports, notes)
    outcomes = stack.up(names or ())
    for name, outcome in outcomes.items():
        notes.print(f"[bold]{name}[/] {outcome} at {stack.endpoint(name)}")
    if as_json:
        _print_json(stack)
    else:
        _print_environment(stack)


@app.command()
def down(names: _Names = None, *, directory: _Directory = None, as_json: _Json = False) -> None:
    """Stop running servers; their data stays."""
    stopped = _stack(directory, {}, Console(stderr=True, soft_wrap=True)).down(names or ())
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo(f"stopped {', '.join(stopped)}" if stopped else _nothing_runs(directory))


@app.command("stack")
def show(
    *,
    directory: _Directory = None,
    as_json: _Json = False,
    env: Annotated[
        bool, typer.Option("--env", help='Only exports, for eval "$(extentflow stack --env)".')
    ] = False,
) -> None:
    """Show the running servers, with the variables for a shell."""
    stack = _stack(directory, {}, Console(stderr=True, soft_wrap=True))
    if as_json:
        _print_json(stack)
    elif env:
        if not stack.environment():
            raise ServiceFailed(_nothing_runs(directory))
        _print_environment(stack)
    else:
        output.out.print(_table(stack), highlight=False)
        _print_environment(stack)


def _nothing_runs(directory: Path | None) -> str:
    """Report that no server runs: a stack belongs to the directory in which it was started."""
    where = (directory or LocalSettings.from_environment().root).resolve()
    return (
        f"no service of the stack runs in {where}; start it there with `extentflow up`, "
        "or name another directory with --dir"
    )


def _stack(directory: Path | None, ports: dict[str, int], notes: Console) -> "Stack":
    from extentflow_local.stack import Stack

    settings = LocalSettings.from_environment()
    if directory is not None:
        settings = replace(settings, root=directory.resolve())
    return Stack(settings.root, ports, settings=settings, notify=notes.print)


def _table(stack: "Stack") -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("service", "state", "endpoint", "pid"):
        table.add_column(heading, no_wrap=True)
    table.add_column("log", overflow="fold")
    for state in stack.state():
        runs = "[green]running[/]" if state.pid else "[dim]stopped[/]"
        pid = str(state.pid or "")
        table.add_row(state.title, runs, state.endpoint or "", pid, str(state.log))
    return table


def _print_environment(stack: "Stack") -> None:
    for name, value in _environment(stack).items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def _print_json(stack: "Stack") -> None:
    typer.echo(json.dumps({**stack.summary(), "environment": _environment(stack)}, indent=2))


def _environment(stack: "Stack") -> dict[str, str]:
    return stack.environment() | queues_of(stack)


app.command()(serve)
