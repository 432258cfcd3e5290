"""The commands by name; the module of one is imported when it is used.

    extentflow --help           lists names and summaries of `COMMANDS`, and imports no command
    extentflow run --help       imports `cli.run_commands`, which declares arguments and options
    extentflow run ...          calls `run`, which imports the services that it needs

So help and shell completion import neither Arrow nor a client of a service.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from extentflow import plugins
from extentflow.cli import output
from extentflow.errors import Misconfigured
from extentflow.plugins import Registry

if TYPE_CHECKING:
    # Typer's own copy of click, which it does not export.
    from typer._click import Command, Context

PACKAGES: Registry[typer.Typer] = Registry(
    plugins.COMMANDS, "command line", is_adapter=lambda found: isinstance(found, typer.Typer)
)
# The entry point of the local stack, which is installed with a checkout only, and its commands.
LOCAL = "local"
CHECKOUT_COMMANDS = frozenset({"up", "down", "stack", "serve"})


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command of the library: a function or a typer application, as `module:name`.

    `summary` is the first paragraph of its help, which the list of commands shows.
    """

    reference: str
    summary: str


COMMANDS = {
    "run": CommandEntry(
        "extentflow.cli.run_commands:run",
        "Deliver objects into Kafka; exit code 0 only when every job is DONE.",
    ),
    "peek": CommandEntry(
        "extentflow.cli.peek_commands:peek",
        "Show an object's columns, the first records as they would be sent, and its extents.",
    ),
    "plan": CommandEntry(
        "extentflow.cli.run_commands:plan",
        "Show which objects there are, their jobs, and how the connector cuts them now.",
    ),
    "status": CommandEntry(
        "extentflow.cli.job_commands:status",
        "Show jobs, newest first; or one job with the map of its extents and its errors.",
    ),
    "replay": CommandEntry(
        "extentflow.cli.run_commands:replay",
        "Deliver the rest of FAILED, CANCELLED and interrupted jobs: of one, or of a connector.",
    ),
    "dismiss": CommandEntry(
        "extentflow.cli.job_commands:dismiss",
        "Close FAILED and CANCELLED jobs whose objects were removed: they become SUPERSEDED.",
    ),
    "dead-letters": CommandEntry(
        "extentflow.cli.dead_letter_commands:dead_letters",
        "Show a connector's dead letters: place, reason, first bytes; with --json as JSON lines.",
    ),
    "replay-dead-letters": CommandEntry(
        "extentflow.cli.dead_letter_commands:replay_dead_letters",
        "Decode a connector's dead letters again, and deliver their records.",
    ),
    "tail": CommandEntry(
        "extentflow.cli.topic_commands:tail",
        "Show the last rows of a topic, one line each, those of columnar values as JSON.",
    ),
    "count": CommandEntry(
        "extentflow.cli.topic_commands:count",
        "Count the rows of a topic; compare them with those of objects (--verify).",
    ),
    "export": CommandEntry(
        "extentflow.cli.export_commands:export",
        "Write the columnar values of a topic into Parquet or Arrow files, each record once.",
    ),
    "connectors": CommandEntry(
        "extentflow.cli.connector_commands:app",
        "Declare which objects go to which topic, and how.",
    ),
    "pause": CommandEntry(
        "extentflow.cli.connector_commands:pause",
        "Pause a connector: no new extents start; messages stay queued.",
    ),
    "resume": CommandEntry(
        "extentflow.cli.connector_commands:resume",
        "Continue a paused or stopped connector; jobs that `stop` cancelled stay cancelled.",
    ),
    "stop": CommandEntry(
        "extentflow.cli.connector_commands:stop",
        "Cancel a connector's open jobs; committed records stay, new objects are ignored.",
    ),
    "init": CommandEntry(
        "extentflow.cli.health_commands:init",
        "Create the ledger and the progress topic where they are missing.",
    ),
    "doctor": CommandEntry(
        "extentflow.cli.health_commands:doctor",
        "Check credentials, ledger, clock, broker, transactions, topics, buckets; say what to do.",
    ),
    "stream": CommandEntry(
        "extentflow.cli.stream_commands:stream",
        "Deliver continuously on Spark; SIGTERM ends it within five seconds.",
    ),
    "lake": CommandEntry(
        "extentflow.cli.lake_commands:lake",
        "Write topics to Parquet files or an Iceberg table on Spark, exactly once.",
    ),
    "receive": CommandEntry(
        "extentflow.cli.receive_commands:receive",
        "Receive notifications of new objects over HTTP; `extentflow stream` delivers the objects.",
    ),
    "submit": CommandEntry(
        "extentflow.cli.job_commands:submit",
        "Announce objects to the planner, as a notification would; or give all to one run of "
        "Spark.",
    ),
    "redrive": CommandEntry(
        "extentflow.cli.job_commands:redrive",
        "Send messages of the dead letter queues to the functions again, or only show them.",
    ),
}

