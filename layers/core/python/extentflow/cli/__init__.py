"""The command line `extentflow`: parses arguments, calls a service, renders what it returns.

What commands do is the responsibility of `extentflow.services`.

    commands          the list of all commands, and the module that declares each
    <topic>_commands  arguments and options of commands; their functions import the services that
                      they call, so that help and completion of shells import none
    <topic>_reports   what commands print about a result: texts and tables
    other names       what several commands share: options, output, exit codes, progress

Exit codes:

    0     every job is DONE
    1     some job is not, or a service is unavailable
    2     nothing was started, because something is missing or wrong
    130   stopped by a signal
"""

import io
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.exceptions import TyperException

from extentflow import __version__
from extentflow.cli import output
from extentflow.cli.commands import COMMANDS, CommandLine, OnceCommand, starting_local_stack
from extentflow.cli.output import INCOMPLETE, NOTHING_STARTED, STOPPED
from extentflow.errors import ExtentflowError, Misconfigured, Permanent, Retryable
from extentflow.wording import nearest, plain

if TYPE_CHECKING:
    from typer._click import Command

__all__ = ["INCOMPLETE", "NOTHING_STARTED", "STOPPED", "app", "main", "run_alone"]

DEBUG = "--debug"
NO_BROKERS = "bootstrap.servers: missing"
# In what a ledger reports that does not exist.
INIT = "`extentflow init` creates it"
# The commands of the application take it over.
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
# What other tools call an option, such as kafka-console-consumer.
SAME_OPTIONS = {
    ("--count", "--head", "--lines", "--max-messages", "--num", "--records", "--rows"): "--limit",
    ("--broker", "--brokers", "--kafka"): "--bootstrap-servers",
}
# What clients of Kafka, PostgreSQL and AWS say, in lower case, where no server has the port.
NOT_LISTENING = ("connection refused", "could not connect to the endpoint")

app = typer.Typer(
    name="extentflow",
    cls=CommandLine,
    help="Streams S3 objects of any size into Kafka, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)


def _show_version(asked: object) -> None:
    if asked:
        output.out.print(f"extentflow {__version__}", highlight=False)
        raise typer.Exit


Debug = Annotated[bool, Option(DEBUG, help="Show traces and debug messages; allowed anywhere.")]
Version = Annotated[
    bool, Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
]


@app.callback()
def _global(*, _debug: Debug = False, _version: Version = False) -> None:
    """Declare the options of all commands; `run_command_line` removes --debug before parsing."""


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # Escape characters that the encoding lacks, instead of failing on a key. A test or a
        # caller may have replaced a stream by one that cannot be reconfigured.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run_command_line(app))


def run_alone(command: Callable[..., None]) -> None:
    """Run a command without its name, for spark-submit, and exit."""
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(cls=OnceCommand, context_settings=HELP)(command)
    sys.exit(run_command_line(alone))


def run_command_line(application: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run an application and return its exit code; the only place that catches every exception.

    `arguments` default to those of the process; --debug is allowed anywhere among them.
    """
    # Removed before parsing, because an option of typer's callback must precede the command.
    given = sys.argv[1:] if arguments is None else arguments
    debug = DEBUG in given
    output.show_logs(debug=debug)
    try:
        code = application([word for word in given if word != DEBUG], standalone_mode=False)
    except TyperException as exc:
        message, context = exc.format_message(), getattr(exc, "ctx", None)
        if context is not None and message == context.get_help():  # a group without its command
            output.say(message)
        else:
            # Without a context where an option lacks its value.
            unknown = getattr(exc, "option_name", "") if hasattr(exc, "possibilities") else ""
            if context is not None and unknown:
                message = _unknown_option(unknown, context.command)
            named = next((word for word in given if word in COMMANDS), "")
            command = context.command_path if context else f"extentflow {named}".rstrip()
            end = "" if message.endswith("?") else ";"
            output.complain(f"{message.rstrip('.')}{end} `{command} --help` shows the usage")
        code = NOTHING_STARTED
    except (typer.Abort, KeyboardInterrupt):
        code = STOPPED
    except Exception as exc:  # noqa: BLE001 - the outermost frame: one line, not a trace
        if debug:
            traceback.print_exc()
        code = _reported(exc)
    return code if isinstance(code, int) else 0


def _unknown_option(option: str, command: "Command") -> str:
    """Return the message about an option that a command lacks, with the one that is meant."""
    there = [name for one in command.params for name in one.opts if name.startswith("-")]
    same = [name for names, name in SAME_OPTIONS.items() if option in names and name in there]
    hint = f"did you mean {same[0]}?" if same else nearest(option, there, otherwise="")
    return "; ".join(filter(None, (f"No such option: {plain(option)}", hint)))


def _reported(exc: Exception) -> int:
    if not isinstance(exc, ExtentflowError):
        output.complain(f"unexpected {type(exc).__name__}: {exc}; {DEBUG} shows where")
        return INCOMPLETE
    problems = exc.problems if isinstance(exc, Misconfigured) else [str(exc)]
    for problem in problems:
        output.complain(problem)
    if any(problem.startswith(NO_BROKERS) for problem in problems):
        output.note(
            f"{starting_local_stack()} starts brokers on this machine; commands in the same folder"
            " then use them and their ledger"
        )
    if any(INIT in problem for problem in problems):
        # Not before: it imports the ledger's client.
        from extentflow.wiring.environments import other_ledger

        if elsewhere := other_ledger():
            output.note(elsewhere)
    if isinstance(exc, Retryable) and any(map(_lacks_local_server, problems)):
        output.note(
            f"that server is on this machine; {starting_local_stack()} starts the local stack"
        )
    return NOTHING_STARTED if isinstance(exc, (Misconfigured, Permanent)) else INCOMPLETE


def _lacks_local_server(problem: str) -> bool:
    """Return whether nothing listens at an address of this machine; a server may also refuse."""
    said = problem.lower()
    return any(host in said for host in LOOPBACK) and any(one in said for one in NOT_LISTENING)
