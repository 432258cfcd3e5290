"""The command line `extentflow`.

Owns: the application, exit codes, what an error looks like. Refuses to know: what commands do;
each group of commands is a module beside this one.

Exit codes: 0 everything is DONE; 1 some job is not, or a server does not answer; 2 nothing was
started, because something is missing or wrong; 130 stopped by a signal.
"""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer
from typer.exceptions import TyperException

from extentflow import __version__
from extentflow.cli import catalogue, doctor, events, output, replaying, runs, status
from extentflow.errors import ExtentflowError, Misconfigured, Permanent, Retryable

NOTHING_STARTED = 2
INCOMPLETE = 1
STOPPED = 130
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
app.add_typer(catalogue.app, name="connectors")
runs.add_to(app)
replaying.add_to(app)
status.add_to(app)
doctor.add_to(app)
events.add_to(app)


def _version(*, asked: bool) -> None:
    if asked:
        output.out.print(f"extentflow {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _global(
    *,
    _debug: Annotated[
        bool, typer.Option(DEBUG, help="Show traces and debug messages; may stand anywhere.")
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
    """Declare the options of all commands; `run_command_line` takes --debug out before."""


def main() -> None:
    """Run the command line and exit with its code."""
    output.show_everything()
    for package in entry_points(group="extentflow.commands"):
        app.registered_commands += package.load().registered_commands
    sys.exit(run_command_line(app))


def run_command_line(application: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run an application and return its exit code; the only place that catches everything.

    `arguments` are the process's own unless given; --debug may stand anywhere among them.
    """
    given = sys.argv[1:] if arguments is None else arguments
    debug = DEBUG in given
    output.show_logs(debug=debug)
    output.widen_help()
    try:
        code = application([word for word in given if word != DEBUG], standalone_mode=False)
    except TyperException as exc:
        code = _misspelled(exc)
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except ExtentflowError as exc:
        _trace(debug=debug)
        code = _reported(exc)
    except Exception as exc:  # noqa: BLE001 - whatever it is, people get one line
        _trace(debug=debug)
        output.complain(f"unexpected {type(exc).__name__}: {exc}; {DEBUG} shows where")
        code = INCOMPLETE
    return code if isinstance(code, int) else 0


def _misspelled(exc: TyperException) -> int:
    """Report unknown commands and options; asking for help is not an error to explain."""
    message = exc.format_message().rstrip(".")
    context = getattr(exc, "ctx", None)
    if message:
        command = "extentflow" if context is None else context.command_path
        output.complain(f"{message}; `{command} --help` shows what there is")
    return NOTHING_STARTED


def _reported(exc: ExtentflowError) -> int:
    for problem in exc.problems if isinstance(exc, Misconfigured) else [str(exc)]:
        output.complain(problem)
    if isinstance(exc, Retryable) and any(host in str(exc) for host in LOOPBACK):
        output.note("that server is on this machine; `extentflow up` starts the local stack")
    return NOTHING_STARTED if isinstance(exc, (Misconfigured, Permanent)) else INCOMPLETE


def _trace(*, debug: bool) -> None:
    if debug:
        traceback.print_exc()