# Spellings of the release before, and the command that each is now: a command, with an option of
# it that is left out. They go with the next release.
FORMER: dict[tuple[str, ...], str] = {
    ("ingest",): "export",
    ("replay", "--dlq"): "redrive",
    ("replay", "--dead-letters"): "replay-dead-letters",
}


def starting_local_stack() -> str:
    """Return the command that starts the local stack, with the way to it where it is missing."""
    up = "`extentflow up`"
    installed = LOCAL in PACKAGES.names()
    return up if installed else f"in a checkout of the project, `make setup`, then {up}"


class OnceCommand(TyperCommand):
    """A command that refuses a second value for an option that takes one; click takes the last."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Parse the arguments, as click does; raises Misconfigured."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        options = (one for one in {*given} if one.param_type_name == "option")
        for one in options:
            takes_one = not (one.multiple or getattr(one, "is_flag", False))
            if takes_one and (times := given.count(one)) > 1:
                raise Misconfigured(f"{one.opts[-1]} is given {times} times; give it once")
        return super().parse_args(ctx, args)


class DeferredCommand(TyperCommand):
    """A command that is listed by its summary, and imported when it is given."""

    def __init__(self, name: str, entry: CommandEntry) -> None:
        super().__init__(name, short_help=entry.summary)
        self._reference = entry.reference

    @cached_property
    def imported(self) -> "Command":
        """The command itself, with its options; a group of commands where it is one."""
        module, _, attribute = self._reference.partition(":")
        defined: Any = getattr(import_module(module), attribute)
        if isinstance(defined, typer.Typer):
            command: Command = get_group(defined)
        else:
            alone = typer.Typer(add_completion=False)
            alone.command(cls=OnceCommand)(defined)
            command = get_command(alone)
        command.name = self.name
        return _as_listed(command)

    def make_context(self, *given: Any, **extra: Any) -> "Context":  # noqa: ANN401 - typer's
        """Parse the arguments of the command itself, which the returned context names."""
        return self.imported.make_context(*given, **extra)


class CommandLine(TyperGroup):
    """The commands of the library, then those of installed packages.

    Packages are imported for the list of commands, and for a name that the library does not have.
    """

    def __init__(
        self,
        *,
        packages: Registry[typer.Typer] = PACKAGES,
        **attributes: Any,  # noqa: ANN401 - typer's
    ) -> None:
        super().__init__(**attributes)
        self._packages = packages
        self._defined_by: dict[str, str] = {}
        for name, entry in COMMANDS.items():
            self.add_command(DeferredCommand(name, entry))

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return the names in the order of the help."""
        self._add_packages()
        return super().list_commands(ctx)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Return the command of a name, or None; one of the library is a `DeferredCommand`."""
        if cmd_name not in self.commands:
            self._add_packages()
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        """Return the command that the first word names, as typer; accept former spellings.

        The error for a command of the local stack names the checkout.
        """
        args = _in_new_words(args)
        name = args[0]
        if name in CHECKOUT_COMMANDS and self.get_command(ctx, name) is None:
            raise Misconfigured(
                f"No such command '{name}': it belongs to a checkout of the project: there,"
                " `make setup`, then `source .venv/bin/activate`"
            )
        return super().resolve_command(ctx, args)

    def _add_packages(self) -> None:
        for package, application in self._packages.items():
            for name, command in get_group(application).commands.items():
                if self._defined_by.setdefault(name, package) != package or name in COMMANDS:
                    raise Misconfigured(
                        f"command {name!r} of the entry point {package!r} of {plugins.COMMANDS} has"
                        " the name of another one; rename it, or uninstall its package"
                    )
                self.add_command(_as_listed(command), name)


def _in_new_words(args: list[str]) -> list[str]:
    """Return a command line without a spelling of `FORMER`, with a hint to the new one."""
    for (command, *options), name in FORMER.items():
        if command == args[0] and all(option in args for option in options):
            former = " ".join((command, *options))
            output.note(f"`extentflow {former}` is now `extentflow {name}`; use the new name")
            return [name, *(word for word in args[1:] if word not in options)]
    return args


def _as_listed(command: "Command") -> "Command":
    """Let lists show a whole summary, and help be text: rich's boxes double the time of help."""
    command.short_help = command.short_help or (command.help or "").partition("\n\n")[0]
    if isinstance(command, (TyperCommand, TyperGroup)):
        command.rich_markup_mode = None
    if isinstance(command, TyperGroup):
        for one in command.commands.values():
            _as_listed(one)
    return command
