"""The command line `extentflow`: parses arguments, calls a service, renders what it returns.

What commands do is the responsibility of `extentflow.services`.

Exit codes: 0 every job is DONE; 1 some job is not, or a service is unavailable; 2 nothing was
started, because something is missing or wrong; 130 stopped by a signal.
"""

import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer
from typer.exceptions import TyperException

from extentflow import __version__
from extentflow.cli import connectors, health, jobs, output, runs, streamed
from extentflow.cli.output import INCOMPLETE, NOTHING_STARTED, STOPPED
from extentflow.errors import ExtentflowError, Misconfigured, Permanent, Retryable

__all__ = ["INCOMPLETE", "NOTHING_STARTED", "STOPPED", "app", "main", "run_alone"]

DEBUG = "--debug"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

app = typer.Typer(
    name="extentflow",
    help="Streams S3 objects of any size into Kafka, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(connectors.app, name="connectors")
_COMMANDS = (
    *(connectors.pause, connectors.resume, connectors.stop, runs.plan, runs.run, runs.replay),
    *(streamed.stream, jobs.status, jobs.submit, health.init, health.doctor),
)
for _command in _COMMANDS:
    app.command()(_command)


def _version(*, asked: bool) -> None:
    if asked:
        output.out.print(f"extentflow {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _global(
    *,
    _debug: Annotated[
        bool, typer.Option(DEBUG, help="Show traces and debug messages; allowed anywhere.")
    ] = False,
    _asked: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version.",
            callback=lambda asked: _version(asked=asked),
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Declare the options of all commands; `run_command_line` removes --debug before parsing."""


def main() -> None:
    """Run the command line and exit with its code."""
    output.show_everything()
    for package in entry_points(group="extentflow.commands"):
        app.registered_commands += package.load().registered_commands
    sys.exit(run_command_line(app))


def run_alone(command: Callable[..., None]) -> None:
    """Run a command without its name, for spark-submit, and exit."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command()(command)
    sys.exit(run_command_line(alone))


def run_command_line(application: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run an application and return its exit code; the only place that catches every exception.

    `arguments` default to those of the process; --debug is allowed anywhere among them.
    """
    # Removed before parsing, because an option of typer's callback must precede the command.
    given = sys.argv[1:] if arguments is None else arguments
    debug = DEBUG in given
    output.show_logs(debug=debug)
    output.widen_help()
    try:
        code = application([word for word in given if word != DEBUG], standalone_mode=False)
    except TyperException as exc:
        message = exc.format_message().rstrip(".")
        if message:  # a request for help has none
            context = getattr(exc, "ctx", None)
            command = "extentflow" if context is None else context.command_path
            output.complain(f"{message}; `{command} --help` shows the usage")
        code = NOTHING_STARTED
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except Exception as exc:  # noqa: BLE001 - the outermost frame: one line, not a trace
        if debug:
            traceback.print_exc()
        code = _reported(exc)
    return code if isinstance(code, int) else 0


def _reported(exc: Exception) -> int:
    if not isinstance(exc, ExtentflowError):
        output.complain(f"unexpected {type(exc).__name__}: {exc}; {DEBUG} shows where")
        return INCOMPLETE
    for problem in exc.problems if isinstance(exc, Misconfigured) else [str(exc)]:
        output.complain(problem)
    if isinstance(exc, Retryable) and any(host in str(exc) for host in LOOPBACK):
        output.note("that server is on this machine; `extentflow up` starts the local stack")
    return NOTHING_STARTED if isinstance(exc, (Misconfigured, Permanent)) else INCOMPLETE
