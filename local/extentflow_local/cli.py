"""The commands `up`, `down`, `stack` and `serve`, which extend the main command line."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from extentflow.cli import output
from extentflow.cli.commands import OnceCommand
from extentflow.errors import Misconfigured
from extentflow_local.aws.serve import serve
from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.settings import DEFAULT_PORTS, LocalSettings, variable

if TYPE_CHECKING:
    from extentflow_local.stack.stack import Stack

app = typer.Typer(no_args_is_help=True)

_SERVICES = "kafka, s3, dynamodb, sqs, aws, registry (of schemas)"
_Names = Annotated[
    list[str] | None, typer.Argument(metavar="SERVICE", help=f"{_SERVICES}; by default all.")
]
_Started = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SERVICE", help=f"{_SERVICES}; by default kafka and s3, and what --aws adds."
    ),
]
_Aws = Annotated[
    bool,
    typer.Option(
        "--aws",
        help="Also what replaces AWS: DynamoDB as the ledger, SQS, Secrets Manager, EventBridge."
        " Default where they ran here before; `serve` starts them itself.",
    ),
]
_Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Root directory; data goes to var/ below it. Default: here."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def _port(service: str, what: str) -> Any:  # noqa: ANN401 - typer's own type
    """Return an option with the variable that gives it for all commands, and its default."""
    usual = f"{variable(service)}, else {DEFAULT_PORTS[service]}"
    return typer.Option(min=1, max=65_535, help=f"{what} Default: {usual}.")


_KAFKA_PORT = _port("kafka", "Kafka's port; takes the next one too.")
_S3_PORT = _port("s3", "The S3 server's port; takes the next seven too.")
_DYNAMODB_PORT = _port("dynamodb", "DynamoDB's port.")
_SQS_PORT = _port("sqs", "The SQS server's port.")
_AWS_PORT = _port("aws", "The port of Secrets Manager and EventBridge.")
_REGISTRY_PORT = _port("registry", "The schema registry's port.")


@app.command(cls=OnceCommand)
def up(
    names: _Started = None,
    *,
    aws: _Aws = False,
    directory: _Directory = None,
    kafka_port: Annotated[int | None, _KAFKA_PORT] = None,
    s3_port: Annotated[int | None, _S3_PORT] = None,
    dynamodb_port: Annotated[int | None, _DYNAMODB_PORT] = None,
    sqs_port: Annotated[int | None, _SQS_PORT] = None,
    aws_port: Annotated[int | None, _AWS_PORT] = None,
    registry_port: Annotated[int | None, _REGISTRY_PORT] = None,
    as_json: _Json = False,
) -> None:
    """Start Kafka and an S3 server on this machine, with SQLite as the ledger. Idempotent.

    Commands in the same folder use them where no setting names a cluster.
    """
    from extentflow_local.stack.stack import AWS, LIGHT

    if names and aws:
        raise Misconfigured("--aws goes without names of services; name dynamodb, sqs, aws")
    asked = {
        "kafka": kafka_port,
        "s3": s3_port,
        "dynamodb": dynamodb_port,
        "sqs": sqs_port,
        "aws": aws_port,
        "registry": registry_port,
    }
    ports = {name: port for name, port in asked.items() if port is not None}
    notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    stack = _stack(directory, ports, notes)
    usual = (*LIGHT, *AWS) if aws or stack.uses_aws else LIGHT
    outcomes = stack.up(names or usual)
    stack.create_ledger()
    for name, outcome in outcomes.items():
        notes.print(f"[bold]{name}[/] {outcome} at {stack.endpoint(name)}")
    for line in _ledger(stack):
        notes.print(line, markup=False)
    if as_json:
        _print_json(stack)
    else:
        _print_environment(stack)


@app.command(cls=OnceCommand)
def down(names: _Names = None, *, directory: _Directory = None, as_json: _Json = False) -> None:
    """Stop running servers; their data stays."""
    stopped = _stack(directory, {}, Console(stderr=True, soft_wrap=True, emoji=False)).down(
        names or ()
    )
    if as_json:
        typer.echo(json.dumps({"stopped": stopped}))
    else:
        typer.echo(f"stopped {', '.join(stopped)}" if stopped else _nothing_runs(directory))


@app.command("stack", cls=OnceCommand)
def show(
    *,
    directory: _Directory = None,
    as_json: _Json = False,
    env: Annotated[
        bool, typer.Option("--env", help='Only exports, for eval "$(extentflow stack --env)".')
    ] = False,
) -> None:
    """Show the running servers, with the variables for a shell."""
    stack = _stack(directory, {}, Console(stderr=True, soft_wrap=True, emoji=False))
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


def _ledger(stack: "Stack") -> Iterator[str]:
    """Yield which ledger commands use, and which one with jobs they do not."""
    from extentflow_local.stack.ledgers import unused_ledger
    from extentflow_local.stack.stack import LEDGER_ENDPOINT

    if LEDGER_ENDPOINT not in stack.environment():
        yield f"ledger {stack.ledger}"
        return
    yield "ledger DynamoDB: `extentflow init` creates its table, once"
    if unused := unused_ledger(stack):
        yield unused


def _stack(directory: Path | None, ports: dict[str, int], notes: Console) -> "Stack":
    from extentflow_local.stack.stack import Stack

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
    from extentflow_local.stack.stack import LEDGER_ENDPOINT, LEDGER_URL

    variables = _environment(stack)
    for name, other in ((LEDGER_URL, LEDGER_ENDPOINT), (LEDGER_ENDPOINT, LEDGER_URL)):
        if name in variables:  # that of an earlier stack would contradict it; "" is not set
            variables.setdefault(other, "")
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def _print_json(stack: "Stack") -> None:
    typer.echo(json.dumps({**stack.summary(), "environment": _environment(stack)}, indent=2))


def _environment(stack: "Stack") -> dict[str, str]:
    from extentflow_local.aws.serve import queues_of

    return stack.environment() | queues_of(stack)


app.command(cls=OnceCommand)(serve)
