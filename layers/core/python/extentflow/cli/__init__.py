"""The command line `extentflow`: parses arguments, calls a service, renders what it returns.

What commands do is the responsibility of `extentflow.services`. `commands` lists them. A command's
module declares arguments and options; its functions import the services that they call, so that
help and completion of shells import none.

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
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option
from typer.exceptions import TyperException

from extentflow import __version__
from extentflow.cli import output
from extentflow.cli.commands import COMMANDS, CommandLine, starting_local_stack
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, NOTHING_STARTED, STOPPED, AsJson
from extentflow.errors import ExtentflowError, Misconfigured, Permanent, Retryable

if TYPE_CHECKING:
    from extentflow.services.health import Finding

__all__ = ["INCOMPLETE", "NOTHING_STARTED", "STOPPED", "app", "main", "run_alone"]

DEBUG = "--debug"
NO_BROKERS = "bootstrap.servers: missing"
# In what a ledger reports that does not exist.
INIT = "`extentflow init` creates it"
# The commands of the application take it over.
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Connector = Annotated[
    str | None, Option("--connector", "-c", help="Check this one's objects and topics.")
]
Deployed = Annotated[
    str | None,
    Option(
        "--deployed",
        metavar="STAGE",
        help="Check this stage in AWS instead: stack, queues, functions, alarms, last errors.",
    ),
]


@expand_options
def init(*, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Create the ledger and the progress topic where they are missing."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_initialisation

    found = open_initialisation(open_runtime(servers)).run()
    facts = (
        f"ledger {found.url} {'created' if found.created else 'exists'} (id "
        f"{found.ledger}); progress topic exists on Kafka cluster {found.cluster}"
    )
    warnings = (f"warning: {warning}" for warning in found.warnings)
    output.show(asdict(found), "\n".join((facts, *warnings)), as_json=as_json)


@expand_options
def doctor(
    *,
    connector: Connector = None,
    deployed: Deployed = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Check credentials, ledger, clock, broker, transactions, topics, buckets; say what to do."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_health
    from extentflow.services.deployed import DeployedStage

    if deployed is not None:
        findings = list(DeployedStage(deployed).examine())
    else:
        findings = list(open_health(open_runtime(servers)).examine(connector))
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    else:
        show_findings(findings, terminal=output.out.is_terminal)
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(INCOMPLETE)


def show_findings(findings: "Sequence[Finding]", *, terminal: bool) -> None:
    """Print findings: as a table on a terminal, elsewhere one line per check."""
    if terminal:
        rows = [(f.check, f.verdict, f.fact, f.remedy) for f in findings]
        output.print_table(("check", "", "fact", "what to do"), rows)
        return
    for found in findings:
        text = "; ".join(filter(None, (found.fact, found.remedy)))
        output.say(" ".join(f"{found.check}: {found.verdict}: {text}".split()))


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
    alone.command(context_settings=HELP)(command)
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
            named = next((word for word in given if word in COMMANDS), "")
            command = context.command_path if context else f"extentflow {named}".rstrip()
            output.complain(f"{message.rstrip('.')}; `{command} --help` shows the usage")
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
    if isinstance(exc, Retryable) and any(host in str(exc) for host in LOOPBACK):
        output.note(
            f"that server is on this machine; {starting_local_stack()} starts the local stack"
        )
    return NOTHING_STARTED if isinstance(exc, (Misconfigured, Permanent)) else INCOMPLETE
