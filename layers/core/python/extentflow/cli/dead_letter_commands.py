"""`extentflow dead-letters` and `replay-dead-letters`: records that could not be decoded.

Tests: unit/cli/test_option_groups.py, integration/test_dead_letters.py
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from typer import Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.errors import Misconfigured
from extentflow.wording import plain

if TYPE_CHECKING:
    from extentflow.delivery.received_letters import DeadLetter
    from extentflow.delivery.redelivery import RedeliveryResult
    from extentflow.services.dead_letter_queues import DeadLetterQueue

SHOWN_BYTES = 60
ALL = "all"

Connector = Annotated[str, Option("--connector", "-c", help="The connector that sent them.")]
Place = Annotated[
    str | None, Option("--letter", metavar="PARTITION/OFFSET", help="Show this one, in full.")
]
Discarded = Annotated[
    list[str] | None,
    Option(
        "--discard",
        metavar="PARTITION/OFFSET",
        help="Discard it, and deliver nothing; repeatable. `all`: those listed, up to --limit.",
    ),
]
Repairs = Annotated[
    Path | None,
    Option(
        "--repairs",
        exists=True,
        dir_okay=False,
        help="Corrected records, as JSON lines of `extentflow dead-letters`.",
    ),
]
AcceptDuplicates = Annotated[
    bool, Option("--accept-duplicates", help="Continue where Kafka has lost a replay's progress.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingOptions:
    """Which dead letters are listed."""

    everything: Annotated[
        bool,
        Option("--all", help="Also those that a replay has passed, as long as the topic has them."),
    ] = False
    limit: Annotated[int, Option("--limit", min=1, help="At most so many.")] = 50


@expand_options
def dead_letters(
    *,
    connector: Connector,
    listing: ListingOptions,
    letter: Place = None,
    discard: Discarded = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Show a connector's dead letters: place, reason, first bytes; with --json as JSON lines.

    The JSON lines, with corrected records, are what `replay-dead-letters --repairs` takes.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_dead_letters
    from extentflow.services.dead_letter_queues import repair_line

    limit, queue = listing.limit, open_dead_letters(open_runtime(servers, creates=False), connector)
    if discard:
        _discard(queue, discard, limit, as_json=as_json)
        return
    letters = queue.list(everything=listing.everything)
    if letter is not None:
        place = _place(letter)
        letters = (one for one in letters if (one.partition, one.offset) == place)
    found = list(islice(letters, limit + 1))
    if letter is not None and not found:
        raise Misconfigured(f"there is no dead letter {letter} of connector {connector}")
    shown = found[:limit]
    if as_json:
        for one in shown:
            sys.stdout.write(orjson.dumps(repair_line(one)).decode() + "\n")
    elif letter is not None:
        _show_whole(found[0])
    elif shown:
        rows = [
            (
                f"{one.partition}/{one.offset}",
                one.text("extentflow.object"),
                one.text("extentflow.offset") or one.text("extentflow.row"),
                one.attempt,
                one.reason,
                _shown(one),
            )
            for one in shown
        ]
        output.print_table(("letter", "object", "location", "attempt", "reason", "bytes"), rows)
    if not found:
        output.note(
            f"connector {connector} has no dead letter"
            + ("" if listing.everything else " left; --all also shows those that a replay passed")
        )
    elif len(found) > limit:
        output.note(f"there are more than {limit}; --limit shows more")


def _discard(queue: "DeadLetterQueue", words: Sequence[str], limit: int, *, as_json: bool) -> None:
    places = [_place(word) for word in words if word != ALL]
    listed = list(islice(queue.list(), limit + 1)) if ALL in words else []
    places += ((one.partition, one.offset) for one in listed[:limit])
    found = queue.discard(places)
    said = f"{output.counted(found.discarded, 'dead letter')} discarded"
    others = f"{output.counted(found.kept, 'other')} of these partitions"
    kept = f"; kept at new offsets: {others}" if found.kept else ""
    output.show({"discarded": found.discarded, "kept": found.kept}, said + kept, as_json=as_json)
    if len(listed) > limit:
        output.note(f"there are more than {limit}; the same command again discards the next ones")
    _require_complete(found, queue.connector)


def _place(word: str) -> tuple[int, int]:
    partition, _, offset = word.partition("/")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise Misconfigured(f"{plain(word)} is no dead letter; write PARTITION/OFFSET, as in 0/17")
    return int(partition), int(offset)


def _show_whole(letter: "DeadLetter") -> None:
    """Print one dead letter: its headers, then the bytes of its record, with escapes."""
    facts = [(name, letter.text(name)) for name in sorted(letter.headers)]
    output.print_table(("", ""), [("letter", f"{letter.partition}/{letter.offset}"), *facts])
    output.say("(its bytes are in the object)" if letter.raw is None else _escaped(letter.raw))


def _escaped(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _shown(letter: "DeadLetter") -> str:
    if letter.raw is None:
        return "in the object" if letter.is_row else ""
    return ascii(letter.raw[:SHOWN_BYTES])[2:-1]


@expand_options
def replay_dead_letters(
    *,
    connector: Connector,
    repairs: Repairs = None,
    accept_duplicates: AcceptDuplicates = False,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Decode a connector's dead letters again, and deliver their records.

    Exit code 0 only when all of them were delivered, filtered or discarded.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_dead_letters

    queue = open_dead_letters(open_runtime(servers), connector)
    found = queue.replay(repairs, accept_duplicates=accept_duplicates)
    if as_json:
        output.print_json(asdict(found))
    else:
        output.say(
            f"{output.counted(found.records, 'record')} delivered, {found.filtered} filtered,"
            f" {found.discarded} discarded; {found.bad} still bad, {found.left} not decoded"
            + (": these are in the queue again" if found.bad or found.left else "")
        )
    _require_complete(found, connector)


def _require_complete(found: "RedeliveryResult", connector: str) -> None:
    """Print what is not delivered, or lost with its topic, and end with another exit code."""
    for line in found.reasons:
        output.complain(line)
    if found.bad or found.left:
        output.note(
            f"`extentflow dead-letters -c {connector}` shows them, with their reasons; with"
            " --discard PARTITION/OFFSET, or all, it discards them"
        )
    if found.bad or found.left or found.reasons:
        raise typer.Exit(INCOMPLETE)
