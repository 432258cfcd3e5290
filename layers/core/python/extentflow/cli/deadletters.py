"""`extentflow dead-letters`, and `replay --dead-letters`: records that could not be decoded."""

import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import orjson
import typer
from typer import Option

from extentflow.cli import output
from extentflow.cli.opened import open_runtime
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.delivery.redelivery import DeadLetter
from extentflow.services.deadletters import DeadLetterQueue, repair_line

SHOWN_BYTES = 60

Connector = Annotated[str, Option("--connector", "-c", help="The connector that sent them.")]
Everything = Annotated[
    bool,
    Option("--all", help="Also those that a replay has passed, as long as the topic has them."),
]
Limit = Annotated[int, Option("--limit", min=1, help="At most so many.")]


def dead_letters(
    *,
    connector: Connector,
    everything: Everything = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show a connector's dead letters: place, reason, first bytes; with --json as JSON lines.

    The JSON lines, with corrected records, are what `replay --dead-letters --repairs` takes.
    """
    runtime = open_runtime(creates=False)
    letters = DeadLetterQueue(runtime, connector).list(everything=everything)
    found = list(islice(letters, limit + 1))
    shown = found[:limit]
    if as_json:
        for one in shown:
            sys.stdout.write(orjson.dumps(repair_line(one)).decode() + "\n")
    else:
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
    if len(found) > limit:
        output.note(f"there are more than {limit}; --limit shows more")


def _shown(letter: DeadLetter) -> str:
    if letter.raw is None:
        return "in the object" if letter.is_row else ""
    return ascii(letter.raw[:SHOWN_BYTES])[2:-1]


def replay_letters(
    connector: str, repairs: Path | None, *, accept_duplicates: bool, as_json: bool
) -> None:
    """Deliver what a connector's dead letters hold; exit code 0 only when all of it arrived."""
    queue = DeadLetterQueue(open_runtime(), connector)
    found = queue.replay(repairs, accept_duplicates=accept_duplicates)
    if as_json:
        output.print_json(asdict(found))
    else:
        output.say(
            f"{output.counted(found.records, 'record')} delivered, {found.filtered} filtered,"
            f" {found.discarded} discarded; {found.bad} still bad, {found.left} not decoded"
            + (": these are in the queue again" if found.bad or found.left else "")
        )
    for line in found.reasons:
        output.complain(line)
    if found.bad or found.left:
        raise typer.Exit(INCOMPLETE)
