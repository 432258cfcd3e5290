"""The command line `extentflow`.

Owns: the application, exit codes, what an error looks like. Refuses to know: what commands do;
each group of commands is a module beside this one.

Exit codes: 0 everything is DONE; 1 some job is not; 2 nothing was started, because something is
missing or wrong; 130 stopped by a signal.
"""

import logging
import sys
from importlib.metadata import entry_points
from typing import Annotated

import click
import typer

from extentflow import __version__
from extentflow.cli import catalogue, doctor, output, runs, status
from extentflow.errors import ExtentflowError, Misconfigured, Permanent

NOTHING_STARTED = 2
INCOMPLETE = 1
STOPPED = 130

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
status.add_to(app)
doctor.add_to(app)


def _version(*, asked: bool) -> None:
    if asked:
        output.out.print(f"extentflow {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _global(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show traces and debug messages.")] = False,
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
    level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def main() -> None:
    """Run the command line and exit with its code."""
    for package in entry_points(group="extentflow.commands"):
        app.registered_commands += package.load().registered_commands
    sys.exit(run_command_line(app))


def run_command_line(application: typer.Typer) -> int:
    """Run an application and return its exit code; the only place that catches everything."""
    try:
        code = application(standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        code = exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = STOPPED
    except ExtentflowError as exc:
        code = _report(exc)
    except Exception as exc:
        if _debugging():
            raise
        output.complain(f"unexpected {type(exc).__name__}: {exc}; --debug shows where")
        code = INCOMPLETE
    return code if isinstance(code, int) else 0


def _report(exc: ExtentflowError) -> int:
    if _debugging():
        raise exc
    for problem in exc.problems if isinstance(exc, Misconfigured) else [str(exc)]:
        output.complain(problem)
    return NOTHING_STARTED if isinstance(exc, (Misconfigured, Permanent)) else INCOMPLETE


def _debugging() -> bool:
    return "--debug" in sys.argv[1:]
