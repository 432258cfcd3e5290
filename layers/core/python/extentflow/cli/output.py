"""Output of commands (tables, text, JSON, messages, log lines) and the options that they share.

Results go to standard output, progress and messages to standard error.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any, TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Option

from extentflow import wording

AsJson = Annotated[bool, Option("--json", help="Print JSON for programs.")]
Cores = Annotated[
    int | None, Option("--cores", min=1, help="Workers at once on this machine (default: cores).")
]
Master = Annotated[
    str | None, Option("--master", help="Spark master, such as spark://host:7077 (default: local).")
]
MetricsAddress = Annotated[
    str | None,
    Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve metrics for Prometheus there, at /metrics; :PORT is every interface.",
    ),
]

# Exit codes.
INCOMPLETE = 1
NOTHING_STARTED = 2
STOPPED = 130

_STYLES = {
    "green": ("DONE", "ok"),
    "cyan": ("RUNNING", "PLANNING"),
    "dim": ("PENDING",),
    "red": ("FAILED", "problem"),
    "yellow": ("SUPERSEDED", "CANCELLED", "warning"),
}
STATE_STYLES = {state: style for style, states in _STYLES.items() for state in states}

# A pipe has no width, so rows are not wrapped.
PIPE_COLUMNS = 4_000
WHOLE = frozenset({"job"})  # never wrapped, because people copy it

# Control characters, and those that change the direction of text: keys of objects may hold them.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

size, counted = wording.format_bytes, wording.counted
# Clients log every retry, Spark's with traces; their outcome is in our own messages.
CLIENT_LOGS = ("extentflow.kafka", "py4j")

# `:secret:` in a text, for example an ARN, is no emoji.
out = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, emoji=False)
err = Console(stderr=True, soft_wrap=True, emoji=False)


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write one JSON document to standard output, for programs."""
    sys.stdout.write(json_text(value, indent=2) + "\n")


def json_text(value: Any, *, indent: int | None = None) -> str:  # noqa: ANN401 - any JSON value
    """Return a JSON document, without `indent` on one line and without spaces."""

    def plain(value: object) -> object:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)

    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, separators=separators, default=plain)


def say(*lines: str) -> None:
    """Write lines to standard output as they are, never wrapped."""
    for line in lines:
        out.print(printable(line, "\n\t"), highlight=False, markup=False, soft_wrap=True)


def show(value: Any, *lines: str, as_json: bool) -> None:  # noqa: ANN401 - any JSON value
    """Write a command's result: `value` as JSON for programs, otherwise `lines`."""
    if as_json:
        print_json(value)
    else:
        say(*lines)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write rows under headings; states are coloured where a terminal shows colours."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in WHOLE)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)


def complain(message: str) -> None:
    """Write an error to standard error, one line per problem."""
    line = escape(printable(" ".join(message.splitlines())))
    err.print(f"[red]error:[/red] {line}", highlight=False)


def note(message: str) -> None:
    """Write a message that is no error to standard error."""
    err.print(f"note: {printable(message)}", highlight=False, markup=False)


def printable(text: str, kept: str = "") -> str:
    """Escape control characters, which could forge lines or steer the terminal; not `kept` ones."""
    return _UNPRINTABLE.sub(lambda one: one[0] if one[0] in kept else ascii(one[0])[1:-1], text)


def done_of(number: int, total: int, what: str) -> str:
    """Return how many of a total are done, such as `0 of 1 extent is done`."""
    return f"{number:,} of {counted(total, what)} {'is' if total == 1 else 'are'} done"


def show_logs(*, debug: bool, stream: TextIO | None = None) -> None:
    """Show warnings of extentflow and errors of libraries, with `debug` more; on standard error."""
    least = logging.INFO if debug else logging.ERROR

    def is_shown(record: logging.LogRecord) -> bool:
        if not debug and any(_is_below(record, name) for name in CLIENT_LOGS):
            return False
        return _is_below(record, "extentflow") or record.levelno >= least

    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Printable("%(levelname)s %(name)s: %(message)s") if debug else _Line())
    handler.addFilter(is_shown)
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), "\n\t")


class _Line(_Printable):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _is_below(record: logging.LogRecord, name: str) -> bool:
    return f"{record.name}.".startswith(f"{name}.")


def duration(seconds: float) -> str:
    """Return seconds in the usual notation: 4.2 s, 3:07, 1:02:03."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def moment(seconds: float) -> str:
    """Return seconds since the epoch as local date and time with the zone's offset."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))


def local_time(seconds: float) -> str:
    """Return seconds since the epoch as local date and time, without the zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _cell(value: object) -> str:
    text = escape(printable(str(value)))
    style = STATE_STYLES.get(str(value))
    return f"[{style}]{text}[/{style}]" if style else text
