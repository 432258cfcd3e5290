"""What the command line prints: tables for people, JSON for programs, warnings.

Owns: consoles, sizes, rates and times as people read them, which log lines they see. Refuses to
know: commands. Results go to standard output, progress and messages to standard error.
"""

import io
import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import rich_utils

STATE_STYLES = {
    "DONE": "green",
    "RUNNING": "cyan",
    "PLANNING": "cyan",
    "PENDING": "dim",
    "FAILED": "red",
    "SUPERSEDED": "yellow",
    "CANCELLED": "yellow",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
}

# Programs and files have no width: rows stay whole. Help has frames as wide as all there is.
PIPE_COLUMNS = 4_000
HELP_COLUMNS = 160
WHOLE = frozenset({"job"})  # what people copy

OURS = "extentflow"
# What clients tell of troubles, Spark's with traces; what they come to is in our own messages.
CLIENT_LOGS = ("extentflow.kafka", "py4j")

out = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
err = Console(stderr=True, soft_wrap=True)


def show_everything() -> None:
    """Escape what a terminal's character set lacks, rather than fail on an object's name."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def widen_help() -> None:
    """Let help that nobody reads on a terminal cut no name of an option."""
    if not sys.stdout.isatty() and rich_utils.MAX_WIDTH is None:
        rich_utils.MAX_WIDTH = HELP_COLUMNS


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON can say
    """Write one JSON document to standard output, for programs."""
    json.dump(value, sys.stdout, indent=2, default=_plain)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows under headings; states are coloured where a terminal shows colours."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in WHOLE)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def print_records(columns: Sequence[str], records: Iterable[Mapping[str, object]]) -> None:
    """Write the named members of records as a table."""
    print_table(columns, ([record[column] for column in columns] for record in records))


def complain(message: str) -> None:
    """Write an error to standard error, one line per problem."""
    err.print(f"[red]error:[/red] {escape(' '.join(message.splitlines()))}", highlight=False)


def note(message: str) -> None:
    """Write what is worth knowing and no error, to standard error."""
    err.print(f"note: {message}", highlight=False, markup=False)


def counted(number: int, what: str) -> str:
    """Return a number of things, such as `1 job` or `2 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_logs(*, debug: bool, stream: TextIO | None = None) -> None:
    """Show our warnings and others' errors, or with `debug` much more; on standard error."""
    handler = logging.StreamHandler(stream)
    if debug:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        handler.addFilter(_concerns_developers)
    else:
        handler.setFormatter(_Line())
        handler.addFilter(_concerns_people)
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])


class _Line(logging.Formatter):
    """`warning: what happened`, as errors are written."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _is_below(record: logging.LogRecord, name: str) -> bool:
    return f"{record.name}.".startswith(f"{name}.")


def _concerns_people(record: logging.LogRecord) -> bool:
    if any(_is_below(record, name) for name in CLIENT_LOGS):
        return False
    return _is_below(record, OURS) or record.levelno >= logging.ERROR


def _concerns_developers(record: logging.LogRecord) -> bool:
    return _is_below(record, OURS) or record.levelno >= logging.INFO


def size(count: float) -> str:
    """Return bytes as people read them: 12 B, 3.4 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - binary units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float) -> str:
    """Return seconds as people read them: 4.2 s, 3:07, 1:02:03."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(seconds: float) -> str:
    """Return seconds since the epoch as this machine's date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _plain(value: object) -> object:
    """Return what JSON can say of a value that it does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def _cell(value: object) -> str:
    text = escape(str(value))
    style = STATE_STYLES.get(str(value))
    return f"[{style}]{text}[/{style}]" if style else text
